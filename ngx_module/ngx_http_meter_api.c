
/*
 * ngx_http_meter_api.c - the content handler of "meter_api" locations.
 *
 *   handler -> request_read -> body read -> upstream -> finalize
 *                   |              |            |
 *                  4xx     408, 413, 429  502, 503, 504
 *
 * The whole body is read first (memory or temporary file), since its length
 * stands in the frame; then nginx's upstream machinery takes over: timeouts
 * and a client that goes away come with it. Nothing is sent a second time,
 * save a GET or HEAD that met a kept connection which meterd had closed.
 *
 * finalize_request learns why there is no answer. The upstream module says
 * 502 for a meterd that is away; ctx->status asks the error filter for 503.
 * A write of the counters API of which a byte was sent may have been applied:
 * it is 504 whatever has happened, and the body says so.
 */


#include "ngx_http_meter.h"


static void ngx_http_meter_api_read_body(ngx_http_request_t *r);
static void ngx_http_meter_api_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_meter_api_upstream_create(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx);
static ngx_int_t ngx_http_meter_api_reinit_request(ngx_http_request_t *r);
static void ngx_http_meter_api_abort_request(ngx_http_request_t *r);
static void ngx_http_meter_api_finalize_request(ngx_http_request_t *r,
    ngx_int_t rc);
static ngx_http_meter_failure_e ngx_http_meter_api_failure(
    ngx_http_meter_ctx_t *ctx, ngx_int_t rc);
static ngx_uint_t ngx_http_meter_api_in_doubt(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx);
static ngx_uint_t ngx_http_meter_api_counter_write(ngx_http_request_t *r,
    struct meter_request *message);


/* the sentence that meterd has for it, too */

static ngx_str_t  ngx_http_meter_queue_full =
    ngx_string("Service overloaded (Queue Full). Please retry later.");
static ngx_str_t  ngx_http_meter_counter_path = ngx_string("/api/counters/");


static ngx_http_meter_metric_e  ngx_http_meter_failure_metrics[] = {
    NGX_HTTP_METER_METRIC_COUNT,
    NGX_HTTP_METER_FAILURES_AWAY,
    NGX_HTTP_METER_FAILURES_TIMEOUT,
    NGX_HTTP_METER_FAILURES_PROTOCOL,
    NGX_HTTP_METER_FAILURES_ABORTED
};


ngx_int_t
ngx_http_meter_api_handler(ngx_http_request_t *r)
{
    ngx_int_t              rc;
    ngx_http_meter_ctx_t  *ctx;

    ctx = ngx_http_meter_get_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_meter_request_read(r, ctx);

    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_meter_api_upstream_create(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_read_client_request_body(r, ngx_http_meter_api_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    if (rc == NGX_AGAIN) {
        ctx->read_event_handler = r->read_event_handler;
        r->read_event_handler = ngx_http_meter_api_read_body;
    }

    return NGX_DONE;
}


ngx_http_meter_ctx_t *
ngx_http_meter_get_ctx(ngx_http_request_t *r)
{
    ngx_http_meter_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_meter_module);

    if (ctx == NULL) {
        ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_meter_ctx_t));
        if (ctx == NULL) {
            return NULL;
        }

        ctx->request = r;

        ngx_http_set_ctx(r, ctx, ngx_http_meter_module);
    }

    return ctx;
}


/*
 * nginx closes the connection without an answer when a body does not come
 * in time; a client of the API is told.
 */

static void
ngx_http_meter_api_read_body(ngx_http_request_t *r)
{
    ngx_connection_t      *c;
    ngx_http_meter_ctx_t  *ctx;

    c = r->connection;

    if (c->read->timedout) {
        ngx_log_error(NGX_LOG_INFO, c->log, NGX_ETIMEDOUT,
                      "client timed out");

        c->read->timedout = 0;
        r->keepalive = 0;
        r->read_event_handler = ngx_http_block_reading;

        ngx_http_finalize_request(r,
            ngx_http_special_response_handler(r, NGX_HTTP_REQUEST_TIME_OUT));
        return;
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_meter_module);

    ctx->read_event_handler(r);
}


static void
ngx_http_meter_api_body_handler(ngx_http_request_t *r)
{
    off_t                       size;
    ngx_chain_t                *cl;
    ngx_http_meter_ctx_t       *ctx;
    ngx_http_meter_loc_conf_t  *mlcf;

    ctx = ngx_http_get_module_ctx(r, ngx_http_meter_module);

    size = 0;

    /* a subrequest may have no body at all */

    cl = r->request_body ? r->request_body->bufs : NULL;

    for ( /* void */ ; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
    }

    if (size > (off_t) METER_BODY_SIZE_MAX) {
        ngx_http_finalize_request(r, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE);
        return;
    }

    ctx->message->body_size = size;
    ctx->number = ngx_http_meter_stream_number(r, ctx);

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_meter_module);

    if (ngx_http_meter_stream_full(mlcf->aggregator->mux, ctx)) {
        ngx_http_meter_count(r, NGX_HTTP_METER_FAILURES_FULL, 1);

        ctx->full = 1;
        ctx->reason = ngx_http_meter_queue_full;

        ngx_http_finalize_request(r, NGX_HTTP_TOO_MANY_REQUESTS);
        return;
    }

    ngx_http_upstream_init(r);
}


static ngx_int_t
ngx_http_meter_api_upstream_create(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx)
{
    ngx_http_upstream_t        *u;
    ngx_http_meter_loc_conf_t  *mlcf;

    if (ngx_http_upstream_create(r) != NGX_OK) {
        return NGX_ERROR;
    }

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_meter_module);

    u = r->upstream;

    ngx_str_set(&u->schema, "meter://");
    u->output.tag = (ngx_buf_tag_t) &ngx_http_meter_module;

    u->conf = &mlcf->upstream;

    u->create_request = ngx_http_meter_request_create;
    u->reinit_request = ngx_http_meter_api_reinit_request;
    u->process_header = ngx_http_meter_response_process_header;
    u->abort_request = ngx_http_meter_api_abort_request;
    u->finalize_request = ngx_http_meter_api_finalize_request;

    u->input_filter_init = ngx_http_meter_response_filter_init;
    u->input_filter = ngx_http_meter_response_filter;
    u->input_filter_ctx = ctx;

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_api_reinit_request(ngx_http_request_t *r)
{
    return NGX_OK;
}


static void
ngx_http_meter_api_abort_request(ngx_http_request_t *r)
{
    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "meter abort request");
}


static void
ngx_http_meter_api_finalize_request(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_upstream_t   *u;
    ngx_http_meter_ctx_t  *ctx;

    u = r->upstream;
    ctx = u->input_filter_ctx;

    ctx->failure = ngx_http_meter_api_failure(ctx, rc);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "meter finalize request: %i, failure:%d",
                   rc, (int) ctx->failure);

    if (ctx->failure == NGX_HTTP_METER_FINE) {
        return;
    }

    ngx_http_meter_count(r, ngx_http_meter_failure_metrics[ctx->failure], 1);

    if (u->header_sent || ctx->failure == NGX_HTTP_METER_ABORTED) {
        return;
    }

    if (ctx->metrics) {
        ctx->status = NGX_HTTP_OK;

    } else if (ngx_http_meter_api_in_doubt(r, ctx)) {
        ctx->unknown = 1;
        ctx->status = NGX_HTTP_GATEWAY_TIME_OUT;
        u->state->status = ctx->status;

    } else if (ctx->failure == NGX_HTTP_METER_AWAY) {
        ctx->status = NGX_HTTP_SERVICE_UNAVAILABLE;

        if (u->state) {
            u->state->status = ctx->status;
        }

    } else {
        return;
    }

    /* an error_page for nginx's own status must not be looked up */

    ctx->error_page = r->error_page;
    r->error_page = 1;
}


static ngx_http_meter_failure_e
ngx_http_meter_api_failure(ngx_http_meter_ctx_t *ctx, ngx_int_t rc)
{
    if (ctx->complete || ctx->failure != NGX_HTTP_METER_FINE) {
        return ctx->failure;
    }

    switch (rc) {

    case NGX_HTTP_BAD_GATEWAY:
        return NGX_HTTP_METER_AWAY;

    case NGX_HTTP_GATEWAY_TIME_OUT:
        return NGX_HTTP_METER_TIMEOUT;

    case NGX_HTTP_INTERNAL_SERVER_ERROR:
        return NGX_HTTP_METER_FINE;

    case NGX_OK:
        return NGX_HTTP_METER_FINE;

    default:

        /* the client is gone, or the request ends for another reason */

        return NGX_HTTP_METER_ABORTED;
    }
}


/* a write of the counters API, of which meterd may have seen something */

static ngx_uint_t
ngx_http_meter_api_in_doubt(ngx_http_request_t *r, ngx_http_meter_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    /* ngx_http_upstream_next() has noted what the connection had sent */

    if (u->state == NULL || u->state->bytes_sent == 0) {
        return 0;
    }

    return ngx_http_meter_api_counter_write(r, ctx->message);
}


static ngx_uint_t
ngx_http_meter_api_counter_write(ngx_http_request_t *r,
    struct meter_request *message)
{
    u_char  *dst, *src, *path;

    if (message->method != METER_METHOD_POST
        && message->method != METER_METHOD_PUT)
    {
        return 0;
    }

    /* as meterd will have read it; in doubt it is one */

    path = ngx_pnalloc(r->pool, message->path.size);
    if (path == NULL) {
        return 1;
    }

    dst = path;
    src = (u_char *) message->path.data;

    ngx_unescape_uri(&dst, &src, message->path.size, 0);

    return (size_t) (dst - path) >= ngx_http_meter_counter_path.len
           && ngx_memcmp(path, ngx_http_meter_counter_path.data,
                         ngx_http_meter_counter_path.len) == 0;
}
