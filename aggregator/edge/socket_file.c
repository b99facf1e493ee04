/*
 * socket_file.c - see socket_file.h.
 */

#include "edge/socket_file.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_BACKLOG 1024

/* The socket's names beside its own need this much more room. */
#define NAME_SIZE (SOCKET_PATH_SIZE_MAX + 16)

static bool
socket_file_failed(const char *what, const char *path)
{
    log_error("listener", what, log_str("path", path),
              log_str("reason", strerror(errno)));
    return false;
}

static bool
socket_file_lock(struct socket_file *file)
{
    char name[NAME_SIZE];
    char pid[24];
    int size;

    snprintf(name, sizeof(name), "%s.lock", file->path);
    file->lock =
        open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0640);
    if (file->lock < 0) {
        return socket_file_failed("the lock file cannot be opened", name);
    }
    if (flock(file->lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) {
            log_error("listener", "another meterd serves this socket",
                      log_str("path", file->path));
            return false;
        }
        return socket_file_failed("the lock file cannot be locked", name);
    }
    size = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
    if (ftruncate(file->lock, 0) != 0 ||
        pwrite(file->lock, pid, (size_t)size, 0) != size) {
        return socket_file_failed("the lock file cannot be written", name);
    }
    return true;
}

/* Only a socket may be replaced, never somebody's file. */
static bool
socket_file_may_replace(const char *path)
{
    struct stat found;

    if (lstat(path, &found) != 0) {
        return errno == ENOENT ||
               socket_file_failed("the path cannot be looked at", path);
    }
    if (!S_ISSOCK(found.st_mode)) {
        log_error("listener", "the path exists and is no socket",
                  log_str("path", path));
        return false;
    }
    return true;
}

static bool
socket_file_bind(struct socket_file *file)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[NAME_SIZE];
    mode_t mask;
    int rc;

    /* A short name in the same directory, renamed once it listens: whoever
       connects meets the old socket or a working one. */
    snprintf(name, sizeof(name), "%s", file->path);
    char *base = strrchr(name, '/');
    base = base == NULL ? name : base + 1;
    snprintf(base, sizeof(name) - (size_t)(base - name), ".m%ld",
             (long)getpid());
    if (strlen(name) > SOCKET_PATH_SIZE_MAX) {
        errno = ENAMETOOLONG;
        return socket_file_failed("the socket cannot be made", name);
    }
    memcpy(address.sun_path, name, strlen(name) + 1);
    file->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file->fd < 0) {
        return socket_file_failed("the socket cannot be made", file->path);
    }
    unlink(name);
    mask = umask(0117);
    rc = bind(file->fd, (struct sockaddr *)&address, sizeof(address));
    umask(mask);
    if (rc != 0) {
        return socket_file_failed("the socket cannot be bound", name);
    }
    if (chmod(name, 0660) != 0 || listen(file->fd, LISTEN_BACKLOG) != 0 ||
        rename(name, file->path) != 0) {
        int reason = errno;

        unlink(name);
        errno = reason;
        return socket_file_failed("the socket cannot be put in place",
                                  file->path);
    }
    return true;
}

static void
socket_file_release(struct socket_file *file)
{
    if (file->fd >= 0) {
        close(file->fd);
        file->fd = -1;
    }
    if (file->lock >= 0) {
        close(file->lock);
        file->lock = -1;
    }
}

bool
socket_file_open(struct socket_file *file, const char *path)
{
    size_t size = strlen(path);

    file->lock = -1;
    file->fd = -1;
    if (size == 0 || size > SOCKET_PATH_SIZE_MAX) {
        log_error("listener", "the socket's path must have 1 to 107 bytes",
                  log_str("path", path));
        return false;
    }
    memcpy(file->path, path, size + 1);
    if (!socket_file_lock(file) || !socket_file_may_replace(path) ||
        !socket_file_bind(file)) {
        socket_file_release(file);
        return false;
    }
    return true;
}

void
socket_file_leave(struct socket_file *file)
{
    if (file->fd >= 0) {
        unlink(file->path);
        close(file->fd);
        file->fd = -1;
    }
}

void
socket_file_close(struct socket_file *file)
{
    socket_file_leave(file);
    socket_file_release(file);
}
