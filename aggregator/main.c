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
#include "cmd/command.h"
#include "cmd/rebuild_cmd.h"
#include "cmd/reconcile_cmd.h"
#include "meter_version.h"

#include <stdio.h>
#include <string.h>

/* These two read their command lines by themselves. */
static const struct command reconcile_command = {
    .name = "reconcile",
    .summary = "compare counters, usage and meters with the ledger",
    .start = reconcile_cmd_run,
};

static const struct command rebuild_command = {
    .name = "rebuild",
    .summary = "put right what differs from the ledger",
    .start = rebuild_cmd_run,
};

static const struct command *const commands[] = {
    &run_command,       &check_command,   &migrate_command,
    &token_command,     &replay_command,  &dead_letter_command,
    &reconcile_command, &rebuild_command, &checkpoint_command,
    &retention_command,
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static int
usage(FILE *out, int status)
{
    fputs("usage: meterd [COMMAND] -c FILE [-c FILE]... [OPTIONS]\n"
          "       meterd -c FILE [-c FILE]... [COMMAND] [OPTIONS]\n\n",
          out);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
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
        return command_run(&run_command, argc, argv);
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(word, commands[i]->name) == 0) {
            return command_run(commands[i], argc - 1, argv + 1);
        }
    }
    if (word[0] == '\0') {
        fputs("meterd: no configuration; give -c FILE\n", stderr);
    } else {
        fprintf(stderr, "meterd: there is no command \"%s\"\n", word);
    }
    return usage(stderr, PROCESS_USAGE);
}
