/*
 * usage_answer.h - rows of meters to figures, as JSON or as a table.
 *
 *   rows of usage_list, usage_groups -> [usage_rows_read] -> figures
 *   figures, adjustments -> [usage_put...] -> answer
 *
 * Value and total are computed here, from sums, by the functions that
 * ingest uses too: one meaning of a meter.
 */

#ifndef API_USAGE_ANSWER_H
#define API_USAGE_ANSWER_H

#include "api/usage_query.h"
#include "base/csv.h"
#include "base/json_writer.h"
#include "project/billing.h"

/* What a meter says of one period, customer and, where asked for, group. */
struct usage_figure {
    struct usage_place place;
    struct meter_str groups; /* canonical JSON; data NULL: all together */
    bool is_closed;
    bool has_watermark;
    int64_t watermark_us;
    bool has_value;
    struct meter_decimal value;
    bool has_total;
    struct meter_decimal total;
    int first_line; /* row of its first adjustment */
    int line_count;
};

/* As of a customer without any event. */
void usage_figure_zero(const struct billing_meter *meter,
                       struct usage_figure *figure);
/*
 * From what was summed; the rest of figure is left. False: a figure passes
 * 38 digits.
 */
MUST_CHECK bool usage_figure_compute(const struct billing_meter *meter,
                                     const struct billing_total *sums,
                                     struct usage_figure *figure);

enum usage_rows {
    USAGE_ROWS_OK,
    USAGE_ROWS_RANGE, /* a figure passes 38 digits */
    USAGE_ROWS_MEMORY
};

/* All figures of a result, in the arena; they borrow from the result. */
enum usage_rows
usage_rows_read(const struct billing_meter *meter, const void *result,
                struct arena *arena, struct usage_figure **figures, int *count);

/* One object. result NULL: without adjustments. */
void usage_put(struct json_writer *json, const struct usage_query *query,
               const struct usage_figure *figure, const void *result);

/* The head of a table and a line of it. False: no memory, or range. */
void usage_csv_head(struct csv_writer *csv, const struct usage_query *query);
MUST_CHECK bool
usage_csv(struct csv_writer *csv, const struct usage_query *query,
          const struct usage_figure *figure, struct arena *arena);

#endif
