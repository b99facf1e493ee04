/*
 * test_batch.c - a batch decides what one-by-one processing decides.
 *
 * The reference is a plain walk over the events with a list for the
 * registry and one value per counter row; nothing of it is shared with the
 * code under test.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ingest/batch.h"
#include "ingest/batch_rows.h"

#include <stdio.h>
#include <stdlib.h>

#define EVENTS_MAX 600
#define IDS_MAX    64
#define ROWS_MAX   8
#define RECORDED   INT64_C(1790000000000000)

static const struct counter counters[2] = {
    {.name = {"raw", 3}, .index = 0, .floor_at_zero = false},
    {.name = {"floored", 7}, .index = 1, .floor_at_zero = true},
};

/* Everything a test makes lies here, by position. */
static struct meter_event events[EVENTS_MAX];
static struct counter_change changes[EVENTS_MAX][2];
static struct batch_item items[EVENTS_MAX];
static struct batch_item *order[EVENTS_MAX];
static char identities[EVENTS_MAX][BATCH_IDENTITY_SIZE_MAX];
static uint8_t dimension_keys[ROWS_MAX][METER_DIGEST_SIZE];
static char dimensions[ROWS_MAX][16];
static char names[EVENTS_MAX][32];
static struct arena reasons;
static struct batch batch;

static uint64_t random_state = 88172645463325252u;

static unsigned
random_below(unsigned limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)((random_state >> 11) % limit);
}

static struct meter_str
str(const char *text)
{
    return (struct meter_str){text, strlen(text)};
}

static int
set_up(void **state)
{
    (void)state;
    memset(items, 0, sizeof(items));
    memset(events, 0, sizeof(events));
    arena_init(&reasons, 4096, 1 << 20);
    batch_init(&batch);
    for (size_t i = 0; i < ROWS_MAX; i++) {
        /* Not in byte order, so that sorting has work to do. */
        memset(dimension_keys[i], (int)(i * 97 + 11) & 0xff, METER_DIGEST_SIZE);
        snprintf(dimensions[i], sizeof(dimensions[i]), "{\"d\":%zu}", i);
    }
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    batch_fini(&batch);
    arena_fini(&reasons);
    return 0;
}

/* Event i: id number, content number, tenant; no counters yet. */
static struct batch_item *
make_item(size_t i, unsigned id, unsigned content, const char *tenant,
          const char *scope)
{
    struct batch_item *item = &items[i];
    uint8_t key[METER_KEY_SIZE] = {0};

    /* The low byte first: arrival order is not key order. */
    key[0] = (uint8_t)(id * 167);
    key[1] = (uint8_t)id;
    snprintf(names[i], sizeof(names[i]), "id-%u", id);
    events[i] = (struct meter_event){
        .tenant = str(tenant),
        .event_id = str(names[i]),
        .type = METER_STR("t"),
        .attributes = METER_STR("{}"),
        .quantity = meter_decimal_from_int(1),
        .count = 1,
        .ts_us = RECORDED,
    };
    *item = (struct batch_item){.event = &events[i], .arena = &reasons};
    item->identity.size = batch_identity(key, str(scope), identities[i]);
    item->identity.data = identities[i];
    item->fingerprint = (struct meter_fingerprint){
        .head = 1, .body = content, .has_body = true};
    item->position = i;
    order[i] = item;
    return item;
}

static void
set_change(size_t i, size_t at, const struct counter *counter, size_t row,
           int64_t delta)
{
    struct counter_change *change = &changes[i][at];

    *change = (struct counter_change){.counter = counter, .delta = delta};
    memcpy(change->dimension_key, dimension_keys[row], METER_DIGEST_SIZE);
    change->dimensions = str(dimensions[row]);
    items[i].changes = changes[i];
    items[i].change_count = at + 1;
}

static void
make_known(unsigned id, unsigned content, const char *tenant, const char *scope,
           int64_t first_seen_us)
{
    uint8_t key[METER_KEY_SIZE] = {(uint8_t)(id * 167), (uint8_t)id};
    struct batch_item *item = batch_find(&batch, key, str(scope));
    struct batch_known known = {
        .tenant = str(tenant),
        .fingerprint = {.head = 1, .body = content, .has_body = true},
        .first_seen_us = first_seen_us,
    };

    if (item != NULL) {
        assert_true(batch_item_known(&batch, item, &known));
    }
}


/* The reference. */

struct reference {
    bool is_there[IDS_MAX];
    unsigned content[IDS_MAX];
    int64_t first_seen_us[IDS_MAX];
    int64_t values[2][ROWS_MAX];
};

static enum meter_verdict
reference_event(struct reference *reference, unsigned id, unsigned content)
{
    if (reference->is_there[id]) {
        return reference->content[id] == content ? METER_VERDICT_DUPLICATE
                                                 : METER_VERDICT_CONFLICT;
    }
    reference->is_there[id] = true;
    reference->content[id] = content;
    reference->first_seen_us[id] = RECORDED;
    return METER_VERDICT_ACCEPTED;
}

static void
reference_step(struct reference *reference, size_t counter, size_t row,
               int64_t delta)
{
    int64_t *value = &reference->values[counter][row];

    *value += delta;
    if (counters[counter].floor_at_zero && *value < 0) {
        *value = 0;
    }
}

static int64_t
row_value(const struct batch_row *row, int64_t value)
{
    value += row->fold.a;
    return row->fold.has_b && row->fold.b > value ? row->fold.b : value;
}

static size_t
row_number(const struct batch_row *row)
{
    for (size_t i = 0; i < ROWS_MAX; i++) {
        if (memcmp(dimension_keys[i], row->dimension_key, METER_DIGEST_SIZE) ==
            0) {
            return i;
        }
    }
    fail_msg("a row that nobody made");
    return 0;
}

/* One random batch with about `repeats` percent of repeated ids. */
static void
compare_random_batch(size_t count, unsigned repeats)
{
    struct reference reference = {0};
    struct reference start;
    enum meter_verdict expected[EVENTS_MAX];
    unsigned ids[EVENTS_MAX];
    unsigned contents[EVENTS_MAX];
    unsigned fresh = 0;
    size_t accepted = 0;
    int64_t seq = 1000;

    for (unsigned id = 0; id < IDS_MAX; id += 5) {
        reference.is_there[id] = random_below(2) == 0;
        reference.content[id] = random_below(2);
        reference.first_seen_us[id] = 500 + id;
    }
    for (size_t i = 0; i < 2 * ROWS_MAX; i++) {
        reference.values[i / ROWS_MAX][i % ROWS_MAX] = random_below(4);
    }
    start = reference;
    for (size_t i = 0; i < count; i++) {
        bool is_repeat = fresh > 0 && random_below(100) < repeats;

        ids[i] = is_repeat ? random_below(fresh) : fresh % IDS_MAX;
        fresh += !is_repeat && fresh < IDS_MAX;
        contents[i] = random_below(2);
        make_item(i, ids[i], contents[i], "acme", "acme");
        expected[i] = reference_event(&reference, ids[i], contents[i]);
        for (size_t at = 0; at < 2; at++) {
            size_t row = random_below(ROWS_MAX);
            int64_t delta = random_below(2) == 0 ? 1 : -1;

            set_change(i, at, &counters[at], row, delta);
            if (expected[i] == METER_VERDICT_ACCEPTED) {
                reference_step(&reference, at, row, delta);
            }
        }
    }
    assert_true(batch_load(&batch, order, count));
    for (unsigned id = 0; id < IDS_MAX; id++) {
        if (start.is_there[id]) {
            make_known(id, start.content[id], "acme", "acme",
                       start.first_seen_us[id]);
        }
    }
    batch_decide(&batch, seq, RECORDED);
    assert_int_equal(batch_fold(&batch), BATCH_FOLD_OK);

    for (size_t i = 0; i < count; i++) {
        assert_int_equal(items[i].verdict, expected[i]);
        assert_int_equal(items[i].first_seen_us,
                         reference.first_seen_us[ids[i]]);
        if (expected[i] == METER_VERDICT_ACCEPTED) {
            accepted++;
            assert_int_equal(items[i].writer_seq, ++seq);
        }
    }
    assert_int_equal(batch.accepted_count, accepted);
    assert_int_equal(batch.audited_count, count - accepted);
    for (size_t i = 0; i < batch.row_count; i++) {
        const struct batch_row *row = batch.rows[i];
        size_t counter = row->name.size == 3 ? 0 : 1;
        size_t number = row_number(row);

        assert_int_equal(row_value(row, start.values[counter][number]),
                         reference.values[counter][number]);
        start.values[counter][number] = reference.values[counter][number];
    }
    /* Rows that the batch did not touch have not moved either. */
    assert_memory_equal(start.values, reference.values, sizeof(start.values));
}

static void
batch__repeats_from_none_to_all__equal_to_one_by_one(void **state)
{
    (void)state;
    for (unsigned repeats = 0; repeats <= 100; repeats += 10) {
        for (unsigned round = 0; round < 60; round++) {
            compare_random_batch(1 + random_below(EVENTS_MAX), repeats);
        }
    }
}

static void
batch__hundred_copies_of_one_id__one_accepted_ninety_nine_audited(void **state)
{
    struct batch_stamp stamp = {.writer = dimension_keys[0], .batch = 1};
    struct pg_params params;

    (void)state;
    for (size_t i = 0; i < 100; i++) {
        make_item(i, 7, 0, "acme", "acme");
    }
    assert_true(batch_load(&batch, order, 100));
    batch_decide(&batch, 41, RECORDED);
    assert_int_equal(batch.accepted_count, 1);
    assert_int_equal(batch.audited_count, 99);
    assert_int_equal(items[0].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(items[0].writer_seq, 42);
    for (size_t i = 1; i < 100; i++) {
        assert_int_equal(items[i].verdict, METER_VERDICT_DUPLICATE);
        assert_int_equal(items[i].first_seen_us, RECORDED);
    }
    pg_params_init(&params);
    batch_audit_params(&batch, &stamp, &params);
    assert_false(params.bytes.failed);
    assert_int_equal(params.count, 13);
    pg_params_fini(&params);
}

static void
batch__conflict_before_and_after_the_copy__first_content_wins(void **state)
{
    static const unsigned contents[] = {3, 4, 3, 4, 3};

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        make_item(i, 1, contents[i], "acme", "acme");
    }
    assert_true(batch_load(&batch, order, 5));
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(items[0].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(items[1].verdict, METER_VERDICT_CONFLICT);
    assert_int_equal(items[2].verdict, METER_VERDICT_DUPLICATE);
    assert_int_equal(items[3].verdict, METER_VERDICT_CONFLICT);
    assert_int_equal(items[4].verdict, METER_VERDICT_DUPLICATE);
}

static void
batch__same_key_of_two_tenants__both_accepted(void **state)
{
    (void)state;
    make_item(0, 1, 0, "acme", "acme");
    make_item(1, 1, 0, "globex", "globex");
    assert_true(batch_load(&batch, order, 2));
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(items[0].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(items[1].verdict, METER_VERDICT_ACCEPTED);
}

static void
batch__across_tenants__other_tenants_id_is_a_conflict(void **state)
{
    (void)state;
    make_item(0, 1, 0, "acme", "");
    make_item(1, 1, 0, "globex", "");
    make_item(2, 2, 0, "acme", "");
    make_item(3, 2, 0, "globex", "");
    assert_true(batch_load(&batch, order, 4));
    /* Known for the tenant that comes second in the batch. */
    make_known(2, 0, "globex", "", 5);
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(items[0].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(items[1].verdict, METER_VERDICT_CONFLICT);
    assert_int_equal(items[2].verdict, METER_VERDICT_CONFLICT);
    assert_int_equal(items[3].verdict, METER_VERDICT_DUPLICATE);
    assert_int_equal(items[3].first_seen_us, 5);
}

static void
batch__body_absent_on_one_side__only_the_head_is_compared(void **state)
{
    (void)state;
    make_item(0, 1, 1, "acme", "acme");
    make_item(1, 1, 2, "acme", "acme")->fingerprint.has_body = false;
    assert_true(batch_load(&batch, order, 2));
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(items[1].verdict, METER_VERDICT_DUPLICATE);
}

static void
batch_load__ids_in_any_order__keys_leave_sorted_by_scope_then_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < IDS_MAX; i++) {
        const char *tenant = i % 3 == 0 ? "globex" : "acme";

        make_item(i, (unsigned)i, 0, tenant, tenant);
    }
    assert_true(batch_load(&batch, order, IDS_MAX));
    assert_int_equal(batch.key_count, IDS_MAX);
    for (size_t i = 1; i < batch.key_count; i++) {
        const struct batch_item *a = batch.by_key[i - 1];
        const struct batch_item *b = batch.by_key[i];
        int scopes =
            meter_str_compare(batch_item_scope(a), batch_item_scope(b));

        assert_true(scopes < 0 ||
                    (scopes == 0 && memcmp(batch_item_key(a), batch_item_key(b),
                                           METER_KEY_SIZE) < 0));
    }
}

static void
batch_fold__rows_of_two_tenants__leave_sorted_unless_switched_off(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS_MAX; i++) {
        const char *tenant = i % 2 == 0 ? "globex" : "acme";

        make_item(i, (unsigned)i, 0, tenant, tenant);
        set_change(i, 0, &counters[1], i, 1);
        set_change(i, 1, &counters[0], i, 1);
    }
    assert_true(batch_load(&batch, order, ROWS_MAX));
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(batch_fold(&batch), BATCH_FOLD_OK);
    assert_int_equal(batch.row_count, 2 * ROWS_MAX);
    for (size_t i = 1; i < batch.row_count; i++) {
        const struct batch_row *a = batch.rows[i - 1];
        const struct batch_row *b = batch.rows[i];
        int order_now = meter_str_compare(a->tenant, b->tenant);

        if (order_now == 0) {
            order_now = meter_str_compare(a->name, b->name);
        }
        if (order_now == 0) {
            order_now =
                memcmp(a->dimension_key, b->dimension_key, METER_DIGEST_SIZE);
        }
        assert_true(order_now < 0);
    }
    batch.is_unsorted = true;
    assert_int_equal(batch_fold(&batch), BATCH_FOLD_OK);
    assert_true(meter_str_equal(batch.rows[0]->tenant, METER_STR("globex")));
}

static void
batch_fold__sixty_four_bits_left__careful_path_is_asked_for(void **state)
{
    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    set_change(0, 0, &counters[0], 0, INT64_MAX);
    make_item(1, 1, 0, "acme", "acme");
    set_change(1, 0, &counters[0], 0, 1);
    assert_true(batch_load(&batch, order, 2));
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(batch_fold(&batch), BATCH_FOLD_CAREFUL);
}

static void
batch_fold__two_dimension_sets_one_key__careful_path_is_asked_for(void **state)
{
    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    set_change(0, 0, &counters[0], 0, 1);
    make_item(1, 1, 0, "acme", "acme");
    set_change(1, 0, &counters[0], 0, 1);
    changes[1][0].dimensions = METER_STR("{\"other\":true}");
    assert_true(batch_load(&batch, order, 2));
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(batch_fold(&batch), BATCH_FOLD_CAREFUL);
}

/* Loads, decides, collects and locks every row at `value`. */
static void
lock_rows(size_t count, int64_t value)
{
    assert_true(batch_load(&batch, order, count));
    batch_decide(&batch, 0, RECORDED);
    assert_true(batch_rows_collect(&batch));
    for (size_t i = 0; i < batch.row_count; i++) {
        struct batch_row *row = batch.rows[i];
        struct meter_str key = {(const char *)row->dimension_key,
                                METER_DIGEST_SIZE};

        assert_true(batch_row_locked(&batch, row->tenant, row->name, key,
                                     row->dimensions, value));
        /* The same row twice is a fault of the database's answer. */
        assert_false(batch_row_locked(&batch, row->tenant, row->name, key,
                                      row->dimensions, value));
    }
}

static void
batch_apply__random_steps__equal_to_the_fold(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        int64_t start = (int64_t)random_below(5);
        int64_t values[2 * ROWS_MAX];
        size_t count = 1 + random_below(60);

        for (size_t i = 0; i < count; i++) {
            make_item(i, (unsigned)i, 0, "acme", "acme");
            for (size_t at = 0; at < 2; at++) {
                set_change(i, at, &counters[at], random_below(ROWS_MAX),
                           (int64_t)random_below(7) - 3);
            }
        }
        lock_rows(count, start);
        assert_int_equal(batch_apply(&batch), 0);
        for (size_t i = 0; i < batch.row_count; i++) {
            values[i] = batch.rows[i]->value;
        }
        assert_int_equal(batch_fold(&batch), BATCH_FOLD_OK);
        for (size_t i = 0; i < batch.row_count; i++) {
            assert_int_equal(row_value(batch.rows[i], start), values[i]);
        }
    }
}

static void
batch_apply__overflow__only_that_event_is_rejected_and_undone(void **state)
{
    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    set_change(0, 0, &counters[0], 0, 1);
    make_item(1, 1, 0, "acme", "acme"); /* row 1 first, then too much */
    set_change(1, 0, &counters[0], 1, 1);
    set_change(1, 1, &counters[0], 0, 2);
    make_item(2, 2, 0, "acme", "acme");
    set_change(2, 0, &counters[0], 0, 1);
    lock_rows(3, INT64_MAX - 2);
    assert_int_equal(batch_apply(&batch), 1);
    assert_null(items[0].error);
    assert_string_equal(items[1].error, "counter raw would overflow 64 bits");
    assert_int_equal(items[1].verdict, METER_VERDICT_REJECTED);
    assert_null(items[2].error);

    /* The second run leaves it out. */
    lock_rows(3, INT64_MAX - 2);
    assert_int_equal(batch.accepted_count, 2);
    assert_int_equal(batch_apply(&batch), 0);
    assert_int_equal(batch.row_count, 1);
    assert_int_equal(batch.rows[0]->value, INT64_MAX);
    assert_int_equal(items[2].writer_seq, 2);
}

static void
batch_apply__copy_of_a_rejected_event__is_the_next_candidate(void **state)
{
    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    set_change(0, 0, &counters[0], 0, 9); /* too much */
    make_item(1, 0, 1, "acme", "acme");
    set_change(1, 0, &counters[0], 0, -1); /* same id, fits */
    make_item(2, 0, 1, "acme", "acme");
    set_change(2, 0, &counters[0], 0, -1); /* its duplicate */
    make_item(3, 1, 0, "acme", "acme");
    set_change(3, 0, &counters[0], 0, 1);
    lock_rows(4, INT64_MAX);
    assert_int_equal(batch_apply(&batch), 1);
    assert_non_null(items[0].error);

    lock_rows(4, INT64_MAX);
    assert_int_equal(batch_apply(&batch), 0);
    assert_int_equal(items[1].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(items[2].verdict, METER_VERDICT_DUPLICATE);
    assert_int_equal(items[3].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(batch.rows[0]->value, INT64_MAX);
}

static void
batch_apply__row_holds_other_dimensions__events_on_it_are_rejected(void **state)
{
    struct meter_str key = {(const char *)dimension_keys[0], METER_DIGEST_SIZE};

    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    set_change(0, 0, &counters[0], 0, 1);
    make_item(1, 1, 0, "acme", "acme");
    assert_true(batch_load(&batch, order, 2));
    batch_decide(&batch, 0, RECORDED);
    assert_true(batch_rows_collect(&batch));
    assert_true(batch_row_locked(&batch, METER_STR("acme"), METER_STR("raw"),
                                 key, METER_STR("{\"not\":1}"), 5));
    assert_int_equal(batch_apply(&batch), 1);
    assert_non_null(items[0].error);
    assert_null(items[1].error);
}

static void
batch_rows__copy_stream__has_one_row_per_fresh_key(void **state)
{
    struct batch_stamp stamp = {
        .writer = dimension_keys[0], .recorded_us = RECORDED, .batch = 1};
    struct buf one;
    struct buf two;

    (void)state;
    buf_init(&one, 1 << 20);
    buf_init(&two, 1 << 20);
    make_item(0, 0, 0, "acme", "acme");
    make_item(1, 1, 0, "acme", "acme");
    make_item(2, 0, 0, "acme", "acme");
    assert_true(batch_load(&batch, order, 3));
    make_known(1, 0, "acme", "acme", 5);
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(batch_fresh_count(&batch), 1);
    batch_registry_copy(&batch, &stamp, &two);

    assert_true(batch_load(&batch, order, 1));
    batch_decide(&batch, 0, RECORDED);
    batch_registry_copy(&batch, &stamp, &one);
    assert_int_equal(one.size, two.size);
    assert_memory_equal(one.data, two.data, one.size);
    buf_fini(&one);
    buf_fini(&two);
}

#define TEST(function) \
    cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(batch__repeats_from_none_to_all__equal_to_one_by_one),
        TEST(batch__hundred_copies_of_one_id__one_accepted_ninety_nine_audited),
        TEST(batch__conflict_before_and_after_the_copy__first_content_wins),
        TEST(batch__same_key_of_two_tenants__both_accepted),
        TEST(batch__across_tenants__other_tenants_id_is_a_conflict),
        TEST(batch__body_absent_on_one_side__only_the_head_is_compared),
        TEST(batch_load__ids_in_any_order__keys_leave_sorted_by_scope_then_key),
        TEST(batch_fold__rows_of_two_tenants__leave_sorted_unless_switched_off),
        TEST(batch_fold__sixty_four_bits_left__careful_path_is_asked_for),
        TEST(batch_fold__two_dimension_sets_one_key__careful_path_is_asked_for),
        TEST(batch_apply__random_steps__equal_to_the_fold),
        TEST(batch_apply__overflow__only_that_event_is_rejected_and_undone),
        TEST(batch_apply__copy_of_a_rejected_event__is_the_next_candidate),
        TEST(
            batch_apply__row_holds_other_dimensions__events_on_it_are_rejected),
        TEST(batch_rows__copy_stream__has_one_row_per_fresh_key),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
