/*
 * catalog_build.c - event types, and the arrays of rules under each.
 *
 * Rules come in the order of the file and are chained to the draft of every
 * type they name; at the end each chain becomes one array, so that an event
 * finds its rules by one look-up and reads them in a row.
 */

#include "config/catalog_build.h"

#include "config/scalar.h"

static bool
build_events(struct catalog_builder *builder, const struct yaml_node *section);
static bool build_finish(struct catalog_builder *builder);


bool
catalog_build(const struct catalog_sections *sections,
              const struct catalog_defaults *defaults, struct arena *arena,
              struct arena *scratch, struct config_errors *errors,
              struct catalog *catalog)
{
    struct catalog_builder builder = {
        .reader = {arena, errors},
        .scratch = scratch,
        .catalog = catalog,
        .defaults = defaults,
    };
    bool ok = true;

    *catalog = (struct catalog){.event_type_count = 0};
    map_init(&catalog->event_type_map, CATALOG_ENTRIES_MAX);
    map_init(&catalog->counter_map, CATALOG_ENTRIES_MAX);
    map_init(&catalog->meter_map, CATALOG_ENTRIES_MAX);
    map_init(&catalog->series_map, CATALOG_ENTRIES_MAX);
    map_init(&builder.drafts, CATALOG_ENTRIES_MAX);

    ok = build_events(&builder, sections->events) && ok;
    ok = catalog_counters(&builder, sections->counters) && ok;
    ok = catalog_usage(&builder, sections->usage) && ok;
    ok = catalog_meters(&builder, sections->meters) && ok;
    ok = catalog_series_section(&builder, sections->series) && ok;
    ok = ok && build_finish(&builder);

    map_fini(&builder.drafts);
    return ok;
}


bool
catalog_claim(struct catalog_builder *builder, struct map *names,
              const struct yaml_node *node, const char *what,
              struct meter_str name, const void *value)
{
    void *held = map_add(names, name, (void *)value);

    if (held == value) {
        return true;
    }
    if (held == NULL) {
        yaml_node_error(builder->reader.errors, node,
                        "more than %d entries of this kind, or out of memory",
                        CATALOG_ENTRIES_MAX);
        return false;
    }
    yaml_node_error(builder->reader.errors, node, "%s \"%s\" is declared twice",
                    what, node->text.data);
    return false;
}

static struct type_draft *
draft_add(struct catalog_builder *builder, const struct yaml_node *node,
          struct meter_str name)
{
    struct type_draft *draft = arena_zalloc(builder->scratch, sizeof(*draft));

    if (draft == NULL) {
        yaml_node_error(builder->reader.errors, node,
                        "the configuration needs too much memory");
        return NULL;
    }
    draft->row.name = name;
    draft->row.require_event_id = true;
    if (!catalog_claim(builder, &builder->drafts, node, "event type", name,
                       draft)) {
        return NULL;
    }
    if (builder->last == NULL) {
        builder->first = draft;
    } else {
        builder->last->next = draft;
    }
    builder->last = draft;
    draft->row.index = (uint32_t)builder->draft_count++;
    return draft;
}

/* A type that only rules name is checked as "*" says, if that is there. */
struct type_draft *
catalog_type(struct catalog_builder *builder, const struct yaml_node *on,
             const char *key)
{
    struct meter_str name;
    struct type_draft *draft;

    if (on->kind == YAML_TEXT && meter_str_equal(on->text, METER_STR("*"))) {
        yaml_node_error(builder->reader.errors, on,
                        "\"%s\" must name event types; \"*\" is not one", key);
        return NULL;
    }
    if (!rule_name(&builder->reader, on, key, &name)) {
        return NULL;
    }
    draft = map_find(&builder->drafts, name);
    if (draft != NULL) {
        return draft;
    }
    if (!check_undeclared(builder, on)) {
        return NULL;
    }
    draft = draft_add(builder, on, name);
    if (draft != NULL && builder->any != NULL) {
        draft->row.delta = builder->any->row.delta;
        draft->row.require_event_id = builder->any->row.require_event_id;
        draft->row.required = builder->any->row.required;
        draft->row.indexed = builder->any->row.indexed;
    }
    return draft;
}

bool
catalog_link(struct catalog_builder *builder, const struct yaml_node *node,
             struct rule_chain *chain, const void *rule)
{
    struct rule_link *link = arena_zalloc(builder->scratch, sizeof(*link));

    if (link == NULL) {
        yaml_node_error(builder->reader.errors, node,
                        "the configuration needs too much memory");
        return false;
    }
    link->rule = rule;
    if (chain->last == NULL) {
        chain->first = link;
    } else {
        chain->last->next = link;
    }
    chain->last = link;
    chain->count++;
    return true;
}

bool
catalog_idempotency(struct catalog_builder *builder,
                    const struct yaml_node *node, const char *what,
                    bool *require_event_id)
{
    static const char *const scopes[] = {"globalEventId", NULL};
    const struct yaml_node *require = NULL;
    const struct yaml_node *scope = NULL;
    const struct rule_field fields[] = {
        {"requireEventId", false, &require},
        {"scope", false, &scope},
    };
    int position;

    *require_event_id = true;
    if (!rule_fields(&builder->reader, node, what, fields, 2)) {
        return false;
    }
    if (scope != NULL &&
        !rule_word(&builder->reader, scope, "scope", scopes, &position)) {
        return false;
    }
    return require == NULL || rule_bool(&builder->reader, require,
                                        "requireEventId", require_event_id);
}

static struct type_draft *
event_draft(struct catalog_builder *builder, const struct yaml_node *type)
{
    struct meter_str name = METER_STR("*");
    bool any = type->kind == YAML_TEXT && type->quoted &&
               meter_str_equal(type->text, name);
    struct type_draft *draft;

    if (!any && !rule_name(&builder->reader, type, "type", &name)) {
        return NULL;
    }
    draft = draft_add(builder, type, name);
    if (draft != NULL) {
        draft->row.declared = true;
        builder->any = any ? draft : builder->any;
    }
    return draft;
}

static bool
build_event(struct catalog_builder *builder, const struct yaml_node *entry)
{
    struct rule_reader *reader = &builder->reader;
    const struct yaml_node *type = NULL;
    const struct yaml_node *required = NULL;
    const struct yaml_node *indexed = NULL;
    const struct yaml_node *delta = NULL;
    const struct yaml_node *idempotency = NULL;
    const struct rule_field fields[] = {
        {"type", true, &type},
        {"required", false, &required},
        {"indexed", false, &indexed},
        {"delta", false, &delta},
        {"idempotency", false, &idempotency},
    };
    struct type_draft *draft;
    struct event_type *row;

    if (!rule_fields(reader, entry, "an event type", fields, 5)) {
        return false;
    }
    draft = event_draft(builder, type);
    if (draft == NULL) {
        return false;
    }
    row = &draft->row;
    return (required == NULL ||
            rule_attributes(reader, required, "required",
                            CATALOG_ATTRIBUTES_MAX, true, &row->required)) &&
           (indexed == NULL ||
            rule_attributes(reader, indexed, "indexed", CATALOG_ATTRIBUTES_MAX,
                            true, &row->indexed)) &&
           (delta == NULL || rule_bool(reader, delta, "delta", &row->delta)) &&
           (idempotency == NULL ||
            catalog_idempotency(builder, idempotency,
                                "\"idempotency\" of an event type",
                                &row->require_event_id));
}

static bool
build_events(struct catalog_builder *builder, const struct yaml_node *section)
{
    bool ok = true;

    if (section == NULL) {
        return true;
    }
    if (!rule_list(&builder->reader, section, "events", 0,
                   CATALOG_ENTRIES_MAX)) {
        return false;
    }
    for (const struct yaml_node *entry = section->first; entry != NULL;
         entry = entry->next) {
        ok = build_event(builder, entry) && ok;
    }
    return ok;
}


static bool
finish_rules(struct catalog_builder *builder, const struct type_draft *draft,
             struct event_type *row)
{
    struct arena *arena = builder->reader.arena;
    struct counter_rule *counters =
        arena_alloc(arena, draft->counters.count * sizeof(*counters) + 1);
    struct usage_rule *usage =
        arena_alloc(arena, draft->usage.count * sizeof(*usage) + 1);
    const struct rule_link *link;

    if (counters == NULL || usage == NULL) {
        return false;
    }
    row->counters = counters;
    row->counter_count = draft->counters.count;
    for (link = draft->counters.first; link != NULL; link = link->next) {
        *counters++ = *(const struct counter_rule *)link->rule;
    }
    row->usage = usage;
    row->usage_count = draft->usage.count;
    for (link = draft->usage.first; link != NULL; link = link->next) {
        *usage++ = *(const struct usage_rule *)link->rule;
    }
    return true;
}

static bool
finish_metrics(struct catalog_builder *builder, const struct type_draft *draft,
               struct event_type *row)
{
    struct arena *arena = builder->reader.arena;
    const struct billing_meter **meters =
        arena_alloc(arena, draft->meters.count * sizeof(*meters) + 1);
    const struct series **series =
        arena_alloc(arena, draft->series.count * sizeof(*series) + 1);
    const struct rule_link *link;

    if (meters == NULL || series == NULL) {
        return false;
    }
    row->meters = meters;
    row->meter_count = draft->meters.count;
    for (link = draft->meters.first; link != NULL; link = link->next) {
        *meters++ = link->rule;
    }
    row->series = series;
    row->series_count = draft->series.count;
    for (link = draft->series.first; link != NULL; link = link->next) {
        *series++ = link->rule;
    }
    return true;
}

static bool
build_finish(struct catalog_builder *builder)
{
    struct catalog *catalog = builder->catalog;
    struct event_type *rows = arena_alloc(
        builder->reader.arena, builder->draft_count * sizeof(*rows) + 1);
    size_t count = 0;

    if (rows == NULL) {
        goto no_memory;
    }
    for (struct type_draft *draft = builder->first; draft != NULL;
         draft = draft->next) {
        struct event_type *row = &rows[count++];

        *row = draft->row;
        if (!finish_rules(builder, draft, row) ||
            !finish_metrics(builder, draft, row) ||
            map_add(&catalog->event_type_map, row->name, row) != row) {
            goto no_memory;
        }
        if (draft == builder->any) {
            catalog->any_type = row;
        }
    }
    CHECK(count == builder->draft_count);
    catalog->event_types = rows;
    catalog->event_type_count = count;
    return true;

no_memory:
    config_errors_add(builder->reader.errors, "", 0, 0,
                      "the configuration needs too much memory");
    return false;
}
