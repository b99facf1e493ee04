/*
 * test_batch_counters.c - counter rows of a batch: order, folds, and the
 * careful path's one-by-one application.
 */

#include "batch_fixture.h"

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

/* Up and back on one row: the end is the start, the way is not. */
static void
batch_fold_fits__a_step_on_the_way_leaves_64_bits__is_seen(void **state)
{
    (void)state;
    make_item(0, 0, 0, "acme", "acme");
    set_change(0, 0, &counters[0], 0, 5);
    make_item(1, 1, 0, "acme", "acme");
    set_change(1, 0, &counters[0], 0, -9);
    make_item(2, 2, 0, "acme", "acme");
    set_change(2, 0, &counters[0], 0, 4);
    assert_true(batch_load(&batch, order, 3));
    batch_decide(&batch, 0, RECORDED);
    assert_int_equal(batch_fold(&batch), BATCH_FOLD_OK);
    assert_true(batch_fold_fits(&batch, 0, INT64_MAX - 5));
    assert_false(batch_fold_fits(&batch, 0, INT64_MAX - 4));
    assert_true(batch_fold_fits(&batch, INT64_MIN + 4, 0));
    assert_false(batch_fold_fits(&batch, INT64_MIN + 3, 0));
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

#define TEST(function) \
    cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(batch_fold__rows_of_two_tenants__leave_sorted_unless_switched_off),
        TEST(batch_fold__sixty_four_bits_left__careful_path_is_asked_for),
        TEST(batch_fold__two_dimension_sets_one_key__careful_path_is_asked_for),
        TEST(batch_fold_fits__a_step_on_the_way_leaves_64_bits__is_seen),
        TEST(batch_apply__random_steps__equal_to_the_fold),
        TEST(batch_apply__overflow__only_that_event_is_rejected_and_undone),
        TEST(batch_apply__copy_of_a_rejected_event__is_the_next_candidate),
        TEST(
            batch_apply__row_holds_other_dimensions__events_on_it_are_rejected),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
