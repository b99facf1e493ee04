/*
 * test_planner.c - levels and windows: every interval there is, against a
 * slow and plain way to say the same.
 */

#include "meter_cmocka.h"

#include "meter_random.h"
#include "query/question.c"

#define STEPS_MAX (30 * 86400 / 5)          /* intervals up to 30d */
#define MONDAY_US INT64_C(1740960000000000) /* 2025-03-03 */

static int64_t
at(const char *text)
{
    int64_t ts_us = 0;

    assert_true(meter_time_parse(str_of(text), &ts_us));
    return ts_us;
}

/* Start of window n as the definition has it. */
static int64_t
start_of(int64_t interval_us, int64_t n)
{
    int64_t week_us = 7 * METER_TIME_DAY;

    return n * interval_us +
           (interval_us % week_us == 0 ? INT64_C(345600000000) : 0);
}

/* Buckets of the level fill the windows, if both bounds are such of one. */
static bool
fills(enum meter_level level, int64_t interval_us)
{
    static const int64_t sizes_s[] = {5, 60, 3600, 86400, 604800};
    int64_t size_us = sizes_s[level] * 1000000;
    int64_t origin_us = level == METER_LEVEL_7D ? MONDAY_US : 0;

    for (int64_t n = -3; n <= 3; n++) {
        if ((start_of(interval_us, n) - origin_us) % size_us != 0) {
            return false;
        }
    }
    return true;
}

static void
level__every_interval_to_30d__the_largest_that_fills(void **state)
{
    (void)state;
    for (int64_t step = 1; step <= STEPS_MAX; step++) {
        int64_t interval_us = step * QUERY_STEP_US;
        enum meter_level level = planner_level(interval_us);
        int want = METER_LEVEL_COUNT - 1;

        while (want > 0 && !fills((enum meter_level)want, interval_us)) {
            want--;
        }
        if ((int)level != want) {
            fail_msg("%lld s: %s instead of %s", (long long)step * 5,
                     meter_level_name(level),
                     meter_level_name((enum meter_level)want));
        }
    }
}

static void
level__known_intervals(void **state)
{
    static const struct {
        int64_t seconds;
        const char *level;
    } rows[] = {
        {5, "5s"},
        {30, "5s"},
        {60, "1m"},
        {90, "5s"},
        {65, "5s"},
        {120, "1m"},
        {3600, "1h"},
        {5400, "1m"},
        {3 * 3600, "1h"},
        {86400, "1d"},
        {25 * 3600, "1h"},
        {9 * 86400, "1d"},
        {7 * 86400, "7d"},
        {14 * 86400, "7d"},
        {30 * 86400, "1d"},
        {86405, "5s"},
        {7 * 86400 + 60, "1m"},
    };

    (void)state;
    assert_int_equal(MONDAY_US, at("2025-03-03T00:00:00Z"));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_string_equal(
            meter_level_name(planner_level(rows[i].seconds * 1000000)),
            rows[i].level);
    }
}

static void
level_of__bounds__the_largest_they_lie_on(void **state)
{
    static const struct {
        const char *bounds[2];
        const char *level;
    } rows[] = {
        {{"2025-03-29T23:00:00Z", "2025-03-30T22:00:00Z"}, "1h"},
        {{"2025-03-28T18:30:00Z", "2025-03-29T18:30:00Z"}, "1m"},
        {{"2025-03-03T00:00:00Z", "2025-03-04T00:00:00Z"}, "1d"},
        {{"2025-03-03T00:00:00Z", "2025-03-10T00:00:00Z"}, "7d"},
        {{"1900-01-01T00:00:30Z", "1900-01-02T00:00:30Z"}, "5s"},
        {{"1900-01-01T00:00:00Z", "1900-01-02T00:19:32Z"}, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t bounds_us[2] = {at(rows[i].bounds[0]), at(rows[i].bounds[1])};
        enum meter_level level;
        bool found = planner_level_of(bounds_us, 2, &level);

        assert_int_equal(found, rows[i].level != NULL);
        if (found) {
            assert_string_equal(meter_level_name(level), rows[i].level);
        }
    }
}

static void
kept__floor__the_bucket_that_holds_from_decides(void **state)
{
    int64_t floors_us[METER_LEVEL_COUNT] = {
        at("2025-03-04T00:00:00Z"), at("2025-03-03T00:00:00Z"),
        at("2025-03-03T00:00:00Z"), at("2025-03-02T00:00:00Z"),
        at("2025-02-24T00:00:00Z"),
    };
    enum meter_level level;

    (void)state;
    assert_true(
        planner_is_kept(floors_us, at("2025-03-04T00:00:00Z"), METER_LEVEL_5S));
    assert_false(
        planner_is_kept(floors_us, at("2025-03-03T23:59:59Z"), METER_LEVEL_5S));
    assert_true(
        planner_finest_kept(floors_us, at("2025-03-03T23:59:59Z"), &level));
    assert_int_equal(level, METER_LEVEL_1M);
    assert_true(
        planner_finest_kept(floors_us, at("2025-03-02T23:59:59Z"), &level));
    assert_int_equal(level, METER_LEVEL_1D);
    assert_true(
        planner_finest_kept(floors_us, at("2025-02-24T00:00:00Z"), &level));
    assert_int_equal(level, METER_LEVEL_7D);
    assert_false(
        planner_finest_kept(floors_us, at("2025-02-23T23:59:59Z"), &level));
    floors_us[METER_LEVEL_7D] = at("2025-02-26T00:00:00Z");
    assert_false(
        planner_is_kept(floors_us, at("2025-02-27T00:00:00Z"), METER_LEVEL_7D));
}


/* ---- windows --------------------------------------------------------- */

static void
windows__any_range__cover_it_and_touch(void **state)
{
    struct meter_random random = {.state = 7};
    struct arena arena;

    (void)state;
    arena_init(&arena, 4096, 1u << 20);
    for (int round = 0; round < 20000; round++) {
        int64_t interval_us =
            (int64_t)(1 + random_below(&random, 700000)) * QUERY_STEP_US;
        int64_t from_us =
            ((int64_t)random_below(&random, 2000000000) - 1000000000) *
            METER_TIME_SECOND;
        int64_t to_us =
            from_us + 1 +
            (int64_t)random_below(&random, (uint64_t)interval_us * 5);
        struct windows windows;

        assert_true(
            windows_make(interval_us, from_us, to_us, &arena, &windows));
        assert_int_equal(windows.count,
                         windows_count(interval_us, from_us, to_us));
        assert_true(windows.bounds_us[0] <= from_us &&
                    from_us < windows.bounds_us[1]);
        assert_true(windows.bounds_us[windows.count - 1] < to_us &&
                    to_us <= windows.bounds_us[windows.count]);
        for (size_t i = 0; i < windows.count; i++) {
            assert_int_equal(windows.bounds_us[i + 1] - windows.bounds_us[i],
                             interval_us);
        }
        assert_int_equal(
            (windows.bounds_us[0] - start_of(interval_us, 0)) % interval_us, 0);
        arena_reset(&arena);
    }
    arena_fini(&arena);
}

static void
windows__before_1970__count_down(void **state)
{
    struct windows windows;
    struct arena arena;

    (void)state;
    arena_init(&arena, 4096, 1u << 20);
    assert_true(windows_make(9 * METER_TIME_DAY, at("1969-12-31T23:59:59Z"),
                             at("1970-01-01T00:00:01Z"), &arena, &windows));
    assert_int_equal(windows.count, 2);
    assert_int_equal(windows.bounds_us[0], at("1969-12-23T00:00:00Z"));
    assert_true(windows_make(14 * METER_TIME_DAY, at("1970-01-04T23:59:59Z"),
                             at("1970-01-05T00:00:00Z"), &arena, &windows));
    assert_int_equal(windows.count, 1);
    assert_int_equal(windows.bounds_us[0], at("1969-12-22T00:00:00Z"));
    arena_fini(&arena);
}

static void
windows_take__days_of_a_zone__those_of_the_range(void **state)
{
    const int64_t days_us[] = {
        at("2011-12-28T10:00:00Z"), at("2011-12-29T10:00:00Z"),
        at("2011-12-30T10:00:00Z"), at("2011-12-30T10:00:00Z"),
        at("2011-12-31T10:00:00Z"), at("2012-01-01T10:00:00Z"),
    };
    struct windows windows;
    struct arena arena;

    (void)state;
    arena_init(&arena, 4096, 1u << 20);
    assert_true(windows_take(days_us, 6, at("2011-12-29T10:00:00Z"),
                             at("2011-12-31T10:00:00Z"), &arena, &windows));
    assert_int_equal(windows.count, 2);
    assert_int_equal(windows.bounds_us[0], days_us[1]);
    assert_int_equal(windows.bounds_us[1], days_us[2]);
    assert_int_equal(windows.bounds_us[2], days_us[4]);
    assert_true(windows_take(days_us, 6, at("2011-12-29T09:59:59Z"),
                             at("2011-12-29T10:00:01Z"), &arena, &windows));
    assert_int_equal(windows.count, 2);
    assert_false(windows_take(days_us, 6, at("2011-12-28T09:00:00Z"),
                              at("2011-12-29T00:00:00Z"), &arena, &windows));
    assert_false(windows_take(days_us, 6, at("2011-12-29T00:00:00Z"),
                              at("2012-01-01T10:00:01Z"), &arena, &windows));
    arena_fini(&arena);
}

static void
judge__what_is_partial(void **state)
{
    int64_t from_us = at("2025-03-03T00:00:30Z");
    int64_t to_us = at("2025-03-03T00:05:30Z");
    struct window_dirt dirt[] = {
        {METER_LEVEL_5S, at("2025-03-03T00:02:55Z")},
        {METER_LEVEL_1D, at("2025-03-04T00:00:00Z")},
        {METER_LEVEL_1D, at("2025-03-02T00:00:00Z")},
    };
    struct windows windows;
    struct arena arena;

    (void)state;
    arena_init(&arena, 4096, 1u << 20);
    assert_true(
        windows_make(METER_TIME_MINUTE, from_us, to_us, &arena, &windows));
    assert_int_equal(windows.count, 6);
    windows_judge(&windows, from_us, to_us, INT64_MAX, dirt, 3);
    assert_memory_equal(windows.is_partial,
                        ((bool[]){true, false, true, false, false, true}),
                        6 * sizeof(bool));
    windows_judge(&windows, at("2025-03-03T00:00:00Z"),
                  at("2025-03-03T00:06:00Z"), at("2025-03-03T00:04:00Z"), dirt,
                  0);
    assert_memory_equal(windows.is_partial,
                        ((bool[]){false, false, false, false, true, true}),
                        6 * sizeof(bool));
    dirt[0] = (struct window_dirt){METER_LEVEL_1H, at("2025-03-03T00:00:00Z")};
    windows_judge(&windows, at("2025-03-03T00:00:00Z"),
                  at("2025-03-03T00:06:00Z"), INT64_MAX, dirt, 1);
    for (size_t i = 0; i < 6; i++) {
        assert_true(windows.is_partial[i]);
    }
    arena_fini(&arena);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(level__every_interval_to_30d__the_largest_that_fills),
    cmocka_unit_test(level__known_intervals),
    cmocka_unit_test(level_of__bounds__the_largest_they_lie_on),
    cmocka_unit_test(kept__floor__the_bucket_that_holds_from_decides),
    cmocka_unit_test(windows__any_range__cover_it_and_touch),
    cmocka_unit_test(windows__before_1970__count_down),
    cmocka_unit_test(windows_take__days_of_a_zone__those_of_the_range),
    cmocka_unit_test(judge__what_is_partial),
};

RUN_TAP(tests)
