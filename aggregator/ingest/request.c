/*
 * request.c - see request.h.
 *
 * Memory: the body, plus an arena that may hold ARENA_FACTOR times the
 * body's size. A body that needs more (deep trees of tiny values) has the
 * events rejected that did not fit.
 */

#include "ingest/request.h"

#include "base/metrics.h"
#include "ingest/envelope.h"

#include <stdlib.h>

#define ARENA_BLOCK  ((size_t)16 << 10)
#define ARENA_BASE   ((size_t)4 << 20)
#define ARENA_FACTOR 16

size_t
request_arena_max(size_t body_size)
{
    return ARENA_BASE + ARENA_FACTOR * body_size;
}

struct ingest_request *
request_create(struct ingest *ingest, struct config *config, struct buf *body,
               size_t arena_max)
{
    struct ingest_request *request = calloc(1, sizeof(*request));
    size_t block = ARENA_BLOCK;

    if (request == NULL) {
        buf_fini(body);
        return NULL;
    }
    request->ingest = ingest;
    request->config = config_ref(config);
    request->body = *body;
    buf_init(body, body->size_max);
    while (block < request->body.size && block < ARENA_BASE / 4) {
        block *= 2;
    }
    arena_init(&request->arena, block, arena_max);
    return request;
}

void
request_free(struct ingest_request *request)
{
    CHECK(request->flying_count == 0 && !request->is_queued);
    arena_fini(&request->arena);
    buf_fini(&request->body);
    config_unref(request->config);
    free(request);
}

/* The metric of a rejected event is counted when the request is taken. */
static void
request_reject(struct ingest_request *request, size_t position,
               const char *error)
{
    request->results[position].verdict = METER_VERDICT_REJECTED;
    request->results[position].error = error;
    request->answer.counts[METER_VERDICT_REJECTED]++;
    request->decided_count++;
}

bool
request_identify(struct ingest_request *request, struct batch_item *item,
                 const struct meter_salt *salt)
{
    uint8_t key[METER_KEY_SIZE];
    struct meter_str scope = item->event->tenant;
    char *identity;

    if (request->config->idempotency.across_tenants) {
        scope = METER_STR("");
    }
    meter_event_key(salt, item->event->event_id, key);
    meter_event_fingerprint(salt, item->event, &item->fingerprint);
    identity = arena_alloc(&request->arena, METER_KEY_SIZE + scope.size);
    if (identity == NULL) {
        return false;
    }
    item->identity.size = batch_identity(key, scope, identity);
    item->identity.data = identity;
    return true;
}

/* An envelope becomes a result, and an item when it is valid. */
static void
request_take(struct ingest_request *request, const struct envelope *envelope,
             size_t position, const struct meter_salt *salt)
{
    struct batch_item *item = &request->items[request->item_count];
    const char *error = envelope->error;

    request->results[position].event_id = envelope->id_seen;
    request->results[position].line = envelope->line;
    if (error == NULL &&
        projections_project(envelope->type, &envelope->event,
                            &envelope->attributes, &request->arena,
                            &item->effects, &error)) {
        error = NULL;
    }
    if (error != NULL) {
        request_reject(request, position, error);
        return;
    }
    item->event = &envelope->event;
    item->owner = request;
    item->arena = &request->arena;
    item->position = position;
    item->error = NULL;
    if (!request_identify(request, item, salt)) {
        request_reject(request, position, "the request needs too much memory");
        return;
    }
    request->item_count++;
}

enum ingest_outcome
request_read(struct ingest_request *request, const struct ingest_input *input,
             const struct meter_salt *salt, int64_t now_us)
{
    struct envelope_input from = {.form = input->form,
                                  .body = buf_str(&request->body),
                                  .headers = input->headers,
                                  .header_count = input->header_count};
    struct envelope_context context = {.config = request->config,
                                       .salt = salt,
                                       .is_backfill = input->is_backfill,
                                       .now_us = now_us};
    struct envelope *envelopes = NULL;
    size_t count = 0;
    enum envelope_body body;

    if (!arena_copy(&request->arena, input->tenant, &context.tenant)) {
        return INGEST_UNAVAILABLE;
    }
    body = envelope_read(&from, &context, &request->arena, &envelopes, &count,
                         &request->answer.error);
    if (body == ENVELOPE_BAD) {
        return request->arena.no_memory ? INGEST_UNAVAILABLE : INGEST_BAD;
    }
    request->results =
        arena_zalloc(&request->arena, (count + 1) * sizeof(*request->results));
    request->items =
        arena_zalloc(&request->arena, (count + 1) * sizeof(*request->items));
    if (request->results == NULL || request->items == NULL) {
        return INGEST_UNAVAILABLE;
    }
    request->answer.single = body == ENVELOPE_SINGLE;
    request->answer.results = request->results;
    request->answer.count = count;
    request->due_count = count;
    for (size_t i = 0; i < count; i++) {
        request_take(request, &envelopes[i], i, salt);
    }

    /* No event is bad because this machine is short of memory. */
    return request->arena.no_memory ? INGEST_UNAVAILABLE : INGEST_DONE;
}

void
request_count_verdict(enum meter_verdict verdict)
{
    switch (verdict) {
    case METER_VERDICT_ACCEPTED:
        metrics.edgemeter_events_accepted_total++;
        break;
    case METER_VERDICT_DUPLICATE:
        metrics.duplicate_event_dropped_total++;
        break;
    case METER_VERDICT_CONFLICT:
        metrics.edgemeter_events_conflict_total++;
        break;
    case METER_VERDICT_REJECTED:
        metrics.edgemeter_events_rejected_total++;
        break;
    case METER_VERDICT_COUNT: break;
    }
}

static void
request_decide_event(struct ingest_request *request,
                     const struct batch_item *item)
{
    struct ingest_result *result = &request->results[item->position];

    result->verdict = item->verdict;
    result->error = item->error;
    if (item->verdict == METER_VERDICT_CONFLICT) {
        result->error = "event_id is known with other content";
    }
    request->answer.counts[item->verdict]++;
    request_count_verdict(item->verdict);
}

void
request_decide(struct ingest_request *request, const struct batch_item *item)
{
    if (item->record != NULL) {
        request_decide_record(request, item);
    } else {
        request_decide_event(request, item);
    }
    request->decided_count++;
    request->flying_count--;
}

enum ingest_outcome
request_outcome(const struct ingest_request *request)
{
    return request->ring != NULL && request->ring->is_gapped ? INGEST_GAP
                                                             : INGEST_DONE;
}
