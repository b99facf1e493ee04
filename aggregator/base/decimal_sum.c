/*
 * decimal_sum.c - sums of decimals that may pass 38 digits.
 *
 *   decimals -> [times, add] -> sum -> [mean, format]
 *
 * Sums of 38 digits are the usual ones, and take the ways of decimals.
 */

#include "base/decimal_sum.h"

#include "meter_limits.h"

#define UNITS_OF_ONE UINT64_C(1000000000)
#define TEN_TO_19    UINT64_C(10000000000000000000)
#define DECIMAL_END  ((decimal_sum_pair)TEN_TO_19 * TEN_TO_19) /* 10^38 */

_Static_assert(METER_DECIMAL_FRACTION == 9, "UNITS_OF_ONE is 10^9");
_Static_assert(METER_DECIMAL_DIGITS == 38, "DECIMAL_END is 10^38");

struct decimal_sum
decimal_sum_of(struct meter_decimal value)
{
    decimal_sum_pair units = (decimal_sum_pair)value.units;

    return (struct decimal_sum){{(uint64_t)units, (uint64_t)(units >> 64),
                                 value.units < 0 ? UINT64_MAX : 0}};
}

struct decimal_sum
decimal_sum_times(struct meter_decimal value, int64_t count)
{
    bool is_negative;
    struct decimal_sum product =
        decimal_sum_magnitude(decimal_sum_of(value), &is_negative);

    /* 38 digits are 127 bits and a count is 63. */
    CHECK(count >= 0 && decimal_sum_append(&product, (uint64_t)count, 0));
    return is_negative ? decimal_sum_negate(product) : product;
}

struct decimal_sum
decimal_sum_magnitude(struct decimal_sum sum, bool *is_negative)
{
    *is_negative = sum.limbs[2] >> 63 != 0;
    return *is_negative ? decimal_sum_negate(sum) : sum;
}

/* Limbs that are 0 are not divided: those of most numbers. */
uint64_t
decimal_sum_cut(struct decimal_sum *magnitude, uint64_t divisor)
{
    uint64_t rest = 0;

    for (int i = 2; i >= 0; i--) {
        uint64_t limb = magnitude->limbs[i];

        if (rest == 0) {
            magnitude->limbs[i] = limb / divisor;
            rest = limb % divisor;
        } else {
            decimal_sum_pair pair = (decimal_sum_pair)rest << 64 | limb;

            magnitude->limbs[i] = (uint64_t)(pair / divisor);
            rest = (uint64_t)(pair % divisor);
        }
    }
    return rest;
}

bool
decimal_sum_append(struct decimal_sum *magnitude, uint64_t factor,
                   uint64_t digits)
{
    decimal_sum_pair carry = digits;

    for (int i = 0; i < 3; i++) {
        carry += (decimal_sum_pair)magnitude->limbs[i] * factor;
        magnitude->limbs[i] = (uint64_t)carry;
        carry >>= 64;
    }
    return carry == 0 && magnitude->limbs[2] >> 63 == 0;
}

bool
decimal_sum_decimal(struct decimal_sum sum, struct meter_decimal *out)
{
    bool is_negative;
    struct decimal_sum magnitude = decimal_sum_magnitude(sum, &is_negative);
    decimal_sum_pair units =
        (decimal_sum_pair)magnitude.limbs[1] << 64 | magnitude.limbs[0];

    if (magnitude.limbs[2] != 0 || units >= DECIMAL_END) {
        return false;
    }
    out->units = is_negative ? -(meter_int128)units : (meter_int128)units;
    return true;
}

bool
decimal_sum_mean(struct decimal_sum sum, int64_t count,
                 struct meter_decimal *out)
{
    bool is_negative;
    struct decimal_sum mean = decimal_sum_magnitude(sum, &is_negative);
    uint64_t parts = (uint64_t)count;
    uint64_t rest;

    CHECK(count > 0);
    rest = decimal_sum_cut(&mean, parts);
    if (rest > parts - rest ||
        (rest == parts - rest && (mean.limbs[0] & 1) != 0)) {
        decimal_sum_add(&mean, (struct decimal_sum){{1, 0, 0}});
    }
    return decimal_sum_decimal(is_negative ? decimal_sum_negate(mean) : mean,
                               out);
}

size_t
decimal_sum_format(struct decimal_sum sum, char out[DECIMAL_SUM_TEXT_SIZE + 1])
{
    char digits[DECIMAL_SUM_TEXT_SIZE];
    char *at = digits + sizeof(digits);
    struct meter_decimal value;
    struct decimal_sum whole;
    uint64_t fraction;
    bool is_negative;
    size_t size;

    if (decimal_sum_decimal(sum, &value)) {
        return meter_decimal_format(value, out);
    }
    whole = decimal_sum_magnitude(sum, &is_negative);
    fraction = decimal_sum_cut(&whole, UNITS_OF_ONE);
    if (fraction > 0) {
        int places = METER_DECIMAL_FRACTION;

        for (; fraction % 10 == 0; fraction /= 10) {
            places--;
        }
        for (; places > 0; places--, fraction /= 10) {
            *--at = (char)('0' + fraction % 10);
        }
        *--at = '.';
    }
    while (!decimal_sum_is_zero(whole)) {
        CHECK(at > digits + 1);
        *--at = (char)('0' + decimal_sum_cut(&whole, 10));
    }
    if (is_negative) {
        *--at = '-';
    }
    size = (size_t)(digits + sizeof(digits) - at);
    memcpy(out, at, size);
    out[size] = '\0';
    return size;
}
