/*
 * ingest_gather.c - what has gathered becomes the next transaction.
 *
 *   queue -> [gather] -> transaction
 *
 * Gathering happens once per turn of the loop, after everything readable was
 * read: an event that comes alone leaves in the same turn, and while a
 * transaction runs the next batch grows. A request stays whole in one batch
 * where it fits. After a crash records of rings go one by one, so that the
 * next crash names its culprit.
 */

#include "ingest/ingest_state.h"

#include "series/series_engine.h"

#include <stdlib.h>

#define BATCH_BYTES_MAX ((size_t)32 << 20) /* of bodies, in one batch */

/* Records are stored one by one for a while, see poison.h. */
static bool
ingest_is_cautious(const struct ingest *ingest)
{
    return ingest->poison != NULL && poison_is_cautious(ingest->poison);
}

/* A flush has to make room first; ingest_room says when. */
static bool
is_series_full(const struct ingest *ingest)
{
    return ingest->series != NULL && series_engine_is_full(ingest->series);
}

static void ingest_check_cb(uv_check_t *check);
static void ingest_idle_cb(uv_idle_t *idle);

void
ingest_schedule(struct ingest *ingest)
{
    if (ingest->queue.head == NULL ||
        !transaction_is_idle(ingest->transaction)) {
        return;
    }
    uv_check_start(&ingest->check, ingest_check_cb);
    uv_idle_start(&ingest->idle, ingest_idle_cb);
}

static void
ingest_idle_cb(uv_idle_t *idle)
{
    (void)idle; /* being active is all it does: poll does not wait */
}

static bool
gathered_reserve(struct gathered *gathered, size_t count)
{
    struct batch_item **items;

    if (count <= gathered->room) {
        return true;
    }
    items = realloc(gathered->items, count * sizeof(*items));
    if (items == NULL) {
        return false;
    }
    gathered->items = items;
    gathered->room = count;
    return true;
}

void
ingest_gathered_free(struct ingest *ingest)
{
    for (size_t i = 0; i < 2; i++) {
        free(ingest->gathered[i].items);
        ingest->gathered[i] = (struct gathered){NULL, 0};
    }
}

/* The next events of a request, at most room of them. */
static size_t
request_gather(struct ingest_request *request, struct batch_item **items,
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
ingest_gather(struct ingest *ingest, struct gathered *gathered)
{
    size_t count_max = (size_t)ingest->config->limits.batch_events;
    bool is_cautious = ingest_is_cautious(ingest);
    size_t count = 0;
    size_t bytes = 0;

    if (count_max > ingest->queue.events) {
        count_max = ingest->queue.events;
    }
    if (!gathered_reserve(gathered, count_max)) {
        return 0;
    }
    while (ingest->queue.head != NULL && count < count_max) {
        struct ingest_request *request = ingest->queue.head;
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
            request_gather(request, gathered->items + count, count_max - count);
        if (request->taken_count == request->item_count) {
            request_queue_pop(&ingest->queue);
        }
    }
    request_queue_taken(&ingest->queue, count);
    return count;
}

void
ingest_start(struct ingest *ingest)
{
    struct gathered *gathered = &ingest->gathered[ingest->gathered_now ^ 1];
    size_t count;

    if (ingest->queue.head == NULL ||
        !transaction_is_idle(ingest->transaction) || is_series_full(ingest)) {
        return;
    }
    count = ingest_gather(ingest, gathered);
    if (count > 0) {
        ingest->gathered_now ^= 1;
        ingest->was_idle = false;
        transaction_run(ingest->transaction, gathered->items, count);
    }
}

static void
ingest_check_cb(uv_check_t *check)
{
    struct ingest *ingest = check->data;

    uv_check_stop(&ingest->check);
    uv_idle_stop(&ingest->idle);
    ingest_start(ingest);
}
