/*
 * bucket_engine.c - writes of the counters API, durable before answered.
 *
 *   submit -> [batched] -> lane 0: what has come meanwhile, up to 5000
 *          -> [single]  -> lanes 1..4: one each
 *   lane -> [ended] -> some each turn of the loop -> callback
 *
 * Work is handed out when all that came in one turn of the loop was read, so
 * that it goes together, and once more before the loop goes to sleep. Answers
 * come after it, a few at a time, while the next transaction runs; never from
 * inside a call of the asker or of a connection.
 */

#include "buckets/bucket_engine.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "buckets/bucket_lane.h"

#include <stdlib.h>

#define LANES       (1 + BUCKET_SYNC_LANES)
#define LOOK_MS     250
#define LOOK_MAX    20000 /* operations that expire in one look */
#define ANSWERS_MAX 100   /* in one turn of the loop */
#define HANDLES     4

/* Of the sweep. */
#define STEP_PAGES 256
#define STEP_LIMIT 1000
#define STEP_MS    1000
#define PASS_MS    60000
#define GRACE_S    60

/* ---- the sweep -------------------------------------------------------- */

/*
 * Deletes buckets that have expired: every second some pages of each
 * partition, the whole table at most once a minute. Nothing depends on it: a
 * bucket that has expired is as if it were not there. It is kept for a minute
 * past its end, for transactions that began before. A step that met as many as
 * its limit is done again at once, since there may be more in its pages; unless
 * writes hold all that it met.
 */
struct bucket_sweep {
    uv_timer_t timer;
    struct reader *writes;
    uint64_t step_ms;
    uint64_t pass_ms;
    int64_t grace_s;

    int64_t page; /* the next step begins here */
    uint64_t began_ms;
    bool is_asking; /* the answer will come */
    bool is_closing;
    bool is_closed; /* the timer */
};

static void sweep_step(struct bucket_sweep *sweep);

static void
sweep_free_if_done(struct bucket_sweep *sweep)
{
    if (sweep->is_closed && !sweep->is_asking) {
        free(sweep);
    }
}

static void
sweep_closed_cb(uv_handle_t *handle)
{
    struct bucket_sweep *sweep = handle->data;

    sweep->is_closed = true;
    sweep_free_if_done(sweep);
}

static void
sweep_timer_cb(uv_timer_t *timer)
{
    sweep_step(timer->data);
}

static void
sweep_step_after(struct bucket_sweep *sweep, uint64_t ms)
{
    uv_timer_start(&sweep->timer, sweep_timer_cb, ms, 0);
}

/* The whole table was seen: a while from its beginning to the next. */
static void
sweep_pass_ended(struct bucket_sweep *sweep)
{
    uint64_t spent_ms = clock_mono_ms() - sweep->began_ms;
    uint64_t left_ms =
        spent_ms < sweep->pass_ms ? sweep->pass_ms - spent_ms : 0;

    sweep->page = 0;
    sweep_step_after(sweep,
                     left_ms < sweep->step_ms ? sweep->step_ms : left_ms);
}

static void
sweep_stepped(struct bucket_sweep *sweep, int64_t deleted, int64_t pages,
              int64_t met)
{
    metrics.edgemeter_bucket_expired_total += deleted;
    if (met >= STEP_LIMIT && deleted > 0) {
        sweep_step_after(sweep, 0);
        return;
    }
    sweep->page += STEP_PAGES;
    if (sweep->page < pages) {
        sweep_step_after(sweep, sweep->step_ms);
    } else {
        sweep_pass_ended(sweep);
    }
}

/* One that failed is done again; the connection has logged it. */
static void
sweep_step_cb(void *asker, const struct pg_answer *answer)
{
    struct bucket_sweep *sweep = asker;

    sweep->is_asking = false;
    if (sweep->is_closing) {
        sweep_free_if_done(sweep);
    } else if (answer->outcome == PG_OUTCOME_OK &&
               pg_row_count(answer->result) == 1) {
        sweep_stepped(sweep, pg_get_int8(answer->result, 0, 0),
                      pg_get_int8(answer->result, 0, 1),
                      pg_get_int8(answer->result, 0, 2));
    } else {
        sweep_step_after(sweep, sweep->step_ms);
    }
}

static void
sweep_step(struct bucket_sweep *sweep)
{
    struct pg_params params;

    if (sweep->page == 0) {
        sweep->began_ms = clock_mono_ms();
    }
    pg_params_init(&params);
    pg_param_int8(&params, sweep->page);
    pg_param_int8(&params, sweep->page + STEP_PAGES);
    pg_param_int8(&params, sweep->grace_s);
    pg_param_int8(&params, STEP_LIMIT);
    sweep->is_asking = true;
    reader_query(sweep->writes, (struct meter_str){NULL, 0},
                 STATEMENT_BUCKET_SWEEP, &params, sweep_step_cb, sweep);
    pg_params_fini(&params);
}

static struct bucket_sweep *
sweep_create(uv_loop_t *loop, struct reader *writes)
{
    const char *test = getenv("METERD_TEST_SWEEP_MS");
    uint64_t test_ms = test == NULL ? 0 : strtoull(test, NULL, 10);
    struct bucket_sweep *sweep = memory_alloc(sizeof(*sweep));

    sweep->writes = writes;
    sweep->step_ms = test_ms > 0 ? test_ms : STEP_MS;
    sweep->pass_ms = test_ms > 0 ? test_ms : PASS_MS;
    sweep->grace_s = test_ms > 0 ? 0 : GRACE_S;
    uv_timer_init(loop, &sweep->timer);
    sweep->timer.data = sweep;
    return sweep;
}

static void
sweep_start(struct bucket_sweep *sweep)
{
    sweep_step_after(sweep, sweep->step_ms);
}

static void
sweep_destroy(struct bucket_sweep *sweep)
{
    sweep->is_closing = true;
    uv_close((uv_handle_t *)&sweep->timer, sweep_closed_cb);
}


/* ---- the engine ------------------------------------------------------- */

struct bucket_engine {
    uv_check_t handing;        /* after all reads of a turn */
    uv_prepare_t handing_last; /* what came otherwise */
    uv_idle_t answering;       /* while there is something in `ended` */
    uv_timer_t looking;        /* for deadlines, while anything waits */
    unsigned handles;

    struct bucket_lane *lanes[LANES];
    struct bucket_sweep *sweep;
    size_t queue_max;
    struct operation_list batched;
    struct operation_list single;
    struct operation_list ended; /* single ones in front */
};


/* ---- answers ----------------------------------------------------------- */

static void
engine_count_end(const struct operation *operation)
{
    metrics.edgemeter_bucket_unavailable_total +=
        operation->result.end == OPERATION_UNAVAILABLE;
    metrics.edgemeter_bucket_unknown_total +=
        operation->result.end == OPERATION_UNKNOWN;
    metrics_observe(operation->request.is_sync
                        ? &metrics.edgemeter_bucket_sync_seconds
                        : &metrics.edgemeter_bucket_batched_seconds,
                    clock_mono_us() - operation->submitted_us);
}

static void
engine_answer(struct bucket_engine *engine, size_t count_max)
{
    for (size_t i = 0; i < count_max && engine->ended.count > 0; i++) {
        struct operation *operation = operation_pop(&engine->ended);

        engine_count_end(operation);
        operation_finish(operation);
    }
}

static void
engine_answering_cb(uv_idle_t *handle)
{
    struct bucket_engine *engine = handle->data;

    engine_answer(engine, ANSWERS_MAX);
    if (engine->ended.count == 0) {
        uv_idle_stop(handle);
    }
}

/* Its result is set. */
static void
engine_end_cb(void *owner, struct operation *operation)
{
    struct bucket_engine *engine = owner;

    if (operation->request.is_sync) {
        operation_push_front(&engine->ended, operation);
    } else {
        operation_push(&engine->ended, operation);
    }
    if (!uv_is_closing((uv_handle_t *)&engine->answering)) {
        uv_idle_start(&engine->answering, engine_answering_cb);
    }
}

static void
engine_unavailable(struct bucket_engine *engine, struct operation *operation)
{
    operation->is_queued = false;
    operation->result = (struct operation_result){.end = OPERATION_UNAVAILABLE};
    engine_end_cb(engine, operation);
}


/* ---- the queue --------------------------------------------------------- */

static size_t
queue_count(const struct bucket_engine *engine)
{
    return engine->batched.count + engine->single.count;
}

static void
queue_changed(const struct bucket_engine *engine)
{
    metrics.edgemeter_bucket_queue_operations = (int64_t)queue_count(engine);
}

static struct operation_list *
queue_of(struct bucket_engine *engine, const struct operation *operation)
{
    return operation->request.is_sync ? &engine->single : &engine->batched;
}

static void
engine_hand(struct bucket_lane *lane, struct operation_list *queue,
            size_t count_max)
{
    struct operation_list list;

    if (queue->count == 0 || !bucket_lane_is_idle(lane)) {
        return;
    }
    operation_list_init(&list);
    while (list.count < count_max && queue->count > 0) {
        struct operation *operation = operation_pop(queue);

        operation->is_queued = false;
        operation_push(&list, operation);
    }
    bucket_lane_run(lane, &list);
}

/* Answers that have piled up go first. */
static void
engine_hand_all(struct bucket_engine *engine)
{
    if (queue_count(engine) == 0) {
        return;
    }
    if (engine->ended.count < BUCKET_BATCH_MAX) {
        engine_hand(engine->lanes[0], &engine->batched, BUCKET_BATCH_MAX);
    }
    for (size_t i = 1; i < LANES; i++) {
        engine_hand(engine->lanes[i], &engine->single, 1);
    }
    queue_changed(engine);
}

static void
engine_handing_cb(uv_check_t *handle)
{
    engine_hand_all(handle->data);
}

static void
engine_handing_last_cb(uv_prepare_t *handle)
{
    engine_hand_all(handle->data);
}


/* ---- deadlines --------------------------------------------------------- */

/* The oldest stand in front. */
static size_t
queue_expire(struct bucket_engine *engine, struct operation_list *queue,
             uint64_t now_us)
{
    size_t count = 0;

    while (queue->count > 0 && count < LOOK_MAX &&
           operation_first(queue)->submitted_us + BUCKET_UNAVAILABLE_US <=
               now_us) {
        engine_unavailable(engine, operation_pop(queue));
        count++;
    }
    return count;
}

static void
engine_looking_cb(uv_timer_t *timer)
{
    struct bucket_engine *engine = timer->data;
    uint64_t now_us = clock_mono_us();
    size_t left = 0;
    bool is_cut = false;

    is_cut |= queue_expire(engine, &engine->batched, now_us) == LOOK_MAX;
    is_cut |= queue_expire(engine, &engine->single, now_us) == LOOK_MAX;
    for (size_t i = 0; i < LANES; i++) {
        bucket_lane_expire(engine->lanes[i], now_us);
        left += bucket_lane_count(engine->lanes[i]);
    }
    queue_changed(engine);
    if (queue_count(engine) + left == 0) {
        uv_timer_stop(timer);
    } else if (is_cut) {
        uv_timer_start(timer, engine_looking_cb, 1, LOOK_MS);
    }
}


/* ---- for the api ------------------------------------------------------- */

enum bucket_submit
bucket_engine_submit(struct bucket_engine *engine,
                     const struct operation_request *request, operation_cb cb,
                     void *asker, struct operation **out)
{
    struct operation *operation;

    *out = NULL;
    if (queue_count(engine) >= engine->queue_max) {
        return BUCKET_FULL;
    }
    operation = operation_create(request, cb, asker);
    operation->submitted_us = clock_mono_us();
    operation->is_queued = true;
    operation_push(queue_of(engine, operation), operation);
    queue_changed(engine);
    if (!uv_is_active((uv_handle_t *)&engine->looking)) {
        uv_timer_start(&engine->looking, engine_looking_cb, LOOK_MS, LOOK_MS);
    }
    *out = operation;
    return BUCKET_SUBMITTED;
}

void
bucket_engine_cancel(struct bucket_engine *engine, struct operation *operation)
{
    if (!operation->is_queued) {
        operation->cb = NULL;
        return;
    }
    operation_remove(queue_of(engine, operation), operation);
    operation_free(operation);
    queue_changed(engine);
}

void
bucket_engine_writer_set(struct bucket_engine *engine, const uint8_t writer[16])
{
    for (size_t i = 0; i < LANES; i++) {
        bucket_lane_writer_set(engine->lanes[i], writer);
    }
    sweep_start(engine->sweep);
}

void
bucket_engine_queue_max_set(struct bucket_engine *engine, size_t max)
{
    engine->queue_max = max;
}


/* ---- the beginning and the end ----------------------------------------- */

static void
engine_closed_cb(uv_handle_t *handle)
{
    struct bucket_engine *engine = handle->data;

    if (--engine->handles == 0) {
        free(engine);
    }
}

static void
engine_handles_open(struct bucket_engine *engine, uv_loop_t *loop)
{
    uv_check_init(loop, &engine->handing);
    uv_prepare_init(loop, &engine->handing_last);
    uv_idle_init(loop, &engine->answering);
    uv_timer_init(loop, &engine->looking);
    engine->handing.data = engine;
    engine->handing_last.data = engine;
    engine->answering.data = engine;
    engine->looking.data = engine;
    engine->handles = HANDLES;
    uv_check_start(&engine->handing, engine_handing_cb);
    uv_prepare_start(&engine->handing_last, engine_handing_last_cb);
}

struct bucket_engine *
bucket_engine_create(uv_loop_t *loop,
                     const struct bucket_engine_options *options)
{
    struct bucket_engine *engine = memory_alloc(sizeof(*engine));

    operation_list_init(&engine->batched);
    operation_list_init(&engine->single);
    operation_list_init(&engine->ended);
    engine_handles_open(engine, loop);
    engine->sweep = sweep_create(loop, options->writes);
    for (int i = 0; i < LANES; i++) {
        engine->lanes[i] =
            bucket_lane_create(loop, &(struct bucket_lane_options){
                                         .url = options->url,
                                         .index = i,
                                         .on_end = engine_end_cb,
                                         .owner = engine,
                                     });
    }
    return engine;
}

void
bucket_engine_destroy(struct bucket_engine *engine)
{
    struct operation *operation;

    if (engine == NULL) {
        return;
    }
    engine->queue_max = 0; /* whoever is answered now cannot come back */
    uv_close((uv_handle_t *)&engine->handing, engine_closed_cb);
    uv_close((uv_handle_t *)&engine->handing_last, engine_closed_cb);
    uv_close((uv_handle_t *)&engine->answering, engine_closed_cb);
    uv_close((uv_handle_t *)&engine->looking, engine_closed_cb);
    sweep_destroy(engine->sweep);
    for (size_t i = 0; i < LANES; i++) {
        bucket_lane_destroy(engine->lanes[i]);
    }
    while ((operation = operation_pop(&engine->batched)) != NULL ||
           (operation = operation_pop(&engine->single)) != NULL) {
        engine_unavailable(engine, operation);
    }
    engine_answer(engine, SIZE_MAX);
}
