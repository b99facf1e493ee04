/*
 * request.c - one request on its way through ingest.
 *
 *   body of the API -> envelope -> item with event, or a result
 *   DATA frame  -> record -> [record.h] -> item with event, or with a reason
 *   dead letter -> record -> the same
 *
 * ingest.c and ingest_check.c create and read requests, and tell them what
 * became of their items.
 *
 * A frame that is not what it says (size, number, checksum) is BAD as a
 * whole: its sender is broken. A record that is whole but says nothing usable
 * is an item all the same, and becomes a dead letter: its number must be
 * covered. Before a record is touched it is marked in the poison file, and
 * one that is known to be poison is not touched at all.
 *
 * Memory: the body, plus an arena that may hold a multiple of the body's
 * size. A body that needs more (deep trees of tiny values) has the events
 * rejected that did not fit.
 */

#include "ingest/request.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "ingest/envelope.h"
#include "ingest/record.h"
#include "meter_msg.h"

#include <stdlib.h>

#define ARENA_BLOCK     ((size_t)16 << 10)
#define ARENA_BLOCK_MAX ((size_t)1 << 20)
#define RECORD_KIND_AT  16 /* see meter_ring.h */

/* How much the arena may hold: base + factor * size of the body. */
static const struct {
    size_t base;
    size_t factor;
} arena_limits[] = {
    [REQUEST_BODY] = {(size_t)4 << 20, 16},
    /* The rules decide how much a record needs; a frame has at most 1 MiB. */
    [REQUEST_RECORDS] = {(size_t)64 << 20, 64},
};

struct ingest_request *
request_create(struct ingest *ingest, struct config *config, struct buf *body,
               enum request_kind kind)
{
    struct ingest_request *request = memory_alloc(sizeof(*request));
    size_t block = ARENA_BLOCK;

    request->ingest = ingest;
    request->config = config_ref(config);
    request->body = *body;
    buf_init(body, body->size_max);
    while (block < request->body.size && block < ARENA_BLOCK_MAX) {
        block *= 2;
    }
    arena_init(&request->arena, block,
               arena_limits[kind].base +
                   arena_limits[kind].factor * request->body.size);
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

/* Key, scope and fingerprint of an item's event. False: no memory. */
static bool
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


/* Bodies of the API. */

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


/* Records of rings. */

struct reading {
    struct ingest_request *request;
    struct record_context context;
    const struct meter_salt *salt;
    struct poison *poison; /* NULL: none */
    struct batch_record *records;
    struct meter_str rest;
};

/* Room for count items and what they share. False: no memory. */
static bool
request_make_ring(struct ingest_request *request,
                  const struct ingest_ring *ring, size_t count,
                  struct batch_record **records)
{
    struct arena *arena = &request->arena;
    struct meter_str node;
    bool changed;

    request->ring = arena_zalloc(arena, sizeof(*request->ring));
    request->items = arena_zalloc(arena, count * sizeof(*request->items));
    *records = arena_zalloc(arena, count * sizeof(**records));
    if (request->ring == NULL || request->items == NULL || *records == NULL ||
        !record_text(ring->node, arena, &node, &changed) ||
        !arena_copy(arena, node, &request->ring->shared.node)) {
        return false;
    }
    memcpy(request->ring->shared.session, ring->session, BATCH_SESSION_SIZE);
    for (size_t i = 0; i < count; i++) {
        (*records)[i].ring = &request->ring->shared;
        (*records)[i].tenant = RECORD_NO_TENANT;
        request->items[i].record = &(*records)[i];
        request->items[i].owner = request;
        request->items[i].arena = arena;
        request->items[i].position = i;
    }
    request->item_count = count;
    request->due_count = count;
    return true;
}

enum ingest_outcome
request_read_hello(struct ingest_request *request,
                   const struct ingest_ring *ring, uint64_t oldest)
{
    struct batch_record *record;

    if (oldest > BATCH_SEQ_MAX) {
        request->answer.error = "a sequence number is out of range";
        return INGEST_BAD;
    }
    if (!request_make_ring(request, ring, 1, &record)) {
        return INGEST_UNAVAILABLE;
    }
    record->kind = BATCH_HELLO;
    record->seq = (int64_t)oldest;
    return INGEST_DONE;
}

/* Where the record at the front ends, by its own word alone; 0: nowhere. */
static size_t
record_extent(struct meter_str bytes)
{
    struct meter_reader reader;
    size_t size;

    meter_reader_init(&reader, bytes.data, bytes.size);
    size = meter_get_u32(&reader);
    return reader.failed || size < METER_RING_RECORD_HEADER_SIZE ||
                   size > METER_RECORD_SIZE_MAX || size > bytes.size
               ? 0
               : size;
}

static void
record_weigh(struct batch_record *record, const struct meter_record *from)
{
    int64_t weight = meter_record_weight(from);

    record->weight = weight < 0 ? 0 : weight;
}

/*
 * It has crashed us before: nothing is taken from it but its size, its kind
 * and, in one more try, how many requests it stands for.
 */
static bool
request_read_poison(struct reading *reading, struct batch_item *item,
                    uint64_t crashes, size_t *used)
{
    struct batch_record *record = item->record;
    struct meter_record unread;

    *used = record_extent(reading->rest);
    if (*used == 0) {
        return false;
    }
    unread.kind = (uint8_t)reading->rest.data[RECORD_KIND_AT];
    unread.body =
        (struct meter_str){reading->rest.data + METER_RING_RECORD_HEADER_SIZE,
                           *used - METER_RING_RECORD_HEADER_SIZE};
    record->kind =
        unread.kind == METER_RECORD_LOSSNOTE ? BATCH_LOSS : BATCH_EVENT;
    record->weight = record->kind == BATCH_EVENT;
    if (crashes == POISON_CRASHES_MAX) {
        record_weigh(record, &unread);
    }
    record->is_poison = true;
    item->error = "set aside unread after 3 crashes";
    return true;
}

_Static_assert(POISON_CRASHES_MAX == 3, "the sentence says 3");

/* NULL, or the reason for which the item has no event. */
static const char *
request_read_event(struct reading *reading, struct batch_item *item,
                   const struct meter_record *record)
{
    static const char too_much[] = "the record needs too much memory";
    struct arena *arena = &reading->request->arena;
    struct record_event *event = arena_alloc(arena, sizeof(*event));
    const char *error = NULL;

    if (event == NULL ||
        !record_read_event(record, &reading->context, arena, event)) {
        return too_much;
    }
    item->record->tenant = event->tenant;
    if (event->error != NULL) {
        return event->error;
    }
    if (!projections_project(event->type, &event->event, &event->attributes,
                             arena, &item->effects, &error)) {
        return error;
    }
    item->event = &event->event;
    if (event->has_id &&
        !request_identify(reading->request, item, reading->salt)) {
        item->event = NULL;
        return too_much;
    }
    return NULL;
}

/* The record at the front becomes an item. False: the frame is BAD. */
static bool
request_read_record(struct reading *reading, struct batch_item *item,
                    size_t *used)
{
    struct batch_record *target = item->record;
    struct meter_record record;
    uint64_t crashes = 0;

    if (reading->poison != NULL) {
        crashes = poison_crashes(reading->poison, target->ring->session,
                                 (uint64_t)target->seq);
    }
    if (crashes >= POISON_CRASHES_MAX) {
        return request_read_poison(reading, item, crashes, used);
    }
    if (poison_test_armed) {
        poison_test(POISON_READ,
                    (struct meter_str){reading->rest.data,
                                       record_extent(reading->rest)});
    }
    if (meter_record_decode(reading->rest.data, reading->rest.size, &record,
                            used) != METER_DECODE_OK ||
        record.kind == METER_RECORD_PAD ||
        record.seq != (uint64_t)target->seq) {
        return false;
    }
    record_weigh(target, &record);
    if (record.kind == METER_RECORD_LOSSNOTE) {
        target->kind = BATCH_LOSS;
        item->error = record_read_loss(&record, &target->loss);
    } else {
        target->kind = BATCH_EVENT;
        item->error = request_read_event(reading, item, &record);
    }
    return true;
}

/* The record's number is known before its bytes are looked at. */
static bool
request_read_next(struct reading *reading, struct batch_item *item,
                  uint64_t seq)
{
    struct batch_record *record = item->record;
    size_t used = 0;

    record->seq = (int64_t)seq;
    if (reading->poison != NULL) {
        poison_mark(reading->poison, POISON_READ, record->ring->session, seq);
    }
    if (!request_read_record(reading, item, &used)) {
        return false;
    }
    record->bytes = (struct meter_str){reading->rest.data, used};
    reading->rest.data += used;
    reading->rest.size -= used;
    return true;
}

static bool
request_read_all(struct reading *reading, uint64_t first_seq)
{
    struct ingest_request *request = reading->request;
    bool is_good = true;

    for (size_t i = 0; i < request->item_count && is_good; i++) {
        is_good = request_read_next(reading, &request->items[i], first_seq + i);
    }
    if (reading->poison != NULL) {
        poison_clear(reading->poison, POISON_READ);
    }
    return is_good && reading->rest.size == 0;
}

/* The whole body as count records, each of them an item. */
static enum ingest_outcome
request_read_body(struct ingest_request *request,
                  const struct ingest_ring *ring, uint64_t first_seq,
                  size_t count, struct reading *reading)
{
    reading->request = request;
    reading->context.config = request->config;
    reading->context.session = ring->session;
    reading->rest = buf_str(&request->body);
    if (count == 0 || count > METER_BATCH_EVENTS_MAX || first_seq == 0 ||
        first_seq > BATCH_SEQ_MAX - count) {
        request->answer.error = "a number of records is out of range";
        return INGEST_BAD;
    }
    if (!request_make_ring(request, ring, count, &reading->records)) {
        return INGEST_UNAVAILABLE;
    }
    request->ring->codes = arena_alloc(&request->arena, count);
    if (request->ring->codes == NULL) {
        return INGEST_UNAVAILABLE;
    }
    memset(request->ring->codes, METER_CODE_NONE, count);
    request->answer.codes = request->ring->codes;
    request->answer.count = count;
    if (!request_read_all(reading, first_seq)) {
        request->answer.error = "not the records that were announced";
        return INGEST_BAD;
    }

    /* No record is bad because this machine is short of memory. */
    return request->arena.no_memory ? INGEST_UNAVAILABLE : INGEST_DONE;
}

enum ingest_outcome
request_read_records(struct ingest_request *request,
                     const struct ingest_ring *ring, uint64_t first_seq,
                     size_t count, const struct meter_salt *salt,
                     int64_t now_us, struct poison *poison)
{
    struct reading reading = {
        .context.now_us = now_us, .salt = salt, .poison = poison};

    return request_read_body(request, ring, first_seq, count, &reading);
}

/* By the rules of today and the clock of the day on which it was rejected:
   while somebody mends the rules, it must not become too old for them. */
enum ingest_outcome
request_read_letter(struct ingest_request *request,
                    const struct ingest_letter *letter,
                    const struct meter_salt *salt, struct poison *poison)
{
    struct reading reading = {
        .context.now_us = letter->recorded_us, .salt = salt, .poison = poison};
    struct ingest_ring ring = {.node = letter->node};
    enum ingest_outcome outcome;

    memcpy(ring.session, letter->session, sizeof(ring.session));
    outcome = request_read_body(request, &ring, letter->seq, 1, &reading);
    if (outcome == INGEST_DONE) {
        request->ring->shared.is_letters = true;
        /* One that is rejected now will see no transaction to say so. */
        request->items[0].verdict = METER_VERDICT_REJECTED;
    }
    return outcome;
}


/* What became of them. */

/* One event more of this verdict. */
static void
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
request_count_weight(enum meter_verdict verdict, int64_t weight)
{
    switch (verdict) {
    case METER_VERDICT_ACCEPTED:
        metrics.edgemeter_edge_requests_accepted_total += weight;
        break;
    case METER_VERDICT_DUPLICATE:
        metrics.edgemeter_edge_requests_duplicate_total += weight;
        break;
    case METER_VERDICT_CONFLICT:
        metrics.edgemeter_edge_requests_conflict_total += weight;
        break;
    case METER_VERDICT_REJECTED:
        metrics.edgemeter_edge_requests_rejected_total += weight;
        break;
    case METER_VERDICT_COUNT: break;
    }
}

/* One line per request: a wrong rule makes thousands of them. */
static void
request_tell_dead_letter(struct request_ring *ring,
                         const struct batch_item *item)
{
    char session[2 * BATCH_SESSION_SIZE + 1];

    metrics.edgemeter_dead_letters_total++;
    metrics.edgemeter_poison_records_total += item->record->is_poison;
    if (ring->has_logged && !item->record->is_poison) {
        return;
    }
    ring->has_logged = true;
    meter_hex(ring->shared.session, BATCH_SESSION_SIZE, session);
    log_warn("ingest", "a record became a dead letter",
             log_str("session", session), log_int("seq", item->record->seq),
             log_bytes("tenant", item->record->tenant),
             log_str("reason", item->error));
}

static void
request_tell_loss(const struct batch_record *record)
{
    char session[2 * BATCH_SESSION_SIZE + 1];

    metrics.edgemeter_edge_requests_lost_total += (int64_t)record->loss.count;
    meter_hex(record->ring->session, BATCH_SESSION_SIZE, session);
    log_error("ingest", "the edge could not record requests",
              log_str("session", session),
              log_bytes("node", record->ring->node),
              log_int("requests", (int64_t)record->loss.count),
              log_int("reasons", record->loss.reasons));
}

static void
request_tell_gap(const struct batch_record *record)
{
    char session[2 * BATCH_SESSION_SIZE + 1];

    metrics.edgemeter_edge_gaps_total++;
    meter_hex(record->ring->session, BATCH_SESSION_SIZE, session);
    log_error("ingest", "records of a ring are missing",
              log_str("session", session),
              log_bytes("node", record->ring->node),
              log_int("expected", record->ring->expected_seq),
              log_int("seq", record->seq));
}

static void
request_tell_rewind(const struct batch_ring *ring)
{
    char session[2 * BATCH_SESSION_SIZE + 1];

    metrics.edgemeter_edge_records_missing_total += ring->missing;
    meter_hex(ring->session, BATCH_SESSION_SIZE, session);
    log_error("ingest", "the database went back past what a ring still has",
              log_str("session", session), log_bytes("node", ring->node),
              log_int("missing", ring->missing),
              log_int("lastSeq", ring->totals.last_seq));
}

static void
request_record_taken(struct ingest_request *request,
                     const struct batch_item *item)
{
    struct batch_record *record = item->record;

    metrics.edgemeter_edge_records_total++;
    if (item->error != NULL) {
        request_tell_dead_letter(request->ring, item);
    } else if (record->kind == BATCH_LOSS) {
        request_tell_loss(record);
        return;
    }
    request->ring->codes[item->position] = (uint8_t)item->verdict;
    request->answer.counts[item->verdict]++;
    if (record->kind == BATCH_EVENT) {
        request_count_verdict(item->verdict);
        request_count_weight(item->verdict, record->weight);
    }
}

/* The session as this request left it; the next one tells its own part. */
static void
request_set_session(struct request_ring *ring)
{
    const struct batch_ring *shared = &ring->shared;

    ring->session.last_seq = (uint64_t)shared->totals.last_seq;
    ring->session.missing = (uint64_t)shared->missing;
    for (size_t i = 0; i < METER_VERDICT_COUNT; i++) {
        ring->session.verdicts[i] = (uint64_t)shared->totals.verdicts[i];
    }
}

/* Counted and logged it was when it was rejected. A loss has no verdict; that
   it is on record now is all it can ask for. */
static void
request_letter_decided(struct ingest_request *request,
                       const struct batch_item *item)
{
    enum meter_verdict verdict = item->verdict;

    if (item->record->fate != BATCH_TAKEN) {
        return;
    }
    if (item->record->kind == BATCH_LOSS && item->error == NULL) {
        verdict = METER_VERDICT_ACCEPTED;
    }
    request->ring->codes[item->position] = (uint8_t)verdict;
    request->answer.counts[verdict]++;
    request->answer.reason = item->error;
}

static void
request_decide_record(struct ingest_request *request,
                      const struct batch_item *item)
{
    struct batch_record *record = item->record;

    if (record->ring->is_letters) {
        request_letter_decided(request, item);
        return;
    }
    switch (record->fate) {
    case BATCH_TAKEN:
        if (record->kind != BATCH_HELLO) {
            request_record_taken(request, item);
        } else if (record->ring->missing > 0) {
            request_tell_rewind(record->ring);
        }
        break;
    case BATCH_REPLAY: metrics.edgemeter_edge_replays_total++; break;
    case BATCH_GAP:
        request_tell_gap(record);
        request->ring->is_gapped = true;
        break;
    case BATCH_BEHIND: request->ring->is_gapped = true; break;
    }
    request_set_session(request->ring);
    request->answer.session =
        request->ring->is_gapped ? NULL : &request->ring->session;
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
