/*
 * router.c - see router.h.
 */

#include "api/router.h"

#include "api/handlers.h"

/* clang-format off */
static const struct route routes[] = {
    { METER_METHOD_POST, "/v1/events",            TOKEN_SCOPE_INGEST,
      events_api_post },
    { METER_METHOD_GET,  "/v1/events",            TOKEN_SCOPE_READ,
      events_api_find },
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
    { METER_METHOD_GET,  "/v1/usage/closes",      TOKEN_SCOPE_READ,
      closes_api_get },
    { METER_METHOD_GET,  "/v1/adjustments",       TOKEN_SCOPE_READ,
      adjustments_api_get },
    { METER_METHOD_POST, "/v1/adjustments",       TOKEN_SCOPE_WRITE,
      adjustments_api_post },
    { METER_METHOD_POST, "/v1/search",            TOKEN_SCOPE_READ,
      search_api_post },
    { METER_METHOD_POST, "/api/counters/{tenant}/{name}/increment",
      TOKEN_SCOPE_WRITE, bucket_api_increment },
    { METER_METHOD_POST, "/api/counters/{tenant}/{name}/decrement",
      TOKEN_SCOPE_WRITE, bucket_api_decrement },
    { METER_METHOD_POST, "/api/counters/{tenant}/{name}/incrementSync",
      TOKEN_SCOPE_WRITE, bucket_api_increment_sync },
    { METER_METHOD_POST, "/api/counters/{tenant}/{name}/decrementSync",
      TOKEN_SCOPE_WRITE, bucket_api_decrement_sync },
    { METER_METHOD_PUT,  "/api/counters/{tenant}/{name}/set",
      TOKEN_SCOPE_WRITE, bucket_api_set },
    { METER_METHOD_GET,  "/api/counters/{tenant}/{name}/get",
      TOKEN_SCOPE_READ, bucket_api_get },
    { METER_METHOD_GET,  "/api/counters/{tenant}/{name}/sumRange",
      TOKEN_SCOPE_READ, bucket_api_sum_range },
    { METER_METHOD_GET,  "/healthz",              TOKEN_SCOPE_NONE,
      health_api_healthz },
    { METER_METHOD_GET,  "/readyz",               TOKEN_SCOPE_NONE,
      health_api_readyz },
    { METER_METHOD_GET,  "/metrics",              TOKEN_SCOPE_NONE,
      health_api_metrics },
};
/* clang-format on */

#define ROUTE_COUNT (sizeof(routes) / sizeof(routes[0]))

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

enum router_result
router_find(uint8_t method, struct meter_str path, struct arena *arena,
            struct router_match *out)
{
    struct url_path split;
    unsigned allowed = 0;

    *out = (struct router_match){.route = NULL};
    if (!url_path_read(path, arena, &split, &out->error)) {
        return ROUTER_BAD;
    }
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        const struct route *route = &routes[i];
        struct meter_str parameters[ROUTER_PARAMETERS_MAX] = {{NULL, 0}};

        if (!route_matches(route, &split, parameters)) {
            continue;
        }
        if (route_serves(route, method)) {
            out->route = route;
            out->parameter = parameters[0];
            out->second = parameters[1];
            return ROUTER_FOUND;
        }
        allowed |= route_allow(route);
    }
    out->allow = allow_texts[allowed];
    return out->allow != NULL ? ROUTER_METHOD : ROUTER_NONE;
}
