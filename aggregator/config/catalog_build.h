/*
 * catalog_build.h - from the rule sections of a configuration to a catalog.
 *
 *   events           -> [catalog_build.c]     and the arrays of each type
 *   counters, usage  -> [catalog_counters.c]
 *   meters, series   -> [catalog_metrics.c]
 *
 * A table says which keys a map has and where their values go. An entry with
 * an error is skipped and the rest is still checked; the caller throws the
 * catalog away when any error was added.
 */

#ifndef CONFIG_CATALOG_BUILD_H
#define CONFIG_CATALOG_BUILD_H

#include "base/memory.h"
#include "config/catalog.h"
#include "config/yaml_tree.h"

#include <sys/queue.h>

#define CATALOG_LATENESS_MAX_US (INT64_C(366) * 86400 * 1000000)
#define CATALOG_SECTIONS_MAX    8

struct catalog_builder;

/* A top-level key of rules; build is called where it is present. */
struct catalog_section {
    const char *name;
    bool (*build)(struct catalog_builder *builder,
                  const struct yaml_node *node);
};

/* In the order in which they are built; NULL ends them. */
extern const struct catalog_section *const catalog_sections[];

/* From options: what rules get that do not say it themselves. */
struct catalog_defaults {
    int64_t lateness_us;      /* of a meter */
    int64_t counter_keys_max; /* of a counter, per tenant */
};

/*
 * Fills *catalog from the arena; scratch is only used during the call. nodes
 * has the place of catalog_sections, NULL: the section is absent. The caller
 * owns the catalog's maps either way (catalog_fini). False: memory ran out or
 * errors were added.
 */
MUST_CHECK bool
catalog_build(const struct yaml_node *const *nodes,
              const struct catalog_defaults *defaults, struct arena *arena,
              struct arena *scratch, struct config_errors *errors,
              struct catalog *catalog);


/* ---- between the files of the build ---------------------------------- */

extern const struct catalog_section catalog_counters_section;
extern const struct catalog_section catalog_usage_section;
extern const struct catalog_section catalog_meters_section;
extern const struct catalog_section catalog_series_section;

/* An event type while rules may still name it. */
struct type_draft {
    struct event_type row;
    VEC(struct counter_rule) counters; /* become the arrays of the row */
    VEC(struct usage_rule) usage;
    VEC(const struct billing_meter *) meters;
    VEC(const struct series *) series;
    STAILQ_ENTRY(type_draft) next;
};

struct catalog_builder {
    struct arena *arena; /* of the configuration */
    struct arena *scratch;
    struct config_errors *errors;
    struct catalog *catalog;
    const struct catalog_defaults *defaults;
    struct map draft_map; /* by name */
    STAILQ_HEAD(type_draft_list, type_draft) drafts;
    size_t draft_count;
    struct type_draft *any; /* the "*" type; NULL: none */
};

enum rule_kind {
    RULE_NODE,       /* left to the code of the section */
    RULE_NAME,       /* struct meter_str */
    RULE_BOOL,       /* bool */
    RULE_TRUE,       /* nothing is kept: only true is allowed */
    RULE_WORD,       /* int or enum: the place in words */
    RULE_ONLY_WORD,  /* nothing is kept: words has only one */
    RULE_LATENESS,   /* int64_t, microseconds */
    RULE_ATTRIBUTE,  /* const struct attribute_path * */
    RULE_VALUE,      /* the same; "quantity" is NULL */
    RULE_ATTRIBUTES, /* the same, sorted and distinct, and their number */
    RULE_BOUNDS,     /* const struct meter_decimal *, ascending; likewise */
    RULE_MAP         /* a map whose values go to the same struct */
};

/* A key of a map; offsets are those of the struct that is filled. */
struct rule_field {
    const char *name;
    enum rule_kind kind;
    bool is_required;
    size_t offset;
    size_t count_offset;        /* ATTRIBUTES, BOUNDS: of a size_t */
    size_t count_max;           /* ATTRIBUTES */
    const char *const *words;   /* WORD, ONLY_WORD */
    const char *what;           /* TRUE: whose it is, "a counter" */
    const struct rule_map *map; /* MAP */
};

/* All keys that a map may have. */
struct rule_map {
    const char *what; /* for messages: "a counter" */
    const struct rule_field *fields;
    size_t count;
};

#define RULE_FIELDS(fields) (fields), sizeof(fields) / sizeof((fields)[0])
/* All but the first, the name, which catalog_entries has read. */
#define RULE_REST(fields) (fields) + 1, sizeof(fields) / sizeof((fields)[0]) - 1

/* False: not a map, an unknown key, or one that is missing. */
MUST_CHECK bool
rule_keys(struct catalog_builder *builder, const struct yaml_node *node,
          const struct rule_map *map);
/* Reads the fields that are there into *object, up to the first error. */
MUST_CHECK bool
rule_values(struct catalog_builder *builder, const struct yaml_node *node,
            const struct rule_field *fields, size_t count, void *object);

/* A list with at least min and at most max items. */
MUST_CHECK bool
rule_list(struct catalog_builder *builder, const struct yaml_node *node,
          const char *key, size_t min, size_t max);
/* From the configuration's arena, zeroed; adds an error when it is full. */
MUST_CHECK void *rule_alloc(struct catalog_builder *builder,
                            const struct yaml_node *node, size_t size);

/* The entries of a section that is a list. */
struct entry_kind {
    const char *section;
    const char *name;    /* "counter" */
    struct rule_map map; /* the first field is the name of an entry */
    size_t size;
    size_t index_offset; /* of a uint32_t: the place of the entry */
    /* After name and index; false: an error was added. */
    bool (*build)(struct catalog_builder *builder,
                  const struct yaml_node *entry, void *object);
};

/* All entries in one array, by name in names; false: errors were added. */
MUST_CHECK bool
catalog_entries(struct catalog_builder *builder, const struct yaml_node *list,
                const struct entry_kind *kind, struct map *names,
                void **entries, size_t *count);

/*
 * The draft of the type that an `on` names; made when no entry of `events`
 * declares it. needs_each is what needs each single request, NULL: nothing; a
 * type that may arrive as deltas is refused for it. NULL: an error was added.
 */
MUST_CHECK struct event_type *
catalog_type(struct catalog_builder *builder, const struct yaml_node *on,
             const char *key, const char *needs_each);

#endif
