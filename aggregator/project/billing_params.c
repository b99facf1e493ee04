/*
 * billing_params.c - meter rows, values and adjustments as array parameters.
 *
 *   rows, values, adjustments -> [column tables] -> parameters
 *
 * One array for each column; all arrays of a statement are of one length and
 * in the order of the rows.
 */

#include "project/billing_rows.h"

#include "pg/column.h"

#define ROW_COLUMN(kind, member) PG_COLUMN(kind, struct billing_row, member)
#define ROW_COLUMN_IF(kind, member, has) \
    PG_COLUMN_IF(kind, struct billing_row, member, has)
#define ROW_WATERMARK \
    PG_COLUMN_NULL_IF(TIME, struct billing_row, tally.watermark_us, INT64_MIN)

/* Of sums that have no value, min to last_seq are NULL. */
#define SUMS_VALUES(sums)                                              \
    ROW_COLUMN_IF(NUMERIC, tally.sums.min, tally.sums.has_value),      \
        ROW_COLUMN_IF(NUMERIC, tally.sums.max, tally.sums.has_value),  \
        ROW_COLUMN_IF(NUMERIC, tally.sums.last, tally.sums.has_value), \
        ROW_COLUMN_IF(TIME, tally.sums.last_mark.ts_us, tally.sums.has_value)
#define SUMS_RECORDED(sums)                               \
    ROW_COLUMN_IF(TIME, tally.sums.last_mark.recorded_us, \
                  tally.sums.has_value),                  \
        ROW_COLUMN_IF(UUID, tally.sums.last_mark.writer, tally.sums.has_value)
#define SUMS_SEQ(sums) \
    ROW_COLUMN_IF(INT8, tally.sums.last_mark.writer_seq, tally.sums.has_value)

#define ROW_KEY_COLUMNS    5
#define ROW_ENSURE_COLUMNS 6

/* The first five are the key, the sixth are the groups. */
static const struct pg_column row_columns[] = {
    ROW_COLUMN(TEXT, tenant),      ROW_COLUMN(TEXT, metric),
    ROW_COLUMN(TIME, period_us),   ROW_COLUMN(TEXT, customer),
    ROW_COLUMN(DIGEST, group_key), ROW_COLUMN(TEXT, groups),
};

/* meter_upsert, after the groups. */
static const struct pg_column fold_columns[] = {
    ROW_COLUMN(NUMERIC, tally.folded.sum),
    ROW_COLUMN(INT8, tally.folded.count),
    SUMS_VALUES(folded),
    SUMS_SEQ(folded),
    ROW_WATERMARK,
    ROW_COLUMN(TIME, step_limit_us),
};

/* meter_write, after the key. */
static const struct pg_column sums_columns[] = {
    ROW_COLUMN(NUMERIC, tally.folded.sum),
    ROW_COLUMN(INT8, tally.folded.count),
    SUMS_VALUES(folded),
    SUMS_RECORDED(folded),
    SUMS_SEQ(folded),
    ROW_COLUMN(INT8, tally.folded.uniques),
    ROW_WATERMARK,
    ROW_COLUMN_IF(NUMERIC, tally.late.sum, tally.has_late),
    ROW_COLUMN_IF(INT8, tally.late.count, tally.has_late),
    SUMS_VALUES(late),
    SUMS_RECORDED(late),
    SUMS_SEQ(late),
    ROW_COLUMN_IF(INT8, tally.late.uniques, tally.has_late),
};

static const struct pg_column close_columns[] = {
    PG_COLUMN(TEXT, struct billing_close, tenant),
    PG_COLUMN(TEXT, struct billing_close, metric),
    PG_COLUMN(TIME, struct billing_close, period_us),
};

/* The second is written only. */
static const struct pg_column unique_columns[] = {
    PG_COLUMN(TEXT, struct billing_unique, value),
    PG_COLUMN(BOOL, struct billing_unique, is_folded),
};

#define ADJUSTMENT_COLUMN(kind, member) \
    PG_COLUMN(kind, struct billing_adjustment, member)

/* A value of a `unique` meter has no figure. */
static const struct pg_column adjustment_columns[] = {
    ADJUSTMENT_COLUMN(TEXT, event_id),
    ADJUSTMENT_COLUMN(NUMERIC, amount),
    ADJUSTMENT_COLUMN(TEXT, reason),
    ADJUSTMENT_COLUMN(TIME, ts_us),
    PG_COLUMN_IF(NUMERIC, struct billing_adjustment, reading.value, has_value),
    PG_COLUMN_IF(NUMERIC, struct billing_adjustment, reading.sum, has_value),
    ADJUSTMENT_COLUMN(INT8, reading.count),
    ADJUSTMENT_COLUMN(TEXT, reading.unique),
    ADJUSTMENT_COLUMN(INT8, writer_seq),
};

/* Columns of all items of a list of pointers. */
#define PUT_LIST(out, columns, column_count, list) \
    pg_param_pointers(out, columns, column_count,  \
                      (const void *const *)(list).items, (list).count)

/* The asker's numbers from..from + count - 1. */
static void
put_numbers(struct pg_params *out, size_t from, size_t count)
{
    pg_param_array_begin(out, PG_INT4, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_int4(&out->bytes, (int32_t)(from + i));
    }
    pg_param_array_end(out);
}

void
billing_closed_params(const struct billing_rows *rows, struct pg_params *out)
{
    PUT_LIST(out, close_columns, PG_COLUMN_COUNT(close_columns), rows->closes);
    put_numbers(out, 0, rows->closes.count);
}

void
billing_upsert_params(const struct billing_rows *rows,
                      const struct projection_stamp *stamp,
                      struct pg_params *out)
{
    PUT_LIST(out, row_columns, ROW_ENSURE_COLUMNS, rows->rows);
    PUT_LIST(out, fold_columns, PG_COLUMN_COUNT(fold_columns), rows->rows);
    pg_param_uuid(out, stamp->writer);
    pg_param_time(out, stamp->recorded_us);
    pg_param_time(out, stamp->clock_us);
}

void
billing_ensure_params(const struct billing_rows *rows,
                      const struct projection_stamp *stamp,
                      struct pg_params *out)
{
    PUT_LIST(out, row_columns, ROW_ENSURE_COLUMNS, rows->rows);
    pg_param_time(out, stamp->clock_us);
}

/* The tenant is one for all; then the rest of the key. */
void
billing_lock_params(const struct billing_rows *rows, size_t from,
                    struct pg_params *out)
{
    size_t count = billing_tenant_end(rows, from) - from;

    pg_param_text(out, billing_row_at(rows, from)->tenant);
    pg_param_pointers(out, row_columns + 1, ROW_KEY_COLUMNS - 1,
                      (const void *const *)(rows->rows.items + from), count);
    put_numbers(out, from, count);
}

void
billing_write_params(const struct billing_rows *rows,
                     const struct projection_stamp *stamp,
                     struct pg_params *out)
{
    PUT_LIST(out, row_columns, ROW_KEY_COLUMNS, rows->rows);
    PUT_LIST(out, sums_columns, PG_COLUMN_COUNT(sums_columns), rows->rows);
    pg_param_time(out, stamp->clock_us);
}

/* A pg_row_next: the row of each value. */
static const void *
unique_row_next(const void *data, size_t *cursor)
{
    const struct billing_uniques *list = data;

    return *cursor < list->count ? list->items[(*cursor)++]->row : NULL;
}

static void
put_uniques(struct pg_params *out, const struct billing_uniques *list,
            size_t column_count)
{
    pg_param_columns(out, row_columns, ROW_KEY_COLUMNS, list, list->count,
                     unique_row_next);
    PUT_LIST(out, unique_columns, column_count, *list);
}

void
billing_unique_fold_params(const struct billing_rows *rows,
                           struct pg_params *out)
{
    put_uniques(out, &rows->uniques, 1);
}

void
billing_unique_read_params(const struct billing_rows *rows,
                           struct pg_params *out)
{
    put_uniques(out, &rows->uniques, 1);
    put_numbers(out, 0, rows->uniques.count);
}

void
billing_unique_write_params(const struct billing_rows *rows,
                            struct pg_params *out)
{
    put_uniques(out, &rows->changed, PG_COLUMN_COUNT(unique_columns));
}

/* Likewise of each adjustment. */
static const void *
adjustment_row_next(const void *data, size_t *cursor)
{
    const struct billing_rows *rows = data;

    return *cursor < rows->adjustments.count
               ? rows->adjustments.items[(*cursor)++]->row
               : NULL;
}

void
billing_adjustment_params(const struct billing_rows *rows,
                          const struct projection_stamp *stamp,
                          struct pg_params *out)
{
    pg_param_columns(out, row_columns, ROW_ENSURE_COLUMNS, rows,
                     rows->adjustments.count, adjustment_row_next);
    PUT_LIST(out, adjustment_columns, PG_COLUMN_COUNT(adjustment_columns),
             rows->adjustments);
    pg_param_uuid(out, stamp->writer);
    pg_param_time(out, stamp->clock_us);
    if (stamp->recorded_us == stamp->clock_us) {
        pg_param_null(out);
    } else {
        pg_param_time(out, stamp->recorded_us);
    }
}
