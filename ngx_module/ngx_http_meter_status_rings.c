
/*
 * ngx_http_meter_status_rings.c - what the ring files of this node add up to.
 *
 *   ring files (live words), losses, retired files (zone) -> sums -> text
 *
 *   seen = filtered + lost + in flight + verdicts
 *
 * in requests, over all files of the directory and all sessions they had,
 * whoever owns them. Every worker gives the same answer. A ring's words are
 * read from a map of its first page, without its lock, as its owner writes.
 */


#include "ngx_http_meter_ring.h"

#include <sys/file.h>


#define NGX_HTTP_METER_SUM_TRIES    3
#define NGX_HTTP_METER_BEAT_MAX     3000000     /* us */
#define NGX_HTTP_METER_STATE_MAX    3           /* s */
#define NGX_HTTP_METER_SAMPLE       16384       /* slots of the zone */


typedef struct {
    uint64_t   seen;
    uint64_t   filtered;
    uint64_t   lost;
    uint64_t   recorded;
    uint64_t   open;
    uint64_t   verdicts[METER_VERDICT_COUNT];

    uint64_t   turn;        /* of the ring that losses name */

    uint64_t   without;     /* workers */
    uint64_t   stake;
    uint64_t   owned;       /* files */
    uint64_t   leaving;
    uint64_t   orphans;
    uint64_t   spares;
    uint64_t   bytes;
    uint64_t   used;
    int64_t    lag_us;
    int64_t    stuck_us;
} ngx_http_meter_sum_t;


static void ngx_http_meter_sum(ngx_http_meter_main_conf_t *mmcf,
    ngx_http_meter_sum_t *sum);
static void ngx_http_meter_sum_files(ngx_http_meter_main_conf_t *mmcf,
    ngx_http_meter_sum_t *sum, struct meter_losses *losses);
static void ngx_http_meter_sum_file(ngx_str_t *dir,
    ngx_http_meter_file_t *file, ngx_http_meter_sum_t *sum,
    struct meter_losses *losses);
static void ngx_http_meter_sum_losses(struct meter_losses *losses,
    ngx_http_meter_sum_t *sum);
static void ngx_http_meter_sum_live(struct meter_outbox_live *live,
    ngx_http_meter_sum_t *sum);
static void ngx_http_meter_sum_state(struct meter_outbox_live *live,
    ngx_fd_t fd, ngx_http_meter_sum_t *sum);
static void ngx_http_meter_sum_retired(ngx_http_meter_main_conf_t *mmcf,
    ngx_http_meter_sum_t *sum);
static void ngx_http_meter_status_bury(ngx_http_meter_state_t *state,
    ngx_uint_t own);
static void ngx_http_meter_sum_workers(ngx_http_meter_main_conf_t *mmcf,
    ngx_http_meter_sum_t *sum);
static u_char *ngx_http_meter_sum_requests(u_char *p,
    ngx_http_meter_sum_t *sum);
static u_char *ngx_http_meter_sum_rings(u_char *p, ngx_http_meter_sum_t *sum,
    ngx_http_meter_outbox_conf_t *conf);
static u_char *ngx_http_meter_sum_zone(u_char *p);


static ngx_uint_t  ngx_http_meter_sampled;      /* where to go on */


u_char *
ngx_http_meter_status_rings(ngx_http_request_t *r, u_char *p)
{
    ngx_http_meter_sum_t         sum;
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_meter_module);

    if (mmcf->outbox) {
        ngx_http_meter_sum(mmcf, &sum);

        ngx_http_meter_sum_workers(mmcf, &sum);

        p = ngx_http_meter_sum_requests(p, &sum);
        p = ngx_http_meter_sum_rings(p, &sum, mmcf->outbox);
    }

    return ngx_http_meter_sum_zone(p);
}


/*
 * While a file goes, its counts are neither in the directory nor the zone;
 * while losses move, they are in the page or in a ring: its turn tells.
 */

static void
ngx_http_meter_sum(ngx_http_meter_main_conf_t *mmcf, ngx_http_meter_sum_t *sum)
{
    ngx_uint_t                 i;
    ngx_atomic_uint_t          begun, done;
    struct meter_losses        losses, after;
    ngx_http_meter_retired_t  *retired;

    retired = &mmcf->edge->retired;

    for (i = 0; i < NGX_HTTP_METER_SUM_TRIES; i++) {

        done = __atomic_load_n(&retired->done, __ATOMIC_ACQUIRE);
        begun = __atomic_load_n(&retired->begun, __ATOMIC_ACQUIRE);

        ngx_http_meter_losses_copy(&losses);

        ngx_memzero(sum, sizeof(ngx_http_meter_sum_t));

        ngx_http_meter_sum_files(mmcf, sum, &losses);
        ngx_http_meter_sum_retired(mmcf, sum);
        ngx_http_meter_sum_losses(&losses, sum);

        ngx_http_meter_losses_copy(&after);

        if (begun == done
            && losses.moved == after.moved && losses.upto == after.upto
            && begun == __atomic_load_n(&retired->begun, __ATOMIC_ACQUIRE))
        {
            break;
        }
    }
}


static void
ngx_http_meter_sum_files(ngx_http_meter_main_conf_t *mmcf,
    ngx_http_meter_sum_t *sum, struct meter_losses *losses)
{
    ngx_uint_t              i;
    ngx_pool_t             *pool;
    ngx_array_t             files;
    ngx_http_meter_file_t  *file;

    pool = ngx_create_pool(4096, ngx_cycle->log);
    if (pool == NULL) {
        return;
    }

    if (ngx_array_init(&files, pool, 16, sizeof(ngx_http_meter_file_t))
        == NGX_OK
        && ngx_http_meter_dir_list(&mmcf->outbox->path, &files,
                                   ngx_cycle->log)
           == NGX_OK)
    {
        file = files.elts;

        for (i = 0; i < files.nelts; i++) {
            ngx_http_meter_sum_file(&mmcf->outbox->path, &file[i], sum,
                                    losses);
        }
    }

    ngx_destroy_pool(pool);
}


static void
ngx_http_meter_sum_file(ngx_str_t *dir, ngx_http_meter_file_t *file,
    ngx_http_meter_sum_t *sum, struct meter_losses *losses)
{
    void                      *page;
    u_char                     path[NGX_MAX_PATH];
    ngx_fd_t                   fd;
    struct meter_str           identity;
    struct meter_ring_header   header;
    struct meter_outbox_live   live;

    (void) ngx_snprintf(path, sizeof(path), "%V/%s%Z", dir, file->name);

    fd = open((char *) path, O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);

    if (fd == NGX_INVALID_FILE) {
        return;
    }

    page = mmap(NULL, METER_RING_HEADER_SIZE, PROT_READ, MAP_SHARED, fd, 0);

    if (page != MAP_FAILED) {

        /* one that is being renewed has counts, but no identity */

        identity.data = page;
        identity.size = METER_RING_IDENTITY_SIZE;

        if (meter_ring_header_decode(identity, &header)
            || file->busy == METER_OUTBOX_FORMATTING)
        {
            if (!meter_outbox_snapshot(page, &live)) {

                /* its owner died counting: as the next one will settle it */

                live.counts.seen = live.counts.filtered + live.counts.lost
                                   + live.counts.recorded + live.counts.open;
            }

            ngx_http_meter_sum_live(&live, sum);
            ngx_http_meter_sum_state(&live, fd, sum);

            sum->bytes += file->size;

            if (strtoull((char *) file->name
                         + sizeof(NGX_HTTP_METER_RING_PREFIX) - 1, NULL, 16)
                == losses->ring)
            {
                sum->turn = live.loss.loss.turn;
            }
        }

        (void) munmap(page, METER_RING_HEADER_SIZE);
    }

    (void) close(fd);
}


static void
ngx_http_meter_sum_live(struct meter_outbox_live *live,
    ngx_http_meter_sum_t *sum)
{
    ngx_uint_t  i;

    sum->seen += live->counts.seen + live->past.seen;
    sum->filtered += live->counts.filtered + live->past.filtered;
    sum->lost += live->counts.lost + live->past.lost;
    sum->recorded += live->counts.recorded + live->past.recorded;
    sum->open += live->counts.open + live->past.open;

    for (i = 0; i < METER_VERDICT_COUNT; i++) {
        sum->verdicts[i] += live->verdicts[i] + live->past_verdicts[i];
    }
}


/* the lock of a living owner tells, whether it beats or not */

static void
ngx_http_meter_sum_state(struct meter_outbox_live *live, ngx_fd_t fd,
    ngx_http_meter_sum_t *sum)
{
    int64_t  now_us, age_us;

    now_us = ngx_http_meter_now_us();

    sum->used += live->used_bytes;

    if (live->waiting_us) {
        age_us = now_us - live->waiting_us;
        sum->lag_us = ngx_max(sum->lag_us, age_us);
    }

    if (live->busy == METER_OUTBOX_SPARE) {
        sum->spares++;
        return;
    }

    if (flock(fd, LOCK_SH|LOCK_NB) == 0) {
        (void) flock(fd, LOCK_UN);
        sum->orphans++;
        return;
    }

    if (live->busy == METER_OUTBOX_LEAVING) {
        sum->leaving++;

    } else {
        sum->owned++;
    }

    age_us = now_us - live->beat_us;

    if (age_us > NGX_HTTP_METER_BEAT_MAX) {
        sum->stuck_us = ngx_max(sum->stuck_us, age_us);
    }
}


static void
ngx_http_meter_sum_retired(ngx_http_meter_main_conf_t *mmcf,
    ngx_http_meter_sum_t *sum)
{
    ngx_uint_t                 i;
    ngx_http_meter_retired_t  *retired;

    retired = &mmcf->edge->retired;

    sum->seen += retired->seen;
    sum->filtered += retired->filtered;
    sum->lost += retired->lost;
    sum->recorded += retired->recorded;

    for (i = 0; i < METER_VERDICT_COUNT; i++) {
        sum->verdicts[i] += retired->verdicts[i];
    }
}


/* one that ended, or hangs, says nothing any more of its ring */

static void
ngx_http_meter_sum_workers(ngx_http_meter_main_conf_t *mmcf,
    ngx_http_meter_sum_t *sum)
{
    time_t                   now;
    ngx_uint_t               i;
    ngx_http_meter_state_t  *state;

    now = ngx_time();

    for (i = 0; i < NGX_MAX_PROCESSES; i++) {
        state = &mmcf->edge->workers[i];

        if (now - (time_t) state->beat <= NGX_HTTP_METER_STATE_MAX) {
            sum->without += state->without;
        }

        sum->stake += state->stake;
    }
}


void
ngx_http_meter_status_worker(ngx_http_meter_main_conf_t *mmcf)
{
    uint64_t                 stake;
    ngx_uint_t               i;
    ngx_queue_t             *q;
    ngx_http_meter_ring_t   *ring;
    ngx_http_meter_state_t  *state;

    for (i = 0; i < NGX_MAX_PROCESSES; i++) {
        ngx_http_meter_status_bury(&mmcf->edge->workers[i],
                                   i == (ngx_uint_t) ngx_process_slot);
    }

    stake = 0;

    for (q = ngx_queue_head(&ngx_http_meter_worker.rings);
         q != ngx_queue_sentinel(&ngx_http_meter_worker.rings);
         q = ngx_queue_next(q))
    {
        ring = ngx_queue_data(q, ngx_http_meter_ring_t, queue);

        if (ring->gone) {
            stake += ngx_http_meter_ring_stake(ring);
        }
    }

    state = &mmcf->edge->workers[ngx_process_slot];

    state->beat = ngx_time();
    state->pid = ngx_pid;
    state->without = ngx_http_meter_outbox_is_without(mmcf);
    state->stake = stake;
}


/* with a worker that died went what was in rings that nobody can find */

static void
ngx_http_meter_status_bury(ngx_http_meter_state_t *state, ngx_uint_t own)
{
    ngx_pid_t          pid;
    ngx_atomic_uint_t  stake;

    stake = state->stake;
    pid = state->pid;

    if (stake == 0 || pid == ngx_pid
        || (!own && (kill(pid, 0) == 0 || ngx_errno != NGX_ESRCH))
        || !ngx_atomic_cmp_set(&state->stake, stake, 0))
    {
        return;
    }

    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0,
                  "worker %P died with %uA requests in rings that had been "
                  "removed, they are noted as lost", pid, stake);

    ngx_http_meter_losses_add(stake, 0);
}


static void
ngx_http_meter_sum_losses(struct meter_losses *losses,
    ngx_http_meter_sum_t *sum)
{
    uint64_t  lost;

    lost = meter_losses_left(losses, sum->turn);

    sum->lost += lost;
    sum->filtered += losses->filtered;
    sum->seen += lost + losses->filtered;
}


static u_char *
ngx_http_meter_sum_requests(u_char *p, ngx_http_meter_sum_t *sum)
{
    int64_t     verdicts, in_flight, gap;
    ngx_uint_t  i;

    verdicts = 0;

    p = ngx_sprintf(p, "# HELP edgemeter_edge_verdicts_total Requests by the "
                    "verdict on their record.\n"
                    "# TYPE edgemeter_edge_verdicts_total counter\n");

    for (i = 0; i < METER_VERDICT_COUNT; i++) {
        verdicts += sum->verdicts[i];

        p = ngx_sprintf(p, "edgemeter_edge_verdicts_total{verdict=\"%s\"} "
                        "%uL\n", meter_verdict_name(i), sum->verdicts[i]);
    }

    in_flight = sum->recorded - verdicts + sum->open;
    gap = sum->seen - sum->filtered - sum->lost - in_flight - verdicts;

    return ngx_sprintf(p,
        "# HELP edgemeter_edge_requests_seen_total Requests that the edge "
        "decided on.\n"
        "# TYPE edgemeter_edge_requests_seen_total counter\n"
        "edgemeter_edge_requests_seen_total %uL\n"
        "# HELP edgemeter_edge_requests_filtered_total Requests that are not "
        "billed.\n"
        "# TYPE edgemeter_edge_requests_filtered_total counter\n"
        "edgemeter_edge_requests_filtered_total %uL\n"
        "# HELP edgemeter_edge_requests_unrecorded_total Alert: requests "
        "that were answered and could not be recorded.\n"
        "# TYPE edgemeter_edge_requests_unrecorded_total counter\n"
        "edgemeter_edge_requests_unrecorded_total %uL\n"
        "# HELP edgemeter_edge_in_flight Requests recorded without a "
        "verdict, open deltas included.\n"
        "# TYPE edgemeter_edge_in_flight gauge\n"
        "edgemeter_edge_in_flight %L\n"
        "# HELP edgemeter_edge_conservation_gap Alert unless 0: seen less "
        "filtered, unrecorded, in flight and verdicts.\n"
        "# TYPE edgemeter_edge_conservation_gap gauge\n"
        "edgemeter_edge_conservation_gap %L\n",
        sum->seen, sum->filtered, sum->lost, in_flight, gap);
}


static u_char *
ngx_http_meter_sum_rings(u_char *p, ngx_http_meter_sum_t *sum,
    ngx_http_meter_outbox_conf_t *conf)
{
    return ngx_sprintf(p,
        "# HELP edgemeter_edge_workers_without_ring Alert unless 0: workers "
        "that need a ring and have none.\n"
        "# TYPE edgemeter_edge_workers_without_ring gauge\n"
        "edgemeter_edge_workers_without_ring %uL\n"
        "# HELP edgemeter_edge_outbox_removed Alert unless 0: requests in "
        "rings that were removed in use, not committed yet.\n"
        "# TYPE edgemeter_edge_outbox_removed gauge\n"
        "edgemeter_edge_outbox_removed %uL\n"
        "# HELP edgemeter_edge_outbox_rings_max Ring files that may be "
        "there.\n"
        "# TYPE edgemeter_edge_outbox_rings_max gauge\n"
        "edgemeter_edge_outbox_rings_max %ui\n"
        "# HELP edgemeter_edge_outbox_rings Ring files by state.\n"
        "# TYPE edgemeter_edge_outbox_rings gauge\n"
        "edgemeter_edge_outbox_rings{state=\"owned\"} %uL\n"
        "edgemeter_edge_outbox_rings{state=\"leaving\"} %uL\n"
        "edgemeter_edge_outbox_rings{state=\"orphan\"} %uL\n"
        "edgemeter_edge_outbox_rings{state=\"spare\"} %uL\n"
        "# HELP edgemeter_edge_outbox_bytes Size of all ring files.\n"
        "# TYPE edgemeter_edge_outbox_bytes gauge\n"
        "edgemeter_edge_outbox_bytes %uL\n"
        "# HELP edgemeter_edge_outbox_used_bytes Records in them that are "
        "not durable yet.\n"
        "# TYPE edgemeter_edge_outbox_used_bytes gauge\n"
        "edgemeter_edge_outbox_used_bytes %uL\n"
        "# HELP edgemeter_edge_outbox_lag_seconds Age of the oldest record "
        "that is not durable yet.\n"
        "# TYPE edgemeter_edge_outbox_lag_seconds gauge\n"
        "edgemeter_edge_outbox_lag_seconds %L.%03L\n"
        "# HELP edgemeter_edge_outbox_stuck_seconds How long an owner of a "
        "ring has not moved, 0 when all do.\n"
        "# TYPE edgemeter_edge_outbox_stuck_seconds gauge\n"
        "edgemeter_edge_outbox_stuck_seconds %L.%03L\n",
        sum->without, sum->stake, conf->files, sum->owned, sum->leaving,
        sum->orphans, sum->spares, sum->bytes, sum->used,
        sum->lag_us / 1000000, sum->lag_us / 1000 % 1000,
        sum->stuck_us / 1000000, sum->stuck_us / 1000 % 1000);
}


/* ids are spread evenly: a part of a large zone tells about the whole */

static u_char *
ngx_http_meter_sum_zone(u_char *p)
{
    size_t              slots, count, first, pending, durable;
    struct meter_zone  *zone;

    zone = ngx_http_meter_zone_get();

    if (zone == NULL) {
        return p;
    }

    slots = zone->set_count * METER_ZONE_WAYS;
    count = ngx_min(slots, NGX_HTTP_METER_SAMPLE);
    first = (slots > count) ? ngx_http_meter_sampled % (slots - count) : 0;

    ngx_http_meter_sampled += count;

    meter_zone_sample(zone, first, count, &pending, &durable);

    pending = (uint64_t) pending * slots / count;
    durable = (uint64_t) durable * slots / count;

    return ngx_sprintf(p,
        "# HELP edgemeter_edge_zone_slots Places for ids by state, estimated "
        "in a zone of more than 16384.\n"
        "# TYPE edgemeter_edge_zone_slots gauge\n"
        "edgemeter_edge_zone_slots{state=\"pending\"} %uz\n"
        "edgemeter_edge_zone_slots{state=\"durable\"} %uz\n"
        "edgemeter_edge_zone_slots{state=\"free\"} %uz\n",
        pending, durable, slots - pending - durable);
}
