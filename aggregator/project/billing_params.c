/*
 * billing_params.c - meter rows, values and adjustments as array parameters,
 * see billing_rows.h. One array per column; all arrays of a statement are of
 * one length and in the order of the rows.
 */

#include "project/billing_rows.h"

#include "config/scalar.h"

#include <stdio.h>

#define REASON_SIZE 128

typedef void (*put_field)(struct buf *out, const void *item);

/* A stretch of a list, as a column. */
struct span {
    void *const *items;
    size_t count;
};

static struct span
span_of(const struct billing_list *list)
{
    return (struct span){list->items, list->count};
}

static void
put_column(struct pg_params *out, enum pg_type type, struct span span,
           put_field field)
{
    pg_param_array_begin(out, type, span.count);
    for (size_t i = 0; i < span.count; i++) {
        field(&out->bytes, span.items[i]);
    }
    pg_param_array_end(out);
}

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


/* ---- keys ------------------------------------------------------------ */

static void
put_tenant(struct buf *out, const void *item)
{
    pg_put_text(out, ((const struct billing_row *)item)->tenant);
}

static void
put_metric(struct buf *out, const void *item)
{
    pg_put_text(out, ((const struct billing_row *)item)->metric);
}

static void
put_period(struct buf *out, const void *item)
{
    pg_put_time(out, ((const struct billing_row *)item)->period_us);
}

static void
put_customer(struct buf *out, const void *item)
{
    pg_put_text(out, ((const struct billing_row *)item)->customer);
}

static void
put_group_key(struct buf *out, const void *item)
{
    const struct billing_row *row = item;

    pg_put_bytes(out, (struct meter_str){(const char *)row->group_key,
                                         METER_DIGEST_SIZE});
}

static void
put_groups(struct buf *out, const void *item)
{
    pg_put_text(out, ((const struct billing_row *)item)->groups);
}

/* The five columns of a key; row: of an item of the span. */
typedef const struct billing_row *(*row_of)(const void *item);

static void
put_key_column(struct pg_params *out, enum pg_type type, struct span span,
               row_of row, put_field field)
{
    pg_param_array_begin(out, type, span.count);
    for (size_t i = 0; i < span.count; i++) {
        field(&out->bytes, row(span.items[i]));
    }
    pg_param_array_end(out);
}

static void
put_keys(struct pg_params *out, struct span span, row_of row)
{
    put_key_column(out, PG_TEXT, span, row, put_tenant);
    put_key_column(out, PG_TEXT, span, row, put_metric);
    put_key_column(out, PG_TIMESTAMPTZ, span, row, put_period);
    put_key_column(out, PG_TEXT, span, row, put_customer);
    put_key_column(out, PG_BYTEA, span, row, put_group_key);
}

static const struct billing_row *
row_itself(const void *item)
{
    return item;
}

static const struct billing_row *
row_of_unique(const void *item)
{
    return ((const struct billing_unique *)item)->row;
}

static const struct billing_row *
row_of_adjustment(const void *item)
{
    return ((const struct billing_adjustment *)item)->row;
}


/* ---- closes ---------------------------------------------------------- */

static void
put_close_tenant(struct buf *out, const void *item)
{
    pg_put_text(out, ((const struct billing_close *)item)->tenant);
}

static void
put_close_metric(struct buf *out, const void *item)
{
    pg_put_text(out, ((const struct billing_close *)item)->metric);
}

static void
put_close_period(struct buf *out, const void *item)
{
    pg_put_time(out, ((const struct billing_close *)item)->period_us);
}

void
billing_closed_params(const struct billing_rows *rows, struct pg_params *out)
{
    struct span span = span_of(&rows->closes);

    put_column(out, PG_TEXT, span, put_close_tenant);
    put_column(out, PG_TEXT, span, put_close_metric);
    put_column(out, PG_TIMESTAMPTZ, span, put_close_period);
    put_numbers(out, 0, span.count);
}


/* ---- sums ------------------------------------------------------------ */

/* Which of the two sums of a row; NULL: it has none of these. */
typedef const struct billing_sums *(*sums_of)(const struct billing_row *row);

static const struct billing_sums *
folded_of(const struct billing_row *row)
{
    return &row->tally.folded;
}

static const struct billing_sums *
late_of(const struct billing_row *row)
{
    return row->tally.has_late ? &row->tally.late : NULL;
}

/* A column of sums; min to last_seq are NULL where no value is. */
enum sums_column {
    SUMS_SUM,
    SUMS_COUNT,
    SUMS_UNIQUES,
    SUMS_MIN,
    SUMS_MAX,
    SUMS_LAST,
    SUMS_LAST_TS,
    SUMS_LAST_RECORDED,
    SUMS_LAST_WRITER,
    SUMS_LAST_SEQ
};

static void
put_sums_field(struct buf *out, const struct billing_sums *sums,
               enum sums_column column)
{
    if (sums == NULL || (column >= SUMS_MIN && !sums->has_value)) {
        pg_put_null(out);
        return;
    }
    switch (column) {
    case SUMS_SUM: pg_put_numeric(out, sums->sum); break;
    case SUMS_COUNT: pg_put_int8(out, sums->count); break;
    case SUMS_UNIQUES: pg_put_int8(out, sums->uniques); break;
    case SUMS_MIN: pg_put_numeric(out, sums->min); break;
    case SUMS_MAX: pg_put_numeric(out, sums->max); break;
    case SUMS_LAST: pg_put_numeric(out, sums->last); break;
    case SUMS_LAST_TS: pg_put_time(out, sums->last_mark.ts_us); break;
    case SUMS_LAST_RECORDED:
        pg_put_time(out, sums->last_mark.recorded_us);
        break;
    case SUMS_LAST_WRITER: pg_put_uuid(out, sums->last_mark.writer); break;
    case SUMS_LAST_SEQ: pg_put_int8(out, sums->last_mark.writer_seq); break;
    }
}

static void
put_sums(struct pg_params *out, const struct billing_rows *rows, sums_of which,
         enum sums_column column)
{
    static const enum pg_type types[] = {
        [SUMS_SUM] = PG_NUMERIC,         [SUMS_COUNT] = PG_INT8,
        [SUMS_UNIQUES] = PG_INT8,        [SUMS_MIN] = PG_NUMERIC,
        [SUMS_MAX] = PG_NUMERIC,         [SUMS_LAST] = PG_NUMERIC,
        [SUMS_LAST_TS] = PG_TIMESTAMPTZ, [SUMS_LAST_RECORDED] = PG_TIMESTAMPTZ,
        [SUMS_LAST_WRITER] = PG_UUID,    [SUMS_LAST_SEQ] = PG_INT8,
    };

    pg_param_array_begin(out, types[column], rows->rows.count);
    for (size_t i = 0; i < rows->rows.count; i++) {
        put_sums_field(&out->bytes, which(rows->rows.items[i]), column);
    }
    pg_param_array_end(out);
}

/* The first five, as every statement has them. */
static void
put_figures(struct pg_params *out, const struct billing_rows *rows,
            sums_of which)
{
    put_sums(out, rows, which, SUMS_SUM);
    put_sums(out, rows, which, SUMS_COUNT);
    put_sums(out, rows, which, SUMS_MIN);
    put_sums(out, rows, which, SUMS_MAX);
    put_sums(out, rows, which, SUMS_LAST);
    put_sums(out, rows, which, SUMS_LAST_TS);
}


/* ---- rows ------------------------------------------------------------ */

static void
put_watermark(struct buf *out, const void *item)
{
    const struct billing_row *row = item;

    if (row->tally.watermark_us == INT64_MIN) {
        pg_put_null(out);
    } else {
        pg_put_time(out, row->tally.watermark_us);
    }
}

static void
put_step_limit(struct buf *out, const void *item)
{
    pg_put_time(out, ((const struct billing_row *)item)->step_limit_us);
}

void
billing_upsert_params(const struct billing_rows *rows,
                      const struct projection_stamp *stamp,
                      struct pg_params *out)
{
    struct span span = span_of(&rows->rows);

    put_keys(out, span, row_itself);
    put_column(out, PG_TEXT, span, put_groups);
    put_figures(out, rows, folded_of);
    put_sums(out, rows, folded_of, SUMS_LAST_SEQ);
    put_column(out, PG_TIMESTAMPTZ, span, put_watermark);
    put_column(out, PG_TIMESTAMPTZ, span, put_step_limit);
    pg_param_uuid(out, stamp->writer);
    pg_param_time(out, stamp->recorded_us);
    pg_param_time(out, stamp->clock_us);
}

void
billing_ensure_params(const struct billing_rows *rows,
                      const struct projection_stamp *stamp,
                      struct pg_params *out)
{
    struct span span = span_of(&rows->rows);

    put_keys(out, span, row_itself);
    put_column(out, PG_TEXT, span, put_groups);
    pg_param_time(out, stamp->clock_us);
}

void
billing_lock_params(const struct billing_rows *rows, size_t from,
                    struct pg_params *out)
{
    struct span span = {rows->rows.items + from,
                        billing_tenant_end(rows, from) - from};

    pg_param_text(out, billing_row_at(rows, from)->tenant);
    put_column(out, PG_TEXT, span, put_metric);
    put_column(out, PG_TIMESTAMPTZ, span, put_period);
    put_column(out, PG_TEXT, span, put_customer);
    put_column(out, PG_BYTEA, span, put_group_key);
    put_numbers(out, from, span.count);
}

static void
put_all_sums(struct pg_params *out, const struct billing_rows *rows,
             sums_of which)
{
    put_figures(out, rows, which);
    put_sums(out, rows, which, SUMS_LAST_RECORDED);
    put_sums(out, rows, which, SUMS_LAST_WRITER);
    put_sums(out, rows, which, SUMS_LAST_SEQ);
    put_sums(out, rows, which, SUMS_UNIQUES);
}

void
billing_write_params(const struct billing_rows *rows,
                     const struct projection_stamp *stamp,
                     struct pg_params *out)
{
    struct span span = span_of(&rows->rows);

    put_keys(out, span, row_itself);
    put_all_sums(out, rows, folded_of);
    put_column(out, PG_TIMESTAMPTZ, span, put_watermark);
    put_all_sums(out, rows, late_of);
    pg_param_time(out, stamp->clock_us);
}


/* ---- unique values --------------------------------------------------- */

static void
put_unique_value(struct buf *out, const void *item)
{
    pg_put_text(out, ((const struct billing_unique *)item)->value);
}

static void
put_unique_folded(struct buf *out, const void *item)
{
    const struct billing_unique *unique = item;

    pg_put_bool(out, unique->now == BILLING_SEEN_FOLDED);
}

static void
put_uniques(struct pg_params *out, struct span span)
{
    put_keys(out, span, row_of_unique);
    put_column(out, PG_TEXT, span, put_unique_value);
}

void
billing_unique_fold_params(const struct billing_rows *rows,
                           struct pg_params *out)
{
    put_uniques(out, span_of(&rows->uniques));
}

void
billing_unique_read_params(const struct billing_rows *rows,
                           struct pg_params *out)
{
    put_uniques(out, span_of(&rows->uniques));
    put_numbers(out, 0, rows->uniques.count);
}

void
billing_unique_write_params(const struct billing_rows *rows,
                            struct pg_params *out)
{
    put_uniques(out, span_of(&rows->changed));
    put_column(out, PG_BOOL, span_of(&rows->changed), put_unique_folded);
}


/* ---- adjustments ----------------------------------------------------- */

static void
put_id(struct buf *out, const void *item)
{
    pg_put_text(out,
                ((const struct billing_adjustment *)item)->event->event_id);
}

static void
put_amount(struct buf *out, const void *item)
{
    pg_put_numeric(out, ((const struct billing_adjustment *)item)->amount);
}

static void
put_reason(struct buf *out, const void *item)
{
    const struct billing_adjustment *adjustment = item;
    char lateness[SCALAR_DURATION_TEXT_SIZE + 1];
    char text[REASON_SIZE] = "period is closed";

    if (!adjustment->row->is_closed) {
        scalar_duration_format(adjustment->change->meter->lateness_us,
                               lateness);
        snprintf(text, sizeof(text),
                 "older than the watermark by more than the lateness of %s",
                 lateness);
    }
    pg_put_text(out, (struct meter_str){text, strlen(text)});
}

static void
put_ts(struct buf *out, const void *item)
{
    pg_put_time(out, ((const struct billing_adjustment *)item)->event->ts_us);
}

static void
put_value(struct buf *out, const void *item)
{
    const struct billing_reading *reading =
        &((const struct billing_adjustment *)item)->change->reading;

    if (reading->unique.size > 0) {
        pg_put_null(out);
    } else {
        pg_put_numeric(out, reading->value);
    }
}

static void
put_sum(struct buf *out, const void *item)
{
    const struct billing_reading *reading =
        &((const struct billing_adjustment *)item)->change->reading;

    if (reading->unique.size > 0) {
        pg_put_null(out);
    } else {
        pg_put_numeric(out, reading->sum);
    }
}

static void
put_count(struct buf *out, const void *item)
{
    pg_put_int8(
        out, ((const struct billing_adjustment *)item)->change->reading.count);
}

/* NULL data when the meter is not `unique`. */
static void
put_adjusted_unique(struct buf *out, const void *item)
{
    pg_put_text(
        out, ((const struct billing_adjustment *)item)->change->reading.unique);
}

static void
put_seq(struct buf *out, const void *item)
{
    pg_put_int8(out, ((const struct billing_adjustment *)item)->writer_seq);
}

void
billing_adjustment_params(const struct billing_rows *rows,
                          const struct projection_stamp *stamp,
                          struct pg_params *out)
{
    struct span span = span_of(&rows->adjustments);

    put_keys(out, span, row_of_adjustment);
    put_key_column(out, PG_TEXT, span, row_of_adjustment, put_groups);
    put_column(out, PG_TEXT, span, put_id);
    put_column(out, PG_NUMERIC, span, put_amount);
    put_column(out, PG_TEXT, span, put_reason);
    put_column(out, PG_TIMESTAMPTZ, span, put_ts);
    put_column(out, PG_NUMERIC, span, put_value);
    put_column(out, PG_NUMERIC, span, put_sum);
    put_column(out, PG_INT8, span, put_count);
    put_column(out, PG_TEXT, span, put_adjusted_unique);
    put_column(out, PG_INT8, span, put_seq);
    pg_param_uuid(out, stamp->writer);
    pg_param_time(out, stamp->clock_us);
    if (stamp->recorded_us == stamp->clock_us) {
        pg_param_null(out);
    } else {
        pg_param_time(out, stamp->recorded_us);
    }
}
