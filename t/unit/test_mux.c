/*
 * test_mux.c - many requests of a worker on one connection: numbers, any
 * chunking, CANCEL, the end, and what a worker may not send.
 */

#include "mux_fixture.h"

#include "meter_random.h"

#define ROUNDS 10000


/* ---- answers --------------------------------------------------------- */

static void
mux__attached__says_mux_and_serves_what_came_with_it(void **state)
{
    struct buf stream;

    (void)state;
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 7, "/now/a", "");
    put_request(&stream, 9, "/now/b", "body");
    attach(SOCK_STREAM, &stream);
    assert_int_equal(test.served, 2);
    assert_open();
    assert_heard_type(METER_FRAME_MUX);
    assert_heard(7, "/now/a");
    assert_heard(9, "/now/bbody");
    assert_silence();
    assert_int_equal(metrics.edgemeter_mux_requests_total, 2);
    buf_fini(&stream);
}

static void
mux__answers_in_any_order__each_with_its_number(void **state)
{
    static const char *const order[] = {"/d", "/a", "/f", "/c", "/b", "/e"};
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    /* The same remainder, the largest number, neighbours. */
    put_request(&stream, 1, "/a", "");
    put_request(&stream, 1025, "/b", "x");
    put_request(&stream, 2049, "/c", "");
    put_request(&stream, UINT64_MAX, "/d", "y");
    put_request(&stream, 2, "/e", "");
    put_request(&stream, 3, "/f", "");
    put_request(&stream, 4, "/now/g", "");
    say(&stream);
    assert_heard(4, "/now/g");
    assert_silence();
    assert_int_equal(metrics.edgemeter_mux_requests_in_flight, 6);
    for (size_t i = 0; i < 6; i++) {
        static const uint64_t number[] = {UINT64_MAX, 1, 3, 2049, 1025, 2};

        answer_path(order[i]);
        turn();
        assert_heard(number[i], order[i]);
        assert_silence();
        assert_int_equal(metrics.edgemeter_mux_requests_in_flight, 5 - i);
    }
    put_request(&stream, 1025, "/again", "");
    say(&stream);
    answer_path("/again");
    turn();
    assert_heard(1025, "/again");
    assert_int_equal(metrics.edgemeter_mux_requests_total, 8);
    assert_int_equal(metrics.edgemeter_requests_aborted_total, 0);
    buf_fini(&stream);
}

static void
mux__heads_live_until_the_answer__whatever_comes_behind(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/first", "its body");
    say(&stream);
    for (uint64_t i = 2; i < 2000; i++) {
        put_request(&stream, i, "/now/other", "another body");
    }
    say(&stream);
    listen_to();
    answer_path("/first");
    turn();
    for (uint64_t i = 2; i < 2000; i++) {
        assert_heard(i, "/now/otheranother body");
    }
    assert_heard(1, "/first");
    assert_silence();
    buf_fini(&stream);
}

/* Each packet of this kind of socket is one write. */
static void
mux__answers_of_one_turn__leave_in_one_write(void **state)
{
    struct buf stream;
    char packet[8192];
    ssize_t size = 0;

    (void)state;
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/a", "");
    put_request(&stream, 2, "/b", "");
    put_request(&stream, 3, "/c", "");
    put_request(&stream, 4, "/now/d", "");
    put_request(&stream, 5, "/now/e", "");
    attach(SOCK_SEQPACKET, &stream);
    turn();
    size = recv(test.worker, packet, sizeof(packet), MSG_DONTWAIT);
    assert_true(size > 0);
    buf_put(&test.in, packet, (size_t)size);
    assert_heard_type(METER_FRAME_MUX);
    assert_heard(4, "/now/d");
    assert_heard(5, "/now/e");
    assert_silence();

    answer_path("/c");
    answer_path("/a");
    assert_int_equal(recv(test.worker, packet, sizeof(packet), MSG_DONTWAIT),
                     -1); /* not before the turn ends */
    answer_path("/b");
    turn();
    size = recv(test.worker, packet, sizeof(packet), MSG_DONTWAIT);
    assert_true(size > 0);
    buf_put(&test.in, packet, (size_t)size);
    assert_heard(3, "/c");
    assert_heard(1, "/a");
    assert_heard(2, "/b");
    assert_silence();
    buf_fini(&stream);
}


/* ---- chunks ---------------------------------------------------------- */

/* All kinds of frames that may come; the numbers are free again behind it. */
static void
make_stream(struct buf *stream, struct meter_random *random)
{
    char body[METER_MUX_BODY_MAX + 1];
    size_t size = random_below(random, 8) == 0 ? METER_MUX_BODY_MAX
                                               : random_below(random, 600);

    memset(body, 'b', size);
    body[size] = '\0';
    put_request(stream, 11, "/now/first", "");
    put_request(stream, 12, "/later/one", body);
    put_frame_at(stream, 200, 0, 0, random_below(random, 300));
    put_request(stream, 13, "/now/second", body);
    put_frame_at(stream, METER_FRAME_CANCEL, METER_FRAME_CRITICAL, 77, 0);
    put_request(stream, 14, "/now/third", "MTR1MTR1");
    put_cancel(stream, 12);
    put_request(stream, 12, "/now/fourth", "");
}

/* What the worker hears and the owner sees, after the stream in chunks. */
static void
play(const struct buf *stream, size_t cuts, struct meter_random *random,
     struct buf *told)
{
    size_t at = 0;

    for (size_t i = 0; i < cuts && at < stream->size; i++) {
        size_t size = 1 + random_below(random, stream->size - at);

        assert_int_equal(say_some(stream->data + at, size), size);
        at += size;
    }
    assert_int_equal(say_some(stream->data + at, stream->size - at),
                     stream->size - at);
    listen_to();
    buf_put_str(told, buf_str(&test.in));
    buf_put_str(told, buf_str(&test.seen));
    buf_reset(&test.in);
    buf_reset(&test.seen);
}

static void
mux__random_chunks__same_requests_and_answers(void **state)
{
    struct meter_random random = {8};
    struct buf stream, whole, again;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    buf_init(&whole, STREAM_MAX);
    buf_init(&again, STREAM_MAX);
    buf_init(&test.seen, STREAM_MAX);
    for (size_t round = 0; round < ROUNDS; round++) {
        make_stream(&stream, &random);
        play(&stream, 0, &random, &whole);
        play(&stream, 1 + random_below(&random, 6), &random, &again);
        assert_int_equal(again.size, whole.size);
        assert_memory_equal(again.data, whole.data, whole.size);
        assert_int_equal(test.served, 10 * (round + 1));
        assert_int_equal(test.cancels, 2 * (round + 1));
        buf_reset(&stream);
        buf_reset(&whole);
        buf_reset(&again);
        test.work_count = 0;
    }
    assert_open();
    buf_fini(&stream);
    buf_fini(&whole);
    buf_fini(&again);
}

static void
mux__one_byte_at_a_time__same_requests(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/now/a", "body");
    put_request(&stream, 2, "/now/b", "");
    for (size_t i = 0; i < stream.size; i++) {
        assert_int_equal(say_some(stream.data + i, 1), 1);
    }
    assert_heard(1, "/now/abody");
    assert_heard(2, "/now/b");
    assert_silence();
    buf_fini(&stream);
}

/* The largest frame and the largest body fit, whatever is read with them. */
static void
mux__largest_request__has_room(void **state)
{
    char body[METER_MUX_BODY_MAX + 1];
    struct heard heard;
    struct buf stream;

    (void)state;
    attach_open();
    memset(body, 'b', sizeof(body));
    buf_init(&stream, STREAM_MAX);
    for (uint64_t i = 1; i <= 3; i++) {
        put_head(&stream, i, "/size/1", METER_FRAME_SIZE_MAX - 64,
                 METER_MUX_BODY_MAX);
        buf_put(&stream, body, METER_MUX_BODY_MAX);
        put_frame_at(&stream, 200, 0, 0, METER_FRAME_SIZE_MAX);
        put_request(&stream, i + 100, "/size/2", "");
    }
    say(&stream);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_true(hear(&heard));
        assert_int_equal(heard.number, i);
        assert_int_equal(heard.body_size, 1);
        assert_true(hear(&heard));
        assert_int_equal(heard.number, i + 100);
        assert_int_equal(heard.body_size, 2);
    }
    assert_silence();
    buf_fini(&stream);
}


/* ---- CANCEL and the end ---------------------------------------------- */

static void
mux__cancel__takes_back_what_waits_and_nothing_else(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/a", "");
    put_request(&stream, 1025, "/b", "");
    put_request(&stream, 2049, "/c", "");
    put_cancel(&stream, 1025);
    put_cancel(&stream, 5);    /* unknown */
    put_cancel(&stream, 1025); /* once more */
    say(&stream);
    assert_int_equal(test.cancels, 1);
    assert_int_equal(work_of("/b")->cancels, 1);
    assert_int_equal(metrics.edgemeter_requests_aborted_total, 1);
    assert_int_equal(metrics.edgemeter_mux_requests_in_flight, 2);
    assert_silence();

    put_request(&stream, 1025, "/d", ""); /* free again */
    say(&stream);
    answer_path("/a");
    put_cancel(&stream, 1); /* the answer is on its way */
    say(&stream);
    answer_path("/c");
    answer_path("/d");
    turn();
    assert_heard(1, "/a");
    assert_heard(2049, "/c");
    assert_heard(1025, "/d");
    assert_silence();
    assert_int_equal(test.cancels, 1);
    assert_open();
    buf_fini(&stream);
}

static void
mux__worker_leaves__all_that_wait_are_cancelled(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    for (uint64_t i = 1; i <= 3000; i++) {
        put_request(&stream, i, "/later", "body");
    }
    put_request(&stream, 5000, "/answered", "");
    put_request(&stream, 5001, "/now/a", "");
    say(&stream);
    assert_int_equal(metrics.edgemeter_mux_requests_in_flight, 3001);
    answer_path("/answered"); /* has not left yet */
    close(test.worker);
    test.worker = -1;
    assert_gone();
    assert_int_equal(test.cancels, 3000);
    assert_int_equal(metrics.edgemeter_requests_aborted_total, 3000);
    buf_fini(&stream);
}

static void
mux__closed_while_answers_go_out__nothing_is_left(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/size/900000", "");
    put_request(&stream, 2, "/later", "");
    put_request(&stream, 3, "/size/900000", "");
    say(&stream);
    connection_close(test.connection, "the test says so");
    connection_close(test.connection, "again");
    assert_gone();
    assert_int_equal(test.cancels, 1);
    buf_fini(&stream);
}


/* ---- what may not come ----------------------------------------------- */

/* The request that waits goes with it; what is behind is not served. */
static void
assert_ends(struct buf *bad)
{
    uint64_t errors = (uint64_t)metrics.edgemeter_protocol_errors_total;
    struct buf stream;

    test.cancels = 0;
    test.served = 0;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/waits", "");
    buf_put_str(&stream, buf_str(bad));
    put_request(&stream, 99, "/now/behind", "");
    (void)say_some(stream.data, stream.size);
    assert_gone();
    assert_int_equal(test.served, 1);
    assert_int_equal(test.cancels, 1);
    assert_int_equal(metrics.edgemeter_protocol_errors_total, errors + 1);
    listen_to();
    assert_int_equal(test.in.size, 0);
    close(test.worker);
    test.worker = -1;
    buf_fini(&stream);
    buf_reset(bad);
}

static void
mux__number_in_use__ends_it(void **state)
{
    struct buf bad;

    (void)state;
    buf_init(&bad, STREAM_MAX);
    put_request(&bad, 1, "/now/twice", "body");
    assert_ends(&bad);
    buf_fini(&bad);
}

static void
mux__body_at_the_limit__served_and_past_it__ends_it(void **state)
{
    static char body[METER_MUX_BODY_MAX + 1];
    struct heard heard;
    struct buf stream;

    (void)state;
    buf_init(&stream, STREAM_MAX);
    memset(body, 'b', METER_MUX_BODY_MAX);
    attach_open();
    put_request(&stream, 1, "/now/", body);
    say(&stream);
    assert_true(hear(&heard));
    assert_int_equal(heard.body_size, METER_MUX_BODY_MAX + 5);
    assert_memory_equal(heard.body, "/now/bbbb", 9);
    close(test.worker);
    assert_gone();

    put_head(&stream, 2, "/now/", 0, METER_MUX_BODY_MAX + 1);
    assert_ends(&stream); /* before the body is read */
    put_head(&stream, 2, "/now/", 0, UINT64_MAX);
    assert_ends(&stream);
    buf_fini(&stream);
}

static void
mux__types_without_a_place_here__end_it(void **state)
{
    struct buf bad;

    (void)state;
    buf_init(&bad, STREAM_MAX);
    for (uint8_t type = METER_FRAME_HELLO; type <= METER_FRAME_CANCEL; type++) {
        if (type != METER_FRAME_REQUEST && type != METER_FRAME_CANCEL) {
            put_frame_at(&bad, type, 0, 0, 16);
            assert_ends(&bad);
        }
    }
    put_frame_at(&bad, 200, METER_FRAME_CRITICAL, 0, 4);
    assert_ends(&bad);
    buf_fini(&bad);
}

static void
mux__unknown_types_that_may_be_skipped__are(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_frame_at(&stream, METER_FRAME_CANCEL + 1, 0, 1, 0);
    put_frame_at(&stream, 200, 0, 2, 333);
    put_request(&stream, 1, "/now/a", "");
    put_frame_at(&stream, 255, 0, 3, 1);
    say(&stream);
    assert_heard(1, "/now/a");
    assert_silence();
    assert_open();
    assert_int_equal(metrics.edgemeter_protocol_errors_total, 0);
    buf_fini(&stream);
}

static void
mux__broken_bytes__end_it(void **state)
{
    struct buf bad;

    (void)state;
    buf_init(&bad, STREAM_MAX);
    put_frame_at(&bad, METER_FRAME_REQUEST, METER_FRAME_CRITICAL, 2, 0);
    assert_ends(&bad); /* no fields */
    put_frame_at(&bad, METER_FRAME_REQUEST, METER_FRAME_CRITICAL, 2, 7);
    assert_ends(&bad);
    buf_put_text(&bad, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
                       "                                        ");
    assert_ends(&bad);
    for (size_t byte = 0; byte < METER_FRAME_HEADER_SIZE; byte++) {
        if (byte >= 8 && byte < 12) {
            continue; /* a size that grew makes it wait */
        }
        put_request(&bad, 2, "/now/flipped", "");
        bad.data[byte] ^= 1;
        assert_ends(&bad);
    }
    put_request(&bad, 2, "/now/flipped", "");
    bad.data[METER_FRAME_HEADER_SIZE + 9] ^= 1;
    assert_ends(&bad);
    buf_fini(&bad);
}

static const struct CMUnitTest tests[] = {
#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, mux_setup, mux_teardown)
    TEST(mux__attached__says_mux_and_serves_what_came_with_it),
    TEST(mux__answers_in_any_order__each_with_its_number),
    TEST(mux__heads_live_until_the_answer__whatever_comes_behind),
    TEST(mux__answers_of_one_turn__leave_in_one_write),
    TEST(mux__random_chunks__same_requests_and_answers),
    TEST(mux__one_byte_at_a_time__same_requests),
    TEST(mux__largest_request__has_room),
    TEST(mux__cancel__takes_back_what_waits_and_nothing_else),
    TEST(mux__worker_leaves__all_that_wait_are_cancelled),
    TEST(mux__closed_while_answers_go_out__nothing_is_left),
    TEST(mux__number_in_use__ends_it),
    TEST(mux__body_at_the_limit__served_and_past_it__ends_it),
    TEST(mux__types_without_a_place_here__end_it),
    TEST(mux__unknown_types_that_may_be_skipped__are),
    TEST(mux__broken_bytes__end_it),
};

RUN_TAP(tests)
