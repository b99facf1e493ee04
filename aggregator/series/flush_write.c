/*
 * flush_write.c - the rows of a flush, piece by piece.
 *
 *   [fast]     piece, piece, ... two on their way
 *   [careful]  SAVEPOINT; piece; RELEASE -> next, twice as large
 *                 bad data: back -> its first half -> ... -> one row: aside
 *
 * Where the database refuses the data itself (not the server, a lock or a
 * missing partition), no later try ends otherwise. After DATA_TRIES of them
 * the flush is careful: rows that are refused alone are left out, all others
 * are written, and it commits. The next ones are careful, too, until one of
 * them has rows and none is refused.
 */

#include "base/crash_point.h"
#include "series/flush_state.h"

#define PIECES_AHEAD 2
#define DATA_TRIES   3

static void write_fast(struct flush *flush);
static void piece_next(struct flush *flush);
static void piece_done(struct flush *flush);

void
flush_write(struct flush *flush)
{
    flush->asides.count = 0;
    if (flush->data_failures < DATA_TRIES) {
        write_fast(flush);
    } else {
        piece_next(flush);
    }
}

void
flush_write_committed(struct flush *flush)
{
    if (flush->asides.count == 0 && flush->rows.written > 0) {
        flush->data_failures = 0;
    }
    flush_asides_tell(&flush->asides, &flush->rows);
}


/* ---- fast ------------------------------------------------------------- */

static void
rows_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    if (flush_answer_take(flush, answer)) {
        CRASH_POINT("inside_flush");
    }
    write_fast(flush);
}

/* Asks for the next piece. False: there is none, or no memory for it. */
static bool
rows_ask(struct flush *flush, pg_answer_cb cb)
{
    enum statement statement;

    pg_params_reset(&flush->params);
    switch (flush_rows_next(&flush->rows, &statement, &flush->params)) {
    case FLUSH_ROWS_NEXT: flush_ask(flush, statement, cb); return true;
    case FLUSH_ROWS_NO_MEMORY: flush_fail(flush, "out of memory", ""); break;
    case FLUSH_ROWS_END: break;
    }
    return false;
}

/* Keeps two pieces on their way. */
static void
write_fast(struct flush *flush)
{
    flush_hold(flush);
    while (!flush->is_failed && flush->answers_due <= PIECES_AHEAD &&
           rows_ask(flush, rows_cb)) {
        pg_conn_flush(flush->conn);
    }
    flush_release(flush);
}


/* ---- careful ---------------------------------------------------------- */

static void
piece_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    if (answer->outcome == PG_OUTCOME_ERROR && answer->kind == SQL_DATA) {
        flush->answers_due--;
        flush->is_piece_bad = true;
        memcpy(flush->piece_sqlstate, answer->sqlstate,
               sizeof(flush->piece_sqlstate));
    } else {
        (void)flush_answer_take(flush, answer);
    }
    if (flush->answers_due == 0) {
        piece_done(flush);
    }
}

static void
piece_next(struct flush *flush)
{
    bool is_asked;

    flush->is_piece_bad = false;
    flush_hold(flush);
    flush_command(flush, STATEMENT_SAVEPOINT, piece_cb);
    is_asked = rows_ask(flush, piece_cb);
    flush_command(flush, STATEMENT_SAVEPOINT_RELEASE, piece_cb);
    flush->is_last_piece = !is_asked;
    pg_conn_flush(flush->conn);
    flush->answers_due--;
    if (flush->answers_due == 0) {
        piece_done(flush);
    }
}

/* What was refused is undone: a part of it comes again, or it is left out. */
static void
piece_undone(struct flush *flush)
{
    struct flush_rows *rows = &flush->rows;

    if (!flush->is_failed && rows->row_count > 1) {
        flush_rows_again(rows, rows->row_count / 2);
    } else if (!flush->is_failed) {
        flush_rows_take_back(rows);
        if (!flush_aside_note(&flush->asides, rows, flush->piece_sqlstate)) {
            flush_fail(flush, "too many rows are refused; none is set aside",
                       flush->piece_sqlstate);
        }
    }
    if (flush->is_failed) {
        flush_step_done(flush);
    } else {
        piece_next(flush);
    }
}

static void
piece_undone_cb(void *asker, const struct pg_answer *answer)
{
    struct flush *flush = asker;

    (void)flush_answer_take(flush, answer);
    if (flush->answers_due == 0) {
        piece_undone(flush);
    }
}

static void
piece_undo(struct flush *flush)
{
    flush_hold(flush);
    flush_command(flush, STATEMENT_SAVEPOINT_ROLLBACK, piece_undone_cb);
    flush_command(flush, STATEMENT_SAVEPOINT_RELEASE, piece_undone_cb);
    pg_conn_flush(flush->conn);
    flush->answers_due--;
    if (flush->answers_due == 0) {
        piece_undone(flush);
    }
}

static void
piece_done(struct flush *flush)
{
    size_t row_max = 2 * flush->rows.row_max;

    if (flush->is_failed || (flush->is_last_piece && !flush->is_piece_bad)) {
        flush_step_done(flush);
    } else if (flush->is_piece_bad) {
        piece_undo(flush);
    } else {
        flush->rows.row_max =
            row_max < FLUSH_ROWS_MAX ? row_max : FLUSH_ROWS_MAX;
        piece_next(flush);
    }
}
