/*
 * transaction_days.c - every event of a try gets its day, and every day its
 * partition, before the transaction begins.
 */

#include "ingest/transaction_state.h"

#define DAYS_AT_ONCE 32

static void
partition_made_cb(void *asker, bool made)
{
    struct transaction *tx = asker;

    tx->is_partition_due = false;
    if (tx->is_closing) {
        transaction_free_if_done(tx);
        return;
    }
    CHECK(tx->state == TRANSACTION_PARTITIONS);
    if (made) {
        transaction_start(tx);
        return;
    }
    transaction_plan_wait(tx);
    transaction_pause(tx);
}

static size_t
days_add(int32_t *days, size_t count, int32_t day)
{
    for (size_t i = 0; i < count; i++) {
        if (days[i] == day) {
            return count;
        }
    }
    days[count] = day;
    return count + 1;
}

/*
 * Days of the parent that items need and that do not exist. Few at a time:
 * hostile timestamps may ask for many.
 */
static size_t
days_missing(const struct transaction *tx, enum partition_parent parent,
             int32_t missing[DAYS_AT_ONCE])
{
    int32_t known = INT32_MIN;
    size_t count = 0;

    for (size_t i = 0; i < tx->batch.count && count < DAYS_AT_ONCE; i++) {
        const struct batch_item *item = tx->batch.items[i];

        if (item->event == NULL || item->part_day == known ||
            (parent == PARTITION_INDEX &&
             (item->effects.of[PROJECTION_INDEX] == NULL ||
              item->part_day < tx->stamp.index_floor))) {
            continue;
        }
        known = item->part_day;
        if (!partition_exists(tx->partition, parent, known)) {
            count = days_add(missing, count, known);
        }
    }
    return count;
}

static void
days_give(struct transaction *tx)
{
    int64_t now_us = lane_now_us(tx->lane);

    tx->event_floor_day =
        partition_floor_day(tx->partition, PARTITION_EVENT, now_us);
    tx->stamp.audit_day =
        partition_day(tx->partition, PARTITION_AUDIT, now_us, now_us);
    tx->stamp.index_floor =
        partition_floor_day(tx->partition, PARTITION_INDEX, now_us);
    for (size_t i = 0; i < tx->batch.count; i++) {
        struct batch_item *item = tx->batch.items[i];

        if (item->event != NULL) {
            item->part_day = partition_day(tx->partition, PARTITION_EVENT,
                                           item->event->ts_us, now_us);
        }
    }
}

bool
transaction_days(struct transaction *tx)
{
    int32_t missing[DAYS_AT_ONCE];
    enum partition_parent parent = PARTITION_EVENT;
    size_t count;

    days_give(tx);
    count = days_missing(tx, parent, missing);
    if (count == 0) {
        parent = PARTITION_INDEX;
        count = days_missing(tx, parent, missing);
    }
    if (count == 0 && !partition_exists(tx->partition, PARTITION_AUDIT,
                                        tx->stamp.audit_day)) {
        parent = PARTITION_AUDIT;
        missing[count++] = tx->stamp.audit_day;
    }
    if (count == 0) {
        return true;
    }
    tx->is_partition_due = true;
    partition_make(tx->partition, parent, missing, count, partition_made_cb,
                   tx);
    return false;
}

void
transaction_refresh_days(struct transaction *tx)
{
    tx->is_partition_due = true;
    partition_refresh(tx->partition, partition_made_cb, tx);
}
