/*
 * migrate_cmd.c - see migrate_cmd.h.
 */

#include "cmd/migrate_cmd.h"

#include "base/log.h"
#include "base/process.h"
#include "cmd/command_line.h"
#include "pg/statements.h"
#include "store/migrate.h"

#include <stdio.h>

static const char usage_text[] =
    "usage: meterd migrate -c FILE [-c FILE]...\n"
    "\n"
    "Applies the migrations that the database lacks, each in a transaction\n"
    "of its own, and re-creates the functions. Connects to adminDatabase.\n"
    "Safe to run at any time, also from several hosts at once.\n"
    "\n"
    "  -c, --config FILE  a file; later ones add or replace top-level keys\n"
    "  -h, --help         this text\n";

/* The last `applied` of the embedded list are those that were missing. */
static void
migrate_report(int applied)
{
    size_t first = migrations_count - (size_t)applied;

    for (size_t i = first; i < migrations_count; i++) {
        printf("applied %s\n", migrations[i].name);
    }
    printf("the schema is at version %d\n",
           migrations[migrations_count - 1].number);
}

static int
migrate_files(const struct command_files *files)
{
    struct config *config;
    int applied = 0;
    bool ok;

    if (!command_config_load(files, CONFIG_NEEDS_ADMIN_DATABASE, &config)) {
        return PROCESS_FAILED;
    }
    log_for_person("meterd migrate");
    ok = migrate_run(config->admin_database, &applied);
    config_unref(config);
    if (!ok) {
        return PROCESS_FAILED;
    }
    migrate_report(applied);
    return fflush(stdout) == 0 ? PROCESS_OK : PROCESS_FAILED;
}

int
migrate_cmd_run(int argc, char **argv)
{
    struct command_files files = {.count = 0};
    int status;

    if (!command_files_read(argc, argv, "migrate", usage_text, &files,
                            &status)) {
        return status;
    }
    return migrate_files(&files);
}
