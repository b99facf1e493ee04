/*
 * quantile.c - see quantile.h.
 */

#include "query/quantile.h"

#define UNITS_PER_ONE INT64_C(1000000000) /* of a meter_decimal */

__extension__ typedef unsigned __int128 uint128;

/*
 * length * part / whole, half-even, though the product may need more than
 * 128 bits: part is taken in bit by bit. part <= whole <= 2^94.
 */
static uint128
proportion(uint128 length, uint128 part, uint128 whole)
{
    uint128 rest = length % whole;
    uint128 quotient = 0;
    uint128 remainder = 0;

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
    uint128 length; /* of 38 digits below 0 to 38 above: 128 bits */

    if (i > 0) {
        low = bounds[i - 1];
    } else if (bounds[0].units <= 0) {
        return bounds[0];
    }
    length = (uint128)bounds[i].units - (uint128)low.units;
    return (struct meter_decimal){
        (meter_int128)((uint128)low.units +
                       proportion(length, (uint128)part, (uint128)whole))};
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
