/*
 * orphan.c - what writers that are gone have not flushed.
 *
 *   look -> heartbeats -> [one stands still] -> BEGIN; lock, or leave it;
 *   claim; COMMIT -> recovery -> flush and retire -> look
 *
 * A job of the engine. Gone is a writer whose heartbeat is a minute old and
 * has not moved between two looks. Its epoch is raised first: if it only
 * slept, it ends instead of writing; when it starts again it takes over from
 * wherever we are. Of several that adopt at once one gets the row, and upto
 * decides the rest. Anything that fails is left to the next look.
 */

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "pg/selftest.h"
#include "pg/tx.h"
#include "series/flush.h"
#include "series/recovery.h"
#include "series/series_engine.h"

#include <stdlib.h>

#define GONE_MS     60000
#define WATCHED_MAX 64 /* as orphan_list gives them */
#define LOOKS       2  /* in that time */

struct watched {
    uint8_t writer[16];
    int64_t heartbeat_us;
    uint64_t since_ms;
};

struct orphan {
    struct series_job_options options;
    struct pg_conn *conn;
    struct pg_tx look;
    struct pg_tx claim;
    struct buffer *buffer;
    struct flush *flush;
    struct recovery *recovery;
    uv_timer_t timer;
    uint64_t gone_ms;
    bool is_closing;
    bool is_busy; /* from a look on, until nothing is to be adopted */

    struct watched watched[WATCHED_MAX];
    size_t watched_count;
    bool is_claimed;
    struct flush_task task; /* what is being adopted */
    int64_t heartbeat_us;   /* of its writer: did not move */
};


/* ---- looking ---------------------------------------------------------- */

/* Since when its heartbeat stands as it does. */
static uint64_t
orphan_standing_since(const struct orphan *orphan, const uint8_t writer[16],
                      int64_t heartbeat_us, uint64_t now_ms)
{
    for (size_t i = 0; i < orphan->watched_count; i++) {
        const struct watched *known = &orphan->watched[i];

        if (memcmp(known->writer, writer, sizeof(known->writer)) == 0 &&
            known->heartbeat_us == heartbeat_us) {
            return known->since_ms;
        }
    }
    return now_ms;
}

/* One that an earlier look has seen, too: the database's clock may have been
   set. NULL: all of them may live. */
static const struct watched *
orphan_gone(const struct orphan *orphan, uint64_t now_ms)
{
    const struct watched *oldest = NULL;

    for (size_t i = 0; i < orphan->watched_count; i++) {
        const struct watched *one = &orphan->watched[i];

        if (now_ms - one->since_ms >= orphan->gone_ms / LOOKS / 2 &&
            (oldest == NULL || one->since_ms < oldest->since_ms)) {
            oldest = one;
        }
    }
    return oldest;
}

static void
orphan_watch(struct orphan *orphan, const void *result, uint64_t now_ms)
{
    struct watched seen[WATCHED_MAX];
    size_t count = 0;

    for (int row = 0; row < pg_row_count(result) && count < WATCHED_MAX;
         row++) {
        struct meter_str writer = pg_get_bytes(result, row, 0);
        struct watched *one = &seen[count++];

        CHECK(writer.size == sizeof(one->writer));
        memcpy(one->writer, writer.data, sizeof(one->writer));
        one->heartbeat_us = pg_get_time(result, row, 1);
        one->since_ms = orphan_standing_since(orphan, one->writer,
                                              one->heartbeat_us, now_ms);
    }
    memcpy(orphan->watched, seen, count * sizeof(*seen));
    orphan->watched_count = count;
}

static void
orphan_listed(void *owner, const void *result)
{
    orphan_watch(owner, result, clock_mono_ms());
}

static void
orphan_look(struct orphan *orphan)
{
    struct pg_params params;

    if (orphan->is_busy || !pg_conn_is_ready(orphan->conn) ||
        lane_db_epoch(orphan->options.lane) == 0) {
        return;
    }
    orphan->is_busy = true;
    pg_params_init(&params);
    pg_param_uuid(&params, lane_writer(orphan->options.lane));
    pg_param_int8(&params, (int64_t)orphan->gone_ms * 1000);
    pg_tx_begin(&orphan->look);
    pg_tx_ask(&orphan->look, STATEMENT_ORPHAN_LIST, &params, orphan_listed);
    pg_tx_commit(&orphan->look);
    pg_params_fini(&params);
}

static void orphan_adopt(struct orphan *orphan, const struct watched *watched);

static void
orphan_looked(void *owner, enum pg_tx_end end)
{
    struct orphan *orphan = owner;
    const struct watched *one =
        end == PG_TX_COMMITTED ? orphan_gone(orphan, clock_mono_ms()) : NULL;

    orphan->is_busy = false;
    if (one != NULL && !orphan->is_closing) {
        orphan_adopt(orphan, one);
    }
}


/* ---- adopting --------------------------------------------------------- */

static void
orphan_idle(struct orphan *orphan)
{
    orphan->is_busy = false;
    buffer_clear(orphan->buffer);
}

static void
orphan_locked(void *owner, const void *result)
{
    struct orphan *orphan = owner;

    orphan->is_claimed = pg_row_count(result) > 0;
}

static int64_t
orphan_time(const void *result, int column)
{
    return pg_is_null(result, 0, column) ? FLUSH_ANY_US
                                         : pg_get_time(result, 0, column);
}

static void
orphan_claimed(void *owner, const void *result)
{
    struct orphan *orphan = owner;
    struct flush_task *task = &orphan->task;

    orphan->is_claimed = pg_row_count(result) > 0;
    if (orphan->is_claimed) {
        task->epoch = pg_get_int8(result, 0, 0);
        task->upto = pg_get_int8(result, 0, 1);
        task->from = pg_get_int8(result, 0, 2);
        task->recorded_us = orphan_time(result, 3);
        task->flushed_us = orphan_time(result, 4);
        task->is_retiring = true;
        task->buffer = orphan->buffer;
    }
}

/* It lives, or someone else has it: left. */
static void
orphan_claim_end(void *owner)
{
    struct orphan *orphan = owner;

    if (orphan->is_claimed) {
        pg_tx_commit(&orphan->claim);
    } else {
        pg_tx_rollback(&orphan->claim);
    }
}

static void
orphan_claim(void *owner)
{
    struct orphan *orphan = owner;
    struct pg_params params;

    if (!orphan->is_claimed) {
        pg_tx_rollback(&orphan->claim);
        return;
    }
    pg_params_init(&params);
    pg_param_uuid(&params, orphan->task.writer);
    pg_param_time(&params, orphan->heartbeat_us);
    pg_tx_ask(&orphan->claim, STATEMENT_ORPHAN_CLAIM, &params, orphan_claimed);
    pg_tx_send(&orphan->claim, orphan_claim_end);
    pg_params_fini(&params);
}

static void
orphan_adopt(struct orphan *orphan, const struct watched *watched)
{
    struct pg_params params;

    orphan->is_busy = true;
    orphan->task = (struct flush_task){
        .recorded_us = FLUSH_ANY_US, /* until it is claimed */
        .clock_us = FLUSH_ANY_US,
    };
    orphan->heartbeat_us = watched->heartbeat_us;
    memcpy(orphan->task.writer, watched->writer, sizeof(watched->writer));
    pg_params_init(&params);
    pg_param_uuid(&params, watched->writer);
    pg_tx_begin(&orphan->claim);
    pg_tx_ask(&orphan->claim, STATEMENT_ORPHAN_LOCK, &params, orphan_locked);
    pg_tx_send(&orphan->claim, orphan_claim);
    pg_params_fini(&params);
}

/* A claim in doubt is left as one that failed. */
static void
orphan_claim_ended(void *owner, enum pg_tx_end end)
{
    struct orphan *orphan = owner;
    struct recovery_task task = {
        .after = orphan->task.from,
        .upto = orphan->task.upto,
        .recorded_us = orphan->task.recorded_us,
        .buffer = orphan->buffer,
        .config = *orphan->options.config,
    };

    if (orphan->is_closing) {
        return;
    }
    if (end != PG_TX_COMMITTED) {
        orphan_idle(orphan);
        return;
    }
    log_info("series", "flushing for a writer that is gone",
             log_int("events", task.upto - task.after));
    memcpy(task.writer, orphan->task.writer, sizeof(task.writer));
    orphan->task.recorded_us = FLUSH_ANY_US; /* of the last row: not known */
    recovery_start(orphan->recovery, &task);
}

static void
orphan_recovered(void *owner, bool is_done)
{
    struct orphan *orphan = owner;

    if (orphan->is_closing) {
        return;
    }
    if (!is_done) {
        orphan_idle(orphan);
        return;
    }
    buffer_cut(orphan->buffer);
    flush_start(orphan->flush, &orphan->task);
}

static void
orphan_flushed(void *owner, const struct flush_end *end)
{
    struct orphan *orphan = owner;

    if (orphan->is_closing) {
        return;
    }
    if (end->outcome == FLUSH_COMMITTED) {
        metrics.edgemeter_series_orphans_total++;
        log_info("series", "a writer that is gone was flushed and retired",
                 log_int("events", orphan->task.upto - orphan->task.from));
        orphan->options.on_flushed(orphan->options.owner);
    } else {
        log_warn("series", "the tail of another writer was left",
                 log_bool("fenced", end->outcome == FLUSH_FENCED));
    }
    orphan_idle(orphan);
}


/* ---- as a job --------------------------------------------------------- */

static void
orphan_timer_cb(uv_timer_t *timer)
{
    orphan_look(timer->data);
}

static void
orphan_wake(void *job)
{
    orphan_look(job);
}

static void
orphan_stop(void *job)
{
    struct orphan *orphan = job;

    uv_timer_stop(&orphan->timer);
}

/* Whatever it does may be cut off. */
static enum series_job_state
orphan_state(const void *job)
{
    (void)job;
    return SERIES_JOB_SETTLED;
}

/* Tests do not wait that long. */
static uint64_t
orphan_gone_ms(void)
{
    const char *text = getenv("METERD_TEST_ORPHAN_MS");
    long ms = text == NULL ? 0 : strtol(text, NULL, 10);

    return ms > LOOKS ? (uint64_t)ms : GONE_MS;
}

static void *
orphan_create(uv_loop_t *loop, const struct series_job_options *options)
{
    static const struct pg_conn_events conn_events = {0};
    static const struct pg_tx_events look = {.on_end = orphan_looked};
    static const struct pg_tx_events claim = {.on_end = orphan_claim_ended};
    struct orphan *orphan = memory_alloc(sizeof(*orphan));
    const struct pg_conn_options conn_options = {
        .name = "orphan",
        .url = options->url,
        .role = STORE_ROLE_WRITER,
        .settings = SERIES_SETTINGS,
        .selftest = true,
    };

    orphan->options = *options;
    orphan->gone_ms = orphan_gone_ms();
    orphan->buffer = buffer_create();
    orphan->conn = pg_conn_create(loop, &conn_options, &conn_events, orphan);
    CHECK(orphan->conn != NULL);
    pg_tx_init(&orphan->look, orphan->conn, &look, orphan);
    pg_tx_init(&orphan->claim, orphan->conn, &claim, orphan);
    orphan->flush =
        flush_create(orphan->conn, options->partition, orphan_flushed, orphan);
    orphan->recovery = recovery_create(orphan->conn, orphan_recovered, orphan);
    CHECK(uv_timer_init(loop, &orphan->timer) == 0);
    orphan->timer.data = orphan;
    CHECK(uv_timer_start(&orphan->timer, orphan_timer_cb,
                         orphan->gone_ms / LOOKS,
                         orphan->gone_ms / LOOKS) == 0);
    return orphan;
}

static void
orphan_closed_cb(uv_handle_t *handle)
{
    free(handle->data);
}

/* The connection goes first: what runs ends with it. */
static void
orphan_destroy(void *job)
{
    struct orphan *orphan = job;

    orphan->is_closing = true;
    pg_conn_destroy(orphan->conn);
    flush_destroy(orphan->flush);
    recovery_destroy(orphan->recovery);
    pg_tx_fini(&orphan->look);
    pg_tx_fini(&orphan->claim);
    buffer_destroy(orphan->buffer);
    uv_close((uv_handle_t *)&orphan->timer, orphan_closed_cb);
}

const struct series_job orphan_job = {
    .create = orphan_create,
    .destroy = orphan_destroy,
    .wake = orphan_wake,
    .stop = orphan_stop,
    .state = orphan_state,
};
