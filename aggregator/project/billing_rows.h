/*
 * billing_rows.h - meter rows of one transaction. Pure.
 *
 *   billing_rows.c        rows, unique values, closes: found, made, sorted
 *   billing_projection.c  their way through a transaction
 *
 * A row is found by (tenant, metric, period, customer, group key), a value
 * by its row and its bytes. Text is borrowed from the events and the rules,
 * which outlive the transaction. Statements are answered by the number of a
 * row or value, which is its place in the order of locking.
 */

#ifndef PROJECT_BILLING_ROWS_H
#define PROJECT_BILLING_ROWS_H

#include "base/map.h"
#include "base/memory.h"
#include "project/billing.h"

/*
 * What a fold may add up, in units and events; meter_upsert passes over rows
 * that hold more. Row, late ones, manual amounts and one fold are then
 * within 38 digits and 64 bits, so no step of a fold can be one that the
 * careful path rejects.
 */
#define BILLING_TEN_TO_18 INT64_C(1000000000000000000)
#define BILLING_FOLD_SUM_MAX \
    ((meter_int128)BILLING_TEN_TO_18 * BILLING_TEN_TO_18 * 10) /* 10^28 */
#define BILLING_FOLD_COUNT_MAX (INT64_C(1) << 61)

/* What items do to a row: all that has to be taken back with them. */
struct billing_tally {
    struct billing_sums folded; /* fast path: by this transaction */
    struct billing_sums late;
    bool has_late;
    int64_t watermark_us; /* INT64_MIN: nothing folded */
};

struct billing_row {
    struct meter_str key;
    struct meter_str tenant;
    struct meter_str metric;
    int64_t period_us;
    struct meter_str customer;
    uint8_t group_key[METER_DIGEST_SIZE];
    struct meter_str groups;
    size_t number;
    struct billing_tally tally;
    int64_t step_limit_us;       /* fast path: least ts + lateness */
    struct meter_decimal manual; /* careful path, as locked */
    bool is_closed;
    bool is_locked;
    bool is_foreign; /* the stored row has other groups */
};

/* Whether a row has counted a value. */
enum billing_seen {
    BILLING_UNSEEN,
    BILLING_SEEN_LATE, /* only in late events */
    BILLING_SEEN_FOLDED
};

struct billing_unique {
    struct meter_str key;
    struct billing_row *row;
    struct meter_str value;
    enum billing_seen before; /* careful path: as read */
    enum billing_seen now;
    bool is_folded; /* now, for the statement */
    bool is_read;
};

/* As a VEC, with a name: two lists are of it. */
struct billing_uniques {
    struct billing_unique **items;
    size_t count;
    size_t room;
};

/* A period that may be closed: it is over, or nearly. */
struct billing_close {
    struct meter_str key;
    struct meter_str tenant;
    struct meter_str metric;
    int64_t period_us;
    bool is_closed;
};

/* A late event. */
struct billing_adjustment {
    const struct billing_row *row;
    struct meter_str event_id;
    int64_t ts_us;
    int64_t writer_seq;
    struct billing_reading reading;
    bool has_value; /* the reading has one: not `unique` */
    struct meter_decimal amount;
    struct meter_str reason;
};

/* One change of the item applied last, for the way back. */
struct billing_step {
    struct billing_row *row;
    struct billing_tally tally;
    struct billing_unique *unique; /* NULL: none */
    enum billing_seen seen;
};

struct billing_rows {
    struct map row_map;
    struct map unique_map;
    struct map close_map;
    VEC(struct billing_row *) rows; /* by key */
    struct billing_uniques uniques; /* by row, then value */
    VEC(struct billing_close *) closes;
    VEC(struct billing_adjustment *) adjustments;
    struct billing_uniques changed; /* what the careful path writes */
    VEC(struct billing_step) steps;
    bool was_adjusted;       /* mark of the item applied last, before it */
    size_t adjustment_count; /* likewise */
    struct arena arena;
};

static inline struct billing_row *
billing_row_at(const struct billing_rows *rows, size_t number)
{
    CHECK(number < rows->rows.count);
    return rows->rows.items[number];
}

static inline struct billing_unique *
billing_unique_at(const struct billing_rows *rows, size_t number)
{
    CHECK(number < rows->uniques.count);
    return rows->uniques.items[number];
}

static inline const struct billing_effect *
billing_effect_of(const struct projected *item)
{
    return item->effects->of[PROJECTION_METERS];
}

static inline struct billing_mark
billing_mark_of(const struct projected *item,
                const struct projection_stamp *stamp)
{
    struct billing_mark mark = {
        .ts_us = item->event->ts_us,
        .recorded_us = stamp->recorded_us,
        .writer_seq = item->writer_seq,
    };

    memcpy(mark.writer, stamp->writer, sizeof(mark.writer));
    return mark;
}

/* The row of a change, made when it is the first time; NULL: no memory. */
struct billing_row *
billing_row_take(struct billing_rows *rows, struct meter_str tenant,
                 const struct billing_change *change);
/* NULL: none. */
struct billing_row *
billing_row_find(const struct billing_rows *rows, struct meter_str tenant,
                 const struct billing_change *change);
/* As rows. */
struct billing_unique *
billing_unique_take(struct billing_rows *rows, struct billing_row *row,
                    struct meter_str value);
struct billing_unique *
billing_unique_find(const struct billing_rows *rows,
                    const struct billing_row *row, struct meter_str value);
/* Notes a period to ask for; before any row is made. False: no memory. */
MUST_CHECK bool
billing_close_take(struct billing_rows *rows, struct meter_str tenant,
                   const struct billing_change *change);
/* The order of locking, the same in every process; gives the numbers. */
void billing_rows_sort(struct billing_rows *rows);

#endif
