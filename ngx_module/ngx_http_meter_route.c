
/*
 * ngx_http_meter_route.c - the directives of a metered location.
 *
 *   nginx.conf -> [route] -> admit, header_filter, event, record
 *
 * A mistake is told by "nginx -t": in a value with the line of its own
 * directive, in what is missing or contradicts with the line of "meter on".
 * What a request needs to know is worked out here, once.
 */


#include "ngx_http_meter_capture.h"


/* what may be in a value that has no variables */

typedef struct {
    size_t       offset;     /* in the route */
    size_t       size_max;   /* 0: any */
    unsigned     optional:1; /* "off" takes it away, and it may be empty */
    unsigned     decimal:1;
} ngx_http_meter_rule_t;


static ngx_int_t ngx_http_meter_value_compile(ngx_conf_t *cf,
    ngx_str_t *text, ngx_http_meter_value_t *value);
static ngx_http_meter_rule_t *ngx_http_meter_rule(size_t offset);
static char *ngx_http_meter_rule_check(ngx_conf_t *cf,
    ngx_http_meter_rule_t *rule, ngx_str_t *value);
static char *ngx_http_meter_route_inherit(ngx_conf_t *cf,
    ngx_http_meter_loc_conf_t *prev, ngx_http_meter_loc_conf_t *conf);
static char *ngx_http_meter_route_complete(ngx_conf_t *cf,
    ngx_http_meter_loc_conf_t *conf);
static char *ngx_http_meter_route_missing(ngx_conf_t *cf,
    ngx_http_meter_route_t *route, const char *name);
static char *ngx_http_meter_route_aggregator(ngx_conf_t *cf,
    ngx_http_meter_loc_conf_t *conf);
static ngx_uint_t ngx_http_meter_route_final(ngx_conf_t *cf,
    ngx_http_meter_route_t *route);
static ngx_uint_t ngx_http_meter_value_late(ngx_conf_t *cf,
    ngx_http_meter_value_t *value);


#define ngx_http_meter_route_offset(field)                                    \
    offsetof(ngx_http_meter_route_t, field)


static ngx_http_meter_rule_t  ngx_http_meter_rules[] = {
    { ngx_http_meter_route_offset(event), METER_TYPE_SIZE_MAX, 0, 0 },
    { ngx_http_meter_route_offset(event_id), METER_EVENT_ID_SIZE_MAX, 1, 0 },
    { ngx_http_meter_route_offset(tenant), METER_TENANT_SIZE_MAX, 0, 0 },
    { ngx_http_meter_route_offset(customer), METER_CUSTOMER_SIZE_MAX, 1, 0 },
    { ngx_http_meter_route_offset(resource), METER_RESOURCE_SIZE_MAX, 1, 0 },
    { ngx_http_meter_route_offset(quantity), 0, 1, 1 },
    { ngx_http_meter_route_offset(filter), 0, 1, 0 }
};


void
ngx_http_meter_route_create(ngx_http_meter_route_t *route)
{
    route->enable = NGX_CONF_UNSET;
    route->event = NGX_CONF_UNSET_PTR;
    route->event_id = NGX_CONF_UNSET_PTR;
    route->tenant = NGX_CONF_UNSET_PTR;
    route->customer = NGX_CONF_UNSET_PTR;
    route->resource = NGX_CONF_UNSET_PTR;
    route->quantity = NGX_CONF_UNSET_PTR;
    route->filter = NGX_CONF_UNSET_PTR;
    route->attributes = NGX_CONF_UNSET_PTR;
    route->capture = NGX_CONF_UNSET_UINT;
    route->overflow = NGX_CONF_UNSET_UINT;
    route->final = 0;
    route->file = NULL;
    route->line = 0;
}


char *
ngx_http_meter_enable(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_meter_loc_conf_t  *mlcf = conf;

    mlcf->route->file = cf->conf_file->file.name.data;
    mlcf->route->line = cf->conf_file->line;

    return ngx_conf_set_flag_slot(cf, cmd, mlcf->route);
}


char *
ngx_http_meter_choice(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_meter_loc_conf_t  *mlcf = conf;

    return ngx_conf_set_enum_slot(cf, cmd, mlcf->route);
}


char *
ngx_http_meter_value(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_meter_loc_conf_t  *mlcf = conf;

    u_char                   *p;
    ngx_str_t                *value;
    ngx_http_meter_rule_t    *rule;
    ngx_http_meter_value_t  **mv;

    p = (u_char *) mlcf->route;
    mv = (ngx_http_meter_value_t **) (p + cmd->offset);

    if (*mv != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;
    rule = ngx_http_meter_rule(cmd->offset);

    if (cf->args->nelts == 3 && ngx_strcmp(value[2].data, "negative") != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\"", &value[2]);
        return NGX_CONF_ERROR;
    }

    if (rule->optional && ngx_strcmp(value[1].data, "off") == 0) {
        *mv = NULL;
        return NGX_CONF_OK;
    }

    *mv = ngx_palloc(cf->pool, sizeof(ngx_http_meter_value_t));
    if (*mv == NULL
        || ngx_http_meter_value_compile(cf, &value[1], *mv) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    (*mv)->negative = (cf->args->nelts == 3);

    if ((*mv)->complex.lengths) {
        return NGX_CONF_OK;
    }

    return ngx_http_meter_rule_check(cf, rule, value);
}


static ngx_int_t
ngx_http_meter_value_compile(ngx_conf_t *cf, ngx_str_t *text,
    ngx_http_meter_value_t *value)
{
    u_char                            *p, *last;
    ngx_http_compile_complex_value_t   ccv;

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = text;
    ccv.complex_value = &value->complex;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_ERROR;
    }

    value->index = NGX_ERROR;
    value->late = 1;
    value->negative = 0;

    if (value->complex.flushes == NULL || text->data[0] != '$') {
        return NGX_OK;
    }

    p = text->data + 1;
    last = text->data + text->len;

    if (*p == '{' && last[-1] == '}') {
        p++;
        last--;
    }

    while (p < last
           && (*p == '_'
               || (*p >= '0' && *p <= '9')
               || (*p >= 'A' && *p <= 'Z')
               || (*p >= 'a' && *p <= 'z')))
    {
        p++;
    }

    if (p == last) {
        value->index = value->complex.flushes[0];
    }

    return NGX_OK;
}


static ngx_http_meter_rule_t *
ngx_http_meter_rule(size_t offset)
{
    ngx_http_meter_rule_t  *rule;

    for (rule = ngx_http_meter_rules; rule->offset != offset; rule++) {
        /* void */
    }

    return rule;
}


static char *
ngx_http_meter_rule_check(ngx_conf_t *cf, ngx_http_meter_rule_t *rule,
    ngx_str_t *value)
{
    struct meter_str      text;
    struct meter_decimal  decimal;

    text.data = (const char *) value[1].data;
    text.size = value[1].len;

    if (text.size == 0) {
        return rule->optional ? NGX_CONF_OK : "must not be empty";
    }

    if (rule->size_max && text.size > rule->size_max) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the value of \"%V\" is longer than %uz bytes",
                           &value[0], rule->size_max);
        return NGX_CONF_ERROR;
    }

    if (!meter_utf8_valid(text)) {
        return "must be UTF-8";
    }

    if (rule->decimal
        && meter_decimal_parse(text, &decimal) != METER_DECIMAL_OK)
    {
        return "must be a decimal number of at most 38 digits, 9 of them "
               "after the point";
    }

    if (rule->decimal && decimal.units < 0 && cf->args->nelts != 3) {
        return "is below 0 and lacks the parameter \"negative\"";
    }

    return NGX_CONF_OK;
}


char *
ngx_http_meter_attribute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_meter_loc_conf_t  *mlcf = conf;

    ngx_str_t                   *value;
    ngx_uint_t                   i;
    struct meter_str             name;
    ngx_http_meter_route_t      *route;
    ngx_http_meter_attribute_t  *attribute;

    route = mlcf->route;
    value = cf->args->elts;

    name.data = (const char *) value[1].data;
    name.size = value[1].len;

    if (name.size == 0 || name.size > METER_ATTRIBUTE_NAME_SIZE_MAX
        || !meter_utf8_valid(name))
    {
        return "must have a UTF-8 name of 1 to 128 bytes";
    }

    if (route->attributes == NGX_CONF_UNSET_PTR) {
        route->attributes = ngx_array_create(cf->pool, 4,
                                         sizeof(ngx_http_meter_attribute_t));
        if (route->attributes == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    attribute = route->attributes->elts;

    for (i = 0; i < route->attributes->nelts; i++) {
        if (attribute[i].name.len == value[1].len
            && ngx_memcmp(attribute[i].name.data, value[1].data, value[1].len)
               == 0)
        {
            return "gives a name twice on one level";
        }
    }

    if (i == METER_ATTRIBUTE_COUNT_MAX) {
        return "is given more than 256 times on one level";
    }

    attribute = ngx_array_push(route->attributes);
    if (attribute == NULL) {
        return NGX_CONF_ERROR;
    }

    attribute->name = value[1];

    if (ngx_http_meter_value_compile(cf, &value[2], &attribute->value)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_meter_route_merge(ngx_conf_t *cf, ngx_http_meter_loc_conf_t *prev,
    ngx_http_meter_loc_conf_t *conf)
{
    char                        *rv;
    ngx_http_meter_route_t      *route;
    ngx_http_meter_main_conf_t  *mmcf;

    route = conf->route;

    rv = ngx_http_meter_route_inherit(cf, prev, conf);

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    /* an inherited "meter on" passes by the API: it is no metered route */

    if (!route->enable || conf->loc != NGX_HTTP_METER_LOC_NONE) {
        return NGX_CONF_OK;
    }

    rv = ngx_http_meter_route_complete(cf, conf);

    if (rv != NGX_CONF_OK) {
        return rv;
    }

    route->final = ngx_http_meter_route_final(cf, route);

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_meter_module);

    mmcf->metered = 1;

    if (!route->final) {
        mmcf->late = 1;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_meter_route_inherit(ngx_conf_t *cf, ngx_http_meter_loc_conf_t *prev,
    ngx_http_meter_loc_conf_t *conf)
{
    ngx_http_meter_route_t  *from, *to;

    from = prev->route;
    to = conf->route;

    if (to->enable == 1 && conf->loc != NGX_HTTP_METER_LOC_NONE) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"meter\" conflicts with \"%s\" in the same location "
                      "in %s:%ui",
                      conf->loc == NGX_HTTP_METER_LOC_API ? "meter_api"
                                                          : "meter_status",
                      to->file, to->line);
        return NGX_CONF_ERROR;
    }

    if (to->enable == NGX_CONF_UNSET) {
        to->file = from->file;
        to->line = from->line;
    }

    ngx_conf_merge_value(to->enable, from->enable, 0);

    ngx_conf_merge_ptr_value(to->event, from->event, NULL);
    ngx_conf_merge_ptr_value(to->event_id, from->event_id, NULL);
    ngx_conf_merge_ptr_value(to->tenant, from->tenant, NULL);
    ngx_conf_merge_ptr_value(to->customer, from->customer, NULL);
    ngx_conf_merge_ptr_value(to->resource, from->resource, NULL);
    ngx_conf_merge_ptr_value(to->quantity, from->quantity, NULL);
    ngx_conf_merge_ptr_value(to->filter, from->filter, NULL);
    ngx_conf_merge_ptr_value(to->attributes, from->attributes, NULL);

    ngx_conf_merge_uint_value(to->capture, from->capture,
                              NGX_HTTP_METER_CAPTURE_EVENT);

    ngx_conf_merge_uint_value(to->overflow, from->overflow,
                              NGX_HTTP_METER_OVERFLOW_PASS);

    return NGX_CONF_OK;
}


static char *
ngx_http_meter_route_complete(ngx_conf_t *cf, ngx_http_meter_loc_conf_t *conf)
{
    ngx_http_meter_route_t      *route;
    ngx_http_meter_main_conf_t  *mmcf;

    route = conf->route;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_meter_module);

    if (route->tenant == NULL) {
        return ngx_http_meter_route_missing(cf, route, "meter_tenant");
    }

    if (route->event == NULL) {
        return ngx_http_meter_route_missing(cf, route, "meter_event");
    }

    if (mmcf->outbox == NULL) {
        return ngx_http_meter_route_missing(cf, route, "meter_outbox");
    }

    if (conf->aggregator == NULL) {
        return ngx_http_meter_route_missing(cf, route, "meter_aggregator");
    }

    if (route->event_id && route->capture == NGX_HTTP_METER_CAPTURE_DELTA) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"meter_event_id\" cannot be used together with "
                      "\"meter_capture delta\" for the \"meter\" directive "
                      "in %s:%ui", route->file, route->line);
        return NGX_CONF_ERROR;
    }

    return ngx_http_meter_route_aggregator(cf, conf);
}


static char *
ngx_http_meter_route_missing(ngx_conf_t *cf, ngx_http_meter_route_t *route,
    const char *name)
{
    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "no \"%s\" is given for the \"meter\" directive in %s:%ui",
                  name, route->file, route->line);

    return NGX_CONF_ERROR;
}


/* a ring leads to one meterd, whatever location its records come from */

static char *
ngx_http_meter_route_aggregator(ngx_conf_t *cf,
    ngx_http_meter_loc_conf_t *conf)
{
    ngx_http_meter_main_conf_t    *mmcf;
    ngx_http_meter_outbox_conf_t  *outbox;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_meter_module);

    outbox = mmcf->outbox;

    if (outbox->aggregator == NULL) {
        outbox->aggregator = conf->aggregator;
    }

    if (outbox->aggregator == conf->aggregator) {
        return NGX_CONF_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "\"meter_aggregator\" must be the same in all metered "
                  "locations, it is \"%V\" and \"%V\" for the \"meter\" "
                  "directive in %s:%ui",
                  &outbox->aggregator->addr.name,
                  &conf->aggregator->addr.name,
                  conf->route->file, conf->route->line);

    return NGX_CONF_ERROR;
}


static ngx_uint_t
ngx_http_meter_route_final(ngx_conf_t *cf, ngx_http_meter_route_t *route)
{
    u_char                      *p;
    ngx_uint_t                   i, n, late;
    ngx_http_meter_rule_t       *rule;
    ngx_http_meter_value_t     **mv;
    ngx_http_meter_attribute_t  *attribute;

    p = (u_char *) route;
    late = 0;

    n = sizeof(ngx_http_meter_rules) / sizeof(ngx_http_meter_rules[0]);

    for (i = 0; i < n; i++) {
        rule = &ngx_http_meter_rules[i];
        mv = (ngx_http_meter_value_t **) (p + rule->offset);

        if (*mv) {
            late |= ngx_http_meter_value_late(cf, *mv);
        }
    }

    if (route->attributes == NULL) {
        return !late;
    }

    attribute = route->attributes->elts;

    for (i = 0; i < route->attributes->nelts; i++) {
        late |= ngx_http_meter_value_late(cf, &attribute[i].value);
    }

    return !late;
}


static ngx_uint_t
ngx_http_meter_value_late(ngx_conf_t *cf, ngx_http_meter_value_t *value)
{
    value->late = !ngx_http_meter_final(cf, &value->complex.value);

    return value->late;
}
