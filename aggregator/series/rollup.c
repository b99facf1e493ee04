/*
 * rollup.c - the levels above 5s, computed again from the one below.
 *
 *   [look] -> 1m: batch, batch, ... -> 1h -> 1d -> 7d -> [look] -> idle
 *
 *   batch: BEGIN; writer FOR SHARE; floors FOR SHARE; take marks
 *          -> partitions missing: ROLLBACK, make them, sweep again
 *          make and lock the buckets; mark the level above; recompute
 *          delete those that have nothing below; COMMIT
 *
 * A job of the engine. A mark says that a bucket has to be computed again. A
 * sweep looks which levels have marks and goes through them upwards; several
 * meterd sweep at once. The marks are taken before the level below is read,
 * and it is read under the locks of its buckets: whoever commits children
 * later has marks that stay, and of two that compute the same bucket the
 * second one reads all that the first one has. Whatever fails or ends in an
 * unknown COMMIT has left either the marks or the buckets, so that the next
 * sweep sees what is to be done.
 */

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "pg/selftest.h"
#include "pg/tx.h"
#include "series/rollup_batch.h"
#include "series/series_engine.h"

#include <stdlib.h>

#define DATA_TRIES    3
#define BATCHES_MAX   20 /* of a level, then those above have their turn */
#define LOOK_MARKS    10000
#define SWEEP_MS      3000
#define DAYS_AT_ONCE  32
#define FLOOR_UNKNOWN INT64_MAX

/*
 * As a lane's, but planned for each batch: the planner sees the range of
 * buckets, and opens no partition outside of it.
 */
#define ROLLUP_SETTINGS                                   \
    "enable_seqscan=off enable_hashjoin=off"              \
    " enable_mergejoin=off enable_bitmapscan=off jit=off" \
    " plan_cache_mode=force_custom_plan"

/* Marks that one transaction takes. */
#define ROLLUP_BATCH_MARKS 5000
/* More than that is no matter of single marks. */
#define ROLLUP_QUARANTINE_MAX 100
#define ROLLUP_QUARANTINE_MS  (10 * 60 * 1000)

/* Of each level, by what it is computed from. */
#define ROLLUP_STATEMENTS(name)                   \
    {                                             \
        [METER_LEVEL_1M] = STATEMENT_##name##_5S, \
        [METER_LEVEL_1H] = STATEMENT_##name##_1M, \
        [METER_LEVEL_1D] = STATEMENT_##name##_1H, \
        [METER_LEVEL_7D] = STATEMENT_##name##_1D, \
    }
static const enum statement rollup_ensure[] = ROLLUP_STATEMENTS(SERIES_ENSURE);
static const enum statement rollup_recompute[] =
    ROLLUP_STATEMENTS(SERIES_RECOMPUTE);
static const enum statement rollup_empty_delete[] =
    ROLLUP_STATEMENTS(SERIES_EMPTY_DELETE);

/* Marks that are passed over, because the database refuses their data. */
struct rollup_quarantine {
    size_t limit;      /* marks of a batch */
    unsigned failures; /* in a row, of whole batches */
    uint64_t since_ms; /* the first one is in it */
    int64_t ids[ROLLUP_QUARANTINE_MAX];
    size_t count;
};

enum rollup_quarantine_step {
    ROLLUP_AGAIN,      /* the same batch */
    ROLLUP_SMALLER,    /* a part of it */
    ROLLUP_QUARANTINED /* the mark is passed over from now on */
};

enum rollup_state {
    ROLLUP_IDLE,    /* for a wake, the timer or the connection */
    ROLLUP_RUNNING, /* for an answer */
    ROLLUP_MAKING,  /* for partitions */
    ROLLUP_RESTING  /* after a failure, for the timer */
};

struct rollup {
    struct pg_conn *conn;
    struct lane *lane;
    struct partition *partition;
    uv_timer_t timer;
    enum rollup_state state;
    bool is_woken; /* a sweep is due */
    bool is_stopped;
    bool is_partition_due; /* its callback is still to come */
    bool is_closing;
    bool is_closed;

    struct pg_tx look;
    enum meter_level level;      /* that is swept */
    bool due[METER_LEVEL_COUNT]; /* levels with marks */
    unsigned batches;            /* of the level, in this sweep */
    bool is_last_look;           /* for the metrics alone */

    struct pg_tx tx; /* of a batch */
    struct pg_params params;
    struct rollup_batch batch;
    int64_t floor_us;              /* of the level below */
    size_t taken;                  /* marks */
    bool is_careful;               /* it may pass marks over */
    int64_t taken_id;              /* then: of the first mark */
    int64_t empty;                 /* buckets that have nothing below */
    int32_t missing[DAYS_AT_ONCE]; /* days without a partition */
    size_t missing_count;
    struct rollup_quarantine quarantine;
};


/* ---- marks that cannot be worked off ---------------------------------- */

/*
 *   batch refused -> [failed] -> again, a smaller batch, ... one mark alone
 *   batch done    -> [done]   -> twice as large
 *
 * Where the database refuses the data of a batch, no later try ends
 * otherwise. After some of them batches become smaller until one mark alone
 * is refused; it is passed over, stays in the table, and is tried again
 * after ROLLUP_QUARANTINE_MS. So nothing is lost, retention keeps what it
 * needs, and its age is seen in the lag.
 */
static void
rollup_quarantine_init(struct rollup_quarantine *quarantine)
{
    quarantine->limit = ROLLUP_BATCH_MARKS;
    quarantine->failures = 0;
    quarantine->count = 0;
}

static bool
rollup_quarantine_is_careful(const struct rollup_quarantine *quarantine)
{
    return quarantine->limit < ROLLUP_BATCH_MARKS || quarantine->count > 0;
}

static enum rollup_quarantine_step
rollup_quarantine_failed(struct rollup_quarantine *quarantine, size_t taken,
                         int64_t id, uint64_t now_ms)
{
    if (++quarantine->failures < DATA_TRIES) {
        return ROLLUP_AGAIN;
    }
    /* The next one is alone for sure only when it was asked for alone. */
    if (taken > 1 || quarantine->limit > 1) {
        quarantine->limit = taken > 1 ? taken / 2 : 1;
        return ROLLUP_SMALLER;
    }
    if (quarantine->count == ROLLUP_QUARANTINE_MAX) {
        return ROLLUP_AGAIN;
    }
    if (quarantine->count == 0) {
        quarantine->since_ms = now_ms;
    }
    quarantine->ids[quarantine->count++] = id;
    return ROLLUP_QUARANTINED;
}

static void
rollup_quarantine_done(struct rollup_quarantine *quarantine)
{
    size_t twice = 2 * quarantine->limit;

    quarantine->limit = twice < ROLLUP_BATCH_MARKS ? twice : ROLLUP_BATCH_MARKS;
    if (quarantine->limit == ROLLUP_BATCH_MARKS) {
        quarantine->failures = 0;
    }
}

static void
rollup_quarantine_retry(struct rollup_quarantine *quarantine, uint64_t now_ms)
{
    if (quarantine->count > 0 &&
        now_ms >= quarantine->since_ms + ROLLUP_QUARANTINE_MS) {
        quarantine->count = 0;
    }
}


/* ---- one batch -------------------------------------------------------- */

static void rollup_batch_done(struct rollup *rollup);
static void rollup_sweep(struct rollup *rollup);

static void
rollup_writer_rows(void *owner, const void *result)
{
    struct rollup *rollup = owner;
    int64_t epoch = pg_row_count(result) == 0 ? 0 : pg_get_int8(result, 0, 0);

    if (epoch != lane_epoch(rollup->lane)) {
        lane_fenced(rollup->lane, epoch);
    }
}

static void
rollup_floor_rows(void *owner, const void *result)
{
    struct rollup *rollup = owner;
    enum partition_parent below = PARTITION_SERIES + rollup->level - 1;
    const char *name = partition_parent_name(below);

    for (int row = 0; row < pg_row_count(result); row++) {
        struct meter_str parent = pg_get_bytes(result, row, 0);

        if (meter_str_equal(parent, (struct meter_str){name, strlen(name)})) {
            rollup->floor_us = pg_get_date(result, row, 1) * METER_TIME_DAY;
        }
    }
}

static void
rollup_mark_rows(void *owner, const void *result)
{
    struct rollup *rollup = owner;

    rollup->taken = (size_t)pg_row_count(result);
    if (rollup->taken > 0 && rollup->is_careful) {
        rollup->taken_id = pg_get_int8(result, 0, 6);
    }
    for (int row = 0; row < pg_row_count(result); row++) {
        struct rollup_mark mark = {
            .tenant = pg_get_bytes(result, row, 0),
            .series = pg_get_bytes(result, row, 1),
            .version = pg_get_int8(result, row, 2),
            .dimension_key = pg_get_bytes(result, row, 3),
            .bucket_us = pg_get_time(result, row, 4),
            .marked_us = pg_get_time(result, row, 5),
        };

        if (!rollup_batch_add(&rollup->batch, &mark)) {
            pg_tx_fail(&rollup->tx, 0, "out of memory");
            return;
        }
    }
}

/* Only where it is careful, some marks are passed over. */
static void
rollup_take_ask(struct rollup *rollup)
{
    const struct rollup_quarantine *quarantine = &rollup->quarantine;
    struct pg_params *params = &rollup->params;
    enum statement statement = STATEMENT_SERIES_DIRTY_TAKE;

    pg_params_reset(params);
    pg_param_int4(params, rollup->level);
    pg_param_int8(params, (int64_t)quarantine->limit);
    rollup->is_careful = rollup_quarantine_is_careful(quarantine);
    if (rollup->is_careful) {
        statement = STATEMENT_SERIES_DIRTY_TAKE_OTHERS;
        pg_param_array_begin(params, PG_INT8, quarantine->count);
        for (size_t i = 0; i < quarantine->count; i++) {
            pg_put_int8(&params->bytes, quarantine->ids[i]);
        }
        pg_param_array_end(params);
    }
    pg_tx_ask(&rollup->tx, statement, params, rollup_mark_rows);
}

static void rollup_taken(void *owner);

static void
rollup_batch_begin(struct rollup *rollup)
{
    rollup_batch_reset(&rollup->batch, rollup->level);
    rollup->floor_us = FLOOR_UNKNOWN;
    rollup->taken = 0;
    rollup->empty = 0;
    rollup->missing_count = 0;

    pg_tx_begin(&rollup->tx);
    pg_params_reset(&rollup->params);
    pg_param_uuid(&rollup->params, lane_writer(rollup->lane));
    pg_tx_ask(&rollup->tx, STATEMENT_INGEST_LOCK_WRITER, &rollup->params,
              rollup_writer_rows);
    pg_tx_ask(&rollup->tx, STATEMENT_ROLLUP_FLOORS, NULL, rollup_floor_rows);
    rollup_take_ask(rollup);
    pg_tx_send(&rollup->tx, rollup_taken);
}

/* Days of the batch that have no partition, DAYS_AT_ONCE at most. */
static void
rollup_missing_find(struct rollup *rollup)
{
    enum partition_parent parent = PARTITION_SERIES + rollup->level;
    const struct rollup_marks *buckets = &rollup->batch.buckets;
    int32_t known = INT32_MIN;

    for (size_t i = 0;
         i < buckets->count && rollup->missing_count < DAYS_AT_ONCE; i++) {
        int32_t day = meter_time_day(buckets->items[i].bucket_us);
        bool is_new = day != known;

        known = day;
        if (!is_new || partition_exists(rollup->partition, parent, day)) {
            continue;
        }
        for (size_t j = 0; j < rollup->missing_count && is_new; j++) {
            is_new = partition_first_day(parent, rollup->missing[j]) !=
                     partition_first_day(parent, day);
        }
        if (is_new) {
            rollup->missing[rollup->missing_count++] = day;
        }
    }
}

static void rollup_write(struct rollup *rollup);

static void
rollup_commit(struct rollup *rollup)
{
    CRASH_POINT("before_rollup_commit");
    pg_tx_commit(&rollup->tx);
}

/* Without marks there are none, or another instance has them in its hands. */
static void
rollup_taken(void *owner)
{
    struct rollup *rollup = owner;

    if (rollup->taken > 0 && rollup->floor_us == FLOOR_UNKNOWN) {
        log_error("rollup", "a level has no floor",
                  log_str("series_level", meter_level_name(rollup->level - 1)));
        pg_tx_fail(&rollup->tx, 0, "a level has no floor");
    }
    if (rollup->taken == 0 || rollup->tx.is_failed) {
        pg_tx_rollback(&rollup->tx);
        return;
    }
    rollup_batch_settle(&rollup->batch, rollup->floor_us);
    rollup_missing_find(rollup);
    if (rollup->missing_count > 0) {
        pg_tx_rollback(&rollup->tx);
    } else if (rollup->batch.buckets.count == 0) {
        rollup_commit(rollup); /* all are below the floor */
    } else {
        rollup_write(rollup);
    }
}

static void
rollup_empty_rows(void *owner, const void *result)
{
    struct rollup *rollup = owner;

    rollup->empty = pg_get_int8(result, 0, 0);
    CRASH_POINT("inside_rollup");
}

/* A statement for each series of a tenant. */
static void
rollup_computed(void *owner)
{
    struct rollup *rollup = owner;
    const struct rollup_marks *buckets = &rollup->batch.buckets;
    struct pg_params *params = &rollup->params;
    int64_t first_us;
    int64_t end_us;

    rollup_batch_range(&rollup->batch, &first_us, &end_us);
    for (size_t from = 0; rollup->empty > 0 && from < buckets->count;) {
        pg_params_reset(params);
        from = rollup_marks_put_series(buckets, from, params);
        pg_param_time(params, first_us);
        pg_param_time(params, end_us);
        pg_tx_ask(&rollup->tx, rollup_empty_delete[rollup->level], params,
                  NULL);
    }
    rollup_commit(rollup);
}

static void
rollup_write(struct rollup *rollup)
{
    const struct rollup_batch *batch = &rollup->batch;
    struct pg_params *params = &rollup->params;
    int64_t first_us;
    int64_t end_us;

    pg_params_reset(params);
    rollup_marks_put(&batch->buckets, params);
    pg_tx_ask(&rollup->tx, rollup_ensure[batch->level], params, NULL);
    if (batch->above.count > 0) {
        pg_params_reset(params);
        pg_param_int4(params, batch->level + 1);
        rollup_marks_put(&batch->above, params);
        rollup_marks_put_marked(&batch->above, params);
        pg_tx_ask(&rollup->tx, STATEMENT_SERIES_DIRTY_MARK, params, NULL);
    }
    pg_params_reset(params);
    rollup_marks_put(&batch->buckets, params);
    rollup_batch_put_ends(batch, params);
    rollup_batch_range(batch, &first_us, &end_us);
    pg_param_time(params, first_us);
    pg_param_time(params, end_us);
    pg_tx_ask(&rollup->tx, rollup_recompute[batch->level], params,
              rollup_empty_rows);
    pg_tx_send(&rollup->tx, rollup_computed);
}


/* ---- how it ended ----------------------------------------------------- */

static void rollup_timer_cb(uv_timer_t *timer);

static void
rollup_rest(struct rollup *rollup, struct pg_tx *failed)
{
    rollup->state = ROLLUP_RESTING;
    uv_timer_start(&rollup->timer, rollup_timer_cb, pg_tx_back_off_ms(failed),
                   SWEEP_MS);
}

static void
rollup_free_if_done(struct rollup *rollup)
{
    if (rollup->is_closed && !rollup->is_partition_due) {
        pg_tx_fini(&rollup->look);
        pg_tx_fini(&rollup->tx);
        pg_params_fini(&rollup->params);
        rollup_batch_fini(&rollup->batch);
        free(rollup);
    }
}

/* Whether or not the connection has gone meanwhile. */
static void
rollup_partitions_cb(void *asker, bool made)
{
    struct rollup *rollup = asker;

    rollup->is_partition_due = false;
    if (rollup->is_closing) {
        rollup_free_if_done(rollup);
    } else if (!made) {
        rollup_rest(rollup, &rollup->tx);
    } else {
        rollup->state = ROLLUP_IDLE;
        rollup_sweep(rollup);
    }
}

static void
rollup_partitions_make(struct rollup *rollup)
{
    rollup->state = ROLLUP_MAKING;
    rollup->is_partition_due = true;
    rollup->is_woken = true;
    if (rollup->missing_count > 0) {
        partition_make(rollup->partition, PARTITION_SERIES + rollup->level,
                       rollup->missing, rollup->missing_count,
                       rollup_partitions_cb, rollup);
    } else {
        partition_refresh(rollup->partition, rollup_partitions_cb, rollup);
    }
}

static void
rollup_failure_tell(const struct rollup *rollup, const struct pg_tx *failed,
                    const char *what)
{
    log_warn("rollup", what,
             log_str("series_level", meter_level_name(rollup->level)),
             log_str("sqlstate", failed->failure.sqlstate),
             log_str("reason", failed->failure.reason));
}

/* The data of the batch are refused: which of them is found by halves. */
static void
rollup_refused(struct rollup *rollup)
{
    const struct pg_tx_failure *failure = &rollup->tx.failure;
    const struct rollup_mark *mark = rollup->batch.buckets.items;
    char bucket[METER_TIME_TEXT_SIZE + 1];

    switch (rollup_quarantine_failed(&rollup->quarantine, rollup->taken,
                                     rollup->taken_id, clock_mono_ms())) {
    case ROLLUP_AGAIN:
        rollup_failure_tell(
            rollup, &rollup->tx,
            "the data of a batch are refused; it is done again");
        return;
    case ROLLUP_SMALLER: rollup->tx.tries = 0; return;
    case ROLLUP_QUARANTINED: break;
    }
    rollup->tx.tries = 0;
    meter_time_format(mark->bucket_us, bucket);
    log_error("rollup", "a bucket is refused and set aside; it stays marked",
              log_str("series_level", meter_level_name(rollup->level)),
              log_bytes("tenant", mark->tenant),
              log_bytes("series", mark->series), log_str("bucket", bucket),
              log_str("sqlstate", failure->sqlstate),
              log_str("reason", failure->reason));
}

/* After a loss the connection sweeps when it is ready. */
static void
rollup_failed(struct rollup *rollup, struct pg_tx *failed, enum pg_tx_end end)
{
    bool is_refused = failed == &rollup->tx && end == PG_TX_FAILED &&
                      failed->failure.kind == SQL_DATA && rollup->taken > 0;

    rollup->state = ROLLUP_IDLE;
    rollup->is_woken = true;
    if (rollup->is_closing) {
        return;
    }
    if (is_refused) {
        rollup_refused(rollup);
    } else if (failed->is_failed) {
        rollup_failure_tell(rollup, failed, "a batch failed; it is done again");
    }
    if (end == PG_TX_FAILED && failed->failure.kind == SQL_NO_PARTITION) {
        rollup_partitions_make(rollup);
    } else if (end == PG_TX_FAILED) {
        rollup_rest(rollup, failed);
    }
}

static void
rollup_batch_ended(void *owner, enum pg_tx_end end)
{
    struct rollup *rollup = owner;

    if (end == PG_TX_COMMITTED) {
        CRASH_POINT("after_rollup_commit");
        metrics.edgemeter_rollups_total += (int64_t)rollup->batch.buckets.count;
        rollup_batch_done(rollup);
    } else if (end != PG_TX_ROLLED_BACK) {
        rollup_failed(rollup, &rollup->tx, end);
    } else if (rollup->missing_count > 0) {
        rollup_partitions_make(rollup);
    } else {
        rollup_batch_done(rollup);
    }
}


/* ---- the sweep -------------------------------------------------------- */

static void
rollup_lag_rows(void *owner, const void *result)
{
    struct rollup *rollup = owner;
    int64_t marks = 0;
    int64_t lag_us = 0;

    memset(rollup->due, 0, sizeof(rollup->due));
    for (int row = 0; row < pg_row_count(result); row++) {
        int32_t level = pg_get_int4(result, row, 0);
        int64_t of_level = pg_get_int8(result, row, 1);

        CHECK(level > METER_LEVEL_5S && level < METER_LEVEL_COUNT);
        marks += of_level;
        rollup->due[level] = of_level > 0;
        if (of_level > 0) {
            int64_t age_us =
                pg_get_time(result, row, 3) - pg_get_time(result, row, 2);

            lag_us = age_us > lag_us ? age_us : lag_us;
        }
    }
    metrics.edgemeter_rollup_marks = marks;
    metrics.edgemeter_rollup_lag_seconds = lag_us / METER_TIME_SECOND;
}

static void
rollup_look(struct rollup *rollup)
{
    pg_params_reset(&rollup->params);
    pg_param_int8(&rollup->params, LOOK_MARKS);
    pg_tx_begin(&rollup->look);
    pg_tx_ask(&rollup->look, STATEMENT_ROLLUP_LAG, &rollup->params,
              rollup_lag_rows);
    pg_tx_commit(&rollup->look);
}

/* Begins one, if nothing is against it; else the timer asks again. */
static void
rollup_sweep(struct rollup *rollup)
{
    if (rollup->state != ROLLUP_IDLE || rollup->is_stopped ||
        !pg_conn_is_ready(rollup->conn) || lane_db_epoch(rollup->lane) == 0 ||
        !partition_is_ready(rollup->partition)) {
        return;
    }
    rollup->state = ROLLUP_RUNNING;
    rollup->is_woken = false;
    rollup->is_last_look = false;
    rollup->level = METER_LEVEL_5S;
    rollup_quarantine_retry(&rollup->quarantine, clock_mono_ms());
    metrics.edgemeter_rollup_asides = (int64_t)rollup->quarantine.count;
    rollup_look(rollup);
}

static void
rollup_sweep_done(struct rollup *rollup)
{
    rollup->state = ROLLUP_IDLE;
    if (rollup->is_woken) {
        rollup_sweep(rollup);
    }
}

/* The next level that has marks, or the end of the sweep. */
static void
rollup_level_next(struct rollup *rollup)
{
    bool had_batches = rollup->level != METER_LEVEL_5S;

    rollup->batches = 0;
    for (int level = rollup->level + 1; level < METER_LEVEL_COUNT; level++) {
        if (rollup->due[level] && !rollup->is_stopped) {
            rollup->level = level;
            rollup_batch_begin(rollup);
            return;
        }
    }
    if (had_batches) {
        rollup->is_last_look = true;
        rollup_look(rollup);
    } else {
        rollup_sweep_done(rollup);
    }
}

static void
rollup_looked(void *owner, enum pg_tx_end end)
{
    struct rollup *rollup = owner;

    if (end != PG_TX_COMMITTED) {
        rollup_failed(rollup, &rollup->look, end);
    } else if (rollup->is_last_look) {
        rollup_sweep_done(rollup);
    } else {
        metrics.edgemeter_rollup_sweeps_total++;
        rollup_level_next(rollup);
    }
}

/* It is committed, or there was none: taken says so. */
static void
rollup_batch_done(struct rollup *rollup)
{
    size_t limit = rollup->quarantine.limit; /* of this batch */

    if (rollup->taken > 0) {
        rollup_quarantine_done(&rollup->quarantine);
    }
    if (rollup->batch.above.count > 0) {
        rollup->due[rollup->level + 1] = true;
    }
    if (rollup->taken < limit) {
        rollup_level_next(rollup);
    } else if (++rollup->batches < BATCHES_MAX && !rollup->is_stopped) {
        rollup_batch_begin(rollup);
    } else {
        rollup->is_woken = true; /* there is more: sweep again */
        rollup_level_next(rollup);
    }
}


/* ---- as a job --------------------------------------------------------- */

/* Partitions that are being made go on without the connection. */
static void
rollup_conn_ready(void *owner)
{
    rollup_sweep(owner);
}

static void
rollup_timer_cb(uv_timer_t *timer)
{
    struct rollup *rollup = timer->data;

    if (rollup->state == ROLLUP_RESTING) {
        rollup->state = ROLLUP_IDLE;
    }
    rollup_sweep(rollup);
}

static void
rollup_wake(void *job)
{
    struct rollup *rollup = job;

    rollup->is_woken = true;
    rollup_sweep(rollup);
}

static void
rollup_stop(void *job)
{
    struct rollup *rollup = job;

    rollup->is_stopped = true;
}

static enum series_job_state
rollup_state(const void *job)
{
    const struct rollup *rollup = job;

    if (rollup->state == ROLLUP_RUNNING || rollup->state == ROLLUP_MAKING) {
        return SERIES_JOB_BUSY;
    }
    return rollup->state == ROLLUP_IDLE && !rollup->is_woken
               ? SERIES_JOB_SETTLED
               : SERIES_JOB_WAITING;
}

static void *
rollup_create(uv_loop_t *loop, const struct series_job_options *options)
{
    static const struct pg_conn_events conn_events = {
        .on_ready = rollup_conn_ready,
    };
    static const struct pg_tx_events look = {.on_end = rollup_looked};
    static const struct pg_tx_events batch = {.on_end = rollup_batch_ended};
    const struct pg_conn_options conn_options = {
        .name = "rollup",
        .url = options->url,
        .role = STORE_ROLE_WRITER,
        .settings = ROLLUP_SETTINGS,
        .selftest = true,
    };
    struct rollup *rollup = memory_alloc(sizeof(*rollup));

    rollup->lane = options->lane;
    rollup->partition = options->partition;
    rollup->is_woken = true;
    rollup->conn = pg_conn_create(loop, &conn_options, &conn_events, rollup);
    CHECK(rollup->conn != NULL);
    pg_tx_init(&rollup->look, rollup->conn, &look, rollup);
    pg_tx_init(&rollup->tx, rollup->conn, &batch, rollup);
    pg_params_init(&rollup->params);
    rollup_batch_init(&rollup->batch);
    rollup_quarantine_init(&rollup->quarantine);
    uv_timer_init(loop, &rollup->timer);
    rollup->timer.data = rollup;
    uv_timer_start(&rollup->timer, rollup_timer_cb, SWEEP_MS, SWEEP_MS);
    return rollup;
}

static void
rollup_closed_cb(uv_handle_t *handle)
{
    struct rollup *rollup = handle->data;

    rollup->is_closed = true;
    rollup_free_if_done(rollup);
}

static void
rollup_destroy(void *job)
{
    struct rollup *rollup = job;

    rollup->is_closing = true;
    pg_conn_destroy(rollup->conn);
    uv_close((uv_handle_t *)&rollup->timer, rollup_closed_cb);
}

const struct series_job rollup_job = {
    .create = rollup_create,
    .destroy = rollup_destroy,
    .wake = rollup_wake,
    .stop = rollup_stop,
    .state = rollup_state,
};
