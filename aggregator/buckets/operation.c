/*
 * operation.c - see operation.h: its life, and the lists it stands in.
 */

#include "buckets/operation.h"

#include <stdlib.h>

/* Moves the text to *at, which goes on behind it. */
static void
text_take(struct meter_str *text, char **at)
{
    if (text->size > 0) {
        memcpy(*at, text->data, text->size);
    }
    if (text->data != NULL) {
        text->data = *at;
    }
    *at += text->size;
}


struct operation *
operation_create(const struct operation_request *request, operation_cb cb,
                 void *asker)
{
    size_t size = request->key.tenant.size + request->key.name.size +
                  request->idempotency_key.size;
    struct operation *operation = malloc(sizeof(*operation) + size);
    char *at;

    if (operation == NULL) {
        return NULL;
    }
    *operation = (struct operation){
        .request = *request,
        .cb = cb,
        .asker = asker,
    };
    at = operation->bytes;
    text_take(&operation->request.key.tenant, &at);
    text_take(&operation->request.key.name, &at);
    text_take(&operation->request.idempotency_key, &at);
    return operation;
}


void
operation_finish(struct operation *operation)
{
    if (operation->cb != NULL) {
        operation->cb(operation->asker, &operation->result);
    }
    operation_free(operation);
}


void
operation_free(struct operation *operation)
{
    CHECK(operation->previous == NULL && operation->next == NULL);
    free(operation);
}


/* ---- lists ----------------------------------------------------------- */

/* Between two neighbours in the list; NULL: an end of it. */
static void
link_between(struct operation_list *list, struct operation *operation,
             struct operation *previous, struct operation *next)
{
    CHECK(operation->previous == NULL && operation->next == NULL);
    operation->previous = previous;
    operation->next = next;
    if (previous == NULL) {
        list->head = operation;
    } else {
        previous->next = operation;
    }
    if (next == NULL) {
        list->tail = operation;
    } else {
        next->previous = operation;
    }
    list->count++;
}


void
operation_push(struct operation_list *list, struct operation *operation)
{
    link_between(list, operation, list->tail, NULL);
}


void
operation_push_front(struct operation_list *list, struct operation *operation)
{
    link_between(list, operation, NULL, list->head);
}


struct operation *
operation_pop(struct operation_list *list)
{
    struct operation *operation = list->head;

    if (operation != NULL) {
        operation_remove(list, operation);
    }
    return operation;
}


void
operation_remove(struct operation_list *list, struct operation *operation)
{
    CHECK(list->count > 0);
    if (operation->previous == NULL) {
        CHECK(list->head == operation);
        list->head = operation->next;
    } else {
        operation->previous->next = operation->next;
    }
    if (operation->next == NULL) {
        CHECK(list->tail == operation);
        list->tail = operation->previous;
    } else {
        operation->next->previous = operation->previous;
    }
    operation->previous = NULL;
    operation->next = NULL;
    list->count--;
}
