/*
 * api.h - HTTP requests that nginx passed on, from head to answer.
 *
 *   session -> [api: route, authorise, handler] -> ingest, buckets
 *           <- answer                              reader, writes
 *
 * Knows nothing of sockets: a request comes in by api_submit, its answer
 * goes out by the callback.
 */

#ifndef API_API_H
#define API_API_H

#include "buckets/bucket_engine.h"
#include "config/config.h"
#include "ingest/ingest.h"
#include "meter_msg.h"
#include "store/lane.h"
#include "store/reader.h"

struct api;
struct api_call;

/* All borrowed for the life of the api. */
struct api_options {
    uv_loop_t *loop;
    struct config *config; /* takes a reference of its own */
    struct ingest *ingest;
    struct reader *reader;
    struct reader *writes;         /* clients' own writes */
    struct bucket_engine *buckets; /* writes of the counters API */
    struct lane *lane;
};

struct api *api_create(const struct api_options *options);
/* Every call must have been answered or cancelled. */
void api_destroy(struct api *api);

/* For requests that come from now on. */
void api_config_set(struct api *api, struct config *config);
/* Lane, reader and partitions have been ready once: data may be served. */
void api_healthy_set(struct api *api);

/* Called once; body may be taken (moved out of the buf). */
typedef void (*api_answer_cb)(void *asker, const struct meter_response *head,
                              struct buf *body);

/*
 * request and body must live until the answer or api_cancel; body's bytes
 * may be taken. The answer comes during this call, which then returns
 * NULL, or later: then the call is for api_cancel. is_full: there is no room
 * for the request; one of the counters API is answered at once as when its
 * queue is full, any other 503.
 */
struct api_call *
api_submit(struct api *api, const struct meter_request *request,
           struct buf *body, bool is_full, api_answer_cb cb, void *asker);
/*
 * The asker is gone: no answer any more. Events submitted go their way; an
 * operation on a bucket does so once it has begun, else it is dropped.
 */
void api_cancel(struct api_call *call);

#endif
