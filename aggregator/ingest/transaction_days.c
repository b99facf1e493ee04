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

/* Few days at a time: hostile timestamps may ask for many. */
bool
transaction_days(struct transaction *tx)
{
    int32_t missing[DAYS_AT_ONCE];
    size_t count = 0;
    int32_t known = INT32_MIN;
    int64_t now_us = lane_now_us(tx->lane);
    enum partition_parent parent = PARTITION_EVENT;

    tx->stamp.audit_day =
        partition_day(tx->partition, PARTITION_AUDIT, now_us, now_us);
    for (size_t i = 0; i < tx->batch.count && count < DAYS_AT_ONCE; i++) {
        struct batch_item *item = tx->batch.items[i];

        if (item->event == NULL) {
            continue;
        }
        item->part_day = partition_day(tx->partition, PARTITION_EVENT,
                                       item->event->ts_us, now_us);
        if (item->part_day == known) {
            continue;
        }
        known = item->part_day;
        if (!partition_exists(tx->partition, parent, known)) {
            count = days_add(missing, count, known);
        }
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
