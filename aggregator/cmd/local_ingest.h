/*
 * local_ingest.h - an ingest of the command's own: the parts of a meterd,
 * without its doors.
 *
 *   command -> [ingest -> lane -> PostgreSQL]
 *                   \-> [series: buffer, flush, rollups]
 *
 * `meterd replay` and `meterd dead-letter replay` write with it. Each keeps a
 * writer of its own in a directory of stateDir, where one process works at a
 * time: a running meterd is not disturbed. Series that a killed command has
 * not flushed are flushed by the next one, or by any meterd after a minute.
 */

#ifndef CMD_LOCAL_INGEST_H
#define CMD_LOCAL_INGEST_H

#include "config/config.h"
#include "ingest/ingest.h"
#include "series/series_engine.h"

#include <limits.h>

#define LOCAL_INGEST_NODE_SIZE 320

struct local_ingest_options {
    const char *command;        /* for messages */
    const char *name;           /* of the directory, and of the writer's node */
    uint64_t answer_timeout_ms; /* how long the database may keep one back */
    bool has_series;
    void (*on_ready)(void *owner); /* once */
    /* Nothing can be committed any more, and why. */
    void (*on_failed)(void *owner, const char *why);
};

struct local_ingest {
    const struct local_ingest_options *options;
    void *owner;
    struct config *config;
    char directory[PATH_MAX];
    char node[LOCAL_INGEST_NODE_SIZE];
    int lock; /* -1: not locked */
    struct lane *lane;
    struct partition *partition;
    struct series_engine *series; /* NULL without has_series */
    struct ingest *ingest;
    bool is_lane_ready;
    bool is_partition_ready;
    uint64_t db_epoch;
    int64_t batch; /* as it was at the start */
    int64_t batches_before;
};

/*
 * Makes the directory and locks it: waits for another one at work there.
 * options and config are borrowed. False: said on stderr. unlock is due in
 * both cases.
 */
MUST_CHECK bool local_ingest_lock(struct local_ingest *local,
                                  const struct local_ingest_options *options,
                                  struct config *config, void *owner);
void local_ingest_unlock(struct local_ingest *local);

/*
 * Makes the parts; on_ready follows when lane and partitions are there.
 * False: the reason is logged. stop is due in both cases, and local has to
 * live on until the loop has closed all handles.
 */
MUST_CHECK bool local_ingest_start(struct local_ingest *local, uv_loop_t *loop);
void local_ingest_stop(struct local_ingest *local);

#endif
