
/*
 * ngx_http_meter_mux.c - many requests at once on one connection to meterd.
 *
 *   request -> stream --+                        +--> stream -> answer
 *   request -> stream --+-> [out] -> meterd -> [in] -> stream -> answer
 *   request -> stream --+                        +--> stream -> answer
 *
 *   CLOSED -> CONNECTING -> ASKING --- MUX ---> OPEN -- DRAIN --> LEAVING
 *     ^           |           |                  |                  |
 *     +-----------+-----------+------------------+------------------+
 *
 * For the small requests of the counters API: on a connection of its own each
 * costs a write, a read and two wake-ups on either side. A stream is what the
 * upstream module takes for a connection: it sends into the mux's buffer and
 * receives the answer once that is whole, so timeouts and clients that go away
 * are dealt with as ever. What all requests of one turn of the event loop had
 * to send goes out in one write.
 *
 * While the mux is not open, requests go their own way (api_peer); so they do
 * with a meterd that does not know of muxes, which closes it. When it is lost,
 * a stream of which nothing was sent is tried on a connection of its own, and
 * any other one fails as on a connection that was lost.
 */


#include "ngx_http_meter_mux.h"


#define NGX_HTTP_METER_MUX_AGAIN    1000
#define NGX_HTTP_METER_MUX_UNKNOWN  60000
#define NGX_HTTP_METER_MUX_ROOM     65536
#define NGX_HTTP_METER_MUX_KEEP     (4 * 65536)
#define NGX_HTTP_METER_MUX_ANSWER   (64 * 1024 * 1024)


static void ngx_http_meter_mux_ask(ngx_http_meter_mux_t *mux);
static void ngx_http_meter_mux_close(ngx_http_meter_mux_t *mux);
static void ngx_http_meter_mux_lost(ngx_http_meter_mux_t *mux,
    const char *reason);
static void ngx_http_meter_mux_turn_handler(ngx_event_t *ev);
static void ngx_http_meter_mux_write_handler(ngx_event_t *wev);
static void ngx_http_meter_mux_read_handler(ngx_event_t *rev);
static const char *ngx_http_meter_mux_parse(ngx_http_meter_mux_t *mux);
static const char *ngx_http_meter_mux_frame(ngx_http_meter_mux_t *mux,
    struct meter_frame *frame, size_t *size);
static const char *ngx_http_meter_mux_answer(ngx_http_meter_mux_t *mux,
    struct meter_frame *frame, size_t *size);


ngx_http_meter_mux_t *
ngx_http_meter_mux_create(ngx_conf_t *cf, ngx_http_meter_aggregator_t *agg)
{
    ngx_http_meter_mux_t  *mux;

    mux = ngx_pcalloc(cf->pool, sizeof(ngx_http_meter_mux_t));
    if (mux == NULL) {
        return NULL;
    }

    mux->aggregator = agg;

    mux->turn.handler = ngx_http_meter_mux_turn_handler;
    mux->turn.data = mux;
    mux->turn.log = cf->cycle->log;

    return mux;
}


/* a frame without payload */

ngx_int_t
ngx_http_meter_mux_put(ngx_http_meter_mux_t *mux, ngx_uint_t type,
    uint64_t number)
{
    size_t                   start;
    struct meter_frame       frame;
    struct meter_writer      writer;
    ngx_http_meter_bytes_t  *out;

    out = &mux->out;

    if (ngx_http_meter_bytes_reserve(out, METER_FRAME_HEADER_SIZE) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_memzero(&frame, sizeof(struct meter_frame));

    frame.version = METER_PROTOCOL_MAX;
    frame.type = (uint8_t) type;
    frame.flags = METER_FRAME_CRITICAL;
    frame.seq = number;

    meter_writer_init(&writer, out->data + out->last, METER_FRAME_HEADER_SIZE);

    start = meter_frame_begin(&writer);
    meter_frame_seal(&writer, start, &frame);

    out->last += METER_FRAME_HEADER_SIZE;
    mux->given += METER_FRAME_HEADER_SIZE;

    ngx_post_event(&mux->turn, &ngx_posted_events);

    return NGX_OK;
}


/* not heard of, when meterd is away: each request finds out for itself */

void
ngx_http_meter_mux_open(ngx_http_meter_mux_t *mux)
{
    ngx_int_t               rc;
    ngx_log_t               log;
    ngx_connection_t       *c;
    ngx_peer_connection_t  *peer;

    if (ngx_exiting || ngx_terminate
        || (mux->tried
            && (ngx_msec_int_t) (mux->again - ngx_current_msec) > 0))
    {
        return;
    }

    mux->tried = 1;
    mux->again = ngx_current_msec + NGX_HTTP_METER_MUX_AGAIN;

    peer = &mux->peer;

    ngx_memzero(peer, sizeof(ngx_peer_connection_t));

    log = *ngx_cycle->log;
    log.log_level = NGX_LOG_ALERT;
    log.next = NULL;

    peer->sockaddr = mux->aggregator->addr.sockaddr;
    peer->socklen = mux->aggregator->addr.socklen;
    peer->name = &mux->aggregator->addr.name;
    peer->get = ngx_event_get_peer;
    peer->log = &log;
    peer->log_error = NGX_ERROR_INFO;

    rc = ngx_event_connect_peer(peer);

    peer->log = ngx_cycle->log;
    c = peer->connection;

    if (rc == NGX_ERROR || rc == NGX_BUSY || rc == NGX_DECLINED) {
        ngx_http_meter_mux_close(mux);
        return;
    }

    c->data = mux;
    c->idle = 1;
    c->log = ngx_cycle->log;
    c->read->log = ngx_cycle->log;
    c->write->log = ngx_cycle->log;
    c->read->handler = ngx_http_meter_mux_read_handler;
    c->write->handler = ngx_http_meter_mux_write_handler;

    mux->turn.log = ngx_cycle->log;
    mux->state = NGX_HTTP_METER_MUX_CONNECTING;

    if (rc == NGX_OK) {
        ngx_http_meter_mux_ask(mux);
    }
}


static void
ngx_http_meter_mux_ask(ngx_http_meter_mux_t *mux)
{
    mux->state = NGX_HTTP_METER_MUX_ASKING;

    if (ngx_http_meter_mux_put(mux, METER_FRAME_MUX, 0) != NGX_OK) {
        ngx_http_meter_mux_close(mux);
    }
}


static void
ngx_http_meter_mux_close(ngx_http_meter_mux_t *mux)
{
    if (mux->turn.posted) {
        ngx_delete_posted_event(&mux->turn);
    }

    if (mux->peer.connection) {
        ngx_close_connection(mux->peer.connection);
        mux->peer.connection = NULL;
    }

    ngx_http_meter_bytes_free(&mux->out);
    ngx_http_meter_bytes_free(&mux->in);

    mux->given = 0;
    mux->sent = 0;
    mux->state = NGX_HTTP_METER_MUX_CLOSED;
}


static void
ngx_http_meter_mux_lost(ngx_http_meter_mux_t *mux, const char *reason)
{
    uint64_t                  sent;
    ngx_uint_t                i;
    ngx_http_meter_stream_t  *stream;

    sent = mux->sent;

    mux->again = ngx_current_msec
                 + (mux->state == NGX_HTTP_METER_MUX_ASKING
                    ? NGX_HTTP_METER_MUX_UNKNOWN
                    : NGX_HTTP_METER_MUX_AGAIN);

    if (mux->count) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "meterd at \"%V\" %s, %ui requests have no answer",
                      mux->peer.name, reason, mux->count);
    }

    ngx_http_meter_mux_close(mux);

    for (i = 0; i < NGX_HTTP_METER_MUX_BUCKETS && mux->count; i++) {

        while (mux->streams[i]) {
            stream = mux->streams[i];

            mux->streams[i] = stream->next;
            mux->count--;

            stream->mux = NULL;
            stream->lost = 1;

            if (stream->begin >= sent) {
                stream->unsent = 1;
                stream->connection.sent = 0;
            }

            stream->read.ready = 1;
            stream->read.handler(&stream->read);
        }
    }
}


/* others have had their turn: what they had to send goes out together */

static void
ngx_http_meter_mux_turn_handler(ngx_event_t *ev)
{
    ssize_t                  n;
    ngx_connection_t        *c;
    ngx_http_meter_mux_t    *mux;
    ngx_http_meter_bytes_t  *out;

    mux = ev->data;
    out = &mux->out;
    c = mux->peer.connection;

    if (mux->state < NGX_HTTP_METER_MUX_ASKING) {
        return;
    }

    while (out->pos < out->last) {

        n = c->send(c, out->data + out->pos, out->last - out->pos);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR || n == 0) {
            ngx_http_meter_mux_lost(mux, "closed the connection");
            return;
        }

        out->pos += n;
        mux->sent += n;
    }

    /* nobody is left: what meterd has not read yet was taken back */

    if (mux->count == 0
        && (ngx_exiting || ngx_terminate
            || mux->state == NGX_HTTP_METER_MUX_LEAVING))
    {
        ngx_http_meter_mux_close(mux);
        return;
    }

    if (out->pos < out->last) {

        if (ngx_handle_write_event(c->write, 0) != NGX_OK) {
            ngx_http_meter_mux_lost(mux, "cannot be waited for");
        }

        return;
    }

    out->pos = 0;
    out->last = 0;

    if (out->room > NGX_HTTP_METER_MUX_KEEP) {
        ngx_http_meter_bytes_free(out);
    }

    if (ngx_http_meter_peer_hush(c) != NGX_OK) {
        ngx_http_meter_mux_lost(mux, "cannot be waited for");
    }
}


static void
ngx_http_meter_mux_write_handler(ngx_event_t *wev)
{
    int                    err;
    socklen_t              len;
    ngx_connection_t      *c;
    ngx_http_meter_mux_t  *mux;

    c = wev->data;
    mux = c->data;

    if (mux->state == NGX_HTTP_METER_MUX_CONNECTING) {

        err = 0;
        len = sizeof(int);

        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1
            || err)
        {
            ngx_http_meter_mux_close(mux);
            return;
        }

        ngx_http_meter_mux_ask(mux);
        return;
    }

    ngx_http_meter_mux_turn_handler(&mux->turn);
}


static void
ngx_http_meter_mux_read_handler(ngx_event_t *rev)
{
    ssize_t                  n;
    const char              *why;
    ngx_connection_t        *c;
    ngx_http_meter_mux_t    *mux;
    ngx_http_meter_bytes_t  *in;

    c = rev->data;
    mux = c->data;
    in = &mux->in;

    if (c->close) {

        /* the worker ends: no stream is left, or none may stay any longer */

        ngx_http_meter_mux_lost(mux, "is waited for no longer");
        return;
    }

    for ( ;; ) {

        if (ngx_http_meter_bytes_reserve(in, NGX_HTTP_METER_MUX_ROOM / 2)
            != NGX_OK)
        {
            ngx_http_meter_mux_lost(mux, "sent more than there is room");
            return;
        }

        n = c->recv(c, in->data + in->last, in->room - in->last);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR || n == 0) {
            ngx_http_meter_mux_lost(mux, "closed the connection");
            return;
        }

        in->last += n;

        why = ngx_http_meter_mux_parse(mux);

        if (why) {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "meterd sent %s", why);
            ngx_http_meter_mux_lost(mux, "broke the protocol");
            return;
        }
    }

    if (in->pos == in->last && in->room > NGX_HTTP_METER_MUX_KEEP) {
        ngx_http_meter_bytes_free(in);
    }

    if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        ngx_http_meter_mux_lost(mux, "cannot be waited for");
    }
}


/* every whole frame; why the bytes are none */

static const char *
ngx_http_meter_mux_parse(ngx_http_meter_mux_t *mux)
{
    size_t                   used, need;
    const char              *why;
    struct meter_frame       frame;
    enum meter_frame_error   error;
    ngx_http_meter_bytes_t  *in;

    in = &mux->in;

    while (in->pos < in->last) {

        switch (meter_frame_decode(in->data + in->pos, in->last - in->pos,
                                   &frame, &used, &need, &error))
        {

        case METER_DECODE_MORE:
            return NULL;

        case METER_DECODE_BAD:
            return meter_frame_error_text(error);

        case METER_DECODE_OK:
            break;
        }

        why = ngx_http_meter_mux_frame(mux, &frame, &used);

        if (why || used == 0) {
            return why;
        }

        in->pos += used;
    }

    in->pos = 0;
    in->last = 0;

    return NULL;
}


/* size: of the frame, then with what belongs to it; 0: that is not whole */

static const char *
ngx_http_meter_mux_frame(ngx_http_meter_mux_t *mux,
    struct meter_frame *frame, size_t *size)
{
    switch (frame->type) {

    case METER_FRAME_RESPONSE:
        return ngx_http_meter_mux_answer(mux, frame, size);

    case METER_FRAME_MUX:
        if (mux->state != NGX_HTTP_METER_MUX_ASKING) {
            return "a second MUX";
        }

        mux->state = NGX_HTTP_METER_MUX_OPEN;
        ngx_http_meter_count_here(NGX_HTTP_METER_MUXES_OPENED, 1);

        return NULL;

    case METER_FRAME_DRAIN:
        mux->state = NGX_HTTP_METER_MUX_LEAVING;
        ngx_post_event(&mux->turn, &ngx_posted_events);
        return NULL;

    default:
        if (frame->type <= METER_FRAME_CANCEL
            || (frame->flags & METER_FRAME_CRITICAL))
        {
            return "a frame that has no place here";
        }

        return NULL;
    }
}


static const char *
ngx_http_meter_mux_answer(ngx_http_meter_mux_t *mux,
    struct meter_frame *frame, size_t *size)
{
    u_char                    *p;
    size_t                     whole;
    ngx_http_meter_bytes_t    *in;
    struct meter_response      response;
    ngx_http_meter_stream_t  **at, *stream;

    if (!meter_response_decode(frame->payload, &response)) {
        return "a malformed RESPONSE";
    }

    if (response.body_size > NGX_HTTP_METER_MUX_ANSWER) {
        return "an answer that is too large";
    }

    in = &mux->in;
    whole = *size + (size_t) response.body_size;

    if (in->last - in->pos < whole) {
        *size = 0;
        return NULL;
    }

    *size = whole;

    at = ngx_http_meter_stream_find(mux, frame->seq);
    stream = *at;

    if (stream == NULL) {

        /* the request was taken back meanwhile */

        return NULL;
    }

    ngx_http_meter_stream_unlink(mux, at);

    p = ngx_pnalloc(stream->ctx->request->pool, whole);

    if (p) {
        ngx_memcpy(p, in->data + in->pos, whole);

        stream->pos = p;
        stream->last = p + whole;

    } else {
        stream->lost = 1;
    }

    stream->read.ready = 1;
    stream->read.handler(&stream->read);

    return NULL;
}
