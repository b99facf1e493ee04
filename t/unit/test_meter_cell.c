#include "meter_cmocka.h"

#include "meter_hash.h"
#include "meter_random.h"
#include "outbox_fixture.h"

enum { SIZE = METER_OUTBOX_SIZE_MIN, COUNT = 64 };


static struct meter_str
numbered_key(uint8_t *buffer, size_t room, int number, int64_t bucket_us)
{
    char name[16];

    snprintf(name, sizeof(name), "k%d", number);
    return box_body(buffer, room, name, bucket_us);
}


static bool
add(struct box *box, int number, int64_t bucket_us, int64_t quantity)
{
    uint8_t buffer[METER_CELL_BODY_SIZE];

    return meter_cell_add(
        &box->outbox, numbered_key(buffer, sizeof(buffer), number, bucket_us),
        bucket_us, meter_decimal_from_int(quantity), 0);
}


/* The next record as a delta. */
static void
next_delta(struct box *box, struct meter_outbox_cursor *cursor,
           struct meter_record_event *event)
{
    struct meter_record record;

    assert_true(box_next(box, cursor, &record));
    assert_int_equal(record.kind, METER_RECORD_DELTA);
    assert_true(meter_record_event_decode(record.body, event));
    assert_int_equal(meter_record_weight(&record), event->count);
}


static void
add__same_and_other_keys__sums_by_key(void **state)
{
    struct meter_outbox_cursor cursor;
    static struct meter_record_event event;
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_false(meter_cell_is_any_open(&box.outbox));
    assert_true(add(&box, 1, BOX_TS, 5));
    assert_true(add(&box, 2, BOX_TS, -7));
    assert_true(add(&box, 1, BOX_TS, 6));
    assert_true(add(&box, 1, BOX_TS + METER_CELL_BUCKET_US, 100));
    assert_true(meter_cell_is_any_open(&box.outbox));
    assert_int_equal(box.outbox.live->counts.open, 4);
    assert_int_equal(box.outbox.live->counts.seen, 4);
    assert_true(meter_cell_seal(&box.outbox, INT64_MAX));
    assert_false(meter_cell_is_any_open(&box.outbox));
    assert_int_equal(box.outbox.live->counts.open, 0);
    assert_int_equal(box.outbox.live->counts.recorded, 4);

    meter_outbox_cursor(&box.outbox, &cursor);
    next_delta(&box, &cursor, &event);
    assert_true(meter_str_equal(event.resource, METER_STR("k1")));
    assert_true(meter_str_equal(event.tenant, METER_STR("acme")));
    assert_true(meter_str_equal(event.quantity, METER_STR("11")));
    assert_int_equal(event.count, 2);
    assert_int_equal(event.ts_us, BOX_TS);
    assert_int_equal(event.flags, METER_EVENT_CAPTURED);
    next_delta(&box, &cursor, &event);
    assert_true(meter_str_equal(event.quantity, METER_STR("-7")));
    assert_int_equal(event.count, 1);
    next_delta(&box, &cursor, &event);
    assert_true(meter_str_equal(event.quantity, METER_STR("100")));
    assert_int_equal(event.ts_us, BOX_TS + METER_CELL_BUCKET_US);
    box_free(&box);
}


static void
add__no_cell_free_or_key_too_long__changes_nothing(void **state)
{
    static char key[METER_CELL_BODY_SIZE + 1];
    struct meter_decimal one = meter_decimal_from_int(1);
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_false(
        meter_cell_add(&box.outbox, (struct meter_str){key, 0}, 0, one, 0));
    assert_false(meter_cell_add(
        &box.outbox, (struct meter_str){key, METER_CELL_BODY_SIZE + 1}, 0, one,
        0));
    assert_true(meter_cell_add(
        &box.outbox, (struct meter_str){key, METER_CELL_BODY_SIZE}, 0, one, 0));
    for (int i = 1; i < COUNT; i++) {
        assert_true(add(&box, i, BOX_TS, 1));
    }
    assert_false(add(&box, COUNT, BOX_TS, 1));
    assert_true(add(&box, 5, BOX_TS, 1)); /* an open one */
    assert_int_equal(box.outbox.live->counts.seen, COUNT + 1);
    assert_counts_hold(&box.outbox.live->counts);
    box_free(&box);
}


static void
add__sum_overflows__changes_nothing(void **state)
{
    uint8_t buffer[METER_CELL_BODY_SIZE];
    struct meter_str key = numbered_key(buffer, sizeof(buffer), 1, BOX_TS);
    const struct meter_cell_half *half;
    struct meter_decimal huge;
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_int_equal(meter_decimal_parse(
                         METER_STR("99999999999999999999999999999.5"), &huge),
                     METER_DECIMAL_OK);
    assert_true(meter_cell_add(&box.outbox, key, BOX_TS, huge, 0));
    assert_false(meter_cell_add(&box.outbox, key, BOX_TS, huge, 9));
    half = meter_cell_current(&box.outbox.cells.items[0]);
    assert_int_equal(half->count, 1);
    assert_int_equal(half->operation, 0);
    assert_int_equal(meter_decimal_compare(meter_cell_quantity(half), huge), 0);
    assert_int_equal(box.outbox.live->counts.open, 1);
    huge.units = -huge.units;
    assert_true(meter_cell_add(&box.outbox, key, BOX_TS, huge, 9));
    half = meter_cell_current(&box.outbox.cells.items[0]);
    assert_int_equal(half->operation, 9);
    assert_true(meter_cell_quantity(half).units == 0);
    box_free(&box);
}


/* Chosen keys that meet in one chain end up as records of their own. */
static void
add__keys_of_one_chain__get_no_cell_when_it_is_long(void **state)
{
    struct box box;
    int open = 0, refused = 0;

    (void)state;
    box_init(&box, SIZE);
    for (int number = 0; refused < 5; number++) {
        uint8_t buffer[METER_CELL_BODY_SIZE];
        struct meter_str key =
            numbered_key(buffer, sizeof(buffer), number, BOX_TS);

        if ((meter_hash(key.data, key.size, 0) &
             box.outbox.cells.bucket_mask) != 7) {
            continue;
        }
        if (add(&box, number, BOX_TS, 1)) {
            assert_int_equal(refused, 0);
            open++;
        } else {
            refused++;
        }
    }
    assert_int_equal(open, 32);
    assert_true(meter_cell_seal(&box.outbox, INT64_MAX));
    assert_int_equal(box.outbox.head, 33);
    box_free(&box);
}


static void
seal__buckets_that_ended__oldest_first(void **state)
{
    const int64_t bucket = METER_CELL_BUCKET_US;
    struct meter_outbox_cursor cursor;
    static struct meter_record_event event;
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_true(add(&box, 1, BOX_TS, 1));
    assert_true(add(&box, 2, BOX_TS, 1));
    assert_true(add(&box, 3, BOX_TS + bucket, 1));
    assert_true(meter_cell_seal(&box.outbox, BOX_TS + bucket - 1));
    assert_int_equal(box.outbox.head, 1);
    assert_true(meter_cell_seal(&box.outbox, BOX_TS + bucket));
    assert_int_equal(box.outbox.head, 3);
    meter_outbox_cursor(&box.outbox, &cursor);
    next_delta(&box, &cursor, &event);
    assert_true(meter_str_equal(event.resource, METER_STR("k1")));
    next_delta(&box, &cursor, &event);
    assert_true(meter_str_equal(event.resource, METER_STR("k2")));
    assert_true(add(&box, 1, BOX_TS, 1)); /* opens again */
    assert_int_equal(box.outbox.live->counts.open, 2);
    box_free(&box);
}


/* Cells of a time that is far ahead must not keep the others waiting. */
static void
seal__clock_was_set_back__future_buckets_have_ended(void **state)
{
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_true(add(&box, 1, BOX_TS + INT64_C(3600000000), 1));
    assert_true(add(&box, 2, BOX_TS, 1));
    assert_true(meter_cell_seal(&box.outbox, BOX_TS + METER_CELL_BUCKET_US));
    assert_false(meter_cell_is_any_open(&box.outbox));
    /* The next bucket is not far ahead. */
    assert_true(add(&box, 1, BOX_TS + METER_CELL_BUCKET_US, 1));
    assert_true(meter_cell_seal(&box.outbox, BOX_TS));
    assert_true(meter_cell_is_any_open(&box.outbox));
    box_free(&box);
}


static void
seal__no_room__the_rest_stays_open(void **state)
{
    static const char big[METER_RECORD_BODY_SIZE_MAX];
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    for (int i = 0; i < COUNT; i++) {
        assert_true(add(&box, i, BOX_TS, 1));
    }
    while (box_append(&box, (struct meter_str){big, sizeof(big)}, NULL) != 0) {
    }
    assert_false(meter_cell_seal(&box.outbox, INT64_MAX));
    assert_true(box.outbox.live->counts.open > 0);
    assert_counts_hold(&box.outbox.live->counts);
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    assert_true(meter_cell_seal(&box.outbox, INT64_MAX));
    assert_int_equal(box.outbox.live->counts.open, 0);
    assert_int_equal(box.outbox.cells.free_count, COUNT);
    box_free(&box);
}


/* Against sums in plain variables, with seals anywhere. */
static void
add__random_keys_and_seals__deltas_sum_up(void **state)
{
    enum { KEYS = 100 };
    struct meter_random random = {21};
    static struct meter_record_event event;
    int64_t counts[KEYS] = {0}, sums[KEYS] = {0};
    struct meter_outbox_cursor cursor;
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    meter_outbox_cursor(&box.outbox, &cursor);
    for (int step = 0; step < 50000; step++) {
        int number = (int)random_below(&random, KEYS);
        int64_t quantity = (int64_t)random_below(&random, 2000) - 1000;
        int64_t bucket_us = BOX_TS + step / 100 * METER_CELL_BUCKET_US;

        if (add(&box, number, bucket_us, quantity)) {
            counts[number]++;
            sums[number] += quantity;
        }
        if (random_below(&random, 50) == 0) {
            assert_true(meter_cell_seal(&box.outbox, bucket_us));
        }
        if (step == 49999) {
            assert_true(meter_cell_seal(&box.outbox, INT64_MAX));
        }
        while (cursor.seq < box.outbox.head) {
            struct meter_decimal sum;
            int key;

            next_delta(&box, &cursor, &event);
            key = (int)strtol(event.resource.data + 1, NULL, 10);
            counts[key] -= event.count;
            assert_int_equal(meter_decimal_parse(event.quantity, &sum),
                             METER_DECIMAL_OK);
            sums[key] -= (int64_t)(sum.units / 1000000000);
        }
        meter_outbox_ack(&box.outbox, cursor.seq - 1);
    }
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(counts[i], 0);
        assert_int_equal(sums[i], 0);
    }
    assert_true(meter_outbox_is_drained(&box.outbox));
    box_free(&box);
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(add__same_and_other_keys__sums_by_key),
    cmocka_unit_test(add__no_cell_free_or_key_too_long__changes_nothing),
    cmocka_unit_test(add__sum_overflows__changes_nothing),
    cmocka_unit_test(add__keys_of_one_chain__get_no_cell_when_it_is_long),
    cmocka_unit_test(seal__buckets_that_ended__oldest_first),
    cmocka_unit_test(seal__clock_was_set_back__future_buckets_have_ended),
    cmocka_unit_test(seal__no_room__the_rest_stays_open),
    cmocka_unit_test(add__random_keys_and_seals__deltas_sum_up),
};

RUN_TAP(tests)
