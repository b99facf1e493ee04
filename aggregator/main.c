/*
 * main.c - meterd: a table of contents.
 *
 *   meterd run          daemon.c: socket -> api, link -> ingest -> lane
 *   meterd check        is this configuration valid?
 *   meterd migrate      bring the database to this program's schema
 *   meterd token        make, list and revoke bearer tokens
 *   meterd replay       events of a file, each counted once
 *   meterd dead-letter  look at and replay records that were rejected
 *   meterd reconcile    are the projections what the ledger says?
 *   meterd rebuild      put right what is not
 *   meterd checkpoint   save and restore what cannot be recomputed
 *   meterd retention    drop what is kept no longer
 */

#include "base/process.h"
#include "cmd/check_cmd.h"
#include "cmd/checkpoint_cmd.h"
#include "cmd/dead_letter_cmd.h"
#include "cmd/migrate_cmd.h"
#include "cmd/rebuild_cmd.h"
#include "cmd/reconcile_cmd.h"
#include "cmd/replay_cmd.h"
#include "cmd/retention_cmd.h"
#include "cmd/run_cmd.h"
#include "cmd/token_cmd.h"
#include "meter_version.h"

#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"run", run_cmd_run, "take events and commit them; the default"},
    {"check", check_cmd_run, "is this configuration valid?"},
    {"migrate", migrate_cmd_run, "bring the database to this schema"},
    {"token", token_cmd_run, "create, list and revoke bearer tokens"},
    {"replay", replay_cmd_run, "events of a file, each counted once"},
    {"dead-letter", dead_letter_cmd_run,
     "list, show and replay rejected records"},
    {"reconcile", reconcile_cmd_run,
     "compare counters, usage and meters with the ledger"},
    {"rebuild", rebuild_cmd_run, "put right what differs from the ledger"},
    {"checkpoint", checkpoint_cmd_run,
     "export and import what cannot be recomputed"},
    {"retention", retention_cmd_run, "drop what is kept no longer"},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static int
usage(FILE *out, int status)
{
    fputs("usage: meterd [COMMAND] -c FILE [-c FILE]... [OPTIONS]\n"
          "       meterd -c FILE [-c FILE]... [COMMAND] [OPTIONS]\n\n",
          out);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].help);
    }
    fputs("\n"
          "  -c, --config FILE\n"
          "                 a file; before the command or after it\n"
          "  -h, --help     this text; after a command: the command's\n"
          "  -V, --version  the version of this program\n",
          out);
    return status;
}

/* Where the word after the files stands: -c FILE, -cFILE, --config=FILE. */
static int
files_end(int argc, char **argv)
{
    int at = 1;

    while (at < argc) {
        const char *word = argv[at];

        if (strcmp(word, "-c") == 0 || strcmp(word, "--config") == 0) {
            at += 2;
        } else if (strncmp(word, "-c", 2) == 0 ||
                   strncmp(word, "--config=", 9) == 0) {
            at++;
        } else {
            return at;
        }
    }
    return 0; /* no command */
}

/* Files that stand before the command go after it, where it looks for them. */
static void
files_move(int argc, char **argv)
{
    int at = files_end(argc, argv);

    if (at > 1 && argv[at][0] != '-') {
        char *word = argv[at];

        memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof(*argv));
        argv[1] = word;
    }
}

int
main(int argc, char **argv)
{
    const char *word;
    char name[32]; /* what getopt puts in front of its errors */

    process_prepare();
    files_move(argc, argv);
    word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
        strcmp(word, "help") == 0) {
        return usage(stdout, PROCESS_OK);
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        puts("meterd " METER_VERSION);
        return PROCESS_OK;
    }
    if (word[0] == '-') {
        return run_cmd_run(argc, argv);
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(word, commands[i].name) == 0) {
            snprintf(name, sizeof(name), "meterd %s", word);
            argv[1] = name;
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    if (word[0] == '\0') {
        fputs("meterd: no configuration; give -c FILE\n", stderr);
    } else {
        fprintf(stderr, "meterd: there is no command \"%s\"\n", word);
    }
    return usage(stderr, PROCESS_USAGE);
}
