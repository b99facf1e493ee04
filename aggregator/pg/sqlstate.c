/*
 * sqlstate.c - what an SQLSTATE means for a batch: one table of prefixes.
 *
 *   pg_conn -> [sqlstate] -> the kind in every answer that is an error
 *
 * A code that no rule knows is a fault of ours: it rejects nothing, and it is
 * told.
 */

#include "pg/sqlstate.h"

#include <stddef.h>
#include <string.h>

/* First match wins: whole codes stand before their class. */
static const struct {
    const char *prefix;
    enum sqlstate_kind kind;
} rules[] = {
    {"23505", SQL_UNIQUE},    {"22", SQL_DATA},
    {"23", SQL_DATA},         {"54000", SQL_DATA}, /* an index row too large */

    {"40001", SQL_RETRY}, /* serialization failure */
    {"40P01", SQL_RETRY}, /* deadlock */
    {"55P03", SQL_RETRY}, /* lock_timeout */

    {"XX", SQL_REDO_CAREFUL}, {"58", SQL_REDO_CAREFUL},

    {"08", SQL_AWAY},    /* connection */
    {"25", SQL_AWAY},    /* read-only server, failed transaction */
    {"26000", SQL_AWAY}, /* prepared statement gone: new connection */
    {"0A000", SQL_AWAY}, /* cached plan of an older schema: likewise */
    {"40", SQL_AWAY},    /* 40003: statement completion unknown */
    {"53", SQL_AWAY},    /* disk full, out of memory, connections */
    {"55", SQL_AWAY},    /* object in use, not in the right state */
    {"57", SQL_AWAY},    /* shutdown, cancel, statement_timeout */
};

static const char *const names[] = {
    [SQL_UNIQUE] = "unique",
    [SQL_NO_PARTITION] = "no partition",
    [SQL_DATA] = "data",
    [SQL_RETRY] = "retry",
    [SQL_REDO_CAREFUL] = "redo careful",
    [SQL_AWAY] = "away",
    [SQL_BUG] = "bug",
};


enum sqlstate_kind
sqlstate_classify(const char *sqlstate, bool has_constraint)
{
    if (sqlstate == NULL || strlen(sqlstate) != 5) {
        return SQL_AWAY;
    }
    if (strcmp(sqlstate, "23514") == 0 && !has_constraint) {
        return SQL_NO_PARTITION;
    }
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (strncmp(sqlstate, rules[i].prefix, strlen(rules[i].prefix)) == 0) {
            return rules[i].kind;
        }
    }
    return SQL_BUG;
}


bool
sqlstate_needs_connection(const char *sqlstate)
{
    static const char *const classes[] = {"08", "25", "26", "0A"};

    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (strncmp(sqlstate, classes[i], 2) == 0) {
            return true;
        }
    }
    return false;
}


const char *
sqlstate_kind_name(enum sqlstate_kind kind)
{
    return names[kind];
}
