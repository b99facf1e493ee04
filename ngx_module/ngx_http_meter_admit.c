
/*
 * ngx_http_meter_admit.c - a request comes to the first metered location.
 *
 *   access phase -> [admit] -> try_files, mirror -> content
 *
 * The route is bound. A route whose values come late takes a slot here; one
 * with "meter_overflow reject" promises itself a record's room in the ring
 * and is answered 503 when there is none, before anything was done for it.
 */


#include "ngx_http_meter_capture.h"


static ngx_int_t ngx_http_meter_admit_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_meter_admit(ngx_http_meter_capture_t *cap);
static ngx_int_t ngx_http_meter_admit_refuse(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap);


/*
 * Handlers of the phase run in the reverse order of their registration, and
 * try_files and mirror, which are built in, were registered before.
 */

ngx_int_t
ngx_http_meter_admit_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_meter_admit_handler;

    return NGX_OK;
}


/* a post_action runs after the answer: what it reaches is not billed */

static ngx_int_t
ngx_http_meter_admit_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_http_meter_capture_t  *cap;

    if (r != r->main || r->header_sent || ngx_http_meter_capture_get(r)) {
        return NGX_DECLINED;
    }

    cap = ngx_http_meter_capture_bind(r);

    if (cap == NULL) {
        return NGX_DECLINED;
    }

    rc = ngx_http_meter_admit(cap);

    if (rc == NGX_BUSY) {
        rc = ngx_http_meter_admit_refuse(r, cap);
    }

    ngx_http_meter_capture_stop(cap);

    return (rc == NGX_OK) ? NGX_DECLINED : rc;
}


/* NGX_BUSY: there is no room, and the route wants it */

static ngx_int_t
ngx_http_meter_admit(ngx_http_meter_capture_t *cap)
{
    ngx_uint_t               reject;
    ngx_http_meter_ring_t   *ring;
    ngx_http_meter_route_t  *route;

    route = cap->route;
    reject = (route->overflow == NGX_HTTP_METER_OVERFLOW_REJECT);

    if (route->final && !reject) {
        return NGX_OK;
    }

    ring = ngx_http_meter_outbox_current();

    if (ring == NULL) {
        return reject ? NGX_BUSY : NGX_OK;
    }

    if (reject
        && !meter_outbox_has_room(&ring->outbox, ring->promised + 1))
    {
        return NGX_BUSY;
    }

    if (!route->final
        && ngx_http_meter_record_reserve(cap, ring) != NGX_OK
        && reject)
    {
        return NGX_BUSY;
    }

    if (reject) {
        cap->ring = ring;
        cap->room = 1;
        ngx_http_meter_record_promise(ring, 1);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_admit_refuse(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap)
{
    ngx_str_t  value;

    cap->refused = 1;
    cap->verdict = NGX_HTTP_METER_REJECTED;

    ngx_http_meter_count(r, NGX_HTTP_METER_REFUSED, 1);

    ngx_str_set(&value, "1");

    if (ngx_http_meter_add_header(r, "Retry-After", &value) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return NGX_HTTP_SERVICE_UNAVAILABLE;
}
