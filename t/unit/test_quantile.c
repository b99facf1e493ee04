/*
 * test_quantile.c - quantiles of tallies, exact to the last decimal.
 */

#include "meter_cmocka.h"

#include "query/answer.c"

static struct meter_decimal
decimal(const char *text)
{
    struct meter_decimal value;

    assert_int_equal(meter_decimal_parse(str_of(text), &value),
                     METER_DECIMAL_OK);
    return value;
}

static void
expect(const char *const *bounds, size_t count, const int64_t *tallies,
       const char *q, const char *want)
{
    struct meter_decimal parsed[8];
    struct meter_decimal got;
    char text[METER_DECIMAL_TEXT_SIZE + 1];

    for (size_t i = 0; i < count; i++) {
        parsed[i] = decimal(bounds[i]);
    }
    assert_true(quantile_of(parsed, count, tallies, decimal(q), &got));
    meter_decimal_format(got, text);
    assert_string_equal(text, want);
}

static void
quantile__between_bounds__in_proportion(void **state)
{
    static const char *const bounds[] = {"5", "10", "50"};
    static const int64_t tallies[] = {2, 3, 3, 2};

    (void)state;
    expect(bounds, 3, tallies, "0", "0");
    expect(bounds, 3, tallies, "0.1", "2.5");
    expect(bounds, 3, tallies, "0.2", "5");
    expect(bounds, 3, tallies, "0.25", "5.833333333");
    expect(bounds, 3, tallies, "0.5", "10");
    expect(bounds, 3, tallies, "0.65", "30");
    expect(bounds, 3, tallies, "0.8", "50");
    expect(bounds, 3, tallies, "0.81", "50");
    expect(bounds, 3, tallies, "1", "50");
}

static void
quantile__empty_tallies__are_passed_over(void **state)
{
    static const char *const bounds[] = {"5", "10", "50"};
    static const int64_t tallies[] = {0, 0, 4, 0};
    static const int64_t apart[] = {2, 0, 2, 0};

    (void)state;
    expect(bounds, 3, tallies, "0", "10");
    expect(bounds, 3, tallies, "0.5", "30");
    expect(bounds, 3, apart, "0.5", "5");
    expect(bounds, 3, tallies, "1", "50");
}

static void
quantile__bounds_below_0__the_lowest_has_no_width(void **state)
{
    static const char *const bounds[] = {"-10", "10"};
    static const int64_t tallies[] = {1, 1, 0};

    (void)state;
    expect(bounds, 2, tallies, "0.25", "-10");
    expect(bounds, 2, tallies, "0.75", "0");
}

static void
quantile__halves__to_the_even_neighbour(void **state)
{
    static const char *const bounds[] = {"0.000000001"};
    static const char *const more[] = {"0.000000003"};
    static const int64_t tallies[] = {2, 0};

    (void)state;
    expect(bounds, 1, tallies, "0.5", "0");
    expect(more, 1, tallies, "0.5", "0.000000002");
}

static void
quantile__largest_numbers__stay_exact(void **state)
{
    static const char *const bounds[] = {"1000000000000000000",
                                         "3000000000000000000"};
    static const char *const widest[] = {
        "-99999999999999999999999999999.999999999",
        "99999999999999999999999999999.999999999"};
    static const int64_t tallies[] = {0, INT64_MAX, INT64_MAX};

    (void)state;
    expect(bounds, 2, tallies, "0.25", "2000000000000000000");
    expect(bounds, 2, tallies, "0.000000001", "1000000004000000000");
    expect(widest, 2, tallies, "0.25", "0");
    expect(widest, 2, tallies, "0.125",
           "-49999999999999999999999999999.999999999");
    expect(widest, 2, tallies, "0.5", widest[1]);
}

static void
quantile__no_samples__has_none(void **state)
{
    struct meter_decimal bound = decimal("1");
    struct meter_decimal got;
    int64_t tallies[] = {0, 0};

    (void)state;
    assert_false(quantile_of(&bound, 1, tallies, decimal("0.5"), &got));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(quantile__between_bounds__in_proportion),
    cmocka_unit_test(quantile__empty_tallies__are_passed_over),
    cmocka_unit_test(quantile__bounds_below_0__the_lowest_has_no_width),
    cmocka_unit_test(quantile__halves__to_the_even_neighbour),
    cmocka_unit_test(quantile__largest_numbers__stay_exact),
    cmocka_unit_test(quantile__no_samples__has_none),
};

RUN_TAP(tests)
