/*
 * catalog_counters.c - the sections `counters` and `usage`.
 *
 *   catalog_build -> [catalog_counters] -> catalog->counters, usage_rules
 *
 * Both add or subtract 1, or the amount of an attribute, per event; they
 * differ in where the sum lives.
 */

#include "config/catalog_build.h"

static const char *const op_words[] = {"increment", "decrement", NULL};
static const char *const mode_words[] = {"persistent", NULL};
static const char *const scope_words[] = {"globalEventId", NULL};


/* ---- counters -------------------------------------------------------- */

static const struct rule_field transition_fields[] = {
    {"entity", RULE_ATTRIBUTE, true, offsetof(struct counter, entity)},
};
static const struct rule_map transition_map = {"\"transitions\"",
                                               RULE_FIELDS(transition_fields)};

static const struct rule_field idempotency_fields[] = {
    {"scope", RULE_ONLY_WORD, .words = scope_words},
    {"requireEventId", RULE_TRUE, .what = "a counter"},
};
static const struct rule_map idempotency_map = {
    "\"idempotency\" of a counter", RULE_FIELDS(idempotency_fields)};

static const struct rule_field counter_fields[] = {
    {"counterName", RULE_NAME, true, offsetof(struct counter, name)},
    {"dimensions", RULE_ATTRIBUTES, true, offsetof(struct counter, dimensions),
     offsetof(struct counter, dimension_count), METER_DIMENSION_COUNT_MAX},
    {"mode", RULE_ONLY_WORD, .words = mode_words},
    {"floorAtZero", RULE_BOOL, false, offsetof(struct counter, floor_at_zero)},
    {"audit", RULE_BOOL, false, offsetof(struct counter, audit)},
    {"transitions", RULE_MAP, .map = &transition_map},
    {"idempotency", RULE_MAP, .map = &idempotency_map},
    {"rules", RULE_NODE, true},
};

/* A rule of a counter, as it is written. */
struct counter_line {
    int op; /* of op_words */
    const struct attribute_path *by;
};

static const struct rule_field counter_rule_fields[] = {
    {"on", RULE_NODE, true},
    {"op", RULE_WORD, true, offsetof(struct counter_line, op),
     .words = op_words},
    {"by", RULE_ATTRIBUTE, false, offsetof(struct counter_line, by)},
};
static const struct rule_map counter_rule_map = {
    "a rule", RULE_FIELDS(counter_rule_fields)};

static bool
path_equal(const struct attribute_path *a, const struct attribute_path *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    return meter_str_equal(a->name, b->name);
}

/* Whether the rule may stand beside those before it. */
static bool
counter_rule_fits(struct catalog_builder *builder, const struct yaml_node *on,
                  const struct counter *counter,
                  const struct counter_rule *rule)
{
    for (size_t i = 0; i < counter->rule_count; i++) {
        const struct counter_rule *other = &counter->rules[i];

        if (!meter_str_equal(other->on, rule->on)) {
            continue;
        }
        if (counter->entity != NULL) {
            yaml_node_error(builder->errors, on,
                            "with \"transitions\" an event type may stand "
                            "in one rule only");
            return false;
        }
        if (other->delta == rule->delta && path_equal(other->by, rule->by)) {
            yaml_node_error(builder->errors, on,
                            "the same rule for \"%s\" stands here twice",
                            on->text.data);
            return false;
        }
    }
    return true;
}

static bool
counter_rule_build(struct catalog_builder *builder,
                   const struct yaml_node *entry, const struct counter *counter,
                   struct counter_rule *rule)
{
    const struct yaml_node *on = yaml_node_find(entry, "on");
    struct counter_line line = {.by = NULL};
    const struct event_type *type;

    if (!rule_keys(builder, entry, &counter_rule_map) ||
        !rule_values(builder, entry, RULE_FIELDS(counter_rule_fields), &line)) {
        return false;
    }
    if (line.by != NULL && counter->entity != NULL) {
        yaml_node_error(builder->errors, yaml_node_find(entry, "by"),
                        "a counter with transitions counts entities; "
                        "\"by\" cannot be used");
        return false;
    }
    type = catalog_type(builder, on, "on",
                        counter->entity != NULL ? "transitions" : NULL);
    if (type == NULL) {
        return false;
    }
    *rule = (struct counter_rule){
        .counter = counter,
        .on = type->name,
        .delta = line.op == 0 ? 1 : -1,
        .by = line.by,
    };
    return counter_rule_fits(builder, on, counter, rule);
}

static bool
counter_build(struct catalog_builder *builder, const struct yaml_node *entry,
              void *object)
{
    struct counter *counter = object;
    const struct yaml_node *list = yaml_node_find(entry, "rules");
    struct counter_rule *rules;
    bool ok = true;

    counter->keys_max = builder->defaults->counter_keys_max;
    if (!rule_values(builder, entry, RULE_REST(counter_fields), counter) ||
        !rule_list(builder, list, "rules", 1, CATALOG_ON_MAX)) {
        return false;
    }
    rules = rule_alloc(builder, list, list->count * sizeof(*rules));
    if (rules == NULL) {
        return false;
    }
    counter->rules = rules;
    for (const struct yaml_node *node = list->first; node != NULL;
         node = node->next) {
        if (counter_rule_build(builder, node, counter,
                               &rules[counter->rule_count])) {
            counter->rule_count++;
        } else {
            ok = false;
        }
    }
    return ok;
}

static bool
counters_build(struct catalog_builder *builder, const struct yaml_node *list)
{
    static const struct entry_kind kind = {
        .section = "counters",
        .name = "counter",
        .map = {"a counter", RULE_FIELDS(counter_fields)},
        .size = sizeof(struct counter),
        .index_offset = offsetof(struct counter, index),
        .build = counter_build,
    };
    struct catalog *catalog = builder->catalog;
    void *entries;
    bool ok = catalog_entries(builder, list, &kind, &catalog->counter_map,
                              &entries, &catalog->counter_count);

    catalog->counters = entries;
    return ok;
}

const struct catalog_section catalog_counters_section = {"counters",
                                                         counters_build};


/* ---- usage ----------------------------------------------------------- */

static const struct rule_field usage_fields[] = {
    {"entryCount", RULE_NODE},     {"storageBytes", RULE_NODE},
    {"apiCallCount", RULE_NODE},   {"provisioned", RULE_NODE},
    {"decommissioned", RULE_NODE},
};
static const struct rule_map usage_map = {"\"usage\"",
                                          RULE_FIELDS(usage_fields)};

static const struct rule_field usage_column_fields[] = {
    {"increment", RULE_NODE},
    {"decrement", RULE_NODE},
    {"by", RULE_ATTRIBUTE, false, offsetof(struct usage_rule, by)},
};
static const struct rule_map usage_column_map = {
    "a usage column", RULE_FIELDS(usage_column_fields)};

/* One of the two lists of a column; shape is what its rules have in common. */
static bool
usage_list_build(struct catalog_builder *builder, const struct yaml_node *list,
                 const struct usage_rule *shape, struct usage_rule *rules)
{
    const char *key = op_words[shape->delta > 0 ? 0 : 1];
    size_t *count = &builder->catalog->usage_rule_count;

    if (list == NULL) {
        return true;
    }
    if (!rule_list(builder, list, key, 1, CATALOG_ON_MAX)) {
        return false;
    }
    for (const struct yaml_node *on = list->first; on != NULL; on = on->next) {
        const struct event_type *type = catalog_type(builder, on, key, NULL);

        if (type == NULL) {
            return false;
        }
        for (size_t i = 0; i < *count; i++) {
            if (rules[i].column == shape->column &&
                meter_str_equal(rules[i].on, type->name)) {
                yaml_node_error(builder->errors, on,
                                "event type \"%s\" stands twice in \"%s\"",
                                on->text.data,
                                usage_column_name(shape->column));
                return false;
            }
        }
        rules[*count] = *shape;
        rules[*count].on = type->name;
        ++*count;
    }
    return true;
}

static bool
usage_column_build(struct catalog_builder *builder,
                   const struct yaml_node *node, enum usage_column column,
                   struct usage_rule *rules)
{
    const struct yaml_node *increment = yaml_node_find(node, "increment");
    const struct yaml_node *decrement = yaml_node_find(node, "decrement");
    struct usage_rule shape = {
        .column = column, .delta = 1, .is_ordered = decrement != NULL};

    if (!rule_keys(builder, node, &usage_column_map)) {
        return false;
    }
    if (increment == NULL && decrement == NULL) {
        yaml_node_error(builder->errors, node,
                        "a usage column needs \"increment\" or "
                        "\"decrement\"");
        return false;
    }
    if (!rule_values(builder, node, RULE_FIELDS(usage_column_fields), &shape) ||
        !usage_list_build(builder, increment, &shape, rules)) {
        return false;
    }
    shape.delta = -1;
    return usage_list_build(builder, decrement, &shape, rules);
}

static bool
usage_status_build(struct catalog_builder *builder,
                   const struct yaml_node *section, const char *key,
                   enum usage_status status, struct meter_str *name)
{
    const struct yaml_node *node = yaml_node_find(section, key);
    struct event_type *type;

    if (node == NULL) {
        return true;
    }
    type = catalog_type(builder, node, key, NULL);
    if (type == NULL) {
        return false;
    }
    if (type->usage_status != USAGE_STATUS_KEEP) {
        yaml_node_error(builder->errors, node,
                        "\"provisioned\" and \"decommissioned\" must name "
                        "different event types");
        return false;
    }
    type->usage_status = status;
    *name = type->name;
    return true;
}

/* The items of all lists: at least as many as there are rules. */
static size_t
usage_rules_max(const struct yaml_node *section)
{
    size_t count = 0;

    for (const struct yaml_node *column = section->first; column != NULL;
         column = column->next) {
        for (const struct yaml_node *list = column->first; list != NULL;
             list = list->next) {
            count += list->count;
        }
    }
    return count;
}

static bool
usage_build(struct catalog_builder *builder, const struct yaml_node *section)
{
    struct catalog *catalog = builder->catalog;
    struct usage_rule *rules;
    bool ok = true;

    if (!rule_keys(builder, section, &usage_map)) {
        return false;
    }
    rules =
        rule_alloc(builder, section, usage_rules_max(section) * sizeof(*rules));
    if (rules == NULL) {
        return false;
    }
    catalog->usage = true;
    catalog->usage_rules = rules;
    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        const char *key = usage_column_words[i];
        const struct yaml_node *column = yaml_node_find(section, key);

        if (column != NULL &&
            !usage_column_build(builder, column, (enum usage_column)i, rules)) {
            ok = false;
        }
    }
    return usage_status_build(builder, section, "provisioned",
                              USAGE_STATUS_ACTIVE,
                              &catalog->usage_provisioned) &&
           usage_status_build(builder, section, "decommissioned",
                              USAGE_STATUS_DECOMMISSIONED,
                              &catalog->usage_decommissioned) &&
           ok;
}

const struct catalog_section catalog_usage_section = {"usage", usage_build};
