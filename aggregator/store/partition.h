/*
 * partition.h - days of the ledger and audit tables, made ahead and on
 * demand over the administrative connection (meter_owner).
 *
 * part_day = max(day(ts), oldest live day). The floor is the stored one or
 * today - retention, whichever is later; without retention ten years back,
 * so that hostile timestamps cannot ask for endless partitions.
 */

#ifndef STORE_PARTITION_H
#define STORE_PARTITION_H

#include "store/pg_conn.h"

struct partition;

enum partition_parent { PARTITION_EVENT, PARTITION_AUDIT, PARTITION_PARENTS };

struct partition_options {
    const char *admin_url;
    int retention_days[PARTITION_PARENTS]; /* -1: for ever */
};

/* Made ahead at start and hourly: yesterday to the day after tomorrow. */
MUST_CHECK struct partition *
partition_create(uv_loop_t *loop, const struct partition_options *options,
                 void (*on_ready)(void *owner), void *owner);
void partition_destroy(struct partition *partition);
/* After a reload of the rules. */
void partition_retention_set(struct partition *partition,
                             const int retention_days[PARTITION_PARENTS]);

/* Knows the floor and the existing days. */
bool partition_is_ready(const struct partition *partition);
int32_t
partition_day(const struct partition *partition, enum partition_parent parent,
              int64_t ts_us, int64_t now_us);
bool partition_exists(const struct partition *partition,
                      enum partition_parent parent, int32_t day);

typedef void (*partition_cb)(void *asker, bool made);
/* Makes the days that are missing; cb when all exist or one failed. */
void
partition_make(struct partition *partition, enum partition_parent parent,
               const int32_t *days, size_t count, partition_cb cb, void *asker);
/* Reads floor and days again: after a 23514 without a partition. */
void
partition_refresh(struct partition *partition, partition_cb cb, void *asker);

#endif
