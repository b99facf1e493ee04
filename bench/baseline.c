/*
 * baseline.c - what the product's ingest is measured against.
 *
 *   ceiling1  COPY BINARY into a bare ledger, no index
 *   ceiling2  the same with a unique index on the text id
 *   naive     one transaction per event: look up, insert id, insert event,
 *             upsert counter, commit; on --connections connections at once
 *
 *   baseline --database URL --mode MODE --batches N --events 5000
 *            --ids v7|random --connections 8 --seconds S
 *
 * Prints events, seconds and events per second on one line. Tables live in
 * a schema of their own and are made anew by every run.
 */

#include "sample.h"

#include <libpq-fe.h>

#include <arpa/inet.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PG_EPOCH_US INT64_C(946684800000000)

struct options {
    const char *database;
    const char *mode;
    size_t batches;
    size_t events;
    enum sample_ids ids;
    size_t connections;
    double seconds;
};

static double
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void
die(const char *what, PGconn *conn)
{
    fprintf(stderr, "baseline: %s: %s\n", what,
            conn != NULL ? PQerrorMessage(conn) : "");
    exit(1);
}

static PGconn *
open_database(const struct options *options)
{
    PGconn *conn = PQconnectdb(options->database);

    if (PQstatus(conn) != CONNECTION_OK) {
        die("connect", conn);
    }
    return conn;
}

static void
run_sql(PGconn *conn, const char *sql)
{
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        die(sql, conn);
    }
    PQclear(result);
}

static void
make_tables(PGconn *conn, bool unique)
{
    run_sql(conn, "SET client_min_messages = warning;"
                  "DROP SCHEMA IF EXISTS bench CASCADE; CREATE SCHEMA bench;"
                  "CREATE TABLE bench.event (event_id text NOT NULL, tenant "
                  "text NOT NULL, type text NOT NULL, ts timestamptz NOT "
                  "NULL, dims jsonb NOT NULL, quantity bigint NOT NULL, "
                  "payload_hash bytea NOT NULL);"
                  "CREATE TABLE bench.registry (event_id text PRIMARY KEY, "
                  "payload_hash bytea NOT NULL, seen_at timestamptz NOT NULL);"
                  "CREATE TABLE bench.counter (tenant text, name text, dims "
                  "jsonb, value bigint NOT NULL, PRIMARY KEY (tenant, name, "
                  "dims));");
    if (unique) {
        run_sql(conn, "CREATE UNIQUE INDEX ON bench.event (event_id)");
    }
}

/* ---- COPY ------------------------------------------------------------ */

static char *
put_field(char *to, const void *data, size_t size)
{
    uint32_t length = htonl((uint32_t)size);

    memcpy(to, &length, 4);
    memcpy(to + 4, data, size);
    return to + 4 + size;
}

static char *
put_int8(char *to, int64_t value)
{
    uint64_t wire = __builtin_bswap64((uint64_t)value);

    return put_field(to, &wire, 8);
}

static char *
put_row(char *to, const struct sample_event *event)
{
    uint16_t fields = htons(7);
    char dims[sizeof(event->attributes) + 1];

    memcpy(to, &fields, 2);
    to += 2;
    to = put_field(to, event->event_id, 36);
    to = put_field(to, event->tenant, strlen(event->tenant));
    to = put_field(to, "api.request", 11);
    to = put_int8(to, event->ts_us - PG_EPOCH_US);
    dims[0] = 1; /* version of jsonb's binary form */
    memcpy(dims + 1, event->attributes, strlen(event->attributes));
    to = put_field(to, dims, strlen(event->attributes) + 1);
    to = put_int8(to, 1);
    return put_field(to, event->event_id, 16);
}

static void
copy_batch(PGconn *conn, const char *data, size_t size)
{
    PGresult *result = PQexec(conn, "COPY bench.event FROM STDIN (FORMAT "
                                    "binary)");

    if (PQresultStatus(result) != PGRES_COPY_IN) {
        die("copy", conn);
    }
    PQclear(result);
    if (PQputCopyData(conn, data, (int)size) != 1 ||
        PQputCopyEnd(conn, NULL) != 1) {
        die("copy data", conn);
    }
    while ((result = PQgetResult(conn)) != NULL) {
        if (PQresultStatus(result) != PGRES_COMMAND_OK) {
            die("copy end", conn);
        }
        PQclear(result);
    }
}

static size_t
run_copy(const struct options *options, double *seconds)
{
    static const char head[] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0";
    PGconn *conn = open_database(options);
    char *data = malloc(options->events * 512 + 64);
    struct sample sample;
    double start;

    make_tables(conn, strcmp(options->mode, "ceiling2") == 0);
    sample_init(&sample, options->ids, (uint64_t)time(NULL),
                (uint64_t)time(NULL) * 1000000);
    start = now();
    for (size_t batch = 0; batch < options->batches; batch++) {
        char *to = data;

        memcpy(to, head, 19);
        to += 19;
        for (size_t i = 0; i < options->events; i++) {
            struct sample_event event;

            sample_next(&sample, (unsigned)i, &event);
            to = put_row(to, &event);
        }
        memset(to, 0xff, 2);
        to += 2;
        copy_batch(conn, data, (size_t)(to - data));
    }
    *seconds = now() - start;
    PQfinish(conn);
    free(data);
    return options->batches * options->events;
}

/* ---- naive ----------------------------------------------------------- */

struct client {
    const struct options *options;
    pthread_t thread;
    size_t index;
    size_t done;
};

static void
run_prepared(PGconn *conn, const char *name, int count,
             const char *const *values)
{
    PGresult *result = PQexecPrepared(conn, name, count, values, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(result);

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        die(name, conn);
    }
    PQclear(result);
}

static void
prepare_naive(PGconn *conn)
{
    static const char *const statements[][2] = {
        {"known", "SELECT payload_hash FROM bench.registry WHERE event_id = "
                  "$1"},
        {"register", "INSERT INTO bench.registry VALUES ($1, $2, now()) ON "
                     "CONFLICT DO NOTHING"},
        {"insert", "INSERT INTO bench.event VALUES ($1, $2, 'api.request', "
                   "now(), $3, 1, $4)"},
        {"count", "INSERT INTO bench.counter VALUES ($1, 'requests', $2, 1) "
                  "ON CONFLICT (tenant, name, dims) DO UPDATE SET value = "
                  "bench.counter.value + 1"},
    };

    for (size_t i = 0; i < 4; i++) {
        PGresult *result =
            PQprepare(conn, statements[i][0], statements[i][1], 0, NULL);

        if (PQresultStatus(result) != PGRES_COMMAND_OK) {
            die(statements[i][0], conn);
        }
        PQclear(result);
    }
}

static void *
naive_client(void *data)
{
    struct client *client = data;
    PGconn *conn = open_database(client->options);
    struct sample sample;
    double end = now() + client->options->seconds;

    prepare_naive(conn);
    sample_init(&sample, client->options->ids,
                (uint64_t)time(NULL) + client->index * 7919,
                (uint64_t)time(NULL) * 1000000);
    while (now() < end) {
        struct sample_event event;

        sample_next(&sample, (unsigned)client->done, &event);
        run_sql(conn, "BEGIN");
        run_prepared(conn, "known", 1, (const char *[]){event.event_id});
        run_prepared(conn, "register", 2,
                     (const char *[]){event.event_id, "0123456789abcdef"});
        run_prepared(conn, "insert", 4,
                     (const char *[]){event.event_id, event.tenant,
                                      event.attributes, "0123456789abcdef"});
        run_prepared(conn, "count", 2,
                     (const char *[]){event.tenant, event.attributes});
        run_sql(conn, "COMMIT");
        client->done++;
    }
    PQfinish(conn);
    return NULL;
}

static size_t
run_naive(const struct options *options, double *seconds)
{
    struct client clients[64] = {0};
    PGconn *conn = open_database(options);
    size_t done = 0;
    double start;

    make_tables(conn, false);
    PQfinish(conn);
    start = now();
    for (size_t i = 0; i < options->connections; i++) {
        clients[i] = (struct client){.options = options, .index = i};
        if (pthread_create(&clients[i].thread, NULL, naive_client,
                           &clients[i]) != 0) {
            die("thread", NULL);
        }
    }
    for (size_t i = 0; i < options->connections; i++) {
        pthread_join(clients[i].thread, NULL);
        done += clients[i].done;
    }
    *seconds = now() - start;
    return done;
}

int
main(int argc, char **argv)
{
    static const struct option names[] = {
        {"database", required_argument, NULL, 'd'},
        {"mode", required_argument, NULL, 'm'},
        {"batches", required_argument, NULL, 'b'},
        {"events", required_argument, NULL, 'e'},
        {"ids", required_argument, NULL, 'i'},
        {"connections", required_argument, NULL, 'c'},
        {"seconds", required_argument, NULL, 's'},
        {0},
    };
    struct options options = {.mode = "ceiling1",
                              .batches = 40,
                              .events = 5000,
                              .connections = 8,
                              .seconds = 3};
    double seconds;
    size_t done;
    int option;

    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (option) {
        case 'd': options.database = optarg; break;
        case 'm': options.mode = optarg; break;
        case 'b': options.batches = strtoul(optarg, NULL, 10); break;
        case 'e': options.events = strtoul(optarg, NULL, 10); break;
        case 'i':
            options.ids = strcmp(optarg, "random") == 0 ? SAMPLE_IDS_RANDOM
                                                        : SAMPLE_IDS_V7;
            break;
        case 'c': options.connections = strtoul(optarg, NULL, 10); break;
        case 's': options.seconds = strtod(optarg, NULL); break;
        default: return 2;
        }
    }
    if (options.database == NULL || options.connections < 1 ||
        options.connections > 64 || options.events < 1) {
        fprintf(stderr, "baseline: --database is needed, --connections is 1 "
                        "to 64, --events at least 1\n");
        return 2;
    }
    if (strcmp(options.mode, "naive") == 0) {
        done = run_naive(&options, &seconds);
    } else {
        done = run_copy(&options, &seconds);
    }
    printf("%zu %.6f %.1f\n", done, seconds, (double)done / seconds);
    return 0;
}
