
/*
 * ngx_http_meter_ring_open.c - from a locked file to a ring at work.
 *
 *   fill: blocks -> touch: pages of slots and cells -> find: a ring?
 *     -> verify: records -> settle: what a dead owner left
 *
 * Each call does one portion, so that a worker can serve its clients between
 * them. Until the last one the file is what it was.
 */


#include "ngx_http_meter_ring.h"


#define NGX_HTTP_METER_FILL     (1024 * 1024)
#define NGX_HTTP_METER_PORTION  (256 * 1024)
#define NGX_HTTP_METER_AHEAD    (1024 * 1024)
#define NGX_HTTP_METER_PATIENCE 200     /* turns, of a millisecond */


static ngx_int_t ngx_http_meter_ring_fill(ngx_http_meter_ring_t *ring,
    ngx_log_t *log);
static ngx_int_t ngx_http_meter_ring_read(ngx_http_meter_ring_t *ring,
    size_t at);
static u_char *ngx_http_meter_ring_missing_page(u_char *map, size_t size);


static ngx_msec_t  ngx_http_meter_ring_full;


ngx_int_t
ngx_http_meter_ring_open(ngx_http_meter_ring_t *ring)
{
    ngx_int_t   rc;
    ngx_log_t  *log;

    log = ngx_cycle->log;

    if (ring->filled < ring->outbox.size) {
        return ngx_http_meter_ring_fill(ring, log);
    }

    if (ring->touched < ring->front) {
        rc = ngx_http_meter_ring_touch(ring);
        return rc == NGX_OK ? NGX_AGAIN : rc;
    }

    if (!ring->found) {

        if (ngx_http_meter_ring_find(ring, log) != NGX_OK) {
            return NGX_ERROR;
        }

        ring->found = 1;
    }

    if (ngx_http_meter_ring_read(ring, ring->outbox.header.record_offset
                                       + ring->outbox.verified.offset)
        != NGX_OK)
    {
        return NGX_BUSY;
    }

    if (meter_outbox_verify(&ring->outbox, NGX_HTTP_METER_PORTION,
                            &ring->report))
    {
        return NGX_AGAIN;
    }

    if (ngx_http_meter_ring_settle(ring, log) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ring->temp) {

        if (rename((char *) ring->temp, (char *) ring->path) == -1) {
            return NGX_ERROR;
        }

        ring->temp = NULL;
    }

    (void) madvise(ring->outbox.map, ring->outbox.size, MADV_NORMAL);

    return NGX_OK;
}


/* now, and not page by page while requests wait */

ngx_int_t
ngx_http_meter_ring_touch(ngx_http_meter_ring_t *ring)
{
    size_t            end;
    volatile u_char  *map;

    map = ring->outbox.map;
    end = ngx_min(ring->touched + NGX_HTTP_METER_PORTION, ring->outbox.size);

    if (ngx_http_meter_ring_read(ring, ring->touched) != NGX_OK) {
        return NGX_BUSY;
    }

    while (ring->touched < end) {
        (void) map[ring->touched];
        ring->touched += ngx_min(ngx_pagesize, end - ring->touched);
    }

    if (end < ring->outbox.size) {
        return NGX_AGAIN;
    }

    (void) madvise(ring->outbox.map, ring->outbox.size, MADV_NORMAL);

    return NGX_OK;
}


/*
 * Whether a portion is in memory: a page that is not would stop the whole
 * worker until the disk has brought it. The disk is asked, and others are
 * served meanwhile; for some turns, then we wait for it.
 */

static ngx_int_t
ngx_http_meter_ring_read(ngx_http_meter_ring_t *ring, size_t at)
{
    u_char  *missing;
    size_t   size;

    /* on its own account the kernel may read megabytes for one page */

    (void) madvise(ring->outbox.map, ring->outbox.size, MADV_RANDOM);

    at &= ~((size_t) ngx_pagesize - 1);
    size = ngx_min(NGX_HTTP_METER_PORTION, ring->outbox.size - at);

    missing = ngx_http_meter_ring_missing_page(ring->outbox.map + at, size);

    if (missing && !ring->hurry && !ring->memory) {

        (void) madvise(missing, ngx_min(NGX_HTTP_METER_AHEAD,
                                        ring->outbox.map + ring->outbox.size
                                        - missing),
                       MADV_WILLNEED);

        if (ngx_http_meter_ring_missing_page(missing, ring->outbox.map + at
                                                      + size - missing)
            && ++ring->waited < NGX_HTTP_METER_PATIENCE)
        {
            return NGX_BUSY;
        }
    }

    ring->waited = 0;

    return NGX_OK;
}


/* NULL: there is none, or the kernel does not tell */

static u_char *
ngx_http_meter_ring_missing_page(u_char *map, size_t size)
{
    u_char  pages[NGX_HTTP_METER_PORTION / 4096];
    size_t  i;

    if (mincore(map, size, pages) == -1) {
        return NULL;
    }

    for (i = 0; i < size; i += ngx_pagesize) {

        if (!(pages[i / ngx_pagesize] & 1)) {
            return map + i;
        }
    }

    return NULL;
}


static ngx_int_t
ngx_http_meter_ring_fill(ngx_http_meter_ring_t *ring, ngx_log_t *log)
{
    size_t     n;
    ngx_err_t  err;

    n = ngx_min(NGX_HTTP_METER_FILL, ring->outbox.size - ring->filled);

    /* whatever the umask: meterd is of the same group */

    if (ring->filled == 0 && fchmod(ring->fd, 0660) == -1) {
        err = ngx_errno;

    } else {
        err = posix_fallocate(ring->fd, ring->filled, n);
    }

    if (err == 0) {
        ring->filled += n;
        return NGX_AGAIN;
    }

    if (ngx_http_meter_rarely(&ngx_http_meter_ring_full)) {
        ngx_log_error(NGX_LOG_CRIT, log, err,
                      "no room for a ring of %uz bytes in \"%s\"",
                      ring->outbox.size, ring->temp);
    }

    return NGX_ERROR;
}
