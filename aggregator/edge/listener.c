/*
 * listener.c - see listener.h.
 */

#include "edge/listener.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "edge/mux.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ACCEPTS_PER_TURN 64
#define ACCEPT_PAUSE_MS  100
#define TICK_MS          1000
#define LOG_EVERY_MS     1000 /* for lines a stranger can cause */

#define LISTEN_BACKLOG 1024

/* The socket's names beside its own need this much more room. */
#define NAME_SIZE (SOCKET_PATH_SIZE_MAX + 16)

#define SOCKET_PATH_SIZE_MAX 107 /* sun_path without its NUL */

struct socket_file {
    char path[SOCKET_PATH_SIZE_MAX + 1];
    int lock; /* descriptors; -1: none */
    int fd;
    dev_t device; /* of the socket that we made */
    ino_t inode;
    bool is_quiet; /* why it cannot be made was said */
};

struct listener {
    uv_loop_t *loop;
    const struct listener_events *events;
    void *owner;
    const struct link_place *place;
    struct peers peers;
    struct socket_file file;
    int reserve; /* given up to accept and close when none is free */
    bool draining;

    uv_poll_t poll;
    uv_timer_t pause; /* before accepting again */
    uv_timer_t tick;  /* deadlines of connections */
    uv_timer_t watch; /* whether the socket is still there */
    int handles_open;

    struct list connections;
    struct list waiting; /* of the API, for room for a body */
    size_t body_bytes;
    bool granting; /* a granted request may end at once, and so on */
    uint64_t logged_ms;
};

static void listener_poll_start(struct listener *listener);


/* ---- the socket as a file ------------------------------------------------ */

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

static bool
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

static void
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

static void
socket_file_close(struct socket_file *file)
{
    socket_file_leave(file);
    socket_file_release(file);
}


/* ---- peers --------------------------------------------------------------- */

static void
peers_init(struct peers *peers, const struct config_users *users)
{
    peers->count = 0;
    peers->uids[peers->count++] = geteuid();
    peers->uids[peers->count++] = 0;
    CHECK(users->count <= CONFIG_PEERS_MAX);
    for (size_t i = 0; i < users->count; i++) {
        const struct passwd *user = getpwnam(users->names[i]);

        if (user == NULL) {
            log_warn("listener", "limits.peers names an unknown user",
                     log_str("user", users->names[i]));
            continue;
        }
        peers->uids[peers->count++] = user->pw_uid;
    }
}

bool
peers_allow(const struct peers *peers, uid_t uid)
{
    for (size_t i = 0; i < peers->count; i++) {
        if (peers->uids[i] == uid) {
            return true;
        }
    }
    return false;
}

static bool
peer_of(int fd, uid_t *uid, pid_t *pid)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        size != sizeof(peer)) {
        return false;
    }
    *uid = peer.uid;
    *pid = peer.pid;
    return true;
}


/* ---- events of API connections --------------------------------------- */

static void *
listener_request_cb(void *owner, struct exchange *exchange,
                    const struct meter_request *request, struct buf *body,
                    bool is_full)
{
    struct listener *listener = owner;

    return listener->events->exchange.on_request(listener->owner, exchange,
                                                 request, body, is_full);
}

static void
listener_cancel_cb(void *owner, void *work)
{
    struct listener *listener = owner;

    listener->events->exchange.on_cancel(listener->owner, work);
}

static bool
listener_body_cb(void *owner, struct api_conn *conn, size_t size)
{
    struct listener *listener = owner;

    if (listener->waiting.count == 0 &&
        size <= LISTENER_BODY_BYTES_MAX - listener->body_bytes) {
        listener->body_bytes += size;
        return true;
    }
    metrics.edgemeter_bodies_held_total++;
    list_add(&listener->waiting, api_conn_waiting_node(conn), conn);
    return false;
}

/* Room came free, or one that waited is gone: who is next? */
static void
listener_body_done_cb(void *owner, struct api_conn *conn, size_t size)
{
    struct listener *listener = owner;

    CHECK(size <= listener->body_bytes);
    listener->body_bytes -= size;
    list_remove(api_conn_waiting_node(conn));
    if (listener->granting) {
        return; /* the loop below is further up the stack */
    }
    listener->granting = true;
    while (listener->waiting.count > 0) {
        struct api_conn *next = list_first(&listener->waiting);
        size_t wanted = api_conn_body_size(next);

        if (wanted > LISTENER_BODY_BYTES_MAX - listener->body_bytes) {
            break;
        }
        listener->body_bytes += wanted;
        list_remove(api_conn_waiting_node(next));
        api_conn_granted(next);
    }
    listener->granting = false;
}

/* A ring's connection: a link takes it over. */
static void
listener_hello_cb(void *owner, struct connection *connection, struct buf *bytes)
{
    struct listener *listener = owner;

    if (!link_attach(connection, listener->place, bytes)) {
        connection_close(connection, "out of memory");
        return;
    }
    if (listener->draining) {
        connection_drain(connection);
    }
}

/* A worker's connection for many requests. */
static void
listener_mux_cb(void *owner, struct connection *connection, struct buf *bytes)
{
    struct listener *listener = owner;

    if (!mux_attach(connection, listener->loop, &listener->events->exchange,
                    listener->owner, bytes)) {
        connection_close(connection, "out of memory");
        return;
    }
    if (listener->draining) {
        connection_drain(connection);
    }
}

static const struct api_conn_events listener_api_events = {
    .exchange =
        {
            .on_request = listener_request_cb,
            .on_cancel = listener_cancel_cb,
        },
    .on_body = listener_body_cb,
    .on_body_done = listener_body_done_cb,
    .on_hello = listener_hello_cb,
    .on_mux = listener_mux_cb,
};


/* ---- one connection too many ----------------------------------------- */

/* Nothing but a request can be told why. */
static void
listener_full_other_cb(void *owner, struct connection *connection,
                       struct buf *bytes)
{
    (void)owner;
    buf_fini(bytes);
    connection_close(connection, "too many connections");
}

static const struct api_conn_events listener_full_events = {
    .exchange =
        {
            .on_request = listener_request_cb,
            .on_cancel = listener_cancel_cb,
        },
    .is_full = true,
    .on_body = listener_body_cb,
    .on_body_done = listener_body_done_cb,
    .on_hello = listener_full_other_cb,
    .on_mux = listener_full_other_cb,
};


/* ---- connections ----------------------------------------------------- */

static void
listener_drained(struct listener *listener)
{
    if (listener->draining && listener->connections.count == 0) {
        listener->events->on_drained(listener->owner);
    }
}

static void
listener_closed_cb(void *owner, struct connection *connection)
{
    struct listener *listener = owner;

    list_remove(connection_node(connection));
    metrics.edgemeter_connections = (int64_t)listener->connections.count;
    listener_drained(listener);
}

static void
listener_tick_cb(uv_timer_t *timer)
{
    struct listener *listener = timer->data;
    uint64_t now_ms = clock_mono_ms();
    struct list_node *next;

    for (struct list_node *at = listener->connections.first; at != NULL;
         at = next) {
        next = at->next;
        connection_tick(at->item, now_ms);
    }
    if (!protocol_log_tick() && listener->connections.count == 0) {
        uv_timer_stop(timer);
    }
}


/* ---- accepting ------------------------------------------------------- */

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

static bool
listener_is_full(const struct listener *listener)
{
    return listener->connections.count >= LISTENER_CONNECTIONS_MAX;
}

/* False: it is closed without a word. */
static bool
listener_admit(struct listener *listener, int fd)
{
    uid_t uid = 0;
    pid_t pid = 0;

    if (!peer_of(fd, &uid, &pid) || !peers_allow(&listener->peers, uid)) {
        metrics.edgemeter_peers_refused_total++;
        if (listener_may_log(listener)) {
            log_warn("listener", "foreign user refused",
                     log_int("uid", (int64_t)uid), log_int("pid", pid));
        }
        return false;
    }
    if (!listener_is_full(listener)) {
        return true;
    }
    metrics.edgemeter_connections_refused_total++;
    if (listener_may_log(listener)) {
        log_warn("listener", "connection refused: too many",
                 log_int("connections", LISTENER_CONNECTIONS_MAX));
    }
    return listener->connections.count <
           LISTENER_CONNECTIONS_MAX + LISTENER_REFUSALS_MAX;
}

static void
listener_accepted(struct listener *listener, int fd)
{
    const struct api_conn_events *events = listener_is_full(listener)
                                               ? &listener_full_events
                                               : &listener_api_events;
    struct connection *connection;

    if (!listener_admit(listener, fd)) {
        close(fd);
        return;
    }
    connection =
        connection_create(listener->loop, fd, listener_closed_cb, listener);
    if (connection == NULL) {
        return;
    }
    list_add(&listener->connections, connection_node(connection), connection);
    metrics.edgemeter_connections = (int64_t)listener->connections.count;
    if (!uv_is_active((uv_handle_t *)&listener->tick)) {
        uv_timer_start(&listener->tick, listener_tick_cb, TICK_MS, TICK_MS);
    }
    if (connection_is_closed(connection)) {
        return;
    }
    if (!api_conn_attach(connection, events, listener)) {
        connection_close(connection, "out of memory");
    }
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
listener_create(uv_loop_t *loop, const char *path,
                const struct config_users *peers,
                const struct link_place *place,
                const struct listener_events *events, void *owner)
{
    struct listener *listener = calloc(1, sizeof(*listener));

    if (listener == NULL) {
        log_error("listener", "out of memory");
        return NULL;
    }
    listener->loop = loop;
    listener->events = events;
    listener->owner = owner;
    listener->place = place;
    if (!socket_file_open(&listener->file, path)) {
        free(listener);
        return NULL;
    }
    listener->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    peers_init(&listener->peers, peers);
    CHECK(uv_poll_init(loop, &listener->poll, listener->file.fd) == 0);
    CHECK(uv_timer_init(loop, &listener->pause) == 0);
    CHECK(uv_timer_init(loop, &listener->tick) == 0);
    CHECK(uv_timer_init(loop, &listener->watch) == 0);
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

void
listener_peers_set(struct listener *listener, const struct config_users *peers)
{
    peers_init(&listener->peers, peers);
}

const struct peers *
listener_peers(const struct listener *listener)
{
    return &listener->peers;
}

static void
listener_handle_closed_cb(uv_handle_t *handle)
{
    struct listener *listener = handle->data;

    if (--listener->handles_open > 0) {
        return;
    }
    socket_file_close(&listener->file);
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
    if (listener->draining) {
        return;
    }
    listener->draining = true;
    (void)shutdown(listener->file.fd, SHUT_RDWR); /* libuv closes it later */
    uv_timer_stop(&listener->pause);
    uv_timer_stop(&listener->watch);
    uv_close((uv_handle_t *)&listener->poll, listener_poll_closed_cb);
}

void
listener_drain(struct listener *listener)
{
    struct list_node *next;

    listener_stop(listener);
    for (struct list_node *at = listener->connections.first; at != NULL;
         at = next) {
        next = at->next;
        connection_drain(at->item);
    }
    listener_drained(listener);
}

void
listener_abort(struct listener *listener)
{
    for (struct list_node *at = listener->connections.first; at != NULL;
         at = at->next) {
        connection_close(at->item, "meterd ends");
    }
}

void
listener_destroy(struct listener *listener)
{
    if (listener == NULL) {
        return;
    }
    CHECK(listener->connections.count == 0);
    listener_stop(listener);
    uv_close((uv_handle_t *)&listener->pause, listener_handle_closed_cb);
    uv_close((uv_handle_t *)&listener->tick, listener_handle_closed_cb);
    uv_close((uv_handle_t *)&listener->watch, listener_handle_closed_cb);
}
