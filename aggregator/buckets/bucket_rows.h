/*
 * bucket_rows.h - a batch as parameters, and rows of the database in a batch.
 *
 *   batch -> [put] -> bucket_add, or bucket_lock, idempotency_known
 *   rows -> [take] -> batch, to be decided
 *   decided batch -> [put] -> bucket_write, bucket_delete, idempotency_insert
 */

#ifndef BUCKETS_BUCKET_ROWS_H
#define BUCKETS_BUCKET_ROWS_H

#include "buckets/bucket_batch.h"
#include "pg/param.h"

/* Parameters are reset first. lock: for bucket_held, too. */
void bucket_rows_lock_put(const struct bucket_batch *batch,
                          struct pg_params *params);
void bucket_rows_known_put(const struct bucket_batch *batch,
                           struct pg_params *params);
/* As lock_put, with the amounts of bucket_add_make. */
void
bucket_rows_add_put(const struct bucket_batch *batch, struct pg_params *params);

/* False: these are no such rows. */
MUST_CHECK bool
bucket_rows_add_take(struct bucket_batch *batch, const void *result);
MUST_CHECK bool
bucket_rows_held_take(struct bucket_batch *batch, const void *result);
MUST_CHECK bool
bucket_rows_known_take(struct bucket_batch *batch, const void *result);

/* Buckets that have changed. False: there are none. */
MUST_CHECK bool bucket_rows_changed_put(const struct bucket_batch *batch,
                                        struct pg_params *params);
/* Those that have expired, and stay so. False: there are none. */
MUST_CHECK bool bucket_rows_gone_put(const struct bucket_batch *batch,
                                     int64_t now_us, struct pg_params *params);
/* Answers to be kept. False: there are none. */
MUST_CHECK bool
bucket_rows_answers_put(const struct bucket_batch *batch, int64_t now_us,
                        struct pg_params *params);

#endif
