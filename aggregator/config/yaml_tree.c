/*
 * yaml_tree.c - YAML to a bounded tree by libyaml's event interface.
 *
 *   text -> libyaml events -> [yaml_tree] -> config.c, catalog_build.c
 *
 * Events come one at a time and the first forbidden one ends the reading,
 * so neither an alias nor deep nesting is ever expanded. Strictness is the
 * point: a file that two readers could understand differently is refused.
 * Below the tree are the values and the errors that both grammars, options and
 * rules, have in common.
 */

#include "config/yaml_tree.h"

#include "config/scalar.h"

#include <stdarg.h>
#include <yaml.h>

struct frame {
    struct yaml_node *node;      /* the open list or map */
    struct yaml_node *last;      /* its newest child */
    const struct yaml_node *key; /* map: key that waits for its value */
};

struct tree_reader {
    yaml_parser_t parser;
    const char *file;
    struct meter_str text;
    struct arena *arena;
    struct config_errors *errors;
    struct frame frames[YAML_TREE_DEPTH_MAX];
    size_t depth;
    size_t node_count;
    struct yaml_node *root;
};

static bool tree_run(struct tree_reader *reader);
static bool
tree_take(struct tree_reader *reader, const yaml_event_t *event, bool *done);


bool
yaml_tree_read(const char *file, struct meter_str text, struct arena *arena,
               struct config_errors *errors, const struct yaml_node **root)
{
    struct tree_reader reader = {
        .text = text, .arena = arena, .errors = errors};
    bool ok;

    *root = NULL;
    reader.file = arena_strdup(arena, file);
    if (reader.file == NULL || !yaml_parser_initialize(&reader.parser)) {
        config_errors_add(errors, file, 0, 0, "out of memory");
        return false;
    }
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser,
                                 (const unsigned char *)text.data, text.size);
    ok = tree_run(&reader);
    yaml_parser_delete(&reader.parser);
    if (!ok) {
        return false;
    }
    if (reader.root == NULL) {
        config_errors_add(errors, file, 1, 1,
                          "the file is empty; a map of options is expected");
        return false;
    }
    if (reader.root->kind != YAML_MAP) {
        yaml_node_error(errors, reader.root,
                        "a map of options is expected here, not %s",
                        yaml_node_kind_name(reader.root));
        return false;
    }
    *root = reader.root;
    return true;
}


/* Line and column of a byte, both from 1; columns count characters. */
static void
text_locate(struct meter_str text, size_t offset, unsigned *line,
            unsigned *column)
{
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < text.size && i < offset; i++) {
        unsigned char byte = (unsigned char)text.data[i];

        if (byte == '\n') {
            ++*line;
            *column = 1;
        } else if ((byte & 0xc0) != 0x80) {
            ++*column;
        }
    }
}

/* libyaml counts from 0, and its input reader knows bytes only. */
static bool
tree_parser_failed(struct tree_reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    const char *problem =
        parser->problem != NULL ? parser->problem : "not readable as YAML";
    const char *context = parser->context != NULL ? parser->context : "";
    const yaml_mark_t *mark = &parser->problem_mark;
    unsigned line;
    unsigned column;

    if (parser->error == YAML_READER_ERROR) {
        text_locate(reader->text, parser->problem_offset, &line, &column);
    } else {
        /* A key without its ':' is noticed a line too late. */
        if (strcmp(context, "while scanning a simple key") == 0) {
            mark = &parser->context_mark;
        }
        line = (unsigned)mark->line + 1;
        column = (unsigned)mark->column + 1;
    }
    config_errors_add(reader->errors, reader->file, line, column, "%s%s%s",
                      problem, context[0] != '\0' ? " " : "", context);
    return false;
}

static bool
tree_run(struct tree_reader *reader)
{
    bool done = false;

    while (!done) {
        yaml_event_t event;
        bool ok;

        if (!yaml_parser_parse(&reader->parser, &event)) {
            return tree_parser_failed(reader);
        }
        ok = tree_take(reader, &event, &done);
        yaml_event_delete(&event);
        if (!ok) {
            return false;
        }
    }
    return true;
}

__attribute__((format(printf, 3, 4))) static bool
tree_refuse(struct tree_reader *reader, const yaml_event_t *event,
            const char *format, ...)
{
    char text[CONFIG_ERROR_TEXT_SIZE_MAX + 1];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    config_errors_add(reader->errors, reader->file,
                      (unsigned)event->start_mark.line + 1,
                      (unsigned)event->start_mark.column + 1, "%s", text);
    return false;
}

/* A scalar where a map expects a key: kept until its value comes. */
static bool
tree_take_key(struct tree_reader *reader, const yaml_event_t *event,
              const struct yaml_node *node)
{
    struct frame *frame = &reader->frames[reader->depth - 1];

    if (node->kind != YAML_TEXT) {
        return tree_refuse(reader, event, "a key must be text, not %s",
                           yaml_node_kind_name(node));
    }
    if (yaml_node_is_null(node)) {
        return tree_refuse(reader, event, "a key is missing here");
    }
    if (yaml_node_find(frame->node, node->text.data) != NULL) {
        return tree_refuse(reader, event, "duplicate key \"%s\"",
                           node->text.data);
    }
    if (frame->node->count == YAML_TREE_KEYS_MAX) {
        return tree_refuse(reader, event, "more than %d keys in one map",
                           YAML_TREE_KEYS_MAX);
    }
    frame->key = node;
    return true;
}

/* Hangs the node under the open list or map; the first one is the root. */
static bool
tree_attach(struct tree_reader *reader, const yaml_event_t *event,
            struct yaml_node *node)
{
    struct frame *frame;

    if (reader->depth == 0) {
        reader->root = node;
        return true;
    }
    frame = &reader->frames[reader->depth - 1];
    if (frame->node->kind == YAML_MAP) {
        if (frame->key == NULL) {
            return tree_take_key(reader, event, node);
        }
        node->key = frame->key;
        frame->key = NULL;
    }
    if (frame->last == NULL) {
        frame->node->first = node;
    } else {
        frame->last->next = node;
    }
    frame->last = node;
    frame->node->count++;
    return true;
}

static struct yaml_node *
tree_node(struct tree_reader *reader, const yaml_event_t *event,
          enum yaml_kind kind)
{
    struct yaml_node *node;

    if (reader->node_count == YAML_TREE_NODES_MAX) {
        tree_refuse(reader, event, "more than %d values in one file",
                    YAML_TREE_NODES_MAX);
        return NULL;
    }
    node = arena_zalloc(reader->arena, sizeof(*node));
    if (node == NULL) {
        tree_refuse(reader, event, "the configuration needs too much memory");
        return NULL;
    }
    reader->node_count++;
    node->kind = kind;
    node->file = reader->file;
    node->line = (unsigned)event->start_mark.line + 1;
    node->column = (unsigned)event->start_mark.column + 1;
    return node;
}

static bool
tree_open(struct tree_reader *reader, const yaml_event_t *event,
          enum yaml_kind kind)
{
    struct yaml_node *node;

    if (reader->depth == YAML_TREE_DEPTH_MAX) {
        return tree_refuse(reader, event, "nested deeper than %d levels",
                           YAML_TREE_DEPTH_MAX);
    }
    node = tree_node(reader, event, kind);
    if (node == NULL || !tree_attach(reader, event, node)) {
        return false;
    }
    reader->frames[reader->depth++] = (struct frame){.node = node};
    return true;
}

static bool
tree_close(struct tree_reader *reader)
{
    CHECK(reader->depth > 0);
    CHECK(reader->frames[reader->depth - 1].key == NULL);
    reader->depth--;
    return true;
}

static bool
tree_scalar(struct tree_reader *reader, const yaml_event_t *event)
{
    struct meter_str text = {(const char *)event->data.scalar.value,
                             event->data.scalar.length};
    struct yaml_node *node;

    if (memchr(text.data, '\0', text.size) != NULL) {
        return tree_refuse(reader, event,
                           "a NUL character is not allowed in text");
    }
    node = tree_node(reader, event, YAML_TEXT);
    if (node == NULL) {
        return false;
    }
    if (!arena_copy(reader->arena, text, &node->text)) {
        return tree_refuse(reader, event,
                           "the configuration needs too much memory");
    }
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return tree_attach(reader, event, node);
}

static bool
tree_document(struct tree_reader *reader, const yaml_event_t *event)
{
    if (event->data.document_start.tag_directives.start !=
        event->data.document_start.tag_directives.end) {
        return tree_refuse(reader, event, "%%TAG directives are not allowed");
    }
    if (reader->root != NULL) {
        return tree_refuse(reader, event,
                           "a second document in the file is not allowed");
    }
    return true;
}

static bool
tree_plain(struct tree_reader *reader, const yaml_event_t *event,
           const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor != NULL) {
        return tree_refuse(reader, event, "anchors (&) are not allowed");
    }
    if (tag != NULL) {
        return tree_refuse(reader, event, "tags (!) are not allowed");
    }
    return true;
}

static bool
tree_take(struct tree_reader *reader, const yaml_event_t *event, bool *done)
{
    switch (event->type) {
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT: return true;
    case YAML_DOCUMENT_START_EVENT: return tree_document(reader, event);
    case YAML_SCALAR_EVENT:
        return tree_plain(reader, event, event->data.scalar.anchor,
                          event->data.scalar.tag) &&
               tree_scalar(reader, event);
    case YAML_SEQUENCE_START_EVENT:
        return tree_plain(reader, event, event->data.sequence_start.anchor,
                          event->data.sequence_start.tag) &&
               tree_open(reader, event, YAML_LIST);
    case YAML_MAPPING_START_EVENT:
        return tree_plain(reader, event, event->data.mapping_start.anchor,
                          event->data.mapping_start.tag) &&
               tree_open(reader, event, YAML_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: return tree_close(reader);
    case YAML_ALIAS_EVENT:
        return tree_refuse(reader, event, "aliases (*) are not allowed");
    case YAML_STREAM_END_EVENT: *done = true; return true;
    case YAML_NO_EVENT: break;
    }
    return tree_refuse(reader, event, "not readable as YAML");
}


const struct yaml_node *
yaml_node_find(const struct yaml_node *map, const char *key)
{
    const struct yaml_node *node = map->kind == YAML_MAP ? map->first : NULL;

    while (node != NULL && strcmp(node->key->text.data, key) != 0) {
        node = node->next;
    }
    return node;
}

const char *
yaml_node_kind_name(const struct yaml_node *node)
{
    static const char *const names[] = {
        [YAML_TEXT] = "text", [YAML_LIST] = "a list", [YAML_MAP] = "a map"};

    return yaml_node_is_null(node) ? "nothing" : names[node->kind];
}

bool
yaml_node_is_null(const struct yaml_node *node)
{
    static const char *const words[] = {"", "~", "null", NULL};

    return node->kind == YAML_TEXT && !node->quoted &&
           scalar_word(node->text, words) >= 0;
}


/* ---- values ---------------------------------------------------------- */

void
yaml_key_unknown(struct config_errors *errors, const struct yaml_node *key,
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

bool
yaml_value_bool(struct config_errors *errors, const struct yaml_node *node,
                const char *name, bool *value)
{
    static const char *const words[] = {"false", "true", NULL};
    int position = -1;

    if (node->kind == YAML_TEXT && !node->quoted) {
        position = scalar_word(node->text, words);
    }
    if (position < 0) {
        yaml_node_error(errors, node,
                        "\"%s\" must be true or false, without quotes", name);
        return false;
    }
    *value = position == 1;
    return true;
}

bool
yaml_value_duration(struct config_errors *errors, const struct yaml_node *node,
                    const char *name, int64_t *value_us)
{
    if (!scalar_duration(node->text, value_us)) {
        yaml_node_error(errors, node,
                        "\"%s\" must be a duration such as 500ms, 5s, 30m, "
                        "48h or 730d",
                        name);
        return false;
    }
    return true;
}

void
yaml_value_words(const char *const *words, char out[YAML_WORDS_SIZE_MAX + 1])
{
    size_t used = 0;

    for (size_t i = 0; words[i] != NULL && used < YAML_WORDS_SIZE_MAX; i++) {
        const char *glue = i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ";

        used += (size_t)snprintf(out + used, YAML_WORDS_SIZE_MAX + 1 - used,
                                 "%s%s", glue, words[i]);
    }
}


/* ---- errors ---------------------------------------------------------- */

static void
text_make_printable(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            *text = '?';
        }
    }
}

/* A text cut in the middle of a UTF-8 character loses that character. */
static void
text_trim_utf8(char *text, size_t size)
{
    size_t at = size;

    while (at > 0 && ((unsigned char)text[at - 1] & 0xc0) == 0x80) {
        at--;
    }
    if (at > 0 && (unsigned char)text[at - 1] >= 0xc0) {
        text[at - 1] = '\0';
    }
}

static bool
error_is_before(const struct config_error *a, const struct config_error *b)
{
    return a->line != b->line ? a->line < b->line : a->column < b->column;
}

/*
 * Errors of one file stand together, ordered by line and column; those of one
 * place in the order they came, and so do the files.
 */
static void
errors_insert(struct config_errors *errors, const struct config_error *error)
{
    struct config_error *items = errors->items;
    size_t at = errors->count;

    while (at > 0 && strcmp(items[at - 1].file, error->file) != 0) {
        at--;
    }
    at = at == 0 ? errors->count : at;
    while (at > 0 && strcmp(items[at - 1].file, error->file) == 0 &&
           error_is_before(error, &items[at - 1])) {
        at--;
    }
    memmove(&items[at + 1], &items[at], (errors->count - at) * sizeof(*items));
    items[at] = *error;
    errors->count++;
}

void
config_errors_add(struct config_errors *errors, const char *file, unsigned line,
                  unsigned column, const char *format, ...)
{
    struct config_error error = {.line = line, .column = column};
    size_t file_size = strlen(file);
    va_list arguments;
    int wanted;

    if (errors->count == CONFIG_ERRORS_MAX) {
        errors->suppressed++;
        return;
    }
    if (file_size > CONFIG_ERROR_FILE_SIZE_MAX) {
        file += file_size - CONFIG_ERROR_FILE_SIZE_MAX;
    }
    snprintf(error.file, sizeof(error.file), "%s", file);

    va_start(arguments, format);
    wanted = vsnprintf(error.text, sizeof(error.text), format, arguments);
    va_end(arguments);
    if (wanted > CONFIG_ERROR_TEXT_SIZE_MAX) {
        text_trim_utf8(error.text, CONFIG_ERROR_TEXT_SIZE_MAX);
    }
    text_make_printable(error.file);
    text_make_printable(error.text);
    errors_insert(errors, &error);
}

void
config_errors_print(const struct config_errors *errors, FILE *out)
{
    for (size_t i = 0; i < errors->count; i++) {
        const struct config_error *error = &errors->items[i];

        if (error->file[0] != '\0') {
            fprintf(out, "%s:", error->file);
        }
        if (error->line != 0) {
            fprintf(out, "%u:%u:", error->line, error->column);
        }
        fprintf(out, "%s%s\n", error->file[0] != '\0' ? " " : "", error->text);
    }
    if (errors->suppressed > 0) {
        fprintf(out, "and %zu more\n", errors->suppressed);
    }
}
