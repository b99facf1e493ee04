/*
 * daemon.h - the daemon: every part made, wired and taken apart.
 */

#ifndef DAEMON_H
#define DAEMON_H

#include "config/config.h"

/* What the daemon cannot run without; see config_require. */
#define DAEMON_NEEDS                                       \
    (CONFIG_NEEDS_DATABASE | CONFIG_NEEDS_ADMIN_DATABASE | \
     CONFIG_NEEDS_LISTEN | CONFIG_NEEDS_STATE_DIR)

/*
 * Serves until SIGTERM or SIGINT, then drains. Takes config's reference;
 * paths are read again at SIGHUP. False: it could not start or go on; the
 * reason is logged.
 */
MUST_CHECK bool
daemon_run(const char *const *paths, size_t path_count, struct config *config);

#endif
