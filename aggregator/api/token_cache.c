/*
 * token_cache.c - see token_cache.h.
 */

#include "api/token_cache.h"

#include <stdlib.h>

struct token_entry {
    struct token_record record; /* tenant points into bytes */
    uint64_t expires_us;
    char bytes[]; /* id, tenant */
};

void
token_cache_init(struct token_cache *cache)
{
    map_init(&cache->known, TOKEN_CACHE_KNOWN_MAX);
    map_init(&cache->unknown, TOKEN_CACHE_UNKNOWN_MAX);
}

static void
token_map_clear(struct map *map)
{
    size_t cursor = 0;
    struct token_entry *entry;

    while ((entry = map_next(map, &cursor)) != NULL) {
        free(entry);
    }
    map_clear(map);
}

void
token_cache_fini(struct token_cache *cache)
{
    token_map_clear(&cache->known);
    token_map_clear(&cache->unknown);
    map_fini(&cache->known);
    map_fini(&cache->unknown);
}

static void
token_map_remove(struct map *map, struct meter_str id)
{
    free(map_remove(map, id));
}

static const struct token_record *
token_map_find(struct map *map, struct meter_str id, uint64_t now_us)
{
    struct token_entry *entry = map_find(map, id);

    if (entry == NULL) {
        return NULL;
    }
    if (now_us >= entry->expires_us) {
        token_map_remove(map, id);
        return NULL;
    }
    return &entry->record;
}

const struct token_record *
token_cache_find(struct token_cache *cache, struct meter_str id,
                 uint64_t now_us)
{
    const struct token_record *record =
        token_map_find(&cache->known, id, now_us);

    return record != NULL ? record
                          : token_map_find(&cache->unknown, id, now_us);
}

void
token_cache_put(struct token_cache *cache, struct meter_str id,
                const struct token_record *record, uint64_t expires_us)
{
    struct map *map = record->known ? &cache->known : &cache->unknown;
    size_t tenant_size = record->known ? record->tenant.size : 0;
    struct token_entry *entry;
    struct meter_str key;

    token_map_remove(&cache->known, id);
    token_map_remove(&cache->unknown, id);
    if (map->count == map->count_max) {
        token_map_clear(map);
    }
    entry = malloc(sizeof(*entry) + id.size + tenant_size);
    if (entry == NULL) {
        return;
    }
    entry->record = *record;
    entry->expires_us = expires_us;
    memcpy(entry->bytes, id.data, id.size);
    if (tenant_size > 0) {
        memcpy(entry->bytes + id.size, record->tenant.data, tenant_size);
    }
    entry->record.tenant =
        (struct meter_str){entry->bytes + id.size, tenant_size};
    key = (struct meter_str){entry->bytes, id.size};
    if (map_add(map, key, entry) != entry) {
        free(entry);
    }
}

bool
token_record_matches(const struct token_record *record,
                     const uint8_t digest[METER_DIGEST_SIZE])
{
    static const uint8_t nobody[METER_DIGEST_SIZE];
    const uint8_t *expected = record->known ? record->digest : nobody;
    bool equal = meter_equal_constant_time(expected, digest, METER_DIGEST_SIZE);

    return equal & record->known;
}
