/*
 * column.c - rows of a struct as array parameters and COPY rows.
 *
 *   struct + column table -> [column] -> pg_params or a COPY stream
 */

#include "pg/column.h"

static void
column_put(struct buf *out, const struct pg_column *column, const void *row)
{
    const char *at = (const char *)row + column->offset;
    int64_t number = 0;

    if (column->is_optional &&
        !*(const bool *)((const char *)row + column->has_offset)) {
        pg_put_null(out);
        return;
    }
    switch (column->field) {
    case PG_FIELD_TEXT: pg_put_text(out, *(const struct meter_str *)at); return;
    case PG_FIELD_BYTES:
        pg_put_bytes(out, *(const struct meter_str *)at);
        return;
    case PG_FIELD_DIGEST:
        pg_put_bytes(out, (struct meter_str){at, column->size});
        return;
    case PG_FIELD_UUID: pg_put_uuid(out, (const uint8_t *)at); return;
    case PG_FIELD_BOOL: pg_put_bool(out, *(const bool *)at); return;
    case PG_FIELD_NUMERIC:
        pg_put_numeric(out, *(const struct meter_decimal *)at);
        return;
    case PG_FIELD_SUM: pg_put_sum(out, *(const struct decimal_sum *)at); return;
    case PG_FIELD_INT8:
    case PG_FIELD_TIME: number = *(const int64_t *)at; break;
    case PG_FIELD_INT4:
    case PG_FIELD_DATE: number = *(const int32_t *)at; break;
    case PG_FIELD_INT2: number = *(const int16_t *)at; break;
    }
    if (column->is_nullable && number == column->null_if) {
        pg_put_null(out);
        return;
    }
    switch (column->field) {
    case PG_FIELD_INT8: pg_put_int8(out, number); return;
    case PG_FIELD_TIME: pg_put_time(out, number); return;
    case PG_FIELD_INT4: pg_put_int4(out, (int32_t)number); return;
    case PG_FIELD_DATE: pg_put_date(out, (int32_t)number); return;
    case PG_FIELD_INT2: pg_put_int2(out, (int16_t)number); return;
    default: CHECK(false);
    }
}

static enum pg_type
column_type(const struct pg_column *column)
{
    static const enum pg_type types[] = {
        [PG_FIELD_TEXT] = PG_TEXT,        [PG_FIELD_BYTES] = PG_BYTEA,
        [PG_FIELD_DIGEST] = PG_BYTEA,     [PG_FIELD_UUID] = PG_UUID,
        [PG_FIELD_INT8] = PG_INT8,        [PG_FIELD_INT4] = PG_INT4,
        [PG_FIELD_INT2] = PG_INT2,        [PG_FIELD_BOOL] = PG_BOOL,
        [PG_FIELD_TIME] = PG_TIMESTAMPTZ, [PG_FIELD_DATE] = PG_DATE,
        [PG_FIELD_NUMERIC] = PG_NUMERIC,  [PG_FIELD_SUM] = PG_NUMERIC,
    };

    return types[column->field];
}

void
pg_param_columns(struct pg_params *params, const struct pg_column *columns,
                 size_t column_count, const void *rows, size_t row_count,
                 pg_row_next next)
{
    for (size_t i = 0; i < column_count; i++) {
        size_t cursor = 0;
        size_t put = 0;
        const void *row;

        pg_param_array_begin(params, column_type(&columns[i]), row_count);
        while ((row = next(rows, &cursor)) != NULL) {
            column_put(&params->bytes, &columns[i], row);
            put++;
        }
        CHECK(put == row_count);
        pg_param_array_end(params);
    }
}

void
pg_param_rows(struct pg_params *params, const struct pg_column *columns,
              size_t column_count, const void *rows, size_t row_count,
              size_t row_size)
{
    for (size_t i = 0; i < column_count; i++) {
        const char *row = rows;

        pg_param_array_begin(params, column_type(&columns[i]), row_count);
        for (size_t j = 0; j < row_count; j++, row += row_size) {
            column_put(&params->bytes, &columns[i], row);
        }
        pg_param_array_end(params);
    }
}

void
pg_param_pointers(struct pg_params *params, const struct pg_column *columns,
                  size_t column_count, const void *const *rows,
                  size_t row_count)
{
    for (size_t i = 0; i < column_count; i++) {
        pg_param_array_begin(params, column_type(&columns[i]), row_count);
        for (size_t j = 0; j < row_count; j++) {
            column_put(&params->bytes, &columns[i], rows[j]);
        }
        pg_param_array_end(params);
    }
}

void
pg_put_columns(struct buf *out, const struct pg_column *columns,
               size_t column_count, const void *row)
{
    for (size_t i = 0; i < column_count; i++) {
        column_put(out, &columns[i], row);
    }
}
