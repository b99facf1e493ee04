/*
 * mux.c - see mux.h.
 */

#include "edge/mux.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

#include <stdlib.h>
#include <string.h>

#define READ_SIZE (64u << 10)
#define BYTES_MAX                                                          \
    (METER_FRAME_HEADER_SIZE + METER_FRAME_SIZE_MAX + METER_MUX_BODY_MAX + \
     2 * READ_SIZE)
#define OUT_BYTES_MAX (256u << 20) /* all that may be in flight */
#define KEEP_ROOM_MAX (256u << 10) /* larger buffers are not kept idle */
#define HEAD_SIZE_MAX 2048         /* an encoded RESPONSE with its frame */
#define BUCKETS       1024         /* of requests, by number */

struct mux_request {
    struct exchange exchange; /* first: the two are cast */
    struct mux *mux;
    uint64_t number;
    size_t size; /* of its head and body */
    void *work;  /* of on_request, for on_cancel */
    struct mux_request *next;
    struct meter_request request; /* borrows from head */
    struct buf body;
    char head[];
};

struct mux {
    struct connection *connection;
    const struct exchange_events *events;
    void *owner;
    uv_prepare_t turn; /* answers are written before the loop sleeps */
    unsigned holders;  /* connection and turn: the last one frees */
    bool is_closed;
    bool is_begun; /* MUX was read */
    bool is_draining;
    bool is_running;     /* further up the stack */
    uint64_t drained_ms; /* 0: something is left */

    struct buf bytes;       /* frames that are not whole yet */
    uint64_t half_since_ms; /* 0: none is half read */
    struct buf out;         /* for the next write */
    struct buf sending;     /* with the kernel; empty: none */
    uint64_t sent_since_ms; /* of sending */

    size_t count;
    size_t size; /* bytes of these */
    struct mux_request *requests[BUCKETS];
};

static void mux_run(struct mux *mux);


/* ---- requests in flight ---------------------------------------------- */

static struct mux_request **
mux_find(struct mux *mux, uint64_t number)
{
    struct mux_request **at = &mux->requests[number % BUCKETS];

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
    metrics.edgemeter_requests_aborted_total++;
    mux->events->on_cancel(mux->owner, request->work);
    mux_request_free(request);
}


/* ---- writing --------------------------------------------------------- */

static bool
mux_is_held(const struct mux *mux)
{
    return mux->out.size + mux->sending.size > MUX_OUT_HOLD;
}

/* Reads no more while it is held; goes on with what was read before. */
static void
mux_reading(struct mux *mux)
{
    if (mux->is_closed || mux->is_running) {
        return;
    }
    if (mux_is_held(mux)) {
        mux->half_since_ms = 0; /* it is not the worker who waits */
        connection_read_stop(mux->connection);
        return;
    }
    connection_read_start(mux->connection);
    mux_run(mux);
}

static void
mux_flush(struct mux *mux)
{
    struct buf sending = mux->out;
    uv_buf_t part;

    if (mux->is_closed || mux->sending.size > 0) {
        return;
    }
    if (sending.failed) {
        log_error("mux", "out of memory");
        connection_close(mux->connection, "out of memory");
        return;
    }
    if (sending.size == 0) {
        return;
    }
    mux->out = mux->sending;
    buf_reset(&mux->out);
    mux->sending = sending;
    mux->sent_since_ms = clock_mono_ms();
    part = uv_buf_init(sending.data, (unsigned)sending.size);
    connection_write(mux->connection, &part, 1);
}

static void
mux_turn_cb(uv_prepare_t *turn)
{
    struct mux *mux = turn->data;

    uv_prepare_stop(turn);
    mux_flush(mux);
    mux_reading(mux);
}

static void
mux_written_cb(void *speaker)
{
    struct mux *mux = speaker;

    if (mux->sending.room > KEEP_ROOM_MAX) {
        buf_fini(&mux->sending);
        buf_init(&mux->sending, OUT_BYTES_MAX);
    }
    buf_reset(&mux->sending);
    mux_flush(mux);
    mux_reading(mux);
}

static void
mux_put_frame(struct mux *mux, uint8_t type, uint64_t number,
              const struct meter_response *response)
{
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = type,
        .seq = number,
    };
    char *room = buf_reserve(&mux->out, HEAD_SIZE_MAX);
    struct meter_writer writer;
    size_t start;

    if (room == NULL) {
        return; /* the flush finds out */
    }
    meter_writer_init(&writer, room, HEAD_SIZE_MAX);
    start = meter_frame_begin(&writer);
    if (response != NULL) {
        meter_response_encode(response, &writer);
    }
    meter_frame_seal(&writer, start, &frame);
    CHECK(!writer.failed); /* heads are made by us and short */
    buf_commit(&mux->out, writer.at);
}

static void
mux_said(struct mux *mux)
{
    if (!uv_is_active((uv_handle_t *)&mux->turn)) {
        uv_prepare_start(&mux->turn, mux_turn_cb);
    }
}

static void
mux_answer_cb(struct exchange *exchange, const struct meter_response *head,
              struct buf *body)
{
    struct mux_request *request = (struct mux_request *)exchange;
    struct mux *mux = request->mux;
    struct meter_response response = *head;

    CHECK(!body->failed);
    response.body_size = body->size;
    mux_put_frame(mux, METER_FRAME_RESPONSE, request->number, &response);
    buf_put_str(&mux->out, buf_str(body));
    buf_fini(body);
    mux_unlink(mux, mux_find(mux, request->number));
    mux_request_free(request);
    mux_said(mux);
}


/* ---- reading --------------------------------------------------------- */

static void
mux_bad(struct mux *mux, const char *why)
{
    metrics.edgemeter_protocol_errors_total++;
    if (protocol_log_take()) {
        log_warn("mux", "bad frame", log_str("why", why));
    }
    connection_close(mux->connection, why);
}

static bool
mux_is_full(const struct mux *mux)
{
    return mux->count >= MUX_REQUESTS_MAX || mux->size >= MUX_BYTES_MAX;
}

static void
mux_submit(struct mux *mux, struct mux_request *request, const char *body,
           size_t body_size)
{
    struct mux_request **at = mux_find(mux, request->number);
    uint64_t number = request->number;
    bool is_full = mux_is_full(mux);
    void *work;

    if (*at != NULL) {
        mux_request_free(request);
        mux_bad(mux, "a number that is in use");
        return;
    }
    buf_init(&request->body, METER_MUX_BODY_MAX);
    buf_put(&request->body, body, body_size);
    if (request->body.failed) {
        mux_request_free(request);
        log_error("mux", "out of memory");
        connection_close(mux->connection, "out of memory");
        return;
    }
    request->exchange.answer = mux_answer_cb;
    request->mux = mux;
    *at = request;
    mux->size += request->size;
    mux->count++;
    metrics.edgemeter_mux_requests_in_flight++;
    metrics.edgemeter_mux_requests_total++;
    work = mux->events->on_request(mux->owner, &request->exchange,
                                   &request->request, &request->body, is_full);
    at = mux_find(mux, number);
    if (*at != NULL) {
        (*at)->work = work;
    } else {
        CHECK(work == NULL);
    }
}

/* How much of what is behind the frame belongs to it; SIZE_MAX: not whole. */
static size_t
mux_request(struct mux *mux, const struct meter_frame *frame,
            const char *behind, size_t behind_size)
{
    struct mux_request *request =
        malloc(sizeof(*request) + frame->payload.size);
    size_t body_size;

    if (request == NULL) {
        log_error("mux", "out of memory");
        connection_close(mux->connection, "out of memory");
        return 0;
    }
    memset(request, 0, offsetof(struct mux_request, request));
    buf_init(&request->body, 0);
    memcpy(request->head, frame->payload.data, frame->payload.size);
    if (!meter_request_decode(
            (struct meter_str){request->head, frame->payload.size},
            &request->request)) {
        free(request);
        mux_bad(mux, "request cannot be decoded");
        return 0;
    }
    if (request->request.body_size > METER_MUX_BODY_MAX) {
        free(request);
        mux_bad(mux, "body is too large for a mux");
        return 0;
    }
    body_size = (size_t)request->request.body_size;
    if (behind_size < body_size) {
        free(request);
        return SIZE_MAX;
    }
    request->number = frame->seq;
    request->size = frame->payload.size + body_size;
    mux_submit(mux, request, behind, body_size);
    return body_size;
}

static size_t
mux_frame(struct mux *mux, const struct meter_frame *frame, const char *behind,
          size_t behind_size)
{
    struct mux_request **at;

    switch (frame->type) {
    case METER_FRAME_REQUEST:
        return mux_request(mux, frame, behind, behind_size);
    case METER_FRAME_CANCEL:
        at = mux_find(mux, frame->seq);
        if (*at != NULL) { /* else the answer is on its way */
            mux_cancel(mux, at);
        }
        return 0;
    case METER_FRAME_MUX:
        if (mux->is_begun) {
            mux_bad(mux, "a second MUX");
        }
        mux->is_begun = true;
        return 0;
    default:
        if (frame->type <= METER_FRAME_CANCEL ||
            (frame->flags & METER_FRAME_CRITICAL) != 0) {
            mux_bad(mux, "a type that has no place here");
        }
    }
    return 0;
}

/* Every whole request that was read, as long as it may. */
static void
mux_run(struct mux *mux)
{
    size_t at = 0;

    mux->is_running = true;
    while (!mux->is_closed && at < mux->bytes.size && !mux_is_held(mux)) {
        enum meter_frame_error error = METER_FRAME_OK;
        const char *data = mux->bytes.data + at;
        size_t size = mux->bytes.size - at;
        size_t used = 0, need = 0, body = SIZE_MAX;
        struct meter_frame frame;

        switch (meter_frame_decode(data, size, &frame, &used, &need, &error)) {
        case METER_DECODE_BAD:
            mux_bad(mux, meter_frame_error_text(error));
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
    if (mux->is_closed) {
        return;
    }
    if (at > 0) {
        buf_consume(&mux->bytes, at);
        mux->half_since_ms = 0;
    }
    if (mux->bytes.size == 0 || mux_is_held(mux)) {
        mux->half_since_ms = 0;
    } else if (mux->half_since_ms == 0) {
        mux->half_since_ms = clock_mono_ms();
    }
    if (mux->bytes.size == 0 && mux->bytes.room > KEEP_ROOM_MAX) {
        buf_fini(&mux->bytes);
        buf_init(&mux->bytes, BYTES_MAX);
    }
    if (mux_is_held(mux)) {
        connection_read_stop(mux->connection);
    }
}

static void
mux_room_cb(void *speaker, char **data, size_t *size)
{
    struct mux *mux = speaker;

    *size = READ_SIZE;
    *data = buf_reserve(&mux->bytes, READ_SIZE);
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
mux_drain_cb(void *speaker)
{
    struct mux *mux = speaker;

    if (!mux->is_draining) {
        mux->is_draining = true;
        mux_put_frame(mux, METER_FRAME_DRAIN, 0, NULL);
        mux_said(mux);
    }
}

/* The worker has been told, and has nothing here any more. */
static bool
mux_is_over(struct mux *mux, uint64_t now_ms)
{
    if (!mux->is_draining || mux->count > 0 || mux->out.size > 0 ||
        mux->sending.size > 0) {
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

    if (mux->half_since_ms != 0 && now_ms - mux->half_since_ms >= MUX_IDLE_MS) {
        metrics.edgemeter_sessions_timed_out_total++;
        connection_close(mux->connection, "half a request, then silence");
    } else if (mux->sending.size > 0 &&
               now_ms - mux->sent_since_ms >= MUX_IDLE_MS) {
        metrics.edgemeter_sessions_timed_out_total++;
        connection_close(mux->connection, "the answers are not read");
    } else if (mux_is_over(mux, now_ms)) {
        connection_close(mux->connection, "drained");
    }
}

static void
mux_let_go(struct mux *mux)
{
    if (--mux->holders > 0) {
        return;
    }
    buf_fini(&mux->bytes);
    buf_fini(&mux->out);
    buf_fini(&mux->sending);
    free(mux);
}

static void
mux_turn_closed_cb(uv_handle_t *handle)
{
    mux_let_go(handle->data);
}

static void
mux_free_cb(void *speaker)
{
    mux_let_go(speaker);
}

static void
mux_close_cb(void *speaker)
{
    struct mux *mux = speaker;

    mux->is_closed = true;
    metrics.edgemeter_muxes--;
    for (size_t i = 0; i < BUCKETS; i++) {
        while (mux->requests[i] != NULL) {
            mux_cancel(mux, &mux->requests[i]);
        }
    }
    uv_close((uv_handle_t *)&mux->turn, mux_turn_closed_cb);
}

static const struct connection_protocol mux_protocol = {
    .on_room = mux_room_cb,
    .on_bytes = mux_bytes_cb,
    .on_written = mux_written_cb,
    .on_drain = mux_drain_cb,
    .on_tick = mux_tick_cb,
    .on_close = mux_close_cb,
    .on_free = mux_free_cb,
};

bool
mux_attach(struct connection *connection, uv_loop_t *loop,
           const struct exchange_events *events, void *owner, struct buf *bytes)
{
    struct mux *mux = calloc(1, sizeof(*mux));

    if (mux == NULL) {
        log_error("mux", "out of memory");
        buf_fini(bytes);
        return false;
    }
    mux->connection = connection;
    mux->events = events;
    mux->owner = owner;
    mux->bytes = *bytes;
    mux->bytes.size_max = BYTES_MAX;
    buf_init(bytes, 0);
    buf_init(&mux->out, OUT_BYTES_MAX);
    buf_init(&mux->sending, OUT_BYTES_MAX);
    CHECK(uv_prepare_init(loop, &mux->turn) == 0);
    mux->turn.data = mux;
    mux->holders = 2;
    metrics.edgemeter_muxes++;
    connection_speak(connection, &mux_protocol, mux);
    mux_put_frame(mux, METER_FRAME_MUX, 0, NULL);
    mux_said(mux);
    connection_read_start(connection);
    if (!mux->is_closed) {
        mux_run(mux);
    }
    return true;
}
