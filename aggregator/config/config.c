/*
 * config.c - from files to one immutable configuration.
 *
 *   files -> yaml_tree -> merge -> options, catalog -> checks -> config
 *
 * Top-level keys are merged first, whole: the last file that has a key
 * wins. Reading goes on after an error to report as many as possible; one
 * error is enough for no configuration at all.
 */

#include "config/config.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "config/catalog_build.h"
#include "config/config_merge.h"
#include "config/options.h"
#include "config/scalar.h"
#include "meter_hash.h"

#define ARENA_BLOCK_SIZE   (16u << 10)
#define ARENA_SIZE_MAX     (32u << 20)
#define SCRATCH_BLOCK_SIZE (64u << 10)
#define SCRATCH_SIZE_MAX   (64u << 20)
#define DUMP_SIZE_MAX      (64u << 20)
#define NODE_FALLBACK      "localhost"

static struct config *
config_make(const struct merge *merge, struct arena *scratch,
            struct config_errors *errors);


bool
config_load(const char *const *paths, size_t count, struct config **out,
            struct config_errors *errors)
{
    struct merge merge = {.count = 0};
    struct arena scratch;

    *out = NULL;
    config_errors_clear(errors);
    if (count == 0 || count > CONFIG_FILES_MAX) {
        config_errors_add(errors, "", 0, 0, "from 1 to %d files are needed",
                          CONFIG_FILES_MAX);
        return false;
    }
    arena_init(&scratch, SCRATCH_BLOCK_SIZE, SCRATCH_SIZE_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct yaml_node *root;

        if (yaml_tree_load(paths[i], &scratch, errors, &root)) {
            merge_add(&merge, root, errors);
        }
    }
    *out = config_make(&merge, &scratch, errors);
    arena_fini(&scratch);
    return *out != NULL;
}

bool
config_load_text(const char *name, struct meter_str text, struct config **out,
                 struct config_errors *errors)
{
    struct merge merge = {.count = 0};
    const struct yaml_node *root;
    struct arena scratch;

    config_errors_clear(errors);
    arena_init(&scratch, SCRATCH_BLOCK_SIZE, SCRATCH_SIZE_MAX);
    if (text.size > YAML_TREE_FILE_SIZE_MAX) {
        config_errors_add(errors, name, 0, 0,
                          "the file is larger than %u bytes",
                          YAML_TREE_FILE_SIZE_MAX);
    } else if (yaml_tree_read(name, text, &scratch, errors, &root)) {
        merge_add(&merge, root, errors);
    }
    *out = config_make(&merge, &scratch, errors);
    arena_fini(&scratch);
    return *out != NULL;
}

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


/* The host's name, or a fixed one when that is no valid node name. */
static const char *
node_default(struct config *config)
{
    char name[65] = "";

    if (gethostname(name, sizeof(name) - 1) != 0 ||
        !scalar_is_node((struct meter_str){name, strlen(name)})) {
        return NODE_FALLBACK;
    }
    return arena_strdup(&config->arena, name);
}

static struct config *
config_create(struct config_errors *errors)
{
    struct config *config = calloc(1, sizeof(*config));
    struct catalog *catalog;

    if (config == NULL) {
        config_errors_add(errors, "", 0, 0, "out of memory");
        return NULL;
    }
    config->references = 1;
    arena_init(&config->arena, ARENA_BLOCK_SIZE, ARENA_SIZE_MAX);
    config->node = node_default(config);
    catalog = arena_zalloc(&config->arena, sizeof(*catalog));
    config->catalog = catalog;
    if (config->node == NULL || catalog == NULL || !options_default(config)) {
        config_errors_add(errors, "", 0, 0, "out of memory");
        config_unref(config);
        return NULL;
    }
    return config;
}

/* METERD_DATABASE, checked like the option it stands for. */
static void
config_environment(struct config *config, struct config_errors *errors)
{
    const char *text = getenv("METERD_DATABASE");
    struct yaml_node node = {.kind = YAML_TEXT, .file = "METERD_DATABASE"};

    if (config->database != NULL || text == NULL || text[0] == '\0') {
        return;
    }
    node.quoted = true;
    node.text = (struct meter_str){text, strlen(text)};
    (void)!options_set(options_find(METER_STR(""), METER_STR("database")),
                       &node, config, errors);
}

/* Equal rules, equal version; 0 is kept for "none". */
static bool
config_number(struct config *config, struct config_errors *errors)
{
    struct buf dump;
    bool ok;

    buf_init(&dump, DUMP_SIZE_MAX);
    catalog_dump(config->catalog, &dump);
    ok = !dump.failed;
    if (ok) {
        config->version = meter_hash(dump.data, dump.size, 0);
        config->version += config->version == 0;
    } else {
        config_errors_add(errors, "", 0, 0,
                          "the configuration needs too much memory");
    }
    buf_fini(&dump);
    return ok;
}

static bool
config_fill(struct config *config, const struct merge *merge,
            struct arena *scratch, struct config_errors *errors)
{
    struct catalog_sections sections = {NULL};
    struct catalog_defaults defaults;

    merge_options(merge, config, errors);
    config_environment(config, errors);
    merge_sections(merge, &sections);
    defaults.lateness_us = config->default_lateness_us;
    defaults.counter_keys_max = config->limits.counter_keys;
    return catalog_build(&sections, &defaults, &config->arena, scratch, errors,
                         (struct catalog *)config->catalog) &&
           errors->count == 0 && config_number(config, errors);
}

/* A file that could not be read left its errors; the rest may add more. */
static struct config *
config_make(const struct merge *merge, struct arena *scratch,
            struct config_errors *errors)
{
    struct config *config = config_create(errors);

    if (config == NULL || config_fill(config, merge, scratch, errors)) {
        return config;
    }
    CHECK(errors->count > 0);
    config_errors_sort(errors);
    config_unref(config);
    return NULL;
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

bool
config_needs_restart(const struct config *running, const struct config *changed,
                     const char **name)
{
    size_t count;
    const struct option_row *rows = options_table(&count);

    for (size_t i = 0; i < count; i++) {
        if (!(rows[i].flags & OPTION_RELOAD) &&
            !options_equal(&rows[i], running, changed)) {
            *name = rows[i].name;
            return true;
        }
    }
    return false;
}
