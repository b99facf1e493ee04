/*
 * decimal_sum.h - sums of decimals that may pass 38 digits. Pure.
 *
 *   decimals -> [times, add] -> sum -> [mean, format], or store/pg_param
 *
 * A series folds a sample after its event was committed, when nothing can be
 * refused any more. So its sums hold whatever samples can add up to: 2^63 of
 * them with 38 digits each make 57 digits, and those take 190 bits.
 */

#ifndef BASE_DECIMAL_SUM_H
#define BASE_DECIMAL_SUM_H

#include "base/check.h"
#include "meter_decimal.h"

/* Units of struct meter_decimal in two's complement, lowest limb first. */
struct decimal_sum {
    uint64_t limbs[3];
};

__extension__ typedef unsigned __int128 decimal_sum_pair;

#define DECIMAL_SUM_DIGITS 57
/* With sign and point; 191 bits may hold one digit more. */
#define DECIMAL_SUM_TEXT_SIZE (DECIMAL_SUM_DIGITS + 3)

struct decimal_sum decimal_sum_of(struct meter_decimal value);
/* count is not negative. */
struct decimal_sum decimal_sum_times(struct meter_decimal value, int64_t count);

static inline void
decimal_sum_add(struct decimal_sum *sum, struct decimal_sum other)
{
    decimal_sum_pair carry = 0;

    for (int i = 0; i < 3; i++) {
        carry += (decimal_sum_pair)sum->limbs[i] + other.limbs[i];
        sum->limbs[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

static inline bool
decimal_sum_equal(struct decimal_sum a, struct decimal_sum b)
{
    return memcmp(a.limbs, b.limbs, sizeof(a.limbs)) == 0;
}

/* False: it has more than 38 digits; *out is as it was. */
MUST_CHECK bool
decimal_sum_decimal(struct decimal_sum sum, struct meter_decimal *out);
/*
 * The mean of so many samples, at least 1, rounded half-even to the last
 * decimal. False: it has more than 38 digits, so none of theirs is right.
 */
MUST_CHECK bool decimal_sum_mean(struct decimal_sum sum, int64_t count,
                                 struct meter_decimal *out);
/* As meter_decimal_format. */
size_t
decimal_sum_format(struct decimal_sum sum, char out[DECIMAL_SUM_TEXT_SIZE + 1]);


/* ---- for those who write or read the digits of a magnitude ------------ */

struct decimal_sum
decimal_sum_magnitude(struct decimal_sum sum, bool *is_negative);

static inline struct decimal_sum
decimal_sum_negate(struct decimal_sum sum)
{
    struct decimal_sum negated = {
        {~sum.limbs[0], ~sum.limbs[1], ~sum.limbs[2]}};

    decimal_sum_add(&negated, (struct decimal_sum){{1, 0, 0}});
    return negated;
}

static inline bool
decimal_sum_is_zero(struct decimal_sum magnitude)
{
    return (magnitude.limbs[0] | magnitude.limbs[1] | magnitude.limbs[2]) == 0;
}

/* Divides by it; the remainder. */
uint64_t decimal_sum_cut(struct decimal_sum *magnitude, uint64_t divisor);
/* Becomes magnitude * factor + digits. False: past 191 bits, it is lost. */
MUST_CHECK bool decimal_sum_append(struct decimal_sum *magnitude,
                                   uint64_t factor, uint64_t digits);

#endif
