/*
 * router.h - one table: which method and path lead to which handler.
 *
 * An unknown path is 404 and a wrong method 405 before any token is looked
 * at: which paths exist is in the manual. Everything behind a known path
 * and method needs the scope of its row.
 */

#ifndef API_ROUTER_H
#define API_ROUTER_H

#include "api/token.h"
#include "api/url.h"
#include "meter_msg.h"

#define ROUTER_PARAMETERS_MAX 2

struct api_call;

struct route {
    enum meter_method method; /* GET answers HEAD too */
    const char *pattern;      /* "/v1/events/{event_id}"; two {} at most */
    enum token_scope scope;   /* NONE: no token needed */
    void (*handler)(struct api_call *call);
};

enum router_result {
    ROUTER_FOUND,
    ROUTER_BAD,    /* 400, error says why */
    ROUTER_NONE,   /* 404 */
    ROUTER_METHOD, /* 405, allow says which methods */
};

struct router_match {
    const struct route *route;
    struct meter_str parameter; /* decoded text of {}; empty without one */
    struct meter_str second;    /* likewise, of the second {} */
    const char *error;
    const char *allow;
};

enum router_result router_find(uint8_t method, struct meter_str path,
                               struct arena *arena, struct router_match *out);

#endif
