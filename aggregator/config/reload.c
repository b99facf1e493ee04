/*
 * reload.c - rules read again, and what the log says about rules in force.
 *
 *   SIGHUP -> files -> [reload] -> a whole configuration, or a reason
 *   SIGUSR1 ---------> [reload] -> a log file opened again
 *
 * The daemon swaps the configuration only when all of it may replace the
 * running one: it has no error, and it differs in nothing that takes a restart.
 */

#include "config/reload.h"

#include "base/log.h"
#include "base/metrics.h"
#include "config/options.h"

#include <errno.h>

#define CONFIG_VERSION_CUT 11 /* leaves 53 bits: exact in any client */

static void
reload_log_errors(const struct config_errors *errors)
{
    for (size_t i = 0; i < errors->count; i++) {
        const struct config_error *error = &errors->items[i];

        log_error("config", "reload refused", log_str("file", error->file),
                  log_int("line", error->line),
                  log_int("column", error->column),
                  log_str("reason", error->text));
    }
    if (errors->suppressed > 0) {
        log_error("config", "reload refused: more errors",
                  log_int("errors", (int64_t)errors->suppressed));
    }
}

static bool
option_users_equal(const struct config_users *a, const struct config_users *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->names[i], b->names[i]) != 0) {
            return false;
        }
    }
    return true;
}

static bool
option_equal(const struct option_row *row, const struct config *a,
             const struct config *b)
{
    const void *field_a = (const char *)a + row->offset;
    const void *field_b = (const char *)b + row->offset;

    if (option_is_text(row)) {
        const char *text_a = *(const char *const *)field_a;
        const char *text_b = *(const char *const *)field_b;

        return text_a == NULL || text_b == NULL ? text_a == text_b
                                                : strcmp(text_a, text_b) == 0;
    }
    if (row->type == OPTION_USERS) {
        return option_users_equal(field_a, field_b);
    }
    if (row->type == OPTION_BOOL) {
        return *(const bool *)field_a == *(const bool *)field_b;
    }
    return *(const int64_t *)field_a == *(const int64_t *)field_b;
}

/* The first option that differs and that only a restart applies; or NULL. */
static const char *
reload_needs_restart(const struct config *running, const struct config *changed)
{
    size_t count;
    const struct option_row *rows = options_table(&count);

    for (size_t i = 0; i < count; i++) {
        if (!(rows[i].flags & OPTION_RELOAD) &&
            !option_equal(&rows[i], running, changed)) {
            return rows[i].name;
        }
    }
    return NULL;
}

struct config *
reload_config(const char *const *paths, size_t path_count, unsigned needs,
              const struct config *running)
{
    struct config_errors errors;
    struct config *loaded;
    const char *option;

    if (!config_load(paths, path_count, &loaded, &errors)) {
        reload_log_errors(&errors);
        return NULL;
    }
    if (!config_require(loaded, needs, &errors)) {
        reload_log_errors(&errors);
        config_unref(loaded);
        return NULL;
    }
    option = reload_needs_restart(running, loaded);
    if (option != NULL) {
        log_error("config", "reload refused: the option needs a restart",
                  log_str("option", option));
        config_unref(loaded);
        return NULL;
    }
    return loaded;
}

bool
reload_log_file(const struct config *config)
{
    if (config->log_path == NULL || log_file_open(config->log_path)) {
        return true;
    }
    log_error("log", "the log file cannot be opened",
              log_str("path", config->log_path),
              log_str("reason", strerror(errno)));
    return false;
}

static void
reload_note_cb(void *asker, const char *text)
{
    (void)asker;
    log_info("config", text);
}

void
reload_in_force(const struct config *config)
{
    log_level_set((enum log_level)config->log_level);
    metrics.edgemeter_config_version =
        (int64_t)(config->version >> CONFIG_VERSION_CUT);
    log_info("config", "rules in force",
             log_int("version", metrics.edgemeter_config_version),
             log_int("event_types", (int64_t)config->catalog->event_type_count),
             log_int("counters", (int64_t)config->catalog->counter_count));
    config_notes(config, reload_note_cb, NULL);
}
