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
#include "base/metrics.h"
#include "buckets/bucket_lane.h"
#include "buckets/bucket_sweep.h"

#include <stdlib.h>

#define LANES       (1 + BUCKET_SYNC_LANES)
#define LOOK_MS     250
#define LOOK_MAX    20000 /* operations that expire in one look */
#define ANSWERS_MAX 100   /* in one turn of the loop */
#define HANDLES     4

struct bucket_engine {
    uv_check_t handing;        /* behind all reads of a turn */
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
count_end(const struct operation *operation)
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
answer(struct bucket_engine *engine, size_t count_max)
{
    for (size_t i = 0; i < count_max && engine->ended.head != NULL; i++) {
        struct operation *operation = operation_pop(&engine->ended);

        count_end(operation);
        operation_finish(operation);
    }
}


static void
answering_cb(uv_idle_t *handle)
{
    struct bucket_engine *engine = handle->data;

    answer(engine, ANSWERS_MAX);
    if (engine->ended.head == NULL) {
        uv_idle_stop(handle);
    }
}


/* Its result is set. */
static void
end_cb(void *owner, struct operation *operation)
{
    struct bucket_engine *engine = owner;

    if (operation->request.is_sync) {
        operation_push_front(&engine->ended, operation);
    } else {
        operation_push(&engine->ended, operation);
    }
    if (!uv_is_closing((uv_handle_t *)&engine->answering)) {
        uv_idle_start(&engine->answering, answering_cb);
    }
}


static void
unavailable(struct bucket_engine *engine, struct operation *operation)
{
    operation->is_queued = false;
    operation->result = (struct operation_result){.end = OPERATION_UNAVAILABLE};
    end_cb(engine, operation);
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
hand(struct bucket_lane *lane, struct operation_list *queue, size_t count_max)
{
    struct operation_list list = {0};

    if (queue->count == 0 || !bucket_lane_is_idle(lane)) {
        return;
    }
    while (list.count < count_max && queue->head != NULL) {
        struct operation *operation = operation_pop(queue);

        operation->is_queued = false;
        operation_push(&list, operation);
    }
    bucket_lane_run(lane, &list);
}


/* Answers that have piled up go first. */
static void
hand_all(struct bucket_engine *engine)
{
    if (queue_count(engine) == 0) {
        return;
    }
    if (engine->ended.count < BUCKET_BATCH_MAX) {
        hand(engine->lanes[0], &engine->batched, BUCKET_BATCH_MAX);
    }
    for (size_t i = 1; i < LANES; i++) {
        hand(engine->lanes[i], &engine->single, 1);
    }
    queue_changed(engine);
}


static void
handing_cb(uv_check_t *handle)
{
    hand_all(handle->data);
}


static void
handing_last_cb(uv_prepare_t *handle)
{
    hand_all(handle->data);
}


/* ---- deadlines --------------------------------------------------------- */

/* The oldest stand in front. */
static size_t
queue_expire(struct bucket_engine *engine, struct operation_list *queue,
             uint64_t now_us)
{
    size_t count = 0;

    while (queue->head != NULL && count < LOOK_MAX &&
           queue->head->submitted_us + BUCKET_UNAVAILABLE_US <= now_us) {
        unavailable(engine, operation_pop(queue));
        count++;
    }
    return count;
}


static void
looking_cb(uv_timer_t *timer)
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
        uv_timer_start(timer, looking_cb, 1, LOOK_MS);
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
    if (operation == NULL) {
        return BUCKET_MEMORY;
    }
    operation->submitted_us = clock_mono_us();
    operation->is_queued = true;
    operation_push(queue_of(engine, operation), operation);
    queue_changed(engine);
    if (!uv_is_active((uv_handle_t *)&engine->looking)) {
        uv_timer_start(&engine->looking, looking_cb, LOOK_MS, LOOK_MS);
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
    bucket_sweep_start(engine->sweep);
}


void
bucket_engine_queue_max_set(struct bucket_engine *engine, size_t max)
{
    engine->queue_max = max;
}


/* ---- the beginning and the end ----------------------------------------- */

static void
closed_cb(uv_handle_t *handle)
{
    struct bucket_engine *engine = handle->data;

    if (--engine->handles == 0) {
        free(engine);
    }
}


static void
handles_open(struct bucket_engine *engine, uv_loop_t *loop)
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
    uv_check_start(&engine->handing, handing_cb);
    uv_prepare_start(&engine->handing_last, handing_last_cb);
}


struct bucket_engine *
bucket_engine_create(uv_loop_t *loop,
                     const struct bucket_engine_options *options)
{
    struct bucket_engine *engine = calloc(1, sizeof(*engine));
    bool is_whole;

    if (engine == NULL) {
        return NULL;
    }
    handles_open(engine, loop);
    engine->sweep = bucket_sweep_create(loop, options->writes);
    is_whole = engine->sweep != NULL;
    for (int i = 0; i < LANES && is_whole; i++) {
        engine->lanes[i] =
            bucket_lane_create(loop, &(struct bucket_lane_options){
                                         .url = options->url,
                                         .index = i,
                                         .on_end = end_cb,
                                         .owner = engine,
                                     });
        is_whole = engine->lanes[i] != NULL;
    }
    if (!is_whole) {
        bucket_engine_destroy(engine);
        return NULL;
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
    uv_close((uv_handle_t *)&engine->handing, closed_cb);
    uv_close((uv_handle_t *)&engine->handing_last, closed_cb);
    uv_close((uv_handle_t *)&engine->answering, closed_cb);
    uv_close((uv_handle_t *)&engine->looking, closed_cb);
    bucket_sweep_destroy(engine->sweep);
    for (size_t i = 0; i < LANES; i++) {
        bucket_lane_destroy(engine->lanes[i]);
    }
    while ((operation = operation_pop(&engine->batched)) != NULL ||
           (operation = operation_pop(&engine->single)) != NULL) {
        unavailable(engine, operation);
    }
    answer(engine, SIZE_MAX);
}
