/*
 * run_cmd.c - see run_cmd.h.
 */

#include "cmd/run_cmd.h"

#include "base/process.h"
#include "cmd/command_line.h"
#include "config/reload.h"
#include "daemon.h"

#include <stdio.h>

static const char usage_text[] =
    "usage: meterd [run] -c FILE [-c FILE]...\n"
    "\n"
    "Takes events from nginx over a Unix socket and commits them to\n"
    "PostgreSQL. Runs in the foreground; log lines are JSON, on stderr or in\n"
    "the file of log.path, which SIGUSR1 opens again.\n"
    "\n"
    "  -c, --config FILE  a file; later ones add or replace top-level keys\n"
    "  -h, --help         this text\n"
    "\n"
    "Needs the options database, adminDatabase, listen and stateDir.\n"
    "SIGHUP loads the files again; bad ones are reported and the old rules\n"
    "stay. SIGTERM and SIGINT finish what is queued, for at most 10 s.\n";

int
run_cmd_run(int argc, char **argv)
{
    struct command_files files = {.count = 0};
    struct config *config;
    int status;

    if (!command_files_read(argc, argv, "run", usage_text, &files, &status)) {
        return status;
    }
    if (!command_config_load(&files, DAEMON_NEEDS, &config)) {
        return PROCESS_FAILED;
    }
    if (!reload_log_file(config)) {
        config_unref(config);
        return PROCESS_FAILED;
    }
    return daemon_run(files.paths, files.count, config) ? PROCESS_OK
                                                        : PROCESS_FAILED;
}
