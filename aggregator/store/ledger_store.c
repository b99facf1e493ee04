/*
 * ledger_store.c - the ledger, read in full, see ledger_store.h.
 *
 *   meterd rebuild|reconcile -> [ledger_store] -> meter.event, projections
 *
 * Rows come one by one from the socket (single-row mode): a result of any
 * size takes the memory of one row.
 */

#include "store/ledger_store.h"

#include "base/log.h"
#include "pg/blocking.h"
#include "pg/selftest.h"
#include "pg/sqlstate.h"

#include <stdlib.h>

#define DAY_US      INT64_C(86400000000)
#define LOCK_TRIES  24 /* of lock_timeout each */
#define CANCEL_SIZE 256
#define NOT_IN_TIME "55P03" /* lock_not_available */
#define DEADLOCK    "40P01"

/* A sort of all events of a tenant; waits for locks are short ones. */
#define SETTINGS                                \
    "role=" STORE_ROLE_WRITER " work_mem=128MB" \
    " statement_timeout=0 lock_timeout=5000"    \
    " idle_in_transaction_session_timeout=600000"

struct ledger_store {
    PGconn *pg;
    struct pg_params params;
};

static enum ledger_lock
run(struct ledger_store *store, enum statement statement);
static void
put_range(struct pg_params *params, const struct ledger_range *range);
static bool row_decode(const void *result, int row, struct meter_str tenant,
                       struct ledger_row *out);
static void drain(PGconn *pg, bool is_cancelled);


/* ---- numbers ---------------------------------------------------------- */

static const struct ledger_seq *
seqs_find(const struct ledger_seqs *seqs, const uint8_t writer[16])
{
    size_t low = 0;
    size_t high = seqs->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = memcmp(seqs->items[middle].writer, writer, 16);

        if (order == 0) {
            return &seqs->items[middle];
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

int64_t
ledger_seqs_last(const struct ledger_seqs *seqs, const uint8_t writer[16])
{
    const struct ledger_seq *found = seqs_find(seqs, writer);

    return found == NULL ? 0 : found->last;
}

void
ledger_seqs_fini(struct ledger_seqs *seqs)
{
    free(seqs->items);
    *seqs = (struct ledger_seqs){NULL, 0};
}

int64_t
ledger_seqs_between(const struct ledger_seqs *earlier,
                    const struct ledger_seqs *later)
{
    int64_t sum = 0;

    for (size_t i = 0; i < later->count; i++) {
        sum += later->items[i].last -
               ledger_seqs_last(earlier, later->items[i].writer);
    }
    return sum;
}

/*
 * What all rows between have a greater recorded_at than: stamps grow with
 * every transaction of a writer. INT64_MIN: not known, of a new writer.
 */
static int64_t
seqs_recorded_from(const struct ledger_seqs *earlier,
                   const struct ledger_seqs *later)
{
    int64_t from_us = INT64_MAX;

    for (size_t i = 0; i < later->count; i++) {
        const struct ledger_seq *now = &later->items[i];
        const struct ledger_seq *then = seqs_find(earlier, now->writer);

        if (now->last == (then == NULL ? 0 : then->last)) {
            continue;
        }
        if (then == NULL) {
            return INT64_MIN;
        }
        from_us = then->stamp_us < from_us ? then->stamp_us : from_us;
    }
    return from_us;
}

bool
ledger_store_seqs(struct ledger_store *store, struct ledger_seqs *out)
{
    PGresult *rows = pg_blocking_run(store->pg, STATEMENT_RECOUNT_SEQS, NULL);

    *out = (struct ledger_seqs){NULL, 0};
    if (!pg_blocking_ok(rows, "read the numbers of the writers")) {
        PQclear(rows);
        return false;
    }
    out->items = calloc((size_t)PQntuples(rows) + 1, sizeof(*out->items));
    if (out->items == NULL) {
        log_error("store", "out of memory");
        PQclear(rows);
        return false;
    }
    out->count = (size_t)PQntuples(rows);
    for (size_t i = 0; i < out->count; i++) {
        struct meter_str writer = pg_get_bytes(rows, (int)i, 0);

        CHECK(writer.size == 16);
        memcpy(out->items[i].writer, writer.data, 16);
        out->items[i].last = pg_get_int8(rows, (int)i, 1);
        out->items[i].stamp_us = pg_get_time(rows, (int)i, 2);
    }
    PQclear(rows);
    return true;
}


/* ---- transactions ----------------------------------------------------- */

struct ledger_store *
ledger_store_open(const char *url, const char *name)
{
    struct ledger_store *store = calloc(1, sizeof(*store));

    if (store == NULL) {
        return NULL;
    }
    pg_params_init(&store->params);
    store->pg = pg_blocking_connect(url, name, SETTINGS);
    if (store->pg == NULL) {
        ledger_store_close(store);
        return NULL;
    }
    return store;
}

void
ledger_store_close(struct ledger_store *store)
{
    if (store == NULL) {
        return;
    }
    PQfinish(store->pg);
    pg_params_fini(&store->params);
    free(store);
}

/* BUSY: of a lock; not logged. */
static enum ledger_lock
run(struct ledger_store *store, enum statement statement)
{
    PGresult *result = pg_blocking_run(store->pg, statement, NULL);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    enum ledger_lock lock = LEDGER_LOCKED;

    if (state != NULL &&
        (strcmp(state, NOT_IN_TIME) == 0 || strcmp(state, DEADLOCK) == 0)) {
        lock = LEDGER_BUSY;
    } else if (!pg_blocking_ok(result, statements[statement].name)) {
        lock = LEDGER_FAILED;
    }
    PQclear(result);
    return lock;
}

enum ledger_lock
ledger_store_begin(struct ledger_store *store, enum statement begin,
                   const enum statement *locks, size_t count)
{
    enum ledger_lock lock = run(store, begin);

    for (size_t i = 0; i < count && lock == LEDGER_LOCKED; i++) {
        lock = run(store, locks[i]);
    }
    if (lock != LEDGER_LOCKED) {
        ledger_store_rollback(store);
    }
    return lock;
}

static bool
read_floor(struct ledger_store *store, int64_t *floor_us)
{
    PGresult *rows;

    pg_params_reset(&store->params);
    pg_param_text(&store->params, METER_STR("event"));
    rows =
        pg_blocking_run(store->pg, STATEMENT_PARTITION_FLOOR, &store->params);
    if (!pg_blocking_ok(rows, "read the oldest day of the ledger")) {
        PQclear(rows);
        return false;
    }
    *floor_us = pg_is_null(rows, 0, 0)
                    ? INT64_MIN
                    : (int64_t)pg_get_date(rows, 0, 0) * DAY_US;
    PQclear(rows);
    return true;
}

/*
 * The lock comes before the snapshot: days that go are gone for both, and
 * the floor, which is raised before they go, is seen.
 */
bool
ledger_store_snapshot(struct ledger_store *store, int64_t *floor_us)
{
    static const enum statement locks[] = {STATEMENT_RECOUNT_HOLD};
    enum ledger_lock lock = LEDGER_BUSY;

    for (int i = 0; i < LOCK_TRIES && lock == LEDGER_BUSY; i++) {
        lock = ledger_store_begin(store, STATEMENT_RECOUNT_BEGIN, locks, 1);
    }
    if (lock == LEDGER_BUSY) {
        log_error("store", "the ledger is locked by someone else");
    }
    if (lock != LEDGER_LOCKED) {
        return false;
    }
    if (!read_floor(store, floor_us)) {
        ledger_store_rollback(store);
        return false;
    }
    return true;
}

enum ledger_lock
ledger_store_exclusive(struct ledger_store *store, bool with_meters)
{
    static const enum statement locks[] = {STATEMENT_RECOUNT_EXCLUSIVE,
                                           STATEMENT_RECOUNT_EXCLUSIVE_METERS};

    return ledger_store_begin(store, STATEMENT_BEGIN, locks,
                              with_meters ? 2 : 1);
}

bool
ledger_store_commit(struct ledger_store *store)
{
    PGresult *result = pg_blocking_run(store->pg, STATEMENT_COMMIT, NULL);
    bool is_good = pg_blocking_ok(result, "commit");

    /* Of a failed transaction it is no error for the server. */
    if (is_good &&
        strcmp(PQcmdStatus(result), statements[STATEMENT_COMMIT].text) != 0) {
        log_error("store", "the transaction had failed before its commit");
        is_good = false;
    }
    PQclear(result);
    return is_good;
}

/* Without a transaction it does nothing; a lost connection ends it too. */
void
ledger_store_rollback(struct ledger_store *store)
{
    if (PQtransactionStatus(store->pg) != PQTRANS_IDLE) {
        PQclear(pg_blocking_run(store->pg, STATEMENT_ROLLBACK, NULL));
    }
}


/* ---- rows ------------------------------------------------------------- */

/* Reads what is left of a statement; cancelled first where no one wants it. */
static void
drain(PGconn *pg, bool is_cancelled)
{
    PGresult *result;

    if (is_cancelled) {
        PGcancel *cancel = PQgetCancel(pg);
        char why[CANCEL_SIZE];

        if (cancel != NULL) {
            (void)PQcancel(cancel, why, sizeof(why));
            PQfreeCancel(cancel);
        }
    }
    while ((result = PQgetResult(pg)) != NULL) {
        PQclear(result);
    }
}

static bool
statement_send(struct ledger_store *store, enum statement statement,
               const struct pg_params *params)
{
    const char *values[PG_PARAM_COUNT_MAX];
    int formats[PG_PARAM_COUNT_MAX];
    int count;

    if (params != NULL && params->bytes.failed) {
        log_error("store", "out of memory",
                  log_str("doing", statements[statement].name));
        return false;
    }
    count = pg_blocking_values(params, values, formats);
    if (PQsendQueryParams(store->pg, statements[statement].text, count, NULL,
                          values, params == NULL ? NULL : params->size, formats,
                          1) != 1 ||
        PQsetSingleRowMode(store->pg) != 1) {
        log_error("store", "database command failed",
                  log_str("doing", statements[statement].name),
                  log_str("reason", PQerrorMessage(store->pg)));
        return false;
    }
    return true;
}

bool
ledger_store_rows(struct ledger_store *store, enum statement statement,
                  const struct pg_params *params, ledger_result_cb cb,
                  void *asker)
{
    PGresult *result;
    bool is_good = statement_send(store, statement, params);

    if (!is_good) {
        drain(store->pg, false);
        return false;
    }
    while ((result = PQgetResult(store->pg)) != NULL) {
        bool is_wanted = true;

        if (PQresultStatus(result) == PGRES_SINGLE_TUPLE) {
            is_wanted = cb != NULL && cb(asker, result, 0);
        } else if (!pg_blocking_ok(result, statements[statement].name)) {
            is_good = false;
        }
        PQclear(result);
        if (!is_wanted) {
            drain(store->pg, true);
            return false;
        }
    }
    return is_good;
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

    if (!row_decode(result, row, reading->tenant, &event)) {
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

bool
ledger_store_events(struct ledger_store *store,
                    const struct ledger_range *range, ledger_row_cb cb,
                    void *asker)
{
    if (range->upto != NULL && range->after != NULL &&
        ledger_seqs_between(range->after, range->upto) == 0) {
        return true;
    }
    put_range(&store->params, range);
    return ledger_store_events_of(store, STATEMENT_RECOUNT_EVENTS,
                                  &store->params, range->tenant, cb, asker);
}

static void
put_time(struct pg_params *params, int64_t ts_us)
{
    if (ts_us == INT64_MIN) {
        pg_param_null(params);
    } else {
        pg_param_time(params, ts_us);
    }
}

static void
put_range(struct pg_params *params, const struct ledger_range *range)
{
    const struct ledger_seqs none = {NULL, 0};
    const struct ledger_seqs *after =
        range->after == NULL ? &none : range->after;

    pg_params_reset(params);
    pg_param_text(params, range->tenant);
    pg_param_array_begin(params, PG_UUID, after->count);
    for (size_t i = 0; i < after->count; i++) {
        pg_put_uuid(&params->bytes, after->items[i].writer);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, after->count);
    for (size_t i = 0; i < after->count; i++) {
        pg_put_int8(&params->bytes, after->items[i].last);
    }
    pg_param_array_end(params);
    put_time(params, range->ts_from_us);
    put_time(params, range->upto == NULL
                         ? INT64_MIN
                         : seqs_recorded_from(after, range->upto));
}

/* Columns as recount_events has them. */
static bool
row_decode(const void *result, int row, struct meter_str tenant,
           struct ledger_row *out)
{
    struct meter_str writer = pg_get_bytes(result, row, 10);

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
    CHECK(writer.size == sizeof(out->writer));
    memcpy(out->writer, writer.data, sizeof(out->writer));
    return pg_get_numeric(result, row, 5, &out->event.quantity);
}
