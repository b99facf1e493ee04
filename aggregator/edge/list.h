/*
 * list.h - things in order of arrival, any of which may leave.
 *
 * A node is embedded in its item and names it; one node is in one list at a
 * time. Nothing is allocated.
 */

#ifndef EDGE_LIST_H
#define EDGE_LIST_H

#include "base/check.h"

struct list;

struct list_node {
    struct list_node *previous;
    struct list_node *next;
    struct list *list; /* NULL: in none */
    void *item;
};

struct list {
    struct list_node *first;
    struct list_node *last;
    size_t count;
};

static inline void
list_add(struct list *list, struct list_node *node, void *item)
{
    CHECK(node->list == NULL);
    *node = (struct list_node){list->last, NULL, list, item};
    if (list->last == NULL) {
        list->first = node;
    } else {
        list->last->next = node;
    }
    list->last = node;
    list->count++;
}

/* No effect for a node that is in no list. */
static inline void
list_remove(struct list_node *node)
{
    struct list *list = node->list;

    if (list == NULL) {
        return;
    }
    if (node->previous == NULL) {
        list->first = node->next;
    } else {
        node->previous->next = node->next;
    }
    if (node->next == NULL) {
        list->last = node->previous;
    } else {
        node->next->previous = node->previous;
    }
    *node = (struct list_node){NULL, NULL, NULL, NULL};
    list->count--;
}

/* The oldest item; NULL: the list is empty. */
static inline void *
list_first(const struct list *list)
{
    return list->first == NULL ? NULL : list->first->item;
}

#endif
