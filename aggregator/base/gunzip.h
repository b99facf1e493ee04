/*
 * gunzip.h - a gzip body, inflated step by step and never past a bound.
 *
 *   packed bytes -> [gunzip_step, gunzip_step, ...] -> gunzip_take -> buf
 *
 * A step looks at GUNZIP_STEP_IN bytes and makes GUNZIP_STEP_OUT at most,
 * so that the loop can do something else in between. What grows without
 * end is noticed one byte past the bound, whatever it claims to be.
 */

#ifndef BASE_GUNZIP_H
#define BASE_GUNZIP_H

#include "base/buf.h"

/* Blocks and members that make nothing cost time too: hence both. */
#define GUNZIP_STEP_IN  ((size_t)32 << 10)
#define GUNZIP_STEP_OUT ((size_t)128 << 10)

struct gunzip;

enum gunzip_result {
    GUNZIP_MORE,     /* not at the end: step again */
    GUNZIP_DONE,     /* whole, and its checksums hold */
    GUNZIP_BAD,      /* not gzip, cut off, damaged, or bytes behind it */
    GUNZIP_LARGE,    /* more than size_max bytes */
    GUNZIP_NO_MEMORY /* nothing is said about the bytes */
};

/*
 * packed is borrowed until the end. One member behind another is one body,
 * as RFC 1952 has it. NULL: no memory.
 */
MUST_CHECK struct gunzip *
gunzip_create(struct meter_str packed, size_t size_max);
void gunzip_destroy(struct gunzip *gunzip);

/* Not any more once it has answered something else than MORE. */
MUST_CHECK enum gunzip_result gunzip_step(struct gunzip *gunzip);
/* After BAD: a fixed sentence. */
const char *gunzip_error(const struct gunzip *gunzip);
/* After DONE: the bytes replace those of out, its bound stays. */
void gunzip_take(struct gunzip *gunzip, struct buf *out);

#endif
