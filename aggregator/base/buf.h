/*
 * buf.h - growing byte buffer with a stated maximum and a sticky `failed`.
 *
 * Put, put, put, check once. On failure (maximum or memory) it frees what
 * it holds and ignores further puts, so callers have one error path.
 */

#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/check.h"

struct buf {
    char *data;
    size_t size;     /* bytes held */
    size_t room;     /* bytes allocated */
    size_t size_max; /* never grows past this */
    bool failed;
};

void buf_init(struct buf *buf, size_t size_max);
void buf_fini(struct buf *buf);
/* Empties it and clears `failed`; the memory is kept. */
void buf_reset(struct buf *buf);

void buf_put(struct buf *buf, const void *data, size_t size);
void buf_put_byte(struct buf *buf, uint8_t byte);
void buf_put_text(struct buf *buf, const char *text);
void buf_put_str(struct buf *buf, struct meter_str str);
void buf_put_int(struct buf *buf, int64_t value);
/* Text for a terminal: what could steer it becomes '?'. */
void buf_put_printable(struct buf *buf, struct meter_str text);
void buf_printf(struct buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Room for size more bytes, to be written by the caller; NULL on failure. */
MUST_CHECK char *buf_reserve(struct buf *buf, size_t size);
/* Takes over what was written into the reserved room. */
void buf_commit(struct buf *buf, size_t size);
/* Gives back what was allocated beyond the bytes held. */
void buf_fit(struct buf *buf);
/* Drops the first bytes; what is left moves to the front. */
void buf_consume(struct buf *buf, size_t size);

static inline struct meter_str
buf_str(const struct buf *buf)
{
    return (struct meter_str){buf->data, buf->size};
}

#endif
