
/*
 * ngx_http_meter_mux.h - the mux, and the streams on it.
 */


#ifndef _NGX_HTTP_METER_MUX_H_INCLUDED_
#define _NGX_HTTP_METER_MUX_H_INCLUDED_


#include "ngx_http_meter.h"


#define NGX_HTTP_METER_MUX_BUCKETS  1024

/* bytes that meterd does not read: further requests are refused */

#define NGX_HTTP_METER_MUX_HOLD     (4 * 1024 * 1024)


typedef enum {
    NGX_HTTP_METER_MUX_CLOSED = 0,
    NGX_HTTP_METER_MUX_CONNECTING,
    NGX_HTTP_METER_MUX_ASKING,
    NGX_HTTP_METER_MUX_OPEN,
    NGX_HTTP_METER_MUX_LEAVING
} ngx_http_meter_mux_state_e;


typedef struct {
    u_char                         *data;
    size_t                          pos;        /* of the first byte */
    size_t                          last;
    size_t                          room;
} ngx_http_meter_bytes_t;


struct ngx_http_meter_mux_s {
    ngx_http_meter_aggregator_t    *aggregator;
    ngx_http_meter_mux_state_e      state;
    ngx_msec_t                      again;      /* not before, when CLOSED */
    unsigned                        tried:1;
    ngx_peer_connection_t           peer;
    ngx_event_t                     turn;       /* posted: bytes to send */

    ngx_http_meter_bytes_t          out;
    ngx_http_meter_bytes_t          in;
    uint64_t                        given;      /* bytes, to out */
    uint64_t                        sent;       /* ... and from there */

    ngx_uint_t                      count;      /* streams without answer */
    ngx_http_meter_stream_t        *streams[NGX_HTTP_METER_MUX_BUCKETS];
};


struct ngx_http_meter_stream_s {
    ngx_connection_t                connection; /* first: the two are cast */
    ngx_event_t                     read;
    ngx_event_t                     write;
    ngx_http_meter_mux_t           *mux;        /* NULL: answered, or lost */
    ngx_http_meter_ctx_t           *ctx;
    ngx_http_meter_stream_t        *next;       /* of the same bucket */
    uint64_t                        begin;      /* in mux->given */
    u_char                         *pos;        /* of the answer */
    u_char                         *last;
    unsigned                        lost:1;
    unsigned                        unsent:1;
};


/* bytes: makes room for size more; gives all of it back */

ngx_int_t ngx_http_meter_bytes_reserve(ngx_http_meter_bytes_t *bytes,
    size_t size);
void ngx_http_meter_bytes_free(ngx_http_meter_bytes_t *bytes);

/* mux: a frame without payload; begins to connect, unless it may not yet */

ngx_int_t ngx_http_meter_mux_put(ngx_http_meter_mux_t *mux,
    ngx_uint_t type, uint64_t number);
void ngx_http_meter_mux_open(ngx_http_meter_mux_t *mux);

/* stream: where one is in the table, or would be; out of it */

ngx_http_meter_stream_t **ngx_http_meter_stream_find(
    ngx_http_meter_mux_t *mux, uint64_t number);
void ngx_http_meter_stream_unlink(ngx_http_meter_mux_t *mux,
    ngx_http_meter_stream_t **at);


#endif /* _NGX_HTTP_METER_MUX_H_INCLUDED_ */
