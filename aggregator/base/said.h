/*
 * said.h - what a log was told lately. Pure.
 *
 * For a condition that is met again and again while it lasts: each reason is
 * told when it is new, and once a minute from then on. More than SAID_MAX
 * reasons a minute are too many to read; the others wait for their turn.
 */

#ifndef BASE_SAID_H
#define BASE_SAID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAID_MAX      8
#define SAID_SIZE_MAX 256
#define SAID_EVERY_MS 60000

struct said {
    struct {
        char reason[SAID_SIZE_MAX]; /* empty: free */
        uint64_t at_ms;
    } of[SAID_MAX];
};

/* True: the caller says it now, and it counts as said. */
bool said_is_due(struct said *said, const char *reason, uint64_t now_ms);
/* The condition is over: every reason is new again. */
void said_forget(struct said *said);

#endif
