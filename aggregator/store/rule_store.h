/*
 * rule_store.h - rules as parameters of the statement rule_note. Pure.
 *
 *   catalog -> rule_digests -> [rule_store] -> meter.rule_use
 */

#ifndef STORE_RULE_STORE_H
#define STORE_RULE_STORE_H

#include "config/rule_digest.h"
#include "pg/param.h"

/* What a meterd had until now, newest first. */
struct rule_before {
    struct rule_digests digests;
    const struct rule_before *next;
};

/* Has one of them a rule that the other one has not, or has otherwise? */
bool
rule_digests_differ(const struct rule_digests *a, const struct rule_digests *b);

/* kinds, names and digests: three parameters. */
void
rule_digests_put(const struct rule_digests *digests, struct pg_params *params);
/* $1 to $5 of rule_note; before NULL: what is noted tells what changes. */
void rule_note_put(const uint8_t writer[16], const struct rule_digests *now,
                   const struct rule_before *before, struct pg_params *params);

#endif
