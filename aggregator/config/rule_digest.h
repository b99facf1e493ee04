/*
 * rule_digest.h - what figures depend on, rule by rule. Pure.
 *
 *   catalog -> [rule_digest] -> kind, name, digest -> meter.rule
 *
 * Two catalogs give a rule the same digest exactly when every event does the
 * same to rows of it. Order and layout of the files are not part of it, nor
 * is what only decides at ingest and is kept in the ledger (lateness), or
 * what is no figure (audit, limits on keys, required attributes).
 */

#ifndef CONFIG_RULE_DIGEST_H
#define CONFIG_RULE_DIGEST_H

#include "config/catalog.h"
#include "meter_digest.h"

enum rule_kind {
    RULE_COUNTER,
    RULE_USAGE, /* a column of the usage row, or RULE_USAGE_STATUS */
    RULE_METER,
    RULE_SERIES,
    RULE_INDEX, /* an event type */
    RULE_KINDS
};

#define RULE_USAGE_STATUS "status"

struct rule_digest {
    enum rule_kind kind;
    struct meter_str name; /* of the catalog, or of a constant */
    uint8_t digest[METER_DIGEST_SIZE];
};

struct rule_digests {
    struct rule_digest *items; /* by kind and name */
    size_t count;
};

/* "counter", "usage", "meter", "series", "index". */
const char *rule_kind_name(enum rule_kind kind);

/* All rules of a catalog, which outlives them. False: no memory. */
MUST_CHECK bool
rule_digests_make(const struct catalog *catalog, struct rule_digests *out);
void rule_digests_fini(struct rule_digests *digests);
/* NULL: there is none. */
const struct rule_digest *
rule_digests_find(const struct rule_digests *digests, enum rule_kind kind,
                  struct meter_str name);

#endif
