/*
 * bucket_lane_state.h - what is inside of a lane; for its own files only.
 *
 *   bucket_lane.c         which state follows which
 *   bucket_transaction.c  what a transaction asks
 *   bucket_step.c         asking, and waiting for all answers of a state
 */

#ifndef BUCKETS_BUCKET_LANE_STATE_H
#define BUCKETS_BUCKET_LANE_STATE_H

#include "buckets/bucket_lane.h"
#include "buckets/bucket_tally.h"
#include "pg/conn.h"

#define BUCKET_REASON_SIZE 160

enum lane_state {
    LANE_AWAY,     /* for the connection, or the writer */
    LANE_LOOKING,  /* for its number */
    LANE_IDLE,     /* for work */
    LANE_LOCKING,  /* for the first answers of a transaction */
    LANE_WRITING,  /* for its last: the COMMIT is sent */
    LANE_ROLLBACK, /* for its end */
    LANE_PAUSED    /* for a moment to pass */
};

/* What to do after a ROLLBACK. */
enum lane_again {
    AGAIN_AT_ONCE,   /* someone else was faster */
    AGAIN_WITHOUT,   /* those that have expired meanwhile */
    AGAIN_CAREFUL,   /* adding failed: one by one, with locks */
    AGAIN_LATER,     /* the database is in trouble */
    AGAIN_APART,     /* it blames the data: one by one */
    AGAIN_ELSEWHERE, /* instead of it: on a new connection */
};

struct bucket_lane {
    struct pg_conn *conn;
    struct bucket_lane_options options;
    uv_timer_t pause;
    char name[24];
    bool has_writer;
    uint8_t writer[16];

    enum lane_state state;
    size_t answers_due; /* of the state */
    bool is_lost;       /* the connection, meanwhile */
    bool is_failed;     /* the transaction; `again` and `reason` are set */
    bool is_unsure;     /* its COMMIT is not replicated */
    bool is_in_doubt;   /* whether it was committed */
    bool is_troubled;   /* and this was logged */
    bool is_adding;     /* the transaction adds, and writes nothing more */
    bool is_careful;    /* the next one does not only add */
    enum lane_again again;
    char sqlstate[6];
    char reason[BUCKET_REASON_SIZE];

    struct operation_list running; /* in this transaction */
    struct operation_list waiting; /* behind it, one by one */
    struct arena arena;            /* of the batch */
    struct bucket_batch batch;     /* of `running`, unless one has expired */
    struct bucket_tally tally;
    struct pg_params params;
    int64_t number; /* of this transaction */
    int64_t found;  /* when looked for: of the last one that was committed */
    int64_t now_us;
};

/* ---- bucket_step.c ---- */

/* Then ask and command, then send. */
void bucket_step_begin(struct bucket_lane *lane, enum lane_state state);
/* With lane->params. */
void bucket_step_ask(struct bucket_lane *lane, enum statement statement,
                     pg_answer_cb cb);
void bucket_step_command(struct bucket_lane *lane, enum statement statement,
                         pg_answer_cb cb);
void bucket_step_send(struct bucket_lane *lane);

/* In each callback, first and last. True: OK, and nothing failed before. */
bool bucket_step_take(struct bucket_lane *lane, const struct pg_answer *answer);
void bucket_step_if_done(struct bucket_lane *lane);
/* Nothing but these two. */
void bucket_step_plain_cb(void *asker, const struct pg_answer *answer);
/* The first reason counts; what follows is its consequence. */
void bucket_step_fail(struct bucket_lane *lane, enum lane_again again,
                      const char *sqlstate, const char *reason);

/* lane->params: writer and lane. */
void bucket_step_put_lane(struct bucket_lane *lane);

/* ---- bucket_transaction.c ---- */

/* The batch of `running`. False: no memory. */
MUST_CHECK bool bucket_transaction_make(struct bucket_lane *lane);
/* Or add, where that is all. */
void bucket_transaction_lock(struct bucket_lane *lane);
void bucket_transaction_write(struct bucket_lane *lane);

/* ---- bucket_lane.c ---- */

/* All answers of the state are here. */
void bucket_lane_step_done(struct bucket_lane *lane);

#endif
