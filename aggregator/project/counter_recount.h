/*
 * counter_recount.h - one tenant's counters, recomputed. Pure.
 *
 *   counter_recount.c          from events and live rows
 *   counter_recount_compare.c  what differs, and the statements that mend it
 *
 * Only these two files look inside.
 */

#ifndef PROJECT_COUNTER_RECOUNT_H
#define PROJECT_COUNTER_RECOUNT_H

#include "base/map.h"
#include "project/counter.h"
#include "project/recount.h"

/* A counter's name and a dimension key or an entity. */
#define RECOUNT_KEY_MAX ((size_t)1 << 20)

struct recounted_row {
    struct meter_str key; /* counter's name, NUL, dimension key */
    const struct counter *counter;
    struct dimension_set set;
    int64_t value;
    int64_t updated_us;
    int64_t found;
    int64_t found_us;
    int64_t since_us;            /* as in struct recount_origin */
    struct meter_str found_json; /* data NULL: that of the set */
    int64_t logged;
    bool is_expected;
    bool is_found;
    bool is_unchained; /* logged is another value */
    bool is_marked;
};

struct recounted_entity {
    struct meter_str key; /* counter's name, NUL, entity */
    const struct counter *counter;
    struct meter_str name;
    struct recounted_row *place; /* where it is counted; NULL: nowhere */
    struct recounted_row *found; /* likewise */
    int64_t updated_us;
    int64_t found_us;
    int64_t since_us; /* as in struct recount_origin */
    bool is_expected;
    bool is_found;
    bool is_marked;
};

/* Number of keys of a counter, by its index. */
struct recounted_keys {
    int64_t count; /* rows that should be */
    int64_t found;
    int64_t since_us; /* of the oldest row */
    bool is_found;
    bool is_marked;    /* written anew: rows of the counter are */
    bool is_different; /* by itself */
};

struct recounted_list {
    void **items; /* by key */
    size_t count;
};

struct counter_recounting {
    struct recount_scope scope;
    struct map row_map;
    struct map entity_map;
    struct recounted_keys *keys;
    struct recounted_list rows;     /* those marked */
    struct recounted_list entities; /* likewise */
    size_t strangers;
    struct arena arena;
    struct buf key; /* the one looked for */
};

/* As in struct recount_ops. */
bool counter_recount_compare(void *recount, size_t *count);
bool counter_recount_differences(void *recount, recount_difference_cb cb,
                                 void *asker);
bool
counter_recount_write(void *recount, size_t *at, struct projection_query *out);

#endif
