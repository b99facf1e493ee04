/*
 * filter.h - which dimension sets a question is about. Pure.
 *
 *   {"route": "/a", "status": [200, 204]} -> [filters_read] -> filters
 *   filters -> [filters_json], [filters_keys] -> query_mark
 */

#ifndef QUERY_FILTER_H
#define QUERY_FILTER_H

#include "base/buf.h"
#include "base/json_reader.h"
#include "config/catalog.h"
#include "meter_digest.h"

#define FILTER_VALUES_MAX 1000 /* of one dimension */
#define FILTER_KEYS_MAX   1000 /* else they are looked for */

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

struct filter_keys {
    uint8_t (*items)[METER_DIGEST_SIZE];
    size_t count;
};

/* The place among the series' dimensions; dimension_count: it has none. */
size_t filter_dimension(const struct series *series, struct meter_str name);

/* Adds one where it belongs. A sentence for a 400, or NULL. */
const char *
filters_add(struct query_filters *filters, const struct series *series,
            const struct query_filter *filter, struct arena *arena);
/* All of an object: names with scalars or lists of them. Likewise. */
const char *
filters_read(struct query_filters *filters, const struct series *series,
             const struct json_value *object, struct arena *arena);

/* {"name":[values]}, as canonical JSON. False: no memory. */
MUST_CHECK bool filters_json(const struct query_filters *filters,
                             struct arena *arena, struct buf *out);

/*
 * Where every dimension has its filter: the keys of all combinations. False:
 * a dimension has none, there are too many, or no memory; keys have to be
 * looked for.
 */
MUST_CHECK bool
filters_keys(const struct query_filters *filters, const struct series *series,
             struct arena *arena, struct filter_keys *out);

#endif
