
/*
 * ngx_http_meter_status.c - what the edge counts, and the page that tells.
 *
 *   log phase, api, api_peer -> counters in the zone -> Prometheus text
 *
 * The zone holds one array of atomic counters that all workers share; it
 * survives a reload. What the ring files count is in status_rings. The page
 * asks meterd for its metrics, and puts the edge's in front; without meterd
 * the edge's part is the whole answer, with edgemeter_aggregator_up 0 (see
 * api_response and error).
 */


#include "ngx_http_meter_ring.h"


typedef struct {
    const char  *name;
    const char  *label;
    const char  *help;
} ngx_http_meter_metric_t;


static ngx_int_t ngx_http_meter_status_init_zone(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_int_t ngx_http_meter_status_log_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_meter_status_send(ngx_http_request_t *r);


#define NGX_HTTP_METER_METRIC_ROW(id, name, label, help)                      \
    { name, label, help },

static ngx_http_meter_metric_t  ngx_http_meter_metrics[] = {
    NGX_HTTP_METER_METRICS(NGX_HTTP_METER_METRIC_ROW)
    { NULL, NULL, NULL }
};


static ngx_str_t  ngx_http_meter_zone_name = ngx_string("ngx_http_meter");

static const char  ngx_http_meter_up[] =
    "# HELP edgemeter_aggregator_up Whether the aggregator answered with its "
    "metrics.\n"
    "# TYPE edgemeter_aggregator_up gauge\n"
    "edgemeter_aggregator_up ";


ngx_int_t
ngx_http_meter_status_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt         *h;
    ngx_http_core_main_conf_t   *cmcf;
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_meter_module);

    mmcf->zone = ngx_shared_memory_add(cf, &ngx_http_meter_zone_name,
                                       24 * ngx_pagesize,
                                       &ngx_http_meter_module);
    if (mmcf->zone == NULL) {
        return NGX_ERROR;
    }

    mmcf->zone->init = ngx_http_meter_status_init_zone;
    mmcf->zone->data = mmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_LOG_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_meter_status_log_handler;

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_status_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_http_meter_main_conf_t  *old = data;

    ngx_slab_pool_t             *shpool;
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = shm_zone->data;
    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    /* here, since an error after this would end a master that reloads */

    if (mmcf->outbox && !ngx_test_config
        && ngx_http_meter_dir_prepare(mmcf->outbox, shm_zone->shm.log)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (old) {
        mmcf->edge = old->edge;

    } else if (shm_zone->shm.exists) {
        mmcf->edge = shpool->data;

    } else {
        mmcf->edge = ngx_slab_calloc(shpool, sizeof(ngx_http_meter_edge_t));
        if (mmcf->edge == NULL) {
            return NGX_ERROR;
        }

        mmcf->edge->count = NGX_HTTP_METER_METRIC_COUNT;

        shpool->data = mmcf->edge;

        return NGX_OK;
    }

    if (mmcf->edge->count != NGX_HTTP_METER_METRIC_COUNT) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "zone \"%V\" was made by another version of the module "
                      "with %ui counters, restart nginx instead of reloading",
                      &shm_zone->shm.name, mmcf->edge->count);
        return NGX_ERROR;
    }

    return NGX_OK;
}


void
ngx_http_meter_count(ngx_http_request_t *r, ngx_http_meter_metric_e metric,
    ngx_uint_t n)
{
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_meter_module);

    (void) ngx_atomic_fetch_add(&mmcf->edge->counters[metric], n);
}


void
ngx_http_meter_count_here(ngx_http_meter_metric_e metric, ngx_uint_t n)
{
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_http_meter_outbox_main_conf();

    if (mmcf) {
        (void) ngx_atomic_fetch_add(&mmcf->edge->counters[metric], n);
    }
}


static ngx_int_t
ngx_http_meter_status_log_handler(ngx_http_request_t *r)
{
    ngx_uint_t                  status, class;
    ngx_http_meter_loc_conf_t  *mlcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_meter_module);

    if (mlcf->loc == NGX_HTTP_METER_LOC_NONE) {
        return NGX_OK;
    }

    status = r->err_status ? r->err_status : r->headers_out.status;
    class = status / 100;

    if (class >= 1 && class <= 5) {
        ngx_http_meter_count(r, NGX_HTTP_METER_REQUESTS_1XX + class - 1, 1);
    }

    ngx_http_meter_count(r, NGX_HTTP_METER_RECEIVED_BYTES, r->request_length);
    ngx_http_meter_count(r, NGX_HTTP_METER_SENT_BYTES, r->connection->sent);

    return NGX_OK;
}


ngx_int_t
ngx_http_meter_status_handler(ngx_http_request_t *r)
{
    ngx_int_t                   rc;
    ngx_str_t                   allow;
    ngx_http_meter_loc_conf_t  *mlcf;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        ngx_str_set(&allow, "GET, HEAD");

        if (ngx_http_meter_add_header(r, "Allow", &allow) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        return NGX_HTTP_NOT_ALLOWED;
    }

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_meter_module);

    if (mlcf->aggregator) {
        return ngx_http_meter_api_handler(r);
    }

    rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }

    return ngx_http_meter_status_send(r);
}


/* a location without "meter_aggregator": the edge's part alone */

static ngx_int_t
ngx_http_meter_status_send(ngx_http_request_t *r)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_str_t     text;
    ngx_chain_t   out;

    if (ngx_http_meter_status_render(r, 0, &text) != NGX_OK
        || ngx_http_meter_add_headers(r) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_str_set(&r->headers_out.content_type, NGX_HTTP_METER_METRICS_TYPE);
    r->headers_out.content_type_len = sizeof("text/plain") - 1;
    r->headers_out.content_type_lowcase = NULL;

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = text.len;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->memory = 1;
    b->pos = text.data;
    b->last = text.data + text.len;
    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


ngx_int_t
ngx_http_meter_status_render(ngx_http_request_t *r, ngx_uint_t up,
    ngx_str_t *text)
{
    u_char                      *p;
    size_t                       size;
    const char                  *name;
    ngx_uint_t                   i;
    ngx_http_meter_metric_t     *m;
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_http_get_module_main_conf(r, ngx_http_meter_module);

    size = sizeof(ngx_http_meter_up) - 1 + sizeof("1\n") - 1
           + NGX_HTTP_METER_STATUS_RINGS_SIZE;

    for (m = ngx_http_meter_metrics; m->name; m++) {
        size += sizeof("# HELP  \n# TYPE  counter\n{} \n") + NGX_ATOMIC_T_LEN
                + 3 * ngx_strlen(m->name)
                + ngx_strlen(m->label) + ngx_strlen(m->help);
    }

    p = ngx_pnalloc(r->pool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text->data = p;
    name = "";

    for (i = 0; i < NGX_HTTP_METER_METRIC_COUNT; i++) {
        m = &ngx_http_meter_metrics[i];

        if (ngx_strcmp(m->name, name) != 0) {
            name = m->name;
            p = ngx_sprintf(p, "# HELP %s %s\n# TYPE %s counter\n",
                            m->name, m->help, m->name);
        }

        p = ngx_sprintf(p, m->label[0] ? "%s{%s} %uA\n" : "%s%s %uA\n",
                        m->name, m->label, mmcf->edge->counters[i]);
    }

    p = ngx_http_meter_status_rings(r, p);

    p = ngx_cpymem(p, ngx_http_meter_up, sizeof(ngx_http_meter_up) - 1);

    *p++ = up ? '1' : '0';
    *p++ = LF;

    text->len = p - text->data;

    return NGX_OK;
}
