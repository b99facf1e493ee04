/*
 * api_conn.c - the API on a connection: requests in, answers out.
 *
 *   connection -> [api_conn] -> on_request ... exchange_answer -> connection
 *                      +-> HELLO: the connection is a ring's, link.c
 *                      +-> MUX: it carries many requests, mux.c
 *
 * One request at a time; what a client sends ahead waits, at most
 * API_READ_SIZE bytes of it in memory, the rest in the socket. A body is read
 * only when there is room for it: all that are read or worked on together
 * hold at most API_BODY_BYTES_MAX; past it a request waits for its turn, in
 * the order of arrival. A client that goes away while its request is worked
 * on cancels it. Which state may follow which stands in one table;
 * api_conn_enter is the only place that changes it.
 */

#include "edge/connection.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"

#include <stdlib.h>

#define API_READ_SIZE      16384
#define API_BODY_BYTES_MAX (256u << 20)
#define API_HEAD_SIZE_MAX                              \
    2048 /* an encoded RESPONSE or NACK with its frame \
          */
#define FRAME_BYTES_MAX \
    (METER_FRAME_HEADER_SIZE + METER_FRAME_SIZE_MAX + 2 * API_READ_SIZE)
#define KEEP_ROOM_MAX (64u << 10) /* larger buffers are not kept idle */
#define BODY_READ_MAX (256u << 10)

/*
 * Bytes into requests; pure.
 *
 *   FRAME --whole REQUEST--> BODY --body_size bytes--> READY --next--> FRAME
 *     |                        |
 *     +------------------------+--> ENDED: bad bytes, or another protocol
 *
 * Any chunking gives the same requests. A request borrows its head from the
 * frame's bytes, which stay where they are until api_input_next. The body is
 * read straight into its own buffer, except for what came in one read with
 * the head; those bytes are moved once.
 */
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
    struct buf bytes;     /* a frame, then what was read after it */
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

#define MAY(state) (1u << API_CONN_##state)

/* What each state may turn into. */
static const unsigned api_conn_next[] = {
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
    bool is_draining;           /* no request after this one */
    bool is_waiting;            /* for room for a body */
    TAILQ_ENTRY(api_conn) next; /* that waits */
    size_t body_room;           /* granted, of edge->body_bytes */
    struct api_input input;
    struct buf ahead; /* read while a request is worked on */
};

static void api_conn_run(struct api_conn *conn);

static void
api_conn_enter(struct api_conn *conn, enum api_conn_state state)
{
    CHECK((api_conn_next[conn->state] & (1u << state)) != 0);
    conn->state = state;
}


/* ---- bytes into requests --------------------------------------------- */

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

/* The head is decoded: moves what is there of the body after it. */
static enum api_event
api_input_head(struct api_input *input, size_t frame_size)
{
    size_t rest = input->bytes.size - frame_size;
    size_t body_size, taken;

    if (input->request.body_size > METER_BODY_SIZE_MAX) {
        return api_input_end(input, API_EVENT_TOO_LARGE, "body is too large");
    }
    body_size = (size_t)input->request.body_size;
    taken = rest < body_size ? rest : body_size;
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
    buf_trim(&input->bytes, KEEP_ROOM_MAX);
    buf_reset(&input->body);
    buf_trim(&input->body, KEEP_ROOM_MAX);
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


/* ---- room for bodies ------------------------------------------------- */

static size_t
api_conn_body_size(const struct api_conn *conn)
{
    return (size_t)conn->input.request.body_size;
}

static void
api_conn_body_take(struct api_conn *conn)
{
    conn->body_room = api_conn_body_size(conn);
    conn->connection->edge->body_bytes += conn->body_room;
}

static bool
api_conn_body_fits(const struct api_conn *conn)
{
    return api_conn_body_size(conn) <=
           API_BODY_BYTES_MAX - conn->connection->edge->body_bytes;
}

/* The rest of the body may come, after the client had to wait. */
static void
api_conn_granted(struct api_conn *conn)
{
    struct connection *connection = conn->connection;

    api_conn_body_take(conn);
    api_conn_enter(conn, API_CONN_READING);
    connection->half_since_ms = clock_mono_ms();
    connection_read_start(connection);
    if (conn->state == API_CONN_READING) {
        api_conn_run(conn);
    }
}

/* Room came free, or one that waited is gone: who is next? */
static void
api_conn_body_done(struct api_conn *conn)
{
    struct edge *edge = conn->connection->edge;
    struct api_conn *next;

    CHECK(conn->body_room <= edge->body_bytes);
    edge->body_bytes -= conn->body_room;
    conn->body_room = 0;
    if (conn->is_waiting) {
        conn->is_waiting = false;
        TAILQ_REMOVE(&edge->waiting, conn, next);
    }
    if (edge->is_granting) {
        return; /* the loop below is further up the stack */
    }
    edge->is_granting = true;
    while ((next = TAILQ_FIRST(&edge->waiting)) != NULL &&
           api_conn_body_fits(next)) {
        next->is_waiting = false;
        TAILQ_REMOVE(&edge->waiting, next, next);
        api_conn_granted(next);
    }
    edge->is_granting = false;
}

/* The head of a request is whole: its body follows, now or later. */
static void
api_conn_head(struct api_conn *conn)
{
    struct edge *edge = conn->connection->edge;

    if (api_conn_body_size(conn) == 0) {
        return;
    }
    if (TAILQ_EMPTY(&edge->waiting) && api_conn_body_fits(conn)) {
        api_conn_body_take(conn);
        return;
    }
    metrics.edgemeter_bodies_held_total++;
    conn->is_waiting = true;
    TAILQ_INSERT_TAIL(&edge->waiting, conn, next);
    api_conn_enter(conn, API_CONN_HELD);
    connection_half_set(conn->connection, false);
    connection_read_stop(conn->connection);
}


/* ---- answering ------------------------------------------------------- */

/* A RESPONSE with its body, whose bytes move out. */
static void
api_conn_send(struct api_conn *conn, const struct meter_response *head,
              struct buf *body)
{
    struct buf *out = &conn->connection->out;
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = METER_FRAME_RESPONSE,
    };
    struct meter_response response = *head;
    struct meter_writer writer;

    response.body_size = body->size;
    if (frame_begin(out, API_HEAD_SIZE_MAX, &writer)) {
        meter_response_encode(&response, &writer);
        frame_end(out, &writer, &frame);
    }
    connection_send(conn->connection, body);
}

static void
api_conn_answer_cb(struct exchange *exchange, const struct meter_response *head,
                   struct buf *body)
{
    struct api_conn *conn = (struct api_conn *)exchange;

    CHECK(conn->state == API_CONN_WORKING);
    CHECK(!body->failed);
    api_conn_enter(conn, conn->is_draining || conn->connection->is_full
                             ? API_CONN_LEAVING
                             : API_CONN_WRITING);
    api_conn_body_done(conn);
    api_conn_send(conn, head, body);
}

/* The body that was announced will not be read: say so and leave. */
static void
api_conn_refuse_body(struct api_conn *conn)
{
    struct meter_response response = {
        .status = 413,
        .content_type = METER_STR("application/json"),
    };
    struct buf body;

    metrics.edgemeter_requests_total++;
    metrics.edgemeter_answers_4xx_total++;
    connection_read_stop(conn->connection);
    connection_half_set(conn->connection, false);
    api_conn_enter(conn, API_CONN_LEAVING);
    buf_init(&body, API_HEAD_SIZE_MAX);
    buf_put_text(&body, "{\"error\":\"the body is larger than 16 MiB\"}");
    api_conn_send(conn, &response, &body);
}

/* A type that has no place on an API connection: say so and leave. */
static void
api_conn_refuse_type(struct api_conn *conn)
{
    struct connection *connection = conn->connection;
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = METER_FRAME_NACK,
    };
    struct meter_nack nack = {.code = METER_NACK_VERSION};
    struct meter_writer writer;

    metrics.edgemeter_protocol_errors_total++;
    if (connection_may_log(connection)) {
        log_warn("session", "frame type is not served",
                 log_str("type", meter_frame_type_name(conn->input.type)));
    }
    connection_read_stop(connection);
    connection_half_set(connection, false);
    if (frame_begin(&connection->out, API_HEAD_SIZE_MAX, &writer)) {
        meter_nack_encode(&nack, &writer);
        frame_end(&connection->out, &writer, &frame);
    }
    api_conn_enter(conn, API_CONN_LEAVING);
    connection_send(connection, NULL);
}

static void
api_conn_written_cb(void *speaker)
{
    struct api_conn *conn = speaker;

    if (conn->state == API_CONN_LEAVING) {
        connection_close(conn->connection, "answered");
        return;
    }
    api_conn_enter(conn, API_CONN_READING);
    api_input_next(&conn->input);
    if (!api_input_append(&conn->input, buf_str(&conn->ahead))) {
        connection_no_memory(conn->connection);
        return;
    }
    buf_fini(&conn->ahead);
    connection_read_start(conn->connection);
    if (conn->state == API_CONN_READING) {
        api_conn_run(conn);
    }
}


/* ---- the way of a request -------------------------------------------- */

static void
api_conn_request(struct api_conn *conn)
{
    struct connection *connection = conn->connection;

    api_conn_enter(conn, API_CONN_WORKING);
    connection_half_set(connection, false);
    exchange_submit(connection->edge, &conn->exchange, &conn->input.request,
                    &conn->input.body, connection->is_full);
}

static void
api_conn_free_cb(void *speaker)
{
    struct api_conn *conn = speaker;

    api_input_fini(&conn->input);
    buf_fini(&conn->ahead);
    free(conn);
}

/*
 * Another protocol begins: the connection goes to who speaks it, with all
 * bytes. Only a fresh connection comes here, so that there is nothing else to
 * hand over.
 */
static void
api_conn_leave_to(struct api_conn *conn,
                  const struct connection_protocol *protocol)
{
    struct connection *connection = conn->connection;
    struct buf bytes = conn->input.bytes;

    if (connection->is_full) { /* nothing but a request can be told why */
        connection_close(connection, "too many connections");
        return;
    }
    buf_init(&conn->input.bytes, 0);
    api_conn_free_cb(conn);
    connection_become(connection, protocol, &bytes);
}

/* All that was read means nothing more. */
static void
api_conn_rest(struct api_conn *conn)
{
    bool is_empty = api_input_is_empty(&conn->input);

    /* Nobody stays to be refused. */
    connection_half_set(conn->connection,
                        !is_empty || conn->connection->is_full);
    if (is_empty && conn->is_draining) {
        connection_close(conn->connection, "drained");
    }
}

static void
api_conn_run(struct api_conn *conn)
{
    while (conn->state == API_CONN_READING) {
        switch (api_input_step(&conn->input)) {
        case API_EVENT_MORE: api_conn_rest(conn); return;
        case API_EVENT_HEAD: api_conn_head(conn); break;
        case API_EVENT_REQUEST: api_conn_request(conn); break;
        case API_EVENT_HELLO: api_conn_leave_to(conn, &link_protocol); return;
        case API_EVENT_MUX: api_conn_leave_to(conn, &mux_protocol); return;
        case API_EVENT_TOO_LARGE: api_conn_refuse_body(conn); return;
        case API_EVENT_UNSUPPORTED: api_conn_refuse_type(conn); return;
        case API_EVENT_BAD:
            connection_bad(conn->connection, conn->input.error);
            return;
        case API_EVENT_NO_MEMORY:
            connection_no_memory(conn->connection);
            return;
        }
    }
}

static void
api_conn_room_cb(void *speaker, char **data, size_t *size)
{
    struct api_conn *conn = speaker;

    if (conn->state == API_CONN_READING) {
        (void)api_input_room(&conn->input, data, size);
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
        conn->connection->half_since_ms = clock_mono_ms(); /* not silent */
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


/* ---- life ------------------------------------------------------------ */

static void
api_conn_begin_cb(struct connection *connection, struct buf *bytes)
{
    struct api_conn *conn = memory_alloc(sizeof(*conn));

    CHECK(bytes == NULL); /* it speaks first */
    conn->exchange.answer = api_conn_answer_cb;
    conn->connection = connection;
    api_input_init(&conn->input);
    buf_init(&conn->ahead, API_READ_SIZE);
    connection->speaker = conn;
    connection_half_set(connection, connection->is_full);
    connection_read_start(connection);
}

static void
api_conn_drain_cb(void *speaker)
{
    struct api_conn *conn = speaker;

    conn->is_draining = true;
    if (conn->state == API_CONN_READING && api_input_is_empty(&conn->input)) {
        connection_close(conn->connection, "drained");
    } else if (conn->state == API_CONN_WRITING) {
        api_conn_enter(conn, API_CONN_LEAVING);
    }
}

static void
api_conn_tick_cb(void *speaker, uint64_t now_ms)
{
    struct api_conn *conn = speaker;

    (void)connection_is_late(conn->connection, now_ms);
}

static void
api_conn_close_cb(void *speaker)
{
    struct api_conn *conn = speaker;

    if (conn->state == API_CONN_WORKING && conn->exchange.work != NULL) {
        exchange_cancel(conn->connection->edge, &conn->exchange);
    }
    api_conn_enter(conn, API_CONN_CLOSED);
    api_conn_body_done(conn);
}

const struct connection_protocol api_protocol = {
    .log_name = "session",
    .out_max = API_HEAD_SIZE_MAX,
    .on_begin = api_conn_begin_cb,
    .on_room = api_conn_room_cb,
    .on_bytes = api_conn_bytes_cb,
    .on_written = api_conn_written_cb,
    .on_drain = api_conn_drain_cb,
    .on_tick = api_conn_tick_cb,
    .on_close = api_conn_close_cb,
    .on_free = api_conn_free_cb,
};
