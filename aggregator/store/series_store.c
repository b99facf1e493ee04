/*
 * series_store.c - see series_store.h.
 *
 *   meterd rebuild|reconcile -> [series_store] -> ledger_store
 *                               [series_days] --> meter.partition_make
 */

#include "store/series_store.h"

#include "base/log.h"
#include "meter_time.h"
#include "pg/blocking.h"

#include <stdlib.h>

#define HOLD_TRIES 24 /* of lock_timeout each */
#define ARRAY_HEAD 20 /* dimensions, flags, type, size, first index */
#define DAYS_KNOWN 64

/* As those of the partitions that meterd makes. */
#define DAYS_SETTINGS "statement_timeout=0 lock_timeout=30000"


/* ---- views ------------------------------------------------------------ */

void
series_view_fini(struct series_view *view)
{
    ledger_seqs_fini(&view->flushed);
}

static bool
floor_row(void *asker, const void *result, int row)
{
    struct series_floors *floors = asker;
    struct meter_str name = pg_get_bytes(result, row, 0);
    int64_t floor_us = pg_get_date(result, row, 1) * METER_TIME_DAY;

    if (floor_us <= METER_TIME_MIN) {
        return true; /* nothing has gone yet */
    }
    for (int i = 0; i < PARTITION_PARENTS; i++) {
        const char *parent = partition_parent_name((enum partition_parent)i);

        if (!meter_str_equal(name,
                             (struct meter_str){parent, strlen(parent)})) {
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
    return true;
}

static bool
floors_read(struct ledger_store *store, enum statement statement,
            struct series_floors *floors)
{
    floors->event_us = INT64_MIN;
    floors->index_us = INT64_MIN;
    for (int i = 0; i < METER_LEVEL_COUNT; i++) {
        floors->level_us[i] = INT64_MIN;
    }
    return ledger_store_rows(store, statement, NULL, floor_row, floors);
}

static bool
flush_row(void *asker, const void *result, int row)
{
    struct ledger_seqs *seqs = asker;
    struct ledger_seq *items =
        realloc(seqs->items, (seqs->count + 1) * sizeof(*items));
    struct meter_str writer = pg_get_bytes(result, row, 0);

    if (items == NULL) {
        log_error("store", "out of memory");
        return false;
    }
    CHECK(writer.size == 16);
    seqs->items = items;
    items += seqs->count++;
    memcpy(items->writer, writer.data, 16);
    items->last = pg_get_int8(result, row, 1);
    items->stamp_us = 0;
    return true;
}

/* Ends the transaction when something is wrong. */
static bool
view_read(struct ledger_store *store, enum statement floors,
          struct series_view *view)
{
    *view = (struct series_view){.flushed = {NULL, 0}};
    if (floors_read(store, floors, &view->floors) &&
        ledger_store_rows(store, STATEMENT_SERIES_RECOUNT_FLUSHES, NULL,
                          flush_row, &view->flushed)) {
        return true;
    }
    ledger_store_rollback(store);
    series_view_fini(view);
    return false;
}

/*
 * The tables are held before the snapshot is taken: partitions that go are
 * gone for both, and the floors, which are raised before, are seen.
 */
bool
series_store_snapshot(struct ledger_store *store, struct series_view *view)
{
    static const enum statement locks[] = {STATEMENT_SERIES_RECOUNT_HOLD};
    enum ledger_lock lock = LEDGER_BUSY;

    *view = (struct series_view){.flushed = {NULL, 0}};
    for (int i = 0; i < HOLD_TRIES && lock == LEDGER_BUSY; i++) {
        lock = ledger_store_begin(store, STATEMENT_RECOUNT_BEGIN, locks, 1);
    }
    if (lock == LEDGER_BUSY) {
        log_error("store", "ledger and series are locked by someone else");
    }
    return lock == LEDGER_LOCKED &&
           view_read(store, STATEMENT_SERIES_RECOUNT_FLOORS, view);
}

enum ledger_lock
series_store_exclusive(struct ledger_store *store, struct series_view *view)
{
    static const enum statement locks[] = {STATEMENT_SERIES_RECOUNT_LOCK};
    enum ledger_lock lock =
        ledger_store_begin(store, STATEMENT_BEGIN, locks, 1);

    *view = (struct series_view){.flushed = {NULL, 0}};
    if (lock != LEDGER_LOCKED) {
        return lock;
    }
    return view_read(store, STATEMENT_SERIES_RECOUNT_FLOORS_HOLD, view)
               ? LEDGER_LOCKED
               : LEDGER_FAILED;
}


/* ---- partitions ------------------------------------------------------- */

struct series_days {
    const char *url;
    const char *name;
    PGconn *pg;
    struct pg_params params;
    struct {
        enum partition_parent parent;
        int32_t first;
    } known[DAYS_KNOWN]; /* those made last, in a circle */
    size_t count;
};

struct series_days *
series_days_create(const char *url, const char *name)
{
    struct series_days *days = calloc(1, sizeof(*days));

    if (days != NULL) {
        days->url = url;
        days->name = name;
        pg_params_init(&days->params);
    }
    return days;
}

void
series_days_destroy(struct series_days *days)
{
    if (days == NULL) {
        return;
    }
    PQfinish(days->pg);
    pg_params_fini(&days->params);
    free(days);
}

static bool
is_known(const struct series_days *days, enum partition_parent parent,
         int32_t first)
{
    for (size_t i = 0; i < days->count && i < DAYS_KNOWN; i++) {
        if (days->known[i].parent == parent && days->known[i].first == first) {
            return true;
        }
    }
    return false;
}

static bool
days_connect(struct series_days *days)
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
    PGresult *result;
    bool is_good;

    if (is_known(days, parent, first)) {
        return true;
    }
    if (!days_connect(days)) {
        return false;
    }
    pg_params_reset(&days->params);
    pg_param_text(&days->params, (struct meter_str){table, strlen(table)});
    pg_param_date(&days->params, day);
    result = pg_blocking_run(days->pg, STATEMENT_PARTITION_MAKE, &days->params);
    is_good = pg_blocking_ok(result, "make a partition");
    PQclear(result);
    if (is_good) {
        days->known[days->count % DAYS_KNOWN].parent = parent;
        days->known[days->count % DAYS_KNOWN].first = first;
        days->count++;
    }
    return is_good;
}


/* ---- arrays in answers ------------------------------------------------ */

static uint32_t
word_at(const char *data)
{
    const unsigned char *bytes = (const unsigned char *)data;

    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 |
           (uint32_t)bytes[2] << 8 | bytes[3];
}

bool
series_array_open(const void *result, int row, int column,
                  struct series_array *out)
{
    struct meter_str bytes = pg_get_bytes(result, row, column);

    *out = (struct series_array){{NULL, 0}, 0};
    if (bytes.data == NULL) {
        return true;
    }
    if (bytes.size < 12) {
        return false;
    }
    if (word_at(bytes.data) == 0) {
        return true; /* no dimensions: no elements */
    }
    if (word_at(bytes.data) != 1 || bytes.size < ARRAY_HEAD) {
        return false;
    }
    out->count = word_at(bytes.data + 12);
    out->rest =
        (struct meter_str){bytes.data + ARRAY_HEAD, bytes.size - ARRAY_HEAD};
    return true;
}

bool
series_array_text(struct series_array *array, struct meter_str *out)
{
    uint32_t size;

    if (array->count == 0 || array->rest.size < 4) {
        return false;
    }
    size = word_at(array->rest.data);
    if (size > array->rest.size - 4) {
        return false; /* also a NULL: its size is -1 */
    }
    *out = (struct meter_str){array->rest.data + 4, size};
    array->rest.data += 4 + size;
    array->rest.size -= 4 + size;
    array->count--;
    return true;
}

bool
series_array_int8(struct series_array *array, int64_t *out)
{
    struct meter_str bytes;

    if (!series_array_text(array, &bytes) || bytes.size != 8) {
        return false;
    }
    *out = (int64_t)((uint64_t)word_at(bytes.data) << 32 |
                     word_at(bytes.data + 4));
    return true;
}
