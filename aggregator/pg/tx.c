/*
 * tx.c - drives one transaction after the other on a connection.
 *
 *   IDLE -> OPEN -> COMMITTING -> IDLE
 *             |
 *             +---> ROLLING_BACK -> IDLE
 *
 * Ingest, the flush, rollups, recovery and the counters API send their
 * statements through it. What they ask differs; how answers are counted, that
 * the first failure wins, when a ROLLBACK helps, when only a new connection
 * does, and when a COMMIT is in doubt stand here once.
 */

#include "pg/tx.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define PAUSE_MIN_MS   50
#define PAUSE_MAX_MS   2000
#define PAUSE_DOUBLES  6
#define RETRY_MAX_MS   20
#define NEW_CONNECTION "the server asks for a new connection"

static void tx_step_end(struct pg_tx *tx);


void
pg_tx_init(struct pg_tx *tx, struct pg_conn *conn,
           const struct pg_tx_events *events, void *owner)
{
    *tx = (struct pg_tx){.conn = conn, .events = events, .owner = owner};
}

void
pg_tx_fini(struct pg_tx *tx)
{
    CHECK(tx->answers_due == 0);
    vec_fini(&tx->rows);
}

bool
pg_tx_is_idle(const struct pg_tx *tx)
{
    return tx->state == PG_TX_IDLE;
}


/* ---- answers ---------------------------------------------------------- */

static void
tx_release(struct pg_tx *tx)
{
    CHECK(tx->answers_due > 0);
    if (--tx->answers_due == 0) {
        tx_step_end(tx);
    }
}

static void
tx_error(struct pg_tx *tx, const struct pg_answer *answer)
{
    struct pg_tx_failure *failure = &tx->failure;

    if (tx->is_failed) {
        return;
    }
    *failure = (struct pg_tx_failure){.kind = answer->kind};
    memcpy(failure->sqlstate, answer->sqlstate, sizeof(failure->sqlstate));
    snprintf(failure->reason, sizeof(failure->reason), "%s", answer->message);
    if (tx->is_data_allowed && answer->kind == SQL_DATA) {
        tx->is_refused = true;
        return;
    }
    tx->is_failed = true;
    if (tx->events->on_error != NULL) {
        tx->events->on_error(tx->owner, answer);
    }
}

/* Stands for the COMMIT among those who wait for rows. */
static void
tx_commit_cb(void *owner, const void *result)
{
    (void)owner;
    (void)result;
}

static void
tx_answer_cb(void *arg, const struct pg_answer *answer)
{
    struct pg_tx *tx = arg;
    pg_tx_rows_cb cb = tx->rows.items[tx->rows.at++];

    switch (answer->outcome) {
    case PG_OUTCOME_OK:
        if (cb != NULL && !tx->is_failed && !tx->is_lost) {
            cb(tx->owner, answer->result);
        }
        break;
    case PG_OUTCOME_LOST: tx->is_lost = true; break;
    case PG_OUTCOME_ERROR:
        if (tx->state == PG_TX_ROLLING_BACK) {
            tx->is_torn = true;
        } else {
            tx->is_doubtful |= cb == tx_commit_cb;
            tx_error(tx, answer);
        }
        break;
    case PG_OUTCOME_ABORTED: break; /* the failure came before */
    }
    tx_release(tx);
}

/* An answer is due, which goes to cb. */
static void
tx_expect(struct pg_tx *tx, pg_tx_rows_cb cb)
{
    CHECK(tx->answers_due > 0);
    if (tx->rows.at == tx->rows.count) {
        tx->rows.at = tx->rows.count = 0;
    }
    vec_push(&tx->rows, cb);
    tx->answers_due++;
}


/* ---- asking ----------------------------------------------------------- */

void
pg_tx_begin(struct pg_tx *tx)
{
    CHECK(tx->state == PG_TX_IDLE && tx->answers_due == 0);
    tx->state = PG_TX_OPEN;
    tx->is_failed = false;
    tx->is_lost = false;
    tx->is_torn = false;
    tx->is_doubtful = false;
    tx->is_data_allowed = false;
    tx->is_refused = false;
    tx->answers_due = 1;
    pg_tx_command(tx, STATEMENT_BEGIN);
}

void
pg_tx_ask(struct pg_tx *tx, enum statement statement,
          const struct pg_params *params, pg_tx_rows_cb cb)
{
    if (params != NULL && params->bytes.failed) {
        pg_tx_fail(tx, 0, "the parameters of a statement are too large");
    }
    if (!tx->is_failed) {
        tx_expect(tx, cb);
        pg_conn_query(tx->conn, statement, params, tx_answer_cb, tx);
    }
}

void
pg_tx_command(struct pg_tx *tx, enum statement statement)
{
    if (!tx->is_failed) {
        tx_expect(tx, NULL);
        pg_conn_command(tx->conn, statement, tx_answer_cb, tx);
    }
}

void
pg_tx_copy(struct pg_tx *tx, enum statement statement, const struct buf *stream,
           pg_tx_rows_cb cb)
{
    if (stream->failed) {
        pg_tx_fail(tx, 0, "the rows of a COPY are too large");
    }
    if (!tx->is_failed) {
        tx_expect(tx, cb);
        pg_conn_copy(tx->conn, statement, buf_str(stream), tx_answer_cb, tx);
    }
}

static struct meter_str
tx_piece(void *arg)
{
    struct pg_tx *tx = arg;

    return tx->next_piece(tx->owner);
}

void
pg_tx_copy_pieces(struct pg_tx *tx, enum statement statement, pg_piece_cb next,
                  pg_tx_rows_cb cb)
{
    if (!tx->is_failed) {
        tx->next_piece = next;
        tx_expect(tx, cb);
        pg_conn_copy_pieces(tx->conn, statement, tx_piece, tx_answer_cb, tx);
    }
}

void
pg_tx_fail(struct pg_tx *tx, int remedy, const char *reason)
{
    if (!tx->is_failed) {
        tx->is_failed = true;
        tx->is_doubtful = tx->state == PG_TX_COMMITTING;
        tx->failure = (struct pg_tx_failure){.kind = SQL_BUG, .remedy = remedy};
        snprintf(tx->failure.reason, sizeof(tx->failure.reason), "%s", reason);
    }
}

const char *
pg_tx_reason(const struct pg_tx *tx)
{
    return tx->is_failed ? tx->failure.reason : "the connection was lost";
}

void
pg_tx_doubt(struct pg_tx *tx)
{
    tx->is_doubtful = tx->state == PG_TX_COMMITTING;
}

void
pg_tx_allow_data(struct pg_tx *tx)
{
    tx->is_data_allowed = true;
    tx->is_refused = false;
}

void
pg_tx_flush(struct pg_tx *tx)
{
    pg_conn_flush(tx->conn);
}

void
pg_tx_send(struct pg_tx *tx, pg_tx_then then)
{
    CHECK(tx->state == PG_TX_OPEN);
    tx->then = then;
    pg_conn_flush(tx->conn);
    tx_release(tx);
}

void
pg_tx_commit(struct pg_tx *tx)
{
    CHECK(tx->state == PG_TX_OPEN);
    if (!tx->is_failed) {
        tx->state = PG_TX_COMMITTING;
        tx_expect(tx, tx_commit_cb);
        pg_conn_command(tx->conn, STATEMENT_COMMIT, tx_answer_cb, tx);
    }
    pg_conn_flush(tx->conn);
    tx_release(tx);
}

void
pg_tx_rollback(struct pg_tx *tx)
{
    CHECK(tx->state == PG_TX_OPEN);
    tx_expect(tx, NULL);
    tx->state = PG_TX_ROLLING_BACK;
    pg_conn_command(tx->conn, STATEMENT_ROLLBACK, tx_answer_cb, tx);
    pg_conn_flush(tx->conn);
    tx_release(tx);
}


/* ---- what follows ----------------------------------------------------- */

static void
tx_end(struct pg_tx *tx, enum pg_tx_end end)
{
    tx->state = PG_TX_IDLE;
    tx->tries = end == PG_TX_COMMITTED ? 0 : tx->tries;
    tx->events->on_end(tx->owner, end);
}

/*
 * What was asked together with the COMMIT and failed has taken it along:
 * that transaction is rolled back, and no doubt about it.
 */
static void
tx_commit_end(struct pg_tx *tx)
{
    if (tx->is_failed && !tx->is_doubtful) {
        tx->state = PG_TX_OPEN;
        tx_step_end(tx);
        return;
    }
    if (tx->is_doubtful && !tx->is_lost) {
        pg_conn_reset(tx->conn, "outcome of a COMMIT unknown");
    }
    tx_end(tx, tx->is_doubtful || tx->is_lost ? PG_TX_DOUBT : PG_TX_COMMITTED);
}

static void
tx_rollback_end(struct pg_tx *tx)
{
    if (tx->is_torn && !tx->is_lost) {
        pg_conn_reset(tx->conn, "ROLLBACK failed");
    }
    tx_end(tx, tx->is_torn || tx->is_lost ? PG_TX_LOST
               : tx->is_failed            ? PG_TX_FAILED
                                          : PG_TX_ROLLED_BACK);
}

static void
tx_open_end(struct pg_tx *tx)
{
    if (tx->is_lost) {
        tx_end(tx, PG_TX_LOST);
    } else if (tx->is_failed &&
               sqlstate_needs_connection(tx->failure.sqlstate)) {
        pg_conn_reset(tx->conn, NEW_CONNECTION);
        tx_end(tx, PG_TX_LOST);
    } else {
        tx->answers_due = 1;
        tx->is_data_allowed = false;
        if (tx->is_failed) {
            pg_tx_rollback(tx);
        } else {
            tx->then(tx->owner);
        }
    }
}

/* All answers of the step are in. */
static void
tx_step_end(struct pg_tx *tx)
{
    switch (tx->state) {
    case PG_TX_OPEN: tx_open_end(tx); return;
    case PG_TX_COMMITTING: tx_commit_end(tx); return;
    case PG_TX_ROLLING_BACK: tx_rollback_end(tx); return;
    case PG_TX_IDLE: CHECK(false);
    }
}


/* ---- pauses ----------------------------------------------------------- */

static uint64_t
tx_lot(uint64_t at_most)
{
    uint32_t random = 0;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0) {
        random = (uint32_t)clock_mono_us();
    }
    return random % (at_most + 1);
}

uint64_t
pg_tx_back_off_ms(struct pg_tx *tx)
{
    unsigned doubles = tx->tries < PAUSE_DOUBLES ? tx->tries : PAUSE_DOUBLES;
    uint64_t pause_ms = (uint64_t)PAUSE_MIN_MS << doubles;

    tx->tries++;
    pause_ms = pause_ms > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause_ms;
    return pause_ms + tx_lot(pause_ms / 2);
}

uint64_t
pg_tx_retry_ms(void)
{
    return 1 + tx_lot(RETRY_MAX_MS);
}
