/*
 * dimension_query.h - query arguments to the keys they may mean. Pure.
 *
 * An argument's text has no type, an attribute has one. So a value is read
 * in every way it may have been sent:
 *
 *   "5"     (in quotes) the text 5, and nothing else
 *   5       the text or the number; 5.0 is the same number, another text
 *   true    the text or the boolean
 *   null    the text, or no value at all
 *   (empty) no value at all; the empty text is ""
 *
 * The keys of all combinations are looked up together; two that exist are
 * an ambiguity the caller has to answer.
 */

#ifndef API_DIMENSION_QUERY_H
#define API_DIMENSION_QUERY_H

#include "api/url.h"
#include "config/catalog.h"
#include "meter_dims.h"

#define DIMENSION_READINGS_MAX 64 /* combinations of one question */

struct dimension_query {
    uint8_t keys[DIMENSION_READINGS_MAX][METER_DIGEST_SIZE];
    size_t count; /* at least 1 */
};

/*
 * Every dimension of the counter must have its argument, and every
 * argument its dimension. False: *error is a sentence for a 400, in the
 * arena or a literal.
 */
MUST_CHECK bool
dimension_query_build(const struct counter *counter,
                      const struct url_arguments *arguments,
                      struct arena *arena, struct dimension_query *out,
                      const char **error);

#endif
