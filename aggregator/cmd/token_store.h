/*
 * token_store.h - bearer tokens in the database, for the token commands.
 *
 * Blocking; one connection as meter_owner (adminDatabase) per call. The
 * running daemon finds tokens through STATEMENT_TOKEN_FIND instead. Only
 * the SHA-256 of a secret ever comes here.
 */

#ifndef CMD_TOKEN_STORE_H
#define CMD_TOKEN_STORE_H

#include "base/check.h"
#include "meter_digest.h"

/* All pointers are valid during the callback only. */
struct token_row {
    const char *token_id;
    const char *tenant;
    const char *scopes; /* separated by one space */
    const char *label;
    int64_t created_at_us;
    int64_t expires_at_us; /* 0: never */
    int64_t revoked_at_us; /* 0: not revoked */
};

struct token_new {
    const char *token_id;
    const char *tenant;
    const char *scopes; /* separated by one space */
    const char *label;
    uint8_t digest[METER_DIGEST_SIZE];
    int64_t expires_at_us; /* 0: never, unless there is a lifetime */
    int64_t lifetime_us;   /* from now on by the database's clock; 0: none */
};

enum token_outcome {
    TOKEN_OK,
    TOKEN_MISSING, /* revoke: no such token */
    TOKEN_TAKEN,   /* create: the id is in use, draw another */
    TOKEN_EXPIRED, /* create: expires_at_us is a time gone by */
    TOKEN_FAILED   /* connection or database; logged */
};

MUST_CHECK enum token_outcome
token_store_create(const char *admin_url, const struct token_new *token);

typedef void (*token_row_cb)(void *asker, const struct token_row *row);
/* tenant NULL: all tenants. Oldest first. */
MUST_CHECK enum token_outcome
token_store_list(const char *admin_url, const char *tenant, token_row_cb cb,
                 void *asker);

/* Revoking twice is no error. */
MUST_CHECK enum token_outcome
token_store_revoke(const char *admin_url, const char *token_id);

#endif
