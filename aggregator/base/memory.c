/*
 * memory.c - allocation: small things that cannot fail, and arenas that can.
 *
 *   everything -> [memory_alloc, VEC] -> the heap, or the end of the process
 *   requests, batches, configuration -> [arena] -> blocks, up to a maximum
 *
 * A client can make an arena full, so that is an answer; nobody can answer for
 * a heap that has no small thing left.
 */

#include "base/memory.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>

#define ROOM_MIN 16

__attribute__((noreturn)) static void
memory_out(size_t count, size_t size)
{
    fprintf(stderr, "meterd: out of memory: %zu times %zu bytes\n", count,
            size);
    abort();
}

void *
memory_alloc(size_t size)
{
    return memory_array(1, size);
}

void *
memory_array(size_t count, size_t item_size)
{
    void *data = calloc(count == 0 ? 1 : count, item_size);

    if (data == NULL) {
        memory_out(count, item_size);
    }
    return data;
}

char *
memory_strdup(const char *text)
{
    size_t size = strlen(text) + 1;

    return memcpy(memory_alloc(size), text, size);
}

void *
memory_grow(void *items, size_t *room, size_t want, size_t item_size)
{
    size_t more = *room < ROOM_MIN ? ROOM_MIN : *room * 2;

    more = more < want ? want : more;
    items = reallocarray(items, more, item_size);
    if (items == NULL) {
        memory_out(more, item_size);
    }
    *room = more;
    return items;
}


/* ---- arenas ---------------------------------------------------------- */

#define ARENA_ALIGN 16

struct arena_block {
    struct arena_block *next;
    size_t size; /* of data */
    _Alignas(ARENA_ALIGN) char data[];
};

/*
 * Blocks of the usual size, kept for the next arena: requests come and go by
 * the thousand, and the allocator takes its time with sizes like this. For one
 * thread. A sanitizer sees every block come and go.
 */
#define CACHE_BLOCK_SIZE 4096
#if defined(__SANITIZE_ADDRESS__)
#define CACHE_COUNT_MAX 0
#else
#define CACHE_COUNT_MAX 256
#endif

static struct {
    struct arena_block *blocks;
    size_t count;
} cache;

static struct arena_block *
block_take(size_t size)
{
    struct arena_block *block = cache.blocks;

    if (size != CACHE_BLOCK_SIZE || block == NULL) {
        return malloc(sizeof(*block) + size);
    }
    cache.blocks = block->next;
    cache.count--;
    return block;
}

static void
block_give(struct arena_block *block)
{
    if (block->size != CACHE_BLOCK_SIZE || cache.count + 1 > CACHE_COUNT_MAX) {
        free(block);
        return;
    }
    block->next = cache.blocks;
    cache.blocks = block;
    cache.count++;
}

void
arena_init(struct arena *arena, size_t block_size, size_t total_max)
{
    CHECK(block_size > 0 && total_max >= block_size);
    *arena = (struct arena){.block_size = block_size, .total_max = total_max};
}

void
arena_fini(struct arena *arena)
{
    struct arena_block *block = arena->blocks;

    while (block != NULL) {
        struct arena_block *next = block->next;

        block_give(block);
        block = next;
    }
    arena->blocks = NULL;
    arena->used = 0;
    arena->total = 0;
}

void
arena_reset(struct arena *arena)
{
    struct arena_block *keep = arena->blocks;

    if (keep == NULL) {
        return;
    }
    arena->blocks = keep->next;
    arena_fini(arena);
    keep->next = NULL;
    arena->blocks = keep;
    arena->total = keep->size;
}

static bool
arena_grow(struct arena *arena, size_t size)
{
    size_t left = arena->total_max - arena->total;
    size_t want = arena->block_size < left ? arena->block_size : left;
    struct arena_block *block;

    if (size > left) {
        return false;
    }
    want = size > want ? size : want;
    block = block_take(want);
    if (block == NULL) {
        arena->no_memory = true;
        return false;
    }
    block->size = want;
    block->next = arena->blocks;
    arena->blocks = block;
    arena->used = 0;
    arena->total += want;
    return true;
}

void *
arena_alloc(struct arena *arena, size_t size)
{
    void *start;

    if (size > arena->total_max) {
        return NULL;
    }
    size = (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (arena->blocks == NULL || size > arena->blocks->size - arena->used) {
        if (!arena_grow(arena, size)) {
            return NULL;
        }
    }
    start = arena->blocks->data + arena->used;
    arena->used += size;
    return start;
}

void *
arena_zalloc(struct arena *arena, size_t size)
{
    void *start = arena_alloc(arena, size);

    if (start != NULL) {
        memset(start, 0, size);
    }
    return start;
}

bool
arena_copy(struct arena *arena, struct meter_str from, struct meter_str *to)
{
    char *copy = arena_alloc(arena, from.size + 1);

    if (copy == NULL) {
        return false;
    }
    if (from.size > 0) {
        memcpy(copy, from.data, from.size);
    }
    copy[from.size] = '\0';
    *to = (struct meter_str){copy, from.size};
    return true;
}

char *
arena_strdup(struct arena *arena, const char *text)
{
    struct meter_str copy;

    if (!arena_copy(arena, (struct meter_str){text, strlen(text)}, &copy)) {
        return NULL;
    }
    return (char *)copy.data;
}
