/*
 * partition.h - partitions of the ledger, the audit, the index and the
 * series, made ahead and on demand over the administrative connection
 * (meter_owner).
 *
 * A partition holds one day, of series_1h 28, of series_1d and series_7d 364
 * days, counted from a Monday; days given here may be any in it.
 *
 * part_day of the ledger and the audit = max(day(ts), oldest live day). The
 * floor is the stored one or today - retention, whichever is later, where a
 * retention that was made shorter counts once it is confirmed; without
 * retention ten years back, so that hostile timestamps cannot ask for
 * endless partitions. Series know their stored floors alone, and look at
 * them under a lock.
 */

#ifndef STORE_PARTITION_H
#define STORE_PARTITION_H

#include "config/config.h"
#include "meter_level.h"
#include "pg/conn.h"

struct partition;

enum partition_parent {
    PARTITION_EVENT,
    PARTITION_AUDIT,
    PARTITION_INDEX,
    PARTITION_SERIES, /* of 5s; levels follow in the order of meter_level */
    PARTITION_PARENTS = PARTITION_SERIES + METER_LEVEL_COUNT
};

struct partition_options {
    const char *admin_url;
    int retention_days[PARTITION_PARENTS]; /* -1: for ever */
};

/* What the configuration says of each table. */
void partition_retention_days(const struct config *config,
                              int days[PARTITION_PARENTS]);

/* Of the table, without its schema. */
const char *partition_parent_name(enum partition_parent parent);
/* Days that a partition of the table holds. */
int partition_span(enum partition_parent parent);
/* First day of the partition that holds the day. */
int32_t partition_first_day(enum partition_parent parent, int32_t day);

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
/* The oldest live day: rows of earlier days are not made. */
int32_t partition_floor_day(const struct partition *partition,
                            enum partition_parent parent, int64_t now_us);
/* Ledger and audit: the day under which a row is stored. */
int32_t
partition_day(const struct partition *partition, enum partition_parent parent,
              int64_t ts_us, int64_t now_us);
bool partition_exists(const struct partition *partition,
                      enum partition_parent parent, int32_t day);

typedef void (*partition_cb)(void *asker, bool made);
/* Makes the partitions that are missing; cb when all exist or one failed. */
void
partition_make(struct partition *partition, enum partition_parent parent,
               const int32_t *days, size_t count, partition_cb cb, void *asker);
/* Reads floor and days again: after a 23514 without a partition. */
void
partition_refresh(struct partition *partition, partition_cb cb, void *asker);

#endif
