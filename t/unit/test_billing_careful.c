/* What the projection `meters` asks, locks, takes back and refuses. */

#include "billing_fixture.h"

static const struct meter_str user_segment = {"user", 4};
static const struct attribute_path user_path = {
    .name = {"user", 4}, .segments = &user_segment, .segment_count = 1};

static struct billing_meter meters[] = {
    METER("m_sum", BILLING_SUM),
    METER("m_uniq", BILLING_UNIQUE),
};
static const struct billing_meter *const both[] = {&meters[0], &meters[1]};
static const struct event_type type = {
    .name = {"use", 3}, .meters = both, .meter_count = 2};
static const struct event_type sum_only = {
    .name = {"use", 3}, .meters = both, .meter_count = 1};

static const struct projection_stamp stamp = {test_writer, NOON, NOON};

static int
setup_types(void **state)
{
    meters[1].value = &user_path;
    return setup_rows(state);
}

#define TEST_METERS(name) \
    cmocka_unit_test_setup_teardown(name, setup_types, teardown_rows)

static void
add(const char *id, int64_t ts_us, const char *attributes)
{
    struct item item;
    struct item *list[] = {&item};

    item_make(&item, &type, id, ts_us, "1", attributes);
    transaction_run(list, 1, NOON, WAY_FAST);
}

/* Rows of these are locked and their values read. */
static void
lock_rows(struct item **items, size_t count)
{
    transaction_look(items, count, &stamp);
    transaction_collect(items, count, PROJECTION_STATES);
    assert_int_equal(phase_run(PROJECTION_STATES, &stamp), PROJECTION_OK);
}

static enum projection_apply
apply(struct item *item)
{
    struct projected view = view_of(item);

    return projection_meters.apply(test_rows, &view, &stamp, &item->error);
}

static void
undo__of_each_kind_of_event__leaves_no_trace(void **state)
{
    static const struct {
        int64_t ts_us;
        const char *attributes;
    } cases[] = {
        {NOON + 1, "{\"user\":\"new\"}"},
        {NOON + 1, "{\"user\":\"late\"}"},
        {NOON + 1, "{\"user\":\"folded\"}"},
        {NOON - 2 * HOUR, "{\"user\":\"new\"}"},
        {NOON - 2 * HOUR, "{\"user\":\"late\"}"},
        {NOON - 2 * HOUR, "{\"user\":\"folded\"}"},
    };
    static struct fake_database before;
    static struct fake_database without;

    (void)state;
    add("a", NOON, "{\"user\":\"folded\"}");
    add("b", NOON - 2 * HOUR, "{\"user\":\"late\"}");
    before = fake;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int kept = 0; kept < 2; kept++) {
            struct item stays, goes;
            struct item *list[] = {&stays, &goes};
            struct projected view;

            fake = before;
            item_make(&stays, &type, "stays", NOON - 3 * HOUR, "3",
                      "{\"user\":\"x\"}");
            item_make(&goes, &type, "goes", cases[i].ts_us, "1",
                      cases[i].attributes);
            view = view_of(&goes);
            lock_rows(list, 2);
            assert_int_equal(apply(&stays), PROJECTION_APPLIED);
            if (kept > 0) {
                assert_int_equal(apply(&goes), PROJECTION_APPLIED);
                assert_int_equal(goes.marks.is_adjusted, cases[i].ts_us < NOON);
                projection_meters.undo(test_rows, &view);
                assert_false(goes.marks.is_adjusted);
            }
            assert_true(stays.marks.is_adjusted);
            assert_int_equal(phase_run(PROJECTION_WRITE, &stamp),
                             PROJECTION_OK);
            if (kept == 0) {
                without = fake;
            }
            assert_memory_equal(&fake, &without, sizeof(fake));
        }
        /* and with it, so that the comparison says something */
        struct item stays, goes;
        struct item *list[] = {&stays, &goes};

        fake = before;
        item_make(&stays, &type, "stays", NOON - 3 * HOUR, "3",
                  "{\"user\":\"x\"}");
        item_make(&goes, &type, "goes", cases[i].ts_us, "1",
                  cases[i].attributes);
        transaction_run(list, 2, NOON, WAY_CAREFUL);
        assert_memory_not_equal(&fake, &without, sizeof(fake));
    }
}

/* The second meter refuses; the first one has been changed by then. */
static void
apply__second_meter_refuses__first_one_is_as_it_was(void **state)
{
    static struct fake_database before;
    struct item good, bad;
    struct item *list[] = {&good, &bad};
    struct billing_change *change;

    (void)state;
    add("a", NOON, "{\"user\":\"u\"}");
    before = fake;
    for (int late = 0; late < 2; late++) {
        fake = before;
        item_make(&good, &type, "good", NOON, "2", "{\"user\":\"u\"}");
        item_make(&bad, &type, "bad", late ? NOON - 2 * HOUR : NOON, "1",
                  "{\"user\":\"v\"}");
        change =
            (struct billing_change *)((const struct billing_effect *)
                                          bad.effects.of[PROJECTION_METERS])
                ->changes;
        change[1].reading.count = INT64_MAX;
        lock_rows(list, 2);
        assert_int_equal(apply(&bad), PROJECTION_REJECTED);
        assert_non_null(strstr(bad.error, "\"m_uniq\""));
        assert_false(bad.marks.is_adjusted);
        assert_int_equal(apply(&good), PROJECTION_APPLIED);
        assert_int_equal(phase_run(PROJECTION_WRITE, &stamp), PROJECTION_OK);
        assert_int_equal(fake.adjustment_count, 0);
        assert_int_equal(fake.unique_count, 1);
        assert_true(fake.rows[0].cells[FAKE_SUM].number ==
                    3 * (meter_int128)1000000000);
    }
}

/* No two real sets share a digest: this one is made to. */
static void
groups__under_one_key__the_second_set_is_rejected(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        for (int way = WAY_FAST; way <= WAY_CAREFUL; way++) {
            struct item first, second;
            struct item *list[] = {&first, &second};
            struct billing_change *change;

            memset(&fake, 0, sizeof(fake));
            fake_carefuls = 0;
            item_make(&first, &sum_only, "a", NOON, "1", "{}");
            item_make(&second, &sum_only, "b", NOON, "1", "{}");
            change =
                (struct billing_change *)((const struct billing_effect *)second
                                              .effects.of[PROJECTION_METERS])
                    ->changes;
            change->group.json = str_of("{\"x\":1}");
            if (apart) {
                transaction_run(list, 1, NOON, (enum transaction_way)way);
                transaction_run(list + 1, 1, NOON, (enum transaction_way)way);
            } else {
                transaction_run(list, 2, NOON, (enum transaction_way)way);
            }
            assert_null(first.error);
            assert_string_equal(
                second.error,
                "meter \"m_sum\": these groups share their key with others");
            assert_int_equal(fake_carefuls, way == WAY_FAST);
            assert_int_equal(fake.row_count, 1);
            assert_int_equal(fake.rows[0].cells[FAKE_COUNT].number, 1);
        }
    }
}

static void
lock__row_that_is_gone__says_try_again(void **state)
{
    struct item first, second;
    struct item *list[] = {&first, &second};

    (void)state;
    item_make(&first, &sum_only, "a", NOON, "1", "{}");
    item_make(&second, &sum_only, "b", NOON - 24 * HOUR, "1", "{}");
    transaction_look(list, 2, &stamp);
    transaction_collect(list, 2, PROJECTION_STATES);
    fake_lost = 1;
    assert_int_equal(phase_run(PROJECTION_STATES, &stamp), PROJECTION_RETRY);
    assert_int_equal(fake_lost, 0);
}

static void
apply__row_or_value_not_collected__is_missing(void **state)
{
    static struct fake_database before;
    struct item first, other_row, other_value;
    struct item *list[] = {&first};

    (void)state;
    item_make(&first, &type, "a", NOON, "1", "{\"user\":1}");
    item_make(&other_row, &type, "b", NOON - 24 * HOUR, "1", "{\"user\":1}");
    item_make(&other_value, &type, "c", NOON, "1", "{\"user\":2}");
    transaction_run(list, 1, NOON, WAY_CAREFUL);
    before = fake;
    memset(&fake, 0, sizeof(fake));
    lock_rows(list, 1);
    assert_int_equal(apply(&other_row), PROJECTION_MISSING);
    assert_int_equal(apply(&other_value), PROJECTION_MISSING);
    assert_int_equal(apply(&first), PROJECTION_APPLIED);
    assert_int_equal(phase_run(PROJECTION_WRITE, &stamp), PROJECTION_OK);
    assert_memory_equal(&fake, &before, sizeof(fake));
}

/* Answers the first `count` statements of the phase STATES. */
static void
answer_states(size_t count)
{
    struct pg_params params;
    struct projection_query query = {.params = &params};
    size_t at = 0;

    pg_params_init(&params);
    for (size_t number = at; count > 0; count--, number = at) {
        PGresult *answer;

        pg_params_reset(&params);
        assert_true(projection_meters.next(test_rows, PROJECTION_STATES, &stamp,
                                           &at, &query));
        answer = fake_run(&query);
        assert_int_equal(projection_meters.answer(test_rows, PROJECTION_STATES,
                                                  number, answer),
                         PROJECTION_OK);
        PQclear(answer);
    }
    pg_params_fini(&params);
}

/* Made, locked, read: nothing is decided before all three. */
static void
apply__row_not_locked_or_value_not_read__is_missing(void **state)
{
    struct item item;
    struct item *list[] = {&item};

    (void)state;
    for (size_t due = 2; due <= 3; due++) { /* 3: it has a value to read */
        item_make(&item, due == 2 ? &sum_only : &type, "a", NOON, "1",
                  "{\"user\":1}");
        for (size_t answered = 0; answered <= due; answered++) {
            transaction_look(list, 1, &stamp);
            transaction_collect(list, 1, PROJECTION_STATES);
            answer_states(answered);
            assert_int_equal(apply(&item), answered < due ? PROJECTION_MISSING
                                                          : PROJECTION_APPLIED);
        }
    }
}

/* Statements of a phase until the end, by name; answers are not given. */
static size_t
count_statements(enum projection_phase phase, enum statement statement)
{
    struct pg_params params;
    struct projection_query query = {.params = &params};
    size_t found = 0;
    size_t at = 0;

    pg_params_init(&params);
    while (projection_meters.next(test_rows, phase, &stamp, &at, &query)) {
        found += query.statement == statement;
        pg_params_reset(&params);
    }
    pg_params_fini(&params);
    return found;
}

static void
look__period_that_is_not_over__is_not_asked_for(void **state)
{
    static const struct {
        int64_t now_us;
        size_t asked;
    } cases[] = {
        {NOON, 0},
        {NOON + 12 * HOUR - METER_TIME_MINUTE - 1, 0},
        {NOON + 12 * HOUR - METER_TIME_MINUTE, 1},
        {NOON + 36 * HOUR, 1},
    };
    struct item item;
    struct projected view;

    (void)state;
    item_make(&item, &type, "a", NOON, "1", "{\"user\":1}");
    view = view_of(&item);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        projection_meters.rows_clear(test_rows, i % 2 == 0);
        assert_true(projection_meters.look(test_rows, &view, cases[i].now_us));
        assert_true(projection_meters.look(test_rows, &view, cases[i].now_us));
        assert_int_equal(
            count_statements(PROJECTION_LOOK, STATEMENT_METER_CLOSED),
            cases[i].asked);
    }
}

static void
closed__another_metric_or_tenant__is_not_this_one(void **state)
{
    struct item ours, theirs;
    struct item *list[] = {&ours, &theirs};

    (void)state;
    memset(fake.closes, 0, sizeof(fake.closes));
    memcpy(fake.closes[0].tenant, "acme", 4);
    memcpy(fake.closes[0].metric, "m_uniq", 6);
    fake.closes[0].period = NOON - 12 * HOUR - EPOCH;
    fake.close_count = 1;
    item_make(&ours, &type, "a", NOON, "1", "{\"user\":1}");
    item_make(&theirs, &type, "b", NOON, "1", "{\"user\":1}");
    theirs.event.tenant = str_of("globex");
    transaction_run(list, 2, NOON + 48 * HOUR, WAY_FAST);
    assert_true(ours.marks.is_adjusted);
    assert_false(theirs.marks.is_adjusted);
    assert_int_equal(fake.adjustment_count, 1);
    assert_string_equal(fake.adjustments[0].key.metric, "m_uniq");
    assert_string_equal(fake.adjustments[0].reason, "period is closed");
    assert_string_equal(fake.adjustments[0].unique_value, "1");
    assert_false(fake.adjustments[0].value.is_set);
    assert_int_equal(fake.row_count, 4);
}

/* Three tenants that come mixed: one lock statement each. */
static void
lock__several_tenants__is_one_statement_each(void **state)
{
    static const char *const tenants[] = {"c", "a", "b", "a", "c"};
    struct item items[5];
    struct item *list[5];

    (void)state;
    for (int i = 0; i < 5; i++) {
        char *id = arena_alloc(&arena, 16);

        assert_non_null(id);
        snprintf(id, 16, "%d", i);
        item_make(&items[i], &sum_only, id, NOON - i * 24 * HOUR, "1", "{}");
        items[i].event.tenant = str_of(tenants[i]);
        list[i] = &items[i];
    }
    transaction_look(list, 5, &stamp);
    transaction_collect(list, 5, PROJECTION_STATES);
    assert_int_equal(count_statements(PROJECTION_STATES, STATEMENT_METER_LOCK),
                     3);
    projection_is_unsorted = true;
    transaction_look(list, 5, &stamp);
    transaction_collect(list, 5, PROJECTION_STATES);
    assert_int_equal(count_statements(PROJECTION_STATES, STATEMENT_METER_LOCK),
                     5);
    transaction_run(list, 5, NOON, WAY_CAREFUL);
    projection_is_unsorted = false;
    assert_int_equal(fake.row_count, 5);
    assert_int_equal(projection_meters.changed(test_rows), 5);
    transaction_run(list, 5, NOON, WAY_FAST);
    assert_int_equal(fake.row_count, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(fake.rows[i].cells[FAKE_COUNT].number, 2);
    }
}

/* Two versions of the rules in one batch: each event by its own lateness. */
static void
lateness__of_two_versions__each_event_has_its_own(void **state)
{
    static struct billing_meter strict = METER("m_sum", BILLING_SUM);
    static const struct billing_meter *const list[] = {&strict};
    static const struct event_type strict_type = {
        .name = {"use", 3}, .meters = list, .meter_count = 1};

    (void)state;
    strict.lateness_us = 60 * METER_TIME_SECOND;
    for (int way = WAY_FAST; way <= WAY_CAREFUL; way++) {
        struct item items[3];
        struct item *batch[] = {&items[0], &items[1], &items[2]};

        memset(&fake, 0, sizeof(fake));
        item_make(&items[0], &sum_only, "a", NOON, "1", "{}");
        item_make(&items[1], &sum_only, "b", NOON - HOUR, "1", "{}");
        item_make(&items[2], &strict_type, "c", NOON - HOUR / 2, "1", "{}");
        transaction_run(batch, 1, NOON, (enum transaction_way)way);
        transaction_run(batch + 1, 2, NOON, (enum transaction_way)way);
        assert_false(items[1].marks.is_adjusted);
        assert_true(items[2].marks.is_adjusted);
        assert_string_equal(fake.adjustments[0].reason,
                            "older than the watermark by more than the "
                            "lateness of 1m");
    }
}

static void
next__no_items__asks_nothing(void **state)
{
    (void)state;
    projection_meters.rows_clear(test_rows, false);
    assert_int_equal(projection_meters.fold_end(test_rows), PROJECTION_OK);
    for (int phase = PROJECTION_LOOK; phase <= PROJECTION_WRITE; phase++) {
        struct pg_params params;
        struct projection_query query = {.params = &params};
        size_t at = 0;

        pg_params_init(&params);
        assert_false(projection_meters.next(
            test_rows, (enum projection_phase)phase, &stamp, &at, &query));
        pg_params_fini(&params);
    }
    assert_int_equal(projection_meters.changed(test_rows), 0);
}

static const struct CMUnitTest tests[] = {
    TEST_METERS(undo__of_each_kind_of_event__leaves_no_trace),
    TEST_METERS(apply__second_meter_refuses__first_one_is_as_it_was),
    TEST_METERS(groups__under_one_key__the_second_set_is_rejected),
    TEST_METERS(lock__row_that_is_gone__says_try_again),
    TEST_METERS(apply__row_or_value_not_collected__is_missing),
    TEST_METERS(apply__row_not_locked_or_value_not_read__is_missing),
    TEST_METERS(look__period_that_is_not_over__is_not_asked_for),
    TEST_METERS(closed__another_metric_or_tenant__is_not_this_one),
    TEST_METERS(lock__several_tenants__is_one_statement_each),
    TEST_METERS(lateness__of_two_versions__each_event_has_its_own),
    TEST_METERS(next__no_items__asks_nothing),
};

RUN_TAP(tests)
