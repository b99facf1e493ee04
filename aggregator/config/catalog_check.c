/*
 * catalog_check.c - whether rules fit together. Pure decisions.
 *
 * A type that may arrive as deltas gives a sum and a count per key, so what
 * needs each single request (extremes of quantity, transitions, states) is
 * refused for it. Attributes are part of a delta's key: every request in it
 * had the same, so aggregations over attributes are exact.
 */

#include "config/catalog_build.h"

#include "config/scalar.h"


/* Shorter names must be nearer to be taken for a slip of the pen. */
static unsigned
near_limit(struct meter_str name)
{
    return name.size < 5 ? 0 : name.size < 9 ? 1 : 2;
}

/*
 * A rule may name a type that `events` does not declare: the rule declares
 * it. One that is almost a declared one is a mistake, though, and would
 * count nothing for ever.
 */
bool
check_undeclared(struct catalog_builder *builder, const struct yaml_node *on)
{
    unsigned limit = near_limit(on->text);

    for (const struct type_draft *draft = builder->first; draft != NULL;
         draft = draft->next) {
        if (!draft->row.declared ||
            scalar_distance(on->text, draft->row.name, limit) > limit) {
            continue;
        }
        yaml_node_error(builder->reader.errors, on,
                        "event type \"%s\" is not declared; did you mean "
                        "\"%s\"? (if not, declare it under \"events\")",
                        on->text.data, draft->row.name.data);
        return false;
    }
    return true;
}

static bool
refuse_delta(struct catalog_builder *builder, const struct yaml_node *on,
             const char *what)
{
    yaml_node_error(builder->reader.errors, on,
                    "event type \"%s\" may arrive as deltas (delta: true): "
                    "a sum cannot answer %s",
                    on->text.data, what);
    return false;
}

bool
check_counter_on(struct catalog_builder *builder, const struct yaml_node *on,
                 const struct type_draft *type, const struct counter *counter)
{
    if (type->row.delta && counter->entity != NULL) {
        return refuse_delta(builder, on, "transitions");
    }
    return true;
}

static bool
path_equal(const struct attribute_path *a, const struct attribute_path *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    return meter_str_equal(a->name, b->name);
}

bool
check_counter_rule(struct catalog_builder *builder, const struct yaml_node *on,
                   const struct counter *counter,
                   const struct counter_rule *rule)
{
    for (size_t i = 0; i < counter->rule_count; i++) {
        const struct counter_rule *other = &counter->rules[i];

        if (!meter_str_equal(other->on, rule->on)) {
            continue;
        }
        if (counter->entity != NULL) {
            yaml_node_error(builder->reader.errors, on,
                            "with \"transitions\" an event type may stand "
                            "in one rule only");
            return false;
        }
        if (other->delta == rule->delta && path_equal(other->by, rule->by)) {
            yaml_node_error(builder->reader.errors, on,
                            "the same rule for \"%s\" stands here twice",
                            on->text.data);
            return false;
        }
    }
    return true;
}

bool
check_usage_rule(struct catalog_builder *builder, const struct yaml_node *on,
                 const struct usage_rule *rules, size_t count,
                 const struct usage_rule *rule)
{
    for (size_t i = 0; i < count; i++) {
        if (rules[i].column == rule->column &&
            meter_str_equal(rules[i].on, rule->on)) {
            yaml_node_error(builder->reader.errors, on,
                            "event type \"%s\" stands twice in \"%s\"",
                            on->text.data, usage_column_name(rule->column));
            return false;
        }
    }
    return true;
}

bool
check_meter_on(struct catalog_builder *builder, const struct yaml_node *on,
               const struct type_draft *type, const struct billing_meter *meter)
{
    if (!type->row.delta || meter->value != NULL) {
        return true;
    }
    switch (meter->aggregation) {
    case BILLING_SUM:
    case BILLING_COUNT:
    case BILLING_AVG: return true;
    case BILLING_MIN: return refuse_delta(builder, on, "min of quantity");
    case BILLING_MAX: return refuse_delta(builder, on, "max of quantity");
    case BILLING_LAST: return refuse_delta(builder, on, "last of quantity");
    case BILLING_UNIQUE: break;
    }
    return refuse_delta(builder, on, "unique of quantity");
}

bool
check_series_on(struct catalog_builder *builder, const struct yaml_node *on,
                const struct type_draft *type, const struct series *series)
{
    if (!type->row.delta) {
        return true;
    }
    if (series->kind == SERIES_STATE) {
        return refuse_delta(builder, on, "states");
    }
    if (series->value != NULL || series->kind == SERIES_COUNTER) {
        return true;
    }
    return refuse_delta(builder, on,
                        series->kind == SERIES_GAUGE
                            ? "a gauge over quantity"
                            : "a histogram over quantity");
}

bool
check_on_repeated(struct catalog_builder *builder, const struct yaml_node *on,
                  const struct meter_str *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (meter_str_equal(names[i], on->text)) {
            yaml_node_error(builder->reader.errors, on,
                            "\"on\" names \"%s\" twice", on->text.data);
            return false;
        }
    }
    return true;
}
