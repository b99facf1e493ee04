
/*
 * ngx_http_meter_trunk.c - many requests at once on one connection to meterd.
 *
 *   request -> stream --+                        +--> stream -> answer
 *   request -> stream --+-> [out] -> meterd -> [in] -> stream -> answer
 *   request -> stream --+                        +--> stream -> answer
 *
 *   CLOSED -> CONNECTING -> ASKING -- TRUNK --> OPEN -- DRAIN --> LEAVING
 *     ^           |           |                  |                  |
 *     +-----------+-----------+------------------+------------------+
 *
 * For the small requests of the counters API: on a connection of its own each
 * costs a write, a read and two wake-ups on either side. A stream is what the
 * upstream module takes for a connection: it sends into the trunk's buffer and
 * receives the answer once that is whole, so timeouts and clients that go away
 * are dealt with as ever. What all requests of one turn of the event loop had
 * to send goes out in one write.
 *
 * While the trunk is not open, requests go their own way (api_peer); so they do
 * with a meterd that does not know of trunks, which closes it. When it is lost,
 * a stream of which nothing was sent is tried on a connection of its own, and
 * any other one fails as on a connection that was lost.
 */


#include "ngx_http_meter_trunk.h"


#define NGX_HTTP_METER_TRUNK_AGAIN    1000
#define NGX_HTTP_METER_TRUNK_UNKNOWN  60000
#define NGX_HTTP_METER_TRUNK_ROOM     65536
#define NGX_HTTP_METER_TRUNK_KEEP     (4 * 65536)
#define NGX_HTTP_METER_TRUNK_ANSWER   (64 * 1024 * 1024)


static void ngx_http_meter_trunk_ask(ngx_http_meter_trunk_t *trunk);
static void ngx_http_meter_trunk_close(ngx_http_meter_trunk_t *trunk);
static void ngx_http_meter_trunk_lost(ngx_http_meter_trunk_t *trunk,
    const char *reason);
static void ngx_http_meter_trunk_turn_handler(ngx_event_t *ev);
static void ngx_http_meter_trunk_write_handler(ngx_event_t *wev);
static void ngx_http_meter_trunk_read_handler(ngx_event_t *rev);
static const char *ngx_http_meter_trunk_parse(ngx_http_meter_trunk_t *trunk);
static const char *ngx_http_meter_trunk_frame(ngx_http_meter_trunk_t *trunk,
    struct meter_frame *frame, size_t *size);
static const char *ngx_http_meter_trunk_answer(ngx_http_meter_trunk_t *trunk,
    struct meter_frame *frame, size_t *size);


ngx_http_meter_trunk_t *
ngx_http_meter_trunk_create(ngx_conf_t *cf, ngx_http_meter_aggregator_t *agg)
{
    ngx_http_meter_trunk_t  *trunk;

    trunk = ngx_pcalloc(cf->pool, sizeof(ngx_http_meter_trunk_t));
    if (trunk == NULL) {
        return NULL;
    }

    trunk->aggregator = agg;

    trunk->turn.handler = ngx_http_meter_trunk_turn_handler;
    trunk->turn.data = trunk;
    trunk->turn.log = cf->cycle->log;

    return trunk;
}


/* a frame without payload */

ngx_int_t
ngx_http_meter_trunk_put(ngx_http_meter_trunk_t *trunk, ngx_uint_t type,
    uint64_t number)
{
    size_t                   start;
    struct meter_frame       frame;
    struct meter_writer      writer;
    ngx_http_meter_bytes_t  *out;

    out = &trunk->out;

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
    trunk->given += METER_FRAME_HEADER_SIZE;

    ngx_post_event(&trunk->turn, &ngx_posted_events);

    return NGX_OK;
}


/* not heard of, when meterd is away: each request finds out for itself */

void
ngx_http_meter_trunk_open(ngx_http_meter_trunk_t *trunk)
{
    ngx_int_t               rc;
    ngx_log_t               log;
    ngx_connection_t       *c;
    ngx_peer_connection_t  *peer;

    if (ngx_exiting || ngx_terminate
        || (trunk->tried
            && (ngx_msec_int_t) (trunk->again - ngx_current_msec) > 0))
    {
        return;
    }

    trunk->tried = 1;
    trunk->again = ngx_current_msec + NGX_HTTP_METER_TRUNK_AGAIN;

    peer = &trunk->peer;

    ngx_memzero(peer, sizeof(ngx_peer_connection_t));

    log = *ngx_cycle->log;
    log.log_level = NGX_LOG_ALERT;
    log.next = NULL;

    peer->sockaddr = trunk->aggregator->addr.sockaddr;
    peer->socklen = trunk->aggregator->addr.socklen;
    peer->name = &trunk->aggregator->addr.name;
    peer->get = ngx_event_get_peer;
    peer->log = &log;
    peer->log_error = NGX_ERROR_INFO;

    rc = ngx_event_connect_peer(peer);

    peer->log = ngx_cycle->log;
    c = peer->connection;

    if (rc == NGX_ERROR || rc == NGX_BUSY || rc == NGX_DECLINED) {
        ngx_http_meter_trunk_close(trunk);
        return;
    }

    c->data = trunk;
    c->idle = 1;
    c->log = ngx_cycle->log;
    c->read->log = ngx_cycle->log;
    c->write->log = ngx_cycle->log;
    c->read->handler = ngx_http_meter_trunk_read_handler;
    c->write->handler = ngx_http_meter_trunk_write_handler;

    trunk->turn.log = ngx_cycle->log;
    trunk->state = NGX_HTTP_METER_TRUNK_CONNECTING;

    if (rc == NGX_OK) {
        ngx_http_meter_trunk_ask(trunk);
    }
}


static void
ngx_http_meter_trunk_ask(ngx_http_meter_trunk_t *trunk)
{
    trunk->state = NGX_HTTP_METER_TRUNK_ASKING;

    if (ngx_http_meter_trunk_put(trunk, METER_FRAME_TRUNK, 0) != NGX_OK) {
        ngx_http_meter_trunk_close(trunk);
    }
}


static void
ngx_http_meter_trunk_close(ngx_http_meter_trunk_t *trunk)
{
    if (trunk->turn.posted) {
        ngx_delete_posted_event(&trunk->turn);
    }

    if (trunk->peer.connection) {
        ngx_close_connection(trunk->peer.connection);
        trunk->peer.connection = NULL;
    }

    ngx_http_meter_bytes_free(&trunk->out);
    ngx_http_meter_bytes_free(&trunk->in);

    trunk->given = 0;
    trunk->sent = 0;
    trunk->state = NGX_HTTP_METER_TRUNK_CLOSED;
}


static void
ngx_http_meter_trunk_lost(ngx_http_meter_trunk_t *trunk, const char *reason)
{
    uint64_t                  sent;
    ngx_uint_t                i;
    ngx_http_meter_stream_t  *stream;

    sent = trunk->sent;

    trunk->again = ngx_current_msec
                   + (trunk->state == NGX_HTTP_METER_TRUNK_ASKING
                      ? NGX_HTTP_METER_TRUNK_UNKNOWN
                      : NGX_HTTP_METER_TRUNK_AGAIN);

    if (trunk->count) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "meterd at \"%V\" %s, %ui requests have no answer",
                      trunk->peer.name, reason, trunk->count);
    }

    ngx_http_meter_trunk_close(trunk);

    for (i = 0; i < NGX_HTTP_METER_TRUNK_BUCKETS && trunk->count; i++) {

        while (trunk->streams[i]) {
            stream = trunk->streams[i];

            trunk->streams[i] = stream->next;
            trunk->count--;

            stream->trunk = NULL;
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
ngx_http_meter_trunk_turn_handler(ngx_event_t *ev)
{
    ssize_t                  n;
    ngx_connection_t        *c;
    ngx_http_meter_bytes_t  *out;
    ngx_http_meter_trunk_t  *trunk;

    trunk = ev->data;
    out = &trunk->out;
    c = trunk->peer.connection;

    if (trunk->state < NGX_HTTP_METER_TRUNK_ASKING) {
        return;
    }

    while (out->pos < out->last) {

        n = c->send(c, out->data + out->pos, out->last - out->pos);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR || n == 0) {
            ngx_http_meter_trunk_lost(trunk, "closed the connection");
            return;
        }

        out->pos += n;
        trunk->sent += n;
    }

    /* nobody is left: what meterd has not read yet was taken back */

    if (trunk->count == 0
        && (ngx_exiting || ngx_terminate
            || trunk->state == NGX_HTTP_METER_TRUNK_LEAVING))
    {
        ngx_http_meter_trunk_close(trunk);
        return;
    }

    if (out->pos < out->last) {

        if (ngx_handle_write_event(c->write, 0) != NGX_OK) {
            ngx_http_meter_trunk_lost(trunk, "cannot be waited for");
        }

        return;
    }

    out->pos = 0;
    out->last = 0;

    if (out->room > NGX_HTTP_METER_TRUNK_KEEP) {
        ngx_http_meter_bytes_free(out);
    }

    if (ngx_http_meter_peer_hush(c) != NGX_OK) {
        ngx_http_meter_trunk_lost(trunk, "cannot be waited for");
    }
}


static void
ngx_http_meter_trunk_write_handler(ngx_event_t *wev)
{
    int                      err;
    socklen_t                len;
    ngx_connection_t        *c;
    ngx_http_meter_trunk_t  *trunk;

    c = wev->data;
    trunk = c->data;

    if (trunk->state == NGX_HTTP_METER_TRUNK_CONNECTING) {

        err = 0;
        len = sizeof(int);

        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1
            || err)
        {
            ngx_http_meter_trunk_close(trunk);
            return;
        }

        ngx_http_meter_trunk_ask(trunk);
        return;
    }

    ngx_http_meter_trunk_turn_handler(&trunk->turn);
}


static void
ngx_http_meter_trunk_read_handler(ngx_event_t *rev)
{
    ssize_t                  n;
    const char              *why;
    ngx_connection_t        *c;
    ngx_http_meter_bytes_t  *in;
    ngx_http_meter_trunk_t  *trunk;

    c = rev->data;
    trunk = c->data;
    in = &trunk->in;

    if (c->close) {

        /* the worker ends: no stream is left, or none may stay any longer */

        ngx_http_meter_trunk_lost(trunk, "is waited for no longer");
        return;
    }

    for ( ;; ) {

        if (ngx_http_meter_bytes_reserve(in, NGX_HTTP_METER_TRUNK_ROOM / 2)
            != NGX_OK)
        {
            ngx_http_meter_trunk_lost(trunk, "sent more than there is room");
            return;
        }

        n = c->recv(c, in->data + in->last, in->room - in->last);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR || n == 0) {
            ngx_http_meter_trunk_lost(trunk, "closed the connection");
            return;
        }

        in->last += n;

        why = ngx_http_meter_trunk_parse(trunk);

        if (why) {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "meterd sent %s", why);
            ngx_http_meter_trunk_lost(trunk, "broke the protocol");
            return;
        }
    }

    if (in->pos == in->last && in->room > NGX_HTTP_METER_TRUNK_KEEP) {
        ngx_http_meter_bytes_free(in);
    }

    if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        ngx_http_meter_trunk_lost(trunk, "cannot be waited for");
    }
}


/* every whole frame; why the bytes are none */

static const char *
ngx_http_meter_trunk_parse(ngx_http_meter_trunk_t *trunk)
{
    size_t                   used, need;
    const char              *why;
    struct meter_frame       frame;
    enum meter_frame_error   error;
    ngx_http_meter_bytes_t  *in;

    in = &trunk->in;

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

        why = ngx_http_meter_trunk_frame(trunk, &frame, &used);

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
ngx_http_meter_trunk_frame(ngx_http_meter_trunk_t *trunk,
    struct meter_frame *frame, size_t *size)
{
    switch (frame->type) {

    case METER_FRAME_RESPONSE:
        return ngx_http_meter_trunk_answer(trunk, frame, size);

    case METER_FRAME_TRUNK:
        if (trunk->state != NGX_HTTP_METER_TRUNK_ASKING) {
            return "a second TRUNK";
        }

        trunk->state = NGX_HTTP_METER_TRUNK_OPEN;
        ngx_http_meter_count_here(NGX_HTTP_METER_TRUNKS_OPENED, 1);

        return NULL;

    case METER_FRAME_DRAIN:
        trunk->state = NGX_HTTP_METER_TRUNK_LEAVING;
        ngx_post_event(&trunk->turn, &ngx_posted_events);
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
ngx_http_meter_trunk_answer(ngx_http_meter_trunk_t *trunk,
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

    if (response.body_size > NGX_HTTP_METER_TRUNK_ANSWER) {
        return "an answer that is too large";
    }

    in = &trunk->in;
    whole = *size + (size_t) response.body_size;

    if (in->last - in->pos < whole) {
        *size = 0;
        return NULL;
    }

    *size = whole;

    at = ngx_http_meter_stream_find(trunk, frame->seq);
    stream = *at;

    if (stream == NULL) {

        /* the request was taken back meanwhile */

        return NULL;
    }

    ngx_http_meter_stream_unlink(trunk, at);

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
