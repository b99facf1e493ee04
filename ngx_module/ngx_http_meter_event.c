
/*
 * ngx_http_meter_event.c - a request's values as an event.
 *
 *   route, request -> [event] -> record
 *
 * Values are taken as they are: only meterd decides what is valid, and what
 * is not becomes a dead letter with a reason. So one that is too long is cut
 * to one byte more than is allowed, and never to something valid. Decided
 * here is only the identity: an id that the registry could not take is
 * dropped, and one is minted from the record's place in the ring.
 */


#include "ngx_http_meter_ring.h"


#define NGX_HTTP_METER_QUANTITY_SIZE  256
#define NGX_HTTP_METER_ANY_SIZE       (NGX_MAX_SIZE_T_VALUE - 1)


_Static_assert(METER_TENANT_SIZE_MAX + METER_TYPE_SIZE_MAX
               + METER_EVENT_ID_SIZE_MAX + NGX_HTTP_METER_QUANTITY_SIZE + 64
               <= METER_SLOT_BODY_SIZE,
               "what is never dropped fits into a slot");


static ngx_int_t ngx_http_meter_event_text(ngx_http_request_t *r,
    ngx_http_meter_value_t *value, size_t size_max, struct meter_str *text);
static ngx_int_t ngx_http_meter_event_id(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap, struct meter_str *text);
static ngx_int_t ngx_http_meter_event_quantity(ngx_http_request_t *r,
    ngx_http_meter_route_t *route, struct meter_str *text);
static ngx_int_t ngx_http_meter_event_attributes(ngx_http_request_t *r,
    ngx_http_meter_route_t *route, struct meter_record_event *event);
static void ngx_http_meter_event_drop(struct meter_record_event *event);


ngx_int_t
ngx_http_meter_event_read(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap, struct meter_record_event *event)
{
    ngx_http_meter_route_t  *route;

    route = cap->route;

    if (cap->torn) {
        return NGX_ERROR;
    }

    if (ngx_http_meter_event_text(r, route->tenant, METER_TENANT_SIZE_MAX,
                                  &event->tenant)
        != NGX_OK
        || ngx_http_meter_event_text(r, route->event, METER_TYPE_SIZE_MAX,
                                     &event->type)
           != NGX_OK
        || ngx_http_meter_event_text(r, route->customer,
                                     METER_CUSTOMER_SIZE_MAX,
                                     &event->customer)
           != NGX_OK
        || ngx_http_meter_event_text(r, route->resource,
                                     METER_RESOURCE_SIZE_MAX,
                                     &event->resource)
           != NGX_OK
        || ngx_http_meter_event_id(r, cap, &event->event_id) != NGX_OK
        || ngx_http_meter_event_quantity(r, route, &event->quantity) != NGX_OK
        || ngx_http_meter_event_attributes(r, route, event) != NGX_OK)
    {
        return NGX_ERROR;
    }

    cap->tenant.data = (u_char *) event->tenant.data;
    cap->tenant.len = event->tenant.size;

    event->ts_us = ngx_http_meter_now_us();
    event->count = 1;
    event->flags = METER_EVENT_CAPTURED;

    if (route->quantity && route->quantity->negative) {
        event->flags |= METER_EVENT_NEGATIVE;
    }

    return NGX_OK;
}


/* an empty value is as good as none */

static ngx_int_t
ngx_http_meter_event_text(ngx_http_request_t *r,
    ngx_http_meter_value_t *value, size_t size_max, struct meter_str *text)
{
    ngx_str_t  str;

    text->data = NULL;
    text->size = 0;

    if (value == NULL) {
        return NGX_OK;
    }

    if (ngx_http_meter_event_value(r, value, &str) != NGX_OK) {
        return NGX_ERROR;
    }

    if (str.len) {
        text->data = (const char *) str.data;
        text->size = ngx_min(str.len, size_max + 1);
    }

    return NGX_OK;
}


/* what is plain is known, a variable that stands alone is not copied */

ngx_int_t
ngx_http_meter_event_value(ngx_http_request_t *r,
    ngx_http_meter_value_t *value, ngx_str_t *text)
{
    ngx_http_variable_value_t  *vv;

    if (value->late) {
        ngx_http_meter_capture_again(r);
    }

    if (value->index == NGX_ERROR) {

        if (value->complex.lengths) {
            return ngx_http_complex_value(r, &value->complex, text);
        }

        *text = value->complex.value;

        return NGX_OK;
    }

    vv = ngx_http_get_flushed_variable(r, value->index);

    if (vv == NULL || vv->not_found) {
        ngx_str_null(text);
        return NGX_OK;
    }

    text->data = vv->data;
    text->len = vv->len;

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_event_id(ngx_http_request_t *r, ngx_http_meter_capture_t *cap,
    struct meter_str *text)
{
    int64_t   ts_us;
    uint8_t   session[16];
    uint64_t  seq;

    if (ngx_http_meter_event_text(r, cap->route->event_id,
                                  METER_EVENT_ID_SIZE_MAX, text)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    cap->unusable = cap->route->event_id
                    && (text->size == 0
                        || text->size > METER_EVENT_ID_SIZE_MAX
                        || !meter_utf8_valid(*text)
                        || meter_event_minted_parse(*text, session, &seq,
                                                    &ts_us));

    if (cap->unusable) {
        text->data = NULL;
        text->size = 0;
    }

    cap->event_id.data = (u_char *) text->data;
    cap->event_id.len = text->size;

    return NGX_OK;
}


/*
 * A number that is cut would be another number: a very long one is written
 * anew, and what is none gets an end that keeps it from being one.
 */

static ngx_int_t
ngx_http_meter_event_quantity(ngx_http_request_t *r,
    ngx_http_meter_route_t *route, struct meter_str *text)
{
    static char  buf[NGX_HTTP_METER_QUANTITY_SIZE];

    struct meter_decimal  decimal;

    if (ngx_http_meter_event_text(r, route->quantity,
                                  NGX_HTTP_METER_ANY_SIZE, text)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (text->size <= sizeof(buf)) {
        return NGX_OK;
    }

    if (meter_decimal_parse(*text, &decimal) == METER_DECIMAL_OK) {
        text->size = meter_decimal_format(decimal, buf);

    } else {
        ngx_memcpy(buf, text->data, sizeof(buf) - 3);
        ngx_memcpy(&buf[sizeof(buf) - 3], "...", 3);
        text->size = sizeof(buf);
    }

    text->data = buf;

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_event_attributes(ngx_http_request_t *r,
    ngx_http_meter_route_t *route, struct meter_record_event *event)
{
    ngx_uint_t                      i;
    ngx_http_meter_attribute_t     *attribute;
    struct meter_record_attribute  *to;

    event->attribute_count = 0;

    if (route->attributes == NULL) {
        return NGX_OK;
    }

    attribute = route->attributes->elts;

    for (i = 0; i < route->attributes->nelts; i++) {
        to = &event->attributes[event->attribute_count];

        if (ngx_http_meter_event_text(r, &attribute[i].value,
                                      NGX_HTTP_METER_ANY_SIZE, &to->value)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (to->value.size == 0) {
            continue;
        }

        to->name.data = (const char *) attribute[i].name.data;
        to->name.size = attribute[i].name.len;

        event->attribute_count++;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_meter_event_filtered(ngx_http_request_t *r,
    ngx_http_meter_capture_t *cap)
{
    ngx_str_t  value;

    if (cap->refused) {
        return 1;
    }

    if (cap->route->filter) {
        if (cap->torn
            || ngx_http_meter_event_value(r, cap->route->filter, &value)
               != NGX_OK)
        {
            return NGX_ERROR;
        }

        return value.len == 0 || (value.len == 1 && value.data[0] == '0');
    }

    if (cap->unplaced) {
        return 1;
    }

    switch (cap->status) {

    case NGX_HTTP_BAD_REQUEST:
    case NGX_HTTP_UNAUTHORIZED:
    case NGX_HTTP_FORBIDDEN:
    case NGX_HTTP_REQUEST_TIME_OUT:
    case NGX_HTTP_REQUEST_HEADER_TOO_LARGE:
        return 1;

    /* with an error page: of a request that reached no location before */

    case NGX_HTTP_REQUEST_URI_TOO_LARGE:
    case NGX_HTTP_NOT_IMPLEMENTED:
    case NGX_HTTP_VERSION_NOT_SUPPORTED:
        return r->upstream == NULL
               || r->upstream->headers_in.status_n != cap->status;

    default:
        return 0;
    }
}


/* tenant, type, id and quantity always fit */

size_t
ngx_http_meter_event_encode(struct meter_record_event *event, u_char *buf,
    size_t size)
{
    struct meter_writer  out;

    for ( ;; ) {
        meter_writer_init(&out, buf, size);
        meter_record_event_encode(event, &out);

        if (!out.failed) {
            return out.at;
        }

        event->flags |= METER_EVENT_TRUNCATED;

        ngx_http_meter_event_drop(event);
    }
}


static void
ngx_http_meter_event_drop(struct meter_record_event *event)
{
    size_t                          size, largest_size;
    ngx_uint_t                      i, largest;
    struct meter_record_attribute  *attribute;

    attribute = event->attributes;

    if (event->attribute_count == 0) {
        if (event->resource.size) {
            event->resource.data = NULL;
            event->resource.size = 0;

        } else {
            event->customer.data = NULL;
            event->customer.size = 0;
        }

        return;
    }

    largest = 0;
    largest_size = 0;

    for (i = 0; i < event->attribute_count; i++) {
        size = attribute[i].name.size + attribute[i].value.size;

        if (size > largest_size) {
            largest = i;
            largest_size = size;
        }
    }

    event->attribute_count--;

    ngx_memmove(&attribute[largest], &attribute[largest + 1],
                (event->attribute_count - largest)
                * sizeof(struct meter_record_attribute));
}
