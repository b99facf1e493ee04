/*
 * unpack.c - see unpack.h.
 */

#include "api/unpack.h"

#include "base/metrics.h"
#include "meter_limits.h"

#include <stdlib.h>

struct unpack_job {
    struct unpack *unpack;
    struct unpack_job *next;
    struct buf *body;
    struct gunzip *gunzip; /* NULL: has not begun */
    unpack_cb cb;
    void *asker;
};

struct unpack {
    uv_idle_t idle;          /* runs while there are jobs */
    struct unpack_job *jobs; /* oldest first */
};

static void unpack_idle_cb(uv_idle_t *idle);

struct unpack *
unpack_create(uv_loop_t *loop)
{
    struct unpack *unpack = calloc(1, sizeof(*unpack));

    if (unpack == NULL) {
        return NULL;
    }
    CHECK(uv_idle_init(loop, &unpack->idle) == 0);
    unpack->idle.data = unpack;
    return unpack;
}

static void
unpack_closed_cb(uv_handle_t *handle)
{
    free(handle->data);
}

void
unpack_destroy(struct unpack *unpack)
{
    if (unpack == NULL) {
        return;
    }
    CHECK(unpack->jobs == NULL);
    uv_close((uv_handle_t *)&unpack->idle, unpack_closed_cb);
}

static void
job_free(struct unpack_job *job)
{
    gunzip_destroy(job->gunzip);
    free(job);
}

static enum gunzip_result
job_step(struct unpack_job *job)
{
    if (job->gunzip == NULL) {
        job->gunzip = gunzip_create(buf_str(job->body), METER_BODY_SIZE_MAX);
    }
    return job->gunzip == NULL ? GUNZIP_NO_MEMORY : gunzip_step(job->gunzip);
}

/* It is in no queue any more. */
static void
job_end(struct unpack_job *job, enum gunzip_result result)
{
    const char *error = NULL;
    unpack_cb cb = job->cb;
    void *asker = job->asker;

    switch (result) {
    case GUNZIP_DONE:
        gunzip_take(job->gunzip, job->body);
        metrics.edgemeter_unpacked_bytes_total += (int64_t)job->body->size;
        break;
    case GUNZIP_BAD:
        error = gunzip_error(job->gunzip);
        metrics.edgemeter_unpack_refused_total++;
        break;
    case GUNZIP_LARGE: metrics.edgemeter_unpack_refused_total++; break;
    case GUNZIP_MORE:
    case GUNZIP_NO_MEMORY: break;
    }
    job_free(job);
    cb(asker, result, error);
}

static void
unpack_add(struct unpack *unpack, struct unpack_job *job)
{
    struct unpack_job **end = &unpack->jobs;

    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = job;
    metrics.edgemeter_unpack_queue++;
    CHECK(uv_idle_start(&unpack->idle, unpack_idle_cb) == 0);
}

static void
unpack_remove(struct unpack *unpack, struct unpack_job *job)
{
    struct unpack_job **at = &unpack->jobs;

    while (*at != job) {
        CHECK(*at != NULL);
        at = &(*at)->next;
    }
    *at = job->next;
    metrics.edgemeter_unpack_queue--;
    if (unpack->jobs == NULL) {
        CHECK(uv_idle_stop(&unpack->idle) == 0);
    }
}

/* One step of the oldest; then everybody else's turn. */
static void
unpack_idle_cb(uv_idle_t *idle)
{
    struct unpack *unpack = idle->data;
    struct unpack_job *job = unpack->jobs;
    enum gunzip_result result = job_step(job);

    if (result == GUNZIP_MORE) {
        return;
    }
    unpack_remove(unpack, job);
    job_end(job, result);
}

struct unpack_job *
unpack_start(struct unpack *unpack, struct buf *body, unpack_cb cb, void *asker)
{
    struct unpack_job *job = calloc(1, sizeof(*job));
    enum gunzip_result result = GUNZIP_MORE;

    if (job == NULL) {
        cb(asker, GUNZIP_NO_MEMORY, NULL);
        return NULL;
    }
    *job = (struct unpack_job){
        .unpack = unpack, .body = body, .cb = cb, .asker = asker};
    if (unpack->jobs == NULL) {
        result = job_step(job);
    }
    if (result != GUNZIP_MORE) {
        job_end(job, result);
        return NULL;
    }
    unpack_add(unpack, job);
    return job;
}

void
unpack_cancel(struct unpack_job *job)
{
    unpack_remove(job->unpack, job);
    job_free(job);
}
