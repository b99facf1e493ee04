/*
 * orphan.c - what writers that are gone have not flushed.
 *
 *   look -> heartbeats -> [one stands still] -> BEGIN; lock, or leave it;
 *   claim; COMMIT -> recovery -> flush and retire -> look
 *
 * Anything that fails is left to the next look: the writer still has a tail
 * and a heartbeat that stands still.
 */

#include "series/orphan.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "pg/selftest.h"
#include "series/flush.h"
#include "series/recovery.h"

#include <stdlib.h>

#define GONE_MS     60000
#define WATCHED_MAX 64 /* as orphan_list gives them */
#define LOOKS       2  /* in that time */

struct watched {
    uint8_t writer[16];
    int64_t heartbeat_us;
    uint64_t since_ms;
};

enum orphan_state {
    ORPHAN_IDLE,
    ORPHAN_LOOKING,
    ORPHAN_CLAIMING,
    ORPHAN_RECOVERING,
    ORPHAN_FLUSHING
};

struct orphan {
    struct orphan_options options;
    struct config *config;
    struct pg_conn *conn;
    struct buffer *buffer;
    struct flush *flush;
    struct recovery *recovery;
    uv_timer_t timer;
    uint64_t gone_ms;
    bool is_closing;

    enum orphan_state state;
    struct watched watched[WATCHED_MAX];
    size_t watched_count;
    struct flush_task task; /* what is being adopted */
    int64_t heartbeat_us;   /* of its writer: did not move */
};

static void look_cb(void *asker, const struct pg_answer *answer);
static void orphan_timer_cb(uv_timer_t *timer);

static void
orphan_idle(struct orphan *orphan)
{
    orphan->state = ORPHAN_IDLE;
    buffer_clear(orphan->buffer);
}


/* ---- adopting --------------------------------------------------------- */

static void
flushed_cb(void *owner, const struct flush_end *end)
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

static void
recovered_cb(void *owner, bool is_done)
{
    struct orphan *orphan = owner;

    if (orphan->is_closing) {
        return;
    }
    if (!is_done) {
        orphan_idle(orphan);
        return;
    }
    orphan->state = ORPHAN_FLUSHING;
    buffer_cut(orphan->buffer);
    flush_start(orphan->flush, &orphan->task);
}

static void
claimed_cb(void *asker, const struct pg_answer *answer)
{
    struct orphan *orphan = asker;
    struct recovery_task task = {
        .after = orphan->task.from,
        .upto = orphan->task.upto,
        .recorded_us = orphan->task.recorded_us,
        .buffer = orphan->buffer,
        .config = orphan->config,
    };

    if (orphan->is_closing) {
        return;
    }
    if (answer->outcome != PG_OUTCOME_OK) {
        orphan_idle(orphan);
        return;
    }
    log_info("series", "flushing for a writer that is gone",
             log_int("events", task.upto - task.after));
    orphan->state = ORPHAN_RECOVERING;
    memcpy(task.writer, orphan->task.writer, sizeof(task.writer));
    orphan->task.recorded_us = FLUSH_ANY_US; /* of the last row: not known */
    recovery_start(orphan->recovery, &task);
}

static void
left_cb(void *asker, const struct pg_answer *answer)
{
    struct orphan *orphan = asker;

    (void)answer;
    if (!orphan->is_closing) {
        orphan_idle(orphan);
    }
}

/* It lives, or someone else has it. */
static void
leave(struct orphan *orphan, const struct pg_answer *answer)
{
    if (answer->outcome == PG_OUTCOME_LOST) {
        orphan_idle(orphan);
        return;
    }
    pg_conn_command(orphan->conn, STATEMENT_ROLLBACK, left_cb, orphan);
    pg_conn_flush(orphan->conn);
}

static int64_t
time_or_any(const void *result, int column)
{
    return pg_is_null(result, 0, column) ? FLUSH_ANY_US
                                         : pg_get_time(result, 0, column);
}

static void
claim_cb(void *asker, const struct pg_answer *answer)
{
    struct orphan *orphan = asker;

    if (orphan->is_closing) {
        return;
    }
    if (answer->outcome != PG_OUTCOME_OK || pg_row_count(answer->result) == 0) {
        leave(orphan, answer);
        return;
    }
    orphan->task.epoch = pg_get_int8(answer->result, 0, 0);
    orphan->task.upto = pg_get_int8(answer->result, 0, 1);
    orphan->task.from = pg_get_int8(answer->result, 0, 2);
    orphan->task.recorded_us = time_or_any(answer->result, 3);
    orphan->task.flushed_us = time_or_any(answer->result, 4);
    orphan->task.is_retiring = true;
    orphan->task.buffer = orphan->buffer;
    pg_conn_command(orphan->conn, STATEMENT_COMMIT, claimed_cb, orphan);
    pg_conn_flush(orphan->conn);
}

static void
lock_cb(void *asker, const struct pg_answer *answer)
{
    struct orphan *orphan = asker;
    struct pg_params params;

    if (orphan->is_closing) {
        return;
    }
    if (answer->outcome != PG_OUTCOME_OK || pg_row_count(answer->result) == 0) {
        leave(orphan, answer);
        return;
    }
    pg_params_init(&params);
    pg_param_uuid(&params, orphan->task.writer);
    pg_param_time(&params, orphan->heartbeat_us);
    pg_conn_query(orphan->conn, STATEMENT_ORPHAN_CLAIM, &params, claim_cb,
                  orphan);
    pg_conn_flush(orphan->conn);
    pg_params_fini(&params);
}

/* What BEGIN did is told by what follows it. */
static void
begin_cb(void *asker, const struct pg_answer *answer)
{
    (void)asker;
    (void)answer;
}

static void
adopt(struct orphan *orphan, const struct watched *watched)
{
    struct pg_params params;

    orphan->state = ORPHAN_CLAIMING;
    orphan->task = (struct flush_task){
        .recorded_us = FLUSH_ANY_US, /* until it is claimed */
        .clock_us = FLUSH_ANY_US,
    };
    orphan->heartbeat_us = watched->heartbeat_us;
    memcpy(orphan->task.writer, watched->writer, sizeof(watched->writer));
    pg_params_init(&params);
    pg_param_uuid(&params, watched->writer);
    pg_conn_command(orphan->conn, STATEMENT_BEGIN, begin_cb, orphan);
    pg_conn_query(orphan->conn, STATEMENT_ORPHAN_LOCK, &params, lock_cb,
                  orphan);
    pg_conn_flush(orphan->conn);
    pg_params_fini(&params);
}


/* ---- looking ---------------------------------------------------------- */

/* Since when its heartbeat stands as it does. */
static uint64_t
standing_since(const struct orphan *orphan, const uint8_t writer[16],
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
gone(const struct orphan *orphan, uint64_t now_ms)
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
watch(struct orphan *orphan, const void *result, uint64_t now_ms)
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
        one->since_ms =
            standing_since(orphan, one->writer, one->heartbeat_us, now_ms);
    }
    memcpy(orphan->watched, seen, count * sizeof(*seen));
    orphan->watched_count = count;
}

static void
look_cb(void *asker, const struct pg_answer *answer)
{
    struct orphan *orphan = asker;
    uint64_t now_ms = clock_mono_ms();
    const struct watched *one;

    if (orphan->is_closing) {
        return;
    }
    orphan->state = ORPHAN_IDLE;
    if (answer->outcome != PG_OUTCOME_OK) {
        return;
    }
    watch(orphan, answer->result, now_ms);
    one = gone(orphan, now_ms);
    if (one != NULL) {
        adopt(orphan, one);
    }
}

static void
orphan_timer_cb(uv_timer_t *timer)
{
    struct orphan *orphan = timer->data;
    struct pg_params params;

    if (orphan->state != ORPHAN_IDLE || !pg_conn_is_ready(orphan->conn)) {
        return;
    }
    orphan->state = ORPHAN_LOOKING;
    pg_params_init(&params);
    pg_param_uuid(&params, lane_writer(orphan->options.lane));
    pg_param_int8(&params, (int64_t)orphan->gone_ms * 1000);
    pg_conn_query(orphan->conn, STATEMENT_ORPHAN_LIST, &params, look_cb,
                  orphan);
    pg_conn_flush(orphan->conn);
    pg_params_fini(&params);
}

void
orphan_start(struct orphan *orphan)
{
    uint64_t every_ms = orphan->gone_ms / LOOKS;

    CHECK(uv_timer_start(&orphan->timer, orphan_timer_cb, 0, every_ms) == 0);
}

void
orphan_stop(struct orphan *orphan)
{
    uv_timer_stop(&orphan->timer);
}


/* ---- the beginning and the end ---------------------------------------- */

/* Tests do not wait that long. */
static uint64_t
gone_ms(void)
{
    const char *text = getenv("METERD_TEST_ORPHAN_MS");
    long ms = text == NULL ? 0 : strtol(text, NULL, 10);

    return ms > LOOKS ? (uint64_t)ms : GONE_MS;
}

struct orphan *
orphan_create(uv_loop_t *loop, const struct orphan_options *options)
{
    static const struct pg_conn_events events = {0};
    struct orphan *orphan = calloc(1, sizeof(*orphan));
    const struct pg_conn_options conn_options = {
        .name = "orphan",
        .url = options->url,
        .role = STORE_ROLE_WRITER,
        .settings = SERIES_SETTINGS,
        .selftest = true,
    };

    if (orphan == NULL) {
        return NULL;
    }
    orphan->options = *options;
    orphan->config = config_ref(options->config);
    orphan->gone_ms = gone_ms();
    CHECK(uv_timer_init(loop, &orphan->timer) == 0);
    orphan->timer.data = orphan;
    orphan->buffer = buffer_create();
    orphan->conn = pg_conn_create(loop, &conn_options, &events, orphan);
    if (orphan->conn != NULL) {
        orphan->flush =
            flush_create(orphan->conn, options->partition, flushed_cb, orphan);
        orphan->recovery = recovery_create(orphan->conn, recovered_cb, orphan);
    }
    if (orphan->buffer == NULL || orphan->flush == NULL ||
        orphan->recovery == NULL) {
        orphan_destroy(orphan);
        return NULL;
    }
    return orphan;
}

static void
closed_cb(uv_handle_t *handle)
{
    free(handle->data);
}

void
orphan_destroy(struct orphan *orphan)
{
    if (orphan == NULL) {
        return;
    }
    orphan->is_closing = true;
    pg_conn_destroy(orphan->conn);
    flush_destroy(orphan->flush);
    recovery_destroy(orphan->recovery);
    buffer_destroy(orphan->buffer);
    config_unref(orphan->config);
    uv_close((uv_handle_t *)&orphan->timer, closed_cb);
}

void
orphan_config_set(struct orphan *orphan, struct config *config)
{
    config_ref(config);
    config_unref(orphan->config);
    orphan->config = config;
}
