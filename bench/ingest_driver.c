/*
 * ingest_driver.c - the product's ingest in one process, without HTTP.
 *
 *   JSON bodies -> ingest_submit -> batch -> transaction -> PostgreSQL
 *                                     +---> series: buffer, flush, rollups
 *
 *   ingest_driver --database URL --admin URL --state-dir DIR --rules FILE
 *       [--batches 30] [--events 5000] [--ids v7|random|text] [--seed N]
 *       [--clock SECONDS] [--outstanding N] [--twice] [--duplicates]
 *       [--tenants 100] [--reverse] [--timeout MS] [--verify URL]
 *       [--shape plain|series|keys] [--orders 100]
 *
 * Sends `batches` bodies of `events` events. By default they are read and
 * queued first, and what is timed is the way from the queue to the last
 * answer; with --outstanding N, N bodies are on their way at a time and the
 * reading of JSON is timed too. A body that is answered 429 or 503 is sent
 * again. Bodies go round the tenants, with --reverse from the last to the
 * first. The same seed and clock make the same events. --twice sends each
 * body two times, --duplicates demands that nothing is accepted. --verify
 * counts in the database (as a superuser) that registry, ledger and counters
 * agree. Series are flushed while events come, as in meterd, and what is left
 * at the end.
 *
 * Prints events, seconds, events per second and events per second until the
 * last flush on one line, then verdicts,
 * paths and latencies on another.
 */

#include "sample.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/process.h"
#include "config/config.h"
#include "ingest/ingest.h"
#include "series/series_engine.h"
#include "store/migrate.h"

#include <getopt.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define EVENT_TEXT_SIZE 512
#define AGAIN_MS        20
#define FEED_MS         1
#define DRAIN_MS        5
#define DRAIN_MS_MAX    60000

struct body {
    char *data;
    size_t size;
    unsigned tenant;
    unsigned sends_left;
    uint64_t sent_at_us;
    struct driver *driver;
    uv_timer_t again;
};

struct driver {
    const char *database;
    const char *admin;
    const char *state_dir;
    const char *rules;
    const char *verify;
    size_t batches;
    size_t events;
    size_t outstanding_max; /* 0: as many as the queue holds */
    size_t queue_events;
    enum sample_ids ids;
    enum sample_shape shape;
    uint64_t orders;
    bool is_text;
    bool is_twice;
    bool is_duplicates;
    bool is_reverse;
    size_t tenants;
    uint64_t seed;
    uint64_t clock;
    uint64_t timeout_ms;

    uv_loop_t loop;
    uv_timer_t end;  /* nothing is destroyed inside its own callback */
    uv_timer_t feed; /* clients take a moment to send the next body */
    struct lane *lane;
    struct partition *partition;
    struct series_engine *series;
    struct ingest *ingest;
    bool is_lane_ready;
    bool is_partition_ready;

    struct body *bodies;
    size_t next;
    size_t outstanding;
    size_t left; /* sends without a final answer */
    size_t counts[METER_VERDICT_COUNT];
    uint64_t *latencies_us;
    size_t latency_count;
    uint64_t started_us;
    uint64_t ended_us;
    uint64_t flushed_us;
};

static void driver_feed_cb(uv_timer_t *timer);

__attribute__((noreturn)) static void
die(const char *what, const char *why)
{
    fprintf(stderr, "ingest_driver: %s: %s\n", what, why);
    exit(1);
}

static void
driver_end_cb(uv_timer_t *timer)
{
    struct driver *driver = timer->data;

    series_engine_drain(driver->series);
    if (!series_engine_is_idle(driver->series)) {
        if (clock_mono_us() - driver->ended_us > DRAIN_MS_MAX * 1000) {
            die("series", "are not flushed in time");
        }
        uv_timer_start(timer, driver_end_cb, DRAIN_MS, 0);
        return;
    }
    driver->flushed_us = clock_mono_us();
    ingest_destroy(driver->ingest);
    series_engine_destroy(driver->series);
    partition_destroy(driver->partition);
    lane_destroy(driver->lane);
    for (size_t i = 0; i < driver->batches; i++) {
        uv_close((uv_handle_t *)&driver->bodies[i].again, NULL);
    }
    uv_close((uv_handle_t *)&driver->feed, NULL);
    uv_close((uv_handle_t *)timer, NULL);
}

static void body_send(struct body *body);

static void
body_again_cb(uv_timer_t *timer)
{
    body_send(timer->data);
}

static void
body_answer_cb(void *asker, const struct ingest_answer *answer)
{
    struct body *body = asker;
    struct driver *driver = body->driver;

    switch (answer->outcome) {
    case INGEST_DONE: break;
    case INGEST_BAD: die("a body was refused", answer->error);
    case INGEST_GAP: die("an answer for rings", "to a body");
    case INGEST_BUSY:
    case INGEST_UNAVAILABLE:
        uv_timer_start(&body->again, body_again_cb, AGAIN_MS, 0);
        return;
    }
    for (size_t i = 0; i < METER_VERDICT_COUNT; i++) {
        driver->counts[i] += answer->counts[i];
    }
    if (answer->counts[METER_VERDICT_REJECTED] > 0) {
        for (size_t i = 0; i < answer->count; i++) {
            if (answer->results[i].error != NULL) {
                die("an event was rejected", answer->results[i].error);
            }
        }
    }
    driver->latencies_us[driver->latency_count++] =
        clock_mono_us() - body->sent_at_us;
    driver->left--;
    driver->outstanding--;
    if (driver->left == 0) {
        driver->ended_us = clock_mono_us();
        uv_timer_start(&driver->end, driver_end_cb, 0, 0);
        return;
    }
    uv_timer_start(&driver->feed, driver_feed_cb, FEED_MS, 0);
}

static void
body_send(struct body *body)
{
    struct driver *driver = body->driver;
    char tenant[16];
    struct buf copy;
    int size = snprintf(tenant, sizeof(tenant), "tenant-%03u", body->tenant);

    buf_init(&copy, METER_BODY_SIZE_MAX);
    buf_put(&copy, body->data, body->size);
    if (copy.failed) {
        die("out of memory", "body");
    }
    ingest_submit(
        driver->ingest,
        &(struct ingest_input){.tenant = {tenant, (size_t)size}}, &copy,
        body_answer_cb, body);
    buf_fini(&copy);
}

static void
driver_feed(struct driver *driver)
{
    while (driver->outstanding < driver->outstanding_max &&
           driver->next < driver->batches) {
        struct body *body = &driver->bodies[driver->next];

        driver->outstanding++;
        body->sent_at_us = clock_mono_us();
        if (--body->sends_left == 0) {
            driver->next++;
        }
        body_send(body);
    }
}

static void
driver_feed_cb(uv_timer_t *timer)
{
    driver_feed(timer->data);
}

static void
driver_start_if_ready(struct driver *driver)
{
    if (driver->is_lane_ready && driver->is_partition_ready &&
        driver->started_us == 0) {
        bool is_queue_first = driver->outstanding_max == 0;

        driver->started_us = clock_mono_us();
        if (is_queue_first) {
            driver->outstanding_max =
                driver->queue_events * 3 / 4 / driver->events + 1;
        }
        driver_feed(driver);
        if (is_queue_first) {
            driver->started_us = clock_mono_us();
        }
    }
}

static void
lane_ready(void *owner, int64_t last, int64_t batch)
{
    struct driver *driver = owner;

    series_engine_lane_ready(driver->series, last);
    ingest_lane_ready(driver->ingest, last, batch);
    driver->is_lane_ready = true;
    driver_start_if_ready(driver);
}

static void
lane_lost(void *owner, const char *why)
{
    struct driver *driver = owner;

    (void)why;
    ingest_lane_lost(driver->ingest);
}

static void
lane_refused(void *owner, const char *why)
{
    (void)owner;
    die("the server is refused", why);
}

static void
lane_not_replicated(void *owner)
{
    struct driver *driver = owner;

    ingest_not_replicated(driver->ingest);
}

static void
series_room(void *owner)
{
    struct driver *driver = owner;

    ingest_room(driver->ingest);
}

static void
partition_ready(void *owner)
{
    struct driver *driver = owner;

    driver->is_partition_ready = true;
    driver_start_if_ready(driver);
}

static void
make_bodies(struct driver *driver)
{
    size_t room = driver->events * EVENT_TEXT_SIZE + 16;
    char *text = malloc(room);
    struct sample sample;

    sample_init(&sample, driver->ids, driver->seed, driver->clock * 1000000);
    sample.shape = driver->shape;
    sample.orders = driver->orders;
    driver->bodies = calloc(driver->batches, sizeof(*driver->bodies));
    driver->latencies_us =
        calloc(driver->batches * 2, sizeof(*driver->latencies_us));
    if (text == NULL || driver->bodies == NULL ||
        driver->latencies_us == NULL) {
        die("out of memory", "bodies");
    }
    for (size_t i = 0; i < driver->batches; i++) {
        struct body *body = &driver->bodies[i];
        char *id = text;

        body->driver = driver;
        body->tenant = (unsigned)(i % driver->tenants);
        if (driver->is_reverse) {
            body->tenant = (unsigned)driver->tenants - 1 - body->tenant;
        }
        body->sends_left = driver->is_twice ? 2 : 1;
        body->size =
            sample_body(&sample, body->tenant, driver->events, text, room);
        /* No longer a UUID: the registry key becomes a digest. */
        while (driver->is_text && (id = strstr(id, "\"event_id\":\""))) {
            id += strlen("\"event_id\":\"");
            *id = 'x';
        }
        body->data = malloc(body->size + 1);
        if (body->data == NULL || body->size == 0) {
            die("out of memory", "bodies");
        }
        memcpy(body->data, text, body->size);
        uv_timer_init(&driver->loop, &body->again);
        body->again.data = body;
        driver->left += body->sends_left;
    }
    free(text);
}

static void
driver_run(struct driver *driver, struct config *config)
{
    static const struct lane_events events = {
        .on_ready = lane_ready,
        .on_lost = lane_lost,
        .on_refused = lane_refused,
        .on_not_replicated = lane_not_replicated,
    };
    struct lane_options lane = {.url = driver->database,
                                .state_dir = driver->state_dir,
                                .node = "bench",
                                .index = 0};
    struct partition_options partition = {.admin_url = driver->admin};
    struct series_engine_options series = {.url = driver->database,
                                           .config = config,
                                           .on_room = series_room,
                                           .owner = driver};
    struct ingest_options options = {.answer_timeout_ms = driver->timeout_ms};

    driver->queue_events = (size_t)config->limits.queue_events;
    partition_retention_days(config, partition.retention_days);
    driver->partition =
        partition_create(&driver->loop, &partition, partition_ready, driver);
    if (driver->partition == NULL ||
        !lane_create(&driver->loop, &lane, &events, driver, &driver->lane)) {
        die("cannot start", "lane or partitions");
    }
    series.lane = driver->lane;
    series.partition = driver->partition;
    driver->series = series_engine_create(&driver->loop, &series);
    options.series = driver->series;
    if (driver->series == NULL) {
        die("cannot start", "series");
    }
    driver->ingest = ingest_create(&driver->loop, config, driver->lane,
                                   driver->partition, &options);
    if (driver->ingest == NULL) {
        die("cannot start", "ingest");
    }
    uv_run(&driver->loop, UV_RUN_DEFAULT);
}

static int
compare_latencies(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

static void
report(struct driver *driver)
{
    double seconds = (double)(driver->ended_us - driver->started_us) / 1e6;
    double flushed = (double)(driver->flushed_us - driver->started_us) / 1e6;
    size_t events = 0;

    for (size_t i = 0; i < METER_VERDICT_COUNT; i++) {
        events += driver->counts[i];
    }
    qsort(driver->latencies_us, driver->latency_count,
          sizeof(*driver->latencies_us), compare_latencies);
    printf("%zu %.3f %.0f %.0f\n", events, seconds, (double)events / seconds,
           (double)events / flushed);
    printf("accepted=%zu duplicates=%zu conflicts=%zu rejected=%zu"
           " careful=%" PRId64 " bisected=%" PRId64 " retries=%" PRId64
           " unknown=%" PRId64 " late=%" PRId64 " batches=%" PRId64
           " p50_us=%" PRIu64 " p99_us=%" PRIu64 "\n",
           driver->counts[METER_VERDICT_ACCEPTED],
           driver->counts[METER_VERDICT_DUPLICATE],
           driver->counts[METER_VERDICT_CONFLICT],
           driver->counts[METER_VERDICT_REJECTED],
           metrics.edgemeter_batches_careful_total,
           metrics.edgemeter_batches_bisected_total,
           metrics.counter_update_conflict_retries,
           metrics.edgemeter_commits_unknown_total,
           metrics.edgemeter_answers_late_total,
           metrics.edgemeter_batches_committed_total,
           driver->latencies_us[driver->latency_count / 2],
           driver->latencies_us[driver->latency_count * 99 / 100]);
}

/* Registry, ledger and counters tell the same story, numbers are dense. */
static void
verify(const struct driver *driver)
{
    static const char query[] =
        "SELECT (SELECT count(*) FROM meter.event_registry),"
        " (SELECT count(*) FROM meter.event),"
        " (SELECT coalesce(sum(value), 0) FROM meter.counter),"
        " (SELECT count(DISTINCT (tenant, event_id)) FROM meter.event),"
        " (SELECT bool_and(last = (SELECT count(*) FROM meter.event AS e"
        " WHERE e.writer = w.writer)) FROM meter.writer_seq AS w)";
    PGconn *conn = PQconnectdb(driver->verify);
    PGresult *result = PQexec(conn, query);
    const char *registry;

    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        die("verify", PQerrorMessage(conn));
    }
    registry = PQgetvalue(result, 0, 0);
    for (int i = 1; i <= 3; i++) {
        if (strcmp(registry, PQgetvalue(result, 0, i)) != 0) {
            die("counts differ from the registry's", PQgetvalue(result, 0, i));
        }
    }
    if (strcmp(PQgetvalue(result, 0, 4), "t") != 0) {
        die("writer_seq", "is not dense");
    }
    printf("verified %s\n", registry);
    PQclear(result);
    PQfinish(conn);
}

static void
read_options(struct driver *driver, int argc, char **argv)
{
    static const struct option options[] = {
        {"database", required_argument, NULL, 'd'},
        {"admin", required_argument, NULL, 'a'},
        {"state-dir", required_argument, NULL, 's'},
        {"rules", required_argument, NULL, 'r'},
        {"batches", required_argument, NULL, 'b'},
        {"events", required_argument, NULL, 'e'},
        {"ids", required_argument, NULL, 'i'},
        {"seed", required_argument, NULL, 'S'},
        {"clock", required_argument, NULL, 'c'},
        {"outstanding", required_argument, NULL, 'o'},
        {"timeout", required_argument, NULL, 't'},
        {"verify", required_argument, NULL, 'v'},
        {"tenants", required_argument, NULL, 'n'},
        {"shape", required_argument, NULL, 'h'},
        {"orders", required_argument, NULL, 'O'},
        {"reverse", no_argument, NULL, 'R'},
        {"twice", no_argument, NULL, 'T'},
        {"duplicates", no_argument, NULL, 'D'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'd': driver->database = optarg; break;
        case 'a': driver->admin = optarg; break;
        case 's': driver->state_dir = optarg; break;
        case 'r': driver->rules = optarg; break;
        case 'b': driver->batches = strtoul(optarg, NULL, 10); break;
        case 'e': driver->events = strtoul(optarg, NULL, 10); break;
        case 'i':
            driver->ids =
                strcmp(optarg, "v7") == 0 ? SAMPLE_IDS_V7 : SAMPLE_IDS_RANDOM;
            driver->is_text = strcmp(optarg, "text") == 0;
            break;
        case 'S': driver->seed = strtoull(optarg, NULL, 10); break;
        case 'c': driver->clock = strtoull(optarg, NULL, 10); break;
        case 'o': driver->outstanding_max = strtoul(optarg, NULL, 10); break;
        case 't': driver->timeout_ms = strtoull(optarg, NULL, 10); break;
        case 'v': driver->verify = optarg; break;
        case 'n': driver->tenants = strtoul(optarg, NULL, 10); break;
        case 'O': driver->orders = strtoull(optarg, NULL, 10); break;
        case 'h':
            if (!sample_shape_parse(optarg, &driver->shape)) {
                die("no such shape", optarg);
            }
            break;
        case 'R': driver->is_reverse = true; break;
        case 'T': driver->is_twice = true; break;
        case 'D': driver->is_duplicates = true; break;
        default: exit(2);
        }
    }
    if (driver->database == NULL || driver->admin == NULL ||
        driver->state_dir == NULL || driver->rules == NULL ||
        driver->batches == 0 || driver->events == 0 || driver->orders == 0 ||
        driver->tenants == 0 || driver->tenants > SAMPLE_TENANTS) {
        die("usage", "--database --admin --state-dir --rules are needed");
    }
    /* The seed alone decides the ids, so that a later run can repeat them. */
    if (driver->clock == 0) {
        driver->clock = (uint64_t)time(NULL) / 86400 * 86400;
    }
}

int
main(int argc, char **argv)
{
    static struct driver driver = {.batches = 30,
                                   .events = 5000,
                                   .ids = SAMPLE_IDS_V7,
                                   .seed = 1,
                                   .tenants = SAMPLE_TENANTS,
                                   .orders = SAMPLE_ORDERS,
                                   .timeout_ms = 20000};
    struct config_errors errors;
    struct config *config;
    int applied;

    process_prepare();
    log_level_set(LOG_WARN);
    read_options(&driver, argc, argv);
    if (!config_load(&driver.rules, 1, &config, &errors)) {
        die("rules", driver.rules);
    }
    if (!migrate_run(driver.admin, &applied)) {
        die("migrate", "failed");
    }
    uv_loop_init(&driver.loop);
    uv_timer_init(&driver.loop, &driver.end);
    driver.end.data = &driver;
    uv_timer_init(&driver.loop, &driver.feed);
    driver.feed.data = &driver;
    make_bodies(&driver);
    driver_run(&driver, config);
    config_unref(config);
    report(&driver);
    if (driver.verify != NULL) {
        verify(&driver);
    }
    if (driver.is_duplicates && driver.counts[METER_VERDICT_ACCEPTED] > 0) {
        die("--duplicates", "events were accepted");
    }
    for (size_t i = 0; i < driver.batches; i++) {
        free(driver.bodies[i].data);
    }
    free(driver.bodies);
    free(driver.latencies_us);
    return uv_loop_close(&driver.loop) == 0 ? 0 : 1;
}
