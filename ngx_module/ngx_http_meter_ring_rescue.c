
/*
 * ngx_http_meter_ring_rescue.c - a ring that was removed under its owner.
 *
 *   is_gone -> rescue -> ring-Y, whole, at the same place in memory
 *      |
 *      +-> cannot be: sent while this process lives, counted when it ends
 */


#include "ngx_http_meter_ring.h"

#include <sys/mman.h>


static ngx_int_t ngx_http_meter_ring_copy(ngx_http_meter_ring_t *ring,
    ngx_fd_t fd, u_char *temp, u_char *path);
static uint64_t ngx_http_meter_ring_waiting(struct meter_outbox_live *live);


static ngx_msec_t  ngx_http_meter_ring_full;


/* what is at stake in a ring that is gone is lost now, and no part of it */

void
ngx_http_meter_ring_count(ngx_http_meter_ring_t *ring,
    ngx_http_meter_retired_t *retired)
{
    uint64_t                     waiting, untold;
    ngx_uint_t                   i;
    struct meter_outbox_live    *live;
    struct meter_outbox_counts   counts;

    live = ring->outbox.live;

    counts.seen = live->counts.seen + live->past.seen;
    counts.filtered = live->counts.filtered + live->past.filtered;
    counts.lost = live->counts.lost + live->past.lost;
    counts.recorded = live->counts.recorded + live->past.recorded;

    if (ring->gone) {
        waiting = ngx_http_meter_ring_waiting(live);
        untold = live->loss.loss.count;

        ngx_http_meter_losses_add(ngx_http_meter_ring_stake(ring), 0);

        counts.seen -= waiting + live->counts.open + untold;
        counts.recorded -= waiting;
        counts.lost -= untold;
    }

    (void) ngx_atomic_fetch_add(&retired->seen, counts.seen);
    (void) ngx_atomic_fetch_add(&retired->filtered, counts.filtered);
    (void) ngx_atomic_fetch_add(&retired->lost, counts.lost);
    (void) ngx_atomic_fetch_add(&retired->recorded, counts.recorded);

    for (i = 0; i < METER_VERDICT_COUNT; i++) {
        (void) ngx_atomic_fetch_add(&retired->verdicts[i],
                               live->verdicts[i] + live->past_verdicts[i]);
    }
}


/* requests in records without a verdict */

static uint64_t
ngx_http_meter_ring_waiting(struct meter_outbox_live *live)
{
    uint64_t    told;
    ngx_uint_t  i;

    told = 0;

    for (i = 0; i < METER_VERDICT_COUNT; i++) {
        told += live->verdicts[i];
    }

    return (live->counts.recorded > told) ? live->counts.recorded - told : 0;
}


uint64_t
ngx_http_meter_ring_stake(ngx_http_meter_ring_t *ring)
{
    uint64_t                   n;
    ngx_uint_t                 i;
    struct meter_slots        *slots;
    struct meter_outbox_live  *live;

    live = ring->outbox.live;
    slots = &ring->outbox.slots;

    n = ngx_http_meter_ring_waiting(live) + live->counts.open
        + live->loss.loss.count;

    for (i = 0; i < slots->count; i++) {
        n += (slots->items[i].state == METER_SLOT_ANSWERED);
    }

    return n;
}


ngx_uint_t
ngx_http_meter_ring_is_gone(ngx_http_meter_ring_t *ring)
{
    ngx_file_info_t  fi, named;

    if (lstat((char *) ring->path, &named) == -1) {
        return ngx_errno == NGX_ENOENT || ngx_errno == NGX_ENOTDIR;
    }

    return ngx_fd_info(ring->fd, &fi) != NGX_FILE_ERROR
           && (fi.st_dev != named.st_dev || fi.st_ino != named.st_ino);
}


ngx_int_t
ngx_http_meter_ring_rescue(ngx_http_meter_ring_t *ring, ngx_str_t *dir,
    ngx_log_t *log)
{
    u_char    *name, path[NGX_MAX_PATH], temp[NGX_MAX_PATH];
    size_t     len;
    ngx_fd_t   fd;

    /* whoever settles losses must find it under the name it had */

    if (ngx_http_meter_losses_ask(ring)) {
        return NGX_AGAIN;
    }

    fd = ngx_http_meter_ring_temp(dir, temp, path, log);

    if (fd == NGX_INVALID_FILE) {
        return NGX_ERROR;
    }

    len = ngx_strlen(path) + 1;
    name = ngx_pnalloc(ring->pool, len);

    if (name == NULL
        || ngx_http_meter_ring_begin(fd) != NGX_OK
        || ngx_http_meter_ring_copy(ring, fd, temp, path) != NGX_OK)
    {
        (void) unlink((char *) temp);
        (void) close(fd);
        return NGX_ERROR;
    }

    ngx_log_error(NGX_LOG_NOTICE, log, 0, "ring \"%s\" goes on as \"%s\"",
                  ring->path, path);

    ngx_memcpy(name, path, len);

    ring->path = name;

    ngx_http_meter_count_here(NGX_HTTP_METER_RESCUED, 1);

    return NGX_OK;
}


/*
 * Nothing is stored between the copy and the new map, which takes the place of
 * the old one: pointers into it stay good. A file that was only moved away
 * must not be found later with the same records: its first page goes.
 */

static ngx_int_t
ngx_http_meter_ring_copy(ngx_http_meter_ring_t *ring, ngx_fd_t fd,
    u_char *temp, u_char *path)
{
    void                 *map;
    size_t                size;
    ngx_err_t             err;
    static const u_char   zeros[METER_RING_HEADER_SIZE];

    size = ring->outbox.size;

    /* whatever the umask: meterd is of the same group */

    err = (fchmod(fd, 0660) == -1) ? ngx_errno : posix_fallocate(fd, 0, size);

    if (err) {
        if (ngx_http_meter_rarely(&ngx_http_meter_ring_full)) {
            ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, err,
                          "no room for a ring of %uz bytes in \"%s\"",
                          size, temp);
        }

        return NGX_ERROR;
    }

    map = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED) {
        return NGX_ERROR;
    }

    ngx_memcpy(map, ring->outbox.map, size);

    if (rename((char *) temp, (char *) path) == -1) {
        (void) munmap(map, size);
        return NGX_ERROR;
    }

    if (mremap(map, size, size, MREMAP_MAYMOVE|MREMAP_FIXED, ring->outbox.map)
        == MAP_FAILED)
    {
        (void) unlink((char *) path);
        (void) munmap(map, size);
        return NGX_ERROR;
    }

    if (pwrite(ring->fd, zeros, sizeof(zeros), 0) == -1) {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, ngx_errno,
                      "pwrite() to \"%s\" failed", ring->path);
    }

    (void) close(ring->fd);

    ring->fd = fd;

    return NGX_OK;
}
