/*
 * test_bucket.c - buckets of the counters API: starts, order, writes, ends.
 */

#include "meter_cmocka.h"

#include "buckets/bucket_batch.c"
#include "meter_random.h"
#include "meter_time.h"

#define NEVER BUCKET_NEVER
#define MOST  INT64_MAX
#define NOW   INT64_C(1000)

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

static int64_t
at(const char *text)
{
    int64_t ts_us = 0;

    assert_true(meter_time_parse(str_of(text), &ts_us));
    return ts_us;
}


/* ---- starts ---------------------------------------------------------- */

static void
start__table__the_multiple_not_above(void **state)
{
    static const struct {
        const char *ts;
        int64_t duration_s;
        const char *start;
    } rows[] = {
        /* as documented */
        {"2024-03-15T10:30:45Z", 60, "2024-03-15T10:30:00Z"},
        {"2024-03-15T10:31:15Z", 60, "2024-03-15T10:31:00Z"},
        {"2024-03-15T10:30:45Z", 3600, "2024-03-15T10:00:00Z"},
        {"2024-03-15T11:45:00Z", 3600, "2024-03-15T11:00:00Z"},
        {"2024-03-15T10:30:45Z", 0, "1970-01-01T00:00:00Z"},
        {"2024-03-15T10:30:45Z", 86400, "2024-03-15T00:00:00Z"},
        /* both sides of a boundary */
        {"2024-03-15T10:30:00Z", 60, "2024-03-15T10:30:00Z"},
        {"2024-03-15T10:29:59.999999Z", 60, "2024-03-15T10:29:00Z"},
        {"2024-03-15T00:00:00Z", 86400, "2024-03-15T00:00:00Z"},
        {"2024-03-14T23:59:59.999999Z", 86400, "2024-03-14T00:00:00Z"},
        /* an offset moves the day */
        {"2024-03-15T00:30:00+02:00", 86400, "2024-03-14T00:00:00Z"},
        {"2024-03-14T23:30:00-02:00", 86400, "2024-03-15T00:00:00Z"},
        /* odd durations */
        {"2024-03-15T10:30:45.999999Z", 1, "2024-03-15T10:30:45Z"},
        {"1970-01-01T00:00:13.999999Z", 7, "1970-01-01T00:00:07Z"},
        {"1970-01-01T00:00:14Z", 7, "1970-01-01T00:00:14Z"},
        {"1970-03-03T00:00:00Z", 2592000, "1970-03-02T00:00:00Z"},
        {"1970-01-01T01:30:00Z", 5401, "1970-01-01T00:00:00Z"},
        /* before 1970: down, not toward it */
        {"1969-12-31T23:59:59.999999Z", 60, "1969-12-31T23:59:00Z"},
        {"1969-12-31T23:59:00Z", 60, "1969-12-31T23:59:00Z"},
        {"1969-12-31T23:58:59.999999Z", 60, "1969-12-31T23:58:00Z"},
        {"1969-12-31T23:30:00Z", 3600, "1969-12-31T23:00:00Z"},
        {"1969-12-31T12:00:00Z", 86400, "1969-12-31T00:00:00Z"},
        {"1969-12-31T23:59:59Z", 7, "1969-12-31T23:59:53Z"},
        {"1900-01-01T00:00:00.000001Z", 86400, "1900-01-01T00:00:00Z"},
        {"1900-01-01T12:34:56Z", 0, "1970-01-01T00:00:00Z"},
        /* ends of the calendar */
        {"0001-01-01T00:00:00Z", 86400, "0001-01-01T00:00:00Z"},
        {"0001-01-01T00:00:00Z", 60, "0001-01-01T00:00:00Z"},
        {"9999-12-31T23:59:59.999999Z", 86400, "9999-12-31T00:00:00Z"},
        {"9999-12-31T23:59:59.999999Z", 0, "1970-01-01T00:00:00Z"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t start_us = bucket_start_us(at(rows[i].ts), rows[i].duration_s);

        if (start_us != at(rows[i].start)) {
            fail_msg("%s by %lld starts at %lld", rows[i].ts,
                     (long long)rows[i].duration_s, (long long)start_us);
        }
    }
}


static void
start__longest_duration__fits_a_timestamptz(void **state)
{
    /* 4713-11-24 BC: Julian day 0, where a timestamptz begins. */
    const int64_t first_us =
        -(INT64_C(2440588) * METER_TIME_DAY); /* days to 1970 */
    int64_t long_us = BUCKET_DURATION_MAX * METER_TIME_SECOND;

    (void)state;
    assert_true(bucket_start_us(METER_TIME_MIN, BUCKET_DURATION_MAX) ==
                -2 * long_us);
    assert_true(-2 * long_us >= first_us);
    assert_true(bucket_start_us(-1, BUCKET_DURATION_MAX) == -long_us);
    assert_true(bucket_start_us(METER_TIME_MAX, BUCKET_DURATION_MAX) ==
                8 * long_us);
    /* The shorter ones reach less far back. */
    for (int64_t s = BUCKET_DURATION_MAX - 100000; s <= BUCKET_DURATION_MAX;
         s++) {
        assert_true(bucket_start_us(METER_TIME_MIN, s) >= first_us);
    }
}


static void
start__random__a_multiple_and_the_last_one(void **state)
{
    struct meter_random random = {11};

    (void)state;
    for (int i = 0; i < 200000; i++) {
        int64_t span = METER_TIME_MAX - METER_TIME_MIN;
        int64_t ts_us =
            METER_TIME_MIN + (int64_t)random_below(&random, (uint64_t)span + 1);
        int64_t bound = i % 2 == 0 ? 100000 : BUCKET_DURATION_MAX;
        int64_t duration_s =
            1 + (int64_t)random_below(&random, (uint64_t)bound);
        int64_t start_us = bucket_start_us(ts_us, duration_s);

        assert_true(start_us % (duration_s * 1000000) == 0);
        assert_true(start_us <= ts_us);
        assert_true(ts_us - start_us < duration_s * 1000000);
        assert_true(bucket_start_us(start_us, duration_s) == start_us);
        assert_true(bucket_start_us(ts_us, 0) == 0);
    }
}


/* ---- names and keys -------------------------------------------------- */

static void
name__table__url_safe(void **state)
{
    static const char *const good[] = {
        "a",
        "user_logins",
        "api_calls_v2",
        "payment.success",
        "-",
        "~",
        "_",
        "...",
        ".a",
        "a.",
        "0-9",
        "AZaz09._~-",
        "cache_hits",
    };
    static const char *const bad[] = {
        "",      ".",    "..",   "user logins", "api/calls", "\xf0\x9f\x94\xa5",
        "a%20b", "a+b",  "a:b",  "a@b",         "a[b",       "a`b",
        "a{b",   "a,b",  "\x7f", "a\n",         "\xc3\xa9",  "*",
        "a!",    "a'b",  "a(b)", "a;b",         "a=b",       "a&b",
        "\x01",  "a\\b", "a^b",  "a|b",         "\"",        "a#",
    };
    char text[BUCKET_NAME_SIZE_MAX + 1];

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        if (!bucket_is_name(str_of(good[i]))) {
            fail_msg("refused: %s", good[i]);
        }
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        if (bucket_is_name(str_of(bad[i]))) {
            fail_msg("taken: %s", bad[i]);
        }
    }
    memset(text, 'x', sizeof(text));
    assert_true(bucket_is_name((struct meter_str){text, 255}));
    assert_false(bucket_is_name((struct meter_str){text, 256}));
    assert_false(bucket_is_name((struct meter_str){"a\0b", 3}));
}


static void
key__order__tenant_name_duration_start(void **state)
{
    /* In order; bytes above 127 come last. */
    const struct bucket_key keys[] = {
        {METER_STR("a"), METER_STR("b"), 60, 0},
        {METER_STR("a"), METER_STR("b.a"), 0, 0},
        {METER_STR("a"), METER_STR("ba"), 0, 0},
        {METER_STR("a"), METER_STR("z"), 0, -60},
        {METER_STR("a"), METER_STR("z"), 0, 0},
        {METER_STR("a"), METER_STR("z"), 0, 60},
        {METER_STR("a"), METER_STR("z"), 60, -120},
        {METER_STR("a"), METER_STR("z"), 3600, -7200},
        {METER_STR("aa"), METER_STR("a"), 0, 0},
        {METER_STR("b"), METER_STR("A"), 0, 0},
        {METER_STR("b"), METER_STR("a"), 0, 0},
        {METER_STR("\xc3\xa9"), METER_STR("a"), 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(keys); i++) {
        for (size_t j = 0; j < COUNT(keys); j++) {
            int order = bucket_key_compare(&keys[i], &keys[j]);

            assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
        }
    }
}


/* ---- writes ---------------------------------------------------------- */

struct apply_row {
    struct bucket before;
    struct bucket_write write;
    enum bucket_outcome outcome;
    struct bucket after; /* where applied */
};

static void
assert_applied(const struct apply_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct bucket bucket = rows[i].before;
        enum bucket_outcome outcome =
            bucket_apply(&bucket, &rows[i].write, NOW);
        const struct bucket *expected =
            outcome == BUCKET_APPLIED ? &rows[i].after : &rows[i].before;

        if (outcome != rows[i].outcome || bucket.exists != expected->exists ||
            bucket.added != expected->added ||
            bucket.subbed != expected->subbed ||
            bucket.expires_us != expected->expires_us) {
            fail_msg("row %zu: outcome %d, exists %d, %lld - %lld until %lld",
                     i, outcome, bucket.exists, (long long)bucket.added,
                     (long long)bucket.subbed, (long long)bucket.expires_us);
        }
    }
}

#define ABSENT             \
    {                      \
        false, 0, 0, NEVER \
    }
#define HELD(added, subbed)            \
    {                                  \
        true, (added), (subbed), NEVER \
    }
#define WRITE(kind, amount)            \
    {                                  \
        BUCKET_##kind, (amount), NEVER \
    }
#define NONE ABSENT

static void
apply__increment__up_to_the_last_number(void **state)
{
    static const struct apply_row rows[] = {
        {ABSENT, WRITE(INCREMENT, 1), BUCKET_APPLIED, HELD(1, 0)},
        {ABSENT, WRITE(INCREMENT, MOST), BUCKET_APPLIED, HELD(MOST, 0)},
        {HELD(0, 0), WRITE(INCREMENT, 1), BUCKET_APPLIED, HELD(1, 0)},
        {HELD(105, 0), WRITE(INCREMENT, 5), BUCKET_APPLIED, HELD(110, 0)},
        {HELD(105, 5), WRITE(INCREMENT, 5), BUCKET_APPLIED, HELD(110, 5)},
        {HELD(MOST - 1, 0), WRITE(INCREMENT, 1), BUCKET_APPLIED, HELD(MOST, 0)},
        {HELD(1, 1), WRITE(INCREMENT, MOST - 1), BUCKET_APPLIED, HELD(MOST, 1)},
        {HELD(MOST, 0), WRITE(INCREMENT, 1), BUCKET_OVERFLOW, NONE},
        {HELD(MOST - 1, 0), WRITE(INCREMENT, 2), BUCKET_OVERFLOW, NONE},
        {HELD(1, 0), WRITE(INCREMENT, MOST), BUCKET_OVERFLOW, NONE},
        {HELD(MOST, 0), WRITE(INCREMENT, MOST), BUCKET_OVERFLOW, NONE},
        /* net is 0: added leaves its bits all the same */
        {HELD(MOST, MOST), WRITE(INCREMENT, 1), BUCKET_OVERFLOW, NONE},
        {HELD(MOST - 1, MOST - 1), WRITE(INCREMENT, 1), BUCKET_APPLIED,
         HELD(MOST, MOST - 1)},
    };

    (void)state;
    assert_applied(rows, COUNT(rows));
}


static void
apply__decrement__never_below_0(void **state)
{
    static const struct apply_row rows[] = {
        {ABSENT, WRITE(DECREMENT, 1), BUCKET_NEGATIVE, NONE},
        {ABSENT, WRITE(DECREMENT, MOST), BUCKET_NEGATIVE, NONE},
        {HELD(0, 0), WRITE(DECREMENT, 1), BUCKET_NEGATIVE, NONE},
        {HELD(1, 0), WRITE(DECREMENT, 1), BUCKET_APPLIED, HELD(1, 1)},
        {HELD(1, 1), WRITE(DECREMENT, 1), BUCKET_NEGATIVE, NONE},
        {HELD(5, 0), WRITE(DECREMENT, 6), BUCKET_NEGATIVE, NONE},
        {HELD(5, 0), WRITE(DECREMENT, 5), BUCKET_APPLIED, HELD(5, 5)},
        {HELD(MOST, 0), WRITE(DECREMENT, MOST), BUCKET_APPLIED,
         HELD(MOST, MOST)},
        {HELD(MOST, 1), WRITE(DECREMENT, MOST), BUCKET_NEGATIVE, NONE},
        {HELD(MOST, 1), WRITE(DECREMENT, MOST - 1), BUCKET_APPLIED,
         HELD(MOST, MOST)},
        {HELD(MOST, MOST), WRITE(DECREMENT, 1), BUCKET_NEGATIVE, NONE},
        {HELD(MOST, MOST - 1), WRITE(DECREMENT, 1), BUCKET_APPLIED,
         HELD(MOST, MOST)},
        {HELD(MOST - 1, 0), WRITE(DECREMENT, MOST), BUCKET_NEGATIVE, NONE},
    };

    (void)state;
    assert_applied(rows, COUNT(rows));
}


static void
apply__set__moves_one_side_by_the_difference(void **state)
{
    static const struct apply_row rows[] = {
        {ABSENT, WRITE(SET, 0), BUCKET_APPLIED, HELD(0, 0)},
        {ABSENT, WRITE(SET, 100), BUCKET_APPLIED, HELD(100, 0)},
        {ABSENT, WRITE(SET, MOST), BUCKET_APPLIED, HELD(MOST, 0)},
        {HELD(10, 4), WRITE(SET, 6), BUCKET_APPLIED, HELD(10, 4)},
        {HELD(10, 4), WRITE(SET, 7), BUCKET_APPLIED, HELD(11, 4)},
        {HELD(10, 4), WRITE(SET, 5), BUCKET_APPLIED, HELD(10, 5)},
        {HELD(10, 4), WRITE(SET, 0), BUCKET_APPLIED, HELD(10, 10)},
        {HELD(10, 10), WRITE(SET, 0), BUCKET_APPLIED, HELD(10, 10)},
        {HELD(MOST, 0), WRITE(SET, MOST), BUCKET_APPLIED, HELD(MOST, 0)},
        {HELD(MOST, 0), WRITE(SET, 0), BUCKET_APPLIED, HELD(MOST, MOST)},
        {HELD(MOST, 0), WRITE(SET, MOST - 1), BUCKET_APPLIED, HELD(MOST, 1)},
        {HELD(MOST - 1, 0), WRITE(SET, MOST), BUCKET_APPLIED, HELD(MOST, 0)},
        /* net could be that much, but added could not */
        {HELD(MOST, MOST), WRITE(SET, 0), BUCKET_APPLIED, HELD(MOST, MOST)},
        {HELD(MOST, MOST), WRITE(SET, 1), BUCKET_OVERFLOW, NONE},
        {HELD(1, 1), WRITE(SET, MOST), BUCKET_OVERFLOW, NONE},
        {HELD(1, 1), WRITE(SET, MOST - 1), BUCKET_APPLIED, HELD(MOST, 1)},
        {HELD(MOST, 1), WRITE(SET, MOST), BUCKET_OVERFLOW, NONE},
        {HELD(MOST - 1, 2), WRITE(SET, MOST - 2), BUCKET_APPLIED,
         HELD(MOST, 2)},
        {HELD(MOST - 1, 2), WRITE(SET, MOST - 1), BUCKET_OVERFLOW, NONE},
    };

    (void)state;
    assert_applied(rows, COUNT(rows));
}


/* ---- ends ------------------------------------------------------------ */

#define UNTIL(added, subbed, end)      \
    {                                  \
        true, (added), (subbed), (end) \
    }
#define WRITE_UNTIL(kind, amount, end) \
    {                                  \
        BUCKET_##kind, (amount), (end) \
    }
#define PAST   (NOW - 1)
#define SOON   (NOW + 1)
#define LATER  (NOW + 2)
#define LATEST (NOW + 3)

static void
live__until_the_very_instant(void **state)
{
    static const struct {
        struct bucket bucket;
        bool is_live;
    } rows[] = {
        {ABSENT, false},
        {{false, 0, 0, LATER}, false},
        {HELD(0, 0), true},
        {UNTIL(1, 0, SOON), true},
        {UNTIL(1, 0, NOW), false},
        {UNTIL(1, 0, PAST), false},
        {UNTIL(1, 0, METER_TIME_MIN), false},
        {UNTIL(1, 0, METER_TIME_MAX), true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(bucket_is_live(&rows[i].bucket, NOW), rows[i].is_live);
    }
    assert_true(bucket_is_live(&rows[2].bucket, METER_TIME_MAX));
}


static void
apply__end__the_later_of_two(void **state)
{
    static const struct apply_row rows[] = {
        /* only one has an end */
        {ABSENT, WRITE_UNTIL(INCREMENT, 1, LATER), BUCKET_APPLIED,
         UNTIL(1, 0, LATER)},
        {HELD(1, 0), WRITE_UNTIL(INCREMENT, 1, LATER), BUCKET_APPLIED,
         UNTIL(2, 0, LATER)},
        {UNTIL(1, 0, LATER), WRITE(INCREMENT, 1), BUCKET_APPLIED,
         UNTIL(2, 0, LATER)},
        {ABSENT, WRITE_UNTIL(SET, 3, LATER), BUCKET_APPLIED,
         UNTIL(3, 0, LATER)},
        {HELD(1, 0), WRITE_UNTIL(SET, 3, LATER), BUCKET_APPLIED,
         UNTIL(3, 0, LATER)},
        {UNTIL(1, 0, LATER), WRITE(SET, 0), BUCKET_APPLIED, UNTIL(1, 1, LATER)},
        /* both */
        {UNTIL(1, 0, LATER), WRITE_UNTIL(INCREMENT, 1, LATEST), BUCKET_APPLIED,
         UNTIL(2, 0, LATEST)},
        {UNTIL(1, 0, LATER), WRITE_UNTIL(INCREMENT, 1, SOON), BUCKET_APPLIED,
         UNTIL(2, 0, LATER)},
        {UNTIL(1, 0, LATER), WRITE_UNTIL(INCREMENT, 1, PAST), BUCKET_APPLIED,
         UNTIL(2, 0, LATER)},
        {UNTIL(1, 0, LATER), WRITE_UNTIL(INCREMENT, 1, LATER), BUCKET_APPLIED,
         UNTIL(2, 0, LATER)},
        {UNTIL(1, 0, LATER), WRITE_UNTIL(SET, 1, LATEST), BUCKET_APPLIED,
         UNTIL(1, 0, LATEST)},
        {UNTIL(1, 0, LATER), WRITE_UNTIL(SET, 1, SOON), BUCKET_APPLIED,
         UNTIL(1, 0, LATER)},
        /* one in the past is taken: it has expired at once */
        {ABSENT, WRITE_UNTIL(INCREMENT, 1, PAST), BUCKET_APPLIED,
         UNTIL(1, 0, PAST)},
        {HELD(1, 0), WRITE_UNTIL(SET, 5, NOW), BUCKET_APPLIED,
         UNTIL(5, 0, NOW)},
        /* decrements leave it */
        {UNTIL(5, 0, LATER), WRITE_UNTIL(DECREMENT, 1, LATEST), BUCKET_APPLIED,
         UNTIL(5, 1, LATER)},
        {HELD(5, 0), WRITE_UNTIL(DECREMENT, 1, LATEST), BUCKET_APPLIED,
         HELD(5, 1)},
        /* what fails moves no end */
        {UNTIL(MOST, 0, SOON), WRITE_UNTIL(INCREMENT, 1, LATEST),
         BUCKET_OVERFLOW, NONE},
        {UNTIL(MOST, MOST, SOON), WRITE_UNTIL(SET, 1, LATEST), BUCKET_OVERFLOW,
         NONE},
    };

    (void)state;
    assert_applied(rows, COUNT(rows));
}


static void
apply__expired__starts_from_0_with_the_new_end_only(void **state)
{
    static const struct apply_row rows[] = {
        {UNTIL(7, 3, NOW), WRITE(INCREMENT, 2), BUCKET_APPLIED, HELD(2, 0)},
        {UNTIL(7, 3, PAST), WRITE(INCREMENT, 2), BUCKET_APPLIED, HELD(2, 0)},
        {UNTIL(7, 3, SOON), WRITE(INCREMENT, 2), BUCKET_APPLIED,
         UNTIL(9, 3, SOON)},
        {UNTIL(7, 3, NOW), WRITE_UNTIL(INCREMENT, 2, LATER), BUCKET_APPLIED,
         UNTIL(2, 0, LATER)},
        {UNTIL(7, 3, PAST), WRITE_UNTIL(INCREMENT, 2, PAST - 1), BUCKET_APPLIED,
         UNTIL(2, 0, PAST - 1)},
        {UNTIL(7, 3, PAST), WRITE(SET, 4), BUCKET_APPLIED, HELD(4, 0)},
        {UNTIL(7, 3, PAST), WRITE(SET, 0), BUCKET_APPLIED, HELD(0, 0)},
        {UNTIL(7, 3, PAST), WRITE_UNTIL(SET, 1, SOON), BUCKET_APPLIED,
         UNTIL(1, 0, SOON)},
        /* nothing is left to take from, and the row stays as it is */
        {UNTIL(7, 3, NOW), WRITE(DECREMENT, 1), BUCKET_NEGATIVE, NONE},
        {UNTIL(7, 3, SOON), WRITE(DECREMENT, 1), BUCKET_APPLIED,
         UNTIL(7, 4, SOON)},
        /* nor is there anything to overflow */
        {UNTIL(MOST, 0, NOW), WRITE(INCREMENT, MOST), BUCKET_APPLIED,
         HELD(MOST, 0)},
        {UNTIL(MOST, 0, SOON), WRITE(INCREMENT, 1), BUCKET_OVERFLOW, NONE},
    };

    (void)state;
    assert_applied(rows, COUNT(rows));
}


static void
apply__set_twice__as_once(void **state)
{
    struct meter_random random = {5};

    (void)state;
    for (int i = 0; i < 10000; i++) {
        int64_t added = (int64_t)(random_u64(&random) >> 1);
        int64_t subbed = (int64_t)random_below(&random, (uint64_t)added + 1);
        struct bucket bucket = UNTIL(added, subbed, LATER);
        struct bucket_write write =
            WRITE(SET, (int64_t)(random_u64(&random) >> 1));
        struct bucket once;

        if (bucket_apply(&bucket, &write, NOW) != BUCKET_APPLIED) {
            continue;
        }
        assert_true(bucket.added - bucket.subbed == write.amount);
        assert_true(bucket.added == added || bucket.subbed == subbed);
        once = bucket;
        assert_int_equal(bucket_apply(&bucket, &write, NOW), BUCKET_APPLIED);
        assert_true(bucket.added == once.added);
        assert_true(bucket.subbed == once.subbed);
        assert_true(bucket.expires_us == once.expires_us);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(start__table__the_multiple_not_above),
    cmocka_unit_test(start__longest_duration__fits_a_timestamptz),
    cmocka_unit_test(start__random__a_multiple_and_the_last_one),
    cmocka_unit_test(name__table__url_safe),
    cmocka_unit_test(key__order__tenant_name_duration_start),
    cmocka_unit_test(apply__increment__up_to_the_last_number),
    cmocka_unit_test(apply__decrement__never_below_0),
    cmocka_unit_test(apply__set__moves_one_side_by_the_difference),
    cmocka_unit_test(live__until_the_very_instant),
    cmocka_unit_test(apply__end__the_later_of_two),
    cmocka_unit_test(apply__expired__starts_from_0_with_the_new_end_only),
    cmocka_unit_test(apply__set_twice__as_once),
};

RUN_TAP(tests)
