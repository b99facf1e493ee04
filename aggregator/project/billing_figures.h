/*
 * billing_figures.h - the columns of a meter row, one after another. Pure.
 *
 *   sums <-> [figures] <-> result, parameters, text
 */

#ifndef PROJECT_BILLING_FIGURES_H
#define PROJECT_BILLING_FIGURES_H

#include "base/json_writer.h"
#include "project/billing.h"

/* What a row says, as a recount keeps it. */
struct billed_sums {
    struct billing_sums folded;
    struct billing_sums late;
    struct meter_decimal manual;
    int64_t watermark_us; /* INT64_MIN: nothing folded */
    bool has_late;
    bool has_manual;
};

/* In the order of meter.meter_counter, from sum to manual_sum. */
enum figure_column {
    FIGURE_SUM,
    FIGURE_COUNT,
    FIGURE_MIN,
    FIGURE_MAX,
    FIGURE_LAST,
    FIGURE_LAST_TS,
    FIGURE_LAST_RECORDED_AT,
    FIGURE_LAST_WRITER,
    FIGURE_LAST_SEQ,
    FIGURE_UNIQUES,
    FIGURE_WATERMARK_TS,
    FIGURE_LATE_SUM,
    FIGURE_LATE_COUNT,
    FIGURE_LATE_MIN,
    FIGURE_LATE_MAX,
    FIGURE_LATE_LAST,
    FIGURE_LATE_LAST_TS,
    FIGURE_LATE_LAST_RECORDED_AT,
    FIGURE_LATE_LAST_WRITER,
    FIGURE_LATE_LAST_SEQ,
    FIGURE_LATE_UNIQUES,
    FIGURE_MANUAL_SUM,
    FIGURE_COLUMNS
};

/* One column of a row. */
struct figure {
    bool has;    /* not NULL */
    bool is_bad; /* a number that is none: equal to nothing */
    union {
        struct meter_decimal decimal;
        int64_t integer; /* also an instant */
        uint8_t uuid[16];
    };
};

void figures_of_sums(const struct billed_sums *sums,
                     struct figure out[FIGURE_COLUMNS]);
/* From column `first` of the row on. */
void figures_read(const void *result, int row, int first,
                  struct figure out[FIGURE_COLUMNS]);

/* Sums that are nothing: NULL and 0 are the same there. */
bool figure_is_equal(enum figure_column column, const struct figure *a,
                     const struct figure *b);

enum pg_type figure_type(enum figure_column column);
void figure_put(struct buf *bytes, enum figure_column column,
                const struct figure *figure);
/* A member of an object: "sum":"1.5". */
void figure_json(struct json_writer *json, enum figure_column column,
                 const struct figure *figure);

#endif
