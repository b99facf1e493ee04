/*
 * blocking.c - see pg_blocking.h.
 */

#include "pg/blocking.h"

#include "base/log.h"
#include "pg/settings.h"

#include <stdio.h>

static bool session_set(PGconn *pg, const struct pg_conn_options *options);


PGconn *
pg_blocking_connect(const char *url, const char *name, const char *settings)
{
    struct pg_conn_options options = {
        .name = name,
        .url = url,
        .settings = settings,
    };
    struct pg_settings with;
    const char *why;

    if (!pg_settings_init(&with, &options, NULL, &why)) {
        log_error("store", "database connection cannot be made",
                  log_str("connection", name), log_str("reason", why));
        return NULL;
    }
    if (pg_settings_connect_ms(&with) == 0) {
        pg_settings_add(&with, "connect_timeout", "10");
    }

    PGconn *pg = PQconnectdbParams(with.keywords, with.values, 0);

    pg_settings_fini(&with);
    if (pg == NULL || PQstatus(pg) != CONNECTION_OK) {
        log_error("store", "database connection cannot be made",
                  log_str("connection", name),
                  log_str("reason",
                          pg == NULL ? "out of memory" : PQerrorMessage(pg)));
        PQfinish(pg);
        return NULL;
    }
    if (!session_set(pg, &options)) {
        PQfinish(pg);
        return NULL;
    }
    return pg;
}


/* False: logged. */
static bool
session_set(PGconn *pg, const struct pg_conn_options *options)
{
    struct pg_params params;

    pg_params_init(&params);
    pg_settings_session(options, options->name, &params);

    PGresult *result = pg_blocking_run(pg, STATEMENT_SESSION_SET, &params);
    bool ok = pg_blocking_ok(result, "setting up the session");

    PQclear(result);
    pg_params_fini(&params);
    return ok;
}


int
pg_blocking_values(const struct pg_params *params,
                   const char *values[PG_PARAM_COUNT_MAX],
                   int formats[PG_PARAM_COUNT_MAX])
{
    int count = params == NULL ? 0 : params->count;

    for (int i = 0; i < count; i++) {
        values[i] = params->size[i] < 0 ? NULL
                    : params->bytes.data == NULL
                        ? ""
                        : params->bytes.data + params->offset[i];
        formats[i] = 1;
    }
    return count;
}


PGresult *
pg_blocking_run(PGconn *pg, enum statement statement,
                const struct pg_params *params)
{
    const char *values[PG_PARAM_COUNT_MAX];
    int formats[PG_PARAM_COUNT_MAX];
    int count;

    if (params != NULL && params->bytes.failed) {
        return NULL;
    }
    count = pg_blocking_values(params, values, formats);
    return PQexecParams(pg, statements[statement].text, count, NULL, values,
                        params == NULL ? NULL : params->size, formats, 1);
}


bool
pg_blocking_ok(const PGresult *result, const char *doing)
{
    ExecStatusType status = PQresultStatus(result);

    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
        return true;
    }
    log_error("store", "database command failed", log_str("doing", doing),
              log_str("sqlstate", PQresultErrorField(result, PG_DIAG_SQLSTATE)),
              log_str("reason", PQresultErrorMessage(result)));
    return false;
}
