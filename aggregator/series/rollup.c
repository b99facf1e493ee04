/*
 * rollup.c - the levels above 5s, computed again from the one below.
 *
 *   [look] -> 1m: batch, batch, ... -> 1h -> 1d -> 7d -> [look] -> idle
 *
 * A sweep looks which levels have marks and goes through them upwards; what
 * it computes marks the level above, which then has its turn. Whatever fails
 * or ends in an unknown COMMIT has left either the marks or the buckets, so
 * that the next sweep sees what is to be done.
 */

#include "series/rollup.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "pg/selftest.h"
#include "series/rollup_state.h"

#include <stdlib.h>

#define BATCHES_MAX 20 /* of a level, then those above have their turn */
#define LOOK_MARKS  10000
#define SWEEP_MS    3000
#define REST_MIN_MS 50
#define REST_MAX_MS 2000

/*
 * As a lane's, but planned for each batch: the planner sees the range of
 * buckets, and opens no partition outside of it.
 */
#define ROLLUP_SETTINGS                                   \
    "enable_seqscan=off enable_hashjoin=off"              \
    " enable_mergejoin=off enable_bitmapscan=off jit=off" \
    " plan_cache_mode=force_custom_plan"

static void conn_ready(void *owner);
static void conn_lost(void *owner, const char *why);
static void timer_cb(uv_timer_t *timer);
static void closed_cb(uv_handle_t *handle);
static void release_if_done(struct rollup *rollup);
static void sweep(struct rollup *rollup);
static void look(struct rollup *rollup);
static void look_cb(void *asker, const struct pg_answer *answer);
static void level_next(struct rollup *rollup);
static void sweep_done(struct rollup *rollup);
static void fail(struct rollup *rollup, const struct pg_answer *answer);
static void refused(struct rollup *rollup, const struct pg_answer *answer);
static void rest(struct rollup *rollup);
static void plain_cb(void *asker, const struct pg_answer *answer);


struct rollup *
rollup_create(uv_loop_t *loop, const struct rollup_options *options)
{
    static const struct pg_conn_events events = {
        .on_ready = conn_ready,
        .on_lost = conn_lost,
    };
    struct rollup *rollup = calloc(1, sizeof(*rollup));

    if (rollup == NULL) {
        return NULL;
    }
    rollup->lane = options->lane;
    rollup->partition = options->partition;
    rollup->rest_ms = REST_MIN_MS;
    rollup->url = strdup(options->url);
    if (rollup->url != NULL) {
        rollup->conn = pg_conn_create(loop,
                                      &(struct pg_conn_options){
                                          .name = "rollup",
                                          .url = rollup->url,
                                          .role = STORE_ROLE_WRITER,
                                          .settings = ROLLUP_SETTINGS,
                                          .selftest = true,
                                      },
                                      &events, rollup);
    }
    if (rollup->conn == NULL) {
        free(rollup->url);
        free(rollup);
        return NULL;
    }
    rollup_batch_init(&rollup->batch);
    rollup_aside_init(&rollup->aside);
    uv_timer_init(loop, &rollup->timer);
    rollup->timer.data = rollup;
    uv_timer_start(&rollup->timer, timer_cb, SWEEP_MS, SWEEP_MS);
    return rollup;
}


void
rollup_destroy(struct rollup *rollup)
{
    if (rollup == NULL) {
        return;
    }
    rollup->is_closing = true;
    rollup->is_failed = true;
    pg_conn_destroy(rollup->conn);
    uv_close((uv_handle_t *)&rollup->timer, closed_cb);
}


static void
closed_cb(uv_handle_t *handle)
{
    struct rollup *rollup = handle->data;

    rollup->is_closed = true;
    release_if_done(rollup);
}


static void
release_if_done(struct rollup *rollup)
{
    if (rollup->is_closed && !rollup->is_partition_due) {
        rollup_batch_fini(&rollup->batch);
        free(rollup->url);
        free(rollup);
    }
}


void
rollup_wake(struct rollup *rollup)
{
    rollup->is_woken = true;
    sweep(rollup);
}


void
rollup_stop(struct rollup *rollup)
{
    rollup->is_stopped = true;
}


bool
rollup_is_idle(const struct rollup *rollup)
{
    return rollup->state != ROLLUP_RUNNING && rollup->state != ROLLUP_MAKING;
}


bool
rollup_is_settled(const struct rollup *rollup)
{
    return rollup->state == ROLLUP_IDLE && !rollup->is_woken;
}


static void
conn_ready(void *owner)
{
    struct rollup *rollup = owner;

    /* Partitions that are being made go on without us. */
    if (rollup->state != ROLLUP_MAKING) {
        rollup->state = ROLLUP_IDLE;
        sweep(rollup);
    }
}


static void
conn_lost(void *owner, const char *why)
{
    struct rollup *rollup = owner;

    (void)why;
    if (rollup->state != ROLLUP_MAKING) {
        rollup->state = ROLLUP_AWAY;
    }
}


static void
timer_cb(uv_timer_t *timer)
{
    struct rollup *rollup = timer->data;

    if (rollup->state == ROLLUP_RESTING) {
        rollup->state = ROLLUP_IDLE;
    }
    sweep(rollup);
}


/* Begins one, if nothing is against it; else the timer asks again. */
static void
sweep(struct rollup *rollup)
{
    if (rollup->state != ROLLUP_IDLE || rollup->is_stopped ||
        !pg_conn_is_ready(rollup->conn) || lane_db_epoch(rollup->lane) == 0 ||
        !partition_is_ready(rollup->partition)) {
        return;
    }
    rollup->state = ROLLUP_RUNNING;
    rollup->is_failed = false;
    rollup->is_woken = false;
    rollup->is_last_look = false;
    rollup->level = METER_LEVEL_5S;
    rollup_aside_retry(&rollup->aside, clock_mono_ms());
    metrics.edgemeter_rollup_asides = (int64_t)rollup->aside.count;
    look(rollup);
}


static void
look(struct rollup *rollup)
{
    struct pg_params params;

    pg_params_init(&params);
    pg_param_int8(&params, LOOK_MARKS);
    pg_conn_query(rollup->conn, STATEMENT_ROLLUP_LAG, &params, look_cb, rollup);
    pg_conn_flush(rollup->conn);
    pg_params_fini(&params);
}


static void
look_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;
    int64_t marks = 0;
    int64_t lag_us = 0;

    if (!rollup_answer_ok(rollup, answer)) {
        return;
    }
    memset(rollup->due, 0, sizeof(rollup->due));
    for (int row = 0; row < pg_row_count(answer->result); row++) {
        int32_t level = pg_get_int4(answer->result, row, 0);
        int64_t of_level = pg_get_int8(answer->result, row, 1);

        CHECK(level > METER_LEVEL_5S && level < METER_LEVEL_COUNT);
        marks += of_level;
        rollup->due[level] = of_level > 0;
        if (of_level > 0) {
            int64_t age_us = pg_get_time(answer->result, row, 3) -
                             pg_get_time(answer->result, row, 2);

            lag_us = age_us > lag_us ? age_us : lag_us;
        }
    }
    metrics.edgemeter_rollup_marks = marks;
    metrics.edgemeter_rollup_lag_seconds = lag_us / METER_TIME_SECOND;
    if (rollup->is_last_look) {
        sweep_done(rollup);
    } else {
        metrics.edgemeter_rollup_sweeps_total++;
        level_next(rollup);
    }
}


/* The next level that has marks, or the end of the sweep. */
static void
level_next(struct rollup *rollup)
{
    bool had_batches = rollup->level != METER_LEVEL_5S;

    rollup->batches = 0;
    for (int level = rollup->level + 1; level < METER_LEVEL_COUNT; level++) {
        if (rollup->due[level] && !rollup->is_stopped) {
            rollup->level = level;
            rollup_transaction_begin(rollup);
            return;
        }
    }
    if (had_batches) {
        rollup->is_last_look = true;
        look(rollup);
    } else {
        sweep_done(rollup);
    }
}


void
rollup_batch_done(struct rollup *rollup)
{
    size_t limit = rollup->aside.limit; /* of this batch */

    rollup->rest_ms = REST_MIN_MS;
    if (rollup->taken > 0) {
        rollup_aside_done(&rollup->aside);
    }
    if (rollup->batch.above.count > 0) {
        rollup->due[rollup->level + 1] = true;
    }
    if (rollup->taken < limit) {
        level_next(rollup);
    } else if (++rollup->batches < BATCHES_MAX && !rollup->is_stopped) {
        rollup_transaction_begin(rollup);
    } else {
        rollup->is_woken = true; /* there is more: sweep again */
        level_next(rollup);
    }
}


static void
sweep_done(struct rollup *rollup)
{
    rollup->state = ROLLUP_IDLE;
    if (rollup->is_woken) {
        sweep(rollup);
    }
}


/* False: the batch is over; what failed first has seen to that. */
bool
rollup_answer_ok(struct rollup *rollup, const struct pg_answer *answer)
{
    if (rollup->is_failed) {
        return false;
    }
    if (answer->outcome != PG_OUTCOME_OK) {
        fail(rollup, answer);
        return false;
    }
    return true;
}


/* After a loss, conn_lost or conn_ready goes on from here. */
static void
fail(struct rollup *rollup, const struct pg_answer *answer)
{
    rollup->is_failed = true;
    if (answer->outcome != PG_OUTCOME_ERROR) {
        return;
    }
    if (answer->kind == SQL_DATA && rollup->taken > 0) {
        refused(rollup, answer);
    } else {
        log_warn("rollup", "a batch failed; it is done again",
                 log_str("series_level", meter_level_name(rollup->level)),
                 log_str("sqlstate", answer->sqlstate),
                 log_str("reason", answer->message));
    }
    if (answer->kind == SQL_NO_PARTITION) {
        rollup_partitions_due(rollup);
        partition_refresh(rollup->partition, rollup_partitions_made_cb, rollup);
        return;
    }
    pg_conn_command(rollup->conn, STATEMENT_ROLLBACK, plain_cb, rollup);
    pg_conn_flush(rollup->conn);
    rest(rollup);
}


/* The data of the batch are refused: which of them is found by halves. */
static void
refused(struct rollup *rollup, const struct pg_answer *answer)
{
    const struct rollup_mark *mark = rollup->batch.buckets.list;
    char bucket[METER_TIME_TEXT_SIZE + 1];

    switch (rollup_aside_failed(&rollup->aside, rollup->taken, rollup->taken_id,
                                clock_mono_ms())) {
    case ROLLUP_AGAIN:
        log_warn("rollup", "the data of a batch are refused; it is done again",
                 log_str("series_level", meter_level_name(rollup->level)),
                 log_str("sqlstate", answer->sqlstate),
                 log_str("reason", answer->message));
        return;
    case ROLLUP_SMALLER: rollup->rest_ms = REST_MIN_MS; return;
    case ROLLUP_SET_ASIDE: break;
    }
    rollup->rest_ms = REST_MIN_MS;
    meter_time_format(mark->bucket_us, bucket);
    log_error("rollup", "a bucket is refused and set aside; it stays marked",
              log_str("series_level", meter_level_name(rollup->level)),
              log_bytes("tenant", mark->tenant),
              log_bytes("series", mark->series), log_str("bucket", bucket),
              log_str("sqlstate", answer->sqlstate),
              log_str("reason", answer->message));
}


static void
rest(struct rollup *rollup)
{
    rollup->state = ROLLUP_RESTING;
    uv_timer_start(&rollup->timer, timer_cb, rollup->rest_ms, SWEEP_MS);
    rollup->rest_ms =
        2 * rollup->rest_ms > REST_MAX_MS ? REST_MAX_MS : 2 * rollup->rest_ms;
}


static void
plain_cb(void *asker, const struct pg_answer *answer)
{
    (void)rollup_answer_ok(asker, answer);
}


void
rollup_partitions_due(struct rollup *rollup)
{
    rollup->state = ROLLUP_MAKING;
    rollup->is_failed = true;
    rollup->is_partition_due = true;
    pg_conn_command(rollup->conn, STATEMENT_ROLLBACK, plain_cb, rollup);
    pg_conn_flush(rollup->conn);
}


void
rollup_partitions_made_cb(void *asker, bool made)
{
    struct rollup *rollup = asker;

    rollup->is_partition_due = false;
    if (rollup->is_closing) {
        release_if_done(rollup);
        return;
    }
    CHECK(rollup->state == ROLLUP_MAKING);
    if (!made) {
        rest(rollup);
        return;
    }
    rollup->state = pg_conn_is_ready(rollup->conn) ? ROLLUP_IDLE : ROLLUP_AWAY;
    sweep(rollup);
}
