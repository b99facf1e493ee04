
/*
 * ngx_http_meter_link.c - the connection of a ring: its states and clocks.
 *
 *            start                    connected        HELLO_ACK
 *   (none) --------> DOWN -> CONNECTING ------> HELLO ----------> STREAM
 *                     ^          |                |                 |
 *                     +-- lost: back-off 50 ms .. 2 s, half random --+
 *
 * Records wait in the ring, never here: what a link has are two buffers of
 * fixed size. A record wakes the link, which gathers for a moment, then
 * sends (link_send). What meterd says is in link_recv. While something has
 * no ack a PING goes out every second, and silence ends the connection; a
 * link that has nothing to do is silent for as long as it likes.
 *
 * No timer here keeps a worker alive: that is decided in outbox.
 */


#include "ngx_http_meter_ring.h"


#define NGX_HTTP_METER_GATHER       10
#define NGX_HTTP_METER_PING         1000
#define NGX_HTTP_METER_SILENCE      3000
#define NGX_HTTP_METER_BACKOFF_MIN  50
#define NGX_HTTP_METER_BACKOFF_MAX  2000


static void ngx_http_meter_link_connect(ngx_http_meter_ring_t *ring);
static void ngx_http_meter_link_connected(ngx_http_meter_ring_t *ring);
static void ngx_http_meter_link_close(ngx_http_meter_ring_t *ring);
static void ngx_http_meter_link_timer_handler(ngx_event_t *ev);
static void ngx_http_meter_link_beat(ngx_http_meter_ring_t *ring);
static void ngx_http_meter_link_send_handler(ngx_event_t *ev);


/* per worker: meterd's absence is told once, not by every ring */

static ngx_msec_t  ngx_http_meter_link_told;
static ngx_uint_t  ngx_http_meter_link_away;
static ngx_err_t   ngx_http_meter_link_err;     /* of a failed connect() */


ngx_int_t
ngx_http_meter_link_alloc(ngx_http_meter_ring_t *ring)
{
    ngx_http_meter_link_t  *link;

    link = &ring->link;

    link->out = ngx_palloc(ring->pool, NGX_HTTP_METER_OUT_SIZE);
    link->in = ngx_palloc(ring->pool, NGX_HTTP_METER_IN_SIZE);
    link->pending = ngx_palloc(ring->pool, NGX_HTTP_METER_PENDING
                                           * sizeof(ngx_http_meter_pending_t));

    if (link->out == NULL || link->in == NULL || link->pending == NULL) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


void
ngx_http_meter_link_start(ngx_http_meter_ring_t *ring)
{
    ngx_http_meter_link_t  *link;

    link = &ring->link;

    if (link->timer.handler) {
        return;
    }

    link->timer.handler = ngx_http_meter_link_timer_handler;
    link->timer.data = ring;
    link->timer.log = ngx_cycle->log;
    link->timer.cancelable = 1;

    link->send.handler = ngx_http_meter_link_send_handler;
    link->send.data = ring;
    link->send.log = ngx_cycle->log;
    link->send.cancelable = 1;

    link->state = NGX_HTTP_METER_LINK_DOWN;
    link->failures = 0;

    ngx_add_timer(&link->timer, 1);
}


void
ngx_http_meter_link_stop(ngx_http_meter_ring_t *ring)
{
    ngx_http_meter_link_close(ring);

    ring->link.timer.handler = NULL;
}


static void
ngx_http_meter_link_close(ngx_http_meter_ring_t *ring)
{
    ngx_http_meter_link_t  *link;

    link = &ring->link;

    if (link->timer.timer_set) {
        ngx_del_timer(&link->timer);
    }

    if (link->send.timer_set) {
        ngx_del_timer(&link->send);
    }

    if (link->peer.connection) {
        ngx_close_connection(link->peer.connection);
        link->peer.connection = NULL;
    }

    link->state = NGX_HTTP_METER_LINK_DOWN;
    link->out_pos = 0;
    link->out_size = 0;
    link->in_size = 0;
    link->paused = 0;
    link->gap = 0;
}


static void
ngx_http_meter_link_connect(ngx_http_meter_ring_t *ring)
{
    ngx_int_t                     rc;
    ngx_log_t                     log;
    ngx_connection_t             *c;
    ngx_http_meter_link_t        *link;
    ngx_http_meter_main_conf_t   *mmcf;
    ngx_http_meter_aggregator_t  *agg;

    mmcf = ngx_http_meter_outbox_main_conf();

    if (mmcf == NULL) {
        return;
    }

    link = &ring->link;
    agg = mmcf->outbox->aggregator;

    ngx_memzero(&link->peer, sizeof(ngx_peer_connection_t));

    /* an absent meterd is told by link_lost, at its own level and rate */

    log = *ngx_cycle->log;
    log.log_level = NGX_LOG_ALERT;
    log.next = NULL;

    link->peer.sockaddr = agg->addr.sockaddr;
    link->peer.socklen = agg->addr.socklen;
    link->peer.name = &agg->addr.name;
    link->peer.get = ngx_event_get_peer;
    link->peer.log = &log;
    link->peer.log_error = NGX_ERROR_INFO;

    ngx_set_errno(0);

    rc = ngx_event_connect_peer(&link->peer);

    link->peer.log = ngx_cycle->log;
    c = link->peer.connection;

    if (rc == NGX_ERROR || rc == NGX_BUSY || rc == NGX_DECLINED) {
        ngx_http_meter_link_err = ngx_errno;
        ngx_http_meter_link_lost(ring, "cannot connect", 0);
        ngx_http_meter_link_err = 0;
        return;
    }

    c->data = ring;
    c->log = ngx_cycle->log;
    c->read->log = ngx_cycle->log;
    c->write->log = ngx_cycle->log;
    c->read->handler = ngx_http_meter_link_read_handler;
    c->write->handler = ngx_http_meter_link_write_handler;

    link->state = NGX_HTTP_METER_LINK_CONNECTING;
    link->heard = ngx_current_msec;

    ngx_add_timer(&link->timer, NGX_HTTP_METER_SILENCE);

    if (rc == NGX_OK) {
        ngx_http_meter_link_connected(ring);
    }
}


static void
ngx_http_meter_link_connected(ngx_http_meter_ring_t *ring)
{
    ngx_http_meter_link_t  *link;

    link = &ring->link;

    link->state = NGX_HTTP_METER_LINK_HELLO;
    link->pinged = ngx_current_msec;

    ngx_add_timer(&link->timer, NGX_HTTP_METER_PING);

    ngx_http_meter_link_hello(ring);
}


/* HELLO was answered */

void
ngx_http_meter_link_opened(ngx_http_meter_ring_t *ring)
{
    ngx_http_meter_link_t  *link;

    link = &ring->link;

    link->state = NGX_HTTP_METER_LINK_STREAM;
    link->failures = 0;

    ngx_http_meter_count_here(NGX_HTTP_METER_LINKS_OPENED, 1);

    if (ngx_http_meter_link_away) {
        ngx_http_meter_link_away = 0;

        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "meterd at \"%V\" is back", link->peer.name);
    }
}


void
ngx_http_meter_link_lost(ngx_http_meter_ring_t *ring, const char *reason,
    ngx_msec_t after)
{
    ngx_msec_t              delay;
    ngx_http_meter_link_t  *link;

    link = &ring->link;

    ngx_http_meter_link_close(ring);

    if (reason) {
        ngx_http_meter_count_here(NGX_HTTP_METER_LINK_FAILURES, 1);

        if (ngx_http_meter_rarely(&ngx_http_meter_link_told)) {
            ngx_http_meter_link_away = 1;

            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log,
                          ngx_http_meter_link_err,
                          "meterd at \"%V\" is away (%s), records wait in "
                          "the outbox", link->peer.name, reason);
        }
    }

    delay = after;

    if (delay == 0) {
        delay = NGX_HTTP_METER_BACKOFF_MIN << ngx_min(link->failures, 6);
        delay = ngx_min(delay, NGX_HTTP_METER_BACKOFF_MAX);
        delay = delay / 2 + ngx_random() % delay;

        link->failures++;
    }

    ngx_add_timer(&link->timer, delay);
}


static void
ngx_http_meter_link_timer_handler(ngx_event_t *ev)
{
    ngx_http_meter_ring_t  *ring;

    ring = ev->data;

    switch (ring->link.state) {

    case NGX_HTTP_METER_LINK_DOWN:
        ngx_http_meter_link_connect(ring);
        break;

    case NGX_HTTP_METER_LINK_CONNECTING:
        ngx_http_meter_link_lost(ring, "does not accept", 0);
        break;

    default: /* NGX_HTTP_METER_LINK_HELLO, NGX_HTTP_METER_LINK_STREAM */
        ngx_http_meter_link_beat(ring);
    }
}


static void
ngx_http_meter_link_beat(ngx_http_meter_ring_t *ring)
{
    ngx_http_meter_link_t  *link;

    link = &ring->link;

    if (!ngx_http_meter_ring_unsent(ring)) {
        return;
    }

    if (ngx_current_msec - link->heard >= NGX_HTTP_METER_SILENCE) {
        ngx_http_meter_link_lost(ring, "silent", 0);
        return;
    }

    ngx_add_timer(&link->timer, NGX_HTTP_METER_PING);

    link->pinged = ngx_current_msec;
    ngx_http_meter_link_ping(ring, METER_FRAME_PING, 0);
}


/* on the way of every record */

void
ngx_http_meter_link_wake(ngx_http_meter_ring_t *ring)
{
    ngx_http_meter_link_t  *link;

    ngx_http_meter_outbox_hold();

    link = &ring->link;

    if (link->state < NGX_HTTP_METER_LINK_HELLO) {
        return;
    }

    if (!link->timer.timer_set) {

        /* it was not to be expected that anything is heard before */

        link->heard = ngx_current_msec;
        ngx_add_timer(&link->timer, NGX_HTTP_METER_PING);
    }

    if (link->state == NGX_HTTP_METER_LINK_STREAM
        && link->out_size == 0
        && !link->send.timer_set)
    {
        ngx_add_timer(&link->send, NGX_HTTP_METER_GATHER);
    }
}


static void
ngx_http_meter_link_send_handler(ngx_event_t *ev)
{
    ngx_http_meter_link_push(ev->data);
}


void
ngx_http_meter_link_write_handler(ngx_event_t *wev)
{
    int                     err;
    socklen_t               len;
    ngx_connection_t       *c;
    ngx_http_meter_ring_t  *ring;

    c = wev->data;
    ring = c->data;

    if (ring->link.state == NGX_HTTP_METER_LINK_CONNECTING) {

        err = 0;
        len = sizeof(int);

        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len)
            == -1
            || err)
        {
            ngx_http_meter_link_lost(ring, "cannot connect", 0);
            return;
        }

        ngx_http_meter_link_connected(ring);
        return;
    }

    ngx_http_meter_link_push(ring);
}


/* too many wait: the zone keeps it as one that is always forwarded */

void
ngx_http_meter_link_pending(ngx_http_meter_ring_t *ring, uint64_t seq,
    size_t index)
{
    ngx_http_meter_link_t     *link;
    ngx_http_meter_pending_t  *pending;

    link = &ring->link;

    if (link->pending_head - link->pending_tail == NGX_HTTP_METER_PENDING) {
        return;
    }

    pending = &link->pending[link->pending_head++
                             & (NGX_HTTP_METER_PENDING - 1)];
    pending->seq = seq;
    pending->index = index;
}


uint64_t
ngx_http_meter_link_tag(ngx_http_meter_ring_t *ring)
{
    struct meter_reader  reader;

    meter_reader_init(&reader, ring->outbox.header.session, sizeof(uint64_t));

    return meter_get_u64(&reader);
}
