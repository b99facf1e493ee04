/*
 * series_engine.c - series after the commit: buffer, flush, rollups.
 *
 *   AWAY -> [lane ready] -> RESTING -> reading upto -> RECOVERING -> RESTING
 *                              ^----- FLUSHING <------------------------+
 *
 * Ingest folds into it what it has committed. One thing at a time runs on one
 * connection; engine_turn decides what is next. A buffer that lacks something
 * is torn: folds are passed over, and when nothing runs it is made again from
 * the ledger after upto. `covered` is how far recovery goes: events up to it
 * are not folded a second time, also when ingest learns only later that they
 * were committed.
 */

#include "series/series_engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "pg/selftest.h"
#include "pg/tx.h"
#include "series/flush.h"
#include "series/recovery.h"

#include <stdlib.h>

#define TICK_MS        1000
#define AFTER_END_US   (100 * INT64_C(1000)) /* commits of the window's end */
#define BACKOFF_MS_MIN 50
#define BACKOFF_MS_MAX 5000

enum engine_state {
    ENGINE_AWAY,       /* the lane was never ready */
    ENGINE_RESTING,    /* nothing runs */
    ENGINE_READING,    /* upto */
    ENGINE_RECOVERING, /* live folds go on */
    ENGINE_FLUSHING
};

enum { ENGINE_ROLLUP, ENGINE_ORPHAN, ENGINE_JOBS };

static const struct series_job *const engine_jobs[ENGINE_JOBS] = {
    [ENGINE_ROLLUP] = &rollup_job,
    [ENGINE_ORPHAN] = &orphan_job,
};

enum { HANDLE_COUNT = 2 };

struct series_engine {
    struct series_engine_options options;
    struct config *config;
    struct pg_conn *conn;
    struct pg_tx read; /* of upto */
    struct buffer *buffer;
    struct flush *flush;
    struct recovery *recovery;
    void *jobs[ENGINE_JOBS];
    uv_timer_t timer; /* end of the window, or of a back-off */
    uv_timer_t tick;
    int handles_open;
    bool is_closing;

    enum engine_state state;
    uint64_t db_epoch; /* the lane's, when it was ready last */
    bool is_torn;
    bool is_due; /* a flush, by the clock */
    bool is_draining;
    bool is_settling;
    bool was_full;
    int64_t window_us; /* between two flushes */
    unsigned failures; /* since something succeeded; then a back-off */

    bool has_upto; /* was read */
    int64_t upto;  /* as committed */
    int64_t recorded_us;
    int64_t flushed_us;
    int64_t folded; /* newest number that was folded, or passed over */
    int64_t folded_recorded_us;
    int64_t folded_clock_us;
    int64_t covered;
    bool has_cut; /* what is flushing goes up to this: */
    int64_t cut;
    int64_t cut_recorded_us;
    int64_t cut_clock_us;
    size_t cut_cells;
};

static void engine_turn(struct series_engine *engine);

/* ---- state ------------------------------------------------------------ */

static size_t
engine_cells_held(const struct series_engine *engine)
{
    return buffer_filling(engine->buffer) + engine->cut_cells;
}

static size_t
engine_cells_max(const struct series_engine *engine)
{
    return (size_t)engine->config->limits.series_cells;
}

bool
series_engine_is_full(const struct series_engine *engine)
{
    return engine_cells_held(engine) >= 2 * engine_cells_max(engine);
}

static bool
engine_is_over_limit(const struct series_engine *engine)
{
    return buffer_filling(engine->buffer) >= engine_cells_max(engine);
}

static bool
engine_has_unflushed(const struct series_engine *engine)
{
    return engine->is_torn || engine->has_cut || engine->folded != engine->upto;
}

static void
engine_gauges_set(struct series_engine *engine)
{
    int64_t now_us = lane_now_us(engine->options.lane);

    metrics.edgemeter_series_cells = (int64_t)engine_cells_held(engine);
    metrics.edgemeter_series_bytes = (int64_t)buffer_size(engine->buffer);
    metrics.edgemeter_series_flush_lag_seconds =
        engine->state == ENGINE_AWAY || engine->flushed_us == FLUSH_ANY_US ||
                now_us < engine->flushed_us
            ? 0
            : (now_us - engine->flushed_us) / METER_TIME_SECOND;
}

/* Ingest waits only while it was told to. */
static void
engine_room_tell(struct series_engine *engine)
{
    bool is_full = series_engine_is_full(engine);

    if (is_full && !engine->was_full) {
        metrics.edgemeter_series_stalls_total++;
    }
    if (engine->was_full && !is_full) {
        engine->was_full = false;
        engine->options.on_room(engine->options.owner);
        return;
    }
    engine->was_full = is_full;
}


/* ---- time ------------------------------------------------------------- */

static void
engine_timer_cb(uv_timer_t *timer)
{
    struct series_engine *engine = timer->data;

    engine->is_due = true;
    engine_turn(engine);
}

/* The next end of a window by the database's clock, or of the back-off. */
static void
engine_timer_set(struct series_engine *engine)
{
    int64_t now_us = lane_now_us(engine->options.lane) - AFTER_END_US;
    int64_t left_us = engine->window_us - now_us % engine->window_us;
    uint64_t delay_ms = (uint64_t)(left_us + 999) / 1000;

    if (engine->failures > 0) {
        unsigned doublings = engine->failures > 8 ? 8 : engine->failures;

        delay_ms = BACKOFF_MS_MIN << doublings;
        delay_ms = delay_ms > BACKOFF_MS_MAX ? BACKOFF_MS_MAX : delay_ms;
    }
    CHECK(uv_timer_start(&engine->timer, engine_timer_cb, delay_ms, 0) == 0);
}

static void
engine_tick_cb(uv_timer_t *timer)
{
    engine_gauges_set(timer->data);
}

/* What ran has ended. */
static void
engine_rest(struct series_engine *engine, bool is_well)
{
    engine->state = ENGINE_RESTING;
    engine->failures = is_well ? 0 : engine->failures + 1;
    engine_timer_set(engine);
    engine_gauges_set(engine);
}


/* ---- recovery --------------------------------------------------------- */

static void
engine_recovered(void *owner, bool is_done)
{
    struct series_engine *engine = owner;

    if (engine->is_closing) {
        return;
    }
    engine->is_torn |= !is_done;
    engine->is_due = is_done;
    engine_rest(engine, is_done);
    /* What was read may have filled the buffer. Ingest, which asks for room
       itself, is told of it by the next flush only if it is noted here. */
    engine_room_tell(engine);
    engine_turn(engine);
}

static void
engine_upto_rows(void *owner, const void *result)
{
    struct series_engine *engine = owner;

    engine->has_upto = pg_row_count(result) > 0;
    if (engine->has_upto) {
        engine->upto = pg_get_int8(result, 0, 0);
        engine->recorded_us = pg_is_null(result, 0, 1)
                                  ? RECOVERY_ANY_US
                                  : pg_get_time(result, 0, 1);
        engine->flushed_us =
            pg_is_null(result, 0, 2) ? FLUSH_ANY_US : pg_get_time(result, 0, 2);
    }
}

/* Nothing is to be recovered. */
static void
engine_recover_none(struct series_engine *engine)
{
    if (engine->upto > engine->folded) {
        log_error("series", "more was flushed than the ledger has",
                  log_int("upto", engine->upto),
                  log_int("last", engine->folded));
        engine->folded = engine->upto;
    }
    engine->covered = engine->upto;
    engine_recovered(engine, true);
}

static void
engine_upto_read(void *owner, enum pg_tx_end end)
{
    struct series_engine *engine = owner;
    struct recovery_task task = {.buffer = engine->buffer};

    if (end != PG_TX_COMMITTED || !engine->has_upto) {
        engine_recovered(engine, false);
        return;
    }
    if (engine->upto >= engine->covered) {
        engine_recover_none(engine);
        return;
    }
    engine->state = ENGINE_RECOVERING;
    memcpy(task.writer, lane_writer(engine->options.lane), sizeof(task.writer));
    task.after = engine->upto;
    task.upto = engine->covered;
    task.recorded_us = engine->recorded_us;
    task.config = engine->config;
    recovery_start(engine->recovery, &task);
}

/* From here on events after `covered` are folded as they come. */
static void
engine_recover(struct series_engine *engine)
{
    struct pg_params params;

    engine->state = ENGINE_READING;
    engine->is_due = false;
    engine->is_torn = false;
    engine->has_cut = false;
    engine->has_upto = false;
    engine->cut_cells = 0;
    engine->covered = engine->folded;
    buffer_clear(engine->buffer);
    engine_room_tell(engine);
    pg_params_init(&params);
    pg_param_uuid(&params, lane_writer(engine->options.lane));
    pg_tx_begin(&engine->read);
    pg_tx_ask(&engine->read, STATEMENT_WRITER_FLUSH_READ, &params,
              engine_upto_rows);
    pg_tx_commit(&engine->read);
    pg_params_fini(&params);
}


/* ---- flush ------------------------------------------------------------ */

static void
engine_flushed(void *owner, const struct flush_end *end)
{
    struct series_engine *engine = owner;

    if (engine->is_closing) {
        return;
    }
    switch (end->outcome) {
    case FLUSH_FENCED: lane_fenced(engine->options.lane, end->epoch_seen);
    case FLUSH_FAILED: metrics.edgemeter_series_flush_failures_total++; break;
    case FLUSH_ASTRAY: engine->is_torn = true; break;
    case FLUSH_COMMITTED:
        buffer_flushed(engine->buffer);
        engine->upto = engine->cut;
        engine->flushed_us = end->flushed_us;
        engine->has_cut = false;
        engine->cut_cells = 0;
        rollup_job.wake(engine->jobs[ENGINE_ROLLUP]);
        break;
    }
    engine_rest(engine, end->outcome == FLUSH_COMMITTED);
    engine_room_tell(engine);
    engine_turn(engine);
}

/* The same cut until it is committed. */
static void
engine_flush(struct series_engine *engine)
{
    struct flush_task task = {.buffer = engine->buffer};

    if (!engine->has_cut) {
        engine->has_cut = true;
        engine->cut = engine->folded;
        engine->cut_recorded_us = engine->folded_recorded_us;
        engine->cut_clock_us = engine->folded_clock_us;
        engine->cut_cells = buffer_filling(engine->buffer);
        buffer_cut(engine->buffer);
        metrics.edgemeter_series_early_flushes_total +=
            !engine->is_due && !engine->is_draining;
    }
    engine->is_due = false;
    engine->state = ENGINE_FLUSHING;
    memcpy(task.writer, lane_writer(engine->options.lane), sizeof(task.writer));
    task.epoch = lane_epoch(engine->options.lane);
    task.from = engine->upto;
    task.upto = engine->cut;
    task.recorded_us = engine->cut_recorded_us;
    task.clock_us = engine->cut_clock_us;
    task.flushed_us = engine->flushed_us;
    flush_start(engine->flush, &task);
}


/* ---- what is next ----------------------------------------------------- */

static void
engine_turn(struct series_engine *engine)
{
    bool is_waiting = engine->failures > 0 && !engine->is_due;

    if (engine->state != ENGINE_RESTING || is_waiting ||
        !pg_conn_is_ready(engine->conn)) {
        return;
    }
    if (engine->is_torn) {
        engine_recover(engine);
    } else if (engine->is_due || engine->has_cut ||
               engine_is_over_limit(engine) ||
               ((engine->is_draining || engine->is_settling) &&
                engine_has_unflushed(engine))) {
        engine_flush(engine);
    }
}

static void
engine_conn_ready(void *owner)
{
    engine_turn(owner);
}

static void
engine_jobs_wake(struct series_engine *engine)
{
    for (int i = 0; i < ENGINE_JOBS; i++) {
        engine_jobs[i]->wake(engine->jobs[i]);
    }
}

/*
 * At the first time everything unflushed is in the ledger only. Later it is
 * in memory, too, unless the database is another one or has gone back.
 */
void
series_engine_lane_ready(struct series_engine *engine, int64_t last)
{
    uint64_t db_epoch = lane_db_epoch(engine->options.lane);
    bool is_first = engine->state == ENGINE_AWAY;

    if (!is_first && db_epoch == engine->db_epoch && last >= engine->folded) {
        engine_turn(engine);
        return;
    }
    if (!is_first) {
        log_warn("series", "the database went back; starting over",
                 log_int("last", last), log_int("folded", engine->folded));
        pg_conn_reset(engine->conn, "another database");
    }
    engine->db_epoch = db_epoch;
    engine->is_torn = true;
    engine->folded = last;
    engine->folded_recorded_us = FLUSH_ANY_US;
    engine->folded_clock_us = FLUSH_ANY_US;
    if (is_first) {
        engine_rest(engine, true);
        engine_jobs_wake(engine);
    }
    engine->is_due = true;
    engine_turn(engine);
}

void
series_engine_fold(struct series_engine *engine,
                   const struct buffer_event *event)
{
    if (engine->is_torn || event->place.seq <= engine->covered) {
        return;
    }
    if (!buffer_fold(engine->buffer, event)) {
        log_warn("series", "out of memory; the ledger is read again");
        engine->is_torn = true;
    }
}

void
series_engine_folded(struct series_engine *engine, int64_t writer_seq,
                     int64_t recorded_us, int64_t clock_us)
{
    if (writer_seq > engine->folded) {
        engine->folded = writer_seq;
        engine->folded_recorded_us = recorded_us;
        engine->folded_clock_us = clock_us;
    }
    engine_room_tell(engine);
    if (engine->is_torn || engine_is_over_limit(engine)) {
        engine_turn(engine);
    }
}

void
series_engine_config_set(struct series_engine *engine, struct config *config)
{
    config_ref(config);
    config_unref(engine->config);
    engine->config = config;
    engine_room_tell(engine);
}


/* ---- the beginning and the end ---------------------------------------- */

static void
engine_orphan_flushed(void *owner)
{
    struct series_engine *engine = owner;

    rollup_job.wake(engine->jobs[ENGINE_ROLLUP]);
}

static void
engine_parts_create(uv_loop_t *loop, struct series_engine *engine)
{
    static const struct pg_conn_events conn_events = {
        .on_ready = engine_conn_ready,
    };
    static const struct pg_tx_events read = {.on_end = engine_upto_read};
    const struct series_engine_options *options = &engine->options;
    const struct pg_conn_options conn_options = {
        .name = "series",
        .url = options->url,
        .role = STORE_ROLE_WRITER,
        .settings = SERIES_SETTINGS,
        .selftest = true,
    };
    const struct series_job_options job_options = {
        .url = options->url,
        .lane = options->lane,
        .partition = options->partition,
        .config = &engine->config,
        .on_flushed = engine_orphan_flushed,
        .owner = engine,
    };

    engine->buffer = buffer_create();
    engine->conn = pg_conn_create(loop, &conn_options, &conn_events, engine);
    CHECK(engine->conn != NULL);
    pg_tx_init(&engine->read, engine->conn, &read, engine);
    engine->flush =
        flush_create(engine->conn, options->partition, engine_flushed, engine);
    engine->recovery = recovery_create(engine->conn, engine_recovered, engine);
    for (int i = 0; i < ENGINE_JOBS; i++) {
        engine->jobs[i] = engine_jobs[i]->create(loop, &job_options);
    }
}

/* Tests do not wait that long. */
static int64_t
engine_window_us(void)
{
    const char *text = getenv("METERD_TEST_FLUSH_MS");
    long ms = text == NULL ? 0 : strtol(text, NULL, 10);

    return ms > 0 ? ms * INT64_C(1000) : meter_level_size_us(METER_LEVEL_5S);
}

struct series_engine *
series_engine_create(uv_loop_t *loop,
                     const struct series_engine_options *options)
{
    struct series_engine *engine = memory_alloc(sizeof(*engine));

    engine->options = *options;
    engine->config = config_ref(options->config);
    engine->flushed_us = FLUSH_ANY_US;
    engine->window_us = engine_window_us();
    engine->handles_open = HANDLE_COUNT;
    CHECK(uv_timer_init(loop, &engine->timer) == 0);
    CHECK(uv_timer_init(loop, &engine->tick) == 0);
    engine->timer.data = engine;
    engine->tick.data = engine;
    engine_parts_create(loop, engine);
    CHECK(uv_timer_start(&engine->tick, engine_tick_cb, TICK_MS, TICK_MS) == 0);
    return engine;
}

static void
engine_closed_cb(uv_handle_t *handle)
{
    struct series_engine *engine = handle->data;

    if (--engine->handles_open == 0) {
        free(engine);
    }
}

/* The connection goes first: what runs ends with it. */
void
series_engine_destroy(struct series_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    engine->is_closing = true;
    pg_conn_destroy(engine->conn);
    flush_destroy(engine->flush);
    recovery_destroy(engine->recovery);
    pg_tx_fini(&engine->read);
    for (int i = 0; i < ENGINE_JOBS; i++) {
        engine_jobs[i]->destroy(engine->jobs[i]);
    }
    buffer_destroy(engine->buffer);
    config_unref(engine->config);
    uv_close((uv_handle_t *)&engine->timer, engine_closed_cb);
    uv_close((uv_handle_t *)&engine->tick, engine_closed_cb);
}

static bool
engine_jobs_are(const struct series_engine *engine,
                enum series_job_state at_least)
{
    for (int i = 0; i < ENGINE_JOBS; i++) {
        if (engine_jobs[i]->state(engine->jobs[i]) < at_least) {
            return false;
        }
    }
    return true;
}

void
series_engine_settle(struct series_engine *engine)
{
    engine->is_settling = true;
    engine_turn(engine);
}

bool
series_engine_is_settled(const struct series_engine *engine)
{
    return engine->state == ENGINE_RESTING && !engine_has_unflushed(engine) &&
           engine_jobs_are(engine, SERIES_JOB_SETTLED);
}

void
series_engine_drain(struct series_engine *engine)
{
    if (!engine->is_draining) {
        engine->is_draining = true;
        for (int i = 0; i < ENGINE_JOBS; i++) {
            engine_jobs[i]->stop(engine->jobs[i]);
        }
        engine_turn(engine);
    }
}

bool
series_engine_is_idle(const struct series_engine *engine)
{
    bool is_flushed =
        engine->state == ENGINE_RESTING && !engine_has_unflushed(engine);

    return (engine->state == ENGINE_AWAY || is_flushed) &&
           engine_jobs_are(engine, SERIES_JOB_WAITING);
}
