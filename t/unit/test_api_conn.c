/*
 * test_api_conn.c - a connection too many: one request on it is refused,
 * and it does not stay, whatever is said on it.
 */

#include "mux_fixture.h"

#include "edge/api_conn.h"

static bool
full_body_cb(void *owner, struct api_conn *conn, size_t size)
{
    (void)owner;
    (void)conn;
    (void)size;
    return true;
}

static void
full_body_done_cb(void *owner, struct api_conn *conn, size_t size)
{
    (void)owner;
    (void)conn;
    (void)size;
}

static const struct api_conn_events full_events = {
    .exchange = {.on_request = on_request, .on_cancel = on_cancel},
    .is_full = true,
    .on_body = full_body_cb,
    .on_body_done = full_body_done_cb,
};

static void
attach_full(void)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX,
                                SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                                pair),
                     0);
    test.worker = pair[1];
    test.connection = connection_create(&test.loop, pair[0], on_closed, &test);
    assert_non_null(test.connection);
    assert_true(api_conn_attach(test.connection, &full_events, &test));
    turn();
}

static void
full__two_requests__one_is_answered_then_it_ends(void **state)
{
    struct buf stream;
    struct heard heard;

    (void)state;
    attach_full();
    buf_init(&stream, STREAM_MAX);
    put_request(&stream, 0, "/first", "body");
    put_request(&stream, 0, "/second", "");
    say(&stream);
    assert_gone();
    assert_true(hear(&heard));
    assert_int_equal(heard.status, 429);
    assert_silence();
    buf_fini(&stream);
}

static void
full__silent__ends_after_its_time(void **state)
{
    (void)state;
    attach_full();
    tick_after(API_CONN_IDLE_MS - 1);
    assert_non_null(test.connection);
    tick_after(1);
    assert_gone();
    assert_int_equal(metrics.edgemeter_sessions_timed_out_total, 1);
}

static const struct CMUnitTest tests[] = {
#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, mux_setup, mux_teardown)
    TEST(full__two_requests__one_is_answered_then_it_ends),
    TEST(full__silent__ends_after_its_time),
};

RUN_TAP(tests)
