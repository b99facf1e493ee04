/*
 * aggregator.c - the daemon: every part made, wired and taken apart.
 *
 *   listener -> session -> api -> ingest -> lane -> PostgreSQL
 *      |                    |       ^ |     partition (adminDatabase)
 *      |                    |       | +---> series -> PostgreSQL
 *      |                    +-> reader (meter_reader), writes (meter_writer)
 *      |                    +-> buckets -> PostgreSQL
 *      +-----> link -> intake ------+
 *   outbox --> adopt --> +
 *   checkpoint_job -> meterd checkpoint export, now and then
 *   retention_job -> meterd retention, daily; reconcile_job -> metrics
 *
 * One loop, one thread. STARTING: parts are made, the socket answers, data
 * is 503 until lane, reader, writes and partitions have been ready once.
 * SERVING until a signal or a refusal. DRAINING: nothing new comes in, what is
 * queued is finished. STOPPED: handles close and the loop ends by itself.
 */

#include "aggregator.h"

#include "api/api.h"
#include "base/clock.h"
#include "base/log.h"
#include "counters/bucket_engine.h"
#include "edge/adopt.h"
#include "edge/listener.h"
#include "ingest/ingest.h"
#include "ops/checkpoint_job.h"
#include "ops/metrics.h"
#include "ops/notify.h"
#include "ops/reconcile_job.h"
#include "ops/reload.h"
#include "ops/retention_job.h"
#include "series/series_engine.h"
#include "store/lane.h"
#include "store/partition.h"
#include "store/pg_pulse.h"
#include "store/reader.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_MS 20000
#define DRAIN_MS          10000
#define END_LOOK_MS       10
#define EXPECTING_US      200
#define READER_QUEUE_MAX  4096
#define WRITE_CONNECTIONS 2 /* adjustments and closes are rare */
#define WRITE_QUEUE_MAX   1024
#define INSTANCE_SIZE     512

enum aggregator_state { STARTING, SERVING, DRAINING, STOPPED };

/* What has to have been ready once before data is served. */
enum aggregator_part {
    PART_LANE = 1 << 0,
    PART_READER = 1 << 1,
    PART_PARTITION = 1 << 2,
    PART_WRITES = 1 << 3,
    PART_ALL = PART_LANE | PART_READER | PART_PARTITION | PART_WRITES
};

enum { SIGNAL_HUP, SIGNAL_USR1, SIGNAL_TERM, SIGNAL_INT, SIGNAL_COUNT };

struct aggregator {
    enum aggregator_state state;
    unsigned ready; /* enum aggregator_part */
    bool failed;
    const char *const *paths;
    size_t path_count;
    struct config *boot; /* its strings are borrowed by connections */
    struct config *config;

    uv_loop_t loop;
    uv_signal_t signals[SIGNAL_COUNT];
    uv_timer_t end; /* looks whether the end has come */
    uint64_t end_by_ms;
    bool drained; /* the listener has no session left */

    struct lane *lane;
    struct partition *partition;
    struct reader *reader;
    struct reader *writes; /* clients' own */
    struct series_engine *series;
    struct bucket_engine *buckets;
    struct ingest *ingest;
    struct api *api;
    struct link_place place; /* of links */
    char instance[INSTANCE_SIZE];
    struct listener *listener;
    struct adopt *adopt; /* NULL: no outbox directory is given */
    struct checkpoint_job *checkpoint;
    struct retention_job *retention;
    struct reconcile_job *reconcile;
};

static bool aggregator_start(struct aggregator *aggregator);
static void aggregator_drain(struct aggregator *aggregator);
static void aggregator_stop(struct aggregator *aggregator);
static void aggregator_end_cb(uv_timer_t *timer);
static void aggregator_reload(struct aggregator *aggregator);
static void aggregator_configured(struct aggregator *aggregator);

/* A read by key is answered soon: it is not slept for at once, adr/0015. */
static void
aggregator_loop(struct aggregator *aggregator)
{
    uv_run_mode mode = UV_RUN_ONCE;

    while (uv_run(&aggregator->loop, mode) != 0) {
        mode = UV_RUN_ONCE;
        if (aggregator->reader != NULL &&
            reader_is_expecting(aggregator->reader, EXPECTING_US)) {
            mode = UV_RUN_NOWAIT;
            sched_yield(); /* whoever has work to do goes first */
        }
    }
}

bool
aggregator_run(const char *const *paths, size_t path_count,
               struct config *config)
{
    struct aggregator aggregator = {
        .paths = paths,
        .path_count = path_count,
        .boot = config,
        .config = config_ref(config),
    };

    log_level_set((enum log_level)config->log_level);
    CHECK(uv_loop_init(&aggregator.loop) == 0);
    log_info("meterd", "starting", log_str("node", config->node),
             log_int("pid", getpid()));
    if (!aggregator_start(&aggregator)) {
        aggregator.failed = true;
        aggregator_stop(&aggregator);
    }
    aggregator_loop(&aggregator);
    CHECK(uv_loop_close(&aggregator.loop) == 0);
    config_unref(aggregator.config);
    config_unref(aggregator.boot);
    log_info("meterd", "ended", log_bool("failed", aggregator.failed));
    return !aggregator.failed;
}

/* ---- events of the store --------------------------------------------- */

static void
aggregator_part_ready(struct aggregator *aggregator, enum aggregator_part part)
{
    aggregator->ready |= part;
    if (aggregator->ready == PART_ALL && aggregator->state == STARTING) {
        aggregator->state = SERVING;
        api_healthy_set(aggregator->api);
        checkpoint_job_start(aggregator->checkpoint);
        retention_job_start(aggregator->retention);
        log_info("meterd", "ready");
    }
    notify_database(aggregator->state == SERVING &&
                    lane_is_ready(aggregator->lane));
}

/* This server or role is not safe to run on. */
static void
aggregator_refused_cb(void *owner, const char *why)
{
    struct aggregator *aggregator = owner;

    if (aggregator->state == STOPPED) {
        return;
    }
    log_error("meterd", "refused to run", log_str("reason", why));
    aggregator->failed = true;
    aggregator_stop(aggregator);
}

static void
aggregator_lane_ready_cb(void *owner, int64_t last, int64_t batch)
{
    struct aggregator *aggregator = owner;

    if ((aggregator->ready & PART_LANE) == 0) {
        bucket_engine_writer_set(aggregator->buckets,
                                 lane_writer(aggregator->lane));
    }
    series_engine_lane_ready(aggregator->series, last);
    ingest_lane_ready(aggregator->ingest, last, batch);
    intakes_database_ready(aggregator->place.intakes);
    aggregator_part_ready(aggregator, PART_LANE);
}

static void
aggregator_lane_lost_cb(void *owner, const char *why)
{
    struct aggregator *aggregator = owner;

    (void)why; /* logged by the connection */
    notify_database(false);
    ingest_lane_lost(aggregator->ingest);
}

static void
aggregator_not_replicated_cb(void *owner)
{
    struct aggregator *aggregator = owner;

    ingest_not_replicated(aggregator->ingest);
}

static void
aggregator_reader_ready_cb(void *owner)
{
    aggregator_part_ready(owner, PART_READER);
}

static void
aggregator_writes_ready_cb(void *owner)
{
    aggregator_part_ready(owner, PART_WRITES);
}

static void
aggregator_partition_ready_cb(void *owner)
{
    aggregator_part_ready(owner, PART_PARTITION);
}

/* A flush has made room for more series. */
static void
aggregator_room_cb(void *owner)
{
    struct aggregator *aggregator = owner;

    ingest_room(aggregator->ingest);
}

/* ---- requests -------------------------------------------------------- */

static void
aggregator_answer_cb(void *asker, const struct meter_response *head,
                     struct buf *body)
{
    exchange_answer(asker, head, body);
}

static void *
aggregator_request_cb(void *owner, struct exchange *exchange,
                      const struct meter_request *request, struct buf *body,
                      bool is_full)
{
    struct aggregator *aggregator = owner;

    return api_submit(aggregator->api, request, body, is_full,
                      aggregator_answer_cb, exchange);
}

static void
aggregator_cancel_cb(void *owner, void *work)
{
    (void)owner;
    api_cancel(work);
}

static void
aggregator_drained_cb(void *owner)
{
    struct aggregator *aggregator = owner;

    aggregator->drained = true; /* seen by aggregator_end_cb */
}

/* ---- starting -------------------------------------------------------- */

static const struct lane_events lane_events = {
    .on_ready = aggregator_lane_ready_cb,
    .on_lost = aggregator_lane_lost_cb,
    .on_refused = aggregator_refused_cb,
    .on_not_replicated = aggregator_not_replicated_cb,
};

static const struct reader_events reader_events = {
    .on_ready = aggregator_reader_ready_cb,
    .on_refused = aggregator_refused_cb,
};

static const struct reader_events writes_events = {
    .on_ready = aggregator_writes_ready_cb,
    .on_refused = aggregator_refused_cb,
};

static const struct listener_events listener_events = {
    .exchange.on_request = aggregator_request_cb,
    .exchange.on_cancel = aggregator_cancel_cb,
    .on_drained = aggregator_drained_cb,
};

/* False: no memory. */
static bool
aggregator_start_series(struct aggregator *aggregator)
{
    const struct series_engine_options options = {
        .url = aggregator->boot->database,
        .lane = aggregator->lane,
        .partition = aggregator->partition,
        .config = aggregator->config,
        .on_room = aggregator_room_cb,
        .owner = aggregator,
    };

    aggregator->series = series_engine_create(&aggregator->loop, &options);
    return aggregator->series != NULL;
}

/* The part of the start that talks to PostgreSQL, later. */
static bool
aggregator_start_store(struct aggregator *aggregator)
{
    const struct config *config = aggregator->boot;
    const struct lane_options lane_options = {
        .url = config->database,
        .state_dir = config->state_dir,
        .node = config->node,
    };
    const struct reader_options reader_options = {
        .access = READER_READS,
        .url = config->database,
        .connections = (int)config->limits.read_connections,
        .queue_max = READER_QUEUE_MAX,
        .statement_timeout_us = config->limits.statement_timeout_us,
    };
    const struct reader_options writes_options = {
        .access = READER_WRITES,
        .url = config->database,
        .connections = WRITE_CONNECTIONS,
        .queue_max = WRITE_QUEUE_MAX,
        .statement_timeout_us = config->limits.statement_timeout_us,
    };
    struct partition_options partition_options = {
        .admin_url = config->admin_database,
    };
    struct bucket_engine_options bucket_options = {.url = config->database};
    struct ingest_options ingest_options = {
        .answer_timeout_ms = ANSWER_TIMEOUT_MS,
    };

    if (!pg_pulse_start(&aggregator->loop, config->database,
                        config->limits.database_patience_us) ||
        !lane_create(&aggregator->loop, &lane_options, &lane_events, aggregator,
                     &aggregator->lane)) {
        return false;
    }
    partition_retention_days(config, partition_options.retention_days);
    aggregator->partition =
        partition_create(&aggregator->loop, &partition_options,
                         aggregator_partition_ready_cb, aggregator);
    aggregator->reader = reader_create(&aggregator->loop, &reader_options,
                                       &reader_events, aggregator);
    aggregator->writes = reader_create(&aggregator->loop, &writes_options,
                                       &writes_events, aggregator);
    if (aggregator->partition == NULL || aggregator->reader == NULL ||
        aggregator->writes == NULL || !aggregator_start_series(aggregator)) {
        return false;
    }
    bucket_options.writes = aggregator->writes;
    aggregator->buckets =
        bucket_engine_create(&aggregator->loop, &bucket_options);
    ingest_options.series = aggregator->series;
    aggregator->ingest =
        ingest_create(&aggregator->loop, aggregator->config, aggregator->lane,
                      aggregator->partition, &ingest_options);
    return aggregator->buckets != NULL && aggregator->ingest != NULL;
}

static void
aggregator_signal_cb(uv_signal_t *handle, int number)
{
    struct aggregator *aggregator = handle->data;

    if (number == SIGHUP) {
        aggregator_reload(aggregator);
        return;
    }
    if (number == SIGUSR1) {
        reload_log_file(aggregator->boot);
        return;
    }
    log_info("meterd", "signal received",
             log_str("signal", number == SIGTERM ? "SIGTERM" : "SIGINT"));
    if (aggregator->state == DRAINING) {
        aggregator_stop(aggregator); /* asked twice: do not wait */
        return;
    }
    aggregator_drain(aggregator);
}

/* The part of the start that takes records of rings. */
static bool
aggregator_start_edge(struct aggregator *aggregator)
{
    const struct config *config = aggregator->boot;

    aggregator->place.intakes = intakes_create(aggregator->ingest);
    if (aggregator->place.intakes == NULL) {
        return false;
    }
    /* Another one after a restart, for people who compare logs. */
    snprintf(aggregator->instance, sizeof(aggregator->instance), "%s/%ld",
             config->node, (long)getpid());
    aggregator->place.instance =
        (struct meter_str){aggregator->instance, strlen(aggregator->instance)};
    aggregator->place.lane = aggregator->lane;
    aggregator->listener = listener_create(
        &aggregator->loop, config->listen, &config->limits.peers,
        &aggregator->place, &listener_events, aggregator);
    if (aggregator->listener == NULL) {
        return false;
    }
    if (config->outbox == NULL) {
        return true;
    }
    aggregator->adopt = adopt_create(
        &aggregator->loop, config->outbox, config->node,
        listener_peers(aggregator->listener), aggregator->place.intakes);
    return aggregator->adopt != NULL;
}

static bool
aggregator_start(struct aggregator *aggregator)
{
    static const int numbers[SIGNAL_COUNT] = {SIGHUP, SIGUSR1, SIGTERM, SIGINT};
    struct api_options api_options = {.loop = &aggregator->loop,
                                      .config = aggregator->config};

    CHECK(uv_timer_init(&aggregator->loop, &aggregator->end) == 0);
    aggregator->end.data = aggregator;
    notify_start(&aggregator->loop);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        CHECK(uv_signal_init(&aggregator->loop, &aggregator->signals[i]) == 0);
        aggregator->signals[i].data = aggregator;
        CHECK(uv_signal_start(&aggregator->signals[i], aggregator_signal_cb,
                              numbers[i]) == 0);
    }
    if (!aggregator_start_store(aggregator)) {
        return false;
    }
    api_options.ingest = aggregator->ingest;
    api_options.reader = aggregator->reader;
    api_options.writes = aggregator->writes;
    api_options.lane = aggregator->lane;
    api_options.buckets = aggregator->buckets;
    aggregator->api = api_create(&api_options);
    if (aggregator->api == NULL) {
        log_error("meterd", "out of memory");
        return false;
    }
    aggregator->checkpoint = checkpoint_job_create(
        &aggregator->loop, aggregator->paths, aggregator->path_count,
        &aggregator->config->checkpoint);
    aggregator->retention = retention_job_create(
        &aggregator->loop, aggregator->paths, aggregator->path_count);
    aggregator->reconcile =
        reconcile_job_create(&aggregator->loop, aggregator->writes);
    if (aggregator->checkpoint == NULL || aggregator->retention == NULL ||
        aggregator->reconcile == NULL || !aggregator_start_edge(aggregator)) {
        return false;
    }
    aggregator_configured(aggregator);
    return true;
}

/* ---- rules ----------------------------------------------------------- */

/* New rules are in force: what hangs on them besides the parts. */
static void
aggregator_configured(struct aggregator *aggregator)
{
    reload_in_force(aggregator->config);
    bucket_engine_queue_max_set(
        aggregator->buckets,
        (size_t)aggregator->config->limits.operation_queue);
    aggregator->place.config_version =
        (uint64_t)metrics.edgemeter_config_version;
}

static void
aggregator_reload(struct aggregator *aggregator)
{
    struct config *old = aggregator->config;
    struct config *loaded;
    int days[PARTITION_PARENTS];

    if (aggregator->state != STARTING && aggregator->state != SERVING) {
        return;
    }
    loaded = reload_config(aggregator->paths, aggregator->path_count,
                           AGGREGATOR_NEEDS, old);
    if (loaded == NULL) {
        metrics.edgemeter_config_errors_total++;
        return;
    }
    aggregator->config = loaded;
    ingest_config_set(aggregator->ingest, loaded);
    series_engine_config_set(aggregator->series, loaded);
    api_config_set(aggregator->api, loaded);
    listener_peers_set(aggregator->listener, &loaded->limits.peers);
    partition_retention_days(loaded, days);
    partition_retention_set(aggregator->partition, days);
    checkpoint_job_options_set(aggregator->checkpoint, &loaded->checkpoint);
    config_unref(old);
    metrics.edgemeter_config_reloads_total++;
    aggregator_configured(aggregator);
}

/* ---- ending ---------------------------------------------------------- */

static void
aggregator_drain(struct aggregator *aggregator)
{
    if (aggregator->state == STOPPED) {
        return;
    }
    aggregator->state = DRAINING;
    notify_stopping();
    aggregator->end_by_ms = clock_mono_ms() + DRAIN_MS;
    uv_timer_start(&aggregator->end, aggregator_end_cb, 0, END_LOOK_MS);
    checkpoint_job_stop(aggregator->checkpoint);
    retention_job_stop(aggregator->retention);
    adopt_stop(aggregator->adopt);
    listener_drain(aggregator->listener);
}

/*
 * Ends now: sessions close, which cancels their requests. The parts go in
 * a turn of the loop of their own, since this may be called by one of them.
 */
static void
aggregator_stop(struct aggregator *aggregator)
{
    aggregator->state = STOPPED;
    uv_timer_start(&aggregator->end, aggregator_end_cb, 0, END_LOOK_MS);
    adopt_stop(aggregator->adopt);
    if (aggregator->listener != NULL) {
        listener_abort(aggregator->listener);
        listener_drain(aggregator->listener);
    }
}

/* Every part goes, last made first; libuv frees what it still holds. */
static void
aggregator_take_apart(struct aggregator *aggregator)
{
    checkpoint_job_destroy(aggregator->checkpoint);
    retention_job_destroy(aggregator->retention);
    reconcile_job_destroy(aggregator->reconcile);
    adopt_destroy(aggregator->adopt);
    listener_destroy(aggregator->listener);
    intakes_destroy(aggregator->place.intakes);
    api_destroy(aggregator->api);
    if (aggregator->ingest != NULL) {
        ingest_destroy(aggregator->ingest);
    }
    series_engine_destroy(aggregator->series);
    bucket_engine_destroy(aggregator->buckets);
    reader_destroy(aggregator->reader);
    aggregator->reader = NULL;
    reader_destroy(aggregator->writes);
    partition_destroy(aggregator->partition);
    lane_destroy(aggregator->lane);
    pg_pulse_stop();
    notify_close();
    uv_close((uv_handle_t *)&aggregator->end, NULL);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        uv_close((uv_handle_t *)&aggregator->signals[i], NULL);
    }
}

static void
aggregator_end_cb(uv_timer_t *timer)
{
    struct aggregator *aggregator = timer->data;

    if (aggregator->state == STOPPED) {
        if (aggregator->listener == NULL || aggregator->drained) {
            aggregator_take_apart(aggregator);
        }
        return;
    }
    if (aggregator->drained && ingest_is_idle(aggregator->ingest)) {
        series_engine_drain(aggregator->series);
    }
    if (aggregator->drained && ingest_is_idle(aggregator->ingest) &&
        series_engine_is_idle(aggregator->series)) {
        log_info("meterd", "drained");
        aggregator_stop(aggregator);
        return;
    }
    if (clock_mono_ms() >= aggregator->end_by_ms) {
        log_warn("meterd", "not drained in time; unanswered requests end",
                 log_int("queue_events", metrics.edgemeter_queue_events));
        aggregator_stop(aggregator);
    }
}
