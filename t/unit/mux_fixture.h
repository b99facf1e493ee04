/*
 * mux_fixture.h - a mux on one end of a socket pair, and the worker on the
 * other.
 *
 *   worker -> [socket pair] -> connection -> mux -> owner of the requests
 *
 * The owner answers "/now/..." during on_request, with the path and the body
 * as the body of the answer, "/size/N" with N bytes, and keeps all others
 * until the test answers them. The loop turns only when the test says so, and
 * the clock stands still until it is moved. One mux at a time.
 */

#ifndef MUX_FIXTURE_H
#define MUX_FIXTURE_H

#include "meter_cmocka.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "edge/mux.c"
#include "meter_frame.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#define WORK_MAX       20000
#define STREAM_MAX     (64u << 20)
#define PATH_MAX_BYTES 32

/* A request that waits for its answer. */
struct work {
    struct exchange *exchange; /* NULL: answered or cancelled */
    char path[PATH_MAX_BYTES];
    int cancels;
};

static struct {
    uv_loop_t loop;
    struct edge edge;
    struct connection *connection; /* NULL: freed */
    int worker;
    struct buf in;   /* what the worker has read */
    size_t in_taken; /* of it */
    struct work work[WORK_MAX];
    size_t work_count; /* since mux_setup */
    size_t served;     /* requests of any kind */
    size_t cancels;
    struct buf seen; /* "path [body]\n" of each request */
    uint64_t clock_ms;
} test;


/* ---- the clock ------------------------------------------------------- */

uint64_t
clock_mono_ms(void)
{
    return test.clock_ms;
}

uint64_t
clock_mono_us(void)
{
    return test.clock_ms * 1000;
}

uint64_t
clock_boot_us(void)
{
    return test.clock_ms * 1000;
}

int64_t
clock_wall_us(void)
{
    return (int64_t)test.clock_ms * 1000;
}


/* ---- the owner ------------------------------------------------------- */

static inline void
answer(struct exchange *exchange, uint16_t status, const void *data,
       size_t size)
{
    struct meter_response response = {.status = status};
    struct buf body;

    buf_init(&body, STREAM_MAX);
    buf_put(&body, data, size);
    exchange_answer(exchange, &response, &body);
    assert_null(body.data);
}

static inline void
answer_size(struct exchange *exchange, size_t size)
{
    char *bytes = calloc(1, size + 1);

    assert_non_null(bytes);
    answer(exchange, 200, bytes, size);
    free(bytes);
}

static void *
on_request(void *owner, struct exchange *exchange,
           const struct meter_request *request, struct buf *body, bool is_full)
{
    struct work *work = &test.work[test.work_count];
    char path[PATH_MAX_BYTES];

    assert_ptr_equal(owner, &test);
    assert_int_equal(request->body_size, body->size);
    if (is_full) {
        answer(exchange, 429, "full", 4);
        return NULL;
    }
    assert_true(request->path.size < sizeof(path));
    memcpy(path, request->path.data, request->path.size);
    path[request->path.size] = '\0';
    test.served++;
    if (test.seen.size_max > 0) {
        buf_printf(&test.seen, "%s [%.*s]\n", path, (int)body->size,
                   body->size == 0 ? "" : body->data);
    }
    if (strncmp(path, "/now/", 5) == 0) {
        char text[64 + METER_MUX_BODY_MAX];
        size_t size = strlen(path);

        memcpy(text, path, size);
        if (body->size > 0) {
            memcpy(text + size, body->data, body->size);
        }
        answer(exchange, 200, text, size + body->size);
        return NULL;
    }
    if (strncmp(path, "/size/", 6) == 0) {
        answer_size(exchange, strtoul(path + 6, NULL, 10));
        return NULL;
    }
    assert_true(test.work_count < WORK_MAX);
    test.work_count++;
    *work = (struct work){.exchange = exchange};
    memcpy(work->path, path, sizeof(path));
    return work;
}

static void
on_cancel(void *owner, void *given)
{
    struct work *work = given;

    assert_ptr_equal(owner, &test);
    assert_non_null(work);
    assert_non_null(work->exchange); /* not answered, not cancelled before */
    work->exchange = NULL;
    work->cancels++;
    test.cancels++;
}

static const struct exchange_events events = {
    .on_request = on_request,
    .on_cancel = on_cancel,
};

static inline struct work *
work_of(const char *path)
{
    for (size_t i = test.work_count; i > 0; i--) {
        if (strcmp(test.work[i - 1].path, path) == 0) {
            return &test.work[i - 1];
        }
    }
    fail_msg("no request came with the path %s", path);
    return NULL;
}

/* With its path as the body. */
static inline void
answer_path(const char *path)
{
    struct work *work = work_of(path);
    struct exchange *exchange = work->exchange;

    assert_non_null(exchange);
    work->exchange = NULL;
    answer(exchange, 200, path, strlen(path));
}


/* ---- the worker ------------------------------------------------------ */

static inline void
put_frame_at(struct buf *stream, uint8_t type, uint16_t flags, uint64_t number,
             size_t payload_size)
{
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = type,
        .flags = flags,
        .seq = number,
    };
    size_t size = METER_FRAME_HEADER_SIZE + payload_size;
    char *payload = calloc(1, payload_size + 1);
    char *room = buf_reserve(stream, size);
    struct meter_writer writer;

    assert_non_null(payload);
    assert_non_null(room);
    frame.payload = (struct meter_str){payload, payload_size};
    meter_writer_init(&writer, room, size);
    meter_frame_encode(&frame, &writer);
    assert_false(writer.failed);
    buf_commit(stream, size);
    free(payload);
}

static inline void
put_cancel(struct buf *stream, uint64_t number)
{
    put_frame_at(stream, METER_FRAME_CANCEL, METER_FRAME_CRITICAL, number, 0);
}

/* args_size: to make the head larger. */
static inline void
put_head(struct buf *stream, uint64_t number, const char *path,
         size_t args_size, uint64_t body_size)
{
    char *args = calloc(1, args_size + 1);
    struct meter_request request = {
        .method = METER_METHOD_POST,
        .path = str_of(path),
        .args = {args, args_size},
        .body_size = body_size,
    };
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = METER_FRAME_REQUEST,
        .flags = METER_FRAME_CRITICAL,
        .seq = number,
    };
    char *room = buf_reserve(stream, args_size + 256);
    struct meter_writer writer;
    size_t start;

    assert_non_null(args);
    assert_non_null(room);
    memset(args, 'a', args_size);
    meter_writer_init(&writer, room, args_size + 256);
    start = meter_frame_begin(&writer);
    meter_request_encode(&request, &writer);
    meter_frame_seal(&writer, start, &frame);
    assert_false(writer.failed);
    buf_commit(stream, writer.at);
    free(args);
}

static inline void
put_request(struct buf *stream, uint64_t number, const char *path,
            const char *body)
{
    put_head(stream, number, path, 0, strlen(body));
    buf_put_text(stream, body);
    assert_false(stream->failed);
}

/* Requests of a kind, numbered from `first` on. */
static inline void
put_requests(struct buf *stream, uint64_t first, size_t count, const char *path)
{
    for (uint64_t i = 0; i < count; i++) {
        put_request(stream, first + i, path, "");
    }
}

/* The loop, until nothing more happens without the worker. */
static inline void
turn(void)
{
    for (int i = 0; i < 4; i++) {
        (void)uv_run(&test.loop, UV_RUN_NOWAIT);
    }
}

/* As many as the socket takes; how many. The worker does not read. */
static inline size_t
say_some(const char *data, size_t size)
{
    size_t at = 0;
    int idle = 0;

    while (at < size && idle < 3) {
        ssize_t n = send(test.worker, data + at, size - at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        idle = n > 0 ? 0 : idle + 1;
        at += n > 0 ? (size_t)n : 0;
        turn();
    }
    return at;
}

/* All of it, read by the mux as far as it wants to; the buf is emptied. */
static inline void
say(struct buf *stream)
{
    assert_int_equal(say_some(stream->data, stream->size), stream->size);
    buf_reset(stream);
    turn();
}

/* Reads what is there. */
static inline void
listen_to(void)
{
    for (;;) {
        char *room = buf_reserve(&test.in, 1u << 20);
        ssize_t n;

        assert_non_null(room);
        n = recv(test.worker, room, 1u << 20, MSG_DONTWAIT);
        if (n <= 0) {
            return;
        }
        buf_commit(&test.in, (size_t)n);
        turn();
    }
}

/* The next whole frame, with its body; false: there is none. */
struct heard {
    uint8_t type;
    uint64_t number;
    uint16_t status;
    char body[PATH_MAX_BYTES + METER_MUX_BODY_MAX]; /* its beginning */
    size_t body_size;
};

static inline bool
hear(struct heard *heard)
{
    enum meter_frame_error error = METER_FRAME_OK;
    struct meter_response response = {0};
    struct meter_frame frame;
    struct meter_str in;
    size_t used = 0, need = 0, some;

    listen_to();
    in = (struct meter_str){test.in.data + test.in_taken,
                            test.in.size - test.in_taken};
    if (meter_frame_decode(in.data, in.size, &frame, &used, &need, &error) !=
        METER_DECODE_OK) {
        assert_int_equal(error, METER_FRAME_OK);
        return false;
    }
    *heard = (struct heard){.type = frame.type, .number = frame.seq};
    if (frame.type == METER_FRAME_RESPONSE) {
        assert_true(meter_response_decode(frame.payload, &response));
        if (in.size < used + response.body_size) {
            return false;
        }
        heard->status = response.status;
        heard->body_size = (size_t)response.body_size;
        some = heard->body_size < sizeof(heard->body) - 1
                   ? heard->body_size
                   : sizeof(heard->body) - 1;
        memcpy(heard->body, in.data + used, some);
    } else {
        assert_int_equal(frame.payload.size, 0);
    }
    test.in_taken += used + heard->body_size;
    if (test.in_taken == test.in.size) {
        buf_reset(&test.in);
        test.in_taken = 0;
    }
    return true;
}

static inline void
assert_silence(void)
{
    struct heard heard;

    assert_false(hear(&heard));
    assert_int_equal(test.in.size, 0);
}

static inline void
assert_heard(uint64_t number, const char *body)
{
    struct heard heard;

    assert_true(hear(&heard));
    assert_int_equal(heard.type, METER_FRAME_RESPONSE);
    assert_int_equal(heard.number, number);
    assert_int_equal(heard.status, 200);
    assert_int_equal(heard.body_size, strlen(body));
    assert_string_equal(heard.body, body);
}

static inline void
assert_heard_type(uint8_t type)
{
    struct heard heard;

    assert_true(hear(&heard));
    assert_int_equal(heard.type, type);
    assert_int_equal(heard.number, 0);
}

/* Nothing is left of the mux. */
static inline void
assert_gone(void)
{
    turn();
    assert_null(test.connection);
    assert_int_equal(metrics.edgemeter_muxes, 0);
    assert_int_equal(metrics.edgemeter_mux_requests_in_flight, 0);
}

static inline void
assert_open(void)
{
    turn();
    assert_non_null(test.connection);
    assert_false(test.connection->is_closed);
    assert_int_equal(metrics.edgemeter_muxes, 1);
}

/* The clock moves on, then it ticks. */
static inline void
tick_after(uint64_t ms)
{
    test.clock_ms += ms;
    assert_non_null(test.connection);
    test.connection->protocol->on_tick(test.connection->speaker,
                                       test.clock_ms);
    turn();
}

static inline void
drain(void)
{
    test.connection->protocol->on_drain(test.connection->speaker);
}


/* ---- life ------------------------------------------------------------ */

static void
on_closed(struct connection *connection)
{
    assert_ptr_equal(connection->owner, &test);
    assert_ptr_equal(connection, test.connection);
    test.connection = NULL;
}

/* As the listener does it; nobody speaks on it yet. */
static inline void
connect_worker(int socket_type)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, socket_type | SOCK_CLOEXEC, 0, pair),
                     0);
    assert_int_equal(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
    test.worker = pair[1];
    test.connection = memory_alloc(sizeof(*test.connection));
    test.connection->edge = &test.edge;
    test.connection->on_closed = on_closed;
    test.connection->owner = &test;
    assert_int_equal(uv_pipe_init(&test.loop, &test.connection->pipe, 0), 0);
    test.connection->pipe.data = test.connection;
    assert_int_equal(uv_pipe_open(&test.connection->pipe, pair[0]), 0);
}

/* `behind` comes with the MUX. */
static inline void
attach(int socket_type, const struct buf *behind)
{
    struct buf bytes;

    connect_worker(socket_type);
    buf_init(&bytes, METER_FRAME_SIZE_MAX); /* as api_conn has it */
    put_frame_at(&bytes, METER_FRAME_MUX, METER_FRAME_CRITICAL, 0, 0);
    if (behind != NULL) {
        buf_put_str(&bytes, buf_str(behind));
    }
    connection_become(test.connection, &mux_protocol, &bytes);
    assert_null(bytes.data);
}

/* A mux that has said MUX. */
static inline void
attach_open(void)
{
    attach(SOCK_STREAM, NULL);
    assert_open();
    assert_heard_type(METER_FRAME_MUX);
}

static inline int
mux_setup(void **state)
{
    (void)state;
    memset(&test, 0, sizeof(test));
    memset(&metrics, 0, sizeof(metrics));
    log_level_set(LOG_ERROR);
    signal(SIGPIPE, SIG_IGN); /* as meterd does */
    test.clock_ms = 5000000;
    test.worker = -1;
    buf_init(&test.in, STREAM_MAX);
    test.edge.loop = &test.loop;
    test.edge.events = &events;
    test.edge.owner = &test;
    TAILQ_INIT(&test.edge.waiting);
    return uv_loop_init(&test.loop);
}

static inline int
mux_teardown(void **state)
{
    (void)state;
    if (test.worker >= 0) {
        close(test.worker);
    }
    turn();
    if (test.connection != NULL) { /* it does not read */
        connection_close(test.connection, "the test ends");
    }
    assert_gone();
    for (size_t i = 0; i < test.work_count; i++) {
        assert_null(test.work[i].exchange);
    }
    buf_fini(&test.in);
    buf_fini(&test.seen);
    return uv_loop_close(&test.loop);
}

#endif
