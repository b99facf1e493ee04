/*
 * test_decimal_sum.c - sums past 38 digits, against a model that adds and
 * divides decimal digits as on paper.
 */

#include "meter_cmocka.h"

#include "base/decimal_sum.h"
#include "meter_random.h"
#include "pg/param.h"

#define DIGITS 64

static const char largest[] = "99999999999999999999999999999.999999999";

/* Decimal digits of a number of units, the lowest first. */
struct paper {
    bool is_negative;
    uint8_t digits[DIGITS];
};

static struct meter_decimal
decimal(const char *text)
{
    struct meter_decimal value;

    assert_int_equal(meter_decimal_parse(str_of(text), &value),
                     METER_DECIMAL_OK);
    return value;
}

static int
paper_compare(const struct paper *a, const struct paper *b)
{
    for (int i = DIGITS - 1; i >= 0; i--) {
        if (a->digits[i] != b->digits[i]) {
            return a->digits[i] < b->digits[i] ? -1 : 1;
        }
    }
    return 0;
}

static void
paper_add(struct paper *sum, const struct paper *other)
{
    struct paper large = *sum;
    struct paper small = *other;
    int carry = 0;

    if (paper_compare(&large, &small) < 0) {
        large = *other;
        small = *sum;
    }
    for (int i = 0; i < DIGITS; i++) {
        int sign = large.is_negative == small.is_negative ? 1 : -1;
        int digit = large.digits[i] + sign * small.digits[i] + carry;

        carry = digit > 9 ? 1 : digit < 0 ? -1 : 0;
        large.digits[i] = (uint8_t)(digit - 10 * carry);
    }
    assert_int_equal(carry, 0);
    *sum = large;
}

/* By a count of few digits: as many additions of each power of ten. */
static void
paper_times(struct paper *number, int64_t count)
{
    struct paper product = {.is_negative = number->is_negative};
    struct paper shifted = *number;

    for (; count > 0; count /= 10) {
        for (int64_t i = 0; i < count % 10; i++) {
            paper_add(&product, &shifted);
        }
        memmove(shifted.digits + 1, shifted.digits, DIGITS - 1);
        shifted.digits[0] = 0;
    }
    *number = product;
}

static void
paper_text(const struct paper *number, char *out)
{
    int first = DIGITS - 1;
    int last = 0;
    bool is_zero = false;

    while (first > 9 && number->digits[first] == 0) {
        first--;
    }
    while (last < 9 && number->digits[last] == 0) {
        last++;
    }
    is_zero = first == 9 && last == 9 && number->digits[9] == 0;
    if (number->is_negative && !is_zero) {
        *out++ = '-';
    }
    for (int i = first; i >= last; i--) {
        if (i == 8) {
            *out++ = '.';
        }
        *out++ = (char)('0' + number->digits[i]);
    }
    *out = '\0';
}

/* Of 1 to 38 digits; many of the longest. */
static struct meter_decimal
random_decimal(struct meter_random *random, struct paper *paper)
{
    int count =
        random_below(random, 2) == 0 ? 38 : 1 + (int)random_below(random, 38);
    struct meter_decimal value = {0};

    *paper = (struct paper){.is_negative = random_below(random, 3) == 0};
    for (int i = count - 1; i >= 0; i--) {
        paper->digits[i] = random_below(random, 4) == 0
                               ? 9
                               : (uint8_t)random_below(random, 10);
        value.units = value.units * 10 + paper->digits[i];
    }
    if (paper->is_negative) {
        value.units = -value.units;
    }
    return value;
}

static void
assert_sum(struct decimal_sum sum, const char *want)
{
    char text[DECIMAL_SUM_TEXT_SIZE + 1];

    assert_int_equal(decimal_sum_format(sum, text), strlen(want));
    assert_string_equal(text, want);
}

/* What the server would be sent, and what it would send back. */
static void
assert_comes_back(struct decimal_sum sum)
{
    struct decimal_sum back = {{7, 7, 7}};
    struct buf out;

    buf_init(&out, 1024);
    pg_put_sum(&out, sum);
    assert_true(
        pg_sum_of((struct meter_str){out.data + 4, out.size - 4}, &back));
    assert_true(decimal_sum_equal(sum, back));
    buf_fini(&out);
}

static void
random_sums__any_digits__are_those_on_paper(void **state)
{
    struct meter_random random = {38};

    (void)state;
    for (int round = 0; round < 300; round++) {
        struct decimal_sum sum = {{0}};
        struct paper paper = {0};
        char text[DIGITS + 3];

        for (int i = 0; i < 60; i++) {
            static const int64_t counts[] = {
                1, 1, 2, 7, 1000000000000, INT64_C(99999999999999999)};
            int64_t count = counts[random_below(&random, 6)];
            struct paper term;
            struct meter_decimal value = random_decimal(&random, &term);

            decimal_sum_add(&sum, count == 1 ? decimal_sum_of(value)
                                             : decimal_sum_times(value, count));
            paper_times(&term, count);
            paper_add(&paper, &term);
            paper_text(&paper, text);
            assert_sum(sum, text);
            assert_comes_back(sum);
        }
    }
}

/* count * mean is as near to the sum as half of count; ties are even. */
static void
random_means__any_digits__are_the_nearest(void **state)
{
    struct meter_random random = {63};

    (void)state;
    for (int round = 0; round < 20000; round++) {
        int64_t count =
            1 + (int64_t)random_below(&random, round % 2 == 0 ? 10 : INT64_MAX);
        struct paper paper;
        struct meter_decimal value = random_decimal(&random, &paper);
        int64_t more = (int64_t)random_below(&random, (uint64_t)count + 1);
        struct decimal_sum sum = decimal_sum_times(value, count);
        struct meter_decimal want = value;
        struct meter_decimal mean = {7};

        decimal_sum_add(&sum, decimal_sum_of((struct meter_decimal){more}));
        if (more > count - more || (more == count - more && value.units % 2)) {
            want.units++;
        }
        if (decimal_sum_decimal(decimal_sum_of(want), &want)) {
            assert_true(decimal_sum_mean(sum, count, &mean));
            assert_int_equal(meter_decimal_compare(mean, want), 0);
        }
    }
}

static void
edges__of_38_and_57_digits__are_kept_apart(void **state)
{
    struct decimal_sum sum = decimal_sum_of(decimal(largest));
    struct meter_decimal value = {7};
    struct decimal_sum most;

    (void)state;
    assert_true(decimal_sum_decimal(sum, &value));
    assert_int_equal(meter_decimal_compare(value, decimal(largest)), 0);
    decimal_sum_add(&sum, decimal_sum_of((struct meter_decimal){1}));
    assert_false(decimal_sum_decimal(sum, &value));
    assert_sum(sum, "100000000000000000000000000000");
    assert_false(decimal_sum_decimal(decimal_sum_negate(sum), &value));
    assert_sum(decimal_sum_negate(sum), "-100000000000000000000000000000");
    assert_false(decimal_sum_mean(sum, 1, &value));
    assert_true(decimal_sum_mean(sum, 2, &value));
    assert_int_equal(meter_decimal_compare(value, decimal("5e28")), 0);

    most = decimal_sum_times(decimal(largest), INT64_MAX);
    assert_sum(most,
               "922337203685477580699999999999999999990776627963.145224193");
    assert_sum(decimal_sum_negate(most),
               "-922337203685477580699999999999999999990776627963.145224193");
    assert_comes_back(most);
    assert_comes_back(decimal_sum_negate(most));
    assert_true(decimal_sum_mean(most, INT64_MAX, &value));
    assert_int_equal(meter_decimal_compare(value, decimal(largest)), 0);
    assert_false(decimal_sum_append(&most, 10, 0));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sums__any_digits__are_those_on_paper),
        cmocka_unit_test(random_means__any_digits__are_the_nearest),
        cmocka_unit_test(edges__of_38_and_57_digits__are_kept_apart),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
