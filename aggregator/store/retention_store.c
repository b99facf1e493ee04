/*
 * retention_store.c - see retention_store.h.
 *
 * Every statement that locks is a transaction of its own, but for a floor:
 * its lock, the look at what is still to be computed, and its new value are
 * one.
 */

#include "store/retention_store.h"

#include "base/log.h"
#include "pg/blocking.h"
#include "pg/sqlstate.h"

#include <stdlib.h>

#define NAME        "retention"
#define NOT_IN_TIME "55P03" /* lock_not_available */
#define DEADLOCK    "40P01"

/* While a lock is waited for, everyone else waits behind it. */
#define SETTINGS "statement_timeout=0 lock_timeout=1000"

struct retention_store {
    PGconn *pg;
    struct pg_params params;
};


struct retention_store *
retention_store_open(const char *url)
{
    struct retention_store *store = calloc(1, sizeof(*store));

    if (store == NULL) {
        log_error(NAME, "out of memory");
        return NULL;
    }
    pg_params_init(&store->params);
    store->pg = pg_blocking_connect(url, NAME, SETTINGS);
    if (store->pg == NULL) {
        retention_store_close(store);
        return NULL;
    }
    return store;
}


void
retention_store_close(struct retention_store *store)
{
    if (store == NULL) {
        return;
    }
    PQfinish(store->pg);
    pg_params_fini(&store->params);
    free(store);
}


/* ---- statements ------------------------------------------------------- */

/* Parameters are in store->params; *rows is for PQclear. */
static enum retention_step
run(struct retention_store *store, enum statement statement, PGresult **rows)
{
    const char *sqlstate;

    *rows = pg_blocking_run(store->pg, statement, &store->params);
    sqlstate = PQresultErrorField(*rows, PG_DIAG_SQLSTATE);
    if (sqlstate != NULL && (strcmp(sqlstate, NOT_IN_TIME) == 0 ||
                             strcmp(sqlstate, DEADLOCK) == 0)) {
        return RETENTION_BUSY;
    }
    return pg_blocking_ok(*rows, statements[statement].name) ? RETENTION_DONE
                                                             : RETENTION_FAILED;
}


/* One that waits for nothing, and has a row at least. NULL: logged. */
static PGresult *
ask(struct retention_store *store, enum statement statement)
{
    PGresult *rows;

    if (run(store, statement, &rows) == RETENTION_DONE) {
        return rows;
    }
    PQclear(rows);
    return NULL;
}


/* Without parameters and rows. */
static enum retention_step
command(struct retention_store *store, enum statement statement)
{
    enum retention_step step;
    PGresult *rows;

    pg_params_reset(&store->params);
    step = run(store, statement, &rows);
    PQclear(rows);
    return step;
}


static void
put_parent(struct retention_store *store, enum partition_parent parent)
{
    const char *name = partition_parent_name(parent);

    pg_params_reset(&store->params);
    pg_param_text(&store->params, (struct meter_str){name, strlen(name)});
}


/* ---- reads ------------------------------------------------------------ */

enum retention_step
retention_store_take(struct retention_store *store)
{
    PGresult *rows;
    bool is_taken;

    pg_params_reset(&store->params);
    rows = ask(store, STATEMENT_RETENTION_LOCK);
    if (rows == NULL) {
        return RETENTION_FAILED;
    }
    is_taken = pg_get_bool(rows, 0, 0);
    PQclear(rows);
    return is_taken ? RETENTION_DONE : RETENTION_BUSY;
}


bool
retention_store_clock(struct retention_store *store,
                      struct retention_clock *out)
{
    PGresult *rows;

    pg_params_reset(&store->params);
    rows = ask(store, STATEMENT_RETENTION_CLOCK);
    if (rows == NULL) {
        return false;
    }
    out->now_us = pg_get_time(rows, 0, 0);
    out->heartbeat_us =
        pg_is_null(rows, 0, 1) ? INT64_MIN : pg_get_time(rows, 0, 1);
    PQclear(rows);
    return true;
}


bool
retention_store_floor(struct retention_store *store,
                      enum partition_parent parent, int32_t *floor, int *days)
{
    PGresult *rows;

    put_parent(store, parent);
    rows = ask(store, STATEMENT_PARTITION_FLOOR);
    if (rows == NULL) {
        return false;
    }
    *days =
        pg_is_null(rows, 0, 2) ? RETENTION_NO_DAYS : pg_get_int4(rows, 0, 2);
    *floor =
        pg_is_null(rows, 0, 0) ? RETENTION_NO_FLOOR : pg_get_date(rows, 0, 0);
    PQclear(rows);
    return true;
}


bool
retention_store_keep(struct retention_store *store,
                     enum partition_parent parent, int days)
{
    PGresult *rows;

    put_parent(store, parent);
    pg_param_int4(&store->params, days);
    rows = ask(store, STATEMENT_RETENTION_KEEP);
    PQclear(rows);
    return rows != NULL;
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
    PGresult *rows;

    put_parent(store, parent);
    rows = ask(store, STATEMENT_PARTITION_DAYS);
    if (rows == NULL) {
        return false;
    }
    *count = 0;
    *days = calloc((size_t)PQntuples(rows) + 1, sizeof(**days));
    for (int row = 0; *days != NULL && row < PQntuples(rows); row++) {
        int32_t day = pg_get_date(rows, row, 0);

        if (day + partition_span(parent) <= floor) {
            (*days)[(*count)++] = day;
        }
    }
    PQclear(rows);
    if (*days == NULL) {
        log_error(NAME, "out of memory");
        return false;
    }
    qsort(*days, *count, sizeof(**days), day_compare);
    return true;
}


bool
retention_store_size(struct retention_store *store,
                     enum partition_parent parent, int32_t day, int64_t *size)
{
    PGresult *rows;

    put_parent(store, parent);
    pg_param_date(&store->params, day);
    rows = ask(store, STATEMENT_PARTITION_SIZE);
    if (rows == NULL) {
        return false;
    }
    *size = pg_is_null(rows, 0, 0) ? 0 : pg_get_int8(rows, 0, 0);
    PQclear(rows);
    return true;
}


/* ---- floors ----------------------------------------------------------- */

/* Marks are of the level that they are to be computed of: one above. */
bool
retention_store_marks(struct retention_store *store,
                      enum partition_parent parent, int32_t floor,
                      int64_t *marks)
{
    PGresult *rows;

    *marks = 0;
    if (parent < PARTITION_SERIES) {
        return true;
    }
    pg_params_reset(&store->params);
    pg_param_int4(&store->params, (int32_t)parent - PARTITION_SERIES + 1);
    pg_param_time(&store->params, (int64_t)floor * METER_TIME_DAY);
    rows = ask(store, STATEMENT_RETENTION_MARKS);
    if (rows == NULL) {
        return false;
    }
    *marks = pg_get_int8(rows, 0, 0);
    PQclear(rows);
    return true;
}


/* Inside of its transaction: in vain when there are marks. */
static enum retention_step
floor_raise(struct retention_store *store, enum partition_parent parent,
            int32_t floor, int64_t *marks)
{
    enum retention_step step;
    PGresult *rows;

    put_parent(store, parent);
    step = run(store, STATEMENT_RETENTION_FLOOR_LOCK, &rows);
    PQclear(rows);
    if (step != RETENTION_DONE) {
        return step;
    }
    if (!retention_store_marks(store, parent, floor, marks)) {
        return RETENTION_FAILED;
    }
    if (*marks > 0) {
        return RETENTION_DONE;
    }
    put_parent(store, parent);
    pg_param_date(&store->params, floor);
    step = run(store, STATEMENT_RETENTION_FLOOR_RAISE, &rows);
    PQclear(rows);
    return step;
}


enum retention_step
retention_store_raise(struct retention_store *store,
                      enum partition_parent parent, int32_t floor,
                      int64_t *marks)
{
    enum retention_step step = command(store, STATEMENT_BEGIN);

    *marks = 0;
    if (step != RETENTION_DONE) {
        return step;
    }
    step = floor_raise(store, parent, floor, marks);
    if (step == RETENTION_DONE && *marks == 0) {
        return command(store, STATEMENT_COMMIT);
    }
    if (command(store, STATEMENT_ROLLBACK) != RETENTION_DONE) {
        return RETENTION_FAILED;
    }
    return step;
}


/* ---- writers ---------------------------------------------------------- */

static enum retention_step
writer_pass(struct retention_store *store, struct retention_writer *writer)
{
    enum retention_step step;
    PGresult *rows;

    pg_params_reset(&store->params);
    pg_param_uuid(&store->params, writer->writer);
    step = run(store, STATEMENT_RETENTION_WRITER_PASS, &rows);
    if (step == RETENTION_DONE) {
        writer->last = PQntuples(rows) == 0 ? 0 : pg_get_int8(rows, 0, 0);
    }
    PQclear(rows);
    return step;
}


enum retention_step
retention_store_pass(struct retention_store *store,
                     struct retention_writer **writers, size_t *count)
{
    enum retention_step step = RETENTION_DONE;
    PGresult *rows;

    pg_params_reset(&store->params);
    rows = ask(store, STATEMENT_RETENTION_WRITERS);
    if (rows == NULL) {
        return RETENTION_FAILED;
    }
    *count = (size_t)PQntuples(rows);
    *writers = calloc(*count + 1, sizeof(**writers));
    if (*writers == NULL) {
        log_error(NAME, "out of memory");
        step = RETENTION_FAILED;
    }
    for (size_t i = 0; step == RETENTION_DONE && i < *count; i++) {
        struct meter_str writer = pg_get_bytes(rows, (int)i, 0);

        CHECK(writer.size == sizeof((*writers)[i].writer));
        memcpy((*writers)[i].writer, writer.data, writer.size);
        step = writer_pass(store, &(*writers)[i]);
    }
    PQclear(rows);
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
        PGresult *rows;

        pg_params_reset(&store->params);
        pg_param_uuid(&store->params, writers[i].writer);
        pg_param_int8(&store->params, writers[i].last);
        rows = ask(store, STATEMENT_RETENTION_FLUSHED);
        if (rows == NULL) {
            return false;
        }
        *unflushed += !pg_get_bool(rows, 0, 0);
        PQclear(rows);
    }
    return true;
}


enum retention_step
retention_store_drop(struct retention_store *store,
                     enum partition_parent parent, int32_t day)
{
    enum retention_step step;
    PGresult *rows;

    put_parent(store, parent);
    pg_param_date(&store->params, day);
    step = run(store, STATEMENT_PARTITION_DROP, &rows);
    PQclear(rows);
    return step;
}
