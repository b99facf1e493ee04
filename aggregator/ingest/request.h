/*
 * request.h - one request on its way through ingest.
 *
 *   body -> [request] -> items -> batch ... -> results -> answer
 *   records of a ring, or its hello -> [request] -> items ... codes -> answer
 *   a dead letter -> [request] -> one item ... code, reason -> answer
 *
 * Owns the body's bytes, the events parsed from them and the results; it
 * lives until it is answered (or its asker is gone) and none of its items
 * is in a transaction.
 */

#ifndef INGEST_REQUEST_H
#define INGEST_REQUEST_H

#include "ingest/batch.h"
#include "ingest/ingest.h"
#include "ingest/poison.h"

#include <sys/queue.h>

/* What a request of a ring has beside its items. */
struct request_ring {
    struct batch_ring shared;
    uint8_t *codes; /* one per record; NULL: a hello */
    struct ingest_session session;
    bool is_gapped;  /* nothing was taken */
    bool has_logged; /* its first dead letter */
};

struct ingest_request {
    struct ingest *ingest;
    struct config *config; /* the rules it was read with */
    struct buf body;
    struct arena arena;

    ingest_answer_cb cb; /* NULL: answered, or the asker is gone */
    void *asker;
    struct ingest_answer answer;
    struct ingest_result *results;
    struct request_ring *ring; /* NULL: a body of the API */

    struct batch_item *items; /* valid events, all records, in order */
    size_t item_count;
    size_t taken_count;   /* given to a batch */
    size_t flying_count;  /* in the batch under way */
    size_t decided_count; /* final */
    size_t due_count;     /* that many, and it is answered */

    uint64_t submitted_ms;
    TAILQ_ENTRY(ingest_request) queued;
    TAILQ_ENTRY(ingest_request) kept; /* by age */
    bool is_queued;                   /* has events that no batch has taken */
    bool is_ended;                    /* answered, or too late for an answer */
};

/* Decides how much memory the events of a body may take. */
enum request_kind { REQUEST_BODY, REQUEST_RECORDS };

/* Takes the body. */
struct ingest_request *
request_create(struct ingest *ingest, struct config *config, struct buf *body,
               enum request_kind kind);
void request_free(struct ingest_request *request);

/*
 * Parses and projects the body, which is of input's form: results of invalid
 * events are final, valid ones become items. Returns DONE, or BAD with
 * answer.error, or UNAVAILABLE when memory is short.
 */
MUST_CHECK enum ingest_outcome
request_read(struct ingest_request *request, const struct ingest_input *input,
             const struct meter_salt *salt, int64_t now_us);

/* An item is final: its result is written and counted. */
void
request_decide(struct ingest_request *request, const struct batch_item *item);
/* All items are final: what the asker is told. */
enum ingest_outcome request_outcome(const struct ingest_request *request);

/* One item that asks for the session. BAD, or UNAVAILABLE without memory. */
MUST_CHECK enum ingest_outcome
request_read_hello(struct ingest_request *request,
                   const struct ingest_ring *ring, uint64_t oldest);
/*
 * Each record becomes an item, rejected ones too. BAD with answer.error, or
 * UNAVAILABLE when memory is short. poison may be NULL.
 */
MUST_CHECK enum ingest_outcome
request_read_records(struct ingest_request *request,
                     const struct ingest_ring *ring, uint64_t first_seq,
                     size_t count, const struct meter_salt *salt,
                     int64_t now_us, struct poison *poison);
/* One item, rejected or not; BAD and UNAVAILABLE as above. */
MUST_CHECK enum ingest_outcome
request_read_letter(struct ingest_request *request,
                    const struct ingest_letter *letter,
                    const struct meter_salt *salt, struct poison *poison);

#endif
