/*
 * bucket_lane.c - one connection that writes buckets, a transaction at a time.
 *
 *   AWAY -> LOOKING -> IDLE -> LOCKING -> WRITING -> IDLE
 *                               |           |
 *                               +-----------+-> ROLLBACK [-> PAUSED] -> again
 *
 * With its connection lost while WRITING the transaction is in doubt; the
 * number that is found once the connection is back decides.
 */

#include "buckets/bucket_lane_state.h"

#include "base/crash_point.h"
#include "base/log.h"
#include "base/metrics.h"
#include "pg/selftest.h"

#include <stdio.h>
#include <stdlib.h>

#define PAUSE_MS         100
#define ARENA_BLOCK_SIZE (64u << 10)
#define ARENA_SIZE_MAX   (64u << 20)

/* As the lane of ingest: by index, planned once. */
#define BUCKET_SETTINGS                                   \
    "enable_seqscan=off enable_hashjoin=off"              \
    " enable_mergejoin=off enable_bitmapscan=off jit=off" \
    " plan_cache_mode=force_generic_plan"

static void next(struct bucket_lane *lane);


/* ---- answers ----------------------------------------------------------- */

static void
end(struct bucket_lane *lane, struct operation *operation,
    enum operation_end how)
{
    operation->result = (struct operation_result){.end = how};
    lane->options.on_end(lane->options.owner, operation);
}


static void
end_all(struct bucket_lane *lane, struct operation_list *list,
        enum operation_end how)
{
    while (list->head != NULL) {
        end(lane, operation_pop(list), how);
    }
}


/* Now, or as the number tells. */
static void
committed(struct bucket_lane *lane)
{
    CRASH_POINT("bucket_committed");
    lane->is_troubled = false;
    lane->is_careful = false;
    bucket_tally_count(&lane->tally);
    if (lane->is_unsure) {
        log_warn("buckets", "a commit is not replicated",
                 log_str("lane", lane->name));
        end_all(lane, &lane->running, OPERATION_UNKNOWN);
    }
    while (lane->running.head != NULL) {
        lane->options.on_end(lane->options.owner,
                             operation_pop(&lane->running));
    }
    next(lane);
}


/* ---- once more --------------------------------------------------------- */

static void
pause_cb(uv_timer_t *timer)
{
    struct bucket_lane *lane = timer->data;

    if (lane->state == LANE_PAUSED) {
        next(lane);
    }
}


/* Said once, until a transaction succeeds. */
static void
trouble_log(struct bucket_lane *lane)
{
    if (!lane->is_troubled) {
        log_warn("buckets", "a transaction failed; it is tried again",
                 log_str("lane", lane->name),
                 log_str("sqlstate", lane->sqlstate),
                 log_str("reason", lane->reason));
    }
    lane->is_troubled = true;
}


static void
later(struct bucket_lane *lane)
{
    trouble_log(lane);
    lane->state = LANE_PAUSED;
    uv_timer_start(&lane->pause, pause_cb, PAUSE_MS, 0);
}


/* The database does not take these: all but the culprit will pass. */
static void
apart(struct bucket_lane *lane)
{
    struct operation *culprit = NULL;

    if (lane->running.count > 1) {
        CHECK(lane->waiting.count == 0);
        lane->waiting = lane->running;
        lane->running = (struct operation_list){0};
    } else {
        culprit = operation_pop(&lane->running); /* NULL: has expired */
    }
    if (culprit != NULL) {
        log_error("buckets", "the database refused an operation",
                  log_str("sqlstate", lane->sqlstate),
                  log_str("reason", lane->reason),
                  log_bytes("tenant", culprit->request.key.tenant),
                  log_bytes("name", culprit->request.key.name));
        end(lane, culprit, OPERATION_FAILED);
    }
    next(lane);
}


static void
rolled_back(struct bucket_lane *lane)
{
    if (lane->is_failed) {
        lane->state = LANE_AWAY;
        pg_conn_reset(lane->conn, "a transaction could not be ended");
        return;
    }
    metrics.edgemeter_bucket_retries_total++;
    switch (lane->again) {
    case AGAIN_AT_ONCE: metrics.counter_update_conflict_retries++; break;
    case AGAIN_WITHOUT: break;
    case AGAIN_CAREFUL: lane->is_careful = true; break;
    case AGAIN_LATER: later(lane); return;
    case AGAIN_APART: apart(lane); return;
    case AGAIN_ELSEWHERE: CHECK(false);
    }
    next(lane);
}


/* `again` and the reason stay those of the transaction. */
static void
failed(struct bucket_lane *lane)
{
    if (lane->again == AGAIN_ELSEWHERE) {
        trouble_log(lane);
        metrics.edgemeter_bucket_retries_total++;
        lane->state = LANE_AWAY;
        pg_conn_reset(lane->conn, lane->reason);
        return;
    }
    bucket_step_begin(lane, LANE_ROLLBACK);
    bucket_step_command(lane, STATEMENT_ROLLBACK, bucket_step_plain_cb);
    bucket_step_send(lane);
}


/* ---- the number -------------------------------------------------------- */

static void
looked_cb(void *asker, const struct pg_answer *answer)
{
    struct bucket_lane *lane = asker;

    if (bucket_step_take(lane, answer)) {
        lane->found = pg_get_int8(answer->result, 0, 0);
    }
    bucket_step_if_done(lane);
}


/* Waits for a backend of ours that may still be committing. */
static void
look(struct bucket_lane *lane)
{
    bucket_step_begin(lane, LANE_LOOKING);
    bucket_step_command(lane, STATEMENT_BEGIN, bucket_step_plain_cb);
    bucket_step_put_lane(lane);
    bucket_step_ask(lane, STATEMENT_BUCKET_LANE_ENSURE, looked_cb);
    bucket_step_command(lane, STATEMENT_COMMIT, bucket_step_plain_cb);
    bucket_step_send(lane);
}


/*
 * A COMMIT had no answer: the number tells. The one that looked for it has
 * come through, and with it everything before.
 */
static void
resolve(struct bucket_lane *lane)
{
    lane->is_in_doubt = false;
    lane->is_unsure = false;
    metrics.edgemeter_commits_unknown_total++;
    log_info("buckets", "the outcome of a commit was looked up",
             log_str("lane", lane->name), log_int("number", lane->number),
             log_int("found", lane->found));
    if (lane->found == lane->number) {
        committed(lane);
        return;
    }
    if (lane->found == lane->number - 1) {
        metrics.edgemeter_bucket_retries_total++;
    } else {
        end_all(lane, &lane->running, OPERATION_UNKNOWN);
    }
    next(lane);
}


static void
looked(struct bucket_lane *lane)
{
    if (lane->is_failed) {
        lane->state = LANE_AWAY;
        pg_conn_reset(lane->conn, lane->reason); /* which logs it */
    } else if (lane->is_in_doubt) {
        resolve(lane);
    } else {
        next(lane);
    }
}


/* ---- one step after the other ------------------------------------------ */

/* The connection comes back by itself. */
static void
lost(struct bucket_lane *lane)
{
    if (lane->state == LANE_WRITING && !lane->is_failed) {
        lane->is_in_doubt = true;
    }
    lane->state = LANE_AWAY;
}


void
bucket_lane_step_done(struct bucket_lane *lane)
{
    if (lane->is_lost) {
        lost(lane);
        return;
    }
    switch (lane->state) {
    case LANE_LOOKING: looked(lane); return;
    case LANE_LOCKING:
        lane->is_failed ? failed(lane) : bucket_transaction_write(lane);
        return;
    case LANE_WRITING: lane->is_failed ? failed(lane) : committed(lane); return;
    case LANE_ROLLBACK: rolled_back(lane); return;
    case LANE_AWAY:
    case LANE_IDLE:
    case LANE_PAUSED: break;
    }
    CHECK(false);
}


/* Nothing is outstanding: the next transaction, if there is work. */
static void
next(struct bucket_lane *lane)
{
    for (;;) {
        if (!pg_conn_is_ready(lane->conn)) {
            lane->state = LANE_AWAY;
            return;
        }
        if (lane->running.count == 0 && lane->waiting.count > 0) {
            operation_push(&lane->running, operation_pop(&lane->waiting));
        }
        if (lane->running.count == 0) {
            lane->state = LANE_IDLE;
            return;
        }
        if (bucket_transaction_make(lane)) {
            bucket_transaction_lock(lane);
            return;
        }
        log_error("buckets", "no memory for a batch",
                  log_str("lane", lane->name));
        end_all(lane, &lane->running, OPERATION_UNAVAILABLE);
    }
}


/* ---- events ------------------------------------------------------------ */

static void
ready_cb(void *owner)
{
    struct bucket_lane *lane = owner;

    CHECK(lane->state == LANE_AWAY);
    if (lane->has_writer) {
        look(lane);
    }
}


/* Whatever was outstanding has been told LOST before. */
static void
lost_cb(void *owner, const char *why)
{
    struct bucket_lane *lane = owner;

    (void)why; /* logged by the connection */
    CHECK(lane->answers_due == 0);
    lane->state = LANE_AWAY;
    uv_timer_stop(&lane->pause);
}


/* Another connection refuses too, and who owns it ends the process. */
static void
refused_cb(void *owner, const char *why)
{
    struct bucket_lane *lane = owner;

    log_error("buckets", "refused", log_str("lane", lane->name),
              log_str("reason", why));
}


/* Said before the answer to the COMMIT. */
static void
not_replicated_cb(void *owner)
{
    struct bucket_lane *lane = owner;

    if (lane->state == LANE_LOOKING) {
        bucket_step_fail(lane, AGAIN_LATER, "",
                         "the first commit is not replicated");
    } else {
        lane->is_unsure = true;
    }
}


void
bucket_lane_writer_set(struct bucket_lane *lane, const uint8_t writer[16])
{
    CHECK(!lane->has_writer);
    memcpy(lane->writer, writer, sizeof(lane->writer));
    lane->has_writer = true;
    if (pg_conn_is_ready(lane->conn)) {
        look(lane);
    }
}


bool
bucket_lane_is_idle(const struct bucket_lane *lane)
{
    return lane->state == LANE_IDLE && pg_conn_is_ready(lane->conn);
}


void
bucket_lane_run(struct bucket_lane *lane, struct operation_list *list)
{
    CHECK(bucket_lane_is_idle(lane) && bucket_lane_count(lane) == 0);
    CHECK(list->count > 0 && list->count <= BUCKET_BATCH_MAX);
    lane->running = *list;
    *list = (struct operation_list){0};
    next(lane);
}


size_t
bucket_lane_count(const struct bucket_lane *lane)
{
    return lane->running.count + lane->waiting.count;
}


/* ---- deadlines --------------------------------------------------------- */

/* The oldest stand in front. True: one at least. */
static bool
expire(struct bucket_lane *lane, struct operation_list *list, uint64_t now_us,
       enum operation_end how)
{
    uint64_t age_us =
        how == OPERATION_UNKNOWN ? BUCKET_UNKNOWN_US : BUCKET_UNAVAILABLE_US;
    bool has_expired = false;

    while (list->head != NULL && list->head->submitted_us + age_us <= now_us) {
        end(lane, operation_pop(list), how);
        has_expired = true;
    }
    return has_expired;
}


void
bucket_lane_expire(struct bucket_lane *lane, uint64_t now_us)
{
    bool is_in_doubt = lane->is_in_doubt || lane->state == LANE_WRITING;

    expire(lane, &lane->waiting, now_us, OPERATION_UNAVAILABLE);
    if (expire(lane, &lane->running, now_us,
               is_in_doubt ? OPERATION_UNKNOWN : OPERATION_UNAVAILABLE) &&
        lane->state == LANE_LOCKING) {
        bucket_step_fail(lane, AGAIN_WITHOUT, "",
                         "operations have waited for too long");
    }
}


/* ---- the beginning and the end ----------------------------------------- */

static void
release(struct bucket_lane *lane)
{
    arena_fini(&lane->arena);
    pg_params_fini(&lane->params);
    free(lane);
}


static void
closed_cb(uv_handle_t *handle)
{
    release(handle->data);
}


struct bucket_lane *
bucket_lane_create(uv_loop_t *loop, const struct bucket_lane_options *options)
{
    static const struct pg_conn_events events = {
        .on_ready = ready_cb,
        .on_lost = lost_cb,
        .on_refused = refused_cb,
        .on_not_replicated = not_replicated_cb,
    };
    struct bucket_lane *lane = calloc(1, sizeof(*lane));

    if (lane == NULL) {
        return NULL;
    }
    lane->options = *options;
    arena_init(&lane->arena, ARENA_BLOCK_SIZE, ARENA_SIZE_MAX);
    pg_params_init(&lane->params);
    snprintf(lane->name, sizeof(lane->name), "bucket-%d", options->index);
    lane->conn = pg_conn_create(loop,
                                &(struct pg_conn_options){
                                    .name = lane->name,
                                    .url = options->url,
                                    .role = STORE_ROLE_WRITER,
                                    .settings = BUCKET_SETTINGS,
                                    .selftest = true,
                                },
                                &events, lane);
    if (lane->conn == NULL) {
        release(lane);
        return NULL;
    }
    uv_timer_init(loop, &lane->pause);
    lane->pause.data = lane;
    return lane;
}


/* pg_conn gives its last answers inside pg_conn_destroy. */
void
bucket_lane_destroy(struct bucket_lane *lane)
{
    if (lane == NULL) {
        return;
    }
    pg_conn_destroy(lane->conn);
    end_all(lane, &lane->running,
            lane->is_in_doubt ? OPERATION_UNKNOWN : OPERATION_UNAVAILABLE);
    end_all(lane, &lane->waiting, OPERATION_UNAVAILABLE);
    uv_close((uv_handle_t *)&lane->pause, closed_cb);
}
