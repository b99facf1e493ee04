/*
 * counter.c - persistent counters, see counter.h.
 *
 *   event, attributes -> [counter_project] -> changes -> [fold] per row
 *                                          -> one statement per batch
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

const struct json_value *
attribute_find(const struct json_value *attributes,
               const struct attribute_path *path)
{
    const struct json_value *value = json_member_find(attributes, path->name);

    if (value != NULL || path->segment_count == 1) {
        return value;
    }
    value = attributes;
    for (size_t i = 0; i < path->segment_count; i++) {
        if (value == NULL || value->kind != JSON_OBJECT) {
            return NULL;
        }
        value = json_member_find(value, path->segments[i]);
    }
    return value;
}

/*
 * The amount of a `by` rule. By value, not by spelling: 5, 5.0 and 5e0 are
 * one number once the attributes are stored. What the edge captured is all
 * text, and there a number's text will do.
 */
static bool
rule_amount(const struct counter_rule *rule, const struct meter_event *event,
            const struct json_value *attributes, int64_t *amount)
{
    bool is_captured = (event->flags & METER_EVENT_CAPTURED) != 0;
    const struct json_value *value;
    struct meter_decimal decimal;

    if (rule->by == NULL) {
        *amount = 1;
        return true;
    }
    value = attribute_find(attributes, rule->by);
    if (value == NULL || value->kind == JSON_NULL) {
        *amount = 0;
        return true;
    }
    if ((value->kind != JSON_NUMBER &&
         !(is_captured && value->kind == JSON_STRING)) ||
        meter_decimal_parse(value->text, &decimal) != METER_DECIMAL_OK ||
        decimal.units < 0 || decimal.units % UNITS_OF_ONE != 0 ||
        decimal.units / UNITS_OF_ONE > INT64_MAX) {
        return false;
    }
    *amount = (int64_t)(decimal.units / UNITS_OF_ONE);
    return true;
}

/* Room for the canonical text of a number, one per dimension. */
typedef char number_text[METER_NUMBER_TEXT_SIZE + 1];

/* NULL, or what keeps the value from being a dimension. */
static const char *
dimension_read(const struct json_value *value, struct meter_dim *dim,
               number_text number)
{
    dim->kind = METER_DIM_NULL;
    dim->value = (struct meter_str){NULL, 0};
    if (value == NULL) {
        return NULL;
    }
    switch (value->kind) {
    case JSON_NULL: return NULL;
    case JSON_FALSE:
    case JSON_TRUE: dim->kind = METER_DIM_BOOL; break;
    case JSON_STRING: dim->kind = METER_DIM_STRING; break;
    case JSON_NUMBER: dim->kind = METER_DIM_NUMBER; break;
    case JSON_ARRAY: return "is an array";
    case JSON_OBJECT: return "is an object";
    }
    dim->value = value->text;
    if (value->kind == JSON_NUMBER) {
        if (!meter_number_canonical(value->text, number, &dim->value.size)) {
            return "has too many digits";
        }
        dim->value.data = number;
    }
    if (dim->value.size > METER_DIMENSION_SIZE_MAX) {
        return "is longer than 1024 bytes";
    }
    return NULL;
}

_Static_assert(METER_DIMENSION_SIZE_MAX == 1024, "the sentence says 1024");

/* Canonical JSON; escapes are rare, so the first room is without them. */
static bool
dimensions_write(const struct meter_dim *dims, size_t count,
                 struct arena *arena, struct meter_str *out)
{
    struct meter_writer writer = {.failed = true};
    size_t room = 2;

    for (size_t i = 0; i < count; i++) {
        room += dims[i].name.size + dims[i].value.size + 10;
    }
    while (writer.failed) {
        char *text = arena_alloc(arena, room);

        if (text == NULL) {
            return false;
        }
        meter_writer_init(&writer, text, room);
        meter_dims_json(dims, count, &writer);
        *out = (struct meter_str){text, writer.at};
        room = METER_JSON_ESCAPED_SIZE(room);
    }
    return true;
}

static bool
change_dimensions(const struct counter *counter,
                  const struct json_value *attributes, struct arena *arena,
                  struct counter_change *change, const char **error)
{
    struct meter_dim dims[METER_DIMENSION_COUNT_MAX];
    number_text numbers[METER_DIMENSION_COUNT_MAX];

    CHECK(counter->dimension_count <= METER_DIMENSION_COUNT_MAX);
    for (size_t i = 0; i < counter->dimension_count; i++) {
        const struct attribute_path *path = &counter->dimensions[i];
        const char *wrong;

        dims[i].name = path->name;
        wrong = dimension_read(attribute_find(attributes, path), &dims[i],
                               numbers[i]);
        if (wrong != NULL) {
            *error = reason_format(arena,
                                   "attribute %s %s: it cannot be a dimension "
                                   "of counter %s",
                                   reason_quote(path->name).text, wrong,
                                   reason_quote(counter->name).text);
            return false;
        }
    }
    meter_dims_key(dims, counter->dimension_count, change->dimension_key);
    if (!dimensions_write(dims, counter->dimension_count, arena,
                          &change->dimensions)) {
        *error = "no memory is left for the event's counters";
        return false;
    }
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

bool
counter_project(const struct event_type *type, const struct meter_event *event,
                const struct json_value *attributes, struct arena *arena,
                struct counter_change **changes, size_t *count,
                const char **error)
{
    struct counter_change *list = NULL;

    *changes = NULL;
    *count = 0;
    if (type->counter_count == 0) {
        return true;
    }
    list = arena_alloc(arena, type->counter_count * sizeof(*list));
    if (list == NULL) {
        *error = "no memory is left for the event's counters";
        return false;
    }
    for (size_t i = 0; i < type->counter_count; i++) {
        const struct counter_rule *rule = &type->counters[i];
        struct counter_change *change = &list[*count];

        if (rule->counter->entity != NULL) {
            continue; /* decided by the entity's state, not by a sum */
        }
        change->counter = rule->counter;
        if (!change_delta(rule, event, attributes, arena, &change->delta,
                          error) ||
            !change_dimensions(rule->counter, attributes, arena, change,
                               error)) {
            return false;
        }
        (*count)++;
    }
    *changes = list;
    return true;
}
