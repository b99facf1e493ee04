/*
 * counter_params.c - counter rows and entities as array parameters, see
 * counter_rows.h. One array per column; all arrays of a statement are of one
 * length and in the order of the rows.
 */

#include "project/counter_rows.h"

typedef void (*row_field)(struct buf *out, const struct counter_row *row);
typedef void (*state_field)(struct buf *out, const struct counter_state *state);

static void
put_tenant(struct buf *out, const struct counter_row *row)
{
    pg_put_text(out, row->tenant);
}

static void
put_name(struct buf *out, const struct counter_row *row)
{
    pg_put_text(out, row->name);
}

static void
put_dimension_key(struct buf *out, const struct counter_row *row)
{
    pg_put_bytes(out, (struct meter_str){(const char *)row->dimension_key,
                                         METER_DIGEST_SIZE});
}

static void
put_dimensions(struct buf *out, const struct counter_row *row)
{
    pg_put_text(out, row->dimensions);
}

static void
put_add(struct buf *out, const struct counter_row *row)
{
    if (row->tally.is_unfolded) {
        pg_put_null(out);
    } else {
        pg_put_int8(out, row->tally.fold.a);
    }
}

static void
put_floor(struct buf *out, const struct counter_row *row)
{
    if (row->tally.fold.has_b && !row->tally.is_unfolded) {
        pg_put_int8(out, row->tally.fold.b);
    } else {
        pg_put_null(out);
    }
}

static void
put_value(struct buf *out, const struct counter_row *row)
{
    pg_put_int8(out, row->tally.value);
}

static void
put_seq_first(struct buf *out, const struct counter_row *row)
{
    pg_put_int8(out, row->tally.seq_first);
}

static void
put_seq_last(struct buf *out, const struct counter_row *row)
{
    pg_put_int8(out, row->tally.seq_last);
}

static void
put_column(struct pg_params *out, enum pg_type type,
           const struct counter_rows *rows, row_field field)
{
    pg_param_array_begin(out, type, rows->rows.count);
    for (size_t i = 0; i < rows->rows.count; i++) {
        field(&out->bytes, rows->rows.items[i]);
    }
    pg_param_array_end(out);
}

/* The columns that statements about rows start with. */
static void
put_row_keys(struct pg_params *out, const struct counter_rows *rows)
{
    put_column(out, PG_TEXT, rows, put_tenant);
    put_column(out, PG_TEXT, rows, put_name);
    put_column(out, PG_BYTEA, rows, put_dimension_key);
}

void
counter_upsert_params(const struct counter_rows *rows,
                      const struct projection_stamp *stamp,
                      struct pg_params *out)
{
    put_row_keys(out, rows);
    put_column(out, PG_TEXT, rows, put_dimensions);
    put_column(out, PG_INT8, rows, put_add);
    put_column(out, PG_INT8, rows, put_floor);
    pg_param_time(out, stamp->recorded_us);
}

void
counter_ensure_params(const struct counter_rows *rows, struct pg_params *out)
{
    put_row_keys(out, rows);
    put_column(out, PG_TEXT, rows, put_dimensions);
}

void
counter_lock_params(const struct counter_rows *rows, struct pg_params *out)
{
    put_row_keys(out, rows);
}

void
counter_write_params(const struct counter_rows *rows,
                     const struct projection_stamp *stamp,
                     struct pg_params *out)
{
    put_row_keys(out, rows);
    put_column(out, PG_INT8, rows, put_value);
    pg_param_time(out, stamp->recorded_us);
}

static void
put_audited(struct pg_params *out, enum pg_type type,
            const struct counter_rows *rows, row_field field)
{
    pg_param_array_begin(out, type, rows->audited_count);
    for (size_t i = 0; i < rows->rows.count; i++) {
        const struct counter_row *row = rows->rows.items[i];

        if (row->is_audited) {
            field(&out->bytes, row);
        }
    }
    pg_param_array_end(out);
}

void
counter_audit_params(const struct counter_rows *rows,
                     const struct projection_stamp *stamp,
                     struct pg_params *out)
{
    put_audited(out, PG_TEXT, rows, put_tenant);
    put_audited(out, PG_TEXT, rows, put_name);
    put_audited(out, PG_BYTEA, rows, put_dimension_key);
    put_audited(out, PG_INT8, rows, put_add);
    put_audited(out, PG_INT8, rows, put_floor);
    put_audited(out, PG_INT8, rows, put_seq_first);
    put_audited(out, PG_INT8, rows, put_seq_last);
    pg_param_uuid(out, stamp->writer);
    pg_param_time(out, stamp->clock_us);
}

static void
put_state_tenant(struct buf *out, const struct counter_state *state)
{
    pg_put_text(out, state->tenant);
}

static void
put_state_name(struct buf *out, const struct counter_state *state)
{
    pg_put_text(out, state->name);
}

static void
put_state_entity(struct buf *out, const struct counter_state *state)
{
    pg_put_text(out, state->entity);
}

static void
put_state_key(struct buf *out, const struct counter_state *state)
{
    if (state->now == NULL) {
        pg_put_null(out);
    } else {
        pg_put_bytes(out, (struct meter_str){(const char *)state->now->key,
                                             METER_DIGEST_SIZE});
    }
}

static void
put_state_dimensions(struct buf *out, const struct counter_state *state)
{
    if (state->now == NULL) {
        pg_put_null(out);
    } else {
        pg_put_text(out, state->now->json);
    }
}

static void
put_state_column(struct pg_params *out, enum pg_type type,
                 const struct counter_rows *rows, state_field field)
{
    pg_param_array_begin(out, type, rows->states.count);
    for (size_t i = 0; i < rows->states.count; i++) {
        field(&out->bytes, rows->states.items[i]);
    }
    pg_param_array_end(out);
}

void
counter_states_params(const struct counter_rows *rows, struct pg_params *out)
{
    put_state_column(out, PG_TEXT, rows, put_state_tenant);
    put_state_column(out, PG_TEXT, rows, put_state_name);
    put_state_column(out, PG_TEXT, rows, put_state_entity);
}

void
counter_states_write_params(const struct counter_rows *rows,
                            const struct projection_stamp *stamp,
                            struct pg_params *out)
{
    counter_states_params(rows, out);
    put_state_column(out, PG_BYTEA, rows, put_state_key);
    put_state_column(out, PG_TEXT, rows, put_state_dimensions);
    pg_param_time(out, stamp->recorded_us);
}
