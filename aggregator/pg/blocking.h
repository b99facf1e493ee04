/*
 * blocking.h - one blocking connection, for commands that run before the
 * loop or without one. Never used in the loop.
 *
 *   struct pg_params *params = pg_blocking_params(pg);
 *
 *   pg_param_text(params, name);
 *   rows = pg_blocking_run(pg, STATEMENT_TOKEN_LIST, params, "list tokens");
 *
 * Rows are the connection's and valid until its next statement. A statement
 * that fails is told once, here, unless the caller only tried.
 */

#ifndef PG_BLOCKING_H
#define PG_BLOCKING_H

#include "pg/param.h"
#include "pg/statements.h"

struct pg_blocking;

/*
 * settings: of the session, "name=value name=value", role among them; or
 * NULL. NULL: logged.
 */
MUST_CHECK struct pg_blocking *
pg_blocking_connect(const char *url, const char *name, const char *settings);
/* What it had open, transaction and locks, ends with it. NULL is allowed. */
void pg_blocking_close(struct pg_blocking *pg);

/* Empty, for the parameters of the next statement. */
struct pg_params *pg_blocking_params(struct pg_blocking *pg);

/*
 * The rows of one statement (params NULL: it has no parameters), binary.
 * NULL: it failed, and this was logged with what was being done (doing NULL:
 * the name of the statement).
 */
MUST_CHECK const void *
pg_blocking_run(struct pg_blocking *pg, enum statement statement,
                const struct pg_params *params, const char *doing);
/* The same for one that may fail: nothing is logged. */
MUST_CHECK const void *
pg_blocking_try(struct pg_blocking *pg, enum statement statement,
                const struct pg_params *params);
/* After it failed: its SQLSTATE, "" when the server did not say anything. */
const char *pg_blocking_sqlstate(const struct pg_blocking *pg);
/* After it failed: a lock was not had in time, or there was a deadlock. */
bool pg_blocking_is_busy(const struct pg_blocking *pg);
/* Logs it after all. */
void pg_blocking_tell(const struct pg_blocking *pg, const char *doing);

/* False stops it; whoever says so has told why. The row is gone afterwards. */
typedef bool (*pg_row_cb)(void *asker, const void *result, int row);
/*
 * A result of any size in the memory of one row: each goes to cb as it comes.
 * False: logged, or stopped, and then the statement was cancelled.
 */
MUST_CHECK bool
pg_blocking_stream(struct pg_blocking *pg, enum statement statement,
                   const struct pg_params *params, pg_row_cb cb, void *asker);

/* A file of ours with several statements. False: logged. */
MUST_CHECK bool
pg_blocking_text(struct pg_blocking *pg, const char *text, const char *doing);

/* False: logged; it may have happened or not. */
MUST_CHECK bool pg_blocking_commit(struct pg_blocking *pg);
/* Without a transaction it does nothing. False: the connection is over. */
bool pg_blocking_rollback(struct pg_blocking *pg);

#endif
