/*
 * token_store.c - bearer tokens in the database, for the token commands.
 *
 *   meterd token create|list|revoke -> [token_store] -> meter.api_token
 */

#include "store/token_store.h"

#include "pg/blocking.h"

static struct meter_str text(const char *value);
static PGresult *
run(const char *admin_url, enum statement statement, struct pg_params *params);


enum token_outcome
token_store_create(const char *admin_url, const struct token_new *token)
{
    struct pg_params params;
    enum token_outcome outcome = TOKEN_FAILED;

    pg_params_init(&params);
    pg_param_text(&params, text(token->token_id));
    pg_param_text(&params, text(token->tenant));
    pg_param_bytes(&params, (struct meter_str){(const char *)token->digest,
                                               sizeof(token->digest)});
    pg_param_text(&params, text(token->scopes));
    pg_param_text(&params, text(token->label));
    if (token->expires_at_us != 0) {
        pg_param_time(&params, token->expires_at_us);
    } else {
        pg_param_null(&params);
    }
    if (token->lifetime_us != 0) {
        pg_param_int8(&params, token->lifetime_us);
    } else {
        pg_param_null(&params);
    }

    PGresult *result = run(admin_url, STATEMENT_TOKEN_CREATE, &params);
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);

    if (sqlstate != NULL && strcmp(sqlstate, "23505") == 0) {
        outcome = TOKEN_TAKEN;
    } else if (sqlstate != NULL && strcmp(sqlstate, "23514") == 0) {
        outcome = TOKEN_EXPIRED;
    } else if (result != NULL && pg_blocking_ok(result, "create a token")) {
        outcome = TOKEN_OK;
    }
    PQclear(result);
    return outcome;
}


enum token_outcome
token_store_list(const char *admin_url, const char *tenant, token_row_cb cb,
                 void *asker)
{
    struct pg_params params;

    pg_params_init(&params);
    if (tenant == NULL) {
        pg_param_null(&params);
    } else {
        pg_param_text(&params, text(tenant));
    }

    PGresult *rows = run(admin_url, STATEMENT_TOKEN_LIST, &params);

    if (rows == NULL || !pg_blocking_ok(rows, "list tokens")) {
        PQclear(rows);
        return TOKEN_FAILED;
    }
    for (int row = 0; row < PQntuples(rows); row++) {
        /* libpq puts a NUL behind every value. */
        struct token_row token = {
            .token_id = PQgetvalue(rows, row, 0),
            .tenant = PQgetvalue(rows, row, 1),
            .scopes = PQgetvalue(rows, row, 2),
            .label = PQgetvalue(rows, row, 3),
            .created_at_us = pg_get_time(rows, row, 4),
            .expires_at_us =
                pg_is_null(rows, row, 5) ? 0 : pg_get_time(rows, row, 5),
            .revoked_at_us =
                pg_is_null(rows, row, 6) ? 0 : pg_get_time(rows, row, 6),
        };

        cb(asker, &token);
    }
    PQclear(rows);
    return TOKEN_OK;
}


enum token_outcome
token_store_revoke(const char *admin_url, const char *token_id)
{
    struct pg_params params;

    pg_params_init(&params);
    pg_param_text(&params, text(token_id));

    PGresult *result = run(admin_url, STATEMENT_TOKEN_REVOKE, &params);
    enum token_outcome outcome = TOKEN_FAILED;

    if (result != NULL && pg_blocking_ok(result, "revoke a token")) {
        outcome = PQntuples(result) == 0 ? TOKEN_MISSING : TOKEN_OK;
    }
    PQclear(result);
    return outcome;
}


/* Frees params. NULL: no connection, logged. */
static PGresult *
run(const char *admin_url, enum statement statement, struct pg_params *params)
{
    PGconn *pg = pg_blocking_connect(admin_url, "token", NULL);
    PGresult *result = NULL;

    if (pg != NULL) {
        result = pg_blocking_run(pg, statement, params);
        PQfinish(pg);
    }
    pg_params_fini(params);
    return result;
}


static struct meter_str
text(const char *value)
{
    return (struct meter_str){value, strlen(value)};
}
