/*
 * batch_counter_rows.c - counter rows as array parameters, see batch_rows.h.
 */

#include "ingest/batch_rows.h"

typedef void (*row_field)(struct buf *out, const struct batch_row *row);

static void
put_tenant(struct buf *out, const struct batch_row *row)
{
    pg_put_text(out, row->tenant);
}

static void
put_name(struct buf *out, const struct batch_row *row)
{
    pg_put_text(out, row->name);
}

static void
put_dimension_key(struct buf *out, const struct batch_row *row)
{
    pg_put_bytes(out, (struct meter_str){(const char *)row->dimension_key,
                                         METER_DIGEST_SIZE});
}

static void
put_dimensions(struct buf *out, const struct batch_row *row)
{
    pg_put_text(out, row->dimensions);
}

static void
put_add(struct buf *out, const struct batch_row *row)
{
    pg_put_int8(out, row->fold.a);
}

static void
put_floor(struct buf *out, const struct batch_row *row)
{
    if (row->fold.has_b) {
        pg_put_int8(out, row->fold.b);
    } else {
        pg_put_null(out);
    }
}

static void
put_value(struct buf *out, const struct batch_row *row)
{
    pg_put_int8(out, row->value);
}

static void
put_column(struct pg_params *out, enum pg_type type, const struct batch *batch,
           size_t from, size_t to, row_field field)
{
    pg_param_array_begin(out, type, to - from);
    for (size_t i = from; i < to; i++) {
        field(&out->bytes, batch->rows[i]);
    }
    pg_param_array_end(out);
}

/* The columns that every statement but counter_lock starts with. */
static void
put_row_keys(struct pg_params *out, const struct batch *batch)
{
    pg_params_reset(out);
    put_column(out, PG_TEXT, batch, 0, batch->row_count, put_tenant);
    put_column(out, PG_TEXT, batch, 0, batch->row_count, put_name);
    put_column(out, PG_BYTEA, batch, 0, batch->row_count, put_dimension_key);
}

void
batch_upsert_params(const struct batch *batch, const struct batch_stamp *stamp,
                    struct pg_params *out)
{
    put_row_keys(out, batch);
    put_column(out, PG_TEXT, batch, 0, batch->row_count, put_dimensions);
    put_column(out, PG_INT8, batch, 0, batch->row_count, put_add);
    put_column(out, PG_INT8, batch, 0, batch->row_count, put_floor);
    pg_param_time(out, stamp->recorded_us);
}

void
batch_ensure_params(const struct batch *batch, const struct batch_stamp *stamp,
                    struct pg_params *out)
{
    put_row_keys(out, batch);
    put_column(out, PG_TEXT, batch, 0, batch->row_count, put_dimensions);
    pg_param_time(out, stamp->recorded_us);
}

void
batch_write_params(const struct batch *batch, const struct batch_stamp *stamp,
                   struct pg_params *out)
{
    put_row_keys(out, batch);
    put_column(out, PG_INT8, batch, 0, batch->row_count, put_value);
    pg_param_time(out, stamp->recorded_us);
}

bool
batch_lock_params(const struct batch *batch, size_t *at, struct pg_params *out)
{
    size_t from = *at;
    size_t to = from;

    if (from == batch->row_count) {
        return false;
    }
    while (
        to < batch->row_count &&
        meter_str_equal(batch->rows[to]->tenant, batch->rows[from]->tenant)) {
        to++;
    }
    pg_params_reset(out);
    pg_param_text(out, batch->rows[from]->tenant);
    put_column(out, PG_TEXT, batch, from, to, put_name);
    put_column(out, PG_BYTEA, batch, from, to, put_dimension_key);
    *at = to;
    return true;
}
