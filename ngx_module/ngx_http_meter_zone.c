
/*
 * ngx_http_meter_zone.c - memory for the ids that the edge has seen.
 *
 *   "meter_zone NAME SIZE" -> nginx's zone -> one allocation of all its pages
 *
 * What is in it is meter_zone.h's matter: no lock, no list, nothing that a
 * worker's death could break. A reload keeps it; another SIZE is a new zone,
 * and so is a restart: both only make the edge forget.
 */


#include "ngx_http_meter_capture.h"

#include <sys/random.h>


static ngx_int_t ngx_http_meter_zone_init_zone(ngx_shm_zone_t *shm_zone,
    void *data);
static size_t ngx_http_meter_zone_size(ngx_slab_pool_t *shpool,
    void *memory);


ngx_int_t
ngx_http_meter_zone_init(ngx_conf_t *cf)
{
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_meter_module);

    if (mmcf->dedupe) {
        mmcf->dedupe->init = ngx_http_meter_zone_init_zone;
        mmcf->dedupe->data = mmcf;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_meter_zone_init_zone(ngx_shm_zone_t *shm_zone, void *data)
{
    void             *memory;
    size_t            size;
    uint8_t           secret[16];
    ngx_slab_pool_t  *shpool;

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (data || shm_zone->shm.exists) {

        memory = shpool->data;

        if (meter_zone_open(memory, ngx_http_meter_zone_size(shpool, memory))
            == NULL)
        {
            ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                          "zone \"%V\" was made by another version of the "
                          "module, restart nginx instead of reloading",
                          &shm_zone->shm.name);
            return NGX_ERROR;
        }

        return NGX_OK;
    }

    size = shpool->pfree * ngx_pagesize;
    memory = ngx_slab_alloc(shpool, size);

    if (memory == NULL
        || getrandom(secret, sizeof(secret), 0) != sizeof(secret)
        || meter_zone_format(memory, size, secret) == NULL)
    {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "zone \"%V\" of %uz bytes cannot be set up",
                      &shm_zone->shm.name, shm_zone->shm.size);
        return NGX_ERROR;
    }

    ngx_explicit_memzero(secret, sizeof(secret));

    /* one allocation was all there was to ask for */

    shpool->log_nomem = 0;
    shpool->data = memory;

    return NGX_OK;
}


/* what pfree said when all pages were free */

static size_t
ngx_http_meter_zone_size(ngx_slab_pool_t *shpool, void *memory)
{
    return (shpool->end - (u_char *) memory) / ngx_pagesize * ngx_pagesize;
}


struct meter_zone *
ngx_http_meter_zone_get(void)
{
    ngx_slab_pool_t             *shpool;
    ngx_http_meter_main_conf_t  *mmcf;

    mmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_meter_module);

    if (mmcf == NULL || mmcf->dedupe == NULL) {
        return NULL;
    }

    shpool = (ngx_slab_pool_t *) mmcf->dedupe->shm.addr;

    return shpool->data;
}
