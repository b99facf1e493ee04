/*
 * rules_job.c - see rules_job.h.
 *
 *   change -> tell -> cb -> [look] -> nobody has the old ones -> tell
 */

#include "maintain/rules_job.h"

#include "base/log.h"
#include "store/rule_store.h"

#include <stdlib.h>

#define LOOK_MS  20
#define RETRY_MS 1000

/* A configuration that was in force, as long as someone may use it. */
struct rules_old {
    struct rule_before before; /* its next is the one of next */
    struct config *config;
    struct rules_old *next;
};

struct rules_job {
    uv_timer_t timer;
    struct rules_job_options options;
    struct config *config; /* what is told; NULL: nothing to be told */
    struct rules_old *olds;
    bool is_waited_for; /* cb is to be called */
    bool is_asking;     /* the answer will come */
    bool is_told;       /* the first time */
    bool is_last;       /* what is asked now ends it */
    bool is_stale;      /* what is asked now is of a change before */
    bool is_closing;
    bool is_closed; /* the timer */
};

static void timer_cb(uv_timer_t *timer);
static void tell(struct rules_job *job);


/* ---- life ------------------------------------------------------------- */

struct rules_job *
rules_job_create(uv_loop_t *loop, const struct rules_job_options *options)
{
    struct rules_job *job = calloc(1, sizeof(*job));

    if (job == NULL) {
        return NULL;
    }
    job->options = *options;
    CHECK(uv_timer_init(loop, &job->timer) == 0);
    job->timer.data = job;
    return job;
}


static void
olds_forget(struct rules_job *job)
{
    while (job->olds != NULL) {
        struct rules_old *old = job->olds;

        job->olds = old->next;
        rule_digests_fini(&old->before.digests);
        config_unref(old->config);
        free(old);
    }
}


static void
free_if_done(struct rules_job *job)
{
    if (job->is_closed && !job->is_asking) {
        free(job);
    }
}


static void
closed_cb(uv_handle_t *handle)
{
    struct rules_job *job = handle->data;

    job->is_closed = true;
    free_if_done(job);
}


void
rules_job_destroy(struct rules_job *job)
{
    if (job == NULL) {
        return;
    }
    job->is_closing = true;
    olds_forget(job);
    config_unref(job->config);
    job->config = NULL;
    uv_close((uv_handle_t *)&job->timer, closed_cb);
}


/* ---- telling ---------------------------------------------------------- */

static void
may_be_used(struct rules_job *job)
{
    if (job->is_waited_for) {
        job->is_waited_for = false;
        job->options.cb(job->options.owner);
    }
}


static void
answer_cb(void *asker, const struct pg_answer *answer)
{
    struct rules_job *job = asker;

    job->is_asking = false;
    if (job->is_closing) {
        free_if_done(job);
        return;
    }
    if (job->is_stale) {
        job->is_stale = false;
        tell(job);
        return;
    }
    if (answer->outcome != PG_OUTCOME_OK) {
        uv_timer_start(&job->timer, timer_cb, RETRY_MS, 0);
    } else if (job->is_last) {
        log_info("config", "no event is counted by earlier rules any more");
        olds_forget(job);
        config_unref(job->config);
        job->config = NULL;
    } else {
        job->is_told = true;
        uv_timer_start(&job->timer, timer_cb, LOOK_MS, 0);
    }
    may_be_used(job);
}


/* Who counts by an old configuration holds it. */
static bool
is_used(const struct rules_job *job)
{
    for (const struct rules_old *old = job->olds; old != NULL;
         old = old->next) {
        if (old->config->references >
            (old->config == job->options.boot ? 2u : 1u)) {
            return true;
        }
    }
    return false;
}


static void
tell(struct rules_job *job)
{
    struct rule_digests now;
    struct pg_params params;

    if (!rule_digests_make(job->config->catalog, &now)) {
        answer_cb(job, &(struct pg_answer){.outcome = PG_OUTCOME_LOST});
        return;
    }
    job->is_last = job->is_told && !is_used(job);
    job->is_asking = true;
    pg_params_init(&params);
    rule_note_put(lane_writer(job->options.lane), &now,
                  job->olds == NULL ? NULL : &job->olds->before, &params);
    rule_digests_fini(&now);
    reader_query(job->options.writes, (struct meter_str){NULL, 0},
                 STATEMENT_RULE_NOTE, &params, answer_cb, job);
    pg_params_fini(&params);
}


static void
timer_cb(uv_timer_t *timer)
{
    struct rules_job *job = timer->data;

    if (job->is_told && is_used(job)) {
        uv_timer_start(&job->timer, timer_cb, LOOK_MS, 0);
    } else if (!job->is_asking) {
        tell(job);
    }
}


/* ---- a change --------------------------------------------------------- */

/* False: no memory. */
static bool
old_add(struct rules_job *job, struct config *config)
{
    struct rules_old *old = calloc(1, sizeof(*old));

    if (old == NULL ||
        !rule_digests_make(config->catalog, &old->before.digests)) {
        free(old);
        return false;
    }
    old->config = config_ref(config);
    old->next = job->olds;
    old->before.next = job->olds == NULL ? NULL : &job->olds->before;
    job->olds = old;
    return true;
}


static bool
is_another(const struct config *old, const struct config *loaded)
{
    struct rule_digests before = {NULL, 0};
    struct rule_digests now = {NULL, 0};
    bool is_known = rule_digests_make(old->catalog, &before) &&
                    rule_digests_make(loaded->catalog, &now);
    bool is_other = !is_known || rule_digests_differ(&before, &now);

    rule_digests_fini(&before);
    rule_digests_fini(&now);
    return is_other;
}


void
rules_job_change(struct rules_job *job, struct config *old,
                 struct config *loaded)
{
    CHECK(!job->is_waited_for);
    job->is_waited_for = true;
    if (job->config == NULL && !is_another(old, loaded)) {
        may_be_used(job);
        return;
    }
    if (!old_add(job, old)) {
        log_error("config", "out of memory");
    }
    config_unref(job->config);
    job->config = config_ref(loaded);
    job->is_told = false;
    if (job->is_asking) {
        job->is_stale = true;
        return;
    }
    uv_timer_stop(&job->timer);
    tell(job);
}


bool
rules_job_is_busy(const struct rules_job *job)
{
    return job->is_waited_for;
}
