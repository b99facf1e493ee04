/*
 * test_api_conn.c - a connection too many: one request on it is refused,
 * and it does not stay, whatever is said on it.
 */

#include "mux_fixture.h"

static void
attach_full(void)
{
    connect_worker(SOCK_STREAM);
    test.connection->is_full = true;
    connection_become(test.connection, &api_protocol, NULL);
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
    tick_after(CONNECTION_IDLE_MS - 1);
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
