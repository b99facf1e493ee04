/* Periods against a calendar that is walked day by day. */

#include "meter_cmocka.h"

#include "meter_time.h"
#include "project/period.h"

#include <stdio.h>

static int64_t
instant(const char *text)
{
    int64_t ts_us = 0;

    assert_true(meter_time_parse(str_of(text), &ts_us));
    return ts_us;
}

static int
month_days(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return days[month - 1] + (month == 2 && leap ? 1 : 0);
}

static void
check_text(enum billing_period period, int64_t start_us, const char *want)
{
    char text[PERIOD_TEXT_SIZE + 1];
    int64_t parsed_us = -1;

    assert_int_equal(period_format(period, start_us, text), strlen(want));
    assert_string_equal(text, want);
    assert_true(period_parse(period, str_of(want), &parsed_us));
    assert_true(parsed_us == start_us);
}

/* Every month from 0001 to 9999: both ends, both texts. */
static void
month__all_of_the_calendar__starts_and_ends_right(void **state)
{
    int64_t start_us = METER_TIME_MIN;

    (void)state;
    for (int year = 1; year <= 9999; year++) {
        for (int month = 1; month <= 12; month++) {
            int64_t end_us =
                start_us + month_days(year, month) * METER_TIME_DAY;
            char text[32];

            assert_true(period_start(BILLING_MONTH, start_us) == start_us);
            assert_true(period_start(BILLING_MONTH, end_us - 1) == start_us);
            assert_true(period_start(BILLING_MONTH,
                                     start_us + 14 * METER_TIME_DAY + 1) ==
                        start_us);
            assert_true(period_end(BILLING_MONTH, start_us) == end_us);
            assert_true(period_end(BILLING_MONTH, end_us - 1) == end_us);
            snprintf(text, sizeof(text), "%04d-%02d", year, month);
            check_text(BILLING_MONTH, start_us, text);
            start_us = end_us;
        }
    }
    assert_true(start_us == METER_TIME_MAX + 1);
}

static void
day_and_hour__both_sides_of_1970_and_the_edges__start_and_end_right(
    void **state)
{
    static const char *const cases[][3] = {
        {"1970-01-01T00:00:00Z", "1970-01-01", "1970-01-01T00"},
        {"1969-12-31T23:59:59.999999Z", "1969-12-31", "1969-12-31T23"},
        {"1969-12-31T00:00:00Z", "1969-12-31", "1969-12-31T00"},
        {"2024-02-29T12:34:56Z", "2024-02-29", "2024-02-29T12"},
        {"1900-02-28T23:00:00Z", "1900-02-28", "1900-02-28T23"},
        {"0001-01-01T00:00:00Z", "0001-01-01", "0001-01-01T00"},
        {"9999-12-31T23:59:59.999999Z", "9999-12-31", "9999-12-31T23"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t ts_us = instant(cases[i][0]);

        for (int j = 0; j < 2; j++) {
            enum billing_period period = j == 0 ? BILLING_DAY : BILLING_HOUR;
            int64_t size_us = j == 0 ? METER_TIME_DAY : METER_TIME_HOUR;
            int64_t start_us = period_start(period, ts_us);

            assert_true(start_us <= ts_us);
            assert_true(period_end(period, ts_us) == start_us + size_us);
            assert_true(ts_us < start_us + size_us);
            check_text(period, start_us, cases[i][1 + j]);
        }
    }
}

static void
month__last_microsecond_of_9999__ends_with_the_year(void **state)
{
    (void)state;
    assert_true(period_end(BILLING_MONTH, METER_TIME_MAX) ==
                METER_TIME_MAX + 1);
    assert_true(period_end(BILLING_HOUR, METER_TIME_MAX) == METER_TIME_MAX + 1);
    assert_true(period_start(BILLING_MONTH, METER_TIME_MIN) == METER_TIME_MIN);
}

static void
parse__anything_but_the_exact_form__is_refused(void **state)
{
    static const char *const months[] = {
        "",           "2026",     "2026-9",   "2026-00",   "2026-13",
        "2026-09-01", "2026-09 ", " 2026-09", "2026/09",   "2026-0a",
        "0000-01",    "-026-09",  "+026-09",  "2026-09-0", "20260-9",
        "2026-09T00", "10000-01",
    };
    static const char *const days[] = {
        "2026-02-29",  "2024-02-30",  "2026-09-00", "2026-09-31", "2026-09",
        "2026-09-1",   "2026-09-01T", "2026-9-01",  "0000-01-01", "2026-09-0a",
        "2026-09-01 ", "2026-13-01",  "2026 09-01", "2026-09:01",
    };
    static const char *const hours[] = {
        "2026-09-01t12",  "2026-09-01 12",    "2026-09-01T24",
        "2026-09-01T1",   "2026-09-01T12:00", "2026-09-01T12Z",
        "2026-09-01T-1",  "2026-02-29T12",    "2026-09-01",
        "2026-09-01T1x",  "2026-09-01T012",   "2026-09-01T12 ",
        "2026-09-01TT12",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(months) / sizeof(months[0]); i++) {
        int64_t start_us = 7;

        assert_false(period_parse(BILLING_MONTH, str_of(months[i]), &start_us));
        assert_true(start_us == 7);
    }
    for (size_t i = 0; i < sizeof(days) / sizeof(days[0]); i++) {
        int64_t start_us = 7;

        assert_false(period_parse(BILLING_DAY, str_of(days[i]), &start_us));
        assert_true(start_us == 7);
    }
    for (size_t i = 0; i < sizeof(hours) / sizeof(hours[0]); i++) {
        int64_t start_us = 7;

        assert_false(period_parse(BILLING_HOUR, str_of(hours[i]), &start_us));
        assert_true(start_us == 7);
    }
    assert_false(period_parse(BILLING_MONTH, (struct meter_str){NULL, 0},
                              &(int64_t){0}));
    assert_false(period_parse(
        BILLING_MONTH, (struct meter_str){"2026\00009", 7}, &(int64_t){0}));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(month__all_of_the_calendar__starts_and_ends_right),
    cmocka_unit_test(
        day_and_hour__both_sides_of_1970_and_the_edges__start_and_end_right),
    cmocka_unit_test(month__last_microsecond_of_9999__ends_with_the_year),
    cmocka_unit_test(parse__anything_but_the_exact_form__is_refused),
};

RUN_TAP(tests)
