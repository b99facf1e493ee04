/*
 * checkpoint_job.c - see checkpoint_job.h.
 *
 *   WAITING -timer-> LOOKING -due-> EXPORTING -exit-> WAITING
 *                        +---- not due ----------------^
 *
 * The directory is read by libuv's threads, since it may be a slow one.
 */

#include "maintain/checkpoint_job.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "maintain/checkpoint_dir.h"
#include "meter_time.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RETRY_US    (5 * METER_TIME_MINUTE)
#define WAIT_MAX_US METER_TIME_DAY /* looked at again at least so often */
#define KEEP_SIZE   24
#define STDIO_COUNT 3
#define US_PER_MS   1000
#define SELF_PATH                                              \
    "/proc/self/exe" /* the program that runs, replaced or not \
                      */

enum job_state {
    JOB_OFF,       /* for start, or for options with a path */
    JOB_WAITING,   /* for the timer */
    JOB_LOOKING,   /* for the names in the directory */
    JOB_EXPORTING, /* for the end of the process */
    JOB_STOPPED    /* for nothing more */
};

struct checkpoint_job {
    enum job_state state;
    bool is_started;
    const char *const *paths;
    size_t path_count;
    char *directory; /* NULL: off */
    int64_t every_us;
    int64_t keep;

    uv_loop_t *loop;
    uv_timer_t timer;
    uv_fs_t look;
    bool is_looking; /* the request is in libuv's hands */
    uv_process_t process;
    bool has_process; /* the handle is open */
    bool is_alive;    /* and its process has not ended */
    uint64_t began_ms;
    unsigned handles; /* what has to close before the job is freed */
    bool is_destroyed;
};

static void job_wait(struct checkpoint_job *job, int64_t wait_us);
static void job_timer_cb(uv_timer_t *timer);
static void job_look_cb(uv_fs_t *look);
static void job_export(struct checkpoint_job *job);
static void
job_exit_cb(uv_process_t *process, int64_t status, int signal_number);
static void job_closed_cb(uv_handle_t *handle);
static void job_release(struct checkpoint_job *job);


struct checkpoint_job *
checkpoint_job_create(uv_loop_t *loop, const char *const *paths, size_t count,
                      const struct config_checkpoint *options)
{
    struct checkpoint_job *job = calloc(1, sizeof(*job));

    if (job == NULL) {
        return NULL;
    }
    job->loop = loop;
    job->paths = paths;
    job->path_count = count;
    CHECK(uv_timer_init(loop, &job->timer) == 0);
    job->timer.data = job;
    job->handles = 1;
    checkpoint_job_options_set(job, options);
    return job;
}


/* An export under way goes on; what comes next is by the new options. */
void
checkpoint_job_options_set(struct checkpoint_job *job,
                           const struct config_checkpoint *options)
{
    free(job->directory);
    job->directory = options->path == NULL ? NULL : strdup(options->path);
    job->every_us = options->every_us;
    job->keep = options->keep;
    if (options->path != NULL && job->directory == NULL) {
        log_error("checkpoint", "out of memory: no checkpoints");
    }
    if (job->state == JOB_OFF || job->state == JOB_WAITING) {
        job_wait(job, 0);
    }
}


void
checkpoint_job_start(struct checkpoint_job *job)
{
    if (job->state == JOB_OFF) {
        job->is_started = true;
        job_wait(job, 0);
    }
}


void
checkpoint_job_stop(struct checkpoint_job *job)
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
checkpoint_job_destroy(struct checkpoint_job *job)
{
    if (job == NULL) {
        return;
    }
    checkpoint_job_stop(job);
    job->is_destroyed = true;
    uv_close((uv_handle_t *)&job->timer, job_closed_cb);
    if (job->is_looking) {
        (void)uv_cancel((uv_req_t *)&job->look); /* or it comes to its end */
    }
    /* Its file has no name yet; no one waits for the process. */
    if (job->has_process) {
        if (job->is_alive) {
            uv_process_kill(&job->process, SIGKILL);
        }
        job->has_process = false;
        uv_close((uv_handle_t *)&job->process, job_closed_cb);
    }
}


int64_t
checkpoint_due_us(int64_t newest_us, int64_t every_us, int64_t now_us)
{
    int64_t age_us;

    if (newest_us == INT64_MIN) {
        return 0;
    }
    /* A file of tomorrow: someone's clock is wrong, and this one is no
       reason to wait for a day and then some. */
    age_us = now_us - newest_us;
    if (age_us >= every_us || age_us <= -every_us) {
        return 0;
    }
    return every_us - age_us;
}


/* The only way into WAITING; stays OFF without a directory. */
static void
job_wait(struct checkpoint_job *job, int64_t wait_us)
{
    if (job->state == JOB_STOPPED) {
        return;
    }
    uv_timer_stop(&job->timer);
    if (!job->is_started || job->directory == NULL) {
        job->state = JOB_OFF;
        return;
    }
    job->state = JOB_WAITING;
    wait_us = wait_us < WAIT_MAX_US ? wait_us : WAIT_MAX_US;
    uv_timer_start(&job->timer, job_timer_cb,
                   (uint64_t)((wait_us + US_PER_MS - 1) / US_PER_MS), 0);
}


static void
job_timer_cb(uv_timer_t *timer)
{
    struct checkpoint_job *job = timer->data;

    job->look.data = job;
    job->state = JOB_LOOKING;
    if (uv_fs_scandir(job->loop, &job->look, job->directory, 0, job_look_cb) !=
        0) {
        uv_fs_req_cleanup(&job->look);
        job_export(job);
        return;
    }
    job->is_looking = true;
}


/* A directory that cannot be read is told by the export. */
static void
job_look_cb(uv_fs_t *look)
{
    struct checkpoint_job *job = look->data;
    int64_t newest_us = INT64_MIN;
    int64_t created_us;
    int64_t wait_us;
    uv_dirent_t entry;

    while (look->result > 0 && uv_fs_scandir_next(look, &entry) == 0) {
        if (checkpoint_name_parse(entry.name, &created_us) &&
            created_us > newest_us) {
            newest_us = created_us;
        }
    }
    uv_fs_req_cleanup(look);
    job->is_looking = false;
    if (job->state == JOB_STOPPED) {
        job_release(job);
        return;
    }
    if (newest_us != INT64_MIN) {
        metrics.edgemeter_checkpoint_last_seconds =
            newest_us / METER_TIME_SECOND;
    }
    wait_us = checkpoint_due_us(newest_us, job->every_us, clock_wall_us());
    if (wait_us > 0 || job->directory == NULL) {
        job_wait(job, wait_us);
    } else {
        job_export(job);
    }
}


/* ---- the process ------------------------------------------------------ */

/* NULL at its end; for free(). */
static const char **
command_words(const struct checkpoint_job *job, const char *keep)
{
    const char *const front[] = {"meterd", "checkpoint",  "export",
                                 "--log",  "--keep",      keep,
                                 "-o",     job->directory};
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


/* Later again; sooner than the next one would come. */
static void
job_failed(struct checkpoint_job *job)
{
    metrics.edgemeter_checkpoint_failures_total++;
    job_wait(job, job->every_us < RETRY_US ? job->every_us : RETRY_US);
}


static void
job_export(struct checkpoint_job *job)
{
    uv_stdio_container_t stdio[STDIO_COUNT] = {
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO}, /* its log */
    };
    char keep[KEEP_SIZE];
    const char **words = command_words(job, keep);
    uv_process_options_t options = {
        .exit_cb = job_exit_cb,
        .file = SELF_PATH,
        .args = (char **)(uintptr_t)words, /* exec does not change them */
        .stdio_count = STDIO_COUNT,
        .stdio = stdio,
    };
    int status;

    snprintf(keep, sizeof(keep), "%lld", (long long)job->keep);
    job->process.data = job;
    job->began_ms = clock_mono_ms();
    status = words == NULL ? UV_ENOMEM
                           : uv_spawn(job->loop, &job->process, &options);
    free(words);
    if (words != NULL) { /* the handle is open even so */
        job->has_process = true;
        job->handles++;
    }
    job->state = JOB_EXPORTING;
    if (status == 0) {
        job->is_alive = true;
        return;
    }
    log_error("checkpoint", "the export cannot be started",
              log_str("reason", uv_strerror(status)));
    if (job->has_process) {
        job->has_process = false;
        uv_close((uv_handle_t *)&job->process, job_closed_cb);
    }
    job_failed(job);
}


static void
job_exit_cb(uv_process_t *process, int64_t status, int signal_number)
{
    struct checkpoint_job *job = process->data;

    job->is_alive = false;
    job->has_process = false;
    uv_close((uv_handle_t *)process, job_closed_cb);
    if (job->state == JOB_STOPPED) {
        return;
    }
    if (status == 0 && signal_number == 0) {
        metrics.edgemeter_checkpoints_total++;
        metrics.edgemeter_checkpoint_last_seconds =
            clock_wall_us() / METER_TIME_SECOND;
        log_info("checkpoint", "exported",
                 log_int("ms", (int64_t)(clock_mono_ms() - job->began_ms)));
        job_wait(job, job->every_us);
        return;
    }
    log_error("checkpoint", "the export failed", log_int("status", status),
              log_int("signal", signal_number));
    job_failed(job);
}


/* ---- the end ---------------------------------------------------------- */

static void
job_closed_cb(uv_handle_t *handle)
{
    struct checkpoint_job *job = handle->data;

    job->handles--;
    job_release(job);
}


static void
job_release(struct checkpoint_job *job)
{
    if (!job->is_destroyed || job->handles > 0 || job->is_looking) {
        return;
    }
    free(job->directory);
    free(job);
}
