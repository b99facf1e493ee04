/*
 * billing.h - billing meters: what an event adds to a period. Pure.
 *
 *   event -> [project] -> changes, one per meter
 *   changes -> [sums] -> value, total, amount of an adjustment
 *
 * Sums of a period do not depend on the order of events: sum, count, min and
 * max commute, last is the greatest by (ts, recorded_at, writer,
 * writer_seq). An event is on time while the watermark is at most its ts
 * plus the lateness; the watermark is the greatest min(ts, clock) of folded
 * events, clock being the database's when they were recorded.
 */

#ifndef PROJECT_BILLING_H
#define PROJECT_BILLING_H

#include "project/attribute.h"
#include "project/period.h"
#include "project/projection.h"

/* Canonical JSON of a value that `unique` counts. */
#define BILLING_UNIQUE_SIZE_MAX 2000

/* Which of two events is the later one; recorded_us is of the order. */
struct billing_mark {
    int64_t ts_us;
    int64_t recorded_us;
    uint8_t writer[16];
    int64_t writer_seq;
};

/* <0, 0, >0, as memcmp. */
int billing_mark_compare(const struct billing_mark *a,
                         const struct billing_mark *b);

/* What one event gives to a meter. */
struct billing_reading {
    struct meter_decimal value; /* for min, max, last */
    struct meter_decimal sum;   /* quantity, or value times count */
    int64_t count;              /* the event's */
    struct meter_str unique;    /* canonical JSON; empty: not `unique` */
};

/* What one event does to one meter row. */
struct billing_change {
    const struct billing_meter *meter;
    struct meter_str customer; /* "" when the event has none */
    struct dimension_set group;
    int64_t period_us;
    int64_t period_end_us;
    struct billing_reading reading;
};

struct billing_effect {
    const struct billing_change *changes; /* by meter, in their order */
    size_t count;
};

/* Accumulated readings. */
struct billing_sums {
    struct meter_decimal sum;
    int64_t count;
    bool has_value; /* min, max, last are set */
    struct meter_decimal min;
    struct meter_decimal max;
    struct meter_decimal last;
    struct billing_mark last_mark;
    int64_t uniques; /* kept by whoever knows the set of values */
};

void billing_sums_init(struct billing_sums *sums);
/* False: past 38 digits or 64 bits; sums unchanged. uniques is not touched. */
MUST_CHECK bool billing_sums_add(struct billing_sums *sums,
                                 const struct billing_reading *reading,
                                 const struct billing_mark *mark);
/* Both together, uniques added up. False: likewise. */
MUST_CHECK bool
billing_sums_merge(struct billing_sums *into, const struct billing_sums *from);

/*
 * The figure: of an avg, sum / count rounded half-even to 9 decimals. False:
 * there is none (min, max, avg, last of nothing); *out is then 0.
 */
bool billing_value(enum billing_aggregation aggregation,
                   const struct billing_sums *sums, struct meter_decimal *out);

/* Folded and adjusted events together; then the manual amounts on top. */
struct billing_total {
    const struct billing_sums *folded;
    const struct billing_sums *late; /* uniques: values not among folded */
    struct meter_decimal manual;
};
/* False: past 38 digits. *has_value: as billing_value, or manual is not 0. */
MUST_CHECK bool billing_total(enum billing_aggregation aggregation,
                              const struct billing_total *total,
                              struct meter_decimal *out, bool *has_value);

/* True: on time for a row with this watermark (INT64_MIN: none yet). */
bool billing_is_on_time(const struct billing_meter *meter, int64_t ts_us,
                        int64_t watermark_us);

/* An event was folded: the watermark never passes the database's clock. */
static inline void
billing_watermark_move(int64_t *watermark_us, int64_t ts_us, int64_t clock_us)
{
    int64_t seen_us = ts_us < clock_us ? ts_us : clock_us;

    if (seen_us > *watermark_us) {
        *watermark_us = seen_us;
    }
}

/* As projection.project; *effect is a struct billing_effect. */
MUST_CHECK bool
billing_project(const struct event_type *type, const struct meter_event *event,
                const struct json_value *attributes, struct arena *arena,
                const void **effect, bool *is_careful, const char **error);

#endif
