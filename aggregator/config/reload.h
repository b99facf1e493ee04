/*
 * reload.h - rules read again, and what is said about rules in force; the log
 * file opened again.
 */

#ifndef CONFIG_RELOAD_H
#define CONFIG_RELOAD_H

#include "config/config.h"

/*
 * A whole new configuration that may replace the running one, with one
 * reference; NULL: it may not, the reasons are logged.
 */
MUST_CHECK struct config *
reload_config(const char *const *paths, size_t path_count, unsigned needs,
              const struct config *running);

/*
 * Opens the file of log.path, again after it was renamed. False: it cannot be
 * opened, which is logged where lines went before, and still go.
 */
bool reload_log_file(const struct config *config);

/* Sets the level of the log, counts the version, logs notes. */
void reload_in_force(const struct config *config);

#endif
