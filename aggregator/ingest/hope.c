/*
 * hope.c - see hope.h.
 */

#include "ingest/hope.h"

void
hope_init(struct hope *hope)
{
    *hope = (struct hope){.needed = HOPE_NEEDED_MIN};
}

bool
hope_allows(const struct hope *hope)
{
    return hope->calm >= hope->needed;
}

void
hope_asked(struct hope *hope, size_t known_count)
{
    if (known_count > 0) {
        hope->calm = 0;
    } else if (hope->calm < hope->needed) {
        hope->calm++;
    }
}

void
hope_held(struct hope *hope)
{
    if (++hope->rewarded < HOPE_NEEDED_MAX) {
        return;
    }
    hope->rewarded = 0;
    if (hope->needed > HOPE_NEEDED_MIN) {
        hope->needed /= 2;
    }
}

void
hope_dashed(struct hope *hope)
{
    hope->calm = 0;
    hope->rewarded = 0;
    if (hope->needed < HOPE_NEEDED_MAX) {
        hope->needed *= 2;
    }
}
