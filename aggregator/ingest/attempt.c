/*
 * attempt.c - one try to commit some events, step by step.
 *
 *   lookup    BEGIN; writer FOR SHARE (the fence), writer_seq FOR UPDATE (the
 *             numbers), sessions of rings; what projections want to know;
 *             fast path: known keys
 *   registry  fast: new keys, sorted; a key registered meanwhile is an error
 *   register  careful: keys by INSERT ... ON CONFLICT DO NOTHING RETURNING,
 *             which waits for another lane and inserts if that one aborts
 *   known     careful: what the keys hold that were not returned; a later
 *             statement, so a new snapshot, so their rows are visible
 *   entities  rows of projections that decide what the ledger says; mostly
 *             there are none
 *   locks     careful: all other rows made where missing, locked in key order;
 *             then every event is applied one by one in arrival order
 *   ledger    accepted events in arrival order, numbered densely
 *   audit     duplicates and conflicts
 *   effects   rows of the projections, sorted; what rings leave; the writer's
 *             numbers
 *   commit    alone, when all went well and all counts agree; at once when
 *             nothing was sent that could fail or be counted
 *
 * With COPY each table is a round trip; what comes next is encoded while the
 * server works. With INSERT (few events, or a role that may not COPY) registry
 * to effects are one round trip. Rows are matched by key, never by position.
 */

#include "ingest/attempt.h"

#include "base/check.h"
#include "base/log.h"
#include "base/metrics.h"
#include "ingest/poison.h"

#include <stdlib.h>

#define STREAM_SIZE_MAX ((size_t)1 << 30)
/* By then the server has the first rows of a COPY. */
#define PREPARE_MS 1

/* The steps, in their order; those with an owner are a pg_tx_then. */
static void attempt_lookup_done(void *owner);
static void attempt_registry(struct attempt *attempt);
static void attempt_register(struct attempt *attempt);
static void attempt_known(void *owner);
static void attempt_entities(void *owner);
static void attempt_entities_done(void *owner);
static void attempt_locks(struct attempt *attempt);
static void attempt_locks_done(void *owner);
static void attempt_ledger(void *owner);
static void attempt_audit(void *owner);
static void attempt_effects(void *owner);
static void attempt_commit(void *owner);


/* ---- its life --------------------------------------------------------- */

static void
attempt_error_cb(void *owner, const struct pg_answer *answer)
{
    struct attempt *attempt = owner;

    attempt->events->on_error(attempt->owner, answer);
}

static void
attempt_end_cb(void *owner, enum pg_tx_end end)
{
    struct attempt *attempt = owner;

    attempt->events->on_end(attempt->owner, end);
}

void
attempt_init(struct attempt *attempt, uv_loop_t *loop, struct lane *lane,
             const struct attempt_events *events, void *owner)
{
    static const struct pg_tx_events tx_events = {
        .on_error = attempt_error_cb,
        .on_end = attempt_end_cb,
    };

    attempt->lane = lane;
    attempt->events = events;
    attempt->owner = owner;
    pg_tx_init(&attempt->tx, lane_conn(lane), &tx_events, attempt);
    batch_init(&attempt->batch);
    pg_params_init(&attempt->params);
    buf_init(&attempt->registry_stream, STREAM_SIZE_MAX);
    buf_init(&attempt->event_stream, STREAM_SIZE_MAX);
    buf_init(&attempt->audit_stream, STREAM_SIZE_MAX);
    CHECK(uv_timer_init(loop, &attempt->timer) == 0);
    attempt->timer.data = attempt;
}

void
attempt_trim(struct attempt *attempt)
{
    batch_trim(&attempt->batch);
    buf_fini(&attempt->registry_stream);
    buf_fini(&attempt->event_stream);
    buf_fini(&attempt->audit_stream);
    pg_params_fini(&attempt->params);
    pg_params_init(&attempt->params);
}

void
attempt_fini(struct attempt *attempt)
{
    pg_tx_fini(&attempt->tx);
    batch_fini(&attempt->batch);
    pg_params_fini(&attempt->params);
    buf_fini(&attempt->registry_stream);
    buf_fini(&attempt->event_stream);
    buf_fini(&attempt->audit_stream);
    vec_fini(&attempt->asked);
}

static void
attempt_step(struct attempt *attempt, const char *step)
{
    attempt->step = step;
    attempt->is_copying = false;
    attempt->events->on_step(attempt->owner);
}

static void
attempt_fail(struct attempt *attempt, enum attempt_remedy remedy)
{
    pg_tx_fail(&attempt->tx, remedy, attempt->step);
}

/* True: it has failed, and what ends the step rolls back. */
static bool
attempt_has_failed(struct attempt *attempt)
{
    if (attempt->tx.is_failed) {
        pg_tx_send(&attempt->tx, NULL);
        return true;
    }
    return false;
}

static void
attempt_ask(struct attempt *attempt, enum statement statement, pg_tx_rows_cb cb)
{
    pg_tx_ask(&attempt->tx, statement, &attempt->params, cb);
}


/* ---- the projections' statements -------------------------------------- */

static struct projection_stamp
attempt_stamp(const struct attempt *attempt)
{
    return (struct projection_stamp){
        .writer = attempt->stamp.writer,
        .recorded_us = attempt->stamp.recorded_us,
        .clock_us = batch_stamp_clock(&attempt->stamp),
        .index_floor = attempt->stamp.index_floor,
    };
}

/* What a projection says of an answer decides the attempt. */
static void
attempt_judge(struct attempt *attempt, enum projection_result result)
{
    switch (result) {
    case PROJECTION_OK: return;
    case PROJECTION_OVERTAKEN:
        metrics.counter_update_conflict_retries++;
        __attribute__((fallthrough));
    case PROJECTION_CAREFUL:
        if (!attempt->is_careful) {
            attempt_fail(attempt, ATTEMPT_CAREFUL);
            return;
        }
        log_error("ingest", "a projection cannot decide on locked rows");
        break;
    case PROJECTION_RETRY:
        metrics.counter_update_conflict_retries++;
        attempt_fail(attempt, ATTEMPT_RETRY);
        return;
    case PROJECTION_FAULT: break;
    }
    attempt_fail(attempt, ATTEMPT_WAIT);
}

/* Answers come in the order of the statements. */
static void
attempt_projected_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;
    struct attempt_asked asked;

    CHECK(attempt->asked_at < attempt->asked.count);
    asked = attempt->asked.items[attempt->asked_at++];
    if (asked.phase == PROJECTION_APPLY || asked.phase == PROJECTION_WRITE) {
        CRASH_POINT("after_counters");
    }
    attempt_judge(attempt, projections[asked.projection]->answer(
                               attempt->batch.rows[asked.projection],
                               asked.phase, asked.at, result));
}

/* Asks the statements of a phase, in the order of locking. False: none. */
static bool
attempt_project(struct attempt *attempt, enum projection_phase phase)
{
    struct projection_stamp stamp = attempt_stamp(attempt);
    bool has_any = false;

    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        struct projection_query query = {.params = &attempt->params};
        struct attempt_asked asked = {(enum projection_id)i, phase, 0};
        size_t at = 0;

        for (;;) {
            asked.at = at;
            pg_params_reset(&attempt->params);
            if (!projections[i]->next(attempt->batch.rows[i], phase, &stamp,
                                      &at, &query)) {
                break;
            }
            vec_push(&attempt->asked, asked);
            attempt_ask(attempt, query.statement, attempt_projected_cb);
            has_any = true;
        }
    }
    return has_any;
}

/* Fast path: all accepted items into the rows of the projections, once. */
static void
attempt_fold(struct attempt *attempt)
{
    struct projection_stamp stamp = attempt_stamp(attempt);

    if (!attempt->is_careful && !attempt->is_folded) {
        attempt->is_folded = true;
        attempt_judge(attempt, batch_fold(&attempt->batch, &stamp));
    }
}

/*
 * Rows whose order matters are locked, so this transaction comes after every
 * one that changed them: its place in the order has to say so.
 */
static void
attempt_stamp_raise(struct attempt *attempt)
{
    int64_t floor_us = batch_stamp_floor(&attempt->batch);

    if (attempt->stamp.recorded_us <= floor_us) {
        attempt->stamp.recorded_us = floor_us + 1;
    }
}


/* ---- rings ------------------------------------------------------------ */

/*
 * No round trip of their own, and nothing at all for a batch without rings.
 * Items that turn out to be replays, or to follow a gap, are left out of the
 * next attempt: what was looked up for them must not count.
 */
static void
attempt_sessions_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;

    CRASH_POINT("after_session_lock");
    for (int row = 0; row < pg_row_count(result); row++) {
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

        if (!batch_session_locked(&attempt->batch, pg_get_bytes(result, row, 0),
                                  &totals)) {
            log_error("ingest", "a session's row cannot be used",
                      log_int("lastSeq", totals.last_seq));
            attempt_fail(attempt, ATTEMPT_WAIT);
        }
    }
}

/* Which letters were there; the others have been booked by someone else. */
static void
attempt_letters_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;

    CRASH_POINT("after_letter");
    for (int row = 0; row < pg_row_count(result); row++) {
        CHECK(batch_letter_found(&attempt->batch, pg_get_int8(result, row, 0)));
    }
}

/*
 * Sessions that say hello are made where missing; all are locked by their
 * bytes, after writer and writer_seq, before the registry. Dead letters that
 * are judged again are deleted after them.
 */
static void
attempt_rings_lock(struct attempt *attempt)
{
    const struct batch_rings *rings = &attempt->batch.rings;

    if (rings->record_count == 0) {
        return;
    }
    if (rings->hello_count > 0) {
        batch_session_ensure_params(&attempt->batch, &attempt->stamp,
                                    &attempt->params);
        attempt_ask(attempt, STATEMENT_EDGE_SESSION_ENSURE, NULL);
    }
    batch_session_lock_params(&attempt->batch, &attempt->params);
    attempt_ask(attempt, STATEMENT_EDGE_SESSION_LOCK, attempt_sessions_cb);
    if (rings->letter_count > 0) {
        batch_letter_params(&attempt->batch, &attempt->params);
        attempt_ask(attempt, STATEMENT_DEAD_LETTER_TAKE, attempt_letters_cb);
    }
}

static bool
attempt_hellos_are_locked(const struct batch_rings *rings)
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
attempt_poison_test(const struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct batch_item *item = batch->items[i];

        if (item->record != NULL && item->first != NULL) {
            poison_test(POISON_STORE, item->record->bytes);
        }
    }
}

static void
attempt_rings_judge(struct attempt *attempt)
{
    if (attempt->batch.rings.record_count == 0) {
        return;
    }
    if (!attempt_hellos_are_locked(&attempt->batch.rings)) {
        log_error("ingest", "a session's row was not found");
        attempt_fail(attempt, ATTEMPT_RETRY);
    } else if (!batch_rings_judge(&attempt->batch)) {
        attempt_fail(attempt, ATTEMPT_AGAIN);
    } else if (poison_test_armed) {
        attempt_poison_test(&attempt->batch);
    }
}

static void
attempt_dead_letters_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;

    CRASH_POINT("after_dead_letter");
    CHECK((size_t)pg_affected(result) == attempt->batch.rings.dead_count);
}

static void
attempt_sessions_moved_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;

    CRASH_POINT("after_session_advance");
    CHECK((size_t)pg_affected(result) == attempt->batch.rings.moved_count);
}

static void
attempt_sessions_settled_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;

    CHECK((size_t)pg_affected(result) == attempt->batch.rings.settled_count);
}

/* Dead letters, losses and the sessions' rows; all verdicts are final. */
static void
attempt_rings_advance(struct attempt *attempt)
{
    const struct batch_rings *rings = &attempt->batch.rings;

    if (rings->record_count == 0) {
        return;
    }
    batch_rings_advance(&attempt->batch);
    if (rings->dead_count > 0) {
        batch_dead_letter_params(&attempt->batch, &attempt->stamp,
                                 &attempt->params);
        attempt_ask(attempt, STATEMENT_DEAD_LETTER_INSERT,
                    attempt_dead_letters_cb);
    }
    if (rings->loss_count > 0) {
        batch_loss_params(&attempt->batch, &attempt->stamp, &attempt->params);
        attempt_ask(attempt, STATEMENT_EDGE_LOSS_INSERT, NULL);
    }
    if (rings->moved_count > 0) {
        batch_session_advance_params(&attempt->batch, &attempt->stamp,
                                     &attempt->params);
        attempt_ask(attempt, STATEMENT_EDGE_SESSION_ADVANCE,
                    attempt_sessions_moved_cb);
    }
    if (rings->settled_count > 0) {
        batch_session_settle_params(&attempt->batch, &attempt->params);
        attempt_ask(attempt, STATEMENT_EDGE_SESSION_SETTLE,
                    attempt_sessions_settled_cb);
    }
}


/* ---- lookup ----------------------------------------------------------- */

static void
attempt_writer_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;

    if (pg_row_count(result) != 1) {
        log_error("ingest", "the writer's row is gone");
        attempt_fail(attempt, ATTEMPT_WAIT);
    } else if (pg_get_int8(result, 0, 0) != lane_epoch(attempt->lane)) {
        lane_fenced(attempt->lane, pg_get_int8(result, 0, 0));
    }
}

/*
 * A period that was not over when projections looked may have been closed by
 * now: the lock came late, this process was stopped, or a clock was set. And
 * days of the items may be about to be dropped: they get others.
 */
static void
attempt_numbers_check(struct attempt *attempt, const void *result)
{
    if (attempt->stamp.now_us > attempt->looked_us + attempt->clock_margin_us) {
        metrics.counter_update_conflict_retries++;
        attempt_fail(attempt, ATTEMPT_RETRY);
    }
    if (!pg_is_null(result, 0, 4) &&
        pg_get_date(result, 0, 4) > attempt->event_floor_day) {
        attempt_fail(attempt, ATTEMPT_REPARTITION);
    }
}

static void
attempt_numbers_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;

    if (pg_row_count(result) != 1) {
        log_error("ingest", "the writer's numbers are gone");
        attempt_fail(attempt, ATTEMPT_WAIT);
        return;
    }
    attempt->last = pg_get_int8(result, 0, 0);
    attempt->stamp.batch = pg_get_int8(result, 0, 1) + 1;
    attempt->stamp.recorded_us = pg_get_time(result, 0, 2);
    attempt->stamp.now_us = pg_get_time(result, 0, 3);
    lane_clock_seen(attempt->lane, attempt->stamp.now_us);
    attempt_numbers_check(attempt, result);
}

static void
attempt_known_row(struct attempt *attempt, struct batch_item *item,
                  const void *result, int row)
{
    CHECK(item != NULL);
    if (!batch_known_row(&attempt->batch, item, result, row)) {
        attempt_fail(attempt, ATTEMPT_WAIT);
    }
}

static void
attempt_known_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;
    int count = pg_row_count(result);

    attempt->known_count += (size_t)count;
    for (int row = 0; row < count; row++) {
        int32_t number = pg_get_int4(result, row, 0);

        CHECK(number >= 0 && (size_t)number < attempt->batch.key_count);
        attempt_known_row(attempt, attempt->batch.by_key[number], result, row);
    }
}

/* One answer per scope, in their order. */
static void
attempt_known_scope_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;
    struct meter_str scope = attempt->batch.scopes[attempt->known_scope++];
    int count = pg_row_count(result);
    size_t next = 0;

    attempt->known_count += (size_t)count;
    for (int row = 0; row < count; row++) {
        struct meter_str key = pg_get_bytes(result, row, 0);

        CHECK(key.size == METER_KEY_SIZE);
        attempt_known_row(attempt,
                          batch_find_next(&attempt->batch, &next, key, scope),
                          result, row);
    }
}

/* Scope by scope while they are few, else all in one join. */
static void
attempt_known_ask(struct attempt *attempt)
{
    struct batch *batch = &attempt->batch;

    if (batch->scope_count > BATCH_SCOPES_MAX) {
        batch_known_params(batch, &attempt->params);
        attempt_ask(attempt, STATEMENT_INGEST_KNOWN, attempt_known_cb);
        return;
    }
    attempt->known_scope = 0;
    for (size_t i = 0; i < batch->scope_count; i++) {
        batch_known_scope_params(batch, batch->scopes[i], &attempt->params);
        attempt_ask(attempt, STATEMENT_INGEST_KNOWN_SCOPE,
                    attempt_known_scope_cb);
    }
}

void
attempt_begin(struct attempt *attempt)
{
    attempt->is_ledger_made = false;
    attempt->is_folded = false;
    attempt->has_states = false;
    attempt->known_count = 0;
    attempt->asked_at = 0;
    vec_clear(&attempt->asked);
    attempt->stamp.writer = lane_writer(attempt->lane);
    attempt_step(attempt, "lookup");
    pg_tx_begin(&attempt->tx);
    pg_params_reset(&attempt->params);
    pg_param_uuid(&attempt->params, attempt->stamp.writer);
    attempt_ask(attempt, STATEMENT_INGEST_LOCK_WRITER, attempt_writer_cb);
    attempt_ask(attempt, STATEMENT_INGEST_LOCK_SEQ, attempt_numbers_cb);
    attempt_rings_lock(attempt);
    attempt->looked_us = lane_now_us(attempt->lane);
    if (batch_look(&attempt->batch, attempt->looked_us)) {
        attempt_project(attempt, PROJECTION_LOOK);
    } else {
        attempt_fail(attempt, ATTEMPT_WAIT);
    }
    if (!attempt->is_careful && !attempt->is_skipping) {
        attempt_known_ask(attempt);
    }
    pg_tx_send(&attempt->tx, attempt_lookup_done);
}

/* Repeats are observed now, by the database's clock. */
static void
attempt_lookup_done(void *owner)
{
    struct attempt *attempt = owner;
    int64_t now_us = lane_now_us(attempt->lane);
    int64_t clock_us = batch_stamp_clock(&attempt->stamp);

    attempt->stamp.seen_us = now_us > clock_us ? now_us : clock_us;
    CRASH_POINT("after_known");
    attempt_rings_judge(attempt);
    if (attempt_has_failed(attempt)) {
        return;
    }
    if (attempt->is_careful) {
        attempt_register(attempt);
        return;
    }
    if (!attempt->is_skipping && attempt->batch.key_count > 0) {
        lookup_skip_asked(attempt->skip, attempt->known_count);
    }
    batch_decide(&attempt->batch, attempt->last, clock_us);
    if (!batch_collect_fast(&attempt->batch, &attempt->has_states)) {
        attempt_fail(attempt, ATTEMPT_WAIT);
    }
    if (!attempt_has_failed(attempt)) {
        attempt_registry(attempt);
    }
}


/* ---- the fast path's registry ----------------------------------------- */

static void
attempt_ledger_prepare(struct attempt *attempt)
{
    if (!attempt->is_ledger_made) {
        batch_event_copy(&attempt->batch, &attempt->stamp,
                         &attempt->event_stream);
        attempt->is_ledger_made = true;
    }
}

/*
 * The server has rows of the registry or the ledger to work on by now. A fold
 * that fails is noticed with the answer.
 */
static void
attempt_prepare_cb(uv_timer_t *timer)
{
    struct attempt *attempt = timer->data;

    if (attempt->is_copying && !attempt->tx.is_failed && !attempt->tx.is_lost &&
        !attempt->has_states) {
        attempt_ledger_prepare(attempt);
        attempt_fold(attempt);
    }
}

static void
attempt_copy(struct attempt *attempt, enum statement statement,
             const struct buf *stream, pg_tx_rows_cb cb, pg_tx_then then)
{
    attempt->is_copying = true;
    if (!attempt->is_folded) {
        uv_timer_start(&attempt->timer, attempt_prepare_cb, PREPARE_MS, 0);
    }
    pg_tx_copy(&attempt->tx, statement, stream, cb);
    pg_tx_send(&attempt->tx, then);
}

/* Accepted items that the registry gets: minted ids have no row there. */
static size_t
attempt_registered_count(const struct batch *batch)
{
    return batch->accepted_count - batch->minted_count;
}

static void
attempt_registry_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;

    CRASH_POINT("after_registry");
    if (attempt->is_insert && (size_t)pg_row_count(result) !=
                                  attempt_registered_count(&attempt->batch)) {
        /* A key that is passed over was registered by another lane. */
        metrics.counter_update_conflict_retries++;
        attempt_fail(attempt, ATTEMPT_CAREFUL);
    }
}

static void
attempt_registry(struct attempt *attempt)
{
    attempt_step(attempt, "registry");
    if (attempt_registered_count(&attempt->batch) == 0) {
        attempt_entities(attempt);
    } else if (attempt->is_insert) {
        batch_registry_params(&attempt->batch, &attempt->stamp,
                              &attempt->params);
        attempt_ask(attempt, STATEMENT_INGEST_REGISTER, attempt_registry_cb);
        attempt_entities(attempt);
    } else {
        batch_registry_copy(&attempt->batch, &attempt->stamp,
                            &attempt->registry_stream);
        attempt_copy(attempt, STATEMENT_COPY_REGISTRY,
                     &attempt->registry_stream, attempt_registry_cb,
                     attempt_entities);
    }
}


/* ---- the careful path's registry -------------------------------------- */

static void
attempt_register_cb(void *owner, const void *result)
{
    struct attempt *attempt = owner;

    CRASH_POINT("after_registry");
    for (int row = 0; row < pg_row_count(result); row++) {
        struct meter_str scope = pg_get_bytes(result, row, 0);
        struct meter_str key = pg_get_bytes(result, row, 1);
        struct batch_item *item;

        CHECK(key.size == METER_KEY_SIZE);
        item = batch_find(&attempt->batch, (const uint8_t *)key.data, scope);
        CHECK(item != NULL && !item->is_registered);
        item->is_registered = true;
    }
}

static void
attempt_register(struct attempt *attempt)
{
    attempt_step(attempt, "register");
    if (attempt->batch.key_count == 0) {
        attempt_entities(attempt);
        return;
    }
    batch_registry_params(&attempt->batch, &attempt->stamp, &attempt->params);
    attempt_ask(attempt, STATEMENT_INGEST_REGISTER, attempt_register_cb);
    pg_tx_send(&attempt->tx, attempt_known);
}

static void
attempt_known(void *owner)
{
    struct attempt *attempt = owner;

    attempt_step(attempt, "known");
    if (batch_known_params(&attempt->batch, &attempt->params) == 0) {
        attempt_entities(attempt);
        return;
    }
    attempt_ask(attempt, STATEMENT_INGEST_KNOWN, attempt_known_cb);
    pg_tx_send(&attempt->tx, attempt_entities);
}


/* ---- rows that decide about others, and locks ------------------------- */

static bool
attempt_keys_are_settled(const struct batch *batch)
{
    for (size_t i = 0; i < batch->key_count; i++) {
        if (batch->by_key[i]->is_known == batch->by_key[i]->is_registered) {
            return false;
        }
    }
    return true;
}

/* Careful path: the rows of a phase that accepted items need. */
static bool
attempt_collect(struct attempt *attempt, enum projection_phase phase)
{
    if (!batch_collect(&attempt->batch, phase)) {
        attempt_fail(attempt, ATTEMPT_WAIT);
        return false;
    }
    return attempt_project(attempt, phase);
}

/* Careful path: verdicts first. False: it has failed, or there are no rows. */
static bool
attempt_careful_entities(struct attempt *attempt)
{
    if (!attempt_keys_are_settled(&attempt->batch)) {
        log_error("ingest", "a registered key was not found");
        attempt_fail(attempt, ATTEMPT_RETRY);
        return false;
    }
    batch_decide(&attempt->batch, attempt->last,
                 batch_stamp_clock(&attempt->stamp));
    return attempt_collect(attempt, PROJECTION_STATES);
}

static void
attempt_entities(void *owner)
{
    struct attempt *attempt = owner;
    bool has_rows;

    attempt_step(attempt, "entities");
    has_rows = attempt->is_careful ? attempt_careful_entities(attempt)
                                   : attempt->has_states;
    if (has_rows && !attempt->is_careful) {
        CHECK(attempt_project(attempt, PROJECTION_STATES));
    }
    if (has_rows) {
        pg_tx_send(&attempt->tx, attempt_entities_done);
    } else if (!attempt->is_careful) {
        attempt_ledger(attempt);
    } else if (!attempt_has_failed(attempt)) {
        attempt_locks(attempt);
    }
}

static void
attempt_entities_done(void *owner)
{
    struct attempt *attempt = owner;

    CRASH_POINT("after_entities");
    if (attempt->is_careful) {
        attempt_locks(attempt);
        return;
    }
    attempt_stamp_raise(attempt);
    attempt_fold(attempt);
    if (!attempt_has_failed(attempt)) {
        attempt_ledger(attempt);
    }
}

static void
attempt_locks(struct attempt *attempt)
{
    attempt_step(attempt, "locks");
    if (attempt_collect(attempt, PROJECTION_LOCK)) {
        pg_tx_send(&attempt->tx, attempt_locks_done);
    } else if (!attempt_has_failed(attempt)) {
        attempt_locks_done(attempt);
    }
}

/*
 * Every event is applied one by one. Events that a projection cannot take are
 * rejected, and the next attempt goes without them.
 */
static void
attempt_locks_done(void *owner)
{
    struct attempt *attempt = owner;
    struct projection_stamp stamp;
    size_t rejected;

    attempt_stamp_raise(attempt);
    stamp = attempt_stamp(attempt);
    if (!batch_apply(&attempt->batch, &stamp, &rejected)) {
        log_error("ingest", "a row that an event changes is not locked");
        attempt_fail(attempt, ATTEMPT_WAIT);
    } else if (rejected > 0) {
        log_warn("ingest", "projections cannot take events; they are rejected",
                 log_int("count", (int64_t)rejected));
        attempt_fail(attempt, ATTEMPT_AGAIN);
    }
    if (!attempt_has_failed(attempt)) {
        attempt_ledger(attempt);
    }
}


/* ---- ledger and audit ------------------------------------------------- */

static void
attempt_ledger_cb(void *owner, const void *result)
{
    (void)owner;
    (void)result;
    CRASH_POINT("after_ledger");
}

static void
attempt_ledger(void *owner)
{
    struct attempt *attempt = owner;

    attempt_step(attempt, "ledger");
    if (attempt->batch.accepted_count == 0) {
        attempt_audit(attempt);
    } else if (attempt->is_insert) {
        batch_event_params(&attempt->batch, &attempt->stamp, &attempt->params);
        attempt_ask(attempt, STATEMENT_INGEST_EVENT_INSERT, attempt_ledger_cb);
        attempt_audit(attempt);
    } else {
        attempt_ledger_prepare(attempt);
        attempt_copy(attempt, STATEMENT_COPY_EVENT, &attempt->event_stream,
                     attempt_ledger_cb, attempt_audit);
    }
}

static void
attempt_audit_cb(void *owner, const void *result)
{
    (void)owner;
    (void)result;
    CRASH_POINT("after_audit");
}

/* A stream that ends too early is rolled back, whatever the server says. */
static struct meter_str
attempt_audit_piece(void *owner)
{
    struct attempt *attempt = owner;

    batch_audit_copy(&attempt->batch, &attempt->stamp, &attempt->audit_at,
                     &attempt->audit_stream);
    if (attempt->audit_stream.failed) {
        attempt_fail(attempt, ATTEMPT_WAIT);
        return (struct meter_str){NULL, 0};
    }
    return buf_str(&attempt->audit_stream);
}

static void
attempt_audit(void *owner)
{
    struct attempt *attempt = owner;

    attempt_step(attempt, "audit");
    if (attempt->batch.audited_count == 0) {
        attempt_effects(attempt);
    } else if (attempt->is_insert) {
        batch_audit_params(&attempt->batch, &attempt->stamp, &attempt->params);
        attempt_ask(attempt, STATEMENT_INGEST_AUDIT_INSERT, attempt_audit_cb);
        attempt_effects(attempt);
    } else {
        attempt->audit_at = 0;
        pg_tx_copy_pieces(&attempt->tx, STATEMENT_COPY_AUDIT,
                          attempt_audit_piece, attempt_audit_cb);
        pg_tx_send(&attempt->tx, attempt_effects);
    }
}


/* ---- effects and COMMIT ----------------------------------------------- */

static void
attempt_advanced_cb(void *owner, const void *result)
{
    (void)owner;
    CHECK(pg_affected(result) == 1);
}

/*
 * COMMIT may share the round trip of the writer's numbers and the sessions'
 * rows alone. Anything else could fail or be counted short, and that must be
 * known while a ROLLBACK is still possible.
 */
static void
attempt_effects(void *owner)
{
    struct attempt *attempt = owner;
    bool is_alone = attempt->tx.answers_due == 1; /* the step being made */

    attempt_step(attempt, "effects");
    attempt_fold(attempt);
    if (attempt_has_failed(attempt)) {
        return;
    }
    is_alone &= !attempt_project(
        attempt, attempt->is_careful ? PROJECTION_WRITE : PROJECTION_APPLY);
    attempt_rings_advance(attempt);
    is_alone &= attempt->batch.rings.dead_count == 0 &&
                attempt->batch.rings.loss_count == 0;
    pg_params_reset(&attempt->params);
    pg_param_uuid(&attempt->params, attempt->stamp.writer);
    pg_param_int8(&attempt->params,
                  attempt->last + (int64_t)attempt->batch.accepted_count);
    pg_param_int8(&attempt->params, attempt->stamp.batch);
    pg_param_time(&attempt->params, attempt->stamp.now_us);
    pg_param_time(&attempt->params, attempt->stamp.recorded_us);
    attempt_ask(attempt, STATEMENT_INGEST_SEQ_ADVANCE, attempt_advanced_cb);
    if (is_alone) {
        attempt_commit(attempt);
    } else {
        pg_tx_send(&attempt->tx, attempt_commit);
    }
}

static void
attempt_commit(void *owner)
{
    struct attempt *attempt = owner;

    attempt_step(attempt, "commit");
    CRASH_POINT("before_commit");
    pg_tx_commit(&attempt->tx);
    CRASH_POINT("after_commit_sent");
}
