/*
 * catalog_build.h - from the nodes of the rule sections to a catalog.
 *
 *   events -> [catalog_build.c]     types, then all arrays per type
 *   counters, usage -> [catalog_counters.c]
 *   meters, series -> [catalog_metrics.c]
 *   what fits together -> [catalog_check.c]
 *
 * An entry with an error is skipped and the rest is still checked; the
 * caller throws the catalog away when any error was added.
 */

#ifndef CONFIG_CATALOG_BUILD_H
#define CONFIG_CATALOG_BUILD_H

#include "config/rule_reader.h"

#define CATALOG_LATENESS_MAX_US (INT64_C(366) * 86400 * 1000000)

/* NULL: the section is absent. */
struct catalog_sections {
    const struct yaml_node *events;
    const struct yaml_node *counters;
    const struct yaml_node *usage;
    const struct yaml_node *meters;
    const struct yaml_node *series;
};

/* From options: what rules get that do not say it themselves. */
struct catalog_defaults {
    int64_t lateness_us;      /* of a meter */
    int64_t counter_keys_max; /* of a counter, per tenant */
};

/*
 * Fills *catalog from the arena; scratch is only used during the call. The
 * caller owns the catalog's maps either way (catalog_fini). False: memory
 * ran out or errors were added.
 */
MUST_CHECK bool
catalog_build(const struct catalog_sections *sections,
              const struct catalog_defaults *defaults, struct arena *arena,
              struct arena *scratch, struct config_errors *errors,
              struct catalog *catalog);


/* What follows is between the files of the build. */

struct rule_link {
    const void *rule;
    struct rule_link *next;
};

struct rule_chain {
    struct rule_link *first;
    struct rule_link *last;
    size_t count;
};

/* An event type while its rules are being gathered. */
struct type_draft {
    struct event_type row;
    struct rule_chain counters; /* struct counter_rule */
    struct rule_chain usage;    /* struct usage_rule */
    struct rule_chain meters;   /* struct billing_meter */
    struct rule_chain series;   /* struct series */
    struct type_draft *next;
};

struct catalog_builder {
    struct rule_reader reader;
    struct arena *scratch;
    struct catalog *catalog;
    const struct catalog_defaults *defaults;
    struct map drafts; /* by name */
    struct type_draft *first;
    struct type_draft *last;
    size_t draft_count;
    struct type_draft *any; /* the "*" type; NULL: none */
};

/*
 * The draft of the type that an `on` names; made when no entry of `events`
 * declares it. NULL: an error was added.
 */
MUST_CHECK struct type_draft *
catalog_type(struct catalog_builder *builder, const struct yaml_node *on,
             const char *key);
MUST_CHECK bool
catalog_link(struct catalog_builder *builder, const struct yaml_node *node,
             struct rule_chain *chain, const void *rule);
/* False: the name is taken or memory ran out; an error was added. */
MUST_CHECK bool
catalog_claim(struct catalog_builder *builder, struct map *names,
              const struct yaml_node *node, const char *what,
              struct meter_str name, const void *value);

/* Each reads its section; false: nothing usable, errors were added. */
MUST_CHECK bool catalog_counters(struct catalog_builder *builder,
                                 const struct yaml_node *section);
MUST_CHECK bool
catalog_usage(struct catalog_builder *builder, const struct yaml_node *section);
MUST_CHECK bool catalog_meters(struct catalog_builder *builder,
                               const struct yaml_node *section);
MUST_CHECK bool catalog_series_section(struct catalog_builder *builder,
                                       const struct yaml_node *section);

/* {requireEventId, scope} of an event type or a counter. */
MUST_CHECK bool catalog_idempotency(struct catalog_builder *builder,
                                    const struct yaml_node *node,
                                    const char *what, bool *require_event_id);

/*
 * Cross checks, see catalog_check.c; `on` is where the error belongs.
 */
MUST_CHECK bool
check_undeclared(struct catalog_builder *builder, const struct yaml_node *on);
MUST_CHECK bool
check_counter_on(struct catalog_builder *builder, const struct yaml_node *on,
                 const struct type_draft *type, const struct counter *counter);
MUST_CHECK bool
check_counter_rule(struct catalog_builder *builder, const struct yaml_node *on,
                   const struct counter *counter,
                   const struct counter_rule *rule);
MUST_CHECK bool
check_usage_rule(struct catalog_builder *builder, const struct yaml_node *on,
                 const struct usage_rule *rules, size_t count,
                 const struct usage_rule *rule);
MUST_CHECK bool
check_meter_on(struct catalog_builder *builder, const struct yaml_node *on,
               const struct type_draft *type,
               const struct billing_meter *meter);
MUST_CHECK bool
check_series_on(struct catalog_builder *builder, const struct yaml_node *on,
                const struct type_draft *type, const struct series *series);
MUST_CHECK bool
check_on_repeated(struct catalog_builder *builder, const struct yaml_node *on,
                  const struct meter_str *names, size_t count);

#endif
