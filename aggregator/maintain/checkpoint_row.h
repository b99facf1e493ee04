/*
 * checkpoint_row.h - what a checkpoint holds, between database and file.
 */

#ifndef MAINTAIN_CHECKPOINT_ROW_H
#define MAINTAIN_CHECKPOINT_ROW_H

#include "base/check.h"
#include "meter_digest.h"

#define CHECKPOINT_INCARNATION_SIZE 64 /* with the NUL */

/* Ledger rows of the writer up to `last` are in the rows. */
struct checkpoint_seq {
    uint8_t writer[16];
    int64_t last;
};

struct checkpoint_header {
    int64_t created_us; /* the database's clock */
    int schema_version;
    uint8_t salt_digest[METER_DIGEST_SIZE]; /* whose database this is */
    /* Cluster and timeline; "": the server does not tell. */
    char incarnation[CHECKPOINT_INCARNATION_SIZE];
    const struct checkpoint_seq *writers; /* sorted by writer */
    size_t writer_count;
};

/* In the order of the rows of a tenant. */
enum checkpoint_kind {
    CHECKPOINT_COUNTER, /* sorted by name, dimension_key */
    CHECKPOINT_ENTITY,  /* sorted by name, entity */
    CHECKPOINT_USAGE,   /* at most one */
    CHECKPOINT_KINDS
};

#define CHECKPOINT_USAGE_COLUMNS 3 /* in the order of enum usage_column */

struct checkpoint_row {
    enum checkpoint_kind kind;
    struct meter_str tenant;
    int64_t updated_us; /* updated_at, last_updated_at */

    struct meter_str name; /* counter_name; of an entity: owner */
    /* Of a counter; of an entity: where it is counted. */
    bool has_dimensions; /* false: an entity that is not counted; usage */
    uint8_t dimension_key[METER_DIGEST_SIZE];
    struct meter_str dimensions; /* canonical JSON */
    int64_t value;               /* of a counter */
    struct meter_str entity;     /* canonical JSON */

    int64_t usage[CHECKPOINT_USAGE_COLUMNS];
    struct meter_str status; /* "active", "decommissioned" */
};

#endif
