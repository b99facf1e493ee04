/*
 * store_client.c - the store against a real server, one scenario a run.
 *
 *   20-store.t -> [store_client SCENARIO] -> pg_conn, lane, reader
 *
 * Says on standard output what happened, a line each; the Perl side moves
 * the server and judges. Ends by itself or after TIME_LIMIT_MS.
 */

#include "base/log.h"
#include "pg/selftest.h"
#include "store/lane.h"
#include "store/partition.h"
#include "store/reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TIME_LIMIT_MS 60000
#define TENANTS       16
#define READS         4000
#define READS_AT_ONCE 64

struct client {
    uv_loop_t loop;
    const char *url;
    const char *admin_url;
    const char *state_dir;
    struct pg_conn *conn;
    struct lane *lane;
    struct reader *reader;
    struct partition *partition;
    uv_timer_t limit;
    uv_timer_t tick;
    int step;
    unsigned long read_started;
    unsigned long read_done;
    unsigned long read_wrong;
    unsigned long read_lost;
};

static struct client client;

/* A step's name as its asker. */
#define NAMED(name) ((void *)(uintptr_t)(name))

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


static void
finish(void)
{
    pg_conn_destroy(client.conn);
    lane_destroy(client.lane);
    reader_destroy(client.reader);
    partition_destroy(client.partition);
    client.conn = NULL;
    client.lane = NULL;
    client.reader = NULL;
    client.partition = NULL;
    uv_close((uv_handle_t *)&client.limit, NULL);
    uv_close((uv_handle_t *)&client.tick, NULL);
}


static void
limit_cb(uv_timer_t *timer)
{
    (void)timer;
    say("time limit");
    exit(1);
}


static struct meter_str
text(const char *value)
{
    return (struct meter_str){value, strlen(value)};
}


/* --- pg_conn ---------------------------------------------------------- */

static void
told_cb(void *asker, const struct pg_answer *answer)
{
    say("%s %s%s%s", (const char *)asker, outcomes[answer->outcome],
        answer->outcome == PG_OUTCOME_ERROR ? " " : "",
        answer->outcome == PG_OUTCOME_ERROR ? answer->sqlstate : "");
}


static void
last_cb(void *asker, const struct pg_answer *answer)
{
    told_cb(asker, answer);
    finish();
}


static void
query_text(enum statement statement, const char *value, pg_answer_cb cb,
           const char *name)
{
    struct pg_params params;

    pg_params_init(&params);
    pg_param_text(&params, text(value));
    pg_conn_query(client.conn, statement, &params, cb, NAMED(name));
    pg_params_fini(&params);
}


/* An error in the middle; then the same statements once more. */
static void
pipeline_ready(void *owner)
{
    (void)owner;
    pg_conn_command(client.conn, STATEMENT_BEGIN, told_cb, NAMED("begin"));
    query_text(STATEMENT_SET_TENANT, "acme", told_cb, "first");
    query_text(STATEMENT_SET_TENANT, "\xff", told_cb, "middle");
    query_text(STATEMENT_TOKEN_FIND, "x", told_cb, "behind");
    pg_conn_command(client.conn, STATEMENT_COMMIT, told_cb, NAMED("commit"));
    pg_conn_flush(client.conn);

    query_text(STATEMENT_TOKEN_FIND, "x", told_cb, "failed transaction");
    pg_conn_flush(client.conn);
    pg_conn_command(client.conn, STATEMENT_COMMIT, told_cb, NAMED("end"));
    pg_conn_flush(client.conn);

    pg_conn_query(client.conn, STATEMENT_LANE_SECRET, NULL, told_cb,
                  NAMED("no right"));
    pg_conn_flush(client.conn);
    query_text(STATEMENT_TOKEN_FIND, "x", last_cb, "again");
    pg_conn_flush(client.conn);
}


/* --- restart: one query at a time, as long as the Perl side likes ------ */

static void
restart_cb(void *asker, const struct pg_answer *answer)
{
    (void)asker;
    if (answer->outcome != PG_OUTCOME_OK) {
        say("query %s", outcomes[answer->outcome]);
        return;
    }
    if (client.step == 0) {
        say("working");
    }
    client.step++;
}


static void
restart_tick(uv_timer_t *timer)
{
    (void)timer;
    if (pg_conn_is_ready(client.conn)) {
        pg_conn_query(client.conn, STATEMENT_LANE_ROLE, NULL, restart_cb, NULL);
        pg_conn_flush(client.conn);
    }
}


static void
restart_ready(void *owner)
{
    (void)owner;
    client.step = 0;
    say("ready");
    uv_timer_start(&client.tick, restart_tick, 0, 5);
}


static void
restart_lost(void *owner, const char *why)
{
    (void)owner;
    say("lost: %s", why);
}


static void
refused(void *owner, const char *why)
{
    (void)owner;
    say("refused: %s", why);
    finish();
}


static void
not_replicated(void *owner)
{
    (void)owner;
    say("not replicated");
}


static void
plain_ready(void *owner)
{
    (void)owner;
    say("ready");
    finish();
}


/* A loss with work in flight: every callback once, none twice. */
static void
reset_ready(void *owner)
{
    (void)owner;
    if (client.step++ > 0) {
        say("ready again");
        finish();
        return;
    }
    pg_conn_command(client.conn, STATEMENT_BEGIN, told_cb, NAMED("begin"));
    pg_conn_flush(client.conn);
    pg_conn_query(client.conn, STATEMENT_LANE_ROLE, NULL, told_cb,
                  NAMED("queued"));
    pg_conn_flush(client.conn);
    pg_conn_reset(client.conn, "on purpose");
    pg_conn_query(client.conn, STATEMENT_LANE_ROLE, NULL, told_cb,
                  NAMED("late"));
    pg_conn_flush(client.conn);
}


static void
conn_open(const char *role, void (*on_ready)(void *owner))
{
    const struct pg_conn_events events = {
        .on_ready = on_ready,
        .on_refused = refused,
        .on_lost = restart_lost,
        .on_not_replicated = not_replicated,
    };

    client.conn = pg_conn_create(&client.loop,
                                 &(struct pg_conn_options){
                                     .name = "client",
                                     .url = client.url,
                                     .role = role,
                                     .selftest = true,
                                 },
                                 &events, NULL);
    CHECK(client.conn != NULL);
}


/* --- lane -------------------------------------------------------------- */

static void
lane_ready(void *owner, int64_t last, int64_t batch)
{
    (void)owner;
    say("ready epoch %ld last %ld batch %ld copy %d",
        (long)lane_epoch(client.lane), (long)last, (long)batch,
        lane_can_copy(client.lane));
    CHECK(lane_salt(client.lane) != NULL);
    CHECK(lane_now_us(client.lane) > 0);
    if (client.step == 0) {
        finish();
    }
}


static void
lane_start(void)
{
    static const struct lane_events events = {
        .on_ready = lane_ready,
        .on_lost = restart_lost,
        .on_refused = refused,
        .on_not_replicated = not_replicated,
    };

    if (!lane_create(&client.loop,
                     &(struct lane_options){
                         .url = client.url,
                         .state_dir = client.state_dir,
                         .node = "test",
                     },
                     &events, NULL, &client.lane)) {
        say("no lane");
        finish();
    }
}


/* --- reader: random tenants, none may see another's row ---------------- */

static void read_more(void);

static void
read_cb(void *asker, const struct pg_answer *answer)
{
    long tenant = (long)asker;
    char want[32];

    client.read_done++;
    if (answer->outcome != PG_OUTCOME_OK) {
        client.read_lost++;
    } else if (tenant < 0) {
        client.read_wrong += pg_row_count(answer->result) != 0;
    } else {
        snprintf(want, sizeof(want), "{\"t\":\"%ld\"}", tenant);
        client.read_wrong +=
            pg_row_count(answer->result) != 1 ||
            !meter_str_equal(pg_get_bytes(answer->result, 0, 0), text(want));
    }
    read_more();
}


/* Every third asks for one tenant's row in another one's name. */
static void
read_more(void)
{
    while (client.read_started < READS &&
           client.read_started - client.read_done < READS_AT_ONCE) {
        long tenant = rand() % TENANTS;
        long in_name_of = rand() % 3 == 0 ? (tenant + 1) % TENANTS : tenant;
        char name[16];
        struct pg_params params;

        client.read_started++;
        snprintf(name, sizeof(name), "tenant-%ld", tenant);
        pg_params_init(&params);
        pg_param_text(&params, text(name));
        pg_param_text(&params, text("c"));
        pg_param_array_begin(&params, PG_BYTEA, 1);
        pg_put_bytes(&params.bytes, text("k"));
        pg_param_array_end(&params);
        snprintf(name, sizeof(name), "tenant-%ld", in_name_of);
        reader_query(client.reader, text(name), STATEMENT_COUNTER_READ, &params,
                     read_cb, (void *)(in_name_of == tenant ? tenant : -1L));
        pg_params_fini(&params);
    }
    if (client.read_done == READS && client.reader != NULL) {
        say("reads %lu wrong %lu lost %lu", client.read_done, client.read_wrong,
            client.read_lost);
        finish();
    }
}


static void
read_refused_cb(void *asker, const struct pg_answer *answer)
{
    told_cb(asker, answer);
    read_more();
}


/* First a statement that fails: its connection must serve on. */
static void
read_ready(void *owner)
{
    (void)owner;
    reader_query(client.reader, text("acme"), STATEMENT_LANE_SECRET, NULL,
                 read_refused_cb, NAMED("no right"));
}


static void
reader_start(void)
{
    static const struct reader_events events = {
        .on_ready = read_ready,
        .on_refused = refused,
    };

    client.reader = reader_create(&client.loop,
                                  &(struct reader_options){
                                      .url = client.url,
                                      .connections = 3,
                                      .queue_max = READS_AT_ONCE,
                                  },
                                  &events, NULL);
    CHECK(client.reader != NULL);
}


/* --- partition ---------------------------------------------------------- */

static void
made_cb(void *asker, bool made)
{
    (void)asker;
    say("made %d exists %d", made,
        partition_exists(client.partition, PARTITION_EVENT, 20513));
    finish();
}


static void
partition_ready(void *owner)
{
    const int32_t days[] = {20513, 20514};
    int64_t now = INT64_C(1772323200000000); /* 2026-03-01 */

    (void)owner;
    say("floor %d, ten years %d",
        partition_day(client.partition, PARTITION_EVENT, 0, now),
        partition_day(client.partition, PARTITION_AUDIT, 0, now));
    partition_make(client.partition, PARTITION_EVENT, days, 2, made_cb, NULL);
}


static void
partition_start(void)
{
    client.partition = partition_create(&client.loop,
                                        &(struct partition_options){
                                            .admin_url = client.admin_url,
                                            .retention_days = {730, -1},
                                        },
                                        partition_ready, NULL);
    CHECK(client.partition != NULL);
}


static void
lane_stay(void)
{
    client.step = 1;
    lane_start();
}


/* A connection with a role, or a start of its own. */
static const struct {
    const char *name;
    const char *role;
    void (*on_ready)(void *owner);
    void (*start)(void);
} scenarios[] = {
    {"pipeline", STORE_ROLE_READER, pipeline_ready, NULL},
    {"restart", STORE_ROLE_WRITER, restart_ready, NULL},
    {"reset", STORE_ROLE_WRITER, reset_ready, NULL},
    {"check-reader", STORE_ROLE_READER, plain_ready, NULL},
    {"check-writer", STORE_ROLE_WRITER, plain_ready, NULL},
    {"lane", NULL, NULL, lane_start},
    {"lane-stay", NULL, NULL, lane_stay},
    {"reader", NULL, NULL, reader_start},
    {"partition", NULL, NULL, partition_start},
};


static bool
scenario_start(const char *name)
{
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (strcmp(scenarios[i].name, name) != 0) {
            continue;
        }
        if (scenarios[i].start != NULL) {
            scenarios[i].start();
        } else {
            conn_open(scenarios[i].role, scenarios[i].on_ready);
        }
        return true;
    }
    return false;
}


int
main(int argc, char **argv)
{
    const char *scenario = argc == 2 ? argv[1] : "";

    client.url = getenv("STORE_URL");
    client.admin_url = getenv("STORE_ADMIN_URL");
    client.state_dir = getenv("STORE_STATE_DIR");
    CHECK(client.url != NULL && client.admin_url != NULL);
    CHECK(client.state_dir != NULL);
    uv_loop_init(&client.loop);
    uv_timer_init(&client.loop, &client.limit);
    uv_timer_init(&client.loop, &client.tick);
    uv_timer_start(&client.limit, limit_cb, TIME_LIMIT_MS, 0);

    if (!scenario_start(scenario)) {
        say("no such scenario: %s", scenario);
        return 2;
    }

    uv_run(&client.loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&client.loop) == 0);
    say("done");
    return 0;
}
