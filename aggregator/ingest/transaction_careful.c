/*
 * transaction_careful.c - the steps for when the fast path does not hold.
 *
 *   REGISTER  keys by INSERT ... ON CONFLICT DO NOTHING RETURNING: waits for
 *             another lane's transaction and inserts if that one aborts
 *   KNOWN     what the keys hold that were not returned; a later statement,
 *             so a new snapshot, so their rows are visible
 *   LOCKS     counter rows made where missing, locked in key order; then
 *             every event is applied one by one in arrival order
 *
 * Rows are matched by key, never by position. Events that a counter cannot
 * take are rejected, and the transaction runs again without them.
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

/* One answer per tenant, in the order of the rows. */
static void
lock_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;
    bool is_good = transaction_is_good(tx, answer);
    int count = is_good ? pg_row_count(answer->result) : 0;
    struct meter_str tenant = tx->batch.rows[tx->lock_row]->tenant;

    for (int row = 0; row < count; row++) {
        CHECK(batch_row_locked(&tx->batch, tenant,
                               pg_get_bytes(answer->result, row, 0),
                               pg_get_bytes(answer->result, row, 1),
                               pg_get_bytes(answer->result, row, 2),
                               pg_get_int8(answer->result, row, 3)));
    }
    while (tx->lock_row < tx->batch.row_count &&
           meter_str_equal(tx->batch.rows[tx->lock_row]->tenant, tenant)) {
        tx->lock_row++;
    }
    transaction_answered(tx, answer);
}

enum transaction_sent
transaction_locks_send(struct transaction *tx)
{
    size_t at = 0;

    if (!keys_are_settled(&tx->batch)) {
        log_error("ingest", "a registered key was not found");
        transaction_fail(tx, TRANSACTION_RETRY);
        return TRANSACTION_FAILED;
    }
    batch_decide(&tx->batch, tx->last, tx->stamp.recorded_us);
    if (!batch_rows_collect(&tx->batch)) {
        transaction_fail(tx, TRANSACTION_WAIT);
        return TRANSACTION_FAILED;
    }
    if (tx->batch.row_count == 0) {
        return TRANSACTION_NOTHING;
    }
    tx->lock_row = 0;
    batch_ensure_params(&tx->batch, &tx->stamp, &tx->params);
    if (send_query(tx, STATEMENT_COUNTER_ENSURE, transaction_answer_cb) ==
        TRANSACTION_FAILED) {
        return TRANSACTION_FAILED;
    }
    while (batch_lock_params(&tx->batch, &at, &tx->params)) {
        if (send_query(tx, STATEMENT_COUNTER_LOCK, lock_cb) ==
            TRANSACTION_FAILED) {
            return TRANSACTION_FAILED;
        }
    }
    pg_conn_flush(lane_conn(tx->lane));
    return TRANSACTION_SENT;
}

static bool
rows_are_locked(const struct batch *batch)
{
    for (size_t i = 0; i < batch->row_count; i++) {
        if (!batch->rows[i]->is_locked) {
            return false;
        }
    }
    return true;
}

static void
log_collisions(const struct batch *batch)
{
    for (size_t i = 0; i < batch->row_count; i++) {
        const struct batch_row *row = batch->rows[i];
        char key[2 * METER_DIGEST_SIZE + 1];

        if (row->is_foreign) {
            meter_hex(row->dimension_key, METER_DIGEST_SIZE, key);
            log_error("ingest", "two dimension sets share a key",
                      log_bytes("tenant", row->tenant),
                      log_bytes("counterName", row->name),
                      log_str("dimensionKey", key),
                      log_bytes("dimensions", row->dimensions));
        }
    }
}

void
transaction_locks_done(struct transaction *tx)
{
    size_t rejected;

    if (!rows_are_locked(&tx->batch)) {
        log_error("ingest", "a counter row was not found");
        transaction_fail(tx, TRANSACTION_RETRY);
        return;
    }
    rejected = batch_apply(&tx->batch);
    if (rejected > 0) {
        log_warn("ingest", "counters cannot take events; they are rejected",
                 log_int("count", (int64_t)rejected));
        log_collisions(&tx->batch);
        transaction_fail(tx, TRANSACTION_AGAIN);
    }
}
