
/*
 * ngx_http_meter_outbox.c - the rings of a worker, from its start to its end.
 *
 *   start    take a ring to write to (outbox_claim)
 *   tick     seal cells, tell losses; every second adopt what dead owners
 *            left, drain it, give it back as a spare, and put back what was
 *            removed under us
 *   quit     seal everything and stay until it is delivered, "drain" at most;
 *            who stays for others' answers gives back rings that it does not need
 *   exit     give back what is drained, leave the rest to the next
 *
 * One timer does it all. It is cancelable, so that it does not keep a worker
 * that is told to quit, except while something waits to be delivered. A
 * worker that is killed gives nothing back: its locks end, and another one's
 * tick, or its own successor, finds the files.
 */


#include "ngx_http_meter_ring.h"


#define NGX_HTTP_METER_TICK         250
#define NGX_HTTP_METER_TICKS        4       /* a second */
#define NGX_HTTP_METER_RARE         60000
#define NGX_HTTP_METER_FILES        256


static void ngx_http_meter_outbox_tick_handler(ngx_event_t *ev);
static void ngx_http_meter_outbox_quit(ngx_http_meter_outbox_conf_t *conf);
static void ngx_http_meter_outbox_rescue(ngx_http_meter_outbox_conf_t *conf);
static void ngx_http_meter_outbox_leave(void);
static void ngx_http_meter_outbox_tend(ngx_http_meter_ring_t *ring);
static void ngx_http_meter_outbox_drained_handler(ngx_event_t *ev);
static ngx_int_t ngx_http_meter_outbox_settle(ngx_http_meter_ring_t *ring);


ngx_http_meter_worker_t  ngx_http_meter_worker;


ngx_int_t
ngx_http_meter_outbox_init_module(ngx_cycle_t *cycle)
{
    ngx_core_conf_t               *ccf;
    ngx_http_meter_main_conf_t    *mmcf;
    ngx_http_meter_outbox_conf_t  *conf;

    mmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_meter_module);

    if (mmcf == NULL || mmcf->outbox == NULL) {
        return NGX_OK;
    }

    conf = mmcf->outbox;

    /* known for sure only now: "user" may stand behind "http" */

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);

    conf->workers = (ccf->worker_processes > 0) ? ccf->worker_processes : 1;
    conf->user = ccf->user;
    conf->group = ccf->group;

    if (conf->files == 0) {
        conf->files = 8 * conf->workers + NGX_HTTP_METER_FILES;
    }

    if (ngx_test_config || ngx_process == NGX_PROCESS_SIGNALLER) {
        return NGX_OK;
    }

    if (conf->made && geteuid() == 0
        && chown((char *) conf->path.data, conf->user, conf->group) == -1)
    {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, ngx_errno,
                      "chown(\"%V\", %d) failed", &conf->path, conf->user);

        /* an error would end a master that reloads */

        return ngx_is_init_cycle(cycle->old_cycle) ? NGX_ERROR : NGX_OK;
    }

    ngx_http_meter_losses_open(conf, cycle->log);

    return NGX_OK;
}


ngx_int_t
ngx_http_meter_outbox_init_process(ngx_cycle_t *cycle)
{
    ngx_http_meter_worker_t     *worker;
    ngx_http_meter_main_conf_t  *mmcf;

    worker = &ngx_http_meter_worker;

    ngx_memzero(worker, sizeof(ngx_http_meter_worker_t));
    ngx_queue_init(&worker->rings);

    mmcf = ngx_http_meter_outbox_main_conf();

    /* helper processes come by here, too */

    if (mmcf == NULL
        || (ngx_process != NGX_PROCESS_WORKER
            && ngx_process != NGX_PROCESS_SINGLE))
    {
        return NGX_OK;
    }

    if (ngx_http_meter_ring_boot(cycle->log) != NGX_OK) {
        return NGX_OK;
    }

    worker->active = 1;

    worker->tick.handler = ngx_http_meter_outbox_tick_handler;
    worker->tick.data = worker;
    worker->tick.log = cycle->log;
    worker->tick.cancelable = 1;

    worker->drained.handler = ngx_http_meter_outbox_drained_handler;
    worker->drained.data = worker;
    worker->drained.log = cycle->log;

    ngx_http_meter_outbox_open_init(cycle);
    ngx_http_meter_outbox_look(mmcf);

    ngx_add_timer(&worker->tick, NGX_HTTP_METER_TICK);

    return NGX_OK;
}


void
ngx_http_meter_outbox_exit_process(ngx_cycle_t *cycle)
{
    ngx_queue_t              *q;
    ngx_http_meter_ring_t    *ring;
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    if (!worker->active) {
        return;
    }

    worker->active = 0;
    worker->current = NULL;

    ngx_http_meter_outbox_open_exit();

    while (!ngx_queue_empty(&worker->rings)) {
        q = ngx_queue_head(&worker->rings);
        ngx_queue_remove(q);

        ring = ngx_queue_data(q, ngx_http_meter_ring_t, queue);

        if (!ring->renew) {
            (void) meter_cell_seal(&ring->outbox, INT64_MAX);
            (void) meter_outbox_tell_loss(&ring->outbox);
        }

        ngx_http_meter_link_stop(ring);
        ngx_http_meter_ring_release(ring);
    }
}


ngx_http_meter_main_conf_t *
ngx_http_meter_outbox_main_conf(void)
{
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_meter_module);

    /* no aggregator: nothing is metered, and nobody to drain it to */

    if (mmcf == NULL || mmcf->outbox == NULL || mmcf->edge == NULL
        || mmcf->outbox->aggregator == NULL)
    {
        return NULL;
    }

    return mmcf;
}


ngx_http_meter_ring_t *
ngx_http_meter_outbox_current(void)
{
    ngx_http_meter_main_conf_t  *mmcf;

    if (ngx_http_meter_worker.parted) {
        ngx_http_meter_worker.parted = 0;

        mmcf = ngx_http_meter_outbox_main_conf();

        if (mmcf) {
            ngx_http_meter_outbox_look(mmcf);
        }
    }

    return ngx_http_meter_worker.current;
}


void
ngx_http_meter_outbox_missed(ngx_uint_t requests)
{
    ngx_http_meter_losses_add(requests, 0);
    ngx_http_meter_count_here(NGX_HTTP_METER_MISSED, requests);
}


/* on the way of every record: one store */

void
ngx_http_meter_outbox_hold(void)
{
    ngx_http_meter_worker.tick.cancelable = ngx_http_meter_worker.over;
}


void
ngx_http_meter_outbox_give_up(void)
{
    ngx_http_meter_worker.over = 1;
    ngx_http_meter_worker.tick.cancelable = 1;
}


static void
ngx_http_meter_outbox_tick_handler(ngx_event_t *ev)
{
    ngx_queue_t                 *q;
    ngx_http_meter_ring_t       *ring;
    ngx_http_meter_worker_t     *worker;
    ngx_http_meter_main_conf_t  *mmcf;

    worker = ev->data;
    mmcf = ngx_http_meter_outbox_main_conf();

    /* gone only after a reload of a single process */

    if (mmcf == NULL) {
        ngx_add_timer(ev, NGX_HTTP_METER_TICK);
        return;
    }

    ngx_http_meter_outbox_quit(mmcf->outbox);

    worker->ticks++;

    if (worker->ticks % NGX_HTTP_METER_TICKS == 0) {
        ngx_http_meter_outbox_rescue(mmcf->outbox);

        if (worker->quitting) {
            ngx_http_meter_outbox_leave();
        }

        ngx_http_meter_outbox_look(mmcf);
        ngx_http_meter_losses_tell(mmcf->outbox);
        ngx_http_meter_status_worker(mmcf);
    }

    for (q = ngx_queue_head(&worker->rings);
         q != ngx_queue_sentinel(&worker->rings);
         q = ngx_queue_next(q))
    {
        ring = ngx_queue_data(q, ngx_http_meter_ring_t, queue);

        ngx_http_meter_outbox_tend(ring);
    }

    ngx_http_meter_outbox_drained_handler(&worker->drained);

    ngx_add_timer(ev, NGX_HTTP_METER_TICK);
}


static void
ngx_http_meter_outbox_quit(ngx_http_meter_outbox_conf_t *conf)
{
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    if (!ngx_exiting) {
        return;
    }

    if (!worker->quitting) {
        worker->quitting = 1;
        worker->quit = ngx_current_msec;

        ngx_http_meter_outbox_leave();
    }

    if (ngx_current_msec - worker->quit >= conf->drain) {
        worker->over = 1;
    }
}


/*
 * A ring that was removed goes on under another name. Where that cannot be,
 * it takes nothing new: what is in it is sent, while this process lives.
 */

static void
ngx_http_meter_outbox_rescue(ngx_http_meter_outbox_conf_t *conf)
{
    ngx_queue_t              *q;
    ngx_http_meter_ring_t    *ring;
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    ngx_http_meter_dir_again(&conf->path, ngx_cycle->log);

    for (q = ngx_queue_head(&worker->rings);
         q != ngx_queue_sentinel(&worker->rings);
         q = ngx_queue_next(q))
    {
        ring = ngx_queue_data(q, ngx_http_meter_ring_t, queue);

        if (!ngx_http_meter_ring_is_gone(ring)) {
            ring->gone = 0;
            continue;
        }

        if (!ring->gone) {
            ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                          "ring \"%s\" was removed in use, %uL requests in it "
                          "are not committed yet", ring->path,
                          ngx_http_meter_ring_stake(ring));
        }

        ring->gone = 1;

        if (ngx_http_meter_ring_rescue(ring, &conf->path, ngx_cycle->log)
            == NGX_OK)
        {
            ring->gone = 0;
            continue;
        }

        if (ring == worker->current) {
            worker->current = NULL;
            ring->adopted = 1;
        }
    }
}


/*
 * Streams keep a worker that is told to quit for hours. A ring in which
 * nothing waits for their end is given back, as a spare; when its time to
 * deliver is up, as an orphan. A request that still needs one gets another.
 */

static void
ngx_http_meter_outbox_leave(void)
{
    ngx_queue_t              *q, *next;
    struct meter_slots       *slots;
    ngx_http_meter_ring_t    *ring;
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    for (q = ngx_queue_head(&worker->rings);
         q != ngx_queue_sentinel(&worker->rings);
         q = next)
    {
        next = ngx_queue_next(q);
        ring = ngx_queue_data(q, ngx_http_meter_ring_t, queue);
        slots = &ring->outbox.slots;

        __atomic_store_n(&ring->outbox.live->busy, METER_OUTBOX_LEAVING,
                         __ATOMIC_RELEASE);

        if (slots->free_count != slots->count || ring->promised
            || ring->renew
            || ((!worker->over || ring->gone)
                && !meter_outbox_is_drained(&ring->outbox)))
        {
            continue;
        }

        if (ring == worker->current) {
            worker->current = NULL;
            worker->parted = 1;
        }

        (void) meter_cell_seal(&ring->outbox, INT64_MAX);

        ngx_queue_remove(q);
        ngx_http_meter_link_stop(ring);
        ngx_http_meter_ring_release(ring);
    }
}


static void
ngx_http_meter_outbox_tend(ngx_http_meter_ring_t *ring)
{
    int64_t   now_us;
    uint64_t  head;

    now_us = ngx_http_meter_now_us();
    head = ring->outbox.head;

    ring->outbox.live->beat_us = now_us;

    /* one that starts a new session takes no records in the old one */

    if (ring->renew) {
        return;
    }

    (void) meter_outbox_emit(&ring->outbox);
    (void) meter_cell_seal(&ring->outbox,
                           ngx_exiting || ring->adopted ? INT64_MAX : now_us);

    /* a ring that stays full would fill up with notes of it */

    if (ngx_exiting || ring->adopted
        || ngx_http_meter_worker.ticks % NGX_HTTP_METER_TICKS == 0)
    {
        (void) meter_outbox_tell_loss(&ring->outbox);
    }

    if (ring->outbox.head != head) {
        ngx_http_meter_link_wake(ring);
    }
}


void
ngx_http_meter_outbox_drained(ngx_http_meter_ring_t *ring)
{
    /* later: the caller has the ring in its hands */

    ngx_post_event(&ngx_http_meter_worker.drained, &ngx_posted_events);
}


/* also where it is decided whether a worker that is told to quit may go */

static void
ngx_http_meter_outbox_drained_handler(ngx_event_t *ev)
{
    ngx_uint_t                waits;
    ngx_queue_t              *q, *next;
    ngx_http_meter_ring_t    *ring;
    ngx_http_meter_worker_t  *worker;

    worker = ev->data;
    waits = 0;

    for (q = ngx_queue_head(&worker->rings);
         q != ngx_queue_sentinel(&worker->rings);
         q = next)
    {
        next = ngx_queue_next(q);
        ring = ngx_queue_data(q, ngx_http_meter_ring_t, queue);

        if (ngx_http_meter_outbox_settle(ring) == NGX_AGAIN) {
            waits |= ngx_http_meter_ring_pending(ring);
        }
    }

    worker->tick.cancelable = (!waits || worker->over);
}


/* NGX_DONE: it had delivered all it had, and is no more ours */

static ngx_int_t
ngx_http_meter_outbox_settle(ngx_http_meter_ring_t *ring)
{
    if (ring->renew && !ngx_http_meter_ring_unsent(ring)) {

        ngx_http_meter_link_stop(ring);

        if (ngx_http_meter_ring_renew(ring) != NGX_OK) {
            return NGX_AGAIN;
        }

        (void) meter_outbox_tell_loss(&ring->outbox);

        if (ngx_http_meter_ring_pending(ring)) {
            ngx_http_meter_link_start(ring);
        }
    }

    if (!ring->adopted || ring->renew || ring->promised || ring->ask
        || !meter_outbox_is_drained(&ring->outbox))
    {
        return NGX_AGAIN;
    }

    ngx_queue_remove(&ring->queue);
    ngx_http_meter_link_stop(ring);

    if (ring->retire) {
        ngx_http_meter_ring_retire(ring);

    } else {
        ngx_http_meter_ring_release(ring);
    }

    return NGX_DONE;
}


int64_t
ngx_http_meter_now_us(void)
{
    ngx_time_t  *tp;

    tp = ngx_timeofday();

    return (int64_t) tp->sec * 1000000 + tp->msec * 1000;
}


ngx_uint_t
ngx_http_meter_rarely(ngx_msec_t *clock)
{
    if (*clock && ngx_current_msec - *clock < NGX_HTTP_METER_RARE) {
        return 0;
    }

    *clock = ngx_current_msec ? ngx_current_msec : 1;

    return 1;
}
