/*
 * bucket_transaction.c - what a transaction of a lane asks.
 *
 *   lock   BEGIN; lock buckets, read them; known keys; number
 *   write  what was decided, answers to keep; COMMIT
 *
 *   add    BEGIN; add to buckets; number: instead of lock, for increments
 *          alone; then COMMIT
 *
 * Either way buckets are locked and made in key order, by one statement, which
 * is the first. Keys are looked up behind the locks, so that a second request
 * with the same key and bucket finds the answer of the first.
 */

#include "buckets/bucket_lane_state.h"

#include "base/crash_point.h"
#include "buckets/bucket_add.h"
#include "buckets/bucket_rows.h"


/* ---- beginning --------------------------------------------------------- */

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


/* ---- adding ------------------------------------------------------------ */

/* What cannot be added up may still be decided one by one. */
static void
added_cb(void *asker, const struct pg_answer *answer)
{
    struct bucket_lane *lane = asker;

    if (bucket_step_take(lane, answer)) {
        if (!bucket_rows_add_take(&lane->batch, answer->result)) {
            bucket_step_fail(lane, AGAIN_ELSEWHERE, "", "a bucket is missing");
        }
    } else if (lane->is_failed && lane->again == AGAIN_APART) {
        lane->again = AGAIN_CAREFUL;
    }
    bucket_step_if_done(lane);
}


static void
add(struct bucket_lane *lane)
{
    bucket_rows_add_put(&lane->batch, &lane->params);
    bucket_step_ask(lane, STATEMENT_BUCKET_ADD, added_cb);
}


/* ---- locking ----------------------------------------------------------- */

static void
held_cb(void *asker, const struct pg_answer *answer)
{
    struct bucket_lane *lane = asker;

    if (bucket_step_take(lane, answer) &&
        !bucket_rows_held_take(&lane->batch, answer->result)) {
        bucket_step_fail(lane, AGAIN_ELSEWHERE, "", "a bucket is missing");
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
lock(struct bucket_lane *lane)
{
    bucket_rows_lock_put(&lane->batch, &lane->params);
    bucket_step_ask(lane, STATEMENT_BUCKET_LOCK, bucket_step_plain_cb);
    bucket_step_ask(lane, STATEMENT_BUCKET_HELD, held_cb);
    if (lane->batch.key_count > 0) {
        bucket_rows_known_put(&lane->batch, &lane->params);
        bucket_step_ask(lane, STATEMENT_IDEMPOTENCY_KNOWN, known_cb);
    }
}


void
bucket_transaction_lock(struct bucket_lane *lane)
{
    bucket_step_begin(lane, LANE_LOCKING);
    lane->is_unsure = false;
    bucket_step_command(lane, STATEMENT_BEGIN, bucket_step_plain_cb);
    lane->is_adding = !lane->is_careful && bucket_add_make(&lane->batch);
    if (lane->is_adding) {
        add(lane);
    } else {
        lock(lane);
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


static void
put(struct bucket_lane *lane)
{
    struct bucket_batch *batch = &lane->batch;

    if (bucket_rows_changed_put(batch, &lane->params)) {
        bucket_step_ask(lane, STATEMENT_BUCKET_WRITE, bucket_step_plain_cb);
    }
    if (bucket_rows_gone_put(batch, lane->now_us, &lane->params)) {
        bucket_step_ask(lane, STATEMENT_BUCKET_DELETE, bucket_step_plain_cb);
    }
    if (bucket_rows_answers_put(batch, lane->now_us, &lane->params)) {
        bucket_step_ask(lane, STATEMENT_IDEMPOTENCY_INSERT,
                        bucket_step_plain_cb);
    }
}


void
bucket_transaction_write(struct bucket_lane *lane)
{
    CRASH_POINT("bucket_locked");
    bucket_step_begin(lane, LANE_WRITING);
    if (lane->is_adding) {
        bucket_add_decide(&lane->batch);
    } else {
        bucket_batch_decide(&lane->batch, lane->now_us);
        put(lane);
    }
    bucket_tally_make(&lane->tally, &lane->batch);
    bucket_step_command(lane, STATEMENT_COMMIT, commit_cb);
    bucket_step_send(lane);
    CRASH_POINT("bucket_commit_sent");
}
