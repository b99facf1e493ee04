/*
 * tx.h - drives one transaction after the other on a connection.
 *
 *   pg_tx_begin, ask, ask, send -> then: ask, send -> then: commit -> on_end
 *                             any failure: ROLLBACK -> on_end
 *
 * A step is what is sent until pg_tx_send. The driver counts its answers; when
 * all are in and good, `then` sends the next step, commits or rolls back. The
 * first failure wins: what follows it is its consequence, no rows are handed
 * over any more, and the transaction is rolled back once all answers are in.
 * Whoever owns the driver says what a failure means for the next try; whether
 * a COMMIT without an answer happened is asked of what it would have written.
 *
 * Everything sent may be lost at once. So a step never ends before
 * pg_tx_send, pg_tx_commit or pg_tx_rollback has been called for it.
 */

#ifndef PG_TX_H
#define PG_TX_H

#include "pg/conn.h"

#define PG_TX_REASON_SIZE 160

enum pg_tx_end {
    PG_TX_COMMITTED,
    PG_TX_ROLLED_BACK, /* as the owner wished */
    PG_TX_FAILED,      /* rolled back; tx->failure says why */
    PG_TX_LOST,        /* with its connection; nothing has happened */
    PG_TX_DOUBT        /* the COMMIT has no good answer, the connection ends */
};

/* Of a step: all answers are in. The owner sends, commits or rolls back. */
typedef void (*pg_tx_then)(void *owner);
/* The rows of a good answer. */
typedef void (*pg_tx_rows_cb)(void *owner, const void *result);

struct pg_tx_events {
    /* The first error of a transaction; may set tx->failure.remedy. Or NULL. */
    void (*on_error)(void *owner, const struct pg_answer *answer);
    /* Nothing is outstanding; the next one may begin. */
    void (*on_end)(void *owner, enum pg_tx_end end);
};

/* The first failure of a transaction. */
struct pg_tx_failure {
    enum sqlstate_kind kind; /* SQL_BUG where the owner failed it */
    int remedy;              /* a word of the owner's */
    char sqlstate[6];        /* "": the owner's own finding */
    char reason[PG_TX_REASON_SIZE];
};

enum pg_tx_state {
    PG_TX_IDLE,
    PG_TX_OPEN,         /* BEGIN is sent */
    PG_TX_COMMITTING,   /* COMMIT is sent: from here a loss means doubt */
    PG_TX_ROLLING_BACK, /* ROLLBACK is sent */
};

struct pg_tx {
    struct pg_conn *conn;
    const struct pg_tx_events *events;
    void *owner;

    enum pg_tx_state state;
    size_t answers_due; /* of the step, and one while it is being made */
    pg_tx_then then;
    pg_piece_cb next_piece; /* of a COPY, asked with the owner */
    bool is_failed;         /* failure is set */
    bool is_lost;           /* with the connection */
    bool is_torn;           /* the ROLLBACK failed */
    bool is_doubtful;       /* the COMMIT was refused, or see pg_tx_doubt */
    bool is_data_allowed;
    bool is_refused; /* the step, by its data; see pg_tx_allow_data */
    struct pg_tx_failure failure;
    unsigned tries; /* in vain, in a row */
    struct pg_tx_rows {
        pg_tx_rows_cb *items;
        size_t count;
        size_t room;
        size_t at; /* whose answer comes next */
    } rows;
};

/* conn is borrowed and used by nobody else while a transaction is open. */
void pg_tx_init(struct pg_tx *tx, struct pg_conn *conn,
                const struct pg_tx_events *events, void *owner);
/* Idle, or with the connection gone. */
void pg_tx_fini(struct pg_tx *tx);
bool pg_tx_is_idle(const struct pg_tx *tx);

/* Queues BEGIN; the first step follows. */
void pg_tx_begin(struct pg_tx *tx);
/*
 * params are copied; cb may be NULL. After a failure nothing is sent any more.
 * A lone read is pg_tx_begin, pg_tx_ask, pg_tx_commit: one round trip.
 */
void pg_tx_ask(struct pg_tx *tx, enum statement statement,
               const struct pg_params *params, pg_tx_rows_cb cb);
/* SAVEPOINT and the like: text without parameters. */
void pg_tx_command(struct pg_tx *tx, enum statement statement);
/* A COPY is a step of its own: nothing else is asked in it. */
void pg_tx_copy(struct pg_tx *tx, enum statement statement,
                const struct buf *stream, pg_tx_rows_cb cb);
void pg_tx_copy_pieces(struct pg_tx *tx, enum statement statement,
                       pg_piece_cb next, pg_tx_rows_cb cb);

/* Sends what was asked. More of the step may be asked, in a rows_cb too. */
void pg_tx_flush(struct pg_tx *tx);
/* The step is whole. */
void pg_tx_send(struct pg_tx *tx, pg_tx_then then);
/* In place of pg_tx_send; shares a round trip with what was asked before. */
void pg_tx_commit(struct pg_tx *tx);
void pg_tx_rollback(struct pg_tx *tx);

/*
 * A failure that the owner found; the first one counts. When the COMMIT is on
 * its way already, it is in doubt.
 */
void pg_tx_fail(struct pg_tx *tx, int remedy, const char *reason);
/* Why the last one ended as it did, where that is not well. */
const char *pg_tx_reason(const struct pg_tx *tx);
/* A COMMIT under way is in doubt, whatever its answer. */
void pg_tx_doubt(struct pg_tx *tx);
/*
 * A data error of the step being made does not fail the transaction:
 * tx->is_refused and tx->failure.sqlstate say so in `then`, which goes back to
 * a savepoint.
 */
void pg_tx_allow_data(struct pg_tx *tx);

/*
 * How long to wait before the next try. Doubles from 50 ms to 2 s, and up to
 * half of it is added by lot; a commit begins anew.
 */
uint64_t pg_tx_back_off_ms(struct pg_tx *tx);
/* After a deadlock or a lost race: some milliseconds, by lot. */
uint64_t pg_tx_retry_ms(void);

#endif
