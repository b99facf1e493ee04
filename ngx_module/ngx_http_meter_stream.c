
/*
 * ngx_http_meter_stream.c - a request on the mux.
 *
 *   upstream module -> send_chain -> [mux->out]
 *   upstream module <- recv <- [answer, whole] <- mux
 *
 * A stream is what the upstream module takes for a connection. It lives in the
 * request's pool and ends with peer.free, as every connection of an upstream
 * does. One without an answer is in the mux's table by its number; when it
 * ends there, meterd is told (CANCEL), and an answer that was already on its
 * way finds nobody.
 */


#include "ngx_http_meter_mux.h"


static ngx_chain_t *ngx_http_meter_stream_send_chain(ngx_connection_t *c,
    ngx_chain_t *in, off_t limit);
static ssize_t ngx_http_meter_stream_recv(ngx_connection_t *c, u_char *buf,
    size_t size);


static struct meter_str  ngx_http_meter_stream_path =
    { "/api/counters/", sizeof("/api/counters/") - 1 };

static uint64_t  ngx_http_meter_stream_last;     /* number, of this worker */


/* a small request, with its body in memory, that has a small answer */

uint64_t
ngx_http_meter_stream_number(ngx_http_request_t *r, ngx_http_meter_ctx_t *ctx)
{
    struct meter_request       *message;
    ngx_http_meter_loc_conf_t  *mlcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_meter_module);
    message = ctx->message;

    if (mlcf->aggregator->mux == NULL
        || !(ngx_event_flags & NGX_USE_CLEAR_EVENT)
        || message->body_size > METER_MUX_BODY_MAX
        || (r->request_body && r->request_body->temp_file)
        || message->path.size < ngx_http_meter_stream_path.size
        || ngx_memcmp(message->path.data, ngx_http_meter_stream_path.data,
                      ngx_http_meter_stream_path.size)
           != 0)
    {
        return 0;
    }

    return ++ngx_http_meter_stream_last;
}


/* meterd does not keep up: it would not read a connection either */

ngx_uint_t
ngx_http_meter_stream_full(ngx_http_meter_mux_t *mux,
    ngx_http_meter_ctx_t *ctx)
{
    return ctx->number != 0
           && mux->state == NGX_HTTP_METER_MUX_OPEN
           && mux->out.last - mux->out.pos > NGX_HTTP_METER_MUX_HOLD;
}


ngx_connection_t *
ngx_http_meter_stream_get(ngx_http_meter_mux_t *mux,
    ngx_http_meter_ctx_t *ctx)
{
    ngx_connection_t          *c;
    ngx_http_meter_stream_t  **at, *stream;

    if (ctx->number == 0) {
        return NULL;
    }

    if (mux->state == NGX_HTTP_METER_MUX_CLOSED) {
        ngx_http_meter_mux_open(mux);
    }

    if (mux->state != NGX_HTTP_METER_MUX_OPEN) {
        return NULL;
    }

    stream = ngx_pcalloc(ctx->request->pool, sizeof(ngx_http_meter_stream_t));
    if (stream == NULL) {
        return NULL;
    }

    stream->mux = mux;
    stream->ctx = ctx;
    stream->begin = mux->given;

    at = ngx_http_meter_stream_find(mux, ctx->number);

    *at = stream;
    mux->count++;
    mux->peer.connection->idle = 0;

    /* active, and never added: nothing is asked of the event module */

    c = &stream->connection;

    c->fd = mux->peer.connection->fd;
    c->number = mux->peer.connection->number;
    c->pool = ctx->request->pool;
    c->log = ctx->request->connection->log;
    c->read = &stream->read;
    c->write = &stream->write;
    c->recv = ngx_http_meter_stream_recv;
    c->send_chain = ngx_http_meter_stream_send_chain;

    stream->read.data = c;
    stream->read.log = c->log;
    stream->read.active = 1;

    stream->write.data = c;
    stream->write.log = c->log;
    stream->write.write = 1;
    stream->write.active = 1;
    stream->write.ready = 1;

    ctx->stream = stream;

    return c;
}


/* the request is through with it; not answered: meterd need not go on */

ngx_uint_t
ngx_http_meter_stream_end(ngx_http_meter_ctx_t *ctx)
{
    ngx_http_meter_mux_t     *mux;
    ngx_http_meter_stream_t  *stream;

    stream = ctx->stream;
    mux = stream->mux;

    ctx->stream = NULL;

    if (stream->read.timer_set) {
        ngx_del_timer(&stream->read);
    }

    if (stream->write.timer_set) {
        ngx_del_timer(&stream->write);
    }

    if (stream->read.posted) {
        ngx_delete_posted_event(&stream->read);
    }

    if (stream->write.posted) {
        ngx_delete_posted_event(&stream->write);
    }

    if (mux) {
        ngx_http_meter_stream_unlink(mux,
            ngx_http_meter_stream_find(mux, ctx->number));

        /* not while a lost mux ends its streams: one may end another */

        if (mux->peer.connection) {
            (void) ngx_http_meter_mux_put(mux, METER_FRAME_CANCEL,
                                          ctx->number);
        }
    }

    return stream->unsent;
}


static ngx_chain_t *
ngx_http_meter_stream_send_chain(ngx_connection_t *c, ngx_chain_t *in,
    off_t limit)
{
    size_t                    size;
    ngx_chain_t              *cl;
    ngx_http_meter_mux_t     *mux;
    ngx_http_meter_bytes_t   *out;
    ngx_http_meter_stream_t  *stream;

    stream = (ngx_http_meter_stream_t *) c;
    mux = stream->mux;

    if (mux == NULL) {
        return NGX_CHAIN_ERROR;
    }

    size = 0;

    for (cl = in; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
    }

    out = &mux->out;

    if (ngx_http_meter_bytes_reserve(out, size) != NGX_OK) {
        return NGX_CHAIN_ERROR;
    }

    if (c->sent == 0) {
        stream->begin = mux->given;
    }

    for (cl = in; cl; cl = cl->next) {
        size = ngx_buf_size(cl->buf);

        ngx_memcpy(out->data + out->last, cl->buf->pos, size);

        out->last += size;
        mux->given += size;
        c->sent += size;
        cl->buf->pos += size;
    }

    ngx_post_event(&mux->turn, &ngx_posted_events);

    return NULL;
}


static ssize_t
ngx_http_meter_stream_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    ngx_http_meter_stream_t  *stream;

    stream = (ngx_http_meter_stream_t *) c;

    size = ngx_min(size, (size_t) (stream->last - stream->pos));

    if (size == 0) {

        if (stream->lost) {
            c->read->eof = 1;
            return 0;
        }

        c->read->ready = 0;
        return NGX_AGAIN;
    }

    ngx_memcpy(buf, stream->pos, size);

    stream->pos += size;

    if (stream->pos == stream->last) {
        c->read->ready = 0;
    }

    return size;
}


ngx_http_meter_stream_t **
ngx_http_meter_stream_find(ngx_http_meter_mux_t *mux, uint64_t number)
{
    ngx_http_meter_stream_t  **at;

    at = &mux->streams[number % NGX_HTTP_METER_MUX_BUCKETS];

    while (*at && (*at)->ctx->number != number) {
        at = &(*at)->next;
    }

    return at;
}


void
ngx_http_meter_stream_unlink(ngx_http_meter_mux_t *mux,
    ngx_http_meter_stream_t **at)
{
    ngx_http_meter_stream_t  *stream;

    stream = *at;

    *at = stream->next;
    stream->mux = NULL;

    if (--mux->count || mux->peer.connection == NULL) {
        return;
    }

    mux->peer.connection->idle = 1;

    if (ngx_exiting || ngx_terminate
        || mux->state == NGX_HTTP_METER_MUX_LEAVING)
    {
        ngx_post_event(&mux->turn, &ngx_posted_events);
    }
}
