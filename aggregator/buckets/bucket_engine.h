/*
 * bucket_engine.h - writes of the counters API, durable before answered.
 *
 *   api -> [queue] -> lane 0: up to 5000 operations a transaction
 *       -> [queue] -> lanes 1..4: one each (incrementSync, set, ...)
 *
 * A lane is a connection as meter_writer:
 *
 *   BEGIN; lock buckets; known keys; number -> decide -> write; COMMIT
 *
 * Two round trips. Whether a COMMIT without an answer has succeeded is told by
 * the number once the connection is back. Where someone else has made a row
 * meanwhile (23505), or in a deadlock, the whole transaction starts over.
 */

#ifndef BUCKETS_BUCKET_ENGINE_H
#define BUCKETS_BUCKET_ENGINE_H

#include "buckets/operation.h"
#include "store/reader.h"

#include <uv.h>

#define BUCKET_SYNC_LANES 4

struct bucket_engine;

struct bucket_engine_options {
    const char *url;       /* borrowed */
    struct reader *writes; /* for the sweep; borrowed */
};

/* Lanes connect at once; what they need is set below. */
struct bucket_engine *
bucket_engine_create(uv_loop_t *loop,
                     const struct bucket_engine_options *options);
/* Operations that are left get UNAVAILABLE, or UNKNOWN in a COMMIT. */
void bucket_engine_destroy(struct bucket_engine *engine);

/* The writer's row is there: lanes may go to work. Once. */
void bucket_engine_writer_set(struct bucket_engine *engine,
                              const uint8_t writer[16]);
/* limits.operationQueue, now and after a reload. */
void bucket_engine_queue_max_set(struct bucket_engine *engine, size_t max);

enum bucket_submit {
    BUCKET_SUBMITTED, /* the callback follows, later than this call */
    BUCKET_FULL       /* 429 */
};

/* *out is for cancel, until the callback. */
MUST_CHECK enum bucket_submit
bucket_engine_submit(struct bucket_engine *engine,
                     const struct operation_request *request, operation_cb cb,
                     void *asker, struct operation **out);
/* One that has not begun is dropped: it is never applied. */
void
bucket_engine_cancel(struct bucket_engine *engine, struct operation *operation);

#endif
