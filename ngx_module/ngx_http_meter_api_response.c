
/*
 * ngx_http_meter_api_response.c - a RESPONSE frame becomes an HTTP answer.
 *
 *   meterd -> buffer -> frame -> status, headers
 *                    -> body, streamed through the same buffer
 *
 * The frame must fit in "meter_buffer_size"; the body may have any length
 * and takes no more memory than that. Header values are copied, since the
 * body overwrites the buffer. The connection is kept only when the last
 * byte of the answer was read and no other byte came with it.
 */


#include "ngx_http_meter.h"


static ngx_int_t ngx_http_meter_response_decode(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx, struct meter_response *response);
static const char *ngx_http_meter_response_check(
    struct meter_response *response);
static ngx_uint_t ngx_http_meter_response_plain(struct meter_str value);
static ngx_int_t ngx_http_meter_response_headers(ngx_http_request_t *r,
    struct meter_response *response);
static ngx_int_t ngx_http_meter_response_content_type(ngx_http_request_t *r,
    struct meter_str *type);
static ngx_uint_t ngx_http_meter_response_own_header(struct meter_str name);
static ngx_int_t ngx_http_meter_response_add(ngx_http_request_t *r,
    struct meter_str name, struct meter_str value);
static ngx_int_t ngx_http_meter_response_retry_after(ngx_http_request_t *r,
    uint32_t seconds);
static ngx_int_t ngx_http_meter_response_metrics(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx);
static ngx_int_t ngx_http_meter_response_bad(ngx_http_meter_ctx_t *ctx,
    const char *why);


/* headers that nginx makes, or that would change where a message ends */

static struct meter_str  ngx_http_meter_response_own[] = {
    { "cache-control", 13 },
    { "connection", 10 },
    { "content-encoding", 16 },
    { "content-length", 14 },
    { "content-type", 12 },
    { "date", 4 },
    { "keep-alive", 10 },
    { "server", 6 },
    { "te", 2 },
    { "trailer", 7 },
    { "transfer-encoding", 17 },
    { "upgrade", 7 },
    { "www-authenticate", 16 },
    { "x-content-type-options", 22 },
    { NULL, 0 }
};


ngx_int_t
ngx_http_meter_response_process_header(ngx_http_request_t *r)
{
    ngx_int_t               rc;
    uint64_t                preread;
    ngx_http_upstream_t    *u;
    struct meter_response   response;
    ngx_http_meter_ctx_t   *ctx;

    u = r->upstream;
    ctx = u->input_filter_ctx;

    rc = ngx_http_meter_response_decode(r, ctx, &response);

    if (rc != NGX_OK) {
        return rc;
    }

    ctx->body_size = response.body_size;

    preread = u->buffer.last - u->buffer.pos;

    if (preread >= ctx->body_size) {
        ctx->complete = 1;

        /* one byte more would be taken for the next answer's beginning */

        u->keepalive = (preread == ctx->body_size);

        if (!u->keepalive) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "meterd sent more than its answer");
            u->buffer.last = u->buffer.pos + ctx->body_size;
        }
    }

    u->headers_in.status_n = response.status;
    u->headers_in.content_length_n = ctx->body_size;
    u->state->status = response.status;

    if (ctx->metrics) {
        rc = ngx_http_meter_response_metrics(r, ctx);

    } else {
        rc = ngx_http_meter_response_headers(r, &response);
    }

    if (rc == NGX_OK) {
        ctx->answered = 1;
    }

    return rc;
}


static ngx_int_t
ngx_http_meter_response_decode(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx, struct meter_response *response)
{
    size_t                  used, need, room;
    ngx_buf_t              *b;
    const char             *why;
    struct meter_frame      frame;
    enum meter_frame_error  error;

    b = &r->upstream->buffer;

    switch (meter_frame_decode(b->pos, b->last - b->pos, &frame, &used, &need,
                               &error))
    {

    case METER_DECODE_MORE:
        room = b->end - b->pos;

        if (need > room) {
            return ngx_http_meter_response_bad(ctx,
                                "a head larger than \"meter_buffer_size\"");
        }

        return NGX_AGAIN;

    case METER_DECODE_BAD:
        return ngx_http_meter_response_bad(ctx, meter_frame_error_text(error));

    case METER_DECODE_OK:
        break;
    }

    if (frame.type != METER_FRAME_RESPONSE) {
        return ngx_http_meter_response_bad(ctx, "a frame that is no RESPONSE");
    }

    if (!meter_response_decode(frame.payload, response)) {
        return ngx_http_meter_response_bad(ctx, "a malformed RESPONSE");
    }

    why = ngx_http_meter_response_check(response);

    if (why) {
        return ngx_http_meter_response_bad(ctx, why);
    }

    b->pos += used;

    return NGX_OK;
}


/* meterd makes these bytes itself, but nothing is taken on trust */

static const char *
ngx_http_meter_response_check(struct meter_response *response)
{
    u_char                ch;
    size_t                i, n;
    struct meter_header  *header;

    if (response->status < NGX_HTTP_OK || response->status > 599) {
        return "an impossible status";
    }

    if (response->body_size > NGX_MAX_OFF_T_VALUE / 2) {
        return "an impossible body size";
    }

    if (!ngx_http_meter_response_plain(response->content_type)
        || !ngx_http_meter_response_plain(response->allow))
    {
        return "an invalid header value";
    }

    for (i = 0; i < response->header_count; i++) {
        header = &response->headers[i];

        if (header->name.size == 0) {
            return "an empty header name";
        }

        for (n = 0; n < header->name.size; n++) {
            ch = header->name.data[n];

            if ((ch < 'a' || ch > 'z') && (ch < '0' || ch > '9') && ch != '-')
            {
                return "an invalid header name";
            }
        }

        if (!ngx_http_meter_response_plain(header->value)) {
            return "an invalid header value";
        }
    }

    return NULL;
}


static ngx_uint_t
ngx_http_meter_response_plain(struct meter_str value)
{
    u_char  ch;
    size_t  i;

    for (i = 0; i < value.size; i++) {
        ch = value.data[i];

        if ((ch < ' ' && ch != '\t') || ch == 0x7f) {
            return 0;
        }
    }

    return 1;
}


static ngx_int_t
ngx_http_meter_response_headers(ngx_http_request_t *r,
    struct meter_response *response)
{
    size_t                i;
    ngx_str_t             bearer;
    struct meter_header  *header;

    if (ngx_http_meter_response_content_type(r, &response->content_type)
        != NGX_OK
        || ngx_http_meter_add_headers(r) != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < response->header_count; i++) {
        header = &response->headers[i];

        if (ngx_http_meter_response_own_header(header->name)) {
            continue;
        }

        if (ngx_http_meter_response_add(r, header->name, header->value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (response->retry_after_s
        && ngx_http_meter_response_retry_after(r, response->retry_after_s)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (response->allow.size
        && ngx_http_meter_response_add(r, METER_STR("allow"), response->allow)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (response->status == NGX_HTTP_UNAUTHORIZED) {
        ngx_str_set(&bearer, "Bearer");

        return ngx_http_meter_add_header(r, "WWW-Authenticate", &bearer);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_response_content_type(ngx_http_request_t *r,
    struct meter_str *type)
{
    u_char     *p, *last;
    ngx_str_t  *value;

    value = &r->headers_out.content_type;

    if (type->size == 0) {
        ngx_str_set(value, "application/json");
        r->headers_out.content_type_len = value->len;
        return NGX_OK;
    }

    value->data = ngx_pnalloc(r->pool, type->size);
    if (value->data == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(value->data, type->data, type->size);
    value->len = type->size;

    last = value->data + value->len;

    p = ngx_strlchr(value->data, last, ';');

    r->headers_out.content_type_len = (p ? p : last) - value->data;
    r->headers_out.content_type_lowcase = NULL;

    return NGX_OK;
}


static ngx_uint_t
ngx_http_meter_response_own_header(struct meter_str name)
{
    struct meter_str  *own;

    for (own = ngx_http_meter_response_own; own->size; own++) {
        if (meter_str_equal(*own, name)) {
            return 1;
        }
    }

    return 0;
}


/* adds "name: value" with the usual capitals, both copied */

static ngx_int_t
ngx_http_meter_response_add(ngx_http_request_t *r, struct meter_str name,
    struct meter_str value)
{
    u_char     *p;
    size_t      i;
    ngx_str_t   copy;

    p = ngx_pnalloc(r->pool, name.size + 1 + value.size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < name.size; i++) {
        p[i] = (i == 0 || name.data[i - 1] == '-') ? ngx_toupper(name.data[i])
                                                   : (u_char) name.data[i];
    }

    p[name.size] = '\0';

    copy.data = p + name.size + 1;
    copy.len = value.size;

    ngx_memcpy(copy.data, value.data, value.size);

    return ngx_http_meter_add_header(r, (char *) p, &copy);
}


static ngx_int_t
ngx_http_meter_response_retry_after(ngx_http_request_t *r, uint32_t seconds)
{
    ngx_str_t  value;

    value.data = ngx_pnalloc(r->pool, NGX_INT32_LEN);
    if (value.data == NULL) {
        return NGX_ERROR;
    }

    value.len = ngx_sprintf(value.data, "%uD", seconds) - value.data;

    return ngx_http_meter_add_header(r, "Retry-After", &value);
}


/*
 * The edge's counters, then meterd's. An answer other than 200 holds no
 * metrics: the edge's part is then all there is.
 */

static ngx_int_t
ngx_http_meter_response_metrics(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx)
{
    ngx_uint_t            up;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    up = (u->headers_in.status_n == NGX_HTTP_OK);

    if (ngx_http_meter_status_render(r, up, &ctx->text) != NGX_OK
        || ngx_http_meter_add_headers(r) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (!up) {
        u->headers_in.status_n = NGX_HTTP_OK;
        u->headers_in.content_length_n = 0;
        u->buffer.last = u->buffer.pos;
        ctx->body_size = 0;
        ctx->complete = 1;
    }

    u->headers_in.content_length_n += ctx->text.len;

    ngx_str_set(&r->headers_out.content_type, NGX_HTTP_METER_METRICS_TYPE);
    r->headers_out.content_type_len = sizeof("text/plain") - 1;
    r->headers_out.content_type_lowcase = NULL;

    return NGX_OK;
}


ngx_int_t
ngx_http_meter_response_filter_init(void *data)
{
    ngx_http_meter_ctx_t  *ctx = data;

    ngx_chain_t           *cl;
    ngx_http_upstream_t   *u;

    u = ctx->request->upstream;

    u->length = ctx->body_size;

    if (ctx->text.len == 0) {
        return NGX_OK;
    }

    cl = ngx_chain_get_free_buf(ctx->request->pool, &u->free_bufs);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    cl->buf->memory = 1;
    cl->buf->pos = ctx->text.data;
    cl->buf->last = ctx->text.data + ctx->text.len;
    cl->buf->tag = u->output.tag;

    u->out_bufs = cl;

    return NGX_OK;
}


ngx_int_t
ngx_http_meter_response_filter(void *data, ssize_t bytes)
{
    ngx_http_meter_ctx_t  *ctx = data;

    ngx_buf_t            *b;
    ngx_chain_t          *cl, **ll;
    ngx_http_upstream_t  *u;

    u = ctx->request->upstream;
    b = &u->buffer;

    if (bytes > u->length) {
        ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0,
                      "meterd sent more than its answer");

        u->keepalive = 0;
        bytes = u->length;

        ctx->complete = 1;

    } else if (bytes == u->length && !ctx->complete) {
        u->keepalive = 1;
        ctx->complete = 1;
    }

    if (bytes == 0) {
        return NGX_OK;
    }

    for (cl = u->out_bufs, ll = &u->out_bufs; cl; cl = cl->next) {
        ll = &cl->next;
    }

    cl = ngx_chain_get_free_buf(ctx->request->pool, &u->free_bufs);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    *ll = cl;

    cl->buf->flush = 1;
    cl->buf->memory = 1;
    cl->buf->pos = b->last;
    b->last += bytes;
    cl->buf->last = b->last;
    cl->buf->tag = u->output.tag;

    u->length -= bytes;

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_response_bad(ngx_http_meter_ctx_t *ctx, const char *why)
{
    ctx->failure = NGX_HTTP_METER_PROTOCOL;

    ngx_log_error(NGX_LOG_ERR, ctx->request->connection->log, 0,
                  "meterd sent %s", why);

    return NGX_HTTP_UPSTREAM_INVALID_HEADER;
}
