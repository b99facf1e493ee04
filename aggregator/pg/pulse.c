/*
 * pulse.c - whether the server is there: the pulse, silence, and outages.
 *
 *   pulse    session_look once a second, on a connection of its own
 *   silence  looks at each connection once a second; gives up one that asked
 *            and hears nothing, and all of them when the pulse was missed
 *   outage   one line in the log for all connections of the process
 *
 * All of it is one state for the process: its connections belong to one
 * server, and there is one log.
 */

#include "pg/pulse.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "pg/conn_private.h"
#include "pg/selftest.h"

#define PULSE_MS        1000
#define SILENCE_LOOK_MS 1000
#define OUTAGE_OVER_MS  1000

static struct {
    struct pg_conn *conn;
    uv_timer_t timer;
    bool is_asking;
    uint64_t patience_ms;
    uint64_t missed_at_ms; /* 0: never */
} pulse = {.patience_ms = 10000};

/*
 * An outage lasts from the first connection that is out until none has been
 * out for OUTAGE_OVER_MS: one that is made and dropped at once, again and
 * again, does not end it.
 */
static struct {
    bool is_on;
    uint64_t since_ms;
    uint64_t whole_ms; /* since when no connection is out */
    struct log_repeat said;
} outage;


/* ---- the pulse -------------------------------------------------------- */

/* Whatever it is, the server lives, or the connection is lost already. */
static void
pulse_answer_cb(void *asker, const struct pg_answer *answer)
{
    (void)asker;
    (void)answer;
    pulse.is_asking = false;
}


static void
pulse_timer_cb(uv_timer_t *timer)
{
    (void)timer;
    if (!pulse.is_asking && pg_conn_is_ready(pulse.conn)) {
        pulse.is_asking = true;
        pg_conn_query(pulse.conn, STATEMENT_SESSION_LOOK, NULL, pulse_answer_cb,
                      NULL);
        pg_conn_flush(pulse.conn);
    }
}


/* The self-test keeps it to the server that the others take too. */
void
pg_pulse_start(uv_loop_t *loop, const char *url, int64_t patience_us)
{
    static const struct pg_conn_events events = {0};

    pulse.patience_ms = (uint64_t)patience_us / 1000;
    pulse.conn = pg_conn_create(loop,
                                &(struct pg_conn_options){
                                    .name = "pulse",
                                    .url = url,
                                    .role = STORE_ROLE_READER,
                                    .selftest = true,
                                    .patience_ms = pulse.patience_ms,
                                    .is_pulse = true,
                                },
                                &events, NULL);
    uv_timer_init(loop, &pulse.timer);
    uv_timer_start(&pulse.timer, pulse_timer_cb, PULSE_MS, PULSE_MS);
}


void
pg_pulse_stop(void)
{
    if (pulse.conn != NULL) {
        pg_conn_destroy(pulse.conn);
        pulse.conn = NULL;
        uv_close((uv_handle_t *)&pulse.timer, NULL);
    }
}


uint64_t
pg_conn_patience_ms(void)
{
    return pulse.patience_ms;
}


/* ---- outages ---------------------------------------------------------- */

/*
 * A reason is told when it is new and once a minute while it lasts. What the
 * second connection meets is no news.
 */
void
pg_outage_failed(struct pg_conn *conn, bool was_ready)
{
    uint64_t now_ms = clock_mono_ms();

    if (!conn->is_out) {
        conn->is_out = true;
        metrics.edgemeter_database_connections_out++;
    }
    if (!outage.is_on) {
        outage.is_on = true;
        outage.since_ms = now_ms;
    }
    if (!log_repeat_is_due(&outage.said, conn->why, now_ms)) {
        log_debug("store", "database connection is away",
                  log_str("connection", conn->options.name),
                  log_str("reason", conn->why));
        return;
    }
    log_warn("store",
             was_ready ? "database connection lost"
                       : "database connection cannot be made; retrying",
             log_str("connection", conn->options.name),
             log_str("reason", conn->why),
             log_int("out", metrics.edgemeter_database_connections_out));
}


void
pg_outage_ended(struct pg_conn *conn)
{
    if (conn->is_out) {
        conn->is_out = false;
        metrics.edgemeter_database_connections_out--;
        outage.whole_ms = clock_mono_ms();
    }
}


/* The end is told once, when every connection has been up for a moment. */
static void
outage_look(uint64_t now_ms)
{
    if (!outage.is_on || metrics.edgemeter_database_connections_out > 0 ||
        now_ms - outage.whole_ms < OUTAGE_OVER_MS) {
        return;
    }
    outage.is_on = false;
    log_repeat_forget(&outage.said);
    log_info("store", "all database connections are up again",
             log_int("seconds", (int64_t)(now_ms - outage.since_ms) / 1000));
}


/* ---- silence ---------------------------------------------------------- */

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
    outage_look(now_ms);

    uint64_t since_ms = conn->heard_at_ms > conn->asked_at_ms
                            ? conn->heard_at_ms
                            : conn->asked_at_ms;
    bool is_silent = conn->inflight.count > 0 && now_ms - since_ms >= most_ms;

    if (is_silent && conn->options.is_pulse) {
        pulse.missed_at_ms = now_ms;
    }
    if (is_silent ||
        (pulse.missed_at_ms > conn->ready_at_ms &&
         conn->heard_at_ms + pulse.patience_ms / 2 <= pulse.missed_at_ms)) {
        conn->place_at++;
        pg_conn_fail(conn, "the server has been silent for %d s",
                     (int)((is_silent ? most_ms : pulse.patience_ms) / 1000));
    }
}


void
pg_silence_watch(struct pg_conn *conn)
{
    conn->ready_at_ms = clock_mono_ms();
    conn->heard_at_ms = conn->ready_at_ms;
    conn->looked_at_ms = conn->ready_at_ms;
    uv_timer_start(&conn->timer, silence_cb, SILENCE_LOOK_MS, SILENCE_LOOK_MS);
}
