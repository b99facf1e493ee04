/*
 * batch_rows.h - a decided batch as bytes for PostgreSQL. Pure.
 *
 *   batch -> [batch_rows] -> COPY streams or array parameters -> transaction
 *
 * Every table can be written in two ways: by a binary COPY stream (fast),
 * or by arrays for INSERT ... SELECT FROM unnest (small batches in few
 * round trips, and lanes that may not COPY). Both carry the same values;
 * field orders are in the head comments of sql/statements. A buffer that
 * could not grow is `failed`; the caller checks once.
 */

#ifndef INGEST_BATCH_ROWS_H
#define INGEST_BATCH_ROWS_H

#include "ingest/batch.h"
#include "pg/param.h"

/* Less is a matter of locks: the order then is as good as the clock. */
#define BATCH_AHEAD_US INT64_C(1000000)

/* What all rows of one transaction share. */
struct batch_stamp {
    const uint8_t *writer;
    int64_t batch;       /* number of this transaction */
    int64_t recorded_us; /* its place in the order; may still grow */
    int64_t now_us;      /* the database's clock, behind the writer's lock */
    int64_t seen_us;     /* when repeats were observed */
    int32_t audit_day;
    int32_t index_floor; /* earlier days are not indexed */
};

/*
 * The order has left the clock behind: a writer or a clamped row has kept the
 * time of a clock that ran ahead.
 */
static inline bool
batch_stamp_is_ahead(const struct batch_stamp *stamp)
{
    return stamp->recorded_us - stamp->now_us > BATCH_AHEAD_US;
}

/* The time of day of the transaction, for whatever shows or compares one. */
static inline int64_t
batch_stamp_clock(const struct batch_stamp *stamp)
{
    return batch_stamp_is_ahead(stamp) ? stamp->now_us : stamp->recorded_us;
}

/*
 * ingest_known: identities of which nothing is known yet (neither found nor
 * registered by this run), in key order, each with its place in by_key.
 * Returns their number.
 */
size_t batch_known_params(const struct batch *batch, struct pg_params *out);
/* ingest_known_scope: the same identities, as far as they are of a scope. */
void batch_known_scope_params(const struct batch *batch, struct meter_str scope,
                              struct pg_params *out);

/*
 * Columns 1 to 4 of a row of either look-up: what the registry holds for the
 * first item of an identity. False: no memory.
 */
MUST_CHECK bool batch_known_row(struct batch *batch, struct batch_item *item,
                                const void *result, int row);

/* The registry: identities that are not known, in key order. */
size_t batch_fresh_count(const struct batch *batch);
void batch_registry_copy(const struct batch *batch,
                         const struct batch_stamp *stamp, struct buf *out);
void
batch_registry_params(const struct batch *batch,
                      const struct batch_stamp *stamp, struct pg_params *out);

/* The ledger: accepted items in arrival order. */
void batch_event_copy(const struct batch *batch,
                      const struct batch_stamp *stamp, struct buf *out);
void batch_event_params(const struct batch *batch,
                        const struct batch_stamp *stamp, struct pg_params *out);

/* The audit: duplicates and conflicts in arrival order. */
/*
 * Piece by piece, *at from 0 on; an empty piece is behind the end. What does
 * not fit into memory shows as a failed out.
 */
void
batch_audit_copy(const struct batch *batch, const struct batch_stamp *stamp,
                 size_t *at, struct buf *out);
void batch_audit_params(const struct batch *batch,
                        const struct batch_stamp *stamp, struct pg_params *out);

/* Sessions of rings, by their bytes: ensure those that say hello, lock all,
   advance those that moved, settle those of dead letters. */
void batch_session_ensure_params(const struct batch *batch,
                                 const struct batch_stamp *stamp,
                                 struct pg_params *out);
void
batch_session_lock_params(const struct batch *batch, struct pg_params *out);
void batch_session_advance_params(const struct batch *batch,
                                  const struct batch_stamp *stamp,
                                  struct pg_params *out);
void
batch_session_settle_params(const struct batch *batch, struct pg_params *out);
/* dead_letter_take: letters that are judged again, in arrival order. */
void batch_letter_params(const struct batch *batch, struct pg_params *out);
/* Records that were rejected, and losses, in arrival order. */
void batch_dead_letter_params(const struct batch *batch,
                              const struct batch_stamp *stamp,
                              struct pg_params *out);
void batch_loss_params(const struct batch *batch,
                       const struct batch_stamp *stamp, struct pg_params *out);

#endif
