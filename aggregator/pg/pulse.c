/*
 * pulse.c - see pg_pulse.h.
 */

#include "pg/pulse.h"

#include "pg/conn.h"
#include "pg/selftest.h"

#define PULSE_MS 1000

static struct {
    struct pg_conn *conn;
    uv_timer_t timer;
    bool is_asking;
} pulse;

static void timer_cb(uv_timer_t *timer);
static void answer_cb(void *asker, const struct pg_answer *answer);


/* The self-test keeps it to the server that the others take too. */
bool
pg_pulse_start(uv_loop_t *loop, const char *url, int64_t patience_us)
{
    static const struct pg_conn_events events = {0};

    pg_conn_patience_set((uint64_t)patience_us / 1000);
    pulse.conn = pg_conn_create(loop,
                                &(struct pg_conn_options){
                                    .name = "pulse",
                                    .url = url,
                                    .role = STORE_ROLE_READER,
                                    .selftest = true,
                                    .patience_ms = pg_conn_patience_ms(),
                                    .is_pulse = true,
                                },
                                &events, NULL);
    if (pulse.conn == NULL) {
        return false;
    }
    uv_timer_init(loop, &pulse.timer);
    uv_timer_start(&pulse.timer, timer_cb, PULSE_MS, PULSE_MS);
    return true;
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


static void
timer_cb(uv_timer_t *timer)
{
    (void)timer;
    if (!pulse.is_asking && pg_conn_is_ready(pulse.conn)) {
        pulse.is_asking = true;
        pg_conn_query(pulse.conn, STATEMENT_SESSION_LOOK, NULL, answer_cb,
                      NULL);
        pg_conn_flush(pulse.conn);
    }
}


/* Whatever it is, the server lives, or the connection is lost already. */
static void
answer_cb(void *asker, const struct pg_answer *answer)
{
    (void)asker;
    (void)answer;
    pulse.is_asking = false;
}
