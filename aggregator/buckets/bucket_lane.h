/*
 * bucket_lane.h - one connection that writes buckets, a transaction at a time.
 *
 *   engine -> [lane] -> pg_conn -> PostgreSQL
 *
 * The lane has its operations until they end: run again where nothing has
 * happened, looked up where a COMMIT has no answer, one by one where the
 * database blames the data.
 */

#ifndef BUCKETS_BUCKET_LANE_H
#define BUCKETS_BUCKET_LANE_H

#include "buckets/bucket_batch.h"

#include <uv.h>

/* Since it was submitted: of one that has not happened, of one in doubt. */
#define BUCKET_UNAVAILABLE_US UINT64_C(10000000)
#define BUCKET_UNKNOWN_US     UINT64_C(20000000)

struct bucket_lane;

/* The operation is in no list, and its result is set. */
typedef void (*bucket_end_cb)(void *owner, struct operation *operation);

struct bucket_lane_options {
    const char *url; /* borrowed */
    int index;
    bucket_end_cb on_end;
    void *owner;
};

/* Connects at once. */
struct bucket_lane *
bucket_lane_create(uv_loop_t *loop, const struct bucket_lane_options *options);
/* What is left ends: UNKNOWN with a COMMIT on its way, else UNAVAILABLE. */
void bucket_lane_destroy(struct bucket_lane *lane);

/* Once. Before, the lane is never idle. */
void bucket_lane_writer_set(struct bucket_lane *lane, const uint8_t writer[16]);

bool bucket_lane_is_idle(const struct bucket_lane *lane);
/* Of an idle lane. Takes all of the list: one to BUCKET_BATCH_MAX. */
void bucket_lane_run(struct bucket_lane *lane, struct operation_list *list);

/* Operations without an answer, of any state. */
size_t bucket_lane_count(const struct bucket_lane *lane);
/* Ends what waits for too long. */
void bucket_lane_expire(struct bucket_lane *lane, uint64_t now_us);

#endif
