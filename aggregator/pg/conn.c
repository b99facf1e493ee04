/*
 * conn.c - one connection as its owner sees it: work in, answers out.
 *
 *   owner -> [pg_conn: flushes] -> pg_pipeline -> server
 *                  ^
 *   pg_connect ----+ ready, lost
 *
 * A failure is noted where it is met (pg_conn_fail) and carried out from
 * the loop: callbacks about a loss never come from inside an owner's call.
 * The next attempt waits between 50 ms and 2 s, longer each time and never
 * equally long for two connections.
 */

#include "pg/conn_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "pg/outage.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define BACKOFF_MS_MIN    50
#define BACKOFF_MS_MAX    2000
#define BACKOFF_DOUBLINGS 6
/* A connection that held this long starts the back-off anew. */
#define LASTED_MS 2000

static void submit_copy(struct pg_conn *conn, struct pg_work *work,
                        pg_answer_cb cb, void *asker);
static void submit(struct pg_conn *conn, struct pg_work *work, pg_answer_cb cb,
                   void *asker);
static void tear(struct pg_conn *conn, const char *why);
static void pump(struct pg_conn *conn);
static void flatten(char *text);
static void defer(struct pg_conn *conn);
static void defer_cb(uv_timer_t *timer);
static void lose(struct pg_conn *conn);
static void lose_all(struct pg_conn *conn);
static uint64_t backoff_ms(struct pg_conn *conn);
static void closed_cb(uv_handle_t *handle);


struct pg_conn *
pg_conn_create(uv_loop_t *loop, const struct pg_conn_options *options,
               const struct pg_conn_events *events, void *owner)
{
    struct pg_conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        return NULL;
    }
    conn->loop = loop;
    conn->options = *options;
    conn->events = *events;
    conn->owner = owner;
    uv_timer_init(loop, &conn->timer);
    uv_timer_init(loop, &conn->defer);
    conn->timer.data = conn;
    conn->defer.data = conn;
    conn->handles = 2;

    /* From the loop, so that the owner has the pointer by then. */
    pg_connect_after(conn, 0);
    return conn;
}


void
pg_conn_destroy(struct pg_conn *conn)
{
    if (conn == NULL || conn->state == PG_STATE_CLOSED) {
        return;
    }
    pg_connect_drop(conn);
    pg_outage_ended(&conn->is_out);
    conn->state = PG_STATE_CLOSED;
    lose_all(conn);
    uv_close((uv_handle_t *)&conn->timer, closed_cb);
    uv_close((uv_handle_t *)&conn->defer, closed_cb);
}


bool
pg_conn_is_ready(const struct pg_conn *conn)
{
    return conn->state == PG_STATE_READY && !conn->failing;
}


void
pg_conn_query(struct pg_conn *conn, enum statement statement,
              const struct pg_params *params, pg_answer_cb cb, void *asker)
{
    submit(conn, pg_work_create(PG_WORK_QUERY, statement, params, cb, asker),
           cb, asker);
}


void
pg_conn_command(struct pg_conn *conn, enum statement statement, pg_answer_cb cb,
                void *asker)
{
    submit(conn, pg_work_create(PG_WORK_COMMAND, statement, NULL, cb, asker),
           cb, asker);
}


void
pg_conn_flush(struct pg_conn *conn)
{
    if (conn->unflushed.head == NULL) {
        conn->torn = false;
        return;
    }

    struct pg_work *sync =
        pg_work_create(PG_WORK_SYNC, STATEMENT_COUNT, NULL, NULL, NULL);

    if (conn->torn || !pg_conn_is_ready(conn) || sync == NULL) {
        /* Half a flush must never run. */
        tear(conn, "out of memory");
        pg_work_free(sync);
        pg_work_move(&conn->dead, &conn->unflushed);
        conn->torn = false;
        defer(conn);
        return;
    }
    pg_work_push(&conn->unflushed, sync);
    pump(conn);
}


void
pg_conn_copy(struct pg_conn *conn, enum statement statement,
             struct meter_str data, pg_answer_cb cb, void *asker)
{
    struct pg_work *work =
        pg_work_create(PG_WORK_COPY, statement, NULL, cb, asker);

    if (work != NULL) {
        work->data = data;
    }
    submit_copy(conn, work, cb, asker);
}


void
pg_conn_copy_pieces(struct pg_conn *conn, enum statement statement,
                    pg_piece_cb next, pg_answer_cb cb, void *asker)
{
    struct pg_work *work =
        pg_work_create(PG_WORK_COPY, statement, NULL, cb, asker);

    if (work != NULL) {
        work->next_piece = next;
    }
    submit_copy(conn, work, cb, asker);
}


static void
submit_copy(struct pg_conn *conn, struct pg_work *work, pg_answer_cb cb,
            void *asker)
{
    CHECK(conn->unflushed.head == NULL);
    submit(conn, work, cb, asker);
    if (conn->torn) {
        pg_conn_flush(conn);
        return;
    }
    pump(conn);
}


void
pg_conn_reset(struct pg_conn *conn, const char *why)
{
    if (conn->pg != NULL) {
        pg_conn_fail(conn, "%s", why);
    }
}


/*
 * The flush being made will not run. Whoever hears LOST waits for the
 * connection to become ready, so one that is ready must be lost indeed.
 */
static void
tear(struct pg_conn *conn, const char *why)
{
    conn->torn = true;
    if (pg_conn_is_ready(conn)) {
        pg_conn_fail(conn, "%s", why);
    }
}


/* The flush being made is whole: out with it. */
static void
pump(struct pg_conn *conn)
{
    if (conn->inflight.head == NULL) {
        conn->asked_at_ms = clock_mono_ms(); /* the silence begins now */
    }
    pg_work_move(&conn->queue, &conn->unflushed);
    pg_pipeline_pump(conn);
}


/* Into the flush being made, or to the dead when it cannot run. */
static void
submit(struct pg_conn *conn, struct pg_work *work, pg_answer_cb cb, void *asker)
{
    static const struct pg_answer lost = {.outcome = PG_OUTCOME_LOST};

    if (work == NULL) {
        log_error("store", "no memory for a statement",
                  log_str("connection", conn->options.name));
        tear(conn, "out of memory");
        if (cb != NULL) {
            cb(asker, &lost);
        }
        return;
    }
    if (!pg_conn_is_ready(conn) ||
        conn->queue.count + conn->unflushed.count >= PG_CONN_WORK_MAX) {
        tear(conn, "too many statements are waiting");
    }
    if (!conn->torn) {
        pg_work_push(&conn->unflushed, work);
        return;
    }
    pg_work_move(&conn->dead, &conn->unflushed);
    pg_work_push(&conn->dead, work);
    if (conn->state != PG_STATE_CLOSED) {
        defer(conn);
        return;
    }
    lose_all(conn);
}


/* Notes a failure once; the loop carries it out. */
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

    flatten(conn->why);
    defer(conn);
}


/* libpq's messages have several lines; a reason is one. */
static void
flatten(char *text)
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


static void
defer(struct pg_conn *conn)
{
    if (conn->state != PG_STATE_CLOSED) {
        uv_timer_start(&conn->defer, defer_cb, 0, 0);
    }
}


static void
defer_cb(uv_timer_t *timer)
{
    struct pg_conn *conn = timer->data;
    struct pg_work_list dead = {0};
    struct pg_work *work;

    if (conn->failing) {
        lose(conn);
    }
    pg_work_move(&dead, &conn->dead);
    while ((work = pg_work_pop(&dead)) != NULL) {
        pg_work_lose(work);
    }
}


/* The connection is over: everyone who waits hears of it, then we wait. */
static void
lose(struct pg_conn *conn)
{
    bool was_ready = conn->state == PG_STATE_READY;

    conn->failing = false;
    if (pg_connect_next(conn)) {
        lose_all(conn); /* of the self-test */
        return;
    }
    if (was_ready) {
        metrics.edgemeter_database_losses_total++;
        if (clock_mono_ms() - conn->ready_at_ms >= LASTED_MS) {
            conn->attempts = 0;
        }
    }
    pg_outage_failed(&conn->is_out, conn->options.name, was_ready, conn->why);

    pg_connect_drop(conn);
    pg_connect_after(conn, backoff_ms(conn));

    lose_all(conn);
    if (was_ready && conn->state != PG_STATE_CLOSED &&
        conn->events.on_lost != NULL) {
        conn->events.on_lost(conn->owner, conn->why);
    }
}


/* LOST to all that is outstanding, in order. */
static void
lose_all(struct pg_conn *conn)
{
    struct pg_work_list lost = {0};
    struct pg_work *work;

    if (conn->unflushed.head != NULL) {
        conn->torn = true;
    }
    pg_work_move(&lost, &conn->inflight);
    pg_work_move(&lost, &conn->queue);
    pg_work_move(&lost, &conn->dead);
    pg_work_move(&lost, &conn->unflushed);
    while ((work = pg_work_pop(&lost)) != NULL) {
        pg_work_lose(work);
    }
}


/* Doubles from 50 ms to 2 s; the upper half of it is drawn by lot. */
static uint64_t
backoff_ms(struct pg_conn *conn)
{
    unsigned doublings =
        conn->attempts < BACKOFF_DOUBLINGS ? conn->attempts : BACKOFF_DOUBLINGS;
    uint64_t most = (uint64_t)BACKOFF_MS_MIN << doublings;
    uint64_t lot = 0;

    if (most > BACKOFF_MS_MAX) {
        most = BACKOFF_MS_MAX;
    }
    if (getrandom(&lot, sizeof(lot), GRND_NONBLOCK) != sizeof(lot)) {
        lot = uv_hrtime();
    }
    conn->attempts++;
    return most / 2 + lot % (most / 2 + 1);
}


static void
closed_cb(uv_handle_t *handle)
{
    struct pg_conn *conn = handle->data;

    if (--conn->handles == 0) {
        free(conn);
    }
}
