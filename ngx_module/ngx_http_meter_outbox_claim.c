
/*
 * ngx_http_meter_outbox_claim.c - which rings a worker takes, and from where.
 *
 *   to write to: a spare -> an orphan that is half empty -> a new file, while
 *                they are few -> the emptiest of those adopted -> a new file,
 *                while "files" allows -> none until the next look
 *                a small one of its own while a large one is being opened
 *   to drain:    orphans, some at a time
 *   to unlink:   files of another size, spares that are too many
 *
 * Claims are tried, not negotiated: whoever gets the lock has the ring, the
 * others look on. A file that was looked at may have changed when its lock
 * is had, so that only then it is decided what it is good for.
 */


#include "ngx_http_meter_ring.h"


#define NGX_HTTP_METER_ADOPT_MAX    8
#define NGX_HTTP_METER_MAKE_TRIES   3
#define NGX_HTTP_METER_SMALL        (8 * 1024 * 1024)

#define ngx_http_meter_outbox_few(conf)  (8 * (conf)->workers + 8)


static void ngx_http_meter_outbox_take(ngx_http_meter_outbox_conf_t *conf,
    ngx_array_t *files);
static ngx_http_meter_ring_t *ngx_http_meter_outbox_spare(
    ngx_http_meter_outbox_conf_t *conf, ngx_array_t *files);
static ngx_http_meter_ring_t *ngx_http_meter_outbox_roomiest(
    ngx_uint_t part);
static ngx_uint_t ngx_http_meter_outbox_serving(ngx_array_t *files);
static ngx_http_meter_ring_t *ngx_http_meter_outbox_make(
    ngx_http_meter_outbox_conf_t *conf, ngx_array_t *files, size_t size);
static void ngx_http_meter_outbox_use(ngx_http_meter_ring_t *ring);
static ngx_uint_t ngx_http_meter_outbox_adopt(
    ngx_http_meter_outbox_conf_t *conf, ngx_array_t *files);
static void ngx_http_meter_outbox_trim(ngx_http_meter_outbox_conf_t *conf,
    ngx_array_t *files);
static void ngx_http_meter_outbox_own(ngx_http_meter_outbox_conf_t *conf,
    ngx_http_meter_ring_t *ring);
static ngx_uint_t ngx_http_meter_outbox_is_old(ngx_http_meter_file_t *file);
static ngx_uint_t ngx_http_meter_outbox_is_own(ngx_http_meter_file_t *file);
static ngx_uint_t ngx_http_meter_outbox_adopted(void);


static ngx_msec_t  ngx_http_meter_outbox_full;


void
ngx_http_meter_outbox_look(ngx_http_meter_main_conf_t *mmcf)
{
    ngx_pool_t                    *pool;
    ngx_array_t                    files;
    ngx_http_meter_worker_t       *worker;
    ngx_http_meter_outbox_conf_t  *conf;

    worker = &ngx_http_meter_worker;
    conf = mmcf->outbox;

    if (ngx_exiting && (worker->current || worker->parted)) {
        return;
    }

    pool = ngx_create_pool(4096, ngx_cycle->log);
    if (pool == NULL) {
        return;
    }

    if (ngx_array_init(&files, pool, 16, sizeof(ngx_http_meter_file_t))
        == NGX_OK
        && ngx_http_meter_dir_list(&conf->path, &files, ngx_cycle->log)
           == NGX_OK)
    {
        if (worker->coming == NULL
            && (ngx_http_meter_outbox_is_without(mmcf)
                || (worker->current && worker->current->retire)))
        {
            ngx_http_meter_outbox_take(conf, &files);
        }

        /* not at the start: all workers come by at the same time */

        if (worker->ticks && !ngx_exiting) {

            while (ngx_http_meter_outbox_adopt(conf, &files)) { /* void */ }

            ngx_http_meter_outbox_trim(conf, &files);
            ngx_http_meter_dir_sweep(&conf->path, ngx_cycle->log);
        }
    }

    ngx_destroy_pool(pool);
}


ngx_uint_t
ngx_http_meter_outbox_is_without(ngx_http_meter_main_conf_t *mmcf)
{
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    return worker->current == NULL && !worker->parted && mmcf->metered;
}


static void
ngx_http_meter_outbox_take(ngx_http_meter_outbox_conf_t *conf,
    ngx_array_t *files)
{
    ngx_http_meter_ring_t    *ring;
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    ring = ngx_http_meter_outbox_spare(conf, files);

    /* one that is half empty will do; others take what is not looked at */

    while (ring == NULL && ngx_queue_empty(&worker->opening)
           && ngx_http_meter_outbox_adopt(conf, files))
    {
        ring = ngx_http_meter_outbox_roomiest(2);
    }

    /* files are for those who serve: reused rather than made, if many */

    if (ring == NULL && worker->coming == NULL
        && ngx_http_meter_outbox_serving(files)
           < ngx_http_meter_outbox_few(conf))
    {
        ring = ngx_http_meter_outbox_make(conf, files, conf->size);
    }

    if (ring == NULL && worker->current == NULL) {
        ring = ngx_http_meter_outbox_roomiest(1);
    }

    if (ring == NULL && worker->coming == NULL) {
        ring = ngx_http_meter_outbox_make(conf, files, conf->size);
    }

    if (ring == NULL && worker->current) {
        return;
    }

    if (ring == NULL && worker->coming) {
        ring = ngx_http_meter_outbox_make(conf, files, NGX_HTTP_METER_SMALL);
    }

    if (ring == NULL) {
        if (ngx_http_meter_rarely(&worker->none)) {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "no ring can be had in \"%V\", requests are not "
                          "recorded", &conf->path);
        }

        return;
    }

    ngx_http_meter_outbox_use(ring);
}


/* the small one that served meanwhile, if any, is drained and goes */

static void
ngx_http_meter_outbox_use(ngx_http_meter_ring_t *ring)
{
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    if (worker->current) {
        worker->current->adopted = 1;
    }

    ring->adopted = 0;
    worker->current = ring;

    ngx_http_meter_link_start(ring);
    ngx_http_meter_outbox_warm();
}


/* a ring that took more than one turn of the event loop is usable */

void
ngx_http_meter_outbox_opened(ngx_http_meter_outbox_conf_t *conf,
    ngx_http_meter_ring_t *ring)
{
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    ngx_http_meter_outbox_own(conf, ring);

    if (worker->current == NULL || worker->current->retire) {
        ring = ngx_http_meter_outbox_roomiest(2);

        if (ring) {
            ngx_http_meter_outbox_use(ring);
        }
    }
}


static ngx_http_meter_ring_t *
ngx_http_meter_outbox_spare(ngx_http_meter_outbox_conf_t *conf,
    ngx_array_t *files)
{
    ngx_uint_t              i;
    ngx_http_meter_file_t  *file;
    ngx_http_meter_ring_t  *ring;

    file = files->elts;

    for (i = 0; i < files->nelts; i++) {

        if (file[i].busy != METER_OUTBOX_SPARE
            || file[i].size != (off_t) conf->size)
        {
            continue;
        }

        ring = ngx_http_meter_ring_claim(&conf->path, file[i].name,
                                         ngx_cycle->log);
        if (ring == NULL) {
            continue;
        }

        switch (ngx_http_meter_outbox_open(ring, 0)) {

        case NGX_OK:
            ngx_http_meter_outbox_own(conf, ring);

            if (!ring->renew) {
                return ring;
            }

            break;

        case NGX_AGAIN:
            ngx_http_meter_worker.coming = ring;
            return NULL;
        }
    }

    return NULL;
}


/* the emptiest of our own rings, where at most one part of its area is used */

static ngx_http_meter_ring_t *
ngx_http_meter_outbox_roomiest(ngx_uint_t part)
{
    ngx_queue_t              *q;
    ngx_http_meter_ring_t    *ring, *best;
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;
    best = NULL;

    for (q = ngx_queue_head(&worker->rings);
         q != ngx_queue_sentinel(&worker->rings);
         q = ngx_queue_next(q))
    {
        ring = ngx_queue_data(q, ngx_http_meter_ring_t, queue);

        if (ring->renew || ring->retire || ring->gone
            || ring->outbox.emit_slots || ring->outbox.emit_cells
            || ring->outbox.used > ring->outbox.area_size / part)
        {
            continue;
        }

        if (best == NULL || ring->outbox.used < best->outbox.used) {
            best = ring;
        }
    }

    return best;
}


/* a worker that leaves holds its ring for as long as its streams last */

static ngx_uint_t
ngx_http_meter_outbox_serving(ngx_array_t *files)
{
    ngx_uint_t              i, n;
    ngx_http_meter_file_t  *file;

    file = files->elts;
    n = 0;

    for (i = 0; i < files->nelts; i++) {
        n += (file[i].busy != METER_OUTBOX_LEAVING);
    }

    return n;
}

/* a small one serves for a moment, and is opened at once */

static ngx_http_meter_ring_t *
ngx_http_meter_outbox_make(ngx_http_meter_outbox_conf_t *conf,
    ngx_array_t *files, size_t size)
{
    ngx_uint_t              i;
    ngx_http_meter_ring_t  *ring;

    if (files->nelts >= conf->files) {
        if (ngx_http_meter_rarely(&ngx_http_meter_outbox_full)) {
            ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                          "there are %ui ring files in \"%V\", no more than "
                          "%ui may be made", files->nelts, &conf->path,
                          conf->files);
        }

        return NULL;
    }

    for (i = 0; i < NGX_HTTP_METER_MAKE_TRIES; i++) {
        ring = ngx_http_meter_ring_make(&conf->path, size, ngx_cycle->log);

        if (ring == NULL) {
            continue;
        }

        switch (ngx_http_meter_outbox_open(ring,
                                           size <= NGX_HTTP_METER_SMALL))
        {
        case NGX_OK:
            ngx_http_meter_outbox_own(conf, ring);
            return ring;

        case NGX_AGAIN:
            ngx_http_meter_worker.coming = ring;
            return NULL;
        }
    }

    return NULL;
}


/* the next orphan that can be had; 0: none, or we have enough of them */

static ngx_uint_t
ngx_http_meter_outbox_adopt(ngx_http_meter_outbox_conf_t *conf,
    ngx_array_t *files)
{
    ngx_int_t               rc;
    ngx_uint_t              i, ask;
    ngx_http_meter_file_t  *file;
    ngx_http_meter_ring_t  *ring;

    if (ngx_http_meter_outbox_adopted() >= NGX_HTTP_METER_ADOPT_MAX) {
        return 0;
    }

    file = files->elts;

    for (i = 0; i < files->nelts; i++) {

        ask = ngx_http_meter_outbox_is_old(&file[i]);

        if ((file[i].busy == METER_OUTBOX_SPARE && !ask)
            || ngx_http_meter_outbox_is_own(&file[i]))
        {
            continue;
        }

        ring = ngx_http_meter_ring_claim(&conf->path, file[i].name,
                                         ngx_cycle->log);
        if (ring == NULL) {
            continue;
        }

        ring->ask = ask;
        rc = ngx_http_meter_outbox_open(ring, 0);

        if (rc == NGX_OK) {
            ngx_http_meter_outbox_own(conf, ring);
        }

        if (rc != NGX_ERROR) {
            return 1;
        }
    }

    return 0;
}


/* spares of another size, and one a second of those that are too many */

static void
ngx_http_meter_outbox_trim(ngx_http_meter_outbox_conf_t *conf,
    ngx_array_t *files)
{
    ngx_uint_t              i, spares;
    ngx_http_meter_file_t  *file;
    ngx_http_meter_ring_t  *ring;

    file = files->elts;
    spares = 0;

    for (i = 0; i < files->nelts; i++) {

        if (file[i].busy != METER_OUTBOX_SPARE
            || ngx_http_meter_outbox_is_old(&file[i])
            || ngx_http_meter_outbox_is_own(&file[i]))
        {
            continue;
        }

        if (file[i].size == (off_t) conf->size
            && ++spares != 4 * conf->workers + 1)
        {
            continue;
        }

        ring = ngx_http_meter_ring_claim(&conf->path, file[i].name,
                                         ngx_cycle->log);
        if (ring == NULL) {
            continue;
        }

        ring->retire = 1;

        if (ngx_http_meter_outbox_open(ring, 0) == NGX_OK) {
            ngx_http_meter_outbox_own(conf, ring);
        }
    }
}


/* a claimed ring joins the others, drained only until it becomes current */

static void
ngx_http_meter_outbox_own(ngx_http_meter_outbox_conf_t *conf,
    ngx_http_meter_ring_t *ring)
{
    ring->adopted = 1;
    ring->retire |= (ring->outbox.size != conf->size);

    ngx_queue_insert_tail(&ngx_http_meter_worker.rings, &ring->queue);

    if (ring->ask || ngx_http_meter_ring_pending(ring)) {
        ngx_http_meter_link_start(ring);
    }
}


/*
 * It delivered to another database than we do: one that went back may miss
 * what this ring still has, and only its HELLO tells.
 */

static ngx_uint_t
ngx_http_meter_outbox_is_old(ngx_http_meter_file_t *file)
{
    uint64_t                db_epoch;
    ngx_http_meter_ring_t  *ring;

    ring = ngx_http_meter_worker.current;
    db_epoch = ring ? ring->outbox.live->db_epoch : 0;

    return db_epoch && file->db_epoch && file->db_epoch != db_epoch;
}


static ngx_uint_t
ngx_http_meter_outbox_is_own(ngx_http_meter_file_t *file)
{
    u_char                   *name;
    ngx_queue_t              *q;
    ngx_http_meter_ring_t    *ring;
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;

    for (q = ngx_queue_head(&worker->rings);
         q != ngx_queue_sentinel(&worker->rings);
         q = ngx_queue_next(q))
    {
        ring = ngx_queue_data(q, ngx_http_meter_ring_t, queue);
        name = ring->path + ngx_strlen(ring->path) - NGX_HTTP_METER_NAME_LEN;

        if (ngx_strcmp(name, file->name) == 0) {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_http_meter_outbox_adopted(void)
{
    ngx_uint_t                n;
    ngx_queue_t              *q;
    ngx_http_meter_ring_t    *ring;
    ngx_http_meter_worker_t  *worker;

    worker = &ngx_http_meter_worker;
    n = 0;

    for (q = ngx_queue_head(&worker->rings);
         q != ngx_queue_sentinel(&worker->rings);
         q = ngx_queue_next(q))
    {
        ring = ngx_queue_data(q, ngx_http_meter_ring_t, queue);
        n += ring->adopted;
    }

    for (q = ngx_queue_head(&worker->opening);
         q != ngx_queue_sentinel(&worker->opening);
         q = ngx_queue_next(q))
    {
        n++;
    }

    return n;
}
