
/*
 * ngx_http_meter_losses.c - the page of requests that no ring could take.
 *
 *   missed -> [PATH/losses] -> once a second, to a ring that is there
 *
 * The master opens the file before it forks, and every process it starts has
 * the same page: what is in it survives workers, reloads and, being a file,
 * all of them. Where no file can be made it is memory for the time being. A
 * page that its path does not lead to any more is left for the one that it
 * leads to, and what is not told yet is taken along.
 *
 * The lock belongs to the process (fcntl), since descriptors are inherited.
 */


#include "ngx_http_meter_ring.h"

#include <sys/mman.h>


#define NGX_HTTP_METER_LOSSES_NAME  "losses"


static ngx_uint_t ngx_http_meter_losses_is_named(u_char *path);
static ngx_fd_t ngx_http_meter_losses_file(u_char *path,
    ngx_http_meter_outbox_conf_t *conf, ngx_log_t *log);
static struct meter_losses *ngx_http_meter_losses_map(ngx_fd_t fd);
static ngx_int_t ngx_http_meter_losses_leave(struct meter_losses *to);
static ngx_int_t ngx_http_meter_losses_lock(ngx_int_t type);
static uint64_t ngx_http_meter_losses_turn(ngx_str_t *dir);
static uint64_t ngx_http_meter_losses_number(ngx_http_meter_ring_t *ring);


static ngx_fd_t              ngx_http_meter_losses_fd = NGX_INVALID_FILE;
static struct meter_losses  *ngx_http_meter_losses;
static ngx_msec_t            ngx_http_meter_losses_failed;


void
ngx_http_meter_losses_open(ngx_http_meter_outbox_conf_t *conf, ngx_log_t *log)
{
    u_char                path[NGX_MAX_PATH];
    ngx_fd_t              fd;
    struct meter_losses  *losses;

    (void) ngx_snprintf(path, sizeof(path),
                        "%V/" NGX_HTTP_METER_LOSSES_NAME "%Z", &conf->path);

    if (ngx_http_meter_losses && ngx_http_meter_losses_is_named(path)) {
        return;
    }

    fd = ngx_http_meter_losses_file(path, conf, log);

    if (fd == NGX_INVALID_FILE && ngx_http_meter_losses == NULL) {
        fd = memfd_create("edgemeter-losses", MFD_CLOEXEC);

        if (fd != NGX_INVALID_FILE
            && ftruncate(fd, METER_LOSSES_SIZE) == -1)
        {
            (void) close(fd);
            fd = NGX_INVALID_FILE;
        }
    }

    if (fd == NGX_INVALID_FILE) {
        return;
    }

    losses = ngx_http_meter_losses_map(fd);

    if (losses == NULL || ngx_http_meter_losses_leave(losses) != NGX_OK) {

        if (losses) {
            (void) munmap(losses, METER_LOSSES_SIZE);

        } else if (ngx_http_meter_rarely(&ngx_http_meter_losses_failed)) {
            ngx_log_error(NGX_LOG_ERR, log, 0,
                          "\"%s\" is no file of losses, it is left alone",
                          path);
        }

        (void) close(fd);
        return;
    }

    ngx_http_meter_losses = losses;
    ngx_http_meter_losses_fd = fd;
}


static ngx_uint_t
ngx_http_meter_losses_is_named(u_char *path)
{
    ngx_file_info_t  fi, named;

    if (ngx_fd_info(ngx_http_meter_losses_fd, &fi) == NGX_FILE_ERROR
        || lstat((char *) path, &named) == -1)
    {
        return 0;
    }

    return fi.st_dev == named.st_dev && fi.st_ino == named.st_ino;
}


static ngx_fd_t
ngx_http_meter_losses_file(u_char *path, ngx_http_meter_outbox_conf_t *conf,
    ngx_log_t *log)
{
    ngx_fd_t         fd;
    ngx_err_t        err;
    ngx_file_info_t  fi;

    fd = open((char *) path, O_RDWR|O_CREAT|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK,
              0660);

    if (fd == NGX_INVALID_FILE) {
        err = ngx_errno;
        goto failed;
    }

    err = 0;

    if (ngx_fd_info(fd, &fi) == NGX_FILE_ERROR) {
        err = ngx_errno;

    } else if (fi.st_size == 0) {
        err = posix_fallocate(fd, 0, METER_LOSSES_SIZE);

        /* whatever the umask; the master makes it for its workers */

        if (err == 0
            && (fchmod(fd, 0660) == -1
                || (geteuid() == 0
                    && fchown(fd, conf->user, (gid_t) -1) == -1)))
        {
            err = ngx_errno;
        }
    }

    if (err == 0) {
        return fd;
    }

    (void) close(fd);

failed:

    /* a directory that is gone is told by who looks for rings in it */

    if (err != NGX_ENOENT
        && ngx_http_meter_rarely(&ngx_http_meter_losses_failed))
    {
        ngx_log_error(NGX_LOG_CRIT, log, err,
                      "\"%s\" cannot be made, losses do not survive nginx",
                      path);
    }

    return NGX_INVALID_FILE;
}


/* NULL: it is something else */

static struct meter_losses *
ngx_http_meter_losses_map(ngx_fd_t fd)
{
    ngx_file_info_t       fi;
    struct meter_losses  *losses;

    if (ngx_fd_info(fd, &fi) == NGX_FILE_ERROR || !ngx_is_file(&fi)
        || ngx_file_size(&fi) != METER_LOSSES_SIZE)
    {
        return NULL;
    }

    losses = mmap(NULL, METER_LOSSES_SIZE, PROT_READ|PROT_WRITE, MAP_SHARED,
                  fd, 0);

    if (losses == MAP_FAILED) {
        return NULL;
    }

    if (!meter_losses_open(losses)) {
        (void) munmap(losses, METER_LOSSES_SIZE);
        return NULL;
    }

    return losses;
}


/*
 * What the old page has goes to the new one. The ring of a move that has not
 * ended is as gone as the page: rather told twice than not at all.
 */

static ngx_int_t
ngx_http_meter_losses_leave(struct meter_losses *to)
{
    uint64_t              lost, filtered;
    struct meter_losses  *from;

    from = ngx_http_meter_losses;

    if (from == NULL) {
        return NGX_OK;
    }

    if (ngx_http_meter_losses_lock(F_WRLCK) != NGX_OK) {
        return NGX_AGAIN;
    }

    lost = meter_losses_left(from, 0);
    filtered = __atomic_exchange_n(&from->filtered, 0, __ATOMIC_ACQ_REL);

    meter_losses_add(to, lost, filtered, from->last_us);

    from->upto = from->moved + lost;
    from->moved = from->upto;

    (void) ngx_http_meter_losses_lock(F_UNLCK);

    (void) munmap(from, METER_LOSSES_SIZE);
    (void) close(ngx_http_meter_losses_fd);

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_losses_lock(ngx_int_t type)
{
    struct flock  lock;

    ngx_memzero(&lock, sizeof(struct flock));

    lock.l_type = type;
    lock.l_whence = SEEK_SET;

    return fcntl(ngx_http_meter_losses_fd, F_SETLK, &lock) == -1 ? NGX_AGAIN
                                                                 : NGX_OK;
}


void
ngx_http_meter_losses_add(uint64_t lost, uint64_t filtered)
{
    if (ngx_http_meter_losses) {
        meter_losses_add(ngx_http_meter_losses, lost, filtered,
                         ngx_http_meter_now_us());
    }
}


void
ngx_http_meter_losses_tell(ngx_http_meter_outbox_conf_t *conf)
{
    ngx_http_meter_ring_t  *ring;
    struct meter_losses    *losses;

    ngx_http_meter_losses_open(conf, ngx_cycle->log);

    losses = ngx_http_meter_losses;

    if (losses == NULL || meter_losses_left(losses, 0) == 0
        || ngx_http_meter_losses_lock(F_WRLCK) != NGX_OK)
    {
        return;
    }

    ring = ngx_http_meter_worker.current;

    if (meter_losses_is_moving(losses)) {
        meter_losses_settle(losses, ngx_http_meter_losses_turn(&conf->path));
    }

    if (ring && !meter_outbox_is_torn(&ring->outbox)) {
        meter_losses_move(losses, &ring->outbox,
                          ngx_http_meter_losses_number(ring));
        ngx_http_meter_outbox_hold();
    }

    (void) ngx_http_meter_losses_lock(F_UNLCK);
}


/* 0: that ring is no more */

static uint64_t
ngx_http_meter_losses_turn(ngx_str_t *dir)
{
    void      *page;
    u_char     path[NGX_MAX_PATH];
    uint64_t   turn;
    ngx_fd_t   fd;

    (void) ngx_snprintf(path, sizeof(path),
                        "%V/" NGX_HTTP_METER_RING_PREFIX "%016xL%Z",
                        dir, ngx_http_meter_losses->ring);

    fd = open((char *) path, O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);

    if (fd == NGX_INVALID_FILE) {
        return 0;
    }

    turn = 0;
    page = mmap(NULL, METER_RING_HEADER_SIZE, PROT_READ, MAP_SHARED, fd, 0);

    if (page != MAP_FAILED) {
        turn = meter_losses_turn(page);
        (void) munmap(page, METER_RING_HEADER_SIZE);
    }

    (void) close(fd);

    return turn;
}


ngx_uint_t
ngx_http_meter_losses_ask(ngx_http_meter_ring_t *ring)
{
    struct meter_losses  *losses;

    losses = ngx_http_meter_losses;

    return losses && meter_losses_is_moving(losses)
           && losses->ring == ngx_http_meter_losses_number(ring);
}


void
ngx_http_meter_losses_copy(struct meter_losses *copy)
{
    ngx_memzero(copy, sizeof(struct meter_losses));

    if (ngx_http_meter_losses) {
        *copy = *ngx_http_meter_losses;
    }
}


/* the one in its name */

static uint64_t
ngx_http_meter_losses_number(ngx_http_meter_ring_t *ring)
{
    return strtoull((char *) ring->path + ngx_strlen(ring->path) - 16, NULL,
                    16);
}
