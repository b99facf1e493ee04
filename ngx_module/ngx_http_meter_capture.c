
/*
 * ngx_http_meter_capture.c - what a metered request carries through its life.
 *
 *   admit, header_filter, log_phase, variable -> [capture]
 *
 * The first metered location that a request reaches is bound to it; an
 * internal redirect leads to other locations, but never to another price.
 * A redirect zeroes r->ctx, and so does an answer that a filter replaces:
 * the capture is then found again through its cleanup, which also gives back
 * what the request holds in a ring, whatever way it ends.
 */


#include "ngx_http_meter_capture.h"


/* what hide put aside; requests are handled one after the other */

typedef struct {
    ngx_http_variable_value_t  *variables;
    ngx_uint_t                  room;       /* how many fit */
    ngx_uint_t                  count;      /* how many there are */
#if (NGX_PCRE)
    ngx_uint_t                  ncaptures;
    int                        *captures;
    u_char                     *captures_data;
    ngx_uint_t                  realloc_captures;
#endif
} ngx_http_meter_hidden_t;


static void ngx_http_meter_capture_cleanup(void *data);
static uint64_t ngx_http_meter_capture_clock(void);


#define NGX_HTTP_METER_SAMPLE_MASK  63


static ngx_uint_t               ngx_http_meter_turn;
static ngx_http_meter_hidden_t  ngx_http_meter_hidden;


ngx_http_meter_route_t *
ngx_http_meter_capture_route(ngx_http_request_t *r)
{
    ngx_http_meter_loc_conf_t  *mlcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_http_meter_module);

    if (!mlcf->route->enable || mlcf->loc != NGX_HTTP_METER_LOC_NONE) {
        return NULL;
    }

    return mlcf->route;
}


ngx_http_meter_capture_t *
ngx_http_meter_capture_get(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_meter_capture_t  *cap;

    cap = ngx_http_get_module_ctx(r, ngx_http_meter_filter_module);

    if (cap || (!r->internal && !r->filter_finalize)) {
        return cap;
    }

    for (cln = r->pool->cleanup; cln; cln = cln->next) {
        if (cln->handler == ngx_http_meter_capture_cleanup) {
            cap = cln->data;
            ngx_http_set_ctx(r, cap, ngx_http_meter_filter_module);
            break;
        }
    }

    return cap;
}


ngx_http_meter_capture_t *
ngx_http_meter_capture_bind(ngx_http_request_t *r)
{
    uint64_t                   started_ns;
    ngx_uint_t                 sampled;
    ngx_pool_cleanup_t        *cln;
    ngx_http_meter_route_t    *route;
    ngx_http_meter_capture_t  *cap;

    cap = ngx_http_meter_capture_get(r);

    if (cap) {
        ngx_http_meter_capture_start(cap);
        return cap;
    }

    route = ngx_http_meter_capture_route(r);

    if (route == NULL) {
        return NULL;
    }

    sampled = (++ngx_http_meter_turn & NGX_HTTP_METER_SAMPLE_MASK) == 0;
    started_ns = sampled ? ngx_http_meter_capture_clock() : 0;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_meter_capture_t));
    if (cln == NULL) {
        return NULL;
    }

    cap = cln->data;

    ngx_memzero(cap, sizeof(ngx_http_meter_capture_t));

    cap->route = route;
    cap->slot = METER_SLOT_NONE;
    cap->sampled = sampled;
    cap->started_ns = started_ns;

    cln->handler = ngx_http_meter_capture_cleanup;

    ngx_http_set_ctx(r, cap, ngx_http_meter_filter_module);

    return cap;
}


static void
ngx_http_meter_capture_cleanup(void *data)
{
    ngx_http_meter_capture_t  *cap = data;

    ngx_http_meter_record_release(cap);
}


void
ngx_http_meter_capture_start(ngx_http_meter_capture_t *cap)
{
    if (cap->sampled) {
        cap->started_ns = ngx_http_meter_capture_clock();
    }
}


void
ngx_http_meter_capture_stop(ngx_http_meter_capture_t *cap)
{
    if (cap->sampled) {
        cap->spent_ns += ngx_http_meter_capture_clock() - cap->started_ns;
    }
}


static uint64_t
ngx_http_meter_capture_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}


/*
 * Variables are cached where they stand in r->variables, those that a map
 * looks at as well: the whole array is put aside.
 */

ngx_int_t
ngx_http_meter_capture_hide(ngx_http_request_t *r, ngx_uint_t variables)
{
    size_t                      size;
    ngx_uint_t                  n;
    ngx_http_meter_hidden_t    *hidden;
    ngx_http_core_main_conf_t  *cmcf;

    hidden = &ngx_http_meter_hidden;
    hidden->count = 0;

    if (variables) {
        cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
        n = cmcf->variables.nelts;
        size = n * sizeof(ngx_http_variable_value_t);

        if (hidden->room < n) {
            if (hidden->variables) {
                ngx_free(hidden->variables);
            }

            hidden->room = 0;
            hidden->variables = ngx_alloc(size, r->connection->log);

            if (hidden->variables == NULL) {
                return NGX_ERROR;
            }

            hidden->room = n;
        }

        ngx_memcpy(hidden->variables, r->variables, size);

        hidden->count = n;
    }

#if (NGX_PCRE)
    hidden->ncaptures = r->ncaptures;
    hidden->captures = r->captures;
    hidden->captures_data = r->captures_data;
    hidden->realloc_captures = r->realloc_captures;

    r->realloc_captures = 1;
#endif

    return NGX_OK;
}


void
ngx_http_meter_capture_show(ngx_http_request_t *r)
{
    ngx_http_meter_hidden_t  *hidden;

    hidden = &ngx_http_meter_hidden;

    if (hidden->count) {
        ngx_memcpy(r->variables, hidden->variables,
                   hidden->count * sizeof(ngx_http_variable_value_t));
    }

#if (NGX_PCRE)
    r->ncaptures = hidden->ncaptures;
    r->captures = hidden->captures;
    r->captures_data = hidden->captures_data;
    r->realloc_captures = hidden->realloc_captures;
#endif
}
