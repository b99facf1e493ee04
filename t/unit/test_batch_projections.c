/*
 * test_batch_projections.c - an item is taken by all projections or by none,
 * and a rejected one makes room for the next of its id.
 */

#include "batch_fixture.h"

static const struct projection_stamp stamp = {writer, RECORDED, RECORDED};

static void
effects_on_all(size_t i, size_t row, int64_t delta)
{
    for (size_t at = 0; at < PROJECTION_COUNT; at++) {
        set_effect(i, (enum projection_id)at, row, delta);
    }
}

/* Loads, decides and locks; returns how many were rejected. */
static size_t
apply(size_t count)
{
    size_t rejected = 0;

    assert_true(batch_load(&batch, order, count));
    batch_decide(&batch, 0, RECORDED);
    assert_true(batch_collect(&batch, PROJECTION_STATES));
    assert_true(batch_collect(&batch, PROJECTION_LOCK));
    assert_true(batch_apply(&batch, &stamp, &rejected));
    return rejected;
}

static void
batch_fold__one_projection_wants_care__says_so(void **state)
{
    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    effects_on_all(0, 1, 1);
    effects[0][PROJECTION_COUNTERS].is_careful = true;
    assert_true(batch_load(&batch, order, 1));
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(batch_fold(&batch, &stamp), PROJECTION_CAREFUL);
}

static void
batch_needs_care__only_for_items_that_can_be_accepted(void **state)
{
    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    make_item(1, 1, 0, "acme", "acme");
    assert_false(batch_needs_care(order, 2));
    items[1].effects.is_careful = true;
    assert_true(batch_needs_care(order, 2));
    items[1].error = "rejected before";
    assert_false(batch_needs_care(order, 2));
}

static void
batch_stamp_floor__is_the_latest_of_all(void **state)
{
    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    assert_true(batch_load(&batch, order, 1));
    assert_int_equal(batch_stamp_floor(&batch), 0);
    fake_floor_us[PROJECTION_METERS] = 5;
    fake_floor_us[PROJECTION_COUNTERS] = 9;
    fake_floor_us[PROJECTION_USAGE] = 7;
    assert_int_equal(batch_stamp_floor(&batch), 9);
}

/* The last projection refuses: what the others did is taken back. */
static void
batch_apply__one_projection_rejects__all_others_take_it_back(void **state)
{
    (void)state;
    fake_limit = 10;
    make_item(0, 0, 0, "acme", "acme");
    effects_on_all(0, 0, 6);
    make_item(1, 1, 0, "acme", "acme");
    effects_on_all(1, 0, 1);
    set_effect(1, PROJECTION_USAGE, 0, 5); /* 11: too much, there only */
    make_item(2, 2, 0, "acme", "acme");
    effects_on_all(2, 0, 4);
    assert_int_equal(apply(3), 1);
    assert_null(items[0].error);
    assert_string_equal(items[1].error, "row PROJECTION_USAGE is full");
    assert_int_equal(items[1].verdict, METER_VERDICT_REJECTED);
    assert_null(items[2].error);
    for (size_t at = 0; at < PROJECTION_COUNT; at++) {
        assert_int_equal(rows_of((enum projection_id)at)->values[0], 10);
    }

    /* The second run leaves it out and numbers the others densely. */
    assert_int_equal(apply(3), 0);
    assert_int_equal(batch.accepted_count, 2);
    assert_int_equal(items[2].writer_seq, 2);
    assert_int_equal(rows_of(PROJECTION_METERS)->values[0], 10);
}

static void
batch_apply__copy_of_a_rejected_event__is_the_next_candidate(void **state)
{
    (void)state;
    fake_limit = 10;
    fake_start[PROJECTION_COUNTERS][0] = 10;
    make_item(0, 0, 0, "acme", "acme");
    set_effect(0, PROJECTION_COUNTERS, 0, 9); /* too much */
    make_item(1, 0, 1, "acme", "acme");
    set_effect(1, PROJECTION_COUNTERS, 0, -1); /* same id, fits */
    make_item(2, 0, 1, "acme", "acme");
    set_effect(2, PROJECTION_COUNTERS, 0, -1); /* its duplicate */
    make_item(3, 1, 0, "acme", "acme");
    set_effect(3, PROJECTION_COUNTERS, 0, 1);
    assert_int_equal(apply(4), 1);
    assert_non_null(items[0].error);

    assert_int_equal(apply(4), 0);
    assert_int_equal(items[1].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(items[2].verdict, METER_VERDICT_DUPLICATE);
    assert_int_equal(items[3].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(rows_of(PROJECTION_COUNTERS)->values[0], 10);
}

/* The copy needs a row that only it touches: the next run locks it. */
static void
batch_apply__copy_touches_a_row_that_is_not_locked__walk_ends(void **state)
{
    size_t rejected = 0;

    (void)state;
    fake_limit = 10;
    make_item(0, 0, 0, "acme", "acme");
    set_effect(0, PROJECTION_METERS, 1, 11);
    make_item(1, 0, 1, "acme", "acme");
    set_effect(1, PROJECTION_METERS, 2, 1);
    assert_int_equal(apply(2), 1);
    assert_int_equal(apply(2), 0);
    assert_int_equal(items[1].verdict, METER_VERDICT_ACCEPTED);
    assert_int_equal(rows_of(PROJECTION_METERS)->values[2], 1);

    /* Without a rejection before it a missing row is a fault. */
    fake_is_short = true;
    make_item(0, 0, 0, "acme", "acme");
    set_effect(0, PROJECTION_METERS, 0, 1);
    assert_true(batch_load(&batch, order, 1));
    batch_decide(&batch, 0, RECORDED);
    assert_true(batch_collect(&batch, PROJECTION_LOCK));
    assert_false(batch_apply(&batch, &stamp, &rejected));
}

static void
batch_rows__marks_of_a_careful_item__are_in_the_ledger_row(void **state)
{
    struct batch_stamp whole = {
        .writer = writer, .recorded_us = RECORDED, .now_us = RECORDED};
    struct buf plain;
    struct buf marked;

    (void)state;
    buf_init(&plain, 1 << 20);
    buf_init(&marked, 1 << 20);
    make_item(0, 0, 0, "acme", "acme");
    assert_true(batch_load(&batch, order, 1));
    batch_decide(&batch, 0, RECORDED);
    batch_event_copy(&batch, &whole, &plain);
    items[0].marks.is_adjusted = true;
    items[0].marks.from_state = METER_STR("{\"on\":null}");
    batch_event_copy(&batch, &whole, &marked);
    assert_int_equal(marked.size, plain.size + strlen("{\"on\":null}"));
    assert_non_null(memmem(marked.data, marked.size, "{\"on\":null}", 11));

    /* A new try forgets them. */
    assert_true(batch_load(&batch, order, 1));
    batch_decide(&batch, 0, RECORDED);
    batch_event_copy(&batch, &whole, &marked);
    assert_int_equal(marked.size, plain.size);
    assert_memory_equal(marked.data, plain.data, plain.size);
    buf_fini(&plain);
    buf_fini(&marked);
}

/* The clock, where the order is ahead of it by more than a second. */
static void
batch_rows__order_ahead_of_the_clock__both_are_in_the_ledger_row(void **state)
{
    struct batch_stamp whole = {.writer = writer, .now_us = RECORDED};
    struct buf copied;
    struct buf clock;

    (void)state;
    buf_init(&copied, 1 << 20);
    buf_init(&clock, 64);
    pg_put_time(&clock, RECORDED);
    make_item(0, 0, 0, "acme", "acme");
    assert_true(batch_load(&batch, order, 1));
    batch_decide(&batch, 0, RECORDED);

    whole.recorded_us = RECORDED + BATCH_AHEAD_US;
    assert_int_equal(batch_stamp_clock(&whole), whole.recorded_us);
    batch_event_copy(&batch, &whole, &copied);
    assert_memory_equal(copied.data + copied.size - 6,
                        "\xff\xff\xff\xff\xff\xff",
                        6); /* NULL; the end of the stream */

    whole.recorded_us++;
    assert_int_equal(batch_stamp_clock(&whole), RECORDED);
    batch_event_copy(&batch, &whole, &copied);
    assert_memory_equal(copied.data + copied.size - clock.size - 2, clock.data,
                        clock.size);
    buf_reset(&clock);
    pg_put_time(&clock, whole.recorded_us);
    assert_non_null(memmem(copied.data, copied.size, clock.data, clock.size));
    buf_fini(&copied);
    buf_fini(&clock);
}

/* The ledger row's field with counters' and series' marks. */
static void
assert_from_state(const char *counters, const char *series,
                  const char *expected)
{
    struct batch_stamp whole = {
        .writer = writer, .recorded_us = RECORDED, .now_us = RECORDED};
    struct buf copied;
    char field[128];
    size_t size = strlen(expected);

    buf_init(&copied, 1 << 20);
    items[0].marks.from_state =
        counters == NULL ? (struct meter_str){NULL, 0} : str(counters);
    items[0].marks.series_members =
        series == NULL ? (struct meter_str){NULL, 0} : str(series);
    batch_event_copy(&batch, &whole, &copied);
    memcpy(field, (char[]){0, 0, 0, (char)size}, 4);
    memcpy(field + 4, expected, size);
    memset(field + 4 + size, 0xff, 6); /* no clock_at; the end of the stream */
    assert_memory_equal(copied.data + copied.size - size - 10, field,
                        size + 10);
    buf_fini(&copied);
}

static void
batch_rows__marks_of_counters_and_series__are_one_object(void **state)
{
    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    assert_true(batch_load(&batch, order, 1));
    batch_decide(&batch, 0, RECORDED);
    assert_from_state("{\"on\":null}", NULL, "{\"on\":null}");
    assert_from_state(NULL, "\"series:s\":null", "{\"series:s\":null}");
    assert_from_state("{\"on\":{}}", "\"series:s\":\"1\"",
                      "{\"on\":{},\"series:s\":\"1\"}");
}

static void
batch_collect_fast__accepted_items_of_such_projections_only(void **state)
{
    bool has_states = true;

    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    set_effect(0, PROJECTION_COUNTERS, 1, 1);
    make_item(1, 1, 0, "acme", "acme");
    make_item(2, 2, 0, "acme", "acme");
    set_effect(2, PROJECTION_SERIES, 3, 1);
    set_effect(2, PROJECTION_COUNTERS, 3, 1);
    assert_true(batch_load(&batch, order, 2));
    batch_decide(&batch, 0, RECORDED);
    assert_true(batch_collect_fast(&batch, &has_states));
    assert_false(has_states);
    assert_true(batch_load(&batch, order, 3));
    batch_decide(&batch, 0, RECORDED);
    assert_true(batch_collect_fast(&batch, &has_states));
    assert_true(has_states);
    assert_int_equal(rows_of(PROJECTION_SERIES)->state_count, 1);
    assert_int_equal(rows_of(PROJECTION_COUNTERS)->state_count, 0);
    /* A duplicate has no states. */
    assert_true(batch_load(&batch, order, 3));
    make_known(2, 0, "acme", "acme", RECORDED);
    batch_decide(&batch, 0, RECORDED);
    assert_true(batch_collect_fast(&batch, &has_states));
    assert_false(has_states);
}

/* Tries of one item share what outlives the transaction. */
static void
batch_load__another_try__keeps_the_memory_of_states(void **state)
{
    struct meter_str from = {NULL, 0};

    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    items[0].marks = (struct projection_marks){
        .is_adjusted = true, .series_members = str("x"), .series_from = &from};
    assert_true(batch_load(&batch, order, 1));
    assert_ptr_equal(items[0].marks.series_from, &from);
    assert_null(items[0].marks.series_members.data);
    assert_false(items[0].marks.is_adjusted);
}

#define TEST(function) \
    cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(batch_fold__one_projection_wants_care__says_so),
        TEST(batch_needs_care__only_for_items_that_can_be_accepted),
        TEST(batch_stamp_floor__is_the_latest_of_all),
        TEST(batch_apply__one_projection_rejects__all_others_take_it_back),
        TEST(batch_apply__copy_of_a_rejected_event__is_the_next_candidate),
        TEST(batch_apply__copy_touches_a_row_that_is_not_locked__walk_ends),
        TEST(batch_rows__marks_of_a_careful_item__are_in_the_ledger_row),
        TEST(batch_rows__order_ahead_of_the_clock__both_are_in_the_ledger_row),
        TEST(batch_rows__marks_of_counters_and_series__are_one_object),
        TEST(batch_collect_fast__accepted_items_of_such_projections_only),
        TEST(batch_load__another_try__keeps_the_memory_of_states),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
