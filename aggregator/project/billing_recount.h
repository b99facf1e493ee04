/*
 * billing_recount.h - one tenant's meters, recomputed. Pure.
 *
 *   billing_recount.c          from adjustments, events and live rows
 *   billing_recount_compare.c  what differs, and the statements that mend it
 *   billing_figures.c          the columns of a meter row, one after another
 *
 * Only these files look inside.
 */

#ifndef PROJECT_BILLING_RECOUNT_H
#define PROJECT_BILLING_RECOUNT_H

#include "base/map.h"
#include "project/billing.h"
#include "project/billing_figures.h"
#include "project/recount.h"

/* What names a row within its tenant. */
struct billed_key {
    const struct billing_meter *meter;
    int64_t period_us;
    struct meter_str customer;
    struct dimension_set group;
};

/* A period that is closed. */
struct billed_close {
    struct meter_str key; /* what keys of its rows begin with */
    struct billed_key of; /* meter and period */
    size_t left;          /* differences that stay as they are */
};

struct billed_row {
    struct meter_str key; /* bytes, in the order of the table's key */
    struct billed_key of;
    struct billed_sums sums;
    int64_t updated_us;
    int64_t found_us;
    int64_t since_us;              /* as in struct recount_origin */
    const struct figure *found;    /* the columns; NULL: as they should be */
    struct meter_str found_groups; /* data NULL: those of the key */
    bool is_folded;                /* by some event */
    bool is_adjusted;              /* or by some adjustment */
    bool is_found;
    bool is_different;
    bool is_marked; /* different, or a value of its set is */
    bool is_left;   /* of a closed period: not written */
};

/* A value of a `unique` meter. */
struct billed_value {
    struct meter_str key; /* that of the row, then the value */
    struct billed_row *row;
    struct meter_str text;
    bool is_folded;
    bool is_late;
    bool is_found;
    bool is_found_folded;
    bool is_marked;
};

struct billed_list {
    void **items; /* by key */
    size_t count;
};

struct billing_recounting {
    struct recount_scope scope;
    struct map row_map;
    struct map value_map;
    struct map close_map;
    struct map adjusted_map; /* metric, NUL, event_id: that event's row */
    struct billed_list rows; /* those marked */
    struct billed_list values;
    size_t strangers;
    size_t reopened; /* marked rows of the closed period that is reopened */
    struct arena arena;
    struct arena adjusted_arena;
    struct buf key; /* the one looked for */
};

/* True: there should be such a row. */
static inline bool
billed_row_is_expected(const struct billed_row *row)
{
    return row->is_folded || row->is_adjusted;
}

static inline bool
billed_value_is_expected(const struct billed_value *value)
{
    return value->is_folded || value->is_late;
}

/* Keys of rows begin with metric, NUL and period. */
static inline size_t
billed_close_key_size(const struct billing_meter *meter)
{
    return meter->metric.size + 1 + sizeof(uint64_t);
}

/* key: that of a row. NULL: its period is open. */
static inline struct billed_close *
billed_close_find(const struct billing_recounting *all,
                  const struct billing_meter *meter, const char *key)
{
    return map_find(&all->close_map,
                    (struct meter_str){key, billed_close_key_size(meter)});
}

/* As in struct recount_ops. */
bool billing_recount_compare(void *recount, size_t *count);
bool billing_recount_differences(void *recount, recount_difference_cb cb,
                                 void *asker);
size_t
billing_recount_left(const void *recount, recount_left_cb cb, void *asker);
bool
billing_recount_write(void *recount, size_t *at, struct projection_query *out);

#endif
