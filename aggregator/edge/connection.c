/*
 * connection.c - a connection on the socket: its bytes, its time, its end.
 *
 * The listener makes connections; a speaker (api_conn.c, mux.c, link.c) gives
 * the bytes a meaning. What all speakers do in the same way stands here:
 * writing one thing at a time, closing who stops in the middle, refusing bad
 * bytes, handing a request to whoever answers it. A connection is freed only
 * when libuv has let go of its pipe, so that callbacks never meet freed memory.
 */

#include "edge/connection.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#define SENDING_KEEP_MAX ((size_t)256 << 10) /* of its room, between writes */

void
connection_become(struct connection *connection,
                  const struct connection_protocol *protocol, struct buf *bytes)
{
    buf_init(&connection->out, protocol->out_max);
    buf_init(&connection->sending, protocol->out_max);
    connection->protocol = protocol;
    protocol->on_begin(connection, bytes);
    if (connection->edge->is_draining && !connection->is_closed) {
        protocol->on_drain(connection->speaker);
    }
}


/* ---- reading --------------------------------------------------------- */

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

void
connection_half_set(struct connection *connection, bool is_half)
{
    if (!is_half) {
        connection->half_since_ms = 0;
    } else if (connection->half_since_ms == 0) {
        connection->half_since_ms = clock_mono_ms();
    }
}


/* ---- writing --------------------------------------------------------- */

bool
frame_begin(struct buf *out, size_t size, struct meter_writer *writer)
{
    char *room = buf_reserve(out, size);

    if (room == NULL) {
        return false;
    }
    meter_writer_init(writer, room, size);
    CHECK(meter_frame_begin(writer) == 0);
    return true;
}

void
frame_end(struct buf *out, struct meter_writer *writer,
          const struct meter_frame *frame)
{
    meter_frame_seal(writer, 0, frame);
    CHECK(!writer->failed); /* payloads are made by us and fit */
    buf_commit(out, writer->at);
}

void
frame_put(struct buf *out, const struct meter_frame *frame)
{
    struct meter_writer writer;

    if (frame_begin(out, METER_FRAME_HEADER_SIZE, &writer)) {
        frame_end(out, &writer, frame);
    }
}

void
buf_trim(struct buf *buf, size_t room_max)
{
    if (buf->size == 0 && buf->room > room_max) {
        size_t size_max = buf->size_max;

        buf_fini(buf);
        buf_init(buf, size_max);
    }
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
    buf_fini(&connection->body);
    buf_reset(&connection->sending);
    buf_trim(&connection->sending, SENDING_KEEP_MAX);
    connection->protocol->on_written(connection->speaker);
}

void
connection_send(struct connection *connection, struct buf *body)
{
    struct buf sending = connection->out;
    uv_buf_t parts[2];
    int rc;

    if (body != NULL) {
        CHECK(connection->sending.size == 0);
        connection->body = *body;
        buf_init(body, body->size_max);
    }
    if (connection->is_closed || connection->sending.size > 0) {
        return;
    }
    if (sending.failed || connection->body.failed) {
        connection_no_memory(connection);
        return;
    }
    if (sending.size == 0) {
        return;
    }
    connection->out = connection->sending;
    connection->sending = sending;
    connection->sent_since_ms = clock_mono_ms();
    connection->write.data = connection;
    parts[0] = uv_buf_init(sending.data, (unsigned)sending.size);
    parts[1] =
        uv_buf_init(connection->body.data, (unsigned)connection->body.size);
    rc = uv_write(&connection->write, (uv_stream_t *)&connection->pipe, parts,
                  connection->body.size > 0 ? 2 : 1, connection_write_cb);
    if (rc != 0) {
        connection_close(connection, uv_strerror(rc));
    }
}


/* ---- the end --------------------------------------------------------- */

static void
connection_closed_cb(uv_handle_t *handle)
{
    struct connection *connection = handle->data;

    connection->on_closed(connection);
    if (connection->protocol != NULL) {
        connection->protocol->on_free(connection->speaker);
    }
    buf_fini(&connection->out);
    buf_fini(&connection->sending);
    buf_fini(&connection->body);
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
    uv_close((uv_handle_t *)&connection->pipe, connection_closed_cb);
}

void
connection_no_memory(struct connection *connection)
{
    const char *log_name = connection->protocol->log_name;

    log_error(log_name, "out of memory");
    connection_close(connection, "out of memory");
}

bool
connection_may_log(struct connection *connection)
{
    if (!log_limit_take(&connection->edge->lines, CONNECTION_LINES_MAX)) {
        metrics.edgemeter_log_suppressed_total++;
        return false;
    }
    return true;
}

void
connection_bad(struct connection *connection, const char *why)
{
    const char *log_name = connection->protocol->log_name;

    metrics.edgemeter_protocol_errors_total++;
    if (connection_may_log(connection)) {
        log_warn(log_name, "bad frame", log_str("why", why));
    }
    connection_close(connection, why);
}

bool
connection_is_late(struct connection *connection, uint64_t now_ms)
{
    const char *why;

    if (connection->sending.size > 0 &&
        now_ms >= connection->sent_since_ms + CONNECTION_IDLE_MS) {
        why = "the answers are not read";
    } else if (connection->half_since_ms != 0 &&
               now_ms >= connection->half_since_ms + CONNECTION_IDLE_MS) {
        why = "half a request, then silence";
    } else {
        return false;
    }
    metrics.edgemeter_sessions_timed_out_total++;
    connection_close(connection, why);
    return true;
}


/* ---- requests -------------------------------------------------------- */

void
exchange_submit(const struct edge *edge, struct exchange *exchange,
                const struct meter_request *request, struct buf *body,
                bool is_full)
{
    bool is_answered = false;
    void *work;

    exchange->work = NULL;
    /* cppcheck-suppress autoVariables ; forgotten by the answer, or below */
    exchange->is_answered = &is_answered;
    work =
        edge->events->on_request(edge->owner, exchange, request, body, is_full);
    if (is_answered) {
        CHECK(work == NULL); /* and the exchange may be gone */
        return;
    }
    exchange->is_answered = NULL;
    exchange->work = work;
}

void
exchange_cancel(const struct edge *edge, const struct exchange *exchange)
{
    metrics.edgemeter_requests_aborted_total++;
    edge->events->on_cancel(edge->owner, exchange->work);
}


/* ---- peers ----------------------------------------------------------- */

void
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
