/*
 * trunk.c - see trunk.h.
 */

#include "edge/trunk.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "edge/protocol_log.h"

#include <stdlib.h>
#include <string.h>

#define READ_SIZE (64u << 10)
#define BYTES_MAX                                                            \
    (METER_FRAME_HEADER_SIZE + METER_FRAME_SIZE_MAX + METER_TRUNK_BODY_MAX + \
     2 * READ_SIZE)
#define OUT_BYTES_MAX (256u << 20) /* all that may be in flight */
#define KEEP_ROOM_MAX (256u << 10) /* larger buffers are not kept idle */
#define HEAD_SIZE_MAX 2048         /* an encoded RESPONSE with its frame */
#define BUCKETS       1024         /* of requests, by number */

struct trunk_request {
    struct exchange exchange; /* first: the two are cast */
    struct trunk *trunk;
    uint64_t number;
    size_t size; /* of its head and body */
    void *work;  /* of on_request, for on_cancel */
    struct trunk_request *next;
    struct meter_request request; /* borrows from head */
    struct buf body;
    char head[];
};

struct trunk {
    struct connection *connection;
    const struct exchange_events *events;
    void *owner;
    uv_prepare_t turn; /* answers are written before the loop sleeps */
    unsigned holders;  /* connection and turn: the last one frees */
    bool is_closed;
    bool is_begun; /* TRUNK was read */
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
    struct trunk_request *requests[BUCKETS];
};

static void trunk_run(struct trunk *trunk);


/* ---- requests in flight ---------------------------------------------- */

static struct trunk_request **
trunk_find(struct trunk *trunk, uint64_t number)
{
    struct trunk_request **at = &trunk->requests[number % BUCKETS];

    while (*at != NULL && (*at)->number != number) {
        at = &(*at)->next;
    }
    return at;
}

/* Out of the table; the memory stays. */
static void
trunk_unlink(struct trunk *trunk, struct trunk_request **at)
{
    trunk->size -= (*at)->size;
    trunk->count--;
    *at = (*at)->next;
    metrics.edgemeter_trunk_requests_in_flight--;
}

static void
trunk_request_free(struct trunk_request *request)
{
    buf_fini(&request->body);
    free(request);
}

static void
trunk_cancel(struct trunk *trunk, struct trunk_request **at)
{
    struct trunk_request *request = *at;

    trunk_unlink(trunk, at);
    metrics.edgemeter_requests_aborted_total++;
    trunk->events->on_cancel(trunk->owner, request->work);
    trunk_request_free(request);
}


/* ---- writing --------------------------------------------------------- */

static bool
trunk_is_held(const struct trunk *trunk)
{
    return trunk->out.size + trunk->sending.size > TRUNK_OUT_HOLD;
}

/* Reads no more while it is held; goes on with what was read before. */
static void
trunk_reading(struct trunk *trunk)
{
    if (trunk->is_closed || trunk->is_running) {
        return;
    }
    if (trunk_is_held(trunk)) {
        trunk->half_since_ms = 0; /* it is not the worker who waits */
        connection_read_stop(trunk->connection);
        return;
    }
    connection_read_start(trunk->connection);
    trunk_run(trunk);
}

static void
trunk_flush(struct trunk *trunk)
{
    struct buf sending = trunk->out;
    uv_buf_t part;

    if (trunk->is_closed || trunk->sending.size > 0) {
        return;
    }
    if (sending.failed) {
        log_error("trunk", "out of memory");
        connection_close(trunk->connection, "out of memory");
        return;
    }
    if (sending.size == 0) {
        return;
    }
    trunk->out = trunk->sending;
    buf_reset(&trunk->out);
    trunk->sending = sending;
    trunk->sent_since_ms = clock_mono_ms();
    part = uv_buf_init(sending.data, (unsigned)sending.size);
    connection_write(trunk->connection, &part, 1);
}

static void
trunk_turn_cb(uv_prepare_t *turn)
{
    struct trunk *trunk = turn->data;

    uv_prepare_stop(turn);
    trunk_flush(trunk);
    trunk_reading(trunk);
}

static void
trunk_written_cb(void *speaker)
{
    struct trunk *trunk = speaker;

    if (trunk->sending.room > KEEP_ROOM_MAX) {
        buf_fini(&trunk->sending);
        buf_init(&trunk->sending, OUT_BYTES_MAX);
    }
    buf_reset(&trunk->sending);
    trunk_flush(trunk);
    trunk_reading(trunk);
}

static void
trunk_put_frame(struct trunk *trunk, uint8_t type, uint64_t number,
                const struct meter_response *response)
{
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = type,
        .seq = number,
    };
    char *room = buf_reserve(&trunk->out, HEAD_SIZE_MAX);
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
    buf_commit(&trunk->out, writer.at);
}

static void
trunk_said(struct trunk *trunk)
{
    if (!uv_is_active((uv_handle_t *)&trunk->turn)) {
        uv_prepare_start(&trunk->turn, trunk_turn_cb);
    }
}

static void
trunk_answer_cb(struct exchange *exchange, const struct meter_response *head,
                struct buf *body)
{
    struct trunk_request *request = (struct trunk_request *)exchange;
    struct trunk *trunk = request->trunk;
    struct meter_response response = *head;

    CHECK(!body->failed);
    response.body_size = body->size;
    trunk_put_frame(trunk, METER_FRAME_RESPONSE, request->number, &response);
    buf_put_str(&trunk->out, buf_str(body));
    buf_fini(body);
    trunk_unlink(trunk, trunk_find(trunk, request->number));
    trunk_request_free(request);
    trunk_said(trunk);
}


/* ---- reading --------------------------------------------------------- */

static void
trunk_bad(struct trunk *trunk, const char *why)
{
    metrics.edgemeter_protocol_errors_total++;
    if (protocol_log_take()) {
        log_warn("trunk", "bad frame", log_str("why", why));
    }
    connection_close(trunk->connection, why);
}

static bool
trunk_is_full(const struct trunk *trunk)
{
    return trunk->count >= TRUNK_REQUESTS_MAX || trunk->size >= TRUNK_BYTES_MAX;
}

static void
trunk_submit(struct trunk *trunk, struct trunk_request *request,
             const char *body, size_t body_size)
{
    struct trunk_request **at = trunk_find(trunk, request->number);
    uint64_t number = request->number;
    bool is_full = trunk_is_full(trunk);
    void *work;

    if (*at != NULL) {
        trunk_request_free(request);
        trunk_bad(trunk, "a number that is in use");
        return;
    }
    buf_init(&request->body, METER_TRUNK_BODY_MAX);
    buf_put(&request->body, body, body_size);
    if (request->body.failed) {
        trunk_request_free(request);
        log_error("trunk", "out of memory");
        connection_close(trunk->connection, "out of memory");
        return;
    }
    request->exchange.answer = trunk_answer_cb;
    request->trunk = trunk;
    *at = request;
    trunk->size += request->size;
    trunk->count++;
    metrics.edgemeter_trunk_requests_in_flight++;
    metrics.edgemeter_trunk_requests_total++;
    work =
        trunk->events->on_request(trunk->owner, &request->exchange,
                                  &request->request, &request->body, is_full);
    at = trunk_find(trunk, number);
    if (*at != NULL) {
        (*at)->work = work;
    } else {
        CHECK(work == NULL);
    }
}

/* How much of what is behind the frame belongs to it; SIZE_MAX: not whole. */
static size_t
trunk_request(struct trunk *trunk, const struct meter_frame *frame,
              const char *behind, size_t behind_size)
{
    struct trunk_request *request =
        malloc(sizeof(*request) + frame->payload.size);
    size_t body_size;

    if (request == NULL) {
        log_error("trunk", "out of memory");
        connection_close(trunk->connection, "out of memory");
        return 0;
    }
    memset(request, 0, offsetof(struct trunk_request, request));
    buf_init(&request->body, 0);
    memcpy(request->head, frame->payload.data, frame->payload.size);
    if (!meter_request_decode(
            (struct meter_str){request->head, frame->payload.size},
            &request->request)) {
        free(request);
        trunk_bad(trunk, "request cannot be decoded");
        return 0;
    }
    if (request->request.body_size > METER_TRUNK_BODY_MAX) {
        free(request);
        trunk_bad(trunk, "body is too large for a trunk");
        return 0;
    }
    body_size = (size_t)request->request.body_size;
    if (behind_size < body_size) {
        free(request);
        return SIZE_MAX;
    }
    request->number = frame->seq;
    request->size = frame->payload.size + body_size;
    trunk_submit(trunk, request, behind, body_size);
    return body_size;
}

static size_t
trunk_frame(struct trunk *trunk, const struct meter_frame *frame,
            const char *behind, size_t behind_size)
{
    struct trunk_request **at;

    switch (frame->type) {
    case METER_FRAME_REQUEST:
        return trunk_request(trunk, frame, behind, behind_size);
    case METER_FRAME_CANCEL:
        at = trunk_find(trunk, frame->seq);
        if (*at != NULL) { /* else the answer is on its way */
            trunk_cancel(trunk, at);
        }
        return 0;
    case METER_FRAME_TRUNK:
        if (trunk->is_begun) {
            trunk_bad(trunk, "a second TRUNK");
        }
        trunk->is_begun = true;
        return 0;
    default:
        if (frame->type <= METER_FRAME_CANCEL ||
            (frame->flags & METER_FRAME_CRITICAL) != 0) {
            trunk_bad(trunk, "a type that has no place here");
        }
    }
    return 0;
}

/* Every whole request that was read, as long as it may. */
static void
trunk_run(struct trunk *trunk)
{
    size_t at = 0;

    trunk->is_running = true;
    while (!trunk->is_closed && at < trunk->bytes.size &&
           !trunk_is_held(trunk)) {
        enum meter_frame_error error = METER_FRAME_OK;
        const char *data = trunk->bytes.data + at;
        size_t size = trunk->bytes.size - at;
        size_t used = 0, need = 0, body = SIZE_MAX;
        struct meter_frame frame;

        switch (meter_frame_decode(data, size, &frame, &used, &need, &error)) {
        case METER_DECODE_BAD:
            trunk_bad(trunk, meter_frame_error_text(error));
            continue;
        case METER_DECODE_MORE: break;
        case METER_DECODE_OK:
            body = trunk_frame(trunk, &frame, data + used, size - used);
            break;
        }
        if (body == SIZE_MAX) {
            break;
        }
        at += used + body;
    }
    trunk->is_running = false;
    if (trunk->is_closed) {
        return;
    }
    if (at > 0) {
        buf_consume(&trunk->bytes, at);
        trunk->half_since_ms = 0;
    }
    if (trunk->bytes.size == 0 || trunk_is_held(trunk)) {
        trunk->half_since_ms = 0;
    } else if (trunk->half_since_ms == 0) {
        trunk->half_since_ms = clock_mono_ms();
    }
    if (trunk->bytes.size == 0 && trunk->bytes.room > KEEP_ROOM_MAX) {
        buf_fini(&trunk->bytes);
        buf_init(&trunk->bytes, BYTES_MAX);
    }
    if (trunk_is_held(trunk)) {
        connection_read_stop(trunk->connection);
    }
}

static void
trunk_room_cb(void *speaker, char **data, size_t *size)
{
    struct trunk *trunk = speaker;

    *size = READ_SIZE;
    *data = buf_reserve(&trunk->bytes, READ_SIZE);
}

static void
trunk_bytes_cb(void *speaker, size_t size)
{
    struct trunk *trunk = speaker;

    buf_commit(&trunk->bytes, size);
    trunk_run(trunk);
}


/* ---- life ------------------------------------------------------------ */

static void
trunk_drain_cb(void *speaker)
{
    struct trunk *trunk = speaker;

    if (!trunk->is_draining) {
        trunk->is_draining = true;
        trunk_put_frame(trunk, METER_FRAME_DRAIN, 0, NULL);
        trunk_said(trunk);
    }
}

/* The worker has been told, and has nothing here any more. */
static bool
trunk_is_over(struct trunk *trunk, uint64_t now_ms)
{
    if (!trunk->is_draining || trunk->count > 0 || trunk->out.size > 0 ||
        trunk->sending.size > 0) {
        trunk->drained_ms = 0;
        return false;
    }
    if (trunk->drained_ms == 0) {
        trunk->drained_ms = now_ms;
    }
    return now_ms - trunk->drained_ms >= TRUNK_DRAINED_MS;
}

static void
trunk_tick_cb(void *speaker, uint64_t now_ms)
{
    struct trunk *trunk = speaker;

    if (trunk->half_since_ms != 0 &&
        now_ms - trunk->half_since_ms >= TRUNK_IDLE_MS) {
        metrics.edgemeter_sessions_timed_out_total++;
        connection_close(trunk->connection, "half a request, then silence");
    } else if (trunk->sending.size > 0 &&
               now_ms - trunk->sent_since_ms >= TRUNK_IDLE_MS) {
        metrics.edgemeter_sessions_timed_out_total++;
        connection_close(trunk->connection, "the answers are not read");
    } else if (trunk_is_over(trunk, now_ms)) {
        connection_close(trunk->connection, "drained");
    }
}

static void
trunk_let_go(struct trunk *trunk)
{
    if (--trunk->holders > 0) {
        return;
    }
    buf_fini(&trunk->bytes);
    buf_fini(&trunk->out);
    buf_fini(&trunk->sending);
    free(trunk);
}

static void
trunk_turn_closed_cb(uv_handle_t *handle)
{
    trunk_let_go(handle->data);
}

static void
trunk_free_cb(void *speaker)
{
    trunk_let_go(speaker);
}

static void
trunk_close_cb(void *speaker)
{
    struct trunk *trunk = speaker;

    trunk->is_closed = true;
    metrics.edgemeter_trunks--;
    for (size_t i = 0; i < BUCKETS; i++) {
        while (trunk->requests[i] != NULL) {
            trunk_cancel(trunk, &trunk->requests[i]);
        }
    }
    uv_close((uv_handle_t *)&trunk->turn, trunk_turn_closed_cb);
}

static const struct connection_protocol trunk_protocol = {
    .on_room = trunk_room_cb,
    .on_bytes = trunk_bytes_cb,
    .on_written = trunk_written_cb,
    .on_drain = trunk_drain_cb,
    .on_tick = trunk_tick_cb,
    .on_close = trunk_close_cb,
    .on_free = trunk_free_cb,
};

bool
trunk_attach(struct connection *connection, uv_loop_t *loop,
             const struct exchange_events *events, void *owner,
             struct buf *bytes)
{
    struct trunk *trunk = calloc(1, sizeof(*trunk));

    if (trunk == NULL) {
        log_error("trunk", "out of memory");
        buf_fini(bytes);
        return false;
    }
    trunk->connection = connection;
    trunk->events = events;
    trunk->owner = owner;
    trunk->bytes = *bytes;
    trunk->bytes.size_max = BYTES_MAX;
    buf_init(bytes, 0);
    buf_init(&trunk->out, OUT_BYTES_MAX);
    buf_init(&trunk->sending, OUT_BYTES_MAX);
    CHECK(uv_prepare_init(loop, &trunk->turn) == 0);
    trunk->turn.data = trunk;
    trunk->holders = 2;
    metrics.edgemeter_trunks++;
    connection_speak(connection, &trunk_protocol, trunk);
    trunk_put_frame(trunk, METER_FRAME_TRUNK, 0, NULL);
    trunk_said(trunk);
    connection_read_start(connection);
    if (!trunk->is_closed) {
        trunk_run(trunk);
    }
    return true;
}
