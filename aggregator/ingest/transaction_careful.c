/*
 * transaction_careful.c - the steps for when the fast path does not hold.
 *
 *   REGISTER  keys by INSERT ... ON CONFLICT DO NOTHING RETURNING: waits for
 *             another lane's transaction and inserts if that one aborts
 *   KNOWN     what the keys hold that were not returned; a later statement,
 *             so a new snapshot, so their rows are visible
 *   ENTITIES  rows of projections that decide which others are touched
 *   LOCKS     all other rows made where missing, locked in key order; then
 *             every event is applied one by one in arrival order
 *
 * Rows are matched by key, never by position. Events that a projection
 * cannot take are rejected, and the transaction runs again without them.
 */

#include "ingest/transaction_state.h"

#include "base/crash_point.h"
#include "base/log.h"

static enum transaction_sent
send_query(struct transaction *tx, enum statement statement, pg_answer_cb cb)
{
    if (tx->params.bytes.failed) {
        transaction_fail(tx, TRANSACTION_WAIT);
        return TRANSACTION_FAILED;
    }
    transaction_expect(tx);
    pg_conn_query(lane_conn(tx->lane), statement, &tx->params, cb, tx);
    return TRANSACTION_SENT;
}

static void
register_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;
    bool is_good = transaction_is_good(tx, answer);
    int count = is_good ? pg_row_count(answer->result) : 0;

    CRASH_POINT("after_registry");
    for (int row = 0; row < count; row++) {
        struct meter_str scope = pg_get_bytes(answer->result, row, 0);
        struct meter_str key = pg_get_bytes(answer->result, row, 1);
        struct batch_item *item;

        CHECK(key.size == METER_KEY_SIZE);
        item = batch_find(&tx->batch, (const uint8_t *)key.data, scope);
        CHECK(item != NULL && !item->is_registered);
        item->is_registered = true;
    }
    transaction_answered(tx, answer);
}

enum transaction_sent
transaction_register_send(struct transaction *tx)
{
    enum transaction_sent sent;

    if (tx->batch.key_count == 0) {
        return TRANSACTION_NOTHING;
    }
    batch_registry_params(&tx->batch, &tx->stamp, &tx->params);
    sent = send_query(tx, STATEMENT_INGEST_REGISTER, register_cb);
    pg_conn_flush(lane_conn(tx->lane));
    return sent;
}

enum transaction_sent
transaction_unregistered_send(struct transaction *tx)
{
    enum transaction_sent sent;

    if (batch_known_params(&tx->batch, &tx->params) == 0) {
        return TRANSACTION_NOTHING;
    }
    sent = send_query(tx, STATEMENT_INGEST_KNOWN, transaction_known_cb);
    pg_conn_flush(lane_conn(tx->lane));
    return sent;
}

static bool
keys_are_settled(const struct batch *batch)
{
    for (size_t i = 0; i < batch->key_count; i++) {
        const struct batch_item *item = batch->by_key[i];

        if (item->is_known == item->is_registered) {
            return false;
        }
    }
    return true;
}

static enum transaction_sent
collect_and_ask(struct transaction *tx, enum projection_phase phase)
{
    enum transaction_sent sent;

    if (!batch_collect(&tx->batch, phase)) {
        transaction_fail(tx, TRANSACTION_WAIT);
        return TRANSACTION_FAILED;
    }
    sent = transaction_project(tx, phase);
    if (sent == TRANSACTION_QUEUED) {
        pg_conn_flush(lane_conn(tx->lane));
        return TRANSACTION_SENT;
    }
    return sent;
}

enum transaction_sent
transaction_careful_states_send(struct transaction *tx)
{
    if (!keys_are_settled(&tx->batch)) {
        log_error("ingest", "a registered key was not found");
        transaction_fail(tx, TRANSACTION_RETRY);
        return TRANSACTION_FAILED;
    }
    batch_decide(&tx->batch, tx->last, batch_stamp_clock(&tx->stamp));
    return collect_and_ask(tx, PROJECTION_STATES);
}

enum transaction_sent
transaction_locks_send(struct transaction *tx)
{
    enum transaction_sent sent = collect_and_ask(tx, PROJECTION_LOCK);

    if (sent == TRANSACTION_NOTHING) {
        transaction_locks_done(tx);
        if (tx->failure.outcome != PG_OUTCOME_OK) {
            return TRANSACTION_FAILED;
        }
    }
    return sent;
}

/*
 * All rows are locked, so this transaction is behind every one that changed
 * them: its place in the order has to say so.
 */
void
transaction_locks_done(struct transaction *tx)
{
    int64_t floor_us = batch_stamp_floor(&tx->batch);
    struct projection_stamp stamp;
    size_t rejected;

    if (tx->stamp.recorded_us <= floor_us) {
        tx->stamp.recorded_us = floor_us + 1;
    }
    stamp = transaction_stamp(tx);
    if (!batch_apply(&tx->batch, &stamp, &rejected)) {
        log_error("ingest", "a row that an event changes is not locked");
        transaction_fail(tx, TRANSACTION_WAIT);
        return;
    }
    if (rejected > 0) {
        log_warn("ingest", "projections cannot take events; they are rejected",
                 log_int("count", (int64_t)rejected));
        transaction_fail(tx, TRANSACTION_AGAIN);
    }
}
