/*
 * replay_parts.h - what a replay writes with: the parts of a meterd, without
 * its doors.
 *
 *   replay_job -> [ingest -> lane -> PostgreSQL]
 *                      \-> [series: buffer, flush, rollups]
 *
 * A writer of its own in stateDir/backfill, one replay at a time: a running
 * meterd is not disturbed, and dead letters are replayed meanwhile. Series
 * that a killed replay has not flushed are flushed by the next one, or by any
 * meterd after a minute.
 */

#ifndef CMD_REPLAY_PARTS_H
#define CMD_REPLAY_PARTS_H

#include "config/config.h"
#include "ingest/ingest.h"
#include "series/series_engine.h"

#define REPLAY_NODE_SIZE 320

struct replay_parts_events {
    void (*on_ready)(void *owner); /* once */
    /* Nothing can be committed any more, and why. */
    void (*on_failed)(void *owner, const char *why);
};

struct replay_parts {
    struct replay_parts_events events;
    void *owner;
    char node[REPLAY_NODE_SIZE];
    struct lane *lane;
    struct partition *partition;
    struct series_engine *series;
    struct ingest *ingest;
    bool is_lane_ready;
    bool is_partition_ready;
    uint64_t db_epoch;
    int64_t batch; /* as it was at the start */
    int64_t batches_before;
};

/* How long the database may keep an answer back. */
#define REPLAY_ANSWER_MS 120000

/*
 * The directory of replays, made and locked: waits for another replay. -1:
 * told on stderr. The lock ends when it is closed.
 */
MUST_CHECK int replay_directory_lock(const char *directory);

/* directory is borrowed. False: the reason is logged; fini is due. */
MUST_CHECK bool
replay_parts_init(struct replay_parts *parts, uv_loop_t *loop,
                  struct config *config, const char *directory,
                  const struct replay_parts_events *events, void *owner);
/* parts must live on until the loop has closed all handles. */
void replay_parts_fini(struct replay_parts *parts);

/* So many transactions of this writer are committed, or more. */
int64_t replay_parts_batch(const struct replay_parts *parts);

#endif
