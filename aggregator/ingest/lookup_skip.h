/*
 * lookup_skip.h - whether a batch may skip asking which of its ids are known.
 * Pure.
 *
 * Most traffic repeats nothing, and then the question costs a fifth of the
 * transaction. After enough batches in a row without a known id the next
 * ones are sent without asking: the registry's unique index is the guard
 * in any case, and a violation only means that the batch runs again, with
 * the question. Each failure doubles how many calm batches the next skip
 * needs, so that a client who repeats now and then costs little.
 */

#ifndef INGEST_LOOKUP_SKIP_H
#define INGEST_LOOKUP_SKIP_H

#include <stdbool.h>
#include <stddef.h>

#define LOOKUP_SKIP_NEEDED_MIN 4
#define LOOKUP_SKIP_NEEDED_MAX 1024

struct lookup_skip {
    unsigned calm;     /* batches in a row without a known id */
    unsigned needed;   /* that many before the question is skipped */
    unsigned rewarded; /* skipped without harm, in a row */
};

void lookup_skip_init(struct lookup_skip *skip);
bool lookup_skip_allows(const struct lookup_skip *skip);
/* The question was asked and found this many. */
void lookup_skip_asked(struct lookup_skip *skip, size_t known_count);
/* It was skipped, rightly: after LOOKUP_SKIP_NEEDED_MAX times `needed` halves.
 */
void lookup_skip_held(struct lookup_skip *skip);
/* It was skipped, wrongly. */
void lookup_skip_failed(struct lookup_skip *skip);

#endif
