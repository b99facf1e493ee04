
/*
 * ngx_http_meter_capture.h - the capture half: metered routes.
 *
 *   request -> admit -> header_filter -> event -> record -> ring -> link
 *                                 log_phase -^       |
 *                                                    +-> zone
 *   link -> meterd -> link_recv -> ring (acked), zone (durable)
 *
 * capture  what a request carries through its life, bound once
 * route    directives of a location, checked and compiled
 * event    values of a request, as a record's body
 * record   the decision: filtered, recorded, duplicate or lost
 * outbox   ring files: made, claimed, adopted, released
 * link     one connection per owned ring
 */


#ifndef _NGX_HTTP_METER_CAPTURE_H_INCLUDED_
#define _NGX_HTTP_METER_CAPTURE_H_INCLUDED_


#include "ngx_http_meter.h"

#include "meter_crash.h"
#include "meter_outbox.h"
#include "meter_zone.h"


#define NGX_HTTP_METER_CAPTURE_EVENT   0
#define NGX_HTTP_METER_CAPTURE_DELTA   1

#define NGX_HTTP_METER_OVERFLOW_PASS   0
#define NGX_HTTP_METER_OVERFLOW_REJECT 1


typedef struct {
    ngx_http_complex_value_t        complex;
    ngx_int_t                       index;      /* one variable and no more */
    unsigned                        late:1;     /* not known at the header */
    unsigned                        negative:1; /* ... is allowed */
} ngx_http_meter_value_t;


typedef struct {
    ngx_str_t                       name;
    ngx_http_meter_value_t          value;
} ngx_http_meter_attribute_t;


/* the directives of one location; part of its configuration */

struct ngx_http_meter_route_s {
    ngx_flag_t                      enable;
    ngx_http_meter_value_t         *event;      /* type */
    ngx_http_meter_value_t         *event_id;
    ngx_http_meter_value_t         *tenant;
    ngx_http_meter_value_t         *customer;
    ngx_http_meter_value_t         *resource;
    ngx_http_meter_value_t         *quantity;
    ngx_http_meter_value_t         *filter;     /* meter_if */
    ngx_array_t                    *attributes; /* ngx_http_meter_attribute_t */
    ngx_uint_t                      capture;
    ngx_uint_t                      overflow;
    ngx_uint_t                      final;      /* known when headers leave */
    u_char                         *file;       /* where "meter on" is */
    ngx_uint_t                      line;
};


/* $meter_verdict */

typedef enum {
    NGX_HTTP_METER_UNDECIDED = 0,
    NGX_HTTP_METER_RECORDED,
    NGX_HTTP_METER_DUPLICATE,
    NGX_HTTP_METER_FILTERED,
    NGX_HTTP_METER_LOST,
    NGX_HTTP_METER_REJECTED      /* by this module: meter_overflow reject */
} ngx_http_meter_verdict_e;


typedef struct ngx_http_meter_ring_s  ngx_http_meter_ring_t;


/* what variables are made of that depends on the location */

typedef struct {
    ngx_str_t                       uri;
    ngx_str_t                       args;
    ngx_str_t                       method_name;
    void                          **loc_conf;
    ngx_http_variable_value_t      *variables;  /* "set", named captures */
#if (NGX_PCRE)
    ngx_uint_t                      ncaptures;
    int                            *captures;
    u_char                         *captures_data;
#endif
} ngx_http_meter_view_t;


/*
 * A metered request. It hangs on a cleanup of the main request's pool, since
 * r->ctx does not survive internal redirects.
 */

typedef struct {
    ngx_http_meter_route_t         *route;      /* bound: the first reached */
    ngx_http_meter_view_t           view;       /* ... and how it was then */
    ngx_http_meter_ring_t          *ring;       /* holds slot or room */
    uint32_t                        slot;       /* METER_SLOT_NONE */
    ngx_uint_t                      status;     /* as the header said */
    ngx_http_meter_verdict_e        verdict;
    ngx_str_t                       tenant;
    ngx_str_t                       event_id;   /* the client's, if usable */
    u_char                          session[16];
    uint64_t                        seq;        /* 0: no id was minted */
    int64_t                         ts_us;
    uint64_t                        started_ns; /* only when sampled */
    uint64_t                        spent_ns;
    unsigned                        answered:1; /* the header went by */
    unsigned                        decided:1;  /* counted, whatever verdict */
    unsigned                        room:1;     /* counted in ring->promised */
    unsigned                        refused:1;
    unsigned                        unplaced:1; /* ended before any phase */
    unsigned                        unusable:1; /* the client's id */
    unsigned                        torn:1;     /* no memory for the view */
    unsigned                        sampled:1;
} ngx_http_meter_capture_t;


typedef enum {
    NGX_HTTP_METER_LINK_DOWN = 0,   /* no connection; a timer runs */
    NGX_HTTP_METER_LINK_CONNECTING,
    NGX_HTTP_METER_LINK_HELLO,      /* sent, not answered */
    NGX_HTTP_METER_LINK_STREAM
} ngx_http_meter_link_state_e;


/* an event with a client's id on its way: where the zone remembers it */

typedef struct {
    uint64_t                        seq;
    size_t                          index;
} ngx_http_meter_pending_t;


typedef struct {
    ngx_http_meter_link_state_e     state;
    ngx_peer_connection_t           peer;
    ngx_event_t                     timer;      /* back-off, connect, ping */
    ngx_event_t                     send;       /* records gather until then */
    struct meter_outbox_cursor      cursor;     /* next record to send */
    uint64_t                        limit;      /* credit */
    uint64_t                        oldest;     /* for the next HELLO */
    uint64_t                        head;       /* as the last HELLO told */
    ngx_msec_t                      heard;      /* ngx_current_msec */
    ngx_msec_t                      pinged;
    ngx_uint_t                      version;    /* of the protocol, chosen */
    ngx_uint_t                      failures;   /* in a row: back-off */
    u_char                         *out;        /* frame being sent */
    size_t                          out_pos;
    size_t                          out_size;
    u_char                         *in;         /* frame being received */
    size_t                          in_size;
    ngx_http_meter_pending_t       *pending;    /* a ring of them, by seq */
    ngx_uint_t                      pending_head;
    ngx_uint_t                      pending_tail;
    unsigned                        paused:1;   /* meterd drains */
    unsigned                        gap:1;      /* told by this meterd */
} ngx_http_meter_link_t;


/* a ring file this process owns */

struct ngx_http_meter_ring_s {
    ngx_queue_t                     queue;      /* in worker->rings, or
                                                   worker->opening */
    struct meter_outbox             outbox;
    ngx_pool_t                     *pool;       /* of all below */
    ngx_fd_t                        fd;
    u_char                         *path;
    u_char                         *temp;       /* its name while it is made */
    void                           *scratch;
    size_t                          front;      /* where records begin */
    size_t                          filled;     /* bytes with blocks */
    size_t                          touched;    /* bytes in memory */
    ngx_uint_t                      waited;     /* turns, for the disk */
    struct meter_outbox_report      report;     /* while it is opened */
    ngx_uint_t                      promised;   /* admitted under reject */
    ngx_http_meter_link_t           link;
    unsigned                        adopted:1;  /* only drained */
    unsigned                        ask:1;      /* a HELLO first of all */
    unsigned                        renew:1;    /* new session when drained */
    unsigned                        retire:1;   /* unlink when drained */
    unsigned                        gone:1;     /* its path leads elsewhere */
    unsigned                        found:1;    /* it is a ring */
    unsigned                        hurry:1;    /* wait for the disk */
    unsigned                        memory:1;   /* there is no disk */
};


/* "meter_outbox", "meter_zone", "meter_node", and what a worker has of them */

struct ngx_http_meter_outbox_conf_s {
    ngx_str_t                       path;
    size_t                          size;
    ngx_uint_t                      files;      /* no more of them */
    ngx_msec_t                      drain;      /* meter_drain_timeout */
    ngx_http_meter_aggregator_t    *aggregator; /* where the rings go */
    ngx_uint_t                      workers;    /* worker_processes */
    ngx_uid_t                       user;       /* of the workers */
    ngx_gid_t                       group;
    unsigned                        made:1;     /* the directory, by us */
};


/* route: directives (ngx_http_meter_commands names them) and their merge */

void ngx_http_meter_route_create(ngx_http_meter_route_t *route);
char *ngx_http_meter_route_merge(ngx_conf_t *cf,
    ngx_http_meter_loc_conf_t *prev, ngx_http_meter_loc_conf_t *conf);
char *ngx_http_meter_enable(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_meter_value(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_meter_choice(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_meter_attribute(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_meter_outbox(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_meter_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_meter_node(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* final: every variable of the text is known when the headers leave */

ngx_uint_t ngx_http_meter_final(ngx_conf_t *cf, ngx_str_t *text);

/* variable: $meter_tenant, $meter_verdict, $meter_event_id */

ngx_int_t ngx_http_meter_variable_init(ngx_conf_t *cf);

/*
 * capture: get finds the request's own, NULL when none is bound; bind makes
 * it from the location that the main request is in now, NULL when that one
 * is not metered (or no memory is left). route is that location's, NULL
 * likewise. All take the main request.
 */

ngx_http_meter_capture_t *ngx_http_meter_capture_get(ngx_http_request_t *r);
ngx_http_meter_capture_t *ngx_http_meter_capture_bind(ngx_http_request_t *r);
ngx_http_meter_route_t *ngx_http_meter_capture_route(ngx_http_request_t *r);

/* time spent on one of 64 requests; bind has started the clock */

uint64_t ngx_http_meter_capture_clock(void);


static ngx_inline void
ngx_http_meter_capture_start(ngx_http_meter_capture_t *cap)
{
    if (cap->sampled) {
        cap->started_ns = ngx_http_meter_capture_clock();
    }
}


static ngx_inline void
ngx_http_meter_capture_stop(ngx_http_meter_capture_t *cap)
{
    if (cap->sampled) {
        cap->spent_ns += ngx_http_meter_capture_clock() - cap->started_ns;
    }
}


/*
 * Between enter and leave the request looks as it did from the location that
 * was bound, and nothing that is evaluated stays behind: no captures of
 * regular expressions and, when a copy is asked for, no cached variables.
 * NGX_DECLINED: it looks like that already; NGX_ERROR: no memory for a copy.
 * Neither is to be left. again: what a map has captured for one value is not
 * seen by the next.
 */

ngx_int_t ngx_http_meter_capture_enter(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap, ngx_uint_t copy);
void ngx_http_meter_capture_again(ngx_http_request_t *r);
void ngx_http_meter_capture_leave(ngx_http_request_t *r);

/*
 * capture: the rewrite phases, for redirects and subrequests; admit:
 * PRECONTENT; header_filter: below range; log_phase: first of LOG
 */

ngx_int_t ngx_http_meter_capture_init(ngx_conf_t *cf);
ngx_int_t ngx_http_meter_admit_init(ngx_conf_t *cf);
ngx_int_t ngx_http_meter_log_init(ngx_conf_t *cf);

/*
 * event: evaluates the route's values. They are borrowed from the request's
 * pool. NGX_ERROR: no memory. value: one of them.
 */

ngx_int_t ngx_http_meter_event_value(ngx_http_request_t *r,
    ngx_http_meter_value_t *value, ngx_str_t *text);

ngx_int_t ngx_http_meter_event_read(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap, struct meter_record_event *event);
/* not billed: 1 by meter_if, or where there is none by what became of it */
ngx_int_t ngx_http_meter_event_filtered(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap);
/* into at most size bytes; attributes go, the largest first; bytes used */
size_t ngx_http_meter_event_encode(struct meter_record_event *event,
    u_char *buf, size_t size);

/*
 * record: the decision, once per request; sets cap->verdict. With a slot the
 * record is made from it. answer: what is known goes into the slot. reserve:
 * takes a slot, NGX_DECLINED when there is none. release: gives back what
 * the request still holds; a slot that was answered becomes a record.
 */

void ngx_http_meter_record(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap);
void ngx_http_meter_record_answer(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap);
void ngx_http_meter_record_promise(ngx_http_meter_ring_t *ring,
    ngx_int_t change);
ngx_int_t ngx_http_meter_record_reserve(ngx_http_meter_capture_t *cap,
    ngx_http_meter_ring_t *ring);
void ngx_http_meter_record_release(ngx_http_meter_capture_t *cap);

/* zone: the dedupe memory; NULL without "meter_zone" */

struct meter_zone *ngx_http_meter_zone_get(void);
ngx_int_t ngx_http_meter_zone_init(ngx_conf_t *cf);

/*
 * outbox: the process's rings. current: where records go, NULL when there is
 * none (then they are lost, and counted by outbox_missed until one is there).
 */

ngx_int_t ngx_http_meter_outbox_init_module(ngx_cycle_t *cycle);
ngx_int_t ngx_http_meter_outbox_init_process(ngx_cycle_t *cycle);
void ngx_http_meter_outbox_exit_process(ngx_cycle_t *cycle);
ngx_http_meter_ring_t *ngx_http_meter_outbox_current(void);
void ngx_http_meter_outbox_missed(ngx_uint_t requests);
/* a ring has drained: what becomes of it (link tells) */
void ngx_http_meter_outbox_drained(ngx_http_meter_ring_t *ring);

/*
 * link: woken after records were appended or cells added to; closes without
 * a word. pending: the zone's slot at index waits for the verdict on record
 * seq; called in the order of seq, forgotten when too many wait.
 */

void ngx_http_meter_link_start(ngx_http_meter_ring_t *ring);
void ngx_http_meter_link_wake(ngx_http_meter_ring_t *ring);
void ngx_http_meter_link_stop(ngx_http_meter_ring_t *ring);
void ngx_http_meter_link_pending(ngx_http_meter_ring_t *ring, uint64_t seq,
    size_t index);

/* crash: test hook, armed through a mapped file (METER_CRASH_FILE) */

ngx_int_t ngx_http_meter_crash_init(ngx_cycle_t *cycle);


extern ngx_module_t  ngx_http_meter_filter_module;


#endif /* _NGX_HTTP_METER_CAPTURE_H_INCLUDED_ */
