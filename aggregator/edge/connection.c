/*
 * connection.c - see connection.h.
 */

#include "edge/connection.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/metrics.h"

#include <stdlib.h>
#include <unistd.h>

struct connection {
    uv_pipe_t pipe;
    uv_write_t write;
    bool is_closed;
    const struct connection_protocol *protocol;
    void *speaker;
    connection_closed_cb on_closed;
    void *owner;
    struct list_node node;
};

struct connection *
connection_create(uv_loop_t *loop, int fd, connection_closed_cb on_closed,
                  void *owner)
{
    struct connection *connection = calloc(1, sizeof(*connection));

    if (connection == NULL) {
        log_error("connection", "out of memory");
        close(fd);
        return NULL;
    }
    connection->on_closed = on_closed;
    connection->owner = owner;
    CHECK(uv_pipe_init(loop, &connection->pipe, 0) == 0);
    connection->pipe.data = connection;
    if (uv_pipe_open(&connection->pipe, fd) != 0) {
        close(fd);
        connection_close(connection, "cannot be watched");
    }
    return connection;
}

void
connection_speak(struct connection *connection,
                 const struct connection_protocol *protocol, void *speaker)
{
    connection->protocol = protocol;
    connection->speaker = speaker;
}


/* ---- the end --------------------------------------------------------- */

static void
connection_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data;

    connection->on_closed(connection->owner, connection);
    if (connection->protocol != NULL) {
        connection->protocol->on_free(connection->speaker);
    }
    free(connection);
}

void
connection_close(struct connection *connection, const char *why)
{
    if (connection->is_closed) {
        return;
    }
    log_debug("connection", "closed", log_str("why", why));
    connection->is_closed = true;
    if (connection->protocol != NULL) {
        connection->protocol->on_close(connection->speaker);
    }
    uv_close((uv_handle_t *)&connection->pipe, connection_closed);
}

bool
connection_is_closed(const struct connection *connection)
{
    return connection->is_closed;
}


/* ---- bytes ----------------------------------------------------------- */

/* No room at all makes libuv report ENOBUFS. */
static void
connection_alloc_cb(uv_handle_t *handle, size_t suggested, uv_buf_t *to)
{
    struct connection *connection = handle->data;
    char *data = NULL;
    size_t size = 0;

    (void)suggested;
    connection->protocol->on_room(connection->speaker, &data, &size);
    *to = uv_buf_init(data, data == NULL ? 0 : (unsigned)size);
}

static void
connection_read_cb(uv_stream_t *stream, ssize_t size, const uv_buf_t *from)
{
    struct connection *connection = stream->data;

    (void)from;
    if (size < 0) {
        connection_close(connection, size == UV_EOF ? "the client is gone"
                                                    : uv_strerror((int)size));
        return;
    }
    if (size > 0) {
        connection->protocol->on_bytes(connection->speaker, (size_t)size);
    }
}

void
connection_read_start(struct connection *connection)
{
    int rc;

    if (connection->is_closed) {
        return;
    }
    rc = uv_read_start((uv_stream_t *)&connection->pipe, connection_alloc_cb,
                       connection_read_cb);
    if (rc != 0 && rc != UV_EALREADY) {
        connection_close(connection, uv_strerror(rc));
    }
}

void
connection_read_stop(struct connection *connection)
{
    uv_read_stop((uv_stream_t *)&connection->pipe);
}

static void
connection_write_cb(uv_write_t *write, int status)
{
    struct connection *connection = write->data;

    if (connection->is_closed) {
        return;
    }
    if (status != 0) {
        connection_close(connection, uv_strerror(status));
        return;
    }
    connection->protocol->on_written(connection->speaker);
}

void
connection_write(struct connection *connection, const uv_buf_t *parts,
                 unsigned count)
{
    int rc;

    connection->write.data = connection;
    rc = uv_write(&connection->write, (uv_stream_t *)&connection->pipe, parts,
                  count, connection_write_cb);
    if (rc != 0) {
        connection_close(connection, uv_strerror(rc));
    }
}


/* ---- for the owner --------------------------------------------------- */

void
connection_drain(struct connection *connection)
{
    if (!connection->is_closed) {
        connection->protocol->on_drain(connection->speaker);
    }
}

void
connection_tick(struct connection *connection, uint64_t now_ms)
{
    if (!connection->is_closed) {
        connection->protocol->on_tick(connection->speaker, now_ms);
    }
}

struct list_node *
connection_node(struct connection *connection)
{
    return &connection->node;
}


/* ---- lines about peers --------------------------------------------------- */

static struct log_limit limit; /* of the process, as the metrics are */

bool
protocol_log_tick(void)
{
    int64_t suppressed = log_limit_turn(&limit, clock_mono_ms());

    if (suppressed > 0) {
        log_info("listener", "lines about peers suppressed",
                 log_int("count", suppressed));
    }
    return limit.suppressed > 0;
}

bool
protocol_log_take(void)
{
    protocol_log_tick();
    if (!log_limit_take(&limit, PROTOCOL_LOG_LINES_MAX)) {
        metrics.edgemeter_log_suppressed_total++;
        return false;
    }
    return true;
}
