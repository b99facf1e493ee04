
/*
 * ngx_http_meter_api_peer.c - connections to meterd, kept between requests.
 *
 *   get:  the mux, for a request that may go there; else the last used kept
 *         connection that is still silent, else a new one
 *   free: keep it after a whole answer, else close it
 *
 * A kept connection that says anything, or ends, is closed at once. Before
 * one is reused it is looked at again, so that a meterd which was restarted
 * a moment ago costs a new connection and not a failed request. Where it
 * still fails, a GET or HEAD is tried once more on a new connection, and so
 * is a request of which the mux had sent nothing; any other may have been
 * applied and is never sent again.
 *
 * At most "meter_keepalive" connections per worker and socket; the one
 * least recently used makes room. An idle one is closed after a minute.
 */


#include "ngx_http_meter.h"


#define NGX_HTTP_METER_IDLE_TIMEOUT  60000


typedef struct {
    ngx_queue_t                   queue;
    ngx_connection_t             *connection;
    ngx_http_meter_aggregator_t  *aggregator;
} ngx_http_meter_kept_t;


static ngx_int_t ngx_http_meter_peer_init(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_meter_peer_get(ngx_peer_connection_t *pc,
    void *data);
static ngx_connection_t *ngx_http_meter_peer_take(
    ngx_http_meter_aggregator_t *agg, ngx_log_t *log);
static void ngx_http_meter_peer_free(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state);
static ngx_int_t ngx_http_meter_peer_reusable(ngx_http_upstream_t *u,
    ngx_connection_t *c, ngx_uint_t state);
static void ngx_http_meter_peer_keep(ngx_http_meter_aggregator_t *agg,
    ngx_connection_t *c);
static void ngx_http_meter_peer_dummy_handler(ngx_event_t *ev);
static void ngx_http_meter_peer_idle_handler(ngx_event_t *ev);
static ngx_int_t ngx_http_meter_peer_silent(ngx_connection_t *c);
static void ngx_http_meter_peer_close(ngx_http_meter_kept_t *kept);


ngx_int_t
ngx_http_meter_peer_init_upstream(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_int_t                     i, n;
    ngx_http_meter_kept_t        *kept;
    ngx_http_meter_main_conf_t   *mmcf;
    ngx_http_meter_aggregator_t  *agg;

    agg = us->peer.data;

    us->peer.init = ngx_http_meter_peer_init;

    ngx_queue_init(&agg->cache);
    ngx_queue_init(&agg->free);

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_meter_module);

    /* the upstream module may be initialized before ours */

    n = (mmcf->keepalive == NGX_CONF_UNSET) ? NGX_HTTP_METER_KEEPALIVE
                                            : mmcf->keepalive;

    if (n == 0) {
        return NGX_OK;
    }

    agg->mux = ngx_http_meter_mux_create(cf, agg);
    if (agg->mux == NULL) {
        return NGX_ERROR;
    }

    kept = ngx_pcalloc(cf->pool, sizeof(ngx_http_meter_kept_t) * n);
    if (kept == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        kept[i].aggregator = agg;
        ngx_queue_insert_head(&agg->free, &kept[i].queue);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_peer_init(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_peer_connection_t  *pc;

    pc = &r->upstream->peer;

    pc->data = r->upstream->input_filter_ctx;
    pc->get = ngx_http_meter_peer_get;
    pc->free = ngx_http_meter_peer_free;
    pc->tries = 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_peer_get(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_meter_ctx_t  *ctx = data;

    ngx_http_meter_aggregator_t  *agg;

    agg = ctx->request->upstream->upstream->peer.data;

    pc->sockaddr = agg->addr.sockaddr;
    pc->socklen = agg->addr.socklen;
    pc->name = &agg->addr.name;

    pc->cached = 0;
    pc->connection = NULL;

    if (!ctx->fresh) {
        pc->connection = ngx_http_meter_stream_get(agg->mux, ctx);

        if (pc->connection) {
            ngx_http_meter_count(ctx->request, NGX_HTTP_METER_MUX_REQUESTS,
                                 1);
            pc->cached = 1;

            return NGX_DONE;
        }

        pc->connection = ngx_http_meter_peer_take(agg, pc->log);
    }

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                   "meter get peer: kept connection %p", pc->connection);

    if (pc->connection == NULL) {
        ngx_http_meter_count(ctx->request, NGX_HTTP_METER_CONNECTIONS_OPENED,
                             1);
        return NGX_OK;
    }

    ngx_http_meter_count(ctx->request, NGX_HTTP_METER_CONNECTIONS_REUSED, 1);

    pc->cached = 1;

    return NGX_DONE;
}


static ngx_connection_t *
ngx_http_meter_peer_take(ngx_http_meter_aggregator_t *agg, ngx_log_t *log)
{
    ngx_queue_t            *q;
    ngx_connection_t       *c;
    ngx_http_meter_kept_t  *kept;

    while (!ngx_queue_empty(&agg->cache)) {

        q = ngx_queue_head(&agg->cache);
        kept = ngx_queue_data(q, ngx_http_meter_kept_t, queue);
        c = kept->connection;

        if (ngx_http_meter_peer_silent(c) != NGX_OK) {
            ngx_http_meter_peer_close(kept);
            continue;
        }

        ngx_queue_remove(q);
        ngx_queue_insert_head(&agg->free, q);

        kept->connection = NULL;

        c->idle = 0;
        c->sent = 0;
        c->data = NULL;
        c->log = log;
        c->read->log = log;
        c->write->log = log;
        c->pool->log = log;

        if (c->read->timer_set) {
            ngx_del_timer(c->read);
        }

        return c;
    }

    return NULL;
}


static void
ngx_http_meter_peer_free(ngx_peer_connection_t *pc, void *data,
    ngx_uint_t state)
{
    ngx_http_meter_ctx_t  *ctx = data;

    ngx_uint_t                    unsent;
    ngx_http_upstream_t          *u;
    ngx_http_meter_aggregator_t  *agg;

    u = ctx->request->upstream;
    agg = u->upstream->peer.data;
    unsent = 0;

    pc->tries = 0;

    if (ctx->stream) {
        unsent = ngx_http_meter_stream_end(ctx);

        /* it is none of the system's, so it is not closed either */

        pc->connection = NULL;
    }

    if (state & NGX_PEER_FAILED) {

        /*
         * a kept connection that failed gives back its try in
         * ngx_http_upstream_next(): here alone is decided for whom
         */

        ctx->fresh = 1;

        if (!unsent && !(ctx->request->method & (NGX_HTTP_GET|NGX_HTTP_HEAD)))
        {
            pc->cached = 0;
        }

        return;
    }

    if (ngx_http_meter_peer_reusable(u, pc->connection, state) != NGX_OK) {
        return;
    }

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                   "meter free peer: keeping connection %p", pc->connection);

    ngx_http_meter_peer_keep(agg, pc->connection);

    pc->connection = NULL;
}


static ngx_int_t
ngx_http_meter_peer_reusable(ngx_http_upstream_t *u, ngx_connection_t *c,
    ngx_uint_t state)
{
    if (c == NULL
        || !u->keepalive
        || !u->request_body_sent
        || c->read->eof
        || c->read->error
        || c->read->timedout
        || c->write->error
        || c->write->timedout)
    {
        return NGX_DECLINED;
    }

    if (ngx_terminate || ngx_exiting) {
        return NGX_DECLINED;
    }

    if (ngx_http_meter_peer_hush(c) != NGX_OK) {
        return NGX_DECLINED;
    }

    return ngx_handle_read_event(c->read, 0);
}


/*
 * A unix socket tells its writer each time the other side has read: meterd
 * taking a request would wake the worker for nothing, while the answer is
 * being made.  Where a write has to wait, ngx_handle_write_event() asks again.
 */

ngx_int_t
ngx_http_meter_peer_hush(ngx_connection_t *c)
{
    if (!(ngx_event_flags & NGX_USE_CLEAR_EVENT)
        || !c->write->active
        || !c->write->ready)
    {
        return NGX_OK;
    }

    return ngx_del_event(c->write, NGX_WRITE_EVENT, NGX_CLEAR_EVENT);
}


static void
ngx_http_meter_peer_keep(ngx_http_meter_aggregator_t *agg,
    ngx_connection_t *c)
{
    ngx_queue_t            *q;
    ngx_http_meter_kept_t  *kept;

    if (ngx_queue_empty(&agg->free)) {

        if (ngx_queue_empty(&agg->cache)) {

            /* "meter_keepalive 0" */

            ngx_destroy_pool(c->pool);
            ngx_close_connection(c);
            return;
        }

        q = ngx_queue_last(&agg->cache);
        ngx_http_meter_peer_close(ngx_queue_data(q, ngx_http_meter_kept_t,
                                                 queue));
    }

    q = ngx_queue_head(&agg->free);
    ngx_queue_remove(q);
    ngx_queue_insert_head(&agg->cache, q);

    kept = ngx_queue_data(q, ngx_http_meter_kept_t, queue);

    kept->connection = c;

    c->read->delayed = 0;
    ngx_add_timer(c->read, NGX_HTTP_METER_IDLE_TIMEOUT);

    if (c->write->timer_set) {
        ngx_del_timer(c->write);
    }

    c->write->handler = ngx_http_meter_peer_dummy_handler;
    c->read->handler = ngx_http_meter_peer_idle_handler;

    c->data = kept;
    c->idle = 1;
    c->log = ngx_cycle->log;
    c->read->log = ngx_cycle->log;
    c->write->log = ngx_cycle->log;
    c->pool->log = ngx_cycle->log;

    if (c->read->ready) {
        ngx_http_meter_peer_idle_handler(c->read);
    }
}


static void
ngx_http_meter_peer_dummy_handler(ngx_event_t *ev)
{
    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, ev->log, 0, "meter dummy handler");
}


static void
ngx_http_meter_peer_idle_handler(ngx_event_t *ev)
{
    ngx_connection_t  *c;

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, ev->log, 0, "meter idle handler");

    c = ev->data;

    if (!c->close && !c->read->timedout
        && ngx_http_meter_peer_silent(c) == NGX_OK)
    {
        ev->ready = 0;

        if (ngx_handle_read_event(c->read, 0) == NGX_OK) {
            return;
        }
    }

    ngx_http_meter_peer_close(c->data);
}


/* nothing to read and not closed by the other side */

static ngx_int_t
ngx_http_meter_peer_silent(ngx_connection_t *c)
{
    int   n;
    char  buf[1];

    n = recv(c->fd, buf, 1, MSG_PEEK);

    if (n == -1 && ngx_socket_errno == NGX_EAGAIN) {
        return NGX_OK;
    }

    return NGX_DECLINED;
}


static void
ngx_http_meter_peer_close(ngx_http_meter_kept_t *kept)
{
    ngx_connection_t  *c;

    c = kept->connection;

    kept->connection = NULL;

    ngx_queue_remove(&kept->queue);
    ngx_queue_insert_head(&kept->aggregator->free, &kept->queue);

    ngx_destroy_pool(c->pool);
    ngx_close_connection(c);
}
