/*
 * session.c - see session.h.
 *
 * Which state may follow which stands in one table; session_enter is the
 * only place that changes it.
 */

#include "edge/session.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "edge/protocol_log.h"
#include "edge/session_input.h"

#include <stdlib.h>

#define HEAD_SIZE_MAX 2048 /* an encoded RESPONSE or NACK with its frame */

enum session_state {
    SESSION_READING, /* waits for bytes of a request */
    SESSION_HELD,    /* waits for room for the body of a request */
    SESSION_WORKING, /* the owner has a request */
    SESSION_WRITING, /* an answer goes out; the next request follows */
    SESSION_LEAVING, /* an answer goes out; then the connection ends */
    SESSION_CLOSED   /* waits for libuv to let go */
};

#define SESSION_STATE_COUNT (SESSION_CLOSED + 1)

#define MAY(state) (1u << SESSION_##state)

/* What each state may turn into. */
static const unsigned session_next[SESSION_STATE_COUNT] = {
    [SESSION_READING] = MAY(HELD) | MAY(WORKING) | MAY(LEAVING) | MAY(CLOSED),
    [SESSION_HELD] = MAY(READING) | MAY(CLOSED),
    [SESSION_WORKING] = MAY(WRITING) | MAY(LEAVING) | MAY(CLOSED),
    [SESSION_WRITING] = MAY(READING) | MAY(LEAVING) | MAY(CLOSED),
    [SESSION_LEAVING] = MAY(CLOSED),
    [SESSION_CLOSED] = 0,
};

struct session {
    struct exchange exchange; /* first: the two are cast */
    enum session_state state;
    struct connection *connection;
    const struct session_events *events;
    void *owner;
    void *work;           /* of on_request, for on_cancel */
    bool draining;        /* no request after this one */
    size_t body_room;     /* granted by the owner */
    uint64_t deadline_ms; /* 0: none */

    struct session_input input;
    struct buf ahead; /* read while a request is worked on */
    struct buf out;   /* body of the answer */
    char head[HEAD_SIZE_MAX];

    struct list_node waiting;
};

static void session_run(struct session *session);

static void
session_enter(struct session *session, enum session_state state)
{
    CHECK((session_next[session->state] & (1u << state)) != 0);
    session->state = state;
}


/* ---- life ------------------------------------------------------------ */

static void
session_body_done(struct session *session)
{
    size_t room = session->body_room;

    session->body_room = 0;
    session->events->on_body_done(session->owner, session, room);
}

static void
session_close(struct session *session, const char *why)
{
    connection_close(session->connection, why);
}

static void
session_close_cb(void *speaker)
{
    struct session *session = speaker;
    void *work = session->work;

    if (session->state == SESSION_WORKING && work != NULL) {
        session->work = NULL;
        metrics.edgemeter_requests_aborted_total++;
        session->events->exchange.on_cancel(session->owner, work);
    }
    session_enter(session, SESSION_CLOSED);
    session_body_done(session);
}

static void
session_free_cb(void *speaker)
{
    struct session *session = speaker;

    session_input_fini(&session->input);
    buf_fini(&session->ahead);
    buf_fini(&session->out);
    free(session);
}

static void
session_drain_cb(void *speaker)
{
    struct session *session = speaker;

    session->draining = true;
    switch (session->state) {
    case SESSION_READING:
        if (session_input_is_empty(&session->input)) {
            session_close(session, "drained");
        }
        break;
    case SESSION_WRITING: session_enter(session, SESSION_LEAVING); break;
    case SESSION_HELD:
    case SESSION_WORKING:
    case SESSION_LEAVING:
    case SESSION_CLOSED: break;
    }
}

static void
session_tick_cb(void *speaker, uint64_t now_ms)
{
    struct session *session = speaker;

    if (session->deadline_ms == 0 || now_ms < session->deadline_ms) {
        return;
    }
    metrics.edgemeter_sessions_timed_out_total++;
    session_close(session, session->state == SESSION_READING
                               ? "half a request, then silence"
                               : "the answer is not read");
}

static void
session_deadline_set(struct session *session)
{
    session->deadline_ms = clock_mono_ms() + SESSION_IDLE_MS;
}


/* ---- reading --------------------------------------------------------- */

static void
session_room_cb(void *speaker, char **data, size_t *size)
{
    struct session *session = speaker;

    if (session->state == SESSION_READING) {
        if (!session_input_room(&session->input, data, size)) {
            *data = NULL;
        }
        return;
    }
    *size = SESSION_READ_SIZE - session->ahead.size;
    *data = *size == 0 ? NULL : buf_reserve(&session->ahead, *size);
}

static void
session_bytes_cb(void *speaker, size_t size)
{
    struct session *session = speaker;

    if (session->state == SESSION_READING) {
        session_deadline_set(session);
        session_input_wrote(&session->input, size);
        session_run(session);
        return;
    }
    buf_commit(&session->ahead, size);
    if (session->ahead.size == SESSION_READ_SIZE) {
        /* back-pressure: the socket keeps the rest */
        connection_read_stop(session->connection);
    }
}


/* ---- answering ------------------------------------------------------- */

static void
session_written_cb(void *speaker)
{
    struct session *session = speaker;

    buf_fini(&session->out);
    if (session->state == SESSION_LEAVING) {
        session_close(session, "answered");
        return;
    }
    session_enter(session, SESSION_READING);
    session->deadline_ms = 0;
    session_input_next(&session->input);
    if (!session_input_append(&session->input, buf_str(&session->ahead))) {
        session_close(session, "out of memory");
        return;
    }
    buf_fini(&session->ahead);
    connection_read_start(session->connection);
    if (session->state == SESSION_READING) {
        session_run(session);
    }
}

/* head holds a frame of head_size bytes; the body is in out. */
static void
session_write(struct session *session, size_t head_size)
{
    uv_buf_t parts[2] = {
        uv_buf_init(session->head, (unsigned)head_size),
        uv_buf_init(session->out.data, (unsigned)session->out.size),
    };

    session_deadline_set(session);
    connection_write(session->connection, parts, session->out.size > 0 ? 2 : 1);
}

static size_t
session_encode_response(struct session *session,
                        const struct meter_response *response)
{
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = METER_FRAME_RESPONSE,
    };
    struct meter_writer writer;
    size_t start;

    meter_writer_init(&writer, session->head, sizeof(session->head));
    start = meter_frame_begin(&writer);
    meter_response_encode(response, &writer);
    meter_frame_seal(&writer, start, &frame);
    CHECK(!writer.failed); /* heads are made by us and short */
    return writer.at;
}

static void
session_answer_cb(struct exchange *exchange, const struct meter_response *head,
                  struct buf *body)
{
    struct session *session = (struct session *)exchange;
    struct meter_response response = *head;

    CHECK(session->state == SESSION_WORKING);
    CHECK(!body->failed);
    session->work = NULL;
    session->out = *body;
    buf_init(body, body->size_max);
    response.body_size = session->out.size;
    session_enter(session, session->draining || session->events->is_full
                               ? SESSION_LEAVING
                               : SESSION_WRITING);
    session_body_done(session);
    session_write(session, session_encode_response(session, &response));
}

/* The body that was announced will not be read: say so and leave. */
static void
session_refuse_body(struct session *session)
{
    static const char text[] = "{\"error\":\"the body is larger than 16 MiB\"}";
    struct meter_response response = {
        .status = 413,
        .content_type = METER_STR("application/json"),
        .body_size = sizeof(text) - 1,
    };

    metrics.edgemeter_requests_total++;
    metrics.edgemeter_answers_4xx_total++;
    connection_read_stop(session->connection);
    session_enter(session, SESSION_LEAVING);
    buf_init(&session->out, sizeof(text));
    buf_put_text(&session->out, text);
    if (session->out.failed) {
        session_close(session, "out of memory");
        return;
    }
    session_write(session, session_encode_response(session, &response));
}

/* A type that has no place on an API connection: say so and leave. */
static void
session_refuse_type(struct session *session)
{
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = METER_FRAME_NACK,
    };
    struct meter_nack nack = {.code = METER_NACK_VERSION};
    struct meter_writer writer;
    size_t start;

    metrics.edgemeter_protocol_errors_total++;
    if (protocol_log_take()) {
        log_warn("session", "frame type is not served",
                 log_str("type", meter_frame_type_name(session->input.type)));
    }
    connection_read_stop(session->connection);
    meter_writer_init(&writer, session->head, sizeof(session->head));
    start = meter_frame_begin(&writer);
    meter_nack_encode(&nack, &writer);
    meter_frame_seal(&writer, start, &frame);
    CHECK(!writer.failed);
    session_enter(session, SESSION_LEAVING);
    session_write(session, writer.at);
}


/* ---- the way of a request -------------------------------------------- */

static void
session_head(struct session *session)
{
    size_t size = (size_t)session->input.request.body_size;

    if (size == 0) {
        return;
    }
    if (session->events->on_body(session->owner, session, size)) {
        session->body_room = size;
        return;
    }
    session_enter(session, SESSION_HELD);
    session->deadline_ms = 0;
    connection_read_stop(session->connection);
}

void
session_granted(struct session *session)
{
    CHECK(session->state == SESSION_HELD);
    session->body_room = session_body_size(session);
    session_enter(session, SESSION_READING);
    session_deadline_set(session);
    connection_read_start(session->connection);
    if (session->state == SESSION_READING) {
        session_run(session);
    }
}

static void
session_request(struct session *session)
{
    void *work;

    session_enter(session, SESSION_WORKING);
    session->deadline_ms = 0;
    work = session->events->exchange.on_request(
        session->owner, &session->exchange, &session->input.request,
        &session->input.body, session->events->is_full);
    if (session->state == SESSION_WORKING) {
        session->work = work;
    } else {
        CHECK(work == NULL);
    }
}

/*
 * Another protocol begins: the connection goes to who speaks it, with all
 * bytes. Only a fresh session comes here, so that there is nothing else to
 * hand over.
 */
static void
session_leave_to(struct session *session,
                 void (*take)(void *, struct connection *, struct buf *))
{
    struct buf bytes = session->input.bytes;

    buf_init(&session->input.bytes, 0);
    connection_speak(session->connection, NULL, NULL);
    take(session->owner, session->connection, &bytes);
    session_free_cb(session);
}

static void
session_run(struct session *session)
{
    while (session->state == SESSION_READING) {
        switch (session_input_step(&session->input)) {
        case SESSION_EVENT_MORE:
            if (session_input_is_empty(&session->input)) {
                session->deadline_ms = 0;
                if (session->draining) {
                    session_close(session, "drained");
                }
            }
            return;
        case SESSION_EVENT_HEAD: session_head(session); break;
        case SESSION_EVENT_REQUEST: session_request(session); break;
        case SESSION_EVENT_HELLO:
            session_leave_to(session, session->events->on_hello);
            return;
        case SESSION_EVENT_MUX:
            session_leave_to(session, session->events->on_mux);
            return;
        case SESSION_EVENT_TOO_LARGE: session_refuse_body(session); return;
        case SESSION_EVENT_UNSUPPORTED: session_refuse_type(session); return;
        case SESSION_EVENT_BAD:
            metrics.edgemeter_protocol_errors_total++;
            if (protocol_log_take()) {
                log_warn("session", "bad frame",
                         log_str("why", session->input.error));
            }
            session_close(session, session->input.error);
            return;
        case SESSION_EVENT_NO_MEMORY:
            log_error("session", "out of memory");
            session_close(session, "out of memory");
            return;
        }
    }
}


/* ---- for the owner --------------------------------------------------- */

static const struct connection_protocol session_protocol = {
    .on_room = session_room_cb,
    .on_bytes = session_bytes_cb,
    .on_written = session_written_cb,
    .on_drain = session_drain_cb,
    .on_tick = session_tick_cb,
    .on_close = session_close_cb,
    .on_free = session_free_cb,
};

bool
session_attach(struct connection *connection,
               const struct session_events *events, void *owner)
{
    struct session *session = calloc(1, sizeof(*session));

    if (session == NULL) {
        log_error("session", "out of memory");
        return false;
    }
    session->exchange.answer = session_answer_cb;
    session->connection = connection;
    session->events = events;
    session->owner = owner;
    if (events->is_full) {
        session_deadline_set(session); /* nobody stays to be refused */
    }
    session_input_init(&session->input);
    buf_init(&session->ahead, SESSION_READ_SIZE);
    connection_speak(connection, &session_protocol, session);
    connection_read_start(connection);
    return true;
}

struct list_node *
session_waiting_node(struct session *session)
{
    return &session->waiting;
}

size_t
session_body_size(const struct session *session)
{
    return (size_t)session->input.request.body_size;
}
