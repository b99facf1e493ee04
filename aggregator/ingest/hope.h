/*
 * hope.h - whether a batch may skip asking which of its ids are known. Pure.
 *
 * Most traffic repeats nothing, and then the question costs a fifth of the
 * transaction. After enough batches in a row without a known id the next
 * ones are sent without asking: the registry's unique index is the guard
 * in any case, and a violation only means that the batch runs again, with
 * the question. Each disappointment doubles how long the next hope has to
 * be earned, so that a client who repeats now and then costs little.
 */

#ifndef INGEST_HOPE_H
#define INGEST_HOPE_H

#include <stdbool.h>
#include <stddef.h>

#define HOPE_NEEDED_MIN 4
#define HOPE_NEEDED_MAX 1024

struct hope {
    unsigned calm;     /* batches in a row without a known id */
    unsigned needed;   /* that many before the question is skipped */
    unsigned rewarded; /* skipped without harm, in a row */
};

void hope_init(struct hope *hope);
bool hope_allows(const struct hope *hope);
/* The question was asked and found this many. */
void hope_asked(struct hope *hope, size_t known_count);
/* It was skipped, rightly: after HOPE_NEEDED_MAX times `needed` halves. */
void hope_held(struct hope *hope);
/* It was skipped, wrongly. */
void hope_dashed(struct hope *hope);

#endif
