/*
 * registry_store.c - the registry, for one who only looks.
 *
 *   meterd replay --dry-run -> [registry_store] -> meter.event_registry
 */

#include "store/registry_store.h"

#include "base/clock.h"
#include "base/log.h"
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
    PGconn *pg;
    struct meter_salt salt;
    int64_t now_us;
    uint64_t seen_us; /* the monotonic clock, then */
};

static bool salt_read(struct registry_store *store);
static bool clock_read(struct registry_store *store);


struct registry_store *
registry_store_open(const char *url)
{
    struct registry_store *store = calloc(1, sizeof(*store));

    if (store == NULL) {
        return NULL;
    }
    store->pg = pg_blocking_connect(url, "replay", SETTINGS);
    if (store->pg == NULL || !salt_read(store) || !clock_read(store)) {
        registry_store_close(store);
        return NULL;
    }
    return store;
}


void
registry_store_close(struct registry_store *store)
{
    if (store != NULL) {
        PQfinish(store->pg);
        free(store);
    }
}


static bool
salt_read(struct registry_store *store)
{
    PGresult *rows = pg_blocking_run(store->pg, STATEMENT_LANE_SECRET, NULL);
    bool is_good = pg_blocking_ok(rows, "reading the salt");

    if (is_good) {
        struct meter_str secret = PQntuples(rows) == 0
                                      ? (struct meter_str){NULL, 0}
                                      : pg_get_bytes(rows, 0, 0);

        is_good = secret.size == SECRET_SIZE;
        if (is_good) {
            meter_salt_init(&store->salt, secret.data, secret.size);
        } else {
            log_error("store", "the database has no salt");
        }
    }
    PQclear(rows);
    return is_good;
}


static bool
clock_read(struct registry_store *store)
{
    PGresult *rows = pg_blocking_run(store->pg, STATEMENT_REGISTRY_CLOCK, NULL);
    bool is_good = pg_blocking_ok(rows, "reading the clock");

    if (is_good) {
        store->now_us = pg_get_time(rows, 0, 0);
        store->seen_us = clock_mono_us();
    }
    PQclear(rows);
    return is_good;
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
    PGresult *rows = pg_blocking_run(store->pg, STATEMENT_INGEST_KNOWN, params);
    bool is_good = pg_blocking_ok(rows, "looking up ids");

    for (int row = 0; is_good && row < PQntuples(rows); row++) {
        is_good = cb(asker, rows, row);
    }
    PQclear(rows);
    return is_good;
}
