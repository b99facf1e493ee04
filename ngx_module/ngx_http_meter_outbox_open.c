
/*
 * ngx_http_meter_outbox_open.c - rings become usable while clients are served.
 *
 *   outbox_claim -> [outbox_open] -> ring_open, portion by portion -> opened
 *
 * A ring may hold a gigabyte, which is read and verified, or allocated,
 * before it can be trusted. That takes seconds, so a turn of the event loop
 * gets some milliseconds of it, and a timer goes on. One ring is worked on at
 * a time, first of all the one that is waited for. A ring of a megabyte that
 * is in memory never takes a second turn, however busy the machine is.
 */


#include "ngx_http_meter_ring.h"


#define NGX_HTTP_METER_TURN_US      2000
#define NGX_HTTP_METER_START_US     50000   /* nobody is connected yet */
#define NGX_HTTP_METER_TURN_LEAST   8       /* portions */
#define NGX_HTTP_METER_PAUSE        1


typedef ngx_int_t (*ngx_http_meter_ring_step_pt)(
    ngx_http_meter_ring_t *ring);


static ngx_int_t ngx_http_meter_outbox_turn(ngx_http_meter_ring_t *ring,
    ngx_http_meter_ring_step_pt step, ngx_msec_t us);
static void ngx_http_meter_outbox_step_handler(ngx_event_t *ev);
static void ngx_http_meter_outbox_step(ngx_http_meter_ring_t *ring);
static uint64_t ngx_http_meter_outbox_clock(void);


void
ngx_http_meter_outbox_open_init(ngx_cycle_t *cycle)
{
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    ngx_queue_init(&worker->opening);

    worker->step.handler = ngx_http_meter_outbox_step_handler;
    worker->step.data = worker;
    worker->step.log = cycle->log;
    worker->step.cancelable = 1;
}


void
ngx_http_meter_outbox_open_exit(void)
{
    ngx_queue_t              *q;
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;
    worker->coming = NULL;

    while (!ngx_queue_empty(&worker->opening)) {
        q = ngx_queue_head(&worker->opening);
        ngx_queue_remove(q);

        ngx_http_meter_ring_free(ngx_queue_data(q, ngx_http_meter_ring_t,
                                                queue));
    }
}


ngx_int_t
ngx_http_meter_outbox_open(ngx_http_meter_ring_t *ring, ngx_uint_t whole)
{
    ngx_int_t                 rc;
    ngx_msec_t                us;
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    us = worker->ticks ? NGX_HTTP_METER_TURN_US : NGX_HTTP_METER_START_US;
    ring->hurry = (whole || worker->ticks == 0);

    /* others than the first of a directory full of them wait */

    rc = NGX_AGAIN;

    if (whole || ngx_queue_empty(&worker->opening)) {

        do {
            rc = ngx_http_meter_outbox_turn(ring, ngx_http_meter_ring_open,
                                            us);
        } while (rc == NGX_AGAIN && whole);
    }

    ring->hurry = 0;

    if (rc == NGX_ERROR) {
        ngx_http_meter_ring_free(ring);
    }

    if (rc == NGX_AGAIN) {
        ngx_queue_insert_tail(&worker->opening, &ring->queue);
        ngx_http_meter_outbox_warm();
    }

    return rc;
}


void
ngx_http_meter_outbox_warm(void)
{
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    if (!worker->step.timer_set) {
        ngx_add_timer(&worker->step, NGX_HTTP_METER_PAUSE);
    }
}


static ngx_int_t
ngx_http_meter_outbox_turn(ngx_http_meter_ring_t *ring,
    ngx_http_meter_ring_step_pt step, ngx_msec_t us)
{
    uint64_t    end;
    ngx_int_t   rc;
    ngx_uint_t  n;

    end = ngx_http_meter_outbox_clock() + us;
    n = 0;

    do {
        rc = step(ring);

    } while (rc == NGX_AGAIN
             && (++n < NGX_HTTP_METER_TURN_LEAST
                 || ngx_http_meter_outbox_clock() < end));

    return rc == NGX_BUSY ? NGX_AGAIN : rc;
}


static void
ngx_http_meter_outbox_step_handler(ngx_event_t *ev)
{
    ngx_queue_t              *q;
    ngx_http_meter_worker_t  *worker;

    worker = ev->data;

    /* others may have them sooner than we are gone */

    if (ngx_exiting && (worker->current || worker->parted)) {
        ngx_http_meter_outbox_open_exit();
        return;
    }

    if (worker->coming) {
        ngx_http_meter_outbox_step(worker->coming);

    } else if (!ngx_queue_empty(&worker->opening)) {
        q = ngx_queue_head(&worker->opening);
        ngx_http_meter_outbox_step(ngx_queue_data(q, ngx_http_meter_ring_t,
                                                  queue));

    } else if (worker->current == NULL
               || ngx_http_meter_outbox_turn(worker->current,
                                             ngx_http_meter_ring_touch,
                                             NGX_HTTP_METER_TURN_US)
                  == NGX_OK)
    {
        return;
    }

    ngx_http_meter_outbox_warm();
}


static void
ngx_http_meter_outbox_step(ngx_http_meter_ring_t *ring)
{
    ngx_int_t                    rc;
    ngx_http_meter_worker_t     *worker;
    ngx_http_meter_main_conf_t  *mmcf;

    worker = &ngx_http_meter_worker;

    rc = ngx_http_meter_outbox_turn(ring, ngx_http_meter_ring_open,
                                    NGX_HTTP_METER_TURN_US);

    if (rc == NGX_AGAIN) {
        return;
    }

    ngx_queue_remove(&ring->queue);

    if (worker->coming == ring) {
        worker->coming = NULL;
    }

    if (rc == NGX_ERROR) {
        ngx_http_meter_ring_free(ring);
        return;
    }

    mmcf = ngx_http_meter_outbox_main_conf();

    /* gone only after a reload of a single process */

    if (mmcf == NULL) {
        ngx_http_meter_ring_release(ring);
        return;
    }

    ngx_http_meter_outbox_opened(mmcf->outbox, ring);
}


static uint64_t
ngx_http_meter_outbox_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}
