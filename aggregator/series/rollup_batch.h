/*
 * rollup_batch.h - the buckets of one rollup transaction. Pure.
 *
 *   marks as taken -> [add] -> [settle] -> buckets, once each, in key order
 *                                       -> marks of the level above
 *
 * For rollup.c and for meterd rebuild, which drains marks the same way. A
 * bucket below the floor of its children is left out: some of what it was
 * computed from is gone, and it must keep what it has.
 */

#ifndef SERIES_ROLLUP_BATCH_H
#define SERIES_ROLLUP_BATCH_H

#include "base/arena.h"
#include "base/memory.h"
#include "meter_level.h"
#include "pg/param.h"

struct rollup_mark {
    struct meter_str tenant;
    struct meter_str series;
    int64_t version;
    struct meter_str dimension_key;
    int64_t bucket_us;
    int64_t marked_us; /* the oldest of all its marks */
};

struct rollup_marks {
    struct rollup_mark *items;
    size_t count;
    size_t room;
};

struct rollup_batch {
    struct arena arena;
    enum meter_level level;
    struct rollup_marks buckets; /* of the level */
    struct rollup_marks above;   /* marks of the next level; none above 7d */
};

void rollup_batch_init(struct rollup_batch *batch);
void rollup_batch_fini(struct rollup_batch *batch);
/* Empty, for marks of this level. */
void rollup_batch_reset(struct rollup_batch *batch, enum meter_level level);

/* Copies the mark. False: there is no room for it. */
MUST_CHECK bool
rollup_batch_add(struct rollup_batch *batch, const struct rollup_mark *mark);
/*
 * After the last add: buckets and above, each key once, by (tenant, series,
 * version, dimension_key, bucket). Buckets that begin before the floor are
 * left out.
 */
void rollup_batch_settle(struct rollup_batch *batch, int64_t child_floor_us);

/* Of the buckets: start of the first and end of the last in time. */
void rollup_batch_range(const struct rollup_batch *batch, int64_t *first_us,
                        int64_t *end_us);

/* Arrays of tenant, series, version, dimension_key and bucket. */
void
rollup_marks_put(const struct rollup_marks *marks, struct pg_params *params);
/* Arrays of where the buckets end, and of marked_at. */
void rollup_batch_put_ends(const struct rollup_batch *batch,
                           struct pg_params *params);
void rollup_marks_put_marked(const struct rollup_marks *marks,
                             struct pg_params *params);
/*
 * From this mark on those of the same series: tenant, series, version, and
 * an array of dimension_key. Gives back where the next series begins.
 */
size_t rollup_marks_put_series(const struct rollup_marks *marks, size_t from,
                               struct pg_params *params);

#endif
