/*
 * config.c - from files to one immutable configuration.
 *
 *   files -> yaml_tree -> merge -> options, catalog_build -> checks -> config
 *
 * Top-level keys are merged first, whole: the last file that has a key wins,
 * and what stands in a replaced section is never read. Reading goes on after
 * an error to report as many as possible; one error is enough for no
 * configuration at all. No message repeats the value of a secret.
 */

#include "config/config.h"

#include "base/buf.h"
#include "base/memory.h"
#include "config/catalog_build.h"
#include "config/options.h"
#include "config/scalar.h"
#include "meter_hash.h"
#include "meter_time.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA_BLOCK_SIZE   (16u << 10)
#define ARENA_SIZE_MAX     (32u << 20)
#define SCRATCH_BLOCK_SIZE (64u << 10)
#define SCRATCH_SIZE_MAX   (64u << 20)
#define DUMP_SIZE_MAX      (64u << 20)
#define NODE_FALLBACK      "localhost"

#define LISTEN_PATH_SIZE_MAX 107 /* sun_path without its NUL */
#define TEXT_SIZE_MAX        1024
#define USER_SIZE_MAX        32

#define SUGGESTIONS_MAX     64
#define SUGGESTION_SIZE_MAX 31
#define TOP_KEYS_MAX        32 /* more than there are top-level keys */
#define NOTE_SIZE_MAX       255

/* An option that is being set. */
struct option_place {
    const struct option_row *row;
    const struct yaml_node *node;
    struct config *config;
    struct config_errors *errors;
};

/* The top-level keys of all files. */
struct config_merge {
    const struct yaml_node *nodes[TOP_KEYS_MAX]; /* with their keys */
    size_t count;
    struct arena scratch; /* of the load: the trees */
    struct config_errors *errors;
};


/* ---- one option ------------------------------------------------------ */

/* Splits "limits.queueEvents"; the section is empty without a dot. */
static void
option_split(const struct option_row *row, struct meter_str *section,
             struct meter_str *key)
{
    const char *dot = strchr(row->name, '.');

    *section = (struct meter_str){"", 0};
    *key = (struct meter_str){row->name, strlen(row->name)};
    if (dot != NULL) {
        *section = (struct meter_str){row->name, (size_t)(dot - row->name)};
        *key = (struct meter_str){dot + 1, strlen(dot + 1)};
    }
}

static const struct option_row *
option_find(struct meter_str section, struct meter_str key)
{
    size_t count;
    const struct option_row *rows = options_table(&count);

    for (size_t i = 0; i < count; i++) {
        struct meter_str row_section;
        struct meter_str row_key;

        option_split(&rows[i], &row_section, &row_key);
        if (meter_str_equal(section, row_section) &&
            meter_str_equal(key, row_key)) {
            return &rows[i];
        }
    }
    return NULL;
}

/* Options are few and short: an arena that is full here is a bug. */
static bool
option_keep(const struct option_place *place, struct meter_str text,
            const char **field)
{
    struct meter_str copy;

    CHECK(arena_copy(&place->config->arena, text, &copy));
    *field = copy.data;
    return true;
}

static bool
option_refuse(const struct option_place *place, const char *expected)
{
    yaml_node_error(place->errors, place->node, "\"%s\" must be %s",
                    place->row->name, expected);
    return false;
}

static bool
text_has_prefix(struct meter_str text, const char *prefix)
{
    size_t size = strlen(prefix);

    return text.size >= size && memcmp(text.data, prefix, size) == 0;
}

static bool
option_parse_text(const struct option_place *place, void *field)
{
    if (place->node->text.size > TEXT_SIZE_MAX) {
        return option_refuse(place, "at most 1024 bytes");
    }
    return option_keep(place, place->node->text, field);
}

static bool
option_parse_database(const struct option_place *place, void *field)
{
    struct meter_str text = place->node->text;

    if (!text_has_prefix(text, "postgres://") &&
        !text_has_prefix(text, "postgresql://") &&
        memchr(text.data, '=', text.size) == NULL) {
        return option_refuse(place, "a postgres:// URL or key=value pairs");
    }
    return option_parse_text(place, field);
}

static bool
option_parse_path(const struct option_place *place, void *field)
{
    if (place->node->text.data[0] != '/') {
        return option_refuse(place, "an absolute path");
    }
    return option_parse_text(place, field);
}

static bool
option_parse_listen(const struct option_place *place, void *field)
{
    struct meter_str path = place->node->text;

    if (!text_has_prefix(path, "unix:/")) {
        return option_refuse(place, "unix: and an absolute path");
    }
    path.data += strlen("unix:");
    path.size -= strlen("unix:");
    if (path.size > LISTEN_PATH_SIZE_MAX) {
        return option_refuse(place, "a path of at most 107 bytes");
    }
    return option_keep(place, path, field);
}

static bool
option_parse_node(const struct option_place *place, void *field)
{
    if (!scalar_is_node(place->node->text)) {
        return option_refuse(place, "1 to 64 letters, digits, '_', '.' or '-', "
                                    "starting with a letter or digit");
    }
    return option_parse_text(place, field);
}

static bool
option_parse_bool(const struct option_place *place, void *field)
{
    return yaml_value_bool(place->errors, place->node, place->row->name, field);
}

static bool
option_parse_integer(const struct option_place *place, void *field)
{
    const struct option_row *row = place->row;
    int64_t value;

    if (place->node->quoted || !scalar_integer(place->node->text, &value)) {
        return option_refuse(place,
                             "an integer in decimal digits, without quotes");
    }
    if (value < row->min || value > row->max) {
        yaml_node_error(place->errors, place->node,
                        "\"%s\" must be from %lld to %lld", row->name,
                        (long long)row->min, (long long)row->max);
        return false;
    }
    *(int64_t *)field = value;
    return true;
}

static bool
option_parse_duration(const struct option_place *place, void *field)
{
    const struct option_row *row = place->row;
    char least[SCALAR_DURATION_TEXT_SIZE + 1];
    char most[SCALAR_DURATION_TEXT_SIZE + 1];
    int64_t value;

    if (!yaml_value_duration(place->errors, place->node, row->name, &value)) {
        return false;
    }
    if (value < row->min || value > row->max) {
        scalar_duration_format(row->min, least);
        scalar_duration_format(row->max, most);
        yaml_node_error(place->errors, place->node,
                        "\"%s\" must be from %s to %s", row->name, least, most);
        return false;
    }
    *(int64_t *)field = value;
    return true;
}

static bool
option_parse_skew(const struct option_place *place, void *field)
{
    if (meter_str_equal(place->node->text, METER_STR("none"))) {
        *(int64_t *)field = CONFIG_NONE;
        return true;
    }
    return option_parse_duration(place, field);
}

static bool
option_parse_days(const struct option_place *place, void *field)
{
    const struct option_row *row = place->row;
    int64_t value;

    if (meter_str_equal(place->node->text, METER_STR("forever"))) {
        *(int64_t *)field = CONFIG_NONE;
        return true;
    }
    if (!scalar_duration(place->node->text, &value) ||
        value % METER_TIME_DAY != 0) {
        return option_refuse(place, "whole days such as 730d, or forever");
    }
    if (value / METER_TIME_DAY < row->min ||
        value / METER_TIME_DAY > row->max) {
        yaml_node_error(place->errors, place->node,
                        "\"%s\" must be from %lldd to %lldd, or forever",
                        row->name, (long long)row->min, (long long)row->max);
        return false;
    }
    *(int64_t *)field = value / METER_TIME_DAY;
    return true;
}

static bool
option_parse_word(const struct option_place *place, void *field)
{
    const char *const *words = place->row->words;
    int position = scalar_word(place->node->text, words);
    char list[YAML_WORDS_SIZE_MAX + 1];

    if (position < 0) {
        yaml_value_words(words, list);
        return option_refuse(place, list);
    }
    *(int64_t *)field = position;
    return true;
}

static bool
option_parse_users(const struct option_place *place, void *field)
{
    const struct yaml_node *list = place->node;
    const char **names;
    size_t count = 0;

    if (list->count > CONFIG_PEERS_MAX) {
        return option_refuse(place, "a list of at most 16 user names");
    }
    names =
        arena_zalloc(&place->config->arena, (list->count + 1) * sizeof(*names));
    CHECK(names != NULL);
    for (const struct yaml_node *item = list->first; item != NULL;
         item = item->next) {
        if (item->kind != YAML_TEXT || item->text.size > USER_SIZE_MAX ||
            !scalar_is_node(item->text)) {
            yaml_node_error(place->errors, item, "\"%s\" must hold user names",
                            place->row->name);
            return false;
        }
        option_keep(place, item->text, &names[count++]);
    }
    *(struct config_users *)field = (struct config_users){names, count};
    return true;
}

typedef bool (*option_parse_fn)(const struct option_place *place, void *field);

static const option_parse_fn option_parsers[] = {
    [OPTION_DATABASE] = option_parse_database,
    [OPTION_PATH] = option_parse_path,
    [OPTION_LISTEN] = option_parse_listen,
    [OPTION_NODE] = option_parse_node,
    [OPTION_BOOL] = option_parse_bool,
    [OPTION_INTEGER] = option_parse_integer,
    [OPTION_DURATION] = option_parse_duration,
    [OPTION_SKEW] = option_parse_skew,
    [OPTION_DAYS] = option_parse_days,
    [OPTION_WORD] = option_parse_word,
    [OPTION_USERS] = option_parse_users,
};

/* False: an error was added. */
static bool
option_set(const struct option_row *row, const struct yaml_node *node,
           struct config *config, struct config_errors *errors)
{
    struct option_place place = {row, node, config, errors};
    enum yaml_kind wanted = row->type == OPTION_USERS ? YAML_LIST : YAML_TEXT;

    if (node->kind != wanted || yaml_node_is_null(node) ||
        (wanted == YAML_TEXT && node->text.size == 0)) {
        yaml_node_error(errors, node, "\"%s\" must be %s, not %s", row->name,
                        wanted == YAML_LIST ? "a list" : "a single value",
                        node->quoted && node->text.size == 0
                            ? "empty text"
                            : yaml_node_kind_name(node));
        return false;
    }
    return option_parsers[row->type](&place, (char *)config + row->offset);
}

static void
config_set_defaults(struct config *config)
{
    size_t count;
    const struct option_row *rows = options_table(&count);

    for (size_t i = 0; i < count; i++) {
        struct config_errors errors = {.count = 0};
        const char *text = rows[i].fallback;
        struct yaml_node node = {.kind = YAML_TEXT, .file = "default"};

        if (text != NULL) {
            node.text = (struct meter_str){text, strlen(text)};
            CHECK(option_set(&rows[i], &node, config, &errors));
        }
    }
}

/* METERD_DATABASE, checked like the option it stands for. */
static void
config_set_environment(struct config *config, struct config_errors *errors)
{
    const char *text = getenv("METERD_DATABASE");
    struct yaml_node node = {
        .kind = YAML_TEXT, .quoted = true, .file = "METERD_DATABASE"};

    if (config->database != NULL || text == NULL || text[0] == '\0') {
        return;
    }
    node.text = (struct meter_str){text, strlen(text)};
    (void)!option_set(option_find(METER_STR(""), METER_STR("database")), &node,
                      config, errors);
}


/* ---- all files as one ------------------------------------------------ */

/* Names that may stand in a section, or at the top level. */
struct config_level {
    char names[SUGGESTIONS_MAX][SUGGESTION_SIZE_MAX + 1];
    const char *words[SUGGESTIONS_MAX + 1];
};

static void
config_level_fill(struct config_level *level, struct meter_str section)
{
    size_t row_count;
    const struct option_row *rows = options_table(&row_count);
    size_t count = 0;

    for (size_t i = 0; i < row_count; i++) {
        struct meter_str row_section;
        struct meter_str word;

        option_split(&rows[i], &row_section, &word);
        if (section.size > 0 && !meter_str_equal(section, row_section)) {
            continue;
        }
        if (section.size == 0 && row_section.size > 0) {
            word = row_section;
        }
        CHECK(count < SUGGESTIONS_MAX && word.size <= SUGGESTION_SIZE_MAX);
        snprintf(level->names[count], sizeof(level->names[count]), "%.*s",
                 (int)word.size, word.data);
        level->words[count] = level->names[count];
        count++;
    }
    for (size_t i = 0; section.size == 0 && catalog_sections[i] != NULL; i++) {
        CHECK(count < SUGGESTIONS_MAX);
        level->words[count++] = catalog_sections[i]->name;
    }
    level->words[count] = NULL;
}

/* Takes the keys of one file; unknown ones are errors. */
static void
merge_add(struct config_merge *merge, const struct yaml_node *root)
{
    struct config_level level;

    config_level_fill(&level, METER_STR(""));
    for (const struct yaml_node *node = root->first; node != NULL;
         node = node->next) {
        struct meter_str key = node->key->text;
        size_t at = 0;

        if (scalar_word(key, level.words) < 0) {
            yaml_key_unknown(merge->errors, node->key, "the configuration",
                             level.words);
            continue;
        }
        while (at < merge->count &&
               !meter_str_equal(merge->nodes[at]->key->text, key)) {
            at++;
        }
        CHECK(at < TOP_KEYS_MAX);
        merge->nodes[at] = node;
        merge->count += at == merge->count;
    }
}

static const struct yaml_node *
merge_find(const struct config_merge *merge, const char *name)
{
    struct meter_str key = {name, strlen(name)};

    for (size_t i = 0; i < merge->count; i++) {
        if (meter_str_equal(merge->nodes[i]->key->text, key)) {
            return merge->nodes[i];
        }
    }
    return NULL;
}

/* A section of options; nothing is done where no option has that section. */
static void
config_set_section(const struct yaml_node *section, struct config *config,
                   struct config_errors *errors)
{
    struct meter_str name = section->key->text;
    struct config_level level;
    char what[SUGGESTION_SIZE_MAX + 3];

    config_level_fill(&level, name);
    if (level.words[0] == NULL) {
        return;
    }
    snprintf(what, sizeof(what), "\"%s\"", name.data);
    if (section->kind != YAML_MAP) {
        yaml_node_error(errors, section, "\"%s\" must be a map, not %s",
                        name.data, yaml_node_kind_name(section));
        return;
    }
    for (const struct yaml_node *node = section->first; node != NULL;
         node = node->next) {
        const struct option_row *row = option_find(name, node->key->text);

        if (row == NULL) {
            yaml_key_unknown(errors, node->key, what, level.words);
            continue;
        }
        /* An error is in the list; the others are still worth reading. */
        (void)!option_set(row, node, config, errors);
    }
}

/*
 * Retention levels that were not given follow the given ones: a coarser level
 * is kept at least as long as a finer one. Days compare with forever as the
 * longest.
 */
static int64_t
days_rank(int64_t days)
{
    return days == CONFIG_NONE ? INT64_MAX : days;
}

struct retention_level {
    const char *key;
    int64_t *days;
    const struct yaml_node *node; /* NULL: the default */
};

/* Of two given levels next to each other, the coarser is not shorter. */
static void
retention_check(const struct retention_level *levels, size_t count,
                struct config_errors *errors)
{
    const struct retention_level *finer = NULL;

    for (size_t i = 0; i < count; i++) {
        if (levels[i].node == NULL) {
            continue;
        }
        if (finer != NULL &&
            days_rank(*levels[i].days) < days_rank(*finer->days)) {
            yaml_node_error(errors, levels[i].node,
                            "\"retention.%s\" must not be shorter than "
                            "\"retention.%s\"",
                            levels[i].key, finer->key);
        }
        finer = &levels[i];
    }
}

/* Defaults move out of the way of given values, never the reverse. */
static void
retention_follow(struct retention_level *levels, size_t count)
{
    int64_t least = 0;
    int64_t most = INT64_MAX;

    for (size_t i = 0; i < count; i++) {
        if (levels[i].node != NULL) {
            least = days_rank(*levels[i].days);
        } else if (days_rank(*levels[i].days) < least) {
            *levels[i].days = least == INT64_MAX ? CONFIG_NONE : least;
        }
    }
    for (size_t i = count; i-- > 0;) {
        if (levels[i].node != NULL) {
            most = days_rank(*levels[i].days);
        } else if (days_rank(*levels[i].days) > most) {
            *levels[i].days = most;
        }
    }
}

/* An index entry is of no use without its event. */
static void
retention_set_index(const struct yaml_node *section,
                    struct config_retention *retention,
                    struct config_errors *errors)
{
    const struct yaml_node *given = yaml_node_find(section, "eventIndex");

    if (days_rank(retention->event_index_days) <=
        days_rank(retention->event_days)) {
        return;
    }
    if (given != NULL) {
        yaml_node_error(errors, given,
                        "\"retention.eventIndex\" must not be longer than "
                        "\"retention.event\"");
        return;
    }
    retention->event_index_days = retention->event_days;
}

static void
config_set_retention(const struct yaml_node *section, struct config *config,
                     struct config_errors *errors)
{
    struct config_retention *retention = &config->retention;
    struct retention_level levels[] = {
        {"series5s", &retention->series_5s_days, NULL},
        {"series1m", &retention->series_1m_days, NULL},
        {"series1h", &retention->series_1h_days, NULL},
        {"series1d", &retention->series_1d_days, NULL},
        {"series7d", &retention->series_7d_days, NULL},
    };
    size_t count = sizeof(levels) / sizeof(levels[0]);

    for (size_t i = 0; i < count; i++) {
        levels[i].node = yaml_node_find(section, levels[i].key);
    }
    retention_check(levels, count, errors);
    retention_follow(levels, count);
    retention_set_index(section, retention, errors);
}

/* Sets every option that the files have, and checks them together. */
static void
config_set_options(const struct config_merge *merge, struct config *config)
{
    const struct yaml_node *checkpoint = merge_find(merge, "checkpoint");
    const struct yaml_node *retention = merge_find(merge, "retention");
    struct config_errors *errors = merge->errors;

    for (size_t i = 0; i < merge->count; i++) {
        const struct yaml_node *node = merge->nodes[i];
        const struct option_row *row =
            option_find(METER_STR(""), node->key->text);

        if (row != NULL) {
            (void)!option_set(row, node, config, errors);
        } else {
            config_set_section(node, config, errors);
        }
    }
    if (checkpoint != NULL && checkpoint->kind == YAML_MAP &&
        yaml_node_find(checkpoint, "path") == NULL) {
        yaml_node_error(errors, checkpoint,
                        "\"checkpoint\" needs the key \"path\"");
    }
    if (retention != NULL && retention->kind == YAML_MAP) {
        config->retention.given = true;
        config_set_retention(retention, config, errors);
    }
}


/* ---- loading --------------------------------------------------------- */

/* The host's name, or a fixed one when that is no valid node name. */
static const char *
config_node_default(struct config *config)
{
    char name[65] = "";

    if (gethostname(name, sizeof(name) - 1) != 0 ||
        !scalar_is_node((struct meter_str){name, strlen(name)})) {
        return NODE_FALLBACK;
    }
    return arena_strdup(&config->arena, name);
}

static struct config *
config_create(void)
{
    struct config *config = memory_alloc(sizeof(*config));

    config->references = 1;
    arena_init(&config->arena, ARENA_BLOCK_SIZE, ARENA_SIZE_MAX);
    config->node = config_node_default(config);
    config->catalog = arena_zalloc(&config->arena, sizeof(*config->catalog));
    CHECK(config->node != NULL && config->catalog != NULL);
    config_set_defaults(config);
    return config;
}

/* Equal rules, equal version; 0 is kept for "none". */
static void
config_set_version(struct config *config, struct config_errors *errors)
{
    struct buf dump;

    buf_init(&dump, DUMP_SIZE_MAX);
    catalog_dump(config->catalog, &dump);
    if (dump.failed) {
        config_errors_add(errors, "", 0, 0,
                          "the configuration needs too much memory");
    } else {
        config->version = meter_hash(dump.data, dump.size, 0);
        config->version += config->version == 0;
    }
    buf_fini(&dump);
}

/*
 * The end of a load: a configuration, or errors. A file that could not be read
 * left its errors; the rest may add more.
 */
static bool
merge_finish(struct config_merge *merge, struct config **out)
{
    struct config *config = config_create();
    const struct yaml_node *rules[CATALOG_SECTIONS_MAX] = {NULL};
    struct catalog_defaults defaults;

    config_set_options(merge, config);
    config_set_environment(config, merge->errors);
    for (size_t i = 0; catalog_sections[i] != NULL; i++) {
        rules[i] = merge_find(merge, catalog_sections[i]->name);
    }
    defaults.lateness_us = config->default_lateness_us;
    defaults.counter_keys_max = config->limits.counter_keys;
    if (catalog_build(rules, &defaults, &config->arena, &merge->scratch,
                      merge->errors, (struct catalog *)config->catalog) &&
        merge->errors->count == 0) {
        config_set_version(config, merge->errors);
    }
    arena_fini(&merge->scratch);
    if (config->version == 0) {
        CHECK(merge->errors->count > 0);
        config_unref(config);
        config = NULL;
    }
    *out = config;
    return config != NULL;
}

static void
merge_init(struct config_merge *merge, struct config_errors *errors)
{
    *merge = (struct config_merge){.errors = errors};
    arena_init(&merge->scratch, SCRATCH_BLOCK_SIZE, SCRATCH_SIZE_MAX);
    config_errors_clear(errors);
}

static void
merge_add_text(struct config_merge *merge, const char *name,
               struct meter_str text)
{
    const struct yaml_node *root;

    if (text.size > YAML_TREE_FILE_SIZE_MAX) {
        config_errors_add(merge->errors, name, 0, 0,
                          "the file is larger than %u bytes",
                          YAML_TREE_FILE_SIZE_MAX);
    } else if (yaml_tree_read(name, text, &merge->scratch, merge->errors,
                              &root)) {
        merge_add(merge, root);
    }
}

/* Up to room bytes; false: errno says why. */
static bool
file_read(int fd, char *data, size_t room, size_t *size)
{
    *size = 0;
    while (*size < room) {
        ssize_t got = read(fd, data + *size, room - *size);

        if (got == 0 || (got < 0 && errno != EINTR)) {
            return got == 0;
        }
        *size += got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* O_NONBLOCK: a pipe given by mistake must not stop the daemon. */
static void
merge_add_file(struct config_merge *merge, const char *path)
{
    size_t room = YAML_TREE_FILE_SIZE_MAX + 1; /* one more: too large */
    char *data = NULL;
    size_t size = 0;
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &status) != 0) {
        config_errors_add(merge->errors, path, 0, 0, "cannot open the file: %s",
                          strerror(errno));
        goto done;
    }
    if (!S_ISREG(status.st_mode)) {
        config_errors_add(merge->errors, path, 0, 0, "not a regular file");
        goto done;
    }
    data = memory_alloc(room);
    if (!file_read(fd, data, room, &size)) {
        config_errors_add(merge->errors, path, 0, 0, "cannot read the file: %s",
                          strerror(errno));
        goto done;
    }
    merge_add_text(merge, path, (struct meter_str){data, size});
done:
    free(data);
    if (fd >= 0) {
        close(fd);
    }
}

bool
config_load(const char *const *paths, size_t count, struct config **out,
            struct config_errors *errors)
{
    struct config_merge merge;

    *out = NULL;
    merge_init(&merge, errors);
    if (count == 0 || count > CONFIG_FILES_MAX) {
        config_errors_add(errors, "", 0, 0, "from 1 to %d files are needed",
                          CONFIG_FILES_MAX);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        merge_add_file(&merge, paths[i]);
    }
    return merge_finish(&merge, out);
}

bool
config_load_text(const char *name, struct meter_str text, struct config **out,
                 struct config_errors *errors)
{
    struct config_merge merge;

    merge_init(&merge, errors);
    merge_add_text(&merge, name, text);
    return merge_finish(&merge, out);
}


/* ---- a loaded configuration ------------------------------------------ */

struct config *
config_ref(struct config *config)
{
    CHECK(config->references > 0);
    config->references++;
    return config;
}

void
config_unref(struct config *config)
{
    if (config == NULL) {
        return;
    }
    CHECK(config->references > 0);
    config->references--;
    if (config->references > 0) {
        return;
    }
    if (config->catalog != NULL) {
        catalog_fini((struct catalog *)config->catalog);
    }
    arena_fini(&config->arena);
    free(config);
}

bool
config_require(const struct config *config, unsigned needs,
               struct config_errors *errors)
{
    const struct {
        unsigned need;
        const char *value;
        const char *text;
    } wanted[] = {
        {CONFIG_NEEDS_DATABASE, config->database,
         "\"database\" is missing: set it in a file, or METERD_DATABASE in "
         "the environment"},
        {CONFIG_NEEDS_ADMIN_DATABASE, config->admin_database,
         "\"adminDatabase\" is missing: the URL of the schema's owner"},
        {CONFIG_NEEDS_LISTEN, config->listen,
         "\"listen\" is missing: the socket, as unix:PATH"},
        {CONFIG_NEEDS_STATE_DIR, config->state_dir,
         "\"stateDir\" is missing: a directory that is meterd's alone"},
    };

    config_errors_clear(errors);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if ((needs & wanted[i].need) && wanted[i].value == NULL) {
            config_errors_add(errors, "", 0, 0, "%s", wanted[i].text);
        }
    }
    return errors->count == 0;
}

/* Only what was counted once can leave again. */
static bool
counter_counts_nothing(const struct counter *counter)
{
    for (size_t i = 0; i < counter->rule_count; i++) {
        if (counter->rules[i].delta > 0) {
            return false;
        }
    }
    return counter->entity != NULL;
}

void
config_notes(const struct config *config, config_note_cb note, void *asker)
{
    const struct catalog *catalog = config->catalog;
    char text[NOTE_SIZE_MAX + 1];

    for (size_t i = 0; i < catalog->counter_count; i++) {
        const struct counter *counter = &catalog->counters[i];

        if (counter_counts_nothing(counter)) {
            snprintf(text, sizeof(text),
                     "counter \"%s\": transitions without an increment "
                     "count nothing",
                     counter->name.data);
            note(asker, text);
        }
    }
    for (size_t i = 0; i < catalog->event_type_count; i++) {
        const struct event_type *type = &catalog->event_types[i];

        if (!type->declared && catalog->any_type == NULL) {
            snprintf(text, sizeof(text),
                     "event type \"%s\": accepted because rules name it; "
                     "not declared under events",
                     type->name.data);
            note(asker, text);
        }
    }
}
