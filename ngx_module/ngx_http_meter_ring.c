
/*
 * ngx_http_meter_ring.c - one ring file in the hands of this process.
 *
 *   tmp-X -> make -> ring-X (flock) -> release -> spare -> claim -> ...
 *                        |                             |
 *                        +- owner dies -> orphan ------+-> retire
 *                        +- removed -> rescue -> ring-Y
 *
 * The lock is the kernel's: whoever holds it is alive. It is taken after the
 * fork, on a descriptor that no child inherits. A file is made whole under
 * another name, all its blocks allocated, and never changes its size, so
 * that touching it cannot fail. Opening a large one takes long, and is done
 * in portions: ring_open.
 */


#include "ngx_http_meter_ring.h"

#include <linux/magic.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/vfs.h>


#define NGX_HTTP_METER_BOOT_ID  "/proc/sys/kernel/random/boot_id"


static ngx_http_meter_ring_t *ngx_http_meter_ring_create(ngx_fd_t fd,
    u_char *path, size_t size, ngx_log_t *log);
static ngx_int_t ngx_http_meter_ring_lock(ngx_fd_t fd, u_char *path,
    size_t *size, ngx_log_t *log);
static void ngx_http_meter_ring_tell(ngx_http_meter_ring_t *ring,
    struct meter_outbox_report *report, ngx_log_t *log);
static ngx_int_t ngx_http_meter_random(u_char *buf, size_t size);


static uint8_t     ngx_http_meter_boot_id[16];
static ngx_msec_t  ngx_http_meter_ring_foreign;
static ngx_msec_t  ngx_http_meter_ring_failed;


ngx_int_t
ngx_http_meter_ring_boot(ngx_log_t *log)
{
    u_char       text[64];
    ssize_t      n, i;
    ngx_fd_t     fd;
    ngx_int_t    value;
    ngx_uint_t   digits;

    fd = open(NGX_HTTP_METER_BOOT_ID, O_RDONLY|O_CLOEXEC);
    n = (fd == NGX_INVALID_FILE) ? -1 : read(fd, text, sizeof(text));

    if (n == -1) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "\"" NGX_HTTP_METER_BOOT_ID "\" cannot be read");
    }

    if (fd != NGX_INVALID_FILE) {
        (void) close(fd);
    }

    digits = 0;

    for (i = 0; i < n && digits < 32; i++) {
        value = ngx_hextoi(&text[i], 1);

        if (value != NGX_ERROR) {
            ngx_http_meter_boot_id[digits / 2] =
                           ngx_http_meter_boot_id[digits / 2] << 4 | value;
            digits++;
        }
    }

    return digits == 32 ? NGX_OK : NGX_ERROR;
}


ngx_http_meter_ring_t *
ngx_http_meter_ring_claim(ngx_str_t *dir, u_char *name, ngx_log_t *log)
{
    size_t                  size;
    u_char                  path[NGX_MAX_PATH];
    ngx_fd_t                fd;
    ngx_http_meter_ring_t  *ring;

    (void) ngx_snprintf(path, sizeof(path), "%V/%s%Z", dir, name);

    fd = open((char *) path, O_RDWR|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);

    if (fd == NGX_INVALID_FILE) {

        if (ngx_errno != NGX_ENOENT
            && ngx_http_meter_rarely(&ngx_http_meter_ring_failed))
        {
            ngx_log_error(NGX_LOG_CRIT, log, ngx_errno,
                          ngx_open_file_n " \"%s\" failed", path);
        }

        return NULL;
    }

    ring = NULL;

    if (ngx_http_meter_ring_lock(fd, path, &size, log) == NGX_OK) {
        ring = ngx_http_meter_ring_create(fd, path, size, log);
    }

    if (ring == NULL) {
        (void) close(fd);
        return NULL;
    }

    ring->filled = size;

    return ring;
}


/* NGX_DECLINED: somebody else's, or the path names another file by now */

static ngx_int_t
ngx_http_meter_ring_lock(ngx_fd_t fd, u_char *path, size_t *size,
    ngx_log_t *log)
{
    ngx_file_info_t  fi, named;

    if (flock(fd, LOCK_EX|LOCK_NB) == -1) {
        return NGX_DECLINED;
    }

    if (ngx_fd_info(fd, &fi) == NGX_FILE_ERROR
        || lstat((char *) path, &named) == -1
        || fi.st_dev != named.st_dev
        || fi.st_ino != named.st_ino)
    {
        return NGX_DECLINED;
    }

    if (!ngx_is_file(&fi)
        || fi.st_size < (off_t) METER_OUTBOX_SIZE_MIN
        || fi.st_size > (off_t) METER_OUTBOX_SIZE_MAX)
    {
        if (ngx_http_meter_rarely(&ngx_http_meter_ring_foreign)) {
            ngx_log_error(NGX_LOG_ERR, log, 0,
                          "\"%s\" is no ring file, it is left alone", path);
        }

        return NGX_DECLINED;
    }

    *size = (size_t) fi.st_size;

    return NGX_OK;
}


/* takes over fd; NULL: logged, fd is still the caller's */

static ngx_http_meter_ring_t *
ngx_http_meter_ring_create(ngx_fd_t fd, u_char *path, size_t size,
    ngx_log_t *log)
{
    void                      *map;
    size_t                     len;
    ngx_pool_t                *pool;
    struct statfs              fs;
    struct meter_ring_header   layout;
    ngx_http_meter_ring_t     *ring;

    if (!meter_outbox_layout(size, &layout)) {
        return NULL;
    }

    pool = ngx_create_pool(1024, log);
    if (pool == NULL) {
        return NULL;
    }

    len = ngx_strlen(path) + 1;

    ring = ngx_pcalloc(pool, sizeof(ngx_http_meter_ring_t));
    if (ring == NULL) {
        goto failed;
    }

    ring->pool = pool;
    ring->fd = fd;
    ring->path = ngx_pnalloc(pool, len);
    ring->scratch = ngx_pmemalign(pool, meter_outbox_scratch_size(&layout),
                                  64);

    if (ring->path == NULL
        || ring->scratch == NULL
        || ngx_http_meter_link_alloc(ring) != NGX_OK)
    {
        goto failed;
    }

    ngx_memcpy(ring->path, path, len);

    map = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);

    if (map == MAP_FAILED) {
        if (ngx_http_meter_rarely(&ngx_http_meter_ring_failed)) {
            ngx_log_error(NGX_LOG_CRIT, log, ngx_errno,
                          "mmap(\"%s\", %uz) failed", path, size);
        }

        goto failed;
    }

    ring->outbox.map = map;
    ring->outbox.size = size;
    ring->front = layout.record_offset;

    /* no disk to wait for, and mincore() does not see its untouched pages */

    ring->memory = (fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC);

    return ring;

failed:

    ngx_destroy_pool(pool);

    return NULL;
}


/* what a dead owner left */

ngx_int_t
ngx_http_meter_ring_settle(ngx_http_meter_ring_t *ring, ngx_log_t *log)
{
    struct meter_outbox_live  *live;

    live = ring->outbox.live;

    if (live->busy != METER_OUTBOX_SPARE && live->owner_pid != 0) {
        ngx_http_meter_count_here(NGX_HTTP_METER_ADOPTED, 1);
    }

    __atomic_store_n(&live->busy, METER_OUTBOX_BUSY, __ATOMIC_RELEASE);
    live->owner_pid = ngx_pid;
    live->beat_us = ngx_http_meter_now_us();

    METER_CRASH_POINT("adopt_claimed");

    meter_outbox_recover(&ring->outbox, ngx_http_meter_boot_id,
                         ngx_http_meter_now_us(), &ring->report);

    ngx_http_meter_ring_tell(ring, &ring->report, log);

    ring->renew = ring->report.other_boot
                  || meter_outbox_is_torn(&ring->outbox);

    if (!ring->renew) {
        (void) meter_outbox_emit(&ring->outbox);

    } else if (!ngx_http_meter_ring_unsent(ring)) {
        return ngx_http_meter_ring_renew(ring);
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_meter_ring_find(ngx_http_meter_ring_t *ring, ngx_log_t *log)
{
    void                    *map;
    size_t                   size;
    u_char                   session[16];
    enum meter_outbox_open   rc;

    map = ring->outbox.map;
    size = ring->outbox.size;

    rc = meter_outbox_open(&ring->outbox, map, size, ring->scratch);

    if (rc == METER_OUTBOX_UNFINISHED
        && ngx_http_meter_random(session, sizeof(session)) == NGX_OK
        && meter_outbox_format(map, size, session, ngx_http_meter_boot_id))
    {
        rc = meter_outbox_open(&ring->outbox, map, size, ring->scratch);
    }

    if (rc == METER_OUTBOX_OK) {
        return NGX_OK;
    }

    /* open has cleared them */

    ring->outbox.map = map;
    ring->outbox.size = size;

    if (ngx_http_meter_rarely(&ngx_http_meter_ring_foreign)) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      rc == METER_OUTBOX_VERSION
                      ? "\"%s\" was made by another version, it is left alone"
                      : "\"%s\" is damaged, it is left alone",
                      ring->path);
    }

    return NGX_ERROR;
}


static void
ngx_http_meter_ring_tell(ngx_http_meter_ring_t *ring,
    struct meter_outbox_report *report, ngx_log_t *log)
{
    if (report->answered_slots) {
        ngx_http_meter_count_here(NGX_HTTP_METER_RECOVERED_SLOTS,
                                  report->answered_slots);
    }

    if (report->open_cells) {
        ngx_http_meter_count_here(NGX_HTTP_METER_RECOVERED_CELLS,
                                  report->open_cells);
    }

    if (ngx_http_meter_ring_unsent(ring)
        || report->answered_slots || report->open_cells)
    {
        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "ring \"%s\" is taken over: %uL records, %uD requests "
                      "and %uD deltas that were not recorded yet",
                      ring->path,
                      ring->outbox.head - ring->outbox.acked - 1,
                      report->answered_slots, report->open_cells);
    }

    if (report->torn_records) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "ring \"%s\": %uL records do not verify and are lost",
                      ring->path, report->torn_records);
    }

    if (report->lost_requests) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "ring \"%s\" is of another boot: %uL requests that "
                      "were not recorded yet may be lost",
                      ring->path, report->lost_requests);
    }
}


ngx_http_meter_ring_t *
ngx_http_meter_ring_make(ngx_str_t *dir, size_t size, ngx_log_t *log)
{
    u_char                  path[NGX_MAX_PATH], temp[NGX_MAX_PATH];
    ngx_fd_t                fd;
    ngx_http_meter_ring_t  *ring;

    fd = ngx_http_meter_ring_temp(dir, temp, path, log);

    if (fd == NGX_INVALID_FILE) {
        return NULL;
    }

    ring = NULL;

    if (ngx_http_meter_ring_begin(fd) == NGX_OK) {
        ring = ngx_http_meter_ring_create(fd, path, size, log);
    }

    if (ring == NULL) {
        (void) unlink((char *) temp);
        (void) close(fd);
        return NULL;
    }

    ring->temp = ngx_pnalloc(ring->pool, ngx_strlen(temp) + 1);

    if (ring->temp == NULL) {
        (void) unlink((char *) temp);
        ngx_http_meter_ring_free(ring);
        return NULL;
    }

    ngx_memcpy(ring->temp, temp, ngx_strlen(temp) + 1);

    return ring;
}


/* a new file, and the name that it gets when it is whole */

ngx_fd_t
ngx_http_meter_ring_temp(ngx_str_t *dir, u_char *temp, u_char *path,
    ngx_log_t *log)
{
    uint64_t  number;
    ngx_fd_t  fd;

    if (ngx_http_meter_random((u_char *) &number, sizeof(number)) != NGX_OK) {
        return NGX_INVALID_FILE;
    }

    (void) ngx_snprintf(temp, NGX_MAX_PATH,
                        "%V/" NGX_HTTP_METER_TEMP_PREFIX "%016xL%Z",
                        dir, number);
    (void) ngx_snprintf(path, NGX_MAX_PATH,
                        "%V/" NGX_HTTP_METER_RING_PREFIX "%016xL%Z",
                        dir, number);

    fd = open((char *) temp, O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW,
              0660);

    if (fd == NGX_INVALID_FILE
        && ngx_http_meter_rarely(&ngx_http_meter_ring_failed))
    {
        ngx_log_error(NGX_LOG_CRIT, log, ngx_errno,
                      ngx_open_file_n " \"%s\" failed", temp);
    }

    return fd;
}


/* another process may sweep the file before it is locked: then it is gone */

ngx_int_t
ngx_http_meter_ring_begin(ngx_fd_t fd)
{
    ngx_file_info_t  fi;

    if (flock(fd, LOCK_EX|LOCK_NB) == -1
        || ngx_fd_info(fd, &fi) == NGX_FILE_ERROR
        || fi.st_nlink == 0)
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_meter_ring_renew(ngx_http_meter_ring_t *ring)
{
    u_char  session[16];

    if (ngx_http_meter_random(session, sizeof(session)) != NGX_OK) {
        return NGX_ERROR;
    }

    meter_outbox_renew(&ring->outbox, session, ngx_http_meter_boot_id);
    (void) meter_outbox_emit(&ring->outbox);

    ring->renew = 0;

    return NGX_OK;
}


void
ngx_http_meter_ring_release(ngx_http_meter_ring_t *ring)
{
    struct meter_outbox_live  *live;

    live = ring->outbox.live;

    if (ring->gone) {
        ngx_http_meter_ring_retire(ring);
        return;
    }

    if (!ring->renew && meter_outbox_is_drained(&ring->outbox)) {
        METER_CRASH_POINT("release_before_spare");

        __atomic_store_n(&live->busy, METER_OUTBOX_SPARE, __ATOMIC_RELEASE);
    }

    ngx_http_meter_ring_free(ring);
}


void
ngx_http_meter_ring_retire(ngx_http_meter_ring_t *ring)
{
    ngx_http_meter_retired_t    *retired;
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_http_meter_outbox_main_conf();

    if (!ring->gone && (mmcf == NULL || ngx_http_meter_losses_ask(ring))) {
        ngx_http_meter_ring_release(ring);
        return;
    }

    if (mmcf) {
        retired = &mmcf->edge->retired;

        (void) ngx_atomic_fetch_add(&retired->begun, 1);

        if (!ring->gone && unlink((char *) ring->path) == -1) {
            ngx_log_error(NGX_LOG_CRIT, ngx_cycle->log, ngx_errno,
                          ngx_delete_file_n " \"%s\" failed", ring->path);

        } else {
            ngx_http_meter_ring_count(ring, retired);
        }

        (void) ngx_atomic_fetch_add(&retired->done, 1);
    }

    ngx_http_meter_ring_free(ring);
}


void
ngx_http_meter_ring_free(ngx_http_meter_ring_t *ring)
{
    if (ring->temp) {
        (void) unlink((char *) ring->temp);
    }

    if (munmap(ring->outbox.map, ring->outbox.size) == -1) {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, ngx_errno,
                      "munmap(\"%s\") failed", ring->path);
    }

    /* ends the lock */

    if (close(ring->fd) == -1) {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, ngx_errno,
                      ngx_close_file_n " \"%s\" failed", ring->path);
    }

    ngx_destroy_pool(ring->pool);
}


ngx_uint_t
ngx_http_meter_ring_unsent(ngx_http_meter_ring_t *ring)
{
    return ring->outbox.head - 1 > ring->outbox.acked;
}


ngx_uint_t
ngx_http_meter_ring_pending(ngx_http_meter_ring_t *ring)
{
    return ngx_http_meter_ring_unsent(ring)
           || meter_cell_is_any_open(&ring->outbox)
           || ring->outbox.live->loss.loss.count != 0;
}


static ngx_int_t
ngx_http_meter_random(u_char *buf, size_t size)
{
    ssize_t  n;

    do {
        n = getrandom(buf, size, 0);
    } while (n == -1 && ngx_errno == NGX_EINTR);

    if (n == (ssize_t) size) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, ngx_errno,
                  "getrandom() failed");

    return NGX_ERROR;
}
