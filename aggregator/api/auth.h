/*
 * auth.h - from an Authorization header to a tenant and its scopes.
 *
 *   header -> token -> [auth] -> cache, else reader -> tenant
 *
 * A missing, malformed, unknown, wrong and revoked token are one answer.
 * Requests that need the same token at the same time share one look-up.
 * The tenant of a request comes from here and from nowhere else.
 */

#ifndef API_AUTH_H
#define API_AUTH_H

#include "api/token.h"
#include "meter_limits.h"
#include "store/reader.h"

#include <sys/queue.h>

struct auth;
struct auth_lookup;

enum auth_result {
    AUTH_OK,          /* tenant and scopes of the ticket are set */
    AUTH_DENIED,      /* 401 */
    AUTH_UNAVAILABLE, /* not cached and the database is away: 503 */
    AUTH_PENDING      /* the callback follows */
};

typedef void (*auth_cb)(void *asker, enum auth_result result);

/* One question; lives in the asker until the answer or auth_cancel. */
struct auth_ticket {
    char tenant[METER_TENANT_SIZE_MAX];
    size_t tenant_size;
    unsigned scopes; /* enum token_scope */
    char token_id[TOKEN_ID_SIZE_MAX];
    size_t token_id_size;
    uint8_t digest[METER_DIGEST_SIZE]; /* of the secret presented */

    auth_cb cb;
    void *asker;
    struct auth_lookup *lookup; /* NULL: not waiting */
    LIST_ENTRY(auth_ticket) waiting;
};

/* reader is borrowed. */
struct auth *auth_create(struct reader *reader);
/* Tickets that wait get no answer; look-ups on their way are let go. */
void auth_destroy(struct auth *auth);

/*
 * The callback comes only after PENDING, later than this call. ttl_us: how
 * long what the database says now may be used.
 */
enum auth_result
auth_check(struct auth *auth, int64_t ttl_us, struct meter_str header,
           struct auth_ticket *ticket, auth_cb cb, void *asker);
void auth_cancel(struct auth_ticket *ticket);

#endif
