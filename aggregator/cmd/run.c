/*
 * run.c - `meterd run`: the daemon, and what `meterd -c FILE` does.
 *
 * Loads the configuration, opens the log file and hands over to daemon.c.
 * Exit status: 0 after SIGTERM or SIGINT, 1 when it could not start or go
 * on, 2 usage.
 */

#include "base/process.h"
#include "cmd/command.h"
#include "config/reload.h"
#include "daemon.h"

static int
run_daemon(void *data)
{
    struct command_line *line = data;
    struct config *config = line->config;

    if (!reload_log_file(config)) {
        return PROCESS_FAILED;
    }
    line->config = NULL; /* the daemon's from here on */
    return daemon_run(line->files.paths, line->files.count, config)
               ? PROCESS_OK
               : PROCESS_FAILED;
}

static const struct command_verb run_verbs[] = {
    {NULL, run_daemon, DAEMON_NEEDS},
    {NULL},
};

const struct command run_command = {
    .name = "run",
    .summary = "take events and commit them; the default",
    .synopsis = "usage: meterd [run] -c FILE [-c FILE]...\n",
    .about =
        "Takes events from nginx over a Unix socket and commits them to\n"
        "PostgreSQL. Runs in the foreground; log lines are JSON, on stderr or "
        "in\n"
        "the file of log.path, which SIGUSR1 opens again.\n",
    .notes =
        "Needs the options database, adminDatabase, listen and stateDir.\n"
        "SIGHUP loads the files again; bad ones are reported and the old "
        "rules\n"
        "stay. SIGTERM and SIGINT finish what is queued, for at most 10 s.\n",
    .verbs = run_verbs,
    .size = sizeof(struct command_line),
};
