/*
 * series.h - what an event adds to which series. Pure.
 *
 *   event -> [series_project] -> changes -> (after the commit) series/buffer
 *
 * Series are folded after the commit; inside the transaction only the
 * entities of state series are decided, in the order of commits, and the
 * ledger row keeps what each was before: {"series:<name>":"<state>"|null}.
 */

#ifndef PROJECT_SERIES_H
#define PROJECT_SERIES_H

#include "base/decimal_sum.h"
#include "project/attribute.h"
#include "project/projection.h"

/* Samples of one event; tallies of 10^6 such stay within 64 bits. */
#define SERIES_COUNT_MAX INT64_C(1000000000000)

/* Canonical JSON of an entity, of a state. */
#define SERIES_ENTITY_SIZE_MAX 2000
#define SERIES_STATE_SIZE_MAX  256

/* Owners of entity_state: no counter has a colon in its name. */
#define SERIES_OWNER_PREFIX "series:"
#define SERIES_OWNER_SIZE_MAX \
    (sizeof(SERIES_OWNER_PREFIX) + CATALOG_NAME_SIZE_MAX)

/* Behind the last bound of a histogram. */
#define SERIES_LABEL_INF "inf"

/* The data of a state before when nobody knows it; see series_from_read. */
extern const char series_from_unknown[];

struct series_change {
    const struct series *series;
    struct dimension_set set;
    int64_t count;              /* samples: the event's count */
    struct decimal_sum total;   /* what goes into sum */
    struct meter_decimal value; /* of one sample: gauges, histograms */
    struct meter_str label;     /* histogram: the bound, "inf"; else empty */
    struct meter_str entity;    /* state: canonical JSON; else data NULL */
    struct meter_str state;     /* state: what it becomes, canonical JSON */
};

struct series_effect {
    const struct series_change *changes; /* in the order of the file */
    size_t count;
    size_t state_count; /* how many have an entity */
};

/*
 * As projection.project; *effect is a struct series_effect. The value
 * missing, or entity or state: that series passes over the event. Rejected:
 * a dimension that is an object or array, a value that is no decimal, a count
 * beyond SERIES_COUNT_MAX, an entity or state that is no scalar or too long.
 */
MUST_CHECK bool
series_project(const struct event_type *type, const struct meter_event *event,
               const struct json_value *attributes, struct arena *arena,
               const void **effect, bool *is_careful, const char **error);

/* series:<name>, in out. */
struct meter_str
series_owner(const struct series *series, char out[SERIES_OWNER_SIZE_MAX]);

/*
 * The states before an event, from its ledger row: one for each change with
 * an entity, in their order; data NULL: none before; data series_from_unknown:
 * the series was not there yet when the event was recorded, it passes over
 * the event. False: no memory, or from_state is not what ingest writes.
 */
MUST_CHECK bool
series_from_read(const struct series_effect *effect,
                 struct meter_str from_state, struct arena *arena,
                 const struct meter_str **from);

#endif
