#include "meter_cmocka.h"

#include "meter_level.h"
#include "meter_random.h"

/* Worked out by the calendar: cut fields, then back to Monday. */
static const struct {
    const char *at;
    const char *bucket[METER_LEVEL_COUNT];
} golden[] = {
    {"2026-09-01T12:34:56.789012Z",
     {"2026-09-01T12:34:55Z", "2026-09-01T12:34:00Z", "2026-09-01T12:00:00Z",
      "2026-09-01T00:00:00Z", "2026-08-31T00:00:00Z"}},
    {"1970-01-01T00:00:00Z",
     {"1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z",
      "1970-01-01T00:00:00Z", "1969-12-29T00:00:00Z"}},
    {"1969-12-31T23:59:59.999999Z",
     {"1969-12-31T23:59:55Z", "1969-12-31T23:59:00Z", "1969-12-31T23:00:00Z",
      "1969-12-31T00:00:00Z", "1969-12-29T00:00:00Z"}},
    {"1970-01-04T23:59:59.999999Z",
     {"1970-01-04T23:59:55Z", "1970-01-04T23:59:00Z", "1970-01-04T23:00:00Z",
      "1970-01-04T00:00:00Z", "1969-12-29T00:00:00Z"}},
    {"1970-01-05T00:00:00Z",
     {"1970-01-05T00:00:00Z", "1970-01-05T00:00:00Z", "1970-01-05T00:00:00Z",
      "1970-01-05T00:00:00Z", "1970-01-05T00:00:00Z"}},
    {"1969-12-29T00:00:00Z",
     {"1969-12-29T00:00:00Z", "1969-12-29T00:00:00Z", "1969-12-29T00:00:00Z",
      "1969-12-29T00:00:00Z", "1969-12-29T00:00:00Z"}},
    {"1969-12-28T23:59:59.999999Z",
     {"1969-12-28T23:59:55Z", "1969-12-28T23:59:00Z", "1969-12-28T23:00:00Z",
      "1969-12-28T00:00:00Z", "1969-12-22T00:00:00Z"}},
    {"2024-02-29T23:59:59Z",
     {"2024-02-29T23:59:55Z", "2024-02-29T23:59:00Z", "2024-02-29T23:00:00Z",
      "2024-02-29T00:00:00Z", "2024-02-26T00:00:00Z"}},
    {"2000-01-01T00:00:00.000001Z",
     {"2000-01-01T00:00:00Z", "2000-01-01T00:00:00Z", "2000-01-01T00:00:00Z",
      "2000-01-01T00:00:00Z", "1999-12-27T00:00:00Z"}},
    {"0001-01-01T00:00:00Z",
     {"0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
      "0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"}},
    {"0001-01-07T23:59:59.999999Z",
     {"0001-01-07T23:59:55Z", "0001-01-07T23:59:00Z", "0001-01-07T23:00:00Z",
      "0001-01-07T00:00:00Z", "0001-01-01T00:00:00Z"}},
    {"0001-01-08T00:00:00Z",
     {"0001-01-08T00:00:00Z", "0001-01-08T00:00:00Z", "0001-01-08T00:00:00Z",
      "0001-01-08T00:00:00Z", "0001-01-08T00:00:00Z"}},
    {"9999-12-31T23:59:59.999999Z",
     {"9999-12-31T23:59:55Z", "9999-12-31T23:59:00Z", "9999-12-31T23:00:00Z",
      "9999-12-31T00:00:00Z", "9999-12-27T00:00:00Z"}},
    {"1582-10-15T11:11:11Z",
     {"1582-10-15T11:11:10Z", "1582-10-15T11:11:00Z", "1582-10-15T11:00:00Z",
      "1582-10-15T00:00:00Z", "1582-10-11T00:00:00Z"}},
    {"1900-03-01T00:00:04.999999Z",
     {"1900-03-01T00:00:00Z", "1900-03-01T00:00:00Z", "1900-03-01T00:00:00Z",
      "1900-03-01T00:00:00Z", "1900-02-26T00:00:00Z"}},
    {"2026-11-15T23:59:55Z",
     {"2026-11-15T23:59:55Z", "2026-11-15T23:59:00Z", "2026-11-15T23:00:00Z",
      "2026-11-15T00:00:00Z", "2026-11-09T00:00:00Z"}},
    {"2026-11-16T00:00:00Z",
     {"2026-11-16T00:00:00Z", "2026-11-16T00:00:00Z", "2026-11-16T00:00:00Z",
      "2026-11-16T00:00:00Z", "2026-11-16T00:00:00Z"}},
    {"2016-12-31T23:59:59.5Z",
     {"2016-12-31T23:59:55Z", "2016-12-31T23:59:00Z", "2016-12-31T23:00:00Z",
      "2016-12-31T00:00:00Z", "2016-12-26T00:00:00Z"}},
};

static const char *const names[] = {"5s", "1m", "1h", "1d", "7d"};


static int64_t
parsed(const char *text)
{
    int64_t ts_us = -77;

    if (!meter_time_parse(str_of(text), &ts_us)) {
        fail_msg("refused: %s", text);
    }
    return ts_us;
}


static void
bucket__golden_instants__begin_where_the_calendar_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        for (int level = 0; level < METER_LEVEL_COUNT; level++) {
            int64_t got_us = meter_level_bucket(level, parsed(golden[i].at));

            if (got_us != parsed(golden[i].bucket[level])) {
                fail_msg("%s at %s", golden[i].at, names[level]);
            }
        }
    }
}


static void
bucket__random_instants__holds_them_and_lies_in_the_one_above(void **state)
{
    struct meter_random random = {5};

    (void)state;
    for (int i = 0; i < 200000; i++) {
        int64_t ts_us =
            METER_TIME_MIN +
            (int64_t)random_below(&random,
                                  (uint64_t)(METER_TIME_MAX - METER_TIME_MIN));
        int64_t below_us = ts_us;

        for (int level = 0; level < METER_LEVEL_COUNT; level++) {
            int64_t bucket_us = meter_level_bucket(level, ts_us);
            int64_t size_us = meter_level_size_us(level);

            assert_true(bucket_us <= ts_us && ts_us < bucket_us + size_us);
            assert_true(meter_level_bucket(level, bucket_us) == bucket_us);
            assert_true(meter_level_bucket(level, bucket_us - 1) ==
                        bucket_us - size_us);
            /* By way of the level below is the same as at once. */
            assert_true(meter_level_bucket(level, below_us) == bucket_us);
            below_us = bucket_us;
        }
    }
}


static void
size__each_level__is_a_multiple_of_the_one_below(void **state)
{
    static const int parts[] = {12, 60, 24, 7};

    (void)state;
    assert_true(meter_level_size_us(METER_LEVEL_5S) == INT64_C(5000000));
    for (int level = 1; level < METER_LEVEL_COUNT; level++) {
        assert_true(meter_level_size_us(level) ==
                    parts[level - 1] * meter_level_size_us(level - 1));
    }
}


static void
parse__names__are_those_of_the_levels(void **state)
{
    static const char *const others[] = {"",   "5",  "5S",  "5s ", "60s",
                                         "1M", "1w", "7d0", "s",   "7"};
    enum meter_level level;

    (void)state;
    for (int i = 0; i < METER_LEVEL_COUNT; i++) {
        assert_string_equal(meter_level_name(i), names[i]);
        assert_true(meter_level_parse(str_of(names[i]), &level));
        assert_int_equal(level, i);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(meter_level_parse(str_of(others[i]), &level));
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bucket__golden_instants__begin_where_the_calendar_says),
    cmocka_unit_test(
        bucket__random_instants__holds_them_and_lies_in_the_one_above),
    cmocka_unit_test(size__each_level__is_a_multiple_of_the_one_below),
    cmocka_unit_test(parse__names__are_those_of_the_levels),
};

RUN_TAP(tests)
