/*
 * bucket_tally.h - what a transaction did, for the metrics.
 *
 *   decided batch -> [bucket_tally_make] -> COMMIT -> [bucket_tally_count]
 *
 * Made before the COMMIT, since operations may end before its answer.
 */

#ifndef BUCKETS_BUCKET_TALLY_H
#define BUCKETS_BUCKET_TALLY_H

#include "buckets/bucket_batch.h"

struct bucket_tally {
    int64_t operations;
    int64_t applied;
    int64_t negative;
    int64_t overflow;
    int64_t key_taken;
    int64_t repeated; /* answered as before; in none of the above */
};

/* Takes is_fresh off the batch's keys: their answers are on their way. */
void bucket_tally_make(struct bucket_tally *tally, struct bucket_batch *batch);
/* It was committed. */
void bucket_tally_count(const struct bucket_tally *tally);

#endif
