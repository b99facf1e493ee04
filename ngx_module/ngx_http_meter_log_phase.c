
/*
 * ngx_http_meter_log_phase.c - the request is over.
 *
 *   free request -> [log_phase] -> access_log and other LOG handlers
 *
 * What the header filter could not decide is decided here: routes whose
 * values come late, and requests that ended without a header (444, a client
 * that left early). First in its phase, so that access_log can tell the
 * verdict. A request whose header went by unmetered stays unmetered.
 */


#include "ngx_http_meter_capture.h"


static ngx_int_t ngx_http_meter_log_handler(ngx_http_request_t *r);
static ngx_uint_t ngx_http_meter_log_status(ngx_http_request_t *r);


/* handlers of this phase run in the order of the array */

ngx_int_t
ngx_http_meter_log_init(ngx_conf_t *cf)
{
    ngx_array_t                *handlers;
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    handlers = &cmcf->phases[NGX_HTTP_LOG_PHASE].handlers;

    if (ngx_array_push(handlers) == NULL) {
        return NGX_ERROR;
    }

    h = handlers->elts;

    ngx_memmove(&h[1], &h[0],
                (handlers->nelts - 1) * sizeof(ngx_http_handler_pt));

    h[0] = ngx_http_meter_log_handler;

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_log_handler(ngx_http_request_t *r)
{
    ngx_http_meter_capture_t  *cap;

    if (r != r->main) {
        return NGX_OK;
    }

    cap = ngx_http_meter_capture_get(r);

    if (cap ? cap->decided && !cap->sampled : r->header_sent) {
        return NGX_OK;
    }

    cap = ngx_http_meter_capture_bind(r);

    if (cap == NULL) {
        if (ngx_http_meter_capture_route(r)) {
            ngx_http_meter_outbox_missed(1);
        }

        return NGX_OK;
    }

    if (!cap->decided) {
        if (!cap->answered) {
            cap->status = ngx_http_meter_log_status(r);
        }

        METER_CRASH_POINT("log_before_record");

        ngx_http_meter_record(r, cap);

        METER_CRASH_POINT("log_after_record");
    }

    ngx_http_meter_capture_stop(cap);

    if (cap->sampled) {
        ngx_http_meter_count(r, NGX_HTTP_METER_HANDLER_NS, cap->spent_ns);
        ngx_http_meter_count(r, NGX_HTTP_METER_HANDLER_SAMPLES, 1);
    }

    return NGX_OK;
}


/*
 * For requests without an answer. A client that leaves inside its upload is a
 * bad request to nginx. If the upload was unbuffered, the upstream has begun to
 * work for it: then it is a client that left early, as any other.
 */

static ngx_uint_t
ngx_http_meter_log_status(ngx_http_request_t *r)
{
    ngx_uint_t  status;

    status = r->err_status ? r->err_status : r->headers_out.status;

    if (status == NGX_HTTP_BAD_REQUEST
        && r->upstream && r->upstream->request_sent)
    {
        return NGX_HTTP_CLIENT_CLOSED_REQUEST;
    }

    return status;
}
