/*
 * pipeline.c - the traffic of a connection: flushes and COPY.
 *
 *   queue -> [send: libpq pipeline or COPY] -> server
 *   callback <- [read: one result per piece] <- server
 *
 * A flush goes out as
 *
 *   BEGIN  Parse a  Execute a  Execute b ...  Sync
 *
 * with a Parse before the first use of a statement on this connection. The
 * answers come in the same order; behind an error everything up to the Sync
 * is skipped by the server and answered ABORTED. COPY runs outside pipeline
 * mode, in pieces, so that libpq never holds more than one piece of it.
 */

#include "pg/conn_private.h"

#include "base/log.h"

#include <stdio.h>

#define COPY_PIECE_SIZE (128u << 10)

static bool send_flush(struct pg_conn *conn);
static bool send_work(struct pg_conn *conn, struct pg_work *work);
static bool send_prepare(struct pg_conn *conn, enum statement statement);
static bool send_copy(struct pg_conn *conn);
static bool copy_feed(struct pg_conn *conn);
static bool has_result(struct pg_conn *conn);
static void take(struct pg_conn *conn, PGresult *result);
static void take_end(struct pg_conn *conn, struct pg_work *work);
static void take_sync(struct pg_conn *conn, const PGresult *result);
static void
take_prepare(struct pg_conn *conn, struct pg_work *work, PGresult *result);
static void
take_query(struct pg_conn *conn, struct pg_work *work, const PGresult *result);
static void take_copy(struct pg_conn *conn, PGresult *result);
static void copy_finish(struct pg_conn *conn, struct pg_work *work);
static void answer_result(struct pg_conn *conn, struct pg_work *work,
                          const PGresult *result);
static bool answer_error(struct pg_conn *conn, const PGresult *result,
                         struct pg_answer *answer);
static bool
is_stale(const struct pg_work *work, const struct pg_answer *answer);
static bool ends_connection(const PGresult *result);
static bool rolled_back(enum statement statement, const PGresult *result);


/*
 * Writes only what it sent itself: moving a COPY on is for the loop, which
 * looks for its answer afterwards.
 */
void
pg_pipeline_pump(struct pg_conn *conn)
{
    if (conn->failing || conn->inflight.head != NULL ||
        conn->queue.head == NULL) {
        return;
    }

    bool sent = conn->queue.head->kind == PG_WORK_COPY ? send_copy(conn)
                                                       : send_flush(conn);

    if (!sent) {
        pg_conn_fail(conn, "%s", PQerrorMessage(conn->pg));
        return;
    }
    pg_pipeline_write(conn);
}


/* Everything up to the next Sync leaves the queue. */
static bool
send_flush(struct pg_conn *conn)
{
    if (PQpipelineStatus(conn->pg) == PQ_PIPELINE_OFF &&
        PQenterPipelineMode(conn->pg) == 0) {
        return false;
    }

    enum pg_work_kind kind;

    do {
        struct pg_work *work = pg_work_pop(&conn->queue);

        CHECK(work != NULL); /* pg_conn_flush ends a flush with a Sync */
        kind = work->kind;
        if (!send_work(conn, work)) {
            return false;
        }
    } while (kind != PG_WORK_SYNC);
    return true;
}


/* The piece is in flight afterwards, whether it could be sent or not. */
static bool
send_work(struct pg_conn *conn, struct pg_work *work)
{
    const struct statement_text *text = &statements[work->statement];
    int formats[PG_PARAM_COUNT_MAX];
    bool prepared = true;

    if (work->kind == PG_WORK_QUERY && !conn->prepared[work->statement]) {
        prepared = send_prepare(conn, work->statement);
    }
    pg_work_push(&conn->inflight, work);
    if (!prepared) {
        return false;
    }

    switch (work->kind) {
    case PG_WORK_QUERY:
        for (int i = 0; i < work->param_count; i++) {
            formats[i] = 1;
        }
        return PQsendQueryPrepared(conn->pg, text->name, work->param_count,
                                   work->param_value, work->param_size, formats,
                                   1) == 1;
    case PG_WORK_COMMAND:
        return PQsendQueryParams(conn->pg, text->text, 0, NULL, NULL, NULL,
                                 NULL, 1) == 1;
    case PG_WORK_SYNC: return PQpipelineSync(conn->pg) == 1;
    case PG_WORK_COPY:
    case PG_WORK_PREPARE: break;
    }
    CHECK(false);
    return false;
}


static bool
send_prepare(struct pg_conn *conn, enum statement statement)
{
    const struct statement_text *text = &statements[statement];
    struct pg_work *work =
        pg_work_create(PG_WORK_PREPARE, statement, NULL, NULL, NULL);

    if (work == NULL) {
        return false;
    }
    pg_work_push(&conn->inflight, work);
    conn->prepared[statement] = true;
    return PQsendPrepare(conn->pg, text->name, text->text, 0, NULL) == 1;
}


static bool
send_copy(struct pg_conn *conn)
{
    struct pg_work *work = pg_work_pop(&conn->queue);

    pg_work_push(&conn->inflight, work);
    if (PQpipelineStatus(conn->pg) != PQ_PIPELINE_OFF &&
        PQexitPipelineMode(conn->pg) == 0) {
        return false;
    }
    conn->copy_phase = PG_COPY_ASKED;
    return PQsendQuery(conn->pg, statements[work->statement].text) == 1;
}


/* Called when the kernel may take more. */
void
pg_pipeline_write(struct pg_conn *conn)
{
    if (conn->failing) {
        return;
    }
    for (;;) {
        int left = PQflush(conn->pg);

        if (left < 0) {
            pg_conn_fail(conn, "%s", PQerrorMessage(conn->pg));
            return;
        }
        conn->write_blocked = left > 0;
        if (conn->write_blocked || conn->copy_phase != PG_COPY_FEEDING) {
            break;
        }
        if (!copy_feed(conn)) {
            pg_conn_fail(conn, "%s", PQerrorMessage(conn->pg));
            return;
        }
    }
    pg_conn_watch(conn);
}


/* One piece of the stream, or its end, into libpq's buffer. */
static bool
copy_feed(struct pg_conn *conn)
{
    struct pg_work *work = conn->inflight.head;
    size_t left = work->data.size - work->data_sent;
    size_t piece;
    int taken;

    if (left == 0 && work->next_piece != NULL) {
        work->data = work->next_piece(work->asker);
        work->data_sent = 0;
        left = work->data.size;
        if (left == 0) {
            work->next_piece = NULL;
        }
    }
    piece = left < COPY_PIECE_SIZE ? left : COPY_PIECE_SIZE;
    if (left == 0) {
        taken = PQputCopyEnd(conn->pg, NULL);
        if (taken == 1) {
            conn->copy_phase = PG_COPY_ENDED;
        }
        return taken >= 0;
    }
    taken =
        PQputCopyData(conn->pg, work->data.data + work->data_sent, (int)piece);
    if (taken == 1) {
        work->data_sent += piece;
    }
    return taken >= 0;
}


/*
 * Results may wait inside libpq without any event to come: an error that
 * arrived while COPY data went out is seen only behind the end of the data,
 * and writing reads too. So reading and writing go on until neither has
 * anything left to do.
 */
void
pg_pipeline_read(struct pg_conn *conn, bool readable)
{
    if (readable && PQconsumeInput(conn->pg) == 0) {
        pg_conn_fail(conn, "%s", PQerrorMessage(conn->pg));
        return;
    }
    do {
        while (has_result(conn)) {
            take(conn, PQgetResult(conn->pg));
            if (conn->state != PG_STATE_CLOSED) {
                pg_pipeline_pump(conn);
            }
        }
        if (conn->state != PG_STATE_CLOSED) {
            pg_pipeline_write(conn);
        }
    } while (has_result(conn));
}


/* Something that can be taken now; a callback may have ended it all. */
static bool
has_result(struct pg_conn *conn)
{
    return conn->state != PG_STATE_CLOSED && !conn->failing &&
           conn->inflight.head != NULL && conn->copy_phase != PG_COPY_FEEDING &&
           PQisBusy(conn->pg) == 0;
}


void
pg_pipeline_reset(struct pg_conn *conn)
{
    PQclear(conn->copy_result);
    PQclear(conn->prepare_error);
    conn->copy_result = NULL;
    conn->prepare_error = NULL;
    conn->copy_phase = PG_COPY_NONE;
    conn->null_seen = false;
    conn->stale = false;
    conn->write_blocked = false;
    memset(conn->prepared, 0, sizeof(conn->prepared));
}


/* Takes ownership of the result. */
static void
take(struct pg_conn *conn, PGresult *result)
{
    struct pg_work *work = conn->inflight.head;

    if (result == NULL) {
        take_end(conn, work);
        return;
    }
    conn->null_seen = false;
    if (work->kind == PG_WORK_COPY) {
        take_copy(conn, result);
        return;
    }
    if (work->answered) {
        pg_conn_fail(conn, "a second result for one statement");
    } else if (work->kind == PG_WORK_SYNC) {
        take_sync(conn, result);
    } else if (work->kind == PG_WORK_PREPARE) {
        take_prepare(conn, work, result);
        return;
    } else {
        take_query(conn, work, result);
    }
    PQclear(result);
}


/* The end mark behind the result of a statement. */
static void
take_end(struct pg_conn *conn, struct pg_work *work)
{
    if (work->kind == PG_WORK_COPY) {
        copy_finish(conn, work);
        return;
    }
    if (work->answered) {
        pg_work_free(pg_work_pop(&conn->inflight));
        return;
    }
    if (conn->null_seen) {
        pg_conn_fail(conn, "results ended before their statements");
    }
    conn->null_seen = true;
}


static void
take_sync(struct pg_conn *conn, const PGresult *result)
{
    if (PQresultStatus(result) != PGRES_PIPELINE_SYNC) {
        pg_conn_fail(conn, "a flush did not end where it should: %s",
                     PQresStatus(PQresultStatus(result)));
        return;
    }
    pg_work_free(pg_work_pop(&conn->inflight));
    PQclear(conn->prepare_error);
    conn->prepare_error = NULL;
    if (conn->stale) {
        pg_conn_fail(conn, "prepared statements no longer fit the schema");
    }
}


/* Takes ownership of the result: an error goes to the query behind. */
static void
take_prepare(struct pg_conn *conn, struct pg_work *work, PGresult *result)
{
    work->answered = true;
    if (PQresultStatus(result) == PGRES_COMMAND_OK) {
        PQclear(result);
        return;
    }
    conn->prepared[work->statement] = false;
    if (PQresultStatus(result) == PGRES_PIPELINE_ABORTED) {
        PQclear(result);
        return;
    }
    PQclear(conn->prepare_error);
    conn->prepare_error = result;
}


static void
take_query(struct pg_conn *conn, struct pg_work *work, const PGresult *result)
{
    if (PQresultStatus(result) == PGRES_PIPELINE_ABORTED &&
        conn->prepare_error != NULL) {
        PGresult *error = conn->prepare_error;

        conn->prepare_error = NULL;
        answer_result(conn, work, error);
        PQclear(error);
        return;
    }
    answer_result(conn, work, result);
}


/* Takes ownership of the result, which the end mark will deliver. */
static void
take_copy(struct pg_conn *conn, PGresult *result)
{
    if (PQresultStatus(result) == PGRES_COPY_IN &&
        conn->copy_phase == PG_COPY_ASKED) {
        PQclear(result);
        conn->copy_phase = PG_COPY_FEEDING;
        pg_pipeline_write(conn);
        return;
    }
    if (conn->copy_result != NULL || PQresultStatus(result) == PGRES_COPY_IN) {
        PQclear(result);
        pg_conn_fail(conn, "a second result for one COPY");
        return;
    }
    conn->copy_phase = PG_COPY_ENDED;
    conn->copy_result = result;
}


static void
copy_finish(struct pg_conn *conn, struct pg_work *work)
{
    PGresult *result = conn->copy_result;

    if (result == NULL) {
        pg_conn_fail(conn, "a COPY ended without a result");
        return;
    }
    conn->copy_result = NULL;
    conn->copy_phase = PG_COPY_NONE;
    if (ends_connection(result)) {
        pg_conn_fail(conn, "%s", PQresultErrorMessage(result));
    } else {
        pg_work_pop(&conn->inflight);
        answer_result(conn, work, result);
        pg_work_free(work);
    }
    PQclear(result);
}


/* Gives the answer; an error that ends the connection is a loss instead. */
static void
answer_result(struct pg_conn *conn, struct pg_work *work,
              const PGresult *result)
{
    struct pg_answer answer = {.outcome = PG_OUTCOME_OK};

    switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
        answer.result = result;
        if (rolled_back(work->statement, result)) {
            answer.outcome = PG_OUTCOME_ERROR;
            answer.message = "the transaction had failed before its COMMIT";
            memcpy(answer.sqlstate, "25P02", sizeof("25P02"));
            answer.kind = sqlstate_classify(answer.sqlstate, false);
        }
        break;
    case PGRES_PIPELINE_ABORTED: answer.outcome = PG_OUTCOME_ABORTED; break;
    case PGRES_FATAL_ERROR:
        if (!answer_error(conn, result, &answer)) {
            return;
        }
        conn->stale = conn->stale || is_stale(work, &answer);
        break;
    default:
        pg_conn_fail(conn, "unexpected result: %s",
                     PQresStatus(PQresultStatus(result)));
        return;
    }
    work->answered = true;
    if (work->cb != NULL) {
        work->cb(work->asker, &answer);
    }
}


/* False: the connection is over. */
static bool
answer_error(struct pg_conn *conn, const PGresult *result,
             struct pg_answer *answer)
{
    if (ends_connection(result)) {
        pg_conn_fail(conn, "%s", PQresultErrorMessage(result));
        return false;
    }

    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *constraint =
        PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    answer->outcome = PG_OUTCOME_ERROR;
    answer->message = message == NULL ? "" : message;
    snprintf(answer->sqlstate, sizeof(answer->sqlstate), "%s", sqlstate);
    answer->kind = sqlstate_classify(answer->sqlstate, constraint != NULL);
    return true;
}


/* The statement is gone, or its plan belongs to another schema. */
static bool
is_stale(const struct pg_work *work, const struct pg_answer *answer)
{
    return work->kind == PG_WORK_QUERY &&
           (strcmp(answer->sqlstate, "26000") == 0 ||
            strcmp(answer->sqlstate, "0A000") == 0);
}


/* FATAL of the server, or libpq's own word, which has no SQLSTATE. */
static bool
ends_connection(const PGresult *result)
{
    if (PQresultStatus(result) != PGRES_FATAL_ERROR) {
        return false;
    }

    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *severity =
        PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

    return sqlstate == NULL || severity == NULL ||
           strcmp(severity, "ERROR") != 0;
}


/* COMMIT of a failed transaction is no error for the server. */
static bool
rolled_back(enum statement statement, const PGresult *result)
{
    const char *tag = PQcmdStatus((PGresult *)result);

    return statement == STATEMENT_COMMIT &&
           strcmp(tag, statements[STATEMENT_COMMIT].text) != 0;
}
