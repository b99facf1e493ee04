/*
 * flush.c - one cut of a buffer into the tables, once.
 *
 *   [floors, the first time] -> partitions -> BEGIN; writer FOR SHARE; upto;
 *   floors FOR SHARE -> keys, cells, marks, some thousand rows each -> COMMIT
 *
 *   upto is not `from`: ROLLBACK -> [look] which one it is
 *
 * One piece is encoded while the server works on the one before. Floors that
 * were raised since the partitions were made start it over.
 */

#include "series/flush_state.h"

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/metrics.h"

#include <stdlib.h>

#define DAYS_MAX     64 /* partitions asked for at a time */
#define EPOCH_UNSEEN (-1)

static void partitions_make(struct flush *flush);

struct flush *
flush_create(struct pg_conn *conn, struct partition *partition, flush_cb cb,
             void *owner)
{
    struct flush *flush = calloc(1, sizeof(*flush));

    if (flush != NULL) {
        flush->conn = conn;
        flush->partition = partition;
        flush->cb = cb;
        flush->owner = owner;
        pg_params_init(&flush->params);
    }
    return flush;
}

static void
free_if_done(struct flush *flush)
{
    if (flush->is_closing && !flush->is_partition_due) {
        flush_rows_fini(&flush->rows);
        pg_params_fini(&flush->params);
        free(flush);
    }
}

void
flush_destroy(struct flush *flush)
{
    if (flush == NULL) {
        return;
    }
    CHECK(flush->answers_due == 0);
    flush->is_closing = true;
    free_if_done(flush);
}

static void
flush_ended(struct flush *flush, enum flush_outcome outcome)
{
    flush->state = FLUSH_IDLE;
    flush->end.outcome = outcome;
    flush_rows_fini(&flush->rows);
    if (outcome != FLUSH_FAILED) {
        flush->asides.count = 0;
    }
    if (!flush->is_closing) {
        flush->cb(flush->owner, &flush->end);
    }
}


/* ---- answers ---------------------------------------------------------- */

void
flush_fail(struct flush *flush, const char *why, const char *sqlstate)
{
    if (!flush->is_failed) {
        log_warn("series", "a flush failed; it is tried again",
                 log_str("reason", why), log_str("sqlstate", sqlstate));
    }
    flush->is_failed = true;
}

bool
flush_answer_take(struct flush *flush, const struct pg_answer *answer)
{
    CHECK(flush->answers_due > 0);
    flush->answers_due--;
    if (answer->outcome == PG_OUTCOME_LOST) {
        flush_fail(flush, "the connection was lost", "");
        flush->is_lost = true;
    } else if (answer->outcome == PG_OUTCOME_ERROR) {
        flush->is_refresh_due |= answer->kind == SQL_NO_PARTITION;
        flush->data_failures += answer->kind == SQL_DATA;
        flush_fail(flush, answer->message, answer->sqlstate);
    }
    return answer->outcome == PG_OUTCOME_OK && !flush->is_failed;
}

static void
step_if_done(struct flush *flush)
{
    if (flush->answers_due == 0) {
        flush_step_done(flush);
    }
}

static void
plain_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    (void)flush_answer_take(flush, answer);
    step_if_done(flush);
}

void
flush_ask(struct flush *flush, enum statement statement, pg_answer_cb cb)
{
    flush->answers_due++;
    pg_conn_query(flush->conn, statement, &flush->params, cb, flush);
}

void
flush_command(struct flush *flush, enum statement statement, pg_answer_cb cb)
{
    flush->answers_due++;
    pg_conn_command(flush->conn, statement, cb, flush);
}

void
flush_hold(struct flush *flush)
{
    flush->answers_due++;
}

void
flush_release(struct flush *flush)
{
    flush->answers_due--;
    step_if_done(flush);
}

static void
put_writer(struct flush *flush)
{
    pg_params_reset(&flush->params);
    pg_param_uuid(&flush->params, flush->task.writer);
}


/* ---- floors and partitions -------------------------------------------- */

static void
floors_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;
    struct flush_floors floors;

    if (flush_answer_take(flush, answer)) {
        if (!flush_floors_read(answer->result, &floors)) {
            flush_fail(flush, "a floor of the series is missing", "");
        } else {
            flush->is_moved =
                flush->has_floors &&
                memcmp(&floors, &flush->floors, sizeof(floors)) != 0;
            flush->floors = floors;
            flush->has_floors = true;
        }
    }
    step_if_done(flush);
}

static void
floors_ask(struct flush *flush)
{
    flush->state = FLUSH_FLOORS;
    flush_hold(flush);
    pg_params_reset(&flush->params);
    flush_ask(flush, STATEMENT_ROLLUP_FLOORS, floors_cb);
    pg_conn_flush(flush->conn);
    flush_release(flush);
}

/* Days of a level that have no partition yet, DAYS_MAX of them at most. */
static size_t
days_missing(const struct flush *flush, enum meter_level wanted,
             int32_t days[DAYS_MAX])
{
    size_t count = 0;
    size_t cell_count = flush->rows.count;
    int32_t last = INT32_MIN; /* is there */

    for (size_t i = 0; i < cell_count && count < DAYS_MAX; i++) {
        int64_t bucket_us = flush->rows.cells[i]->cell.bucket_us;
        int32_t day = meter_time_day(meter_level_bucket(wanted, bucket_us));
        size_t known = 0;

        if (day == last ||
            flush_floors_level(&flush->floors, bucket_us) != wanted) {
            continue;
        }
        last = day;
        while (known < count && days[known] != day) {
            known++;
        }
        if (known == count &&
            !partition_exists(flush->partition, PARTITION_SERIES + wanted,
                              day)) {
            days[count++] = day;
        }
    }
    return count;
}

static void open_ask(struct flush *flush);

static void
partition_made_cb(void *asker, bool made)
{
    struct flush *flush = asker;

    flush->is_partition_due = false;
    if (flush->is_closing) {
        free_if_done(flush);
        return;
    }
    if (!made) {
        flush_fail(flush, "a partition could not be made", "");
        flush_ended(flush, FLUSH_FAILED);
        return;
    }
    flush->is_refresh_due = false;
    partitions_make(flush);
}

/* Until none is missing; the cells are those of the task. */
static void
partitions_make(struct flush *flush)
{
    int32_t days[DAYS_MAX];

    flush->state = FLUSH_PARTITIONS;
    if (flush->is_refresh_due) {
        flush->is_partition_due = true;
        partition_refresh(flush->partition, partition_made_cb, flush);
        return;
    }
    for (int level = 0; level < METER_LEVEL_COUNT; level++) {
        size_t count = flush->rows.of_level[level] == 0
                           ? 0
                           : days_missing(flush, level, days);

        if (count > 0) {
            flush->is_partition_due = true;
            partition_make(flush->partition, PARTITION_SERIES + level, days,
                           count, partition_made_cb, flush);
            return;
        }
    }
    open_ask(flush);
}


/* ---- the transaction -------------------------------------------------- */

static void
writer_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    if (flush_answer_take(flush, answer)) {
        int64_t epoch = pg_row_count(answer->result) == 0
                            ? 0
                            : pg_get_int8(answer->result, 0, 0);

        if (epoch != flush->task.epoch) {
            flush->epoch_seen = epoch;
            flush->is_failed = true;
        }
    }
    step_if_done(flush);
}

static void
advance_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    if (flush_answer_take(flush, answer)) {
        if (pg_row_count(answer->result) == 0) {
            flush->is_astray = true;
            flush->is_failed = true;
        } else if (!pg_is_null(answer->result, 0, 0)) {
            flush->end.flushed_us = pg_get_time(answer->result, 0, 0);
        }
    }
    step_if_done(flush);
}

static void
put_time(struct flush *flush, int64_t time_us)
{
    if (time_us == FLUSH_ANY_US) {
        pg_param_null(&flush->params);
    } else {
        pg_param_time(&flush->params, time_us);
    }
}

/* Everything that decides whether this may be written, in one round trip. */
static void
open_ask(struct flush *flush)
{
    const struct flush_task *task = &flush->task;

    flush->state = FLUSH_OPEN;
    flush->is_moved = false;
    flush_hold(flush);
    flush_command(flush, STATEMENT_BEGIN, plain_cb);
    put_writer(flush);
    flush_ask(flush, STATEMENT_INGEST_LOCK_WRITER, writer_cb);
    pg_param_int8(&flush->params, task->from);
    pg_param_int8(&flush->params, task->upto);
    put_time(flush, task->recorded_us);
    put_time(flush, task->clock_us);
    flush_ask(flush, STATEMENT_WRITER_FLUSH_ADVANCE, advance_cb);
    pg_params_reset(&flush->params);
    flush_ask(flush, STATEMENT_ROLLUP_FLOORS, floors_cb);
    pg_conn_flush(flush->conn);
    flush_release(flush);
}

static void
commit_ask(struct flush *flush)
{
    if (flush->rows.written > 0) {
        CRASH_POINT("before_flush_commit");
    }
    flush->state = FLUSH_COMMIT;
    flush_hold(flush);
    if (flush->task.is_retiring) {
        put_writer(flush);
        flush_ask(flush, STATEMENT_ORPHAN_RETIRE, plain_cb);
    }
    flush_command(flush, STATEMENT_COMMIT, plain_cb);
    pg_conn_flush(flush->conn);
    flush_release(flush);
}

static void
rollback_ask(struct flush *flush)
{
    flush->state = FLUSH_ROLLBACK;
    flush_hold(flush);
    flush_command(flush, STATEMENT_ROLLBACK, plain_cb);
    pg_conn_flush(flush->conn);
    flush_release(flush);
}


/* ---- which one it is -------------------------------------------------- */

static void
look_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;
    int64_t upto = -1; /* no row */

    if (!flush_answer_take(flush, answer)) {
        flush_ended(flush, FLUSH_FAILED);
        return;
    }
    if (pg_row_count(answer->result) == 1) {
        upto = pg_get_int8(answer->result, 0, 0);
        flush->end.flushed_us = pg_is_null(answer->result, 0, 2)
                                    ? FLUSH_ANY_US
                                    : pg_get_time(answer->result, 0, 2);
    }
    if (upto == flush->task.upto && upto != flush->task.from) {
        log_info("series", "the flush had been committed",
                 log_int("upto", upto));
        flush_write_committed(flush);
        flush_ended(flush, FLUSH_COMMITTED);
        return;
    }
    log_warn("series", "the flush went astray",
             log_int("from", flush->task.from),
             log_int("upto", flush->task.upto), log_int("found", upto));
    flush_ended(flush, FLUSH_ASTRAY);
}

static void
look_ask(struct flush *flush)
{
    flush->state = FLUSH_LOOK;
    flush->is_failed = false;
    put_writer(flush);
    flush_ask(flush, STATEMENT_WRITER_FLUSH_READ, look_cb);
    pg_conn_flush(flush->conn);
}


/* ---- one step after the other ----------------------------------------- */

static void
committed(struct flush *flush)
{
    if (flush->rows.written > 0) {
        CRASH_POINT("after_flush_commit");
    }
    flush->end.rows = (size_t)flush->rows.written;
    metrics.edgemeter_series_flushes_total++;
    metrics.edgemeter_series_flush_microseconds_total +=
        (int64_t)(clock_mono_us() - flush->started_us);
    metrics.edgemeter_series_flushed_rows_total += flush->rows.written;
    metrics.edgemeter_series_expired_total += flush->rows.expired;
    flush_write_committed(flush);
    flush_ended(flush, FLUSH_COMMITTED);
}

/* Nothing of this try is left open on the connection. */
static void
failed(struct flush *flush)
{
    if (flush->epoch_seen != EPOCH_UNSEEN) {
        flush->end.epoch_seen = flush->epoch_seen;
        flush_ended(flush, FLUSH_FENCED);
    } else if (flush->is_astray && !flush->is_lost) {
        look_ask(flush);
    } else {
        flush_ended(flush, FLUSH_FAILED);
    }
}

/* Since when the buckets are behind, at the latest: for the lag. */
static int64_t
marked_us(const struct flush_task *task)
{
    if (task->flushed_us != FLUSH_ANY_US) {
        return task->flushed_us;
    }
    return task->clock_us != FLUSH_ANY_US ? task->clock_us : clock_wall_us();
}

static void
partitions_begin(struct flush *flush)
{
    flush_rows_fini(&flush->rows);
    flush_rows_init(&flush->rows, flush->rows.cells, flush->rows.count,
                    &flush->floors, marked_us(&flush->task));
    partitions_make(flush);
}

static void
opened(struct flush *flush)
{
    if (flush->is_moved) {
        rollback_ask(flush);
        return;
    }
    flush->state = FLUSH_WRITE;
    flush_write(flush);
}

static void
rolled_back(struct flush *flush)
{
    if (flush->is_moved && !flush->is_failed) {
        partitions_begin(flush);
    } else {
        failed(flush);
    }
}

void
flush_step_done(struct flush *flush)
{
    bool is_open = flush->state == FLUSH_OPEN || flush->state == FLUSH_WRITE;

    if (flush->is_failed && flush->state != FLUSH_ROLLBACK) {
        if (is_open && !flush->is_lost && pg_conn_is_ready(flush->conn)) {
            rollback_ask(flush);
        } else {
            failed(flush);
        }
        return;
    }
    switch (flush->state) {
    case FLUSH_FLOORS: partitions_begin(flush); return;
    case FLUSH_OPEN: opened(flush); return;
    case FLUSH_WRITE: commit_ask(flush); return;
    case FLUSH_COMMIT: committed(flush); return;
    case FLUSH_ROLLBACK: rolled_back(flush); return;
    case FLUSH_IDLE:
    case FLUSH_PARTITIONS:
    case FLUSH_LOOK: break;
    }
    CHECK(false);
}

void
flush_start(struct flush *flush, const struct flush_task *task)
{
    CHECK(flush->state == FLUSH_IDLE && flush->answers_due == 0);
    flush->task = *task;
    flush->started_us = clock_mono_us();
    flush->is_failed = false;
    flush->is_lost = false;
    flush->is_astray = false;
    flush->is_moved = false;
    flush->epoch_seen = EPOCH_UNSEEN;
    flush->end = (struct flush_end){.flushed_us = FLUSH_ANY_US};
    flush->rows.cells = buffer_flushing(task->buffer, &flush->rows.count);
    if (flush->rows.cells == NULL) {
        flush_fail(flush, "out of memory", "");
        flush_ended(flush, FLUSH_FAILED);
    } else if (!flush->has_floors) {
        floors_ask(flush);
    } else {
        partitions_begin(flush);
    }
}
