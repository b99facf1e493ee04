/*
 * replay_parts.c - see replay_parts.h.
 */

#include "cmd/replay_parts.h"

#include "base/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>


/* ---- the directory ---------------------------------------------------- */

static int
directory_fail(const char *directory)
{
    fprintf(stderr, "meterd replay: %s: %s\n", directory, strerror(errno));
    return -1;
}

int
replay_directory_lock(const char *directory)
{
    int lock;

    if (mkdir(directory, 0700) != 0 && errno != EEXIST) {
        return directory_fail(directory);
    }
    lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (lock < 0) {
        return directory_fail(directory);
    }
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
        return lock;
    }
    if (errno == EWOULDBLOCK) {
        fputs("meterd replay: waiting for another replay\n", stderr);
        if (flock(lock, LOCK_EX) == 0) {
            return lock;
        }
    }
    close(lock);
    return directory_fail(directory);
}


/* ---- events ----------------------------------------------------------- */

static void
ready_check(struct replay_parts *parts)
{
    if (parts->is_lane_ready && parts->is_partition_ready) {
        parts->events.on_ready(parts->owner);
    }
}

/* What this run has committed may be missing in another incarnation. */
static void
lane_ready_cb(void *owner, int64_t last, int64_t batch)
{
    struct replay_parts *parts = owner;
    uint64_t db_epoch = lane_db_epoch(parts->lane);

    if (parts->is_lane_ready && db_epoch != parts->db_epoch) {
        parts->events.on_failed(
            parts->owner, "the database is another one than before, or went "
                          "back; run it again, it then starts over");
        return;
    }
    series_engine_lane_ready(parts->series, last);
    ingest_lane_ready(parts->ingest, last, batch);
    if (!parts->is_lane_ready) {
        parts->is_lane_ready = true;
        parts->db_epoch = db_epoch;
        parts->batch = batch;
        parts->batches_before = metrics.edgemeter_batches_committed_total;
        ready_check(parts);
    }
}

static void
lane_lost_cb(void *owner, const char *why)
{
    struct replay_parts *parts = owner;

    (void)why; /* logged by the connection */
    ingest_lane_lost(parts->ingest);
}

static void
lane_refused_cb(void *owner, const char *why)
{
    struct replay_parts *parts = owner;

    parts->events.on_failed(parts->owner, why);
}

static void
lane_not_replicated_cb(void *owner)
{
    struct replay_parts *parts = owner;

    ingest_not_replicated(parts->ingest);
}

static void
partition_ready_cb(void *owner)
{
    struct replay_parts *parts = owner;

    if (!parts->is_partition_ready) {
        parts->is_partition_ready = true;
        ready_check(parts);
    }
}

static void
room_cb(void *owner)
{
    struct replay_parts *parts = owner;

    ingest_room(parts->ingest);
}


/* ---- making them ------------------------------------------------------ */

static bool
store_create(uv_loop_t *loop, struct replay_parts *parts, struct config *config,
             const char *directory)
{
    static const struct lane_events events = {
        .on_ready = lane_ready_cb,
        .on_lost = lane_lost_cb,
        .on_refused = lane_refused_cb,
        .on_not_replicated = lane_not_replicated_cb,
    };
    const struct lane_options lane = {
        .url = config->database, .state_dir = directory, .node = parts->node};
    struct partition_options partition = {.admin_url = config->admin_database};

    partition_retention_days(config, partition.retention_days);
    if (!lane_create(loop, &lane, &events, parts, &parts->lane)) {
        return false;
    }
    parts->partition =
        partition_create(loop, &partition, partition_ready_cb, parts);
    return parts->partition != NULL;
}

static bool
gate_create(uv_loop_t *loop, struct replay_parts *parts, struct config *config,
            const char *directory)
{
    const struct series_engine_options series = {.url = config->database,
                                                 .lane = parts->lane,
                                                 .partition = parts->partition,
                                                 .config = config,
                                                 .on_room = room_cb,
                                                 .owner = parts};
    struct ingest_options ingest = {.answer_timeout_ms = REPLAY_ANSWER_MS,
                                    .state_dir = directory};

    parts->series = series_engine_create(loop, &series);
    if (parts->series == NULL) {
        return false;
    }
    ingest.series = parts->series;
    parts->ingest =
        ingest_create(loop, config, parts->lane, parts->partition, &ingest);
    return parts->ingest != NULL;
}

bool
replay_parts_init(struct replay_parts *parts, uv_loop_t *loop,
                  struct config *config, const char *directory,
                  const struct replay_parts_events *events, void *owner)
{
    *parts = (struct replay_parts){.events = *events, .owner = owner};
    snprintf(parts->node, sizeof(parts->node), "%s backfill", config->node);
    return store_create(loop, parts, config, directory) &&
           gate_create(loop, parts, config, directory);
}

/* Last made first; libuv frees what it still holds. */
void
replay_parts_fini(struct replay_parts *parts)
{
    ingest_destroy(parts->ingest);
    series_engine_destroy(parts->series);
    partition_destroy(parts->partition);
    lane_destroy(parts->lane);
}

int64_t
replay_parts_batch(const struct replay_parts *parts)
{
    return parts->batch + metrics.edgemeter_batches_committed_total -
           parts->batches_before;
}
