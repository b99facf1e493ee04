/*
 * bucket_sweep.c - see bucket_sweep.h.
 *
 *   start -> step -> step -> ... -> past the last page -> [wait] -> start
 *
 * A step that met as many as its limit is done again at once, since there may
 * be more in its pages; unless writes hold all that it met.
 */

#include "buckets/bucket_sweep.h"

#include "base/clock.h"
#include "base/metrics.h"

#include <stdlib.h>

#define STEP_PAGES 256
#define STEP_LIMIT 1000
#define STEP_MS    1000
#define PASS_MS    60000
#define GRACE_S    60

struct bucket_sweep {
    uv_timer_t timer;
    struct reader *writes;
    uint64_t step_ms;
    uint64_t pass_ms;
    int64_t grace_s;

    int64_t page; /* the next step begins here */
    uint64_t began_ms;
    bool is_asking; /* the answer will come */
    bool is_closing;
    bool is_closed; /* the timer */
};

static void step(struct bucket_sweep *sweep);


static void
free_if_done(struct bucket_sweep *sweep)
{
    if (sweep->is_closed && !sweep->is_asking) {
        free(sweep);
    }
}


static void
closed_cb(uv_handle_t *handle)
{
    struct bucket_sweep *sweep = handle->data;

    sweep->is_closed = true;
    free_if_done(sweep);
}


static void
timer_cb(uv_timer_t *timer)
{
    step(timer->data);
}


static void
step_after(struct bucket_sweep *sweep, uint64_t ms)
{
    uv_timer_start(&sweep->timer, timer_cb, ms, 0);
}


/* The whole table was seen: a while from its beginning to the next. */
static void
pass_ended(struct bucket_sweep *sweep)
{
    uint64_t spent_ms = clock_mono_ms() - sweep->began_ms;
    uint64_t left_ms =
        spent_ms < sweep->pass_ms ? sweep->pass_ms - spent_ms : 0;

    sweep->page = 0;
    step_after(sweep, left_ms < sweep->step_ms ? sweep->step_ms : left_ms);
}


static void
stepped(struct bucket_sweep *sweep, int64_t deleted, int64_t pages, int64_t met)
{
    metrics.edgemeter_bucket_expired_total += deleted;
    if (met >= STEP_LIMIT && deleted > 0) {
        step_after(sweep, 0);
        return;
    }
    sweep->page += STEP_PAGES;
    if (sweep->page < pages) {
        step_after(sweep, sweep->step_ms);
    } else {
        pass_ended(sweep);
    }
}


/* One that failed is done again; the connection has logged it. */
static void
step_cb(void *asker, const struct pg_answer *answer)
{
    struct bucket_sweep *sweep = asker;

    sweep->is_asking = false;
    if (sweep->is_closing) {
        free_if_done(sweep);
    } else if (answer->outcome == PG_OUTCOME_OK &&
               pg_row_count(answer->result) == 1) {
        stepped(sweep, pg_get_int8(answer->result, 0, 0),
                pg_get_int8(answer->result, 0, 1),
                pg_get_int8(answer->result, 0, 2));
    } else {
        step_after(sweep, sweep->step_ms);
    }
}


static void
step(struct bucket_sweep *sweep)
{
    struct pg_params params;

    if (sweep->page == 0) {
        sweep->began_ms = clock_mono_ms();
    }
    pg_params_init(&params);
    pg_param_int8(&params, sweep->page);
    pg_param_int8(&params, sweep->page + STEP_PAGES);
    pg_param_int8(&params, sweep->grace_s);
    pg_param_int8(&params, STEP_LIMIT);
    sweep->is_asking = true;
    reader_query(sweep->writes, (struct meter_str){NULL, 0},
                 STATEMENT_BUCKET_SWEEP, &params, step_cb, sweep);
    pg_params_fini(&params);
}


struct bucket_sweep *
bucket_sweep_create(uv_loop_t *loop, struct reader *writes)
{
    const char *test = getenv("METERD_TEST_SWEEP_MS");
    uint64_t test_ms = test == NULL ? 0 : strtoull(test, NULL, 10);
    struct bucket_sweep *sweep = calloc(1, sizeof(*sweep));

    if (sweep == NULL) {
        return NULL;
    }
    sweep->writes = writes;
    sweep->step_ms = test_ms > 0 ? test_ms : STEP_MS;
    sweep->pass_ms = test_ms > 0 ? test_ms : PASS_MS;
    sweep->grace_s = test_ms > 0 ? 0 : GRACE_S;
    uv_timer_init(loop, &sweep->timer);
    sweep->timer.data = sweep;
    return sweep;
}


void
bucket_sweep_start(struct bucket_sweep *sweep)
{
    step_after(sweep, sweep->step_ms);
}


void
bucket_sweep_destroy(struct bucket_sweep *sweep)
{
    if (sweep == NULL) {
        return;
    }
    sweep->is_closing = true;
    uv_close((uv_handle_t *)&sweep->timer, closed_cb);
}
