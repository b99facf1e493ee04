/*
 * quantile.c - see quantile.h.
 */

#include "query/quantile.h"

#define UNITS_PER_ONE INT64_C(1000000000) /* of a meter_decimal */

/*
 * length * part / whole, half-even, though the product may need more than
 * 128 bits: part is taken in bit by bit. 0 <= part <= whole <= 2^94 and
 * length >= 0.
 */
static meter_int128
proportion(meter_int128 length, meter_int128 part, meter_int128 whole)
{
    meter_int128 rest = length % whole;
    meter_int128 quotient = 0;
    meter_int128 remainder = 0;

    for (int bit = 94; bit >= 0; bit--) {
        quotient *= 2;
        remainder *= 2;
        if ((part >> bit) & 1) {
            remainder += rest;
        }
        while (remainder >= whole) {
            remainder -= whole;
            quotient++;
        }
    }
    quotient += length / whole * part;
    if (2 * remainder > whole ||
        (2 * remainder == whole && (quotient & 1) != 0)) {
        quotient++;
    }
    return quotient;
}

/* Inside tally i, so far from its start as part is of whole. */
static struct meter_decimal
place_in(const struct meter_decimal *bounds, size_t i, meter_int128 part,
         meter_int128 whole)
{
    struct meter_decimal low = {0};
    struct meter_decimal length;

    if (i > 0) {
        low = bounds[i - 1];
    } else if (bounds[0].units <= 0) {
        return bounds[0];
    }
    if (!meter_decimal_subtract(bounds[i], low, &length)) {
        return bounds[i];
    }
    return (struct meter_decimal){low.units +
                                  proportion(length.units, part, whole)};
}

bool
quantile_of(const struct meter_decimal *bounds, size_t count,
            const int64_t *tallies, struct meter_decimal q,
            struct meter_decimal *out)
{
    meter_int128 total = 0;
    meter_int128 before = 0;
    meter_int128 rank;

    CHECK(count > 0 && q.units >= 0 && q.units <= UNITS_PER_ONE);
    for (size_t i = 0; i <= count; i++) {
        CHECK(tallies[i] >= 0);
        total += tallies[i];
    }
    if (total == 0) {
        return false;
    }
    rank = q.units * total; /* in UNITS_PER_ONE, as all below */
    for (size_t i = 0; i < count; i++) {
        meter_int128 held = (meter_int128)tallies[i] * UNITS_PER_ONE;

        if (held > 0 && before + held >= rank) {
            *out = place_in(bounds, i, rank - before, held);
            return true;
        }
        before += held;
    }
    *out = bounds[count - 1];
    return true;
}
