/*
 * counter.h - persistent counters: what an event does to which row. Pure.
 *
 * A step adds d, then clamps at 0 when the counter says floorAtZero. Steps
 * of one row compose: x -> max(x + a, b), next step d: (a + d, max(b + d,
 * 0)); so one GREATEST(value + a, b) per row gives what one-by-one
 * application in arrival order gives. Raw counters have no b.
 */

#ifndef PROJECT_COUNTER_H
#define PROJECT_COUNTER_H

#include "base/arena.h"
#include "base/json_reader.h"
#include "config/catalog.h"
#include "meter_dims.h"
#include "meter_event.h"

struct counter_fold {
    int64_t a;
    int64_t b;
    int64_t high; /* largest a on the way, at least 0 */
    int64_t low;  /* smallest a before there was a b, at most 0 */
    bool has_b;
};

/* The identity: a 0, no b. */
void counter_fold_init(struct counter_fold *fold);
/* False: 64-bit overflow, fold unchanged; the careful path decides. */
MUST_CHECK bool
counter_fold_step(struct counter_fold *fold, int64_t delta, bool floor_at_zero);
/* first, then second, as one fold. */
MUST_CHECK bool counter_fold_merge(struct counter_fold *first,
                                   const struct counter_fold *second);
/*
 * The whole fold on a known value. False: one of its steps overflows on
 * this value (also when the steps behind it come back), *value unchanged.
 */
MUST_CHECK bool
counter_fold_apply(const struct counter_fold *fold, int64_t *value);
/* One step on a known value. False: overflow, *value unchanged. */
MUST_CHECK bool
counter_apply(int64_t *value, int64_t delta, bool floor_at_zero);

/* What one event does to one counter row. */
struct counter_change {
    const struct counter *counter;
    uint8_t dimension_key[METER_DIGEST_SIZE];
    struct meter_str dimensions; /* canonical JSON */
    int64_t delta; /* rule's +-1 times its amount times event.count */
};

/*
 * The changes of an event by its type's rules, in their order; counters in
 * transition mode are not among them. attributes is the event's attribute
 * tree. False: *error is the reason for which the event is rejected (a
 * dimension that is an object or array, too long a value, an amount that
 * is no non-negative integer, overflow, no memory). An amount is a number;
 * of a captured event, whose attributes are all text, also its text.
 */
MUST_CHECK bool
counter_project(const struct event_type *type, const struct meter_event *event,
                const struct json_value *attributes, struct arena *arena,
                struct counter_change **changes, size_t *count,
                const char **error);

/* Exact key first, then the dotted path; NULL when absent. */
const struct json_value *attribute_find(const struct json_value *attributes,
                                        const struct attribute_path *path);

#endif
