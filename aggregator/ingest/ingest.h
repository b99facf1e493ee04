/*
 * ingest.h - events of all connections through one gate into the database.
 *
 *   api -> [ingest] -> batch -> transaction -> lane -> PostgreSQL
 *
 * ingest_submit parses and queues; when the lane is idle everything queued
 * (to batchEvents) becomes one transaction; a lone event waits for nobody.
 * A request is answered only after the clean COMMIT of its events. The
 * queue holds at most queueEvents; beyond that: BUSY.
 */

#ifndef INGEST_INGEST_H
#define INGEST_INGEST_H

#include "base/buf.h"
#include "config/config.h"
#include "meter_types.h"
#include "store/lane.h"
#include "store/partition.h"

struct ingest;
struct ingest_request;

enum ingest_outcome {
    INGEST_DONE,       /* results are final and durable */
    INGEST_BAD,        /* the body as a whole is no list of events: 400 */
    INGEST_BUSY,       /* queue full, nothing taken: 429, Retry-After */
    INGEST_UNAVAILABLE /* no durable answer in time: 503, Retry-After; a
                          retry with the same ids is safe */
};

struct ingest_result {
    enum meter_verdict verdict;
    struct meter_str event_id; /* data NULL: none */
    const char *error;         /* REJECTED (and CONFLICT): the reason */
};

struct ingest_answer {
    enum ingest_outcome outcome;
    const char *error; /* BAD */
    bool single;       /* the body was one object */
    size_t counts[METER_VERDICT_COUNT];
    const struct ingest_result *results; /* request order */
    size_t count;
};

/* Called once per request; the answer is valid during the call. */
typedef void (*ingest_answer_cb)(void *asker,
                                 const struct ingest_answer *answer);

struct ingest_options {
    uint64_t answer_timeout_ms; /* then UNAVAILABLE; 20 s */
};

MUST_CHECK struct ingest *
ingest_create(uv_loop_t *loop, struct config *config, struct lane *lane,
              struct partition *partition,
              const struct ingest_options *options);
/* Not from inside an answer. Requests still kept get UNAVAILABLE. */
void ingest_destroy(struct ingest *ingest);

/* The lane's events, wired by the aggregator. */
void ingest_lane_ready(struct ingest *ingest, int64_t last, int64_t batch);
void ingest_lane_lost(struct ingest *ingest);
void ingest_not_replicated(struct ingest *ingest);

/* New rules for requests submitted from now on. */
void ingest_config_set(struct ingest *ingest, struct config *config);

/*
 * body's bytes move in (the buf is emptied). tenant is copied. The callback
 * comes later, or during this call when the database is not needed (BAD,
 * BUSY, all events rejected) or was never reached (UNAVAILABLE). Returns a
 * handle for ingest_cancel while the callback is outstanding, else NULL.
 */
struct ingest_request *
ingest_submit(struct ingest *ingest, struct meter_str tenant, struct buf *body,
              ingest_answer_cb cb, void *asker);
/* The asker is gone: no callback any more; the events go their way. */
void ingest_cancel(struct ingest_request *request);

/* Nothing queued and nothing in flight: SIGTERM may go on. */
bool ingest_is_idle(const struct ingest *ingest);
/* Able to commit: the lane is up and the last transaction went through. */
bool ingest_is_able(const struct ingest *ingest);

#endif
