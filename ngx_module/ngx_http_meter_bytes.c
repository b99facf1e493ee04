
/*
 * ngx_http_meter_bytes.c - bytes that wait, in one piece that grows.
 *
 *   [ gone | pos ... last | free ]
 */


#include "ngx_http_meter_mux.h"


#define NGX_HTTP_METER_BYTES_ROOM  65536


/* makes room for size bytes behind the last */

ngx_int_t
ngx_http_meter_bytes_reserve(ngx_http_meter_bytes_t *bytes, size_t size)
{
    size_t   room;
    u_char  *data;

    if (bytes->room - bytes->last >= size) {
        return NGX_OK;
    }

    room = ngx_max(bytes->room, NGX_HTTP_METER_BYTES_ROOM);

    while (room - (bytes->last - bytes->pos) < size) {
        room *= 2;
    }

    if (room == bytes->room) {
        ngx_memmove(bytes->data, bytes->data + bytes->pos,
                    bytes->last - bytes->pos);

    } else {
        data = ngx_alloc(room, ngx_cycle->log);
        if (data == NULL) {
            return NGX_ERROR;
        }

        if (bytes->data) {
            ngx_memcpy(data, bytes->data + bytes->pos,
                       bytes->last - bytes->pos);
            ngx_free(bytes->data);
        }

        bytes->data = data;
        bytes->room = room;
    }

    bytes->last -= bytes->pos;
    bytes->pos = 0;

    return NGX_OK;
}


void
ngx_http_meter_bytes_free(ngx_http_meter_bytes_t *bytes)
{
    if (bytes->data) {
        ngx_free(bytes->data);
    }

    ngx_memzero(bytes, sizeof(ngx_http_meter_bytes_t));
}
