/*
 * rollup.h - the levels above 5s, computed again from the one below.
 *
 *   flush -> series_5s, marks -> [rollup] -> 1m -> 1h -> 1d -> 7d
 *
 * A mark says that a bucket has to be computed again. A sweep goes through
 * the levels upwards and takes marks by the thousand; each batch is one
 * transaction: marks deleted, buckets locked, computed from all their
 * children, the level above marked. Several meterd sweep at once. What is
 * not committed is still marked, so nothing has to be remembered here.
 */

#ifndef SERIES_ROLLUP_H
#define SERIES_ROLLUP_H

#include "base/arena.h"
#include "meter_level.h"
#include "store/lane.h"
#include "store/partition.h"

struct rollup;

struct rollup_options {
    const char *url; /* database */
    struct lane *lane;
    struct partition *partition;
};

/* Connects on its own, as meter_writer. NULL: no memory. */
MUST_CHECK struct rollup *
rollup_create(uv_loop_t *loop, const struct rollup_options *options);
/* At any time; before the lane and the partitions go. */
void rollup_destroy(struct rollup *rollup);

/* There may be new marks: a flush has committed. */
void rollup_wake(struct rollup *rollup);

/* A sweep that began after the last wake is through, all levels of it. */
bool rollup_is_settled(const struct rollup *rollup);

/* Begins no batch any more; the one that runs may end. For the end. */
void rollup_stop(struct rollup *rollup);
/* Nothing runs. */
bool rollup_is_idle(const struct rollup *rollup);


/* ---- the buckets of one transaction; meterd rebuild has them, too -------- */

struct rollup_mark {
    struct meter_str tenant;
    struct meter_str series;
    int64_t version;
    struct meter_str dimension_key;
    int64_t bucket_us;
    int64_t marked_us; /* the oldest of all its marks */
};

struct rollup_marks {
    struct rollup_mark *list;
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

/* Copies the mark. False: no memory. */
MUST_CHECK bool
rollup_batch_add(struct rollup_batch *batch, const struct rollup_mark *mark);
/*
 * After the last add: buckets and above, each key once, by (tenant, series,
 * version, dimension_key, bucket). Buckets that begin before the floor are
 * left out. False: no memory.
 */
MUST_CHECK bool
rollup_batch_settle(struct rollup_batch *batch, int64_t child_floor_us);

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
