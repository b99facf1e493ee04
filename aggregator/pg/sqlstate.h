/*
 * sqlstate.h - what an SQLSTATE means for a batch. Pure.
 *
 * Only a code that blames the data may lead to a rejected event. Codes of
 * the server's own trouble (08, 25, 53, 57) keep the batch; codes that may
 * hide another cause (XX000, 58xxx, as a distributed database reports a
 * dead node or a unique violation inside COPY) are redone on the careful
 * path, where true codes return. Constraint names are never looked at.
 */

#ifndef PG_SQLSTATE_H
#define PG_SQLSTATE_H

#include <stdbool.h>

enum sqlstate_kind {
    SQL_UNIQUE,       /* 23505: someone registered the key; careful path */
    SQL_NO_PARTITION, /* 23514 and no such day: make the partition, retry */
    SQL_DATA,         /* 22, other 23: bisect, reject the offender */
    SQL_RETRY,        /* 40001, 40P01, 55P03: roll back and run again */
    SQL_REDO_CAREFUL, /* XX, 58: never reject; redo on the careful path */
    SQL_AWAY,         /* 08, 25, 53, 57, ...: keep the batch, back off */
    SQL_BUG           /* a statement or a grant is wrong: keep, log, back off */
};

/*
 * sqlstate has five characters; anything else is AWAY. 23514 comes both
 * from a CHECK constraint (always with a constraint name in the error) and
 * from a row without a partition (never): has_constraint tells them apart.
 */
enum sqlstate_kind sqlstate_classify(const char *sqlstate, bool has_constraint);

/*
 * Codes that a ROLLBACK does not cure: a broken connection, a server that
 * became read-only, statements prepared for an older schema.
 */
bool sqlstate_needs_connection(const char *sqlstate);

/* "unique", "no partition", ... for log lines. */
const char *sqlstate_kind_name(enum sqlstate_kind kind);

#endif
