/*
 * router.c - see router.h.
 */

#include "api/router.h"

#include "api/handlers.h"

/* clang-format off */
static const struct route routes[] = {
    { METER_METHOD_POST, "/v1/events",            TOKEN_SCOPE_INGEST,
      events_api_post },
    { METER_METHOD_GET,  "/v1/events/{event_id}", TOKEN_SCOPE_READ,
      events_api_get },
    { METER_METHOD_GET,  "/v1/counters",          TOKEN_SCOPE_READ,
      counters_api_list },
    { METER_METHOD_GET,  "/v1/counters/{name}",   TOKEN_SCOPE_READ,
      counters_api_get },
    { METER_METHOD_GET,  "/v1/tenants",           TOKEN_SCOPE_ADMIN,
      tenants_api_list },
    { METER_METHOD_GET,  "/v1/tenants/{tenant}/usage", TOKEN_SCOPE_READ,
      tenants_api_usage },
    { METER_METHOD_GET,  "/v1/usage",             TOKEN_SCOPE_READ,
      usage_api_get },
    { METER_METHOD_GET,  "/v1/query",             TOKEN_SCOPE_READ,
      query_api_get },
    { METER_METHOD_POST, "/v1/query",             TOKEN_SCOPE_READ,
      query_api_post },
    { METER_METHOD_GET,  "/v1/series",            TOKEN_SCOPE_READ,
      series_api_list },
    { METER_METHOD_POST, "/v1/usage/close",       TOKEN_SCOPE_WRITE,
      close_api_post },
    { METER_METHOD_GET,  "/v1/adjustments",       TOKEN_SCOPE_READ,
      adjustments_api_get },
    { METER_METHOD_POST, "/v1/adjustments",       TOKEN_SCOPE_WRITE,
      adjustments_api_post },
    { METER_METHOD_POST, "/v1/search",            TOKEN_SCOPE_READ,
      search_api_post },
    { METER_METHOD_GET,  "/healthz",              TOKEN_SCOPE_NONE,
      health_api_healthz },
    { METER_METHOD_GET,  "/readyz",               TOKEN_SCOPE_NONE,
      health_api_readyz },
    { METER_METHOD_GET,  "/metrics",              TOKEN_SCOPE_NONE,
      health_api_metrics },
};
/* clang-format on */

#define ROUTE_COUNT (sizeof(routes) / sizeof(routes[0]))

/* Segment by segment; {} takes any segment that is not empty. */
static bool
route_matches(const struct route *route, const struct url_path *path,
              struct meter_str *parameter)
{
    const char *at = route->pattern;
    size_t i = 0;

    *parameter = (struct meter_str){NULL, 0};
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
            *parameter = path->segments[i];
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

/* The methods of a path, with those of the rows before. */
static const char *
route_allow(const struct route *route, const char *before)
{
    if (before != NULL) {
        return "GET, HEAD, POST";
    }
    return route->method == METER_METHOD_GET ? "GET, HEAD" : "POST";
}

enum router_result
router_find(uint8_t method, struct meter_str path, struct arena *arena,
            struct router_match *out)
{
    struct url_path split;
    struct meter_str parameter;

    *out = (struct router_match){.route = NULL};
    if (!url_path_read(path, arena, &split, &out->error)) {
        return ROUTER_BAD;
    }
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        const struct route *route = &routes[i];

        if (!route_matches(route, &split, &parameter)) {
            continue;
        }
        if (route_serves(route, method)) {
            out->route = route;
            out->parameter = parameter;
            return ROUTER_FOUND;
        }
        out->allow = route_allow(route, out->allow);
    }
    return out->allow != NULL ? ROUTER_METHOD : ROUTER_NONE;
}
