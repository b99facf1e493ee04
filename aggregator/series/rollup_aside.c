/*
 * rollup_aside.c - see rollup_aside.h.
 */

#include "series/rollup_aside.h"

#define DATA_TRIES 3

void
rollup_aside_init(struct rollup_aside *aside)
{
    aside->limit = ROLLUP_BATCH_MARKS;
    aside->failures = 0;
    aside->count = 0;
}

bool
rollup_aside_is_careful(const struct rollup_aside *aside)
{
    return aside->limit < ROLLUP_BATCH_MARKS || aside->count > 0;
}

enum rollup_aside_step
rollup_aside_failed(struct rollup_aside *aside, size_t taken, int64_t id,
                    uint64_t now_ms)
{
    if (++aside->failures < DATA_TRIES) {
        return ROLLUP_AGAIN;
    }
    /* The next one is alone for sure only when it was asked for alone. */
    if (taken > 1 || aside->limit > 1) {
        aside->limit = taken > 1 ? taken / 2 : 1;
        return ROLLUP_SMALLER;
    }
    if (aside->count == ROLLUP_ASIDES_MAX) {
        return ROLLUP_AGAIN;
    }
    if (aside->count == 0) {
        aside->since_ms = now_ms;
    }
    aside->ids[aside->count++] = id;
    return ROLLUP_SET_ASIDE;
}

void
rollup_aside_done(struct rollup_aside *aside)
{
    size_t twice = 2 * aside->limit;

    aside->limit = twice < ROLLUP_BATCH_MARKS ? twice : ROLLUP_BATCH_MARKS;
    if (aside->limit == ROLLUP_BATCH_MARKS) {
        aside->failures = 0;
    }
}

void
rollup_aside_retry(struct rollup_aside *aside, uint64_t now_ms)
{
    if (aside->count > 0 && now_ms >= aside->since_ms + ROLLUP_ASIDE_MS) {
        aside->count = 0;
    }
}
