/*
 * counter_rows.h - counter rows of one transaction. Pure.
 *
 *   counter_rows.c        rows, entities and keys: found, made, sorted
 *   counter_projection.c  their way through a transaction
 *
 * A row is found by (tenant, counter name, dimension key), an entity by
 * (tenant, counter name, entity). Text and sets are borrowed from the events,
 * which outlive the transaction; what the database says is copied.
 */

#ifndef PROJECT_COUNTER_ROWS_H
#define PROJECT_COUNTER_ROWS_H

#include "base/map.h"
#include "base/memory.h"
#include "project/counter.h"

/* Rows of one tenant in one counter: how many keys there are. */
struct counter_group {
    struct meter_str key;
    int64_t keys_max; /* 0: no limit */
    int64_t keys;     /* with those that the transaction makes */
    int64_t made;     /* by the transaction */
    int64_t admitted; /* of those made: needed by an applied item */
};

/* What items do to a row: all that has to be taken back with them. */
struct counter_tally {
    struct counter_fold fold;
    bool has_fold;     /* false: it left 64 bits; careful path only */
    bool is_admitted;  /* as a new key */
    int64_t value;     /* careful path: as locked, then as decided */
    int64_t seq_first; /* writer_seq of the items; 0: none yet */
    int64_t seq_last;
};

struct counter_row {
    struct meter_str key;
    struct counter_group *group;
    struct meter_str tenant;
    struct meter_str name;
    uint8_t dimension_key[METER_DIGEST_SIZE];
    struct meter_str dimensions; /* as stored, once that is known */
    struct counter_tally tally;
    int64_t updated_us; /* as locked */
    bool is_floored;    /* clamped: its updates have an order */
    bool is_audited;
    bool is_new; /* made by this transaction */
    bool is_locked;
    bool is_reported; /* a collision was logged */
};

/* Where an entity is counted: a set of dimensions; NULL: nowhere. */
struct counter_state {
    struct meter_str key;
    struct meter_str tenant;
    struct meter_str name;
    struct meter_str entity;
    const struct dimension_set *ahead; /* where it will be, as collected */
    const struct dimension_set *now;   /* where it is, as applied */
    struct meter_str written_key;      /* of now, made for the statement */
    struct meter_str written_json;
    int64_t updated_us;
    bool is_locked;
};

/* One change of the item applied last, for the way back. */
struct counter_step {
    struct counter_row *row; /* NULL: nothing changed */
    struct counter_tally tally;
    struct counter_state *state; /* NULL: no transition */
    const struct dimension_set *now;
    struct meter_str name; /* of the counter */
};

#define COUNTER_RECENT 1024 /* power of two */

struct counter_rows {
    struct counter_row *recent[COUNTER_RECENT]; /* NULL or a row of the map */
    struct map row_map;
    struct map group_map;
    struct map state_map;
    VEC(struct counter_row *) rows;     /* by (tenant, name, dimension key) */
    VEC(struct counter_state *) states; /* by (tenant, name, entity) */
    size_t audited_count;
    int64_t up_max;   /* how far a value was above its end on the way */
    int64_t down_max; /* and below it */
    VEC(struct counter_step) steps;
    struct arena arena;
};

/* The row of a set, made when it is the first time; NULL: no memory. */
struct counter_row *
counter_row_take(struct counter_rows *rows, struct meter_str tenant,
                 const struct counter *counter,
                 const struct dimension_set *set);
/* NULL: none; also when the parts are no key. */
struct counter_row *
counter_row_find(const struct counter_rows *rows, struct meter_str tenant,
                 struct meter_str name, struct meter_str dimension_key);
struct counter_group *
counter_group_find(const struct counter_rows *rows, struct meter_str tenant,
                   struct meter_str name);
/* As rows. */
struct counter_state *
counter_state_take(struct counter_rows *rows, struct meter_str tenant,
                   const struct counter *counter, struct meter_str entity);
struct counter_state *
counter_state_find(const struct counter_rows *rows, struct meter_str tenant,
                   struct meter_str name, struct meter_str entity);
/* Rows and entities; the order of locking, the same in every process. */
void counter_rows_sort(struct counter_rows *rows);

#endif
