/*
 * counter.c - persistent counters, see counter.h.
 *
 *   event, attributes -> [counter_project] -> changes -> [fold] per row
 *                                          -> counter_rows.c
 *
 * Nothing here knows rows or SQL: a change says which row and how much, a
 * fold says what many changes of one row do together.
 */

#include "project/counter.h"

#include "base/reason.h"
#include "meter_decimal.h"

#define UNITS_OF_ONE INT64_C(1000000000) /* of struct meter_decimal */

void
counter_fold_init(struct counter_fold *fold)
{
    *fold = (struct counter_fold){0};
}

bool
counter_fold_step(struct counter_fold *fold, int64_t delta, bool floor_at_zero)
{
    struct counter_fold next = *fold;

    if (__builtin_add_overflow(fold->a, delta, &next.a) ||
        (fold->has_b && __builtin_add_overflow(fold->b, delta, &next.b))) {
        return false;
    }
    next.high = next.a > next.high ? next.a : next.high;
    if (!fold->has_b) {
        next.low = next.a < next.low ? next.a : next.low;
    }
    if (floor_at_zero) {
        next.b = !fold->has_b || next.b < 0 ? 0 : next.b;
        next.has_b = true;
    }
    *fold = next;
    return true;
}

/*
 * max(max(x + a1, b1) + a2, b2) = max(x + a1 + a2, max(b1 + a2, b2)). The
 * extremes of second count from where first ends, both for x + a1 and for
 * b1; the latter must not overflow at any of second's steps either.
 */
bool
counter_fold_merge(struct counter_fold *first,
                   const struct counter_fold *second)
{
    struct counter_fold both = *first;
    int64_t high, low, unused;

    if (__builtin_add_overflow(first->a, second->a, &both.a) ||
        __builtin_add_overflow(first->a, second->high, &high) ||
        __builtin_add_overflow(first->a, second->low, &low)) {
        return false;
    }
    both.high = high > first->high ? high : first->high;
    if (!first->has_b) {
        both.low = low < first->low ? low : first->low;
        both.b = second->b;
        both.has_b = second->has_b;
        *first = both;
        return true;
    }
    if (__builtin_add_overflow(first->b, second->high, &unused) ||
        __builtin_add_overflow(first->b, second->low, &unused)) {
        return false;
    }
    if (__builtin_add_overflow(first->b, second->a, &both.b)) {
        CHECK(second->has_b && second->a < 0);
        both.b = second->b; /* far above */
    } else if (second->has_b && second->b > both.b) {
        both.b = second->b;
    }
    *first = both;
    return true;
}

bool
counter_apply(int64_t *value, int64_t delta, bool floor_at_zero)
{
    int64_t next;

    if (__builtin_add_overflow(*value, delta, &next)) {
        return false;
    }
    *value = floor_at_zero && next < 0 ? 0 : next;
    return true;
}

bool
counter_fold_apply(const struct counter_fold *fold, int64_t *value)
{
    int64_t next, unused;

    if (__builtin_add_overflow(*value, fold->high, &unused) ||
        __builtin_add_overflow(*value, fold->low, &unused)) {
        return false;
    }
    if (__builtin_add_overflow(*value, fold->a, &next)) {
        next = INT64_MIN; /* only downwards, and only where b is above */
        CHECK(fold->has_b && fold->a < 0);
    }
    *value = fold->has_b && next < fold->b ? fold->b : next;
    return true;
}

/* The amount of a `by` rule: no attribute, no amount. */
static bool
rule_amount(const struct counter_rule *rule, const struct meter_event *event,
            const struct json_value *attributes, int64_t *amount)
{
    struct meter_decimal decimal;

    *amount = 1;
    if (rule->by == NULL) {
        return true;
    }
    *amount = 0;
    switch (attribute_decimal(attributes, rule->by, event, &decimal)) {
    case ATTRIBUTE_OK: break;
    case ATTRIBUTE_ABSENT: return true;
    case ATTRIBUTE_BAD: return false;
    }
    if (decimal.units < 0 || decimal.units % UNITS_OF_ONE != 0 ||
        decimal.units / UNITS_OF_ONE > INT64_MAX) {
        return false;
    }
    *amount = (int64_t)(decimal.units / UNITS_OF_ONE);
    return true;
}

static bool
change_delta(const struct counter_rule *rule, const struct meter_event *event,
             const struct json_value *attributes, struct arena *arena,
             int64_t *delta, const char **error)
{
    int64_t amount;

    if (!rule_amount(rule, event, attributes, &amount)) {
        *error = reason_format(arena,
                               "attribute %s is not a non-negative 64-bit "
                               "integer, as counter %s wants it",
                               reason_quote(rule->by->name).text,
                               reason_quote(rule->counter->name).text);
        return false;
    }
    if (__builtin_mul_overflow(amount, event->count, &amount)) {
        *error = reason_format(arena, "amount for counter %s is past 64 bits",
                               reason_quote(rule->counter->name).text);
        return false;
    }
    *delta = rule->delta < 0 ? -amount : amount;
    return true;
}

static bool
dimensions_are_equal(const struct counter *a, const struct counter *b)
{
    if (a->dimensions == b->dimensions) {
        return a->dimension_count == b->dimension_count;
    }
    if (a->dimension_count != b->dimension_count) {
        return false;
    }
    for (size_t i = 0; i < a->dimension_count; i++) {
        if (!meter_str_equal(a->dimensions[i].name, b->dimensions[i].name)) {
            return false;
        }
    }
    return true;
}

/* The set of change number `at`: that of an earlier one where it can be. */
static bool
change_dimensions(struct counter_change *changes, size_t at,
                  const struct json_value *attributes, struct arena *arena,
                  const char **error)
{
    const struct counter *counter = changes[at].counter;

    for (size_t i = at; i > 0; i--) {
        if (dimensions_are_equal(changes[i - 1].counter, counter)) {
            changes[at].set = changes[i - 1].set;
            return true;
        }
    }
    return attribute_dimensions(attributes, counter->dimensions,
                                counter->dimension_count, "counter",
                                counter->name, arena, &changes[at].set, error);
}

/* ABSENT: the event names no entity. */
static enum attribute_reading
change_entity(const struct counter *counter,
              const struct json_value *attributes, struct arena *arena,
              struct meter_str *entity, const char **error)
{
    enum attribute_reading reading = attribute_scalar(
        attributes, counter->entity, COUNTER_ENTITY_SIZE_MAX, arena, entity);

    if (reading == ATTRIBUTE_BAD) {
        *error = reason_format(arena,
                               "attribute %s cannot name an entity of counter "
                               "%s: it is an object, an array, or longer than "
                               "2000 bytes",
                               reason_quote(counter->entity->name).text,
                               reason_quote(counter->name).text);
    }
    return reading;
}

_Static_assert(COUNTER_ENTITY_SIZE_MAX == 2000, "the sentence says 2000");

/* One rule on the event; OK: changes[at] is filled in. */
static enum attribute_reading
change_read(const struct counter_rule *rule, const struct meter_event *event,
            const struct json_value *attributes, struct arena *arena,
            struct counter_change *changes, size_t at, const char **error)
{
    struct counter_change *change = &changes[at];

    *change = (struct counter_change){.counter = rule->counter};
    if (rule->counter->entity != NULL) {
        enum attribute_reading reading = change_entity(
            rule->counter, attributes, arena, &change->entity, error);

        if (reading != ATTRIBUTE_OK) {
            return reading;
        }
        change->delta = rule->delta;
    } else if (!change_delta(rule, event, attributes, arena, &change->delta,
                             error)) {
        return ATTRIBUTE_BAD;
    }
    if (!change_dimensions(changes, at, attributes, arena, error)) {
        return ATTRIBUTE_BAD;
    }
    return ATTRIBUTE_OK;
}

bool
counter_project(const struct event_type *type, const struct meter_event *event,
                const struct json_value *attributes, struct arena *arena,
                const void **effect, bool *is_careful, const char **error)
{
    struct counter_effect *made;
    struct counter_change *changes;
    size_t count = 0;

    *effect = NULL;
    if (type->counter_count == 0) {
        return true;
    }
    made = arena_alloc(arena, sizeof(*made));
    changes = arena_alloc(arena, type->counter_count * sizeof(*changes));
    if (made == NULL || changes == NULL) {
        *error = "no memory is left for the event's counters";
        return false;
    }
    for (size_t i = 0; i < type->counter_count; i++) {
        switch (change_read(&type->counters[i], event, attributes, arena,
                            changes, count, error)) {
        case ATTRIBUTE_OK:
            if (changes[count].entity.data != NULL) {
                *is_careful = true;
            }
            count++;
            break;
        case ATTRIBUTE_ABSENT: break;
        case ATTRIBUTE_BAD: return false;
        }
    }
    if (count > 0) {
        *made = (struct counter_effect){changes, count};
        *effect = made;
    }
    return true;
}
