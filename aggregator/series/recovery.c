/*
 * recovery.c - ledger rows that no flush has had, folded again.
 *
 *   BEGIN; cursor by writer_seq; FETCH ... until none; ROLLBACK
 *
 * The engine calls it at its start and whenever its buffer is torn, orphan for
 * writers that are gone. The next rows are asked for before the last ones are
 * folded, so server and meterd work at the same time. Nothing is written.
 */

#include "series/recovery.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "pg/tx.h"

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
    struct pg_tx tx;
    recovery_cb cb;
    void *owner;
    struct arena arena; /* of one row */
    struct recovery_task task;
    int64_t events;
    int64_t unfit;
    uint64_t tell_at_ms;
};


/* ---- one row ---------------------------------------------------------- */

static bool
recovery_row_read(const void *result, int row, struct meter_event *event)
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
recovery_unfit(const struct recovery *recovery)
{
    return recovery->arena.no_memory ? FOLD_NO_MEMORY : FOLD_UNFIT;
}

static enum fold_result
recovery_row_fold(struct recovery *recovery, const void *result, int row,
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

    if (!recovery_row_read(result, row, &event)) {
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
        return recovery_unfit(recovery);
    }
    if (!series_project(type, &event, &attributes, arena, &effect, &is_careful,
                        error)) {
        return recovery_unfit(recovery);
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
        return recovery_unfit(recovery);
    }
    return buffer_fold(recovery->task.buffer, &folded) ? FOLD_DONE
                                                       : FOLD_NO_MEMORY;
}


/* ---- all of them ------------------------------------------------------ */

static void
recovery_tell(struct recovery *recovery)
{
    uint64_t now_ms = clock_mono_ms();

    if (now_ms >= recovery->tell_at_ms) {
        recovery->tell_at_ms = now_ms + TELL_MS;
        log_info("series", "recovering", log_int("events", recovery->events),
                 log_int("of", recovery->task.upto - recovery->task.after));
    }
}

static void
recovery_fold(struct recovery *recovery, const void *result)
{
    for (int row = 0; row < pg_row_count(result); row++) {
        const char *error = "no reason is known";

        arena_reset(&recovery->arena);
        recovery->arena.no_memory = false;
        recovery->events++;
        switch (recovery_row_fold(recovery, result, row, &error)) {
        case FOLD_DONE: break;
        case FOLD_NO_MEMORY:
            pg_tx_fail(&recovery->tx, 0, "out of memory");
            return;
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
    recovery_tell(recovery);
}

static void
recovery_rows(void *owner, const void *result)
{
    struct recovery *recovery = owner;

    if (pg_row_count(result) > 0) {
        pg_tx_ask(&recovery->tx, STATEMENT_RECOVERY_EVENTS_FETCH, NULL,
                  recovery_rows);
        pg_tx_flush(&recovery->tx);
        recovery_fold(recovery, result);
    }
}

static void
recovery_all_read(void *owner)
{
    struct recovery *recovery = owner;

    pg_tx_rollback(&recovery->tx);
}

static void
recovery_done(const struct recovery *recovery)
{
    int64_t expected = recovery->task.upto - recovery->task.after;

    metrics.edgemeter_series_recovered_events_total += recovery->events;
    metrics.edgemeter_series_unfit_events_total += recovery->unfit;
    log_info("series", "recovered", log_int("events", recovery->events),
             log_int("unfit", recovery->unfit),
             log_int("upto", recovery->task.upto));
    if (recovery->events != expected) {
        log_error("series", "the ledger lacks rows of this writer",
                  log_int("events", recovery->events), log_int("of", expected));
    }
}

static void
recovery_end(void *owner, enum pg_tx_end end)
{
    struct recovery *recovery = owner;

    config_unref(recovery->task.config);
    if (end == PG_TX_ROLLED_BACK) {
        recovery_done(recovery);
    } else {
        log_warn("series", "recovery failed",
                 log_str("reason", pg_tx_reason(&recovery->tx)));
    }
    recovery->cb(recovery->owner, end == PG_TX_ROLLED_BACK);
}

void
recovery_start(struct recovery *recovery, const struct recovery_task *task)
{
    struct pg_params params;

    recovery->task = *task;
    config_ref(task->config);
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
    pg_tx_begin(&recovery->tx);
    pg_tx_ask(&recovery->tx, STATEMENT_RECOVERY_EVENTS, &params, NULL);
    pg_tx_ask(&recovery->tx, STATEMENT_RECOVERY_EVENTS_FETCH, NULL,
              recovery_rows);
    pg_tx_send(&recovery->tx, recovery_all_read);
    pg_params_fini(&params);
}


/* ---- the beginning and the end ---------------------------------------- */

struct recovery *
recovery_create(struct pg_conn *conn, recovery_cb cb, void *owner)
{
    static const struct pg_tx_events events = {.on_end = recovery_end};
    struct recovery *recovery = memory_alloc(sizeof(*recovery));

    recovery->cb = cb;
    recovery->owner = owner;
    pg_tx_init(&recovery->tx, conn, &events, recovery);
    arena_init(&recovery->arena, ARENA_BLOCK_SIZE, ARENA_SIZE_MAX);
    return recovery;
}

void
recovery_destroy(struct recovery *recovery)
{
    pg_tx_fini(&recovery->tx);
    arena_fini(&recovery->arena);
    free(recovery);
}
