
/*
 * ngx_http_meter_conf.c - configurations and the directives' own setters.
 *
 * A mistake is told by "nginx -t" with the file and line of the directive
 * that made it. Nothing is opened here: a meterd that is away is no error.
 */


#include "ngx_http_meter_capture.h"


#define NGX_HTTP_METER_BUFFER_SIZE_MIN  1024
#define NGX_HTTP_METER_DRAIN            5000


static ngx_http_meter_aggregator_t *ngx_http_meter_aggregator_add(
    ngx_conf_t *cf, ngx_str_t *url);
static char *ngx_http_meter_api_part(ngx_conf_t *cf,
    ngx_http_meter_loc_conf_t *mlcf, ngx_str_t *part);
static char *ngx_http_meter_claim(ngx_conf_t *cf,
    ngx_http_meter_loc_conf_t *mlcf, ngx_http_meter_loc_e loc);


/* the parts of the API that a location may serve alone */

static ngx_str_t  ngx_http_meter_parts[] = {
    ngx_string("/v1/adjustments"),
    ngx_string("/v1/counters"),
    ngx_string("/v1/events"),
    ngx_string("/v1/query"),
    ngx_string("/v1/search"),
    ngx_string("/v1/series"),
    ngx_string("/v1/tenants"),
    ngx_string("/v1/usage"),
    ngx_null_string
};


void *
ngx_http_meter_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_meter_main_conf_t));
    if (mmcf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     mmcf->zone = NULL;
     *     mmcf->edge = NULL;
     *     mmcf->used = 0;
     *     mmcf->metered = 0;
     *     mmcf->late = 0;
     *     mmcf->outbox = NULL;
     *     mmcf->dedupe = NULL;
     *     mmcf->node = { 0, NULL };
     */

    if (ngx_array_init(&mmcf->aggregators, cf->pool, 1,
                       sizeof(ngx_http_meter_aggregator_t *))
        != NGX_OK)
    {
        return NULL;
    }

    mmcf->keepalive = NGX_CONF_UNSET;
    mmcf->drain = NGX_CONF_UNSET_MSEC;

    return mmcf;
}


char *
ngx_http_meter_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_meter_main_conf_t  *mmcf = conf;

    ngx_conf_init_value(mmcf->keepalive, NGX_HTTP_METER_KEEPALIVE);
    ngx_conf_init_msec_value(mmcf->drain, NGX_HTTP_METER_DRAIN);

    if (mmcf->node.len == 0) {
        mmcf->node = cf->cycle->hostname;
    }

    if (mmcf->outbox) {
        mmcf->outbox->drain = mmcf->drain;
    }

    return NGX_CONF_OK;
}


void *
ngx_http_meter_create_srv_conf(ngx_conf_t *cf)
{
    ngx_http_meter_srv_conf_t  *mscf;

    mscf = ngx_pcalloc(cf->pool, sizeof(ngx_http_meter_srv_conf_t));
    if (mscf == NULL) {
        return NULL;
    }

    if (ngx_array_init(&mscf->names, cf->pool, 4, sizeof(ngx_str_t))
        != NGX_OK)
    {
        return NULL;
    }

    return mscf;
}


void *
ngx_http_meter_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_meter_loc_conf_t  *mlcf;

    mlcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_meter_loc_conf_t));
    if (mlcf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     mlcf->loc = NGX_HTTP_METER_LOC_NONE;
     *     mlcf->location = { 0, NULL };
     *     mlcf->part = { 0, NULL };
     *     mlcf->upstream.bufs.num = 0;
     *     mlcf->upstream.temp_path = NULL;
     */

    mlcf->route = ngx_pcalloc(cf->pool, sizeof(ngx_http_meter_route_t));
    if (mlcf->route == NULL) {
        return NULL;
    }

    ngx_http_meter_route_create(mlcf->route);

    mlcf->aggregator = NGX_CONF_UNSET_PTR;

    mlcf->upstream.connect_timeout = NGX_CONF_UNSET_MSEC;
    mlcf->upstream.send_timeout = NGX_CONF_UNSET_MSEC;
    mlcf->upstream.read_timeout = NGX_CONF_UNSET_MSEC;
    mlcf->upstream.buffer_size = NGX_CONF_UNSET_SIZE;

    /*
     * the hardcoded values: answers are streamed through one buffer, and a
     * second try is for a kept connection that turns out to be closed only
     * (see api_peer)
     */

    mlcf->upstream.next_upstream = NGX_HTTP_UPSTREAM_FT_ERROR
                                   |NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT;
    mlcf->upstream.buffering = 0;
    mlcf->upstream.ignore_client_abort = 0;
    mlcf->upstream.intercept_errors = 0;
    mlcf->upstream.pass_request_headers = 0;
    mlcf->upstream.pass_request_body = 0;

    return mlcf;
}


char *
ngx_http_meter_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_meter_loc_conf_t  *prev = parent;
    ngx_http_meter_loc_conf_t  *conf = child;

    ngx_http_core_loc_conf_t  *clcf;

    ngx_conf_merge_ptr_value(conf->aggregator, prev->aggregator, NULL);

    ngx_conf_merge_msec_value(conf->upstream.connect_timeout,
                              prev->upstream.connect_timeout, 1000);

    ngx_conf_merge_msec_value(conf->upstream.send_timeout,
                              prev->upstream.send_timeout, 10000);

    ngx_conf_merge_msec_value(conf->upstream.read_timeout,
                              prev->upstream.read_timeout, 30000);

    ngx_conf_merge_size_value(conf->upstream.buffer_size,
                              prev->upstream.buffer_size, 16384);

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    /* "if" and "limit_except" inside a location of ours */

    if (clcf->noname && conf->loc == NGX_HTTP_METER_LOC_NONE) {
        conf->loc = prev->loc;
        conf->location = prev->location;
        conf->part = prev->part;
        conf->file = prev->file;
        conf->line = prev->line;

        if (clcf->lmt_excpt && clcf->handler == NULL) {

            if (conf->loc == NGX_HTTP_METER_LOC_API) {
                clcf->handler = ngx_http_meter_api_handler;

            } else if (conf->loc == NGX_HTTP_METER_LOC_STATUS) {
                clcf->handler = ngx_http_meter_status_handler;
            }
        }
    }

    if (conf->aggregator) {
        conf->upstream.upstream = conf->aggregator->upstream;

    } else if (conf->loc == NGX_HTTP_METER_LOC_API) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "no \"meter_aggregator\" is given for the "
                      "\"meter_api\" directive in %s:%ui",
                      conf->file, conf->line);
        return NGX_CONF_ERROR;
    }

    return ngx_http_meter_route_merge(cf, prev, conf);
}


char *
ngx_http_meter_aggregator(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_meter_loc_conf_t  *mlcf = conf;

    ngx_str_t  *value, path;

    if (mlcf->aggregator != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (value[1].len < 5 || ngx_strncmp(value[1].data, "unix:", 5) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"meter_aggregator\" is no unix domain "
                           "socket, it must be \"unix:PATH\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    path.data = value[1].data + 5;
    path.len = value[1].len - 5;

    if (path.len == 0 || path.data[0] != '/') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the path in \"%V\" in \"meter_aggregator\" "
                           "must start with \"/\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (path.len > sizeof(((struct sockaddr_un *) 0)->sun_path) - 1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the path in \"%V\" in \"meter_aggregator\" "
                           "is longer than %uz bytes", &value[1],
                           sizeof(((struct sockaddr_un *) 0)->sun_path) - 1);
        return NGX_CONF_ERROR;
    }

    mlcf->aggregator = ngx_http_meter_aggregator_add(cf, &value[1]);
    if (mlcf->aggregator == NULL) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/*
 * Locations that name the same socket share its connections. The upstream
 * has the whole "unix:PATH" as its name, which no proxy_pass can hit.
 */

static ngx_http_meter_aggregator_t *
ngx_http_meter_aggregator_add(ngx_conf_t *cf, ngx_str_t *url)
{
    ngx_url_t                      u;
    ngx_uint_t                     i;
    ngx_http_meter_main_conf_t    *mmcf;
    ngx_http_meter_aggregator_t   *agg, **aggp;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_meter_module);

    aggp = mmcf->aggregators.elts;

    for (i = 0; i < mmcf->aggregators.nelts; i++) {
        if (aggp[i]->addr.name.len == url->len
            && ngx_strncmp(aggp[i]->addr.name.data, url->data, url->len) == 0)
        {
            return aggp[i];
        }
    }

    agg = ngx_pcalloc(cf->pool, sizeof(ngx_http_meter_aggregator_t));
    if (agg == NULL) {
        return NULL;
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = *url;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%s in \"meter_aggregator\" \"%V\"",
                           u.err ? u.err : "no memory", url);
        return NULL;
    }

    agg->addr = u.addrs[0];
    agg->addr.name = *url;

    u.host = *url;
    u.naddrs = 0;
    u.no_port = 1;

    agg->upstream = ngx_http_upstream_add(cf, &u, NGX_HTTP_UPSTREAM_CREATE);
    if (agg->upstream == NULL) {
        return NULL;
    }

    agg->upstream->peer.init_upstream = ngx_http_meter_peer_init_upstream;
    agg->upstream->peer.data = agg;

    aggp = ngx_array_push(&mmcf->aggregators);
    if (aggp == NULL) {
        return NULL;
    }

    *aggp = agg;

    return agg;
}


char *
ngx_http_meter_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_meter_loc_conf_t  *mlcf = conf;

    char                       *rv;
    ngx_str_t                  *value, *name;
    ngx_http_core_loc_conf_t   *clcf;
    ngx_http_meter_srv_conf_t  *mscf;

    rv = ngx_http_meter_claim(cf, mlcf, NGX_HTTP_METER_LOC_API);

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    clcf->handler = ngx_http_meter_api_handler;

    if (cf->args->nelts == 2) {
        value = cf->args->elts;

        rv = ngx_http_meter_api_part(cf, mlcf, &value[1]);

        if (rv != NGX_CONF_OK) {
            return rv;
        }
    }

#if (NGX_PCRE)
    if (clcf->regex) {
        return NGX_CONF_OK;
    }
#endif

    if (clcf->named) {
        return NGX_CONF_OK;
    }

    mscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_meter_module);

    name = ngx_array_push(&mscf->names);
    if (name == NULL) {
        return NGX_CONF_ERROR;
    }

    *name = clcf->name;

    return NGX_CONF_OK;
}


static char *
ngx_http_meter_api_part(ngx_conf_t *cf, ngx_http_meter_loc_conf_t *mlcf,
    ngx_str_t *part)
{
    size_t                     skip;
    ngx_str_t                 *known;
    ngx_uint_t                 regex;
    ngx_http_core_loc_conf_t  *clcf;

    skip = sizeof("/v1/") - 1;

    for (known = ngx_http_meter_parts; known->len; known++) {
        if (known->len - skip == part->len
            && ngx_strncmp(known->data + skip, part->data, part->len) == 0)
        {
            break;
        }
    }

    if (known->len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "unknown part \"%V\" in \"meter_api\", it must be "
                           "adjustments, counters, events, query, search, "
                           "series, tenants or usage", part);
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    regex = 0;

#if (NGX_PCRE)
    regex = (clcf->regex != NULL);
#endif

    if (clcf->named || regex) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"meter_api\" cannot have a part in location "
                           "given by regular expression or inside named "
                           "location");
        return NGX_CONF_ERROR;
    }

    mlcf->part = *known;
    mlcf->location = clcf->name;

    return NGX_CONF_OK;
}


char *
ngx_http_meter_status(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_meter_loc_conf_t  *mlcf = conf;

    char                      *rv;
    ngx_http_core_loc_conf_t  *clcf;

    rv = ngx_http_meter_claim(cf, mlcf, NGX_HTTP_METER_LOC_STATUS);

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    clcf->handler = ngx_http_meter_status_handler;

    return NGX_CONF_OK;
}


char *
ngx_http_meter_buffer_size(ngx_conf_t *cf, void *post, void *data)
{
    size_t  *size = data;

    if (*size < NGX_HTTP_METER_BUFFER_SIZE_MIN) {
        return "must be at least 1k";
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_meter_claim(ngx_conf_t *cf, ngx_http_meter_loc_conf_t *mlcf,
    ngx_http_meter_loc_e loc)
{
    ngx_http_meter_main_conf_t  *mmcf;

    if (mlcf->loc == loc) {
        return "is duplicate";
    }

    if (mlcf->loc != NGX_HTTP_METER_LOC_NONE) {
        return loc == NGX_HTTP_METER_LOC_API
               ? "conflicts with \"meter_status\" in the same location"
               : "conflicts with \"meter_api\" in the same location";
    }

    mlcf->loc = loc;
    mlcf->file = cf->conf_file->file.name.data;
    mlcf->line = cf->conf_file->line;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_meter_module);

    mmcf->used = 1;

    return NGX_CONF_OK;
}
