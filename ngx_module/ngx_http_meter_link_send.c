
/*
 * ngx_http_meter_link_send.c - frames to meterd: HELLO, DATA, PING.
 *
 *   ring --cursor--> [out: one frame] --> socket
 *
 * Whole records are copied out of the ring, so that they may be acked and
 * overwritten while the frame is on its way. One frame is made at a time,
 * one a turn of the event loop, none past the credit. A link that starts
 * again sends from the first record without ack.
 */


#include "ngx_http_meter_ring.h"


static void ngx_http_meter_link_begin(ngx_http_meter_ring_t *ring,
    struct meter_writer *out, struct meter_frame *frame, ngx_uint_t type);
static void ngx_http_meter_link_seal(ngx_http_meter_ring_t *ring,
    struct meter_writer *out, struct meter_frame *frame);
static ngx_int_t ngx_http_meter_link_fill(ngx_http_meter_ring_t *ring);
static ngx_int_t ngx_http_meter_link_flush(ngx_http_meter_ring_t *ring);


static struct meter_str  ngx_http_meter_build =
    { "ngx_http_meter_module, " NGINX_VER, sizeof("ngx_http_meter_module, "
                                                  NGINX_VER) - 1 };


void
ngx_http_meter_link_hello(ngx_http_meter_ring_t *ring)
{
    struct meter_frame           frame;
    struct meter_hello           hello;
    struct meter_writer          out;
    ngx_http_meter_link_t       *link;
    ngx_http_meter_main_conf_t  *mmcf;

    link = &ring->link;
    mmcf = ngx_http_meter_outbox_main_conf();

    ngx_memzero(&hello, sizeof(struct meter_hello));
    ngx_memcpy(hello.session, ring->outbox.header.session,
               sizeof(hello.session));

    hello.version_min = METER_PROTOCOL_MIN;
    hello.version_max = METER_PROTOCOL_MAX;
    hello.head = ring->outbox.head;
    hello.acked = ring->outbox.acked;
    hello.oldest = link->oldest;
    hello.db_epoch = ring->outbox.live->db_epoch;
    hello.pid = (uint32_t) ngx_pid;
    hello.build = ngx_http_meter_build;

    if (mmcf) {
        hello.node.data = (char *) mmcf->node.data;
        hello.node.size = mmcf->node.len;
    }

    link->version = METER_PROTOCOL_MIN;
    link->head = hello.head;

    ngx_http_meter_link_begin(ring, &out, &frame, METER_FRAME_HELLO);
    meter_hello_encode(&hello, &out);
    ngx_http_meter_link_seal(ring, &out, &frame);

    ngx_http_meter_link_push(ring);
}


/* PING and PONG; with a frame on its way meterd hears us anyhow */

void
ngx_http_meter_link_ping(ngx_http_meter_ring_t *ring, ngx_uint_t type,
    uint64_t seq)
{
    struct meter_frame   frame;
    struct meter_writer  out;

    if (ring->link.out_size) {
        return;
    }

    ngx_http_meter_link_begin(ring, &out, &frame, type);
    frame.seq = seq;
    ngx_http_meter_link_seal(ring, &out, &frame);

    ngx_http_meter_link_push(ring);
}


static void
ngx_http_meter_link_begin(ngx_http_meter_ring_t *ring,
    struct meter_writer *out, struct meter_frame *frame, ngx_uint_t type)
{
    ngx_memzero(frame, sizeof(struct meter_frame));

    frame->version = (uint8_t) ring->link.version;
    frame->type = (uint8_t) type;
    frame->session_tag = ngx_http_meter_link_tag(ring);

    if (type == METER_FRAME_HELLO || type == METER_FRAME_DATA) {
        frame->flags = METER_FRAME_CRITICAL;
    }

    meter_writer_init(out, ring->link.out, NGX_HTTP_METER_OUT_SIZE);
    (void) meter_frame_begin(out);
}


static void
ngx_http_meter_link_seal(ngx_http_meter_ring_t *ring,
    struct meter_writer *out, struct meter_frame *frame)
{
    meter_frame_seal(out, 0, frame);

    if (out->failed) {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                      "meter link: no frame of type %ui was made",
                      (ngx_uint_t) frame->type);
        return;
    }

    ring->link.out_pos = 0;
    ring->link.out_size = out->at;
}


void
ngx_http_meter_link_push(ngx_http_meter_ring_t *ring)
{
    ngx_uint_t              sent;
    ngx_connection_t       *c;
    ngx_http_meter_link_t  *link;

    link = &ring->link;
    c = link->peer.connection;

    for (sent = 0; c; sent++) {

        if (link->out_size == 0) {

            if (sent) {

                /* others come first */

                if (link->cursor.seq < ring->outbox.head
                    && link->cursor.seq <= link->limit
                    && link->state == NGX_HTTP_METER_LINK_STREAM)
                {
                    ngx_post_event(c->write, &ngx_posted_next_events);
                }

                break;
            }

            if (ngx_http_meter_link_fill(ring) != NGX_OK) {
                break;
            }
        }

        if (ngx_http_meter_link_flush(ring) == NGX_ERROR) {
            ngx_http_meter_link_lost(ring, "closed the connection", 0);
            return;
        }

        if (link->out_size) {
            break;
        }
    }

    if (c && ngx_handle_write_event(c->write, 0) != NGX_OK) {
        ngx_http_meter_link_lost(ring, "no event", 0);
    }
}


/* the next DATA; NGX_DECLINED: nothing may be sent */

static ngx_int_t
ngx_http_meter_link_fill(ngx_http_meter_ring_t *ring)
{
    struct meter_str             bytes;
    struct meter_frame           frame;
    struct meter_writer          out;
    ngx_http_meter_link_t       *link;
    struct meter_outbox_cursor   next;

    link = &ring->link;

    if (link->state != NGX_HTTP_METER_LINK_STREAM || link->paused) {
        return NGX_DECLINED;
    }

    ngx_http_meter_link_begin(ring, &out, &frame, METER_FRAME_DATA);
    frame.seq = link->cursor.seq;

    while (frame.count < METER_BATCH_EVENTS_MAX
           && link->cursor.seq <= link->limit)
    {
        next = link->cursor;

        if (!meter_outbox_next(&ring->outbox, &next, &bytes)
            || bytes.size > out.size - out.at)
        {
            break;
        }

        meter_put_bytes(&out, bytes.data, bytes.size);
        frame.count++;
        link->cursor = next;
    }

    if (frame.count == 0) {
        return NGX_DECLINED;
    }

    ngx_http_meter_link_seal(ring, &out, &frame);

    METER_CRASH_POINT("link_before_send");

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_link_flush(ngx_http_meter_ring_t *ring)
{
    ssize_t                 n;
    ngx_connection_t       *c;
    ngx_http_meter_link_t  *link;

    link = &ring->link;
    c = link->peer.connection;

    while (link->out_pos < link->out_size) {

        n = c->send(c, link->out + link->out_pos,
                    link->out_size - link->out_pos);

        if (n == NGX_AGAIN) {
            return NGX_AGAIN;
        }

        if (n == NGX_ERROR || n == 0) {
            return NGX_ERROR;
        }

        link->out_pos += n;
    }

    METER_CRASH_POINT("link_after_send");

    link->out_pos = 0;
    link->out_size = 0;

    return NGX_OK;
}
