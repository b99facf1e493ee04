/*
 * usage_query.h - arguments of GET /v1/usage to what is asked for. Pure.
 *
 *   metric=api_calls&customer=c1&period=2026-09     one figure
 *   metric=api_calls&from=2026-01&to=2026-07        a list, [from, to)
 *   ...&route=/a                                    one group
 *   ...&groups=true                                 each group for itself
 *
 * A dimension of the meter is an argument of its name, or dimension.NAME
 * where the name is one of ours; values are read as those of counters (see
 * dimension_query.h), and either all of them are given or none.
 */

#ifndef API_USAGE_QUERY_H
#define API_USAGE_QUERY_H

#include "api/dimension_query.h"
#include "api/page.h"
#include "config/catalog.h"

#define USAGE_PERIODS_MAX 1000

/* Adjustments of one figure; of a long list fewer, so that it fits. */
#define USAGE_ADJUSTMENTS_MAX      100
#define USAGE_ADJUSTMENTS_LIST_MAX 10000

/* Where a list goes on: behind this row. */
struct usage_place {
    int64_t period_us;
    struct meter_str customer;
    uint8_t group_key[METER_DIGEST_SIZE];
};

struct usage_query {
    const struct billing_meter *meter;
    int64_t from_us; /* start of the first period */
    int64_t to_us;   /* end of the last one */
    bool has_customer;
    struct meter_str customer; /* "": events without one */
    bool is_grouped;           /* groups=true */
    bool has_group;            /* one group is asked for */
    struct dimension_query dimensions;
    struct dimension_keys keys;
    struct page page;
    bool has_after;
    struct usage_place after;
};

/*
 * out is filled in place; the catalog must outlive it. 0, or the status of
 * an answer with *error, a sentence in the arena or a literal.
 */
MUST_CHECK unsigned
usage_query_read(const struct catalog *catalog, struct meter_str tenant,
                 const struct url_arguments *arguments, struct arena *arena,
                 struct usage_query *out, const char **error);

/* One customer, one period and no list of groups: one object. */
bool usage_query_is_single(const struct usage_query *query);
/* Groups are shown, each for itself. */
bool usage_query_shows_groups(const struct usage_query *query);
/* How many adjustments each object shows. */
int usage_query_adjustments_max(const struct usage_query *query);

/* The key of a cursor and back; out gets PAGE_KEY_SIZE_MAX bytes. */
size_t usage_place_write(const struct usage_query *query,
                         const struct usage_place *place, char *out);
MUST_CHECK bool usage_place_read(const struct usage_query *query,
                                 struct meter_str key, struct usage_place *out);

/* The argument, or why there is none; shared with adjustments. */
MUST_CHECK const struct billing_meter *
usage_query_meter(const struct catalog *catalog,
                  const struct url_arguments *arguments, unsigned *status,
                  const char **error);
/* Starts of the period given as text; NULL, or a sentence for a 400. */
const char *usage_period_read(const struct billing_meter *meter,
                              const char *name, struct meter_str text,
                              struct arena *arena, int64_t *start_us);

#endif
