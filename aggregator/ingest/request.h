/*
 * request.h - one request on its way through ingest.
 *
 *   body -> [request] -> items -> batch ... -> results -> answer
 *
 * Owns the body's bytes, the events parsed from them and the results; it
 * lives until it is answered (or its asker is gone) and none of its items
 * is in a transaction.
 */

#ifndef INGEST_REQUEST_H
#define INGEST_REQUEST_H

#include "ingest/batch.h"
#include "ingest/ingest.h"

struct ingest_request {
    struct ingest *ingest;
    struct config *config; /* the rules it was read with */
    struct buf body;
    struct arena arena;

    ingest_answer_cb cb; /* NULL: answered, or the asker is gone */
    void *asker;
    struct ingest_answer answer;
    struct ingest_result *results;

    struct batch_item *items; /* valid events, in order */
    size_t item_count;
    size_t taken_count;   /* given to a batch */
    size_t flying_count;  /* in the batch under way */
    size_t decided_count; /* final */

    uint64_t submitted_ms;
    struct ingest_request *next_queued;
    struct ingest_request *next_kept; /* by age */
    struct ingest_request *previous_kept;
    bool is_queued; /* has events that no batch has taken */
    bool is_ended;  /* answered, or too late for an answer */
};

/* Takes the body. NULL: no memory; the body is then freed. */
MUST_CHECK struct ingest_request *
request_create(struct ingest *ingest, struct config *config, struct buf *body);
void request_free(struct ingest_request *request);

/*
 * Parses and projects: results of invalid events are final, valid ones
 * become items. Returns DONE, or BAD with answer.error, or UNAVAILABLE when
 * memory is short.
 */
MUST_CHECK enum ingest_outcome
request_read(struct ingest_request *request, struct meter_str tenant,
             const struct meter_salt *salt, int64_t now_us);

/* An item is final: its result is written and counted. */
void
request_decide(struct ingest_request *request, const struct batch_item *item);

#endif
