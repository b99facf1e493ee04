/*
 * request_queue.c - see request_queue.h.
 */

#include "ingest/request_queue.h"

#include "base/metrics.h"

void
request_queue_keep(struct request_queue *queue, struct ingest_request *request)
{
    request->previous_kept = queue->newest;
    if (queue->newest != NULL) {
        queue->newest->next_kept = request;
    } else {
        queue->oldest = request;
    }
    queue->newest = request;
    queue->bytes += request->body.size;
}

void
request_queue_forget(struct request_queue *queue,
                     struct ingest_request *request)
{
    if (request->previous_kept != NULL) {
        request->previous_kept->next_kept = request->next_kept;
    } else {
        queue->oldest = request->next_kept;
    }
    if (request->next_kept != NULL) {
        request->next_kept->previous_kept = request->previous_kept;
    } else {
        queue->newest = request->previous_kept;
    }
    request->next_kept = NULL;
    request->previous_kept = NULL;
    queue->bytes -= request->body.size;
}

static void
request_queue_set_events(struct request_queue *queue, size_t events)
{
    queue->events = events;
    metrics.edgemeter_queue_events = (int64_t)events;
}

void
request_queue_push(struct request_queue *queue, struct ingest_request *request)
{
    request->is_queued = true;
    if (queue->tail != NULL) {
        queue->tail->next_queued = request;
    } else {
        queue->head = request;
    }
    queue->tail = request;
    request_queue_set_events(queue, queue->events + request->item_count);
}

void
request_queue_pop(struct request_queue *queue)
{
    struct ingest_request *request = queue->head;

    queue->head = request->next_queued;
    if (queue->head == NULL) {
        queue->tail = NULL;
    }
    request->next_queued = NULL;
    request->is_queued = false;
}

void
request_queue_taken(struct request_queue *queue, size_t events)
{
    CHECK(events <= queue->events);
    request_queue_set_events(queue, queue->events - events);
}

void
request_queue_drop(struct request_queue *queue, struct ingest_request *request)
{
    struct ingest_request **link = &queue->head;
    struct ingest_request *before = NULL;

    if (!request->is_queued) {
        return;
    }
    while (*link != request) {
        before = *link;
        link = &before->next_queued;
    }
    *link = request->next_queued;
    if (queue->tail == request) {
        queue->tail = before;
    }
    request->next_queued = NULL;
    request->is_queued = false;
    request_queue_taken(queue, request->item_count - request->taken_count);
}
