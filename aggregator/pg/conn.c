/*
 * conn.c - one connection as its owner sees it: work in, answers out.
 *
 *   owner -> [unflushed -> queue -> inflight] -> libpq, pipeline or COPY
 *   callback <- [one result per piece] <- server
 *
 * A flush goes out as
 *
 *   BEGIN  Parse a  Execute a  Execute b ...  Sync
 *
 * with a Parse before the first use of a statement on this connection. The
 * answers come in the same order; after an error everything up to the Sync is
 * skipped by the server and answered ABORTED. COPY runs outside pipeline
 * mode, in pieces, so that libpq never holds more than one piece of it.
 *
 * A failure is noted where it is met (pg_conn_fail) and carried out from the
 * loop: callbacks about a loss never come from inside an owner's call.
 */

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "pg/conn_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Pieces of work that wait; past it the flush is LOST. */
#define WORK_MAX        8192
#define COPY_PIECE_SIZE (128u << 10)
/* A connection that held this long starts the back-off anew. */
#define LASTED_MS 2000


/* ---- work ------------------------------------------------------------- */

enum pg_work_kind {
    PG_WORK_QUERY,   /* a prepared statement */
    PG_WORK_COMMAND, /* a text statement without parameters */
    PG_WORK_COPY,    /* a whole COPY; stands alone */
    PG_WORK_PREPARE, /* our own: goes before the first use */
    PG_WORK_SYNC     /* our own: end of a flush */
};

/* Stands in exactly one list; freed after its one answer. */
struct pg_work {
    STAILQ_ENTRY(pg_work) next;
    enum pg_work_kind kind;
    enum statement statement;
    bool answered; /* has its result; the end mark is still to come */
    pg_answer_cb cb;
    void *asker;

    struct meter_str data; /* COPY: the stream or a piece of it, borrowed */
    size_t data_sent;
    pg_piece_cb next_piece; /* COPY: NULL when data is the last */

    int param_count;
    int param_size[PG_PARAM_COUNT_MAX];          /* -1: NULL */
    const char *param_value[PG_PARAM_COUNT_MAX]; /* into bytes */
    char bytes[];
};


/* params may be NULL; they are copied. NULL: no memory for them. */
static struct pg_work *
work_create(enum pg_work_kind kind, enum statement statement,
            const struct pg_params *params, pg_answer_cb cb, void *asker)
{
    size_t size = params == NULL ? 0 : params->bytes.size;
    struct pg_work *work =
        size == 0 ? memory_alloc(sizeof(*work)) : malloc(sizeof(*work) + size);

    if (work == NULL) {
        return NULL;
    }
    memset(work, 0, sizeof(*work));
    work->kind = kind;
    work->statement = statement;
    work->cb = cb;
    work->asker = asker;
    if (size > 0) {
        memcpy(work->bytes, params->bytes.data, size);
    }
    work->param_count = params == NULL ? 0 : params->count;
    for (int i = 0; i < work->param_count; i++) {
        work->param_size[i] = params->size[i];
        work->param_value[i] =
            params->size[i] < 0 ? NULL : work->bytes + params->offset[i];
    }
    return work;
}


static void
work_list_init(struct pg_work_list *list)
{
    STAILQ_INIT(&list->works);
    list->count = 0;
}


static void
work_push(struct pg_work_list *list, struct pg_work *work)
{
    STAILQ_INSERT_TAIL(&list->works, work, next);
    list->count++;
}


/* NULL: there is none. */
static struct pg_work *
work_pop(struct pg_work_list *list)
{
    struct pg_work *work = STAILQ_FIRST(&list->works);

    if (work != NULL) {
        STAILQ_REMOVE_HEAD(&list->works, next);
        list->count--;
    }
    return work;
}


/* All of from to the end of to. */
static void
work_move(struct pg_work_list *to, struct pg_work_list *from)
{
    STAILQ_CONCAT(&to->works, &from->works);
    to->count += from->count;
    from->count = 0;
}


/* LOST to all of them, in order; they are freed. */
static void
work_lose(struct pg_work_list *list)
{
    static const struct pg_answer lost = {.outcome = PG_OUTCOME_LOST};
    struct pg_work *work;

    while ((work = work_pop(list)) != NULL) {
        if (work->cb != NULL && !work->answered) {
            work->cb(work->asker, &lost);
        }
        free(work);
    }
}


/* ---- failures --------------------------------------------------------- */

static void defer_cb(uv_timer_t *timer);

static void
conn_defer(struct pg_conn *conn)
{
    if (conn->state != PG_STATE_CLOSED) {
        uv_timer_start(&conn->defer, defer_cb, 0, 0);
    }
}


/* libpq's messages have several lines; a reason is one. */
static void
why_flatten(char *text)
{
    char *out = text;

    for (const char *at = text; *at != '\0'; at++) {
        bool blank = *at == '\n' || *at == '\t' || *at == ' ';

        if (at[0] == '\n' && at[1] == '\t') {
            break; /* libpq's advice */
        }
        if (!blank) {
            *out++ = *at;
        } else if (out > text && out[-1] != ' ') {
            *out++ = ' ';
        }
    }
    if (out > text && out[-1] == ' ') {
        out--;
    }
    *out = '\0';
}


/* Notes the first failure; the loop carries it out. */
void
pg_conn_fail(struct pg_conn *conn, const char *format, ...)
{
    va_list args;

    if (conn->failing || conn->state == PG_STATE_CLOSED) {
        return;
    }
    conn->failing = true;
    va_start(args, format);
    vsnprintf(conn->why, sizeof(conn->why), format, args);
    va_end(args);

    why_flatten(conn->why);
    conn_defer(conn);
}


static void
conn_fail_libpq(struct pg_conn *conn)
{
    pg_conn_fail(conn, "%s", PQerrorMessage(conn->pg));
}


/* ---- sending ---------------------------------------------------------- */

static bool
send_prepare(struct pg_conn *conn, enum statement statement)
{
    const struct statement_text *text = &statements[statement];

    work_push(&conn->inflight,
              work_create(PG_WORK_PREPARE, statement, NULL, NULL, NULL));
    conn->prepared[statement] = true;
    return PQsendPrepare(conn->pg, text->name, text->text, 0, NULL) == 1;
}


static bool
send_query(struct pg_conn *conn, const struct pg_work *work)
{
    int formats[PG_PARAM_COUNT_MAX];

    for (int i = 0; i < work->param_count; i++) {
        formats[i] = 1;
    }
    return PQsendQueryPrepared(conn->pg, statements[work->statement].name,
                               work->param_count, work->param_value,
                               work->param_size, formats, 1) == 1;
}


/* The piece is in flight afterwards, whether it could be sent or not. */
static bool
send_work(struct pg_conn *conn, struct pg_work *work)
{
    bool is_sent = work->kind != PG_WORK_QUERY ||
                   conn->prepared[work->statement] ||
                   send_prepare(conn, work->statement);

    work_push(&conn->inflight, work);
    if (!is_sent) {
        return false;
    }
    switch (work->kind) {
    case PG_WORK_QUERY: return send_query(conn, work);
    case PG_WORK_COMMAND:
        return PQsendQueryParams(conn->pg, statements[work->statement].text, 0,
                                 NULL, NULL, NULL, NULL, 1) == 1;
    case PG_WORK_SYNC: return PQpipelineSync(conn->pg) == 1;
    case PG_WORK_COPY:
    case PG_WORK_PREPARE: break;
    }
    CHECK(false);
    return false;
}


/* Everything up to the next Sync leaves the queue. */
static bool
send_flush(struct pg_conn *conn)
{
    enum pg_work_kind kind;

    if (PQpipelineStatus(conn->pg) == PQ_PIPELINE_OFF &&
        PQenterPipelineMode(conn->pg) == 0) {
        return false;
    }
    do {
        struct pg_work *work = work_pop(&conn->queue);

        CHECK(work != NULL); /* a flush ends with a Sync */
        kind = work->kind;
        if (!send_work(conn, work)) {
            return false;
        }
    } while (kind != PG_WORK_SYNC);
    return true;
}


static bool
send_copy(struct pg_conn *conn)
{
    struct pg_work *work = work_pop(&conn->queue);

    work_push(&conn->inflight, work);
    if (PQpipelineStatus(conn->pg) != PQ_PIPELINE_OFF &&
        PQexitPipelineMode(conn->pg) == 0) {
        return false;
    }
    conn->copy_phase = PG_COPY_ASKED;
    return PQsendQuery(conn->pg, statements[work->statement].text) == 1;
}


/* One piece of the stream, or its end, into libpq's buffer. */
static bool
copy_feed(struct pg_conn *conn)
{
    struct pg_work *work = STAILQ_FIRST(&conn->inflight.works);
    size_t left = work->data.size - work->data_sent;
    int taken;

    if (left == 0 && work->next_piece != NULL) {
        work->data = work->next_piece(work->asker);
        work->data_sent = 0;
        left = work->data.size;
        if (left == 0) {
            work->next_piece = NULL;
        }
    }
    if (left == 0) {
        taken = PQputCopyEnd(conn->pg, NULL);
        if (taken == 1) {
            conn->copy_phase = PG_COPY_ENDED;
        }
        return taken >= 0;
    }

    size_t piece = left < COPY_PIECE_SIZE ? left : COPY_PIECE_SIZE;

    taken =
        PQputCopyData(conn->pg, work->data.data + work->data_sent, (int)piece);
    if (taken == 1) {
        work->data_sent += piece;
    }
    return taken >= 0;
}


static void
traffic_watch(struct pg_conn *conn)
{
    int events = UV_READABLE | (conn->write_blocked ? UV_WRITABLE : 0);

    if (conn->poll != NULL && conn->watched != events) {
        uv_poll_start(conn->poll, events, pg_conn_traffic_cb); /* is a call */
        conn->watched = events;
    }
}


/* Called when the kernel may take more. */
static void
traffic_write(struct pg_conn *conn)
{
    if (conn->failing) {
        return;
    }
    for (;;) {
        int left = PQflush(conn->pg);

        if (left < 0) {
            conn_fail_libpq(conn);
            return;
        }
        conn->write_blocked = left > 0;
        if (conn->write_blocked || conn->copy_phase != PG_COPY_FEEDING) {
            break;
        }
        if (!copy_feed(conn)) {
            conn_fail_libpq(conn);
            return;
        }
    }
    traffic_watch(conn);
}


/*
 * The next flush or COPY, when nothing is in flight. Writes only what it sent
 * itself: moving a COPY on is for the loop, which looks for its answer
 * afterwards.
 */
static void
traffic_send(struct pg_conn *conn)
{
    if (conn->failing || conn->inflight.count > 0 || conn->queue.count == 0) {
        return;
    }

    bool is_copy = STAILQ_FIRST(&conn->queue.works)->kind == PG_WORK_COPY;

    if (is_copy ? send_copy(conn) : send_flush(conn)) {
        traffic_write(conn);
    } else {
        conn_fail_libpq(conn);
    }
}


/* ---- answers ---------------------------------------------------------- */

/* FATAL of the server, or libpq's own word, which has no SQLSTATE. */
static bool
result_ends_connection(const PGresult *result)
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
result_is_rolled_back(enum statement statement, const PGresult *result)
{
    const char *tag = PQcmdStatus((PGresult *)result);

    return statement == STATEMENT_COMMIT &&
           strcmp(tag, statements[STATEMENT_COMMIT].text) != 0;
}


static void
answer_set_error(struct pg_answer *answer, const char *sqlstate,
                 bool has_constraint, const char *message)
{
    answer->outcome = PG_OUTCOME_ERROR;
    answer->message = message == NULL ? "" : message;
    snprintf(answer->sqlstate, sizeof(answer->sqlstate), "%s", sqlstate);
    answer->kind = sqlstate_classify(answer->sqlstate, has_constraint);
}


/* The statement is gone, or its plan belongs to another schema. */
static bool
answer_is_stale(const struct pg_work *work, const struct pg_answer *answer)
{
    return work->kind == PG_WORK_QUERY &&
           (strcmp(answer->sqlstate, "26000") == 0 ||
            strcmp(answer->sqlstate, "0A000") == 0);
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
        if (result_is_rolled_back(work->statement, result)) {
            answer_set_error(&answer, "25P02", false,
                             "the transaction had failed before its COMMIT");
        }
        break;
    case PGRES_PIPELINE_ABORTED: answer.outcome = PG_OUTCOME_ABORTED; break;
    case PGRES_FATAL_ERROR:
        if (result_ends_connection(result)) {
            pg_conn_fail(conn, "%s", PQresultErrorMessage(result));
            return;
        }
        answer_set_error(&answer, PQresultErrorField(result, PG_DIAG_SQLSTATE),
                         PQresultErrorField(result, PG_DIAG_CONSTRAINT_NAME) !=
                             NULL,
                         PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
        conn->stale = conn->stale || answer_is_stale(work, &answer);
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


/* ---- taking ----------------------------------------------------------- */

static void
take_sync(struct pg_conn *conn, const PGresult *result)
{
    if (PQresultStatus(result) != PGRES_PIPELINE_SYNC) {
        pg_conn_fail(conn, "a flush did not end where it should: %s",
                     PQresStatus(PQresultStatus(result)));
        return;
    }
    free(work_pop(&conn->inflight));
    PQclear(conn->prepare_error);
    conn->prepare_error = NULL;
    if (conn->stale) {
        pg_conn_fail(conn, "prepared statements no longer fit the schema");
    }
}


/* Takes ownership of the result: an error goes to the query after it. */
static void
take_prepare(struct pg_conn *conn, struct pg_work *work, PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);

    work->answered = true;
    conn->prepared[work->statement] = status == PGRES_COMMAND_OK;
    if (status == PGRES_COMMAND_OK || status == PGRES_PIPELINE_ABORTED) {
        PQclear(result);
        return;
    }
    PQclear(conn->prepare_error);
    conn->prepare_error = result;
}


/* What was aborted since its prepare failed gets the error of that. */
static void
take_query(struct pg_conn *conn, struct pg_work *work, const PGresult *result)
{
    PGresult *error = NULL;

    if (PQresultStatus(result) == PGRES_PIPELINE_ABORTED) {
        error = conn->prepare_error;
        conn->prepare_error = NULL;
    }
    answer_result(conn, work, error == NULL ? result : error);
    PQclear(error);
}


/* Takes ownership of the result, which the end mark will deliver. */
static void
take_copy(struct pg_conn *conn, PGresult *result)
{
    if (PQresultStatus(result) == PGRES_COPY_IN &&
        conn->copy_phase == PG_COPY_ASKED) {
        PQclear(result);
        conn->copy_phase = PG_COPY_FEEDING;
        traffic_write(conn);
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
take_copy_end(struct pg_conn *conn, struct pg_work *work)
{
    PGresult *result = conn->copy_result;

    if (result == NULL) {
        pg_conn_fail(conn, "a COPY ended without a result");
        return;
    }
    conn->copy_result = NULL;
    conn->copy_phase = PG_COPY_NONE;
    if (result_ends_connection(result)) {
        pg_conn_fail(conn, "%s", PQresultErrorMessage(result));
    } else {
        work_pop(&conn->inflight);
        answer_result(conn, work, result);
        free(work);
    }
    PQclear(result);
}


/* The end mark after the result of a statement. */
static void
take_end(struct pg_conn *conn, struct pg_work *work)
{
    if (work->kind == PG_WORK_COPY) {
        take_copy_end(conn, work);
        return;
    }
    if (work->answered) {
        free(work_pop(&conn->inflight));
        return;
    }
    if (conn->null_seen) {
        pg_conn_fail(conn, "results ended before their statements");
    }
    conn->null_seen = true;
}


/* Takes ownership of the result. */
static void
take_result(struct pg_conn *conn, PGresult *result)
{
    struct pg_work *work = STAILQ_FIRST(&conn->inflight.works);

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


/* Something that can be taken now; a callback may have ended it all. */
static bool
traffic_has_result(struct pg_conn *conn)
{
    return conn->state != PG_STATE_CLOSED && !conn->failing &&
           conn->inflight.count > 0 && conn->copy_phase != PG_COPY_FEEDING &&
           PQisBusy(conn->pg) == 0;
}


/*
 * Results may wait inside libpq without any event to come: an error that
 * arrived while COPY data went out is seen only after the end of the data,
 * and writing reads too. So reading and writing go on until neither has
 * anything left to do.
 */
static void
traffic_read(struct pg_conn *conn, bool readable)
{
    if (readable && PQconsumeInput(conn->pg) == 0) {
        conn_fail_libpq(conn);
        return;
    }
    do {
        while (traffic_has_result(conn)) {
            take_result(conn, PQgetResult(conn->pg));
            if (conn->state != PG_STATE_CLOSED) {
                traffic_send(conn);
            }
        }
        if (conn->state != PG_STATE_CLOSED) {
            traffic_write(conn);
        }
    } while (traffic_has_result(conn));
}


void
pg_conn_traffic_cb(uv_poll_t *poll, int status, int events)
{
    struct pg_conn *conn = poll->data;

    if ((events & UV_READABLE) != 0) {
        conn->heard_at_ms = clock_mono_ms();
    }
    if (conn->failing) {
        return;
    }
    if (status < 0) {
        /* What the server said before it went may still be read. */
        traffic_read(conn, true);
        pg_conn_fail(conn, "%s", uv_strerror(status));
        return;
    }
    if ((events & UV_WRITABLE) != 0) {
        traffic_write(conn);
    }
    if (!conn->failing) {
        traffic_read(conn, (events & UV_READABLE) != 0);
    }
}


/* ---- the loss --------------------------------------------------------- */

/* LOST to all that is outstanding, in order. */
static void
conn_lose_work(struct pg_conn *conn)
{
    struct pg_work_list lost;

    work_list_init(&lost);
    conn->torn = conn->torn || conn->unflushed.count > 0;
    work_move(&lost, &conn->inflight);
    work_move(&lost, &conn->queue);
    work_move(&lost, &conn->dead);
    work_move(&lost, &conn->unflushed);
    work_lose(&lost);
}


/* The connection is over: everyone who waits hears of it, then we wait. */
static void
conn_lose(struct pg_conn *conn)
{
    bool was_ready = conn->state == PG_STATE_READY;

    conn->failing = false;
    if (pg_connect_next(conn)) {
        conn_lose_work(conn); /* of the self-test */
        return;
    }
    if (was_ready) {
        metrics.edgemeter_database_losses_total++;
        if (clock_mono_ms() - conn->ready_at_ms >= LASTED_MS) {
            conn->attempts = 0;
        }
    }
    pg_outage_failed(conn, was_ready);

    pg_connect_drop(conn);
    pg_connect_begin(conn, false);

    conn_lose_work(conn);
    if (was_ready && conn->state != PG_STATE_CLOSED &&
        conn->events.on_lost != NULL) {
        conn->events.on_lost(conn->owner, conn->why);
    }
}


static void
defer_cb(uv_timer_t *timer)
{
    struct pg_conn *conn = timer->data;
    struct pg_work_list dead;

    if (conn->failing) {
        conn_lose(conn);
    }
    work_list_init(&dead);
    work_move(&dead, &conn->dead);
    work_lose(&dead);
}


/* ---- for the owner ---------------------------------------------------- */

struct pg_conn *
pg_conn_create(uv_loop_t *loop, const struct pg_conn_options *options,
               const struct pg_conn_events *events, void *owner)
{
    struct pg_conn *conn = memory_alloc(sizeof(*conn));

    conn->loop = loop;
    conn->options = *options;
    conn->events = *events;
    conn->owner = owner;
    work_list_init(&conn->unflushed);
    work_list_init(&conn->queue);
    work_list_init(&conn->inflight);
    work_list_init(&conn->dead);
    uv_timer_init(loop, &conn->timer);
    uv_timer_init(loop, &conn->defer);
    conn->timer.data = conn;
    conn->defer.data = conn;
    conn->handles = 2;

    /* From the loop, so that the owner has the pointer by then. */
    pg_connect_begin(conn, true);
    return conn;
}


static void
conn_closed_cb(uv_handle_t *handle)
{
    struct pg_conn *conn = handle->data;

    if (--conn->handles == 0) {
        free(conn);
    }
}


void
pg_conn_destroy(struct pg_conn *conn)
{
    if (conn == NULL || conn->state == PG_STATE_CLOSED) {
        return;
    }
    pg_connect_drop(conn);
    pg_outage_ended(conn);
    conn->state = PG_STATE_CLOSED;
    conn_lose_work(conn);
    uv_close((uv_handle_t *)&conn->timer, conn_closed_cb);
    uv_close((uv_handle_t *)&conn->defer, conn_closed_cb);
}


bool
pg_conn_is_ready(const struct pg_conn *conn)
{
    return conn->state == PG_STATE_READY && !conn->failing;
}


/*
 * The flush being made will not run. Whoever hears LOST waits for the
 * connection to become ready, so one that is ready must be lost indeed.
 */
static void
flush_tear(struct pg_conn *conn, const char *why)
{
    conn->torn = true;
    if (pg_conn_is_ready(conn)) {
        pg_conn_fail(conn, "%s", why);
    }
}


/* Into the flush being made, or to the dead when it cannot run. */
static void
flush_add(struct pg_conn *conn, struct pg_work *work)
{
    if (!pg_conn_is_ready(conn) ||
        conn->queue.count + conn->unflushed.count >= WORK_MAX) {
        flush_tear(conn, "too many statements are waiting");
    }
    if (!conn->torn) {
        work_push(&conn->unflushed, work);
        return;
    }
    work_move(&conn->dead, &conn->unflushed);
    work_push(&conn->dead, work);
    if (conn->state != PG_STATE_CLOSED) {
        conn_defer(conn);
        return;
    }
    conn_lose_work(conn);
}


/* The flush being made is whole: out with it. */
static void
flush_send(struct pg_conn *conn)
{
    if (conn->inflight.count == 0) {
        conn->asked_at_ms = clock_mono_ms(); /* the silence begins now */
    }
    work_move(&conn->queue, &conn->unflushed);
    traffic_send(conn);
}


void
pg_conn_query(struct pg_conn *conn, enum statement statement,
              const struct pg_params *params, pg_answer_cb cb, void *asker)
{
    static const struct pg_answer lost = {.outcome = PG_OUTCOME_LOST};
    struct pg_work *work = NULL;

    if (params == NULL || !params->bytes.failed) {
        work = work_create(PG_WORK_QUERY, statement, params, cb, asker);
    }
    if (work == NULL) {
        log_error("store", "no memory for a statement",
                  log_str("connection", conn->options.name));
        flush_tear(conn, "out of memory");
        if (cb != NULL) {
            cb(asker, &lost);
        }
        return;
    }
    flush_add(conn, work);
}


void
pg_conn_command(struct pg_conn *conn, enum statement statement, pg_answer_cb cb,
                void *asker)
{
    flush_add(conn, work_create(PG_WORK_COMMAND, statement, NULL, cb, asker));
}


void
pg_conn_flush(struct pg_conn *conn)
{
    if (conn->unflushed.count == 0) {
        conn->torn = false;
        return;
    }
    if (conn->torn || !pg_conn_is_ready(conn)) {
        /* Half a flush must never run. */
        flush_tear(conn, "out of memory");
        work_move(&conn->dead, &conn->unflushed);
        conn->torn = false;
        conn_defer(conn);
        return;
    }
    work_push(&conn->unflushed,
              work_create(PG_WORK_SYNC, STATEMENT_COUNT, NULL, NULL, NULL));
    flush_send(conn);
}


static void
conn_copy(struct pg_conn *conn, struct pg_work *work, struct meter_str data,
          pg_piece_cb next)
{
    CHECK(conn->unflushed.count == 0);
    work->data = data;
    work->next_piece = next;
    flush_add(conn, work);
    if (conn->torn) {
        pg_conn_flush(conn);
    } else {
        flush_send(conn);
    }
}


void
pg_conn_copy(struct pg_conn *conn, enum statement statement,
             struct meter_str data, pg_answer_cb cb, void *asker)
{
    conn_copy(conn, work_create(PG_WORK_COPY, statement, NULL, cb, asker), data,
              NULL);
}


void
pg_conn_copy_pieces(struct pg_conn *conn, enum statement statement,
                    pg_piece_cb next, pg_answer_cb cb, void *asker)
{
    conn_copy(conn, work_create(PG_WORK_COPY, statement, NULL, cb, asker),
              (struct meter_str){NULL, 0}, next);
}


void
pg_conn_reset(struct pg_conn *conn, const char *why)
{
    if (conn->pg != NULL) {
        pg_conn_fail(conn, "%s", why);
    }
}


/* ---- for connect.c ---------------------------------------------------- */

void
pg_conn_ask(struct pg_conn *conn, enum statement statement,
            const struct pg_params *params, pg_answer_cb cb)
{
    struct pg_work *work =
        work_create(PG_WORK_QUERY, statement, params, cb, conn);

    CHECK(work != NULL); /* settings are few */
    work_push(&conn->queue, work);
}


void
pg_conn_ask_end(struct pg_conn *conn)
{
    work_push(&conn->queue,
              work_create(PG_WORK_SYNC, STATEMENT_COUNT, NULL, NULL, NULL));
    traffic_send(conn);
}
