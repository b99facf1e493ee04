/*
 * intake_fixture.h - an ingest that answers when the test says so, and an
 * owner of intakes that remembers what it was told.
 */

#ifndef INTAKE_FIXTURE_H
#define INTAKE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/metrics.h"
#include "edge/intake.h"


/* ---- an ingest that waits -------------------------------------------- */

#define REQUESTS_MAX 64

struct ingest_request {
    bool is_open_ring;
    bool is_withdrawn;
    bool is_answered;
    uint8_t session[16];
    uint64_t oldest;
    uint64_t first_seq;
    size_t count;
    size_t size;
    ingest_answer_cb cb;
    void *asker;
};

static struct ingest_request requests[REQUESTS_MAX];
static size_t request_count;
static enum ingest_outcome at_once; /* DONE: later */
static uint64_t db_epoch;
static uint8_t all_accepted[METER_BATCH_EVENTS_MAX];

static struct ingest_request *
keep(const struct ingest_ring *ring, ingest_answer_cb cb, void *asker)
{
    struct ingest_request *request = &requests[request_count];

    assert_true(request_count < REQUESTS_MAX);
    if (at_once != INGEST_DONE) {
        struct ingest_answer answer = {.outcome = at_once};

        cb(asker, &answer);
        return NULL;
    }
    request_count++;
    *request = (struct ingest_request){.cb = cb, .asker = asker};
    memcpy(request->session, ring->session, sizeof(request->session));
    return request;
}

struct ingest_request *
ingest_open_ring(struct ingest *ingest, const struct ingest_ring *ring,
                 uint64_t oldest, ingest_answer_cb cb, void *asker)
{
    struct ingest_request *request = keep(ring, cb, asker);

    (void)ingest;
    if (request != NULL) {
        request->is_open_ring = true;
        request->oldest = oldest;
    }
    return request;
}

struct ingest_request *
ingest_submit_records(struct ingest *ingest, const struct ingest_ring *ring,
                      uint64_t first_seq, size_t count, struct buf *records,
                      ingest_answer_cb cb, void *asker)
{
    size_t size = records->size;
    struct ingest_request *request;

    (void)ingest;
    buf_fini(records);
    request = keep(ring, cb, asker);
    if (request != NULL) {
        request->first_seq = first_seq;
        request->count = count;
        request->size = size;
    }
    return request;
}

void
ingest_withdraw(struct ingest_request *request)
{
    assert_false(request->is_withdrawn || request->is_answered);
    request->is_withdrawn = true;
}

uint64_t
ingest_db_epoch(const struct ingest *ingest)
{
    (void)ingest;
    return db_epoch;
}

bool
ingest_is_able(const struct ingest *ingest)
{
    (void)ingest;
    return true;
}

static void
answer(size_t index, enum ingest_outcome outcome, uint64_t last_seq)
{
    struct ingest_request *request = &requests[index];
    struct ingest_session session = {.last_seq = last_seq,
                                     .verdicts = {last_seq}};
    struct ingest_answer answer = {
        .outcome = outcome,
        .session = &session,
        .codes = all_accepted,
        .count = request->count,
    };

    assert_true(index < request_count);
    assert_false(request->is_withdrawn || request->is_answered);
    request->is_answered = true;
    request->cb(request->asker, &answer);
}


/* ---- an owner that remembers ----------------------------------------- */

struct owner {
    struct intake *intake;
    bool closes; /* in the next event */
    int opened;
    int results;
    int fenced;
    int restarted;
    enum ingest_outcome why;
    uint64_t last_seq;
    uint64_t first_seq;
    size_t codes;
    uint64_t credit; /* as told last */
    int credits;
};

static struct intakes intakes;

static void
owner_event(struct owner *owner)
{
    if (owner->closes) {
        intake_close(owner->intake);
        owner->intake = NULL;
    }
}

static void
open_cb(void *asker, const struct ingest_session *session, uint64_t seq_limit)
{
    struct owner *owner = asker;

    owner->opened++;
    owner->last_seq = session->last_seq;
    owner->credit = seq_limit;
    owner_event(owner);
}

static void
result_cb(void *asker, const struct intake_result *result)
{
    struct owner *owner = asker;

    owner->results++;
    owner->last_seq = result->session->last_seq;
    owner->first_seq = result->first_seq;
    owner->codes = result->count;
    if (result->seq_limit != 0) {
        assert_true(result->seq_limit > owner->credit);
        owner->credit = result->seq_limit;
        owner->credits++;
    }
    owner_event(owner);
}

static void
fenced_cb(void *asker)
{
    struct owner *owner = asker;

    owner->fenced++;
    owner_event(owner);
}

static void
restart_cb(void *asker, enum ingest_outcome why)
{
    struct owner *owner = asker;

    owner->restarted++;
    owner->why = why;
    owner_event(owner);
}

static const struct intake_events events = {
    .on_open = open_cb,
    .on_result = result_cb,
    .on_fenced = fenced_cb,
    .on_restart = restart_cb,
};

static void
begin_ring(struct owner *owner, uint8_t session, uint64_t head, uint64_t acked,
           uint64_t oldest)
{
    struct intake_ring ring = {
        .session = {session},
        .node = METER_STR("gw-1"),
        .head = head,
        .acked = acked,
        .oldest = oldest,
    };

    owner->intake = intake_create(&intakes, &ring, &events, owner);
    assert_non_null(owner->intake);
    intake_open(owner->intake);
}

/* Opened, the database being at last_seq. */
static void
begin(struct owner *owner, uint8_t session, uint64_t last_seq)
{
    begin_ring(owner, session, last_seq + 1, last_seq, 0);
    answer(request_count - 1, INGEST_DONE, last_seq);
    assert_int_equal(owner->opened, 1);
}

static enum intake_put
put_sized(struct owner *owner, uint64_t first_seq, size_t count, size_t size)
{
    struct buf records;
    enum intake_put got;
    char *room;

    buf_init(&records, size);
    room = buf_reserve(&records, size);
    assert_non_null(room);
    memset(room, 0, size);
    buf_commit(&records, size);
    got = intake_put(owner->intake, first_seq, count, &records);
    if (got == INTAKE_TAKEN) {
        assert_int_equal(records.size, 0);
    }
    buf_fini(&records);
    return got;
}

static enum intake_put
put(struct owner *owner, uint64_t first_seq, size_t count)
{
    return put_sized(owner, first_seq, count, 200 * count);
}

static int
setup(void **state)
{
    (void)state;
    memset(&metrics, 0, sizeof(metrics));
    request_count = 0;
    at_once = INGEST_DONE;
    db_epoch = 77;
    intakes_init(&intakes, NULL);
    return 0;
}

/* Checks that nothing is left in the table or counted as under way. */
static int
teardown(void **state)
{
    (void)state;
    intakes_fini(&intakes);
    return 0;
}

#endif
