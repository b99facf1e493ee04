/*
 * memory.h - allocation that cannot fail, and arrays that grow.
 *
 * A small allocation that fails ends the process with a message: kill -9 is
 * harmless to the numbers, and no caller has to carry an error that nobody
 * ever sees. What a client can make large lives in an arena or a buf; those
 * have a maximum and keep their errors.
 */

#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "base/check.h"

/* Zeroed; free() gives it back. */
void *memory_alloc(size_t size);
void *memory_array(size_t count, size_t item_size);
char *memory_strdup(const char *text);

/*
 * A growing array: VEC(struct row) rows = {0}. Items lie one after the other
 * and move when it grows.
 */
#define VEC(type)     \
    struct {          \
        type *items;  \
        size_t count; \
        size_t room;  \
    }

/* Room for one more, which is counted: a pointer to it, not zeroed. */
#define vec_add(vec) \
    (vec_reserve(vec, (vec)->count + 1), &(vec)->items[(vec)->count++])
#define vec_push(vec, item) ((void)(*vec_add(vec) = (item)))
#define vec_reserve(vec, want)                                                \
    ((void)((want) <= (vec)->room                                             \
                ? 0                                                           \
                : ((vec)->items = memory_grow((vec)->items, &(vec)->room,     \
                                              (want), sizeof(*(vec)->items)), \
                   0)))
#define vec_clear(vec) ((void)((vec)->count = 0))
#define vec_fini(vec) \
    (free((vec)->items), (vec)->items = NULL, (vec)->count = (vec)->room = 0)

/* For vec_reserve: at least doubles. */
void *memory_grow(void *items, size_t *room, size_t want, size_t item_size);

#endif
