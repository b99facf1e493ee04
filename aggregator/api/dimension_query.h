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
 * With all dimensions given, the keys of all combinations are looked up
 * together; with some, keys are searched that fit any of them. Two that
 * exist are an ambiguity the caller has to answer.
 */

#ifndef API_DIMENSION_QUERY_H
#define API_DIMENSION_QUERY_H

#include "api/url.h"
#include "config/catalog.h"
#include "meter_dims.h"
#include "pg/param.h"

#define DIMENSION_READINGS_MAX 2  /* of one value */
#define DIMENSION_KEYS_MAX     64 /* combinations of one question */

/* A dimension that is given, and the ways to read its value. */
struct dimension_filter {
    struct meter_str name;
    struct meter_dim readings[DIMENSION_READINGS_MAX];
    size_t reading_count; /* at least 1 */
};

/* Those that are given, sorted by name, bytewise. */
struct dimension_query {
    struct dimension_filter filters[METER_DIMENSION_COUNT_MAX];
    size_t count;
    bool is_key; /* all of them: at most one key is meant */
};

struct dimension_keys {
    uint8_t items[DIMENSION_KEYS_MAX][METER_DIGEST_SIZE];
    size_t count; /* at least 1 */
};

/*
 * The ways in which the text of a value may be read. NULL, or a sentence for
 * a 400.
 */
const char *
dimension_filter_read(struct meter_str name, struct meter_str value,
                      struct arena *arena, struct dimension_filter *out);
/* Adds the dimension at a place of paths to those that are given. Likewise. */
const char *
dimension_query_add(struct dimension_query *query,
                    const struct attribute_path *paths, size_t count,
                    size_t place, struct meter_str value, struct arena *arena);

/* The keys that a query with is_key may mean. False: likewise. */
MUST_CHECK bool
dimension_query_keys(const struct dimension_query *query,
                     struct dimension_keys *out, const char **error);

/* The keys as an array parameter. */
void dimension_keys_param(struct pg_params *params,
                          const struct dimension_keys *keys);

/*
 * {"a":"x","b":5}: the given dimensions, each as its picked reading ('0' or
 * '1'; empty: the first). False: no memory, or picked is not of this query.
 */
MUST_CHECK bool
dimension_query_json(const struct dimension_query *query,
                     struct meter_str picked, struct arena *arena,
                     struct meter_str *out);

#endif
