/*
 * api.c - the way of a request: route, authorise, handle.
 *
 *   api_submit -> [route: 404, 405] -> [authorise: 401, 403] -> handler
 *   header -> token -> cache, else token_find -> tenant and scopes
 *
 * An unknown path is 404 and a wrong method 405 before any token is looked
 * at: which paths exist is in the manual. A missing, malformed, unknown,
 * wrong and revoked token are one answer. Requests that need the same token
 * at the same time share one look-up. The tenant of a request comes from here
 * and from nowhere else.
 *
 * The cache keeps known and unknown ids apart, so that a flood of invented
 * ids cannot push out the tokens in use. A part that is full is emptied. An
 * entry lives until the look-up that made it is older than the TTL, which is
 * therefore the longest delay of a revocation.
 */

#include "api/api.h"

#include "api/call.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/metrics.h"

#include <stdlib.h>
#include <strings.h>

enum router_result {
    ROUTER_FOUND,
    ROUTER_BAD,    /* 400, error says why */
    ROUTER_NONE,   /* 404 */
    ROUTER_METHOD, /* 405, allow says which methods */
};

static const struct resource *const resources[] = {
    &adjustments_resource, &buckets_resource, &closes_resource,
    &counters_resource,    &event_resource,   &events_resource,
    &health_resource,      &query_resource,   &series_resource,
    &tenants_resource,     &usage_resource,
};

#define RESOURCE_COUNT (sizeof(resources) / sizeof(resources[0]))

/* What takes a path; in the order of enum allow's bits. */
enum allow { ALLOW_GET = 1, ALLOW_POST = 2, ALLOW_PUT = 4 };

static const char *const allow_texts[] = {
    NULL,  "GET, HEAD",      "POST",      "GET, HEAD, POST",
    "PUT", "GET, HEAD, PUT", "POST, PUT", "GET, HEAD, POST, PUT",
};

/* Segment by segment; {} takes any segment that is not empty. */
static bool
route_matches(const struct route *route, const struct url_path *path,
              struct meter_str parameters[ROUTER_PARAMETERS_MAX])
{
    const char *at = route->pattern;
    size_t found = 0;
    size_t i = 0;

    while (*at == '/') {
        size_t size = strcspn(at + 1, "/");
        struct meter_str piece = {at + 1, size};

        if (i == path->count) {
            return false;
        }
        if (piece.data[0] == '{') {
            if (path->segments[i].size == 0) {
                return false;
            }
            CHECK(found < ROUTER_PARAMETERS_MAX);
            parameters[found++] = path->segments[i];
        } else if (!meter_str_equal(piece, path->segments[i])) {
            return false;
        }
        at += 1 + size;
        i++;
    }
    return i == path->count && !path->too_deep;
}

static bool
route_serves(const struct route *route, uint8_t method)
{
    return route->method == method ||
           (route->method == METER_METHOD_GET && method == METER_METHOD_HEAD);
}

static enum allow
route_allow(const struct route *route)
{
    switch (route->method) {
    case METER_METHOD_GET: return ALLOW_GET;
    case METER_METHOD_PUT: return ALLOW_PUT;
    default: CHECK(route->method == METER_METHOD_POST); return ALLOW_POST;
    }
}

/* The route of a resource; *allowed gathers what else takes the path. */
static const struct route *
resource_find(const struct resource *resource, uint8_t method,
              const struct url_path *path, struct router_match *out,
              unsigned *allowed)
{
    for (size_t i = 0; i < resource->route_count; i++) {
        const struct route *route = &resource->routes[i];
        struct meter_str parameters[ROUTER_PARAMETERS_MAX] = {{NULL, 0}};

        if (!route_matches(route, path, parameters)) {
            continue;
        }
        if (route_serves(route, method)) {
            out->parameter = parameters[0];
            out->second = parameters[1];
            return route;
        }
        *allowed |= route_allow(route);
    }
    return NULL;
}

static enum router_result
router_find(uint8_t method, struct meter_str path, struct arena *arena,
            struct router_match *out)
{
    struct url_path split;
    unsigned allowed = 0;

    *out = (struct router_match){.route = NULL};
    if (!url_path_read(path, arena, &split, &out->error)) {
        return ROUTER_BAD;
    }
    for (size_t i = 0; i < RESOURCE_COUNT && out->route == NULL; i++) {
        out->resource = resources[i];
        out->route = resource_find(resources[i], method, &split, out, &allowed);
    }
    if (out->route != NULL) {
        return ROUTER_FOUND;
    }
    out->allow = allow_texts[allowed];
    return out->allow != NULL ? ROUTER_METHOD : ROUTER_NONE;
}


/* ---- who a request is -------------------------------------------------- */

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


static void
auth_cancel(struct auth_ticket *ticket)
{
    if (ticket->lookup != NULL) {
        LIST_REMOVE(ticket, waiting);
        ticket->lookup = NULL;
    }
}


/* ---- its life ----------------------------------------------------------- */

static struct auth *
auth_create(struct reader *reader)
{
    struct auth *auth = memory_alloc(sizeof(*auth));

    auth->reader = reader;
    token_cache_init(&auth->cache);
    map_init(&auth->lookups, LOOKUPS_MAX);
    return auth;
}

static void
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

/*
 * The callback comes only after PENDING, later than this call. ttl_us: how
 * long what the database says now may be used.
 */
static enum auth_result
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


#define CALL_ARENA_BLOCK 4096
#define CALL_ARENA_MAX   (4u << 20)
#define CALL_ANSWER_MAX  (32u << 20)

struct api *
api_create(const struct api_options *options)
{
    struct api *api = memory_alloc(sizeof(*api));

    api->ingest = options->ingest;
    api->reader = options->reader;
    api->writes = options->writes;
    api->buckets = options->buckets;
    api->lane = options->lane;
    api->auth = auth_create(options->reader);
    api->config = config_ref(options->config);
    for (size_t i = 0; i < RESOURCE_COUNT; i++) {
        if (resources[i]->open != NULL) {
            resources[i]->open(api, options->loop);
        }
    }
    return api;
}

void
api_destroy(struct api *api)
{
    if (api == NULL) {
        return;
    }
    for (size_t i = 0; i < RESOURCE_COUNT; i++) {
        if (resources[i]->close != NULL) {
            resources[i]->close(api);
        }
    }
    auth_destroy(api->auth);
    config_unref(api->config);
    free(api);
}

void
api_config_set(struct api *api, struct config *config)
{
    struct config *old = api->config;

    api->config = config_ref(config);
    config_unref(old);
}

void
api_healthy_set(struct api *api)
{
    api->healthy = true;
}


/* ---- a request ------------------------------------------------------- */

static void
api_forbidden(struct api_call *call)
{
    struct buf name;

    metrics.edgemeter_requests_unauthorized_total++;
    buf_init(&name, 64);
    token_scopes_format(call->match.route->scope, ' ', &name);
    call_answer_error(call, 403, 0,
                      reason_format(&call->arena,
                                    "the token lacks the scope \"%.*s\"",
                                    (int)name.size, (const char *)name.data));
    buf_fini(&name);
}

static void
api_authorised(struct api_call *call, enum auth_result result)
{
    const struct route *route = call->match.route;

    switch (result) {
    case AUTH_OK: break;
    case AUTH_DENIED:
        metrics.edgemeter_requests_unauthorized_total++;
        call_answer_error(call, 401, 0, CALL_ERROR_UNAUTHORIZED);
        return;
    case AUTH_UNAVAILABLE: call_answer_unavailable(call); return;
    case AUTH_PENDING: return;
    }
    if ((call->ticket.scopes & route->scope) == 0) {
        api_forbidden(call);
        return;
    }
    route->handler(call);
}

static void
api_authorised_cb(void *asker, enum auth_result result)
{
    api_authorised(asker, result);
}

/* No token is looked at: it would take the room that is missing. */
static void
api_full(struct api_call *call)
{
    if (call->match.resource->full != NULL) {
        call->match.resource->full(call);
        return;
    }
    call_answer_error(call, 503, RETRY_AFTER_S,
                      "too many requests are under way; try again");
}

static void
api_route(struct api_call *call, bool is_full)
{
    const struct meter_request *request = call->request;
    struct meter_response response = {.status = 405};

    switch (router_find(request->method, request->path, &call->arena,
                        &call->match)) {
    case ROUTER_FOUND: break;
    case ROUTER_BAD: call_answer_error(call, 400, 0, call->match.error); return;
    case ROUTER_NONE: call_answer_error(call, 404, 0, "no such path"); return;
    case ROUTER_METHOD:
        response.allow =
            (struct meter_str){call->match.allow, strlen(call->match.allow)};
        call_answer_error_full(call, &response,
                               "the path does not take this method");
        return;
    }
    if (is_full) {
        api_full(call);
        return;
    }
    if (call->match.route->scope == TOKEN_SCOPE_NONE) {
        call->match.route->handler(call);
        return;
    }
    api_authorised(call, auth_check(call->api->auth,
                                    call->config->limits.token_cache_ttl_us,
                                    request->authorization, &call->ticket,
                                    api_authorised_cb, call));
}

struct api_call *
api_submit(struct api *api, const struct meter_request *request,
           struct buf *body, bool is_full, api_answer_cb cb, void *asker)
{
    struct api_call *call = memory_alloc(sizeof(*call));
    bool answered = false;

    metrics.edgemeter_requests_total++;
    metrics.edgemeter_requests_in_flight++;
    call->api = api;
    call->config = config_ref(api->config);
    call->request = request;
    call->body = body;
    call->started_us = clock_mono_us();
    call->cb = cb;
    call->asker = asker;
    call->answered = &answered;
    arena_init(&call->arena, CALL_ARENA_BLOCK, CALL_ARENA_MAX);
    buf_init(&call->out, CALL_ANSWER_MAX);
    pg_params_init(&call->params);
    json_writer_init(&call->json, &call->out);
    api_route(call, is_full);
    if (answered) {
        return NULL;
    }
    call->answered = NULL;
    return call;
}

void
api_cancel(struct api_call *call)
{
    call->cb = NULL;
    if (call->read_cb != NULL) {
        return; /* freed when the read comes back */
    }
    auth_cancel(&call->ticket);
    if (call->cancel != NULL) {
        call->cancel(call);
    }
    call_free(call);
}
