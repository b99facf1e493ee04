/*
 * migrate.h - brings a database to this program's schema.
 *
 * Blocking; runs before the loop or as a command. Takes an advisory lock,
 * applies the numbered migrations that are missing, one transaction each,
 * compares the checksums of the applied ones (a changed file is refused),
 * then re-creates the functions of sql/functions. Connects as meter_owner.
 */

#ifndef STORE_MIGRATE_H
#define STORE_MIGRATE_H

#include "base/check.h"

/* build/gen/migrations.c, made by tools/embed-sql. */
struct migration {
    int number;       /* 0 for a function file */
    const char *name; /* file name */
    const char *text;
    const char *sha256; /* hex of the file's bytes */
};
extern const struct migration migrations[];
extern const size_t migrations_count;
extern const struct migration functions[];
extern const size_t functions_count;

/* Schema range that this program can work with. */
#define SCHEMA_VERSION_MIN 11
#define SCHEMA_VERSION_MAX 11

/* False: logged. *applied counts the migrations that were run. */
MUST_CHECK bool migrate_run(const char *admin_url, int *applied);

#endif
