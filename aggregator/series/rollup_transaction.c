/*
 * rollup_transaction.c - one batch of marks, one transaction.
 *
 *   BEGIN; writer FOR SHARE; floors FOR SHARE; take marks
 *     -> partitions missing: ROLLBACK, make them, sweep again
 *   make and lock the buckets; mark the level above; recompute
 *   delete those that have nothing below; COMMIT
 *
 * The marks are taken before the level below is read, and it is read behind
 * the locks of its buckets: whoever commits children later has marks that
 * stay, and of two that compute the same bucket the second one reads all that
 * the first one has.
 */

#include "base/crash_point.h"
#include "base/log.h"
#include "base/metrics.h"
#include "series/rollup_state.h"

#define DAYS_AT_ONCE  32
#define FLOOR_UNKNOWN INT64_MAX

/* Of each level, by what it is computed from. */
static const struct {
    enum statement ensure;
    enum statement recompute;
    enum statement empty_delete;
} statements_of[METER_LEVEL_COUNT] = {
    [METER_LEVEL_1M] = {STATEMENT_SERIES_ENSURE_5S,
                        STATEMENT_SERIES_RECOMPUTE_5S,
                        STATEMENT_SERIES_EMPTY_DELETE_5S},
    [METER_LEVEL_1H] = {STATEMENT_SERIES_ENSURE_1M,
                        STATEMENT_SERIES_RECOMPUTE_1M,
                        STATEMENT_SERIES_EMPTY_DELETE_1M},
    [METER_LEVEL_1D] = {STATEMENT_SERIES_ENSURE_1H,
                        STATEMENT_SERIES_RECOMPUTE_1H,
                        STATEMENT_SERIES_EMPTY_DELETE_1H},
    [METER_LEVEL_7D] = {STATEMENT_SERIES_ENSURE_1D,
                        STATEMENT_SERIES_RECOMPUTE_1D,
                        STATEMENT_SERIES_EMPTY_DELETE_1D},
};

static void plain_cb(void *asker, const struct pg_answer *answer);
static void writer_cb(void *asker, const struct pg_answer *answer);
static void floors_cb(void *asker, const struct pg_answer *answer);
static void take_ask(struct rollup *rollup, struct pg_params *params);
static void take_cb(void *asker, const struct pg_answer *answer);
static bool take_rows(struct rollup *rollup, const void *result);
static void batch_none(struct rollup *rollup);
static void none_cb(void *asker, const struct pg_answer *answer);
static bool partitions_exist(struct rollup *rollup);
static void batch_write(struct rollup *rollup);
static void recompute_cb(void *asker, const struct pg_answer *answer);
static void batch_empty_delete(struct rollup *rollup);
static void batch_commit(struct rollup *rollup);
static void commit_cb(void *asker, const struct pg_answer *answer);


void
rollup_transaction_begin(struct rollup *rollup)
{
    struct pg_conn *conn = rollup->conn;
    struct pg_params params;

    rollup_batch_reset(&rollup->batch, rollup->level);
    rollup->floor_us = FLOOR_UNKNOWN;
    rollup->taken = 0;
    pg_conn_command(conn, STATEMENT_BEGIN, plain_cb, rollup);

    pg_params_init(&params);
    pg_param_uuid(&params, lane_writer(rollup->lane));
    pg_conn_query(conn, STATEMENT_INGEST_LOCK_WRITER, &params, writer_cb,
                  rollup);
    pg_conn_query(conn, STATEMENT_ROLLUP_FLOORS, NULL, floors_cb, rollup);
    pg_params_reset(&params);
    take_ask(rollup, &params);
    pg_conn_flush(conn);
    pg_params_fini(&params);
}


/* Only where it is careful, some marks are passed over. */
static void
take_ask(struct rollup *rollup, struct pg_params *params)
{
    const struct rollup_aside *aside = &rollup->aside;
    enum statement statement = STATEMENT_SERIES_DIRTY_TAKE;

    pg_param_int4(params, rollup->level);
    pg_param_int8(params, (int64_t)aside->limit);
    rollup->is_careful = rollup_aside_is_careful(aside);
    if (rollup->is_careful) {
        statement = STATEMENT_SERIES_DIRTY_TAKE_OTHERS;
        pg_param_array_begin(params, PG_INT8, aside->count);
        for (size_t i = 0; i < aside->count; i++) {
            pg_put_int8(&params->bytes, aside->ids[i]);
        }
        pg_param_array_end(params);
    }
    pg_conn_query(rollup->conn, statement, params, take_cb, rollup);
}


static void
plain_cb(void *asker, const struct pg_answer *answer)
{
    (void)rollup_answer_ok(asker, answer);
}


static void
writer_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;

    if (!rollup_answer_ok(rollup, answer)) {
        return;
    }

    int64_t epoch = pg_row_count(answer->result) == 0
                        ? 0
                        : pg_get_int8(answer->result, 0, 0);

    if (epoch != lane_epoch(rollup->lane)) {
        lane_fenced(rollup->lane, epoch);
    }
}


static void
floors_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;
    enum partition_parent below = PARTITION_SERIES + rollup->level - 1;
    const char *name = partition_parent_name(below);

    if (!rollup_answer_ok(rollup, answer)) {
        return;
    }
    for (int row = 0; row < pg_row_count(answer->result); row++) {
        struct meter_str parent = pg_get_bytes(answer->result, row, 0);

        if (meter_str_equal(parent, (struct meter_str){name, strlen(name)})) {
            rollup->floor_us =
                pg_get_date(answer->result, row, 1) * METER_TIME_DAY;
        }
    }
}


static void
take_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;

    if (!rollup_answer_ok(rollup, answer)) {
        return;
    }
    rollup->taken = (size_t)pg_row_count(answer->result);
    if (rollup->taken == 0) {
        batch_none(rollup);
        return;
    }
    if (rollup->is_careful) {
        rollup->taken_id = pg_get_int8(answer->result, 0, 6);
    }
    if (!take_rows(rollup, answer->result)) {
        rollup->is_failed = true;
        pg_conn_reset(rollup->conn, "a rollup cannot be done");
        return;
    }
    if (rollup->batch.buckets.count == 0) {
        batch_commit(rollup); /* all are below the floor */
        return;
    }
    if (partitions_exist(rollup)) {
        batch_write(rollup);
    }
}


static bool
take_rows(struct rollup *rollup, const void *result)
{
    if (rollup->floor_us == FLOOR_UNKNOWN) {
        log_error("rollup", "a level has no floor",
                  log_str("series_level", meter_level_name(rollup->level - 1)));
        return false;
    }
    for (int row = 0; row < pg_row_count(result); row++) {
        struct rollup_mark mark = {
            .tenant = pg_get_bytes(result, row, 0),
            .series = pg_get_bytes(result, row, 1),
            .version = pg_get_int8(result, row, 2),
            .dimension_key = pg_get_bytes(result, row, 3),
            .bucket_us = pg_get_time(result, row, 4),
            .marked_us = pg_get_time(result, row, 5),
        };

        if (!rollup_batch_add(&rollup->batch, &mark)) {
            log_error("rollup", "out of memory");
            return false;
        }
    }
    return rollup_batch_settle(&rollup->batch, rollup->floor_us);
}


/* No marks, or another instance has them in its hands. */
static void
batch_none(struct rollup *rollup)
{
    pg_conn_command(rollup->conn, STATEMENT_ROLLBACK, none_cb, rollup);
    pg_conn_flush(rollup->conn);
}


static void
none_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;

    if (rollup_answer_ok(rollup, answer)) {
        rollup_batch_done(rollup);
    }
}


/* False: they are being made, and the batch comes again. */
static bool
partitions_exist(struct rollup *rollup)
{
    enum partition_parent parent = PARTITION_SERIES + rollup->level;
    const struct rollup_marks *buckets = &rollup->batch.buckets;
    int32_t missing[DAYS_AT_ONCE];
    size_t count = 0;
    int32_t known = INT32_MIN;

    for (size_t i = 0; i < buckets->count && count < DAYS_AT_ONCE; i++) {
        int32_t day = meter_time_day(buckets->list[i].bucket_us);
        bool is_new = day != known;

        known = day;
        if (!is_new || partition_exists(rollup->partition, parent, day)) {
            continue;
        }
        for (size_t j = 0; j < count && is_new; j++) {
            is_new = partition_first_day(parent, missing[j]) !=
                     partition_first_day(parent, day);
        }
        if (is_new) {
            missing[count++] = day;
        }
    }
    if (count == 0) {
        return true;
    }
    rollup_partitions_due(rollup);
    partition_make(rollup->partition, parent, missing, count,
                   rollup_partitions_made_cb, rollup);
    return false;
}


static void
batch_write(struct rollup *rollup)
{
    const struct rollup_batch *batch = &rollup->batch;
    struct pg_conn *conn = rollup->conn;
    struct pg_params params;
    int64_t first_us;
    int64_t end_us;

    pg_params_init(&params);
    rollup_marks_put(&batch->buckets, &params);
    pg_conn_query(conn, statements_of[batch->level].ensure, &params, plain_cb,
                  rollup);
    if (batch->above.count > 0) {
        struct pg_params above;

        pg_params_init(&above);
        pg_param_int4(&above, batch->level + 1);
        rollup_marks_put(&batch->above, &above);
        rollup_marks_put_marked(&batch->above, &above);
        pg_conn_query(conn, STATEMENT_SERIES_DIRTY_MARK, &above, plain_cb,
                      rollup);
        pg_params_fini(&above);
    }
    rollup_batch_put_ends(batch, &params);
    rollup_batch_range(batch, &first_us, &end_us);
    pg_param_time(&params, first_us);
    pg_param_time(&params, end_us);
    pg_conn_query(conn, statements_of[batch->level].recompute, &params,
                  recompute_cb, rollup);
    pg_conn_flush(conn);
    pg_params_fini(&params);
}


static void
recompute_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;

    if (!rollup_answer_ok(rollup, answer)) {
        return;
    }
    CRASH_POINT("inside_rollup");
    if (pg_get_int8(answer->result, 0, 0) > 0) {
        batch_empty_delete(rollup);
    }
    batch_commit(rollup);
}


/* A statement for each series of a tenant. */
static void
batch_empty_delete(struct rollup *rollup)
{
    const struct rollup_batch *batch = &rollup->batch;
    struct pg_params params;
    int64_t first_us;
    int64_t end_us;

    rollup_batch_range(batch, &first_us, &end_us);
    pg_params_init(&params);
    for (size_t from = 0; from < batch->buckets.count;) {
        pg_params_reset(&params);
        from = rollup_marks_put_series(&batch->buckets, from, &params);
        pg_param_time(&params, first_us);
        pg_param_time(&params, end_us);
        pg_conn_query(rollup->conn, statements_of[batch->level].empty_delete,
                      &params, plain_cb, rollup);
    }
    pg_params_fini(&params);
}


static void
batch_commit(struct rollup *rollup)
{
    CRASH_POINT("before_rollup_commit");
    pg_conn_command(rollup->conn, STATEMENT_COMMIT, commit_cb, rollup);
    pg_conn_flush(rollup->conn);
}


static void
commit_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;

    if (rollup_answer_ok(rollup, answer)) {
        CRASH_POINT("after_rollup_commit");
        metrics.edgemeter_rollups_total += (int64_t)rollup->batch.buckets.count;
        rollup_batch_done(rollup);
    }
}
