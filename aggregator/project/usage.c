/*
 * usage.c - the usage row of a tenant, see usage.h.
 *
 *   event, attributes -> [usage_project] -> effect -> [fold] per tenant
 *                                        -> [apply] on a locked row
 */

#include "project/usage.h"

#include "base/reason.h"

#define UNITS_OF_ONE INT64_C(1000000000) /* of struct meter_decimal */

static const char *const status_names[] = {
    [USAGE_STATUS_KEEP] = NULL,
    [USAGE_STATUS_ACTIVE] = "active",
    [USAGE_STATUS_DECOMMISSIONED] = "decommissioned",
};

const char *
usage_status_name(enum usage_status status)
{
    return status_names[status];
}

bool
usage_status_parse(struct meter_str text, enum usage_status *out)
{
    if (meter_str_equal(text, METER_STR("active"))) {
        *out = USAGE_STATUS_ACTIVE;
        return true;
    }
    if (meter_str_equal(text, METER_STR("decommissioned"))) {
        *out = USAGE_STATUS_DECOMMISSIONED;
        return true;
    }
    return false;
}

void
usage_row_init(struct usage_row *row)
{
    *row = (struct usage_row){.status = USAGE_STATUS_ACTIVE};
}

bool
usage_apply(struct usage_row *row, const struct usage_effect *effect,
            enum usage_column *column)
{
    struct usage_row next = *row;

    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        if (effect->is_touched[i] &&
            !counter_apply(&next.value[i], effect->delta[i], true)) {
            *column = (enum usage_column)i;
            return false;
        }
    }
    if (effect->status != USAGE_STATUS_KEEP) {
        next.status = effect->status;
    }
    *row = next;
    return true;
}

void
usage_fold_init(struct usage_fold *fold)
{
    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        counter_fold_init(&fold->column[i]);
    }
    fold->status = USAGE_STATUS_KEEP;
}

bool
usage_fold_step(struct usage_fold *fold, const struct usage_effect *effect)
{
    struct usage_fold next = *fold;

    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        if (effect->is_touched[i] &&
            !counter_fold_step(&next.column[i], effect->delta[i], true)) {
            return false;
        }
    }
    if (effect->status != USAGE_STATUS_KEEP) {
        next.status = effect->status;
    }
    *fold = next;
    return true;
}

bool
usage_fold_apply(const struct usage_fold *fold, struct usage_row *row)
{
    struct usage_row next = *row;

    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        if (!counter_fold_apply(&fold->column[i], &next.value[i])) {
            return false;
        }
    }
    if (fold->status != USAGE_STATUS_KEEP) {
        next.status = fold->status;
    }
    *row = next;
    return true;
}

/* The amount of a rule; an attribute that is not there counts 0. */
static bool
rule_amount(const struct usage_rule *rule, const struct meter_event *event,
            const struct json_value *attributes, int64_t *amount)
{
    struct meter_decimal decimal;

    if (rule->by == NULL) {
        *amount = 1;
        return true;
    }
    switch (attribute_decimal(attributes, rule->by, event, &decimal)) {
    case ATTRIBUTE_ABSENT: *amount = 0; return true;
    case ATTRIBUTE_BAD: return false;
    case ATTRIBUTE_OK: break;
    }
    if (decimal.units < 0 || decimal.units % UNITS_OF_ONE != 0 ||
        decimal.units / UNITS_OF_ONE > INT64_MAX) {
        return false;
    }
    *amount = (int64_t)(decimal.units / UNITS_OF_ONE);
    return true;
}

static bool
effect_add(struct usage_effect *effect, const struct usage_rule *rule,
           const struct meter_event *event, const struct json_value *attributes,
           struct arena *arena, const char **error)
{
    int64_t amount;

    if (!rule_amount(rule, event, attributes, &amount)) {
        *error = reason_format(arena,
                               "attribute %s is not a non-negative 64-bit "
                               "integer, as usage %s wants it",
                               reason_quote(rule->by->name).text,
                               usage_column_name(rule->column));
        return false;
    }
    if (__builtin_mul_overflow(amount, event->count, &amount)) {
        *error = reason_format(arena, "amount for usage %s is past 64 bits",
                               usage_column_name(rule->column));
        return false;
    }
    /* The rules name a type at most once per column. */
    CHECK(!effect->is_touched[rule->column]);
    effect->is_touched[rule->column] = true;
    effect->delta[rule->column] = rule->delta < 0 ? -amount : amount;
    effect->is_ordered = effect->is_ordered || rule->is_ordered;
    return true;
}

bool
usage_project(const struct event_type *type, const struct meter_event *event,
              const struct json_value *attributes, struct arena *arena,
              const void **effect, bool *is_careful, const char **error)
{
    struct usage_effect *made;

    (void)is_careful; /* folds take every effect */
    *effect = NULL;
    if (type->usage_count == 0 && type->usage_status == USAGE_STATUS_KEEP) {
        return true;
    }
    made = arena_zalloc(arena, sizeof(*made));
    if (made == NULL) {
        *error = "no memory is left for the event's usage";
        return false;
    }
    made->status = type->usage_status;
    made->is_ordered = type->usage_status != USAGE_STATUS_KEEP;
    for (size_t i = 0; i < type->usage_count; i++) {
        if (!effect_add(made, &type->usage[i], event, attributes, arena,
                        error)) {
            return false;
        }
    }
    *effect = made;
    return true;
}
