/*
 * quantile.h - quantiles of a histogram's tallies, in exact decimals. Pure.
 *
 *   bounds    b0        b1        b2
 *   tallies   | c0      | c1      | c2     | c3 (above the last bound)
 *
 * The sample of rank q * count is looked for, and its place is taken to be
 * in proportion between the bounds around it. The lowest tally reaches from
 * 0 to its bound, or has the bound itself where that is not above 0; what
 * is above the last bound is given as the last bound.
 */

#ifndef QUERY_QUANTILE_H
#define QUERY_QUANTILE_H

#include "base/check.h"
#include "meter_decimal.h"

/*
 * bounds: count of them, ascending, at least 1; tallies: count + 1, none
 * negative. q: 0 to 1. False: there are no samples. Rounded half-even.
 */
MUST_CHECK bool quantile_of(const struct meter_decimal *bounds, size_t count,
                            const int64_t *tallies, struct meter_decimal q,
                            struct meter_decimal *out);

#endif
