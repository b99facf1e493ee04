/*
 * query.h - a question about a series, read and checked. Pure.
 *
 *   arguments or body -> words -> [query_read] -> struct query
 *
 * Both ways of asking give words: JSON values by name; what comes from a
 * query string is text. Which windows and which level follow from it is for
 * question.h.
 */

#ifndef QUERY_QUERY_H
#define QUERY_QUERY_H

#include "base/arena.h"
#include "base/json_reader.h"
#include "config/catalog.h"
#include "meter_digest.h"
#include "meter_level.h"

/* Intervals are multiples of the finest level. */
#define QUERY_STEP_US         (5 * METER_TIME_SECOND)
#define QUERY_QUANTILES_MAX   16
#define QUERY_INTERVAL_MAX_US (36500 * METER_TIME_DAY)
#define QUERY_ZONE_SIZE_MAX   64
#define FILTER_VALUES_MAX     1000 /* of one dimension */

enum query_word {
    QUERY_METRIC,
    QUERY_FROM,
    QUERY_TO,
    QUERY_ROLLUP,
    QUERY_INTERVAL,
    QUERY_WHERE,    /* an object */
    QUERY_GROUP_BY, /* an array */
    QUERY_FORMAT,
    QUERY_PARTIAL,
    QUERY_PAD,
    QUERY_TZ,
    QUERY_QUANTILES, /* an array */
    QUERY_WORDS
};

/* "metric", "from", ...: by query_word. */
extern const char *const query_word_names[QUERY_WORDS];

struct query_filter {
    struct meter_str name;
    const struct json_value *values; /* scalars; any of them will do */
    size_t count;                    /* at least 1 */
    bool is_loose; /* several readings of one text: one of them is meant */
};

/* At most one of each dimension, in their order. */
struct query_filters {
    struct query_filter items[METER_DIMENSION_COUNT_MAX];
    size_t count;
};

struct query {
    const struct series *series;
    int64_t from_us;
    int64_t to_us; /* has_to */
    bool has_to;   /* else now */
    int64_t interval_us;
    struct meter_str zone; /* data NULL: UTC, and no time zone asked for */
    struct query_filters filters;
    /* Of each of the series' dimensions: it is shown. */
    bool is_grouped[METER_DIMENSION_COUNT_MAX];
    size_t grouped_count;
    bool is_series;  /* else rows */
    bool is_allowed; /* partial windows */
    bool is_dropped; /* empty windows; else null */
    struct meter_decimal quantiles[QUERY_QUANTILES_MAX];
    size_t quantile_count;
};

/*
 * A value of NULL is not given. 0, or the status of the answer with *error, in
 * the arena or a literal.
 */
MUST_CHECK unsigned
query_read(const struct catalog *catalog,
           const struct json_value *const values[QUERY_WORDS],
           struct arena *arena, struct query *out, const char **error);

/* Adds a filter where it belongs. NULL, or a sentence for a 400. */
const char *
query_filter_add(struct query *query, const struct query_filter *filter,
                 struct arena *arena);

/* The place of a name among paths; count: it is none of them. */
size_t dimension_place(const struct attribute_path *paths, size_t count,
                       struct meter_str name);

#endif
