/*
 * adoption.h - one orphaned ring: claimed, drained, released.
 *
 *   adopt -> [adoption] -> meter_outbox -> intake -> ingest
 *
 * The file is locked with flock for as long as the adoption lives, so that
 * no worker can take it meanwhile. Slots and cells that the dead owner left
 * become records first. When everything is durable the ring is a spare one;
 * when the adoption is released before that, it is an orphan as before.
 */

#ifndef EDGE_ADOPTION_H
#define EDGE_ADOPTION_H

#include "edge/intake.h"
#include "edge/listener.h"

struct adoption;

/* What adoptions need to know; outlives them. */
struct adoption_place {
    struct intakes *intakes;
    const struct peers *peers; /* who may own a ring file */
    uint8_t boot_id[16];       /* of the running kernel */
    struct meter_str node;
};

enum adoption_end {
    ADOPTION_DRAINED, /* the ring is a spare one */
    ADOPTION_FENCED,  /* somebody else brings the session's records */
    ADOPTION_REFUSED  /* its records are none; logged */
};
/* Behind it adoption_release. */
typedef void (*adoption_end_cb)(void *owner, enum adoption_end end);

enum adoption_claim {
    ADOPTION_CLAIMED,
    ADOPTION_OWNED,  /* locked by somebody, or not there any more */
    ADOPTION_FOREIGN /* not a ring that we may touch; logged */
};
/* Claimed: *out is locked; adoption_verify must follow. */
MUST_CHECK enum adoption_claim
adoption_claim(const struct adoption_place *place, const char *path,
               adoption_end_cb on_end, void *owner, struct adoption **out);
/*
 * Reads the records, for some milliseconds. True: there is more, call again
 * after the loop has served others. False: what the dead owner left is
 * recovered; adoption_start must follow.
 */
MUST_CHECK bool adoption_verify(struct adoption *adoption);
/* The end may come during the call. */
void adoption_start(struct adoption *adoption);
/* About once a second: shows that the ring has an owner, tries again. */
void adoption_tick(struct adoption *adoption, uint64_t now_ms);

/* Records that are not known to be committed. */
uint64_t adoption_unsent(const struct adoption *adoption);
/* Withdraws what is under way, unlocks and frees; also inside on_end. */
void adoption_release(struct adoption *adoption);

#endif
