/*
 * reason.h - sentences that tell a sender why something was refused.
 *
 * Lower case, no full stop, name the field. What a sender wrote is quoted
 * by reason_quote only: escaped, and never more than REASON_QUOTE_MAX bytes
 * of it.
 */

#ifndef BASE_REASON_H
#define BASE_REASON_H

#include "base/arena.h"

#define REASON_SIZE_MAX  512
#define REASON_QUOTE_MAX 64 /* escaped bytes of the input */

/* Quotes, the text, "..." where it was cut, NUL. */
struct reason_quote {
    char text[REASON_QUOTE_MAX + 6];
};

/* Bytes that are no UTF-8 become '?'. */
struct reason_quote reason_quote(struct meter_str text);

/* In the arena, cut to REASON_SIZE_MAX; a literal when there is no memory:
   a refusal never goes without a reason. */
const char *reason_format(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
