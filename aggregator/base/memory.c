/*
 * memory.c - allocation that cannot fail, and arrays that grow.
 */

#include "base/memory.h"

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
