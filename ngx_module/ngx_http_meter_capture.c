
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
 *
 * Values are evaluated when they are all known, at the end, and as the bound
 * location sees the request: with its path, arguments, method, captures and
 * configuration, and with the variables as they were before a redirect or a
 * subrequest, which share them, could assign others. So a value whose
 * variables were known at the binding has the value of that moment.
 */


#include "ngx_http_meter_capture.h"


/* what enter put aside; requests are handled one after the other */

typedef struct {
    ngx_http_meter_view_t       view;
    ngx_http_meter_view_t      *bound;      /* entered; NULL: none is */
    ngx_http_variable_value_t  *scratch;
    ngx_uint_t                  room;       /* variables that fit into it */
#if (NGX_PCRE)
    ngx_uint_t                  realloc_captures;
#endif
} ngx_http_meter_aside_t;


static ngx_int_t ngx_http_meter_capture_keep_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_meter_capture_keep_captures(ngx_http_request_t *r,
    ngx_http_meter_view_t *view);
static void ngx_http_meter_capture_look(ngx_http_request_t *r,
    ngx_http_meter_view_t *view);
static void ngx_http_meter_capture_show(ngx_http_request_t *r,
    ngx_http_meter_view_t *view);
static ngx_http_variable_value_t *ngx_http_meter_capture_copy(
    ngx_http_request_t *r, ngx_http_variable_value_t *variables);
static void ngx_http_meter_capture_cleanup(void *data);


#define NGX_HTTP_METER_SAMPLE_MASK  63


static ngx_uint_t              ngx_http_meter_turn;
static ngx_http_meter_aside_t  ngx_http_meter_aside;


/*
 * Handlers of these phases run in the reverse order of their registration,
 * and those of the rewrite module, which is built in, were registered before.
 * Named locations begin with the second of the phases.
 */

ngx_int_t
ngx_http_meter_capture_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_SERVER_REWRITE_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_meter_capture_keep_handler;

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_REWRITE_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_meter_capture_keep_handler;

    return NGX_OK;
}


/* a redirect or a subrequest is at its beginning: it has assigned nothing */

static ngx_int_t
ngx_http_meter_capture_keep_handler(ngx_http_request_t *r)
{
    size_t                      size;
    ngx_http_meter_capture_t   *cap;
    ngx_http_variable_value_t  *variables;
    ngx_http_core_main_conf_t  *cmcf;

    if (!r->internal && r == r->main) {
        return NGX_DECLINED;
    }

    cap = ngx_http_meter_capture_get(r->main);

    if (cap == NULL || cap->decided || cap->view.variables != r->variables) {
        return NGX_DECLINED;
    }

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);

    size = cmcf->variables.nelts * sizeof(ngx_http_variable_value_t);

    variables = ngx_palloc(r->pool, size);
    if (variables == NULL) {
        cap->torn = 1;
        return NGX_DECLINED;
    }

    ngx_memcpy(variables, r->variables, size);

    cap->view.variables = variables;

    return NGX_DECLINED;
}


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
    cap->unplaced = (r->write_event_handler == NULL);

    ngx_http_meter_capture_look(r, &cap->view);

    if (!route->final
        && ngx_http_meter_capture_keep_captures(r, &cap->view) != NGX_OK)
    {
        cap->torn = 1;
    }

    cln->handler = ngx_http_meter_capture_cleanup;

    ngx_http_set_ctx(r, cap, ngx_http_meter_filter_module);

    return cap;
}


/* the next regular expression that matches overwrites them */

static ngx_int_t
ngx_http_meter_capture_keep_captures(ngx_http_request_t *r,
    ngx_http_meter_view_t *view)
{
#if (NGX_PCRE)

    if (r->ncaptures) {
        view->captures = ngx_palloc(r->pool, r->ncaptures * sizeof(int));
        if (view->captures == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(view->captures, r->captures, r->ncaptures * sizeof(int));
    }

#endif

    return NGX_OK;
}


static void
ngx_http_meter_capture_cleanup(void *data)
{
    ngx_http_meter_capture_t  *cap = data;

    ngx_http_meter_record_release(cap);
}


uint64_t
ngx_http_meter_capture_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}


/*
 * Variables are cached where they stand in r->variables, those that a map
 * looks at as well. Who wants none of it to stay behind works on a copy.
 * The variables of a final route are made of path, arguments and method, or
 * of what no location changes: as a rule there is nothing to enter. (Where a
 * redirect changes the method, it changes the path.)
 */

ngx_int_t
ngx_http_meter_capture_enter(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap, ngx_uint_t copy)
{
    ngx_http_meter_view_t      *bound;
    ngx_http_meter_aside_t     *aside;
    ngx_http_variable_value_t  *variables;

    bound = &cap->view;
    aside = &ngx_http_meter_aside;

    if (aside->bound
        || (cap->route->final && !copy
            && r->uri.data == bound->uri.data
            && r->args.data == bound->args.data))
    {
        return NGX_DECLINED;
    }

    variables = bound->variables;

    if (copy) {
        variables = ngx_http_meter_capture_copy(r, variables);

        if (variables == NULL) {
            return NGX_ERROR;
        }
    }

    aside->bound = bound;

    ngx_http_meter_capture_look(r, &aside->view);
    ngx_http_meter_capture_show(r, bound);

    r->variables = variables;

#if (NGX_PCRE)
    aside->realloc_captures = r->realloc_captures;
    r->realloc_captures = 1;
#endif

    return NGX_OK;
}


void
ngx_http_meter_capture_leave(ngx_http_request_t *r)
{
    ngx_http_meter_aside_t  *aside;

    aside = &ngx_http_meter_aside;

    aside->bound = NULL;

    ngx_http_meter_capture_show(r, &aside->view);

#if (NGX_PCRE)
    r->realloc_captures = aside->realloc_captures;
#endif
}


void
ngx_http_meter_capture_again(ngx_http_request_t *r)
{
#if (NGX_PCRE)
    ngx_http_meter_view_t  *bound;

    bound = ngx_http_meter_aside.bound;

    if (bound) {
        r->ncaptures = bound->ncaptures;
        r->captures = bound->captures;
        r->captures_data = bound->captures_data;
        r->realloc_captures = 1;
    }
#endif
}


static void
ngx_http_meter_capture_look(ngx_http_request_t *r,
    ngx_http_meter_view_t *view)
{
    view->uri = r->uri;
    view->args = r->args;
    view->method_name = r->method_name;
    view->loc_conf = r->loc_conf;
    view->variables = r->variables;
#if (NGX_PCRE)
    view->ncaptures = r->ncaptures;
    view->captures = r->captures;
    view->captures_data = r->captures_data;
#endif
}


static void
ngx_http_meter_capture_show(ngx_http_request_t *r,
    ngx_http_meter_view_t *view)
{
    r->uri = view->uri;
    r->args = view->args;
    r->method_name = view->method_name;
    r->loc_conf = view->loc_conf;
    r->variables = view->variables;
#if (NGX_PCRE)
    r->ncaptures = view->ncaptures;
    r->captures = view->captures;
    r->captures_data = view->captures_data;
#endif
}


static ngx_http_variable_value_t *
ngx_http_meter_capture_copy(ngx_http_request_t *r,
    ngx_http_variable_value_t *variables)
{
    size_t                      size;
    ngx_uint_t                  n;
    ngx_http_meter_aside_t     *aside;
    ngx_http_core_main_conf_t  *cmcf;

    aside = &ngx_http_meter_aside;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);

    n = cmcf->variables.nelts;
    size = n * sizeof(ngx_http_variable_value_t);

    if (aside->room < n) {
        if (aside->scratch) {
            ngx_free(aside->scratch);
        }

        aside->room = 0;
        aside->scratch = ngx_alloc(size, r->connection->log);

        if (aside->scratch == NULL) {
            return NULL;
        }

        aside->room = n;
    }

    ngx_memcpy(aside->scratch, variables, size);

    return aside->scratch;
}
