/*
 * rule_reader.c - typed values out of the nodes of a rule, see the header.
 */

#include "config/rule_reader.h"

#include <stdlib.h>

#include "config/scalar.h"

#define ATTRIBUTE_SIZE_MAX 255 /* of a whole dotted path */
#define FIELDS_MAX         16


void *
rule_alloc(struct rule_reader *reader, const struct yaml_node *node,
           size_t size)
{
    void *memory = arena_zalloc(reader->arena, size == 0 ? 1 : size);

    if (memory == NULL) {
        yaml_node_error(reader->errors, node,
                        "the configuration needs too much memory");
    }
    return memory;
}

void
rule_unknown_key(struct config_errors *errors, const struct yaml_node *key,
                 const char *what, const char *const *known)
{
    const char *near = scalar_suggest(key->text, known);

    if (near != NULL) {
        yaml_node_error(errors, key,
                        "unknown key \"%.64s\" in %s; did you mean \"%s\"?",
                        key->text.data, what, near);
        return;
    }
    yaml_node_error(errors, key, "unknown key \"%.64s\" in %s", key->text.data,
                    what);
}

static bool
wrong_kind(struct rule_reader *reader, const struct yaml_node *node,
           const char *key, const char *expected)
{
    yaml_node_error(reader->errors, node, "\"%s\" must be %s, not %s", key,
                    expected, yaml_node_kind_name(node));
    return false;
}

static bool
fields_missing(struct rule_reader *reader, const struct yaml_node *map,
               const char *what, const struct rule_field *fields, size_t count)
{
    bool missing = false;

    for (size_t i = 0; i < count; i++) {
        if (fields[i].required && *fields[i].node == NULL) {
            yaml_node_error(reader->errors, map, "%s needs the key \"%s\"",
                            what, fields[i].name);
            missing = true;
        }
    }
    return missing;
}

bool
rule_fields(struct rule_reader *reader, const struct yaml_node *map,
            const char *what, const struct rule_field *fields, size_t count)
{
    const char *known[FIELDS_MAX + 1] = {NULL};
    bool ok = true;

    CHECK(count <= FIELDS_MAX);
    if (map->kind != YAML_MAP) {
        yaml_node_error(reader->errors, map, "%s must be a map, not %s", what,
                        yaml_node_kind_name(map));
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        known[i] = fields[i].name;
    }
    for (const struct yaml_node *child = map->first; child != NULL;
         child = child->next) {
        int position = scalar_word(child->key->text, known);

        if (position < 0) {
            rule_unknown_key(reader->errors, child->key, what, known);
            ok = false;
            continue;
        }
        *fields[position].node = child;
    }
    return !fields_missing(reader, map, what, fields, count) && ok;
}

bool
rule_list(struct rule_reader *reader, const struct yaml_node *node,
          const char *key, size_t min, size_t max)
{
    if (node->kind != YAML_LIST) {
        return wrong_kind(reader, node, key, "a list");
    }
    if (node->count < min) {
        yaml_node_error(reader->errors, node, "\"%s\" must not be empty", key);
        return false;
    }
    if (node->count > max) {
        yaml_node_error(reader->errors, node,
                        "\"%s\" must have at most %zu items", key, max);
        return false;
    }
    return true;
}

/* Text, and something in it: not null, not "". */
static bool
rule_text(struct rule_reader *reader, const struct yaml_node *node,
          const char *key)
{
    if (node->kind != YAML_TEXT || yaml_node_is_null(node)) {
        return wrong_kind(reader, node, key, "text");
    }
    if (node->text.size == 0) {
        yaml_node_error(reader->errors, node, "\"%s\" must not be empty", key);
        return false;
    }
    return true;
}

static bool
rule_copy(struct rule_reader *reader, const struct yaml_node *node,
          struct meter_str text, struct meter_str *copy)
{
    if (!arena_copy(reader->arena, text, copy)) {
        yaml_node_error(reader->errors, node,
                        "the configuration needs too much memory");
        return false;
    }
    return true;
}

bool
rule_name(struct rule_reader *reader, const struct yaml_node *node,
          const char *key, struct meter_str *name)
{
    if (!rule_text(reader, node, key)) {
        return false;
    }
    if (!scalar_is_name(node->text)) {
        yaml_node_error(reader->errors, node,
                        "\"%s\" must be a name: a letter, then at most 127 "
                        "letters, digits, '_', '.' or '-'",
                        key);
        return false;
    }
    return rule_copy(reader, node, node->text, name);
}

bool
rule_bool(struct rule_reader *reader, const struct yaml_node *node,
          const char *key, bool *value)
{
    if (node->kind != YAML_TEXT || node->quoted ||
        !scalar_bool(node->text, value)) {
        yaml_node_error(reader->errors, node,
                        "\"%s\" must be true or false, without quotes", key);
        return false;
    }
    return true;
}

static void
refuse_word(struct rule_reader *reader, const struct yaml_node *node,
            const char *key, const char *const *words)
{
    const char *near = scalar_suggest(node->text, words);
    char list[128] = "";

    if (near != NULL) {
        yaml_node_error(reader->errors, node,
                        "\"%s\" cannot be \"%.64s\"; did you mean \"%s\"?", key,
                        node->text.data, near);
        return;
    }
    for (size_t i = 0; words[i] != NULL; i++) {
        size_t used = strlen(list);

        snprintf(list + used, sizeof(list) - used, "%s%s",
                 i == 0                 ? ""
                 : words[i + 1] == NULL ? " or "
                                        : ", ",
                 words[i]);
    }
    yaml_node_error(reader->errors, node, "\"%s\" must be %s", key, list);
}

bool
rule_word(struct rule_reader *reader, const struct yaml_node *node,
          const char *key, const char *const *words, int *position)
{
    if (!rule_text(reader, node, key)) {
        return false;
    }
    *position = scalar_word(node->text, words);
    if (*position < 0) {
        refuse_word(reader, node, key, words);
        return false;
    }
    return true;
}

bool
rule_duration(struct rule_reader *reader, const struct yaml_node *node,
              const char *key, int64_t max_us, int64_t *value_us)
{
    char most[SCALAR_DURATION_TEXT_SIZE + 1];

    if (!rule_text(reader, node, key)) {
        return false;
    }
    if (!scalar_duration(node->text, value_us)) {
        yaml_node_error(reader->errors, node,
                        "\"%s\" must be a duration such as 500ms, 5s, 30m, "
                        "48h or 730d",
                        key);
        return false;
    }
    if (*value_us > max_us) {
        scalar_duration_format(max_us, most);
        yaml_node_error(reader->errors, node, "\"%s\" must be at most %s", key,
                        most);
        return false;
    }
    return true;
}


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
rule_path(struct rule_reader *reader, const struct yaml_node *node,
          const char *key, struct attribute_path *path)
{
    const char *problem;
    struct meter_str *segments;

    if (!rule_text(reader, node, key)) {
        return false;
    }
    problem = path_problem(node->text, &path->segment_count);
    if (problem != NULL) {
        yaml_node_error(reader->errors, node, "\"%s\": the attribute name %s",
                        key, problem);
        return false;
    }
    segments =
        rule_alloc(reader, node, path->segment_count * sizeof(*segments));
    if (segments == NULL || !rule_copy(reader, node, node->text, &path->name)) {
        return false;
    }
    path_cut(path->name, segments);
    path->segments = segments;
    return true;
}

bool
rule_attribute(struct rule_reader *reader, const struct yaml_node *node,
               const char *key, const struct attribute_path **path)
{
    struct attribute_path *made = rule_alloc(reader, node, sizeof(*made));

    if (made == NULL || !rule_path(reader, node, key, made)) {
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
path_is_repeated(const struct attribute_path *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (meter_str_equal(items[i].name, items[count].name)) {
            return true;
        }
    }
    return false;
}

bool
rule_attributes(struct rule_reader *reader, const struct yaml_node *node,
                const char *key, size_t max, bool sorted,
                struct attribute_list *list)
{
    struct attribute_path *items;
    size_t count = 0;

    if (!rule_list(reader, node, key, 0, max)) {
        return false;
    }
    items = rule_alloc(reader, node, node->count * sizeof(*items));
    if (items == NULL) {
        return false;
    }
    for (const struct yaml_node *item = node->first; item != NULL;
         item = item->next) {
        if (!rule_path(reader, item, key, &items[count])) {
            return false;
        }
        if (path_is_repeated(items, count)) {
            yaml_node_error(reader->errors, item, "\"%s\" names \"%s\" twice",
                            key, item->text.data);
            return false;
        }
        count++;
    }
    if (sorted) {
        qsort(items, count, sizeof(*items), path_compare);
    }
    *list = (struct attribute_list){items, count};
    return true;
}

/* As JSON writes numbers: no '+', no leading zeros that look octal. */
static bool
is_number_text(struct meter_str text)
{
    size_t at = text.size > 0 && text.data[0] == '-';

    if (at >= text.size || text.data[at] < '0' || text.data[at] > '9') {
        return false;
    }
    return text.data[at] != '0' || at + 1 == text.size ||
           text.data[at + 1] < '0' || text.data[at + 1] > '9';
}

static bool
rule_decimal(struct rule_reader *reader, const struct yaml_node *node,
             const char *key, struct meter_decimal *value)
{
    enum meter_decimal_error error;

    if (node->kind != YAML_TEXT || node->quoted ||
        !is_number_text(node->text)) {
        yaml_node_error(reader->errors, node,
                        "\"%s\" must hold decimal numbers, without quotes",
                        key);
        return false;
    }
    error = meter_decimal_parse(node->text, value);
    if (error != METER_DECIMAL_OK) {
        yaml_node_error(reader->errors, node, "\"%s\": \"%.64s\": %s", key,
                        node->text.data, meter_decimal_error_text(error));
        return false;
    }
    return true;
}

bool
rule_buckets(struct rule_reader *reader, const struct yaml_node *node,
             const struct meter_decimal **buckets, size_t *count)
{
    struct meter_decimal *bounds;
    size_t at = 0;

    if (!rule_list(reader, node, "buckets", 1, CATALOG_BUCKETS_MAX)) {
        return false;
    }
    bounds = rule_alloc(reader, node, node->count * sizeof(*bounds));
    if (bounds == NULL) {
        return false;
    }
    for (const struct yaml_node *item = node->first; item != NULL;
         item = item->next, at++) {
        if (!rule_decimal(reader, item, "buckets", &bounds[at])) {
            return false;
        }
        if (at > 0 && meter_decimal_compare(bounds[at - 1], bounds[at]) >= 0) {
            yaml_node_error(reader->errors, item,
                            "\"buckets\" must ascend strictly");
            return false;
        }
    }
    *buckets = bounds;
    *count = at;
    return true;
}
