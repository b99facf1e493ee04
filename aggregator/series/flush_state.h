/*
 * flush_state.h - the inside of a flush, for its own files.
 *
 *   flush.c        floors, partitions, the transaction, its outcome
 *   flush_write.c  its rows, piece by piece; the careful way
 */

#ifndef SERIES_FLUSH_STATE_H
#define SERIES_FLUSH_STATE_H

#include "series/flush.h"
#include "series/flush_aside.h"
#include "series/flush_rows.h"

enum flush_state {
    FLUSH_IDLE,
    FLUSH_FLOORS,
    FLUSH_PARTITIONS,
    FLUSH_OPEN,
    FLUSH_WRITE,
    FLUSH_COMMIT,
    FLUSH_ROLLBACK,
    FLUSH_LOOK
};

struct flush {
    struct pg_conn *conn;
    struct partition *partition;
    flush_cb cb;
    void *owner;
    struct flush_task task;
    uint64_t started_us;

    enum flush_state state;
    size_t answers_due;
    bool is_partition_due;
    bool is_closing;
    bool is_failed; /* this try; then ROLLBACK */
    bool is_lost;   /* with its connection: nothing to roll back */
    bool is_astray; /* upto was not `from` */
    bool is_moved;  /* the floors are others than thought */
    bool is_refresh_due;
    int64_t epoch_seen;
    unsigned data_failures; /* in a row: tries that met bad data */
    bool is_piece_bad;      /* of a careful flush: refused, */
    char piece_sqlstate[6]; /* with this code */
    bool is_last_piece;     /* there was none */
    struct flush_asides asides;

    bool has_floors;
    struct flush_floors floors;
    struct pg_params params;
    struct flush_end end;
    struct flush_rows rows;
};

/* What is asked may be lost at once: hold keeps the step from its end. */
void flush_hold(struct flush *flush);
void flush_release(struct flush *flush);
/* Asks one thing of a step; the params are the flush's own. */
void flush_ask(struct flush *flush, enum statement statement, pg_answer_cb cb);
void
flush_command(struct flush *flush, enum statement statement, pg_answer_cb cb);
/* Of each answer. True: OK, and nothing failed before. */
bool flush_answer_take(struct flush *flush, const struct pg_answer *answer);
/* This try; said once. */
void flush_fail(struct flush *flush, const char *why, const char *sqlstate);
/* All answers of the step are here. */
void flush_step_done(struct flush *flush);

/* All rows, behind the opened transaction; ends in flush_step_done. */
void flush_write(struct flush *flush);
/* The transaction is committed. */
void flush_write_committed(struct flush *flush);

#endif
