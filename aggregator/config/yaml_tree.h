/*
 * yaml_tree.h - a YAML file as a tree whose nodes know where they stand.
 *
 *   file -> libyaml events -> [yaml_tree] -> options, catalog
 *
 * A closed subset: mappings, sequences and scalars. Anchors, aliases, tags,
 * directives other than %YAML, further documents, keys that are not scalars
 * and duplicate keys are refused. Everything is bounded below, so a file
 * costs at most a few times its size.
 */

#ifndef CONFIG_YAML_TREE_H
#define CONFIG_YAML_TREE_H

#include "base/arena.h"
#include "config/config_error.h"

#define YAML_TREE_FILE_SIZE_MAX (1u << 20)
#define YAML_TREE_DEPTH_MAX     16
#define YAML_TREE_NODES_MAX     65536
#define YAML_TREE_KEYS_MAX      256 /* of one mapping */

enum yaml_kind { YAML_TEXT, YAML_LIST, YAML_MAP };

struct yaml_node {
    enum yaml_kind kind;
    bool quoted;           /* text in quotes or a block: only ever text */
    const char *file;      /* lives in the arena */
    unsigned line;         /* from 1 */
    unsigned column;       /* from 1, in characters */
    struct meter_str text; /* YAML_TEXT: UTF-8 without NUL, terminated */

    const struct yaml_node *key;   /* of the map this node stands in */
    const struct yaml_node *first; /* child of a list or a map */
    const struct yaml_node *next;  /* sibling */
    size_t count;                  /* of children */
};

/*
 * Reads a tree whose root is a map. Nodes and texts live in the arena.
 * False: errors has at least one entry; libyaml's own errors are included.
 */
MUST_CHECK bool
yaml_tree_read(const char *file, struct meter_str text, struct arena *arena,
               struct config_errors *errors, const struct yaml_node **root);

/* The same from a regular file of at most YAML_TREE_FILE_SIZE_MAX bytes. */
MUST_CHECK bool
yaml_tree_load(const char *path, struct arena *arena,
               struct config_errors *errors, const struct yaml_node **root);

/* The value under a key of a map; NULL when absent. */
const struct yaml_node *
yaml_node_find(const struct yaml_node *map, struct meter_str key);

/* "text", "a list", "a map": what stands there, for messages. */
const char *yaml_node_kind_name(const struct yaml_node *node);

/* A plain scalar that YAML readers take for null: empty, ~ or null. */
bool yaml_node_is_null(const struct yaml_node *node);

/* An error at the node's place. */
#define yaml_node_error(errors, node, ...)                                  \
    config_errors_add((errors), (node)->file, (node)->line, (node)->column, \
                      __VA_ARGS__)

#endif
