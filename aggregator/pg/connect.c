/*
 * connect.c - makes the connection, checks it, watches its socket.
 *
 *   WAITING -> RESOLVING -> CONNECTING -> CHECKING -> READY
 *      ^            |            |            |         |
 *      +------------+------------+------------+---------+  any failure
 *
 * Host names are looked up first (pg_address). Then each host has its own
 * time to let libpq connect step by step, to take the session's settings and
 * to pass the self-test on server and role; one that does not is followed by
 * the next. Only then the owner hears of it.
 */

#include "pg/conn_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "pg/outage.h"
#include "pg/selftest.h"
#include "pg/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define SILENCE_LOOK_MS 1000

static uint64_t patience_ms = 10000;
static uint64_t silent_at_ms; /* the pulse was missed; 0: never */

static void drop_server(struct pg_conn *conn);
static void attempt_cb(uv_timer_t *timer);
static void
address_cb(void *asker, struct pg_places *places, const char *error);
static void place_try(struct pg_conn *conn);
static void connect_watch(struct pg_conn *conn, PostgresPollingStatusType need);
static void connect_cb(uv_poll_t *poll, int status, int events);
static void connect_timeout_cb(uv_timer_t *timer);
static void silence_cb(uv_timer_t *timer);
static void connected(struct pg_conn *conn);
static void session_start(struct pg_conn *conn);
static void session_cb(void *asker, const struct pg_answer *answer);
static void check_push(struct pg_conn *conn, enum pg_work_kind kind,
                       enum statement statement, const struct pg_params *params,
                       pg_answer_cb cb);
static void check_start(struct pg_conn *conn);
static bool
check_applies(const struct pg_conn *conn, const struct selftest_step *step);
static void check_cb(void *asker, const struct pg_answer *answer);
static bool check_judged(struct pg_conn *conn, enum selftest_verdict verdict,
                         const char *why);
static void check_refuse(struct pg_conn *conn, const char *why);
static void ready(struct pg_conn *conn);
static void traffic_cb(uv_poll_t *poll, int status, int events);
static bool poll_open(struct pg_conn *conn, int events, uv_poll_cb cb);
static void poll_close(struct pg_conn *conn);
static void poll_closed_cb(uv_handle_t *handle);
static void notice_cb(void *asker, const PGresult *notice);
static bool says_not_replicated(const PGresult *notice);


void
pg_connect_after(struct pg_conn *conn, uint64_t delay_ms)
{
    conn->state = PG_STATE_WAITING;
    uv_timer_start(&conn->timer, attempt_cb, delay_ms, 0);
}


void
pg_connect_drop(struct pg_conn *conn)
{
    if (conn->address != NULL) {
        pg_address_cancel(conn->address);
        conn->address = NULL;
    }
    pg_places_free(conn->places);
    conn->places = NULL;
    drop_server(conn);
}


static void
drop_server(struct pg_conn *conn)
{
    poll_close(conn);
    PQfinish(conn->pg);
    conn->pg = NULL;
    pg_pipeline_reset(conn);
}


static void
attempt_cb(uv_timer_t *timer)
{
    struct pg_conn *conn = timer->data;

    conn->state = PG_STATE_RESOLVING;
    conn->round[0] = '\0';
    uv_timer_start(&conn->timer, connect_timeout_cb, patience_ms, 0);
    conn->address =
        pg_address_resolve(conn->loop, conn->options.url, address_cb, conn);
}


static void
address_cb(void *asker, struct pg_places *places, const char *error)
{
    struct pg_conn *conn = asker;

    conn->address = NULL;
    if (conn->failing) {
        pg_places_free(places);
        return;
    }
    if (error != NULL) {
        pg_conn_fail(conn, "%s", error);
        return;
    }
    conn->places = places;
    conn->places_left = places->count;
    place_try(conn);
}


/* One host, within its own time. */
static void
place_try(struct pg_conn *conn)
{
    const struct pg_place *place =
        &conn->places->of[conn->place_at % conn->places->count];
    struct pg_settings settings;
    const char *why;

    conn->state = PG_STATE_CONNECTING;
    if (!pg_settings_init(&settings, &conn->options, place, &why)) {
        check_refuse(conn, why);
        return;
    }
    conn->limit_ms = pg_settings_connect_ms(&settings);
    if (conn->limit_ms == 0) {
        conn->limit_ms = patience_ms;
    }
    uv_timer_start(&conn->timer, connect_timeout_cb, conn->limit_ms, 0);
    conn->pg = PQconnectStartParams(settings.keywords, settings.values, 0);
    pg_settings_fini(&settings);
    if (conn->pg == NULL || PQstatus(conn->pg) == CONNECTION_BAD) {
        pg_conn_fail(conn, "%s",
                     conn->pg == NULL ? "out of memory"
                                      : PQerrorMessage(conn->pg));
        return;
    }
    PQsetNoticeReceiver(conn->pg, notice_cb, conn);
    connect_watch(conn, PGRES_POLLING_WRITING);
}


/* The reasons of all hosts make up the one of the round. */
bool
pg_connect_next(struct pg_conn *conn)
{
    size_t used = strlen(conn->round);

    if (conn->state != PG_STATE_CONNECTING &&
        conn->state != PG_STATE_CHECKING) {
        return false;
    }
    snprintf(conn->round + used, sizeof(conn->round) - used, "%s%s",
             used == 0 ? "" : "; ", conn->why);
    conn->place_at = (conn->place_at + 1) % conn->places->count;
    if (--conn->places_left == 0) {
        memcpy(conn->why, conn->round, sizeof(conn->why));
        return false;
    }
    drop_server(conn);
    place_try(conn);
    return true;
}


static void
connect_timeout_cb(uv_timer_t *timer)
{
    struct pg_conn *conn = timer->data;

    if (conn->state == PG_STATE_RESOLVING) {
        pg_conn_fail(conn, "the host name cannot be looked up in time");
        return;
    }

    const struct pg_place *place =
        &conn->places->of[conn->place_at % conn->places->count];
    const char *host = place->host != NULL ? place->host : place->hostaddr;

    pg_conn_fail(conn,
                 "connection to server at \"%s\" failed: no answer within %d s",
                 host != NULL ? host : "", (int)(conn->limit_ms / 1000));
}


static void
connect_watch(struct pg_conn *conn, PostgresPollingStatusType need)
{
    int events = need == PGRES_POLLING_READING ? UV_READABLE : UV_WRITABLE;

    if (!poll_open(conn, events, connect_cb)) {
        pg_conn_fail(conn, "the socket cannot be watched");
    }
}


/*
 * libpq may close its socket and open another under the same number: the
 * watch ends before each step and begins anew behind it.
 */
static void
connect_cb(uv_poll_t *poll, int status, int events)
{
    struct pg_conn *conn = poll->data;

    (void)status; /* libpq finds out by itself */
    (void)events;
    if (conn->failing) {
        return;
    }
    poll_close(conn);

    PostgresPollingStatusType need = PQconnectPoll(conn->pg);

    switch (need) {
    case PGRES_POLLING_OK: connected(conn); break;
    case PGRES_POLLING_FAILED:
        pg_conn_fail(conn, "%s", PQerrorMessage(conn->pg));
        break;
    default: connect_watch(conn, need);
    }
}


static void
connected(struct pg_conn *conn)
{
    conn->state = PG_STATE_CHECKING;
    if (PQsetnonblocking(conn->pg, 1) != 0 ||
        !poll_open(conn, UV_READABLE, traffic_cb)) {
        pg_conn_fail(conn, "the socket cannot be watched");
        return;
    }
    session_start(conn);
}


/* The mark is another one for each connection that is made. */
static void
session_start(struct pg_conn *conn)
{
    struct pg_params params;
    uint64_t lot = 0;

    if (getrandom(&lot, sizeof(lot), GRND_NONBLOCK) != sizeof(lot)) {
        lot = uv_hrtime();
    }
    snprintf(conn->mark, sizeof(conn->mark), "%" PRIx64, lot);
    pg_params_init(&params);
    pg_settings_session(&conn->options, conn->mark, &params);
    check_push(conn, PG_WORK_QUERY, STATEMENT_SESSION_SET, &params, session_cb);
    check_push(conn, PG_WORK_SYNC, STATEMENT_COUNT, NULL, NULL);
    pg_params_fini(&params);
    pg_pipeline_pump(conn);
}


static void
session_cb(void *asker, const struct pg_answer *answer)
{
    struct pg_conn *conn = asker;
    char why[PG_CONN_WHY_SIZE];

    if (conn->failing || answer->outcome == PG_OUTCOME_LOST) {
        return;
    }
    if (answer->outcome != PG_OUTCOME_OK) {
        check_judged(conn, selftest_judge_error(answer, why, sizeof(why)), why);
    } else if (conn->options.selftest) {
        check_start(conn);
    } else {
        ready(conn);
    }
}


/* Our own work while nobody else has any. */
static void
check_push(struct pg_conn *conn, enum pg_work_kind kind,
           enum statement statement, const struct pg_params *params,
           pg_answer_cb cb)
{
    struct pg_work *work = pg_work_create(kind, statement, params, cb, conn);

    if (work == NULL) {
        pg_conn_fail(conn, "out of memory");
        return;
    }
    pg_work_push(&conn->queue, work);
}


/*
 * All steps in one flush, apart from what set the session: a pooler that
 * gives each transaction another session shows. The time limit of the
 * connect holds for them too.
 */
static void
check_start(struct pg_conn *conn)
{
    conn->check_step = 0;
    for (size_t i = 0; i < selftest_steps_count; i++) {
        if (check_applies(conn, &selftest_steps[i])) {
            check_push(conn, PG_WORK_QUERY, selftest_steps[i].statement, NULL,
                       check_cb);
        }
    }
    check_push(conn, PG_WORK_SYNC, STATEMENT_COUNT, NULL, NULL);
    pg_pipeline_pump(conn);
}


/* Every step has a role that it is for, or is for all. */
static bool
check_applies(const struct pg_conn *conn, const struct selftest_step *step)
{
    const char *role = conn->options.role;

    return step->role == NULL ||
           (role != NULL && strcmp(role, step->role) == 0);
}


static void
check_cb(void *asker, const struct pg_answer *answer)
{
    struct pg_conn *conn = asker;
    const struct selftest_step *step;
    char why[PG_CONN_WHY_SIZE] = "";
    enum selftest_verdict verdict;

    if (conn->failing || answer->outcome == PG_OUTCOME_LOST) {
        return;
    }
    do {
        CHECK(conn->check_step < selftest_steps_count);
        step = &selftest_steps[conn->check_step++];
    } while (!check_applies(conn, step));

    if (answer->outcome != PG_OUTCOME_OK) {
        verdict = selftest_judge_error(answer, why, sizeof(why));
    } else if (step->statement == STATEMENT_SESSION_LOOK) {
        verdict = selftest_judge_session(conn->mark, answer->result, why,
                                         sizeof(why));
    } else {
        verdict = step->judge(answer->result, why, sizeof(why));
    }
    if (check_judged(conn, verdict, why) &&
        conn->check_step == selftest_steps_count) {
        ready(conn);
    }
}


/* True: go on. */
static bool
check_judged(struct pg_conn *conn, enum selftest_verdict verdict,
             const char *why)
{
    if (verdict == SELFTEST_REFUSED) {
        check_refuse(conn, why);
    } else if (verdict == SELFTEST_AWAY) {
        pg_conn_fail(conn, "%s", why);
    }
    return verdict == SELFTEST_OK;
}


/* Tells the owner, and tries again later in case it was put right. */
static void
check_refuse(struct pg_conn *conn, const char *why)
{
    if (strcmp(conn->refused, why) != 0) {
        snprintf(conn->refused, sizeof(conn->refused), "%s", why);
        log_error("store", "database refused",
                  log_str("connection", conn->options.name),
                  log_str("reason", why));
    }
    pg_conn_fail(conn, "refused: %s", why);
    if (conn->events.on_refused != NULL) {
        conn->events.on_refused(conn->owner, conn->refused);
    }
}


static void
ready(struct pg_conn *conn)
{
    conn->state = PG_STATE_READY;
    conn->ready_at_ms = clock_mono_ms();
    conn->heard_at_ms = conn->ready_at_ms;
    conn->looked_at_ms = conn->ready_at_ms;
    uv_timer_start(&conn->timer, silence_cb, SILENCE_LOOK_MS, SILENCE_LOOK_MS);
    conn->refused[0] = '\0';
    pg_outage_ended(&conn->is_out);
    log_info("store", "database connection ready",
             log_str("connection", conn->options.name));
    if (conn->events.on_ready != NULL) {
        conn->events.on_ready(conn->owner);
    }
}


void
pg_conn_patience_set(uint64_t ms)
{
    patience_ms = ms;
}


uint64_t
pg_conn_patience_ms(void)
{
    return patience_ms;
}


/*
 * A statement may take long; the pulse may not. When it is missed, whoever
 * has heard nothing for half as long is on the same server, idle or not. The
 * next attempt begins with another host. If it was meterd that stood still,
 * what the server said may not have been read yet: the silence begins now.
 */
static void
silence_cb(uv_timer_t *timer)
{
    struct pg_conn *conn = timer->data;
    uint64_t now_ms = clock_mono_ms();
    uint64_t most_ms = conn->options.patience_ms != 0
                           ? conn->options.patience_ms
                           : PG_PATIENCE_MS;

    if (now_ms - conn->looked_at_ms > 2 * SILENCE_LOOK_MS) {
        conn->asked_at_ms = now_ms;
    }
    conn->looked_at_ms = now_ms;
    pg_outage_look();

    uint64_t since_ms = conn->heard_at_ms > conn->asked_at_ms
                            ? conn->heard_at_ms
                            : conn->asked_at_ms;
    bool is_silent =
        conn->inflight.head != NULL && now_ms - since_ms >= most_ms;

    if (is_silent && conn->options.is_pulse) {
        silent_at_ms = now_ms;
    }
    if (is_silent || (silent_at_ms > conn->ready_at_ms &&
                      conn->heard_at_ms + patience_ms / 2 <= silent_at_ms)) {
        conn->place_at++;
        pg_conn_fail(conn, "the server has been silent for %d s",
                     (int)((is_silent ? most_ms : patience_ms) / 1000));
    }
}


static void
traffic_cb(uv_poll_t *poll, int status, int events)
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
        pg_pipeline_read(conn, true);
        pg_conn_fail(conn, "%s", uv_strerror(status));
        return;
    }
    if ((events & UV_WRITABLE) != 0) {
        pg_pipeline_write(conn);
    }
    if (!conn->failing) {
        pg_pipeline_read(conn, (events & UV_READABLE) != 0);
    }
}


void
pg_conn_watch(struct pg_conn *conn)
{
    int events = UV_READABLE | (conn->write_blocked ? UV_WRITABLE : 0);

    if (conn->poll != NULL && conn->watched != events) {
        uv_poll_start(conn->poll, events, traffic_cb); /* system calls */
        conn->watched = events;
    }
}


static bool
poll_open(struct pg_conn *conn, int events, uv_poll_cb cb)
{
    uv_poll_t *poll = malloc(sizeof(*poll));

    CHECK(conn->poll == NULL);
    if (poll == NULL) {
        return false;
    }
    if (uv_poll_init(conn->loop, poll, PQsocket(conn->pg)) != 0) {
        free(poll);
        return false;
    }
    poll->data = conn;
    conn->poll = poll;
    conn->watched = 0;
    return uv_poll_start(poll, events, cb) == 0;
}


/* Before libpq closes the socket. */
static void
poll_close(struct pg_conn *conn)
{
    if (conn->poll != NULL) {
        uv_close((uv_handle_t *)conn->poll, poll_closed_cb);
        conn->poll = NULL;
    }
}


static void
poll_closed_cb(uv_handle_t *handle)
{
    free(handle);
}


static void
notice_cb(void *asker, const PGresult *notice)
{
    struct pg_conn *conn = asker;

    if (says_not_replicated(notice)) {
        log_error("store", "a commit is not replicated",
                  log_str("connection", conn->options.name));
        if (conn->events.on_not_replicated != NULL) {
            conn->events.on_not_replicated(conn->owner);
        }
        return;
    }
    log_debug(
        "store", "server notice", log_str("connection", conn->options.name),
        log_str("notice", PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY)));
}


/*
 * A cancelled wait for a synchronous standby gives success with a WARNING:
 * SQLSTATE 01000 or 57P01, in the server's language. The function that
 * reports it is never translated; the English detail serves where a
 * distribution leaves the source position out.
 */
static bool
says_not_replicated(const PGresult *notice)
{
    const char *function = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
    const char *detail = PQresultErrorField(notice, PG_DIAG_MESSAGE_DETAIL);

    return (function != NULL && strcmp(function, "SyncRepWaitForLSN") == 0) ||
           (detail != NULL &&
            strstr(detail, "might not have been replicated") != NULL);
}
