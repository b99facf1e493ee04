/*
 * counter_params.c - counter rows and entities as array parameters.
 *
 *   rows, entities -> [column tables] -> parameters of a statement
 *
 * One array for each column; all arrays of a statement are of one length and
 * in the order of the rows.
 */

#include "project/counter_rows.h"

#include "pg/column.h"

#define ROW_COLUMN(kind, member)   PG_COLUMN(kind, struct counter_row, member)
#define STATE_COLUMN(kind, member) PG_COLUMN(kind, struct counter_state, member)

/* Of a fold that left 64 bits there is no a and no b. */
#define ROW_KEY                                       \
    ROW_COLUMN(TEXT, tenant), ROW_COLUMN(TEXT, name), \
        ROW_COLUMN(DIGEST, dimension_key)
#define ROW_FOLD                                                          \
    PG_COLUMN_IF(INT8, struct counter_row, tally.fold.a, tally.has_fold), \
        PG_COLUMN_IF(INT8, struct counter_row, tally.fold.b, tally.fold.has_b)

#define ROW_KEY_COLUMNS    3
#define ROW_ENSURE_COLUMNS 4

/* The first three are the key, the first four make a row. */
static const struct pg_column upsert_columns[] = {
    ROW_KEY,
    ROW_COLUMN(TEXT, dimensions),
    ROW_FOLD,
};

static const struct pg_column write_columns[] = {
    ROW_KEY,
    ROW_COLUMN(INT8, tally.value),
};

static const struct pg_column audit_columns[] = {
    ROW_KEY,
    ROW_FOLD,
    ROW_COLUMN(INT8, tally.seq_first),
    ROW_COLUMN(INT8, tally.seq_last),
};

#define STATE_KEY_COLUMNS 3

/* The first three are the key. */
static const struct pg_column state_columns[] = {
    STATE_COLUMN(TEXT, tenant),       STATE_COLUMN(TEXT, name),
    STATE_COLUMN(TEXT, entity),       STATE_COLUMN(BYTES, written_key),
    STATE_COLUMN(TEXT, written_json),
};

static void
put_rows(struct pg_params *out, const struct counter_rows *rows,
         const struct pg_column *columns, size_t count)
{
    pg_param_pointers(out, columns, count,
                      (const void *const *)rows->rows.items, rows->rows.count);
}

static void
put_states(struct pg_params *out, const struct counter_rows *rows, size_t count)
{
    pg_param_pointers(out, state_columns, count,
                      (const void *const *)rows->states.items,
                      rows->states.count);
}

void
counter_upsert_params(const struct counter_rows *rows,
                      const struct projection_stamp *stamp,
                      struct pg_params *out)
{
    put_rows(out, rows, upsert_columns, PG_COLUMN_COUNT(upsert_columns));
    pg_param_time(out, stamp->recorded_us);
}

void
counter_ensure_params(const struct counter_rows *rows, struct pg_params *out)
{
    put_rows(out, rows, upsert_columns, ROW_ENSURE_COLUMNS);
}

void
counter_lock_params(const struct counter_rows *rows, struct pg_params *out)
{
    put_rows(out, rows, upsert_columns, ROW_KEY_COLUMNS);
}

void
counter_write_params(const struct counter_rows *rows,
                     const struct projection_stamp *stamp,
                     struct pg_params *out)
{
    put_rows(out, rows, write_columns, PG_COLUMN_COUNT(write_columns));
    pg_param_time(out, stamp->recorded_us);
}

static const void *
audited_next(const void *data, size_t *cursor)
{
    const struct counter_rows *rows = data;

    while (*cursor < rows->rows.count) {
        const struct counter_row *row = rows->rows.items[(*cursor)++];

        if (row->is_audited) {
            return row;
        }
    }
    return NULL;
}

void
counter_audit_params(const struct counter_rows *rows,
                     const struct projection_stamp *stamp,
                     struct pg_params *out)
{
    pg_param_columns(out, audit_columns, PG_COLUMN_COUNT(audit_columns), rows,
                     rows->audited_count, audited_next);
    pg_param_uuid(out, stamp->writer);
    pg_param_time(out, stamp->clock_us);
}

void
counter_states_params(const struct counter_rows *rows, struct pg_params *out)
{
    put_states(out, rows, STATE_KEY_COLUMNS);
}

void
counter_states_write_params(const struct counter_rows *rows,
                            const struct projection_stamp *stamp,
                            struct pg_params *out)
{
    for (size_t i = 0; i < rows->states.count; i++) {
        struct counter_state *state = rows->states.items[i];
        const struct dimension_set *now = state->now;

        state->written_key = (struct meter_str){NULL, 0};
        state->written_json = (struct meter_str){NULL, 0};
        if (now != NULL) {
            state->written_key =
                (struct meter_str){(const char *)now->key, METER_DIGEST_SIZE};
            state->written_json = now->json;
        }
    }
    put_states(out, rows, PG_COLUMN_COUNT(state_columns));
    pg_param_time(out, stamp->recorded_us);
}
