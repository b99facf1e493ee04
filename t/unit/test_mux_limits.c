/*
 * test_mux_limits.c - a mux where something is too much: requests in
 * flight, answers that nobody reads, no memory.
 */

#include "mux_fixture.h"

/* A sanitizer brings an allocator of its own. */
#ifndef __SANITIZE_ADDRESS__
#undef _GNU_SOURCE
#include "../lib/fail_malloc.c"

#include <malloc.h>
#endif

#define SOCKET_BYTES (1u << 20) /* more than the kernel keeps for us */

static void
answer_at(size_t place)
{
    struct exchange *exchange = test.work[place].exchange;

    assert_non_null(exchange);
    test.work[place].exchange = NULL;
    answer(exchange, 200, "", 0);
}


/* ---- requests in flight ---------------------------------------------- */

/* How many were answered, all of them refused, in their order from `first`. */
static size_t
hear_refused(uint64_t first)
{
    struct heard heard;
    size_t count = 0;

    while (hear(&heard)) {
        assert_int_equal(heard.type, METER_FRAME_RESPONSE);
        assert_int_equal(heard.number, first + count);
        assert_int_equal(heard.status, 429);
        assert_string_equal(heard.body, "full");
        count++;
    }
    return count;
}

static void
mux__most_requests_in_flight__one_more_is_refused(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_requests(&stream, 1, MUX_REQUESTS_MAX, "/later");
    say(&stream);
    assert_silence();

    /* More than would wait in the socket. */
    for (uint64_t first = 100000; first < 150000; first += 5000) {
        put_requests(&stream, first, 5000, "/now/x");
        say(&stream);
        assert_int_equal(hear_refused(first), 5000);
    }
    assert_int_equal(test.served, MUX_REQUESTS_MAX);
    assert_int_equal(metrics.edgemeter_mux_requests_in_flight,
                     MUX_REQUESTS_MAX);
    assert_open();

    answer_at(100);
    turn();
    assert_heard(101, "");
    put_requests(&stream, 20000, 2, "/later");
    say(&stream);
    assert_int_equal(hear_refused(20001), 1);
    assert_int_equal(test.work_count, MUX_REQUESTS_MAX + 1);

    /* What is taken back makes room, too. */
    put_cancel(&stream, 20000);
    put_requests(&stream, 20002, 2, "/later");
    say(&stream);
    assert_int_equal(test.cancels, 1);
    assert_int_equal(hear_refused(20003), 1);
    assert_int_equal(test.work_count, MUX_REQUESTS_MAX + 2);

    tick_after(CONNECTION_IDLE_MS);
    tick_after(CONNECTION_IDLE_MS);
    assert_open();
    buf_fini(&stream);
}

/* Few, but large. */
static void
mux__most_bytes_in_flight__one_more_is_refused(void **state)
{
    const size_t size = 1000000;
    const size_t most = MUX_BYTES_MAX / size + 1;
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, 2 * STREAM_MAX);
    for (uint64_t i = 1; i <= most + 10; i++) {
        put_head(&stream, i, "/later", size, 0);
    }
    say(&stream);
    assert_int_equal(test.work_count, most);
    assert_int_equal(hear_refused(most + 1), 10);

    answer_at(0);
    turn();
    assert_heard(1, "");
    put_requests(&stream, 100, 1, "/later");
    put_head(&stream, 101, "/later", size, 0);
    put_requests(&stream, 102, 1, "/later");
    say(&stream);
    assert_int_equal(test.work_count, most + 2);
    assert_int_equal(hear_refused(102), 1);
    assert_open();
    buf_fini(&stream);
}


/* ---- answers that nobody reads --------------------------------------- */

static void
mux__answers_not_read__no_more_is_read_until_they_are(void **state)
{
    struct buf stream;
    struct heard heard;
    size_t served, count = 0;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_requests(&stream, 1, 500, "/size/65536");
    say(&stream);
    served = test.served;
    assert_true(served * 65536 >= MUX_OUT_HOLD);
    assert_true(served * 65536 < MUX_OUT_HOLD + SOCKET_BYTES);
    turn();
    assert_int_equal(test.served, served);
    while (hear(&heard)) {
        assert_int_equal(heard.number, ++count);
        assert_int_equal(heard.body_size, 65536);
    }
    assert_int_equal(count, 500);
    assert_int_equal(test.served, 500);
    assert_open();
    buf_fini(&stream);
}

/* Held by its own answers, it goes on with what it has read before. */
static void
mux__held_by_answers__goes_on_without_new_bytes(void **state)
{
    struct buf stream;
    struct heard heard;
    size_t count = 0;

    (void)state;
    buf_init(&stream, STREAM_MAX);
    put_requests(&stream, 1, 20, "/size/700000");
    attach(SOCK_STREAM, &stream);
    assert_true(test.served < 20);
    turn();
    assert_heard_type(METER_FRAME_MUX);
    while (hear(&heard)) {
        count++;
    }
    assert_int_equal(count, 20);
    buf_fini(&stream);
}

/* Half a frame that came while it was held: its time begins with the reading.
 */
static void
mux__half_a_frame_while_held__no_silence(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/size/2000000", "");
    put_request(&stream, 2, "/behind", "");
    stream.size -= 1;
    say(&stream);
    tick_after(CONNECTION_IDLE_MS - 1);
    assert_open();
    listen_to();
    tick_after(CONNECTION_IDLE_MS - 1);
    assert_open();
    tick_after(1);
    assert_gone();
    assert_int_equal(metrics.edgemeter_sessions_timed_out_total, 1);
    buf_fini(&stream);
}

/* The same, where the other half makes it held. */
static void
mux__half_a_frame_then_held__no_silence(void **state)
{
    struct buf stream, whole;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    buf_init(&whole, STREAM_MAX);
    put_request(&whole, 1, "/size/2000000", "body");
    buf_put(&stream, whole.data, whole.size - 1);
    say(&stream);
    assert_int_equal(test.served, 0);
    test.clock_ms += CONNECTION_IDLE_MS - 1;
    buf_put(&stream, whole.data + whole.size - 1, 1);
    put_request(&stream, 2, "/behind", "");
    say(&stream);
    assert_int_equal(test.served, 1);
    tick_after(1);
    assert_open();
    tick_after(CONNECTION_IDLE_MS - 2);
    assert_open();
    buf_fini(&stream);
    buf_fini(&whole);
}

/* Answers that come later hold it, too. */
static void
mux__half_a_frame_then_held_by_answers__no_silence(void **state)
{
    struct exchange *exchange;
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/large", "");
    put_request(&stream, 2, "/behind", "");
    stream.size -= 1;
    say(&stream);
    exchange = work_of("/large")->exchange;
    work_of("/large")->exchange = NULL;
    test.clock_ms += CONNECTION_IDLE_MS - 1;
    answer_size(exchange, 2 * MUX_OUT_HOLD);
    turn();
    tick_after(1);
    assert_open();
    listen_to(); /* its time begins now */
    tick_after(CONNECTION_IDLE_MS - 1);
    assert_open();
    tick_after(1);
    assert_gone();
    buf_fini(&stream);
}

static void
mux__answers_not_read_for_long__ends_it(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_requests(&stream, 1, 100, "/size/65536");
    put_request(&stream, 101, "/later", "");
    say(&stream);
    tick_after(CONNECTION_IDLE_MS - 1);
    assert_open();
    tick_after(1);
    assert_gone();
    assert_int_equal(metrics.edgemeter_sessions_timed_out_total, 1);
    buf_fini(&stream);
}

/* Each write has its own time. */
static void
mux__answers_read_in_time__go_on(void **state)
{
    struct buf stream;
    struct heard heard;
    size_t count = 0;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    for (uint64_t i = 1; i <= 5; i++) {
        put_requests(&stream, 100 * i, 40, "/size/65536");
        say(&stream);
        tick_after(CONNECTION_IDLE_MS - 1);
        assert_open();
        while (hear(&heard)) {
            count++;
        }
        assert_int_equal(count, 40 * i);
        tick_after(CONNECTION_IDLE_MS + 1); /* nothing is under way */
        assert_open();
    }
    buf_fini(&stream);
}


/* ---- no memory ------------------------------------------------------- */

/* An answer that passes all that may wait is as one without memory. */
static void
mux__answer_has_no_room__ends_it(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/waits", "");
    for (uint64_t i = 2; i < 10; i++) {
        put_request(&stream, i, "/large", "");
    }
    say(&stream);
    for (size_t i = 1; i < 9; i++) {
        struct exchange *exchange = test.work[i].exchange;

        test.work[i].exchange = NULL;
        answer_size(exchange, 32u << 20);
    }
    assert_gone();
    assert_int_equal(test.cancels, 1);
    buf_fini(&stream);
}

#ifndef __SANITIZE_ADDRESS__

static size_t
memory_used(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* Room for much is given back when there is little. */
static void
mux__after_large_answers_and_frames__little_memory_is_kept(void **state)
{
    struct buf stream;
    size_t before;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    buf_fini(&test.in);
    before = memory_used();
    put_frame_at(&stream, 200, 0, 0, METER_FRAME_SIZE_MAX);
    put_request(&stream, 1, "/size/1000000", "");
    put_request(&stream, 2, "/size/1000000", "");
    say(&stream);
    listen_to();
    assert_true(test.in.size > 2000000);
    buf_fini(&test.in);
    buf_fini(&stream);
    assert_int_equal(test.served, 2);
    assert_true(memory_used() < before + 300000);
}

static struct control memory;

static void
fail_after(uint64_t count)
{
    if (control == NULL) {
        control = &memory;
        dl_iterate_phdr(program_find, NULL);
    }
    memory.countdown = count;
}

/* True: the allocation with this number failed meanwhile. */
static bool
play_without_memory(const struct buf *stream, uint64_t countdown)
{
    uint64_t failed = memory.failed;
    struct heard heard;
    size_t sent = 0;

    attach(SOCK_STREAM, NULL);
    turn();
    assert_heard_type(METER_FRAME_MUX);
    test.work_count = 0;
    test.served = 0;
    test.cancels = 0;
    fail_after(countdown);
    sent = say_some(stream->data, stream->size);
    for (size_t i = 0; i < test.work_count; i++) {
        struct exchange *exchange = test.work[i].exchange;
        struct meter_response response = {.status = 200};
        struct buf body = {.size_max = 0};

        if (exchange != NULL) {
            test.work[i].exchange = NULL;
            exchange_answer(exchange, &response, &body);
            turn();
        }
    }
    turn();
    fail_after(0);
    if (memory.failed > failed) {
        assert_gone(); /* never a mux that has forgotten something */
    } else {
        assert_int_equal(sent, stream->size);
        for (size_t i = 0; i < test.served; i++) {
            assert_true(hear(&heard));
            assert_int_equal(heard.type, METER_FRAME_RESPONSE);
        }
        assert_silence();
        assert_open();
    }
    close(test.worker);
    test.worker = -1;
    assert_gone();
    listen_to();
    buf_reset(&test.in);
    return memory.failed > failed;
}

static void
mux__no_memory_anywhere__ends_and_nothing_else(void **state)
{
    static char body[METER_MUX_BODY_MAX + 1];
    struct buf stream;
    uint64_t tried = 0;

    (void)state;
    memset(body, 'b', METER_MUX_BODY_MAX);
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/a", "");
    put_request(&stream, 2, "/b", "body");
    put_request(&stream, 3, "/c", body);
    put_head(&stream, 4, "/d", 200000, 0);
    put_request(&stream, 5, "/e", body);
    while (play_without_memory(&stream, tried + 1)) {
        tried++;
    }
    assert_true(tried >= 10);
    assert_int_equal(test.served, 5);
    buf_fini(&stream);
}

#endif

static const struct CMUnitTest tests[] = {
#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, mux_setup, mux_teardown)
    TEST(mux__most_requests_in_flight__one_more_is_refused),
    TEST(mux__most_bytes_in_flight__one_more_is_refused),
    TEST(mux__half_a_frame_while_held__no_silence),
    TEST(mux__half_a_frame_then_held__no_silence),
    TEST(mux__answers_not_read__no_more_is_read_until_they_are),
    TEST(mux__held_by_answers__goes_on_without_new_bytes),
    TEST(mux__half_a_frame_then_held_by_answers__no_silence),
    TEST(mux__answers_not_read_for_long__ends_it),
    TEST(mux__answers_read_in_time__go_on),
    TEST(mux__answer_has_no_room__ends_it),
#ifndef __SANITIZE_ADDRESS__
    TEST(mux__after_large_answers_and_frames__little_memory_is_kept),
    TEST(mux__no_memory_anywhere__ends_and_nothing_else),
#endif
};

RUN_TAP(tests)
