/*
 * checkpoint_store.c - what a checkpoint holds, read from the database.
 *
 *   meter.counter -------------- cursor -+
 *   meter.entity_state --------- cursor -+-> by tenant, then kind -> rows
 *   meter.tenant_usage_metrics - cursor -+
 *
 * Each table comes in the order of its primary key; the three are merged
 * here, a page of each at hand.
 */

#include "maintain/checkpoint_store.h"

#include "base/log.h"
#include "base/memory.h"
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
    void *page; /* a copy: the others are asked meanwhile */
    int at;
};

struct checkpoint_store {
    struct pg_blocking *pg;
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


/* ---- the head --------------------------------------------------------- */

static const void *
checkpoint_run(struct checkpoint_store *store, enum statement statement)
{
    return pg_blocking_run(store->pg, statement, NULL, NULL);
}


/* Outside of the transaction, since a server may refuse to tell. */
static bool
checkpoint_incarnation_read(struct checkpoint_store *store)
{
    const void *rows =
        pg_blocking_try(store->pg, STATEMENT_LANE_INCARNATION, NULL);

    if (rows == NULL && pg_blocking_sqlstate(store->pg)[0] == '\0') {
        log_error("checkpoint", "the database connection is lost");
        return false;
    }
    if (rows != NULL && pg_row_count(rows) == 1) {
        struct meter_str timeline = pg_get_bytes(rows, 0, 1);

        snprintf(store->header.incarnation, sizeof(store->header.incarnation),
                 "%lld %.*s", (long long)pg_get_int8(rows, 0, 0),
                 timeline.size > 8 ? 8 : (int)timeline.size, timeline.data);
    }
    return true;
}


/* The salt itself is a secret. */
static void
checkpoint_salt_digest(struct meter_str salt, uint8_t digest[METER_DIGEST_SIZE])
{
    struct meter_sha256_state state;

    meter_sha256_init(&state);
    meter_sha256_update(&state, SALT_DOMAIN, sizeof(SALT_DOMAIN) - 1);
    meter_sha256_update(&state, salt.data, salt.size);
    meter_sha256_final(&state, digest);
}


static bool
checkpoint_head_read(struct checkpoint_store *store)
{
    const void *rows = checkpoint_run(store, STATEMENT_CHECKPOINT_HEAD);

    if (rows == NULL) {
        return false;
    }
    if (pg_is_null(rows, 0, 2)) {
        log_error("checkpoint", "the database has no salt");
        return false;
    }
    store->header.created_us = pg_get_time(rows, 0, 0);
    store->header.schema_version = pg_get_int4(rows, 0, 1);
    checkpoint_salt_digest(pg_get_bytes(rows, 0, 2), store->header.salt_digest);
    store->estimate = pg_get_int8(rows, 0, 3);
    return true;
}


static bool
checkpoint_writers_read(struct checkpoint_store *store)
{
    const void *rows = checkpoint_run(store, STATEMENT_CHECKPOINT_WRITERS);

    if (rows == NULL) {
        return false;
    }

    size_t count = (size_t)pg_row_count(rows);

    store->writers = memory_array(count + 1, sizeof(*store->writers));
    for (size_t i = 0; i < count; i++) {
        pg_get_uuid(rows, (int)i, 0, store->writers[i].writer);
        store->writers[i].last = pg_get_int8(rows, (int)i, 1);
    }
    store->header.writers = store->writers;
    store->header.writer_count = count;
    return true;
}


/* ---- tables ----------------------------------------------------------- */

/* The next page of a table that is at the end of its page. */
static bool
checkpoint_table_fetch(struct checkpoint_store *store,
                       enum checkpoint_kind kind)
{
    struct checkpoint_table *table = &store->tables[kind];
    const void *rows = checkpoint_run(store, statements_of[kind].fetch);

    pg_rows_free(table->page);
    *table = (struct checkpoint_table){NULL, 0};
    if (rows != NULL && pg_row_count(rows) > 0) {
        table->page = pg_rows_copy(rows);
        if (table->page == NULL) {
            log_error("checkpoint", "out of memory");
            return false;
        }
    }
    return rows != NULL;
}


static bool
checkpoint_tables_open(struct checkpoint_store *store)
{
    for (int kind = 0; kind < CHECKPOINT_KINDS; kind++) {
        if (checkpoint_run(store, statements_of[kind].open) == NULL ||
            !checkpoint_table_fetch(store, (enum checkpoint_kind)kind)) {
            return false;
        }
    }
    return true;
}


/* False: a key that is none of ours. */
static bool
checkpoint_place_decode(const void *page, int at, int column,
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
checkpoint_row_decode(const struct checkpoint_table *table,
                      enum checkpoint_kind kind, struct checkpoint_row *row)
{
    const void *page = table->page;
    int at = table->at;

    *row = (struct checkpoint_row){.kind = kind,
                                   .tenant = pg_get_bytes(page, at, 0)};
    switch (kind) {
    case CHECKPOINT_COUNTER:
        row->name = pg_get_bytes(page, at, COUNTER_NAME);
        row->value = pg_get_int8(page, at, COUNTER_VALUE);
        row->updated_us = pg_get_time(page, at, COUNTER_UPDATED);
        return checkpoint_place_decode(page, at, COUNTER_KEY, row);
    case CHECKPOINT_ENTITY:
        row->name = pg_get_bytes(page, at, ENTITY_OWNER);
        row->entity = pg_get_bytes(page, at, ENTITY_NAME);
        row->updated_us = pg_get_time(page, at, ENTITY_UPDATED);
        return pg_is_null(page, at, ENTITY_KEY) ||
               checkpoint_place_decode(page, at, ENTITY_KEY, row);
    default:
        for (int i = 0; i < CHECKPOINT_USAGE_COLUMNS; i++) {
            row->usage[i] = pg_get_int8(page, at, USAGE_ROW_FIRST + i);
        }
        row->status = pg_get_bytes(page, at, USAGE_ROW_STATUS);
        row->updated_us = pg_get_time(page, at, USAGE_ROW_UPDATED);
        return true;
    }
}


/* ---- for the commands ------------------------------------------------- */

struct checkpoint_store *
checkpoint_store_open(const char *url)
{
    struct checkpoint_store *store = memory_alloc(sizeof(*store));

    store->pg = pg_blocking_connect(url, "checkpoint", SETTINGS);
    if (store->pg == NULL || !checkpoint_incarnation_read(store) ||
        checkpoint_run(store, STATEMENT_CHECKPOINT_BEGIN) == NULL ||
        !checkpoint_head_read(store) || !checkpoint_writers_read(store) ||
        !checkpoint_tables_open(store)) {
        checkpoint_store_close(store);
        return NULL;
    }
    return store;
}


void
checkpoint_store_close(struct checkpoint_store *store)
{
    if (store == NULL) {
        return;
    }
    for (int kind = 0; kind < CHECKPOINT_KINDS; kind++) {
        pg_rows_free(store->tables[kind].page);
    }
    pg_blocking_close(store->pg); /* the snapshot goes with it */
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

        if (table->page != NULL && table->at == pg_row_count(table->page) &&
            !checkpoint_table_fetch(store, (enum checkpoint_kind)kind)) {
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
    if (!checkpoint_row_decode(first, (enum checkpoint_kind)kind_first, row)) {
        log_error("checkpoint", "a row cannot be exported",
                  log_bytes("tenant", row->tenant),
                  log_bytes("name", row->name));
        return CHECKPOINT_NEXT_FAILED;
    }
    first->at++;
    return CHECKPOINT_NEXT_ROW;
}
