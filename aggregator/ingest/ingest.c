/*
 * ingest.c - requests, the queue, gathering, answers, time.
 *
 *   ingest_submit -> queue -> gather -> transaction -> verdicts -> answers
 *   edge -> [ingest_open_ring, ingest_submit_records] -> the same queue
 *   operator -> [ingest_replay_letter] -> the same queue
 *
 * One queue for all, first come first served: a hello is after everything
 * that was submitted for its session before.
 *
 * Bounds: queueEvents events and QUEUE_BYTES_MAX bytes of bodies may wait;
 * past that a request is answered BUSY and nothing of it is kept. Records of
 * rings count towards both but are never refused: credit bounds them.
 *
 * Gathering happens once per turn of the loop, after everything readable was
 * read: an event that comes alone leaves in the same turn, and while a
 * transaction runs the next batch grows. A request stays whole in one batch
 * where it fits. After a crash records of rings go one by one, so that the
 * next crash names its culprit.
 */

#include "ingest/ingest.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "ingest/poison.h"
#include "ingest/request.h"
#include "ingest/transaction.h"
#include "project/counter.h"
#include "series/series_engine.h"

#include <stdio.h>
#include <stdlib.h>

#define QUEUE_BYTES_MAX     ((size_t)256 << 20)
#define BATCH_BYTES_MAX     ((size_t)32 << 20) /* of bodies, in one batch */
#define AUDIT_LOG_LINES_MAX 100                /* per second */
#define TICK_MS             1000

enum { HANDLE_COUNT = 4 }; /* check, idle, deadline, tick */

TAILQ_HEAD(ingest_requests, ingest_request);

struct ingest {
    struct config *config;
    struct lane *lane;
    struct transaction *transaction;
    struct poison *poison;        /* NULL: crashes are not looked into */
    struct series_engine *series; /* NULL: nothing is folded */
    uint64_t answer_timeout_ms;
    bool was_ready; /* the salts are known */

    /* Requests with events that no batch has taken, first come first served. */
    struct ingest_requests queue;
    size_t queue_events; /* that no batch has taken */
    /* All requests, also those whose events are in a transaction, by age. */
    struct ingest_requests kept;
    size_t kept_bytes; /* of their bodies */
    bool was_full;     /* a request was refused; see ingest_is_full */

    /* The batch under way, and the one being answered. */
    VEC(struct batch_item *) gathered[2];
    unsigned gathered_now;
    struct log_limit audit_limit;
    bool was_idle; /* since the last tick */

    uv_check_t check; /* gathers, after a turn's input */
    uv_idle_t idle;   /* keeps the loop from sleeping before that */
    uv_timer_t deadline;
    uv_timer_t tick;
    int handles_open;
};

static void ingest_deadline_cb(uv_timer_t *timer);
static void ingest_start(struct ingest *ingest);


/* The queue. */

static void
ingest_set_queue_events(struct ingest *ingest, size_t events)
{
    ingest->queue_events = events;
    metrics.edgemeter_queue_events = (int64_t)events;
}

/* A batch took this many events, or nobody wants them any more. */
static void
ingest_queue_taken(struct ingest *ingest, size_t events)
{
    CHECK(events <= ingest->queue_events);
    ingest_set_queue_events(ingest, ingest->queue_events - events);
}

static void
ingest_queue_remove(struct ingest *ingest, struct ingest_request *request)
{
    TAILQ_REMOVE(&ingest->queue, request, queued);
    request->is_queued = false;
}

/*
 * Takes the request out, if it stands there: events of it that no
 * transaction has seen are not recorded.
 */
static void
ingest_queue_drop(struct ingest *ingest, struct ingest_request *request)
{
    if (request->is_queued) {
        ingest_queue_remove(ingest, request);
        ingest_queue_taken(ingest, request->item_count - request->taken_count);
    }
}


/*
 * One log line for each duplicate and conflict, within reason: at most
 * AUDIT_LOG_LINES_MAX a second; what was left out is counted and told in one
 * line when the second is over. Applied changes, and transitions that change
 * nothing, are logged at debug level only, without a limit.
 */

static void
audit_log_line(enum log_level level, const struct batch_item *item,
               const struct counter_change *change, const uint8_t *key,
               const char *result)
{
    char dimension_key[2 * METER_DIGEST_SIZE + 1] = "";
    struct meter_str counter = METER_STR("");
    const char *op = "";

    if (change != NULL) {
        meter_hex(key, METER_DIGEST_SIZE, dimension_key);
        counter = change->counter->name;
        op = change->delta < 0 ? "DEC" : "INC";
    }
    LOG_LINE(level, "ingest", "counter update",
             log_bytes("counterName", counter),
             log_str("dimensionKey", dimension_key),
             log_bytes("eventId", item->event->event_id), log_str("op", op),
             log_str("result", result));
}

/* Called now and then, so that a count of the past does not stay untold. */
static void
audit_log_tick(struct log_limit *limit, uint64_t now_ms)
{
    int64_t suppressed = log_limit_turn(limit, now_ms);

    if (suppressed > 0) {
        log_info("ingest", "duplicate and conflict lines suppressed",
                 log_int("count", suppressed));
    }
}

static void
audit_log_applied(const struct batch_item *item)
{
    const struct counter_effect *effect = item->effects.of[PROJECTION_COUNTERS];

    if (!log_enabled(LOG_DEBUG) || effect == NULL) {
        return;
    }
    for (size_t i = 0; i < effect->count; i++) {
        const struct counter_change *change = &effect->changes[i];
        const struct counter_counted *counted =
            item->marks.counted != NULL ? &item->marks.counted[i] : NULL;
        bool is_ignored = counted != NULL && counted->is_ignored;
        bool is_elsewhere = counted != NULL && !is_ignored;

        audit_log_line(LOG_DEBUG, item, change,
                       is_elsewhere ? counted->key : change->set.key,
                       is_ignored ? "IGNORED" : "APPLIED");
    }
}

/* What the verdict of a committed item is worth in the log. */
static void
audit_log_item(struct log_limit *limit, const struct batch_item *item,
               uint64_t now_ms)
{
    bool is_duplicate = item->verdict == METER_VERDICT_DUPLICATE;
    const struct counter_effect *effect = item->effects.of[PROJECTION_COUNTERS];

    if (item->verdict == METER_VERDICT_ACCEPTED) {
        audit_log_applied(item);
        return;
    }
    if (!is_duplicate && item->verdict != METER_VERDICT_CONFLICT) {
        return;
    }
    audit_log_tick(limit, now_ms);
    if (!log_limit_take(limit, AUDIT_LOG_LINES_MAX)) {
        metrics.edgemeter_log_suppressed_total++;
        return;
    }
    audit_log_line(LOG_INFO, item, effect != NULL ? effect->changes : NULL,
                   effect != NULL ? effect->changes->set.key : NULL,
                   is_duplicate ? "DROPPED_DUPLICATE" : "DROPPED_CONFLICT");
}


/* Gathering. */

/* Records are stored one by one for a while, see poison.h. */
static bool
ingest_is_cautious(const struct ingest *ingest)
{
    return ingest->poison != NULL && poison_is_cautious(ingest->poison);
}

/* A flush has to make room first; ingest_room says when. */
static bool
ingest_series_is_full(const struct ingest *ingest)
{
    return ingest->series != NULL && series_engine_is_full(ingest->series);
}

/* The next events of a request, at most room of them. */
static size_t
ingest_gather_request(struct ingest_request *request, struct batch_item **items,
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
ingest_gather(struct ingest *ingest, struct batch_item **items,
              size_t count_max)
{
    bool is_cautious = ingest_is_cautious(ingest);
    struct ingest_request *request;
    size_t count = 0;
    size_t bytes = 0;

    while ((request = TAILQ_FIRST(&ingest->queue)) != NULL &&
           count < count_max) {
        size_t left = request->item_count - request->taken_count;
        bool is_alone = is_cautious && request->ring != NULL;

        bytes += request->body.size;
        if (count > 0 &&
            (left > count_max - count || bytes > BATCH_BYTES_MAX || is_alone)) {
            break;
        }
        if (is_alone) {
            count_max = 1;
        }
        count +=
            ingest_gather_request(request, items + count, count_max - count);
        if (request->taken_count == request->item_count) {
            ingest_queue_remove(ingest, request);
        }
    }
    ingest_queue_taken(ingest, count);
    return count;
}

/* At once, if there is anything and the transaction is idle. */
static void
ingest_start(struct ingest *ingest)
{
    unsigned next = ingest->gathered_now ^ 1;
    size_t count_max = (size_t)ingest->config->limits.batch_events;
    size_t count;

    if (TAILQ_EMPTY(&ingest->queue) ||
        !transaction_is_idle(ingest->transaction) ||
        ingest_series_is_full(ingest)) {
        return;
    }
    if (count_max > ingest->queue_events) {
        count_max = ingest->queue_events;
    }
    vec_reserve(&ingest->gathered[next], count_max);
    count = ingest_gather(ingest, ingest->gathered[next].items, count_max);
    if (count > 0) {
        ingest->gathered_now = next;
        ingest->was_idle = false;
        transaction_run(ingest->transaction, ingest->gathered[next].items,
                        count);
    }
}

static void
ingest_gathered_free(struct ingest *ingest)
{
    vec_fini(&ingest->gathered[0]);
    vec_fini(&ingest->gathered[1]);
}

static void
ingest_check_cb(uv_check_t *check)
{
    struct ingest *ingest = check->data;

    uv_check_stop(&ingest->check);
    uv_idle_stop(&ingest->idle);
    ingest_start(ingest);
}

static void
ingest_idle_cb(uv_idle_t *idle)
{
    (void)idle; /* being active is all it does: poll does not wait */
}

/* A batch will be gathered when this turn's input is read. */
static void
ingest_schedule(struct ingest *ingest)
{
    if (!TAILQ_EMPTY(&ingest->queue) &&
        transaction_is_idle(ingest->transaction)) {
        uv_check_start(&ingest->check, ingest_check_cb);
        uv_idle_start(&ingest->idle, ingest_idle_cb);
    }
}


/* Answers. */

/* No answer any more; frees it unless a transaction has its items. */
static void
ingest_release(struct ingest_request *request)
{
    struct ingest *ingest = request->ingest;

    if (request->flying_count > 0 || request->is_queued) {
        return;
    }
    TAILQ_REMOVE(&ingest->kept, request, kept);
    ingest->kept_bytes -= request->body.size;
    request_free(request);
}

static void
ingest_answer_request(struct ingest_request *request,
                      enum ingest_outcome outcome)
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
ingest_end_request(struct ingest_request *request, enum ingest_outcome outcome)
{
    request->is_ended = true;
    ingest_answer_request(request, outcome);
    ingest_release(request);
}

/* Answers a request that was never kept, and frees it. */
static void
ingest_refuse(struct ingest_request *request, enum ingest_outcome outcome)
{
    ingest_answer_request(request, outcome);
    request_free(request);
}

/* An answer that needs no request: BUSY, UNAVAILABLE. */
static void
ingest_answer_at_once(enum ingest_outcome outcome, ingest_answer_cb cb,
                      void *arg)
{
    struct ingest_answer answer = {.outcome = outcome};

    cb(arg, &answer);
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
        audit_log_item(&ingest->audit_limit, items[i], now_ms);
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
            ingest_end_request(request, request_outcome(request));
        }
    }
}

/* What has gathered meanwhile goes at once. */
static void
ingest_batch_done(void *owner)
{
    ingest_start(owner);
}


/* Submitting. */

/* Kept and queued; the next batch is gathered soon. */
static void
ingest_keep(struct ingest *ingest, struct ingest_request *request)
{
    TAILQ_INSERT_TAIL(&ingest->kept, request, kept);
    ingest->kept_bytes += request->body.size;
    TAILQ_INSERT_TAIL(&ingest->queue, request, queued);
    request->is_queued = true;
    ingest_set_queue_events(ingest, ingest->queue_events + request->item_count);
    ingest_schedule(ingest);
}

static struct ingest_request *
ingest_accept(struct ingest *ingest, struct ingest_request *request)
{
    size_t queue_max = (size_t)ingest->config->limits.queue_events;

    if (request->item_count + ingest->queue_events > queue_max ||
        ingest->kept_bytes + request->body.size > QUEUE_BYTES_MAX) {
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
        ingest->was_full && (ingest->queue_events > queue_max - queue_max / 8 ||
                             ingest->kept_bytes > QUEUE_BYTES_MAX / 8 * 7);
    return ingest->was_full;
}

static struct ingest_request *
ingest_create_request(struct ingest *ingest, struct buf *body,
                      enum request_kind kind, ingest_answer_cb cb, void *arg)
{
    struct ingest_request *request =
        request_create(ingest, ingest->config, body, kind);

    request->cb = cb;
    request->asker = arg;
    request->submitted_ms = clock_mono_ms();
    return request;
}

struct ingest_request *
ingest_submit(struct ingest *ingest, const struct ingest_input *input,
              struct buf *body, ingest_answer_cb cb, void *arg)
{
    struct ingest_request *request;
    enum ingest_outcome outcome;

    if (!ingest->was_ready) {
        buf_fini(body);
        ingest_answer_at_once(INGEST_UNAVAILABLE, cb, arg);
        return NULL;
    }
    if (ingest_is_full(ingest)) {
        metrics.edgemeter_queue_full_total++;
        buf_fini(body);
        ingest_answer_at_once(INGEST_BUSY, cb, arg);
        return NULL;
    }
    request = ingest_create_request(ingest, body, REQUEST_BODY, cb, arg);
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


/* Rings and dead letters. */

/* NULL: answered. Takes the body. */
static struct ingest_request *
ingest_create_ring_request(struct ingest *ingest, struct buf *body,
                           ingest_answer_cb cb, void *arg)
{
    if (!ingest->was_ready) {
        buf_fini(body);
        ingest_answer_at_once(INGEST_UNAVAILABLE, cb, arg);
        return NULL;
    }
    return ingest_create_request(ingest, body, REQUEST_RECORDS, cb, arg);
}

static struct ingest_request *
ingest_keep_ring_request(struct ingest *ingest, struct ingest_request *request,
                         enum ingest_outcome outcome)
{
    if (outcome != INGEST_DONE) {
        ingest_refuse(request, outcome);
        return NULL;
    }
    ingest_keep(ingest, request);
    return request;
}

struct ingest_request *
ingest_open_ring(struct ingest *ingest, const struct ingest_ring *ring,
                 uint64_t oldest, ingest_answer_cb cb, void *arg)
{
    struct ingest_request *request;
    struct buf nothing;

    buf_init(&nothing, 0);
    request = ingest_create_ring_request(ingest, &nothing, cb, arg);
    if (request == NULL) {
        return NULL;
    }
    return ingest_keep_ring_request(ingest, request,
                                    request_read_hello(request, ring, oldest));
}

struct ingest_request *
ingest_submit_records(struct ingest *ingest, const struct ingest_ring *ring,
                      uint64_t first_seq, size_t count, struct buf *records,
                      ingest_answer_cb cb, void *arg)
{
    struct ingest_request *request =
        ingest_create_ring_request(ingest, records, cb, arg);
    enum ingest_outcome outcome;

    if (request == NULL) {
        return NULL;
    }
    outcome = request_read_records(request, ring, first_seq, count,
                                   lane_salt(ingest->lane),
                                   lane_now_us(ingest->lane), ingest->poison);
    CRASH_POINT("after_read");
    return ingest_keep_ring_request(ingest, request, outcome);
}

struct ingest_request *
ingest_replay_letter(struct ingest *ingest, const struct ingest_letter *letter,
                     struct buf *record, ingest_answer_cb cb, void *arg)
{
    struct ingest_request *request =
        ingest_create_ring_request(ingest, record, cb, arg);
    enum ingest_outcome outcome;

    if (request == NULL) {
        return NULL;
    }
    outcome = request_read_letter(request, letter, lane_salt(ingest->lane),
                                  ingest->poison);
    CRASH_POINT("after_read");
    return ingest_keep_ring_request(ingest, request, outcome);
}

/* Nothing is looked up, so any salt will do. */
enum ingest_outcome
ingest_check_letter(struct config *config, const struct ingest_letter *letter,
                    struct buf *record, char *reason, size_t reason_size)
{
    static const uint8_t secret[32];
    struct meter_salt salt;
    struct ingest_request *request =
        request_create(NULL, config, record, REQUEST_RECORDS);
    enum ingest_outcome outcome;

    reason[0] = '\0';
    meter_salt_init(&salt, secret, sizeof(secret));
    outcome = request_read_letter(request, letter, &salt, NULL);
    if (outcome == INGEST_DONE && request->items[0].error != NULL) {
        snprintf(reason, reason_size, "%s", request->items[0].error);
    }
    request_free(request);
    return outcome;
}

void
ingest_withdraw(struct ingest_request *request)
{
    request->cb = NULL;
    request->is_ended = true;
    ingest_queue_drop(request->ingest, request);
    ingest_release(request);
}

uint64_t
ingest_db_epoch(const struct ingest *ingest)
{
    return lane_db_epoch(ingest->lane);
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
    struct ingest_request *request = TAILQ_FIRST(&ingest->kept);

    while (request != NULL && (request->is_ended || request->ring != NULL ||
                               now_ms - request->submitted_ms >= late_ms)) {
        struct ingest_request *next = TAILQ_NEXT(request, kept);

        if (!request->is_ended && request->ring == NULL) {
            metrics.edgemeter_answers_late_total++;
            ingest_queue_drop(ingest, request);
            ingest_end_request(request, INGEST_UNAVAILABLE);
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
    const struct ingest_request *oldest = TAILQ_FIRST(&ingest->kept);
    uint64_t now_ms = clock_mono_ms();

    audit_log_tick(&ingest->audit_limit, now_ms);
    if (ingest->poison != NULL) {
        poison_passed(ingest->poison, 0, now_ms);
    }
    metrics.projection_lag_seconds = 0;
    if (oldest != NULL) {
        metrics.projection_lag_seconds =
            (int64_t)((now_ms - oldest->submitted_ms) / 1000);
    }
    if (ingest->was_idle && ingest_is_idle(ingest)) {
        transaction_trim(ingest->transaction);
        ingest_gathered_free(ingest);
    }
    ingest->was_idle = ingest_is_idle(ingest);
    ingest_schedule(ingest);
}


/* Life. */

static const struct transaction_events ingest_transaction_events = {
    .on_decided = ingest_decided,
    .on_idle = ingest_batch_done,
};

struct ingest *
ingest_create(uv_loop_t *loop, struct config *config, struct lane *lane,
              struct partition *partition, const struct ingest_options *options)
{
    struct ingest *ingest = memory_alloc(sizeof(*ingest));
    const char *state_dir =
        options->state_dir != NULL ? options->state_dir : config->state_dir;

    TAILQ_INIT(&ingest->queue);
    TAILQ_INIT(&ingest->kept);
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
    return TAILQ_EMPTY(&ingest->queue) &&
           transaction_is_idle(ingest->transaction);
}

bool
ingest_is_able(const struct ingest *ingest)
{
    return lane_is_ready(ingest->lane) && !lane_is_refused(ingest->lane) &&
           transaction_is_able(ingest->transaction);
}

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
    struct ingest_request *request;

    if (ingest == NULL) {
        return;
    }
    transaction_destroy(ingest->transaction);
    while ((request = TAILQ_FIRST(&ingest->kept)) != NULL) {
        ingest_queue_drop(ingest, request);
        request->flying_count = 0;
        if (request->is_ended) {
            ingest_release(request);
        } else {
            ingest_end_request(request, INGEST_UNAVAILABLE);
        }
    }
    poison_close(ingest->poison);
    config_unref(ingest->config);
    uv_close((uv_handle_t *)&ingest->check, ingest_closed_cb);
    uv_close((uv_handle_t *)&ingest->idle, ingest_closed_cb);
    uv_close((uv_handle_t *)&ingest->deadline, ingest_closed_cb);
    uv_close((uv_handle_t *)&ingest->tick, ingest_closed_cb);
}
