
/*
 * ngx_http_meter_module.c - READ FIRST: directives and where we hook in.
 *
 *   meter_api, meter_status    content handlers       api, status
 *   every answer               header, body filter    error
 *   every request              log phase              status (counters)
 *   meter on                   precontent             admit
 *                              header filter          header_filter
 *                              log phase              log_phase
 *   every worker               start and exit         outbox
 *
 * A meter_api location hands the request to meterd over a unix socket and
 * the answer back: api reads the body and runs nginx's upstream machinery,
 * api_request and api_response speak the frames of shared/, api_peer keeps
 * connections. Nothing here blocks, and nothing is stored.
 *
 * A request of a metered location becomes a record in a ring file before its
 * answer leaves (ngx_http_meter_capture.h has the picture); links carry the
 * records to meterd.
 *
 * The module is an auxiliary filter: its filters run before gzip and the
 * header filter proper, so that what they replace was not encoded yet. The
 * second module, ngx_http_meter_filter_module, runs behind the range filter,
 * where an answer's status is final.
 */


#include "ngx_http_meter_capture.h"


static ngx_int_t ngx_http_meter_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_meter_init_module(ngx_cycle_t *cycle);


#define NGX_HTTP_METER_ROUTE_CONF                                             \
    NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_HTTP_LIF_CONF


static ngx_conf_num_bounds_t  ngx_http_meter_keepalive_bounds = {
    ngx_conf_check_num_bounds, 0, 1024
};


static ngx_conf_post_t  ngx_http_meter_buffer_size_post = {
    ngx_http_meter_buffer_size
};


static ngx_conf_enum_t  ngx_http_meter_captures[] = {
    { ngx_string("event"), NGX_HTTP_METER_CAPTURE_EVENT },
    { ngx_string("delta"), NGX_HTTP_METER_CAPTURE_DELTA },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_meter_overflows[] = {
    { ngx_string("pass"), NGX_HTTP_METER_OVERFLOW_PASS },
    { ngx_string("reject"), NGX_HTTP_METER_OVERFLOW_REJECT },
    { ngx_null_string, 0 }
};


static ngx_command_t  ngx_http_meter_commands[] = {

    { ngx_string("meter_aggregator"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_meter_aggregator,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("meter_api"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS|NGX_CONF_TAKE1,
      ngx_http_meter_api,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("meter_status"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_meter_status,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("meter_keepalive"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_num_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_meter_main_conf_t, keepalive),
      &ngx_http_meter_keepalive_bounds },

    { ngx_string("meter_connect_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_loc_conf_t, upstream.connect_timeout),
      NULL },

    { ngx_string("meter_send_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_loc_conf_t, upstream.send_timeout),
      NULL },

    { ngx_string("meter_read_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_loc_conf_t, upstream.read_timeout),
      NULL },

    { ngx_string("meter_buffer_size"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_size_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_loc_conf_t, upstream.buffer_size),
      &ngx_http_meter_buffer_size_post },

    { ngx_string("meter_outbox"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE23,
      ngx_http_meter_outbox,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("meter_drain_timeout"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_msec_slot,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_meter_main_conf_t, drain),
      NULL },

    { ngx_string("meter_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE2,
      ngx_http_meter_zone,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("meter_node"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_meter_node,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("meter"),
      NGX_HTTP_METER_ROUTE_CONF|NGX_CONF_FLAG,
      ngx_http_meter_enable,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_route_t, enable),
      NULL },

    { ngx_string("meter_event"),
      NGX_HTTP_METER_ROUTE_CONF|NGX_CONF_TAKE1,
      ngx_http_meter_value,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_route_t, event),
      NULL },

    { ngx_string("meter_event_id"),
      NGX_HTTP_METER_ROUTE_CONF|NGX_CONF_TAKE1,
      ngx_http_meter_value,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_route_t, event_id),
      NULL },

    { ngx_string("meter_tenant"),
      NGX_HTTP_METER_ROUTE_CONF|NGX_CONF_TAKE1,
      ngx_http_meter_value,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_route_t, tenant),
      NULL },

    { ngx_string("meter_customer"),
      NGX_HTTP_METER_ROUTE_CONF|NGX_CONF_TAKE1,
      ngx_http_meter_value,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_route_t, customer),
      NULL },

    { ngx_string("meter_resource"),
      NGX_HTTP_METER_ROUTE_CONF|NGX_CONF_TAKE1,
      ngx_http_meter_value,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_route_t, resource),
      NULL },

    { ngx_string("meter_quantity"),
      NGX_HTTP_METER_ROUTE_CONF|NGX_CONF_TAKE12,
      ngx_http_meter_value,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_route_t, quantity),
      NULL },

    { ngx_string("meter_attribute"),
      NGX_HTTP_METER_ROUTE_CONF|NGX_CONF_TAKE2,
      ngx_http_meter_attribute,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("meter_if"),
      NGX_HTTP_METER_ROUTE_CONF|NGX_CONF_TAKE1,
      ngx_http_meter_value,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_route_t, filter),
      NULL },

    { ngx_string("meter_capture"),
      NGX_HTTP_METER_ROUTE_CONF|NGX_CONF_TAKE1,
      ngx_http_meter_choice,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_route_t, capture),
      &ngx_http_meter_captures },

    { ngx_string("meter_overflow"),
      NGX_HTTP_METER_ROUTE_CONF|NGX_CONF_TAKE1,
      ngx_http_meter_choice,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_meter_route_t, overflow),
      &ngx_http_meter_overflows },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_meter_module_ctx = {
    ngx_http_meter_variable_init,          /* preconfiguration */
    ngx_http_meter_init,                   /* postconfiguration */

    ngx_http_meter_create_main_conf,       /* create main configuration */
    ngx_http_meter_init_main_conf,         /* init main configuration */

    ngx_http_meter_create_srv_conf,        /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_meter_create_loc_conf,        /* create location configuration */
    ngx_http_meter_merge_loc_conf          /* merge location configuration */
};


ngx_module_t  ngx_http_meter_module = {
    NGX_MODULE_V1,
    &ngx_http_meter_module_ctx,            /* module context */
    ngx_http_meter_commands,               /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_meter_init_module,            /* init module */
    ngx_http_meter_outbox_init_process,    /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_meter_outbox_exit_process,    /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_meter_init(ngx_conf_t *cf)
{
    ngx_http_meter_main_conf_t    *mmcf;
    ngx_http_meter_aggregator_t  **aggp;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_meter_module);

    if (!mmcf->used && mmcf->outbox == NULL && mmcf->dedupe == NULL) {
        return NGX_OK;
    }

    if (ngx_http_meter_status_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (mmcf->used && ngx_http_meter_error_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_meter_zone_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    /* rings of locations that are metered no more still have to be drained */

    if (mmcf->outbox && mmcf->outbox->aggregator == NULL
        && mmcf->aggregators.nelts == 1)
    {
        aggp = mmcf->aggregators.elts;
        mmcf->outbox->aggregator = aggp[0];
    }

    if (!mmcf->metered) {
        return NGX_OK;
    }

    if (mmcf->late && ngx_http_meter_capture_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_meter_admit_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_meter_log_init(cf);
}


static ngx_int_t
ngx_http_meter_init_module(ngx_cycle_t *cycle)
{
    if (ngx_http_meter_crash_init(cycle) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_meter_outbox_init_module(cycle);
}
