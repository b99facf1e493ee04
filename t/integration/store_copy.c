/*
 * store_copy.c - COPY against a real server: one large stream that goes
 * well, then many that the server refuses while they are on their way.
 *
 *   20-store.t -> [store_copy] -> pg_conn as meter_writer
 *
 * Says on standard output what happened, a line each. Ends by itself or
 * after TIME_LIMIT_MS.
 */

#include "pg/conn.h"
#include "pg/selftest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TIME_LIMIT_MS   60000
#define EVENT_FIELDS    20 /* of copy_event */
#define COPY_ROWS       40000
#define COPY_BAD_ROUNDS 400
#define COPY_BAD_ROWS   4000

static uv_loop_t loop;
static uv_timer_t limit;
static uv_timer_t tick;
static struct pg_conn *conn;
static struct buf stream;
static int rounds;

static const char *const outcomes[] = {"ok", "error", "aborted", "lost"};


__attribute__((format(printf, 1, 2))) static void
say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}


static struct meter_str
text(const char *value)
{
    return (struct meter_str){value, strlen(value)};
}


static void
finish(void)
{
    pg_conn_destroy(conn);
    uv_close((uv_handle_t *)&limit, NULL);
    uv_close((uv_handle_t *)&tick, NULL);
}


static void
limit_cb(uv_timer_t *timer)
{
    (void)timer;
    say("time limit");
    exit(1);
}


static void
copy_fill(int rows, int16_t fields)
{
    static char attributes[256];
    static const uint8_t writer[16] = {1};

    memset(attributes, 'x', sizeof(attributes));
    buf_reset(&stream);
    pg_copy_begin(&stream);
    for (int i = 0; i < rows; i++) {
        pg_copy_row(&stream, fields);
        pg_put_text(&stream, text("acme"));
        pg_put_text(&stream, text("id"));
        pg_put_text(&stream, text("type"));
        pg_put_time(&stream, INT64_C(1772323200000000) + i);
        pg_put_date(&stream, 20513); /* 2026-03-01 */
        pg_put_null(&stream);
        pg_put_null(&stream);
        pg_put_numeric(&stream, meter_decimal_from_int(1));
        pg_put_int8(&stream, 1);
        pg_put_text(&stream,
                    (struct meter_str){attributes, sizeof(attributes)});
        pg_put_null(&stream);
        pg_put_int4(&stream, 0);
        pg_put_null(&stream);
        pg_put_null(&stream);
        pg_put_uuid(&stream, writer);
        pg_put_int8(&stream, i + 1);
        pg_put_time(&stream, INT64_C(1772323200000000));
        pg_put_int2(&stream, 0);
        pg_put_null(&stream);
        pg_put_null(&stream);
    }
    pg_copy_end(&stream);
}


static void
copy_tick_cb(void *asker, const struct pg_answer *answer)
{
    (void)asker;
    if (answer->outcome == PG_OUTCOME_ERROR) {
        say("flush from outside: %s", answer->sqlstate);
    }
}


/* Flushes from outside must not move a COPY past its own answer. */
static void
copy_tick(uv_timer_t *timer)
{
    (void)timer;
    pg_conn_query(conn, STATEMENT_LANE_ROLE, NULL, copy_tick_cb, NULL);
    pg_conn_flush(conn);
}


/*
 * The server says no to the first row while the rest is on its way, at
 * another moment each time; a query waits behind each COPY.
 */
static void
copy_bad_cb(void *asker, const struct pg_answer *answer)
{
    (void)asker;
    if (answer->outcome != PG_OUTCOME_ERROR ||
        strcmp(answer->sqlstate, "22P04") != 0) {
        say("bad copy %s %s", outcomes[answer->outcome], answer->sqlstate);
    }
}


static void
copy_behind_cb(void *asker, const struct pg_answer *answer)
{
    (void)asker;
    if (answer->outcome != PG_OUTCOME_OK) {
        say("behind %s %s", outcomes[answer->outcome], answer->sqlstate);
    }
    if (rounds++ == COPY_BAD_ROUNDS) {
        say("bad copies %d", COPY_BAD_ROUNDS);
        finish();
        return;
    }
    pg_conn_copy(conn, STATEMENT_COPY_EVENT, buf_str(&stream), copy_bad_cb,
                 NULL);
    pg_conn_query(conn, STATEMENT_LANE_ROLE, NULL, copy_behind_cb, NULL);
    pg_conn_flush(conn);
}


static void
copy_cb(void *asker, const struct pg_answer *answer)
{
    (void)asker;
    say("copy %s", outcomes[answer->outcome]);
    if (answer->outcome == PG_OUTCOME_OK) {
        say("rows %ld", (long)pg_affected(answer->result));
    }
    copy_fill(COPY_BAD_ROWS, EVENT_FIELDS - 1); /* one field short */
    pg_conn_query(conn, STATEMENT_LANE_ROLE, NULL, copy_behind_cb, NULL);
    pg_conn_flush(conn);
    uv_timer_start(&tick, copy_tick, 0, 1);
}


static void
copy_ready(void *owner)
{
    (void)owner;
    copy_fill(COPY_ROWS, EVENT_FIELDS);
    say("bytes %s", stream.size > (10u << 20) ? "over 10 MiB" : "few");
    pg_conn_copy(conn, STATEMENT_COPY_EVENT, buf_str(&stream), copy_cb, NULL);
}


int
main(void)
{
    const char *url = getenv("STORE_URL");
    const struct pg_conn_events events = {.on_ready = copy_ready};

    CHECK(url != NULL);
    uv_loop_init(&loop);
    uv_timer_init(&loop, &limit);
    uv_timer_init(&loop, &tick);
    uv_timer_start(&limit, limit_cb, TIME_LIMIT_MS, 0);
    buf_init(&stream, 64u << 20);
    conn = pg_conn_create(&loop,
                          &(struct pg_conn_options){
                              .name = "copy",
                              .url = url,
                              .role = STORE_ROLE_WRITER,
                              .selftest = true,
                          },
                          &events, NULL);
    CHECK(conn != NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    buf_fini(&stream);
    CHECK(uv_loop_close(&loop) == 0);
    say("done");
    return 0;
}
