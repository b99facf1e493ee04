/*
 * api_conn.c - see api_conn.h.
 *
 * Which state may follow which stands in one table; api_conn_enter is the
 * only place that changes it.
 */

#include "edge/api_conn.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

#include <stdlib.h>

#define API_READ_SIZE 16384
#define HEAD_SIZE_MAX 2048 /* an encoded RESPONSE or NACK with its frame */

#define FRAME_BYTES_MAX \
    (METER_FRAME_HEADER_SIZE + METER_FRAME_SIZE_MAX + 2 * API_READ_SIZE)
#define KEEP_ROOM_MAX (64u << 10) /* larger buffers are not kept idle */
#define BODY_READ_MAX (256u << 10)

enum api_input_state {
    API_INPUT_FRAME, /* waits for a whole frame */
    API_INPUT_BODY,  /* waits for the rest of a request's body */
    API_INPUT_READY, /* holds a whole request until `next` */
    API_INPUT_ENDED  /* takes no more bytes */
};

enum api_event {
    API_EVENT_MORE,        /* give me more bytes */
    API_EVENT_HEAD,        /* a head came, its body has to be read */
    API_EVENT_REQUEST,     /* request and body are whole */
    API_EVENT_HELLO,       /* the first frame; its bytes stay */
    API_EVENT_MUX,         /* likewise */
    API_EVENT_TOO_LARGE,   /* the body would pass the limit: 413 */
    API_EVENT_UNSUPPORTED, /* a known type that has no place here */
    API_EVENT_BAD,         /* error says why; close */
    API_EVENT_NO_MEMORY    /* close */
};

struct api_input {
    enum api_input_state state;
    struct buf bytes;     /* a frame, then what was read behind it */
    size_t request_bytes; /* of `bytes`, that belong to the request */
    struct buf body;      /* the caller may take its bytes when READY */
    size_t body_left;
    struct meter_request request; /* borrows from bytes; BODY and READY */
    uint8_t type;                 /* UNSUPPORTED: of the frame */
    const char *error;            /* BAD: fixed sentence */
    uint64_t skipped;             /* frames of unknown types passed over */
    bool is_used; /* a request came: no other protocol any more */
};

enum api_conn_state {
    API_CONN_READING, /* waits for bytes of a request */
    API_CONN_HELD,    /* waits for room for the body of a request */
    API_CONN_WORKING, /* the owner has a request */
    API_CONN_WRITING, /* an answer goes out; the next request follows */
    API_CONN_LEAVING, /* an answer goes out; then the connection ends */
    API_CONN_CLOSED   /* waits for libuv to let go */
};

#define API_CONN_STATE_COUNT (API_CONN_CLOSED + 1)

#define MAY(state) (1u << API_CONN_##state)

/* What each state may turn into. */
static const unsigned api_conn_next[API_CONN_STATE_COUNT] = {
    [API_CONN_READING] = MAY(HELD) | MAY(WORKING) | MAY(LEAVING) | MAY(CLOSED),
    [API_CONN_HELD] = MAY(READING) | MAY(CLOSED),
    [API_CONN_WORKING] = MAY(WRITING) | MAY(LEAVING) | MAY(CLOSED),
    [API_CONN_WRITING] = MAY(READING) | MAY(LEAVING) | MAY(CLOSED),
    [API_CONN_LEAVING] = MAY(CLOSED),
    [API_CONN_CLOSED] = 0,
};

struct api_conn {
    struct exchange exchange; /* first: the two are cast */
    enum api_conn_state state;
    struct connection *connection;
    const struct api_conn_events *events;
    void *owner;
    void *work;           /* of on_request, for on_cancel */
    bool draining;        /* no request after this one */
    size_t body_room;     /* granted by the owner */
    uint64_t deadline_ms; /* 0: none */

    struct api_input input;
    struct buf ahead; /* read while a request is worked on */
    struct buf out;   /* body of the answer */
    char head[HEAD_SIZE_MAX];

    struct list_node waiting;
};

static void api_conn_run(struct api_conn *conn);

static void
api_conn_enter(struct api_conn *conn, enum api_conn_state state)
{
    CHECK((api_conn_next[conn->state] & (1u << state)) != 0);
    conn->state = state;
}


/* ---- bytes into requests ------------------------------------------------- */

static void
api_input_init(struct api_input *input)
{
    *input = (struct api_input){.state = API_INPUT_FRAME};
    buf_init(&input->bytes, FRAME_BYTES_MAX);
    buf_init(&input->body, METER_BODY_SIZE_MAX);
}

static void
api_input_fini(struct api_input *input)
{
    buf_fini(&input->bytes);
    buf_fini(&input->body);
    input->state = API_INPUT_ENDED;
}

static bool
api_input_room(struct api_input *input, char **data, size_t *size)
{
    struct buf *into = &input->bytes;

    CHECK(input->state == API_INPUT_FRAME || input->state == API_INPUT_BODY);
    *size = API_READ_SIZE;
    if (input->state == API_INPUT_BODY) {
        into = &input->body;
        *size =
            input->body_left < BODY_READ_MAX ? input->body_left : BODY_READ_MAX;
    }
    *data = buf_reserve(into, *size);
    return *data != NULL;
}

static void
api_input_wrote(struct api_input *input, size_t size)
{
    if (input->state == API_INPUT_BODY) {
        CHECK(size <= input->body_left);
        buf_commit(&input->body, size);
        input->body_left -= size;
        return;
    }
    CHECK(input->state == API_INPUT_FRAME);
    buf_commit(&input->bytes, size);
}

static enum api_event
api_input_end(struct api_input *input, enum api_event event, const char *error)
{
    input->state = API_INPUT_ENDED;
    input->error = error;
    return event;
}

/* The head is decoded: moves what is there of the body behind it. */
static enum api_event
api_input_head(struct api_input *input, size_t frame_size)
{
    size_t behind = input->bytes.size - frame_size;
    size_t body_size, taken;

    if (input->request.body_size > METER_BODY_SIZE_MAX) {
        return api_input_end(input, API_EVENT_TOO_LARGE, "body is too large");
    }
    body_size = (size_t)input->request.body_size;
    taken = behind < body_size ? behind : body_size;
    buf_reset(&input->body);
    buf_put(&input->body, input->bytes.data + frame_size, taken);
    if (input->body.failed) {
        return api_input_end(input, API_EVENT_NO_MEMORY, "out of memory");
    }
    input->request_bytes = frame_size + taken;
    input->body_left = body_size - taken;
    input->state = API_INPUT_BODY;
    return API_EVENT_HEAD;
}

/* One whole frame of any type. */
static enum api_event
api_input_frame(struct api_input *input, const struct meter_frame *frame,
                size_t frame_size)
{
    input->type = frame->type;
    if (frame->type == METER_FRAME_HELLO && !input->is_used) {
        return api_input_end(input, API_EVENT_HELLO, NULL);
    }
    if (frame->type == METER_FRAME_MUX && !input->is_used) {
        return api_input_end(input, API_EVENT_MUX, NULL);
    }
    if (frame->type == METER_FRAME_REQUEST) {
        input->is_used = true;
        if (!meter_request_decode(frame->payload, &input->request)) {
            return api_input_end(input, API_EVENT_BAD,
                                 "request cannot be decoded");
        }
        return api_input_head(input, frame_size);
    }
    if (frame->type >= METER_FRAME_HELLO && frame->type <= METER_FRAME_CANCEL) {
        return api_input_end(input, API_EVENT_UNSUPPORTED,
                             "frame type is not served");
    }
    if ((frame->flags & METER_FRAME_CRITICAL) != 0) {
        return api_input_end(input, API_EVENT_BAD,
                             "unknown critical frame type");
    }
    input->skipped++;
    buf_consume(&input->bytes, frame_size);
    return API_EVENT_MORE;
}

static enum api_event
api_input_step_frame(struct api_input *input)
{
    enum meter_frame_error error = METER_FRAME_OK;
    struct meter_frame frame;
    size_t used = 0, need = 0;

    while (input->bytes.size > 0) {
        enum api_event event;

        switch (meter_frame_decode(input->bytes.data, input->bytes.size, &frame,
                                   &used, &need, &error)) {
        case METER_DECODE_MORE: return API_EVENT_MORE;
        case METER_DECODE_BAD:
            return api_input_end(input, API_EVENT_BAD,
                                 meter_frame_error_text(error));
        case METER_DECODE_OK: break;
        }
        event = api_input_frame(input, &frame, used);
        if (event != API_EVENT_MORE) {
            return event;
        }
    }
    return API_EVENT_MORE;
}

static enum api_event
api_input_step(struct api_input *input)
{
    switch (input->state) {
    case API_INPUT_FRAME: return api_input_step_frame(input);
    case API_INPUT_BODY:
        if (input->body_left > 0) {
            return API_EVENT_MORE;
        }
        input->state = API_INPUT_READY;
        return API_EVENT_REQUEST;
    case API_INPUT_READY:
    case API_INPUT_ENDED: break;
    }
    CHECK(false);
    return API_EVENT_BAD;
}

static void
api_input_next(struct api_input *input)
{
    CHECK(input->state == API_INPUT_READY);
    buf_consume(&input->bytes, input->request_bytes);
    input->request_bytes = 0;
    if (input->bytes.size == 0 && input->bytes.room > KEEP_ROOM_MAX) {
        buf_fini(&input->bytes);
        buf_init(&input->bytes, FRAME_BYTES_MAX);
    }
    if (input->body.room > KEEP_ROOM_MAX) {
        buf_fini(&input->body);
        buf_init(&input->body, METER_BODY_SIZE_MAX);
    }
    buf_reset(&input->body);
    input->state = API_INPUT_FRAME;
}

static bool
api_input_append(struct api_input *input, struct meter_str bytes)
{
    CHECK(input->state == API_INPUT_FRAME);
    CHECK(bytes.size <= API_READ_SIZE);
    buf_put_str(&input->bytes, bytes);
    return !input->bytes.failed;
}

static bool
api_input_is_empty(const struct api_input *input)
{
    return input->state == API_INPUT_FRAME && input->bytes.size == 0;
}


/* ---- life ------------------------------------------------------------ */

static void
api_conn_body_done(struct api_conn *conn)
{
    size_t room = conn->body_room;

    conn->body_room = 0;
    conn->events->on_body_done(conn->owner, conn, room);
}

static void
api_conn_close(struct api_conn *conn, const char *why)
{
    connection_close(conn->connection, why);
}

static void
api_conn_close_cb(void *speaker)
{
    struct api_conn *conn = speaker;
    void *work = conn->work;

    if (conn->state == API_CONN_WORKING && work != NULL) {
        conn->work = NULL;
        metrics.edgemeter_requests_aborted_total++;
        conn->events->exchange.on_cancel(conn->owner, work);
    }
    api_conn_enter(conn, API_CONN_CLOSED);
    api_conn_body_done(conn);
}

static void
api_conn_free_cb(void *speaker)
{
    struct api_conn *conn = speaker;

    api_input_fini(&conn->input);
    buf_fini(&conn->ahead);
    buf_fini(&conn->out);
    free(conn);
}

static void
api_conn_drain_cb(void *speaker)
{
    struct api_conn *conn = speaker;

    conn->draining = true;
    switch (conn->state) {
    case API_CONN_READING:
        if (api_input_is_empty(&conn->input)) {
            api_conn_close(conn, "drained");
        }
        break;
    case API_CONN_WRITING: api_conn_enter(conn, API_CONN_LEAVING); break;
    case API_CONN_HELD:
    case API_CONN_WORKING:
    case API_CONN_LEAVING:
    case API_CONN_CLOSED: break;
    }
}

static void
api_conn_tick_cb(void *speaker, uint64_t now_ms)
{
    struct api_conn *conn = speaker;

    if (conn->deadline_ms == 0 || now_ms < conn->deadline_ms) {
        return;
    }
    metrics.edgemeter_sessions_timed_out_total++;
    api_conn_close(conn, conn->state == API_CONN_READING
                             ? "half a request, then silence"
                             : "the answer is not read");
}

static void
api_conn_deadline_set(struct api_conn *conn)
{
    conn->deadline_ms = clock_mono_ms() + API_CONN_IDLE_MS;
}


/* ---- reading --------------------------------------------------------- */

static void
api_conn_room_cb(void *speaker, char **data, size_t *size)
{
    struct api_conn *conn = speaker;

    if (conn->state == API_CONN_READING) {
        if (!api_input_room(&conn->input, data, size)) {
            *data = NULL;
        }
        return;
    }
    *size = API_READ_SIZE - conn->ahead.size;
    *data = *size == 0 ? NULL : buf_reserve(&conn->ahead, *size);
}

static void
api_conn_bytes_cb(void *speaker, size_t size)
{
    struct api_conn *conn = speaker;

    if (conn->state == API_CONN_READING) {
        api_conn_deadline_set(conn);
        api_input_wrote(&conn->input, size);
        api_conn_run(conn);
        return;
    }
    buf_commit(&conn->ahead, size);
    if (conn->ahead.size == API_READ_SIZE) {
        /* back-pressure: the socket keeps the rest */
        connection_read_stop(conn->connection);
    }
}


/* ---- answering ------------------------------------------------------- */

static void
api_conn_written_cb(void *speaker)
{
    struct api_conn *conn = speaker;

    buf_fini(&conn->out);
    if (conn->state == API_CONN_LEAVING) {
        api_conn_close(conn, "answered");
        return;
    }
    api_conn_enter(conn, API_CONN_READING);
    conn->deadline_ms = 0;
    api_input_next(&conn->input);
    if (!api_input_append(&conn->input, buf_str(&conn->ahead))) {
        api_conn_close(conn, "out of memory");
        return;
    }
    buf_fini(&conn->ahead);
    connection_read_start(conn->connection);
    if (conn->state == API_CONN_READING) {
        api_conn_run(conn);
    }
}

/* head holds a frame of head_size bytes; the body is in out. */
static void
api_conn_write(struct api_conn *conn, size_t head_size)
{
    uv_buf_t parts[2] = {
        uv_buf_init(conn->head, (unsigned)head_size),
        uv_buf_init(conn->out.data, (unsigned)conn->out.size),
    };

    api_conn_deadline_set(conn);
    connection_write(conn->connection, parts, conn->out.size > 0 ? 2 : 1);
}

static size_t
api_conn_encode_response(struct api_conn *conn,
                         const struct meter_response *response)
{
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = METER_FRAME_RESPONSE,
    };
    struct meter_writer writer;
    size_t start;

    meter_writer_init(&writer, conn->head, sizeof(conn->head));
    start = meter_frame_begin(&writer);
    meter_response_encode(response, &writer);
    meter_frame_seal(&writer, start, &frame);
    CHECK(!writer.failed); /* heads are made by us and short */
    return writer.at;
}

static void
api_conn_answer_cb(struct exchange *exchange, const struct meter_response *head,
                   struct buf *body)
{
    struct api_conn *conn = (struct api_conn *)exchange;
    struct meter_response response = *head;

    CHECK(conn->state == API_CONN_WORKING);
    CHECK(!body->failed);
    conn->work = NULL;
    conn->out = *body;
    buf_init(body, body->size_max);
    response.body_size = conn->out.size;
    api_conn_enter(conn, conn->draining || conn->events->is_full
                             ? API_CONN_LEAVING
                             : API_CONN_WRITING);
    api_conn_body_done(conn);
    api_conn_write(conn, api_conn_encode_response(conn, &response));
}

/* The body that was announced will not be read: say so and leave. */
static void
api_conn_refuse_body(struct api_conn *conn)
{
    static const char text[] = "{\"error\":\"the body is larger than 16 MiB\"}";
    struct meter_response response = {
        .status = 413,
        .content_type = METER_STR("application/json"),
        .body_size = sizeof(text) - 1,
    };

    metrics.edgemeter_requests_total++;
    metrics.edgemeter_answers_4xx_total++;
    connection_read_stop(conn->connection);
    api_conn_enter(conn, API_CONN_LEAVING);
    buf_init(&conn->out, sizeof(text));
    buf_put_text(&conn->out, text);
    if (conn->out.failed) {
        api_conn_close(conn, "out of memory");
        return;
    }
    api_conn_write(conn, api_conn_encode_response(conn, &response));
}

/* A type that has no place on an API connection: say so and leave. */
static void
api_conn_refuse_type(struct api_conn *conn)
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
                 log_str("type", meter_frame_type_name(conn->input.type)));
    }
    connection_read_stop(conn->connection);
    meter_writer_init(&writer, conn->head, sizeof(conn->head));
    start = meter_frame_begin(&writer);
    meter_nack_encode(&nack, &writer);
    meter_frame_seal(&writer, start, &frame);
    CHECK(!writer.failed);
    api_conn_enter(conn, API_CONN_LEAVING);
    api_conn_write(conn, writer.at);
}


/* ---- the way of a request -------------------------------------------- */

static void
api_conn_head(struct api_conn *conn)
{
    size_t size = (size_t)conn->input.request.body_size;

    if (size == 0) {
        return;
    }
    if (conn->events->on_body(conn->owner, conn, size)) {
        conn->body_room = size;
        return;
    }
    api_conn_enter(conn, API_CONN_HELD);
    conn->deadline_ms = 0;
    connection_read_stop(conn->connection);
}

void
api_conn_granted(struct api_conn *conn)
{
    CHECK(conn->state == API_CONN_HELD);
    conn->body_room = api_conn_body_size(conn);
    api_conn_enter(conn, API_CONN_READING);
    api_conn_deadline_set(conn);
    connection_read_start(conn->connection);
    if (conn->state == API_CONN_READING) {
        api_conn_run(conn);
    }
}

static void
api_conn_request(struct api_conn *conn)
{
    void *work;

    api_conn_enter(conn, API_CONN_WORKING);
    conn->deadline_ms = 0;
    work = conn->events->exchange.on_request(
        conn->owner, &conn->exchange, &conn->input.request, &conn->input.body,
        conn->events->is_full);
    if (conn->state == API_CONN_WORKING) {
        conn->work = work;
    } else {
        CHECK(work == NULL);
    }
}

/*
 * Another protocol begins: the connection goes to who speaks it, with all
 * bytes. Only a fresh connection comes here, so that there is nothing else to
 * hand over.
 */
static void
api_conn_leave_to(struct api_conn *conn,
                  void (*take)(void *, struct connection *, struct buf *))
{
    struct buf bytes = conn->input.bytes;

    buf_init(&conn->input.bytes, 0);
    connection_speak(conn->connection, NULL, NULL);
    take(conn->owner, conn->connection, &bytes);
    api_conn_free_cb(conn);
}

static void
api_conn_run(struct api_conn *conn)
{
    while (conn->state == API_CONN_READING) {
        switch (api_input_step(&conn->input)) {
        case API_EVENT_MORE:
            if (api_input_is_empty(&conn->input)) {
                conn->deadline_ms = 0;
                if (conn->draining) {
                    api_conn_close(conn, "drained");
                }
            }
            return;
        case API_EVENT_HEAD: api_conn_head(conn); break;
        case API_EVENT_REQUEST: api_conn_request(conn); break;
        case API_EVENT_HELLO:
            api_conn_leave_to(conn, conn->events->on_hello);
            return;
        case API_EVENT_MUX:
            api_conn_leave_to(conn, conn->events->on_mux);
            return;
        case API_EVENT_TOO_LARGE: api_conn_refuse_body(conn); return;
        case API_EVENT_UNSUPPORTED: api_conn_refuse_type(conn); return;
        case API_EVENT_BAD:
            metrics.edgemeter_protocol_errors_total++;
            if (protocol_log_take()) {
                log_warn("session", "bad frame",
                         log_str("why", conn->input.error));
            }
            api_conn_close(conn, conn->input.error);
            return;
        case API_EVENT_NO_MEMORY:
            log_error("session", "out of memory");
            api_conn_close(conn, "out of memory");
            return;
        }
    }
}


/* ---- for the owner --------------------------------------------------- */

static const struct connection_protocol api_conn_protocol = {
    .on_room = api_conn_room_cb,
    .on_bytes = api_conn_bytes_cb,
    .on_written = api_conn_written_cb,
    .on_drain = api_conn_drain_cb,
    .on_tick = api_conn_tick_cb,
    .on_close = api_conn_close_cb,
    .on_free = api_conn_free_cb,
};

bool
api_conn_attach(struct connection *connection,
                const struct api_conn_events *events, void *owner)
{
    struct api_conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        log_error("session", "out of memory");
        return false;
    }
    conn->exchange.answer = api_conn_answer_cb;
    conn->connection = connection;
    conn->events = events;
    conn->owner = owner;
    if (events->is_full) {
        api_conn_deadline_set(conn); /* nobody stays to be refused */
    }
    api_input_init(&conn->input);
    buf_init(&conn->ahead, API_READ_SIZE);
    connection_speak(connection, &api_conn_protocol, conn);
    connection_read_start(connection);
    return true;
}

struct list_node *
api_conn_waiting_node(struct api_conn *conn)
{
    return &conn->waiting;
}

size_t
api_conn_body_size(const struct api_conn *conn)
{
    return (size_t)conn->input.request.body_size;
}
