/*
 * arena.h - bump allocator: many small things with one life.
 *
 * Grows by blocks up to a stated maximum; past it arena_alloc returns NULL
 * and the caller rejects its input. Freed as a whole.
 */

#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/check.h"

struct arena_block;

struct arena {
    struct arena_block *blocks; /* newest first */
    size_t block_size;
    size_t used;  /* in the newest block */
    size_t total; /* bytes of all blocks */
    size_t total_max;
    bool no_memory; /* the system refused a block; total_max is not that */
};

/* Nothing is allocated before the first arena_alloc. */
void arena_init(struct arena *arena, size_t block_size, size_t total_max);
void arena_fini(struct arena *arena);
/* Keeps the newest block for reuse. */
void arena_reset(struct arena *arena);

/* 16-byte aligned, not zeroed. NULL: out of memory or past total_max. */
MUST_CHECK void *arena_alloc(struct arena *arena, size_t size);
MUST_CHECK void *arena_zalloc(struct arena *arena, size_t size);
/* A copy of the bytes with a NUL behind it (size stays the same). */
MUST_CHECK bool
arena_copy(struct arena *arena, struct meter_str from, struct meter_str *to);
MUST_CHECK char *arena_strdup(struct arena *arena, const char *text);

#endif
