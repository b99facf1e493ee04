/*
 * test_counter_transitions.c - counters that count entities: which events
 * count, on which row, and what the ledger is told.
 */

#include "counter_run.h"

/* Where the table says the entity is counted. */
static void
assert_state(int rule, const char *entity, const char *dimensions)
{
    struct meter_str name = str_of(entity);
    const struct table_row *row =
        table_get(STATE, str_of("acme"), rules[rule].name, NULL, &name);

    assert_true(row->has_key == (dimensions != NULL));
    assert_true(row->updated_us == stamp.recorded_us);
    if (dimensions != NULL) {
        assert_string_equal(row->dimensions, dimensions);
    }
}

static void
transition__connect_and_disconnect__count_once(void **state)
{
    (void)state;
    transition_make(0, DEVICES, 0, 1, "\"a\"");
    run(1);
    assert_true(was_careful);
    assert_value(DEVICES, 0, 1);
    assert_state(DEVICES, "\"a\"", "{\"d\":0}");
    assert_from_state(0, "{\"devices\":null}");
    transition_make(0, DEVICES, 0, -1, "\"a\"");
    run(1);
    assert_value(DEVICES, 0, 0);
    assert_state(DEVICES, "\"a\"", NULL);
    assert_from_state(0, "{\"devices\":{\"d\":0}}");
}

static void
transition__disconnect_before_connect__changes_nothing(void **state)
{
    (void)state;
    transition_make(0, DEVICES, 0, -1, "\"a\"");
    run(1);
    assert_null(items[0].error);
    assert_null(row_of(DEVICES, 0)); /* not even a row at 0 */
    assert_int_equal(keys_of(DEVICES), 0);
    assert_int_equal(counters->changed(rows), 0);
    assert_state(DEVICES, "\"a\"", NULL); /* known, with its time */
    assert_from_state(0, "{\"devices\":null}");

    /* In one batch, in this order: connected at the end. */
    transition_make(0, DEVICES, 0, -1, "\"b\"");
    transition_make(1, DEVICES, 0, 1, "\"b\"");
    run(2);
    assert_value(DEVICES, 0, 1);
    assert_state(DEVICES, "\"b\"", "{\"d\":0}");
}

static void
transition__connect_twice__counts_where_it_was_first(void **state)
{
    (void)state;
    transition_make(0, DEVICES, 0, 1, "1");
    transition_make(1, DEVICES, 1, 1, "1");
    transition_make(2, DEVICES, 1, 1, "\"1\""); /* another entity */
    run(3);
    assert_value(DEVICES, 0, 1);
    assert_value(DEVICES, 1, 1);
    assert_from_state(1, "{\"devices\":{\"d\":0}}");
    assert_from_state(2, "{\"devices\":null}");
    transition_make(0, DEVICES, 1, 1, "1");
    run(1);
    assert_int_equal(counters->changed(rows), 0);
    assert_value(DEVICES, 1, 1);
    assert_state(DEVICES, "1", "{\"d\":0}");
}

static void
transition__disconnect_with_other_dimensions__leaves_where_it_was(void **state)
{
    (void)state;
    transition_make(0, DEVICES, 0, 1, "1");
    transition_make(1, DEVICES, 1, 1, "2");
    run(2);
    transition_make(0, DEVICES, 1, -1, "1");
    run(1);
    assert_value(DEVICES, 0, 0);
    assert_value(DEVICES, 1, 1);
    assert_null(row_of(DEVICES, 2));
    transition_make(0, DEVICES, 3, 1, "1"); /* moved: 0 -> 3 -> nowhere -> 2 */
    transition_make(1, DEVICES, 0, -1, "1");
    transition_make(2, DEVICES, 2, 1, "1");
    run(3);
    assert_value(DEVICES, 0, 0);
    assert_value(DEVICES, 3, 0);
    assert_value(DEVICES, 2, 1);
    assert_from_state(1, "{\"devices\":{\"d\":3}}");
    assert_from_state(2, "{\"devices\":null}");
    assert_state(DEVICES, "1", "{\"d\":2}");
}

static void
transition__two_counters_of_one_event__each_has_its_state(void **state)
{
    (void)state;
    transition_make(0, SEATS, 0, 1, "1");
    run(1);
    transition_make(0, SEATS, 1, 1, "1"); /* seats before devices */
    transition_add(&items[0], DEVICES, 1, 1, "1");
    change_add(&items[0], RAW, 0, 5);
    run(1);
    assert_value(SEATS, 0, 1);
    assert_value(DEVICES, 1, 1);
    assert_value(RAW, 0, 5);
    assert_from_state(0, "{\"devices\":null,\"seats\":{\"d\":0}}");
    event_make(0, RAW, 0, 5);
    run(1);
    assert_from_state(0, NULL);
}

/* Two rules of one counter on one event: down, then up again. */
static void
transition__same_counter_twice_in_an_event__is_applied_in_order(void **state)
{
    (void)state;
    transition_make(0, DEVICES, 0, 1, "1");
    run(1);
    transition_make(0, DEVICES, 1, -1, "1");
    transition_add(&items[0], DEVICES, 1, 1, "1");
    run(1);
    assert_value(DEVICES, 0, 0);
    assert_value(DEVICES, 1, 1);
    assert_from_state(0, "{\"devices\":{\"d\":0}}");
    assert_state(DEVICES, "1", "{\"d\":1}");
}

static void
transition__order__is_that_of_recorded_at(void **state)
{
    int64_t later;

    (void)state;
    transition_make(0, DEVICES, 0, 1, "1");
    run(1);
    /* Another process was here, its clock ahead. */
    later = stamp.recorded_us + 5000000;
    tables[STATE].rows[0].updated_us = later;
    transition_make(0, DEVICES, 0, 1, "1"); /* even one that changes nothing */
    run(1);
    assert_true(stamp.recorded_us == later + 1);
    assert_state(DEVICES, "1", "{\"d\":0}");
}

/*
 * The one that connects is rejected, so those behind it see another state;
 * the row that they need then may not be locked. The next run decides.
 */
static void
transition__rejected_event__is_as_if_it_had_never_come(void **state)
{
    (void)state;
    event_make(0, RAW, 0, INT64_MAX);
    run(1);
    transition_make(0, DEVICES, 0, 1, "1");
    change_add(&items[0], RAW, 0, 1); /* too much */
    transition_make(1, DEVICES, 1, 1, "1");
    transition_make(2, DEVICES, 2, -1, "1");
    transition_make(3, DEVICES, 3, 1, "1");
    event_make(4, RAW, 0, -1);
    run(5);
    assert_non_null(strstr(items[0].error, "overflow"));
    for (size_t i = 1; i < 5; i++) {
        assert_null(items[i].error);
    }
    assert_null(row_of(DEVICES, 0));
    assert_value(DEVICES, 1, 0);
    assert_value(DEVICES, 3, 1);
    assert_from_state(1, "{\"devices\":null}");
    assert_from_state(2, "{\"devices\":{\"d\":1}}");
    assert_state(DEVICES, "1", "{\"d\":3}");
    assert_value(RAW, 0, INT64_MAX - 1);
}

static void
transition__new_keys_past_the_limit__are_rejected(void **state)
{
    static const char *const entities[] = {"0", "1", "2", "3", "4", "5"};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        transition_make(i, SEATS, i, 1, entities[i]);
    }
    transition_make(4, SEATS, 0, 1, "4");  /* an old key */
    transition_make(5, SEATS, 3, -1, "3"); /* was never counted */
    run(6);
    assert_non_null(strstr(items[3].error, "limits.counterKeys"));
    assert_null(items[4].error);
    assert_null(items[5].error);
    assert_value(SEATS, 0, 2);
    assert_int_equal(keys_of(SEATS), 3);
    assert_state(SEATS, "3", NULL);
    /* Rejected for good, the entity may be counted elsewhere. */
    transition_make(0, SEATS, 1, 1, "3");
    run(1);
    assert_value(SEATS, 1, 2);
}

/* No room for the mark in the event's own memory: it is told so. */
static void
transition__no_room_for_the_mark__rejects_the_event(void **state)
{
    struct arena full;

    (void)state;
    arena_init(&full, 16, 16);
    transition_make(0, DEVICES, 0, 1, "1");
    items[0].projected.arena = &full;
    transition_make(1, DEVICES, 1, 1, "1");
    run(2);
    assert_string_equal(items[0].error,
                        "no memory is left for the event's counters");
    assert_value(DEVICES, 1, 1);
    arena_fini(&full);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(transition__connect_and_disconnect__count_once),
    TEST(transition__disconnect_before_connect__changes_nothing),
    TEST(transition__connect_twice__counts_where_it_was_first),
    TEST(transition__disconnect_with_other_dimensions__leaves_where_it_was),
    TEST(transition__two_counters_of_one_event__each_has_its_state),
    TEST(transition__same_counter_twice_in_an_event__is_applied_in_order),
    TEST(transition__order__is_that_of_recorded_at),
    TEST(transition__rejected_event__is_as_if_it_had_never_come),
    TEST(transition__new_keys_past_the_limit__are_rejected),
    TEST(transition__no_room_for_the_mark__rejects_the_event),
};

RUN_TAP(tests)
