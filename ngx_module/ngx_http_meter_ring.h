
/*
 * ngx_http_meter_ring.h - ring files, for those who own or count them.
 *
 *   outbox -> outbox_claim (which) -> ring (one file), outbox_dir (all)
 *   link -> outbox (who keeps the worker alive, what became drained)
 */


#ifndef _NGX_HTTP_METER_RING_H_INCLUDED_
#define _NGX_HTTP_METER_RING_H_INCLUDED_


#include "ngx_http_meter_capture.h"

#include "meter_losses.h"


#define NGX_HTTP_METER_RING_PREFIX  "ring-"
#define NGX_HTTP_METER_TEMP_PREFIX  "tmp-"
#define NGX_HTTP_METER_NAME_LEN     (sizeof("ring-0123456789abcdef") - 1)


/* a ring file as it looks from outside; the next moment may change it */

typedef struct {
    u_char                          name[NGX_HTTP_METER_NAME_LEN + 1];
    off_t                           size;
    uint64_t                        db_epoch;   /* as its owner heard it */
    uint64_t                        busy;       /* enum meter_outbox_busy */
} ngx_http_meter_file_t;


/* what a worker has of all this */

typedef struct {
    ngx_queue_t                     rings;      /* ngx_http_meter_ring_t */
    ngx_queue_t                     opening;    /* those not usable yet */
    ngx_http_meter_ring_t          *current;
    ngx_http_meter_ring_t          *coming;     /* opened to be current */
    ngx_event_t                     step;       /* opens, a bit at a time */
    ngx_event_t                     tick;
    ngx_event_t                     drained;    /* posted: look for those */
    ngx_uint_t                      ticks;
    ngx_msec_t                      quit;       /* when it was first seen */
    ngx_msec_t                      none;       /* last told: no ring */
    unsigned                        active:1;
    unsigned                        parted:1;   /* leaves, needs no ring */
    unsigned                        quitting:1;
    unsigned                        over:1;     /* waits for nothing more */
} ngx_http_meter_worker_t;


/*
 * ring: one file. claim: NULL when somebody else has it, it is gone or no
 * good. make: a new one, NULL: logged. Neither is usable until open said
 * NGX_OK: each call does a bounded bit of allocating, reading and verifying;
 * with the last one what a dead owner left is recovered, and emitted as far
 * as there is room. NGX_AGAIN: there is more, NGX_BUSY: more once the disk
 * has read it, NGX_ERROR: logged, free it; the file is as it was. find and
 * settle are steps of open. touch reads a bit more of the file into memory
 * and says the same as open. renew: the next
 * session, for a ring that has nothing to send. release gives it back, as a
 * spare when it is drained; retire unlinks it as well. Both free the ring.
 *
 * is_gone: it was unlinked, or moved away with its directory: nobody else
 * will find it. rescue puts it back, whole, under another name; NGX_ERROR:
 * logged. stake: requests in it that would be lost with this process.
 */

ngx_http_meter_ring_t *ngx_http_meter_ring_claim(ngx_str_t *dir,
    u_char *name, ngx_log_t *log);
ngx_http_meter_ring_t *ngx_http_meter_ring_make(ngx_str_t *dir, size_t size,
    ngx_log_t *log);
ngx_int_t ngx_http_meter_ring_open(ngx_http_meter_ring_t *ring);
ngx_int_t ngx_http_meter_ring_find(ngx_http_meter_ring_t *ring,
    ngx_log_t *log);
ngx_int_t ngx_http_meter_ring_settle(ngx_http_meter_ring_t *ring,
    ngx_log_t *log);
ngx_int_t ngx_http_meter_ring_touch(ngx_http_meter_ring_t *ring);
void ngx_http_meter_ring_free(ngx_http_meter_ring_t *ring);
ngx_int_t ngx_http_meter_ring_renew(ngx_http_meter_ring_t *ring);
void ngx_http_meter_ring_release(ngx_http_meter_ring_t *ring);
void ngx_http_meter_ring_retire(ngx_http_meter_ring_t *ring);
ngx_uint_t ngx_http_meter_ring_is_gone(ngx_http_meter_ring_t *ring);
ngx_int_t ngx_http_meter_ring_rescue(ngx_http_meter_ring_t *ring,
    ngx_str_t *dir, ngx_log_t *log);
uint64_t ngx_http_meter_ring_stake(ngx_http_meter_ring_t *ring);
void ngx_http_meter_ring_count(ngx_http_meter_ring_t *ring,
    ngx_http_meter_retired_t *retired);

/* temp: a new file, and its name to be; begin: it is locked, and still there */

ngx_fd_t ngx_http_meter_ring_temp(ngx_str_t *dir, u_char *temp, u_char *path,
    ngx_log_t *log);
ngx_int_t ngx_http_meter_ring_begin(ngx_fd_t fd);
ngx_int_t ngx_http_meter_ring_boot(ngx_log_t *log);

/*
 * The file or the database went back in time. abandon: no record can be
 * sent under this session; they are noted as lost, their number returned,
 * the next session begins. known: the database has all of them. missing:
 * after a rewind some are neither in the database nor in the ring.
 */

uint64_t ngx_http_meter_ring_abandon(ngx_http_meter_ring_t *ring);
void ngx_http_meter_ring_known(ngx_http_meter_ring_t *ring,
    uint64_t *verdicts);
void ngx_http_meter_ring_missing(ngx_http_meter_ring_t *ring);

/* unsent: records without ack; pending: those, open cells or a loss */

ngx_uint_t ngx_http_meter_ring_unsent(ngx_http_meter_ring_t *ring);
ngx_uint_t ngx_http_meter_ring_pending(ngx_http_meter_ring_t *ring);

/*
 * outbox_dir: the directory. prepare makes and checks it, in the master.
 * list: ngx_http_meter_file_t of all ring files; the array is the caller's.
 * sweep unlinks what a dead process was making. again makes it where somebody
 * removed it, in a worker, if it may.
 */

ngx_int_t ngx_http_meter_dir_prepare(ngx_http_meter_outbox_conf_t *conf,
    ngx_log_t *log);
ngx_int_t ngx_http_meter_dir_list(ngx_str_t *dir, ngx_array_t *files,
    ngx_log_t *log);
void ngx_http_meter_dir_sweep(ngx_str_t *dir, ngx_log_t *log);
void ngx_http_meter_dir_again(ngx_str_t *dir, ngx_log_t *log);

/*
 * losses: what is lost without a ring. open: the page of this directory, made
 * where there is none; in the master, and again by tell. add counts. tell, every
 * second: what is there goes to the current ring. ask: somebody who died may
 * have been about to tell it to this one, which must not be unlinked. copy:
 * one moment's words, zeros when there is no page.
 */

void ngx_http_meter_losses_open(ngx_http_meter_outbox_conf_t *conf,
    ngx_log_t *log);
void ngx_http_meter_losses_add(uint64_t lost, uint64_t filtered);
void ngx_http_meter_losses_tell(ngx_http_meter_outbox_conf_t *conf);
ngx_uint_t ngx_http_meter_losses_ask(ngx_http_meter_ring_t *ring);
void ngx_http_meter_losses_copy(struct meter_losses *copy);

/*
 * outbox_claim: which rings this worker has. look does what the directory
 * asks for: gets a ring to write to where there is none, adopts orphans,
 * retires what is too much. is_without: it needs one and has none.
 */

void ngx_http_meter_outbox_look(ngx_http_meter_main_conf_t *mmcf);
ngx_uint_t ngx_http_meter_outbox_is_without(ngx_http_meter_main_conf_t *mmcf);
void ngx_http_meter_outbox_opened(ngx_http_meter_outbox_conf_t *conf,
    ngx_http_meter_ring_t *ring);

/*
 * outbox_open: rings on their way to be usable, some milliseconds a turn of
 * the event loop. open: NGX_OK: it is, NGX_AGAIN: opened() will be called,
 * NGX_ERROR: it is freed. init and exit belong to the process; warm reads
 * the rest of the current ring into memory.
 */

void ngx_http_meter_outbox_open_init(ngx_cycle_t *cycle);
void ngx_http_meter_outbox_open_exit(void);
ngx_int_t ngx_http_meter_outbox_open(ngx_http_meter_ring_t *ring,
    ngx_uint_t whole);
void ngx_http_meter_outbox_warm(void);

/*
 * outbox: hold keeps a worker that is told to quit until its records are
 * delivered, within limits; give_up ends that. main_conf is NULL without
 * "meter_outbox" or somebody to send to. rarely: 1 at most once a minute for
 * each clock.
 */

ngx_http_meter_main_conf_t *ngx_http_meter_outbox_main_conf(void);
void ngx_http_meter_outbox_hold(void);
void ngx_http_meter_outbox_give_up(void);
int64_t ngx_http_meter_now_us(void);
ngx_uint_t ngx_http_meter_rarely(ngx_msec_t *clock);

/*
 * link: what its files share. lost closes and tries again later (after: ms,
 * 0: back-off); reason is for the log, NULL: say nothing. push sends what it
 * can. They may close the link: look at its state afterwards.
 */

ngx_int_t ngx_http_meter_link_alloc(ngx_http_meter_ring_t *ring);
void ngx_http_meter_link_lost(ngx_http_meter_ring_t *ring,
    const char *reason, ngx_msec_t after);
void ngx_http_meter_link_hello(ngx_http_meter_ring_t *ring);
void ngx_http_meter_link_ping(ngx_http_meter_ring_t *ring, ngx_uint_t type,
    uint64_t seq);
void ngx_http_meter_link_push(ngx_http_meter_ring_t *ring);
void ngx_http_meter_link_write_handler(ngx_event_t *wev);
void ngx_http_meter_link_read_handler(ngx_event_t *rev);
void ngx_http_meter_link_opened(ngx_http_meter_ring_t *ring);
uint64_t ngx_http_meter_link_tag(ngx_http_meter_ring_t *ring);


/*
 * status_rings: the counts of all ring files and of the zone, as text of at
 * most this size behind p; returns its end. worker: what this one has to say
 * of itself, every second.
 */

u_char *ngx_http_meter_status_rings(ngx_http_request_t *r, u_char *p);
void ngx_http_meter_status_worker(ngx_http_meter_main_conf_t *mmcf);


#define NGX_HTTP_METER_STATUS_RINGS_SIZE  6144

extern ngx_http_meter_worker_t  ngx_http_meter_worker;


#define NGX_HTTP_METER_OUT_SIZE   (256 * 1024 + METER_FRAME_HEADER_SIZE)
#define NGX_HTTP_METER_IN_SIZE    (64 * 1024)
#define NGX_HTTP_METER_PENDING    65536         /* a power of two */


#endif /* _NGX_HTTP_METER_RING_H_INCLUDED_ */
