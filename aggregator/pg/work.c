/*
 * work.c - see pg_work.h.
 */

#include "pg/work.h"

#include <stdlib.h>


struct pg_work *
pg_work_create(enum pg_work_kind kind, enum statement statement,
               const struct pg_params *params, pg_answer_cb cb, void *asker)
{
    if (params != NULL && params->bytes.failed) {
        return NULL;
    }

    size_t size = params == NULL ? 0 : params->bytes.size;
    struct pg_work *work = malloc(sizeof(*work) + size);

    if (work == NULL) {
        return NULL;
    }
    memset(work, 0, sizeof(*work));
    work->kind = kind;
    work->statement = statement;
    work->cb = cb;
    work->asker = asker;
    if (params == NULL) {
        return work;
    }

    if (size > 0) {
        memcpy(work->bytes, params->bytes.data, size);
    }
    work->param_count = params->count;
    for (int i = 0; i < params->count; i++) {
        work->param_size[i] = params->size[i];
        work->param_value[i] =
            params->size[i] < 0 ? NULL : work->bytes + params->offset[i];
    }
    return work;
}


void
pg_work_free(struct pg_work *work)
{
    free(work);
}


void
pg_work_lose(struct pg_work *work)
{
    struct pg_answer answer = {.outcome = PG_OUTCOME_LOST};

    if (work->cb != NULL && !work->answered) {
        work->cb(work->asker, &answer);
    }
    pg_work_free(work);
}


void
pg_work_push(struct pg_work_list *list, struct pg_work *work)
{
    work->next = NULL;
    if (list->tail == NULL) {
        list->head = work;
    } else {
        list->tail->next = work;
    }
    list->tail = work;
    list->count++;
}


struct pg_work *
pg_work_pop(struct pg_work_list *list)
{
    struct pg_work *work = list->head;

    if (work == NULL) {
        return NULL;
    }
    list->head = work->next;
    if (list->head == NULL) {
        list->tail = NULL;
    }
    list->count--;
    work->next = NULL;
    return work;
}


void
pg_work_move(struct pg_work_list *to, struct pg_work_list *from)
{
    struct pg_work *work;

    while ((work = pg_work_pop(from)) != NULL) {
        pg_work_push(to, work);
    }
}
