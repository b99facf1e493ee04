#include "meter_cmocka.h"

#include "meter_decimal.h"
#include "meter_limits.h"
#include "meter_random.h"


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
    size_t size = meter_decimal_format(value, text);

    assert_int_equal(size, strlen(text));
    return text;
}


static void
parse__spellings__give_the_shortest_text(void **state)
{
    static const char *const cases[][2] = {
        {"0", "0"},
        {"-0", "0"},
        {"+0.000", "0"},
        {"-0e-99", "0"},
        {"0e999999999999999999999", "0"},
        {"1", "1"},
        {"1.0", "1"},
        {"1e0", "1"},
        {"10e-1", "1"},
        {"0.1e1", "1"},
        {"0.0000000000000001e16", "1"},
        {"10000000000000000000000000000000000e-34", "1"},
        {"+1", "1"},
        {"007", "7"},
        {"-007.50", "-7.5"},
        {"100", "100"},
        {"1e2", "100"},
        {"1E+2", "100"},
        {"0.000000001", "0.000000001"},
        {"-0.000000001", "-0.000000001"},
        {"1e-9", "0.000000001"},
        {"0.0000000010", "0.000000001"},
        {"123.456", "123.456"},
        {"0.1", "0.1"},
        {"99999999999999999999999999999.999999999",
         "99999999999999999999999999999.999999999"},
        {"-99999999999999999999999999999.999999999",
         "-99999999999999999999999999999.999999999"},
        {"1e28", "10000000000000000000000000000"},
        {"10e27", "10000000000000000000000000000"},
        {"0.0000000001e38", "10000000000000000000000000000"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(formatted(decimal(cases[i][0])), cases[i][1]);
    }
}


static void
parse__bounds__name_what_is_wrong(void **state)
{
    static const struct {
        const char *text;
        enum meter_decimal_error error;
    } cases[] = {
        {"", METER_DECIMAL_SYNTAX},
        {"-", METER_DECIMAL_SYNTAX},
        {"+", METER_DECIMAL_SYNTAX},
        {".", METER_DECIMAL_SYNTAX},
        {"1.", METER_DECIMAL_SYNTAX},
        {".1", METER_DECIMAL_SYNTAX},
        {"1e", METER_DECIMAL_SYNTAX},
        {"1e-", METER_DECIMAL_SYNTAX},
        {"1e1.5", METER_DECIMAL_SYNTAX},
        {"1.5.5", METER_DECIMAL_SYNTAX},
        {" 1", METER_DECIMAL_SYNTAX},
        {"1 ", METER_DECIMAL_SYNTAX},
        {"1\n", METER_DECIMAL_SYNTAX},
        {"--1", METER_DECIMAL_SYNTAX},
        {"0x1", METER_DECIMAL_SYNTAX},
        {"1_000", METER_DECIMAL_SYNTAX},
        {"1,000", METER_DECIMAL_SYNTAX},
        {"NaN", METER_DECIMAL_SYNTAX},
        {"Infinity", METER_DECIMAL_SYNTAX},
        {"99999999999999999999999999999", METER_DECIMAL_OK}, /* 29 digits */
        {"100000000000000000000000000000", METER_DECIMAL_RANGE},
        {"1e28", METER_DECIMAL_OK},
        {"1e29", METER_DECIMAL_RANGE},
        {"-1e29", METER_DECIMAL_RANGE},
        {"1e999999999999", METER_DECIMAL_RANGE},
        {"1e99999999999999999999999999999999999999", METER_DECIMAL_RANGE},
        {"0.000000001", METER_DECIMAL_OK},
        {"0.0000000001", METER_DECIMAL_PRECISION},
        {"0.0000000010", METER_DECIMAL_OK},
        {"1.0000000001", METER_DECIMAL_PRECISION},
        {"1e-10", METER_DECIMAL_PRECISION},
        {"10e-10", METER_DECIMAL_OK},
        {"1e-999999999999", METER_DECIMAL_PRECISION},
        {"1e-99999999999999999999999999999999999999", METER_DECIMAL_PRECISION},
        {"100000000000000000000000000000.0000000001", METER_DECIMAL_RANGE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct meter_decimal value = {4711};
        enum meter_decimal_error error =
            meter_decimal_parse(str_of(cases[i].text), &value);

        if (error != cases[i].error) {
            fail_msg("%s: %d", cases[i].text, (int)error);
        }
        if (error != METER_DECIMAL_OK) {
            assert_true(value.units == 4711);
        }
    }
    assert_int_equal(meter_decimal_parse((struct meter_str){NULL, 0},
                                         &(struct meter_decimal){0}),
                     METER_DECIMAL_SYNTAX);
    assert_int_equal(meter_decimal_parse((struct meter_str){"1\0", 2},
                                         &(struct meter_decimal){0}),
                     METER_DECIMAL_SYNTAX);
}


static void
error_text__every_error__is_a_sentence(void **state)
{
    (void)state;
    assert_string_equal(meter_decimal_error_text(METER_DECIMAL_OK), "");
    assert_non_null(
        strstr(meter_decimal_error_text(METER_DECIMAL_SYNTAX), "decimal"));
    assert_non_null(
        strstr(meter_decimal_error_text(METER_DECIMAL_RANGE), "29"));
    assert_non_null(
        strstr(meter_decimal_error_text(METER_DECIMAL_PRECISION), "9 digits"));
}


static void
parse__sixty_four_thousand_digits__are_decided_by_value(void **state)
{
    enum { SIZE = 65536 };
    char *text = malloc(SIZE);
    struct meter_decimal value;
    struct meter_str all = {text, SIZE};

    (void)state;
    memset(text, '0', SIZE);
    text[SIZE - 1] = '7';
    assert_int_equal(meter_decimal_parse(all, &value), METER_DECIMAL_OK);
    assert_string_equal(formatted(value), "7");
    text[0] = '7';
    assert_int_equal(meter_decimal_parse(all, &value), METER_DECIMAL_RANGE);
    text[1] = '.';
    assert_int_equal(meter_decimal_parse(all, &value), METER_DECIMAL_PRECISION);
    text[SIZE - 1] = '0';
    assert_int_equal(meter_decimal_parse(all, &value), METER_DECIMAL_OK);
    assert_string_equal(formatted(value), "7");
    /* 0.000...07e65526: 65527 decimals taken back by the exponent. */
    memset(text, '0', SIZE);
    text[1] = '.';
    memcpy(text + SIZE - 7, "7e65528", 7);
    assert_int_equal(meter_decimal_parse(all, &value), METER_DECIMAL_OK);
    assert_string_equal(formatted(value), "7");
    free(text);
}


/*
 * A reference with nothing in common: places each digit of the text into
 * an array of 10^-9 units by its weight. Only for short texts.
 */
static enum meter_decimal_error
reference(const char *text, int *digits, bool *negative)
{
    int exponent = 0, before = 0, index = 0;
    const char *e = strchr(text, 'e');
    const char *point = strchr(text, '.');
    const char *at = text + (*text == '-');
    bool range = false, precision = false, any = false;

    if (e != NULL) {
        exponent = atoi(e + 1);
    } else {
        e = text + strlen(text);
    }
    before = (int)((point != NULL ? point : e) - at);
    memset(digits, 0, 38 * sizeof(*digits));
    for (; at < e; at++) {
        int weight;

        if (*at == '.') {
            continue;
        }
        weight = before - 1 - index++ + exponent; /* power of ten */
        if (*at == '0') {
            continue;
        }
        any = true;
        if (weight >= 29) {
            range = true;
        } else if (weight < -9) {
            precision = true;
        } else {
            digits[28 - weight] = *at - '0';
        }
    }
    *negative = any && *text == '-';
    return range       ? METER_DECIMAL_RANGE
           : precision ? METER_DECIMAL_PRECISION
                       : METER_DECIMAL_OK;
}


static void
random_number(struct meter_random *random, char *text)
{
    int before = 1 + (int)random_below(random, 34);
    int behind = (int)random_below(random, 14);
    bool sparse = random_below(random, 2) == 0;

    if (random_below(random, 2) == 0) {
        *text++ = '-';
    }
    for (int i = 0; i < before + behind; i++) {
        if (i == before) {
            *text++ = '.';
        }
        *text++ = sparse && random_below(random, 4) != 0
                      ? '0'
                      : (char)('0' + random_below(random, 10));
    }
    if (random_below(random, 2) == 0) {
        text += sprintf(text, "e%d", (int)random_below(random, 60) - 30);
    }
    *text = '\0';
}


static void
parse__random_numbers__match_the_digit_array(void **state)
{
    struct meter_random random = {7};
    int ok = 0;

    (void)state;
    for (int round = 0; round < 200000; round++) {
        char text[80], expected[48];
        int digits[38];
        bool negative;
        struct meter_decimal value;
        enum meter_decimal_error error;

        random_number(&random, text);
        error = meter_decimal_parse(str_of(text), &value);
        if (error != reference(text, digits, &negative)) {
            fail_msg("%s", text);
        }
        if (error == METER_DECIMAL_OK) {
            int first = 0, last = 37;
            char *at = expected;

            while (first < 28 && digits[first] == 0) {
                first++;
            }
            while (last > 28 && digits[last] == 0) {
                last--;
            }
            if (negative) {
                *at++ = '-';
            }
            for (int i = first; i <= last; i++) {
                if (i == 29) {
                    *at++ = '.';
                }
                *at++ = (char)('0' + digits[i]);
            }
            *at = '\0';
            assert_string_equal(formatted(value), expected);
            assert_true(decimal(expected).units == value.units);
            ok++;
        }
    }
    assert_true(ok > 20000);
}


static void
add__limits__refuses_the_39th_digit(void **state)
{
    const char *most = "99999999999999999999999999999.999999999";
    struct meter_decimal sum = {5};

    (void)state;
    assert_false(
        meter_decimal_add(decimal(most), decimal("0.000000001"), &sum));
    assert_true(sum.units == 5);
    assert_false(meter_decimal_add(decimal(most), decimal(most), &sum));
    assert_true(sum.units == 5);
    assert_true(
        meter_decimal_add(decimal(most), decimal("-0.000000001"), &sum));
    assert_string_equal(formatted(sum),
                        "99999999999999999999999999999.999999998");
    assert_true(meter_decimal_add(decimal("0.1"), decimal("0.2"), &sum));
    assert_string_equal(formatted(sum), "0.3");
    assert_true(meter_decimal_add(decimal("-5"), decimal("5"), &sum));
    assert_string_equal(formatted(sum), "0");
}


static void
multiply__limits__refuses_the_39th_digit(void **state)
{
    struct meter_decimal most =
        decimal("99999999999999999999999999999.999999999");
    struct meter_decimal product = {5};

    (void)state;
    assert_false(meter_decimal_multiply(most, 2, &product));
    assert_false(meter_decimal_multiply(most, -2, &product));
    assert_false(meter_decimal_multiply(most, INT64_MIN, &product));
    assert_false(meter_decimal_multiply(decimal("1e28"), 10, &product));
    assert_true(product.units == 5);
    assert_true(meter_decimal_multiply(decimal("1e28"), 9, &product));
    assert_string_equal(formatted(product), "90000000000000000000000000000");
    assert_true(meter_decimal_multiply(most, 1, &product));
    assert_true(product.units == most.units);
    assert_true(meter_decimal_multiply(most, -1, &product));
    assert_true(product.units == -most.units);
    assert_true(meter_decimal_multiply(most, 0, &product));
    assert_true(product.units == 0);
    assert_true(
        meter_decimal_multiply(decimal("-0.000000001"), INT64_MIN, &product));
    assert_string_equal(formatted(product), "9223372036.854775808");
    assert_true(meter_decimal_multiply(decimal("2.5"), -3, &product));
    assert_string_equal(formatted(product), "-7.5");
}


static void
from_int__extremes__are_exact(void **state)
{
    (void)state;
    assert_string_equal(formatted(meter_decimal_from_int(INT64_MIN)),
                        "-9223372036854775808");
    assert_string_equal(formatted(meter_decimal_from_int(INT64_MAX)),
                        "9223372036854775807");
    assert_string_equal(formatted(meter_decimal_from_int(0)), "0");
}


static void
compare__signs_and_fractions__orders(void **state)
{
    (void)state;
    assert_true(meter_decimal_compare(decimal("-1"), decimal("1")) < 0);
    assert_true(meter_decimal_compare(decimal("1.1"), decimal("1.09")) > 0);
    assert_int_equal(meter_decimal_compare(decimal("1.0"), decimal("1e0")), 0);
}


static void
format__any_128_bits__fits_the_buffer(void **state)
{
    struct meter_decimal least = {
        -(meter_int128)(((__extension__(unsigned __int128) 1 << 127) - 1)) - 1};
    char text[METER_DECIMAL_TEXT_SIZE + 1];

    (void)state;
    assert_int_equal(meter_decimal_format(least, text), 41);
    assert_string_equal(text, "-170141183460469231731687303715.884105728");
}


static const char *
canonical(const char *text)
{
    static char out[METER_NUMBER_TEXT_SIZE + 1];
    size_t size = 0;

    if (!meter_number_canonical(str_of(text), out, &size)) {
        return NULL;
    }
    assert_int_equal(size, strlen(out));
    return out;
}


static void
canonical__equal_numbers__equal_bytes(void **state)
{
    static const char *const cases[][2] = {
        {"0", "0"},
        {"-0", "0"},
        {"-0.000e99", "0"},
        {"0e99999999999999999999", "0"},
        {"1", "1"},
        {"1.0", "1"},
        {"1e0", "1"},
        {"10e-1", "1"},
        {"100e-2", "1"},
        {"-1.50", "-1.5"},
        {"0.001", "0.001"},
        {"1e-3", "0.001"},
        {"120", "120"},
        {"1.2e2", "120"},
        {"12.34", "12.34"},
        {"123456789012345678901234567890", "123456789012345678901234567890"},
        /* 40 bytes are plain, 41 are not. */
        {"1e39", "1000000000000000000000000000000000000000"},
        {"1e40", "1e+40"},
        {"10000000000000000000000000000000000000000", "1e+40"},
        {"-1e38", "-100000000000000000000000000000000000000"},
        {"-1e39", "-1e+39"},
        {"1.5e39", "1500000000000000000000000000000000000000"},
        {"1.5e40", "1.5e+40"},
        {"1e-38", "0.00000000000000000000000000000000000001"},
        {"1e-39", "1e-39"},
        {"-1e-37", "-0.0000000000000000000000000000000000001"},
        {"-1e-38", "-1e-38"},
        {"1.25e-37", "1.25e-37"},
        {"12e100", "1.2e+101"},
        {"12e-100", "1.2e-99"},
        {"1e5E", NULL},
        {"9.99e399", "9.99e+399"},
        {"1e399", "1e+399"}, /* 0.1 * 10^400 */
        {"1e400", NULL},
        {"0.1e400", "1e+399"},
        {"1e-401", "1e-401"}, /* 0.1 * 10^-400 */
        {"1e-402", NULL},
        {"1e999999999999999999999", NULL},
        {"1e-999999999999999999999", NULL},
        /* 64 significant digits, 65 */
        {"1234567890123456789012345678901234567890123456789012345678901234",
         "1.234567890123456789012345678901234567890123456789012345678901234"
         "e+63"},
        {"12345678901234567890123456789012345678901234567890123456789012345",
         NULL},
        {"-1.234567890123456789012345678901234567890123456789012345678901234"
         "e-400",
         "-1.234567890123456789012345678901234567890123456789012345678901234"
         "e-400"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *text = canonical(cases[i][0]);

        if (cases[i][1] == NULL) {
            assert_null(text);
        } else {
            assert_non_null(text);
            assert_string_equal(text, cases[i][1]);
            assert_string_equal(canonical(cases[i][1]), cases[i][1]);
        }
    }
}


static void
canonical__no_json_number__is_refused(void **state)
{
    static const char *const cases[] = {
        "",      "-",   "+1",   "01",    "-01",   "00",  "1.",  ".5",
        "1e",    "1e+", "1.e5", " 1",    "1 ",    "0x1", "NaN", "1.2.3",
        "1e5.5", "--1", "true", "\"1\"", "1e5e5", "-",   "e5",  "1,5",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (canonical(cases[i]) != NULL) {
            fail_msg("accepted: %s", cases[i]);
        }
    }
}


/* The same value written with a moved point and zeros around. */
static void
canonical__respelled__is_the_same(void **state)
{
    struct meter_random random = {8};

    (void)state;
    for (int round = 0; round < 100000; round++) {
        int count = 1 + (int)random_below(&random, 64);
        int exponent = (int)random_below(&random, 640) - 320;
        int point = (int)random_below(&random, (uint64_t)count + 1);
        int zeros = (int)random_below(&random, 5);
        char digits[65], plain[160], moved[160];
        char first[METER_NUMBER_TEXT_SIZE + 1];
        const char *text;

        digits[0] = (char)('1' + random_below(&random, 9));
        for (int i = 1; i < count; i++) {
            digits[i] = (char)('0' + random_below(&random, 10));
        }
        digits[count] = '\0';
        sprintf(plain, "-%se%d", digits, exponent);
        sprintf(moved, "-%.*s%s.%s%.*sE%+d", point, digits,
                point == 0 ? "0" : "", digits + point, zeros, "00000",
                exponent + count - point);
        if (point == count) {
            sprintf(moved, "-%s.0%.*sE%+d", digits, zeros, "00000", exponent);
        }
        text = canonical(plain);
        assert_non_null(text);
        strcpy(first, text);
        text = canonical(moved);
        if (text == NULL || strcmp(first, text) != 0) {
            fail_msg("%s and %s", plain, moved);
        }
        assert_string_equal(canonical(first), first);
        /* Another last digit is another number. */
        digits[count - 1] =
            (char)(digits[count - 1] == '9' ? '1' : digits[count - 1] + 1);
        sprintf(plain, "-%se%d", digits, exponent);
        assert_string_not_equal(canonical(plain), first);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parse__spellings__give_the_shortest_text),
    cmocka_unit_test(parse__bounds__name_what_is_wrong),
    cmocka_unit_test(error_text__every_error__is_a_sentence),
    cmocka_unit_test(parse__sixty_four_thousand_digits__are_decided_by_value),
    cmocka_unit_test(parse__random_numbers__match_the_digit_array),
    cmocka_unit_test(add__limits__refuses_the_39th_digit),
    cmocka_unit_test(multiply__limits__refuses_the_39th_digit),
    cmocka_unit_test(from_int__extremes__are_exact),
    cmocka_unit_test(compare__signs_and_fractions__orders),
    cmocka_unit_test(format__any_128_bits__fits_the_buffer),
    cmocka_unit_test(canonical__equal_numbers__equal_bytes),
    cmocka_unit_test(canonical__no_json_number__is_refused),
    cmocka_unit_test(canonical__respelled__is_the_same),
};

RUN_TAP(tests)
