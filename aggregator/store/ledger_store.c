/*
 * ledger_store.c - ledger and series, read in full, for the commands that
 * recompute.
 *
 *   meterd rebuild|reconcile -> [ledger_store] -> meter.event, projections
 *                               [series view] --> what of it is in the series
 *                               [series days] --> meter.partition_make
 *
 * Rows come one by one from the socket: a result of any size takes the memory
 * of one row. What is read belongs to one transaction, a snapshot or one that
 * keeps writers out; both are begun here, with the locks they need.
 */

#include "store/ledger_store.h"

#include "base/log.h"
#include "base/memory.h"
#include "meter_time.h"
#include "pg/blocking.h"
#include "pg/selftest.h"

#include <stdlib.h>

#define LOCK_TRIES 24 /* of lock_timeout each */
#define DAYS_KNOWN 64

/* A sort of all events of a tenant; waits for locks are short ones. */
#define SETTINGS                                \
    "role=" STORE_ROLE_WRITER " work_mem=128MB" \
    " statement_timeout=0 lock_timeout=5000"    \
    " idle_in_transaction_session_timeout=600000"

/* As those of the partitions that meterd makes. */
#define DAYS_SETTINGS "statement_timeout=0 lock_timeout=30000"

struct ledger_store {
    struct pg_blocking *pg;
};


/* ---- numbers ---------------------------------------------------------- */

void
ledger_seqs_fini(struct ledger_seqs *seqs)
{
    free(seqs->items);
    *seqs = (struct ledger_seqs){NULL, 0};
}

bool
ledger_store_seqs(struct ledger_store *store, struct ledger_seqs *out)
{
    const void *rows = pg_blocking_run(store->pg, STATEMENT_RECOUNT_SEQS, NULL,
                                       "read the numbers of the writers");

    *out = (struct ledger_seqs){NULL, 0};
    if (rows == NULL) {
        return false;
    }
    out->count = (size_t)pg_row_count(rows);
    out->items = memory_array(out->count + 1, sizeof(*out->items));
    for (size_t i = 0; i < out->count; i++) {
        pg_get_uuid(rows, (int)i, 0, out->items[i].writer);
        out->items[i].last = pg_get_int8(rows, (int)i, 1);
        out->items[i].stamp_us = pg_get_time(rows, (int)i, 2);
    }
    return true;
}


/* ---- transactions ----------------------------------------------------- */

struct ledger_store *
ledger_store_open(const char *url, const char *name)
{
    struct pg_blocking *pg = pg_blocking_connect(url, name, SETTINGS);

    if (pg == NULL) {
        return NULL;
    }

    struct ledger_store *store = memory_alloc(sizeof(*store));

    store->pg = pg;
    return store;
}

void
ledger_store_close(struct ledger_store *store)
{
    if (store != NULL) {
        pg_blocking_close(store->pg);
        free(store);
    }
}

/* BUSY is not logged. */
static enum ledger_lock
ledger_lock_take(struct ledger_store *store, enum statement statement)
{
    if (pg_blocking_try(store->pg, statement, NULL) != NULL) {
        return LEDGER_LOCKED;
    }
    if (pg_blocking_is_busy(store->pg)) {
        return LEDGER_BUSY;
    }
    pg_blocking_tell(store->pg, statements[statement].name);
    return LEDGER_FAILED;
}

/* The statement that begins, then the locks. Nothing is open unless LOCKED. */
static enum ledger_lock
ledger_begin(struct ledger_store *store, enum statement begin,
             const enum statement *locks, size_t count)
{
    enum ledger_lock lock = ledger_lock_take(store, begin);

    for (size_t i = 0; i < count && lock == LEDGER_LOCKED; i++) {
        lock = ledger_lock_take(store, locks[i]);
    }
    if (lock != LEDGER_LOCKED) {
        ledger_store_rollback(store);
    }
    return lock;
}

/*
 * The lock comes before the snapshot: partitions that go are gone for both,
 * and the floors, which are raised before they go, are seen.
 */
static bool
ledger_begin_snapshot(struct ledger_store *store, enum statement hold,
                      const char *busy)
{
    enum ledger_lock lock = LEDGER_BUSY;

    for (int i = 0; i < LOCK_TRIES && lock == LEDGER_BUSY; i++) {
        lock = ledger_begin(store, STATEMENT_RECOUNT_BEGIN, &hold, 1);
    }
    if (lock == LEDGER_BUSY) {
        log_error("store", busy);
    }
    return lock == LEDGER_LOCKED;
}

static bool
ledger_floor_read(struct ledger_store *store, int64_t *floor_us)
{
    struct pg_params *params = pg_blocking_params(store->pg);
    const void *rows;

    pg_param_text(params, METER_STR("event"));
    rows = pg_blocking_run(store->pg, STATEMENT_PARTITION_FLOOR, params,
                           "read the oldest day of the ledger");
    if (rows == NULL) {
        return false;
    }
    *floor_us = pg_is_null(rows, 0, 0)
                    ? INT64_MIN
                    : (int64_t)pg_get_date(rows, 0, 0) * METER_TIME_DAY;
    return true;
}

bool
ledger_store_snapshot(struct ledger_store *store, int64_t *floor_us)
{
    if (!ledger_begin_snapshot(store, STATEMENT_RECOUNT_HOLD,
                               "the ledger is locked by someone else")) {
        return false;
    }
    if (!ledger_floor_read(store, floor_us)) {
        ledger_store_rollback(store);
        return false;
    }
    return true;
}

bool
ledger_store_commit(struct ledger_store *store)
{
    return pg_blocking_commit(store->pg);
}

/* A lost connection ends the transaction too. */
void
ledger_store_rollback(struct ledger_store *store)
{
    (void)pg_blocking_rollback(store->pg);
}


/* ---- rows ------------------------------------------------------------- */

bool
ledger_store_rows(struct ledger_store *store, enum statement statement,
                  const struct pg_params *params, ledger_result_cb cb,
                  void *asker)
{
    return pg_blocking_stream(store->pg, statement, params, cb, asker);
}

/* Columns as recount_events has them. */
static bool
ledger_row_decode(const void *result, int row, struct meter_str tenant,
                  struct ledger_row *out)
{
    *out = (struct ledger_row){
        .event =
            {
                .tenant = tenant,
                .event_id = pg_get_bytes(result, row, 0),
                .type = pg_get_bytes(result, row, 1),
                .ts_us = pg_get_time(result, row, 2),
                .customer = pg_get_bytes(result, row, 3),
                .resource = pg_get_bytes(result, row, 4),
                .count = pg_get_int8(result, row, 6),
                .attributes = pg_get_bytes(result, row, 7),
                .source = pg_get_bytes(result, row, 8),
                .flags = (uint32_t)pg_get_int4(result, row, 9),
            },
        .writer_seq = pg_get_int8(result, row, 11),
        .recorded_us = pg_get_time(result, row, 12),
        .is_adjusted = pg_get_bool(result, row, 13),
        .from_state = pg_get_bytes(result, row, 14),
        .clock_us = pg_get_time(result, row, 15),
    };
    pg_get_uuid(result, row, 10, out->writer);
    return pg_get_numeric(result, row, 5, &out->event.quantity);
}

struct events_reading {
    struct meter_str tenant;
    ledger_row_cb cb;
    void *asker;
};

static bool
events_row(void *asker, const void *result, int row)
{
    struct events_reading *reading = asker;
    struct ledger_row event;

    if (!ledger_row_decode(result, row, reading->tenant, &event)) {
        log_error("store", "a row of the ledger cannot be read",
                  log_bytes("tenant", reading->tenant),
                  log_bytes("event_id", event.event.event_id));
        return false;
    }
    return reading->cb(reading->asker, &event);
}

bool
ledger_store_events_of(struct ledger_store *store, enum statement statement,
                       const struct pg_params *params, struct meter_str tenant,
                       ledger_row_cb cb, void *asker)
{
    struct events_reading reading = {tenant, cb, asker};

    return ledger_store_rows(store, statement, params, events_row, &reading);
}

/* ---- series ----------------------------------------------------------- */

void
series_view_fini(struct series_view *view)
{
    ledger_seqs_fini(&view->flushed);
}

static void
series_floor_set(struct series_floors *floors, struct meter_str table,
                 int64_t floor_us)
{
    for (int i = 0; i < PARTITION_PARENTS; i++) {
        const char *name = partition_parent_name((enum partition_parent)i);

        if (!meter_str_equal(table, (struct meter_str){name, strlen(name)})) {
            continue;
        }
        if (i == PARTITION_EVENT) {
            floors->event_us = floor_us;
        } else if (i == PARTITION_INDEX) {
            floors->index_us = floor_us;
        } else if (i >= PARTITION_SERIES) {
            floors->level_us[i - PARTITION_SERIES] = floor_us;
        }
    }
}

static bool
series_floors_read(struct ledger_store *store, enum statement statement,
                   struct series_floors *floors)
{
    const void *rows = pg_blocking_run(store->pg, statement, NULL, NULL);

    floors->event_us = INT64_MIN;
    floors->index_us = INT64_MIN;
    for (int i = 0; i < METER_LEVEL_COUNT; i++) {
        floors->level_us[i] = INT64_MIN;
    }
    for (int row = 0; rows != NULL && row < pg_row_count(rows); row++) {
        int64_t floor_us = pg_get_date(rows, row, 1) * METER_TIME_DAY;

        if (floor_us > METER_TIME_MIN) { /* else nothing has gone yet */
            series_floor_set(floors, pg_get_bytes(rows, row, 0), floor_us);
        }
    }
    return rows != NULL;
}

static bool
series_flushes_read(struct ledger_store *store, struct ledger_seqs *out)
{
    const void *rows = pg_blocking_run(
        store->pg, STATEMENT_SERIES_RECOUNT_FLUSHES, NULL, NULL);

    if (rows == NULL) {
        return false;
    }
    out->count = (size_t)pg_row_count(rows);
    out->items = memory_array(out->count + 1, sizeof(*out->items));
    for (size_t i = 0; i < out->count; i++) {
        pg_get_uuid(rows, (int)i, 0, out->items[i].writer);
        out->items[i].last = pg_get_int8(rows, (int)i, 1);
    }
    return true;
}

/* Ends the transaction when something is wrong. */
static bool
series_view_read(struct ledger_store *store, enum statement floors,
                 struct series_view *view)
{
    *view = (struct series_view){.flushed = {NULL, 0}};
    if (series_floors_read(store, floors, &view->floors) &&
        series_flushes_read(store, &view->flushed)) {
        return true;
    }
    ledger_store_rollback(store);
    series_view_fini(view);
    return false;
}

bool
series_store_snapshot(struct ledger_store *store, struct series_view *view)
{
    *view = (struct series_view){.flushed = {NULL, 0}};
    return ledger_begin_snapshot(
               store, STATEMENT_SERIES_RECOUNT_HOLD,
               "ledger and series are locked by someone else") &&
           series_view_read(store, STATEMENT_SERIES_RECOUNT_FLOORS, view);
}

enum ledger_lock
ledger_store_exclusive(struct ledger_store *store, enum ledger_scope scope,
                       struct series_view *view)
{
    static const struct {
        enum statement locks[2];
        size_t count;
    } scopes[] = {
        [LEDGER_COUNTS] = {{STATEMENT_RECOUNT_EXCLUSIVE}, 1},
        [LEDGER_COUNTS_AND_METERS] = {{STATEMENT_RECOUNT_EXCLUSIVE,
                                       STATEMENT_RECOUNT_EXCLUSIVE_METERS},
                                      2},
        [LEDGER_SERIES] = {{STATEMENT_SERIES_RECOUNT_LOCK}, 1},
    };
    enum ledger_lock lock = ledger_begin(
        store, STATEMENT_BEGIN, scopes[scope].locks, scopes[scope].count);

    if (scope != LEDGER_SERIES) {
        return lock;
    }
    *view = (struct series_view){.flushed = {NULL, 0}};
    if (lock == LEDGER_LOCKED &&
        !series_view_read(store, STATEMENT_SERIES_RECOUNT_FLOORS_HOLD, view)) {
        lock = LEDGER_FAILED;
    }
    return lock;
}


/* ---- partitions ------------------------------------------------------- */

struct series_days {
    const char *url;
    const char *name;
    struct pg_blocking *pg; /* NULL: nothing had to be made yet */
    struct {
        enum partition_parent parent;
        int32_t first;
    } known[DAYS_KNOWN]; /* those made last, in a circle */
    size_t count;
};

struct series_days *
series_days_create(const char *url, const char *name)
{
    struct series_days *days = memory_alloc(sizeof(*days));

    days->url = url;
    days->name = name;
    return days;
}

void
series_days_destroy(struct series_days *days)
{
    if (days != NULL) {
        pg_blocking_close(days->pg);
        free(days);
    }
}

static bool
series_days_is_known(const struct series_days *days,
                     enum partition_parent parent, int32_t first)
{
    for (size_t i = 0; i < days->count && i < DAYS_KNOWN; i++) {
        if (days->known[i].parent == parent && days->known[i].first == first) {
            return true;
        }
    }
    return false;
}

static bool
series_days_connect(struct series_days *days)
{
    if (days->pg != NULL) {
        return true;
    }
    if (days->url == NULL) {
        log_error("store", "a partition may be missing, and adminDatabase, "
                           "which makes them, is not given");
        return false;
    }
    days->pg = pg_blocking_connect(days->url, days->name, DAYS_SETTINGS);
    return days->pg != NULL;
}

bool
series_days_make(struct series_days *days, enum partition_parent parent,
                 int32_t day)
{
    const char *table = partition_parent_name(parent);
    int32_t first = partition_first_day(parent, day);

    if (series_days_is_known(days, parent, first)) {
        return true;
    }
    if (!series_days_connect(days)) {
        return false;
    }

    struct pg_params *params = pg_blocking_params(days->pg);

    pg_param_text(params, (struct meter_str){table, strlen(table)});
    pg_param_date(params, day);
    if (pg_blocking_run(days->pg, STATEMENT_PARTITION_MAKE, params,
                        "make a partition") == NULL) {
        return false;
    }
    days->known[days->count % DAYS_KNOWN].parent = parent;
    days->known[days->count % DAYS_KNOWN].first = first;
    days->count++;
    return true;
}
