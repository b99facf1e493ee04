/*
 * meter_types.h - words spoken by module, meterd, tests and fuzzers.
 */

#ifndef METER_TYPES_H
#define METER_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define METER_MUST_CHECK __attribute__((warn_unused_result))

/* Borrowed bytes; not terminated. data may be NULL only when size is 0. */
struct meter_str {
    const char *data;
    size_t size;
};

#define METER_STR(literal) ((struct meter_str){(literal), sizeof(literal) - 1})

static inline bool
meter_str_equal(struct meter_str a, struct meter_str b)
{
    return a.size == b.size &&
           (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* Bytewise, shorter first on a common prefix: the order of every key. */
static inline int
meter_str_compare(struct meter_str a, struct meter_str b)
{
    size_t common = a.size < b.size ? a.size : b.size;
    int order = common == 0 ? 0 : memcmp(a.data, b.data, common);

    if (order != 0) {
        return order;
    }
    return a.size < b.size ? -1 : a.size > b.size;
}

/* The only four answers to an event. */
enum meter_verdict {
    METER_VERDICT_ACCEPTED = 0,
    METER_VERDICT_DUPLICATE = 1, /* same id, same content: no effect */
    METER_VERDICT_CONFLICT = 2,  /* same id, other content: no effect */
    METER_VERDICT_REJECTED = 3,  /* invalid; a reason is given */
    METER_VERDICT_COUNT = 4
};

/* "accepted", "duplicate", "conflict", "rejected". */
const char *meter_verdict_name(enum meter_verdict verdict);

/* What a decoder says of the bytes it was given. */
enum meter_decode {
    METER_DECODE_OK,   /* one whole message taken */
    METER_DECODE_MORE, /* a valid beginning: come back with more bytes */
    METER_DECODE_BAD   /* never valid, whatever follows */
};

/* Facts about how an event came to be; bits of event.flags. */
enum meter_event_flag {
    METER_EVENT_CAPTURED = 1 << 0,    /* made by the edge from a request */
    METER_EVENT_RECOVERED = 1 << 1,   /* emitted by an adopter */
    METER_EVENT_TRUNCATED = 1 << 2,   /* attributes dropped for size */
    METER_EVENT_SERVER_TIME = 1 << 3, /* ts was supplied by the server */
    METER_EVENT_DERIVED_ID = 1 << 4,  /* id made from the content */
    METER_EVENT_MINTED_ID = 1 << 5,   /* id = ring session and sequence */
    METER_EVENT_NEGATIVE = 1 << 6     /* its location allows such a quantity */
};

#endif
