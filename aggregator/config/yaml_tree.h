/*
 * yaml_tree.h - YAML as a tree whose nodes know where they stand, and errors
 * that say where.
 *
 *   file -> libyaml events -> [yaml_tree] -> options, catalog
 *
 * A closed subset: mappings, sequences and scalars. Anchors, aliases, tags,
 * directives other than %YAML, further documents, keys that are not scalars
 * and duplicate keys are refused. Everything is bounded below, so a file
 * costs at most a few times its size.
 *
 * Errors are a bounded list, filled by every stage of a load: reading goes on
 * after an error where that makes sense, so that one check shows many
 * mistakes. Texts never carry the value of a connection string.
 */

#ifndef CONFIG_YAML_TREE_H
#define CONFIG_YAML_TREE_H

#include "base/arena.h"

#include <stdio.h>

#define YAML_TREE_FILE_SIZE_MAX (1u << 20)
#define YAML_TREE_DEPTH_MAX     16
#define YAML_TREE_NODES_MAX     65536
#define YAML_TREE_KEYS_MAX      256 /* of one mapping */

#define CONFIG_ERRORS_MAX          20
#define CONFIG_ERROR_FILE_SIZE_MAX 255
#define CONFIG_ERROR_TEXT_SIZE_MAX 255

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

/* One thing wrong. line 0: not tied to a place in the file. */
struct config_error {
    char file[CONFIG_ERROR_FILE_SIZE_MAX + 1]; /* tail of a longer path */
    unsigned line;
    unsigned column;
    char text[CONFIG_ERROR_TEXT_SIZE_MAX + 1];
};

struct config_errors {
    struct config_error items[CONFIG_ERRORS_MAX];
    size_t count;
    size_t suppressed; /* found beyond the room above */
};

static inline void
config_errors_clear(struct config_errors *errors)
{
    errors->count = 0;
    errors->suppressed = 0;
}

/*
 * Control bytes that came from a file are shown as '?'. file may be "". Errors
 * stand in the order of file, line and column; files as they came.
 */
void config_errors_add(struct config_errors *errors, const char *file,
                       unsigned line, unsigned column, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* file:line:column: text, one per line. */
void config_errors_print(const struct config_errors *errors, FILE *out);

/*
 * Reads a tree whose root is a map. Nodes and texts live in the arena.
 * False: errors has at least one entry; libyaml's own errors are included.
 */
MUST_CHECK bool
yaml_tree_read(const char *file, struct meter_str text, struct arena *arena,
               struct config_errors *errors, const struct yaml_node **root);

/* The value under a key of a map; NULL when absent. */
const struct yaml_node *
yaml_node_find(const struct yaml_node *map, const char *key);

/* "text", "a list", "a map": what stands there, for messages. */
const char *yaml_node_kind_name(const struct yaml_node *node);

/* A plain scalar that YAML readers take for null: empty, ~ or null. */
bool yaml_node_is_null(const struct yaml_node *node);

/* An unknown key, with a suggestion where one of the known words is near. */
void yaml_key_unknown(struct config_errors *errors, const struct yaml_node *key,
                      const char *what, const char *const *known);

/*
 * Values of either grammar, options and rules; `name` is the key in messages.
 * False: an error was added. yaml_value_words makes "a, b or c".
 */
MUST_CHECK bool
yaml_value_bool(struct config_errors *errors, const struct yaml_node *node,
                const char *name, bool *value);
MUST_CHECK bool
yaml_value_duration(struct config_errors *errors, const struct yaml_node *node,
                    const char *name, int64_t *value_us);
#define YAML_WORDS_SIZE_MAX 127
void
yaml_value_words(const char *const *words, char out[YAML_WORDS_SIZE_MAX + 1]);

/* An error at the node's place. */
#define yaml_node_error(errors, node, ...)                                  \
    config_errors_add((errors), (node)->file, (node)->line, (node)->column, \
                      __VA_ARGS__)

#endif
