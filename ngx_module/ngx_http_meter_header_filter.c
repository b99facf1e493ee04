
/*
 * ngx_http_meter_header_filter.c - the answer is decided, no byte has left.
 *
 *   range filter -> [header_filter] -> http/2, chunked, header filter proper
 *
 * A route whose values are all known is recorded here, any other is written
 * into its slot: a worker that is killed from now on leaves behind what was
 * answered. Behind the range filter, since 206 and 416 are made there: an
 * answer that a filter above replaces (by 412, 416, or 415 of a bad image)
 * never came this far, and what comes this far is sent.
 */


#include "ngx_http_meter_capture.h"


static ngx_int_t ngx_http_meter_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_meter_header_filter_init(ngx_conf_t *cf);


static ngx_http_module_t  ngx_http_meter_filter_module_ctx = {
    NULL,                                  /* preconfiguration */
    ngx_http_meter_header_filter_init,     /* postconfiguration */

    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    NULL,                                  /* create location configuration */
    NULL                                   /* merge location configuration */
};


ngx_module_t  ngx_http_meter_filter_module = {
    NGX_MODULE_V1,
    &ngx_http_meter_filter_module_ctx,     /* module context */
    NULL,                                  /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    NULL,                                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    NULL,                                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;


static ngx_int_t
ngx_http_meter_header_filter(ngx_http_request_t *r)
{
    ngx_http_meter_capture_t  *cap;

    if (r != r->main) {
        return ngx_http_next_header_filter(r);
    }

    cap = ngx_http_meter_capture_bind(r);

    if (cap == NULL) {
        if (ngx_http_meter_capture_route(r)) {
            ngx_http_meter_outbox_missed(1);
        }

        return ngx_http_next_header_filter(r);
    }

    if (cap->answered) {
        return ngx_http_next_header_filter(r);
    }

    cap->answered = 1;
    cap->status = r->headers_out.status;

    METER_CRASH_POINT("header_before_record");

    if (cap->route->final || cap->refused) {
        ngx_http_meter_record(r, cap);

    } else {
        ngx_http_meter_record_answer(r, cap);
    }

    ngx_http_meter_capture_stop(cap);

    METER_CRASH_POINT("header_before_send");

    return ngx_http_next_header_filter(r);
}


static ngx_int_t
ngx_http_meter_header_filter_init(ngx_conf_t *cf)
{
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_meter_module);

    if (!mmcf->metered) {
        return NGX_OK;
    }

    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_meter_header_filter;

    return NGX_OK;
}
