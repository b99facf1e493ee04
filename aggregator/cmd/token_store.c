/*
 * token_store.c - bearer tokens in the database, for the token commands.
 *
 *   meterd token create|list|revoke -> [token_store] -> meter.api_token
 *
 * Each call connects as meter_owner, runs one statement and is gone again:
 * an administrator calls it by hand, now and then.
 */

#include "cmd/token_store.h"

#include "pg/blocking.h"

#define CONNECTION_NAME "token"


static struct meter_str
token_text(const char *value)
{
    return (struct meter_str){value, value == NULL ? 0 : strlen(value)};
}


enum token_outcome
token_store_create(const char *admin_url, const struct token_new *token)
{
    struct pg_blocking *pg =
        pg_blocking_connect(admin_url, CONNECTION_NAME, NULL);
    enum token_outcome outcome = TOKEN_FAILED;

    if (pg == NULL) {
        return TOKEN_FAILED;
    }

    struct pg_params *params = pg_blocking_params(pg);

    pg_param_text(params, token_text(token->token_id));
    pg_param_text(params, token_text(token->tenant));
    pg_param_bytes(params, (struct meter_str){(const char *)token->digest,
                                              sizeof(token->digest)});
    pg_param_text(params, token_text(token->scopes));
    pg_param_text(params, token_text(token->label));
    if (token->expires_at_us != 0) {
        pg_param_time(params, token->expires_at_us);
    } else {
        pg_param_null(params);
    }
    if (token->lifetime_us != 0) {
        pg_param_int8(params, token->lifetime_us);
    } else {
        pg_param_null(params);
    }

    if (pg_blocking_try(pg, STATEMENT_TOKEN_CREATE, params) != NULL) {
        outcome = TOKEN_OK;
    } else if (strcmp(pg_blocking_sqlstate(pg), "23505") == 0) {
        outcome = TOKEN_TAKEN;
    } else if (strcmp(pg_blocking_sqlstate(pg), "23514") == 0) {
        outcome = TOKEN_EXPIRED;
    } else {
        pg_blocking_tell(pg, "create a token");
    }
    pg_blocking_close(pg);
    return outcome;
}


enum token_outcome
token_store_list(const char *admin_url, const char *tenant, token_row_cb cb,
                 void *asker)
{
    struct pg_blocking *pg =
        pg_blocking_connect(admin_url, CONNECTION_NAME, NULL);

    if (pg == NULL) {
        return TOKEN_FAILED;
    }

    struct pg_params *params = pg_blocking_params(pg);

    pg_param_text(params, token_text(tenant)); /* NULL: of all tenants */

    const void *rows =
        pg_blocking_run(pg, STATEMENT_TOKEN_LIST, params, "list tokens");

    for (int row = 0; rows != NULL && row < pg_row_count(rows); row++) {
        /* A NUL follows every value. */
        struct token_row token = {
            .token_id = pg_get_bytes(rows, row, 0).data,
            .tenant = pg_get_bytes(rows, row, 1).data,
            .scopes = pg_get_bytes(rows, row, 2).data,
            .label = pg_get_bytes(rows, row, 3).data,
            .created_at_us = pg_get_time(rows, row, 4),
            .expires_at_us =
                pg_is_null(rows, row, 5) ? 0 : pg_get_time(rows, row, 5),
            .revoked_at_us =
                pg_is_null(rows, row, 6) ? 0 : pg_get_time(rows, row, 6),
        };

        cb(asker, &token);
    }
    pg_blocking_close(pg);
    return rows == NULL ? TOKEN_FAILED : TOKEN_OK;
}


enum token_outcome
token_store_revoke(const char *admin_url, const char *token_id)
{
    struct pg_blocking *pg =
        pg_blocking_connect(admin_url, CONNECTION_NAME, NULL);
    enum token_outcome outcome = TOKEN_FAILED;

    if (pg == NULL) {
        return TOKEN_FAILED;
    }

    struct pg_params *params = pg_blocking_params(pg);

    pg_param_text(params, token_text(token_id));

    const void *rows =
        pg_blocking_run(pg, STATEMENT_TOKEN_REVOKE, params, "revoke a token");

    if (rows != NULL) {
        outcome = pg_row_count(rows) == 0 ? TOKEN_MISSING : TOKEN_OK;
    }
    pg_blocking_close(pg);
    return outcome;
}
