
/*
 * ngx_http_meter_outbox_dir.c - the directory of the ring files.
 *
 *   master: prepare -> PATH, 0770, the workers'
 *   worker: list -> ring-* with size and state, without a lock
 *           sweep -> tmp-* of dead processes go
 *           again -> PATH, where somebody removed it
 */


#include "ngx_http_meter_ring.h"

#include <sys/file.h>


_Static_assert(offsetof(struct meter_outbox_live, busy)
               == offsetof(struct meter_outbox_live, db_epoch)
                  + sizeof(uint64_t),
               "both are read at once");


static ngx_int_t ngx_http_meter_dir_make(ngx_http_meter_outbox_conf_t *conf,
    ngx_log_t *log);
static ngx_int_t ngx_http_meter_dir_look(ngx_str_t *dir, u_char *name,
    ngx_http_meter_file_t *file);


static ngx_msec_t  ngx_http_meter_dir_failed;


/* called where a reload can still be refused */

ngx_int_t
ngx_http_meter_dir_prepare(ngx_http_meter_outbox_conf_t *conf, ngx_log_t *log)
{
    ngx_file_info_t  fi;

    if (conf->path.len + NGX_HTTP_METER_NAME_LEN + 2 > NGX_MAX_PATH) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "the path of \"meter_outbox\" is too long");
        return NGX_ERROR;
    }

    if (ngx_file_info(conf->path.data, &fi) == NGX_FILE_ERROR) {

        if (ngx_errno == NGX_ENOENT) {
            return ngx_http_meter_dir_make(conf, log);
        }

        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      ngx_file_info_n " \"%V\" failed", &conf->path);
        return NGX_ERROR;
    }

    if (!ngx_is_dir(&fi)) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "\"meter_outbox\" \"%V\" is not a directory",
                      &conf->path);
        return NGX_ERROR;
    }

    if (fi.st_mode & S_IWOTH) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "\"meter_outbox\" directory \"%V\" is writable for "
                      "everybody", &conf->path);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_dir_make(ngx_http_meter_outbox_conf_t *conf, ngx_log_t *log)
{
    /* the mode is given again: mkdir() heeds the umask */

    if (mkdir((char *) conf->path.data, 0770) == -1
        || chmod((char *) conf->path.data, 0770) == -1)
    {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "\"meter_outbox\" directory \"%V\" cannot be made",
                      &conf->path);
        return NGX_ERROR;
    }

    conf->made = 1;

    return NGX_OK;
}


void
ngx_http_meter_dir_again(ngx_str_t *dir, ngx_log_t *log)
{
    ngx_file_info_t  fi;

    if (ngx_file_info(dir->data, &fi) != NGX_FILE_ERROR
        || ngx_errno != NGX_ENOENT
        || mkdir((char *) dir->data, 0770) == -1
        || chmod((char *) dir->data, 0770) == -1)
    {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, log, 0,
                  "the directory \"%V\" was removed, it is made again", dir);
}


ngx_int_t
ngx_http_meter_dir_list(ngx_str_t *dir, ngx_array_t *files, ngx_log_t *log)
{
    DIR                    *stream;
    u_char                 *name;
    struct dirent          *entry;
    ngx_http_meter_file_t  *file;

    stream = opendir((char *) dir->data);

    if (stream == NULL) {
        if (ngx_http_meter_rarely(&ngx_http_meter_dir_failed)) {
            ngx_log_error(NGX_LOG_CRIT, log, ngx_errno,
                          ngx_open_dir_n " \"%V\" failed", dir);
        }

        return NGX_ERROR;
    }

    while ((entry = readdir(stream)) != NULL) {

        name = (u_char *) entry->d_name;

        if (ngx_strlen(name) != NGX_HTTP_METER_NAME_LEN
            || ngx_strncmp(name, NGX_HTTP_METER_RING_PREFIX,
                           sizeof(NGX_HTTP_METER_RING_PREFIX) - 1)
               != 0)
        {
            continue;
        }

        file = ngx_array_push(files);
        if (file == NULL) {
            break;
        }

        if (ngx_http_meter_dir_look(dir, name, file) != NGX_OK) {
            files->nelts--;
        }
    }

    (void) closedir(stream);

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_dir_look(ngx_str_t *dir, u_char *name,
    ngx_http_meter_file_t *file)
{
    off_t            offset;
    u_char           path[NGX_MAX_PATH];
    ssize_t          n;
    ngx_fd_t         fd;
    uint64_t         words[2];
    ngx_file_info_t  fi;

    (void) ngx_snprintf(path, sizeof(path), "%V/%s%Z", dir, name);

    fd = open((char *) path, O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);

    if (fd == NGX_INVALID_FILE) {
        return NGX_DECLINED;
    }

    ngx_memcpy(file->name, name, sizeof(file->name));

    offset = METER_OUTBOX_LIVE_OFFSET
             + offsetof(struct meter_outbox_live, db_epoch);
    n = -1;

    if (ngx_fd_info(fd, &fi) != NGX_FILE_ERROR && ngx_is_file(&fi)) {
        file->size = ngx_file_size(&fi);
        n = pread(fd, words, sizeof(words), offset);
    }

    (void) close(fd);

    if (n != (ssize_t) sizeof(words)) {
        return NGX_DECLINED;
    }

    file->db_epoch = words[0];
    file->busy = words[1];

    return NGX_OK;
}


/* whoever is making one has it locked, or finds it gone and begins again */

void
ngx_http_meter_dir_sweep(ngx_str_t *dir, ngx_log_t *log)
{
    DIR            *stream;
    u_char          path[NGX_MAX_PATH];
    ngx_fd_t        fd;
    struct dirent  *entry;

    stream = opendir((char *) dir->data);

    if (stream == NULL) {
        return;
    }

    while ((entry = readdir(stream)) != NULL) {

        if (ngx_strlen(entry->d_name) > NGX_HTTP_METER_NAME_LEN
            || ngx_strncmp(entry->d_name, NGX_HTTP_METER_TEMP_PREFIX,
                           sizeof(NGX_HTTP_METER_TEMP_PREFIX) - 1)
               != 0)
        {
            continue;
        }

        (void) ngx_snprintf(path, sizeof(path), "%V/%s%Z", dir,
                            entry->d_name);

        fd = open((char *) path, O_RDWR|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);

        if (fd == NGX_INVALID_FILE) {
            continue;
        }

        if (flock(fd, LOCK_EX|LOCK_NB) == 0) {
            ngx_log_error(NGX_LOG_NOTICE, log, 0,
                          "\"%s\" was left half made, it is removed", path);
            (void) unlink((char *) path);
        }

        (void) close(fd);
    }

    (void) closedir(stream);
}
