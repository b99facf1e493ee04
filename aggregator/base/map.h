/*
 * map.h - hash map from byte strings to pointers.
 *
 * Open addressing, linear probing, grows to a stated maximum of entries.
 * Keys are borrowed: they must live as long as the entry. Lookups compare
 * the whole key; the hash is seeded per process against flooding.
 */

#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/check.h"

struct map_entry;

struct map {
    struct map_entry *entries;
    size_t room; /* power of two, or 0 */
    size_t count;
    size_t count_max;
};

void map_init(struct map *map, size_t count_max);
void map_fini(struct map *map);
/* Forgets all entries, keeps the memory. */
void map_clear(struct map *map);

/* NULL when absent. */
void *map_find(const struct map *map, struct meter_str key);

/*
 * Adds key with value (not NULL) unless the key is there. Returns the value
 * that is now under the key: the given one when added, the older one when
 * not; NULL when there is no memory or count_max is reached.
 */
MUST_CHECK void *map_add(struct map *map, struct meter_str key, void *value);

/* Removes the entry and returns its value, NULL when absent. */
void *map_remove(struct map *map, struct meter_str key);

/* Walks the values: *cursor starts at 0; NULL at the end. */
void *map_next(const struct map *map, size_t *cursor);

#endif
