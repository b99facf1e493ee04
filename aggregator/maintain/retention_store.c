/*
 * retention_store.c - what retention reads and changes in the database.
 *
 *   meterd retention -> [retention_store] -> meter_owner's statements
 *
 * Every statement that locks is a transaction of its own, but for a floor:
 * its lock, the look at what is still to be computed, and its new value are
 * one.
 */

#include "maintain/retention_store.h"

#include "base/memory.h"
#include "pg/blocking.h"

#include <stdlib.h>

/* While a lock is waited for, everyone else waits behind it. */
#define SETTINGS "statement_timeout=0 lock_timeout=1000"

struct retention_store {
    struct pg_blocking *pg;
};


struct retention_store *
retention_store_open(const char *url)
{
    struct pg_blocking *pg = pg_blocking_connect(url, "retention", SETTINGS);

    if (pg == NULL) {
        return NULL;
    }

    struct retention_store *store = memory_alloc(sizeof(*store));

    store->pg = pg;
    return store;
}


void
retention_store_close(struct retention_store *store)
{
    if (store != NULL) {
        pg_blocking_close(store->pg);
        free(store);
    }
}


/* ---- statements ------------------------------------------------------- */

/* A statement that waits for a lock; *rows when it was DONE. */
static enum retention_step
retention_lock(struct retention_store *store, enum statement statement,
               const struct pg_params *params, const void **rows)
{
    *rows = pg_blocking_try(store->pg, statement, params);
    if (*rows != NULL) {
        return RETENTION_DONE;
    }
    if (pg_blocking_is_busy(store->pg)) {
        return RETENTION_BUSY;
    }
    pg_blocking_tell(store->pg, statements[statement].name);
    return RETENTION_FAILED;
}


/* One that waits for nothing, and has a row at least. NULL: logged. */
static const void *
retention_ask(struct retention_store *store, enum statement statement,
              const struct pg_params *params)
{
    return pg_blocking_run(store->pg, statement, params, NULL);
}


static struct pg_params *
retention_params(struct retention_store *store, enum partition_parent parent)
{
    struct pg_params *params = pg_blocking_params(store->pg);
    const char *name = partition_parent_name(parent);

    pg_param_text(params, (struct meter_str){name, strlen(name)});
    return params;
}


/* ---- reads ------------------------------------------------------------ */

enum retention_step
retention_store_take(struct retention_store *store)
{
    const void *rows = retention_ask(store, STATEMENT_RETENTION_LOCK, NULL);

    if (rows == NULL) {
        return RETENTION_FAILED;
    }
    return pg_get_bool(rows, 0, 0) ? RETENTION_DONE : RETENTION_BUSY;
}


bool
retention_store_clock(struct retention_store *store,
                      struct retention_clock *out)
{
    const void *rows = retention_ask(store, STATEMENT_RETENTION_CLOCK, NULL);

    if (rows == NULL) {
        return false;
    }
    out->now_us = pg_get_time(rows, 0, 0);
    out->heartbeat_us =
        pg_is_null(rows, 0, 1) ? INT64_MIN : pg_get_time(rows, 0, 1);
    return true;
}


bool
retention_store_floor(struct retention_store *store,
                      enum partition_parent parent, int32_t *floor, int *days)
{
    const void *rows = retention_ask(store, STATEMENT_PARTITION_FLOOR,
                                     retention_params(store, parent));

    if (rows == NULL) {
        return false;
    }
    *days =
        pg_is_null(rows, 0, 2) ? RETENTION_NO_DAYS : pg_get_int4(rows, 0, 2);
    *floor =
        pg_is_null(rows, 0, 0) ? RETENTION_NO_FLOOR : pg_get_date(rows, 0, 0);
    return true;
}


bool
retention_store_keep(struct retention_store *store,
                     enum partition_parent parent, int days)
{
    struct pg_params *params = retention_params(store, parent);

    pg_param_int4(params, days);
    return retention_ask(store, STATEMENT_RETENTION_KEEP, params) != NULL;
}


static int
day_compare(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left;
    int32_t b = *(const int32_t *)right;

    return (a > b) - (a < b);
}


bool
retention_store_below(struct retention_store *store,
                      enum partition_parent parent, int32_t floor,
                      int32_t **days, size_t *count)
{
    const void *rows = retention_ask(store, STATEMENT_PARTITION_DAYS,
                                     retention_params(store, parent));

    if (rows == NULL) {
        return false;
    }
    *count = 0;
    *days = memory_array((size_t)pg_row_count(rows) + 1, sizeof(**days));
    for (int row = 0; row < pg_row_count(rows); row++) {
        int32_t day = pg_get_date(rows, row, 0);

        if (day + partition_span(parent) <= floor) {
            (*days)[(*count)++] = day;
        }
    }
    qsort(*days, *count, sizeof(**days), day_compare);
    return true;
}


bool
retention_store_size(struct retention_store *store,
                     enum partition_parent parent, int32_t day, int64_t *size)
{
    struct pg_params *params = retention_params(store, parent);
    const void *rows;

    pg_param_date(params, day);
    rows = retention_ask(store, STATEMENT_PARTITION_SIZE, params);
    if (rows == NULL) {
        return false;
    }
    *size = pg_is_null(rows, 0, 0) ? 0 : pg_get_int8(rows, 0, 0);
    return true;
}


/* ---- floors ----------------------------------------------------------- */

/* Marks are of the level that they are to be computed of: one above. */
bool
retention_store_marks(struct retention_store *store,
                      enum partition_parent parent, int32_t floor,
                      int64_t *marks)
{
    struct pg_params *params = pg_blocking_params(store->pg);
    const void *rows;

    *marks = 0;
    if (parent < PARTITION_SERIES) {
        return true;
    }
    pg_param_int4(params, (int32_t)parent - PARTITION_SERIES + 1);
    pg_param_time(params, (int64_t)floor * METER_TIME_DAY);
    rows = retention_ask(store, STATEMENT_RETENTION_MARKS, params);
    if (rows == NULL) {
        return false;
    }
    *marks = pg_get_int8(rows, 0, 0);
    return true;
}


/* Inside of its transaction: in vain when there are marks. */
static enum retention_step
retention_floor_raise(struct retention_store *store,
                      enum partition_parent parent, int32_t floor,
                      int64_t *marks)
{
    const void *rows;
    enum retention_step step =
        retention_lock(store, STATEMENT_RETENTION_FLOOR_LOCK,
                       retention_params(store, parent), &rows);

    if (step != RETENTION_DONE) {
        return step;
    }
    if (!retention_store_marks(store, parent, floor, marks)) {
        return RETENTION_FAILED;
    }
    if (*marks > 0) {
        return RETENTION_DONE;
    }

    struct pg_params *params = retention_params(store, parent);

    pg_param_date(params, floor);
    return retention_lock(store, STATEMENT_RETENTION_FLOOR_RAISE, params,
                          &rows);
}


enum retention_step
retention_store_raise(struct retention_store *store,
                      enum partition_parent parent, int32_t floor,
                      int64_t *marks)
{
    enum retention_step step;

    *marks = 0;
    if (retention_ask(store, STATEMENT_BEGIN, NULL) == NULL) {
        return RETENTION_FAILED;
    }
    step = retention_floor_raise(store, parent, floor, marks);
    if (step == RETENTION_DONE && *marks == 0) {
        return pg_blocking_commit(store->pg) ? RETENTION_DONE
                                             : RETENTION_FAILED;
    }
    if (!pg_blocking_rollback(store->pg)) {
        pg_blocking_tell(store->pg, "rollback");
        return RETENTION_FAILED;
    }
    return step;
}


/* ---- writers ---------------------------------------------------------- */

static enum retention_step
retention_writer_pass(struct retention_store *store,
                      struct retention_writer *writer)
{
    struct pg_params *params = pg_blocking_params(store->pg);
    enum retention_step step;
    const void *rows;

    pg_param_uuid(params, writer->writer);
    step =
        retention_lock(store, STATEMENT_RETENTION_WRITER_PASS, params, &rows);
    if (step == RETENTION_DONE) {
        writer->last = pg_row_count(rows) == 0 ? 0 : pg_get_int8(rows, 0, 0);
    }
    return step;
}


enum retention_step
retention_store_pass(struct retention_store *store,
                     struct retention_writer **writers, size_t *count)
{
    const void *rows = retention_ask(store, STATEMENT_RETENTION_WRITERS, NULL);
    enum retention_step step = RETENTION_DONE;

    if (rows == NULL) {
        return RETENTION_FAILED;
    }
    *count = (size_t)pg_row_count(rows);
    *writers = memory_array(*count + 1, sizeof(**writers));
    for (size_t i = 0; i < *count; i++) {
        pg_get_uuid(rows, (int)i, 0, (*writers)[i].writer);
    }
    for (size_t i = 0; step == RETENTION_DONE && i < *count; i++) {
        step = retention_writer_pass(store, &(*writers)[i]);
    }
    if (step != RETENTION_DONE) {
        free(*writers);
        *writers = NULL;
        *count = 0;
    }
    return step;
}


bool
retention_store_unflushed(struct retention_store *store,
                          const struct retention_writer *writers, size_t count,
                          size_t *unflushed)
{
    *unflushed = 0;
    for (size_t i = 0; i < count; i++) {
        struct pg_params *params = pg_blocking_params(store->pg);
        const void *rows;

        pg_param_uuid(params, writers[i].writer);
        pg_param_int8(params, writers[i].last);
        rows = retention_ask(store, STATEMENT_RETENTION_FLUSHED, params);
        if (rows == NULL) {
            return false;
        }
        *unflushed += !pg_get_bool(rows, 0, 0);
    }
    return true;
}


enum retention_step
retention_store_drop(struct retention_store *store,
                     enum partition_parent parent, int32_t day)
{
    struct pg_params *params = retention_params(store, parent);
    const void *rows;

    pg_param_date(params, day);
    return retention_lock(store, STATEMENT_PARTITION_DROP, params, &rows);
}
