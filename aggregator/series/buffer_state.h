/*
 * buffer_state.h - the inside of the buffer, for its own files.
 *
 *   buffer.c       cells and their generations
 *   buffer_keys.c  keys, and what those of a series share
 */

#ifndef SERIES_BUFFER_STATE_H
#define SERIES_BUFFER_STATE_H

#include "series/buffer.h"

/* A series of a tenant: what its keys share. */
struct buffer_group {
    struct meter_str id; /* tenant size, tenant, version, series */
    struct meter_str tenant;
    struct meter_str series;
    int64_t version;
    size_t key_count;
    uint32_t rank; /* among all groups, while a flush is sorted */
};

/* A key as the buffer keeps it; the JSON of its set lies behind. */
struct buffer_entry {
    struct buffer_key key;
    struct buffer_group *group;
    struct buffer_entry *next;  /* of the slot */
    struct buffer_cell *recent; /* its last cell, of generation `used` */
    uint32_t used;              /* generation */
    uint32_t hash;
};

struct buffer_slots {
    void **heads;
    size_t count; /* power of two, or 0 */
};

struct buffer_generation {
    uint32_t number;
    struct arena arena; /* cells */
    struct buffer_slots slots;
    size_t cell_count;
    size_t tally_count;
    size_t tally_size; /* bytes */
};

struct buffer {
    uint64_t seed;
    struct map groups;
    size_t group_size; /* bytes of all groups */
    struct buffer_slots keys;
    size_t key_count;
    size_t key_size; /* bytes of all keys */
    struct buffer_generation filling;
    struct buffer_generation flushing;
    struct buffer_cell **sorted; /* of flushing; NULL: not asked for yet */
};

/* buffer_keys.c */
size_t buffer_slots_size(const struct buffer_slots *slots);
void buffer_slots_fini(struct buffer_slots *slots);
/* Twice as many, all empty; the caller moves the chains over. */
MUST_CHECK bool
buffer_slots_double(const struct buffer_slots *slots, struct buffer_slots *out);
/* Found, or made. NULL: no memory. */
MUST_CHECK struct buffer_entry *
buffer_key_take(struct buffer *buffer, struct meter_str tenant,
                const struct series_change *change);
/* Forgets keys that neither the last generation nor this one used. */
void buffer_keys_sweep(struct buffer *buffer);
void buffer_keys_free(struct buffer *buffer);

#endif
