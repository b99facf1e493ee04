/*
 * bucket_transaction.c - what a transaction of a lane asks.
 *
 *   lock   BEGIN; lock buckets; known keys; number of the transaction
 *   write  insert, write, keep answers; COMMIT
 *
 *   add    BEGIN; add to buckets; number: instead of lock, for increments
 *          alone; then COMMIT
 *
 * Buckets are locked, and made, in key order. They are made before others are
 * written: who waits for a bucket to be made holds nothing that its maker
 * could still wait for. Keys are looked up behind the locks, so that a second
 * request with the same key and bucket finds the answer of the first. Adding
 * makes no buckets, so it locks in key order, too.
 */

#include "counters/bucket_lane_state.h"

#include "base/crash_point.h"
#include "counters/bucket_add.h"
#include "counters/bucket_rows.h"


/* ---- locking ----------------------------------------------------------- */

static void
locked_cb(void *asker, const struct pg_answer *answer)
{
    struct bucket_lane *lane = asker;

    if (bucket_step_take(lane, answer) &&
        !bucket_rows_lock_take(&lane->batch, answer->result)) {
        bucket_step_fail(lane, AGAIN_LATER, "",
                         "buckets that were not asked for");
    }
    bucket_step_if_done(lane);
}


static void
added_cb(void *asker, const struct pg_answer *answer)
{
    struct bucket_lane *lane = asker;

    if (bucket_step_take(lane, answer) &&
        !bucket_rows_add_take(&lane->batch, answer->result)) {
        bucket_step_fail(lane, AGAIN_CAREFUL, "", "a bucket was not added to");
    }
    bucket_step_if_done(lane);
}


static void
known_cb(void *asker, const struct pg_answer *answer)
{
    struct bucket_lane *lane = asker;

    if (bucket_step_take(lane, answer) &&
        !bucket_rows_known_take(&lane->batch, answer->result)) {
        bucket_step_fail(lane, AGAIN_LATER, "", "a kept answer cannot be read");
    }
    bucket_step_if_done(lane);
}


static void
advanced_cb(void *asker, const struct pg_answer *answer)
{
    struct bucket_lane *lane = asker;

    if (bucket_step_take(lane, answer)) {
        if (pg_row_count(answer->result) == 1) {
            lane->number = pg_get_int8(answer->result, 0, 0);
            lane->now_us = pg_get_time(answer->result, 0, 1);
        } else {
            bucket_step_fail(lane, AGAIN_ELSEWHERE, "", "the lane has no row");
        }
    }
    bucket_step_if_done(lane);
}


bool
bucket_transaction_make(struct bucket_lane *lane)
{
    size_t count = 0;
    struct operation **list;

    arena_reset(&lane->arena);
    list = arena_alloc(&lane->arena, lane->running.count * sizeof(*list));
    if (list == NULL) {
        return false;
    }
    for (struct operation *operation = lane->running.head; operation != NULL;
         operation = operation->next) {
        list[count++] = operation;
    }
    return bucket_batch_make(&lane->batch, list, count, &lane->arena);
}


void
bucket_transaction_lock(struct bucket_lane *lane)
{
    bucket_step_begin(lane, LANE_LOCKING);
    lane->is_unsure = false;
    bucket_step_command(lane, STATEMENT_BEGIN, bucket_step_plain_cb);
    lane->is_adding = !lane->is_careful && bucket_add_make(&lane->batch);
    if (lane->is_adding) {
        bucket_rows_add_put(&lane->batch, &lane->params);
        bucket_step_ask(lane, STATEMENT_BUCKET_ADD, added_cb);
    } else {
        bucket_rows_lock_put(&lane->batch, &lane->params);
        bucket_step_ask(lane, STATEMENT_BUCKET_LOCK, locked_cb);
    }
    if (lane->batch.key_count > 0) {
        bucket_rows_known_put(&lane->batch, &lane->params);
        bucket_step_ask(lane, STATEMENT_IDEMPOTENCY_KNOWN, known_cb);
    }
    bucket_step_put_lane(lane);
    bucket_step_ask(lane, STATEMENT_BUCKET_LANE_ADVANCE, advanced_cb);
    bucket_step_send(lane);
}


/* ---- writing ----------------------------------------------------------- */

/* One that is refused is as good as one without an answer. */
static void
commit_cb(void *asker, const struct pg_answer *answer)
{
    struct bucket_lane *lane = asker;

    if (answer->outcome == PG_OUTCOME_ERROR) {
        pg_conn_reset(lane->conn, answer->message);
        bucket_step_plain_cb(lane,
                             &(struct pg_answer){.outcome = PG_OUTCOME_LOST});
        return;
    }
    bucket_step_plain_cb(lane, answer);
}


void
bucket_transaction_write(struct bucket_lane *lane)
{
    struct bucket_batch *batch = &lane->batch;

    CRASH_POINT("bucket_locked");
    if (lane->is_adding) {
        bucket_add_decide(batch);
    } else {
        bucket_batch_decide(batch, lane->now_us);
    }
    bucket_step_begin(lane, LANE_WRITING);
    if (bucket_rows_changed_put(batch, true, &lane->params)) {
        bucket_step_ask(lane, STATEMENT_BUCKET_INSERT, bucket_step_plain_cb);
    }
    if (bucket_rows_changed_put(batch, false, &lane->params)) {
        bucket_step_ask(lane, STATEMENT_BUCKET_WRITE, bucket_step_plain_cb);
    }
    if (bucket_rows_answers_put(batch, lane->now_us, &lane->params)) {
        bucket_step_ask(lane, STATEMENT_IDEMPOTENCY_INSERT,
                        bucket_step_plain_cb);
    }
    bucket_tally_make(&lane->tally, batch);
    bucket_step_command(lane, STATEMENT_COMMIT, commit_cb);
    bucket_step_send(lane);
    CRASH_POINT("bucket_commit_sent");
}
