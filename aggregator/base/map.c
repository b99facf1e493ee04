/*
 * map.c - hash map from byte strings to pointers, up to a stated maximum.
 *
 * Open addressing with linear probing; a removal closes its gap, so that there
 * are no tombstones. The hash is seeded per process against flooding.
 */

#include "base/map.h"

#include "meter_hash.h"

#include <stdlib.h>
#include <sys/random.h>

#define MAP_ROOM_MIN 16

struct map_entry {
    struct meter_str key;
    uint64_t hash;
    void *value; /* NULL: empty */
};

static uint64_t
map_seed(void)
{
    static uint64_t seed;

    while (seed == 0) {
        if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) {
            seed = (uint64_t)(uintptr_t)&seed;
        }
    }
    return seed;
}

void
map_init(struct map *map, size_t count_max)
{
    *map = (struct map){.count_max = count_max};
}

void
map_fini(struct map *map)
{
    free(map->entries);
    map->entries = NULL;
    map->room = 0;
    map->count = 0;
}

void
map_clear(struct map *map)
{
    if (map->count > 0) {
        memset(map->entries, 0, map->room * sizeof(*map->entries));
    }
    map->count = 0;
}

/* The entry with the key, or the empty one where it would go. */
static struct map_entry *
map_slot(const struct map *map, struct meter_str key, uint64_t hash)
{
    size_t at = hash & (map->room - 1);

    for (;;) {
        struct map_entry *entry = &map->entries[at];

        if (entry->value == NULL ||
            (entry->hash == hash && meter_str_equal(entry->key, key))) {
            return entry;
        }
        at = (at + 1) & (map->room - 1);
    }
}

static bool
map_grow(struct map *map)
{
    struct map old = *map;
    size_t room = old.room == 0 ? MAP_ROOM_MIN : old.room * 2;

    map->entries = calloc(room, sizeof(*map->entries));
    if (map->entries == NULL) {
        *map = old;
        return false;
    }
    map->room = room;
    for (size_t i = 0; i < old.room; i++) {
        struct map_entry *entry = &old.entries[i];

        if (entry->value != NULL) {
            *map_slot(map, entry->key, entry->hash) = *entry;
        }
    }
    free(old.entries);
    return true;
}

void *
map_find(const struct map *map, struct meter_str key)
{
    if (map->count == 0) {
        return NULL;
    }
    return map_slot(map, key, meter_hash(key.data, key.size, map_seed()))
        ->value;
}

void *
map_add(struct map *map, struct meter_str key, void *value)
{
    uint64_t hash = meter_hash(key.data, key.size, map_seed());
    struct map_entry *entry;

    CHECK(value != NULL);
    if (map->count * 4 >= map->room * 3 && !map_grow(map)) {
        return NULL;
    }
    entry = map_slot(map, key, hash);
    if (entry->value != NULL) {
        return entry->value;
    }
    if (map->count >= map->count_max) {
        return NULL;
    }
    *entry = (struct map_entry){.key = key, .hash = hash, .value = value};
    map->count++;
    return value;
}

void *
map_remove(struct map *map, struct meter_str key)
{
    struct map_entry *hole;
    void *value;
    size_t at;

    if (map->count == 0) {
        return NULL;
    }
    hole = map_slot(map, key, meter_hash(key.data, key.size, map_seed()));
    value = hole->value;
    if (value == NULL) {
        return NULL;
    }
    /* Backward shift: close the gap so that probes never stop early. */
    at = (size_t)(hole - map->entries);
    for (size_t next = (at + 1) & (map->room - 1);
         map->entries[next].value != NULL;
         next = (next + 1) & (map->room - 1)) {
        size_t home = map->entries[next].hash & (map->room - 1);

        if (((next - home) & (map->room - 1)) >=
            ((next - at) & (map->room - 1))) {
            map->entries[at] = map->entries[next];
            at = next;
        }
    }
    map->entries[at].value = NULL;
    map->count--;
    return value;
}

void *
map_next(const struct map *map, size_t *cursor)
{
    while (*cursor < map->room) {
        void *value = map->entries[(*cursor)++].value;

        if (value != NULL) {
            return value;
        }
    }
    return NULL;
}
