/*
 * listener.c - the socket for nginx and the connections on it.
 *
 *   nginx -> [listener] -> connection -> api_conn | mux | link
 *
 * A lock file beside the socket (PATH.lock) is held with flock for the life of
 * the process; its holder alone may replace the socket. The socket is bound
 * under a temporary name with mode 0660 and renamed, so that a path that
 * exists can always be connected to, and what a crash left there is replaced.
 * A socket that somebody removed, alone or with its directory, is made again;
 * one that somebody else listens on is left to him.
 *
 * At most LISTENER_CONNECTIONS_MAX connections. One more is counted as
 * refused, and its one request is answered (is_full), so that its client
 * learns that it was not applied; LISTENER_REFUSALS_MAX are refused so at a
 * time, and any other is closed at once. Without a free descriptor accepting
 * pauses.
 */

#include "edge/edge.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "edge/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTENER_CONNECTIONS_MAX 4096
#define LISTENER_REFUSALS_MAX    256
#define LISTEN_BACKLOG           1024
#define ACCEPTS_PER_TURN         64
#define ACCEPT_PAUSE_MS          100
#define TICK_MS                  1000
#define LOG_EVERY_MS             1000 /* for lines a stranger can cause */
#define SOCKET_PATH_SIZE_MAX     107  /* sun_path without its NUL */

/* The socket's names beside its own need this much more room. */
#define NAME_SIZE (SOCKET_PATH_SIZE_MAX + 16)

struct socket_file {
    char path[SOCKET_PATH_SIZE_MAX + 1];
    int lock; /* descriptors; -1: none */
    int fd;
    dev_t device; /* of the socket that we made */
    ino_t inode;
    bool is_quiet; /* why it cannot be made was said */
};

struct listener {
    struct edge *edge;
    void (*on_drained)(void *owner);
    struct socket_file file;
    int reserve; /* given up to accept and close when none is free */
    uint64_t logged_ms;

    uv_poll_t poll;
    uv_timer_t pause; /* before accepting again */
    uv_timer_t tick;  /* deadlines of connections */
    uv_timer_t watch; /* whether the socket is still there */
    int handles_open;

    TAILQ_HEAD(connections, connection) connections;
    size_t count; /* of these */
};


/* ---- the socket as a file -------------------------------------------- */

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
path_leads_to(const char *path, dev_t device, ino_t inode)
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
           path_leads_to(name, held.st_dev, held.st_ino);
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

/* False: logged, nothing is held. fd listens and does not block. */
static bool
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

/* The path leads to our socket, and the lock to our lock. */
static bool
socket_file_is_there(const struct socket_file *file)
{
    return path_leads_to(file->path, file->device, file->inode) &&
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
    if (path_leads_to(fresh->path, fresh->device, fresh->inode)) {
        return true; /* only the lock was gone */
    }
    if (socket_file_is_served(fresh)) {
        return socket_file_refused(fresh, "somebody else serves this socket");
    }
    return socket_file_bind(fresh);
}

/*
 * Makes the socket again. fd keeps its number, but is another socket: forget
 * it before, look at it anew after. False: not possible now, the old one is
 * as it was; logged once.
 */
static bool
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

/* Removes the socket, if it is ours, and closes fd; the lock stays. */
static void
socket_file_leave(struct socket_file *file)
{
    if (file->fd >= 0) {
        if (path_leads_to(file->path, file->device, file->inode)) {
            unlink(file->path);
        }
        close(file->fd);
        file->fd = -1;
    }
}


/* ---- connections ----------------------------------------------------- */

static void
listener_drained(struct listener *listener)
{
    if (listener->edge->is_draining && listener->count == 0) {
        listener->on_drained(listener->edge->owner);
    }
}

static void
listener_closed_cb(struct connection *connection)
{
    struct listener *listener = connection->owner;

    TAILQ_REMOVE(&listener->connections, connection, next);
    metrics.edgemeter_connections = (int64_t)--listener->count;
    listener_drained(listener);
}

/* How many lines about peers were left out in the last second. */
static void
listener_tell_suppressed(struct listener *listener, uint64_t now_ms)
{
    int64_t suppressed = log_limit_turn(&listener->edge->lines, now_ms);

    if (suppressed > 0) {
        log_info("listener", "lines about peers suppressed",
                 log_int("count", suppressed));
    }
}

static void
listener_tick_cb(uv_timer_t *timer)
{
    struct listener *listener = timer->data;
    uint64_t now_ms = clock_mono_ms();
    struct connection *connection;

    TAILQ_FOREACH(connection, &listener->connections, next) {
        if (!connection->is_closed) {
            connection->protocol->on_tick(connection->speaker, now_ms);
        }
    }
    listener_tell_suppressed(listener, now_ms);
    if (listener->edge->lines.suppressed == 0 && listener->count == 0) {
        uv_timer_stop(timer);
    }
}

/* Speaks the API first. */
static void
listener_connect(struct listener *listener, int fd, bool is_full)
{
    struct connection *connection = memory_alloc(sizeof(*connection));

    connection->edge = listener->edge;
    connection->is_full = is_full;
    connection->on_closed = listener_closed_cb;
    connection->owner = listener;
    TAILQ_INSERT_TAIL(&listener->connections, connection, next);
    metrics.edgemeter_connections = (int64_t)++listener->count;
    CHECK(uv_pipe_init(listener->edge->loop, &connection->pipe, 0) == 0);
    connection->pipe.data = connection;
    if (!uv_is_active((uv_handle_t *)&listener->tick)) {
        listener_tell_suppressed(listener, clock_mono_ms());
        uv_timer_start(&listener->tick, listener_tick_cb, TICK_MS, TICK_MS);
    }
    if (uv_pipe_open(&connection->pipe, fd) != 0) {
        close(fd);
        connection_close(connection, "cannot be watched");
        return;
    }
    connection_become(connection, &api_protocol, NULL);
}


/* ---- accepting ------------------------------------------------------- */

static void listener_poll_start(struct listener *listener);

/* True about once a second: a stranger must not fill the log. */
static bool
listener_may_log(struct listener *listener)
{
    uint64_t now_ms = clock_mono_ms();

    if (listener->logged_ms != 0 &&
        now_ms - listener->logged_ms < LOG_EVERY_MS) {
        return false;
    }
    listener->logged_ms = now_ms;
    return true;
}

/* False: a user who may not connect. */
static bool
listener_peer_is_allowed(struct listener *listener, int fd)
{
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
        size == sizeof(peer) && peers_allow(&listener->edge->peers, peer.uid)) {
        return true;
    }
    metrics.edgemeter_peers_refused_total++;
    if (listener_may_log(listener)) {
        log_warn("listener", "foreign user refused",
                 log_int("uid", (int64_t)peer.uid), log_int("pid", peer.pid));
    }
    return false;
}

static void
listener_accepted(struct listener *listener, int fd)
{
    bool is_full = listener->count >= LISTENER_CONNECTIONS_MAX;

    if (!listener_peer_is_allowed(listener, fd)) {
        close(fd);
        return;
    }
    if (is_full) {
        metrics.edgemeter_connections_refused_total++;
        if (listener_may_log(listener)) {
            log_warn("listener", "connection refused: too many",
                     log_int("connections", LISTENER_CONNECTIONS_MAX));
        }
        if (listener->count >=
            LISTENER_CONNECTIONS_MAX + LISTENER_REFUSALS_MAX) {
            close(fd);
            return;
        }
    }
    listener_connect(listener, fd, is_full);
}

static void
listener_pause_cb(uv_timer_t *timer)
{
    listener_poll_start(timer->data);
}

/*
 * No descriptor is free: the client that waits longest is let in and
 * closed, so that it learns of it, and accepting pauses.
 */
static void
listener_exhausted(struct listener *listener)
{
    int fd;

    metrics.edgemeter_accept_errors_total++;
    if (listener_may_log(listener)) {
        log_error("listener", "no connection can be accepted",
                  log_str("reason", strerror(errno)));
    }
    if (listener->reserve >= 0) {
        close(listener->reserve);
        fd = accept4(listener->file.fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            close(fd);
        }
        listener->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    uv_poll_stop(&listener->poll);
    uv_timer_start(&listener->pause, listener_pause_cb, ACCEPT_PAUSE_MS, 0);
}

static void
listener_poll_cb(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(listener->file.fd, NULL, NULL,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            listener_accepted(listener, fd);
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        }
        if (errno == EINTR || errno == ECONNABORTED) {
            continue;
        }
        listener_exhausted(listener);
        return;
    }
}

static void
listener_poll_start(struct listener *listener)
{
    CHECK(uv_poll_start(&listener->poll, UV_READABLE, listener_poll_cb) == 0);
}


/*
 * Somebody removed the socket, or its directory: connections go on, but
 * nobody finds us any more.
 */
static void
listener_watch_cb(uv_timer_t *timer)
{
    struct listener *listener = timer->data;
    bool is_accepting = uv_is_active((uv_handle_t *)&listener->poll) != 0;

    if (socket_file_is_there(&listener->file)) {
        return;
    }
    if (is_accepting) {
        listener_poll_cb(&listener->poll, 0, 0); /* who came before */
        uv_poll_stop(&listener->poll);
    }
    if (socket_file_renew(&listener->file)) {
        metrics.edgemeter_socket_renewals_total++;
        log_warn("listener", "the socket was gone and is made again",
                 log_str("path", listener->file.path));
    }
    if (is_accepting && !uv_is_active((uv_handle_t *)&listener->pause)) {
        listener_poll_start(listener);
    }
}


/* ---- life ------------------------------------------------------------ */

struct listener *
listener_create(struct edge *edge, const char *path,
                void (*on_drained)(void *owner))
{
    struct listener *listener = memory_alloc(sizeof(*listener));

    listener->edge = edge;
    listener->on_drained = on_drained;
    if (!socket_file_open(&listener->file, path)) {
        free(listener);
        return NULL;
    }
    TAILQ_INIT(&edge->waiting);
    TAILQ_INIT(&listener->connections);
    listener->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(uv_poll_init(edge->loop, &listener->poll, listener->file.fd) == 0);
    CHECK(uv_timer_init(edge->loop, &listener->pause) == 0);
    CHECK(uv_timer_init(edge->loop, &listener->tick) == 0);
    CHECK(uv_timer_init(edge->loop, &listener->watch) == 0);
    listener->poll.data = listener;
    listener->pause.data = listener;
    listener->tick.data = listener;
    listener->watch.data = listener;
    listener->handles_open = 4;
    listener_poll_start(listener);
    CHECK(uv_timer_start(&listener->watch, listener_watch_cb, TICK_MS,
                         TICK_MS) == 0);
    log_info("listener", "listening", log_str("path", path));
    return listener;
}

static void
listener_handle_closed_cb(uv_handle_t *handle)
{
    struct listener *listener = handle->data;

    if (--listener->handles_open > 0) {
        return;
    }
    socket_file_release(&listener->file);
    if (listener->reserve >= 0) {
        close(listener->reserve);
    }
    free(listener);
}

/* The descriptor may go only when libuv has forgotten it. */
static void
listener_poll_closed_cb(uv_handle_t *handle)
{
    struct listener *listener = handle->data;

    socket_file_leave(&listener->file);
    listener_handle_closed_cb(handle);
}

/* Whoever connects from now on is refused at once. */
static void
listener_stop(struct listener *listener)
{
    if (listener->edge->is_draining) {
        return;
    }
    listener->edge->is_draining = true;
    (void)shutdown(listener->file.fd, SHUT_RDWR); /* libuv closes it later */
    uv_timer_stop(&listener->pause);
    uv_timer_stop(&listener->watch);
    uv_close((uv_handle_t *)&listener->poll, listener_poll_closed_cb);
}

void
listener_drain(struct listener *listener, bool is_now)
{
    struct connection *connection;

    listener_stop(listener);
    /* One that is closed leaves the list later. */
    TAILQ_FOREACH(connection, &listener->connections, next) {
        if (is_now) {
            connection_close(connection, "meterd ends");
        } else if (!connection->is_closed) {
            connection->protocol->on_drain(connection->speaker);
        }
    }
    listener_drained(listener);
}

void
listener_destroy(struct listener *listener)
{
    if (listener == NULL) {
        return;
    }
    CHECK(listener->count == 0);
    listener_stop(listener);
    uv_close((uv_handle_t *)&listener->pause, listener_handle_closed_cb);
    uv_close((uv_handle_t *)&listener->tick, listener_handle_closed_cb);
    uv_close((uv_handle_t *)&listener->watch, listener_handle_closed_cb);
}
