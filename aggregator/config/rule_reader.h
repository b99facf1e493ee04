/*
 * rule_reader.h - typed values out of the nodes of a rule.
 *
 * Each function adds an error at the right place and returns false, or
 * fills its answer. Texts are copied into the arena of the configuration;
 * lists of nodes live in the scratch arena, which dies with the load.
 */

#ifndef CONFIG_RULE_READER_H
#define CONFIG_RULE_READER_H

#include "config/catalog.h"
#include "config/yaml_tree.h"

struct rule_reader {
    struct arena *arena; /* of the configuration */
    struct config_errors *errors;
};

/* A key that a map may have, and where its value goes. */
struct rule_field {
    const char *name;
    bool required;
    const struct yaml_node **node; /* stays NULL when absent */
};

/*
 * Sorts the values of a map into the fields. Unknown keys and missing
 * required ones are errors; `what` names the map ("a counter").
 */
MUST_CHECK bool
rule_fields(struct rule_reader *reader, const struct yaml_node *map,
            const char *what, const struct rule_field *fields, size_t count);

/* An error with a suggestion when a known word is near. */
void rule_unknown_key(struct config_errors *errors, const struct yaml_node *key,
                      const char *what, const char *const *known);

/* A list with at most max items, at least min. */
MUST_CHECK bool
rule_list(struct rule_reader *reader, const struct yaml_node *node,
          const char *key, size_t min, size_t max);

/* ^[A-Za-z][A-Za-z0-9_.-]{0,127}$ */
MUST_CHECK bool
rule_name(struct rule_reader *reader, const struct yaml_node *node,
          const char *key, struct meter_str *name);
MUST_CHECK bool
rule_bool(struct rule_reader *reader, const struct yaml_node *node,
          const char *key, bool *value);
MUST_CHECK bool
rule_word(struct rule_reader *reader, const struct yaml_node *node,
          const char *key, const char *const *words, int *position);
MUST_CHECK bool
rule_duration(struct rule_reader *reader, const struct yaml_node *node,
              const char *key, int64_t max_us, int64_t *value_us);
MUST_CHECK bool
rule_attribute(struct rule_reader *reader, const struct yaml_node *node,
               const char *key, const struct attribute_path **path);

/* Distinct attributes, in the order of the file or sorted by name. */
MUST_CHECK bool
rule_attributes(struct rule_reader *reader, const struct yaml_node *node,
                const char *key, size_t max, bool sorted,
                struct attribute_list *list);

/* Decimals, strictly ascending. */
MUST_CHECK bool
rule_buckets(struct rule_reader *reader, const struct yaml_node *node,
             const struct meter_decimal **buckets, size_t *count);

/* From the configuration's arena, zeroed; adds an error when it is full. */
MUST_CHECK void *rule_alloc(struct rule_reader *reader,
                            const struct yaml_node *node, size_t size);

#endif
