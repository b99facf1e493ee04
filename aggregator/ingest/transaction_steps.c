/*
 * transaction_steps.c - what the steps send and what they read back.
 *
 *   LOOKUP    BEGIN; writer FOR SHARE; writer_seq FOR UPDATE; sessions of
 *             rings; what projections ask; known keys
 *   REGISTRY  new keys, sorted: a key registered meanwhile is an error
 *   ENTITIES  rows of projections that decide what the ledger says; mostly
 *             there are none
 *   LEDGER    accepted events in arrival order, numbered densely
 *   AUDIT     duplicates and conflicts
 *   EFFECTS   rows of the projections, sorted; what rings leave behind; the
 *             writer's numbers
 *   COMMIT    alone, when all went well and all counts agree; at once when
 *             nothing was sent that could fail or be counted
 *
 * With COPY each table is a round trip; what comes next is encoded while
 * the server works. With INSERT (few events, or a role that may not COPY)
 * REGISTRY to EFFECTS are one round trip.
 */

#include "ingest/transaction_state.h"

#include "base/crash_point.h"
#include "base/log.h"
#include "base/metrics.h"

/* By then the server has the first rows of a COPY. */
#define PREPARE_MS 1

/* Queues a statement; its answer is due. */
static void
query(struct transaction *tx, enum statement statement,
      const struct pg_params *params, pg_answer_cb cb)
{
    transaction_expect(tx);
    pg_conn_query(lane_conn(tx->lane), statement, params, cb, tx);
}

static void
command(struct transaction *tx, enum statement statement, pg_answer_cb cb)
{
    transaction_expect(tx);
    pg_conn_command(lane_conn(tx->lane), statement, cb, tx);
}

/* FAILED when the stream or the parameters could not be made. */
static enum transaction_sent
copy(struct transaction *tx, enum statement statement, const struct buf *stream,
     pg_answer_cb cb)
{
    if (stream->failed) {
        transaction_fail(tx, TRANSACTION_WAIT);
        return TRANSACTION_FAILED;
    }
    transaction_expect(tx);
    pg_conn_copy(lane_conn(tx->lane), statement, buf_str(stream), cb, tx);
    return TRANSACTION_SENT;
}

enum transaction_sent
transaction_queue(struct transaction *tx, enum statement statement,
                  pg_answer_cb cb)
{
    if (tx->params.bytes.failed) {
        transaction_fail(tx, TRANSACTION_WAIT);
        return TRANSACTION_FAILED;
    }
    query(tx, statement, &tx->params, cb);
    return TRANSACTION_QUEUED;
}

static void
writer_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;

    if (transaction_is_good(tx, answer)) {
        if (pg_row_count(answer->result) != 1) {
            log_error("ingest", "the writer's row is gone");
            transaction_fail(tx, TRANSACTION_WAIT);
        } else if (pg_get_int8(answer->result, 0, 0) != lane_epoch(tx->lane)) {
            lane_fenced(tx->lane, pg_get_int8(answer->result, 0, 0));
        }
    }
    transaction_answered(tx, answer);
}

/*
 * A period that was not over when projections looked may have been closed by
 * now: the lock came late, this process was stopped, or a clock was set.
 */
static void
look_check(struct transaction *tx, int64_t now_us)
{
    if (now_us > tx->looked_us + tx->clock_margin_us) {
        metrics.counter_update_conflict_retries++;
        transaction_fail(tx, TRANSACTION_RETRY);
    }
}

/* Days of the items may be about to be dropped: they get others. */
static void
floor_check(struct transaction *tx, const void *result)
{
    if (!pg_is_null(result, 0, 4) &&
        pg_get_date(result, 0, 4) > tx->event_floor_day) {
        transaction_fail(tx, TRANSACTION_REPARTITION);
    }
}

static void
seq_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;

    if (transaction_is_good(tx, answer)) {
        if (pg_row_count(answer->result) != 1) {
            log_error("ingest", "the writer's numbers are gone");
            transaction_fail(tx, TRANSACTION_WAIT);
        } else {
            tx->last = pg_get_int8(answer->result, 0, 0);
            tx->stamp.batch = pg_get_int8(answer->result, 0, 1) + 1;
            tx->stamp.recorded_us = pg_get_time(answer->result, 0, 2);
            tx->stamp.now_us = pg_get_time(answer->result, 0, 3);
            lane_clock_seen(tx->lane, tx->stamp.now_us);
            look_check(tx, tx->stamp.now_us);
            floor_check(tx, answer->result);
        }
    }
    transaction_answered(tx, answer);
}

void
transaction_known_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;

    if (transaction_is_good(tx, answer)) {
        int count = pg_row_count(answer->result);

        tx->known_count += (size_t)count;
        for (int row = 0; row < count; row++) {
            int32_t number = pg_get_int4(answer->result, row, 0);

            CHECK(number >= 0 && (size_t)number < tx->batch.key_count);
            if (!batch_known_row(&tx->batch, tx->batch.by_key[number],
                                 answer->result, row)) {
                transaction_fail(tx, TRANSACTION_WAIT);
                break;
            }
        }
    }
    transaction_answered(tx, answer);
}

/* Rows mostly come in key order, so the next key is looked at first. */
static struct batch_item *
known_item(const struct batch *batch, size_t *next, struct meter_str key,
           struct meter_str scope)
{
    const uint8_t *wanted = (const uint8_t *)key.data;

    while (*next < batch->key_count) {
        struct batch_item *item = batch->by_key[*next];
        int order = memcmp(batch_item_key(item), wanted, METER_KEY_SIZE);

        if (order > 0) {
            break;
        }
        ++*next;
        if (order == 0 && meter_str_equal(batch_item_scope(item), scope)) {
            return item;
        }
    }
    return batch_find(batch, wanted, scope);
}

/* One answer per scope, in their order. */
static void
known_scope_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;
    struct meter_str scope = tx->batch.scopes[tx->known_scope++];

    if (transaction_is_good(tx, answer)) {
        int count = pg_row_count(answer->result);
        size_t next = 0;

        tx->known_count += (size_t)count;
        for (int row = 0; row < count; row++) {
            struct meter_str key = pg_get_bytes(answer->result, row, 0);
            struct batch_item *item;

            CHECK(key.size == METER_KEY_SIZE);
            item = known_item(&tx->batch, &next, key, scope);
            CHECK(item != NULL);
            if (!batch_known_row(&tx->batch, item, answer->result, row)) {
                transaction_fail(tx, TRANSACTION_WAIT);
                break;
            }
        }
    }
    transaction_answered(tx, answer);
}

/* Scope by scope while they are few, else all in one join. */
static enum transaction_sent
known_queue(struct transaction *tx)
{
    if (tx->batch.scope_count > BATCH_SCOPES_MAX) {
        batch_known_params(&tx->batch, &tx->params);
        return transaction_queue(tx, STATEMENT_INGEST_KNOWN,
                                 transaction_known_cb);
    }
    tx->known_scope = 0;
    for (size_t i = 0; i < tx->batch.scope_count; i++) {
        batch_known_scope_params(&tx->batch, tx->batch.scopes[i], &tx->params);
        if (transaction_queue(tx, STATEMENT_INGEST_KNOWN_SCOPE,
                              known_scope_cb) == TRANSACTION_FAILED) {
            return TRANSACTION_FAILED;
        }
    }
    return TRANSACTION_QUEUED;
}

enum transaction_sent
transaction_lookup_send(struct transaction *tx)
{
    command(tx, STATEMENT_BEGIN, transaction_answer_cb);
    pg_params_reset(&tx->params);
    pg_param_uuid(&tx->params, lane_writer(tx->lane));
    tx->stamp.writer = lane_writer(tx->lane);
    query(tx, STATEMENT_INGEST_LOCK_WRITER, &tx->params, writer_cb);
    query(tx, STATEMENT_INGEST_LOCK_SEQ, &tx->params, seq_cb);
    if (transaction_rings_lock(tx) == TRANSACTION_FAILED ||
        transaction_look(tx) == TRANSACTION_FAILED) {
        return TRANSACTION_FAILED;
    }
    tx->known_count = 0;
    if (!transaction_is_careful(tx) && !tx->is_hopeful &&
        known_queue(tx) == TRANSACTION_FAILED) {
        return TRANSACTION_FAILED;
    }
    pg_conn_flush(lane_conn(tx->lane));
    return TRANSACTION_SENT;
}

/* Repeats are observed now, by the database's clock. */
void
transaction_lookup_done(struct transaction *tx)
{
    int64_t now_us = lane_now_us(tx->lane);
    int64_t clock_us = batch_stamp_clock(&tx->stamp);

    tx->stamp.seen_us = now_us > clock_us ? now_us : clock_us;
    CRASH_POINT("after_known");
    if (!transaction_rings_judge(tx)) {
        return;
    }
    if (!transaction_is_careful(tx)) {
        if (!tx->is_hopeful && tx->batch.key_count > 0) {
            hope_asked(&tx->hope, tx->known_count);
        }
        batch_decide(&tx->batch, tx->last, clock_us);
        if (!transaction_collect_states(tx)) {
            transaction_fail(tx, TRANSACTION_WAIT);
        }
    }
}

static void
ledger_prepare(struct transaction *tx)
{
    if (!tx->is_ledger_made) {
        batch_event_copy(&tx->batch, &tx->stamp, &tx->event_stream);
        tx->is_ledger_made = true;
    }
}

/*
 * The server has rows of the registry or the ledger to work on by now. A
 * fold that fails is noticed with the answer.
 */
static void
prepare_cb(uv_timer_t *timer)
{
    struct transaction *tx = timer->data;

    if (tx->failure.outcome != PG_OUTCOME_OK || tx->has_states) {
        return;
    }
    if (tx->state == TRANSACTION_REGISTRY) {
        ledger_prepare(tx);
    }
    if (tx->state == TRANSACTION_REGISTRY || tx->state == TRANSACTION_LEDGER) {
        (void)transaction_fold(tx);
    }
}

static void
registry_copied_cb(void *asker, const struct pg_answer *answer)
{
    CRASH_POINT("after_registry");
    transaction_answered(asker, answer);
}

/* Accepted items that the registry gets: minted ids have no row there. */
static size_t
registered_count(const struct batch *batch)
{
    return batch->accepted_count - batch->minted_count;
}

/* A key that is passed over was registered by another lane meanwhile. */
static void
registry_inserted_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;

    CRASH_POINT("after_registry");
    if (transaction_is_good(tx, answer) &&
        (size_t)pg_row_count(answer->result) != registered_count(&tx->batch)) {
        metrics.counter_update_conflict_retries++;
        transaction_fail(tx, TRANSACTION_CAREFUL);
    }
    transaction_answered(tx, answer);
}

enum transaction_sent
transaction_registry_send(struct transaction *tx)
{
    if (registered_count(&tx->batch) == 0) {
        return TRANSACTION_NOTHING;
    }
    if (tx->is_insert) {
        batch_registry_params(&tx->batch, &tx->stamp, &tx->params);
        return transaction_queue(tx, STATEMENT_INGEST_REGISTER,
                                 registry_inserted_cb);
    }
    batch_registry_copy(&tx->batch, &tx->stamp, &tx->registry_stream);
    uv_timer_start(&tx->timer, prepare_cb, PREPARE_MS, 0);
    return copy(tx, STATEMENT_COPY_REGISTRY, &tx->registry_stream,
                registry_copied_cb);
}

static void
ledger_cb(void *asker, const struct pg_answer *answer)
{
    CRASH_POINT("after_ledger");
    transaction_answered(asker, answer);
}

enum transaction_sent
transaction_ledger_send(struct transaction *tx)
{
    if (tx->batch.accepted_count == 0) {
        return TRANSACTION_NOTHING;
    }
    if (tx->is_insert) {
        batch_event_params(&tx->batch, &tx->stamp, &tx->params);
        return transaction_queue(tx, STATEMENT_INGEST_EVENT_INSERT, ledger_cb);
    }
    ledger_prepare(tx);
    if (!tx->is_folded) {
        uv_timer_start(&tx->timer, prepare_cb, PREPARE_MS, 0);
    }
    return copy(tx, STATEMENT_COPY_EVENT, &tx->event_stream, ledger_cb);
}

static void
audit_cb(void *asker, const struct pg_answer *answer)
{
    CRASH_POINT("after_audit");
    transaction_answered(asker, answer);
}

/* A stream that ends too early is rolled back, whatever the server says. */
static struct meter_str
audit_piece(void *asker)
{
    struct transaction *tx = asker;

    batch_audit_copy(&tx->batch, &tx->stamp, &tx->audit_at, &tx->audit_stream);
    if (tx->audit_stream.failed) {
        transaction_fail(tx, TRANSACTION_WAIT);
        return (struct meter_str){NULL, 0};
    }
    return buf_str(&tx->audit_stream);
}

enum transaction_sent
transaction_audit_send(struct transaction *tx)
{
    if (tx->batch.audited_count == 0) {
        return TRANSACTION_NOTHING;
    }
    if (tx->is_insert) {
        batch_audit_params(&tx->batch, &tx->stamp, &tx->params);
        return transaction_queue(tx, STATEMENT_INGEST_AUDIT_INSERT, audit_cb);
    }
    tx->audit_at = 0;
    transaction_expect(tx);
    pg_conn_copy_pieces(lane_conn(tx->lane), STATEMENT_COPY_AUDIT, audit_piece,
                        audit_cb, tx);
    return TRANSACTION_SENT;
}

static void
advance_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;

    if (transaction_is_good(tx, answer)) {
        CHECK(pg_affected(answer->result) == 1);
    }
    transaction_answered(tx, answer);
}

/* The careful path has decided what the rows are; the fast path folds. */
static enum transaction_sent
effects_queue(struct transaction *tx)
{
    if (transaction_is_careful(tx)) {
        return transaction_project(tx, PROJECTION_WRITE);
    }
    return transaction_fold(tx) ? transaction_project(tx, PROJECTION_APPLY)
                                : TRANSACTION_FAILED;
}

/*
 * COMMIT may share the flush of the writer's numbers and the sessions' rows
 * alone. Anything else could fail or be counted short, and that must be known
 * while a ROLLBACK is still possible.
 */
static bool
commit_may_follow(const struct transaction *tx, bool is_first)
{
    return is_first && tx->batch.rings.dead_count == 0 &&
           tx->batch.rings.loss_count == 0;
}

enum transaction_sent
transaction_effects_send(struct transaction *tx)
{
    bool is_first = tx->answers_due == 1; /* transaction_go's own */
    enum transaction_sent effects = effects_queue(tx);

    is_first = is_first && effects == TRANSACTION_NOTHING;
    if (effects == TRANSACTION_FAILED ||
        transaction_rings_advance(tx) == TRANSACTION_FAILED) {
        return TRANSACTION_FAILED;
    }
    pg_params_reset(&tx->params);
    pg_param_uuid(&tx->params, tx->stamp.writer);
    pg_param_int8(&tx->params, tx->last + (int64_t)tx->batch.accepted_count);
    pg_param_int8(&tx->params, tx->stamp.batch);
    pg_param_time(&tx->params, tx->stamp.now_us);
    pg_param_time(&tx->params, tx->stamp.recorded_us);
    query(tx, STATEMENT_INGEST_SEQ_ADVANCE, &tx->params, advance_cb);
    if (commit_may_follow(tx, is_first)) {
        return TRANSACTION_QUEUED;
    }
    pg_conn_flush(lane_conn(tx->lane));
    return TRANSACTION_SENT;
}

enum transaction_sent
transaction_commit_send(struct transaction *tx)
{
    CRASH_POINT("before_commit");
    command(tx, STATEMENT_COMMIT, transaction_answer_cb);
    pg_conn_flush(lane_conn(tx->lane));
    CRASH_POINT("after_commit_sent");
    return TRANSACTION_SENT;
}

enum transaction_sent
transaction_rollback_send(struct transaction *tx)
{
    command(tx, STATEMENT_ROLLBACK, transaction_answer_cb);
    pg_conn_flush(lane_conn(tx->lane));
    return TRANSACTION_SENT;
}
