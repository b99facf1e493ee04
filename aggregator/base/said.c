/*
 * said.c - see said.h.
 */

#include "base/said.h"

#include <stdio.h>
#include <string.h>

#define NO_REASON "no reason is known"


bool
said_is_due(struct said *said, const char *reason, uint64_t now_ms)
{
    const char *text = reason[0] == '\0' ? NO_REASON : reason;
    size_t place = SAID_MAX;

    for (size_t i = 0; i < SAID_MAX; i++) {
        const char *known = said->of[i].reason;
        bool is_old =
            known[0] == '\0' || now_ms - said->of[i].at_ms >= SAID_EVERY_MS;

        if (!is_old && strncmp(known, text, SAID_SIZE_MAX - 1) == 0) {
            return false;
        }
        place = is_old ? i : place;
    }
    if (place == SAID_MAX) {
        return false;
    }
    snprintf(said->of[place].reason, SAID_SIZE_MAX, "%s", text);
    said->of[place].at_ms = now_ms;
    return true;
}


void
said_forget(struct said *said)
{
    memset(said, 0, sizeof(*said));
}
