/*
 * listener.c - see listener.h.
 */

#include "edge/listener.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "edge/protocol_log.h"
#include "edge/socket_file.h"
#include "edge/mux.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_PER_TURN 64
#define ACCEPT_PAUSE_MS  100
#define TICK_MS          1000
#define LOG_EVERY_MS     1000 /* for lines a stranger can cause */

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
