/*
 * ingest.c - requests, the queue, answers, time.
 *
 *   ingest_submit -> queue -> gather -> transaction -> verdicts -> answers
 *
 * Bounds: queueEvents events and QUEUE_BYTES_MAX bytes of bodies may wait;
 * past that a request is answered BUSY and nothing of it is kept. Records of
 * rings count towards both but are never refused: credit bounds them.
 */

#include "ingest/ingest_state.h"

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/metrics.h"
#include "series/series_engine.h"

#include <stdlib.h>

#define QUEUE_BYTES_MAX ((size_t)256 << 20)
#define TICK_MS         1000

enum { HANDLE_COUNT = 4 }; /* check, idle, deadline, tick */

static void ingest_deadline_cb(uv_timer_t *timer);
static void ingest_tick_cb(uv_timer_t *timer);
static void ingest_decided(void *owner, struct batch_item **items, size_t count,
                           const struct transaction_commit *commit);
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
    const char *state_dir =
        options->state_dir != NULL ? options->state_dir : config->state_dir;

    if (ingest == NULL) {
        return NULL;
    }
    if (state_dir != NULL) {
        ingest->poison = poison_open(state_dir, clock_mono_ms());
    }
    ingest->transaction =
        transaction_create(loop, lane, partition, ingest->poison,
                           &ingest_transaction_events, ingest);
    if (ingest->transaction == NULL) {
        poison_close(ingest->poison);
        free(ingest);
        return NULL;
    }
    if (ingest->poison != NULL) {
        poison_watch(ingest->poison);
    }
    ingest->config = config_ref(config);
    ingest->lane = lane;
    ingest->series = options->series;
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
ingest_room(struct ingest *ingest)
{
    ingest_schedule(ingest);
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
    return lane_is_ready(ingest->lane) && !lane_is_refused(ingest->lane) &&
           transaction_is_able(ingest->transaction);
}


/* Answers. */

void
ingest_release(struct ingest_request *request)
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
    ingest_release(request);
}

void
ingest_refuse(struct ingest_request *request, enum ingest_outcome outcome)
{
    request_answer(request, outcome);
    request_free(request);
}

void
ingest_answer_at_once(enum ingest_outcome outcome, ingest_answer_cb cb,
                      void *asker)
{
    struct ingest_answer answer = {.outcome = outcome};

    cb(asker, &answer);
}

/* Committed, and not freed yet: what was accepted goes into the series. */
static void
ingest_fold(struct ingest *ingest, struct batch_item **items, size_t count,
            const struct transaction_commit *commit)
{
    struct buffer_event event = {.place.recorded_us = commit->recorded_us};

    CRASH_POINT("after_commit_before_fold");
    memcpy(event.place.writer, commit->writer, sizeof(commit->writer));
    for (size_t i = 0; i < count; i++) {
        const struct batch_item *item = items[i];

        event.effect = item->effects.of[PROJECTION_SERIES];
        if (item->verdict != METER_VERDICT_ACCEPTED || event.effect == NULL) {
            continue;
        }
        event.tenant = item->event->tenant;
        event.from = item->marks.series_from;
        event.place.ts_us = item->event->ts_us;
        event.place.seq = item->writer_seq;
        series_engine_fold(ingest->series, &event);
    }
    series_engine_folded(ingest->series, commit->last, commit->recorded_us,
                         commit->clock_us);
}

static void
ingest_decided(void *owner, struct batch_item **items, size_t count,
               const struct transaction_commit *commit)
{
    struct ingest *ingest = owner;
    uint64_t now_ms = clock_mono_ms();

    if (ingest->series != NULL && commit != NULL) {
        ingest_fold(ingest, items, count, commit);
    }
    for (size_t i = 0; i < count; i++) {
        audit_log_item(&ingest->audit_log, items[i], now_ms);
    }
    if (ingest->poison != NULL) {
        poison_passed(ingest->poison, items[0]->record != NULL, now_ms);
    }
    for (size_t i = 0; i < count; i++) {
        struct ingest_request *request = items[i]->owner;

        request_decide(request, items[i]);
        if (request->is_ended) {
            ingest_release(request); /* the answer was too late for it */
        } else if (request->decided_count == request->due_count) {
            request_end(request, request_outcome(request));
        }
    }
}


/* Submitting. */

void
ingest_keep(struct ingest *ingest, struct ingest_request *request)
{
    request_queue_keep(&ingest->queue, request);
    request_queue_push(&ingest->queue, request);
    ingest_schedule(ingest);
}

static struct ingest_request *
ingest_accept(struct ingest *ingest, struct ingest_request *request)
{
    size_t queue_max = (size_t)ingest->config->limits.queue_events;

    if (request->item_count + ingest->queue.events > queue_max ||
        ingest->queue.bytes + request->body.size > QUEUE_BYTES_MAX) {
        ingest->was_full = true;
        metrics.edgemeter_queue_full_total++;
        ingest_refuse(request, INGEST_BUSY);
        return NULL;
    }
    metrics.edgemeter_events_rejected_total +=
        (int64_t)request->answer.counts[METER_VERDICT_REJECTED];
    if (request->item_count == 0) {
        ingest_refuse(request, INGEST_DONE);
        return NULL;
    }
    ingest_keep(ingest, request);
    if (!uv_is_active((uv_handle_t *)&ingest->deadline)) {
        CHECK(uv_timer_start(&ingest->deadline, ingest_deadline_cb,
                             ingest->answer_timeout_ms, 0) == 0);
    }
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
ingest_submit(struct ingest *ingest, const struct ingest_input *input,
              struct buf *body, ingest_answer_cb cb, void *asker)
{
    struct ingest_request *request;
    enum ingest_outcome outcome;

    if (!ingest->was_ready) {
        buf_fini(body);
        ingest_answer_at_once(INGEST_UNAVAILABLE, cb, asker);
        return NULL;
    }
    if (ingest_is_full(ingest)) {
        metrics.edgemeter_queue_full_total++;
        buf_fini(body);
        ingest_answer_at_once(INGEST_BUSY, cb, asker);
        return NULL;
    }
    request = request_create(ingest, ingest->config, body,
                             request_arena_max(body->size));
    if (request == NULL) {
        ingest_answer_at_once(INGEST_UNAVAILABLE, cb, asker);
        return NULL;
    }
    request->cb = cb;
    request->asker = asker;
    request->submitted_ms = clock_mono_ms();
    outcome = request_read(request, input, lane_salt(ingest->lane),
                           lane_now_us(ingest->lane));
    CRASH_POINT("after_read");
    if (outcome != INGEST_DONE) {
        ingest_refuse(request, outcome);
        return NULL;
    }
    return ingest_accept(ingest, request);
}

void
ingest_cancel(struct ingest_request *request)
{
    request->cb = NULL;
}


/* What has gathered meanwhile goes at once. */
static void
ingest_batch_done(void *owner)
{
    ingest_start(owner);
}


/* Time. */

/* Passed over: those that ended while a transaction has their events, and
   rings, which wait for ever. */
static void
ingest_deadline_cb(uv_timer_t *timer)
{
    struct ingest *ingest = timer->data;
    uint64_t now_ms = clock_mono_ms();
    uint64_t late_ms = ingest->answer_timeout_ms;
    struct ingest_request *request = ingest->queue.oldest;

    while (request != NULL && (request->is_ended || request->ring != NULL ||
                               now_ms - request->submitted_ms >= late_ms)) {
        struct ingest_request *next = request->next_kept;

        if (!request->is_ended && request->ring == NULL) {
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
    if (ingest->poison != NULL) {
        poison_passed(ingest->poison, 0, now_ms);
    }
    metrics.projection_lag_seconds = 0;
    if (ingest->queue.oldest != NULL) {
        metrics.projection_lag_seconds =
            (int64_t)((now_ms - ingest->queue.oldest->submitted_ms) / 1000);
    }
    if (ingest->was_idle && ingest_is_idle(ingest)) {
        transaction_trim(ingest->transaction);
        ingest_gathered_free(ingest);
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
        ingest_gathered_free(ingest);
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
            ingest_release(request);
        } else {
            request_end(request, INGEST_UNAVAILABLE);
        }
    }
    poison_close(ingest->poison);
    config_unref(ingest->config);
    uv_close((uv_handle_t *)&ingest->check, ingest_closed_cb);
    uv_close((uv_handle_t *)&ingest->idle, ingest_closed_cb);
    uv_close((uv_handle_t *)&ingest->deadline, ingest_closed_cb);
    uv_close((uv_handle_t *)&ingest->tick, ingest_closed_cb);
}
