/*
 * series_recount_drain.c - marked buckets are computed, see
 * series_recount_run.h.
 *
 *   take marks -> floors -> make and lock -> recompute -> mark above
 *
 * The same statements in the same order as series/rollup runs them, so that
 * a meterd may do the same at the same time, and none need run.
 */

#include "maintain/series_recount_run.h"

#include "base/check.h"
#include "base/clock.h"
#include "meter_time.h"
#include "series/rollup_batch.h"

#include <time.h>

#define BATCH_MARKS 1000
#define TRIES       5
#define WAIT_MS     60000 /* for marks that someone else has in his hands */
#define PAUSE_MS    20

struct draining {
    struct series_run *series;
    struct rollup_batch batch;
    struct series_floors floors;
    bool is_fault;
};

/* Statements of what is computed from a level. */
#define OF_BELOW(name, level)  \
    ((enum statement[]){       \
        STATEMENT_##name##_5S, \
        STATEMENT_##name##_1M, \
        STATEMENT_##name##_1H, \
        STATEMENT_##name##_1D, \
    }[(level)-1])


static bool
mark_row(void *asker, const void *result, int row)
{
    struct draining *draining = asker;
    const struct rollup_mark mark = {
        .tenant = pg_get_bytes(result, row, 0),
        .series = pg_get_bytes(result, row, 1),
        .version = pg_get_int8(result, row, 2),
        .dimension_key = pg_get_bytes(result, row, 3),
        .bucket_us = pg_get_time(result, row, 4),
        .marked_us = pg_get_time(result, row, 5),
    };

    draining->is_fault = !rollup_batch_add(&draining->batch, &mark);
    return !draining->is_fault;
}

static bool
floor_row(void *asker, const void *result, int row)
{
    struct draining *draining = asker;
    struct meter_str parent = pg_get_bytes(result, row, 0);

    for (int i = 0; i < METER_LEVEL_COUNT; i++) {
        const char *name = partition_parent_name(
            (enum partition_parent)(PARTITION_SERIES + i));

        if (meter_str_equal(parent, (struct meter_str){name, strlen(name)})) {
            draining->floors.level_us[i] =
                pg_get_date(result, row, 1) * METER_TIME_DAY;
        }
    }
    return true;
}

/* Floors, then marks: the order of a rollup. *taken of them. */
static bool
marks_take(struct draining *draining, enum meter_level level, size_t *taken)
{
    struct recount_run *run = draining->series->run;

    rollup_batch_reset(&draining->batch, level);
    pg_params_reset(&run->params);
    pg_param_int4(&run->params, level);
    pg_param_int8(&run->params, BATCH_MARKS);
    if (!ledger_store_rows(run->store, STATEMENT_ROLLUP_FLOORS, NULL, floor_row,
                           draining) ||
        !ledger_store_rows(run->store, STATEMENT_SERIES_DIRTY_TAKE,
                           &run->params, mark_row, draining)) {
        return false;
    }
    *taken = draining->batch.buckets.count;
    rollup_batch_settle(&draining->batch, draining->floors.level_us[level - 1]);
    return true;
}

static bool
partitions_make(struct draining *draining)
{
    const struct rollup_batch *batch = &draining->batch;

    for (size_t i = 0; i < batch->buckets.count; i++) {
        if (!series_days_make(
                draining->series->days, PARTITION_SERIES + batch->level,
                meter_time_day(batch->buckets.items[i].bucket_us))) {
            return false;
        }
    }
    return true;
}

static bool
empty_row(void *asker, const void *result, int row)
{
    *(int64_t *)asker = pg_get_int8(result, row, 0);
    return true;
}

static bool
above_mark(struct draining *draining)
{
    struct recount_run *run = draining->series->run;
    const struct rollup_batch *batch = &draining->batch;

    if (batch->above.count == 0) {
        return true;
    }
    pg_params_reset(&run->params);
    pg_param_int4(&run->params, batch->level + 1);
    rollup_marks_put(&batch->above, &run->params);
    rollup_marks_put_marked(&batch->above, &run->params);
    return ledger_store_rows(run->store, STATEMENT_SERIES_DIRTY_MARK,
                             &run->params, NULL, NULL);
}

/* A statement for each series of a tenant. */
static bool
empty_delete(struct draining *draining, int64_t first_us, int64_t end_us)
{
    struct recount_run *run = draining->series->run;
    const struct rollup_batch *batch = &draining->batch;

    for (size_t from = 0; from < batch->buckets.count;) {
        pg_params_reset(&run->params);
        from = rollup_marks_put_series(&batch->buckets, from, &run->params);
        pg_param_time(&run->params, first_us);
        pg_param_time(&run->params, end_us);
        if (!ledger_store_rows(run->store,
                               OF_BELOW(SERIES_EMPTY_DELETE, batch->level),
                               &run->params, NULL, NULL)) {
            return false;
        }
    }
    return true;
}

static bool
batch_write(struct draining *draining)
{
    struct recount_run *run = draining->series->run;
    const struct rollup_batch *batch = &draining->batch;
    enum meter_level level = batch->level;
    int64_t first_us;
    int64_t end_us;
    int64_t empty = 0;

    if (batch->buckets.count == 0) {
        return true; /* all are below the floor */
    }
    rollup_batch_range(batch, &first_us, &end_us);
    pg_params_reset(&run->params);
    rollup_marks_put(&batch->buckets, &run->params);
    if (!ledger_store_rows(run->store, OF_BELOW(SERIES_ENSURE, level),
                           &run->params, NULL, NULL)) {
        return false;
    }
    rollup_batch_put_ends(batch, &run->params);
    pg_param_time(&run->params, first_us);
    pg_param_time(&run->params, end_us);
    if (!ledger_store_rows(run->store, OF_BELOW(SERIES_RECOMPUTE, level),
                           &run->params, empty_row, &empty)) {
        return false;
    }
    CRASH_POINT("rebuild_in_rollup");
    return (empty == 0 || empty_delete(draining, first_us, end_us)) &&
           above_mark(draining);
}

/* One transaction; *taken: marks that it had. */
static bool
batch_run(struct draining *draining, enum meter_level level, size_t *taken)
{
    struct ledger_store *store = draining->series->run->store;
    bool is_good =
        ledger_store_rows(store, STATEMENT_BEGIN, NULL, NULL, NULL) &&
        marks_take(draining, level, taken) && partitions_make(draining) &&
        batch_write(draining);

    if (is_good && *taken > 0) {
        is_good = ledger_store_commit(store);
    }
    ledger_store_rollback(store);
    if (draining->is_fault) {
        recount_say(draining->series->run, "out of memory");
    }
    return is_good;
}

struct marks_left {
    int64_t count;
    int64_t last;
};

static bool
left_row(void *asker, const void *result, int row)
{
    struct marks_left *left = asker;

    left->count = pg_get_int8(result, row, 0);
    left->last = pg_get_int8(result, row, 1);
    return true;
}

/* upto INT64_MIN: all there are. */
static bool
left_read(struct series_run *series, enum meter_level level, int64_t upto,
          struct marks_left *left)
{
    struct recount_run *run = series->run;

    pg_params_reset(&run->params);
    pg_param_int4(&run->params, level);
    if (upto == INT64_MIN) {
        pg_param_null(&run->params);
    } else {
        pg_param_int8(&run->params, upto);
    }
    return ledger_store_rows(run->store, STATEMENT_SERIES_RECOUNT_MARKS_LEFT,
                             &run->params, left_row, left);
}

static void
rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
}

/* Until none up to `last` is there any more. */
static bool
level_drain(struct draining *draining, enum meter_level level, int64_t last)
{
    struct series_run *series = draining->series;
    uint64_t moved_ms = clock_mono_ms();
    struct marks_left left = {1, 0};
    int64_t before = INT64_MAX;
    int failed = 0;
    size_t taken;

    while (left_read(series, level, last, &left) && left.count > 0) {
        if (left.count != before) {
            before = left.count;
            moved_ms = clock_mono_ms();
        } else if (clock_mono_ms() - moved_ms > WAIT_MS) {
            recount_say(series->run,
                        "%lld marks of level %s stay locked by someone else",
                        (long long)left.count, meter_level_name(level));
            return false;
        }
        taken = 0;
        if (!batch_run(draining, level, &taken)) {
            if (draining->is_fault || ++failed == TRIES) {
                return false;
            }
        } else if (taken == 0) {
            rest(); /* someone else has them */
        }
    }
    return left.count == 0;
}

bool
series_recount_drain(struct series_run *series, enum meter_level level)
{
    struct draining draining = {.series = series};
    struct marks_left left = {0, 0};
    bool is_good = left_read(series, level, INT64_MIN, &left);

    if (!is_good || left.count == 0) {
        return is_good;
    }
    rollup_batch_init(&draining.batch);
    is_good = level_drain(&draining, level, left.last);
    rollup_batch_fini(&draining.batch);
    return is_good;
}
