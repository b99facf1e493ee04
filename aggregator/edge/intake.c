/*
 * intake.c - the records of one ring on their way in, from a link or from an
 * adopted ring.
 *
 *   link, adopt -> [intake] -> ingest
 *
 * It keeps records in order and within their credit, and tells the owner what
 * became durable or that it has to start over. Events to the owner are always
 * the last thing a function does: the owner may close the intake in them. Only
 * one intake of a session is in the table; one that is fenced or failed is in
 * it no more and is freed by its owner.
 */

#include "edge/intake.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"

#include <stdlib.h>

#define RECORD_SIZE_GUESS 512 /* until records have been seen */
#define RECORD_SIZE_LEAST 64
#define CREDIT_STEPS      4 /* told when it moved by this part of a window */

/* One call of intake_put. */
struct intake_part {
    struct intake *intake;
    struct ingest_request *request;
    bool *is_answered; /* of the call under way; NULL: it has returned */
    uint64_t first_seq;
    size_t count;
    size_t size;
    TAILQ_ENTRY(intake_part) next;
};


/* ---- all of them ----------------------------------------------------- */

uint64_t
intakes_db_epoch(const struct intakes *intakes)
{
    return ingest_db_epoch(intakes->ingest);
}

static struct meter_str
intake_key(const struct intake *intake)
{
    return (struct meter_str){(const char *)intake->ring.session,
                              sizeof(intake->ring.session)};
}

static void
intakes_remove(struct intake *intake)
{
    struct intakes *intakes = intake->intakes;

    if (map_find(&intakes->table, intake_key(intake)) == intake) {
        map_remove(&intakes->table, intake_key(intake));
    }
    metrics.edgemeter_edge_rings = (int64_t)intakes->table.count;
}


/* ---- credit ---------------------------------------------------------- */

/* Records that may be under way at once, by this ring's share of all. */
static uint64_t
intake_window(const struct intake *intake)
{
    size_t rings = intake->intakes->table.count;
    size_t window = INTAKE_WINDOW_MAX;
    size_t share;

    rings = rings == 0 ? 1 : rings;
    share = INTAKE_RECORDS_MAX / rings;
    window = share < window ? share : window;
    share = INTAKE_BYTES_MAX / rings / intake->record_size;
    window = share < window ? share : window;
    return window < INTAKE_WINDOW_MIN ? INTAKE_WINDOW_MIN : window;
}

/* Moves the limit; 0: not by enough to tell. Credit is never taken back. */
static uint64_t
intake_credit(struct intake *intake)
{
    uint64_t window = intake_window(intake);
    uint64_t limit = intake->durable + window;

    if (limit < intake->seq_limit + window / CREDIT_STEPS) {
        return 0;
    }
    intake->seq_limit = limit;
    return limit;
}

static void
intake_record_size_seen(struct intake *intake, size_t size, size_t count)
{
    size_t each = size / count;

    each = each < RECORD_SIZE_LEAST ? RECORD_SIZE_LEAST : each;
    intake->record_size = (7 * intake->record_size + each + 7) / 8;
}


/* ---- the end --------------------------------------------------------- */

static void
intake_part_free(struct intake_part *part)
{
    TAILQ_REMOVE(&part->intake->parts, part, next);
    part->intake->intakes->bytes -= part->size;
    free(part);
}

/* No answer comes any more; what no transaction has is dropped. */
static void
intake_withdraw(struct intake *intake)
{
    struct intake_part *part;

    if (intake->opening != NULL) {
        ingest_withdraw(intake->opening);
        intake->opening = NULL;
    }
    /* The last one first: what goes in is always a whole beginning. */
    while ((part = TAILQ_LAST(&intake->parts, intake_parts)) != NULL) {
        if (part->request != NULL) {
            ingest_withdraw(part->request);
        }
        intake_part_free(part);
    }
    intakes_remove(intake);
    intake->state = INTAKE_OVER;
}

static void
intake_restart(struct intake *intake, enum ingest_outcome why)
{
    intake_withdraw(intake);
    intake->events->on_restart(intake->owner, why);
}

/* One that was opened on another database; NULL: none. */
static struct intake *
intakes_outdated(const struct intakes *intakes)
{
    uint64_t db_epoch = intakes_db_epoch(intakes);
    struct intake *intake;
    size_t cursor = 0;

    while ((intake = map_next(&intakes->table, &cursor)) != NULL) {
        if (intake->state == INTAKE_OPEN && intake->db_epoch != db_epoch) {
            return intake;
        }
    }
    return NULL;
}

void
intakes_database_ready(struct intakes *intakes)
{
    struct intake *intake;

    /* Each one leaves the table, which changes it: look again. */
    while ((intake = intakes_outdated(intakes)) != NULL) {
        intake_restart(intake, INGEST_GAP);
    }
}

void
intake_close(struct intake *intake)
{
    if (intake == NULL) {
        return;
    }
    intake_withdraw(intake);
    free(intake);
}


/* ---- opening --------------------------------------------------------- */

struct intake *
intake_create(struct intakes *intakes, const struct intake_ring *ring,
              const struct intake_events *events, void *owner)
{
    struct intake *intake = memory_alloc(sizeof(*intake));
    size_t size = ring->node.size;

    size = size > INTAKE_NODE_SIZE_MAX ? INTAKE_NODE_SIZE_MAX : size;
    if (size > 0) {
        memcpy(intake->node, ring->node.data, size);
    }
    memcpy(intake->ring.session, ring->session, sizeof(ring->session));
    intake->ring.node = (struct meter_str){intake->node, size};
    intake->intakes = intakes;
    intake->events = events;
    intake->owner = owner;
    intake->head = ring->head;
    intake->acked = ring->acked;
    intake->oldest = ring->oldest;
    intake->record_size = RECORD_SIZE_GUESS;
    TAILQ_INIT(&intake->parts);
    return intake;
}

/* What the ring said of itself against what the database holds. */
static void
intake_compare(const struct intake *intake, const struct ingest_session *now)
{
    if (now->last_seq >= intake->head) {
        metrics.edgemeter_edge_rollbacks_total++;
        log_error("edge", "a ring file is older than what the database holds",
                  log_bytes("node", intake->ring.node),
                  log_int("head", (int64_t)intake->head),
                  log_int("last_seq", (int64_t)now->last_seq));
    } else if (now->last_seq < intake->acked) {
        metrics.edgemeter_edge_rewinds_total++;
        log_error("edge", "the database holds less than a ring was told",
                  log_bytes("node", intake->ring.node),
                  log_int("acked", (int64_t)intake->acked),
                  log_int("last_seq", (int64_t)now->last_seq));
    }
}

static void
intake_opened_cb(void *arg, const struct ingest_answer *answer)
{
    struct intake *intake = arg;

    intake->opening = NULL;
    if (answer->outcome != INGEST_DONE) {
        intake_restart(intake, answer->outcome);
        return;
    }
    intake->state = INTAKE_OPEN;
    intake->db_epoch = intakes_db_epoch(intake->intakes);
    intake->durable = answer->session->last_seq;
    intake->expected = intake->durable + 1;
    intake_compare(intake, answer->session);
    intake_credit(intake);
    intake->events->on_open(intake->owner, answer->session, intake->seq_limit);
}

static void
intake_fence(struct intake *intake)
{
    metrics.edgemeter_edge_fenced_total++;
    intake_withdraw(intake);
    intake->events->on_fenced(intake->owner);
}

void
intake_open(struct intake *intake)
{
    struct intakes *intakes = intake->intakes;
    struct intake *older = map_find(&intakes->table, intake_key(intake));
    struct ingest_request *request;

    CHECK(intake->state == INTAKE_NEW);
    if (older != NULL) {
        intake_fence(older);
    }
    if (map_add(&intakes->table, intake_key(intake), intake) != intake) {
        log_error("intake", "too many rings, or no memory",
                  log_int("rings", (int64_t)intakes->table.count));
        intake_restart(intake, INGEST_BUSY);
        return;
    }
    metrics.edgemeter_edge_rings = (int64_t)intakes->table.count;
    intake->state = INTAKE_OPENING;
    request = ingest_open_ring(intakes->ingest, &intake->ring, intake->oldest,
                               intake_opened_cb, intake);
    /* NULL: answered during the call, and the intake may be gone. */
    if (request != NULL) {
        intake->opening = request;
    }
}


/* ---- records --------------------------------------------------------- */

static void
intake_done(struct intake *intake, const struct intake_part *from,
            const struct ingest_answer *answer)
{
    struct intake_result result = {
        .first_seq = from->first_seq,
        .codes = answer->codes,
        .count = from->count,
        .session = answer->session,
    };

    if (answer->session->last_seq > intake->durable) {
        intake->durable = answer->session->last_seq;
    }
    result.seq_limit = intake_credit(intake);
    intake->events->on_result(intake->owner, &result);
}

static void
intake_answer_cb(void *arg, const struct ingest_answer *answer)
{
    struct intake_part *part = arg;
    struct intake_part copy = *part;

    if (part->is_answered != NULL) {
        *part->is_answered = true;
    }
    part->request = NULL;
    intake_part_free(part);
    if (answer->outcome == INGEST_DONE) {
        intake_done(copy.intake, &copy, answer);
    } else {
        intake_restart(copy.intake, answer->outcome);
    }
}

enum intake_put
intake_put(struct intake *intake, uint64_t first_seq, size_t count,
           struct buf *records)
{
    bool is_answered = false;
    struct ingest_request *request;
    struct intake_part *part;

    CHECK(intake->state == INTAKE_OPEN && count > 0);
    if (first_seq != intake->expected) {
        metrics.edgemeter_edge_gaps_total++;
        return INTAKE_GAP;
    }
    if (first_seq > intake->seq_limit ||
        count > intake->seq_limit - first_seq + 1) {
        return INTAKE_PAST_CREDIT;
    }
    part = memory_alloc(sizeof(*part));
    *part = (struct intake_part){
        .intake = intake,
        .is_answered = &is_answered,
        .first_seq = first_seq,
        .count = count,
        .size = records->size,
    };
    TAILQ_INSERT_TAIL(&intake->parts, part, next);
    intake->intakes->bytes += part->size;
    intake->expected += count;
    intake_record_size_seen(intake, part->size, count);
    request =
        ingest_submit_records(intake->intakes->ingest, &intake->ring, first_seq,
                              count, records, intake_answer_cb, part);
    if (is_answered) {
        return INTAKE_ENDED; /* no records are durable this soon */
    }
    part->request = request;
    part->is_answered = NULL;
    return INTAKE_TAKEN;
}
