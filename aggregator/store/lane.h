/*
 * lane.h - one connection as meter_writer plus one writer row.
 *
 *   ingest -> [lane] -> pg_conn -> PostgreSQL
 *
 * The writer id is a random UUID in a file of the state directory that is
 * held with flock for the life of the process: two processes can never
 * share it. The first connect bumps writer.epoch; every later transaction
 * reads it FOR SHARE and a change ends the process at once.
 *
 * Each time the connection is made, the lane locks its rows (writer FOR
 * SHARE, then writer_seq FOR UPDATE, which waits for an orphaned backend
 * that may still be committing), writes the heartbeat and commits. Only a
 * clean commit makes it ready; `batch` then decides an unknown COMMIT. Then
 * it asks which incarnation of the database this is: after a fail-over or a
 * restore another one answers, and it may hold less than was committed.
 */

#ifndef STORE_LANE_H
#define STORE_LANE_H

#include "config/catalog.h"
#include "meter_event.h"
#include "pg/conn.h"

struct lane;

struct lane_options {
    const char *url;
    const char *state_dir;
    const char *node;
    int index;
};

struct lane_events {
    /* last, batch: as committed. Called after every (re)connect. */
    void (*on_ready)(void *owner, int64_t last, int64_t batch);
    void (*on_lost)(void *owner, const char *why);
    void (*on_refused)(void *owner, const char *why);
    void (*on_not_replicated)(void *owner);
    /*
     * The rules that events of this lane are counted by; NULL: none are
     * noted. Asked for at every connect.
     */
    const struct catalog *(*on_rules)(void *owner);
};

/* False: the state directory; logged. */
MUST_CHECK bool
lane_create(uv_loop_t *loop, const struct lane_options *options,
            const struct lane_events *events, void *owner, struct lane **out);
void lane_destroy(struct lane *lane);

bool lane_is_ready(const struct lane *lane);
/* It is connected, but the last heartbeat could not be committed. */
bool lane_is_refused(const struct lane *lane);
struct pg_conn *lane_conn(struct lane *lane);
const uint8_t *lane_writer(const struct lane *lane);
int64_t lane_epoch(const struct lane *lane);
/* Once ready: the salts; whether COPY passes row-level security. */
const struct meter_salt *lane_salt(const struct lane *lane);
bool lane_can_copy(const struct lane *lane);
/* Number of the database's incarnation; 0 before ready, never later. */
uint64_t lane_db_epoch(const struct lane *lane);

/* The database's clock, carried on by the monotonic one; 0 before ready. */
int64_t lane_now_us(const struct lane *lane);
/* Told by each transaction that read clock_timestamp(). */
void lane_clock_seen(struct lane *lane, int64_t db_now_us);

/* Another instance took the writer row: log and _exit. */
__attribute__((noreturn)) void
lane_fenced(const struct lane *lane, int64_t epoch_seen);

#endif
