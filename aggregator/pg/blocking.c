/*
 * blocking.c - one blocking connection, for commands without the loop.
 *
 *   commands, migrate -> [pg_blocking] -> libpq -> server
 *
 * It connects as the URL says, sets up the session as pg_conn does, and runs
 * one statement at a time. It holds the last result: callers read rows and
 * free nothing. Failures are logged here, in one form.
 */

#include "pg/blocking.h"

#include "base/log.h"
#include "base/memory.h"
#include "pg/conn_private.h"

#include <stdlib.h>

#define CANCEL_SIZE      256
#define LOCK_NOT_IN_TIME "55P03"
#define DEADLOCK         "40P01"

struct pg_blocking {
    PGconn *pg;
    PGresult *result; /* of the last statement */
    struct pg_params params;
};


/* ---- life ------------------------------------------------------------- */

static PGconn *
blocking_open(const struct pg_conn_options *options)
{
    struct pg_settings with;
    const char *why;
    PGconn *pg = NULL;

    if (pg_settings_init(&with, options, NULL, &why)) {
        pg = PQconnectdbParams(with.keywords, with.values, 0);
        pg_settings_fini(&with);
        if (pg != NULL && PQstatus(pg) == CONNECTION_OK) {
            return pg;
        }
        why = pg == NULL ? "out of memory" : PQerrorMessage(pg);
    }
    log_error("store", "database connection cannot be made",
              log_str("connection", options->name), log_str("reason", why));
    PQfinish(pg);
    return NULL;
}


struct pg_blocking *
pg_blocking_connect(const char *url, const char *name, const char *settings)
{
    struct pg_conn_options options = {
        .name = name,
        .url = url,
        .settings = settings,
    };
    PGconn *opened = blocking_open(&options);

    if (opened == NULL) {
        return NULL;
    }

    struct pg_blocking *pg = memory_alloc(sizeof(*pg));

    pg->pg = opened;
    pg_params_init(&pg->params);
    pg_settings_session(&options, name, &pg->params);
    if (pg_blocking_run(pg, STATEMENT_SESSION_SET, &pg->params,
                        "setting up the session") == NULL) {
        pg_blocking_close(pg);
        return NULL;
    }
    return pg;
}


void
pg_blocking_close(struct pg_blocking *pg)
{
    if (pg != NULL) {
        PQclear(pg->result);
        PQfinish(pg->pg);
        pg_params_fini(&pg->params);
        free(pg);
    }
}


/* ---- one statement ---------------------------------------------------- */

struct pg_params *
pg_blocking_params(struct pg_blocking *pg)
{
    pg_params_reset(&pg->params);
    return &pg->params;
}


/* Parameters as libpq takes them. */
struct blocking_values {
    const char *values[PG_PARAM_COUNT_MAX];
    int formats[PG_PARAM_COUNT_MAX];
    const int *sizes;
    int count;
};

/* An empty text that has no bytes is no NULL. False: no memory for them. */
static bool
blocking_values_set(struct blocking_values *out, const struct pg_params *params)
{
    out->count = params == NULL ? 0 : params->count;
    out->sizes = params == NULL ? NULL : params->size;
    for (int i = 0; i < out->count; i++) {
        const char *bytes = params->bytes.data;

        out->formats[i] = 1;
        out->values[i] = params->size[i] < 0 ? NULL
                         : bytes == NULL     ? ""
                                             : bytes + params->offset[i];
    }
    return params == NULL || !params->bytes.failed;
}


/* Takes the result: what the connection held before is gone. */
static bool
blocking_hold(struct pg_blocking *pg, PGresult *result)
{
    PQclear(pg->result);
    pg->result = result;
    return PQresultStatus(result) == PGRES_COMMAND_OK ||
           PQresultStatus(result) == PGRES_TUPLES_OK;
}


const void *
pg_blocking_try(struct pg_blocking *pg, enum statement statement,
                const struct pg_params *params)
{
    struct blocking_values of;
    PGresult *result = NULL;

    if (blocking_values_set(&of, params)) {
        result = PQexecParams(pg->pg, statements[statement].text, of.count,
                              NULL, of.values, of.sizes, of.formats, 1);
    }
    return blocking_hold(pg, result) ? result : NULL;
}


const void *
pg_blocking_run(struct pg_blocking *pg, enum statement statement,
                const struct pg_params *params, const char *doing)
{
    const void *rows = pg_blocking_try(pg, statement, params);

    if (rows == NULL) {
        pg_blocking_tell(pg,
                         doing == NULL ? statements[statement].name : doing);
    }
    return rows;
}


const char *
pg_blocking_sqlstate(const struct pg_blocking *pg)
{
    const char *state = PQresultErrorField(pg->result, PG_DIAG_SQLSTATE);

    return state == NULL ? "" : state;
}


bool
pg_blocking_is_busy(const struct pg_blocking *pg)
{
    const char *state = pg_blocking_sqlstate(pg);

    return strcmp(state, LOCK_NOT_IN_TIME) == 0 || strcmp(state, DEADLOCK) == 0;
}


void
pg_blocking_tell(const struct pg_blocking *pg, const char *doing)
{
    log_error("store", "database command failed", log_str("doing", doing),
              log_str("sqlstate", pg_blocking_sqlstate(pg)),
              log_str("reason", pg->result == NULL
                                    ? "out of memory"
                                    : PQresultErrorMessage(pg->result)));
}


bool
pg_blocking_text(struct pg_blocking *pg, const char *text, const char *doing)
{
    if (blocking_hold(pg, PQexec(pg->pg, text))) {
        return true;
    }
    pg_blocking_tell(pg, doing);
    return false;
}


/* COMMIT of a failed transaction is no error for the server. */
bool
pg_blocking_commit(struct pg_blocking *pg)
{
    if (pg_blocking_run(pg, STATEMENT_COMMIT, NULL, NULL) == NULL) {
        return false;
    }
    if (strcmp(PQcmdStatus(pg->result), statements[STATEMENT_COMMIT].text) !=
        0) {
        log_error("store", "the transaction had failed before its commit");
        return false;
    }
    return true;
}


bool
pg_blocking_rollback(struct pg_blocking *pg)
{
    return PQtransactionStatus(pg->pg) == PQTRANS_IDLE ||
           pg_blocking_try(pg, STATEMENT_ROLLBACK, NULL) != NULL;
}


/* ---- row by row ------------------------------------------------------- */

/* Cancels a statement and reads what is left of it. */
static void
blocking_cancel(struct pg_blocking *pg)
{
    PGcancel *cancel = PQgetCancel(pg->pg);
    char why[CANCEL_SIZE];
    PGresult *result;

    if (cancel != NULL) {
        (void)PQcancel(cancel, why, sizeof(why));
        PQfreeCancel(cancel);
    }
    while ((result = PQgetResult(pg->pg)) != NULL) {
        PQclear(result);
    }
}


bool
pg_blocking_stream(struct pg_blocking *pg, enum statement statement,
                   const struct pg_params *params, pg_row_cb cb, void *asker)
{
    const struct statement_text *text = &statements[statement];
    struct blocking_values of;
    PGresult *result;
    bool is_good = true;

    if (!blocking_values_set(&of, params)) {
        (void)blocking_hold(pg, NULL);
        pg_blocking_tell(pg, text->name);
        return false;
    }
    if (PQsendQueryParams(pg->pg, text->text, of.count, NULL, of.values,
                          of.sizes, of.formats, 1) != 1 ||
        PQsetSingleRowMode(pg->pg) != 1) {
        log_error("store", "database command failed",
                  log_str("doing", text->name),
                  log_str("reason", PQerrorMessage(pg->pg)));
        return false;
    }
    while ((result = PQgetResult(pg->pg)) != NULL) {
        bool is_row = PQresultStatus(result) == PGRES_SINGLE_TUPLE;

        if (!blocking_hold(pg, result) && !is_row) {
            pg_blocking_tell(pg, text->name);
            is_good = false;
        }
        if (is_row && (cb == NULL || !cb(asker, result, 0))) {
            blocking_cancel(pg);
            return false;
        }
    }
    return is_good;
}
