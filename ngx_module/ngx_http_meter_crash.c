
/*
 * ngx_http_meter_crash.c - test hook: ends a worker at a named point.
 *
 *   METER_CRASH_FILE -> master maps it -> workers inherit the map
 *   test writes: name, mode, countdown, armed; reads: fired
 *
 * Without the variable nothing is mapped and a point costs one load. The
 * variable is read in the master, since workers lose their environment.
 */


#include "ngx_http_meter_capture.h"


#define NGX_HTTP_METER_CRASH_STOP  2       /* else SIGKILL */


typedef struct {
    uint32_t  armed;
    uint32_t  countdown;
    uint32_t  fired;
    uint32_t  mode;
    uint32_t  zero;
    char      name[64];
} ngx_http_meter_crash_t;


static void ngx_http_meter_crash_handler(const char *name);


static ngx_http_meter_crash_t  *ngx_http_meter_crash;


ngx_int_t
ngx_http_meter_crash_init(ngx_cycle_t *cycle)
{
    void            *map;
    char            *path;
    ngx_fd_t         fd;
    ngx_file_info_t  fi;

    path = getenv("METER_CRASH_FILE");

    if (path == NULL || ngx_http_meter_crash || ngx_test_config) {
        return NGX_OK;
    }

    fd = open(path, O_RDWR|O_CLOEXEC);

    if (fd == NGX_INVALID_FILE) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                      ngx_open_file_n " \"%s\" failed", path);
        return NGX_ERROR;
    }

    map = MAP_FAILED;

    if (ngx_fd_info(fd, &fi) != NGX_FILE_ERROR
        && ngx_file_size(&fi) >= (off_t) sizeof(ngx_http_meter_crash_t))
    {
        map = mmap(NULL, sizeof(ngx_http_meter_crash_t),
                   PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);
    }

    (void) close(fd);

    if (map == MAP_FAILED) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, 0,
                      "\"%s\" of METER_CRASH_FILE cannot be mapped", path);
        return NGX_ERROR;
    }

    ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                  "workers end at the points that \"%s\" names", path);

    ngx_http_meter_crash = map;
    meter_crash_hook = ngx_http_meter_crash_handler;

    return NGX_OK;
}


static void
ngx_http_meter_crash_handler(const char *name)
{
    ngx_http_meter_crash_t  *crash;

    crash = ngx_http_meter_crash;

    if (__atomic_load_n(&crash->armed, __ATOMIC_ACQUIRE) == 0
        || ngx_strncmp(crash->name, name, sizeof(crash->name)) != 0
        || ngx_process == NGX_PROCESS_MASTER)
    {
        return;
    }

    if (__atomic_sub_fetch(&crash->countdown, 1, __ATOMIC_ACQ_REL) != 0) {
        return;
    }

    __atomic_store_n(&crash->armed, 0, __ATOMIC_RELEASE);
    (void) __atomic_add_fetch(&crash->fired, 1, __ATOMIC_ACQ_REL);

    (void) kill(getpid(), crash->mode == NGX_HTTP_METER_CRASH_STOP ? SIGSTOP
                                                                  : SIGKILL);
}
