/*
 * Compressed bodies on a loop: short ones at once, long ones in turns, one
 * after the other, and callers that leave in between.
 */

#include "gzip_fixture.h"

#include "api/events.c"
#include "base/metrics.h"
#include "meter_limits.h"

#define JOBS 4

struct job {
    struct buf body;
    struct unpack_job *handle;
    int answers;
    enum gunzip_result result;
    const char *error;
    int place; /* which answer it was */
};

static uv_loop_t loop;
static struct unpack *unpack;
static struct job jobs[JOBS];
static int answered;

static int
setup(void **state)
{
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    unpack = unpack_create(&loop);
    answered = 0;
    memset(jobs, 0, sizeof(jobs));
    for (size_t i = 0; i < JOBS; i++) {
        buf_init(&jobs[i].body, METER_BODY_SIZE_MAX);
    }
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    unpack_destroy(unpack);
    uv_run(&loop, UV_RUN_DEFAULT);
    for (size_t i = 0; i < JOBS; i++) {
        buf_fini(&jobs[i].body);
    }
    assert_int_equal(metrics.edgemeter_unpack_queue, 0);
    return uv_loop_close(&loop);
}

static void
answer_cb(void *asker, enum gunzip_result result, const char *error)
{
    struct job *job = asker;

    job->handle = NULL;
    job->answers++;
    job->result = result;
    job->error = error;
    job->place = ++answered;
}

static void
start(struct job *job, const void *data, size_t size)
{
    struct buf packed;

    buf_init(&packed, 2 * METER_BODY_SIZE_MAX);
    gzip_put(&packed, data, size, 6);
    buf_put_str(&job->body, buf_str(&packed));
    buf_fini(&packed);
    job->handle = unpack_start(unpack, &job->body, answer_cb, job);
}

static void
assert_body(const struct job *job, const void *data, size_t size)
{
    assert_int_equal(job->answers, 1);
    assert_int_equal(job->result, GUNZIP_DONE);
    assert_int_equal(job->body.size, size);
    assert_memory_equal(job->body.data, data, size);
    assert_int_equal(job->body.size_max, METER_BODY_SIZE_MAX);
}

static void
start__short_body__is_ready_at_once(void **state)
{
    int64_t bytes = metrics.edgemeter_unpacked_bytes_total;

    (void)state;
    start(&jobs[0], "[]", 2);
    assert_null(jobs[0].handle);
    assert_body(&jobs[0], "[]", 2);
    assert_int_equal(metrics.edgemeter_unpacked_bytes_total - bytes, 2);
}

static void
start__broken_body__has_its_sentence(void **state)
{
    int64_t refused = metrics.edgemeter_unpack_refused_total;

    (void)state;
    buf_put_text(&jobs[0].body, "[]");
    jobs[0].handle = unpack_start(unpack, &jobs[0].body, answer_cb, &jobs[0]);
    assert_int_equal(jobs[0].result, GUNZIP_BAD);
    assert_non_null(jobs[0].error);
    assert_int_equal(metrics.edgemeter_unpack_refused_total - refused, 1);
}

static void
start__body_past_the_limit__is_large(void **state)
{
    size_t size = METER_BODY_SIZE_MAX + 1;
    char *zeros = calloc(1, size);
    int64_t refused = metrics.edgemeter_unpack_refused_total;

    (void)state;
    start(&jobs[0], zeros, size);
    start(&jobs[1], zeros, size - 1);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(jobs[0].result, GUNZIP_LARGE);
    assert_int_equal(metrics.edgemeter_unpack_refused_total - refused, 1);
    assert_body(&jobs[1], zeros, size - 1);
    free(zeros);
}

/* A turn of the loop does one step, so others have theirs in between. */
static void
start__long_body__takes_turns_of_the_loop(void **state)
{
    size_t size = 20 * GUNZIP_STEP_OUT;
    char *zeros = calloc(1, size);
    int turns = 0;

    (void)state;
    start(&jobs[0], zeros, size);
    assert_non_null(jobs[0].handle);
    assert_int_equal(metrics.edgemeter_unpack_queue, 1);
    while (jobs[0].answers == 0) {
        uv_run(&loop, UV_RUN_NOWAIT);
        turns++;
    }
    assert_true(turns >= 19);
    assert_body(&jobs[0], zeros, size);
    free(zeros);
}

static void
start__several__one_after_the_other(void **state)
{
    size_t size = 5 * GUNZIP_STEP_OUT;
    char *zeros = calloc(1, size);

    (void)state;
    start(&jobs[0], zeros, size);
    start(&jobs[1], zeros, size);
    start(&jobs[2], "[]", 2); /* waits its turn as well */
    assert_non_null(jobs[2].handle);
    assert_int_equal(metrics.edgemeter_unpack_queue, 3);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_body(&jobs[0], zeros, size);
    assert_body(&jobs[1], zeros, size);
    assert_body(&jobs[2], "[]", 2);
    assert_int_equal(jobs[0].place, 1);
    assert_int_equal(jobs[1].place, 2);
    assert_int_equal(jobs[2].place, 3);
    free(zeros);
}

static void
cancel__begun_and_waiting__no_answer_and_others_go_on(void **state)
{
    size_t size = 5 * GUNZIP_STEP_OUT;
    char *zeros = calloc(1, size);

    (void)state;
    for (size_t i = 0; i < JOBS; i++) {
        start(&jobs[i], zeros, size);
    }
    uv_run(&loop, UV_RUN_NOWAIT);
    unpack_cancel(jobs[2].handle);
    unpack_cancel(jobs[0].handle);
    buf_fini(&jobs[0].body); /* it is not looked at any more */
    buf_fini(&jobs[2].body);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(jobs[0].answers, 0);
    assert_int_equal(jobs[2].answers, 0);
    assert_body(&jobs[1], zeros, size);
    assert_body(&jobs[3], zeros, size);
    free(zeros);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(start__short_body__is_ready_at_once),
    TEST(start__broken_body__has_its_sentence),
    TEST(start__body_past_the_limit__is_large),
    TEST(start__long_body__takes_turns_of_the_loop),
    TEST(start__several__one_after_the_other),
    TEST(cancel__begun_and_waiting__no_answer_and_others_go_on),
};

RUN_TAP(tests)
