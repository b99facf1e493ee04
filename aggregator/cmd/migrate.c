/*
 * migrate.c - `meterd migrate`: brings the database to this schema.
 *
 * The work is store/migrate.c's, which the daemon uses too; this file tells
 * which migrations were missing. Exit status: 0 up to date, 1 not, 2 usage.
 */

#include "base/process.h"
#include "cmd/command.h"
#include "pg/statements.h"
#include "store/migrate.h"

#include <stdio.h>

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
migrate_database(void *data)
{
    const struct command_line *line = data;
    int applied = 0;

    if (!migrate_run(line->config->admin_database, &applied)) {
        return PROCESS_FAILED;
    }
    migrate_report(applied);
    return PROCESS_OK;
}

static const struct command_verb migrate_verbs[] = {
    {NULL, migrate_database, CONFIG_NEEDS_ADMIN_DATABASE},
    {NULL},
};

const struct command migrate_command = {
    .name = "migrate",
    .summary = "bring the database to this schema",
    .synopsis = "usage: meterd migrate -c FILE [-c FILE]...\n",
    .about =
        "Applies the migrations that the database lacks, each in a "
        "transaction\n"
        "of its own, and re-creates the functions. Connects to adminDatabase.\n"
        "Safe to run at any time, also from several hosts at once.\n",
    .verbs = migrate_verbs,
    .size = sizeof(struct command_line),
    .log = COMMAND_LOG_PERSON,
};
