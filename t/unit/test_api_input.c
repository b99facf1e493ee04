/*
 * test_api_input.c - bytes of a connection into requests, in any chunking.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "edge/api_conn.c"

#define STREAM_SIZE_MAX (8u << 20)

/* What came out of a stream, as text: one line per event. */
struct trace {
    struct buf text;
    enum api_event last;
};

static void
trace_init(struct trace *trace)
{
    buf_init(&trace->text, STREAM_SIZE_MAX);
    trace->last = API_EVENT_MORE;
}

static void
put_request(struct buf *stream, uint8_t method, const char *path,
            const char *body, uint64_t body_size)
{
    struct meter_request request = {
        .method = method,
        .path = {path, strlen(path)},
        .authorization = METER_STR("Bearer x"),
        .body_size = body_size,
    };
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = METER_FRAME_REQUEST,
    };
    struct meter_writer writer;
    char room[1024];
    size_t start;

    meter_writer_init(&writer, room, sizeof(room));
    start = meter_frame_begin(&writer);
    meter_request_encode(&request, &writer);
    meter_frame_seal(&writer, start, &frame);
    assert_false(writer.failed);
    buf_put(stream, room, writer.at);
    buf_put_text(stream, body);
    assert_false(stream->failed);
}

static void
put_frame(struct buf *stream, uint8_t type, uint16_t flags, size_t payload_size)
{
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MAX,
        .type = type,
        .flags = flags,
    };
    size_t size = METER_FRAME_HEADER_SIZE + payload_size;
    char *payload = calloc(1, payload_size + 1);
    struct meter_writer writer;
    char *room = buf_reserve(stream, size);

    assert_non_null(payload);
    assert_non_null(room);
    frame.payload = (struct meter_str){payload, payload_size};
    meter_writer_init(&writer, room, size);
    meter_frame_encode(&frame, &writer);
    assert_false(writer.failed);
    buf_commit(stream, size);
    free(payload);
}

static void
trace_request(struct trace *trace, struct api_input *input)
{
    buf_printf(&trace->text, "%d %.*s %.*s [%.*s]\n", input->request.method,
               (int)input->request.path.size, input->request.path.data,
               (int)input->request.authorization.size,
               input->request.authorization.data, (int)input->body.size,
               input->body.size == 0 ? "" : input->body.data);
    api_input_next(input);
}

/* Runs until more bytes are needed. False: the input has ended. */
static bool
drain(struct api_input *input, struct trace *trace)
{
    for (;;) {
        trace->last = api_input_step(input);
        switch (trace->last) {
        case API_EVENT_MORE: return true;
        case API_EVENT_HEAD: break;
        case API_EVENT_REQUEST: trace_request(trace, input); break;
        default: return false;
        }
    }
}

/* Feeds the stream; the n-th read gets at most chunk(n) bytes. */
static void
feed(const struct buf *stream, size_t (*chunk)(size_t n, void *context),
     void *context, struct trace *trace)
{
    struct api_input input;
    size_t at = 0;

    api_input_init(&input);
    for (size_t n = 0; at < stream->size; n++) {
        size_t size, wanted = chunk(n, context);
        char *room;

        assert_true(api_input_room(&input, &room, &size));
        assert_true(size > 0);
        size = size < wanted ? size : wanted;
        size = size < stream->size - at ? size : stream->size - at;
        memcpy(room, stream->data + at, size);
        at += size;
        api_input_wrote(&input, size);
        if (!drain(&input, trace)) {
            break;
        }
    }
    api_input_fini(&input);
}

static size_t
chunk_fixed(size_t n, void *context)
{
    (void)n;
    return *(size_t *)context;
}

/* One cut: the first read ends there. */
static size_t
chunk_cut(size_t n, void *context)
{
    return n == 0 ? *(size_t *)context : SIZE_MAX;
}

static size_t
chunk_random(size_t n, void *context)
{
    uint32_t *seed = context;

    (void)n;
    *seed = *seed * 1664525u + 1013904223u;
    return 1 + (*seed >> 16) % 97;
}

static void
make_stream(struct buf *stream)
{
    buf_init(stream, STREAM_SIZE_MAX);
    put_request(stream, METER_METHOD_GET, "/healthz", "", 0);
    put_request(stream, METER_METHOD_POST, "/v1/events", "{\"a\":1}", 7);
    put_frame(stream, 200, 0, 33); /* unknown, may be skipped */
    put_frame(stream, 201, 0, 0);
    put_request(stream, METER_METHOD_POST, "/v1/events", "MTR1MTR1", 8);
    put_request(stream, METER_METHOD_GET, "/metrics", "", 0);
}

static const char stream_trace[] = "1 /healthz Bearer x []\n"
                                   "3 /v1/events Bearer x [{\"a\":1}]\n"
                                   "3 /v1/events Bearer x [MTR1MTR1]\n"
                                   "1 /metrics Bearer x []\n";

static void
assert_trace(const struct buf *stream, size_t (*chunk)(size_t, void *),
             void *context)
{
    struct trace trace;

    trace_init(&trace);
    feed(stream, chunk, context, &trace);
    assert_int_equal(trace.last, API_EVENT_MORE);
    assert_int_equal(trace.text.size, sizeof(stream_trace) - 1);
    assert_memory_equal(trace.text.data, stream_trace, trace.text.size);
    buf_fini(&trace.text);
}

static void
input__every_fixed_chunk_size__same_requests(void **state)
{
    struct buf stream;

    (void)state;
    make_stream(&stream);
    for (size_t size = 1; size <= stream.size; size++) {
        assert_trace(&stream, chunk_fixed, &size);
    }
    buf_fini(&stream);
}

static void
input__every_single_cut__same_requests(void **state)
{
    struct buf stream;

    (void)state;
    make_stream(&stream);
    for (size_t cut = 1; cut < stream.size; cut++) {
        assert_trace(&stream, chunk_cut, &cut);
    }
    buf_fini(&stream);
}

static void
input__random_chunks__same_requests(void **state)
{
    struct buf stream;

    (void)state;
    make_stream(&stream);
    for (uint32_t i = 0; i < 2000; i++) {
        uint32_t seed = i;

        assert_trace(&stream, chunk_random, &seed);
    }
    buf_fini(&stream);
}

/* Everything at once, ending in what `put` adds; gives the last event. */
static enum api_event
last_event(struct buf *stream, const char **error)
{
    struct api_input input;
    struct trace trace;
    size_t at = 0;

    trace_init(&trace);
    api_input_init(&input);
    while (at < stream->size) {
        size_t size;
        char *room;

        assert_true(api_input_room(&input, &room, &size));
        size = size < stream->size - at ? size : stream->size - at;
        memcpy(room, stream->data + at, size);
        at += size;
        api_input_wrote(&input, size);
        if (!drain(&input, &trace)) {
            break;
        }
    }
    *error = input.error;
    api_input_fini(&input);
    buf_fini(&trace.text);
    return trace.last;
}

static void
input__bit_flipped_anywhere_in_frame__bad_or_waiting(void **state)
{
    struct buf stream;
    const char *error;

    (void)state;
    buf_init(&stream, STREAM_SIZE_MAX);
    put_request(&stream, METER_METHOD_GET, "/healthz", "", 0);
    for (size_t bit = 0; bit < stream.size * 8; bit++) {
        enum api_event event;

        stream.data[bit / 8] ^= (char)(1 << bit % 8);
        event = last_event(&stream, &error);
        /* A size that grew makes it wait; the timeout then ends it. */
        assert_true(event == API_EVENT_BAD ||
                    (event == API_EVENT_MORE && bit / 8 >= 8 && bit / 8 < 12));
        stream.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    buf_fini(&stream);
}

static void
input__unknown_critical_type__bad(void **state)
{
    struct buf stream;
    const char *error;

    (void)state;
    buf_init(&stream, STREAM_SIZE_MAX);
    put_frame(&stream, 200, METER_FRAME_CRITICAL, 4);
    assert_int_equal(last_event(&stream, &error), API_EVENT_BAD);
    assert_string_equal(error, "unknown critical frame type");
    buf_fini(&stream);
}

static void
input__other_types_of_the_capture_half__unsupported(void **state)
{
    const char *error;

    (void)state;
    for (uint8_t type = METER_FRAME_HELLO_ACK; type <= METER_FRAME_CANCEL;
         type++) {
        struct buf stream;

        if (type == METER_FRAME_REQUEST || type == METER_FRAME_MUX) {
            continue;
        }
        buf_init(&stream, STREAM_SIZE_MAX);
        put_frame(&stream, type, 0, 16);
        assert_int_equal(last_event(&stream, &error), API_EVENT_UNSUPPORTED);
        buf_fini(&stream);
    }
}

/* The first frame that is known begins another protocol. */
static void
assert_stays(uint8_t type, enum api_event event)
{
    struct api_input input;
    struct buf stream, first;
    size_t size;
    char *room;

    buf_init(&stream, STREAM_SIZE_MAX);
    buf_init(&first, STREAM_SIZE_MAX);
    put_frame(&first, type, METER_FRAME_CRITICAL, 0);
    put_request(&first, METER_METHOD_POST, "/behind", "body", 4);
    put_frame(&first, METER_FRAME_PING, 0, 0);
    put_frame(&stream, 200, 0, 33); /* unknown, skipped */
    buf_put_str(&stream, buf_str(&first));
    api_input_init(&input);
    assert_true(api_input_room(&input, &room, &size));
    memcpy(room, stream.data, stream.size);
    api_input_wrote(&input, stream.size);
    assert_int_equal(api_input_step(&input), event);
    assert_int_equal(input.bytes.size, first.size);
    assert_memory_equal(input.bytes.data, first.data, first.size);
    api_input_fini(&input);
    buf_fini(&stream);
    buf_fini(&first);
}

static void
input__hello_or_mux_first__its_bytes_and_those_behind_stay(void **state)
{
    (void)state;
    assert_stays(METER_FRAME_HELLO, API_EVENT_HELLO);
    assert_stays(METER_FRAME_MUX, API_EVENT_MUX);
}

static void
input__hello_mux_or_cancel_behind_a_request__unsupported(void **state)
{
    static const uint8_t types[] = {METER_FRAME_HELLO, METER_FRAME_MUX,
                                    METER_FRAME_CANCEL};
    const char *error;

    (void)state;
    for (size_t i = 0; i < sizeof(types); i++) {
        struct buf stream;

        buf_init(&stream, STREAM_SIZE_MAX);
        put_request(&stream, METER_METHOD_GET, "/healthz", "", 0);
        put_frame(&stream, types[i], METER_FRAME_CRITICAL, 0);
        assert_int_equal(last_event(&stream, &error), API_EVENT_UNSUPPORTED);
        assert_string_equal(error, "frame type is not served");
        buf_fini(&stream);
    }
}

static void
input__mux_in_any_chunking__mux(void **state)
{
    (void)state;
    for (size_t size = 1; size <= METER_FRAME_HEADER_SIZE; size++) {
        struct trace trace;
        struct buf stream;

        trace_init(&trace);
        buf_init(&stream, STREAM_SIZE_MAX);
        put_frame(&stream, METER_FRAME_MUX, METER_FRAME_CRITICAL, 0);
        feed(&stream, chunk_fixed, &size, &trace);
        assert_int_equal(trace.last, API_EVENT_MUX);
        buf_fini(&stream);
        buf_fini(&trace.text);
    }
}

static void
input__request_without_required_fields__bad(void **state)
{
    struct buf stream;
    const char *error;

    (void)state;
    buf_init(&stream, STREAM_SIZE_MAX);
    put_frame(&stream, METER_FRAME_REQUEST, 0, 0);
    assert_int_equal(last_event(&stream, &error), API_EVENT_BAD);
    assert_string_equal(error, "request cannot be decoded");
    buf_fini(&stream);
}

static void
input__body_at_the_limit__head_and_past_it__too_large(void **state)
{
    struct buf stream;
    const char *error;

    (void)state;
    buf_init(&stream, STREAM_SIZE_MAX);
    put_request(&stream, METER_METHOD_POST, "/v1/events", "x",
                METER_BODY_SIZE_MAX);
    assert_int_equal(last_event(&stream, &error), API_EVENT_MORE);
    buf_reset(&stream);
    put_request(&stream, METER_METHOD_POST, "/v1/events", "x",
                (uint64_t)METER_BODY_SIZE_MAX + 1);
    assert_int_equal(last_event(&stream, &error), API_EVENT_TOO_LARGE);
    buf_reset(&stream);
    put_request(&stream, METER_METHOD_POST, "/v1/events", "x", UINT64_MAX);
    assert_int_equal(last_event(&stream, &error), API_EVENT_TOO_LARGE);
    buf_fini(&stream);
}

static void
input__largest_frame__waits_within_its_room(void **state)
{
    struct buf stream;
    const char *error;

    (void)state;
    buf_init(&stream, STREAM_SIZE_MAX);
    put_frame(&stream, 200, 0, METER_FRAME_SIZE_MAX);
    put_frame(&stream, METER_FRAME_DATA, 0, METER_FRAME_SIZE_MAX);
    assert_int_equal(last_event(&stream, &error), API_EVENT_UNSUPPORTED);
    buf_fini(&stream);
}

static void
input__bytes_read_ahead__follow_the_request(void **state)
{
    struct api_input input;
    struct buf first, second;
    struct trace trace;
    size_t size;
    char *room;

    (void)state;
    trace_init(&trace);
    buf_init(&first, STREAM_SIZE_MAX);
    buf_init(&second, STREAM_SIZE_MAX);
    put_request(&first, METER_METHOD_POST, "/v1/events", "one", 3);
    put_request(&second, METER_METHOD_POST, "/v1/events", "two", 3);
    api_input_init(&input);
    assert_true(api_input_is_empty(&input));
    assert_true(api_input_room(&input, &room, &size));
    memcpy(room, first.data, first.size);
    api_input_wrote(&input, first.size);
    assert_false(api_input_is_empty(&input));
    assert_int_equal(api_input_step(&input), API_EVENT_HEAD);
    assert_int_equal(api_input_step(&input), API_EVENT_REQUEST);
    trace_request(&trace, &input);
    assert_true(api_input_append(&input, buf_str(&second)));
    assert_true(drain(&input, &trace));
    assert_true(api_input_is_empty(&input));
    assert_int_equal(trace.text.size, 2 * 28);
    assert_memory_equal(trace.text.data,
                        "3 /v1/events Bearer x [one]\n"
                        "3 /v1/events Bearer x [two]\n",
                        trace.text.size);
    api_input_fini(&input);
    buf_fini(&trace.text);
    buf_fini(&first);
    buf_fini(&second);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input__every_fixed_chunk_size__same_requests),
        cmocka_unit_test(input__every_single_cut__same_requests),
        cmocka_unit_test(input__random_chunks__same_requests),
        cmocka_unit_test(input__bit_flipped_anywhere_in_frame__bad_or_waiting),
        cmocka_unit_test(input__unknown_critical_type__bad),
        cmocka_unit_test(input__other_types_of_the_capture_half__unsupported),
        cmocka_unit_test(
            input__hello_or_mux_first__its_bytes_and_those_behind_stay),
        cmocka_unit_test(
            input__hello_mux_or_cancel_behind_a_request__unsupported),
        cmocka_unit_test(input__mux_in_any_chunking__mux),
        cmocka_unit_test(input__request_without_required_fields__bad),
        cmocka_unit_test(input__body_at_the_limit__head_and_past_it__too_large),
        cmocka_unit_test(input__largest_frame__waits_within_its_room),
        cmocka_unit_test(input__bytes_read_ahead__follow_the_request),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
