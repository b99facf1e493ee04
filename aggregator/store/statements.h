/*
 * statements.h - the SQL of meterd, embedded from sql/statements at build.
 *
 * build/gen/statements.c is made by tools/embed-sql: one row per file, in
 * bytewise order of names, and an enum STATEMENT_<NAME> for each. A
 * statement is prepared under its file name the first time a connection
 * uses it; server logs therefore read `execute ingest_register`.
 */

#ifndef STORE_STATEMENTS_H
#define STORE_STATEMENTS_H

#include "statements_gen.h" /* enum statement, STATEMENT_COUNT */

struct statement_text {
    const char *name; /* file name without .sql */
    const char *text; /* comments removed */
};

extern const struct statement_text statements[STATEMENT_COUNT];

#endif
