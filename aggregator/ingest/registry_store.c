/*
 * registry_store.c - the registry, for one who only looks.
 *
 *   meterd replay --dry-run -> [registry_store] -> meter.event_registry
 *
 * Opening it reads the salt, by which keys are made, and the database's
 * clock. Then ids are looked up as a lane does, in read-only transactions.
 */

#include "ingest/registry_store.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "pg/blocking.h"
#include "pg/selftest.h"

#include <stdlib.h>

#define SECRET_SIZE 32

/* Look-ups by arrays, as a lane's. */
#define SETTINGS                                                  \
    "role=" STORE_ROLE_WRITER " default_transaction_read_only=on" \
    " enable_seqscan=off enable_hashjoin=off"                     \
    " enable_mergejoin=off enable_bitmapscan=off jit=off"

struct registry_store {
    struct pg_blocking *pg;
    struct meter_salt salt;
    int64_t now_us;
    uint64_t seen_us; /* the monotonic clock, then */
};


static bool
registry_salt_read(struct registry_store *store)
{
    const void *rows = pg_blocking_run(store->pg, STATEMENT_LANE_SECRET, NULL,
                                       "reading the salt");
    struct meter_str secret = {NULL, 0};

    if (rows == NULL) {
        return false;
    }
    if (pg_row_count(rows) > 0) {
        secret = pg_get_bytes(rows, 0, 0);
    }
    if (secret.size != SECRET_SIZE) {
        log_error("store", "the database has no salt");
        return false;
    }
    meter_salt_init(&store->salt, secret.data, secret.size);
    return true;
}


static bool
registry_clock_read(struct registry_store *store)
{
    const void *rows = pg_blocking_run(store->pg, STATEMENT_REGISTRY_CLOCK,
                                       NULL, "reading the clock");

    if (rows == NULL) {
        return false;
    }
    store->now_us = pg_get_time(rows, 0, 0);
    store->seen_us = clock_mono_us();
    return true;
}


struct registry_store *
registry_store_open(const char *url)
{
    struct registry_store *store = memory_alloc(sizeof(*store));

    store->pg = pg_blocking_connect(url, "replay", SETTINGS);
    if (store->pg == NULL || !registry_salt_read(store) ||
        !registry_clock_read(store)) {
        registry_store_close(store);
        return NULL;
    }
    return store;
}


void
registry_store_close(struct registry_store *store)
{
    if (store != NULL) {
        pg_blocking_close(store->pg);
        free(store);
    }
}


const struct meter_salt *
registry_store_salt(const struct registry_store *store)
{
    return &store->salt;
}


int64_t
registry_store_now_us(const struct registry_store *store)
{
    return store->now_us + (int64_t)(clock_mono_us() - store->seen_us);
}


bool
registry_store_known(struct registry_store *store,
                     const struct pg_params *params, registry_row_cb cb,
                     void *asker)
{
    const void *rows = pg_blocking_run(store->pg, STATEMENT_INGEST_KNOWN,
                                       params, "looking up ids");
    bool is_good = rows != NULL;

    for (int row = 0; is_good && row < pg_row_count(rows); row++) {
        is_good = cb(asker, rows, row);
    }
    return is_good;
}
