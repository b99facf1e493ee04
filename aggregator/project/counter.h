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

#include "project/attribute.h"
#include "project/projection.h"

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
    struct dimension_set set;
    int64_t delta; /* +-1 times amount times event.count; transitions: +-1 */
    struct meter_str entity; /* transition mode: canonical JSON; data NULL */
};

struct counter_effect {
    const struct counter_change *changes; /* in the order of the rules */
    size_t count;
};

/*
 * What became of each change of an effect with transitions, in its order
 * (marks.counted; NULL: each change is what was projected).
 */
struct counter_counted {
    bool is_ignored; /* no valid transition: nothing was counted */
    uint8_t key[METER_DIGEST_SIZE]; /* else where: of the dimension set */
};

/* Canonical JSON of what names an entity. */
#define COUNTER_ENTITY_SIZE_MAX 2000

/*
 * As projection.project; *effect is a struct counter_effect. Rejected: a
 * dimension that is an object or array, too long a value, an amount that is
 * no non-negative 64-bit integer, overflow, no memory. A change of a counter
 * in transition mode is what it would be if the transition is valid, and
 * makes the event careful; an event that does not name its entity changes
 * nothing there.
 */
MUST_CHECK bool
counter_project(const struct event_type *type, const struct meter_event *event,
                const struct json_value *attributes, struct arena *arena,
                const void **effect, bool *is_careful, const char **error);

#endif
