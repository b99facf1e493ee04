/*
 * test_counter_rows.c - counter rows of a transaction: folds, limits, the
 * log, and the careful path's one-by-one application.
 */

#include "counter_run.h"

#include "base/metrics.h"

static void
fold__rows_of_two_tenants__leave_sorted_unless_switched_off(void **state)
{
    struct projection_query query = {.params = &params};
    struct meter_str *tenants;
    size_t count;
    size_t at = 0;

    (void)state;
    for (size_t i = 0; i < 40; i++) {
        struct item *item = item_make(i, i % 2 == 0 ? "globex" : "acme");

        change_add(item, FLOOR, i, 1);
        change_add(item, RAW, i, 1);
    }
    run(40); /* the tables look at the order of all statements */
    assert_false(was_careful);
    assert_int_equal(tables[COUNTER].count, 80);
    assert_int_equal(counters->changed(rows), 80);
    assert_int_equal(keys_of(RAW), 20);

    projection_is_unsorted = true;
    counters->rows_clear(rows, true);
    assert_int_equal(run_folds(40), PROJECTION_OK);
    pg_params_reset(&params);
    assert_true(counters->next(rows, PROJECTION_APPLY, &stamp, &at, &query));
    tenants = array_of(&params, 0, &count);
    assert_true(meter_str_equal(tenants[0], METER_STR("globex")));
    free(tenants);
}

static void
fold__nothing_to_do__gives_no_statement(void **state)
{
    struct projection_query query = {.params = &params};

    (void)state;
    for (int phase = PROJECTION_LOOK; phase <= PROJECTION_WRITE; phase++) {
        size_t at = 0;

        assert_false(counters->next(rows, (enum projection_phase)phase, &stamp,
                                    &at, &query));
    }
    assert_int_equal(counters->fold_end(rows), PROJECTION_OK);
    assert_int_equal(counters->changed(rows), 0);
}

static void
fold__sixty_four_bits_left__careful_path_is_asked_for(void **state)
{
    (void)state;
    event_make(0, RAW, 0, INT64_MAX);
    event_make(1, RAW, 0, 1);
    assert_int_equal(run_folds(2), PROJECTION_CAREFUL);
}

static void
fold__two_dimension_sets_one_key__careful_path_is_asked_for(void **state)
{
    (void)state;
    event_make(0, RAW, 0, 1);
    event_make(1, RAW, 0, 1);
    items[1].changes[0].set.json = METER_STR("{\"other\":true}");
    assert_int_equal(run_folds(2), PROJECTION_CAREFUL);
}

static void
fold__a_transition__careful_path_is_asked_for(void **state)
{
    (void)state;
    transition_make(0, DEVICES, 0, 1, "1");
    assert_int_equal(run_folds(1), PROJECTION_CAREFUL);
}

/* Up and back on one row: the end is the start, the way is not. */
static void
fold__a_step_on_the_way_leaves_64_bits__is_seen(void **state)
{
    static const struct {
        int64_t start;
        bool is_careful;
    } table[] = {
        {INT64_MAX - 5, false},
        {INT64_MAX - 4, true},
        {INT64_MIN + 4, false},
        {INT64_MIN + 3, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        event_make(0, RAW, i, table[i].start);
        run(1);
        assert_false(was_careful);
        event_make(0, RAW, i, 5);
        event_make(1, RAW, i, -9);
        event_make(2, RAW, i, 4);
        run(3);
        assert_true(was_careful == table[i].is_careful);
        assert_true((items[0].error != NULL) == (i == 1));
        assert_true((items[1].error != NULL) == (i == 3));
        /* Away from the other rows of the batch. */
        event_make(0, RAW, i, -row_of(RAW, i)->value / 2);
        event_make(1, RAW, i,
                   -(row_of(RAW, i)->value - row_of(RAW, i)->value / 2));
        run(2);
    }
}

static void
upsert__clamped_row_of_a_later_transaction__is_done_carefully(void **state)
{
    (void)state;
    event_make(0, FLOOR, 0, 5);
    event_make(1, RAW, 0, 5);
    run(2);
    assert_false(was_careful);
    row_of(FLOOR, 0)->updated_us += 1000000;
    row_of(RAW, 0)->updated_us += 2000000;

    /* Rows without a clamp have no order. */
    event_make(0, RAW, 0, 1);
    run(1);
    assert_false(was_careful);
    event_make(0, FLOOR, 0, -9);
    event_make(1, RAW, 0, 1);
    run(2);
    assert_true(was_careful);
    assert_int_equal(careful_runs, 1);
    assert_true(stamp.recorded_us == RECORDED + 1 + 1000000 + 1);
    assert_true(row_of(FLOOR, 0)->updated_us == stamp.recorded_us);
    assert_true(row_of(RAW, 0)->updated_us == RECORDED + 1 + 2000000);
    assert_value(FLOOR, 0, 0);
    assert_value(RAW, 0, 7);

    /* At the same microsecond: not later either. */
    stamp.recorded_us--;
    event_make(0, FLOOR, 0, 1);
    run(1);
    assert_true(was_careful);
    event_make(0, FLOOR, 0, 1);
    run(1);
    assert_false(was_careful);
    assert_value(FLOOR, 0, 2);
}

static void
apply__overflow__only_that_event_is_rejected_and_undone(void **state)
{
    (void)state;
    event_make(0, RAW, 0, INT64_MAX - 2);
    event_make(1, RAW, 1, 1);
    run(2);
    event_make(0, RAW, 0, 1);
    event_make(1, RAW, 1, 1); /* row 1 twice, then too much */
    change_add(&items[1], RAW, 1, 1);
    change_add(&items[1], RAW, 0, 2);
    event_make(2, RAW, 0, 1);
    run(3);
    assert_true(was_careful);
    assert_int_equal(careful_runs, 2);
    assert_null(items[0].error);
    assert_string_equal(items[1].error, "counter raw would overflow 64 bits");
    assert_null(items[2].error);
    assert_value(RAW, 0, INT64_MAX);
    assert_value(RAW, 1, 1);
    assert_int_equal(items[2].projected.writer_seq, 104);
}

/* What an item changed is undone, a row that it touched twice too. */
static void
undo__item_of_several_changes__leaves_no_trace(void **state)
{
    (void)state;
    event_make(0, LOGGED, 0, 4);
    run(1);
    transition_make(0, SEATS, 2, 1, "\"e\"");
    change_add(&items[0], LOGGED, 0, -9);
    change_add(&items[0], LOGGED, 0, 2);
    event_make(1, LOGGED, 0, 1);
    transition_add(&items[1], SEATS, 1, -1, "\"e\"");
    run_lock(2);
    assert_int_equal(run_apply(0), PROJECTION_APPLIED);
    assert_from_state(0, "{\"seats\":null}");
    counters->undo(rows, &items[0].projected);
    assert_from_state(0, NULL);
    assert_int_equal(run_apply(1), PROJECTION_APPLIED);
    assert_from_state(1, "{\"seats\":null}"); /* not counted any more */
    assert_int_equal(run_phase(PROJECTION_WRITE), PROJECTION_OK);
    assert_value(LOGGED, 0, 5);
    assert_value(SEATS, 2, 0);
    assert_int_equal(tables[AUDIT].count, 3);
    assert_true(tables[AUDIT].rows[1].add == 1);
    assert_true(tables[AUDIT].rows[1].floor == 0);
    assert_true(tables[AUDIT].rows[1].seq_first == 103);
    assert_true(tables[AUDIT].rows[1].seq_last == 103);
}

static void
apply__row_holds_other_dimensions__events_on_it_are_rejected(void **state)
{
    (void)state;
    event_make(0, RAW, 0, 5);
    run(1);
    event_make(0, RAW, 0, 1);
    items[0].changes[0].set.json = METER_STR("{\"not\":1}");
    event_make(1, RAW, 1, 1);
    event_make(2, RAW, 0, 1); /* those that are stored */
    run(3);
    assert_true(was_careful);
    assert_string_equal(items[0].error, "counter raw: these dimensions share "
                                        "their key with others");
    assert_null(items[1].error);
    assert_null(items[2].error);
    assert_value(RAW, 0, 6);
    assert_value(RAW, 1, 1);
}

/* An event that was not accepted before: its rows are not there. */
static void
apply__row_that_is_not_locked__is_missing_and_nothing_changes(void **state)
{
    (void)state;
    event_make(0, RAW, 0, 1);
    run_lock(1);
    event_make(1, RAW, 0, 7);
    change_add(&items[1], RAW, 1, 7);
    assert_int_equal(run_apply(1), PROJECTION_MISSING);
    transition_make(2, DEVICES, 0, 1, "1");
    change_add(&items[2], RAW, 0, 7);
    assert_int_equal(run_apply(2), PROJECTION_MISSING);
    assert_int_equal(run_apply(0), PROJECTION_APPLIED);
    assert_int_equal(run_phase(PROJECTION_WRITE), PROJECTION_OK);
    assert_value(RAW, 0, 1);
}

static void
keys__up_to_the_limit__are_made_on_the_fast_path(void **state)
{
    int64_t before = metrics.edgemeter_cardinality_rejected_total;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        event_make(i, LIMITED, i, 1);
    }
    run(3);
    assert_false(was_careful);
    assert_int_equal(keys_of(LIMITED), 3);
    for (size_t i = 0; i < 4; i++) {
        event_make(i, LIMITED, i, 1);
    }
    event_make(4, LIMITED, 3, 1); /* the same new key */
    event_make(5, LIMITED, 0, 1);
    run(6);
    assert_true(was_careful);
    assert_string_equal(items[3].error,
                        "counter \"limited\" has 3 keys for this tenant; the "
                        "limit is 3 (limits.counterKeys)");
    assert_non_null(items[4].error);
    assert_null(items[5].error);
    assert_int_equal(keys_of(LIMITED), 3);
    assert_null(row_of(LIMITED, 3));
    assert_value(LIMITED, 0, 3);
    assert_int_equal(metrics.edgemeter_cardinality_rejected_total - before, 2);
    /* Full, but no new key: as fast as ever. */
    event_make(0, LIMITED, 0, 1);
    run(1);
    assert_false(was_careful);
}

/* Rejected for something else: the key it would have made is free again. */
static void
keys__item_rejected_behind_a_new_key__takes_no_place(void **state)
{
    (void)state;
    event_make(0, LIMITED, 0, 1);
    event_make(1, LIMITED, 1, 1);
    event_make(2, RAW, 0, INT64_MAX);
    run(3);
    event_make(0, LIMITED, 2, 1);
    change_add(&items[0], RAW, 0, 1);
    event_make(1, LIMITED, 3, 1);
    event_make(2, LIMITED, 4, 1);
    run(3);
    assert_non_null(strstr(items[0].error, "overflow"));
    assert_null(items[1].error);
    assert_non_null(strstr(items[2].error, "limits.counterKeys"));
    assert_int_equal(keys_of(LIMITED), 3);
    assert_null(row_of(LIMITED, 2));
    assert_value(LIMITED, 3, 1);
}

static void
keys__other_tenants_and_counters__have_their_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        event_make(i, LIMITED, i, 1);
        item_make(i + 3, "globex");
        change_add(&items[i + 3], LIMITED, i, 1);
        event_make(i + 6, FLOOR, i, 1);
    }
    run(9);
    assert_false(was_careful);
    event_make(0, RAW, 9, 1);
    item_make(1, "globex");
    change_add(&items[1], LIMITED, 4, 1);
    run(2);
    assert_null(items[0].error);
    assert_non_null(items[1].error);
}

static void
keys__a_thousand_of_four_thousand_rejected__the_rest_is_counted(void **state)
{
    int64_t old = rules[LIMITED].keys_max;
    size_t rejected = 0;

    (void)state;
    rules[LIMITED].keys_max = 3096;
    for (size_t i = 0; i < ITEMS_MAX; i++) {
        event_make(i, LIMITED, i, 1);
    }
    run(ITEMS_MAX);
    rules[LIMITED].keys_max = old;
    for (size_t i = 0; i < ITEMS_MAX; i++) {
        rejected += items[i].error != NULL;
        assert_true((items[i].error != NULL) == (i >= 3096));
    }
    assert_int_equal(rejected, 1000);
    assert_int_equal(careful_runs, 2);
    assert_int_equal(keys_of(LIMITED), 3096);
    assert_int_equal(tables[COUNTER].count, 3096);
}

static void
audit__fast_path__logs_the_fold_of_each_audited_row(void **state)
{
    (void)state;
    event_make(0, RAW, 0, 1);
    run(1);
    assert_int_equal(executed_count, 1); /* no one else pays */
    event_make(0, RAW, 0, 1);
    event_make(1, LOGGED, 0, 3);
    event_make(2, LOGGED, 0, -5);
    event_make(3, LOGGED, 1, 1);
    event_make(4, LOGGED, 0, 2);
    run(5);
    assert_false(was_careful);
    assert_int_equal(executed_count, 3);
    assert_int_equal(executed[2], STATEMENT_COUNTER_AUDIT_INSERT);
    assert_int_equal(tables[AUDIT].count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct table_row *log = &tables[AUDIT].rows[i];
        bool is_first = memcmp(log->key, sets[0].key, METER_DIGEST_SIZE) == 0;

        assert_true(log->has_add && log->add == (is_first ? 0 : 1));
        assert_true(log->has_floor && log->floor == (is_first ? 2 : 0));
        assert_true(log->value == (is_first ? 2 : 1));
        assert_true(log->seq_first == (is_first ? 103 : 105));
        assert_true(log->seq_last == (is_first ? 106 : 105));
        assert_true(log->updated_us == stamp.clock_us);
    }
}

/* What no fold can say is logged without one. */
static void
audit__steps_past_64_bits__are_logged_as_decided_one_by_one(void **state)
{
    (void)state;
    event_make(0, LOGGED, 0, 5);
    event_make(1, LOGGED, 0, -INT64_MAX);
    event_make(2, LOGGED, 0, -INT64_MAX);
    event_make(3, LOGGED, 0, 7);
    run(4);
    assert_true(was_careful);
    assert_value(LOGGED, 0, 7);
    assert_int_equal(tables[AUDIT].count, 1);
    assert_false(tables[AUDIT].rows[0].has_add);
    assert_false(tables[AUDIT].rows[0].has_floor);
    assert_true(tables[AUDIT].rows[0].value == 7);
}

/* Answers that cannot be: nothing is decided on them. */
static void
answer__rows_that_no_event_has__are_a_fault(void **state)
{
    struct projection_query query = {.params = &params};
    PGresult *result;
    size_t at = 0;

    (void)state;
    event_make(0, RAW, 0, 1);
    assert_true(counters->collect(rows, PROJECTION_LOCK, &items[0].projected));
    assert_true(counters->next(rows, PROJECTION_LOCK, &stamp, &at, &query));

    result = result_make(4); /* made: a row of another counter */
    set_text(result, 0, 0, "acme");
    set_text(result, 0, 1, "floor");
    set_bytes(result, 0, 2, sets[0].key, METER_DIGEST_SIZE);
    set_null(result, 0, 3);
    assert_int_equal(counters->answer(rows, PROJECTION_LOCK, 0, result),
                     PROJECTION_FAULT);
    PQclear(result);
    result = result_make(6); /* locked: none */
    assert_int_equal(counters->answer(rows, PROJECTION_LOCK, 1, result),
                     PROJECTION_RETRY);
    for (int i = 0; i < 2; i++) { /* locked: the same one twice */
        set_text(result, i, 0, "acme");
        set_text(result, i, 1, "raw");
        set_bytes(result, i, 2, sets[0].key, METER_DIGEST_SIZE);
        set_text(result, i, 3, "{\"d\":0}");
        set_int8(result, i, 4, 0);
        set_int8(result, i, 5, 0);
    }
    assert_int_equal(counters->answer(rows, PROJECTION_LOCK, 1, result),
                     PROJECTION_FAULT);
    snprintf(affected, sizeof(affected), "0"); /* written: none */
    assert_int_equal(counters->answer(rows, PROJECTION_WRITE, 0, result),
                     PROJECTION_FAULT);
    PQclear(result);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(fold__rows_of_two_tenants__leave_sorted_unless_switched_off),
    TEST(fold__nothing_to_do__gives_no_statement),
    TEST(fold__sixty_four_bits_left__careful_path_is_asked_for),
    TEST(fold__two_dimension_sets_one_key__careful_path_is_asked_for),
    TEST(fold__a_transition__careful_path_is_asked_for),
    TEST(fold__a_step_on_the_way_leaves_64_bits__is_seen),
    TEST(upsert__clamped_row_of_a_later_transaction__is_done_carefully),
    TEST(apply__overflow__only_that_event_is_rejected_and_undone),
    TEST(undo__item_of_several_changes__leaves_no_trace),
    TEST(apply__row_holds_other_dimensions__events_on_it_are_rejected),
    TEST(apply__row_that_is_not_locked__is_missing_and_nothing_changes),
    TEST(keys__up_to_the_limit__are_made_on_the_fast_path),
    TEST(keys__item_rejected_behind_a_new_key__takes_no_place),
    TEST(keys__other_tenants_and_counters__have_their_own),
    TEST(keys__a_thousand_of_four_thousand_rejected__the_rest_is_counted),
    TEST(audit__fast_path__logs_the_fold_of_each_audited_row),
    TEST(audit__steps_past_64_bits__are_logged_as_decided_one_by_one),
    TEST(answer__rows_that_no_event_has__are_a_fault),
};

RUN_TAP(tests)
