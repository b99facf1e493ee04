/*
 * work.h - pieces of work of a connection, and lists of them.
 *
 * A piece is made by pg_work_create, stands in exactly one list, and is
 * freed by pg_work_finish, which gives the answer, or by pg_work_free after
 * the answer was given.
 */

#ifndef PG_WORK_H
#define PG_WORK_H

#include "pg/conn.h"

enum pg_work_kind {
    PG_WORK_QUERY,   /* a prepared statement */
    PG_WORK_COMMAND, /* a text statement without parameters */
    PG_WORK_COPY,    /* a whole COPY; stands alone */
    PG_WORK_PREPARE, /* our own: goes before the first use */
    PG_WORK_SYNC     /* our own: end of a flush */
};

struct pg_work {
    struct pg_work *next;
    enum pg_work_kind kind;
    enum statement statement;
    bool answered; /* has its result; the end mark is still to come */
    pg_answer_cb cb;
    void *asker;

    struct meter_str data; /* COPY: the stream or a piece of it, borrowed */
    size_t data_sent;
    pg_piece_cb next_piece; /* COPY: NULL when data is the last */

    int param_count;
    int param_size[PG_PARAM_COUNT_MAX];          /* -1: NULL */
    const char *param_value[PG_PARAM_COUNT_MAX]; /* into bytes */
    char bytes[];
};

struct pg_work_list {
    struct pg_work *head;
    struct pg_work *tail;
    size_t count;
};

/* params may be NULL; they are copied. NULL: out of memory. */
MUST_CHECK struct pg_work *
pg_work_create(enum pg_work_kind kind, enum statement statement,
               const struct pg_params *params, pg_answer_cb cb, void *asker);
void pg_work_free(struct pg_work *work);
/* Answers LOST, then frees. */
void pg_work_lose(struct pg_work *work);

void pg_work_push(struct pg_work_list *list, struct pg_work *work);
struct pg_work *pg_work_pop(struct pg_work_list *list);
/* Moves all of from to the end of to. */
void pg_work_move(struct pg_work_list *to, struct pg_work_list *from);

#endif
