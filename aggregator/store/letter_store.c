/*
 * letter_store.c - dead letters in the database, for the dead-letter command.
 *
 *   meterd dead-letter list|show|replay -> [letter_store] -> meter.dead_letter
 */

#include "store/letter_store.h"

#include "pg/blocking.h"
#include "pg/selftest.h"

#include <stdlib.h>

struct letter_store {
    PGconn *pg;
    struct pg_params params;
};

static PGresult *run(struct letter_store *store, enum statement statement);
static void put_filter(struct letter_store *store,
                       const struct letter_filter *filter, bool with_time);
static void rows_tell(const PGresult *rows, letter_row_cb cb, void *asker);


struct letter_store *
letter_store_open(const char *url)
{
    struct letter_store *store = calloc(1, sizeof(*store));

    if (store == NULL) {
        return NULL;
    }
    pg_params_init(&store->params);
    store->pg =
        pg_blocking_connect(url, "dead-letter", "role=" STORE_ROLE_WRITER);
    if (store->pg == NULL) {
        letter_store_close(store);
        return NULL;
    }
    return store;
}


void
letter_store_close(struct letter_store *store)
{
    if (store == NULL) {
        return;
    }
    PQfinish(store->pg);
    pg_params_fini(&store->params);
    free(store);
}


bool
letter_store_list(struct letter_store *store,
                  const struct letter_filter *filter, letter_row_cb cb,
                  void *asker)
{
    put_filter(store, filter, true);

    PGresult *rows = run(store, STATEMENT_DEAD_LETTER_LIST);

    if (rows == NULL) {
        return false;
    }
    rows_tell(rows, cb, asker);
    PQclear(rows);
    return true;
}


bool
letter_store_reasons(struct letter_store *store,
                     const struct letter_filter *filter, letter_reason_cb cb,
                     void *asker, int64_t *total)
{
    put_filter(store, filter, true);

    PGresult *rows = run(store, STATEMENT_DEAD_LETTER_REASONS);

    *total = 0;
    if (rows == NULL) {
        return false;
    }
    for (int row = 0; row < PQntuples(rows); row++) {
        *total = pg_get_int8(rows, row, 2);
        cb(asker, pg_get_bytes(rows, row, 0), pg_get_int8(rows, row, 1));
    }
    PQclear(rows);
    return true;
}


bool
letter_store_identities(struct letter_store *store,
                        const struct letter_filter *filter,
                        struct letter_identity **out, size_t *count)
{
    put_filter(store, filter, false);

    PGresult *rows = run(store, STATEMENT_DEAD_LETTER_IDENTITIES);

    *out = NULL;
    *count = 0;
    if (rows == NULL) {
        return false;
    }
    *count = (size_t)PQntuples(rows);
    *out = calloc(*count + 1, sizeof(**out));
    for (size_t i = 0; i < *count && *out != NULL; i++) {
        struct meter_str session = pg_get_bytes(rows, (int)i, 0);

        CHECK(session.size == sizeof((*out)[i].session));
        memcpy((*out)[i].session, session.data, session.size);
        (*out)[i].seq = pg_get_int8(rows, (int)i, 1);
    }
    PQclear(rows);
    return *out != NULL;
}


bool
letter_store_read(struct letter_store *store,
                  const struct letter_identity *identities, size_t count,
                  letter_row_cb cb, void *asker)
{
    struct pg_params *params = &store->params;

    pg_params_reset(params);
    pg_param_array_begin(params, PG_UUID, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_uuid(&params->bytes, identities[i].session);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_int8(&params->bytes, identities[i].seq);
    }
    pg_param_array_end(params);

    PGresult *rows = run(store, STATEMENT_DEAD_LETTER_READ);

    if (rows == NULL) {
        return false;
    }
    rows_tell(rows, cb, asker);
    PQclear(rows);
    return true;
}


/* NULL: logged. */
static PGresult *
run(struct letter_store *store, enum statement statement)
{
    PGresult *result = pg_blocking_run(store->pg, statement, &store->params);

    if (!pg_blocking_ok(result, "read dead letters")) {
        PQclear(result);
        return NULL;
    }
    return result;
}


static void
put_filter(struct letter_store *store, const struct letter_filter *filter,
           bool with_time)
{
    struct pg_params *params = &store->params;

    pg_params_reset(params);
    if (filter->tenant == NULL) {
        pg_param_null(params);
    } else {
        pg_param_text(
            params, (struct meter_str){filter->tenant, strlen(filter->tenant)});
    }
    if (with_time && filter->since_us == 0) {
        pg_param_null(params);
    } else if (with_time) {
        pg_param_time(params, filter->since_us);
    }
    pg_param_int8(params, filter->limit);
}


/* Columns as dead_letter_list and dead_letter_read have them. */
static void
rows_tell(const PGresult *rows, letter_row_cb cb, void *asker)
{
    for (int row = 0; row < PQntuples(rows); row++) {
        struct letter_row letter = {
            .tenant = pg_get_bytes(rows, row, 0),
            .has_identity =
                !pg_is_null(rows, row, 1) && !pg_is_null(rows, row, 2),
            .reason = pg_get_bytes(rows, row, 3),
            .record = pg_get_bytes(rows, row, 4),
            .recorded_us = pg_get_time(rows, row, 5),
        };

        if (letter.has_identity) {
            memcpy(letter.identity.session, pg_get_bytes(rows, row, 1).data,
                   sizeof(letter.identity.session));
            letter.identity.seq = pg_get_int8(rows, row, 2);
        }
        if (!pg_is_null(rows, row, 6)) {
            letter.node = pg_get_bytes(rows, row, 6);
        }
        cb(asker, &letter);
    }
}
