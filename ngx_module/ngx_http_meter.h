
/*
 * ngx_http_meter.h - types and functions that the files of the module share.
 *
 *   client -> api -> api_request -> api_peer -> meterd
 *                                      +-> stream -> mux -> meterd
 *   client <- api_response <- meterd
 *   error: makes every answer of nginx itself in an API location JSON
 *   status: the counters of the edge, in a zone, as Prometheus text
 */


#ifndef _NGX_HTTP_METER_H_INCLUDED_
#define _NGX_HTTP_METER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "meter_limits.h"
#include "meter_msg.h"


/*
 * The counters of the edge: identifier, name, label, help. Entries of one
 * name stand together and repeat its help. The order is the layout of the
 * zone; a change of it is found at reload by the number of counters.
 */

#define NGX_HTTP_METER_METRICS(X)                                             \
    X(REQUESTS_1XX, "edgemeter_edge_requests_total", "class=\"1xx\"",         \
      "Requests answered in API locations.")                                  \
    X(REQUESTS_2XX, "edgemeter_edge_requests_total", "class=\"2xx\"",         \
      "Requests answered in API locations.")                                  \
    X(REQUESTS_3XX, "edgemeter_edge_requests_total", "class=\"3xx\"",         \
      "Requests answered in API locations.")                                  \
    X(REQUESTS_4XX, "edgemeter_edge_requests_total", "class=\"4xx\"",         \
      "Requests answered in API locations.")                                  \
    X(REQUESTS_5XX, "edgemeter_edge_requests_total", "class=\"5xx\"",         \
      "Requests answered in API locations.")                                  \
    X(FAILURES_AWAY, "edgemeter_edge_upstream_failures_total",                \
      "kind=\"away\"",                                                        \
      "Requests that got no whole answer from the aggregator.")               \
    X(FAILURES_TIMEOUT, "edgemeter_edge_upstream_failures_total",             \
      "kind=\"timeout\"",                                                     \
      "Requests that got no whole answer from the aggregator.")               \
    X(FAILURES_PROTOCOL, "edgemeter_edge_upstream_failures_total",            \
      "kind=\"protocol\"",                                                    \
      "Requests that got no whole answer from the aggregator.")               \
    X(FAILURES_ABORTED, "edgemeter_edge_upstream_failures_total",             \
      "kind=\"aborted\"",                                                     \
      "Requests that got no whole answer from the aggregator.")               \
    X(FAILURES_FULL, "edgemeter_edge_upstream_failures_total",                \
      "kind=\"full\"",                                                        \
      "Requests that got no whole answer from the aggregator.")               \
    X(RECEIVED_BYTES, "edgemeter_edge_received_bytes_total", "",              \
      "Bytes of requests received from clients in API locations.")            \
    X(SENT_BYTES, "edgemeter_edge_sent_bytes_total", "",                      \
      "Bytes of answers sent to clients in API locations.")                   \
    X(CONNECTIONS_OPENED, "edgemeter_edge_connections_opened_total", "",      \
      "Connections opened to the aggregator.")                                \
    X(CONNECTIONS_REUSED, "edgemeter_edge_connections_reused_total", "",      \
      "Requests sent on a kept connection to the aggregator.")                \
    X(MUXES_OPENED, "edgemeter_edge_muxes_opened_total", "",                  \
      "Connections opened to the aggregator for many requests at once.")      \
    X(MUX_REQUESTS, "edgemeter_edge_mux_requests_total", "",                  \
      "Requests sent on such a connection.")                                  \
    X(TENANT_EMPTY, "edgemeter_edge_tenant_empty_total", "",                  \
      "Metered requests without a tenant; they become dead letters.")         \
    X(IDS_MINTED, "edgemeter_edge_ids_unusable_total", "",                    \
      "Requests whose meter_event_id was empty or unusable: one was minted.")  \
    X(REFUSED, "edgemeter_edge_refused_total", "",                            \
      "Requests answered 503 because the outbox had no room.")                \
    X(TRUNCATED, "edgemeter_edge_truncated_total", "",                        \
      "Events whose attributes had to be cut to fit a record.")               \
    X(SLOTS_FULL, "edgemeter_edge_slots_full_total", "",                      \
      "Requests in flight without a slot.")                                   \
    X(CELLS_FULL, "edgemeter_edge_cells_full_total", "",                      \
      "Requests recorded one by one because no delta cell was free.")         \
    X(MISSED, "edgemeter_edge_missed_total", "",                              \
      "Requests lost while this worker had no ring.")                         \
    X(EVICTIONS, "edgemeter_edge_zone_evictions_total", "",                   \
      "Ids that had to leave the zone for others.")                           \
    X(LINKS_OPENED, "edgemeter_edge_links_opened_total", "",                  \
      "Connections of rings that meterd answered.")                           \
    X(LINK_FAILURES, "edgemeter_edge_link_failures_total", "",                \
      "Connections of rings that failed or were lost.")                       \
    X(RECOVERED_SLOTS, "edgemeter_edge_recovered_total", "kind=\"slot\"",     \
      "Entries of dead workers that were emitted.")                           \
    X(RECOVERED_CELLS, "edgemeter_edge_recovered_total", "kind=\"cell\"",     \
      "Entries of dead workers that were emitted.")                           \
    X(ADOPTED, "edgemeter_edge_rings_claimed_total", "",                      \
      "Rings taken over from an owner that was gone.")                        \
    X(RESCUED, "edgemeter_edge_rings_rescued_total", "",                      \
      "Alert: rings that were removed in use and put back.")                  \
    X(REWINDS, "edgemeter_edge_ring_rewinds_total", "",                       \
      "Alert: the database held less than a ring was told.")                  \
    X(ROLLBACKS, "edgemeter_edge_ring_rollbacks_total", "",                   \
      "Alert: a ring file was older than what the database held.")            \
    X(HANDLER_NS, "edgemeter_edge_handler_nanoseconds_total", "",             \
      "Time spent on sampled requests.")                                      \
    X(HANDLER_SAMPLES, "edgemeter_edge_handler_samples_total", "",            \
      "Requests whose time was taken, one of 64.")

#define NGX_HTTP_METER_METRIC_ID(id, name, label, help)                       \
    NGX_HTTP_METER_##id,

typedef enum {
    NGX_HTTP_METER_METRICS(NGX_HTTP_METER_METRIC_ID)
    NGX_HTTP_METER_METRIC_COUNT
} ngx_http_meter_metric_e;


/* why a request got no answer from meterd */

typedef enum {
    NGX_HTTP_METER_FINE = 0,
    NGX_HTTP_METER_AWAY,         /* no connection, or closed too early */
    NGX_HTTP_METER_TIMEOUT,      /* connected, but silent */
    NGX_HTTP_METER_PROTOCOL,     /* answered something that is no answer */
    NGX_HTTP_METER_ABORTED       /* the client went away first */
} ngx_http_meter_failure_e;


/* what a location is for */

typedef enum {
    NGX_HTTP_METER_LOC_NONE = 0,
    NGX_HTTP_METER_LOC_API,
    NGX_HTTP_METER_LOC_STATUS
} ngx_http_meter_loc_e;


/* counts of ring files that are no more: totals do not fall with them */

typedef struct {
    ngx_atomic_t                    begun;      /* files being unlinked */
    ngx_atomic_t                    done;       /* ... and added below */
    ngx_atomic_t                    seen;
    ngx_atomic_t                    filtered;
    ngx_atomic_t                    lost;
    ngx_atomic_t                    recorded;
    ngx_atomic_t                    verdicts[METER_VERDICT_COUNT];
} ngx_http_meter_retired_t;


/* what only a worker knows of itself, told every second; by process slot */

typedef struct {
    ngx_atomic_t                    beat;       /* ngx_time() */
    ngx_atomic_t                    pid;
    ngx_atomic_t                    without;    /* needs a ring, has none */
    ngx_atomic_t                    stake;      /* requests in rings gone */
} ngx_http_meter_state_t;


/* lives in the zone */

typedef struct {
    ngx_uint_t                      count;      /* of counters: the layout */
    ngx_atomic_t                    counters[NGX_HTTP_METER_METRIC_COUNT];
    ngx_http_meter_retired_t        retired;
    ngx_http_meter_state_t          workers[NGX_MAX_PROCESSES];
} ngx_http_meter_edge_t;


typedef struct ngx_http_meter_outbox_conf_s  ngx_http_meter_outbox_conf_t;
typedef struct ngx_http_meter_route_s  ngx_http_meter_route_t;


/* one socket of a meterd and the connections this worker keeps to it */

typedef struct ngx_http_meter_mux_s     ngx_http_meter_mux_t;
typedef struct ngx_http_meter_stream_s  ngx_http_meter_stream_t;

typedef struct {
    ngx_addr_t                      addr;
    ngx_http_upstream_srv_conf_t   *upstream;
    ngx_http_meter_mux_t           *mux;        /* NULL: "meter_keepalive 0" */
    ngx_queue_t                     cache;      /* kept, last used first */
    ngx_queue_t                     free;       /* unused items */
} ngx_http_meter_aggregator_t;


typedef struct {
    ngx_array_t                     aggregators;
                                       /* ngx_http_meter_aggregator_t * */
    ngx_int_t                       keepalive;  /* connections, per worker */
    ngx_shm_zone_t                 *zone;
    ngx_http_meter_edge_t          *edge;
    ngx_flag_t                      used;       /* some location is ours */
    ngx_flag_t                      metered;    /* some location is metered */
    ngx_flag_t                      late;       /* ... by late values */
    ngx_http_meter_outbox_conf_t   *outbox;     /* NULL: no "meter_outbox" */
    ngx_msec_t                      drain;      /* copied into it */
    ngx_shm_zone_t                 *dedupe;     /* NULL: no "meter_zone" */
    ngx_str_t                       node;
} ngx_http_meter_main_conf_t;


typedef struct {
    ngx_array_t                     names;      /* ngx_str_t: API locations */
} ngx_http_meter_srv_conf_t;


typedef struct {
    ngx_http_upstream_conf_t        upstream;
    ngx_http_meter_aggregator_t    *aggregator;
    ngx_http_meter_loc_e            loc;
    ngx_str_t                       location;   /* its name, for a part */
    ngx_str_t                       part;       /* "/v1/events", or empty */
    u_char                         *file;       /* where the directive is */
    ngx_uint_t                      line;
    ngx_http_meter_route_t         *route;      /* never NULL */
} ngx_http_meter_loc_conf_t;


typedef struct {
    ngx_http_request_t             *request;
    struct meter_request           *message;
    ngx_http_meter_stream_t        *stream;     /* NULL: not on a mux */
    uint64_t                        number;     /* on one; 0: never there */
    ngx_http_event_handler_pt       read_event_handler;
    ngx_http_meter_failure_e        failure;
    ngx_uint_t                      status;     /* instead of nginx's own */
    ngx_uint_t                      redirect;   /* status with error_page */
    ngx_str_t                       reason;     /* sentence of our own error */
    ngx_str_t                       text;       /* body put first or instead */
    uint64_t                        body_size;  /* of the response */
    unsigned                        answered:1; /* meterd's answer was taken */
    unsigned                        complete:1; /* ... to its last byte */
    unsigned                        metrics:1;  /* path is "/metrics" */
    unsigned                        fresh:1;    /* use no kept connection */
    unsigned                        error_page:1;  /* r->error_page before */
    unsigned                        replace:1;  /* text replaces the body */
    unsigned                        unknown:1;  /* applied, or not */
    unsigned                        full:1;     /* no room on the mux */
} ngx_http_meter_ctx_t;


/* conf: configurations and directives */

void *ngx_http_meter_create_main_conf(ngx_conf_t *cf);
char *ngx_http_meter_init_main_conf(ngx_conf_t *cf, void *conf);
void *ngx_http_meter_create_srv_conf(ngx_conf_t *cf);
void *ngx_http_meter_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_meter_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
char *ngx_http_meter_aggregator(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_meter_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_meter_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_meter_buffer_size(ngx_conf_t *cf, void *post, void *data);

/* api: the content handler; its ctx, made on first use, NULL: no memory */

ngx_int_t ngx_http_meter_api_handler(ngx_http_request_t *r);
ngx_http_meter_ctx_t *ngx_http_meter_get_ctx(ngx_http_request_t *r);

/*
 * api_request: fills in ctx->message; NGX_OK, or a status with ctx->reason.
 * The second makes the chain of framed head and raw body: NGX_OK, NGX_ERROR.
 */

ngx_int_t ngx_http_meter_request_read(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx);
ngx_int_t ngx_http_meter_request_create(ngx_http_request_t *r);

/* api_response: callbacks of the upstream */

ngx_int_t ngx_http_meter_response_process_header(ngx_http_request_t *r);
ngx_int_t ngx_http_meter_response_filter_init(void *data);
ngx_int_t ngx_http_meter_response_filter(void *data, ssize_t bytes);

/* api_peer: set as peer.init_upstream of an aggregator's upstream */

ngx_int_t ngx_http_meter_peer_init_upstream(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *us);
ngx_int_t ngx_http_meter_peer_hush(ngx_connection_t *c);

/* mux: one connection for many requests, opened when it is first needed */

ngx_http_meter_mux_t *ngx_http_meter_mux_create(ngx_conf_t *cf,
    ngx_http_meter_aggregator_t *agg);

/*
 * stream: a request on it. Once its body was read: a number for the frame, or
 * 0 for one that does not go there; full: it would, and there is no room. get
 * gives a connection that is none of the system's, or NULL: the request goes its
 * own way. end is told of each: 1 when not a byte of it was sent.
 */

uint64_t ngx_http_meter_stream_number(ngx_http_request_t *r,
    ngx_http_meter_ctx_t *ctx);
ngx_uint_t ngx_http_meter_stream_full(ngx_http_meter_mux_t *mux,
    ngx_http_meter_ctx_t *ctx);
ngx_connection_t *ngx_http_meter_stream_get(ngx_http_meter_mux_t *mux,
    ngx_http_meter_ctx_t *ctx);
ngx_uint_t ngx_http_meter_stream_end(ngx_http_meter_ctx_t *ctx);

/*
 * error: hooks into the filter chains; the header that every answer of ours
 * carries; one header line, value borrowed.
 */

ngx_int_t ngx_http_meter_error_init(ngx_conf_t *cf);
ngx_int_t ngx_http_meter_add_headers(ngx_http_request_t *r);
ngx_int_t ngx_http_meter_add_header(ngx_http_request_t *r, const char *name,
    ngx_str_t *value);

/* status: the zone, the handlers, and the text with or without meterd */

ngx_int_t ngx_http_meter_status_init(ngx_conf_t *cf);
ngx_int_t ngx_http_meter_status_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_meter_status_render(ngx_http_request_t *r, ngx_uint_t up,
    ngx_str_t *text);
void ngx_http_meter_count(ngx_http_request_t *r,
    ngx_http_meter_metric_e metric, ngx_uint_t n);
/* the same outside of a request */
void ngx_http_meter_count_here(ngx_http_meter_metric_e metric, ngx_uint_t n);


#define NGX_HTTP_METER_KEEPALIVE      64
#define NGX_HTTP_METER_METRICS_TYPE   "text/plain; version=0.0.4"


extern ngx_module_t  ngx_http_meter_module;


#endif /* _NGX_HTTP_METER_H_INCLUDED_ */
