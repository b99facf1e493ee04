/*
 * config_merge.h - several files as one: whole top-level keys, last wins.
 */

#ifndef CONFIG_CONFIG_MERGE_H
#define CONFIG_CONFIG_MERGE_H

#include "config/catalog_build.h"
#include "config/config.h"

#define MERGE_KEYS_MAX 32 /* more than there are top-level keys */

struct merge {
    const struct yaml_node *nodes[MERGE_KEYS_MAX]; /* with their keys */
    size_t count;
};

/* Takes the keys of one file; unknown ones are errors. */
void merge_add(struct merge *merge, const struct yaml_node *root,
               struct config_errors *errors);

/* Sets every option that the files have, and checks them together. */
void merge_options(const struct merge *merge, struct config *config,
                   struct config_errors *errors);

/* The rule sections, for the catalog. */
void
merge_sections(const struct merge *merge, struct catalog_sections *sections);

#endif
