/*
 * api.c - the way of a request: route, authorise, handle. See api.h.
 */

#include "api/api.h"

#include "api/bucket_api.h"
#include "api/call.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

#include <stdlib.h>

#define CALL_ARENA_BLOCK 4096
#define CALL_ARENA_MAX   (4u << 20)
#define CALL_ANSWER_MAX  (32u << 20)
#define RETRY_AFTER_S    1

struct api *
api_create(const struct api_options *options)
{
    struct api *api = calloc(1, sizeof(*api));

    if (api == NULL) {
        return NULL;
    }
    api->ingest = options->ingest;
    api->reader = options->reader;
    api->writes = options->writes;
    api->buckets = options->buckets;
    api->lane = options->lane;
    api->auth = auth_create(options->reader,
                            options->config->limits.token_cache_ttl_us);
    api->unpack = unpack_create(options->loop);
    if (api->auth == NULL || api->unpack == NULL) {
        unpack_destroy(api->unpack);
        auth_destroy(api->auth);
        free(api);
        return NULL;
    }
    api->config = config_ref(options->config);
    return api;
}

void
api_destroy(struct api *api)
{
    if (api == NULL) {
        return;
    }
    unpack_destroy(api->unpack);
    auth_destroy(api->auth);
    config_unref(api->config);
    free(api);
}

void
api_config_set(struct api *api, struct config *config)
{
    struct config *old = api->config;

    api->config = config_ref(config);
    auth_ttl_set(api->auth, config->limits.token_cache_ttl_us);
    config_unref(old);
}

void
api_healthy_set(struct api *api)
{
    api->healthy = true;
}


/* ---- a request ------------------------------------------------------- */

static void
api_authorised(struct api_call *call, enum auth_result result)
{
    const struct route *route = call->match.route;
    const char *text;

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
        metrics.edgemeter_requests_unauthorized_total++;
        text = reason_format(&call->arena, "the token lacks the scope \"%s\"",
                             token_scope_name(route->scope));
        call_answer_error(call, 403, 0, text);
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
    if (bucket_api_is_route(call->match.route)) {
        bucket_api_full(call);
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
    api_authorised(call, auth_check(call->api->auth, request->authorization,
                                    &call->ticket, api_authorised_cb, call));
}

static void
api_no_memory(api_answer_cb cb, void *asker)
{
    struct meter_response response = {.status = 503, .retry_after_s = 1};
    struct buf empty;

    log_error("api", "out of memory");
    metrics.edgemeter_answers_5xx_total++;
    buf_init(&empty, 0);
    cb(asker, &response, &empty);
}

struct api_call *
api_submit(struct api *api, const struct meter_request *request,
           struct buf *body, bool is_full, api_answer_cb cb, void *asker)
{
    struct api_call *call = calloc(1, sizeof(*call));
    bool answered = false;

    metrics.edgemeter_requests_total++;
    if (call == NULL) {
        api_no_memory(cb, asker);
        return NULL;
    }
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
    if (call->unpack != NULL) {
        unpack_cancel(call->unpack);
    }
    if (call->ingest != NULL) {
        ingest_cancel(call->ingest);
    }
    if (call->operation != NULL) {
        bucket_engine_cancel(call->api->buckets, call->operation);
    }
    call_free(call);
}
