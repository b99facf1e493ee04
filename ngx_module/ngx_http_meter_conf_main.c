
/*
 * ngx_http_meter_conf_main.c - what all metered locations share.
 *
 *   meter_outbox, meter_zone, meter_node -> [main conf] -> outbox, zone, link
 *
 * Checked here, made later: the directory and its rings by the workers, the
 * zone's memory by nginx. "nginx -t" touches neither.
 */


#include "ngx_http_meter_capture.h"


#define NGX_HTTP_METER_ZONE_SIZE_MIN  32768
#define NGX_HTTP_METER_FILES_MIN      8
#define NGX_HTTP_METER_FILES_MAX      4096


static ngx_int_t ngx_http_meter_outbox_files(ngx_conf_t *cf,
    ngx_str_t *value);
static ngx_uint_t ngx_http_meter_is_name(ngx_str_t *text);


char *
ngx_http_meter_outbox(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_meter_main_conf_t  *mmcf = conf;

    off_t                          size;
    ngx_int_t                      files;
    ngx_str_t                     *value, path;
    ngx_http_meter_outbox_conf_t  *outbox;

    if (mmcf->outbox) {
        return "is duplicate";
    }

    value = cf->args->elts;
    path = value[1];

    if (path.len == 0) {
        return "must have a path";
    }

    if (ngx_conf_full_name(cf->cycle, &path, 0) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    size = ngx_parse_offset(&value[2]);

    if (size == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid size \"%V\" in \"meter_outbox\"",
                           &value[2]);
        return NGX_CONF_ERROR;
    }

    if (size < (off_t) METER_OUTBOX_SIZE_MIN
        || size > (off_t) METER_OUTBOX_SIZE_MAX)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the size \"%V\" in \"meter_outbox\" must be "
                           "between %uik and %uig", &value[2],
                           (ngx_uint_t) METER_OUTBOX_SIZE_MIN >> 10,
                           (ngx_uint_t) METER_OUTBOX_SIZE_MAX >> 30);
        return NGX_CONF_ERROR;
    }

    files = 0;

    if (cf->args->nelts > 3) {
        files = ngx_http_meter_outbox_files(cf, &value[3]);

        if (files == NGX_ERROR) {
            return NGX_CONF_ERROR;
        }
    }

    outbox = ngx_pcalloc(cf->pool, sizeof(ngx_http_meter_outbox_conf_t));
    if (outbox == NULL) {
        return NGX_CONF_ERROR;
    }

    outbox->path = path;
    outbox->size = size;
    outbox->files = files;

    mmcf->outbox = outbox;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_meter_outbox_files(ngx_conf_t *cf, ngx_str_t *value)
{
    size_t     len;
    ngx_int_t  n;

    len = sizeof("files=") - 1;

    if (value->len < len || ngx_strncmp(value->data, "files=", len) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\" in \"meter_outbox\"",
                           value);
        return NGX_ERROR;
    }

    n = ngx_atoi(value->data + len, value->len - len);

    if (n < NGX_HTTP_METER_FILES_MIN || n > NGX_HTTP_METER_FILES_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" in \"meter_outbox\" must be between %d "
                           "and %d", value, NGX_HTTP_METER_FILES_MIN,
                           NGX_HTTP_METER_FILES_MAX);
        return NGX_ERROR;
    }

    return n;
}


char *
ngx_http_meter_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_meter_main_conf_t  *mmcf = conf;

    ssize_t     size;
    ngx_str_t  *value;

    if (mmcf->dedupe) {
        return "is duplicate";
    }

    value = cf->args->elts;

    /* the counters' zone, see ngx_http_meter_status_init() */

    if (!ngx_http_meter_is_name(&value[1])
        || ngx_strcmp(value[1].data, "ngx_http_meter") == 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid name \"%V\" in \"meter_zone\"",
                           &value[1]);
        return NGX_CONF_ERROR;
    }

    size = ngx_parse_size(&value[2]);

    if (size == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid size \"%V\" in \"meter_zone\"",
                           &value[2]);
        return NGX_CONF_ERROR;
    }

    if (size < NGX_HTTP_METER_ZONE_SIZE_MIN) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the size \"%V\" in \"meter_zone\" must be at "
                           "least 32k", &value[2]);
        return NGX_CONF_ERROR;
    }

    mmcf->dedupe = ngx_shared_memory_add(cf, &value[1], size,
                                         &ngx_http_meter_module);
    if (mmcf->dedupe == NULL) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_meter_node(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_meter_main_conf_t  *mmcf = conf;

    ngx_str_t  *value;

    if (mmcf->node.len) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (!ngx_http_meter_is_name(&value[1])) {
        return "must have a UTF-8 name of 1 to 255 bytes";
    }

    mmcf->node = value[1];

    return NGX_CONF_OK;
}


static ngx_uint_t
ngx_http_meter_is_name(ngx_str_t *text)
{
    struct meter_str  name;

    name.data = (const char *) text->data;
    name.size = text->len;

    return name.size && name.size <= METER_NAME_SIZE_MAX
           && meter_utf8_valid(name);
}
