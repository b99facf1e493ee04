/*
 * auth.c - who a request is, from its Authorization header.
 *
 *   header -> token -> cache, else token_find -> tenant and scopes
 *
 * A missing, malformed, unknown, wrong and revoked token are one answer.
 * Requests that need the same token at the same time share one look-up.
 *
 * The cache keeps known and unknown ids apart, so that a flood of invented
 * ids cannot push out the tokens in use. A part that is full is emptied. An
 * entry lives until the look-up that made it is older than the TTL, which is
 * therefore the longest delay of a revocation.
 */

#include "api/auth.h"

#include "api/token.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "meter_limits.h"

#include <stdlib.h>
#include <strings.h>

#define SCHEME                  METER_STR("bearer")
#define LOOKUPS_MAX             4096 /* tokens; who brings one more comes back */
#define TOKEN_CACHE_KNOWN_MAX   4096
#define TOKEN_CACHE_UNKNOWN_MAX 4096

/* What is known of an id; revoked and absent ones are not known. */
struct token_record {
    bool known;
    unsigned scopes;
    uint8_t digest[METER_DIGEST_SIZE];
    struct meter_str tenant; /* at most METER_TENANT_SIZE_MAX bytes */
};

struct token_cache {
    struct map known;
    struct map unknown;
};

struct token_entry {
    struct token_record record; /* tenant points into bytes */
    uint64_t expires_us;
    char bytes[]; /* id, tenant */
};

struct auth {
    struct reader *reader;
    struct token_cache cache;
    struct map lookups; /* by token id */
};

/* A question on its way to the database, and who waits for it. */
struct auth_lookup {
    struct auth *auth;   /* NULL: destroyed meanwhile */
    uint64_t expires_us; /* of what it finds */
    LIST_HEAD(auth_waiters, auth_ticket) waiters;
    bool answering; /* inside the call that asks the reader */
    enum auth_result result;
    size_t id_size;
    char id[TOKEN_ID_SIZE_MAX];
};


/* ---- the cache ---------------------------------------------------------- */

static void
token_cache_init(struct token_cache *cache)
{
    map_init(&cache->known, TOKEN_CACHE_KNOWN_MAX);
    map_init(&cache->unknown, TOKEN_CACHE_UNKNOWN_MAX);
}

static void
token_map_clear(struct map *map)
{
    size_t cursor = 0;
    struct token_entry *entry;

    while ((entry = map_next(map, &cursor)) != NULL) {
        free(entry);
    }
    map_clear(map);
}

static void
token_cache_fini(struct token_cache *cache)
{
    token_map_clear(&cache->known);
    token_map_clear(&cache->unknown);
    map_fini(&cache->known);
    map_fini(&cache->unknown);
}

static void
token_map_remove(struct map *map, struct meter_str id)
{
    free(map_remove(map, id));
}

static const struct token_record *
token_map_find(struct map *map, struct meter_str id, uint64_t now_us)
{
    struct token_entry *entry = map_find(map, id);

    if (entry == NULL) {
        return NULL;
    }
    if (now_us >= entry->expires_us) {
        token_map_remove(map, id);
        return NULL;
    }
    return &entry->record;
}

/* Borrowed until the next put. NULL: absent or expired. */
static const struct token_record *
token_cache_find(struct token_cache *cache, struct meter_str id,
                 uint64_t now_us)
{
    const struct token_record *record =
        token_map_find(&cache->known, id, now_us);

    return record != NULL ? record
                          : token_map_find(&cache->unknown, id, now_us);
}

/* Copies id and record. Without memory nothing is kept. */
static void
token_cache_put(struct token_cache *cache, struct meter_str id,
                const struct token_record *record, uint64_t expires_us)
{
    struct map *map = record->known ? &cache->known : &cache->unknown;
    size_t tenant_size = record->known ? record->tenant.size : 0;
    struct token_entry *entry;
    struct meter_str key;

    token_map_remove(&cache->known, id);
    token_map_remove(&cache->unknown, id);
    if (map->count == map->count_max) {
        token_map_clear(map);
    }
    entry = memory_alloc(sizeof(*entry) + id.size + tenant_size);
    entry->record = *record;
    entry->expires_us = expires_us;
    memcpy(entry->bytes, id.data, id.size);
    if (tenant_size > 0) {
        memcpy(entry->bytes + id.size, record->tenant.data, tenant_size);
    }
    entry->record.tenant =
        (struct meter_str){entry->bytes + id.size, tenant_size};
    key = (struct meter_str){entry->bytes, id.size};
    if (map_add(map, key, entry) != entry) {
        free(entry);
    }
}

/*
 * True when the record is known and the secret's digest is its digest. The
 * same work is done for a record that is not known.
 */
static bool
token_record_matches(const struct token_record *record,
                     const uint8_t digest[METER_DIGEST_SIZE])
{
    static const uint8_t nobody[METER_DIGEST_SIZE];
    const uint8_t *expected = record->known ? record->digest : nobody;
    bool equal = meter_equal_constant_time(expected, digest, METER_DIGEST_SIZE);

    return equal & record->known;
}


/* ---- its life ----------------------------------------------------------- */

struct auth *
auth_create(struct reader *reader)
{
    struct auth *auth = memory_alloc(sizeof(*auth));

    auth->reader = reader;
    token_cache_init(&auth->cache);
    map_init(&auth->lookups, LOOKUPS_MAX);
    return auth;
}

void
auth_destroy(struct auth *auth)
{
    size_t cursor = 0;
    struct auth_lookup *lookup;

    if (auth == NULL) {
        return;
    }
    while ((lookup = map_next(&auth->lookups, &cursor)) != NULL) {
        lookup->auth = NULL;
        while (!LIST_EMPTY(&lookup->waiters)) {
            auth_cancel(LIST_FIRST(&lookup->waiters));
        }
    }
    map_fini(&auth->lookups);
    token_cache_fini(&auth->cache);
    free(auth);
}


/* ---- waiting --------------------------------------------------------- */

static void
auth_wait(struct auth_lookup *lookup, struct auth_ticket *ticket)
{
    ticket->lookup = lookup;
    LIST_INSERT_HEAD(&lookup->waiters, ticket, waiting);
}

void
auth_cancel(struct auth_ticket *ticket)
{
    if (ticket->lookup != NULL) {
        LIST_REMOVE(ticket, waiting);
        ticket->lookup = NULL;
    }
}


/* ---- deciding -------------------------------------------------------- */

static enum auth_result
auth_decide(const struct token_record *record, struct auth_ticket *ticket)
{
    if (!token_record_matches(record, ticket->digest)) {
        return AUTH_DENIED;
    }
    CHECK(record->tenant.size > 0 &&
          record->tenant.size <= sizeof(ticket->tenant));
    memcpy(ticket->tenant, record->tenant.data, record->tenant.size);
    ticket->tenant_size = record->tenant.size;
    ticket->scopes = record->scopes;
    return AUTH_OK;
}

/* Columns of token_find: id, tenant, digest, scopes, revoked. */
static void
auth_record_read(const void *result, struct token_record *record)
{
    struct meter_str digest, unknown;

    *record = (struct token_record){.known = false};
    if (pg_row_count(result) != 1 || pg_get_bool(result, 0, 4)) {
        return;
    }
    record->tenant = pg_get_bytes(result, 0, 1);
    digest = pg_get_bytes(result, 0, 2);
    if (digest.size != METER_DIGEST_SIZE || record->tenant.size == 0 ||
        record->tenant.size > METER_TENANT_SIZE_MAX ||
        !token_scopes_parse(pg_get_bytes(result, 0, 3), ' ', &record->scopes,
                            &unknown)) {
        log_error("auth", "a stored token cannot be used",
                  log_bytes("token_id", pg_get_bytes(result, 0, 0)));
        return;
    }
    memcpy(record->digest, digest.data, METER_DIGEST_SIZE);
    record->known = true;
}

/* Answers every ticket; each may bring new work, also for this token. */
static void
auth_lookup_done(struct auth_lookup *lookup, const struct token_record *record)
{
    struct auth_ticket *ticket;

    while ((ticket = LIST_FIRST(&lookup->waiters)) != NULL) {
        enum auth_result result =
            record == NULL ? AUTH_UNAVAILABLE : auth_decide(record, ticket);

        auth_cancel(ticket);
        if (lookup->answering) {
            lookup->result = result;
            return;
        }
        ticket->cb(ticket->asker, result);
    }
}

static void
auth_found_cb(void *asker, const struct pg_answer *answer)
{
    struct auth_lookup *lookup = asker;
    struct auth *auth = lookup->auth;
    struct meter_str id = {lookup->id, lookup->id_size};
    struct token_record record;

    if (auth == NULL) {
        free(lookup);
        return;
    }
    map_remove(&auth->lookups, id);
    if (answer->outcome == PG_OUTCOME_OK) {
        auth_record_read(answer->result, &record);
        token_cache_put(&auth->cache, id, &record, lookup->expires_us);
        auth_lookup_done(lookup, &record);
    } else {
        if (answer->outcome == PG_OUTCOME_ERROR) {
            log_error("auth", "token look-up failed",
                      log_str("sqlstate", answer->sqlstate),
                      log_str("reason", answer->message));
        }
        auth_lookup_done(lookup, NULL);
    }
    if (!lookup->answering) {
        free(lookup);
    }
}


/* ---- asking ---------------------------------------------------------- */

/* The token of "Bearer <token>"; the scheme in any case. */
static bool
token_parse_header(struct meter_str header, struct token *out)
{
    size_t at = SCHEME.size;

    if (header.size <= at ||
        strncasecmp(header.data, SCHEME.data, SCHEME.size) != 0 ||
        header.data[at] != ' ') {
        return false;
    }
    while (at < header.size && header.data[at] == ' ') {
        at++;
    }
    return token_parse((struct meter_str){header.data + at, header.size - at},
                       out);
}

/* A look-up of its own for a ticket; its answer may come at once. */
static enum auth_result
auth_lookup_start(struct auth *auth, struct meter_str id,
                  struct auth_ticket *ticket, uint64_t expires_us)
{
    struct auth_lookup *lookup = memory_alloc(sizeof(*lookup));
    struct pg_params params;
    struct meter_str key;

    memcpy(lookup->id, id.data, id.size);
    lookup->id_size = id.size;
    lookup->auth = auth;
    lookup->expires_us = expires_us;
    lookup->result = AUTH_PENDING;
    key = (struct meter_str){lookup->id, lookup->id_size};
    if (map_add(&auth->lookups, key, lookup) != lookup) {
        free(lookup);
        return AUTH_UNAVAILABLE;
    }
    metrics.edgemeter_token_lookups_total++;
    auth_wait(lookup, ticket);
    pg_params_init(&params);
    pg_param_text(&params, id);
    lookup->answering = true;
    reader_query(auth->reader, (struct meter_str){NULL, 0},
                 STATEMENT_TOKEN_FIND, &params, auth_found_cb, lookup);
    lookup->answering = false;
    pg_params_fini(&params);
    if (lookup->result != AUTH_PENDING) {
        enum auth_result result = lookup->result;

        free(lookup);
        return result;
    }
    return AUTH_PENDING;
}

enum auth_result
auth_check(struct auth *auth, int64_t ttl_us, struct meter_str header,
           struct auth_ticket *ticket, auth_cb cb, void *asker)
{
    const struct token_record *record;
    struct auth_lookup *lookup;
    uint64_t now_us = clock_mono_us();
    struct token token;

    *ticket = (struct auth_ticket){.cb = cb, .asker = asker};
    if (header.data == NULL || !token_parse_header(header, &token)) {
        return AUTH_DENIED;
    }
    memcpy(ticket->token_id, token.id.data, token.id.size);
    ticket->token_id_size = token.id.size;
    meter_sha256(token.secret.data, token.secret.size, ticket->digest);
    record = token_cache_find(&auth->cache, token.id, now_us);
    if (record != NULL) {
        return auth_decide(record, ticket);
    }
    lookup = map_find(&auth->lookups, token.id);
    if (lookup != NULL) {
        auth_wait(lookup, ticket);
        return AUTH_PENDING;
    }
    return auth_lookup_start(auth, token.id, ticket, now_us + (uint64_t)ttl_us);
}
