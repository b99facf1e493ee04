/*
 * The entities of state series in a transaction: locked in order, moved on
 * one by one, the state before in the marks.
 */

#include "counter_fixture.h"

#include "meter_random.h"
#include "project/series.h"

#define BATCH_MAX 16

static const struct projection *const states = &projection_series;
static const struct series orders = {.name = {"orders", 6},
                                     .kind = SERIES_STATE};
static const struct series zones = {.name = {"zones", 5}, .kind = SERIES_STATE};
static const struct series requests = {.name = {"requests", 8}};

/* One item: up to two state changes and one of a counter series. */
struct item {
    struct series_change changes[3];
    struct series_effect effect;
    struct meter_event event;
    struct effects effects;
    struct projection_marks marks;
    struct projected view;
    char texts[4][16];
};

static struct item items[ITEMS_MAX];
static struct arena arena;
static void *rows;

static int
set_up(void **state)
{
    (void)state;
    (void)counters;
    memset(items, 0, sizeof(items));
    arena_init(&arena, 4096, 64 << 20);
    rows = states->rows_create();
    assert_non_null(rows);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    states->rows_destroy(rows);
    arena_fini(&arena);
    tables_free();
    projection_is_unsorted = false;
    return 0;
}

/* NULL: the item does not name the entity of that series. */
static struct item *
item_make(size_t i, const char *tenant, const char *order, const char *state,
          const char *zone)
{
    struct item *item = &items[i];
    size_t count = 0;

    item->changes[count++] =
        (struct series_change){.series = &requests, .count = 1};
    if (state != NULL) {
        item->changes[count++] = (struct series_change){
            .series = &orders,
            .entity = str_of(strcpy(item->texts[0], order)),
            .state = str_of(strcpy(item->texts[1], state))};
    }
    if (zone != NULL) {
        item->changes[count++] = (struct series_change){
            .series = &zones,
            .entity = str_of(strcpy(item->texts[2], order)),
            .state = str_of(strcpy(item->texts[3], zone))};
    }
    item->effect = (struct series_effect){
        item->changes, count, (state != NULL) + (size_t)(zone != NULL)};
    item->event = (struct meter_event){.tenant = str_of(tenant)};
    item->effects.of[PROJECTION_SERIES] = &item->effect;
    item->view = (struct projected){.event = &item->event,
                                    .effects = &item->effects,
                                    .writer_seq = (int64_t)i + 1,
                                    .marks = &item->marks,
                                    .arena = &arena};
    return item;
}

/* All statements of a phase; the number of them. */
static size_t
ask(enum projection_phase phase, int64_t recorded_us,
    enum projection_result expected)
{
    struct projection_stamp stamp = {writer, recorded_us, recorded_us};
    struct pg_params params;
    struct projection_query query = {.params = &params};
    size_t at = 0;
    size_t asked = 0;

    pg_params_init(&params);
    while (states->next(rows, phase, &stamp, &at, &query)) {
        PGresult *result = execute(&query);
        bool is_last = phase != PROJECTION_STATES || asked == 1;

        assert_int_equal(states->answer(rows, phase, asked, result),
                         is_last ? expected : PROJECTION_OK);
        PQclear(result);
        pg_params_reset(&params);
        asked++;
    }
    pg_params_fini(&params);
    return asked;
}

static void
lock(size_t first, size_t count)
{
    states->rows_clear(rows, false);
    for (size_t i = first; i < first + count; i++) {
        assert_true(states->collect(rows, PROJECTION_STATES, &items[i].view));
    }
    ask(PROJECTION_STATES, 0, PROJECTION_OK);
}

/* One transaction; later than all entities that it touches. */
static void
run(size_t first, size_t count, bool is_careful, int64_t now_us)
{
    struct projection_stamp stamp = {writer, now_us, now_us};
    const char *error;

    lock(first, count);
    if (states->stamp_floor(rows) >= now_us) {
        stamp.recorded_us = states->stamp_floor(rows) + 1;
    }
    for (size_t i = first; i < first + count; i++) {
        if (is_careful) {
            assert_true(states->collect(rows, PROJECTION_LOCK, &items[i].view));
            assert_int_equal(
                states->apply(rows, &items[i].view, &stamp, &error),
                PROJECTION_APPLIED);
        } else {
            assert_int_equal(states->fold(rows, &items[i].view, &stamp),
                             PROJECTION_OK);
        }
    }
    assert_int_equal(ask(PROJECTION_LOCK, 0, PROJECTION_OK), 0);
    if (!is_careful) {
        assert_int_equal(states->fold_end(rows), PROJECTION_OK);
    }
    ask(is_careful ? PROJECTION_WRITE : PROJECTION_APPLY, stamp.recorded_us,
        PROJECTION_OK);
}

static void
assert_from(const struct item *item, size_t at, const char *expected)
{
    struct meter_str from = item->marks.series_from[at];

    if (expected == NULL) {
        assert_null(from.data);
    } else {
        assert_int_equal(from.size, strlen(expected));
        assert_memory_equal(from.data, expected, from.size);
    }
}

static void
assert_members(const struct item *item, const char *expected)
{
    struct meter_str members = item->marks.series_members;

    assert_int_equal(members.size, strlen(expected));
    assert_memory_equal(members.data, expected, members.size);
}

static void
states__in_arrival_order__each_sees_the_one_before(void **state)
{
    (void)state;
    item_make(0, "t", "7", "\"new\"", "1");
    item_make(1, "t", "7", "\"paid\"", NULL);
    item_make(2, "t", "8", "\"new\"", NULL);
    item_make(3, "u", "7", "\"new\"", NULL);
    run(0, 4, false, RECORDED);
    assert_from(&items[0], 0, NULL);
    assert_from(&items[0], 1, NULL);
    assert_members(&items[0], "\"series:orders\":null,\"series:zones\":null");
    assert_from(&items[1], 0, "\"new\"");
    assert_members(&items[1], "\"series:orders\":\"\\\"new\\\"\"");
    assert_from(&items[2], 0, NULL);
    assert_from(&items[3], 0, NULL);

    item_make(4, "t", "7", "\"new\"", "2");
    run(4, 1, true, RECORDED + 1);
    assert_from(&items[4], 0, "\"paid\"");
    assert_members(&items[4],
                   "\"series:orders\":\"\\\"paid\\\"\",\"series:zones\":\"1\"");
    assert_int_equal(tables[STATE].count, 4);
    for (size_t i = 0; i < tables[STATE].count; i++) {
        assert_false(tables[STATE].rows[i].has_key);
    }
}

static void
items_without_states__need_no_rows(void **state)
{
    (void)state;
    item_make(0, "t", "7", NULL, NULL);
    run(0, 1, false, RECORDED);
    assert_int_equal(executed_count, 0);
    assert_int_equal(states->changed(rows), 0);
    assert_null(items[0].marks.series_members.data);
    assert_null(items[0].marks.series_from);
    run(0, 1, true, RECORDED);
    assert_int_equal(executed_count, 0);
}

/* The state itself does not change; it is a transition all the same. */
static void
stamp_floor__is_the_latest_of_all_entities(void **state)
{
    (void)state;
    item_make(0, "t", "7", "1", NULL);
    run(0, 1, false, RECORDED + 5);
    item_make(1, "t", "8", "1", NULL);
    run(1, 1, false, RECORDED + 9);
    item_make(2, "t", "7", "1", NULL);
    item_make(3, "t", "8", "1", NULL);
    lock(2, 2);
    assert_int_equal(states->stamp_floor(rows), RECORDED + 9);
    lock(2, 1);
    assert_int_equal(states->stamp_floor(rows), RECORDED + 5);
}

static void
undo__takes_the_item_back(void **state)
{
    struct projection_stamp stamp = {writer, RECORDED, RECORDED};
    const char *error;

    (void)state;
    item_make(0, "t", "7", "1", NULL);
    item_make(1, "t", "7", "2", "3");
    item_make(2, "t", "7", "4", NULL);
    lock(0, 3);
    assert_int_equal(states->apply(rows, &items[0].view, &stamp, &error),
                     PROJECTION_APPLIED);
    assert_int_equal(states->apply(rows, &items[1].view, &stamp, &error),
                     PROJECTION_APPLIED);
    states->undo(rows, &items[1].view);
    assert_null(items[1].marks.series_members.data);
    assert_int_equal(states->apply(rows, &items[2].view, &stamp, &error),
                     PROJECTION_APPLIED);
    assert_from(&items[2], 0, "1");
}

static void
entity_not_locked__is_missing_and_changes_nothing(void **state)
{
    struct projection_stamp stamp = {writer, RECORDED, RECORDED};
    const char *error;

    (void)state;
    item_make(0, "t", "7", "1", NULL);
    item_make(1, "t", "7", "2", "3"); /* zones is not collected */
    item_make(2, "t", "7", "4", NULL);
    lock(0, 1);
    assert_int_equal(states->apply(rows, &items[1].view, &stamp, &error),
                     PROJECTION_MISSING);
    assert_int_equal(states->fold(rows, &items[1].view, &stamp),
                     PROJECTION_FAULT);
    assert_int_equal(states->apply(rows, &items[2].view, &stamp, &error),
                     PROJECTION_APPLIED);
    assert_from(&items[2], 0, NULL);
}

/* Tries of a batch that waits for the server must not use up its memory. */
static void
another_try__uses_the_memory_again(void **state)
{
    const struct meter_str *from;
    size_t total;

    (void)state;
    item_make(0, "t", "7", "1", "2");
    run(0, 1, false, RECORDED);
    from = items[0].marks.series_from;
    total = arena.total;
    for (int i = 0; i < 10000; i++) {
        items[0].marks = (struct projection_marks){
            .series_from = items[0].marks.series_from};
        run(0, 1, i % 2 == 0, RECORDED + i);
    }
    assert_ptr_equal(items[0].marks.series_from, from);
    assert_int_equal(arena.total, total);
    assert_from(&items[0], 0, "1");
}

static void
no_room_in_the_request__is_rejected_carefully(void **state)
{
    struct projection_stamp stamp = {writer, RECORDED, RECORDED};
    const char *error = NULL;
    struct arena tiny;

    (void)state;
    arena_init(&tiny, 16, 16);
    item_make(0, "t", "7", "1", NULL)->view.arena = &tiny;
    item_make(1, "t", "7", "2", NULL);
    lock(0, 2);
    assert_int_equal(states->fold(rows, &items[0].view, &stamp),
                     PROJECTION_CAREFUL);
    assert_int_equal(states->apply(rows, &items[0].view, &stamp, &error),
                     PROJECTION_REJECTED);
    assert_non_null(strstr(error, "no memory"));
    assert_int_equal(states->apply(rows, &items[1].view, &stamp, &error),
                     PROJECTION_APPLIED);
    assert_from(&items[1], 0, NULL); /* the rejected one did nothing */
    arena_fini(&tiny);
}

static void
answers__that_cannot_be__decide_nothing(void **state)
{
    PGresult *result;
    char longer[SERIES_STATE_SIZE_MAX + 1];

    (void)state;
    memset(longer, '1', sizeof(longer));
    item_make(0, "t", "7", "1", NULL);
    assert_true(states->collect(rows, PROJECTION_STATES, &items[0].view));

    result = result_make(6);
    assert_int_equal(states->answer(rows, PROJECTION_STATES, 1, result),
                     PROJECTION_RETRY);
    set_text(result, 0, 0, "t");
    set_text(result, 0, 1, "series:orders");
    set_text(result, 0, 2, "8");
    set_null(result, 0, 4);
    set_int8(result, 0, 5, 0);
    assert_int_equal(states->answer(rows, PROJECTION_STATES, 1, result),
                     PROJECTION_FAULT);
    set_text(result, 0, 2, "7");
    set_bytes(result, 0, 4, longer, sizeof(longer));
    assert_int_equal(states->answer(rows, PROJECTION_STATES, 1, result),
                     PROJECTION_FAULT);
    set_null(result, 0, 4);
    assert_int_equal(states->answer(rows, PROJECTION_STATES, 1, result),
                     PROJECTION_OK);
    assert_int_equal(states->answer(rows, PROJECTION_STATES, 1, result),
                     PROJECTION_FAULT); /* twice */
    snprintf(affected, sizeof(affected), "0");
    assert_int_equal(states->answer(rows, PROJECTION_APPLY, 0, result),
                     PROJECTION_FAULT);
    PQclear(result);
}

/* Any batches, any path: the states before are those of one by one. */
static void
random_batches__give_what_one_by_one_gives(void **state)
{
    static const char *const tenants[] = {"a", "ab", "b"};
    struct meter_random random = {11};
    char model[3][8][16] = {{{0}}};
    int64_t now_us = RECORDED;
    size_t at = 0;

    (void)state;
    while (at + BATCH_MAX < ITEMS_MAX) {
        size_t count = 1 + random_below(&random, BATCH_MAX);

        for (size_t i = at; i < at + count; i++) {
            char order[8], to[16];

            snprintf(order, sizeof(order), "%u",
                     (unsigned)random_below(&random, 8));
            snprintf(to, sizeof(to), "\"s%u\"",
                     (unsigned)random_below(&random, 5));
            item_make(i, tenants[random_below(&random, 3)], order, to, NULL);
        }
        run(at, count, random_below(&random, 2) == 0, ++now_us);
        for (size_t i = at; i < at + count; i++) {
            size_t tenant = items[i].event.tenant.data[0] == 'b' ? 2
                            : items[i].event.tenant.size == 2    ? 1
                                                                 : 0;
            char *now = model[tenant][items[i].texts[0][0] - '0'];

            assert_from(&items[i], 0, *now == '\0' ? NULL : now);
            strcpy(now, items[i].texts[1]);
        }
        at += count;
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(items_without_states__need_no_rows,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            states__in_arrival_order__each_sees_the_one_before, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            stamp_floor__is_the_latest_of_all_entities, set_up, tear_down),
        cmocka_unit_test_setup_teardown(undo__takes_the_item_back, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            entity_not_locked__is_missing_and_changes_nothing, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(another_try__uses_the_memory_again,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            no_room_in_the_request__is_rejected_carefully, set_up, tear_down),
        cmocka_unit_test_setup_teardown(answers__that_cannot_be__decide_nothing,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            random_batches__give_what_one_by_one_gives, set_up, tear_down),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
