/*
 * catalog_counters.c - the sections `counters` and `usage`.
 *
 * Both add or subtract 1, or the amount of an attribute, per event; they
 * differ in where the sum lives.
 */

#include "config/catalog_build.h"

static const char *const op_words[] = {"increment", "decrement", NULL};
static const char *const mode_words[] = {"persistent", NULL};

/* The nodes of one counter, before they are read. */
struct counter_nodes {
    const struct yaml_node *name;
    const struct yaml_node *mode;
    const struct yaml_node *dimensions;
    const struct yaml_node *floor_at_zero;
    const struct yaml_node *rules;
    const struct yaml_node *idempotency;
    const struct yaml_node *transitions;
    const struct yaml_node *audit;
};

static bool
build_counter(struct catalog_builder *builder, const struct yaml_node *entry,
              struct counter *counter);


bool
catalog_counters(struct catalog_builder *builder,
                 const struct yaml_node *section)
{
    struct catalog *catalog = builder->catalog;
    struct counter *counters;
    size_t count = 0;
    bool ok = true;

    if (section == NULL) {
        return true;
    }
    if (!rule_list(&builder->reader, section, "counters", 0,
                   CATALOG_ENTRIES_MAX)) {
        return false;
    }
    counters = rule_alloc(&builder->reader, section,
                          section->count * sizeof(*counters));
    if (counters == NULL) {
        return false;
    }
    for (const struct yaml_node *entry = section->first; entry != NULL;
         entry = entry->next) {
        counters[count].index = (uint32_t)count;
        ok = build_counter(builder, entry, &counters[count]) && ok;
        count++;
    }
    catalog->counters = counters;
    catalog->counter_count = count;
    return ok;
}

static bool
counter_transitions(struct catalog_builder *builder,
                    const struct yaml_node *node, struct counter *counter)
{
    const struct yaml_node *entity = NULL;
    const struct rule_field fields[] = {{"entity", true, &entity}};

    return rule_fields(&builder->reader, node, "\"transitions\"", fields, 1) &&
           rule_attribute(&builder->reader, entity, "entity", &counter->entity);
}

static bool
counter_idempotency(struct catalog_builder *builder,
                    const struct yaml_node *node)
{
    bool require_event_id;

    if (!catalog_idempotency(builder, node, "\"idempotency\" of a counter",
                             &require_event_id)) {
        return false;
    }
    if (!require_event_id) {
        yaml_node_error(builder->reader.errors,
                        yaml_node_find(node, METER_STR("requireEventId")),
                        "\"requireEventId\" of a counter must be true");
        return false;
    }
    return true;
}

static bool
counter_settings(struct catalog_builder *builder,
                 const struct counter_nodes *nodes, struct counter *counter)
{
    struct rule_reader *reader = &builder->reader;
    struct attribute_list dimensions;
    int position;

    if (!rule_attributes(reader, nodes->dimensions, "dimensions",
                         METER_DIMENSION_COUNT_MAX, true, &dimensions)) {
        return false;
    }
    counter->dimensions = dimensions.items;
    counter->dimension_count = dimensions.count;
    return (nodes->mode == NULL ||
            rule_word(reader, nodes->mode, "mode", mode_words, &position)) &&
           (nodes->floor_at_zero == NULL ||
            rule_bool(reader, nodes->floor_at_zero, "floorAtZero",
                      &counter->floor_at_zero)) &&
           (nodes->audit == NULL ||
            rule_bool(reader, nodes->audit, "audit", &counter->audit)) &&
           (nodes->transitions == NULL ||
            counter_transitions(builder, nodes->transitions, counter)) &&
           (nodes->idempotency == NULL ||
            counter_idempotency(builder, nodes->idempotency));
}

static bool
counter_rule(struct catalog_builder *builder, const struct yaml_node *entry,
             struct counter *counter, struct counter_rule *rule)
{
    struct rule_reader *reader = &builder->reader;
    const struct yaml_node *on = NULL;
    const struct yaml_node *op = NULL;
    const struct yaml_node *by = NULL;
    const struct rule_field fields[] = {
        {"on", true, &on},
        {"op", true, &op},
        {"by", false, &by},
    };
    struct type_draft *type;
    int position;

    if (!rule_fields(reader, entry, "a rule", fields, 3) ||
        !rule_word(reader, op, "op", op_words, &position) ||
        (by != NULL && !rule_attribute(reader, by, "by", &rule->by))) {
        return false;
    }
    if (by != NULL && counter->entity != NULL) {
        yaml_node_error(reader->errors, by,
                        "a counter with transitions counts entities; "
                        "\"by\" cannot be used");
        return false;
    }
    type = catalog_type(builder, on, "on");
    if (type == NULL) {
        return false;
    }
    rule->counter = counter;
    rule->on = type->row.name;
    rule->delta = position == 0 ? 1 : -1;
    if (!check_counter_on(builder, on, type, counter) ||
        !check_counter_rule(builder, on, counter, rule)) {
        return false;
    }
    return catalog_link(builder, entry, &type->counters, rule);
}

static bool
counter_rules(struct catalog_builder *builder, const struct yaml_node *list,
              struct counter *counter)
{
    struct counter_rule *rules;
    bool ok = true;

    if (!rule_list(&builder->reader, list, "rules", 1, CATALOG_ON_MAX)) {
        return false;
    }
    rules = rule_alloc(&builder->reader, list, list->count * sizeof(*rules));
    if (rules == NULL) {
        return false;
    }
    counter->rules = rules;
    for (const struct yaml_node *entry = list->first; entry != NULL;
         entry = entry->next) {
        if (counter_rule(builder, entry, counter,
                         &rules[counter->rule_count])) {
            counter->rule_count++;
        } else {
            ok = false;
        }
    }
    return ok;
}

static bool
build_counter(struct catalog_builder *builder, const struct yaml_node *entry,
              struct counter *counter)
{
    struct counter_nodes nodes = {NULL};
    const struct rule_field fields[] = {
        {"counterName", true, &nodes.name},
        {"mode", false, &nodes.mode},
        {"dimensions", true, &nodes.dimensions},
        {"floorAtZero", false, &nodes.floor_at_zero},
        {"rules", true, &nodes.rules},
        {"idempotency", false, &nodes.idempotency},
        {"transitions", false, &nodes.transitions},
        {"audit", false, &nodes.audit},
    };

    if (!rule_fields(&builder->reader, entry, "a counter", fields, 8) ||
        !rule_name(&builder->reader, nodes.name, "counterName",
                   &counter->name) ||
        !catalog_claim(builder, &builder->catalog->counter_map, nodes.name,
                       "counter", counter->name, counter) ||
        !counter_settings(builder, &nodes, counter)) {
        return false;
    }
    counter->keys_max = builder->defaults->counter_keys_max;
    return counter_rules(builder, nodes.rules, counter);
}


/* The nodes of one usage column. */
struct usage_nodes {
    const struct yaml_node *increment;
    const struct yaml_node *decrement;
    const struct yaml_node *by;
};

static bool
usage_rules(struct catalog_builder *builder, const struct yaml_node *list,
            const struct usage_rule *shape, struct usage_rule *rules,
            size_t *count)
{
    const char *key = shape->delta > 0 ? "increment" : "decrement";

    if (list == NULL) {
        return true;
    }
    if (!rule_list(&builder->reader, list, key, 1, CATALOG_ON_MAX)) {
        return false;
    }
    for (const struct yaml_node *on = list->first; on != NULL; on = on->next) {
        struct type_draft *type = catalog_type(builder, on, key);
        struct usage_rule *rule = &rules[*count];

        if (type == NULL) {
            return false;
        }
        *rule = *shape;
        rule->on = type->row.name;
        if (!check_usage_rule(builder, on, rules, *count, rule) ||
            !catalog_link(builder, on, &type->usage, rule)) {
            return false;
        }
        ++*count;
    }
    return true;
}

static bool
usage_column(struct catalog_builder *builder, const struct yaml_node *node,
             enum usage_column column, struct usage_rule *rules, size_t *count)
{
    struct usage_nodes nodes = {NULL};
    const struct rule_field fields[] = {
        {"increment", false, &nodes.increment},
        {"decrement", false, &nodes.decrement},
        {"by", false, &nodes.by},
    };
    struct usage_rule shape = {.column = column};

    if (!rule_fields(&builder->reader, node, "a usage column", fields, 3)) {
        return false;
    }
    shape.is_ordered = nodes.decrement != NULL;
    if (nodes.increment == NULL && nodes.decrement == NULL) {
        yaml_node_error(builder->reader.errors, node,
                        "a usage column needs \"increment\" or "
                        "\"decrement\"");
        return false;
    }
    if (nodes.by != NULL &&
        !rule_attribute(&builder->reader, nodes.by, "by", &shape.by)) {
        return false;
    }
    shape.delta = 1;
    if (!usage_rules(builder, nodes.increment, &shape, rules, count)) {
        return false;
    }
    shape.delta = -1;
    return usage_rules(builder, nodes.decrement, &shape, rules, count);
}

static bool
usage_status(struct catalog_builder *builder, const struct yaml_node *node,
             const char *key, enum usage_status status, struct meter_str *name)
{
    struct type_draft *type;

    if (node == NULL) {
        return true;
    }
    type = catalog_type(builder, node, key);
    if (type == NULL) {
        return false;
    }
    if (type->row.usage_status != USAGE_STATUS_KEEP) {
        yaml_node_error(builder->reader.errors, node,
                        "\"provisioned\" and \"decommissioned\" must name "
                        "different event types");
        return false;
    }
    type->row.usage_status = status;
    *name = type->row.name;
    return true;
}

/* Room for every item of every list: at least as many as there are rules. */
static size_t
usage_rules_max(const struct yaml_node *const *columns)
{
    size_t count = 0;

    for (int column = 0; column < USAGE_COLUMN_COUNT; column++) {
        const struct yaml_node *list =
            columns[column] != NULL ? columns[column]->first : NULL;

        for (; list != NULL; list = list->next) {
            count += list->count;
        }
    }
    return count;
}

bool
catalog_usage(struct catalog_builder *builder, const struct yaml_node *section)
{
    const struct yaml_node *columns[USAGE_COLUMN_COUNT] = {NULL};
    const struct yaml_node *provisioned = NULL;
    const struct yaml_node *decommissioned = NULL;
    const struct rule_field fields[] = {
        {"entryCount", false, &columns[USAGE_ENTRY_COUNT]},
        {"storageBytes", false, &columns[USAGE_STORAGE_BYTES]},
        {"apiCallCount", false, &columns[USAGE_API_CALL_COUNT]},
        {"provisioned", false, &provisioned},
        {"decommissioned", false, &decommissioned},
    };
    struct catalog *catalog = builder->catalog;
    struct usage_rule *rules;
    bool ok = true;

    if (section == NULL) {
        return true;
    }
    if (!rule_fields(&builder->reader, section, "\"usage\"", fields, 5)) {
        return false;
    }
    rules = rule_alloc(&builder->reader, section,
                       usage_rules_max(columns) * sizeof(*rules));
    if (rules == NULL) {
        return false;
    }
    for (int column = 0; column < USAGE_COLUMN_COUNT; column++) {
        if (columns[column] != NULL) {
            ok = usage_column(builder, columns[column],
                              (enum usage_column)column, rules,
                              &catalog->usage_rule_count) &&
                 ok;
        }
    }
    catalog->usage = true;
    catalog->usage_rules = rules;
    return usage_status(builder, provisioned, "provisioned",
                        USAGE_STATUS_ACTIVE, &catalog->usage_provisioned) &&
           usage_status(builder, decommissioned, "decommissioned",
                        USAGE_STATUS_DECOMMISSIONED,
                        &catalog->usage_decommissioned) &&
           ok;
}
