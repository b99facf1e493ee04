/*
 * flush.h - one cut of a buffer into the tables, once.
 *
 *   buffer -> [flush] -> series_key, series_5s (or a level above), marks
 *                        writer_flush.upto: from -> upto, the same transaction
 *
 * Whether a COMMIT without an answer has succeeded is told by upto, so a
 * flush may be asked for again with the same task until it ends well.
 */

#ifndef SERIES_FLUSH_H
#define SERIES_FLUSH_H

#include "pg/conn.h"
#include "series/buffer.h"
#include "store/partition.h"

/* Of times that are not known. */
#define FLUSH_ANY_US INT64_MIN

struct flush;

struct flush_task {
    uint8_t writer[16];
    int64_t epoch;         /* the writer's; another one fences */
    int64_t from;          /* upto as committed before */
    int64_t upto;          /* of the cut: all events up to it, none after it */
    int64_t recorded_us;   /* of ledger row upto; or FLUSH_ANY_US */
    int64_t clock_us;      /* the clock at its transaction; likewise */
    int64_t flushed_us;    /* flushed_at as committed before; likewise */
    bool is_retiring;      /* nothing is left of the writer then */
    struct buffer *buffer; /* cut */
};

enum flush_outcome {
    FLUSH_COMMITTED, /* now or before */
    FLUSH_FAILED,    /* nothing has happened, or it is not known: again */
    FLUSH_ASTRAY,    /* upto is neither: read it and start over */
    FLUSH_FENCED     /* the writer's epoch is another one */
};

struct flush_end {
    enum flush_outcome outcome;
    int64_t flushed_us; /* COMMITTED: flushed_at; or FLUSH_ANY_US */
    int64_t epoch_seen; /* FENCED; 0: no such writer */
    size_t rows;        /* COMMITTED: written, all levels */
};

typedef void (*flush_cb)(void *owner, const struct flush_end *end);

/* conn is borrowed and used by nobody else meanwhile. */
struct flush *flush_create(struct pg_conn *conn, struct partition *partition,
                           flush_cb cb, void *owner);
/* The connection is gone before. cb is not called any more. */
void flush_destroy(struct flush *flush);

/* Nothing of this flush may be running. cb comes later or at once. */
void flush_start(struct flush *flush, const struct flush_task *task);

#endif
