/*
 * test_retention.c - partitions of many days, floors to be, clocks that are
 * not to be trusted, and what the daemon reads of a run.
 */

#include "meter_cmocka.h"

#include "maintain/retention_job.h"
#include "maintain/retention_plan.h"

#define SERIES(level) (PARTITION_SERIES + METER_LEVEL_##level)
#define DAY           METER_TIME_DAY
#define TODAY         20000 /* 2024-10-04 */
#define NOW_US        ((int64_t)TODAY * DAY + 5 * METER_TIME_HOUR)


/* ---- partitions ------------------------------------------------------- */

static void
span__of_each_table__is_known(void **state)
{
    (void)state;
    assert_int_equal(partition_span(PARTITION_EVENT), 1);
    assert_int_equal(partition_span(PARTITION_AUDIT), 1);
    assert_int_equal(partition_span(PARTITION_INDEX), 1);
    assert_int_equal(partition_span(SERIES(5S)), 1);
    assert_int_equal(partition_span(SERIES(1M)), 1);
    assert_int_equal(partition_span(SERIES(1H)), 28);
    assert_int_equal(partition_span(SERIES(1D)), 364);
    assert_int_equal(partition_span(SERIES(7D)), 364);
}

/* As t/sql/03-partition.sql has them. */
static void
first_day__on_either_side_of_a_boundary__is_as_in_sql(void **state)
{
    (void)state;
    assert_int_equal(partition_first_day(PARTITION_EVENT, -1), -1);
    assert_int_equal(partition_first_day(SERIES(1M), TODAY), TODAY);
    assert_int_equal(partition_first_day(SERIES(1H), 4), 4);
    assert_int_equal(partition_first_day(SERIES(1H), 31), 4);
    assert_int_equal(partition_first_day(SERIES(1H), 32), 32);
    assert_int_equal(partition_first_day(SERIES(1H), 3), -24);
    assert_int_equal(partition_first_day(SERIES(7D), 367), 4);
    assert_int_equal(partition_first_day(SERIES(7D), 368), 368);
    assert_int_equal(partition_first_day(SERIES(7D), 3), -360);
    assert_int_equal(partition_first_day(SERIES(7D), -719162), -719162);
}

/* Floors are first days, and whole buckets of the level above. */
static void
first_day__of_any_day__is_a_bucket_of_the_level_above(void **state)
{
    (void)state;
    for (int32_t day = -3000; day < 30000; day++) {
        for (int level = 0; level < METER_LEVEL_COUNT; level++) {
            enum partition_parent parent = PARTITION_SERIES + level;
            int32_t first = partition_first_day(parent, day);
            int above = level + 1 < METER_LEVEL_COUNT ? level + 1 : level;
            int64_t first_us = (int64_t)first * DAY;

            assert_true(first <= day && day < first + partition_span(parent));
            assert_int_equal(partition_first_day(parent, first), first);
            assert_int_equal(
                meter_level_bucket((enum meter_level)above, first_us),
                first_us);
        }
    }
}


/* ---- floors ----------------------------------------------------------- */

static int32_t
floor_of(enum partition_parent parent, int days, int32_t stored,
         int32_t ceiling)
{
    const struct retention_plan plan = {days, stored, ceiling};

    return retention_plan_floor(parent, &plan, NOW_US);
}

static void
floor__never_goes_back__nor_above_finer_levels(void **state)
{
    (void)state;
    assert_int_equal(
        floor_of(PARTITION_EVENT, 730, RETENTION_NO_FLOOR, INT32_MAX),
        TODAY - 730);
    assert_int_equal(
        floor_of(PARTITION_EVENT, -1, RETENTION_NO_FLOOR, INT32_MAX),
        RETENTION_NO_FLOOR);
    assert_int_equal(floor_of(PARTITION_EVENT, -1, 17, INT32_MAX), 17);
    /* never back, when more is kept from now on */
    assert_int_equal(floor_of(PARTITION_EVENT, 730, TODAY - 30, INT32_MAX),
                     TODAY - 30);
    /* a partition goes as a whole: 19600 is in that of 19576 */
    assert_int_equal(floor_of(SERIES(1H), 400, RETENTION_NO_FLOOR, INT32_MAX),
                     19576);
    /* a finer level that could not go holds up the coarser */
    assert_int_equal(floor_of(SERIES(1M), 7, RETENTION_NO_FLOOR, TODAY - 9),
                     TODAY - 9);
    assert_int_equal(floor_of(SERIES(1H), 7, RETENTION_NO_FLOOR, 19600), 19576);
    assert_int_equal(
        floor_of(SERIES(1M), 30, RETENTION_NO_FLOOR, RETENTION_NO_FLOOR),
        RETENTION_NO_FLOOR);
}

/* Whatever is configured finer <= coarser, so are the floors. */
static void
floor__of_a_coarser_level__is_not_above_the_finer(void **state)
{
    (void)state;
    for (int days = 0; days < 1500; days++) {
        int32_t finer = INT32_MAX;

        for (int level = 0; level < METER_LEVEL_COUNT; level++) {
            int32_t floor = floor_of(PARTITION_SERIES + level, days,
                                     RETENTION_NO_FLOOR, finer);

            assert_true(floor <= finer);
            assert_true(floor <= TODAY - days);
            finer = floor;
        }
    }
}

static void
order__has_every_table__series_finest_first(void **state)
{
    bool seen[PARTITION_PARENTS] = {false};

    (void)state;
    for (int i = 0; i < PARTITION_PARENTS; i++) {
        seen[retention_order[i]] = true;
        if (i > 0 && i < METER_LEVEL_COUNT) {
            assert_true(retention_order[i] == retention_order[i - 1] + 1);
        }
    }
    for (int i = 0; i < PARTITION_PARENTS; i++) {
        assert_true(seen[i]);
    }
}

static void
jump__of_more_than_a_month_or_a_partition__is_one(void **state)
{
    (void)state;
    assert_false(
        retention_plan_is_jump(PARTITION_EVENT, RETENTION_NO_FLOOR, TODAY));
    assert_false(retention_plan_is_jump(PARTITION_EVENT, TODAY, TODAY + 32));
    assert_true(retention_plan_is_jump(PARTITION_EVENT, TODAY, TODAY + 33));
    assert_false(retention_plan_is_jump(SERIES(7D), 4, 368));
    assert_true(retention_plan_is_jump(SERIES(7D), 4, 732));
}


/* ---- clocks ----------------------------------------------------------- */

static void
doubt__of_clocks_a_day_apart__is_told(void **state)
{
    struct retention_clock clock = {NOW_US, NOW_US - 5};

    (void)state;
    assert_int_equal(retention_plan_doubt(&clock, NOW_US), RETENTION_SURE);
    assert_int_equal(retention_plan_doubt(&clock, NOW_US + DAY),
                     RETENTION_SURE);
    assert_int_equal(retention_plan_doubt(&clock, NOW_US + DAY + 1),
                     RETENTION_CLOCKS_DIFFER);
    assert_int_equal(retention_plan_doubt(&clock, NOW_US - DAY - 1),
                     RETENTION_CLOCKS_DIFFER);
    clock.heartbeat_us = NOW_US - DAY;
    assert_int_equal(retention_plan_doubt(&clock, NOW_US), RETENTION_SURE);
    clock.heartbeat_us = NOW_US - DAY - 1;
    assert_int_equal(retention_plan_doubt(&clock, NOW_US),
                     RETENTION_CLOCK_AHEAD);
    clock.heartbeat_us = NOW_US + 400 * DAY; /* it was ahead once */
    assert_int_equal(retention_plan_doubt(&clock, NOW_US), RETENTION_SURE);
    clock.heartbeat_us = INT64_MIN;
    assert_int_equal(retention_plan_doubt(&clock, NOW_US), RETENTION_SURE);
}

static void
clock__moved_by_more_than_a_minute__was_set(void **state)
{
    (void)state;
    assert_false(retention_job_is_jump(NOW_US, NOW_US));
    assert_false(retention_job_is_jump(NOW_US, NOW_US + 60000000));
    assert_true(retention_job_is_jump(NOW_US, NOW_US + 60000001));
    assert_false(retention_job_is_jump(NOW_US, NOW_US - 60000000));
    assert_true(retention_job_is_jump(NOW_US, NOW_US - 60000001));
}

static void
parse__of_what_a_run_says__gives_the_number(void **state)
{
    struct retention_words words;

    (void)state;
    assert_true(retention_job_parse(
        METER_STR("dropped 12 skipped 1 waiting 3\n"), &words));
    assert_int_equal(words.dropped, 12);
    assert_int_equal(words.skipped, 1);
    assert_int_equal(words.waiting, 3);
    assert_true(retention_job_parse(
        METER_STR("dropped 0 skipped 0 waiting 0\n"), &words));
    assert_int_equal(words.dropped, 0);
    assert_false(retention_job_parse(METER_STR(""), &words));
    assert_false(retention_job_parse(METER_STR("dropped "), &words));
    assert_false(retention_job_parse(METER_STR("dropped x"), &words));
    assert_false(retention_job_parse(METER_STR("dropped 12"), &words));
    assert_false(
        retention_job_parse(METER_STR("dropped 12 skipped 1\n"), &words));
    assert_false(retention_job_parse(METER_STR("another one"), &words));
}


static void
days__made_fewer__wait_until_someone_insists(void **state)
{
    static const struct {
        int configured, kept, days;
        bool is_waiting;
    } rows[] = {
        {7, RETENTION_NO_DAYS, 7, false},
        {7, 7, 7, false},
        {8, 7, 8, false},
        {7, 730, 730, true},
        {-1, 730, -1, false},
        {730, -1, -1, true},
        {-1, -1, -1, false},
        {0, 1, 1, true},
    };
    bool is_waiting;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(retention_plan_days(rows[i].configured, rows[i].kept,
                                             false, &is_waiting),
                         rows[i].days);
        assert_int_equal(is_waiting, rows[i].is_waiting);
        assert_int_equal(retention_plan_days(rows[i].configured, rows[i].kept,
                                             true, &is_waiting),
                         rows[i].configured);
        assert_false(is_waiting);
    }
}


int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(span__of_each_table__is_known),
        cmocka_unit_test(first_day__on_either_side_of_a_boundary__is_as_in_sql),
        cmocka_unit_test(first_day__of_any_day__is_a_bucket_of_the_level_above),
        cmocka_unit_test(floor__never_goes_back__nor_above_finer_levels),
        cmocka_unit_test(floor__of_a_coarser_level__is_not_above_the_finer),
        cmocka_unit_test(order__has_every_table__series_finest_first),
        cmocka_unit_test(jump__of_more_than_a_month_or_a_partition__is_one),
        cmocka_unit_test(doubt__of_clocks_a_day_apart__is_told),
        cmocka_unit_test(clock__moved_by_more_than_a_minute__was_set),
        cmocka_unit_test(parse__of_what_a_run_says__gives_the_number),
        cmocka_unit_test(days__made_fewer__wait_until_someone_insists),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
