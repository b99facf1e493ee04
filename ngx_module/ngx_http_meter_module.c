
/*
 * ngx_http_meter_module.c - READ FIRST: directives and where we hook in.
 *
 *   meter_api, meter_status    content handlers       api, status
 *   every answer               header, body filter    error
 *   every request              log phase              status (counters)
 *
 * A meter_api location hands the request to meterd over a unix socket and
 * the answer back: api reads the body and runs nginx's upstream machinery,
 * api_request and api_response speak the frames of shared/, api_peer keeps
 * connections. Nothing here blocks, and nothing is stored.
 *
 * The module is an auxiliary filter: its filters run before gzip and the
 * header filter proper, so that what they replace was not encoded yet.
 */


#include "ngx_http_meter.h"


static ngx_int_t ngx_http_meter_init(ngx_conf_t *cf);


static ngx_conf_num_bounds_t  ngx_http_meter_keepalive_bounds = {
    ngx_conf_check_num_bounds, 0, 1024
};


static ngx_conf_post_t  ngx_http_meter_buffer_size_post = {
    ngx_http_meter_buffer_size
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

      ngx_null_command
};


static ngx_http_module_t  ngx_http_meter_module_ctx = {
    NULL,                                  /* preconfiguration */
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
    NULL,                                  /* init module */
    NULL,                                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    NULL,                                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_meter_init(ngx_conf_t *cf)
{
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_meter_module);

    if (!mmcf->used) {
        return NGX_OK;
    }

    if (ngx_http_meter_status_init(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_meter_error_init(cf);
}
