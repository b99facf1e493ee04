/*
 * rollup_client.c - rollups alone, on a real server.
 *
 *   92-rollup.t -> [rollup_client] -> rollup, lane, partition
 *
 * Rolls up until SIGTERM; SIGUSR1 is a flush that has committed. The Perl
 * side writes rows and marks, and judges. Says at the end what the metrics
 * are. Ends by itself after TIME_LIMIT_MS.
 */

#include "base/log.h"
#include "base/metrics.h"
#include "series/series_engine.h"

#include <stdio.h>
#include <stdlib.h>

#define TIME_LIMIT_MS 120000
#define TICK_MS       20

struct client {
    uv_loop_t loop;
    struct lane *lane;
    struct partition *partition;
    void *rollup;
    uv_timer_t limit;
    uv_timer_t tick;
    uv_signal_t end;
    uv_signal_t wake;
};

static struct client client;

static void
say(const char *what)
{
    puts(what);
    fflush(stdout);
}


static void
lane_ready(void *owner, int64_t last, int64_t batch)
{
    (void)owner;
    (void)last;
    (void)batch;
    say("lane ready");
}


static void
lane_lost(void *owner, const char *why)
{
    (void)owner;
    (void)why;
    say("lane lost");
}


static void
lane_refused(void *owner, const char *why)
{
    (void)owner;
    say(why);
    exit(1);
}


static void
lane_not_replicated(void *owner)
{
    (void)owner;
}


static void
partition_ready(void *owner)
{
    (void)owner;
    say("partitions ready");
    rollup_job.wake(client.rollup);
}


static void
limit_cb(uv_timer_t *timer)
{
    (void)timer;
    say("time limit");
    exit(1);
}


static void
tick_cb(uv_timer_t *timer)
{
    (void)timer;
    if (rollup_job.state(client.rollup) == SERIES_JOB_BUSY) {
        return;
    }
    rollup_job.destroy(client.rollup);
    partition_destroy(client.partition);
    lane_destroy(client.lane);
    uv_close((uv_handle_t *)&client.limit, NULL);
    uv_close((uv_handle_t *)&client.tick, NULL);
    uv_close((uv_handle_t *)&client.end, NULL);
    uv_close((uv_handle_t *)&client.wake, NULL);
}


static void
end_cb(uv_signal_t *handle, int number)
{
    (void)handle;
    (void)number;
    rollup_job.stop(client.rollup);
    uv_timer_start(&client.tick, tick_cb, 0, TICK_MS);
}


static void
wake_cb(uv_signal_t *handle, int number)
{
    (void)handle;
    (void)number;
    rollup_job.wake(client.rollup);
}


int
main(void)
{
    static const struct lane_events events = {
        .on_ready = lane_ready,
        .on_lost = lane_lost,
        .on_refused = lane_refused,
        .on_not_replicated = lane_not_replicated,
    };
    struct partition_options partitions = {.admin_url =
                                               getenv("STORE_ADMIN_URL")};
    const char *url = getenv("STORE_URL");

    log_level_set(LOG_INFO);
    uv_loop_init(&client.loop);
    for (int i = 0; i < PARTITION_PARENTS; i++) {
        partitions.retention_days[i] = -1;
    }
    if (!lane_create(&client.loop,
                     &(struct lane_options){
                         .url = url,
                         .state_dir = getenv("STORE_STATE_DIR"),
                         .node = "test",
                     },
                     &events, NULL, &client.lane)) {
        return 1;
    }
    client.partition =
        partition_create(&client.loop, &partitions, partition_ready, NULL);
    client.rollup =
        rollup_job.create(&client.loop, &(struct series_job_options){
                                            .url = url,
                                            .lane = client.lane,
                                            .partition = client.partition,
                                        });
    if (client.partition == NULL || client.rollup == NULL) {
        return 1;
    }
    uv_timer_init(&client.loop, &client.limit);
    uv_timer_init(&client.loop, &client.tick);
    uv_timer_start(&client.limit, limit_cb, TIME_LIMIT_MS, 0);
    uv_signal_init(&client.loop, &client.end);
    uv_signal_init(&client.loop, &client.wake);
    uv_signal_start(&client.end, end_cb, SIGTERM);
    uv_signal_start(&client.wake, wake_cb, SIGUSR1);
    uv_run(&client.loop, UV_RUN_DEFAULT);
    uv_loop_close(&client.loop);

    printf("rollups %lld\nmarks %lld\nlag %lld\nsweeps %lld\n",
           (long long)metrics.edgemeter_rollups_total,
           (long long)metrics.edgemeter_rollup_marks,
           (long long)metrics.edgemeter_rollup_lag_seconds,
           (long long)metrics.edgemeter_rollup_sweeps_total);
    return 0;
}
