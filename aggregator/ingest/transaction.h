/*
 * transaction.h - takes a batch through PostgreSQL, whatever it takes.
 *
 *   ingest -> [transaction] -> lane -> PostgreSQL
 *
 * Given items, it works until each has a final, durable verdict: fast
 * path, careful path, halves after a data error, again after a deadlock or
 * an outage, look-up after an unknown COMMIT. Registry, ledger, audit,
 * counters, the sessions of rings and the writer's numbers commit together
 * or not at all. No event is ever rejected for trouble of the server's own.
 */

#ifndef INGEST_TRANSACTION_H
#define INGEST_TRANSACTION_H

#include "ingest/batch.h"
#include "ingest/poison.h"
#include "store/lane.h"
#include "store/partition.h"

struct transaction;

/* What a transaction committed as. */
struct transaction_commit {
    uint8_t writer[16];
    int64_t last;        /* writer_seq: all up to here are committed */
    int64_t recorded_us; /* of the order */
    int64_t clock_us;    /* the database's clock, as the ledger has it */
};

struct transaction_events {
    /*
     * These items are decided for good; comes in pieces, in order. commit
     * NULL: all were rejected, and nothing was committed.
     */
    void (*on_decided)(void *owner, struct batch_item **items, size_t count,
                       const struct transaction_commit *commit);
    /* The next run may start; comes before the last piece is told. */
    void (*on_idle)(void *owner);
};

/* NULL: no memory. lane, partition and poison (or NULL) must outlive it. */
MUST_CHECK struct transaction *
transaction_create(uv_loop_t *loop, struct lane *lane,
                   struct partition *partition, struct poison *poison,
                   const struct transaction_events *events, void *owner);
/* No more calls to the owner; freed when the lane has let go of it. */
void transaction_destroy(struct transaction *transaction);

bool transaction_is_idle(const struct transaction *transaction);
/*
 * The last try went through, or none has been made yet, and the one under
 * way has not taken longer than pg_conn_patience_ms so far.
 */
bool transaction_is_able(const struct transaction *transaction);
/* When idle only. The array and the items live until they are decided. */
void transaction_run(struct transaction *transaction, struct batch_item **items,
                     size_t count);
/* Gives back memory kept for reuse; when idle only. */
void transaction_trim(struct transaction *transaction);

/* The lane's events. */
void transaction_lane_ready(struct transaction *transaction, int64_t batch);
void transaction_not_replicated(struct transaction *transaction);

#endif
