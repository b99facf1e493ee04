/*
 * reconcile_job.c - see reconcile_job.h.
 *
 *   create -> [wait] -> ask -> answer -> [wait] -> ask
 *
 * While the database is away the metrics stay as they are, and it is asked
 * every second.
 */

#include "maintain/reconcile_job.h"

#include "base/metrics.h"

#include <stdlib.h>

#define LOOK_MS  60000
#define RETRY_MS 1000

struct reconcile_job {
    uv_timer_t timer;
    struct reader *writes;
    uint64_t look_ms;
    bool is_asking; /* the answer will come */
    bool is_closing;
    bool is_closed; /* the timer */
};

static void timer_cb(uv_timer_t *timer);


static void
free_if_done(struct reconcile_job *job)
{
    if (job->is_closed && !job->is_asking) {
        free(job);
    }
}


static void
closed_cb(uv_handle_t *handle)
{
    struct reconcile_job *job = handle->data;

    job->is_closed = true;
    free_if_done(job);
}


static void
answer_cb(void *asker, const struct pg_answer *answer)
{
    struct reconcile_job *job = asker;
    uint64_t wait_ms = RETRY_MS;

    job->is_asking = false;
    if (job->is_closing) {
        free_if_done(job);
        return;
    }
    if (answer->outcome == PG_OUTCOME_OK && pg_row_count(answer->result) == 1) {
        metrics.edgemeter_reconcile_last_seconds =
            pg_get_int8(answer->result, 0, 0);
        metrics.edgemeter_reconcile_status = pg_get_int4(answer->result, 0, 1);
        metrics.edgemeter_reconcile_differences =
            pg_get_int8(answer->result, 0, 2);
        wait_ms = job->look_ms;
    }
    uv_timer_start(&job->timer, timer_cb, wait_ms, 0);
}


static void
timer_cb(uv_timer_t *timer)
{
    struct reconcile_job *job = timer->data;

    job->is_asking = true;
    reader_query(job->writes, (struct meter_str){NULL, 0},
                 STATEMENT_RECONCILE_LAST, NULL, answer_cb, job);
}


struct reconcile_job *
reconcile_job_create(uv_loop_t *loop, struct reader *writes)
{
    const char *test = getenv("METERD_TEST_RECONCILE_MS");
    uint64_t test_ms = test == NULL ? 0 : strtoull(test, NULL, 10);
    struct reconcile_job *job = calloc(1, sizeof(*job));

    if (job == NULL) {
        return NULL;
    }
    job->writes = writes;
    job->look_ms = test_ms > 0 ? test_ms : LOOK_MS;
    CHECK(uv_timer_init(loop, &job->timer) == 0);
    job->timer.data = job;
    uv_timer_start(&job->timer, timer_cb, RETRY_MS, 0);
    return job;
}


void
reconcile_job_destroy(struct reconcile_job *job)
{
    if (job == NULL) {
        return;
    }
    job->is_closing = true;
    uv_close((uv_handle_t *)&job->timer, closed_cb);
}
