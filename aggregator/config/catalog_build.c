/*
 * catalog_build.c - YAML to compiled rules: what all sections have in common,
 * and event types.
 *
 *   config -> [catalog_build] -> catalog_counters, catalog_metrics -> catalog
 *
 * A table (struct rule_field) tells the keys of a map; here they are checked
 * and their values read, each error at its place. Rules may name event types
 * that `events` does not declare: the rule declares them. At the end every type
 * gets an array of its rules, so that an event finds them by one look-up and
 * reads them in a row.
 */

#include "config/catalog_build.h"

#include "config/scalar.h"

#include <stdlib.h>

#define ATTRIBUTE_SIZE_MAX 255 /* of a whole dotted path */
#define FIELDS_MAX         16


/* ---- texts and lists ------------------------------------------------- */

static void
catalog_full(struct catalog_builder *builder, const struct yaml_node *node)
{
    yaml_node_error(builder->errors, node,
                    "the configuration needs too much memory");
}

void *
rule_alloc(struct catalog_builder *builder, const struct yaml_node *node,
           size_t size)
{
    void *memory = arena_zalloc(builder->arena, size == 0 ? 1 : size);

    if (memory == NULL) {
        catalog_full(builder, node);
    }
    return memory;
}

static bool
rule_wrong_kind(struct catalog_builder *builder, const struct yaml_node *node,
                const char *key, const char *expected)
{
    yaml_node_error(builder->errors, node, "\"%s\" must be %s, not %s", key,
                    expected, yaml_node_kind_name(node));
    return false;
}

bool
rule_list(struct catalog_builder *builder, const struct yaml_node *node,
          const char *key, size_t min, size_t max)
{
    if (node->kind != YAML_LIST) {
        return rule_wrong_kind(builder, node, key, "a list");
    }
    if (node->count < min) {
        yaml_node_error(builder->errors, node, "\"%s\" must not be empty", key);
        return false;
    }
    if (node->count > max) {
        yaml_node_error(builder->errors, node,
                        "\"%s\" must have at most %zu items", key, max);
        return false;
    }
    return true;
}

/* Text, and something in it: not null, not "". */
static bool
rule_text(struct catalog_builder *builder, const struct yaml_node *node,
          const char *key)
{
    if (node->kind != YAML_TEXT || yaml_node_is_null(node)) {
        return rule_wrong_kind(builder, node, key, "text");
    }
    if (node->text.size == 0) {
        yaml_node_error(builder->errors, node, "\"%s\" must not be empty", key);
        return false;
    }
    return true;
}

static bool
rule_copy(struct catalog_builder *builder, const struct yaml_node *node,
          struct meter_str text, struct meter_str *copy)
{
    if (!arena_copy(builder->arena, text, copy)) {
        catalog_full(builder, node);
        return false;
    }
    return true;
}

static bool
rule_name(struct catalog_builder *builder, const struct yaml_node *node,
          const char *key, struct meter_str *name)
{
    if (!rule_text(builder, node, key)) {
        return false;
    }
    if (!scalar_is_name(node->text)) {
        yaml_node_error(builder->errors, node,
                        "\"%s\" must be a name: a letter, then at most 127 "
                        "letters, digits, '_', '.' or '-'",
                        key);
        return false;
    }
    return rule_copy(builder, node, node->text, name);
}

static void
rule_refuse_word(struct catalog_builder *builder, const struct yaml_node *node,
                 const char *key, const char *const *words)
{
    const char *near = scalar_suggest(node->text, words);
    char list[YAML_WORDS_SIZE_MAX + 1];

    if (near != NULL) {
        yaml_node_error(builder->errors, node,
                        "\"%s\" cannot be \"%.64s\"; did you mean \"%s\"?", key,
                        node->text.data, near);
        return;
    }
    yaml_value_words(words, list);
    yaml_node_error(builder->errors, node, "\"%s\" must be %s", key, list);
}

static bool
rule_word(struct catalog_builder *builder, const struct yaml_node *node,
          const char *key, const char *const *words, int *position)
{
    if (!rule_text(builder, node, key)) {
        return false;
    }
    *position = scalar_word(node->text, words);
    if (*position < 0) {
        rule_refuse_word(builder, node, key, words);
        return false;
    }
    return true;
}

static bool
rule_lateness(struct catalog_builder *builder, const struct yaml_node *node,
              const char *key, int64_t *value_us)
{
    char most[SCALAR_DURATION_TEXT_SIZE + 1];

    if (!rule_text(builder, node, key) ||
        !yaml_value_duration(builder->errors, node, key, value_us)) {
        return false;
    }
    if (*value_us > CATALOG_LATENESS_MAX_US) {
        scalar_duration_format(CATALOG_LATENESS_MAX_US, most);
        yaml_node_error(builder->errors, node, "\"%s\" must be at most %s", key,
                        most);
        return false;
    }
    return true;
}


/* ---- attributes ------------------------------------------------------ */

/* What is wrong with a dotted path; NULL: nothing. Counts its parts. */
static const char *
path_problem(struct meter_str name, size_t *segment_count)
{
    size_t segment_size = 0;

    *segment_count = 1;
    if (name.size > ATTRIBUTE_SIZE_MAX) {
        return "is longer than 255 bytes";
    }
    for (size_t i = 0; i < name.size; i++) {
        unsigned char byte = (unsigned char)name.data[i];

        if (byte < 0x20 || byte == 0x7f) {
            return "holds a control character";
        }
        if (byte != '.') {
            if (++segment_size > METER_ATTRIBUTE_NAME_SIZE_MAX) {
                return "has a part of more than 128 bytes";
            }
            continue;
        }
        if (segment_size == 0) {
            return "has an empty part before a dot";
        }
        segment_size = 0;
        ++*segment_count;
    }
    if (segment_size == 0) {
        return "ends with a dot";
    }
    if (*segment_count > CATALOG_SEGMENT_MAX) {
        return "has more than 16 parts";
    }
    return NULL;
}

static void
path_cut(struct meter_str name, struct meter_str *segments)
{
    size_t start = 0;

    for (size_t i = 0; i <= name.size; i++) {
        if (i == name.size || name.data[i] == '.') {
            *segments++ = (struct meter_str){name.data + start, i - start};
            start = i + 1;
        }
    }
}

static bool
rule_path(struct catalog_builder *builder, const struct yaml_node *node,
          const char *key, struct attribute_path *path)
{
    const char *problem;
    struct meter_str *segments;

    if (!rule_text(builder, node, key)) {
        return false;
    }
    problem = path_problem(node->text, &path->segment_count);
    if (problem != NULL) {
        yaml_node_error(builder->errors, node, "\"%s\": the attribute name %s",
                        key, problem);
        return false;
    }
    segments =
        rule_alloc(builder, node, path->segment_count * sizeof(*segments));
    if (segments == NULL ||
        !rule_copy(builder, node, node->text, &path->name)) {
        return false;
    }
    path_cut(path->name, segments);
    path->segments = segments;
    return true;
}

static bool
rule_attribute(struct catalog_builder *builder, const struct yaml_node *node,
               const char *key, const struct attribute_path **path)
{
    struct attribute_path *made = rule_alloc(builder, node, sizeof(*made));

    if (made == NULL || !rule_path(builder, node, key, made)) {
        return false;
    }
    *path = made;
    return true;
}

static int
path_compare(const void *a, const void *b)
{
    const struct attribute_path *path_a = a;
    const struct attribute_path *path_b = b;

    return meter_str_compare(path_a->name, path_b->name);
}

static bool
rule_attributes(struct catalog_builder *builder, const struct yaml_node *node,
                const char *key, size_t max,
                const struct attribute_path **paths, size_t *path_count)
{
    struct attribute_path *items;
    size_t count = 0;

    if (!rule_list(builder, node, key, 0, max)) {
        return false;
    }
    items = rule_alloc(builder, node, node->count * sizeof(*items));
    if (items == NULL) {
        return false;
    }
    for (const struct yaml_node *item = node->first; item != NULL;
         item = item->next) {
        if (!rule_path(builder, item, key, &items[count])) {
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            if (meter_str_equal(items[i].name, items[count].name)) {
                yaml_node_error(builder->errors, item,
                                "\"%s\" names \"%s\" twice", key,
                                item->text.data);
                return false;
            }
        }
        count++;
    }
    qsort(items, count, sizeof(*items), path_compare);
    *paths = items;
    *path_count = count;
    return true;
}

/* ---- bounds of histograms -------------------------------------------- */

/* As JSON writes numbers: no '+', no leading zeros that look octal. */
static bool
text_is_number(struct meter_str text)
{
    size_t at = text.size > 0 && text.data[0] == '-';

    if (at >= text.size || text.data[at] < '0' || text.data[at] > '9') {
        return false;
    }
    return text.data[at] != '0' || at + 1 == text.size ||
           text.data[at + 1] < '0' || text.data[at + 1] > '9';
}

static bool
rule_decimal(struct catalog_builder *builder, const struct yaml_node *node,
             const char *key, struct meter_decimal *value)
{
    enum meter_decimal_error error;

    if (node->kind != YAML_TEXT || node->quoted ||
        !text_is_number(node->text)) {
        yaml_node_error(builder->errors, node,
                        "\"%s\" must hold decimal numbers, without quotes",
                        key);
        return false;
    }
    error = meter_decimal_parse(node->text, value);
    if (error != METER_DECIMAL_OK) {
        yaml_node_error(builder->errors, node, "\"%s\": \"%.64s\": %s", key,
                        node->text.data, meter_decimal_error_text(error));
        return false;
    }
    return true;
}

static bool
rule_bounds(struct catalog_builder *builder, const struct yaml_node *node,
            const struct meter_decimal **buckets, size_t *count)
{
    struct meter_decimal *bounds;
    size_t at = 0;

    if (!rule_list(builder, node, "buckets", 1, CATALOG_BUCKETS_MAX)) {
        return false;
    }
    bounds = rule_alloc(builder, node, node->count * sizeof(*bounds));
    if (bounds == NULL) {
        return false;
    }
    for (const struct yaml_node *item = node->first; item != NULL;
         item = item->next, at++) {
        if (!rule_decimal(builder, item, "buckets", &bounds[at])) {
            return false;
        }
        if (at > 0 && meter_decimal_compare(bounds[at - 1], bounds[at]) >= 0) {
            yaml_node_error(builder->errors, item,
                            "\"buckets\" must ascend strictly");
            return false;
        }
    }
    *buckets = bounds;
    *count = at;
    return true;
}


/* ---- maps by their tables -------------------------------------------- */

bool
rule_keys(struct catalog_builder *builder, const struct yaml_node *node,
          const struct rule_map *map)
{
    const char *known[FIELDS_MAX + 1] = {NULL};
    bool ok = true;

    CHECK(map->count <= FIELDS_MAX);
    if (node->kind != YAML_MAP) {
        yaml_node_error(builder->errors, node, "%s must be a map, not %s",
                        map->what, yaml_node_kind_name(node));
        return false;
    }
    for (size_t i = 0; i < map->count; i++) {
        known[i] = map->fields[i].name;
    }
    for (const struct yaml_node *child = node->first; child != NULL;
         child = child->next) {
        if (scalar_word(child->key->text, known) < 0) {
            yaml_key_unknown(builder->errors, child->key, map->what, known);
            ok = false;
        }
    }
    for (size_t i = 0; i < map->count; i++) {
        if (map->fields[i].is_required &&
            yaml_node_find(node, known[i]) == NULL) {
            yaml_node_error(builder->errors, node, "%s needs the key \"%s\"",
                            map->what, known[i]);
            ok = false;
        }
    }
    return ok;
}

static bool
rule_true(struct catalog_builder *builder, const struct yaml_node *node,
          const struct rule_field *field)
{
    bool value;

    if (!yaml_value_bool(builder->errors, node, field->name, &value)) {
        return false;
    }
    if (!value) {
        yaml_node_error(builder->errors, node, "\"%s\" of %s must be true",
                        field->name, field->what);
    }
    return value;
}

/* `quantity` stands for the event's quantity: NULL. */
static bool
rule_metric_value(struct catalog_builder *builder, const struct yaml_node *node,
                  const char *key, const struct attribute_path **value)
{
    if (node->kind == YAML_TEXT &&
        meter_str_equal(node->text, METER_STR("quantity"))) {
        *value = NULL;
        return true;
    }
    return rule_attribute(builder, node, key, value);
}

static bool
rule_value(struct catalog_builder *builder, const struct yaml_node *node,
           const struct rule_field *field, void *object)
{
    const char *key = field->name;
    void *at = (char *)object + field->offset;
    size_t *count = (size_t *)((char *)object + field->count_offset);
    int ignored;

    switch (field->kind) {
    case RULE_NODE: return true;
    case RULE_NAME: return rule_name(builder, node, key, at);
    case RULE_BOOL: return yaml_value_bool(builder->errors, node, key, at);
    case RULE_TRUE: return rule_true(builder, node, field);
    case RULE_WORD: return rule_word(builder, node, key, field->words, at);
    case RULE_ONLY_WORD:
        return rule_word(builder, node, key, field->words, &ignored);
    case RULE_LATENESS: return rule_lateness(builder, node, key, at);
    case RULE_ATTRIBUTE: return rule_attribute(builder, node, key, at);
    case RULE_VALUE: return rule_metric_value(builder, node, key, at);
    case RULE_ATTRIBUTES:
        return rule_attributes(builder, node, key, field->count_max, at, count);
    case RULE_BOUNDS: return rule_bounds(builder, node, at, count);
    case RULE_MAP: break;
    }
    return rule_keys(builder, node, field->map) &&
           rule_values(builder, node, field->map->fields, field->map->count,
                       object);
}

bool
rule_values(struct catalog_builder *builder, const struct yaml_node *node,
            const struct rule_field *fields, size_t count, void *object)
{
    for (size_t i = 0; i < count; i++) {
        const struct yaml_node *value = yaml_node_find(node, fields[i].name);

        if (value != NULL && !rule_value(builder, value, &fields[i], object)) {
            return false;
        }
    }
    return true;
}


/* ---- sections -------------------------------------------------------- */

/* False: the name is taken or memory ran out; an error was added. */
static bool
catalog_claim(struct catalog_builder *builder, struct map *names,
              const struct yaml_node *node, const char *what,
              struct meter_str name, const void *value)
{
    void *held = map_add(names, name, (void *)value);

    if (held == value) {
        return true;
    }
    if (held == NULL) {
        yaml_node_error(builder->errors, node,
                        "more than %d entries of this kind, or out of memory",
                        CATALOG_ENTRIES_MAX);
        return false;
    }
    yaml_node_error(builder->errors, node, "%s \"%s\" is declared twice", what,
                    node->text.data);
    return false;
}

static bool
catalog_entry(struct catalog_builder *builder, const struct yaml_node *entry,
              const struct entry_kind *kind, struct map *names, void *object)
{
    const struct rule_field *first = &kind->map.fields[0];
    struct meter_str *name = (void *)((char *)object + first->offset);

    return rule_keys(builder, entry, &kind->map) &&
           rule_values(builder, entry, first, 1, object) &&
           catalog_claim(builder, names, yaml_node_find(entry, first->name),
                         kind->name, *name, object) &&
           kind->build(builder, entry, object);
}

bool
catalog_entries(struct catalog_builder *builder, const struct yaml_node *list,
                const struct entry_kind *kind, struct map *names,
                void **entries, size_t *count)
{
    char *object = NULL;
    bool ok = true;

    *entries = NULL;
    if (!rule_list(builder, list, kind->section, 0, CATALOG_ENTRIES_MAX)) {
        return false;
    }
    *entries = rule_alloc(builder, list, list->count * kind->size);
    if (*entries == NULL) {
        return false;
    }
    object = *entries;
    for (const struct yaml_node *entry = list->first; entry != NULL;
         entry = entry->next) {
        *(uint32_t *)(void *)(object + kind->index_offset) = (uint32_t)*count;
        ok = catalog_entry(builder, entry, kind, names, object) && ok;
        object += kind->size;
        ++*count;
    }
    return ok;
}


/* ---- event types ----------------------------------------------------- */

static struct type_draft *
draft_add(struct catalog_builder *builder, const struct yaml_node *node,
          struct meter_str name)
{
    struct type_draft *draft = arena_zalloc(builder->scratch, sizeof(*draft));

    if (draft == NULL) {
        catalog_full(builder, node);
        return NULL;
    }
    draft->row.name = name;
    draft->row.require_event_id = true;
    if (!catalog_claim(builder, &builder->draft_map, node, "event type", name,
                       draft)) {
        return NULL;
    }
    STAILQ_INSERT_TAIL(&builder->drafts, draft, next);
    draft->row.index = (uint32_t)builder->draft_count++;
    return draft;
}

/*
 * A type that is almost a declared one is a mistake, and would count nothing
 * for ever. Shorter names must be nearer to be taken for a slip of the pen.
 */
static bool
draft_is_slip(struct catalog_builder *builder, const struct yaml_node *on)
{
    unsigned limit = on->text.size < 5 ? 0 : on->text.size < 9 ? 1 : 2;

    for (const struct type_draft *draft = STAILQ_FIRST(&builder->drafts);
         draft != NULL; draft = STAILQ_NEXT(draft, next)) {
        if (!draft->row.declared ||
            scalar_distance(on->text, draft->row.name, limit) > limit) {
            continue;
        }
        yaml_node_error(builder->errors, on,
                        "event type \"%s\" is not declared; did you mean "
                        "\"%s\"? (if not, declare it under \"events\")",
                        on->text.data, draft->row.name.data);
        return true;
    }
    return false;
}

/* A type that only rules name is checked as "*" says, if that is there. */
static struct type_draft *
draft_undeclared(struct catalog_builder *builder, const struct yaml_node *on,
                 struct meter_str name)
{
    struct type_draft *draft;

    if (draft_is_slip(builder, on)) {
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

struct event_type *
catalog_type(struct catalog_builder *builder, const struct yaml_node *on,
             const char *key, const char *needs_each)
{
    struct meter_str name;
    struct type_draft *draft;

    if (on->kind == YAML_TEXT && meter_str_equal(on->text, METER_STR("*"))) {
        yaml_node_error(builder->errors, on,
                        "\"%s\" must name event types; \"*\" is not one", key);
        return NULL;
    }
    if (!rule_name(builder, on, key, &name)) {
        return NULL;
    }
    draft = map_find(&builder->draft_map, name);
    if (draft == NULL) {
        draft = draft_undeclared(builder, on, name);
    }
    if (draft != NULL && draft->row.delta && needs_each != NULL) {
        yaml_node_error(builder->errors, on,
                        "event type \"%s\" may arrive as deltas (delta: true): "
                        "a sum cannot answer %s",
                        on->text.data, needs_each);
        return NULL;
    }
    return draft == NULL ? NULL : &draft->row;
}

static const char *const scope_words[] = {"globalEventId", NULL};

static const struct rule_field idempotency_fields[] = {
    {"scope", RULE_ONLY_WORD, .words = scope_words},
    {"requireEventId", RULE_BOOL, false,
     offsetof(struct event_type, require_event_id)},
};
static const struct rule_map idempotency_map = {
    "\"idempotency\" of an event type", RULE_FIELDS(idempotency_fields)};

static const struct rule_field event_fields[] = {
    {"type", RULE_NODE, true},
    {"required", RULE_ATTRIBUTES, false,
     offsetof(struct event_type, required.items),
     offsetof(struct event_type, required.count), CATALOG_ATTRIBUTES_MAX},
    {"indexed", RULE_ATTRIBUTES, false,
     offsetof(struct event_type, indexed.items),
     offsetof(struct event_type, indexed.count), CATALOG_ATTRIBUTES_MAX},
    {"delta", RULE_BOOL, false, offsetof(struct event_type, delta)},
    {"idempotency", RULE_MAP, .map = &idempotency_map},
};
static const struct rule_map event_map = {"an event type",
                                          RULE_FIELDS(event_fields)};

static bool
event_build(struct catalog_builder *builder, const struct yaml_node *entry)
{
    const struct yaml_node *type = yaml_node_find(entry, "type");
    struct meter_str name = METER_STR("*");
    struct type_draft *draft;
    bool is_any;

    if (!rule_keys(builder, entry, &event_map)) {
        return false;
    }
    is_any = type->kind == YAML_TEXT && type->quoted &&
             meter_str_equal(type->text, name);
    if (!is_any && !rule_name(builder, type, "type", &name)) {
        return false;
    }
    draft = draft_add(builder, type, name);
    if (draft == NULL) {
        return false;
    }
    draft->row.declared = true;
    builder->any = is_any ? draft : builder->any;
    return rule_values(builder, entry, RULE_FIELDS(event_fields), &draft->row);
}

static bool
events_build(struct catalog_builder *builder, const struct yaml_node *list)
{
    bool ok = true;

    if (!rule_list(builder, list, "events", 0, CATALOG_ENTRIES_MAX)) {
        return false;
    }
    for (const struct yaml_node *entry = list->first; entry != NULL;
         entry = entry->next) {
        ok = event_build(builder, entry) && ok;
    }
    return ok;
}


/* ---- all of it ------------------------------------------------------- */

static const struct catalog_section events_section = {"events", events_build};

const struct catalog_section *const catalog_sections[] = {
    &events_section,         &catalog_counters_section, &catalog_usage_section,
    &catalog_meters_section, &catalog_series_section,   NULL,
};

/* Gives every rule to the types that it names, in the order of the file. */
static void
drafts_take_rules(struct catalog_builder *builder)
{
    const struct catalog *catalog = builder->catalog;
    struct type_draft *draft;

    for (size_t i = 0; i < catalog->counter_count; i++) {
        const struct counter *counter = &catalog->counters[i];

        for (size_t j = 0; j < counter->rule_count; j++) {
            draft = map_find(&builder->draft_map, counter->rules[j].on);
            vec_push(&draft->counters, counter->rules[j]);
        }
    }
    for (size_t i = 0; i < catalog->usage_rule_count; i++) {
        draft = map_find(&builder->draft_map, catalog->usage_rules[i].on);
        vec_push(&draft->usage, catalog->usage_rules[i]);
    }
    for (size_t i = 0; i < catalog->meter_count; i++) {
        for (size_t j = 0; j < catalog->meters[i].on_count; j++) {
            draft = map_find(&builder->draft_map, catalog->meters[i].on[j]);
            vec_push(&draft->meters, &catalog->meters[i]);
        }
    }
    for (size_t i = 0; i < catalog->series_count; i++) {
        for (size_t j = 0; j < catalog->series[i].on_count; j++) {
            draft = map_find(&builder->draft_map, catalog->series[i].on[j]);
            vec_push(&draft->series, &catalog->series[i]);
        }
    }
}

/* A copy in the configuration's arena; NULL: that is full. */
static void *
catalog_keep(struct catalog_builder *builder, const void *items, size_t size)
{
    void *copy = arena_alloc(builder->arena, size == 0 ? 1 : size);

    if (copy != NULL && size > 0) {
        memcpy(copy, items, size);
    }
    return copy;
}

#define CATALOG_KEEP(builder, vec) \
    catalog_keep((builder), (vec)->items, (vec)->count * sizeof(*(vec)->items))

/* The row as it stays; false: the arena is full. */
static bool
draft_finish(struct catalog_builder *builder, struct type_draft *draft)
{
    struct event_type *row = &draft->row;

    row->counter_count = draft->counters.count;
    row->usage_count = draft->usage.count;
    row->meter_count = draft->meters.count;
    row->series_count = draft->series.count;
    row->counters = CATALOG_KEEP(builder, &draft->counters);
    row->usage = CATALOG_KEEP(builder, &draft->usage);
    row->meters = CATALOG_KEEP(builder, &draft->meters);
    row->series = CATALOG_KEEP(builder, &draft->series);
    vec_fini(&draft->counters);
    vec_fini(&draft->usage);
    vec_fini(&draft->meters);
    vec_fini(&draft->series);
    return row->counters != NULL && row->usage != NULL && row->meters != NULL &&
           row->series != NULL;
}

static bool
catalog_finish(struct catalog_builder *builder)
{
    struct catalog *catalog = builder->catalog;
    struct event_type *rows =
        arena_alloc(builder->arena, builder->draft_count * sizeof(*rows) + 1);
    bool ok = rows != NULL;

    drafts_take_rules(builder);
    for (struct type_draft *draft = STAILQ_FIRST(&builder->drafts);
         draft != NULL; draft = STAILQ_NEXT(draft, next)) {
        struct event_type *row;

        ok = draft_finish(builder, draft) && ok;
        if (!ok) {
            continue;
        }
        row = &rows[draft->row.index];
        *row = draft->row;
        ok = map_add(&catalog->event_type_map, row->name, row) == row;
        if (draft == builder->any) {
            catalog->any_type = row;
        }
    }
    if (!ok) {
        config_errors_add(builder->errors, "", 0, 0,
                          "the configuration needs too much memory");
        return false;
    }
    catalog->event_types = rows;
    catalog->event_type_count = builder->draft_count;
    return true;
}

bool
catalog_build(const struct yaml_node *const *nodes,
              const struct catalog_defaults *defaults, struct arena *arena,
              struct arena *scratch, struct config_errors *errors,
              struct catalog *catalog)
{
    struct catalog_builder builder = {
        .arena = arena,
        .scratch = scratch,
        .errors = errors,
        .catalog = catalog,
        .defaults = defaults,
    };
    bool ok = true;

    STAILQ_INIT(&builder.drafts);
    *catalog = (struct catalog){.event_type_count = 0};
    map_init(&catalog->event_type_map, CATALOG_ENTRIES_MAX);
    map_init(&catalog->counter_map, CATALOG_ENTRIES_MAX);
    map_init(&catalog->meter_map, CATALOG_ENTRIES_MAX);
    map_init(&catalog->series_map, CATALOG_ENTRIES_MAX);
    map_init(&builder.draft_map, CATALOG_ENTRIES_MAX);
    for (size_t i = 0; catalog_sections[i] != NULL; i++) {
        if (nodes[i] != NULL) {
            ok = catalog_sections[i]->build(&builder, nodes[i]) && ok;
        }
    }
    ok = ok && catalog_finish(&builder);
    map_fini(&builder.draft_map);
    return ok;
}
