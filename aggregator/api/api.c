/*
 * api.c - the way of a request: route, authorise, handle, answer.
 *
 *   api_submit -> [route: 404, 405] -> [authorise: 401, 403] -> handler
 *   handler -> call_read, call_write -> its callback -> call_answer
 *
 * An unknown path is 404 and a wrong method 405 before any token is looked
 * at: which paths exist is in the manual. Every call ends in exactly one
 * answer, or in api_cancel; a read that is under way then frees it.
 */

#include "api/api.h"

#include "api/call.h"
#include "api/member.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"

#include <stdlib.h>

enum router_result {
    ROUTER_FOUND,
    ROUTER_BAD,    /* 400, error says why */
    ROUTER_NONE,   /* 404 */
    ROUTER_METHOD, /* 405, allow says which methods */
};

static const struct resource *const resources[] = {
    &adjustments_resource, &buckets_resource, &closes_resource,
    &counters_resource,    &event_resource,   &events_resource,
    &health_resource,      &query_resource,   &search_resource,
    &series_resource,      &tenants_resource, &usage_resource,
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


#define RETRY_AFTER_S 1
#define SQL_RANGE     "22003" /* numeric value out of range */
#define SQL_CANCELLED "57014" /* statement_timeout */
#define SQL_DENIED    "EM401" /* our functions: the credential is not enough */

struct meter_str
call_tenant(const struct api_call *call)
{
    return (struct meter_str){call->ticket.tenant, call->ticket.tenant_size};
}

struct meter_str
call_token_id(const struct api_call *call)
{
    return (struct meter_str){call->ticket.token_id,
                              call->ticket.token_id_size};
}

static void
call_free(struct api_call *call)
{
    metrics.edgemeter_requests_in_flight--;
    config_unref(call->config);
    buf_fini(&call->out);
    pg_params_fini(&call->params);
    arena_fini(&call->arena);
    free(call);
}


/* ---- answers --------------------------------------------------------- */

static void
call_count(const struct api_call *call, unsigned status)
{
    uint64_t took_us = clock_mono_us() - call->started_us;

    metrics.edgemeter_request_microseconds_total += (int64_t)took_us;
    if (status >= 500) {
        metrics.edgemeter_answers_5xx_total++;
    } else if (status >= 400) {
        metrics.edgemeter_answers_4xx_total++;
    } else {
        metrics.edgemeter_answers_2xx_total++;
    }
}

void
call_answer_full(struct api_call *call, const struct meter_response *head)
{
    struct meter_response response = *head;

    CHECK(call->cb != NULL && call->read_cb == NULL);
    if (call->out.failed) {
        log_error("api", "an answer does not fit in memory");
        response = (struct meter_response){.status = 500};
        buf_reset(&call->out);
    }
    if (response.content_type.data == NULL) {
        response.content_type = METER_STR("application/json");
    }
    call_count(call, response.status);
    if (call->answered != NULL) {
        *call->answered = true;
    }
    call->cb(call->asker, &response, &call->out);
    call_free(call);
}

void
call_answer(struct api_call *call, unsigned status)
{
    struct meter_response response = {.status = (uint16_t)status};

    call_answer_full(call, &response);
}

void
call_answer_error_full(struct api_call *call, const struct meter_response *head,
                       const char *text)
{
    buf_reset(&call->out); /* half an answer may stand there */
    json_writer_init(&call->json, &call->out);
    json_object_begin(&call->json);
    member_text(&call->json, "error", text);
    json_object_end(&call->json);
    call_answer_full(call, head);
}

void
call_answer_error(struct api_call *call, unsigned status,
                  uint32_t retry_after_s, const char *text)
{
    struct meter_response response = {
        .status = (uint16_t)status,
        .retry_after_s = retry_after_s,
    };

    call_answer_error_full(call, &response, text);
}

void
call_answer_unavailable(struct api_call *call)
{
    call_answer_error(call, 503, RETRY_AFTER_S, "the database is away");
}


/* ---- for handlers ---------------------------------------------------- */

void *
call_state(struct api_call *call, size_t size)
{
    call->state = call->api->healthy ? arena_zalloc(&call->arena, size) : NULL;
    if (call->state == NULL) {
        call_answer_unavailable(call);
        return NULL;
    }
    return call->state;
}

const struct url_arguments *
call_arguments(struct api_call *call)
{
    struct url_arguments *arguments =
        arena_alloc(&call->arena, sizeof(*arguments));
    const char *error;

    if (arguments == NULL) {
        call_answer_unavailable(call);
        return NULL;
    }
    if (!url_arguments_read(call->request->args, &call->arena, arguments,
                            &error)) {
        call_answer_error(call, 400, 0, error);
        return NULL;
    }
    return arguments;
}

bool
call_has_no_arguments(struct api_call *call, const char *what)
{
    if (call->request->args.size == 0) {
        return true;
    }
    call_answer_error(
        call, 400, 0,
        reason_format(&call->arena, "the %s takes no query arguments", what));
    return false;
}


/* ---- reads and writes ------------------------------------------------ */

/* Figures that are exact one by one and together pass what is kept. */
static bool
call_failed_range(struct api_call *call, const struct pg_answer *answer,
                  const char *error)
{
    if (answer->outcome != PG_OUTCOME_ERROR ||
        strcmp(answer->sqlstate, SQL_RANGE) != 0) {
        return false;
    }
    call_answer_error(call, 422, 0, error);
    return true;
}

static void
call_read_failed(struct api_call *call, const struct pg_answer *answer)
{
    if (call_failed_range(call, answer, CALL_ERROR_RANGE)) {
        return;
    }
    if (answer->outcome == PG_OUTCOME_ERROR &&
        strcmp(answer->sqlstate, SQL_DENIED) == 0) { /* revoked meanwhile */
        metrics.edgemeter_requests_unauthorized_total++;
        call_answer_error(call, 401, 0, CALL_ERROR_UNAUTHORIZED);
        return;
    }
    if (answer->outcome == PG_OUTCOME_ERROR) {
        log_error("api", "a read failed", log_str("sqlstate", answer->sqlstate),
                  log_str("reason", answer->message));
        if (strcmp(answer->sqlstate, SQL_CANCELLED) == 0 ||
            answer->kind == SQL_RETRY) { /* a timeout or a deadlock */
            call_answer_error(call, 503, RETRY_AFTER_S,
                              "the read took too long");
            return;
        }
        if (answer->kind != SQL_AWAY && answer->kind != SQL_REDO_CAREFUL) {
            call_answer_error(call, 500, 0, "the read failed");
            return;
        }
    }
    call_answer_unavailable(call);
}

/* Whatever the reason: what was sent may be sent again. */
static void
call_write_failed(struct api_call *call, const struct pg_answer *answer)
{
    if (call_failed_range(call, answer, CALL_ERROR_AMOUNTS)) {
        return;
    }
    if (answer->outcome == PG_OUTCOME_ERROR) {
        log_error("api", "a write failed",
                  log_str("sqlstate", answer->sqlstate),
                  log_str("reason", answer->message));
        if (answer->kind == SQL_DATA || answer->kind == SQL_BUG) {
            call_answer_error(call, 500, 0, "the write failed");
            return;
        }
    }
    call_answer_error(call, 503, RETRY_AFTER_S,
                      "not known to be committed; sending the same again is "
                      "safe");
}

static void
call_asked_cb(struct api_call *call, const struct pg_answer *answer,
              void (*failed)(struct api_call *, const struct pg_answer *))
{
    pg_answer_cb cb = call->read_cb;

    call->read_cb = NULL;
    if (call->cb == NULL) {
        call_free(call); /* cancelled meanwhile */
        return;
    }
    if (answer->outcome != PG_OUTCOME_OK) {
        failed(call, answer);
        return;
    }
    cb(call, answer);
}

static void
call_read_cb(void *asker, const struct pg_answer *answer)
{
    call_asked_cb(asker, answer, call_read_failed);
}

static void
call_write_cb(void *asker, const struct pg_answer *answer)
{
    call_asked_cb(asker, answer, call_write_failed);
}

struct pg_params *
call_params(struct api_call *call)
{
    pg_params_init(&call->params);
    return &call->params;
}

/* The answer may come at once, and then the call is gone. */
static void
call_ask(struct api_call *call, struct reader *reader, struct meter_str tenant,
         enum statement statement, pg_answer_cb asked_cb)
{
    struct pg_params params = call->params;

    pg_params_init(&call->params);
    reader_query(reader, tenant, statement, &params, asked_cb, call);
    pg_params_fini(&params);
}

void
call_read(struct api_call *call, enum statement statement, pg_answer_cb cb)
{
    CHECK(call->read_cb == NULL);
    call->read_cb = cb;
    call_ask(call, call->api->reader, call_tenant(call), statement,
             call_read_cb);
}

void
call_write(struct api_call *call, enum statement statement, pg_answer_cb cb)
{
    CHECK(call->read_cb == NULL);
    call->read_cb = cb;
    call_ask(call, call->api->writes, (struct meter_str){NULL, 0}, statement,
             call_write_cb);
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
