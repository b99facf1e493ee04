/*
 * ingest.c - requests, the queue, the gathering of batches, answers.
 *
 *   ingest_submit -> queue -> [gather] -> transaction -> verdicts -> answers
 *
 * Gathering happens once
 * per turn of the loop, after everything readable was read: an event that
 * comes alone leaves in the same turn, and while a transaction runs the
 * next batch grows. A request stays whole in one batch where it fits.
 *
 * Bounds: queueEvents events and QUEUE_BYTES_MAX bytes of bodies may wait;
 * past that a request is answered BUSY and nothing of it is kept.
 */

#include "ingest/ingest.h"

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "ingest/audit_log.h"
#include "ingest/request.h"
#include "ingest/request_queue.h"
#include "ingest/transaction.h"
#include "ops/metrics.h"

#include <stdlib.h>

#define QUEUE_BYTES_MAX ((size_t)256 << 20)
#define BATCH_BYTES_MAX ((size_t)32 << 20) /* of bodies, in one batch */
#define TICK_MS         1000

enum { HANDLE_COUNT = 4 }; /* check, idle, deadline, tick */

struct ingest {
    struct config *config;
    struct lane *lane;
    struct transaction *transaction;
    uint64_t answer_timeout_ms;
    bool was_ready; /* the salts are known */

    struct request_queue queue;
    bool was_full; /* a request was refused; see ingest_is_full */

    struct gathered {
        struct batch_item **items;
        size_t room;
    } gathered[2]; /* the batch under way, and the one being answered */
    unsigned gathered_now;
    struct audit_log audit_log;
    bool was_idle; /* since the last tick */

    uv_check_t check; /* gathers, after a turn's input */
    uv_idle_t idle;   /* keeps the loop from sleeping before that */
    uv_timer_t deadline;
    uv_timer_t tick;
    int handles_open;
};

static void ingest_schedule(struct ingest *ingest);
static void ingest_check_cb(uv_check_t *check);
static void ingest_idle_cb(uv_idle_t *idle);
static void ingest_deadline_cb(uv_timer_t *timer);
static void ingest_tick_cb(uv_timer_t *timer);
static void
ingest_decided(void *owner, struct batch_item **items, size_t count);
static void ingest_batch_done(void *owner);

static const struct transaction_events ingest_transaction_events = {
    .on_decided = ingest_decided,
    .on_idle = ingest_batch_done,
};

struct ingest *
ingest_create(uv_loop_t *loop, struct config *config, struct lane *lane,
              struct partition *partition, const struct ingest_options *options)
{
    struct ingest *ingest = calloc(1, sizeof(*ingest));

    if (ingest == NULL) {
        return NULL;
    }
    ingest->transaction = transaction_create(
        loop, lane, partition, &ingest_transaction_events, ingest);
    if (ingest->transaction == NULL) {
        free(ingest);
        return NULL;
    }
    ingest->config = config_ref(config);
    ingest->lane = lane;
    ingest->answer_timeout_ms = options->answer_timeout_ms;
    CHECK(uv_check_init(loop, &ingest->check) == 0);
    CHECK(uv_idle_init(loop, &ingest->idle) == 0);
    CHECK(uv_timer_init(loop, &ingest->deadline) == 0);
    CHECK(uv_timer_init(loop, &ingest->tick) == 0);
    ingest->check.data = ingest;
    ingest->idle.data = ingest;
    ingest->deadline.data = ingest;
    ingest->tick.data = ingest;
    ingest->handles_open = HANDLE_COUNT;
    CHECK(uv_timer_start(&ingest->tick, ingest_tick_cb, TICK_MS, TICK_MS) == 0);
    uv_unref((uv_handle_t *)&ingest->tick);
    return ingest;
}

void
ingest_lane_ready(struct ingest *ingest, int64_t last, int64_t batch)
{
    (void)last; /* read again under the lock by every transaction */
    ingest->was_ready = true;
    transaction_lane_ready(ingest->transaction, batch);
    ingest_schedule(ingest);
}

/* The transaction hears of it through its answers; nothing is left to do. */
void
ingest_lane_lost(struct ingest *ingest)
{
    CHECK(ingest->was_ready);
}

void
ingest_not_replicated(struct ingest *ingest)
{
    transaction_not_replicated(ingest->transaction);
}

void
ingest_config_set(struct ingest *ingest, struct config *config)
{
    config_ref(config);
    config_unref(ingest->config);
    ingest->config = config;
}

bool
ingest_is_idle(const struct ingest *ingest)
{
    return ingest->queue.head == NULL &&
           transaction_is_idle(ingest->transaction);
}

bool
ingest_is_able(const struct ingest *ingest)
{
    return lane_is_ready(ingest->lane) &&
           transaction_is_able(ingest->transaction);
}


/* Answers. */

static void
request_release(struct ingest_request *request)
{
    struct ingest *ingest = request->ingest;

    if (request->flying_count > 0 || request->is_queued) {
        return;
    }
    request_queue_forget(&ingest->queue, request);
    request_free(request);
}

static void
request_answer(struct ingest_request *request, enum ingest_outcome outcome)
{
    ingest_answer_cb cb = request->cb;

    request->answer.outcome = outcome;
    request->cb = NULL;
    if (cb != NULL) {
        CRASH_POINT("before_answer");
        cb(request->asker, &request->answer);
    }
}

/* All events decided, or given up. */
static void
request_end(struct ingest_request *request, enum ingest_outcome outcome)
{
    request->is_ended = true;
    request_answer(request, outcome);
    request_release(request);
}

/* An answer that needs no request: BUSY, UNAVAILABLE. */
static void
answer_at_once(enum ingest_outcome outcome, ingest_answer_cb cb, void *asker)
{
    struct ingest_answer answer = {.outcome = outcome};

    cb(asker, &answer);
}

static void
ingest_decided(void *owner, struct batch_item **items, size_t count)
{
    struct ingest *ingest = owner;
    uint64_t now_ms = clock_mono_ms();

    for (size_t i = 0; i < count; i++) {
        audit_log_item(&ingest->audit_log, items[i], now_ms);
    }
    for (size_t i = 0; i < count; i++) {
        struct ingest_request *request = items[i]->owner;
        size_t events = request->answer.count;

        request_decide(request, items[i]);
        if (request->is_ended) {
            request_release(request); /* the answer was too late for it */
        } else if (request->decided_count == events) {
            request_end(request, INGEST_DONE);
        }
    }
}


/* Submitting. */

static struct ingest_request *
ingest_accept(struct ingest *ingest, struct ingest_request *request)
{
    size_t queue_max = (size_t)ingest->config->limits.queue_events;

    if (request->item_count + ingest->queue.events > queue_max ||
        ingest->queue.bytes + request->body.size > QUEUE_BYTES_MAX) {
        ingest->was_full = true;
        metrics.edgemeter_queue_full_total++;
        request_answer(request, INGEST_BUSY);
        request_free(request);
        return NULL;
    }
    metrics.edgemeter_events_rejected_total +=
        (int64_t)request->answer.counts[METER_VERDICT_REJECTED];
    request_queue_keep(&ingest->queue, request);
    if (request->item_count == 0) {
        request_end(request, INGEST_DONE);
        return NULL;
    }
    request_queue_push(&ingest->queue, request);
    if (!uv_is_active((uv_handle_t *)&ingest->deadline)) {
        CHECK(uv_timer_start(&ingest->deadline, ingest_deadline_cb,
                             ingest->answer_timeout_ms, 0) == 0);
    }
    ingest_schedule(ingest);
    return request;
}

/*
 * Once full, until an eighth is free again: reading bodies only to refuse
 * them would take the time that the queue needs to drain.
 */
static bool
ingest_is_full(struct ingest *ingest)
{
    size_t queue_max = (size_t)ingest->config->limits.queue_events;

    ingest->was_full =
        ingest->was_full && (ingest->queue.events > queue_max - queue_max / 8 ||
                             ingest->queue.bytes > QUEUE_BYTES_MAX / 8 * 7);
    return ingest->was_full;
}

struct ingest_request *
ingest_submit(struct ingest *ingest, struct meter_str tenant, struct buf *body,
              ingest_answer_cb cb, void *asker)
{
    struct ingest_request *request;
    enum ingest_outcome outcome;

    if (!ingest->was_ready) {
        buf_fini(body);
        answer_at_once(INGEST_UNAVAILABLE, cb, asker);
        return NULL;
    }
    if (ingest_is_full(ingest)) {
        metrics.edgemeter_queue_full_total++;
        buf_fini(body);
        answer_at_once(INGEST_BUSY, cb, asker);
        return NULL;
    }
    request = request_create(ingest, ingest->config, body);
    if (request == NULL) {
        answer_at_once(INGEST_UNAVAILABLE, cb, asker);
        return NULL;
    }
    request->cb = cb;
    request->asker = asker;
    request->submitted_ms = clock_mono_ms();
    outcome = request_read(request, tenant, lane_salt(ingest->lane),
                           lane_now_us(ingest->lane));
    CRASH_POINT("after_read");
    if (outcome != INGEST_DONE) {
        request_answer(request, outcome);
        request_free(request);
        return NULL;
    }
    return ingest_accept(ingest, request);
}

void
ingest_cancel(struct ingest_request *request)
{
    request->cb = NULL;
}


/* Gathering. */

static void
ingest_schedule(struct ingest *ingest)
{
    if (ingest->queue.head == NULL ||
        !transaction_is_idle(ingest->transaction)) {
        return;
    }
    uv_check_start(&ingest->check, ingest_check_cb);
    uv_idle_start(&ingest->idle, ingest_idle_cb);
}

static void
ingest_idle_cb(uv_idle_t *idle)
{
    (void)idle; /* being active is all it does: poll does not wait */
}

static bool
gathered_reserve(struct gathered *gathered, size_t count)
{
    struct batch_item **items;

    if (count <= gathered->room) {
        return true;
    }
    items = realloc(gathered->items, count * sizeof(*items));
    if (items == NULL) {
        return false;
    }
    gathered->items = items;
    gathered->room = count;
    return true;
}

static void
gathered_free(struct ingest *ingest)
{
    for (size_t i = 0; i < 2; i++) {
        free(ingest->gathered[i].items);
        ingest->gathered[i] = (struct gathered){NULL, 0};
    }
}

/* The next events of a request, at most room of them. */
static size_t
request_gather(struct ingest_request *request, struct batch_item **items,
               size_t room)
{
    size_t left = request->item_count - request->taken_count;
    size_t count = left < room ? left : room;

    for (size_t i = 0; i < count; i++) {
        items[i] = &request->items[request->taken_count + i];
    }
    request->taken_count += count;
    request->flying_count += count;
    return count;
}

/* Whole requests from the head of the queue; one that is too big is cut. */
static size_t
ingest_gather(struct ingest *ingest, struct gathered *gathered)
{
    size_t count_max = (size_t)ingest->config->limits.batch_events;
    size_t count = 0;
    size_t bytes = 0;

    if (count_max > ingest->queue.events) {
        count_max = ingest->queue.events;
    }
    if (!gathered_reserve(gathered, count_max)) {
        return 0;
    }
    while (ingest->queue.head != NULL && count < count_max) {
        struct ingest_request *request = ingest->queue.head;
        size_t left = request->item_count - request->taken_count;

        bytes += request->body.size;
        if (count > 0 &&
            (left > count_max - count || bytes > BATCH_BYTES_MAX)) {
            break;
        }
        count +=
            request_gather(request, gathered->items + count, count_max - count);
        if (request->taken_count == request->item_count) {
            request_queue_pop(&ingest->queue);
        }
    }
    request_queue_taken(&ingest->queue, count);
    return count;
}

static void
ingest_start(struct ingest *ingest)
{
    struct gathered *gathered = &ingest->gathered[ingest->gathered_now ^ 1];
    size_t count;

    if (ingest->queue.head == NULL ||
        !transaction_is_idle(ingest->transaction)) {
        return;
    }
    count = ingest_gather(ingest, gathered);
    if (count > 0) {
        ingest->gathered_now ^= 1;
        ingest->was_idle = false;
        transaction_run(ingest->transaction, gathered->items, count);
    }
}

static void
ingest_check_cb(uv_check_t *check)
{
    struct ingest *ingest = check->data;

    uv_check_stop(&ingest->check);
    uv_idle_stop(&ingest->idle);
    ingest_start(ingest);
}

/* What has gathered meanwhile goes at once. */
static void
ingest_batch_done(void *owner)
{
    ingest_start(owner);
}


/* Time. */

/* Those that ended while a transaction has their events are passed over. */
static void
ingest_deadline_cb(uv_timer_t *timer)
{
    struct ingest *ingest = timer->data;
    uint64_t now_ms = clock_mono_ms();
    uint64_t late_ms = ingest->answer_timeout_ms;
    struct ingest_request *request = ingest->queue.oldest;

    while (request != NULL &&
           (request->is_ended || now_ms - request->submitted_ms >= late_ms)) {
        struct ingest_request *next = request->next_kept;

        if (!request->is_ended) {
            metrics.edgemeter_answers_late_total++;
            request_queue_drop(&ingest->queue, request);
            request_end(request, INGEST_UNAVAILABLE);
        }
        request = next;
    }
    if (request != NULL) {
        CHECK(uv_timer_start(timer, ingest_deadline_cb,
                             request->submitted_ms + late_ms - now_ms, 0) == 0);
    }
}

static void
ingest_tick_cb(uv_timer_t *timer)
{
    struct ingest *ingest = timer->data;
    uint64_t now_ms = clock_mono_ms();

    audit_log_tick(&ingest->audit_log, now_ms);
    metrics.projection_lag_seconds = 0;
    if (ingest->queue.oldest != NULL) {
        metrics.projection_lag_seconds =
            (int64_t)((now_ms - ingest->queue.oldest->submitted_ms) / 1000);
    }
    if (ingest->was_idle && ingest_is_idle(ingest)) {
        transaction_trim(ingest->transaction);
        gathered_free(ingest);
    }
    ingest->was_idle = ingest_is_idle(ingest);
    ingest_schedule(ingest); /* memory may have been short */
}


/* The end. */

static void
ingest_closed_cb(uv_handle_t *handle)
{
    struct ingest *ingest = handle->data;

    if (--ingest->handles_open == 0) {
        gathered_free(ingest);
        free(ingest);
    }
}

void
ingest_destroy(struct ingest *ingest)
{
    if (ingest == NULL) {
        return;
    }
    transaction_destroy(ingest->transaction);
    while (ingest->queue.oldest != NULL) {
        struct ingest_request *request = ingest->queue.oldest;

        request_queue_drop(&ingest->queue, request);
        request->flying_count = 0;
        if (request->is_ended) {
            request_release(request);
        } else {
            request_end(request, INGEST_UNAVAILABLE);
        }
    }
    config_unref(ingest->config);
    uv_close((uv_handle_t *)&ingest->check, ingest_closed_cb);
    uv_close((uv_handle_t *)&ingest->idle, ingest_closed_cb);
    uv_close((uv_handle_t *)&ingest->deadline, ingest_closed_cb);
    uv_close((uv_handle_t *)&ingest->tick, ingest_closed_cb);
}
