/*
 * letter_store.c - dead letters in the database, for the dead-letter command.
 *
 *   meterd dead-letter list|show|replay -> [letter_store] -> meter.dead_letter
 *
 * It only reads, over one connection as meter_writer. Rows go to a callback;
 * nothing of them outlives it.
 */

#include "cmd/letter_store.h"

#include "base/memory.h"
#include "pg/blocking.h"
#include "pg/column.h"
#include "pg/selftest.h"

#include <stdlib.h>

struct letter_store {
    struct pg_blocking *pg;
};


struct letter_store *
letter_store_open(const char *url)
{
    struct pg_blocking *pg =
        pg_blocking_connect(url, "dead-letter", "role=" STORE_ROLE_WRITER);

    if (pg == NULL) {
        return NULL;
    }

    struct letter_store *store = memory_alloc(sizeof(*store));

    store->pg = pg;
    return store;
}


void
letter_store_close(struct letter_store *store)
{
    if (store != NULL) {
        pg_blocking_close(store->pg);
        free(store);
    }
}


/* NULL: logged. */
static const void *
letter_store_run(struct letter_store *store, enum statement statement,
                 const struct pg_params *params)
{
    return pg_blocking_run(store->pg, statement, params, "read dead letters");
}


static struct pg_params *
letter_store_filter(struct letter_store *store,
                    const struct letter_filter *filter, bool with_time)
{
    struct pg_params *params = pg_blocking_params(store->pg);
    const char *tenant = filter->tenant;

    pg_param_text(params, (struct meter_str){
                              tenant, tenant == NULL ? 0 : strlen(tenant)});
    if (with_time && filter->since_us == 0) {
        pg_param_null(params);
    } else if (with_time) {
        pg_param_time(params, filter->since_us);
    }
    pg_param_int8(params, filter->limit);
    return params;
}


/* Columns as dead_letter_list and dead_letter_read have them. */
static bool
letter_rows_tell(const void *rows, letter_row_cb cb, void *asker)
{
    for (int row = 0; rows != NULL && row < pg_row_count(rows); row++) {
        struct letter_row letter = {
            .tenant = pg_get_bytes(rows, row, 0),
            .has_identity =
                !pg_is_null(rows, row, 1) && !pg_is_null(rows, row, 2),
            .reason = pg_get_bytes(rows, row, 3),
            .record = pg_get_bytes(rows, row, 4),
            .recorded_us = pg_get_time(rows, row, 5),
            .node = pg_get_bytes(rows, row, 6),
        };

        if (letter.has_identity) {
            pg_get_uuid(rows, row, 1, letter.identity.session);
            letter.identity.seq = pg_get_int8(rows, row, 2);
        }
        cb(asker, &letter);
    }
    return rows != NULL;
}


bool
letter_store_list(struct letter_store *store,
                  const struct letter_filter *filter, letter_row_cb cb,
                  void *asker)
{
    return letter_rows_tell(
        letter_store_run(store, STATEMENT_DEAD_LETTER_LIST,
                         letter_store_filter(store, filter, true)),
        cb, asker);
}


bool
letter_store_reasons(struct letter_store *store,
                     const struct letter_filter *filter, letter_reason_cb cb,
                     void *asker, int64_t *total)
{
    const void *rows =
        letter_store_run(store, STATEMENT_DEAD_LETTER_REASONS,
                         letter_store_filter(store, filter, true));

    *total = 0;
    for (int row = 0; rows != NULL && row < pg_row_count(rows); row++) {
        *total = pg_get_int8(rows, row, 2);
        cb(asker, pg_get_bytes(rows, row, 0), pg_get_int8(rows, row, 1));
    }
    return rows != NULL;
}


bool
letter_store_identities(struct letter_store *store,
                        const struct letter_filter *filter,
                        struct letter_identity **out, size_t *count)
{
    const void *rows =
        letter_store_run(store, STATEMENT_DEAD_LETTER_IDENTITIES,
                         letter_store_filter(store, filter, false));

    *out = NULL;
    *count = 0;
    if (rows == NULL) {
        return false;
    }
    *count = (size_t)pg_row_count(rows);
    *out = memory_array(*count + 1, sizeof(**out));
    for (size_t i = 0; i < *count; i++) {
        pg_get_uuid(rows, (int)i, 0, (*out)[i].session);
        (*out)[i].seq = pg_get_int8(rows, (int)i, 1);
    }
    return true;
}


bool
letter_store_read(struct letter_store *store,
                  const struct letter_identity *identities, size_t count,
                  letter_row_cb cb, void *asker)
{
    static const struct pg_column columns[] = {
        PG_COLUMN(UUID, struct letter_identity, session),
        PG_COLUMN(INT8, struct letter_identity, seq),
    };
    struct pg_params *params = pg_blocking_params(store->pg);

    pg_param_rows(params, columns, PG_COLUMN_COUNT(columns), identities, count,
                  sizeof(*identities));
    return letter_rows_tell(
        letter_store_run(store, STATEMENT_DEAD_LETTER_READ, params), cb, asker);
}
