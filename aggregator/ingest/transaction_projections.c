/*
 * transaction_projections.c - the projections' statements in a transaction.
 *
 *   projection -> [project] -> statements of a phase, in the order of locking
 *   answers, in their order -> [project_cb] -> projection
 *
 * What projections say about an answer decides the try: go on, do it
 * carefully, again, or wait.
 */

#include "ingest/transaction_state.h"

#include "base/crash_point.h"
#include "base/log.h"
#include "base/metrics.h"

#include <stdlib.h>

#define ASKED_ROOM_MIN 16

struct projection_stamp
transaction_stamp(const struct transaction *tx)
{
    return (struct projection_stamp){
        .writer = tx->stamp.writer,
        .recorded_us = tx->stamp.recorded_us,
        .clock_us = batch_stamp_clock(&tx->stamp),
        .index_floor = tx->stamp.index_floor,
    };
}

void
transaction_judge(struct transaction *tx, enum projection_result result)
{
    switch (result) {
    case PROJECTION_OK: return;
    case PROJECTION_OVERTAKEN:
        metrics.counter_update_conflict_retries++;
        __attribute__((fallthrough));
    case PROJECTION_CAREFUL:
        if (!transaction_is_careful(tx)) {
            transaction_fail(tx, TRANSACTION_CAREFUL);
            return;
        }
        log_error("ingest", "a projection cannot decide on locked rows");
        break;
    case PROJECTION_RETRY:
        metrics.counter_update_conflict_retries++;
        transaction_fail(tx, TRANSACTION_RETRY);
        return;
    case PROJECTION_FAULT: break;
    }
    transaction_fail(tx, TRANSACTION_WAIT);
}

static bool
asked_push(struct transaction *tx, struct transaction_asked asked)
{
    size_t room = tx->asked_room == 0 ? ASKED_ROOM_MIN : tx->asked_room * 2;
    struct transaction_asked *list;

    if (tx->asked_count == tx->asked_room) {
        list = realloc(tx->asked, room * sizeof(*list));
        if (list == NULL) {
            return false;
        }
        tx->asked = list;
        tx->asked_room = room;
    }
    tx->asked[tx->asked_count++] = asked;
    return true;
}

/* Answers come in the order of the statements while none is lost. */
static void
project_cb(void *asker, const struct pg_answer *answer)
{
    struct transaction *tx = asker;

    if (transaction_is_good(tx, answer)) {
        struct transaction_asked asked = tx->asked[tx->asked_at++];
        const struct projection *projection = projections[asked.projection];

        CHECK(tx->asked_at <= tx->asked_count);
        if (asked.phase == PROJECTION_APPLY ||
            asked.phase == PROJECTION_WRITE) {
            CRASH_POINT("after_counters");
        }
        transaction_judge(
            tx, projection->answer(tx->batch.rows[asked.projection],
                                   asked.phase, asked.at, answer->result));
    }
    transaction_answered(tx, answer);
}

enum transaction_sent
transaction_project(struct transaction *tx, enum projection_phase phase)
{
    struct projection_stamp stamp = transaction_stamp(tx);
    enum transaction_sent sent = TRANSACTION_NOTHING;

    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        struct projection_query query = {.params = &tx->params};
        size_t at = 0;

        for (;;) {
            struct transaction_asked asked = {
                .projection = (enum projection_id)i, .phase = phase, .at = at};

            pg_params_reset(&tx->params);
            if (!projections[i]->next(tx->batch.rows[i], phase, &stamp, &at,
                                      &query)) {
                break;
            }
            if (!asked_push(tx, asked)) {
                transaction_fail(tx, TRANSACTION_WAIT);
                return TRANSACTION_FAILED;
            }
            if (transaction_queue(tx, query.statement, project_cb) ==
                TRANSACTION_FAILED) {
                return TRANSACTION_FAILED;
            }
            sent = TRANSACTION_QUEUED;
        }
    }
    return sent;
}

enum transaction_sent
transaction_look(struct transaction *tx)
{
    tx->looked_us = lane_now_us(tx->lane);
    if (!batch_look(&tx->batch, tx->looked_us)) {
        transaction_fail(tx, TRANSACTION_WAIT);
        return TRANSACTION_FAILED;
    }
    return transaction_project(tx, PROJECTION_LOOK);
}

bool
transaction_collect_states(struct transaction *tx)
{
    return batch_collect_fast(&tx->batch, &tx->has_states);
}

enum transaction_sent
transaction_states_send(struct transaction *tx)
{
    enum transaction_sent sent;

    if (transaction_is_careful(tx)) {
        return transaction_careful_states_send(tx);
    }
    if (!tx->has_states) {
        return TRANSACTION_NOTHING;
    }
    sent = transaction_project(tx, PROJECTION_STATES);
    CHECK(sent != TRANSACTION_NOTHING);
    if (sent == TRANSACTION_QUEUED) {
        pg_conn_flush(lane_conn(tx->lane));
        sent = TRANSACTION_SENT;
    }
    return sent;
}

/*
 * The fast path's rows of this phase are locked: as on the careful path, the
 * place of this transaction in the order is behind those before it.
 */
void
transaction_states_done(struct transaction *tx)
{
    int64_t floor_us;

    CRASH_POINT("after_entities");
    if (transaction_is_careful(tx)) {
        return;
    }
    floor_us = batch_stamp_floor(&tx->batch);
    if (tx->stamp.recorded_us <= floor_us) {
        tx->stamp.recorded_us = floor_us + 1;
    }
    (void)transaction_fold(tx); /* a failure is noted */
}

bool
transaction_fold(struct transaction *tx)
{
    struct projection_stamp stamp = transaction_stamp(tx);
    enum projection_result result;

    if (transaction_is_careful(tx) || tx->is_folded) {
        return true;
    }
    tx->is_folded = true;
    result = batch_fold(&tx->batch, &stamp);
    transaction_judge(tx, result);
    return result == PROJECTION_OK;
}
