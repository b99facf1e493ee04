/*
 * replay_job.c - see replay_job.h.
 *
 *   STARTING -> [ready] -> WORKING: fill, submit, answer, resume file, ...
 *                             |  <-> WAITING, for standard input
 *                             v
 *             [end, signal] SETTLING: series -> ENDED
 *
 * A signal lets the batch at the gate end; a second one does not wait for
 * the series, which are flushed later from the ledger.
 */

#include "cmd/replay_job.h"

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/progress.h"
#include "cmd/replay_parts.h"
#include "cmd/replay_place.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define READY_MS   20000
#define SETTLE_MS  600000
#define FLUSH_MS   10000 /* after a signal */
#define LOOK_MS    20
#define DOING_SIZE 64

enum job_state {
    JOB_STARTING, /* for lane and partitions */
    JOB_WORKING,  /* for an answer, or the next turn */
    JOB_WAITING,  /* for something to read */
    JOB_SETTLING, /* for the series */
    JOB_ENDED
};

enum { SIGNAL_INT, SIGNAL_TERM, SIGNAL_COUNT };

struct replay_job {
    const struct replay_wish *wish;
    struct replay_input input;
    struct replay_tally tally;
    enum job_state state;
    bool failed;
    bool is_interrupted;

    char directory[PATH_MAX];
    int lock;
    struct replay_place place;

    struct progress progress;
    char doing[DOING_SIZE];
    int64_t events; /* of this run */
    uint64_t started_ms;
    uint64_t settle_by_ms;

    uv_loop_t loop;
    uv_timer_t turn; /* the next step */
    uv_timer_t limit;
    uv_poll_t readable;
    bool has_readable;
    uv_signal_t signals[SIGNAL_COUNT];
    struct replay_parts parts;
};

static void turn_cb(uv_timer_t *timer);
static void settle_cb(uv_timer_t *timer);


/* ---- ends ------------------------------------------------------------- */

static void
job_fail(struct replay_job *job, const char *why)
{
    if (job->state == JOB_ENDED) {
        return;
    }
    progress_end(&job->progress);
    fprintf(stderr, "meterd replay: %s\n", why);
    job->failed = true;
    job->state = JOB_ENDED;
    uv_stop(&job->loop);
}

/* Already told. */
static void
job_give_up(struct replay_job *job)
{
    job->failed = true;
    job->state = JOB_ENDED;
    uv_stop(&job->loop);
}

/* All is committed that will be: the series follow. */
static void
job_settle(struct replay_job *job)
{
    job->state = JOB_SETTLING;
    job->settle_by_ms =
        clock_mono_ms() + (job->is_interrupted ? FLUSH_MS : SETTLE_MS);
    uv_timer_start(&job->turn, settle_cb, 0, LOOK_MS);
}

static void
settle_cb(uv_timer_t *timer)
{
    struct replay_job *job = timer->data;
    struct series_engine *series = job->parts.series;
    bool is_done;

    if (job->is_interrupted) {
        series_engine_drain(series);
        is_done = series_engine_is_idle(series);
    } else {
        series_engine_settle(series);
        is_done = series_engine_is_settled(series);
    }
    if (!is_done && clock_mono_ms() >= job->settle_by_ms) {
        progress_end(&job->progress);
        fputs("meterd replay: series are not complete yet; a running meterd "
              "completes them\n",
              stderr);
        is_done = true;
    }
    if (is_done) {
        job->state = JOB_ENDED;
        uv_stop(&job->loop);
    }
    progress_add(&job->progress, 0);
}


/* ---- batches ---------------------------------------------------------- */

static void
doing_set(struct replay_job *job)
{
    uint64_t gone_ms = clock_mono_ms() - job->started_ms;

    snprintf(job->doing, sizeof(job->doing), "%lld events, %.0f/s",
             (long long)job->events,
             gone_ms == 0 ? 0.0 : (double)job->events * 1000 / (double)gone_ms);
}

/* Everything up to here is committed. False: told. */
static bool
place_save(struct replay_job *job)
{
    struct replay_resume *resume = &job->place.resume;

    resume->offset = job->input.batch.offset_next;
    resume->line_next = job->input.batch.line_next;
    resume->batch = replay_parts_batch(&job->parts);
    resume->rejects_size = job->tally.rejects_size;
    memcpy(resume->counts, job->tally.counts, sizeof(resume->counts));
    return replay_place_save(&job->place);
}

/* All lines of the batch have their verdicts. */
static void
batch_done(struct replay_job *job)
{
    int64_t before = job->place.resume.offset;

    CRASH_POINT("replay_after_batch");
    if (!replay_tally_flush(&job->tally) || !place_save(job)) {
        job_give_up(job);
        return;
    }
    job->events += (int64_t)job->input.batch.count;
    doing_set(job);
    progress_add(&job->progress, job->place.resume.offset - before);
}

static void
answer_cb(void *asker, const struct ingest_answer *answer)
{
    struct replay_job *job = asker;
    struct replay_batch *batch = &job->input.batch;

    if (job->state == JOB_ENDED) {
        return;
    }
    if (answer->outcome != INGEST_DONE && answer->outcome != INGEST_BAD) {
        job_fail(job, "no answer from the database, or no memory; run it "
                      "again to go on");
        return;
    }
    replay_batch_answered(batch, answer, &job->tally);
    if (batch->from == batch->count) {
        batch_done(job);
    }
    if (job->state == JOB_WORKING) {
        uv_timer_start(&job->turn, turn_cb, 0, 0);
    }
}

/* True: the batch has something for the gate, which has it now. */
static bool
batch_submit(struct replay_job *job)
{
    const struct ingest_input input = replay_ingest_input(job->wish);
    struct buf body;

    buf_init(&body, METER_BODY_SIZE_MAX);
    if (!replay_batch_next(&job->input.batch, &body)) {
        return false;
    }
    if (body.failed) {
        job_fail(job, "out of memory");
        return true;
    }
    ingest_submit(job->parts.ingest, &input, &body, answer_cb, job);
    return true;
}

static void
readable_cb(uv_poll_t *poll, int status, int events)
{
    struct replay_job *job = poll->data;

    (void)status; /* whatever it is, read tells */
    (void)events;
    uv_poll_stop(poll);
    if (job->state == JOB_WAITING) {
        job->state = JOB_WORKING;
        uv_timer_start(&job->turn, turn_cb, 0, 0);
    }
}

static void
batch_read(struct replay_job *job)
{
    enum replay_next next = replay_input_fill(&job->input);

    if (next == REPLAY_FAILED) {
        job_give_up(job);
    } else if (job->input.batch.count > 0) {
        (void)batch_submit(job);
    } else if (next == REPLAY_END) {
        job_settle(job);
    } else {
        CHECK(next == REPLAY_AGAIN && job->has_readable);
        job->state = JOB_WAITING;
        uv_poll_start(&job->readable, UV_READABLE, readable_cb);
    }
}

/* A batch that is at the gate in pieces goes there whole, signal or not. */
static void
turn_cb(uv_timer_t *timer)
{
    struct replay_job *job = timer->data;

    if (batch_submit(job)) {
        return;
    }
    if (job->is_interrupted) {
        job_settle(job);
    } else {
        batch_read(job);
    }
}


/* ---- the loop --------------------------------------------------------- */

/* At the first line, or where the interrupted replay was. False: told. */
static bool
place_take(struct replay_job *job)
{
    struct replay_place *place = &job->place;
    const struct replay_resume *resume = &place->resume;

    replay_place_settle(place, job->parts.db_epoch,
                        lane_writer(job->parts.lane), job->parts.batch);
    memcpy(job->tally.counts, resume->counts, sizeof(resume->counts));
    if (!replay_tally_open(&job->tally, resume->rejects_size,
                           job->input.file)) {
        return false;
    }
    if (!place->is_resuming) {
        return true;
    }
    fprintf(stderr, "meterd replay: going on at line %lld, byte %lld of %lld\n",
            (long long)resume->line_next, (long long)resume->offset,
            (long long)job->input.size);
    return replay_input_move(&job->input, resume->offset, resume->line_next);
}

static void
ready_cb(void *owner)
{
    struct replay_job *job = owner;

    if (job->state != JOB_STARTING) {
        return;
    }
    uv_timer_stop(&job->limit);
    if (!place_take(job)) {
        job_give_up(job);
        return;
    }
    job->state = JOB_WORKING;
    job->started_ms = clock_mono_ms();
    doing_set(job);
    progress_start(&job->progress, job->doing, NULL, job->input.size);
    job->progress.done = job->place.resume.offset;
    job->progress.skipped = job->place.resume.offset;
    uv_timer_start(&job->turn, turn_cb, 0, 0);
}

static void
failed_cb(void *owner, const char *why)
{
    job_fail(owner, why);
}

static void
limit_cb(uv_timer_t *timer)
{
    job_fail(timer->data, "the database cannot be reached");
}

static void
signal_cb(uv_signal_t *handle, int number)
{
    struct replay_job *job = handle->data;
    bool is_second = job->is_interrupted;

    (void)number;
    job->is_interrupted = true;
    if (job->state == JOB_STARTING || is_second) {
        job->state = JOB_ENDED;
        uv_stop(&job->loop);
    } else if (job->state == JOB_WAITING) {
        uv_poll_stop(&job->readable);
        job_settle(job);
    } else if (job->state == JOB_SETTLING) {
        job_settle(job);
    }
}

static void
loop_open(struct replay_job *job)
{
    static const int numbers[SIGNAL_COUNT] = {SIGINT, SIGTERM};

    CHECK(uv_loop_init(&job->loop) == 0);
    CHECK(uv_timer_init(&job->loop, &job->turn) == 0);
    CHECK(uv_timer_init(&job->loop, &job->limit) == 0);
    job->turn.data = job;
    job->limit.data = job;
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        CHECK(uv_signal_init(&job->loop, &job->signals[i]) == 0);
        job->signals[i].data = job;
        CHECK(uv_signal_start(&job->signals[i], signal_cb, numbers[i]) == 0);
    }
    job->has_readable =
        !job->input.is_regular &&
        uv_poll_init(&job->loop, &job->readable, job->input.file) == 0;
    job->readable.data = job;
}

static void
loop_close(struct replay_job *job)
{
    job->state = JOB_ENDED;
    replay_parts_fini(&job->parts);
    uv_close((uv_handle_t *)&job->turn, NULL);
    uv_close((uv_handle_t *)&job->limit, NULL);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        uv_close((uv_handle_t *)&job->signals[i], NULL);
    }
    if (job->has_readable) {
        uv_close((uv_handle_t *)&job->readable, NULL);
    }
    while (uv_run(&job->loop, UV_RUN_DEFAULT) != 0) {
        continue;
    }
    CHECK(uv_loop_close(&job->loop) == 0);
}

static void
loop_run(struct replay_job *job)
{
    static const struct replay_parts_events events = {.on_ready = ready_cb,
                                                      .on_failed = failed_cb};

    loop_open(job);
    if (!replay_parts_init(&job->parts, &job->loop, job->wish->config,
                           job->directory, &events, job)) {
        job_fail(job, "cannot start");
    } else {
        uv_timer_start(&job->limit, limit_cb, READY_MS, 0);
        uv_run(&job->loop, UV_RUN_DEFAULT);
    }
    progress_end(&job->progress);
    loop_close(job);
}


/* ---- all of it -------------------------------------------------------- */

/* False: told. */
static bool
job_open(struct replay_job *job)
{
    int size = snprintf(job->directory, sizeof(job->directory), "%s/backfill",
                        job->wish->config->state_dir);

    if (size < 0 || (size_t)size >= sizeof(job->directory)) {
        fputs("meterd replay: the path of stateDir is too long\n", stderr);
        return false;
    }
    if (!replay_input_open(&job->input, job->wish)) {
        return false;
    }
    job->lock = replay_directory_lock(job->directory);
    return job->lock >= 0 &&
           replay_place_open(&job->place, &job->input, job->directory);
}

/* How to go on after an end that was none. */
static void
unfinished_tell(const struct replay_job *job)
{
    if (job->place.is_kept) {
        fprintf(stderr,
                "meterd replay: %s before line %lld, byte %lld of %lld; the "
                "same command goes on there\n",
                job->is_interrupted ? "interrupted" : "ended",
                (long long)job->place.resume.line_next,
                (long long)job->place.resume.offset,
                (long long)job->input.size);
    } else {
        fprintf(stderr,
                "meterd replay: %s before line %lld; sending everything "
                "again does no harm\n",
                job->is_interrupted ? "interrupted" : "ended",
                (long long)job->place.resume.line_next);
    }
}

static int
job_end(struct replay_job *job)
{
    replay_tally_tell(&job->tally, "replayed");
    if (job->failed || job->is_interrupted) {
        unfinished_tell(job);
        return REPLAY_EXIT_FAILED;
    }
    CRASH_POINT("replay_before_end");
    replay_place_end(&job->place);
    return replay_tally_is_clean(&job->tally) ? REPLAY_EXIT_CLEAN
                                              : REPLAY_EXIT_SOME;
}

int
replay_job_run(const struct replay_wish *wish)
{
    struct replay_job *job = calloc(1, sizeof(*job));
    int status = REPLAY_EXIT_FAILED;

    if (job == NULL) {
        fputs("meterd replay: out of memory\n", stderr);
        return status;
    }
    job->wish = wish;
    job->lock = -1;
    replay_tally_init(&job->tally, wish->rejects);
    job->tally.progress = &job->progress;
    if (job_open(job)) {
        loop_run(job);
        status = job_end(job);
    }
    if (job->lock >= 0) {
        close(job->lock);
    }
    replay_tally_fini(&job->tally);
    replay_input_close(&job->input);
    free(job);
    return status;
}
