/*
 * ingest_check.c - a body judged by the gate, without going through it.
 *
 *   request_read -> items -> batch -> registry -> batch_decide -> answer
 *
 * meterd replay --dry-run calls it. Opening the registry reads the salt, by
 * which keys are made, and the database's clock. Then ids are looked up as a
 * lane does, in read-only transactions: nothing here can change a row.
 */

#include "ingest/ingest_check.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "ingest/batch_rows.h"
#include "ingest/request.h"
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

/* The database's clock, carried on by the monotonic one. */
static int64_t
registry_store_now_us(const struct registry_store *store)
{
    return store->now_us + (int64_t)(clock_mono_us() - store->seen_us);
}

/* What the registry knows of the batch. False: no memory, or logged. */
static bool
registry_store_look_up(struct registry_store *store, struct batch *batch)
{
    struct pg_params params;
    const void *rows;
    bool is_good = true;

    pg_params_init(&params);
    if (batch_known_params(batch, &params) > 0) {
        rows = pg_blocking_run(store->pg, STATEMENT_INGEST_KNOWN, &params,
                               "looking up ids");
        is_good = rows != NULL;
        for (int row = 0; is_good && row < pg_row_count(rows); row++) {
            int32_t number = pg_get_int4(rows, row, 0);

            CHECK(number >= 0 && (size_t)number < batch->key_count);
            is_good = batch_known_row(batch, batch->by_key[number], rows, row);
        }
    }
    pg_params_fini(&params);
    return is_good;
}

/* The items that are valid, as a transaction would decide them. */
static bool
ingest_check_decide(struct ingest_request *request,
                    struct registry_store *registry)
{
    struct batch_item **items =
        memory_array(request->item_count, sizeof(*items));
    struct batch batch;
    bool is_good;

    batch_init(&batch);
    for (size_t i = 0; i < request->item_count; i++) {
        items[i] = &request->items[i];
    }
    is_good = batch_load(&batch, items, request->item_count) &&
              registry_store_look_up(registry, &batch);
    if (is_good) {
        batch_decide(&batch, 0, registry_store_now_us(registry));
        request->flying_count = request->item_count;
        for (size_t i = 0; i < request->item_count; i++) {
            request_decide(request, items[i]);
        }
    }
    batch_fini(&batch);
    free(items);
    return is_good;
}

void
ingest_check(struct registry_store *registry, struct config *config,
             const struct ingest_input *input, struct buf *body,
             ingest_answer_cb cb, void *arg)
{
    struct ingest_request *request =
        request_create(NULL, config, body, REQUEST_BODY);

    request->answer.outcome = request_read(request, input, &registry->salt,
                                           registry_store_now_us(registry));
    if (request->answer.outcome == INGEST_DONE && request->item_count > 0 &&
        !ingest_check_decide(request, registry)) {
        request->answer.outcome = INGEST_UNAVAILABLE;
    }
    cb(arg, &request->answer);
    request_free(request);
}
