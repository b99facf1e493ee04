/*
 * daemon.c - the daemon: every part made, wired and taken apart.
 *
 *   listener -> api_conn, mux -> api -> ingest -> lane -> PostgreSQL
 *      |                          |       ^ |     partition (adminDatabase)
 *      |                          |       | +---> series -> PostgreSQL
 *      |                          +-> reader, writes (of clients)
 *      |                          +-> buckets -> PostgreSQL
 *      +-----> link -> intake ------------+
 *   outbox --> adopt --> +
 *   checkpoint_job -> meterd checkpoint export, now and then
 *   retention_job -> meterd retention, daily; reconcile_job -> metrics
 *   rules_job -> meter.rule_use, before rules are in force
 *
 * One loop, one thread. STARTING: parts are made, the socket answers, data
 * is 503 until lane, reader, writes and partitions have been ready once.
 * SERVING until a signal or a refusal. DRAINING: nothing new comes in, what is
 * queued is finished. STOPPED: handles close and the loop ends by itself.
 */

#include "daemon.h"

#include "api/api.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/notify.h"
#include "buckets/bucket_engine.h"
#include "config/reload.h"
#include "edge/edge.h"
#include "ingest/ingest.h"
#include "maintain/checkpoint_job.h"
#include "maintain/reconcile_job.h"
#include "maintain/retention_job.h"
#include "maintain/rules_job.h"
#include "pg/pulse.h"
#include "series/series_engine.h"
#include "store/lane.h"
#include "store/partition.h"
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

enum daemon_state { STARTING, SERVING, DRAINING, STOPPED };

/* What has to have been ready once before data is served. */
enum daemon_part {
    PART_LANE = 1 << 0,
    PART_READER = 1 << 1,
    PART_PARTITION = 1 << 2,
    PART_WRITES = 1 << 3,
    PART_ALL = PART_LANE | PART_READER | PART_PARTITION | PART_WRITES
};

enum { SIGNAL_HUP, SIGNAL_USR1, SIGNAL_TERM, SIGNAL_INT, SIGNAL_COUNT };

struct daemon {
    enum daemon_state state;
    unsigned ready; /* enum daemon_part */
    bool failed;
    const char *const *paths;
    size_t path_count;
    struct config *boot; /* its strings are borrowed by connections */
    struct config *config;
    struct config *loaded; /* to be in force; NULL: none */
    bool is_asked_again;   /* a signal came meanwhile */

    uv_loop_t loop;
    uv_signal_t signals[SIGNAL_COUNT];
    uv_timer_t end; /* looks whether the end has come */
    uint64_t end_by_ms;
    bool drained; /* the listener has no connection left */

    struct lane *lane;
    struct partition *partition;
    struct reader *reader;
    struct reader *writes; /* clients' own */
    struct series_engine *series;
    struct bucket_engine *buckets;
    struct ingest *ingest;
    struct api *api;
    struct edge edge; /* what listener and adopt share */
    char instance[INSTANCE_SIZE];
    struct listener *listener;
    struct adopt *adopt; /* NULL: no outbox directory is given, or it ends */
    struct checkpoint_job *checkpoint;
    struct retention_job *retention;
    struct reconcile_job *reconcile;
    struct rules_job *rules;
};

/* Tables and callbacks stand where their part of the story is. */
static const struct lane_events lane_events;
static const struct reader_events reader_events;
static const struct reader_events writes_events;
static const struct exchange_events exchange_events;
static void daemon_partition_ready_cb(void *owner);
static void daemon_noted_cb(void *owner);
static void daemon_room_cb(void *owner);
static void daemon_drained_cb(void *owner);
static void daemon_signal_cb(uv_signal_t *handle, int number);
static void daemon_end_cb(uv_timer_t *timer);

static bool daemon_start(struct daemon *daemon);
static void daemon_configured(struct daemon *daemon);
static void daemon_drain(struct daemon *daemon);
static void daemon_stop(struct daemon *daemon);

/* A read by key is answered soon: it is not slept for at once, adr/0015. */
static void
daemon_loop(struct daemon *daemon)
{
    uv_run_mode mode = UV_RUN_ONCE;

    while (uv_run(&daemon->loop, mode) != 0) {
        mode = UV_RUN_ONCE;
        if (daemon->reader != NULL &&
            reader_is_expecting(daemon->reader, EXPECTING_US)) {
            mode = UV_RUN_NOWAIT;
            sched_yield(); /* whoever has work to do goes first */
        }
    }
}

bool
daemon_run(const char *const *paths, size_t path_count, struct config *config)
{
    struct daemon daemon = {
        .paths = paths,
        .path_count = path_count,
        .boot = config,
        .config = config_ref(config),
    };

    log_level_set((enum log_level)config->log_level);
    CHECK(uv_loop_init(&daemon.loop) == 0);
    log_info("meterd", "starting", log_str("node", config->node),
             log_int("pid", getpid()));
    if (!daemon_start(&daemon)) {
        daemon.failed = true;
        daemon_stop(&daemon);
    }
    daemon_loop(&daemon);
    CHECK(uv_loop_close(&daemon.loop) == 0);
    config_unref(daemon.config);
    config_unref(daemon.boot);
    log_info("meterd", "ended", log_bool("failed", daemon.failed));
    return !daemon.failed;
}


/* ---- starting -------------------------------------------------------- */

/* False: no memory. */
static bool
daemon_start_series(struct daemon *daemon)
{
    const struct series_engine_options options = {
        .url = daemon->boot->database,
        .lane = daemon->lane,
        .partition = daemon->partition,
        .config = daemon->config,
        .on_room = daemon_room_cb,
        .owner = daemon,
    };

    daemon->series = series_engine_create(&daemon->loop, &options);
    return daemon->series != NULL;
}

/* The part of the start that talks to PostgreSQL, later. */
static bool
daemon_start_store(struct daemon *daemon)
{
    const struct config *config = daemon->boot;
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

    pg_pulse_start(&daemon->loop, config->database,
                   config->limits.database_patience_us);
    if (!lane_create(&daemon->loop, &lane_options, &lane_events, daemon,
                     &daemon->lane)) {
        return false;
    }
    partition_retention_days(config, partition_options.retention_days);
    daemon->partition = partition_create(&daemon->loop, &partition_options,
                                         daemon_partition_ready_cb, daemon);
    daemon->reader =
        reader_create(&daemon->loop, &reader_options, &reader_events, daemon);
    daemon->writes =
        reader_create(&daemon->loop, &writes_options, &writes_events, daemon);
    if (daemon->partition == NULL || daemon->reader == NULL ||
        daemon->writes == NULL || !daemon_start_series(daemon)) {
        return false;
    }
    bucket_options.writes = daemon->writes;
    daemon->buckets = bucket_engine_create(&daemon->loop, &bucket_options);
    ingest_options.series = daemon->series;
    daemon->ingest = ingest_create(&daemon->loop, daemon->config, daemon->lane,
                                   daemon->partition, &ingest_options);
    return daemon->ingest != NULL;
}

/* The part of the start that serves nginx: requests and records of rings. */
static bool
daemon_start_edge(struct daemon *daemon)
{
    const struct config *config = daemon->boot;
    struct edge *edge = &daemon->edge;

    intakes_init(&edge->intakes, daemon->ingest);
    /* Another one after a restart, for people who compare logs. */
    snprintf(daemon->instance, sizeof(daemon->instance), "%s/%ld", config->node,
             (long)getpid());
    edge->loop = &daemon->loop;
    edge->events = &exchange_events;
    edge->owner = daemon;
    edge->lane = daemon->lane;
    edge->instance =
        (struct meter_str){daemon->instance, strlen(daemon->instance)};
    daemon->listener = listener_create(edge, config->listen, daemon_drained_cb);
    if (daemon->listener == NULL) {
        return false;
    }
    if (config->outbox == NULL) {
        return true;
    }
    daemon->adopt = adopt_create(edge, config->outbox, config->node);
    return daemon->adopt != NULL;
}

static bool
daemon_start(struct daemon *daemon)
{
    static const int numbers[SIGNAL_COUNT] = {SIGHUP, SIGUSR1, SIGTERM, SIGINT};
    struct api_options api_options = {.loop = &daemon->loop,
                                      .config = daemon->config};

    CHECK(uv_timer_init(&daemon->loop, &daemon->end) == 0);
    daemon->end.data = daemon;
    notify_start(&daemon->loop);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        CHECK(uv_signal_init(&daemon->loop, &daemon->signals[i]) == 0);
        daemon->signals[i].data = daemon;
        CHECK(uv_signal_start(&daemon->signals[i], daemon_signal_cb,
                              numbers[i]) == 0);
    }
    if (!daemon_start_store(daemon)) {
        return false;
    }
    api_options.ingest = daemon->ingest;
    api_options.reader = daemon->reader;
    api_options.writes = daemon->writes;
    api_options.lane = daemon->lane;
    api_options.buckets = daemon->buckets;
    daemon->api = api_create(&api_options);
    if (daemon->api == NULL) {
        log_error("meterd", "out of memory");
        return false;
    }
    daemon->checkpoint =
        checkpoint_job_create(&daemon->loop, daemon->paths, daemon->path_count,
                              &daemon->config->checkpoint);
    daemon->retention =
        retention_job_create(&daemon->loop, daemon->paths, daemon->path_count);
    daemon->reconcile = reconcile_job_create(&daemon->loop, daemon->writes);
    daemon->rules = rules_job_create(
        &daemon->loop, &(struct rules_job_options){.writes = daemon->writes,
                                                   .lane = daemon->lane,
                                                   .boot = daemon->boot,
                                                   .cb = daemon_noted_cb,
                                                   .owner = daemon});
    if (daemon->checkpoint == NULL || daemon->retention == NULL ||
        daemon->reconcile == NULL || daemon->rules == NULL ||
        !daemon_start_edge(daemon)) {
        return false;
    }
    daemon_configured(daemon);
    return true;
}


/* ---- what the store tells -------------------------------------------- */

static void
daemon_part_ready(struct daemon *daemon, enum daemon_part part)
{
    daemon->ready |= part;
    if (daemon->ready == PART_ALL && daemon->state == STARTING) {
        daemon->state = SERVING;
        api_healthy_set(daemon->api);
        checkpoint_job_start(daemon->checkpoint);
        retention_job_start(daemon->retention);
        log_info("meterd", "ready");
    }
    notify_database(daemon->state == SERVING && lane_is_ready(daemon->lane));
}

/* This server or role is not safe to run on. */
static void
daemon_refused_cb(void *owner, const char *why)
{
    struct daemon *daemon = owner;

    if (daemon->state == STOPPED) {
        return;
    }
    log_error("meterd", "refused to run", log_str("reason", why));
    daemon->failed = true;
    daemon_stop(daemon);
}

static void
daemon_lane_ready_cb(void *owner, int64_t last, int64_t batch)
{
    struct daemon *daemon = owner;

    if ((daemon->ready & PART_LANE) == 0) {
        bucket_engine_writer_set(daemon->buckets, lane_writer(daemon->lane));
    }
    series_engine_lane_ready(daemon->series, last);
    ingest_lane_ready(daemon->ingest, last, batch);
    intakes_database_ready(&daemon->edge.intakes);
    daemon_part_ready(daemon, PART_LANE);
}

static void
daemon_lane_lost_cb(void *owner, const char *why)
{
    struct daemon *daemon = owner;

    (void)why; /* logged by the connection */
    notify_database(false);
    ingest_lane_lost(daemon->ingest);
}

static const struct catalog *
daemon_rules_cb(void *owner)
{
    const struct daemon *daemon = owner;

    return daemon->config->catalog;
}

static void
daemon_not_replicated_cb(void *owner)
{
    struct daemon *daemon = owner;

    ingest_not_replicated(daemon->ingest);
}

static void
daemon_reader_ready_cb(void *owner)
{
    daemon_part_ready(owner, PART_READER);
}

static void
daemon_writes_ready_cb(void *owner)
{
    daemon_part_ready(owner, PART_WRITES);
}

static void
daemon_partition_ready_cb(void *owner)
{
    daemon_part_ready(owner, PART_PARTITION);
}

/* A flush has made room for more series. */
static void
daemon_room_cb(void *owner)
{
    struct daemon *daemon = owner;

    ingest_room(daemon->ingest);
}

static const struct lane_events lane_events = {
    .on_ready = daemon_lane_ready_cb,
    .on_lost = daemon_lane_lost_cb,
    .on_refused = daemon_refused_cb,
    .on_not_replicated = daemon_not_replicated_cb,
    .on_rules = daemon_rules_cb,
};

static const struct reader_events reader_events = {
    .on_ready = daemon_reader_ready_cb,
    .on_refused = daemon_refused_cb,
};

static const struct reader_events writes_events = {
    .on_ready = daemon_writes_ready_cb,
    .on_refused = daemon_refused_cb,
};


/* ---- requests -------------------------------------------------------- */

static void
daemon_answer_cb(void *arg, const struct meter_response *head, struct buf *body)
{
    exchange_answer(arg, head, body);
}

static void *
daemon_request_cb(void *owner, struct exchange *exchange,
                  const struct meter_request *request, struct buf *body,
                  bool is_full)
{
    struct daemon *daemon = owner;

    return api_submit(daemon->api, request, body, is_full, daemon_answer_cb,
                      exchange);
}

static void
daemon_cancel_cb(void *owner, void *work)
{
    (void)owner;
    api_cancel(work);
}

static const struct exchange_events exchange_events = {
    .on_request = daemon_request_cb,
    .on_cancel = daemon_cancel_cb,
};


/* ---- signals and rules ----------------------------------------------- */

/* New rules are in force: what hangs on them besides the parts. */
static void
daemon_configured(struct daemon *daemon)
{
    reload_in_force(daemon->config);
    peers_init(&daemon->edge.peers, &daemon->config->limits.peers);
    bucket_engine_queue_max_set(daemon->buckets,
                                (size_t)daemon->config->limits.operation_queue);
    daemon->edge.config_version = (uint64_t)metrics.edgemeter_config_version;
}

/* The new rules are in force once the database knows of them. */
static void
daemon_reload(struct daemon *daemon)
{
    if (daemon->state != STARTING && daemon->state != SERVING) {
        return;
    }
    if (rules_job_is_busy(daemon->rules)) {
        daemon->is_asked_again = true;
        return;
    }
    daemon->loaded = reload_config(daemon->paths, daemon->path_count,
                                   DAEMON_NEEDS, daemon->config);
    if (daemon->loaded == NULL) {
        metrics.edgemeter_config_errors_total++;
        return;
    }
    rules_job_change(daemon->rules, daemon->config, daemon->loaded);
}

static void
daemon_noted_cb(void *owner)
{
    struct daemon *daemon = owner;
    struct config *old = daemon->config;
    struct config *loaded = daemon->loaded;
    int days[PARTITION_PARENTS];

    daemon->loaded = NULL;
    if (daemon->state == STOPPED) {
        config_unref(loaded);
        return;
    }
    daemon->config = loaded;
    ingest_config_set(daemon->ingest, loaded);
    series_engine_config_set(daemon->series, loaded);
    api_config_set(daemon->api, loaded);
    partition_retention_days(loaded, days);
    partition_retention_set(daemon->partition, days);
    checkpoint_job_options_set(daemon->checkpoint, &loaded->checkpoint);
    config_unref(old);
    metrics.edgemeter_config_reloads_total++;
    daemon_configured(daemon);
    if (daemon->is_asked_again) {
        daemon->is_asked_again = false;
        daemon_reload(daemon);
    }
}

static void
daemon_signal_cb(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;

    if (number == SIGHUP) {
        daemon_reload(daemon);
        return;
    }
    if (number == SIGUSR1) {
        reload_log_file(daemon->boot);
        return;
    }
    log_info("meterd", "signal received",
             log_str("signal", number == SIGTERM ? "SIGTERM" : "SIGINT"));
    if (daemon->state == DRAINING) {
        daemon_stop(daemon); /* asked twice: do not wait */
        return;
    }
    daemon_drain(daemon);
}


/* ---- ending ---------------------------------------------------------- */

/* Rings that are not drained are for others from now on. */
static void
daemon_adopt_end(struct daemon *daemon)
{
    adopt_destroy(daemon->adopt);
    daemon->adopt = NULL;
}

static void
daemon_drain(struct daemon *daemon)
{
    if (daemon->state == STOPPED) {
        return;
    }
    daemon->state = DRAINING;
    notify_stopping();
    daemon->end_by_ms = clock_mono_ms() + DRAIN_MS;
    uv_timer_start(&daemon->end, daemon_end_cb, 0, END_LOOK_MS);
    checkpoint_job_stop(daemon->checkpoint);
    retention_job_stop(daemon->retention);
    daemon_adopt_end(daemon);
    listener_drain(daemon->listener, false);
}

/*
 * Ends now: connections close, which cancels their requests. The parts go in
 * a turn of the loop of their own, since this may be called by one of them.
 */
static void
daemon_stop(struct daemon *daemon)
{
    daemon->state = STOPPED;
    uv_timer_start(&daemon->end, daemon_end_cb, 0, END_LOOK_MS);
    daemon_adopt_end(daemon);
    if (daemon->listener != NULL) {
        listener_drain(daemon->listener, true);
    }
}

static void
daemon_drained_cb(void *owner)
{
    struct daemon *daemon = owner;

    daemon->drained = true; /* seen by daemon_end_cb */
}

/* Every part goes, last made first; libuv frees what it still holds. */
static void
daemon_take_apart(struct daemon *daemon)
{
    checkpoint_job_destroy(daemon->checkpoint);
    retention_job_destroy(daemon->retention);
    reconcile_job_destroy(daemon->reconcile);
    rules_job_destroy(daemon->rules);
    config_unref(daemon->loaded);
    daemon->loaded = NULL;
    listener_destroy(daemon->listener);
    intakes_fini(&daemon->edge.intakes);
    api_destroy(daemon->api);
    if (daemon->ingest != NULL) {
        ingest_destroy(daemon->ingest);
    }
    series_engine_destroy(daemon->series);
    bucket_engine_destroy(daemon->buckets);
    reader_destroy(daemon->reader);
    daemon->reader = NULL;
    reader_destroy(daemon->writes);
    partition_destroy(daemon->partition);
    lane_destroy(daemon->lane);
    pg_pulse_stop();
    notify_close();
    uv_close((uv_handle_t *)&daemon->end, NULL);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        uv_close((uv_handle_t *)&daemon->signals[i], NULL);
    }
}

static void
daemon_end_cb(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;

    if (daemon->state == STOPPED) {
        if (daemon->listener == NULL || daemon->drained) {
            daemon_take_apart(daemon);
        }
        return;
    }
    if (daemon->drained && ingest_is_idle(daemon->ingest)) {
        series_engine_drain(daemon->series);
    }
    if (daemon->drained && ingest_is_idle(daemon->ingest) &&
        series_engine_is_idle(daemon->series)) {
        log_info("meterd", "drained");
        daemon_stop(daemon);
        return;
    }
    if (clock_mono_ms() >= daemon->end_by_ms) {
        log_warn("meterd", "not drained in time; unanswered requests end",
                 log_int("queue_events", metrics.edgemeter_queue_events));
        daemon_stop(daemon);
    }
}
