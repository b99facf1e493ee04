/*
 * retention_job.c - see retention_job.h.
 *
 *   OFF -start-> WAITING -timer-> RUNNING -exit, end of its words-> WAITING
 */

#include "maintain/retention_job.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "meter_time.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define FIRST_MS    (2 * 60 * 1000)
#define JITTER_MS   (5 * 60 * 1000)
#define EVERY_MS    (24 * 60 * 60 * 1000)
#define RETRY_MS    (60 * 60 * 1000)
#define JUMP_US     METER_TIME_MINUTE
#define WORDS_SIZE  128
#define STDIO_COUNT 3
#define SELF_PATH   "/proc/self/exe" /* the program that runs */

enum job_state { JOB_OFF, JOB_WAITING, JOB_RUNNING, JOB_STOPPED };

struct retention_job {
    enum job_state state;
    const char *const *paths;
    size_t path_count;
    int64_t ahead_us; /* wall clock, of the time since boot */
    uint64_t test_ms; /* all waits, for a test; 0: as they are */

    uv_loop_t *loop;
    uv_timer_t timer;
    uv_process_t process;
    uv_pipe_t pipe; /* what it says at its end */
    char words[WORDS_SIZE];
    size_t words_size;
    bool is_alive;
    bool is_reading;
    bool has_failed; /* to start */
    int64_t status;  /* how it ended */
    int signal_number;
    unsigned handles; /* what has to close before the job is freed */
    bool is_destroyed;
};

static void job_wait(struct retention_job *job, uint64_t wait_ms);
static void job_timer_cb(uv_timer_t *timer);
static void job_run(struct retention_job *job);
static void
job_exit_cb(uv_process_t *process, int64_t status, int signal_number);
static void job_end(struct retention_job *job);
static void job_closed_cb(uv_handle_t *handle);


static int64_t
ahead_us(void)
{
    return clock_wall_us() - (int64_t)clock_boot_us();
}


struct retention_job *
retention_job_create(uv_loop_t *loop, const char *const *paths, size_t count)
{
    struct retention_job *job = calloc(1, sizeof(*job));
    const char *test = getenv("METERD_TEST_RETENTION_MS");

    if (job == NULL) {
        return NULL;
    }
    job->loop = loop;
    job->paths = paths;
    job->path_count = count;
    job->ahead_us = ahead_us();
    job->test_ms = test == NULL ? 0 : strtoull(test, NULL, 10);
    CHECK(uv_timer_init(loop, &job->timer) == 0);
    job->timer.data = job;
    job->handles = 1;
    return job;
}


void
retention_job_start(struct retention_job *job)
{
    uint32_t random = 0;

    if (job->state != JOB_OFF) {
        return;
    }
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0) {
        random = (uint32_t)clock_mono_us();
    }
    job_wait(job, FIRST_MS + random % JITTER_MS);
}


void
retention_job_stop(struct retention_job *job)
{
    job->state = JOB_STOPPED;
    if (!job->is_destroyed) {
        uv_timer_stop(&job->timer);
    }
    if (job->is_alive) {
        uv_process_kill(&job->process, SIGTERM);
    }
}


void
retention_job_destroy(struct retention_job *job)
{
    if (job == NULL) {
        return;
    }
    retention_job_stop(job);
    job->is_destroyed = true;
    uv_close((uv_handle_t *)&job->timer, job_closed_cb);
    if (job->is_reading) {
        job->is_reading = false;
        uv_close((uv_handle_t *)&job->pipe, job_closed_cb);
    }
    /* What it had not committed is as it was. */
    if (job->is_alive) {
        uv_process_kill(&job->process, SIGKILL);
        job->is_alive = false;
        uv_close((uv_handle_t *)&job->process, job_closed_cb);
    }
}


bool
retention_job_is_jump(int64_t before_us, int64_t after_us)
{
    return after_us - before_us > JUMP_US || before_us - after_us > JUMP_US;
}


/* "WORD NUMBER", then the next word or the end of the line. */
static bool
word_read(struct meter_str *text, const char *word, int64_t *number)
{
    size_t at = strlen(word);
    size_t first = at;

    *number = 0;
    if (text->size <= at || memcmp(text->data, word, at) != 0) {
        return false;
    }
    for (; at < text->size && text->data[at] >= '0' && text->data[at] <= '9' &&
           *number < INT32_MAX;
         at++) {
        *number = *number * 10 + (text->data[at] - '0');
    }
    if (at == first || at == text->size ||
        (text->data[at] != ' ' && text->data[at] != '\n')) {
        return false;
    }
    *text = (struct meter_str){text->data + at + 1, text->size - at - 1};
    return true;
}


bool
retention_job_parse(struct meter_str text, struct retention_words *out)
{
    return word_read(&text, "dropped ", &out->dropped) &&
           word_read(&text, "skipped ", &out->skipped) &&
           word_read(&text, "waiting ", &out->waiting);
}


static void
job_wait(struct retention_job *job, uint64_t wait_ms)
{
    if (job->state == JOB_STOPPED) {
        return;
    }
    job->state = JOB_WAITING;
    uv_timer_start(&job->timer, job_timer_cb,
                   job->test_ms != 0 ? job->test_ms : wait_ms, 0);
}


/* A clock that was set: there is a day to set it right. */
static void
job_timer_cb(uv_timer_t *timer)
{
    struct retention_job *job = timer->data;
    int64_t before_us = job->ahead_us;

    job->ahead_us = ahead_us();
    if (retention_job_is_jump(before_us, job->ahead_us)) {
        metrics.edgemeter_retention_failures_total++;
        log_error("retention",
                  "the clock of this machine was set: nothing is dropped "
                  "today",
                  log_int("seconds",
                          (job->ahead_us - before_us) / METER_TIME_SECOND));
        job_wait(job, EVERY_MS);
        return;
    }
    job_run(job);
}


/* ---- the process ------------------------------------------------------ */

/* NULL at its end; for free(). */
static const char **
command_words(const struct retention_job *job)
{
    const char *const front[] = {"meterd", "retention", "--log"};
    size_t count = sizeof(front) / sizeof(front[0]);
    const char **words =
        calloc(count + 2 * job->path_count + 1, sizeof(*words));

    if (words == NULL) {
        return NULL;
    }
    memcpy(words, front, sizeof(front));
    for (size_t i = 0; i < job->path_count; i++) {
        words[count++] = "-c";
        words[count++] = job->paths[i];
    }
    return words;
}


static void
words_room_cb(uv_handle_t *handle, size_t size, uv_buf_t *out)
{
    struct retention_job *job = handle->data;

    (void)size;
    *out = uv_buf_init(job->words + job->words_size,
                       (unsigned)(WORDS_SIZE - job->words_size));
}


/* Without room left libuv says ENOBUFS, which ends it as EOF does. */
static void
words_cb(uv_stream_t *stream, ssize_t size, const uv_buf_t *words)
{
    struct retention_job *job = stream->data;

    (void)words;
    if (size >= 0) {
        job->words_size += (size_t)size;
        return;
    }
    job->is_reading = false;
    uv_close((uv_handle_t *)&job->pipe, job_closed_cb);
    job_end(job);
}


static int
job_spawn(struct retention_job *job, const char **words)
{
    uv_stdio_container_t stdio[STDIO_COUNT] = {
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
         .data.stream = (uv_stream_t *)&job->pipe},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO}, /* its log */
    };
    const uv_process_options_t options = {
        .exit_cb = job_exit_cb,
        .file = SELF_PATH,
        .args = (char **)(uintptr_t)words, /* exec does not change them */
        .stdio_count = STDIO_COUNT,
        .stdio = stdio,
    };
    int status;

    CHECK(uv_pipe_init(job->loop, &job->pipe, 0) == 0);
    job->pipe.data = job;
    job->process.data = job;
    job->handles += 2;
    status = uv_spawn(job->loop, &job->process, &options);
    if (status == 0) {
        status =
            uv_read_start((uv_stream_t *)&job->pipe, words_room_cb, words_cb);
        job->is_alive = true;
        job->is_reading = status == 0;
    } else {
        uv_close((uv_handle_t *)&job->process, job_closed_cb);
    }
    if (status != 0) {
        uv_close((uv_handle_t *)&job->pipe, job_closed_cb);
    }
    return status;
}


static void
job_run(struct retention_job *job)
{
    const char **words = command_words(job);
    int status;

    job->state = JOB_RUNNING;
    job->words_size = 0;
    job->has_failed = false;
    job->status = 0;
    job->signal_number = 0;
    status = words == NULL ? UV_ENOMEM : job_spawn(job, words);
    free(words);
    if (status != 0) {
        log_error("retention", "it cannot be started",
                  log_str("reason", uv_strerror(status)));
        job->has_failed = true;
        job_end(job);
    }
}


static void
job_exit_cb(uv_process_t *process, int64_t status, int signal_number)
{
    struct retention_job *job = process->data;

    if (!job->is_alive) {
        return; /* destroyed */
    }
    job->is_alive = false;
    uv_close((uv_handle_t *)process, job_closed_cb);
    job->status = status;
    job->signal_number = signal_number;
    job_end(job);
}


/* The process has ended and all it said is here; or it never ran. */
static void
job_end(struct retention_job *job)
{
    struct retention_words words = {0};
    bool is_done = job->status == 0;

    if (job->is_alive || job->is_reading || job->state != JOB_RUNNING) {
        return;
    }
    if (retention_job_parse((struct meter_str){job->words, job->words_size},
                            &words)) {
        metrics.edgemeter_retention_dropped_total += (uint64_t)words.dropped;
        metrics.edgemeter_retention_waiting = words.waiting;
        /* What is in force was done, though someone should say more. */
        is_done = words.skipped == 0 && (is_done || words.waiting > 0);
    }
    if (!job->has_failed && (!is_done || job->signal_number != 0)) {
        log_warn("retention", "not all was done",
                 log_int("status", job->status),
                 log_int("signal", job->signal_number));
        job->has_failed = true;
    }
    if (job->has_failed) {
        metrics.edgemeter_retention_failures_total++;
        job_wait(job, RETRY_MS);
        return;
    }
    metrics.edgemeter_retention_last_seconds =
        clock_wall_us() / METER_TIME_SECOND;
    job_wait(job, EVERY_MS);
}


static void
job_closed_cb(uv_handle_t *handle)
{
    struct retention_job *job = handle->data;

    if (--job->handles == 0 && job->is_destroyed) {
        free(job);
    }
}
