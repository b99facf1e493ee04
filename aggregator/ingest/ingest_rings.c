/*
 * ingest_rings.c - records of rings on their way into the queue.
 *
 *   edge -> [ingest_open_ring, ingest_submit_records] -> queue -> gather
 *   operator -> [ingest_replay_letter] -> queue -> gather
 *
 * One queue for all, first come first served: a hello is behind everything
 * that was submitted for its session before.
 */

#include "ingest/ingest_state.h"

#include "base/clock.h"
#include "base/crash_point.h"

#include <stdio.h>

/* NULL: answered. Takes the body. */
static struct ingest_request *
ring_request_create(struct ingest *ingest, struct buf *body,
                    ingest_answer_cb cb, void *asker)
{
    struct ingest_request *request;

    if (!ingest->was_ready) {
        buf_fini(body);
        ingest_answer_at_once(INGEST_UNAVAILABLE, cb, asker);
        return NULL;
    }
    request = request_create(ingest, ingest->config, body,
                             request_records_arena_max(body->size));
    if (request == NULL) {
        ingest_answer_at_once(INGEST_UNAVAILABLE, cb, asker);
        return NULL;
    }
    request->cb = cb;
    request->asker = asker;
    request->submitted_ms = clock_mono_ms();
    return request;
}

static struct ingest_request *
ring_request_keep(struct ingest *ingest, struct ingest_request *request,
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
                 uint64_t oldest, ingest_answer_cb cb, void *asker)
{
    struct ingest_request *request;
    struct buf nothing;

    buf_init(&nothing, 0);
    request = ring_request_create(ingest, &nothing, cb, asker);
    if (request == NULL) {
        return NULL;
    }
    return ring_request_keep(ingest, request,
                             request_read_hello(request, ring, oldest));
}

struct ingest_request *
ingest_submit_records(struct ingest *ingest, const struct ingest_ring *ring,
                      uint64_t first_seq, size_t count, struct buf *records,
                      ingest_answer_cb cb, void *asker)
{
    struct ingest_request *request =
        ring_request_create(ingest, records, cb, asker);
    enum ingest_outcome outcome;

    if (request == NULL) {
        return NULL;
    }
    outcome = request_read_records(request, ring, first_seq, count,
                                   lane_salt(ingest->lane),
                                   lane_now_us(ingest->lane), ingest->poison);
    CRASH_POINT("after_read");
    return ring_request_keep(ingest, request, outcome);
}

struct ingest_request *
ingest_replay_letter(struct ingest *ingest, const struct ingest_letter *letter,
                     struct buf *record, ingest_answer_cb cb, void *asker)
{
    struct ingest_request *request =
        ring_request_create(ingest, record, cb, asker);
    enum ingest_outcome outcome;

    if (request == NULL) {
        return NULL;
    }
    outcome = request_read_letter(request, letter, lane_salt(ingest->lane),
                                  ingest->poison);
    CRASH_POINT("after_read");
    return ring_request_keep(ingest, request, outcome);
}

/* Nothing is looked up, so any salt will do. */
enum ingest_outcome
ingest_check_letter(struct config *config, const struct ingest_letter *letter,
                    struct buf *record, char *reason, size_t reason_size)
{
    static const uint8_t secret[32];
    struct meter_salt salt;
    struct ingest_request *request = request_create(
        NULL, config, record, request_records_arena_max(record->size));
    enum ingest_outcome outcome;

    reason[0] = '\0';
    if (request == NULL) {
        return INGEST_UNAVAILABLE;
    }
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
    request_queue_drop(&request->ingest->queue, request);
    ingest_release(request);
}

uint64_t
ingest_db_epoch(const struct ingest *ingest)
{
    return lane_db_epoch(ingest->lane);
}
