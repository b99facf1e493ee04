/*
 * conn.h - one asynchronous PostgreSQL connection on the libuv loop.
 *
 *   owner -> [pg_conn] -> libpq, pipeline mode or COPY -> server
 *
 * Connects to the first host of the URL that serves, beginning with the one
 * that served last, checks it (selftest.h), prepares statements when
 * first used, reconnects with jittered back-off from 50 ms to 2 s. Never
 * blocks. Work is queued between pg_conn_query calls and sent at
 * pg_conn_flush; each piece of work ends in exactly one callback, in
 * order: a result, an error with its SQLSTATE, or the loss of the
 * connection. After a loss the owner decides what to do again; the
 * connection repeats nothing by itself.
 */

#ifndef PG_CONN_H
#define PG_CONN_H

#include "base/buf.h"
#include "pg/param.h"
#include "pg/sqlstate.h"
#include "pg/statements.h"

#include <uv.h>

struct pg_conn;

/*
 * A server that says nothing for so long while something is asked of it is
 * given up: it stands still, or a word of it was lost. Longer than the
 * statement_timeout, so a living server speaks first.
 */
#define PG_PATIENCE_MS 70000

/*
 * How long a host may be silent while it is connected to, and a server while
 * its pulse is felt (pg_pulse_start sets it); for all connections of the
 * process.
 */
uint64_t pg_conn_patience_ms(void);

enum pg_outcome {
    PG_OUTCOME_OK,      /* result holds rows or a command tag */
    PG_OUTCOME_ERROR,   /* sqlstate and message are set */
    PG_OUTCOME_ABORTED, /* an earlier statement of the same flush failed */
    PG_OUTCOME_LOST     /* connection lost; whether it ran is unknown */
};

struct pg_answer {
    enum pg_outcome outcome;
    const void *result;      /* OK only: a PGresult, see pg_get_* */
    char sqlstate[6];        /* ERROR only */
    enum sqlstate_kind kind; /* ERROR only: what it means for the batch */
    const char *message;     /* ERROR only; primary message */
};

typedef void (*pg_answer_cb)(void *asker, const struct pg_answer *answer);

struct pg_conn_options {
    const char *name;     /* for logs and application_name: "lane-0" */
    const char *url;      /* borrowed for the life of the connection */
    const char *role;     /* SET ROLE at connect; NULL: none */
    const char *settings; /* more "name=value name=value ..." or NULL */
    bool selftest;        /* refuse unsafe servers and roles */
    uint64_t patience_ms; /* silence that ends it; 0: PG_PATIENCE_MS */
    bool is_pulse;        /* its silence is the server's, see pg_pulse */
};

struct pg_conn_events {
    void (*on_ready)(void *owner);                 /* connected and checked */
    void (*on_lost)(void *owner, const char *why); /* was ready before */
    /* The self-test refuses this server or role; fatal at start. */
    void (*on_refused)(void *owner, const char *why);
    /* A warning of the server that says a commit is not replicated. */
    void (*on_not_replicated)(void *owner);
};

/* Starts connecting at once. Never NULL. */
MUST_CHECK struct pg_conn *
pg_conn_create(uv_loop_t *loop, const struct pg_conn_options *options,
               const struct pg_conn_events *events, void *owner);
/* Outstanding callbacks get LOST first; freed when libuv has let go. */
void pg_conn_destroy(struct pg_conn *conn);
bool pg_conn_is_ready(const struct pg_conn *conn);

/*
 * Queues one prepared statement, binary parameters and results. params is
 * copied. Statements queued before one flush share one pipeline and one
 * round trip; the first error aborts the rest of that flush.
 */
void
pg_conn_query(struct pg_conn *conn, enum statement statement,
              const struct pg_params *params, pg_answer_cb cb, void *asker);
/* BEGIN, COMMIT, ROLLBACK: text statements without parameters. */
void pg_conn_command(struct pg_conn *conn, enum statement statement,
                     pg_answer_cb cb, void *asker);
void pg_conn_flush(struct pg_conn *conn);

/*
 * COPY ... FROM STDIN (FORMAT binary). data is a whole binary stream with
 * header and trailer and must live until the callback. Only when nothing
 * else is outstanding.
 */
void pg_conn_copy(struct pg_conn *conn, enum statement statement,
                  struct meter_str data, pg_answer_cb cb, void *asker);

/*
 * The same piece by piece: next gives the bytes that follow, valid until it
 * is called again; none at all is the end. The server works on what it has
 * while more is made.
 */
typedef struct meter_str (*pg_piece_cb)(void *asker);
void pg_conn_copy_pieces(struct pg_conn *conn, enum statement statement,
                         pg_piece_cb next, pg_answer_cb cb, void *asker);

/* Drops the connection on purpose (after a protocol surprise). */
void pg_conn_reset(struct pg_conn *conn, const char *why);

#endif
