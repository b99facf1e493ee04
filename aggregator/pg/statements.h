/*
 * statements.h - the SQL of meterd, embedded from sql/ at build.
 *
 * build/gen/statements.c is made by tools/embed-sql: one row per file, in
 * bytewise order of names, and an enum STATEMENT_<NAME> for each. A
 * statement is prepared under its file name the first time a connection
 * uses it; server logs therefore read `execute ingest_register`.
 */

#ifndef PG_STATEMENTS_H
#define PG_STATEMENTS_H

#include "statements_gen.h" /* enum statement, STATEMENT_COUNT */

#include <stddef.h>

struct statement_text {
    const char *name; /* file name without .sql */
    const char *text; /* comments removed */
};

extern const struct statement_text statements[STATEMENT_COUNT];

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
#define SCHEMA_VERSION_MIN 1
#define SCHEMA_VERSION_MAX 1

#endif
