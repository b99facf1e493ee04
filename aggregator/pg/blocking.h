/*
 * blocking.h - one blocking connection as meter_owner, for commands that
 * run before the loop or without one. Never used in the loop.
 */

#ifndef PG_BLOCKING_H
#define PG_BLOCKING_H

#include "pg/param.h"
#include "pg/statements.h"

#include <libpq-fe.h>

/* NULL: logged. The caller ends it with PQfinish. */
MUST_CHECK PGconn *
pg_blocking_connect(const char *url, const char *name, const char *settings);

/*
 * Binary parameters (NULL: none) as libpq takes them; how many. An empty text
 * that has no bytes is no NULL.
 */
int pg_blocking_values(const struct pg_params *params,
                       const char *values[PG_PARAM_COUNT_MAX],
                       int formats[PG_PARAM_COUNT_MAX]);

/*
 * One statement, binary parameters (NULL: none) and result. Never NULL
 * unless memory is out; the caller looks at the status and clears it.
 */
MUST_CHECK PGresult *pg_blocking_run(PGconn *pg, enum statement statement,
                                     const struct pg_params *params);

/* True when the status is OK; else false and logged with what was done. */
MUST_CHECK bool pg_blocking_ok(const PGresult *result, const char *doing);

#endif
