
/*
 * ngx_http_meter_api_request.c - an HTTP request becomes a REQUEST frame.
 *
 *   headers, path -> struct meter_request -> frame | raw body
 *
 * The message borrows everything from the request. Path and arguments stay
 * percent-encoded: what a segment means is meterd's to decide. An encoded
 * body goes on as it is. Only what meterd could not see any more is refused
 * here: a header that is there twice.
 */


#include "ngx_http_meter.h"


/* tag and length of a field, and room for the integers of a message */

#define NGX_HTTP_METER_FIELD_SIZE   16
#define NGX_HTTP_METER_FIELDS_SIZE  512


typedef struct {
    ngx_str_t   name;
    size_t      offset;           /* in struct meter_request */
    ngx_flag_t  unique;
    ngx_str_t   reason;
} ngx_http_meter_request_header_t;


static ngx_int_t ngx_http_meter_request_headers(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx);
static ngx_int_t ngx_http_meter_request_header(ngx_http_meter_ctx_t *ctx,
    ngx_table_elt_t *h);
static ngx_int_t ngx_http_meter_request_path(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx);
static ngx_int_t ngx_http_meter_request_raw_path(ngx_http_request_t *r,
    size_t skip, ngx_str_t *path);
static uint8_t ngx_http_meter_request_method(ngx_http_request_t *r);
static size_t ngx_http_meter_request_size(struct meter_request *message);
static struct meter_str ngx_http_meter_str(ngx_str_t *s);


static ngx_http_meter_request_header_t  ngx_http_meter_request_known[] = {

    { ngx_string("authorization"),
      offsetof(struct meter_request, authorization), 1,
      ngx_string("the Authorization header is sent twice") },

    { ngx_string("content-type"),
      offsetof(struct meter_request, content_type), 1,
      ngx_string("the Content-Type header is sent twice") },

    { ngx_string("idempotency-key"),
      offsetof(struct meter_request, idempotency_key), 1,
      ngx_string("the Idempotency-Key header is sent twice") },

    { ngx_string("content-encoding"),
      offsetof(struct meter_request, content_encoding), 1,
      ngx_string("the Content-Encoding header is sent twice") },

    { ngx_string("accept"),
      offsetof(struct meter_request, accept), 0,
      ngx_null_string },

    { ngx_null_string, 0, 0, ngx_null_string }
};


ngx_int_t
ngx_http_meter_request_read(ngx_http_request_t *r, ngx_http_meter_ctx_t *ctx)
{
    ngx_int_t              rc;
    struct meter_request  *message;

    message = ngx_pcalloc(r->pool, sizeof(struct meter_request));
    if (message == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->message = message;

    message->method = ngx_http_meter_request_method(r);
    message->args = ngx_http_meter_str(&r->args);
    message->client_address = ngx_http_meter_str(&r->connection->addr_text);

    rc = ngx_http_meter_request_headers(r, ctx);

    if (rc != NGX_OK) {
        return rc;
    }

    if (r->headers_in.content_length_n > (off_t) METER_BODY_SIZE_MAX) {
        return NGX_HTTP_REQUEST_ENTITY_TOO_LARGE;
    }

    if (ngx_http_meter_request_path(r, ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_meter_request_size(message) > METER_FRAME_SIZE_MAX) {
        ngx_str_set(&ctx->reason, "the request headers are too large");
        return NGX_HTTP_BAD_REQUEST;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_request_headers(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx)
{
    ngx_int_t         rc;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    part = &r->headers_in.headers.part;
    h = part->elts;

    for (i = 0; /* void */; i++) {

        if (i >= part->nelts) {
            if (part->next == NULL) {
                break;
            }

            part = part->next;
            h = part->elts;
            i = 0;
        }

        rc = ngx_http_meter_request_header(ctx, &h[i]);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_request_header(ngx_http_meter_ctx_t *ctx, ngx_table_elt_t *h)
{
    struct meter_str                 *field;
    struct meter_header              *header;
    struct meter_request             *message;
    ngx_http_meter_request_header_t  *known;

    message = ctx->message;

    if (h->key.len > 3 && ngx_strncmp(h->lowcase_key, "ce-", 3) == 0) {

        if (message->header_count == METER_HEADER_COUNT_MAX) {
            ngx_str_set(&ctx->reason, "there are more than 64 ce- headers");
            return NGX_HTTP_BAD_REQUEST;
        }

        header = &message->headers[message->header_count++];

        header->name.data = (char *) h->lowcase_key;
        header->name.size = h->key.len;
        header->value = ngx_http_meter_str(&h->value);

        return NGX_OK;
    }

    for (known = ngx_http_meter_request_known; known->name.len; known++) {
        if (known->name.len == h->key.len
            && ngx_strncmp(known->name.data, h->lowcase_key, h->key.len) == 0)
        {
            break;
        }
    }

    if (known->name.len == 0) {
        return NGX_OK;
    }

    field = (struct meter_str *) ((char *) message + known->offset);

    if (field->data == NULL) {
        *field = ngx_http_meter_str(&h->value);
        return NGX_OK;
    }

    if (known->unique) {
        ctx->reason = known->reason;
        return NGX_HTTP_BAD_REQUEST;
    }

    return NGX_OK;
}


/*
 * With a part, the location's name is replaced by the part's path. The name
 * is cut off the raw path where it stands there byte by byte; a client that
 * encoded it gets the decoded rest encoded anew.
 */

static ngx_int_t
ngx_http_meter_request_path(ngx_http_request_t *r, ngx_http_meter_ctx_t *ctx)
{
    u_char                     *p;
    size_t                      skip;
    ngx_str_t                   path;
    ngx_http_meter_loc_conf_t  *mlcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_meter_module);

    if (mlcf->loc == NGX_HTTP_METER_LOC_STATUS) {
        ctx->message->method = METER_METHOD_GET;
        ctx->message->path = METER_STR("/metrics");
        ctx->metrics = 1;
        return NGX_OK;
    }

    skip = mlcf->part.len ? mlcf->location.len : 0;

    if (ngx_http_meter_request_raw_path(r, skip, &path) != NGX_OK) {
        return NGX_ERROR;
    }

    if (mlcf->part.len) {
        p = ngx_pnalloc(r->pool, mlcf->part.len + 1 + path.len);
        if (p == NULL) {
            return NGX_ERROR;
        }

        ctx->message->path.data = (char *) p;

        p = ngx_cpymem(p, mlcf->part.data, mlcf->part.len);

        if (path.len && path.data[0] != '/'
            && mlcf->location.data[mlcf->location.len - 1] == '/')
        {
            *p++ = '/';
        }

        p = ngx_cpymem(p, path.data, path.len);

        ctx->message->path.size = p - (u_char *) ctx->message->path.data;

        return NGX_OK;
    }

    ctx->message->path = ngx_http_meter_str(&path);

    if ((r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))
        && meter_str_equal(ctx->message->path, METER_STR("/metrics")))
    {
        ctx->message->method = METER_METHOD_GET;
        ctx->metrics = 1;
    }

    return NGX_OK;
}


/* the path behind its first skip bytes, which are the location's name */

static ngx_int_t
ngx_http_meter_request_raw_path(ngx_http_request_t *r, size_t skip,
    ngx_str_t *path)
{
    u_char     *p, *last;
    uintptr_t   escape;

    if (r->valid_unparsed_uri) {
        p = r->unparsed_uri.data;
        last = p + r->unparsed_uri.len;

        path->data = p;

        while (p < last && *p != '?' && *p != '#') {
            p++;
        }

        path->len = p - path->data;

        if (path->len == 0) {
            ngx_str_set(path, "/");
        }

        if (path->len >= skip
            && ngx_strncmp(path->data, r->uri.data, skip) == 0)
        {
            path->data += skip;
            path->len -= skip;
            return NGX_OK;
        }
    }

    skip = ngx_min(skip, r->uri.len);

    escape = ngx_escape_uri(NULL, r->uri.data + skip, r->uri.len - skip,
                            NGX_ESCAPE_URI);

    path->len = r->uri.len - skip + 2 * escape;

    path->data = ngx_pnalloc(r->pool, path->len);
    if (path->data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_escape_uri(path->data, r->uri.data + skip, r->uri.len - skip,
                          NGX_ESCAPE_URI);

    return NGX_OK;
}


static uint8_t
ngx_http_meter_request_method(ngx_http_request_t *r)
{
    switch (r->method) {

    case NGX_HTTP_GET:
        return METER_METHOD_GET;

    case NGX_HTTP_HEAD:
        return METER_METHOD_HEAD;

    case NGX_HTTP_POST:
        return METER_METHOD_POST;

    case NGX_HTTP_PUT:
        return METER_METHOD_PUT;

    case NGX_HTTP_PATCH:
        return METER_METHOD_PATCH;

    case NGX_HTTP_DELETE:
        return METER_METHOD_DELETE;

    default:
        return METER_METHOD_OTHER;
    }
}


ngx_int_t
ngx_http_meter_request_create(ngx_http_request_t *r)
{
    size_t                 start, size;
    ngx_buf_t             *b;
    ngx_chain_t           *cl, *body;
    struct meter_frame     frame;
    struct meter_writer    writer;
    ngx_http_upstream_t   *u;
    ngx_http_meter_ctx_t  *ctx;

    u = r->upstream;
    ctx = u->input_filter_ctx;

    size = METER_FRAME_HEADER_SIZE + ngx_http_meter_request_size(ctx->message);

    b = ngx_create_temp_buf(r->pool, size);
    if (b == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&frame, sizeof(struct meter_frame));

    frame.version = METER_PROTOCOL_MAX;
    frame.type = METER_FRAME_REQUEST;
    frame.flags = METER_FRAME_CRITICAL;
    frame.seq = ctx->number;

    meter_writer_init(&writer, b->pos, size);

    start = meter_frame_begin(&writer);
    meter_request_encode(ctx->message, &writer);
    meter_frame_seal(&writer, start, &frame);

    if (writer.failed) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "meter request does not fit in a frame of %uz bytes",
                      size);
        return NGX_ERROR;
    }

    b->last = b->pos + writer.at;

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    cl->buf = b;

    /* the buffers of the body are copied, the upstream module moves in them */

    body = u->request_bufs;
    u->request_bufs = cl;

    while (body) {
        b = ngx_alloc_buf(r->pool);
        if (b == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(b, body->buf, sizeof(ngx_buf_t));

        cl->next = ngx_alloc_chain_link(r->pool);
        if (cl->next == NULL) {
            return NGX_ERROR;
        }

        cl = cl->next;
        cl->buf = b;

        body = body->next;
    }

    b->flush = 1;
    cl->next = NULL;

    return NGX_OK;
}


/* an upper bound of the encoded message */

static size_t
ngx_http_meter_request_size(struct meter_request *message)
{
    size_t  i, size;

    size = NGX_HTTP_METER_FIELDS_SIZE
           + message->path.size
           + message->args.size
           + message->authorization.size
           + message->content_type.size
           + message->content_encoding.size
           + message->accept.size
           + message->idempotency_key.size
           + message->client_address.size;

    for (i = 0; i < message->header_count; i++) {
        size += 2 * NGX_HTTP_METER_FIELD_SIZE
                + message->headers[i].name.size
                + message->headers[i].value.size;
    }

    return size;
}


static struct meter_str
ngx_http_meter_str(ngx_str_t *s)
{
    struct meter_str  str;

    str.data = (char *) s->data;
    str.size = s->len;

    return str;
}
