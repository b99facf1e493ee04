/*
 * recovery.c - ledger rows that no flush has had, folded again.
 *
 *   BEGIN; cursor by writer_seq; FETCH ... until none; COMMIT
 *
 * The next rows are asked for before the last ones are folded, so server
 * and meterd work at the same time.
 */

#include "series/recovery.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

#include <stdlib.h>

#define ARENA_BLOCK_SIZE ((size_t)64 << 10)
#define ARENA_SIZE_MAX   ((size_t)16 << 20)
#define TELL_MS          5000

/* A timestamptz of PostgreSQL: before all others. */
#define MINUS_INFINITY INT64_MIN

/* As they were accepted; what is in the ledger was within. */
static const struct json_limits attribute_limits = {
    .depth_max = METER_JSON_DEPTH_MAX,
    .key_count_max = METER_ATTRIBUTE_COUNT_MAX,
    .name_size_max = METER_EVENT_SIZE_MAX,
    .string_size_max = METER_EVENT_SIZE_MAX,
};

enum recovery_column {
    COLUMN_TENANT,
    COLUMN_EVENT_ID,
    COLUMN_TYPE,
    COLUMN_TS,
    COLUMN_CUSTOMER,
    COLUMN_RESOURCE,
    COLUMN_QUANTITY,
    COLUMN_COUNT,
    COLUMN_ATTRIBUTES,
    COLUMN_SOURCE,
    COLUMN_FLAGS,
    COLUMN_WRITER_SEQ,
    COLUMN_RECORDED_AT,
    COLUMN_FROM_STATE
};

enum fold_result { FOLD_DONE, FOLD_UNFIT, FOLD_NO_MEMORY };

struct recovery {
    struct pg_conn *conn;
    recovery_cb cb;
    void *owner;
    struct arena arena;
    struct recovery_task task;
    size_t answers_due;
    bool is_failed;
    int64_t events;
    int64_t unfit;
    uint64_t tell_at_ms;
};

struct recovery *
recovery_create(struct pg_conn *conn, recovery_cb cb, void *owner)
{
    struct recovery *recovery = calloc(1, sizeof(*recovery));

    if (recovery != NULL) {
        recovery->conn = conn;
        recovery->cb = cb;
        recovery->owner = owner;
        arena_init(&recovery->arena, ARENA_BLOCK_SIZE, ARENA_SIZE_MAX);
    }
    return recovery;
}

void
recovery_destroy(struct recovery *recovery)
{
    if (recovery == NULL) {
        return;
    }
    CHECK(recovery->answers_due == 0);
    arena_fini(&recovery->arena);
    free(recovery);
}


/* ---- one row ---------------------------------------------------------- */

static bool
row_read(const void *result, int row, struct meter_event *event)
{
    *event = (struct meter_event){
        .tenant = pg_get_bytes(result, row, COLUMN_TENANT),
        .event_id = pg_get_bytes(result, row, COLUMN_EVENT_ID),
        .type = pg_get_bytes(result, row, COLUMN_TYPE),
        .ts_us = pg_get_time(result, row, COLUMN_TS),
        .customer = pg_get_bytes(result, row, COLUMN_CUSTOMER),
        .resource = pg_get_bytes(result, row, COLUMN_RESOURCE),
        .count = pg_get_int8(result, row, COLUMN_COUNT),
        .attributes = pg_get_bytes(result, row, COLUMN_ATTRIBUTES),
        .source = pg_get_bytes(result, row, COLUMN_SOURCE),
        .flags = (uint32_t)pg_get_int4(result, row, COLUMN_FLAGS),
    };
    return pg_get_numeric(result, row, COLUMN_QUANTITY, &event->quantity);
}

/* The arena's reason decides whether it is for lack of memory. */
static enum fold_result
unfit(const struct recovery *recovery)
{
    return recovery->arena.no_memory ? FOLD_NO_MEMORY : FOLD_UNFIT;
}

static enum fold_result
row_fold(struct recovery *recovery, const void *result, int row,
         const char **error)
{
    struct arena *arena = &recovery->arena;
    struct meter_event event;
    const struct event_type *type;
    struct json_value attributes;
    struct json_error json_error;
    const void *effect = NULL;
    struct buffer_event folded = {0};
    bool is_careful = false;
    size_t used;

    if (!row_read(result, row, &event)) {
        *error = "its quantity cannot be read";
        return FOLD_UNFIT;
    }
    type = catalog_event_type(recovery->task.config->catalog, event.type);
    if (type == NULL || type->series_count == 0) {
        return FOLD_DONE;
    }
    *error = "its attributes cannot be read";
    if (!json_read(event.attributes, &attribute_limits, arena, &attributes,
                   &used, &json_error) ||
        attributes.kind != JSON_OBJECT) {
        return unfit(recovery);
    }
    if (!series_project(type, &event, &attributes, arena, &effect, &is_careful,
                        error)) {
        return unfit(recovery);
    }
    if (effect == NULL) {
        return FOLD_DONE;
    }
    folded.tenant = event.tenant;
    folded.effect = effect;
    folded.place.ts_us = event.ts_us;
    folded.place.recorded_us = pg_get_time(result, row, COLUMN_RECORDED_AT);
    folded.place.seq = pg_get_int8(result, row, COLUMN_WRITER_SEQ);
    memcpy(folded.place.writer, recovery->task.writer,
           sizeof(folded.place.writer));
    *error = "its states cannot be read";
    if (!series_from_read(effect, pg_get_bytes(result, row, COLUMN_FROM_STATE),
                          arena, &folded.from)) {
        return unfit(recovery);
    }
    return buffer_fold(recovery->task.buffer, &folded) ? FOLD_DONE
                                                       : FOLD_NO_MEMORY;
}


/* ---- all of them ------------------------------------------------------ */

static void
recovery_fail(struct recovery *recovery, const char *why)
{
    if (!recovery->is_failed) {
        log_warn("series", "recovery failed", log_str("reason", why));
    }
    recovery->is_failed = true;
}

static void
tell(struct recovery *recovery)
{
    uint64_t now_ms = clock_mono_ms();

    if (now_ms >= recovery->tell_at_ms) {
        recovery->tell_at_ms = now_ms + TELL_MS;
        log_info("series", "recovering", log_int("events", recovery->events),
                 log_int("of", recovery->task.upto - recovery->task.after));
    }
}

static void
rows_fold(struct recovery *recovery, const void *result)
{
    for (int row = 0; row < pg_row_count(result); row++) {
        const char *error = "no reason is known";

        arena_reset(&recovery->arena);
        recovery->arena.no_memory = false;
        recovery->events++;
        switch (row_fold(recovery, result, row, &error)) {
        case FOLD_DONE: break;
        case FOLD_NO_MEMORY: recovery_fail(recovery, "out of memory"); return;
        case FOLD_UNFIT:
            if (recovery->unfit++ == 0) {
                log_warn("series", "an event no longer fits the rules",
                         log_bytes("event",
                                   pg_get_bytes(result, row, COLUMN_EVENT_ID)),
                         log_str("reason", error));
            }
            break;
        }
    }
    tell(recovery);
}

static void
recovery_end(struct recovery *recovery)
{
    const struct recovery_task *task = &recovery->task;
    bool is_done = !recovery->is_failed;

    config_unref(recovery->task.config);
    if (is_done) {
        metrics.edgemeter_series_recovered_events_total += recovery->events;
        metrics.edgemeter_series_unfit_events_total += recovery->unfit;
        log_info("series", "recovered", log_int("events", recovery->events),
                 log_int("unfit", recovery->unfit),
                 log_int("upto", task->upto));
        if (recovery->events != task->upto - task->after) {
            log_error("series", "the ledger lacks rows of this writer",
                      log_int("events", recovery->events),
                      log_int("of", task->upto - task->after));
        }
    }
    recovery->cb(recovery->owner, is_done);
}

/* False: failed, now or before; the last answer ends it. */
static bool
answer_take(struct recovery *recovery, const struct pg_answer *answer)
{
    CHECK(recovery->answers_due > 0);
    recovery->answers_due--;
    if (answer->outcome == PG_OUTCOME_ERROR) {
        recovery_fail(recovery, answer->message);
    } else if (answer->outcome != PG_OUTCOME_OK) {
        recovery_fail(recovery, "the connection was lost");
    }
    return !recovery->is_failed;
}

static void
end_cb(void *asker, const struct pg_answer *answer)
{
    struct recovery *recovery = asker;

    (void)answer_take(recovery, answer);
    recovery_end(recovery);
}

/* Ends the transaction when nothing is outstanding. */
static void
finish(struct recovery *recovery)
{
    if (recovery->answers_due > 0) {
        return;
    }
    if (!pg_conn_is_ready(recovery->conn)) {
        recovery_end(recovery);
        return;
    }
    recovery->answers_due++;
    pg_conn_command(recovery->conn, STATEMENT_ROLLBACK, end_cb, recovery);
    pg_conn_flush(recovery->conn);
}

static void
plain_cb(void *asker, const struct pg_answer *answer)
{
    struct recovery *recovery = asker;

    (void)answer_take(recovery, answer);
    if (recovery->is_failed) {
        finish(recovery);
    }
}

static void fetch(struct recovery *recovery);

/* What is asked for next may be lost at once: held until the rows are read. */
static void
fetch_cb(void *asker, const struct pg_answer *answer)
{
    struct recovery *recovery = asker;

    if (answer_take(recovery, answer) && pg_row_count(answer->result) > 0) {
        recovery->answers_due += 2;
        fetch(recovery);
        rows_fold(recovery, answer->result);
        recovery->answers_due--;
        if (recovery->answers_due > 0) {
            return;
        }
    }
    finish(recovery);
}

static void
fetch(struct recovery *recovery)
{
    pg_conn_query(recovery->conn, STATEMENT_RECOVERY_EVENTS_FETCH, NULL,
                  fetch_cb, recovery);
    pg_conn_flush(recovery->conn);
}

void
recovery_start(struct recovery *recovery, const struct recovery_task *task)
{
    struct pg_params params;

    CHECK(recovery->answers_due == 0);
    recovery->task = *task;
    config_ref(task->config);
    recovery->is_failed = false;
    recovery->events = 0;
    recovery->unfit = 0;
    recovery->tell_at_ms = clock_mono_ms() + TELL_MS;

    pg_params_init(&params);
    pg_param_uuid(&params, task->writer);
    pg_param_int8(&params, task->after);
    pg_param_int8(&params, task->upto);
    if (task->recorded_us == RECOVERY_ANY_US) {
        pg_param_int8(&params, MINUS_INFINITY);
    } else {
        pg_param_time(&params, task->recorded_us);
    }
    recovery->answers_due = 3; /* BEGIN, the cursor, the first rows */
    pg_conn_command(recovery->conn, STATEMENT_BEGIN, plain_cb, recovery);
    pg_conn_query(recovery->conn, STATEMENT_RECOVERY_EVENTS, &params, plain_cb,
                  recovery);
    fetch(recovery);
    pg_params_fini(&params);
}
