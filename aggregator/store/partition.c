/*
 * partition.c - partitions of the ledger, the audit, the index and the
 * series, made ahead and on demand.
 *
 *   ingest, flush -> [partition] -> pg_conn as meter_owner ->
 *                                   meter.partition_make
 *
 * Knows for each parent the stored floor and the partitions that exist by
 * their first days, read at every connect. Each is made in a transaction of
 * its own: partitions are many locks each. The days known are a bounded
 * sorted list; a day that found no room is asked for again, which changes
 * nothing.
 */

#include "store/partition.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "meter_time.h"

#include <stdlib.h>

#define DAYS_MAX          16384
#define FLOOR_DAYS        3653 /* without retention: ten years back */
#define AHEAD_FROM        (-1) /* yesterday, for late events */
#define AHEAD_TO          2    /* the day after tomorrow */
#define AHEAD_EVERY_MS    3600000
#define AHEAD_RETRY_MS    2000
#define PARTITION_NAME    "partition"
#define PARTITION_FOREVER (-1)
/* Partitions of many days count from Monday 1970-01-05; none begins before
   year 1. */
#define ORIGIN_DAY 4
#define FIRST_DAY  (-719162)

/* Waiting behind a long transaction must not stop ingest for long. */
#define PARTITION_SETTINGS "lock_timeout=3000"

struct parent {
    VEC(int32_t) days;  /* first ones, ascending */
    int32_t floor;      /* stored one; INT32_MIN: none */
    int retention_days; /* of the configuration */
    int kept_days;      /* in force until a shorter figure is confirmed */
};

struct partition {
    struct pg_conn *conn;
    char *url;
    uv_timer_t timer;
    struct parent parents[PARTITION_PARENTS];
    bool known;      /* floor and days were read */
    bool ready_told; /* days ahead were made */
    void (*on_ready)(void *owner);
    void *owner;
    int64_t db_now_us; /* as last read */
    uint64_t seen_at_us;
};

/* One partition_make or partition_refresh; freed with its callback. */
struct job {
    struct partition *partition;
    partition_cb cb;
    void *asker;
    size_t outstanding;
    bool failed;
};

/* One statement of a job. */
struct task {
    struct job *job;
    struct parent *parent;
    enum partition_parent number;
    int32_t day;
};

static const struct {
    const char *name;
    int span; /* days */
} tables[PARTITION_PARENTS] = {
    [PARTITION_EVENT] = {"event", 1},
    [PARTITION_AUDIT] = {"duplicate_audit", 1},
    [PARTITION_INDEX] = {"event_index", 1},
    [PARTITION_SERIES + METER_LEVEL_5S] = {"series_5s", 1},
    [PARTITION_SERIES + METER_LEVEL_1M] = {"series_1m", 1},
    [PARTITION_SERIES + METER_LEVEL_1H] = {"series_1h", 28},
    [PARTITION_SERIES + METER_LEVEL_1D] = {"series_1d", 364},
    [PARTITION_SERIES + METER_LEVEL_7D] = {"series_7d", 364},
};


/* ---- tables ------------------------------------------------------------ */

void
partition_retention_days(const struct config *config,
                         int days[PARTITION_PARENTS])
{
    const struct config_retention *of = &config->retention;

    days[PARTITION_EVENT] = (int)of->event_days;
    days[PARTITION_AUDIT] = (int)of->duplicate_audit_days;
    days[PARTITION_INDEX] = (int)of->event_index_days;
    days[PARTITION_SERIES + METER_LEVEL_5S] = (int)of->series_5s_days;
    days[PARTITION_SERIES + METER_LEVEL_1M] = (int)of->series_1m_days;
    days[PARTITION_SERIES + METER_LEVEL_1H] = (int)of->series_1h_days;
    days[PARTITION_SERIES + METER_LEVEL_1D] = (int)of->series_1d_days;
    days[PARTITION_SERIES + METER_LEVEL_7D] = (int)of->series_7d_days;
}


const char *
partition_parent_name(enum partition_parent parent)
{
    return tables[parent].name;
}


int
partition_span(enum partition_parent parent)
{
    return tables[parent].span;
}


int32_t
partition_first_day(enum partition_parent parent, int32_t day)
{
    int32_t span = tables[parent].span;
    int32_t first = day - ((day - ORIGIN_DAY) % span + span) % span;

    return first < FIRST_DAY ? FIRST_DAY : first;
}


/* The longer of two times, in days. */
static int
partition_longer(int left, int right)
{
    if (left == PARTITION_FOREVER || right == PARTITION_FOREVER) {
        return PARTITION_FOREVER;
    }
    return left > right ? left : right;
}


/* ---- days that are known ----------------------------------------------- */

/* Where the day is in its parent's list, or belongs. */
static size_t
days_place(const struct parent *parent, int32_t day)
{
    size_t low = 0;
    size_t high = parent->days.count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (parent->days.items[middle] < day) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}


static bool
days_has(const struct parent *parent, int32_t day)
{
    size_t place = days_place(parent, day);

    return place < parent->days.count && parent->days.items[place] == day;
}


/* A day that finds no room is asked for again. */
static void
days_add(struct parent *parent, int32_t day)
{
    size_t place = days_place(parent, day);

    if (days_has(parent, day) || parent->days.count == DAYS_MAX) {
        return;
    }
    vec_push(&parent->days, day);
    memmove(parent->days.items + place + 1, parent->days.items + place,
            (parent->days.count - 1 - place) * sizeof(day));
    parent->days.items[place] = day;
}


bool
partition_is_ready(const struct partition *partition)
{
    return partition->known;
}


bool
partition_exists(const struct partition *partition,
                 enum partition_parent parent, int32_t day)
{
    return days_has(&partition->parents[parent],
                    partition_first_day(parent, day));
}


int32_t
partition_floor_day(const struct partition *partition,
                    enum partition_parent parent, int64_t now_us)
{
    const struct parent *of = &partition->parents[parent];
    int days = partition_longer(of->kept_days, of->retention_days);
    int back = days == PARTITION_FOREVER ? FLOOR_DAYS : days;
    int32_t floor = meter_time_day(now_us) - back;

    if (parent >= PARTITION_SERIES || of->floor > floor) {
        floor = of->floor;
    }
    return floor;
}


int32_t
partition_day(const struct partition *partition, enum partition_parent parent,
              int64_t ts_us, int64_t now_us)
{
    int32_t floor = partition_floor_day(partition, parent, now_us);
    int32_t day = meter_time_day(ts_us);

    return day < floor ? floor : day;
}


void
partition_retention_set(struct partition *partition,
                        const int retention_days[PARTITION_PARENTS])
{
    for (int i = 0; i < PARTITION_PARENTS; i++) {
        partition->parents[i].retention_days = retention_days[i];
    }
}


/* ---- jobs -------------------------------------------------------------- */

/* Held by its maker until job_done. */
static struct job *
job_create(struct partition *partition, partition_cb cb, void *asker)
{
    struct job *job = memory_alloc(sizeof(*job));

    job->partition = partition;
    job->cb = cb;
    job->asker = asker;
    job->outstanding = 1;
    return job;
}


static void
job_done(struct job *job)
{
    if (--job->outstanding > 0) {
        return;
    }
    job->cb(job->asker, !job->failed);
    free(job);
}


static void
job_ask(struct job *job, enum statement statement, enum partition_parent parent,
        int32_t day, pg_answer_cb cb)
{
    struct partition *partition = job->partition;
    struct task *task = memory_alloc(sizeof(*task));
    const char *name = tables[parent].name;
    struct pg_params params;

    *task = (struct task){job, &partition->parents[parent], parent, day};
    job->outstanding++;

    pg_params_init(&params);
    pg_param_text(&params, (struct meter_str){name, strlen(name)});
    if (statement == STATEMENT_PARTITION_MAKE) {
        pg_param_date(&params, day);
    }
    pg_conn_query(partition->conn, statement, &params, cb, task);
    pg_conn_flush(partition->conn);
    pg_params_fini(&params);
}


/* False: the task failed; its job knows. */
static bool
task_ok(const struct task *task, const struct pg_answer *answer)
{
    if (answer->outcome == PG_OUTCOME_OK) {
        return true;
    }
    if (answer->outcome == PG_OUTCOME_ERROR) {
        log_error("partition", "statement failed",
                  log_str("parent", tables[task->number].name),
                  log_int("day", task->day),
                  log_str("sqlstate", answer->sqlstate),
                  log_str("message", answer->message));
    }
    task->job->failed = true;
    return false;
}


static void
task_end(struct task *task)
{
    job_done(task->job);
    free(task);
}


static void
make_cb(void *asker, const struct pg_answer *answer)
{
    struct task *task = asker;

    if (task_ok(task, answer)) {
        days_add(task->parent, partition_first_day(task->number, task->day));
        if (pg_get_bool(answer->result, 0, 0)) {
            metrics.edgemeter_partitions_made_total++;
            log_info("partition", "made",
                     log_str("parent", tables[task->number].name),
                     log_int("day", task->day));
        }
    }
    task_end(task);
}


static void
floor_cb(void *asker, const struct pg_answer *answer)
{
    struct task *task = asker;
    struct partition *partition = task->job->partition;

    if (task_ok(task, answer)) {
        const void *rows = answer->result;

        task->parent->floor =
            pg_is_null(rows, 0, 0) ? INT32_MIN : pg_get_date(rows, 0, 0);
        task->parent->kept_days =
            pg_is_null(rows, 0, 2) ? 0 : pg_get_int4(rows, 0, 2);
        partition->db_now_us = pg_get_time(rows, 0, 1);
        partition->seen_at_us = clock_mono_us();
    }
    task_end(task);
}


static void
days_cb(void *asker, const struct pg_answer *answer)
{
    struct task *task = asker;

    if (task_ok(task, answer)) {
        vec_clear(&task->parent->days);
        for (int row = 0; row < pg_row_count(answer->result); row++) {
            days_add(task->parent, pg_get_date(answer->result, row, 0));
        }
    }
    task_end(task);
}


void
partition_make(struct partition *partition, enum partition_parent parent,
               const int32_t *days, size_t count, partition_cb cb, void *asker)
{
    struct job *job = job_create(partition, cb, asker);

    for (size_t i = 0; i < count; i++) {
        if (!partition_exists(partition, parent, days[i])) {
            job_ask(job, STATEMENT_PARTITION_MAKE, parent, days[i], make_cb);
        }
    }
    job_done(job);
}


void
partition_refresh(struct partition *partition, partition_cb cb, void *asker)
{
    struct job *job = job_create(partition, cb, asker);

    for (int i = 0; i < PARTITION_PARENTS; i++) {
        job_ask(job, STATEMENT_PARTITION_FLOOR, i, 0, floor_cb);
        job_ask(job, STATEMENT_PARTITION_DAYS, i, 0, days_cb);
    }
    job_done(job);
}


/* ---- days ahead -------------------------------------------------------- */

static void conn_ready(void *owner);

/* The database's clock, carried on by the monotonic one. */
static int64_t
partition_now_us(const struct partition *partition)
{
    return partition->db_now_us +
           (int64_t)(clock_mono_us() - partition->seen_at_us);
}


static void
timer_cb(uv_timer_t *timer)
{
    struct partition *partition = timer->data;

    if (pg_conn_is_ready(partition->conn)) {
        conn_ready(partition); /* floors may have been raised */
    }                          /* else: it will be called */
}


static void
ahead_cb(void *asker, bool made)
{
    struct partition *partition = asker;

    if (partition->on_ready == NULL) {
        return; /* being destroyed */
    }
    uv_timer_start(&partition->timer, timer_cb,
                   made ? AHEAD_EVERY_MS : AHEAD_RETRY_MS, 0);
    if (made && !partition->ready_told) {
        partition->ready_told = true;
        partition->on_ready(partition->owner);
    }
}


/* Makes the days ahead of all parents; the last one to end tells. */
static void
partition_ahead(struct partition *partition)
{
    struct job *job = job_create(partition, ahead_cb, partition);
    int64_t now_us = partition_now_us(partition);

    for (int i = 0; i < PARTITION_PARENTS; i++) {
        for (int offset = AHEAD_FROM; offset <= AHEAD_TO; offset++) {
            int32_t day = meter_time_day(now_us) + offset;

            if (day >= partition_floor_day(partition, i, now_us) &&
                !partition_exists(partition, i, day)) {
                job_ask(job, STATEMENT_PARTITION_MAKE, i, day, make_cb);
            }
        }
    }
    job_done(job);
}


static void
refreshed_cb(void *asker, bool done)
{
    struct partition *partition = asker;

    if (!done) {
        pg_conn_reset(partition->conn, "the partitions cannot be read");
        return;
    }
    partition->known = true;
    partition_ahead(partition);
}


static void
conn_ready(void *owner)
{
    partition_refresh(owner, refreshed_cb, owner);
}


/* ---- life -------------------------------------------------------------- */

struct partition *
partition_create(uv_loop_t *loop, const struct partition_options *options,
                 void (*on_ready)(void *owner), void *owner)
{
    static const struct pg_conn_events events = {.on_ready = conn_ready};
    struct partition *partition = memory_alloc(sizeof(*partition));

    partition->on_ready = on_ready;
    partition->owner = owner;
    for (int i = 0; i < PARTITION_PARENTS; i++) {
        partition->parents[i].floor = INT32_MIN;
    }
    partition_retention_set(partition, options->retention_days);
    partition->url = memory_strdup(options->admin_url);
    partition->conn = pg_conn_create(loop,
                                     &(struct pg_conn_options){
                                         .name = PARTITION_NAME,
                                         .url = partition->url,
                                         .settings = PARTITION_SETTINGS,
                                         .selftest = true,
                                     },
                                     &events, partition);
    uv_timer_init(loop, &partition->timer);
    partition->timer.data = partition;
    return partition;
}


static void
partition_closed_cb(uv_handle_t *handle)
{
    struct partition *partition = handle->data;

    for (int i = 0; i < PARTITION_PARENTS; i++) {
        vec_fini(&partition->parents[i].days);
    }
    free(partition->url);
    free(partition);
}


void
partition_destroy(struct partition *partition)
{
    if (partition == NULL) {
        return;
    }
    partition->on_ready = NULL;
    pg_conn_destroy(partition->conn);
    uv_close((uv_handle_t *)&partition->timer, partition_closed_cb);
}
