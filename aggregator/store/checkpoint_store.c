/*
 * checkpoint_store.c - see checkpoint_store.h.
 *
 *   meter.counter -------------- cursor -+
 *   meter.entity_state --------- cursor -+-> by tenant, then kind -> rows
 *   meter.tenant_usage_metrics - cursor -+
 *
 * Each table comes in the order of its primary key; the three are merged
 * here, a page of each at hand.
 */

#include "store/checkpoint_store.h"

#include "base/log.h"
#include "pg/blocking.h"
#include "pg/selftest.h"

#include <stdio.h>
#include <stdlib.h>

#define SALT_DOMAIN "edgemeter checkpoint salt "

/* A slow disk may keep the snapshot waiting; a slow server takes its time. */
#define SETTINGS                                     \
    "role=" STORE_ROLE_WRITER " statement_timeout=0" \
    " idle_in_transaction_session_timeout=600000"    \
    " cursor_tuple_fraction=1.0"

/* Columns of the tables, as the statements have them. */
enum counter_column {
    COUNTER_TENANT,
    COUNTER_NAME,
    COUNTER_KEY,
    COUNTER_DIMENSIONS,
    COUNTER_VALUE,
    COUNTER_UPDATED
};
enum entity_column {
    ENTITY_TENANT,
    ENTITY_OWNER,
    ENTITY_NAME,
    ENTITY_KEY,
    ENTITY_DIMENSIONS,
    ENTITY_UPDATED
};
enum usage_row_column {
    USAGE_ROW_TENANT,
    USAGE_ROW_FIRST,
    USAGE_ROW_STATUS = USAGE_ROW_FIRST + CHECKPOINT_USAGE_COLUMNS,
    USAGE_ROW_UPDATED
};

/* One table; page NULL: nothing is left. */
struct checkpoint_table {
    PGresult *page;
    int at;
};

struct checkpoint_store {
    PGconn *pg;
    struct checkpoint_header header;
    struct checkpoint_seq *writers;
    int64_t estimate;
    struct checkpoint_table tables[CHECKPOINT_KINDS];
};

static const struct {
    enum statement open;
    enum statement fetch;
} statements_of[CHECKPOINT_KINDS] = {
    [CHECKPOINT_COUNTER] = {STATEMENT_CHECKPOINT_COUNTERS,
                            STATEMENT_CHECKPOINT_COUNTERS_FETCH},
    [CHECKPOINT_ENTITY] = {STATEMENT_CHECKPOINT_ENTITIES,
                           STATEMENT_CHECKPOINT_ENTITIES_FETCH},
    [CHECKPOINT_USAGE] = {STATEMENT_CHECKPOINT_USAGES,
                          STATEMENT_CHECKPOINT_USAGES_FETCH},
};

static bool read_incarnation(struct checkpoint_store *store);
static bool read_head(struct checkpoint_store *store);
static bool read_writers(struct checkpoint_store *store);
static bool
table_open(struct checkpoint_store *store, enum checkpoint_kind kind);
static bool
table_fetch(struct checkpoint_store *store, enum checkpoint_kind kind);
static bool row_decode(const struct checkpoint_table *table,
                       enum checkpoint_kind kind, struct checkpoint_row *row);
static PGresult *run(struct checkpoint_store *store, enum statement statement);


struct checkpoint_store *
checkpoint_store_open(const char *url)
{
    struct checkpoint_store *store = calloc(1, sizeof(*store));
    PGresult *begun;

    if (store == NULL) {
        log_error("checkpoint", "out of memory");
        return NULL;
    }
    store->pg = pg_blocking_connect(url, "checkpoint", SETTINGS);
    if (store->pg == NULL || !read_incarnation(store)) {
        goto failed;
    }
    begun = run(store, STATEMENT_CHECKPOINT_BEGIN);
    if (begun == NULL) {
        goto failed;
    }
    PQclear(begun);
    if (!read_head(store) || !read_writers(store)) {
        goto failed;
    }
    for (int kind = 0; kind < CHECKPOINT_KINDS; kind++) {
        if (!table_open(store, (enum checkpoint_kind)kind)) {
            goto failed;
        }
    }
    return store;

failed:
    checkpoint_store_close(store);
    return NULL;
}


void
checkpoint_store_close(struct checkpoint_store *store)
{
    if (store == NULL) {
        return;
    }
    for (int kind = 0; kind < CHECKPOINT_KINDS; kind++) {
        PQclear(store->tables[kind].page);
    }
    PQfinish(store->pg); /* the snapshot goes with it */
    free(store->writers);
    free(store);
}


const struct checkpoint_header *
checkpoint_store_header(const struct checkpoint_store *store)
{
    return &store->header;
}


int64_t
checkpoint_store_estimate(const struct checkpoint_store *store)
{
    return store->estimate;
}


enum checkpoint_next
checkpoint_store_next(struct checkpoint_store *store,
                      struct checkpoint_row *row)
{
    struct checkpoint_table *first = NULL;
    int kind_first = 0;

    /* A page that was read to its end is kept until now: for the caller. */
    for (int kind = 0; kind < CHECKPOINT_KINDS; kind++) {
        struct checkpoint_table *table = &store->tables[kind];

        if (table->page != NULL && table->at == PQntuples(table->page) &&
            !table_fetch(store, (enum checkpoint_kind)kind)) {
            return CHECKPOINT_NEXT_FAILED;
        }
        if (table->page != NULL &&
            (first == NULL ||
             meter_str_compare(pg_get_bytes(table->page, table->at, 0),
                               pg_get_bytes(first->page, first->at, 0)) < 0)) {
            first = table;
            kind_first = kind;
        }
    }
    if (first == NULL) {
        return CHECKPOINT_NEXT_END;
    }
    if (!row_decode(first, (enum checkpoint_kind)kind_first, row)) {
        log_error("checkpoint", "a row cannot be exported",
                  log_bytes("tenant", row->tenant),
                  log_bytes("name", row->name));
        return CHECKPOINT_NEXT_FAILED;
    }
    first->at++;
    return CHECKPOINT_NEXT_ROW;
}


/* Outside of the transaction, since a server may refuse to tell. */
static bool
read_incarnation(struct checkpoint_store *store)
{
    PGresult *rows =
        pg_blocking_run(store->pg, STATEMENT_LANE_INCARNATION, NULL);
    struct meter_str timeline;

    if (PQresultStatus(rows) == PGRES_TUPLES_OK && PQntuples(rows) == 1) {
        timeline = pg_get_bytes(rows, 0, 1);
        snprintf(store->header.incarnation, sizeof(store->header.incarnation),
                 "%lld %.*s", (long long)pg_get_int8(rows, 0, 0),
                 timeline.size > 8 ? 8 : (int)timeline.size, timeline.data);
    }
    PQclear(rows);
    if (PQstatus(store->pg) != CONNECTION_OK) {
        log_error("checkpoint", "the database connection is lost");
        return false;
    }
    return true;
}


/* The salt itself is a secret. */
static void
salt_digest(struct meter_str salt, uint8_t digest[METER_DIGEST_SIZE])
{
    struct meter_sha256_state state;

    meter_sha256_init(&state);
    meter_sha256_update(&state, SALT_DOMAIN, sizeof(SALT_DOMAIN) - 1);
    meter_sha256_update(&state, salt.data, salt.size);
    meter_sha256_final(&state, digest);
}


static bool
read_head(struct checkpoint_store *store)
{
    PGresult *rows = run(store, STATEMENT_CHECKPOINT_HEAD);
    bool has_salt;

    if (rows == NULL) {
        return false;
    }
    store->header.created_us = pg_get_time(rows, 0, 0);
    store->header.schema_version = pg_get_int4(rows, 0, 1);
    has_salt = !pg_is_null(rows, 0, 2);
    if (has_salt) {
        salt_digest(pg_get_bytes(rows, 0, 2), store->header.salt_digest);
    } else {
        log_error("checkpoint", "the database has no salt");
    }
    store->estimate = pg_get_int8(rows, 0, 3);
    PQclear(rows);
    return has_salt;
}


static bool
read_writers(struct checkpoint_store *store)
{
    PGresult *rows = run(store, STATEMENT_CHECKPOINT_WRITERS);
    size_t count;

    if (rows == NULL) {
        return false;
    }
    count = (size_t)PQntuples(rows);
    store->writers = calloc(count + 1, sizeof(*store->writers));
    if (store->writers == NULL) {
        log_error("checkpoint", "out of memory");
        PQclear(rows);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct meter_str writer = pg_get_bytes(rows, (int)i, 0);

        CHECK(writer.size == sizeof(store->writers[i].writer));
        memcpy(store->writers[i].writer, writer.data, writer.size);
        store->writers[i].last = pg_get_int8(rows, (int)i, 1);
    }
    PQclear(rows);
    store->header.writers = store->writers;
    store->header.writer_count = count;
    return true;
}


static bool
table_open(struct checkpoint_store *store, enum checkpoint_kind kind)
{
    PGresult *opened = run(store, statements_of[kind].open);

    if (opened == NULL) {
        return false;
    }
    PQclear(opened);
    return table_fetch(store, kind);
}


/* The next page of a table that is at the end of its page. */
static bool
table_fetch(struct checkpoint_store *store, enum checkpoint_kind kind)
{
    struct checkpoint_table *table = &store->tables[kind];

    PQclear(table->page);
    table->at = 0;
    table->page = run(store, statements_of[kind].fetch);
    if (table->page == NULL) {
        return false;
    }
    if (PQntuples(table->page) == 0) {
        PQclear(table->page);
        table->page = NULL;
    }
    return true;
}


/* False: a key that is none of ours. */
static bool
place_decode(const PGresult *page, int at, int column,
             struct checkpoint_row *row)
{
    struct meter_str key = pg_get_bytes(page, at, column);

    row->has_dimensions = true;
    row->dimensions = pg_get_bytes(page, at, column + 1);
    if (key.size != sizeof(row->dimension_key)) {
        return false;
    }
    memcpy(row->dimension_key, key.data, key.size);
    return true;
}


static bool
row_decode(const struct checkpoint_table *table, enum checkpoint_kind kind,
           struct checkpoint_row *row)
{
    const PGresult *page = table->page;
    int at = table->at;

    *row = (struct checkpoint_row){.kind = kind,
                                   .tenant = pg_get_bytes(page, at, 0)};
    switch (kind) {
    case CHECKPOINT_COUNTER:
        row->name = pg_get_bytes(page, at, COUNTER_NAME);
        row->value = pg_get_int8(page, at, COUNTER_VALUE);
        row->updated_us = pg_get_time(page, at, COUNTER_UPDATED);
        return place_decode(page, at, COUNTER_KEY, row);
    case CHECKPOINT_ENTITY:
        row->name = pg_get_bytes(page, at, ENTITY_OWNER);
        row->entity = pg_get_bytes(page, at, ENTITY_NAME);
        row->updated_us = pg_get_time(page, at, ENTITY_UPDATED);
        return pg_is_null(page, at, ENTITY_KEY) ||
               place_decode(page, at, ENTITY_KEY, row);
    default:
        for (int i = 0; i < CHECKPOINT_USAGE_COLUMNS; i++) {
            row->usage[i] = pg_get_int8(page, at, USAGE_ROW_FIRST + i);
        }
        row->status = pg_get_bytes(page, at, USAGE_ROW_STATUS);
        row->updated_us = pg_get_time(page, at, USAGE_ROW_UPDATED);
        return true;
    }
}


/* NULL: logged. */
static PGresult *
run(struct checkpoint_store *store, enum statement statement)
{
    PGresult *result = pg_blocking_run(store->pg, statement, NULL);

    if (!pg_blocking_ok(result, statements[statement].name)) {
        PQclear(result);
        return NULL;
    }
    return result;
}
