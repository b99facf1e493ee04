/*
 * rollup_aside.h - marks that cannot be worked off, found by halves. Pure.
 *
 *   batch refused -> [failed] -> again, a smaller batch, ... one mark: aside
 *   batch done    -> [done]   -> twice as large
 *
 * Where the database refuses the data of a batch, no later try ends
 * otherwise. After some of them batches become smaller until one mark alone
 * is refused; it is passed over, stays in the table, and is tried again
 * after ROLLUP_ASIDE_MS. So nothing is lost, retention keeps what it needs,
 * and its age is seen in the lag.
 */

#ifndef SERIES_ROLLUP_ASIDE_H
#define SERIES_ROLLUP_ASIDE_H

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Marks that one transaction takes. */
#define ROLLUP_BATCH_MARKS 5000
/* More than that is no matter of single marks. */
#define ROLLUP_ASIDES_MAX 100
#define ROLLUP_ASIDE_MS   (10 * 60 * 1000)

struct rollup_aside {
    size_t limit;      /* marks of a batch */
    unsigned failures; /* in a row, of whole batches */
    uint64_t since_ms; /* the first one is aside */
    int64_t ids[ROLLUP_ASIDES_MAX];
    size_t count;
};

enum rollup_aside_step {
    ROLLUP_AGAIN,    /* the same batch */
    ROLLUP_SMALLER,  /* a part of it */
    ROLLUP_SET_ASIDE /* the mark is passed over from now on */
};

void rollup_aside_init(struct rollup_aside *aside);
/* Marks have to be passed over, or batches are small. */
bool rollup_aside_is_careful(const struct rollup_aside *aside);

/* The data of a batch of so many marks were refused; id: of the only one. */
enum rollup_aside_step
rollup_aside_failed(struct rollup_aside *aside, size_t taken, int64_t id,
                    uint64_t now_ms);
/* A batch is done. */
void rollup_aside_done(struct rollup_aside *aside);
/* Before a sweep: what is aside for long enough is tried again. */
void rollup_aside_retry(struct rollup_aside *aside, uint64_t now_ms);

#endif
