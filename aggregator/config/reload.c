/*
 * reload.c - rules read again, and what is said about rules in force.
 *
 *   SIGHUP -> files -> [reload] -> a whole configuration, or a reason
 *   SIGUSR1 ---------> [reload] -> a log file opened again
 */

#include "config/reload.h"

#include "base/log.h"
#include "base/metrics.h"

#include <errno.h>

#define CONFIG_VERSION_CUT 11 /* leaves 53 bits: exact in any client */

static void
log_errors(const struct config_errors *errors)
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

struct config *
reload_config(const char *const *paths, size_t path_count, unsigned needs,
              const struct config *running)
{
    struct config_errors errors;
    struct config *loaded;
    const char *option = NULL;

    if (!config_load(paths, path_count, &loaded, &errors)) {
        log_errors(&errors);
        return NULL;
    }
    if (!config_require(loaded, needs, &errors)) {
        log_errors(&errors);
        config_unref(loaded);
        return NULL;
    }
    if (config_needs_restart(running, loaded, &option)) {
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
note_cb(void *asker, const char *text)
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
    config_notes(config, note_cb, NULL);
}
