/*
 * test_mux_ends.c - how long a mux lives: silence in the middle of a
 * request, and the end of meterd.
 */

#include "mux_fixture.h"


/* ---- silence --------------------------------------------------------- */

static void
assert_half_ends(size_t size)
{
    int64_t before = metrics.edgemeter_sessions_timed_out_total;
    struct buf stream;

    buf_init(&stream, STREAM_MAX);
    attach_open();
    put_request(&stream, 7, "/now/half", "body");
    stream.size = size < stream.size ? size : stream.size - 1;
    say(&stream);
    tick_after(CONNECTION_IDLE_MS - 1);
    assert_open();
    tick_after(1);
    assert_gone();
    assert_int_equal(metrics.edgemeter_sessions_timed_out_total, before + 1);
    assert_int_equal(test.served, 0);
    close(test.worker);
    test.worker = -1;
    buf_fini(&stream);
}

static void
mux__half_a_frame_then_silence__ends_it(void **state)
{
    (void)state;
    assert_half_ends(1);
    assert_half_ends(METER_FRAME_HEADER_SIZE);
    assert_half_ends(METER_FRAME_HEADER_SIZE + 1);
    assert_half_ends(SIZE_MAX); /* without the last byte of the body */
}

/* A byte now and then is no request; a whole one is. */
static void
mux__half_a_frame_byte_by_byte__only_a_whole_one_counts(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/now/a", "");
    put_request(&stream, 2, "/now/b", "");
    assert_int_equal(say_some(stream.data, 10), 10);
    tick_after(CONNECTION_IDLE_MS - 1);
    assert_int_equal(say_some(stream.data + 10, stream.size - 20),
                     stream.size - 20); /* the first one is whole now */
    tick_after(CONNECTION_IDLE_MS - 1);
    assert_open();
    assert_int_equal(say_some(stream.data + stream.size - 10, 5), 5);
    tick_after(1);
    assert_gone();
    assert_int_equal(test.served, 1);
    buf_fini(&stream);
}

static void
mux__idle_or_waiting_for_answers__lives(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    for (int i = 0; i < 5; i++) {
        tick_after(3600000);
        assert_open();
    }
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/later", "");
    say(&stream);
    tick_after(3600000);
    tick_after(3600000);
    assert_open();
    answer_path("/later");
    turn();
    assert_heard(1, "/later");
    assert_int_equal(metrics.edgemeter_sessions_timed_out_total, 0);
    buf_fini(&stream);
}


/* ---- the end of meterd ----------------------------------------------- */

static void
mux__drained__tells_the_worker_and_serves_what_still_comes(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/a", "");
    say(&stream);
    drain();
    drain();
    turn();
    assert_heard_type(METER_FRAME_DRAIN);
    assert_silence(); /* said once */

    put_request(&stream, 2, "/b", ""); /* was on its way */
    put_request(&stream, 3, "/now/c", "");
    say(&stream);
    assert_heard(3, "/now/c");
    for (int i = 0; i < 10; i++) {
        tick_after(MUX_DRAINED_MS);
        assert_open();
    }
    answer_path("/a");
    answer_path("/b");
    turn();
    assert_heard(1, "/a");
    assert_heard(2, "/b");
    tick_after(MUX_DRAINED_MS); /* nothing is left since now */
    assert_open();
    tick_after(MUX_DRAINED_MS - 1);
    assert_open();
    tick_after(1);
    assert_gone();
    assert_int_equal(test.cancels, 0);
    buf_fini(&stream);
}

static void
mux__drained_and_a_request_comes__its_time_begins_anew(void **state)
{
    struct buf stream;

    (void)state;
    attach_open();
    drain();
    turn();
    tick_after(1);
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 1, "/a", "");
    say(&stream);
    tick_after(MUX_DRAINED_MS);
    assert_open();
    answer_path("/a");
    tick_after(MUX_DRAINED_MS); /* the answer has not left yet */
    assert_open();
    tick_after(MUX_DRAINED_MS - 1);
    assert_open();
    tick_after(1);
    assert_open();
    tick_after(MUX_DRAINED_MS);
    assert_gone();
    buf_fini(&stream);
}

static void
mux__drained_with_answers_not_read__waits_for_the_worker(void **state)
{
    struct buf stream;
    struct heard heard;
    size_t count = 0;

    (void)state;
    attach_open();
    buf_init(&stream, STREAM_MAX);
    drain();
    turn();
    assert_heard_type(METER_FRAME_DRAIN);
    put_requests(&stream, 1, 10, "/size/65536");
    say(&stream);
    for (int i = 0; i < 5; i++) {
        tick_after(MUX_DRAINED_MS);
        assert_open();
    }
    while (hear(&heard)) {
        count++;
    }
    assert_int_equal(count, 10);
    tick_after(1);
    tick_after(MUX_DRAINED_MS);
    assert_gone();
    buf_fini(&stream);
}

static void
mux__drained_and_the_worker_leaves__gone_at_once(void **state)
{
    (void)state;
    attach_open();
    drain();
    turn();
    assert_heard_type(METER_FRAME_DRAIN);
    close(test.worker);
    test.worker = -1;
    assert_gone();
}

static const struct CMUnitTest tests[] = {
#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, mux_setup, mux_teardown)
    TEST(mux__half_a_frame_then_silence__ends_it),
    TEST(mux__half_a_frame_byte_by_byte__only_a_whole_one_counts),
    TEST(mux__idle_or_waiting_for_answers__lives),
    TEST(mux__drained__tells_the_worker_and_serves_what_still_comes),
    TEST(mux__drained_and_a_request_comes__its_time_begins_anew),
    TEST(mux__drained_with_answers_not_read__waits_for_the_worker),
    TEST(mux__drained_and_the_worker_leaves__gone_at_once),
};

RUN_TAP(tests)
