/*
 * bucket_add.h - a batch of nothing but increments, added up. Pure.
 *
 *   batch -> [bucket_add_make] -> an amount for each bucket
 *   buckets as they are then -> [bucket_add_decide] -> result of each operation
 *
 * Increments without a key and without an end cannot fail one by one where
 * their sum does not: the database adds it, and what each of them has made is
 * counted backwards from the end.
 */

#ifndef BUCKETS_BUCKET_ADD_H
#define BUCKETS_BUCKET_ADD_H

#include "buckets/bucket_batch.h"

/* False: these are not such operations, or a sum leaves 64 bits. */
MUST_CHECK bool bucket_add_make(struct bucket_batch *batch);

/* now of each bucket is what the database says. */
void bucket_add_decide(struct bucket_batch *batch);

#endif
