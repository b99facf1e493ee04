/*
 * bucket_sweep.h - deletes buckets that have expired.
 *
 *   every second: some pages of each partition -> [sweep] -> bucket_sweep
 *
 * Goes through the whole table, at most once a minute. Nothing depends on it:
 * a bucket that has expired is as if it were not there. It is kept for a
 * minute past its end, for transactions that began before.
 */

#ifndef BUCKETS_BUCKET_SWEEP_H
#define BUCKETS_BUCKET_SWEEP_H

#include "store/reader.h"

struct bucket_sweep;

/* writes: borrowed; destroyed after the sweep. NULL: no memory. */
MUST_CHECK struct bucket_sweep *
bucket_sweep_create(uv_loop_t *loop, struct reader *writes);
void bucket_sweep_destroy(struct bucket_sweep *sweep);
/* Once. */
void bucket_sweep_start(struct bucket_sweep *sweep);

#endif
