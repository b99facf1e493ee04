/*
 * run_cmd.c - see run_cmd.h.
 */

#include "ops/run_cmd.h"

#include "aggregator.h"
#include "ops/command_line.h"
#include "ops/process.h"

#include <getopt.h>
#include <stdio.h>

static const char usage_text[] =
    "usage: meterd [run] -c FILE [-c FILE]...\n"
    "\n"
    "Takes events from nginx over a Unix socket and commits them to\n"
    "PostgreSQL. Runs in the foreground; log lines are JSON on stderr.\n"
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
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct command_files files = {.count = 0};
    struct config *config;
    int found;

    optind = 0;
    while ((found = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (found) {
        case 'c':
            if (!command_files_add(&files, "run", optarg)) {
                return PROCESS_USAGE;
            }
            break;
        case 'h': fputs(usage_text, stdout); return PROCESS_OK;
        default: fputs(usage_text, stderr); return PROCESS_USAGE;
        }
    }
    if (optind < argc) {
        return command_usage_error("run", "unexpected argument", argv[optind]);
    }
    if (files.count == 0) {
        return command_usage_error("run", "no configuration; give -c FILE",
                                   NULL);
    }
    if (!command_config_load(&files, AGGREGATOR_NEEDS, &config)) {
        return PROCESS_FAILED;
    }
    return aggregator_run(files.paths, files.count, config) ? PROCESS_OK
                                                            : PROCESS_FAILED;
}
