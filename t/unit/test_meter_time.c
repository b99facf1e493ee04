#include "meter_cmocka.h"

#include "meter_random.h"
#include "meter_time.h"


static int64_t
parsed(const char *text)
{
    int64_t ts_us = -77;

    if (!meter_time_parse(str_of(text), &ts_us)) {
        fail_msg("refused: %s", text);
    }
    return ts_us;
}


static int64_t
epoch(const char *text)
{
    int64_t ts_us = -77;

    if (!meter_time_parse_epoch(str_of(text), &ts_us)) {
        fail_msg("refused: %s", text);
    }
    return ts_us;
}


static void
parse__spellings_of_one_instant__one_value(void **state)
{
    static const char *const spellings[] = {
        "2026-09-01T12:00:00.5Z",
        "2026-09-01T12:00:00.50Z",
        "2026-09-01T12:00:00.500Z",
        "2026-09-01T12:00:00.5000Z",
        "2026-09-01T12:00:00.50000Z",
        "2026-09-01T12:00:00.500000Z",
        "2026-09-01T12:00:00.5000000Z",
        "2026-09-01T12:00:00.50000000Z",
        "2026-09-01T12:00:00.500000000Z",
        "2026-09-01T12:00:00.500000999Z",
        "2026-09-01T12:00:00.5000000000Z",
        "2026-09-01T12:00:00.50000099999999999999999999999999Z",
        "2026-09-01T14:00:00.500000123456789012345678901234567890+02:00",
        "2026-09-01t12:00:00.5z",
        "2026-09-01T12:00:00.5+00:00",
        "2026-09-01T12:00:00.5-00:00",
        "2026-09-01T14:00:00.5+02:00",
        "2026-09-01T17:30:00.5+05:30",
        "2026-09-01T17:45:00.5+05:45",
        "2026-09-01T07:00:00.5-05:00",
        "2026-09-01T08:30:00.5-03:30",
        "2026-09-02T11:59:00.5+23:59",
        "2026-08-31T12:01:00.5-23:59",
        "2026-09-02T02:00:00.5+14:00",
        "2026-09-01T00:00:00.5-12:00",
    };
    static const char *const epochs[] = {
        "1788264000.5",         "1788264000.50",        "+1788264000.5",
        "001788264000.5",       "1788264000500",        "1788264000500.0",
        "1.7882640005e9",       "1.7882640005E+09",     "17882640005e-1",
        "1.7882640005e12",      "0.00017882640005e13",  "1788264000.500000999",
        "1788264000500.000999", "17882640005000000e-7",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        assert_true(parsed(spellings[i]) == INT64_C(1788264000500000));
    }
    for (size_t i = 0; i < sizeof(epochs) / sizeof(epochs[0]); i++) {
        assert_true(epoch(epochs[i]) == INT64_C(1788264000500000));
    }
}


static void
parse__known_instants__match(void **state)
{
    (void)state;
    assert_true(parsed("1970-01-01T00:00:00Z") == 0);
    assert_true(parsed("1970-01-01T00:00:00.000001Z") == 1);
    assert_true(parsed("1969-12-31T23:59:59.999999Z") == -1);
    assert_true(parsed("1969-12-31T23:59:59.9999999Z") == -1);
    assert_true(parsed("2000-02-29T00:00:00Z") == INT64_C(951782400000000));
    assert_true(parsed("2024-02-29T23:59:59Z") == INT64_C(1709251199000000));
    assert_true(parsed("0001-01-01T00:00:00Z") == METER_TIME_MIN);
    assert_true(parsed("9999-12-31T23:59:59.999999999Z") == METER_TIME_MAX);
    assert_true(parsed("9999-12-31T23:59:59.999999-00:00") == METER_TIME_MAX);
}


static void
parse__outside_the_grammar__is_refused(void **state)
{
    static const char *const cases[] = {
        "",
        "2026",
        "2026-09-01",
        "2026-09-01T12:00Z",
        "2026-09-01T12:00:00",
        "2026-09-01 12:00:00Z",
        "2026-09-01_12:00:00Z",
        "2026-09-01T12:00:00 Z",
        " 2026-09-01T12:00:00Z",
        "2026-09-01T12:00:00Z ",
        "2026-09-01T12:00:00ZZ",
        "2026-09-01T12:00:00.Z",
        "2026-09-01T12:00:00.",
        "2026-09-01T12:00:00.1",
        "2026-09-01T12:00:00,5Z",
        "2026-09-01T12:00:00.1234567890",
        "2026-09-01T12:00:00.1234567890.1Z",
        "2026-09-01T12:00:00.12a4Z",
        "2026-09-01T12:00:60Z",
        "2016-12-31T23:59:61Z",
        "2016-12-30T23:59:60Z",
        "2016-12-31T23:58:60Z",
        "2016-12-31T22:59:60Z",
        "2016-12-31T23:59:60+00:01",
        "2016-12-31T23:59:60-00:30",
        "2017-01-01T00:59:60Z",
        "2016-02-28T23:59:60Z",
        "2015-02-29T23:59:60Z",
        "2016-12-31T23:59:60",
        "2016-12-31T23:59:60.Z",
        "2016-12-31T24:59:60+01:00",
        "9999-12-31T22:59:60-02:00",
        "0000-12-31T23:59:60Z",
        "2026-09-01T24:00:00Z",
        "2026-09-01T12:60:00Z",
        "2026-09-01T12:00:61Z",
        "2026-09-01T12:00:00+24:00",
        "2026-09-01T12:00:00+23:60",
        "2026-09-01T12:00:00+2:00",
        "2026-09-01T12:00:00+0200",
        "2026-09-01T12:00:00+02",
        "2026-09-01T12:00:00+02:0",
        "2026-09-01T12:00:00+02:000",
        "2026-09-01T12:00:00*02:00",
        "2026-09-01T12:00:00+-2:00",
        "2026-13-01T12:00:00Z",
        "2026-00-01T12:00:00Z",
        "2026-09-00T12:00:00Z",
        "2026-09-31T12:00:00Z",
        "2026-02-29T12:00:00Z",
        "2024-02-30T12:00:00Z",
        "2100-02-29T12:00:00Z",
        "1900-02-29T12:00:00Z",
        "0000-12-31T12:00:00Z",
        "0000-12-31T23:59:59-01:00",
        "0001-01-01T00:00:00+00:01",
        "0001-01-01T23:58:59.999999+23:59",
        "9999-12-31T23:59:59-00:01",
        "9999-12-31T00:01:00-23:59",
        "10000-01-01T00:00:00Z",
        "-001-01-01T00:00:00Z",
        "+2026-09-01T12:00:00Z",
        "20-6-09-01T12:00:00Z",
        "2026/09/01T12:00:00Z",
        "2026-9-01T12:00:00Z",
        "2026-09-01T12.00.00Z",
        "2026-W36-2T12:00:00Z",
        "2026-244T12:00:00Z",
        "infinity",
        "now",
        "1788264000",
        "2026-09-01T12:00:00\xc2\xb5Z",
    };
    int64_t ts_us = 5;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (meter_time_parse(str_of(cases[i]), &ts_us)) {
            fail_msg("accepted: %s", cases[i]);
        }
        assert_true(ts_us == 5);
    }
    assert_false(meter_time_parse((struct meter_str){NULL, 0}, &ts_us));
    /* A NUL inside is no end. */
    assert_false(meter_time_parse(
        (struct meter_str){"2026-09-01T12:00:00Z\0", 21}, &ts_us));
}


static void
parse__limits_with_offsets__last_inside_is_taken(void **state)
{
    (void)state;
    assert_true(parsed("0001-01-01T00:01:00+00:01") == METER_TIME_MIN);
    assert_true(parsed("0001-01-01T23:59:00+23:59") == METER_TIME_MIN);
    assert_true(parsed("9999-12-31T23:58:59.999999-00:01") == METER_TIME_MAX);
    assert_true(parsed("9999-12-31T00:00:59.999999-23:59") == METER_TIME_MAX);
}


/* It stays in the month, day and bucket that it ends. */
static void
parse__leap_second__last_microsecond_before_the_next_month(void **state)
{
    static const char *const spellings[] = {
        "2016-12-31T23:59:60Z",        "2016-12-31T23:59:60.0Z",
        "2016-12-31T23:59:60.999999Z", "2016-12-31t23:59:60.5000000001z",
        "2016-12-31T23:59:60+00:00",   "2016-12-31T23:59:60-00:00",
        "2016-12-31T15:59:60-08:00",   "2016-12-31T15:59:60.25-08:00",
        "2017-01-01T00:59:60+01:00",   "2017-01-01T05:29:60+05:30",
        "2017-01-01T23:58:60+23:59",   "2016-12-31T00:00:60-23:59",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        assert_true(parsed(spellings[i]) ==
                    parsed("2016-12-31T23:59:59.999999Z"));
    }
    assert_true(parsed("2016-02-29T23:59:60Z") ==
                parsed("2016-02-29T23:59:59.999999Z"));
    assert_true(parsed("2015-02-28T23:59:60Z") ==
                parsed("2015-02-28T23:59:59.999999Z"));
    assert_true(parsed("0001-01-31T23:59:60Z") ==
                parsed("0001-01-31T23:59:59.999999Z"));
    assert_true(parsed("9999-12-31T23:59:60Z") == METER_TIME_MAX);
}


static void
parse__any_prefix_of_valid_text__is_refused(void **state)
{
    static const char text[] = "2026-09-01T12:00:00.1234567890123+23:59";
    int64_t ts_us;

    (void)state;
    for (size_t size = 0; size < sizeof(text) - 1; size++) {
        /* A copy of just that size, so that a sanitizer sees each read. */
        char *copy = malloc(size + 1);

        memcpy(copy, text, size);
        copy = realloc(copy, size == 0 ? 1 : size);
        assert_false(meter_time_parse((struct meter_str){copy, size}, &ts_us));
        free(copy);
    }
    assert_true(meter_time_parse(METER_STR(text), &ts_us));
}


static void
epoch__unit_boundary__is_ten_to_the_eleventh(void **state)
{
    (void)state;
    assert_true(epoch("99999999999") == INT64_C(99999999999000000));
    assert_true(epoch("99999999999.999999") == INT64_C(99999999999999999));
    assert_true(epoch("99999999999.9999999") == INT64_C(99999999999999999));
    assert_true(epoch("100000000000") == INT64_C(100000000000000));
    assert_true(epoch("1e11") == INT64_C(100000000000000));
    assert_true(epoch("0.1e12") == INT64_C(100000000000000));
    assert_true(epoch("-100000000000") == INT64_C(-100000000000000));
}


static void
epoch__fractions__are_cut_toward_the_past(void **state)
{
    (void)state;
    assert_true(epoch("0") == 0);
    assert_true(epoch("-0") == 0);
    assert_true(epoch("-0.0e5") == 0);
    assert_true(epoch("0.000001") == 1);
    assert_true(epoch("0.0000019") == 1);
    assert_true(epoch("0.0000009") == 0);
    assert_true(epoch("-0.0000009") == -1);
    assert_true(epoch("-0.000001") == -1);
    assert_true(epoch("-0.0000010") == -1);
    assert_true(epoch("-0.00000101") == -2);
    assert_true(epoch("-1.5") == -1500000);
    assert_true(epoch("1e-999999999999") == 0);
    assert_true(epoch("-1e-999999999999") == -1);
    assert_true(epoch("100000000000.0019") == INT64_C(100000000000001));
    assert_true(epoch("-100000000000.0011") == INT64_C(-100000000000002));
}


static void
epoch__limits__last_inside_is_taken(void **state)
{
    int64_t ts_us = 5;

    (void)state;
    assert_true(epoch("-62135596800") == METER_TIME_MIN);
    assert_true(epoch("253402300799999") == METER_TIME_MAX - 999);
    assert_true(epoch("253402300799999.999") == METER_TIME_MAX);
    assert_true(epoch("253402300799999.9999") == METER_TIME_MAX);
    assert_true(epoch("0e999999999999999999999999") == 0);
    assert_false(
        meter_time_parse_epoch(METER_STR("-62135596800.0000001"), &ts_us));
    assert_false(meter_time_parse_epoch(METER_STR("-62135596801"), &ts_us));
    assert_false(meter_time_parse_epoch(METER_STR("-99999999999"), &ts_us));
    assert_false(meter_time_parse_epoch(METER_STR("253402300800000"), &ts_us));
    assert_false(meter_time_parse_epoch(METER_STR("999999999999999"), &ts_us));
    assert_false(meter_time_parse_epoch(METER_STR("1e15"), &ts_us));
    assert_false(meter_time_parse_epoch(METER_STR("1788264000000000"), &ts_us));
    assert_false(
        meter_time_parse_epoch(METER_STR("1e999999999999999999999"), &ts_us));
    assert_false(meter_time_parse_epoch(
        METER_STR("9999999999999999999999999999999999999999"), &ts_us));
    assert_true(ts_us == 5);
}


static void
epoch__no_number__is_refused(void **state)
{
    static const char *const cases[] = {
        "",         "-",
        "+",        ".",
        "1.",       ".5",
        "1e",       "1e+",
        "e5",       "1e5.",
        "1 ",       " 1",
        "0x10",     "1_0",
        "1,0",      "--1",
        "+-1",      "1.2.3",
        "1e5e5",    "NaN",
        "inf",      "1f",
        "-.5",      "1.e5",
        "\xd9\xa1", "2026-09-01T12:00:00Z",
    };
    int64_t ts_us;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (meter_time_parse_epoch(str_of(cases[i]), &ts_us)) {
            fail_msg("accepted: %s", cases[i]);
        }
    }
    assert_false(meter_time_parse_epoch((struct meter_str){NULL, 0}, &ts_us));
}


static void
epoch__sixty_four_thousand_digits__are_exact(void **state)
{
    enum { SIZE = 65536 };
    char *text = malloc(SIZE);
    int64_t ts_us;

    (void)state;
    memset(text, '0', SIZE);
    text[SIZE - 1] = '7';
    assert_true(meter_time_parse_epoch((struct meter_str){text, SIZE}, &ts_us));
    assert_true(ts_us == 7000000);
    text[1] = '.';
    assert_true(meter_time_parse_epoch((struct meter_str){text, SIZE}, &ts_us));
    assert_true(ts_us == 0);
    text[0] = '-';
    text[1] = '0';
    text[2] = '.';
    assert_true(meter_time_parse_epoch((struct meter_str){text, SIZE}, &ts_us));
    assert_true(ts_us == -1);
    memset(text, '9', SIZE);
    assert_false(
        meter_time_parse_epoch((struct meter_str){text, SIZE}, &ts_us));
    /* 65529 digits and the exponent that brings them back to 9.99... */
    memcpy(text + SIZE - 7, "e-65528", 7);
    assert_true(meter_time_parse_epoch((struct meter_str){text, SIZE}, &ts_us));
    assert_true(ts_us == 9999999);
    free(text);
}


/* Counts days year by year, month by month. */
static void
calendar_walk(void (*visit)(int64_t day, int year, int month, int mday))
{
    static const int lengths[] = {31, 28, 31, 30, 31, 30,
                                  31, 31, 30, 31, 30, 31};
    int64_t day = METER_TIME_MIN / METER_TIME_DAY;

    for (int year = 1; year <= 9999; year++) {
        for (int month = 1; month <= 12; month++) {
            int length = lengths[month - 1];

            if (month == 2 && year % 4 == 0 &&
                (year % 100 != 0 || year % 400 == 0)) {
                length++;
            }
            for (int mday = 1; mday <= length; mday++) {
                visit(day++, year, month, mday);
            }
        }
    }
    assert_true(day == METER_TIME_MAX / METER_TIME_DAY + 1);
}


static void
check_day(int64_t day, int year, int month, int mday)
{
    /* A time of day that differs from day to day. */
    int64_t in_day = day * INT64_C(7919777) % METER_TIME_DAY;
    char expected[64], text[METER_TIME_TEXT_SIZE + 1];
    int64_t ts_us, back;

    if (in_day < 0) {
        in_day += METER_TIME_DAY;
    }
    ts_us = day * METER_TIME_DAY + in_day;
    meter_time_format(ts_us, text);
    snprintf(expected, sizeof(expected), "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ",
             year, month, mday, (int)(in_day / METER_TIME_HOUR),
             (int)(in_day / METER_TIME_MINUTE % 60),
             (int)(in_day / METER_TIME_SECOND % 60),
             (int)(in_day % METER_TIME_SECOND));
    if (strcmp(text, expected) != 0) {
        fail_msg("%s is not %s", text, expected);
    }
    if (!meter_time_parse(str_of(text), &back) || back != ts_us ||
        meter_time_day(ts_us) != day) {
        fail_msg("%s does not come back", text);
    }
}


static void
format__every_day_of_the_range__matches_a_counted_calendar(void **state)
{
    (void)state;
    calendar_walk(check_day);
}


static void
format__random_instants__come_back(void **state)
{
    struct meter_random random = {5};
    uint64_t span = (uint64_t)(METER_TIME_MAX - METER_TIME_MIN) + 1;
    char last[METER_TIME_TEXT_SIZE + 1];

    (void)state;
    for (int i = 0; i < 200000; i++) {
        int64_t ts_us = METER_TIME_MIN + (int64_t)random_below(&random, span);
        char text[METER_TIME_TEXT_SIZE + 1];

        meter_time_format(ts_us, text);
        assert_true(parsed(text) == ts_us);
        /* Text order is time order. */
        if (ts_us > METER_TIME_MIN) {
            meter_time_format(ts_us - 1, last);
            assert_true(strcmp(last, text) < 0);
        }
    }
}


static void
format__outside_the_range__is_the_nearer_limit(void **state)
{
    char text[METER_TIME_TEXT_SIZE + 1];

    (void)state;
    meter_time_format(METER_TIME_MIN - 1, text);
    assert_string_equal(text, "0001-01-01T00:00:00.000000Z");
    meter_time_format(INT64_MIN, text);
    assert_string_equal(text, "0001-01-01T00:00:00.000000Z");
    meter_time_format(METER_TIME_MAX + 1, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999999Z");
    meter_time_format(INT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999999Z");
}


static void
floor_div__around_zero__rounds_down(void **state)
{
    (void)state;
    assert_true(meter_floor_div(7, 5) == 1);
    assert_true(meter_floor_div(5, 5) == 1);
    assert_true(meter_floor_div(4, 5) == 0);
    assert_true(meter_floor_div(0, 5) == 0);
    assert_true(meter_floor_div(-1, 5) == -1);
    assert_true(meter_floor_div(-5, 5) == -1);
    assert_true(meter_floor_div(-6, 5) == -2);
    assert_true(meter_floor_div(INT64_MIN, 1) == INT64_MIN);
    assert_true(meter_floor_div(INT64_MAX, 1) == INT64_MAX);
    assert_true(meter_floor_div(INT64_MIN, INT64_MAX) == -2);
}


static void
bucket__random_instants__largest_multiple_not_above(void **state)
{
    static const int64_t steps[] = {
        1,
        5 * METER_TIME_SECOND,
        METER_TIME_MINUTE,
        90 * METER_TIME_SECOND,
        METER_TIME_HOUR,
        METER_TIME_DAY,
        7 * METER_TIME_DAY,
    };
    struct meter_random random = {6};
    uint64_t span = (uint64_t)(METER_TIME_MAX - METER_TIME_MIN) + 1;

    (void)state;
    for (int i = 0; i < 50000; i++) {
        int64_t ts_us = METER_TIME_MIN + (int64_t)random_below(&random, span);

        for (size_t j = 0; j < sizeof(steps) / sizeof(steps[0]); j++) {
            int64_t bucket = meter_time_bucket(ts_us, steps[j]);

            assert_true(bucket <= ts_us && ts_us - bucket < steps[j]);
            assert_true(bucket % steps[j] == 0);
            assert_true(bucket == meter_floor_div(ts_us, steps[j]) * steps[j]);
        }
    }
    assert_true(meter_time_bucket(-1, 5 * METER_TIME_SECOND) ==
                -5 * METER_TIME_SECOND);
    assert_true(meter_time_bucket(INT64_MIN, 1000) == INT64_MIN);
}


static void
day__around_midnight__is_floor(void **state)
{
    (void)state;
    assert_int_equal(meter_time_day(0), 0);
    assert_int_equal(meter_time_day(METER_TIME_DAY - 1), 0);
    assert_int_equal(meter_time_day(METER_TIME_DAY), 1);
    assert_int_equal(meter_time_day(-1), -1);
    assert_int_equal(meter_time_day(-METER_TIME_DAY), -1);
    assert_int_equal(meter_time_day(-METER_TIME_DAY - 1), -2);
    assert_int_equal(meter_time_day(METER_TIME_MIN), -719162);
    assert_int_equal(meter_time_day(METER_TIME_MAX), 2932896);
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parse__spellings_of_one_instant__one_value),
    cmocka_unit_test(parse__known_instants__match),
    cmocka_unit_test(parse__outside_the_grammar__is_refused),
    cmocka_unit_test(parse__limits_with_offsets__last_inside_is_taken),
    cmocka_unit_test(
        parse__leap_second__last_microsecond_before_the_next_month),
    cmocka_unit_test(parse__any_prefix_of_valid_text__is_refused),
    cmocka_unit_test(epoch__unit_boundary__is_ten_to_the_eleventh),
    cmocka_unit_test(epoch__fractions__are_cut_toward_the_past),
    cmocka_unit_test(epoch__limits__last_inside_is_taken),
    cmocka_unit_test(epoch__no_number__is_refused),
    cmocka_unit_test(epoch__sixty_four_thousand_digits__are_exact),
    cmocka_unit_test(
        format__every_day_of_the_range__matches_a_counted_calendar),
    cmocka_unit_test(format__random_instants__come_back),
    cmocka_unit_test(format__outside_the_range__is_the_nearer_limit),
    cmocka_unit_test(floor_div__around_zero__rounds_down),
    cmocka_unit_test(bucket__random_instants__largest_multiple_not_above),
    cmocka_unit_test(day__around_midnight__is_floor),
};

RUN_TAP(tests)
