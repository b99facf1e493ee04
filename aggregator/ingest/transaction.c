/*
 * transaction.c - takes events through PostgreSQL, whatever it takes.
 *
 *   ingest -> [transaction] -> partitions -> attempt -> decided
 *                  ^                            |
 *                  +--- pause, halves, care <---+ failed
 *
 *   error:             a remedy is chosen when it comes, then again (PAUSE
 *                      when told to wait)
 *   loss:              AWAY until the lane is back, then again
 *   loss after COMMIT: DOUBT until the lane is back; its batch number says
 *                      whether the transaction committed
 *
 * The items of a run lie on a stack of cuts, the next one on top. A data error
 * cuts the top into halves; everything else runs it again as it is.
 */

#include "ingest/transaction.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "ingest/attempt.h"

#include <stdlib.h>

/* Halves of halves: enough for any batch that fits into memory. */
#define CUTS_MAX 64
/* Up to here INSERT in three round trips: as fast as COPY on the same host,
   and faster over a network. */
#define INSERT_EVENTS_MAX 8
/* A careful attempt asks once per tenant, in one flush. */
#define CAREFUL_EVENTS_MAX 4096
#define REPARTITION_MAX    3
#define DAYS_AT_ONCE       32

enum transaction_state {
    TRANSACTION_IDLE,       /* nothing to do */
    TRANSACTION_PARTITIONS, /* waits for days of the ledger and the audit */
    TRANSACTION_RUNNING,    /* an attempt is under way */
    TRANSACTION_PAUSE,      /* waits for its timer, then runs again */
    TRANSACTION_AWAY,       /* waits for the lane, then runs again */
    TRANSACTION_DOUBT       /* waits for the lane, which knows the outcome */
};

enum transaction_path {
    PATH_FAST,   /* may skip asking for known keys, see lookup_skip.h */
    PATH_ASKING, /* fast, but asks in any case */
    PATH_CAREFUL
};

/* A stretch of the items that is one attempt. */
struct transaction_cut {
    struct batch_item **items;
    size_t count;
    enum transaction_path path;
};

struct transaction {
    struct lane *lane;
    struct partition *partition;
    struct poison *poison; /* NULL: crashes are not looked into */
    const struct transaction_events *events;
    void *owner;

    enum transaction_state state;
    struct transaction_cut cuts[CUTS_MAX]; /* next one last */
    size_t cut_count;
    struct lookup_skip skip;
    struct attempt attempt;

    bool is_ahead;         /* told: the order is ahead of the clock */
    unsigned repartitions; /* in a row */
    uint64_t pause_ms;
    bool is_able;
    struct log_repeat said; /* why it is not */
    uint64_t tried_us;      /* when the try under way began */
    uint64_t started_us;    /* the same, after partitions */
    bool is_refresh_due;    /* partitions: read them again first */

    uv_timer_t timer;      /* the pause */
    bool is_partition_due; /* a partition callback is outstanding */
    bool is_closing;
    int handles; /* timers that are not closed yet */
};

static void transaction_start(struct transaction *tx);


static struct transaction_cut *
transaction_cut(struct transaction *tx)
{
    CHECK(tx->cut_count > 0);
    return &tx->cuts[tx->cut_count - 1];
}

/* A mark on the record in hand, while our code works on it. */
static void
transaction_mark(struct transaction *tx)
{
    const struct transaction_cut *cut;
    const struct batch_record *record;

    if (tx->poison == NULL || !poison_is_cautious(tx->poison)) {
        return;
    }
    if (tx->state != TRANSACTION_PARTITIONS &&
        tx->state != TRANSACTION_RUNNING) {
        poison_clear(tx->poison, POISON_STORE);
        return;
    }
    cut = transaction_cut(tx);
    record = cut->items[0]->record;
    if (cut->count == 1 && record != NULL && record->kind != BATCH_HELLO) {
        poison_mark(tx->poison, POISON_STORE, record->ring->session,
                    (uint64_t)record->seq);
    }
}

static void
transaction_set_state(struct transaction *tx, enum transaction_state state)
{
    tx->state = state;
    transaction_mark(tx);
}

static void
transaction_set_able(struct transaction *tx, bool is_able)
{
    if (tx->is_able == is_able) {
        return;
    }
    tx->is_able = is_able;
    if (is_able) {
        log_repeat_forget(&tx->said);
        log_info("ingest", "transactions go through again");
    } else {
        log_warn("ingest", "transactions do not go through; events wait",
                 log_str("step", tx->attempt.step),
                 log_str("sqlstate", tx->attempt.tx.failure.sqlstate));
    }
}


/* ---- what the next attempt does differently --------------------------- */

/* The top cut becomes its second half, the first half goes on top of it. */
static void
transaction_halve(struct transaction *tx)
{
    struct transaction_cut *cut = transaction_cut(tx);
    size_t half = cut->count / 2;

    CHECK(tx->cut_count < CUTS_MAX && half > 0);
    cut[1] = *cut;
    cut[1].count = half;
    cut[0].items += half;
    cut[0].count -= half;
    tx->cut_count++;
}

static void
transaction_plan_wait(struct transaction *tx)
{
    transaction_set_able(tx, false);
    tx->pause_ms = pg_tx_back_off_ms(&tx->attempt.tx);
}

/* What is left of a lone item that cannot be rejected any more is not data:
   a dead letter or a session's row. It waits for someone to look. */
static void
transaction_plan_reject(struct transaction *tx, struct batch_item *item)
{
    const char *sqlstate = tx->attempt.tx.failure.sqlstate;

    if (item->event == NULL || item->error != NULL) {
        log_error("ingest", "the database refuses the books of a ring",
                  log_str("sqlstate", sqlstate));
        transaction_plan_wait(tx);
        return;
    }
    log_error("ingest", "the database refuses an event",
              log_bytes("tenant", item->event->tenant),
              log_bytes("eventId", item->event->event_id),
              log_str("sqlstate", sqlstate));
    batch_item_reject(
        item, "the database cannot store this event (SQLSTATE %s)", sqlstate);
}

static void
transaction_plan_bisect(struct transaction *tx)
{
    struct transaction_cut *cut = transaction_cut(tx);

    if (cut->count == 1) {
        transaction_plan_reject(tx, cut->items[0]);
        return;
    }
    metrics.edgemeter_batches_bisected_total++;
    cut->path = PATH_ASKING;
    transaction_halve(tx);
}

/* Of the failed attempt; sets a pause, or changes the top cut. */
static void
transaction_plan(struct transaction *tx)
{
    tx->pause_ms = 0;
    switch ((enum attempt_remedy)tx->attempt.tx.failure.remedy) {
    case ATTEMPT_AGAIN: break;
    case ATTEMPT_RETRY: tx->pause_ms = pg_tx_retry_ms(); break;
    case ATTEMPT_ASK: transaction_cut(tx)->path = PATH_ASKING; break;
    case ATTEMPT_CAREFUL: transaction_cut(tx)->path = PATH_CAREFUL; break;
    case ATTEMPT_BISECT: transaction_plan_bisect(tx); break;
    case ATTEMPT_REPARTITION:
        tx->is_refresh_due = true;
        if (tx->repartitions++ >= REPARTITION_MAX) {
            transaction_plan_wait(tx);
        }
        break;
    case ATTEMPT_WAIT: transaction_plan_wait(tx); break;
    }
}

/* Only SQL_DATA may end in a rejected event. */
static enum attempt_remedy
transaction_remedy(struct transaction *tx, const struct pg_answer *answer)
{
    bool is_careful = tx->attempt.is_careful;
    bool is_range = strcmp(answer->sqlstate, "22003") == 0;

    switch (answer->kind) {
    case SQL_UNIQUE:
        if (tx->attempt.is_skipping) {
            lookup_skip_failed(&tx->skip);
            return ATTEMPT_ASK;
        }
        return is_careful ? ATTEMPT_RETRY : ATTEMPT_CAREFUL;
    case SQL_NO_PARTITION: return ATTEMPT_REPARTITION;
    case SQL_DATA:
        return is_range && !is_careful ? ATTEMPT_CAREFUL : ATTEMPT_BISECT;
    case SQL_RETRY: return ATTEMPT_RETRY;
    case SQL_REDO_CAREFUL: return is_careful ? ATTEMPT_WAIT : ATTEMPT_CAREFUL;
    case SQL_AWAY:
    case SQL_BUG: break;
    }
    return ATTEMPT_WAIT;
}


/* ---- ends ------------------------------------------------------------- */

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
    tx->repartitions = 0;
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
transaction_ahead_tell(struct transaction *tx)
{
    int64_t ahead_us = tx->attempt.stamp.recorded_us - lane_now_us(tx->lane);
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
    const struct attempt *attempt = &tx->attempt;
    struct transaction_commit commit = {
        .last = attempt->last + (int64_t)attempt->batch.accepted_count,
        .recorded_us = attempt->stamp.recorded_us,
        .clock_us = batch_stamp_clock(&attempt->stamp),
    };

    memcpy(commit.writer, attempt->stamp.writer, sizeof(commit.writer));
    transaction_ahead_tell(tx);
    metrics.edgemeter_batches_committed_total++;
    metrics.edgemeter_batch_events_total += (int64_t)attempt->batch.count;
    metrics.edgemeter_commit_microseconds_total +=
        (int64_t)(clock_mono_us() - tx->started_us);
    metrics.counter_update_success_total +=
        (int64_t)projections[PROJECTION_COUNTERS]->changed(
            attempt->batch.rows[PROJECTION_COUNTERS]);
    if (attempt->is_skipping) {
        lookup_skip_held(&tx->skip);
    }
    transaction_set_able(tx, true);
    CRASH_POINT("after_commit");
    transaction_decided(tx, &commit);
}

static void
transaction_pause_cb(uv_timer_t *timer)
{
    struct transaction *tx = timer->data;

    CHECK(tx->state == TRANSACTION_PAUSE);
    transaction_start(tx);
}

/* Waits for pause_ms, then starts. */
static void
transaction_pause(struct transaction *tx)
{
    uint64_t pause_ms = tx->pause_ms;

    tx->pause_ms = 0;
    if (pause_ms == 0) {
        transaction_start(tx);
        return;
    }
    transaction_set_state(tx, TRANSACTION_PAUSE);
    CHECK(uv_timer_start(&tx->timer, transaction_pause_cb, pause_ms, 0) == 0);
}

static void
transaction_away(struct transaction *tx)
{
    transaction_set_able(tx, false);
    transaction_set_state(tx, TRANSACTION_AWAY);
}

/* Whether the transaction committed can only be asked of the lane. */
static void
transaction_doubt(struct transaction *tx)
{
    metrics.edgemeter_commits_unknown_total++;
    log_warn("ingest", "outcome of a COMMIT is unknown; it will be looked up",
             log_int("batch", tx->attempt.stamp.batch));
    transaction_set_able(tx, false);
    transaction_set_state(tx, TRANSACTION_DOUBT);
}

static void
transaction_free_if_done(struct transaction *tx)
{
    if (tx->is_closing && tx->handles == 0 && !tx->is_partition_due &&
        pg_tx_is_idle(&tx->attempt.tx)) {
        attempt_fini(&tx->attempt);
        free(tx);
    }
}

static void
transaction_step_cb(void *owner)
{
    transaction_mark(owner);
}

static void
transaction_error_cb(void *owner, const struct pg_answer *answer)
{
    struct transaction *tx = owner;

    tx->attempt.tx.failure.remedy = transaction_remedy(tx, answer);
    if (answer->kind == SQL_UNIQUE || answer->kind == SQL_RETRY) {
        metrics.counter_update_conflict_retries++;
    } else if (log_repeat_is_due(&tx->said, answer->message, clock_mono_ms()) ||
               tx->is_able || answer->kind == SQL_DATA) {
        log_warn("ingest", "a statement failed",
                 log_str("step", tx->attempt.step),
                 log_str("sqlstate", answer->sqlstate),
                 log_str("kind", sqlstate_kind_name(answer->kind)),
                 log_str("error", answer->message));
    }
}

static void
transaction_end_cb(void *owner, enum pg_tx_end end)
{
    struct transaction *tx = owner;

    if (tx->is_closing) {
        transaction_free_if_done(tx);
        return;
    }
    switch (end) {
    case PG_TX_COMMITTED: transaction_committed(tx); return;
    case PG_TX_DOUBT: transaction_doubt(tx); return;
    case PG_TX_FAILED:
        transaction_plan(tx);
        transaction_pause(tx);
        return;
    case PG_TX_LOST:
        if (tx->attempt.tx.is_failed) {
            transaction_plan(tx);
        }
        transaction_away(tx);
        return;
    case PG_TX_ROLLED_BACK: CHECK(false);
    }
}


/* ---- days and their partitions ---------------------------------------- */

static void
transaction_partition_cb(void *arg, bool made)
{
    struct transaction *tx = arg;

    tx->is_partition_due = false;
    if (tx->is_closing) {
        transaction_free_if_done(tx);
        return;
    }
    CHECK(tx->state == TRANSACTION_PARTITIONS);
    if (made) {
        transaction_start(tx);
    } else {
        transaction_plan_wait(tx);
        transaction_pause(tx);
    }
}

static size_t
transaction_days_add(int32_t *days, size_t count, int32_t day)
{
    for (size_t i = 0; i < count; i++) {
        if (days[i] == day) {
            return count;
        }
    }
    days[count] = day;
    return count + 1;
}

/*
 * Days of the parent that items need and that do not exist. Few at a time:
 * hostile timestamps may ask for many.
 */
static size_t
transaction_days_missing(const struct transaction *tx,
                         enum partition_parent parent,
                         int32_t missing[DAYS_AT_ONCE])
{
    const struct batch *batch = &tx->attempt.batch;
    int32_t known = INT32_MIN;
    size_t count = 0;

    for (size_t i = 0; i < batch->count && count < DAYS_AT_ONCE; i++) {
        const struct batch_item *item = batch->items[i];

        if (item->event == NULL || item->part_day == known ||
            (parent == PARTITION_INDEX &&
             (item->effects.of[PROJECTION_INDEX] == NULL ||
              item->part_day < tx->attempt.stamp.index_floor))) {
            continue;
        }
        known = item->part_day;
        if (!partition_exists(tx->partition, parent, known)) {
            count = transaction_days_add(missing, count, known);
        }
    }
    return count;
}

static void
transaction_days_give(struct transaction *tx)
{
    struct attempt *attempt = &tx->attempt;
    int64_t now_us = lane_now_us(tx->lane);

    attempt->event_floor_day =
        partition_floor_day(tx->partition, PARTITION_EVENT, now_us);
    attempt->stamp.audit_day =
        partition_day(tx->partition, PARTITION_AUDIT, now_us, now_us);
    attempt->stamp.index_floor =
        partition_floor_day(tx->partition, PARTITION_INDEX, now_us);
    for (size_t i = 0; i < attempt->batch.count; i++) {
        struct batch_item *item = attempt->batch.items[i];

        if (item->event != NULL) {
            item->part_day = partition_day(tx->partition, PARTITION_EVENT,
                                           item->event->ts_us, now_us);
        }
    }
}

/* True: all days have partitions. Else they are made, and it starts again. */
static bool
transaction_days(struct transaction *tx)
{
    int32_t missing[DAYS_AT_ONCE];
    enum partition_parent parent = PARTITION_EVENT;
    size_t count;

    transaction_days_give(tx);
    count = transaction_days_missing(tx, parent, missing);
    if (count == 0) {
        parent = PARTITION_INDEX;
        count = transaction_days_missing(tx, parent, missing);
    }
    if (count == 0 && !partition_exists(tx->partition, PARTITION_AUDIT,
                                        tx->attempt.stamp.audit_day)) {
        parent = PARTITION_AUDIT;
        missing[count++] = tx->attempt.stamp.audit_day;
    }
    if (count == 0) {
        return true;
    }
    tx->is_partition_due = true;
    partition_make(tx->partition, parent, missing, count,
                   transaction_partition_cb, tx);
    return false;
}


/* ---- the beginning of a try ------------------------------------------- */

/* Records of rings move their session, whatever becomes of them; of a dead
   letter that is rejected again nothing moves. */
static bool
transaction_cut_is_rejected(const struct transaction_cut *cut)
{
    for (size_t i = 0; i < cut->count; i++) {
        const struct batch_item *item = cut->items[i];

        if (item->error == NULL ||
            (item->record != NULL && !item->record->ring->is_letters)) {
            return false;
        }
    }
    return true;
}

/* Everything is there: the attempt begins. */
static void
transaction_attempt(struct transaction *tx)
{
    const struct transaction_cut *cut = transaction_cut(tx);
    struct attempt *attempt = &tx->attempt;

    attempt->is_careful = cut->path == PATH_CAREFUL;
    attempt->is_insert =
        cut->count <= INSERT_EVENTS_MAX || !lane_can_copy(tx->lane);
    attempt->is_skipping = cut->path == PATH_FAST && !attempt->is_insert &&
                           attempt->batch.key_count > 0 &&
                           lookup_skip_allows(&tx->skip);
    metrics.edgemeter_batches_careful_total += attempt->is_careful;
    CRASH_POINT("before_begin");
    tx->started_us = clock_mono_us();
    transaction_set_state(tx, TRANSACTION_RUNNING);
    attempt_begin(attempt);
}

/* One try of the top cut, from the beginning. */
static void
transaction_start(struct transaction *tx)
{
    struct transaction_cut *cut = transaction_cut(tx);

    tx->tried_us = clock_mono_us();
    if (transaction_cut_is_rejected(cut)) {
        transaction_decided(tx, NULL);
        return;
    }
    if (!lane_is_ready(tx->lane)) {
        transaction_away(tx);
        return;
    }
    if (batch_needs_care(cut->items, cut->count)) {
        cut->path = PATH_CAREFUL;
    }
    while (cut->path == PATH_CAREFUL && cut->count > CAREFUL_EVENTS_MAX) {
        transaction_halve(tx);
        cut = transaction_cut(tx);
    }
    transaction_set_state(tx, TRANSACTION_PARTITIONS);
    if (tx->is_refresh_due) {
        tx->is_refresh_due = false;
        tx->is_partition_due = true;
        partition_refresh(tx->partition, transaction_partition_cb, tx);
        return;
    }
    if (!partition_is_ready(tx->partition) ||
        !batch_load(&tx->attempt.batch, cut->items, cut->count)) {
        transaction_plan_wait(tx);
        transaction_pause(tx);
        return;
    }
    if (transaction_days(tx)) {
        transaction_attempt(tx);
    }
}


/* ---- for ingest and the lane ------------------------------------------ */

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
    attempt_trim(&tx->attempt);
}

void
transaction_run(struct transaction *tx, struct batch_item **items, size_t count)
{
    CHECK(tx->state == TRANSACTION_IDLE && tx->cut_count == 0 && count > 0);
    tx->cuts[tx->cut_count++] =
        (struct transaction_cut){.items = items, .count = count};
    transaction_start(tx);
}

void
transaction_lane_ready(struct transaction *tx, int64_t batch)
{
    int64_t expected = tx->attempt.stamp.batch;

    if (tx->state == TRANSACTION_AWAY) {
        transaction_start(tx);
    } else if (tx->state == TRANSACTION_DOUBT) {
        log_info("ingest", "outcome of the COMMIT looked up",
                 log_bool("committed", batch == expected),
                 log_int("expected", expected), log_int("batch", batch));
        if (batch == expected) {
            transaction_committed(tx);
        } else {
            transaction_start(tx);
        }
    }
}

/*
 * The server's warning comes before the answer to the COMMIT, which then
 * counts for nothing: the lane's next commit proves the replication.
 */
void
transaction_not_replicated(struct transaction *tx)
{
    pg_tx_doubt(&tx->attempt.tx);
}

/* Tests do not wait that long. */
static int64_t
transaction_clock_margin_us(void)
{
    const char *text = getenv("METERD_TEST_CLOCK_MARGIN_MS");

    return text == NULL || *text == '\0' ? PROJECTION_CLOCK_MARGIN_US
                                         : strtol(text, NULL, 10) * 1000;
}

struct transaction *
transaction_create(uv_loop_t *loop, struct lane *lane,
                   struct partition *partition, struct poison *poison,
                   const struct transaction_events *events, void *owner)
{
    static const struct attempt_events attempt_events = {
        .on_step = transaction_step_cb,
        .on_error = transaction_error_cb,
        .on_end = transaction_end_cb,
    };
    struct transaction *tx = memory_alloc(sizeof(*tx));
    const char *unsorted = getenv("METERD_TEST_UNSORTED");

    tx->lane = lane;
    tx->partition = partition;
    tx->poison = poison;
    tx->events = events;
    tx->owner = owner;
    tx->is_able = true;
    projection_is_unsorted = unsorted != NULL && strcmp(unsorted, "1") == 0;
    lookup_skip_init(&tx->skip);
    attempt_init(&tx->attempt, loop, lane, &attempt_events, tx);
    tx->attempt.skip = &tx->skip;
    tx->attempt.clock_margin_us = transaction_clock_margin_us();
    CHECK(uv_timer_init(loop, &tx->timer) == 0);
    tx->timer.data = tx;
    tx->handles = 2;
    return tx;
}

static void
transaction_closed_cb(uv_handle_t *handle)
{
    struct transaction *tx = handle->data;

    tx->handles--;
    transaction_free_if_done(tx);
}

void
transaction_destroy(struct transaction *tx)
{
    if (tx == NULL) {
        return;
    }
    tx->is_closing = true;
    tx->poison = NULL;
    tx->attempt.timer.data = tx;
    uv_close((uv_handle_t *)&tx->attempt.timer, transaction_closed_cb);
    uv_close((uv_handle_t *)&tx->timer, transaction_closed_cb);
}
