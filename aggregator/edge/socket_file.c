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
socket_file_failed(const struct socket_file *file, const char *what,
                   const char *path)
{
    if (!file->is_quiet) {
        log_error("listener", what, log_str("path", path),
                  log_str("reason", strerror(errno)));
    }
    return false;
}

static bool
socket_file_refused(const struct socket_file *file, const char *why)
{
    if (!file->is_quiet) {
        log_error("listener", why, log_str("path", file->path));
    }
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
        return socket_file_failed(file, "the lock file cannot be opened", name);
    }
    if (flock(file->lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) {
            return socket_file_refused(file,
                                       "another meterd serves this socket");
        }
        return socket_file_failed(file, "the lock file cannot be locked", name);
    }
    size = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
    if (ftruncate(file->lock, 0) != 0 ||
        pwrite(file->lock, pid, (size_t)size, 0) != size) {
        return socket_file_failed(file, "the lock file cannot be written",
                                  name);
    }
    return true;
}

/* Only a socket may be replaced, never somebody's file. */
static bool
socket_file_may_replace(const struct socket_file *file)
{
    struct stat found;

    if (lstat(file->path, &found) != 0) {
        return errno == ENOENT ||
               socket_file_failed(file, "the path cannot be looked at",
                                  file->path);
    }
    return S_ISSOCK(found.st_mode) ||
           socket_file_refused(file, "the path exists and is no socket");
}

/* Whether somebody listens at the path. */
static bool
socket_file_is_served(const struct socket_file *file)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is_served;

    if (fd < 0) {
        return true; /* who knows */
    }
    memcpy(address.sun_path, file->path, strlen(file->path) + 1);
    is_served =
        connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ||
        (errno != ECONNREFUSED && errno != ENOENT);
    close(fd);
    return is_served;
}

static bool
socket_file_bind(struct socket_file *file)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[NAME_SIZE];
    struct stat made;
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
        return socket_file_failed(file, "the socket cannot be made", name);
    }
    memcpy(address.sun_path, name, strlen(name) + 1);
    file->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file->fd < 0) {
        return socket_file_failed(file, "the socket cannot be made",
                                  file->path);
    }
    unlink(name);
    mask = umask(0117);
    rc = bind(file->fd, (struct sockaddr *)&address, sizeof(address));
    umask(mask);
    if (rc != 0) {
        return socket_file_failed(file, "the socket cannot be bound", name);
    }
    if (chmod(name, 0660) != 0 || listen(file->fd, LISTEN_BACKLOG) != 0 ||
        lstat(name, &made) != 0 || rename(name, file->path) != 0) {
        int reason = errno;

        unlink(name);
        errno = reason;
        return socket_file_failed(file, "the socket cannot be put in place",
                                  file->path);
    }
    file->device = made.st_dev;
    file->inode = made.st_ino;
    return true;
}

static bool
is_same(const char *path, dev_t device, ino_t inode)
{
    struct stat found;

    return lstat(path, &found) == 0 && found.st_dev == device &&
           found.st_ino == inode;
}

static bool
socket_file_has_lock(const struct socket_file *file)
{
    char name[NAME_SIZE];
    struct stat held;

    snprintf(name, sizeof(name), "%s.lock", file->path);
    return fstat(file->lock, &held) == 0 &&
           is_same(name, held.st_dev, held.st_ino);
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

    memset(file, 0, sizeof(*file));
    file->lock = -1;
    file->fd = -1;
    if (size == 0 || size > SOCKET_PATH_SIZE_MAX) {
        log_error("listener", "the socket's path must have 1 to 107 bytes",
                  log_str("path", path));
        return false;
    }
    memcpy(file->path, path, size + 1);
    if (!socket_file_lock(file) || !socket_file_may_replace(file) ||
        !socket_file_bind(file)) {
        socket_file_release(file);
        return false;
    }
    return true;
}

bool
socket_file_is_there(const struct socket_file *file)
{
    return is_same(file->path, file->device, file->inode) &&
           socket_file_has_lock(file);
}

/* With the lock in its place nobody else is a meterd. */
static bool
socket_file_make(struct socket_file *fresh)
{
    if (!socket_file_has_lock(fresh)) {
        fresh->lock = -1;
        if (!socket_file_lock(fresh)) {
            return false;
        }
    }
    if (!socket_file_may_replace(fresh)) {
        return false;
    }
    if (is_same(fresh->path, fresh->device, fresh->inode)) {
        return true; /* only the lock was gone */
    }
    if (socket_file_is_served(fresh)) {
        return socket_file_refused(fresh, "somebody else serves this socket");
    }
    return socket_file_bind(fresh);
}

bool
socket_file_renew(struct socket_file *file)
{
    struct socket_file fresh = *file;

    fresh.fd = -1;
    if (!socket_file_make(&fresh) ||
        (fresh.fd >= 0 && dup3(fresh.fd, file->fd, O_CLOEXEC) < 0)) {
        fresh.lock = fresh.lock == file->lock ? -1 : fresh.lock;
        socket_file_release(&fresh);
        file->is_quiet = true;
        return false;
    }
    if (fresh.fd >= 0) {
        close(fresh.fd);
    }
    if (fresh.lock != file->lock) {
        close(file->lock);
    }
    fresh.fd = file->fd;
    fresh.is_quiet = false;
    *file = fresh;
    return true;
}

void
socket_file_leave(struct socket_file *file)
{
    if (file->fd >= 0) {
        if (is_same(file->path, file->device, file->inode)) {
            unlink(file->path);
        }
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
