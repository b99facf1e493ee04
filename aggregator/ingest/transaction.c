/*
 * transaction.c - states of a transaction and what follows an error.
 *
 *   PARTITIONS -> LOOKUP -+-> REGISTRY -> ENTITIES ----------+
 *                         +-> REGISTER -> KNOWN ->           |
 *                                   ENTITIES -> LOCKS -------+
 *                                                            v
 *         committed <- COMMIT <- EFFECTS <- AUDIT <- LEDGER -+
 *
 *   error:             plan, ROLLBACK, then again (PAUSE when told to wait)
 *   loss:              AWAY until the lane is back, then again
 *   loss after COMMIT: DOUBT until the lane is back; its batch number says
 *                      whether the transaction committed
 *
 * The items of a run lie on a stack of cuts, the next one on top. A data
 * error cuts the top into halves; everything else runs it again as it is.
 */

#include "ingest/transaction_state.h"

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/metrics.h"

#include <stdlib.h>

#define STREAM_SIZE_MAX ((size_t)1 << 30)


/* One row per state that sends something. */
static const struct step {
    const char *name;
    enum transaction_sent (*send)(struct transaction *tx);
    void (*done)(struct transaction *tx); /* all answers are good */
    enum transaction_state next_fast;
    enum transaction_state next_careful;
} steps[TRANSACTION_STATES] = {
    [TRANSACTION_LOOKUP] = {"lookup", transaction_lookup_send,
                            transaction_lookup_done, TRANSACTION_REGISTRY,
                            TRANSACTION_REGISTER},
    [TRANSACTION_REGISTRY] = {"registry", transaction_registry_send, NULL,
                              TRANSACTION_ENTITIES, TRANSACTION_ENTITIES},
    [TRANSACTION_REGISTER] = {"register", transaction_register_send, NULL,
                              TRANSACTION_KNOWN, TRANSACTION_KNOWN},
    [TRANSACTION_KNOWN] = {"known", transaction_unregistered_send, NULL,
                           TRANSACTION_ENTITIES, TRANSACTION_ENTITIES},
    [TRANSACTION_ENTITIES] = {"entities", transaction_states_send,
                              transaction_states_done, TRANSACTION_LEDGER,
                              TRANSACTION_LOCKS},
    [TRANSACTION_LOCKS] = {"locks", transaction_locks_send,
                           transaction_locks_done, TRANSACTION_LEDGER,
                           TRANSACTION_LEDGER},
    [TRANSACTION_LEDGER] = {"ledger", transaction_ledger_send, NULL,
                            TRANSACTION_AUDIT, TRANSACTION_AUDIT},
    [TRANSACTION_AUDIT] = {"audit", transaction_audit_send, NULL,
                           TRANSACTION_EFFECTS, TRANSACTION_EFFECTS},
    [TRANSACTION_EFFECTS] = {"effects", transaction_effects_send, NULL,
                             TRANSACTION_COMMIT, TRANSACTION_COMMIT},
    [TRANSACTION_COMMIT] = {"commit", transaction_commit_send, NULL,
                            TRANSACTION_IDLE, TRANSACTION_IDLE},
    [TRANSACTION_ROLLBACK] = {"rollback", transaction_rollback_send, NULL,
                              TRANSACTION_IDLE, TRANSACTION_IDLE},
};

void
transaction_free_if_done(struct transaction *tx)
{
    if (!tx->is_closing || !tx->is_timer_closed || tx->is_partition_due ||
        tx->answers_due > 0) {
        return;
    }
    batch_fini(&tx->batch);
    pg_params_fini(&tx->params);
    buf_fini(&tx->registry_stream);
    buf_fini(&tx->event_stream);
    buf_fini(&tx->audit_stream);
    free(tx->asked);
    free(tx);
}

/* Tests do not wait that long. */
static int64_t
clock_margin_us(void)
{
    const char *text = getenv("METERD_TEST_CLOCK_MARGIN_MS");

    return text == NULL || *text == '\0' ? PROJECTION_CLOCK_MARGIN_US
                                         : strtol(text, NULL, 10) * 1000;
}

struct transaction *
transaction_create(uv_loop_t *loop, struct lane *lane,
                   struct partition *partition, struct suspect *suspect,
                   const struct transaction_events *events, void *owner)
{
    struct transaction *tx = calloc(1, sizeof(*tx));
    const char *unsorted = getenv("METERD_TEST_UNSORTED");

    if (tx == NULL) {
        return NULL;
    }
    tx->lane = lane;
    tx->partition = partition;
    tx->suspect = suspect;
    tx->events = events;
    tx->owner = owner;
    tx->is_able = true;
    tx->clock_margin_us = clock_margin_us();
    hope_init(&tx->hope);
    if (!batch_init(&tx->batch)) {
        batch_fini(&tx->batch);
        free(tx);
        return NULL;
    }
    projection_is_unsorted = unsorted != NULL && strcmp(unsorted, "1") == 0;
    pg_params_init(&tx->params);
    buf_init(&tx->registry_stream, STREAM_SIZE_MAX);
    buf_init(&tx->event_stream, STREAM_SIZE_MAX);
    buf_init(&tx->audit_stream, STREAM_SIZE_MAX);
    CHECK(uv_timer_init(loop, &tx->timer) == 0);
    tx->timer.data = tx;
    return tx;
}

static void
transaction_closed_cb(uv_handle_t *handle)
{
    struct transaction *tx = handle->data;

    tx->is_timer_closed = true;
    transaction_free_if_done(tx);
}

void
transaction_destroy(struct transaction *tx)
{
    if (tx == NULL) {
        return;
    }
    tx->is_closing = true;
    tx->suspect = NULL;
    uv_close((uv_handle_t *)&tx->timer, transaction_closed_cb);
}

bool
transaction_is_idle(const struct transaction *tx)
{
    return tx->state == TRANSACTION_IDLE;
}

bool
transaction_is_able(const struct transaction *tx)
{
    bool is_late =
        tx->state != TRANSACTION_IDLE &&
        clock_mono_us() - tx->tried_us > pg_conn_patience_ms() * 1000;

    return tx->is_able && !is_late;
}

void
transaction_trim(struct transaction *tx)
{
    CHECK(tx->state == TRANSACTION_IDLE);
    batch_trim(&tx->batch);
    buf_fini(&tx->registry_stream);
    buf_fini(&tx->event_stream);
    buf_fini(&tx->audit_stream);
    pg_params_fini(&tx->params);
    pg_params_init(&tx->params);
}

void
transaction_run(struct transaction *tx, struct batch_item **items, size_t count)
{
    CHECK(tx->state == TRANSACTION_IDLE && tx->cut_count == 0 && count > 0);
    tx->cuts[tx->cut_count++] =
        (struct transaction_cut){.items = items, .count = count};
    tx->tries = 0;
    transaction_start(tx);
}


/* Steps. */

void
transaction_set_able(struct transaction *tx, bool is_able)
{
    if (tx->is_able == is_able) {
        return;
    }
    tx->is_able = is_able;
    if (is_able) {
        said_forget(&tx->said);
        log_info("ingest", "transactions go through again");
    } else {
        log_warn("ingest", "transactions do not go through; events wait",
                 log_str("step", steps[tx->state].name),
                 log_str("sqlstate", tx->failure.sqlstate));
    }
}

static void
transaction_set_state(struct transaction *tx, enum transaction_state state)
{
    tx->state = state;
    transaction_rings_mark(tx);
}

/*
 * The top cut is decided for good. What comes next is sent first, so that
 * the server works while answers are written and new events are read.
 */
static void
transaction_decided(struct transaction *tx,
                    const struct transaction_commit *commit)
{
    struct transaction_cut cut = *transaction_cut(tx);

    tx->cut_count--;
    tx->tries = 0;
    if (tx->cut_count > 0) {
        transaction_start(tx);
    } else {
        transaction_set_state(tx, TRANSACTION_IDLE);
        tx->events->on_idle(tx->owner);
    }
    tx->events->on_decided(tx->owner, cut.items, cut.count, commit);
}

/*
 * The database's clock was ahead once, and a writer or a clamped row has kept
 * that time: what follows takes a later one for its place in the order, and
 * keeps the clock beside it. Told when it begins and ends.
 */
static void
ahead_tell(struct transaction *tx)
{
    int64_t ahead_us = tx->stamp.recorded_us - lane_now_us(tx->lane);
    bool is_ahead = ahead_us > BATCH_AHEAD_US;
    int64_t seconds = is_ahead ? ahead_us / 1000000 : 0;

    metrics.edgemeter_recorded_ahead_seconds = seconds;
    if (is_ahead && !tx->is_ahead) {
        log_warn("ingest", "the order is ahead of the database's clock",
                 log_int("seconds", seconds));
    } else if (!is_ahead && tx->is_ahead) {
        log_info("ingest", "the order is the database's clock again");
    }
    tx->is_ahead = is_ahead;
}

static void
transaction_committed(struct transaction *tx)
{
    struct transaction_commit commit = {
        .last = tx->last + (int64_t)tx->batch.accepted_count,
        .recorded_us = tx->stamp.recorded_us,
        .clock_us = batch_stamp_clock(&tx->stamp),
    };

    memcpy(commit.writer, tx->stamp.writer, sizeof(commit.writer));
    ahead_tell(tx);
    metrics.edgemeter_batches_committed_total++;
    metrics.edgemeter_batch_events_total += (int64_t)tx->batch.count;
    metrics.edgemeter_commit_microseconds_total +=
        (int64_t)(clock_mono_us() - tx->started_us);
    metrics.counter_update_success_total +=
        (int64_t)projections[PROJECTION_COUNTERS]->changed(
            tx->batch.rows[PROJECTION_COUNTERS]);
    if (tx->is_hopeful) {
        hope_held(&tx->hope);
    }
    transaction_set_able(tx, true);
    CRASH_POINT("after_commit");
    transaction_decided(tx, &commit);
}

static void
transaction_timer_cb(uv_timer_t *timer)
{
    struct transaction *tx = timer->data;

    CHECK(tx->state == TRANSACTION_PAUSE);
    transaction_start(tx);
}

void
transaction_pause(struct transaction *tx)
{
    uint64_t pause_ms = tx->pause_ms;

    tx->pause_ms = 0;
    transaction_set_state(tx, TRANSACTION_PAUSE);
    CHECK(uv_timer_start(&tx->timer, transaction_timer_cb, pause_ms, 0) == 0);
}

/* Whether the transaction committed can only be asked of the lane. */
static void
transaction_doubt(struct transaction *tx)
{
    metrics.edgemeter_commits_unknown_total++;
    log_warn("ingest", "outcome of a COMMIT is unknown; it will be looked up",
             log_int("batch", tx->stamp.batch));
    transaction_set_able(tx, false);
    transaction_set_state(tx, TRANSACTION_DOUBT);
}

static void
transaction_away(struct transaction *tx)
{
    transaction_set_able(tx, false);
    transaction_set_state(tx, TRANSACTION_AWAY);
}

static void
transaction_go(struct transaction *tx, enum transaction_state state);

/* The step under way has failed; all answers of its flush are in. */
static void
transaction_failed(struct transaction *tx)
{
    bool is_lost = tx->failure.outcome == PG_OUTCOME_LOST;

    if (tx->state == TRANSACTION_COMMIT) {
        transaction_doubt(tx);
        if (!is_lost) {
            pg_conn_reset(lane_conn(tx->lane), "outcome of a COMMIT unknown");
        }
        return;
    }
    if (is_lost) {
        transaction_away(tx);
        return;
    }
    if (tx->state == TRANSACTION_ROLLBACK) {
        transaction_away(tx);
        pg_conn_reset(lane_conn(tx->lane), "ROLLBACK failed");
        return;
    }
    transaction_plan(tx);
    if (transaction_needs_connection(tx)) {
        transaction_away(tx);
        pg_conn_reset(lane_conn(tx->lane), "the server asks for a new one");
        return;
    }
    tx->failure = (struct transaction_failure){.outcome = PG_OUTCOME_OK};
    transaction_go(tx, TRANSACTION_ROLLBACK);
}

/* All answers of the flush are in. */
static void
transaction_flushed(struct transaction *tx)
{
    const struct step *step = &steps[tx->state];

    if (tx->is_closing) {
        transaction_free_if_done(tx);
        return;
    }
    if (tx->failure.outcome == PG_OUTCOME_OK && step->done != NULL) {
        step->done(tx);
    }
    if (tx->failure.outcome != PG_OUTCOME_OK) {
        transaction_failed(tx);
    } else if (tx->state == TRANSACTION_COMMIT) {
        transaction_committed(tx);
    } else if (tx->state != TRANSACTION_ROLLBACK) {
        transaction_go(tx, transaction_is_careful(tx) ? step->next_careful
                                                      : step->next_fast);
    } else if (tx->pause_ms > 0) {
        transaction_pause(tx);
    } else {
        transaction_start(tx);
    }
}

/* Sends from this step on, until one has to wait for answers. */
static void
transaction_go(struct transaction *tx, enum transaction_state state)
{
    bool is_careful = transaction_is_careful(tx);
    enum transaction_sent sent;

    tx->answers_due++; /* ours, until everything is sent */
    for (;;) {
        transaction_set_state(tx, state);
        sent = steps[state].send(tx);
        if (sent == TRANSACTION_SENT || sent == TRANSACTION_FAILED) {
            break;
        }
        state = is_careful ? steps[state].next_careful : steps[state].next_fast;
    }
    tx->answers_due--;
    if (sent == TRANSACTION_FAILED) {
        CHECK(tx->failure.outcome != PG_OUTCOME_OK);
        if (tx->failure.outcome == PG_OUTCOME_LOST) {
            /* No ROLLBACK follows that would end the flush being made. */
            pg_conn_flush(lane_conn(tx->lane));
        }
        transaction_failed(tx);
    } else if (tx->answers_due == 0) {
        transaction_flushed(tx);
    }
}

void
transaction_expect(struct transaction *tx)
{
    tx->answers_due++;
}

bool
transaction_is_good(const struct transaction *tx,
                    const struct pg_answer *answer)
{
    return answer->outcome == PG_OUTCOME_OK &&
           tx->failure.outcome == PG_OUTCOME_OK && !tx->is_closing;
}

void
transaction_fail(struct transaction *tx, enum transaction_remedy remedy)
{
    if (tx->failure.outcome == PG_OUTCOME_OK) {
        tx->failure = (struct transaction_failure){.outcome = PG_OUTCOME_ERROR,
                                                   .remedy = remedy};
    }
}

static void
transaction_note(struct transaction *tx, const struct pg_answer *answer)
{
    if (answer->outcome == PG_OUTCOME_LOST) {
        tx->failure.outcome = PG_OUTCOME_LOST;
    }
    if (answer->outcome != PG_OUTCOME_ERROR ||
        tx->failure.outcome != PG_OUTCOME_OK) {
        return;
    }
    tx->failure.outcome = PG_OUTCOME_ERROR;
    tx->failure.remedy = transaction_remedy(tx, answer);
    memcpy(tx->failure.sqlstate, answer->sqlstate, sizeof(answer->sqlstate));
    if (answer->kind == SQL_UNIQUE || answer->kind == SQL_RETRY) {
        metrics.counter_update_conflict_retries++;
    } else if (said_is_due(&tx->said, answer->message, clock_mono_ms()) ||
               tx->is_able || answer->kind == SQL_DATA) {
        log_warn("ingest", "a statement failed",
                 log_str("step", steps[tx->state].name),
                 log_str("sqlstate", answer->sqlstate),
                 log_str("kind", sqlstate_kind_name(answer->kind)),
                 log_str("error", answer->message));
    }
}

void
transaction_answered(struct transaction *tx, const struct pg_answer *answer)
{
    CHECK(tx->answers_due > 0);
    transaction_note(tx, answer);
    if (tx->state == TRANSACTION_COMMIT && tx->is_replication_due) {
        transaction_fail(tx, TRANSACTION_WAIT);
    }
    if (--tx->answers_due == 0) {
        transaction_flushed(tx);
    }
}

void
transaction_answer_cb(void *asker, const struct pg_answer *answer)
{
    transaction_answered(asker, answer);
}


/* Start of a try. */

/* Records of rings move their session, whatever becomes of them; of a dead
   letter that is rejected again nothing moves. */
static bool
item_needs_nothing(const struct batch_item *item)
{
    return item->error != NULL &&
           (item->record == NULL || item->record->ring->is_letters);
}

static bool
cut_is_rejected(const struct transaction_cut *cut)
{
    for (size_t i = 0; i < cut->count; i++) {
        if (!item_needs_nothing(cut->items[i])) {
            return false;
        }
    }
    return true;
}

/* One try of the top cut, from the beginning. */
void
transaction_start(struct transaction *tx)
{
    struct transaction_cut *cut = transaction_cut(tx);

    tx->tried_us = clock_mono_us();
    tx->failure = (struct transaction_failure){.outcome = PG_OUTCOME_OK};
    tx->is_replication_due = false;
    tx->is_ledger_made = false;
    tx->is_folded = false;
    tx->has_states = false;
    tx->asked_count = 0;
    tx->asked_at = 0;
    CHECK(tx->answers_due == 0);
    if (cut_is_rejected(cut)) {
        transaction_decided(tx, NULL);
        return;
    }
    if (!lane_is_ready(tx->lane)) {
        transaction_away(tx);
        return;
    }
    if (batch_needs_care(cut->items, cut->count)) {
        cut->path = TRANSACTION_PATH_CAREFUL;
    }
    transaction_limit_careful(tx);
    cut = transaction_cut(tx);
    transaction_set_state(tx, TRANSACTION_PARTITIONS);
    if (tx->is_refresh_due) {
        tx->is_refresh_due = false;
        transaction_refresh_days(tx);
        return;
    }
    if (!partition_is_ready(tx->partition) ||
        !batch_load(&tx->batch, cut->items, cut->count)) {
        transaction_plan_wait(tx);
        transaction_pause(tx);
        return;
    }
    if (!transaction_days(tx)) {
        return;
    }
    tx->is_insert =
        cut->count <= TRANSACTION_INSERT_EVENTS_MAX || !lane_can_copy(tx->lane);
    tx->is_hopeful = cut->path == TRANSACTION_PATH_FAST && !tx->is_insert &&
                     tx->batch.key_count > 0 && hope_allows(&tx->hope);
    if (cut->path == TRANSACTION_PATH_CAREFUL) {
        metrics.edgemeter_batches_careful_total++;
    }
    CRASH_POINT("before_begin");
    tx->started_us = clock_mono_us();
    transaction_go(tx, TRANSACTION_LOOKUP);
}

void
transaction_lane_ready(struct transaction *tx, int64_t batch)
{
    if (tx->state == TRANSACTION_AWAY) {
        transaction_start(tx);
        return;
    }
    if (tx->state != TRANSACTION_DOUBT) {
        return;
    }
    log_info("ingest", "outcome of the COMMIT looked up",
             log_bool("committed", batch == tx->stamp.batch),
             log_int("expected", tx->stamp.batch), log_int("batch", batch));
    if (batch == tx->stamp.batch) {
        transaction_committed(tx);
    } else {
        transaction_start(tx);
    }
}

/*
 * The server's warning comes before the answer to the COMMIT, which then
 * counts for nothing: the lane's next commit proves the replication.
 */
void
transaction_not_replicated(struct transaction *tx)
{
    if (tx->state == TRANSACTION_COMMIT) {
        tx->is_replication_due = true;
    }
}
