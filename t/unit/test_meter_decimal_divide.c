#include "meter_cmocka.h"

#include "meter_decimal.h"


static struct meter_decimal
decimal(const char *text)
{
    struct meter_decimal value = {0};

    if (meter_decimal_parse(str_of(text), &value) != METER_DECIMAL_OK) {
        fail_msg("refused: %s", text);
    }
    return value;
}


static const char *
formatted(struct meter_decimal value)
{
    static char text[METER_DECIMAL_TEXT_SIZE + 1];

    meter_decimal_format(value, text);
    return text;
}


static void
subtract__limits__refuses_the_39th_digit(void **state)
{
    struct meter_decimal out = decimal("7");

    (void)state;
    assert_true(meter_decimal_subtract(decimal("1.5"), decimal("-2"), &out));
    assert_string_equal(formatted(out), "3.5");
    assert_true(
        meter_decimal_subtract(decimal("0.000000001"), decimal("1"), &out));
    assert_string_equal(formatted(out), "-0.999999999");
    assert_false(meter_decimal_subtract(
        decimal("-99999999999999999999999999999.999999999"),
        decimal("0.000000001"), &out));
    assert_string_equal(formatted(out), "-0.999999999");
}


static void
divide__halves__go_to_the_even_digit(void **state)
{
    static const struct {
        const char *value;
        int64_t divisor;
        const char *want;
    } cases[] = {
        {"0", 3, "0"},
        {"10", 3, "3.333333333"},
        {"20", 3, "6.666666667"},
        {"-20", 3, "-6.666666667"},
        {"1", 4, "0.25"},
        {"0.000000001", 2, "0"},
        {"0.000000002", 2, "0.000000001"},
        {"0.000000003", 2, "0.000000002"},
        {"0.000000005", 2, "0.000000002"},
        {"0.000000007", 2, "0.000000004"},
        {"-0.000000001", 2, "0"},
        {"-0.000000003", 2, "-0.000000002"},
        {"-0.000000005", 2, "-0.000000002"},
        {"0.000000003", -2, "-0.000000002"},
        {"0.000000025", 10, "0.000000002"},
        {"0.000000035", 10, "0.000000004"},
        {"0.000000026", 10, "0.000000003"},
        {"0.000000024", 10, "0.000000002"},
        {"0.000000005", 3, "0.000000002"},
        {"0.000000004", 3, "0.000000001"},
        {"99999999999999999999999999999.999999999", 1,
         "99999999999999999999999999999.999999999"},
        {"99999999999999999999999999999.999999999", 2,
         "50000000000000000000000000000"},
        {"-99999999999999999999999999999.999999999", 10,
         "-10000000000000000000000000000"},
        {"9223372036854775807", INT64_MAX, "1"},
        {"9223372036854775808", INT64_MIN, "-1"},
        /* just below and just above half of the last digit */
        {"4611686018.427387903", INT64_MAX, "0"},
        {"4611686018.427387904", INT64_MAX, "0.000000001"},
        {"4611686018.427387904", INT64_MIN, "0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct meter_decimal quotient =
            meter_decimal_divide(decimal(cases[i].value), cases[i].divisor);

        assert_string_equal(formatted(quotient), cases[i].want);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(subtract__limits__refuses_the_39th_digit),
    cmocka_unit_test(divide__halves__go_to_the_even_digit),
};

RUN_TAP(tests)
