/*
 * lookup_skip.c - see lookup_skip.h.
 */

#include "ingest/lookup_skip.h"

void
lookup_skip_init(struct lookup_skip *skip)
{
    *skip = (struct lookup_skip){.needed = LOOKUP_SKIP_NEEDED_MIN};
}

bool
lookup_skip_allows(const struct lookup_skip *skip)
{
    return skip->calm >= skip->needed;
}

void
lookup_skip_asked(struct lookup_skip *skip, size_t known_count)
{
    if (known_count > 0) {
        skip->calm = 0;
    } else if (skip->calm < skip->needed) {
        skip->calm++;
    }
}

void
lookup_skip_held(struct lookup_skip *skip)
{
    if (++skip->rewarded < LOOKUP_SKIP_NEEDED_MAX) {
        return;
    }
    skip->rewarded = 0;
    if (skip->needed > LOOKUP_SKIP_NEEDED_MIN) {
        skip->needed /= 2;
    }
}

void
lookup_skip_failed(struct lookup_skip *skip)
{
    skip->calm = 0;
    skip->rewarded = 0;
    if (skip->needed < LOOKUP_SKIP_NEEDED_MAX) {
        skip->needed *= 2;
    }
}
