
/*
 * ngx_http_meter_error.c - no HTML ever leaves an API location.
 *
 *   nginx's own answer -> [header filter] -> {"error":"..."} -> client
 *
 * nginx makes many answers itself: 413 before the handler runs, 405, 502,
 * 504, whatever another module says. They pass the header filter with
 * r->err_status set; there their type and length are replaced, and in the
 * body filter their body. Answers of meterd (ctx->answered), and pages that
 * an operator's error_page names, are left as they are.
 *
 * The upstream module's 502 for a meterd that is away becomes 503 here
 * (ctx->status), or 504 for a write that may have been applied. If the
 * operator has an error_page for that status, the request is finalized anew
 * with it, by a posted request: a redirect from within a filter would run
 * inside of what it replaces.
 */


#include "ngx_http_meter.h"


typedef struct {
    ngx_uint_t  status;
    ngx_str_t   sentence;
} ngx_http_meter_sentence_t;


static ngx_int_t ngx_http_meter_error_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_meter_error_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_uint_t ngx_http_meter_error_ours(ngx_http_request_t *r);
static ngx_uint_t ngx_http_meter_error_early(ngx_http_request_t *r);
static ngx_uint_t ngx_http_meter_error_has_page(ngx_http_request_t *r,
    ngx_uint_t status);
static ngx_int_t ngx_http_meter_error_render(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx);
static ngx_int_t ngx_http_meter_error_headers(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx);
static ngx_int_t ngx_http_meter_error_send(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx);
static void ngx_http_meter_error_redirect(ngx_http_request_t *r);


static ngx_http_meter_sentence_t  ngx_http_meter_sentences[] = {
    { 400, ngx_string("the request is malformed or its headers are too "
                      "large") },
    { 401, ngx_string("a valid bearer token is needed") },
    { 403, ngx_string("access is forbidden") },
    { 404, ngx_string("there is no such resource") },
    { 405, ngx_string("the method is not allowed here") },
    { 408, ngx_string("the request did not arrive in time") },
    { 409, ngx_string("the request conflicts with the state of the "
                      "resource") },
    { 410, ngx_string("the resource is gone") },
    { 411, ngx_string("a Content-Length is required") },
    { 412, ngx_string("a precondition failed") },
    { 413, ngx_string("the request body is too large") },
    { 414, ngx_string("the request URI is too long") },
    { 415, ngx_string("the media type or encoding is not supported") },
    { 416, ngx_string("the range cannot be satisfied") },
    { 421, ngx_string("the request came to the wrong server") },
    { 429, ngx_string("there are too many requests") },
    { 500, ngx_string("the server failed to handle the request") },
    { 501, ngx_string("the method is not implemented") },
    { 502, ngx_string("the aggregator sent no valid answer") },
    { 503, ngx_string("the aggregator is away, try again") },
    { 504, ngx_string("the aggregator did not answer in time") },
    { 505, ngx_string("the HTTP version is not supported") },
    { 507, ngx_string("there is no room to store the request") },
    { 0, ngx_null_string }
};


/* the body that meterd has for it, too */

static ngx_str_t  ngx_http_meter_unknown =
    ngx_string("{\"error\":\"It is not known whether the operation was "
               "applied\",\"outcome\":\"unknown\"}\n");
static ngx_str_t  ngx_http_meter_elsewhere =
    ngx_string("the resource is elsewhere");
static ngx_str_t  ngx_http_meter_failed =
    ngx_string("the request failed");


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


ngx_int_t
ngx_http_meter_error_init(ngx_conf_t *cf)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_meter_error_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_meter_error_body_filter;

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_error_header_filter(ngx_http_request_t *r)
{
    ngx_uint_t             status;
    ngx_http_meter_ctx_t  *ctx;

    if (r->err_status < NGX_HTTP_SPECIAL_RESPONSE
        || !ngx_http_meter_error_ours(r))
    {
        return ngx_http_next_header_filter(r);
    }

    ctx = ngx_http_meter_get_ctx(r);
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    if (ctx->answered) {
        return ngx_http_next_header_filter(r);
    }

    status = ctx->status;

    if (status) {
        ctx->status = 0;
        r->error_page = ctx->error_page;

        if (status != NGX_HTTP_OK
            && ngx_http_meter_error_has_page(r, status))
        {
            ctx->redirect = status;
            return NGX_OK;
        }

        r->err_status = (status == NGX_HTTP_OK) ? 0 : status;
        r->headers_out.status = status;
    }

    if (ngx_http_meter_error_render(r, ctx) != NGX_OK
        || ngx_http_meter_error_headers(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    r->headers_out.content_length_n = ctx->text.len;

    ctx->replace = 1;

    return ngx_http_next_header_filter(r);
}


static ngx_int_t
ngx_http_meter_error_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_chain_t           *cl;
    ngx_http_meter_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_meter_module);

    if (in == NULL || ctx == NULL || (!ctx->replace && !ctx->redirect)) {
        return ngx_http_next_body_filter(r, in);
    }

    for (cl = in; cl; cl = cl->next) {
        cl->buf->pos = cl->buf->last;
    }

    if (ctx->redirect) {
        r->main->count++;
        r->write_event_handler = ngx_http_meter_error_redirect;

        if (ngx_http_post_request(r, NULL) != NGX_OK) {
            return NGX_ERROR;
        }

        return NGX_DONE;
    }

    ctx->replace = 0;

    return ngx_http_meter_error_send(r, ctx);
}


static ngx_uint_t
ngx_http_meter_error_ours(ngx_http_request_t *r)
{
    ngx_http_core_srv_conf_t   *cscf;
    ngx_http_meter_loc_conf_t  *mlcf;

    cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);

    if (r->loc_conf == cscf->ctx->loc_conf) {
        return ngx_http_meter_error_early(r);
    }

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_meter_module);

    return mlcf->loc != NGX_HTTP_METER_LOC_NONE;
}


/*
 * Errors in request line and headers come before a location is chosen; the
 * path, as far as it was read, tells whether it would have been one of ours.
 * Moving a request line to a larger buffer moves r->uri_end as well, even if
 * it is not set yet: it counts only where it points into the buffer.
 */

static ngx_uint_t
ngx_http_meter_error_early(ngx_http_request_t *r)
{
    u_char                     *last;
    ngx_str_t                   uri, *name;
    ngx_uint_t                  i;
    ngx_http_meter_srv_conf_t  *mscf;

    uri = r->uri;

    if (uri.len == 0 && r->uri_start && r->header_in) {
        last = r->header_in->last;

        if (r->uri_start < r->header_in->start || r->uri_start > last) {
            return 0;
        }

        if (r->uri_end >= r->uri_start && r->uri_end < last) {
            last = r->uri_end;
        }

        uri.data = r->uri_start;
        uri.len = last - r->uri_start;
    }

    mscf = ngx_http_get_module_srv_conf(r, ngx_http_meter_module);

    name = mscf->names.elts;

    for (i = 0; i < mscf->names.nelts; i++) {
        if (uri.len >= name[i].len
            && ngx_strncmp(uri.data, name[i].data, name[i].len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_meter_error_has_page(ngx_http_request_t *r, ngx_uint_t status)
{
    ngx_uint_t                 i;
    ngx_http_err_page_t       *err_page;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (r->error_page || clcf->error_pages == NULL) {
        return 0;
    }

    err_page = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {
        if (err_page[i].status == (ngx_int_t) status) {
            return 1;
        }
    }

    return 0;
}


static ngx_int_t
ngx_http_meter_error_render(ngx_http_request_t *r, ngx_http_meter_ctx_t *ctx)
{
    u_char                     *p;
    ngx_str_t                  *sentence;
    ngx_http_meter_sentence_t  *known;

    r->headers_out.content_type_lowcase = NULL;

    if (r->headers_out.status == NGX_HTTP_OK) {
        ngx_str_set(&r->headers_out.content_type,
                    NGX_HTTP_METER_METRICS_TYPE);
        r->headers_out.content_type_len = sizeof("text/plain") - 1;

        return ngx_http_meter_status_render(r, 0, &ctx->text);
    }

    ngx_str_set(&r->headers_out.content_type, "application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;

    if (ctx->unknown) {
        ctx->text = ngx_http_meter_unknown;
        return NGX_OK;
    }

    sentence = (r->headers_out.status < NGX_HTTP_BAD_REQUEST)
               ? &ngx_http_meter_elsewhere : &ngx_http_meter_failed;

    for (known = ngx_http_meter_sentences; known->status; known++) {
        if (known->status == r->headers_out.status) {
            sentence = &known->sentence;
            break;
        }
    }

    if (ctx->reason.len) {
        sentence = &ctx->reason;
    }

    /* the sentences are ours: there is nothing in them to escape */

    p = ngx_pnalloc(r->pool, sizeof("{\"error\":\"\"}\n") - 1 + sentence->len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ctx->text.data = p;
    p = ngx_sprintf(p, "{\"error\":\"%V\"}\n", sentence);
    ctx->text.len = p - ctx->text.data;

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_error_headers(ngx_http_request_t *r, ngx_http_meter_ctx_t *ctx)
{
    ngx_str_t  value;

    if (ngx_http_meter_add_headers(r) != NGX_OK) {
        return NGX_ERROR;
    }

    if (r->headers_out.status == NGX_HTTP_SERVICE_UNAVAILABLE || ctx->full) {
        ngx_str_set(&value, "1");

        return ngx_http_meter_add_header(r, "Retry-After", &value);
    }

    if (r->headers_out.status == NGX_HTTP_UNAUTHORIZED
        && r->headers_out.www_authenticate == NULL)
    {
        ngx_str_set(&value, "Bearer");

        return ngx_http_meter_add_header(r, "WWW-Authenticate", &value);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_error_send(ngx_http_request_t *r, ngx_http_meter_ctx_t *ctx)
{
    ngx_buf_t    *b;
    ngx_chain_t   out;

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->memory = 1;
    b->pos = ctx->text.data;
    b->last = ctx->text.data + ctx->text.len;
    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_next_body_filter(r, &out);
}


static void
ngx_http_meter_error_redirect(ngx_http_request_t *r)
{
    ngx_int_t              status;
    ngx_http_meter_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_meter_module);

    status = ctx->redirect;
    ctx->redirect = 0;

    ngx_http_finalize_request(r, status);
}


ngx_int_t
ngx_http_meter_add_headers(ngx_http_request_t *r)
{
    ngx_str_t  value;

    ngx_str_set(&value, "no-store");

    if (ngx_http_meter_add_header(r, "Cache-Control", &value) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_str_set(&value, "nosniff");

    return ngx_http_meter_add_header(r, "X-Content-Type-Options", &value);
}


ngx_int_t
ngx_http_meter_add_header(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = 1;
    h->key.data = (u_char *) name;
    h->key.len = ngx_strlen(name);
    h->value = *value;

    return NGX_OK;
}
