
/*
 * ngx_http_meter_variable.c - what a configuration can read of a metering.
 *
 *   $meter_tenant     whose request it is
 *   $meter_verdict    recorded, duplicate, filtered, lost, rejected
 *   $meter_event_id   the client's, or the minted one, once recorded
 *
 * All are those of the main request, also in a subrequest, and are looked up
 * anew each time: they change while the request lives.
 */


#include "ngx_http_meter_capture.h"


static ngx_int_t ngx_http_meter_variable_tenant(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_meter_variable_verdict(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_meter_variable_event_id(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static void ngx_http_meter_variable_set(ngx_http_variable_value_t *v,
    ngx_str_t *text);


static ngx_http_variable_t  ngx_http_meter_variables[] = {

    { ngx_string("meter_tenant"), NULL, ngx_http_meter_variable_tenant, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("meter_verdict"), NULL, ngx_http_meter_variable_verdict, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("meter_event_id"), NULL, ngx_http_meter_variable_event_id, 0,
      NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


/* in the order of ngx_http_meter_verdict_e */

static ngx_str_t  ngx_http_meter_verdicts[] = {
    ngx_null_string,
    ngx_string("recorded"),
    ngx_string("duplicate"),
    ngx_string("filtered"),
    ngx_string("lost"),
    ngx_string("rejected")
};


ngx_int_t
ngx_http_meter_variable_init(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_meter_variables; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


/* known before the event is made, so that limits can go by it */

static ngx_int_t
ngx_http_meter_variable_tenant(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_int_t                  rc, entered;
    ngx_str_t                  tenant;
    ngx_http_meter_route_t    *route;
    ngx_http_meter_capture_t  *cap;

    cap = ngx_http_meter_capture_get(r->main);

    if (cap && cap->tenant.data) {
        ngx_http_meter_variable_set(v, &cap->tenant);
        return NGX_OK;
    }

    route = cap ? cap->route : ngx_http_meter_capture_route(r->main);

    if (route == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    entered = cap ? ngx_http_meter_capture_enter(r->main, cap, 1)
                  : NGX_DECLINED;

    if (entered == NGX_ERROR) {
        return NGX_ERROR;
    }

    rc = ngx_http_meter_event_value(r->main, route->tenant, &tenant);

    if (entered == NGX_OK) {
        ngx_http_meter_capture_leave(r->main);
    }

    if (rc != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_meter_variable_set(v, &tenant);

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_variable_verdict(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_meter_capture_t  *cap;

    cap = ngx_http_meter_capture_get(r->main);

    if (cap == NULL || cap->verdict == NGX_HTTP_METER_UNDECIDED) {
        v->not_found = 1;
        return NGX_OK;
    }

    ngx_http_meter_variable_set(v, &ngx_http_meter_verdicts[cap->verdict]);

    return NGX_OK;
}


/* most requests are never asked for their id: its text is made here */

static ngx_int_t
ngx_http_meter_variable_event_id(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_meter_capture_t  *cap;

    cap = ngx_http_meter_capture_get(r->main);

    if (cap == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    if (cap->event_id.len == 0 && cap->seq) {
        cap->event_id.data = ngx_pnalloc(r->main->pool,
                                         METER_MINTED_ID_SIZE_MAX + 1);
        if (cap->event_id.data == NULL) {
            return NGX_ERROR;
        }

        cap->event_id.len = meter_event_mint_id(cap->session, cap->seq,
                                                cap->ts_us,
                                                (char *) cap->event_id.data);
    }

    if (cap->event_id.len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    ngx_http_meter_variable_set(v, &cap->event_id);

    return NGX_OK;
}


static void
ngx_http_meter_variable_set(ngx_http_variable_value_t *v, ngx_str_t *text)
{
    v->len = text->len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->data = text->data;
}
