/*
 * local_ingest.c - lane, partitions, series and ingest for a command.
 *
 * The commands that replay call it: it locks their directory, makes the
 * parts, passes events of the lane on to ingest and series, and says when
 * they are ready. All of it runs on the command's own loop.
 */

#include "cmd/local_ingest.h"

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
local_directory_lock(struct local_ingest *local)
{
    if (mkdir(local->directory, 0700) != 0 && errno != EEXIST) {
        return false;
    }
    local->lock =
        open(local->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (local->lock < 0) {
        return false;
    }
    if (flock(local->lock, LOCK_EX | LOCK_NB) == 0) {
        return true;
    }
    if (errno != EWOULDBLOCK) {
        return false;
    }
    fprintf(stderr, "meterd %s: waiting for another replay\n",
            local->options->command);
    return flock(local->lock, LOCK_EX) == 0;
}

bool
local_ingest_lock(struct local_ingest *local,
                  const struct local_ingest_options *options,
                  struct config *config, void *owner)
{
    int size;

    *local = (struct local_ingest){
        .options = options, .owner = owner, .config = config, .lock = -1};
    snprintf(local->node, sizeof(local->node), "%s %s", config->node,
             options->name);
    size = snprintf(local->directory, sizeof(local->directory), "%s/%s",
                    config->state_dir, options->name);
    if (size < 0 || (size_t)size >= sizeof(local->directory)) {
        fprintf(stderr, "meterd %s: the path of stateDir is too long\n",
                options->command);
        return false;
    }
    if (!local_directory_lock(local)) {
        fprintf(stderr, "meterd %s: %s: %s\n", options->command,
                local->directory, strerror(errno));
        return false;
    }
    return true;
}

void
local_ingest_unlock(struct local_ingest *local)
{
    if (local->lock >= 0) {
        close(local->lock);
    }
}


/* ---- events ----------------------------------------------------------- */

static void
local_ready_check(struct local_ingest *local)
{
    if (local->is_lane_ready && local->is_partition_ready) {
        local->options->on_ready(local->owner);
    }
}

/*
 * What this run has committed may be missing in another incarnation of the
 * database. Dead letters go back with it and come again; a file does not.
 */
static void
local_lane_ready_cb(void *owner, int64_t last, int64_t batch)
{
    struct local_ingest *local = owner;
    uint64_t db_epoch = lane_db_epoch(local->lane);

    if (local->series != NULL) {
        if (local->is_lane_ready && db_epoch != local->db_epoch) {
            local->options->on_failed(
                local->owner, "the database is another one than before, or "
                              "went back; run it again, it then starts over");
            return;
        }
        series_engine_lane_ready(local->series, last);
    }
    ingest_lane_ready(local->ingest, last, batch);
    if (!local->is_lane_ready) {
        local->is_lane_ready = true;
        local->db_epoch = db_epoch;
        local->batch = batch;
        local->batches_before = metrics.edgemeter_batches_committed_total;
        local_ready_check(local);
    }
}

static void
local_lane_lost_cb(void *owner, const char *why)
{
    struct local_ingest *local = owner;

    (void)why; /* logged by the connection */
    ingest_lane_lost(local->ingest);
}

static void
local_lane_refused_cb(void *owner, const char *why)
{
    struct local_ingest *local = owner;

    local->options->on_failed(local->owner, why);
}

static void
local_lane_not_replicated_cb(void *owner)
{
    struct local_ingest *local = owner;

    ingest_not_replicated(local->ingest);
}

static void
local_partition_ready_cb(void *owner)
{
    struct local_ingest *local = owner;

    if (!local->is_partition_ready) {
        local->is_partition_ready = true;
        local_ready_check(local);
    }
}

static void
local_room_cb(void *owner)
{
    struct local_ingest *local = owner;

    ingest_room(local->ingest);
}


/* ---- making them ------------------------------------------------------ */

static bool
local_series_create(struct local_ingest *local, uv_loop_t *loop)
{
    const struct series_engine_options options = {.url =
                                                      local->config->database,
                                                  .lane = local->lane,
                                                  .partition = local->partition,
                                                  .config = local->config,
                                                  .on_room = local_room_cb,
                                                  .owner = local};

    if (!local->options->has_series) {
        return true;
    }
    local->series = series_engine_create(loop, &options);
    return local->series != NULL;
}

bool
local_ingest_start(struct local_ingest *local, uv_loop_t *loop)
{
    static const struct lane_events events = {
        .on_ready = local_lane_ready_cb,
        .on_lost = local_lane_lost_cb,
        .on_refused = local_lane_refused_cb,
        .on_not_replicated = local_lane_not_replicated_cb,
    };
    struct config *config = local->config;
    const struct lane_options lane = {.url = config->database,
                                      .state_dir = local->directory,
                                      .node = local->node};
    struct partition_options partition = {.admin_url = config->admin_database};
    struct ingest_options ingest = {.answer_timeout_ms =
                                        local->options->answer_timeout_ms,
                                    .state_dir = local->directory};

    partition_retention_days(config, partition.retention_days);
    if (!lane_create(loop, &lane, &events, local, &local->lane)) {
        return false;
    }
    local->partition =
        partition_create(loop, &partition, local_partition_ready_cb, local);
    if (local->partition == NULL || !local_series_create(local, loop)) {
        return false;
    }
    ingest.series = local->series;
    local->ingest =
        ingest_create(loop, config, local->lane, local->partition, &ingest);
    return local->ingest != NULL;
}

/* Last made first; libuv frees what it still holds. */
void
local_ingest_stop(struct local_ingest *local)
{
    ingest_destroy(local->ingest);
    series_engine_destroy(local->series);
    partition_destroy(local->partition);
    lane_destroy(local->lane);
}
