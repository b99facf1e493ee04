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

#endif
