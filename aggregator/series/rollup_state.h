/*
 * rollup_state.h - what the sweep and its transactions share.
 *
 *   rollup.c: connection, timer, levels -> rollup_transaction.c: one batch
 */

#ifndef SERIES_ROLLUP_STATE_H
#define SERIES_ROLLUP_STATE_H

#include "series/rollup.h"
#include "series/rollup_aside.h"
#include "series/rollup_batch.h"

enum rollup_state {
    ROLLUP_AWAY,    /* for the connection */
    ROLLUP_IDLE,    /* for a wake or the timer */
    ROLLUP_RUNNING, /* for an answer */
    ROLLUP_MAKING,  /* for partitions */
    ROLLUP_RESTING  /* after a failure, for the timer */
};

struct rollup {
    struct pg_conn *conn;
    struct lane *lane;
    struct partition *partition;
    char *url;
    uv_timer_t timer;
    enum rollup_state state;
    bool is_woken;
    bool is_stopped;
    bool is_partition_due; /* its callback is still to come */
    bool is_closing;
    bool is_closed;
    uint64_t rest_ms;

    enum meter_level level;      /* that is swept */
    bool due[METER_LEVEL_COUNT]; /* levels with marks */
    unsigned batches;            /* of the level, in this sweep */
    bool is_last_look;           /* for the metrics alone */

    struct rollup_batch batch;
    int64_t floor_us; /* of the level below */
    size_t taken;     /* marks */
    bool is_careful;  /* the batch: it may pass marks over */
    int64_t taken_id; /* then: of the first mark */
    struct rollup_aside aside;
    bool is_failed; /* answers behind the failure are passed over */
};

/*
 * One batch of the level. Ends in rollup_batch_done, in a rest, in
 * rollup_partitions_due, or with the connection.
 */
void rollup_transaction_begin(struct rollup *rollup);

/* The batch is committed, or there was none: taken says so. */
void rollup_batch_done(struct rollup *rollup);
/* False: it is over; what failed first has seen to that. */
bool rollup_answer_ok(struct rollup *rollup, const struct pg_answer *answer);
/* Before partitions are made or read again; then the sweep starts anew. */
void rollup_partitions_due(struct rollup *rollup);
void rollup_partitions_made_cb(void *asker, bool made);

#endif
