/*
 * mux.c - many requests of a worker at once, on one connection.
 *
 *   connection -> [mux] -> on_request ... exchange_answer -> connection
 *
 * The worker numbers its requests; answers come in any order and carry the
 * number. CANCEL takes a request back, and the end of the connection all of
 * them. Answers of one turn of the loop go out in one write. A request that
 * comes while MUX_REQUESTS_MAX of them or MUX_BYTES_MAX bytes of them are in
 * flight is refused (is_full). Past MUX_OUT_HOLD bytes of answers that are not
 * written nothing more is read: what is sent waits in the socket. Bodies are
 * small, at most METER_MUX_BODY_MAX.
 *
 * When meterd drains, DRAIN is sent: the worker sends no more requests and
 * closes when all that it has sent are answered.
 */

#include "edge/connection.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/metrics.h"

#include <stdlib.h>
#include <string.h>

#define MUX_REQUESTS_MAX 16384
#define MUX_BYTES_MAX    (64u << 20)
#define MUX_OUT_HOLD     (1u << 20)
#define MUX_DRAINED_MS   1000 /* nothing is left, but it is not closed */
#define MUX_READ_SIZE    (64u << 10)
#define MUX_IN_MAX                                                         \
    (METER_FRAME_HEADER_SIZE + METER_FRAME_SIZE_MAX + METER_MUX_BODY_MAX + \
     2 * MUX_READ_SIZE)
#define MUX_OUT_MAX       (256u << 20) /* all that may be in flight */
#define MUX_KEEP_ROOM_MAX (256u << 10) /* larger buffers are not kept idle */
#define MUX_HEAD_SIZE_MAX 2048         /* an encoded RESPONSE with its frame */
#define MUX_BUCKETS       1024         /* of requests, by number */

struct mux_request {
    struct exchange exchange; /* first: the two are cast */
    struct mux *mux;
    uint64_t number;
    size_t size; /* of its head and body */
    struct mux_request *next;
    struct buf body;
    struct meter_request request; /* borrows from head */
    char head[];
};

struct mux {
    struct connection *connection;
    uv_prepare_t turn;   /* answers are written before the loop sleeps */
    unsigned holders;    /* connection and turn: the last one frees */
    bool is_begun;       /* MUX was read */
    bool is_draining;    /* DRAIN was sent */
    bool is_running;     /* further up the stack */
    uint64_t drained_ms; /* 0: something is left */
    struct buf bytes;    /* frames that are not whole yet */

    size_t count;
    size_t size; /* bytes of these */
    struct mux_request *requests[MUX_BUCKETS];
};

static void mux_run(struct mux *mux);


/* ---- requests in flight ---------------------------------------------- */

static struct mux_request **
mux_find(struct mux *mux, uint64_t number)
{
    struct mux_request **at = &mux->requests[number % MUX_BUCKETS];

    while (*at != NULL && (*at)->number != number) {
        at = &(*at)->next;
    }
    return at;
}

/* Out of the table; the memory stays. */
static void
mux_unlink(struct mux *mux, struct mux_request **at)
{
    mux->size -= (*at)->size;
    mux->count--;
    *at = (*at)->next;
    metrics.edgemeter_mux_requests_in_flight--;
}

static void
mux_request_free(struct mux_request *request)
{
    buf_fini(&request->body);
    free(request);
}

static void
mux_cancel(struct mux *mux, struct mux_request **at)
{
    struct mux_request *request = *at;

    mux_unlink(mux, at);
    exchange_cancel(mux->connection->edge, &request->exchange);
    mux_request_free(request);
}


/* ---- writing --------------------------------------------------------- */

static bool
mux_is_held(const struct mux *mux)
{
    return mux->connection->out.size + mux->connection->sending.size >
           MUX_OUT_HOLD;
}

/* Sends; reads no more while it is held, else goes on with what was read. */
static void
mux_flush(struct mux *mux)
{
    connection_send(mux->connection, NULL);
    if (mux->connection->is_closed || mux->is_running) {
        return;
    }
    if (mux_is_held(mux)) {
        connection_half_set(mux->connection, false); /* we make it wait */
        connection_read_stop(mux->connection);
        return;
    }
    connection_read_start(mux->connection);
    mux_run(mux);
}

static void
mux_turn_cb(uv_prepare_t *turn)
{
    uv_prepare_stop(turn);
    mux_flush(turn->data);
}

static void
mux_written_cb(void *speaker)
{
    mux_flush(speaker);
}

/* Something is in out: it leaves at the end of this turn of the loop. */
static void
mux_said(struct mux *mux)
{
    if (!uv_is_active((uv_handle_t *)&mux->turn)) {
        uv_prepare_start(&mux->turn, mux_turn_cb);
    }
}

static void
mux_say(struct mux *mux, uint8_t type)
{
    struct meter_frame frame = {.version = METER_PROTOCOL_MAX, .type = type};

    frame_put(&mux->connection->out, &frame);
    mux_said(mux);
}

static void
mux_answer_cb(struct exchange *exchange, const struct meter_response *head,
              struct buf *body)
{
    struct mux_request *request = (struct mux_request *)exchange;
    struct mux *mux = request->mux;
    struct buf *out = &mux->connection->out;
    struct meter_response response = *head;
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = METER_FRAME_RESPONSE,
        .seq = request->number,
    };
    struct meter_writer writer;

    CHECK(!body->failed);
    response.body_size = body->size;
    if (frame_begin(out, MUX_HEAD_SIZE_MAX, &writer)) {
        meter_response_encode(&response, &writer);
        frame_end(out, &writer, &frame);
    }
    buf_put_str(out, buf_str(body));
    buf_fini(body);
    mux_unlink(mux, mux_find(mux, request->number));
    mux_request_free(request);
    mux_said(mux);
}


/* ---- reading --------------------------------------------------------- */

static bool
mux_is_full(const struct mux *mux)
{
    return mux->count >= MUX_REQUESTS_MAX || mux->size >= MUX_BYTES_MAX;
}

/* The request is whole and moves in. */
static void
mux_submit(struct mux *mux, struct mux_request *request, const char *body,
           size_t body_size)
{
    struct mux_request **at = mux_find(mux, request->number);
    bool is_full = mux_is_full(mux);

    if (*at != NULL) {
        mux_request_free(request);
        connection_bad(mux->connection, "a number that is in use");
        return;
    }
    buf_init(&request->body, METER_MUX_BODY_MAX);
    buf_put(&request->body, body, body_size);
    if (request->body.failed) {
        mux_request_free(request);
        connection_no_memory(mux->connection);
        return;
    }
    request->exchange.answer = mux_answer_cb;
    request->mux = mux;
    *at = request;
    mux->size += request->size;
    mux->count++;
    metrics.edgemeter_mux_requests_in_flight++;
    metrics.edgemeter_mux_requests_total++;
    exchange_submit(mux->connection->edge, &request->exchange,
                    &request->request, &request->body, is_full);
}

/* How much of what follows the frame belongs to it; SIZE_MAX: not whole. */
static size_t
mux_request(struct mux *mux, const struct meter_frame *frame, const char *rest,
            size_t rest_size)
{
    /* As large as the worker likes: it may fail, and ends only the mux. */
    struct mux_request *request =
        malloc(sizeof(*request) + frame->payload.size);
    struct meter_str head;
    const char *why = NULL;
    size_t body_size;

    if (request == NULL) {
        connection_no_memory(mux->connection);
        return 0;
    }
    memset(request, 0, offsetof(struct mux_request, request));
    memcpy(request->head, frame->payload.data, frame->payload.size);
    head = (struct meter_str){request->head, frame->payload.size};
    if (!meter_request_decode(head, &request->request)) {
        why = "request cannot be decoded";
    } else if (request->request.body_size > METER_MUX_BODY_MAX) {
        why = "body is too large for a mux";
    }
    if (why != NULL) {
        free(request);
        connection_bad(mux->connection, why);
        return 0;
    }
    body_size = (size_t)request->request.body_size;
    if (rest_size < body_size) {
        free(request);
        return SIZE_MAX;
    }
    request->number = frame->seq;
    request->size = frame->payload.size + body_size;
    mux_submit(mux, request, rest, body_size);
    return body_size;
}

static size_t
mux_frame(struct mux *mux, const struct meter_frame *frame, const char *rest,
          size_t rest_size)
{
    struct mux_request **at;

    switch (frame->type) {
    case METER_FRAME_REQUEST: return mux_request(mux, frame, rest, rest_size);
    case METER_FRAME_CANCEL:
        at = mux_find(mux, frame->seq);
        if (*at != NULL) { /* else the answer is on its way */
            mux_cancel(mux, at);
        }
        return 0;
    case METER_FRAME_MUX:
        if (mux->is_begun) {
            connection_bad(mux->connection, "a second MUX");
        }
        mux->is_begun = true;
        return 0;
    default:
        if (frame->type <= METER_FRAME_CANCEL ||
            (frame->flags & METER_FRAME_CRITICAL) != 0) {
            connection_bad(mux->connection, "a type that has no place here");
        }
    }
    return 0;
}

/* Every whole request that was read, as long as it may. */
static void
mux_run(struct mux *mux)
{
    struct connection *connection = mux->connection;
    size_t at = 0;

    mux->is_running = true;
    while (!connection->is_closed && at < mux->bytes.size &&
           !mux_is_held(mux)) {
        enum meter_frame_error error = METER_FRAME_OK;
        const char *data = mux->bytes.data + at;
        size_t size = mux->bytes.size - at;
        size_t used = 0, need = 0, body = SIZE_MAX;
        struct meter_frame frame;

        switch (meter_frame_decode(data, size, &frame, &used, &need, &error)) {
        case METER_DECODE_BAD:
            connection_bad(connection, meter_frame_error_text(error));
            continue;
        case METER_DECODE_MORE: break;
        case METER_DECODE_OK:
            body = mux_frame(mux, &frame, data + used, size - used);
            break;
        }
        if (body == SIZE_MAX) {
            break;
        }
        at += used + body;
    }
    mux->is_running = false;
    if (connection->is_closed) {
        return;
    }
    if (at > 0) {
        buf_consume(&mux->bytes, at);
        connection_half_set(connection, false);
    }
    buf_trim(&mux->bytes, MUX_KEEP_ROOM_MAX);
    connection_half_set(connection, mux->bytes.size > 0 && !mux_is_held(mux));
    if (mux_is_held(mux)) {
        connection_read_stop(connection);
    }
}

static void
mux_room_cb(void *speaker, char **data, size_t *size)
{
    struct mux *mux = speaker;

    *size = MUX_READ_SIZE;
    *data = buf_reserve(&mux->bytes, MUX_READ_SIZE);
}

static void
mux_bytes_cb(void *speaker, size_t size)
{
    struct mux *mux = speaker;

    buf_commit(&mux->bytes, size);
    mux_run(mux);
}


/* ---- life ------------------------------------------------------------ */

static void
mux_begin_cb(struct connection *connection, struct buf *bytes)
{
    struct mux *mux = memory_alloc(sizeof(*mux));

    mux->connection = connection;
    mux->bytes = *bytes;
    mux->bytes.size_max = MUX_IN_MAX;
    buf_init(bytes, 0);
    CHECK(uv_prepare_init(connection->edge->loop, &mux->turn) == 0);
    mux->turn.data = mux;
    mux->holders = 2;
    metrics.edgemeter_muxes++;
    connection->speaker = mux;
    mux_say(mux, METER_FRAME_MUX);
    connection_read_start(connection);
    if (!connection->is_closed) {
        mux_run(mux);
    }
}

static void
mux_drain_cb(void *speaker)
{
    struct mux *mux = speaker;

    if (!mux->is_draining) {
        mux->is_draining = true;
        mux_say(mux, METER_FRAME_DRAIN);
    }
}

/* The worker has been told, and has nothing here any more. */
static bool
mux_is_over(struct mux *mux, uint64_t now_ms)
{
    if (!mux->is_draining || mux->count > 0 || mux->connection->out.size > 0 ||
        mux->connection->sending.size > 0) {
        mux->drained_ms = 0;
        return false;
    }
    if (mux->drained_ms == 0) {
        mux->drained_ms = now_ms;
    }
    return now_ms - mux->drained_ms >= MUX_DRAINED_MS;
}

static void
mux_tick_cb(void *speaker, uint64_t now_ms)
{
    struct mux *mux = speaker;

    if (!connection_is_late(mux->connection, now_ms) &&
        mux_is_over(mux, now_ms)) {
        connection_close(mux->connection, "drained");
    }
}

static void
mux_free_cb(void *speaker)
{
    struct mux *mux = speaker;

    if (--mux->holders == 0) {
        buf_fini(&mux->bytes);
        free(mux);
    }
}

static void
mux_turn_closed_cb(uv_handle_t *handle)
{
    mux_free_cb(handle->data);
}

static void
mux_close_cb(void *speaker)
{
    struct mux *mux = speaker;

    metrics.edgemeter_muxes--;
    for (size_t i = 0; i < MUX_BUCKETS; i++) {
        while (mux->requests[i] != NULL) {
            mux_cancel(mux, &mux->requests[i]);
        }
    }
    uv_close((uv_handle_t *)&mux->turn, mux_turn_closed_cb);
}

const struct connection_protocol mux_protocol = {
    .log_name = "mux",
    .out_max = MUX_OUT_MAX,
    .on_begin = mux_begin_cb,
    .on_room = mux_room_cb,
    .on_bytes = mux_bytes_cb,
    .on_written = mux_written_cb,
    .on_drain = mux_drain_cb,
    .on_tick = mux_tick_cb,
    .on_close = mux_close_cb,
    .on_free = mux_free_cb,
};
