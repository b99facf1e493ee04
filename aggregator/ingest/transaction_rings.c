/*
 * transaction_rings.c - what records of rings add to the steps.
 *
 *   LOOKUP    sessions that say hello are made where missing, all of the
 *             batch are locked by their bytes; behind writer and writer_seq,
 *             before the registry. Dead letters that are judged again are
 *             deleted behind them
 *   COUNTERS  dead letters, losses and the sessions' rows, in the flush of
 *             the writer's numbers
 *
 * No round trip of their own, and nothing at all for a batch without rings.
 * Items that turn out to be replays or behind a gap are left out of another
 * run: what was looked up for them must not count.
 */

#include "ingest/transaction_state.h"

#include "base/crash_point.h"
#include "base/log.h"

static void
session_row(struct transaction *tx, const void *result, int row)
{
    struct batch_totals totals = {
        .last_seq = pg_get_int8(result, row, 1),
        .verdicts =
            {
                [METER_VERDICT_ACCEPTED] = pg_get_int8(result, row, 2),
                [METER_VERDICT_DUPLICATE] = pg_get_int8(result, row, 3),
                [METER_VERDICT_CONFLICT] = pg_get_int8(result, row, 4),
                [METER_VERDICT_REJECTED] = pg_get_int8(result, row, 5),
            },
        .lost = pg_get_int8(result, row, 6),
    };

    if (!batch_session_locked(&tx->batch, pg_get_bytes(result, row, 0),
                              &totals)) {
        log_error("ingest", "a session's row cannot be used",
                  log_int("lastSeq", totals.last_seq));
        transaction_fail(tx, TRANSACTION_WAIT);
    }
}

static void
lock_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;

    CRASH_POINT("after_session_lock");
    if (transaction_is_good(tx, answer)) {
        int count = pg_row_count(answer->result);

        for (int row = 0; row < count; row++) {
            session_row(tx, answer->result, row);
        }
    }
    transaction_answered(tx, answer);
}

/* Which letters were there; the others have been booked by someone else. */
static void
letter_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;

    CRASH_POINT("after_letter");
    if (transaction_is_good(tx, answer)) {
        int count = pg_row_count(answer->result);

        for (int row = 0; row < count; row++) {
            CHECK(batch_letter_found(&tx->batch,
                                     pg_get_int8(answer->result, row, 0)));
        }
    }
    transaction_answered(tx, answer);
}

enum transaction_sent
transaction_rings_lock(struct transaction *tx)
{
    enum transaction_sent sent;

    if (tx->batch.rings.record_count == 0) {
        return TRANSACTION_NOTHING;
    }
    if (tx->batch.rings.hello_count > 0) {
        batch_session_ensure_params(&tx->batch, &tx->stamp, &tx->params);
        if (transaction_queue(tx, STATEMENT_EDGE_SESSION_ENSURE,
                              transaction_answer_cb) == TRANSACTION_FAILED) {
            return TRANSACTION_FAILED;
        }
    }
    batch_session_lock_params(&tx->batch, &tx->params);
    sent = transaction_queue(tx, STATEMENT_EDGE_SESSION_LOCK, lock_cb);
    if (tx->batch.rings.letter_count > 0 && sent != TRANSACTION_FAILED) {
        batch_letter_params(&tx->batch, &tx->params);
        sent = transaction_queue(tx, STATEMENT_DEAD_LETTER_TAKE, letter_cb);
    }
    return sent;
}

static bool
hellos_are_locked(const struct batch_rings *rings)
{
    for (size_t i = 0; i < rings->session_count; i++) {
        if (rings->sessions[i]->is_hello && !rings->sessions[i]->is_locked) {
            return false;
        }
    }
    return true;
}

/* For tests: a record that our own code cannot bear. */
static void
poison_check(const struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct batch_item *item = batch->items[i];

        if (item->record != NULL && item->first != NULL) {
            suspect_test(SUSPECT_STORE, item->record->bytes);
        }
    }
}

bool
transaction_rings_judge(struct transaction *tx)
{
    if (tx->batch.rings.record_count == 0) {
        return true;
    }
    if (!hellos_are_locked(&tx->batch.rings)) {
        log_error("ingest", "a session's row was not found");
        transaction_fail(tx, TRANSACTION_RETRY);
        return false;
    }
    if (!batch_rings_judge(&tx->batch)) {
        transaction_fail(tx, TRANSACTION_AGAIN);
        return false;
    }
    if (suspect_test_armed) {
        poison_check(&tx->batch);
    }
    return true;
}

static void
dead_letter_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;

    CRASH_POINT("after_dead_letter");
    if (transaction_is_good(tx, answer)) {
        CHECK((size_t)pg_affected(answer->result) ==
              tx->batch.rings.dead_count);
    }
    transaction_answered(tx, answer);
}

static void
advance_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;

    CRASH_POINT("after_session_advance");
    if (transaction_is_good(tx, answer)) {
        CHECK((size_t)pg_affected(answer->result) ==
              tx->batch.rings.moved_count);
    }
    transaction_answered(tx, answer);
}

static void
settle_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;

    if (transaction_is_good(tx, answer)) {
        CHECK((size_t)pg_affected(answer->result) ==
              tx->batch.rings.settled_count);
    }
    transaction_answered(tx, answer);
}

enum transaction_sent
transaction_rings_advance(struct transaction *tx)
{
    enum transaction_sent sent = TRANSACTION_NOTHING;

    if (tx->batch.rings.record_count == 0) {
        return TRANSACTION_NOTHING;
    }
    batch_rings_advance(&tx->batch);
    if (tx->batch.rings.dead_count > 0) {
        batch_dead_letter_params(&tx->batch, &tx->stamp, &tx->params);
        sent =
            transaction_queue(tx, STATEMENT_DEAD_LETTER_INSERT, dead_letter_cb);
    }
    if (tx->batch.rings.loss_count > 0 && sent != TRANSACTION_FAILED) {
        batch_loss_params(&tx->batch, &tx->stamp, &tx->params);
        sent = transaction_queue(tx, STATEMENT_EDGE_LOSS_INSERT,
                                 transaction_answer_cb);
    }
    if (tx->batch.rings.moved_count > 0 && sent != TRANSACTION_FAILED) {
        batch_session_advance_params(&tx->batch, &tx->stamp, &tx->params);
        sent =
            transaction_queue(tx, STATEMENT_EDGE_SESSION_ADVANCE, advance_cb);
    }
    if (tx->batch.rings.settled_count > 0 && sent != TRANSACTION_FAILED) {
        batch_session_settle_params(&tx->batch, &tx->params);
        sent = transaction_queue(tx, STATEMENT_EDGE_SESSION_SETTLE, settle_cb);
    }
    return sent;
}

/* A mark on the record in hand, while our code works on it. */
void
transaction_rings_mark(struct transaction *tx)
{
    const struct transaction_cut *cut;
    const struct batch_record *record;

    if (tx->suspect == NULL || !suspect_is_cautious(tx->suspect)) {
        return;
    }
    switch (tx->state) {
    case TRANSACTION_IDLE:
    case TRANSACTION_PAUSE:
    case TRANSACTION_AWAY:
    case TRANSACTION_DOUBT: suspect_clear(tx->suspect, SUSPECT_STORE); return;
    default: break;
    }
    cut = transaction_cut(tx);
    record = cut->items[0]->record;
    if (cut->count == 1 && record != NULL && record->kind != BATCH_HELLO) {
        suspect_mark(tx->suspect, SUSPECT_STORE, record->ring->session,
                     (uint64_t)record->seq);
    }
}
