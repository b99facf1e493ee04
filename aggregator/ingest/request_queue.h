/*
 * request_queue.h - the requests of ingest, in two orders. Pure.
 *
 * The queue proper holds requests with events that no batch has taken,
 * first come first served. All requests that are kept, also those whose
 * events are in a transaction, stand in a list by age, for the time limit.
 * Both are bounded by what the caller lets in: `events` and `bytes`.
 */

#ifndef INGEST_REQUEST_QUEUE_H
#define INGEST_REQUEST_QUEUE_H

#include "ingest/request.h"

struct request_queue {
    struct ingest_request *head;
    struct ingest_request *tail;
    size_t events; /* that no batch has taken */

    struct ingest_request *oldest;
    struct ingest_request *newest;
    size_t bytes; /* bodies of all requests that are kept */
};

void
request_queue_keep(struct request_queue *queue, struct ingest_request *request);
void request_queue_forget(struct request_queue *queue,
                          struct ingest_request *request);

void
request_queue_push(struct request_queue *queue, struct ingest_request *request);
/* The head has no events left. */
void request_queue_pop(struct request_queue *queue);
/* A batch took this many events. */
void request_queue_taken(struct request_queue *queue, size_t events);
/*
 * Takes the request out, if it stands there: events of it that no
 * transaction has seen are not recorded.
 */
void
request_queue_drop(struct request_queue *queue, struct ingest_request *request);

#endif
