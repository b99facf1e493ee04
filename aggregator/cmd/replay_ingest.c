/*
 * replay_ingest.c - an ingest of the command's own: the parts of a meterd,
 * without its doors.
 *
 *   command -> [ingest -> lane -> PostgreSQL]
 *                   \-> [series: buffer, flush, rollups]
 *
 * `meterd replay` and `meterd dead-letter replay` write with it. Each keeps a
 * writer of its own in a directory of stateDir, where one process works at a
 * time: a running meterd is not disturbed. Series that a killed command has
 * not flushed are flushed by the next one, or by any meterd after a minute.
 * All of it runs on the command's own loop.
 */

#include "cmd/replay.h"

#include "base/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>


/* ---- the directory ---------------------------------------------------- */

/* False: errno. */
static bool
replay_ingest_directory_lock(struct replay_ingest *own)
{
    if (mkdir(own->directory, 0700) != 0 && errno != EEXIST) {
        return false;
    }
    own->lock =
        open(own->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (own->lock < 0) {
        return false;
    }
    if (flock(own->lock, LOCK_EX | LOCK_NB) == 0) {
        return true;
    }
    if (errno != EWOULDBLOCK) {
        return false;
    }
    fprintf(stderr, "meterd %s: waiting for another replay\n",
            own->options->command);
    return flock(own->lock, LOCK_EX) == 0;
}

bool
replay_ingest_lock(struct replay_ingest *own,
                   const struct replay_ingest_options *options,
                   struct config *config, void *owner)
{
    int size;

    *own = (struct replay_ingest){
        .options = options, .owner = owner, .config = config, .lock = -1};
    snprintf(own->node, sizeof(own->node), "%s %s", config->node,
             options->name);
    size = snprintf(own->directory, sizeof(own->directory), "%s/%s",
                    config->state_dir, options->name);
    if (size < 0 || (size_t)size >= sizeof(own->directory)) {
        fprintf(stderr, "meterd %s: the path of stateDir is too long\n",
                options->command);
        return false;
    }
    if (!replay_ingest_directory_lock(own)) {
        fprintf(stderr, "meterd %s: %s: %s\n", options->command, own->directory,
                strerror(errno));
        return false;
    }
    return true;
}

void
replay_ingest_unlock(struct replay_ingest *own)
{
    if (own->lock >= 0) {
        close(own->lock);
    }
}


/* ---- events ----------------------------------------------------------- */

static void
replay_ingest_ready_check(struct replay_ingest *own)
{
    if (own->is_lane_ready && own->is_partition_ready) {
        own->options->on_ready(own->owner);
    }
}

/*
 * What this run has committed may be missing in another incarnation of the
 * database. Dead letters go back with it and come again; a file does not.
 */
static void
replay_ingest_lane_ready_cb(void *owner, int64_t last, int64_t batch)
{
    struct replay_ingest *own = owner;
    uint64_t db_epoch = lane_db_epoch(own->lane);

    if (own->series != NULL) {
        if (own->is_lane_ready && db_epoch != own->db_epoch) {
            own->options->on_failed(
                own->owner, "the database is another one than before, or "
                            "went back; run it again, it then starts over");
            return;
        }
        series_engine_lane_ready(own->series, last);
    }
    ingest_lane_ready(own->ingest, last, batch);
    if (!own->is_lane_ready) {
        own->is_lane_ready = true;
        own->db_epoch = db_epoch;
        own->batch = batch;
        own->batches_before = metrics.edgemeter_batches_committed_total;
        replay_ingest_ready_check(own);
    }
}

static void
replay_ingest_lane_lost_cb(void *owner, const char *why)
{
    struct replay_ingest *own = owner;

    (void)why; /* logged by the connection */
    ingest_lane_lost(own->ingest);
}

static void
replay_ingest_lane_refused_cb(void *owner, const char *why)
{
    struct replay_ingest *own = owner;

    own->options->on_failed(own->owner, why);
}

static void
replay_ingest_lane_not_replicated_cb(void *owner)
{
    struct replay_ingest *own = owner;

    ingest_not_replicated(own->ingest);
}

static const struct catalog *
replay_ingest_rules_cb(void *owner)
{
    const struct replay_ingest *own = owner;

    return own->config->catalog;
}

static void
replay_ingest_partition_ready_cb(void *owner)
{
    struct replay_ingest *own = owner;

    if (!own->is_partition_ready) {
        own->is_partition_ready = true;
        replay_ingest_ready_check(own);
    }
}

static void
replay_ingest_room_cb(void *owner)
{
    struct replay_ingest *own = owner;

    ingest_room(own->ingest);
}


/* ---- making them ------------------------------------------------------ */

static bool
replay_ingest_series_create(struct replay_ingest *own, uv_loop_t *loop)
{
    const struct series_engine_options options = {.url = own->config->database,
                                                  .lane = own->lane,
                                                  .partition = own->partition,
                                                  .config = own->config,
                                                  .on_room =
                                                      replay_ingest_room_cb,
                                                  .owner = own};

    if (!own->options->has_series) {
        return true;
    }
    own->series = series_engine_create(loop, &options);
    return own->series != NULL;
}

bool
replay_ingest_start(struct replay_ingest *own, uv_loop_t *loop)
{
    static const struct lane_events events = {
        .on_ready = replay_ingest_lane_ready_cb,
        .on_lost = replay_ingest_lane_lost_cb,
        .on_refused = replay_ingest_lane_refused_cb,
        .on_not_replicated = replay_ingest_lane_not_replicated_cb,
        .on_rules = replay_ingest_rules_cb,
    };
    struct config *config = own->config;
    const struct lane_options lane = {.url = config->database,
                                      .state_dir = own->directory,
                                      .node = own->node};
    struct partition_options partition = {.admin_url = config->admin_database};
    struct ingest_options ingest = {.answer_timeout_ms =
                                        own->options->answer_timeout_ms,
                                    .state_dir = own->directory};

    partition_retention_days(config, partition.retention_days);
    if (!lane_create(loop, &lane, &events, own, &own->lane)) {
        return false;
    }
    own->partition = partition_create(loop, &partition,
                                      replay_ingest_partition_ready_cb, own);
    if (own->partition == NULL || !replay_ingest_series_create(own, loop)) {
        return false;
    }
    ingest.series = own->series;
    own->ingest =
        ingest_create(loop, config, own->lane, own->partition, &ingest);
    return own->ingest != NULL;
}

/* Last made first; libuv frees what it still holds. */
void
replay_ingest_stop(struct replay_ingest *own)
{
    ingest_destroy(own->ingest);
    series_engine_destroy(own->series);
    partition_destroy(own->partition);
    lane_destroy(own->lane);
}
