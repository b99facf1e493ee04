/*
 * read_load.c - the same read again and again on one connection.
 *
 *   read_load --port N --token TOKEN --path PATH --reads 4000
 *             [--bodies FILE]
 *   read_load --database URL --what counter|usage --reads 4000
 *
 * The first form asks nginx over a keep-alive connection: GET, or POST with
 * the lines of a file, one after the other. The second one runs a prepared
 * SELECT by primary key, binary, on a connection of its own. Every answer
 * must hold a row. Prints the median and the 99th percentile in microseconds.
 */

#include <arpa/inet.h>
#include <getopt.h>
#include <libpq-fe.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_SIZE 2097152
#define BODIES_MAX  4096
#define BODY_SIZE   1024
#define WARM_UP     200
/* nginx closes a connection after a thousand requests. */
#define KEPT_READS 900

struct options {
    int port;
    const char *token;
    const char *path;
    const char *bodies;
    const char *database;
    const char *what;
    size_t reads;
};

static const struct select {
    const char *what;
    const char *find; /* the key of the row to read, once */
    const char *read;
    int count; /* of the key's columns */
} selects[] = {
    {"counter",
     "SELECT tenant, counter_name, dimension_key FROM meter.counter"
     " WHERE tenant = 'tenant-000' AND counter_name = 'by_route'"
     " AND dimensions = '{\"route\":\"/v1/a\"}'",
     "SELECT dimensions, value, updated_at FROM meter.counter"
     " WHERE tenant = $1::text AND counter_name = $2::text"
     " AND dimension_key = $3::bytea",
     3},
    {"usage", "SELECT 'tenant-000'",
     "SELECT entry_count, storage_bytes, api_call_count, status,"
     " last_updated_at FROM meter.tenant_usage_metrics"
     " WHERE tenant_id = $1::text",
     1},
};

__attribute__((noreturn)) static void
die(const char *what, const char *why)
{
    fprintf(stderr, "read_load: %s: %s\n", what, why);
    exit(1);
}

static double
now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int
http_connect(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 ||
        connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        die("connect", "refused");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

/* The whole answer: head, then as many bytes as it says. */
static void
http_read(int fd, const char *request)
{
    static char answer[ANSWER_SIZE];
    size_t size = 0;
    const char *body = NULL;
    size_t due = 0;

    if (write(fd, request, strlen(request)) != (ssize_t)strlen(request)) {
        die("write", "short");
    }
    while (body == NULL || size < (size_t)(body - answer) + due) {
        ssize_t got = read(fd, answer + size, sizeof(answer) - 1 - size);
        const char *length;

        if (got <= 0) {
            die("read", "closed");
        }
        size += (size_t)got;
        answer[size] = '\0';
        body = strstr(answer, "\r\n\r\n");
        if (body != NULL) {
            body += 4;
            length = strstr(answer, "Content-Length: ");
            due = length == NULL ? 0 : strtoul(length + 16, NULL, 10);
        }
    }
    if (strncmp(answer, "HTTP/1.1 200", 12) != 0 || due == 0) {
        die("not answered 200", answer);
    }
}

static char requests[BODIES_MAX][4096];

/* As many as there are bodies, or one. */
static size_t
make_requests(const struct options *options)
{
    char body[BODY_SIZE];
    size_t count = 0;
    FILE *file;

    if (options->bodies == NULL) {
        snprintf(requests[0], sizeof(requests[0]),
                 "GET %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer "
                 "%s\r\n\r\n",
                 options->path, options->token);
        return 1;
    }
    file = fopen(options->bodies, "r");
    while (file != NULL && count < BODIES_MAX &&
           fgets(body, sizeof(body), file) != NULL) {
        body[strcspn(body, "\n")] = '\0';
        snprintf(requests[count++], sizeof(requests[0]),
                 "POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer "
                 "%s\r\nContent-Type: application/json\r\nContent-Length: "
                 "%zu\r\n\r\n%s",
                 options->path, options->token, strlen(body), body);
    }
    if (count == 0) {
        die("no bodies", options->bodies);
    }
    fclose(file);
    return count;
}

static void
measure_http(const struct options *options, double *times)
{
    size_t count = make_requests(options);
    int fd = http_connect(options->port);

    for (size_t i = 0; i < options->reads + WARM_UP; i++) {
        const char *request = requests[i % count];
        double started;

        if (i > 0 && i % KEPT_READS == 0) {
            close(fd);
            fd = http_connect(options->port);
            http_read(fd, request);
        }
        started = now_us();
        http_read(fd, request);
        if (i >= WARM_UP) {
            times[i - WARM_UP] = now_us() - started;
        }
    }
    close(fd);
}

static const struct select *
select_find(const char *what)
{
    for (size_t i = 0; i < sizeof(selects) / sizeof(selects[0]); i++) {
        if (strcmp(selects[i].what, what) == 0) {
            return &selects[i];
        }
    }
    die("no such read", what);
}

static void
measure_select(const struct options *options, double *times)
{
    const struct select *select = select_find(options->what);
    PGconn *pg = PQconnectdb(options->database);
    PGresult *key =
        PQexecParams(pg, select->find, 0, NULL, NULL, NULL, NULL, 1);
    const char *values[3] = {NULL};
    int sizes[3] = {0};
    static const int formats[3] = {1, 1, 1};

    if (PQresultStatus(key) != PGRES_TUPLES_OK || PQntuples(key) != 1) {
        die("the row to read", PQerrorMessage(pg));
    }
    for (int i = 0; i < select->count; i++) {
        values[i] = PQgetvalue(key, 0, i);
        sizes[i] = PQgetlength(key, 0, i);
    }
    PQclear(PQexec(pg, "SET enable_seqscan = off"));
    PQclear(PQprepare(pg, "read", select->read, 0, NULL));
    for (size_t i = 0; i < options->reads + WARM_UP; i++) {
        double started = now_us();
        PGresult *row = PQexecPrepared(pg, "read", select->count, values, sizes,
                                       formats, 1);

        if (PQntuples(row) != 1) {
            die("read", PQerrorMessage(pg));
        }
        PQclear(row);
        if (i >= WARM_UP) {
            times[i - WARM_UP] = now_us() - started;
        }
    }
    PQclear(key);
    PQfinish(pg);
}

static int
compare_times(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return a < b ? -1 : a > b;
}

static void
read_options(struct options *options, int argc, char **argv)
{
    static const struct option list[] = {
        {"port", required_argument, NULL, 'p'},
        {"token", required_argument, NULL, 't'},
        {"path", required_argument, NULL, 'u'},
        {"bodies", required_argument, NULL, 'b'},
        {"database", required_argument, NULL, 'd'},
        {"what", required_argument, NULL, 'w'},
        {"reads", required_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    int found;

    while ((found = getopt_long(argc, argv, "", list, NULL)) != -1) {
        switch (found) {
        case 'p': options->port = (int)strtol(optarg, NULL, 10); break;
        case 't': options->token = optarg; break;
        case 'u': options->path = optarg; break;
        case 'b': options->bodies = optarg; break;
        case 'd': options->database = optarg; break;
        case 'w': options->what = optarg; break;
        case 'n': options->reads = strtoul(optarg, NULL, 10); break;
        default: exit(2);
        }
    }
    if (options->reads == 0 ||
        (options->database == NULL) == (options->port == 0)) {
        die("options", "see the head of this program");
    }
}

int
main(int argc, char **argv)
{
    struct options options = {.reads = 4000};
    double *times;

    read_options(&options, argc, argv);
    times = calloc(options.reads, sizeof(*times));
    if (times == NULL) {
        die("out of memory", "times");
    }
    if (options.database != NULL) {
        measure_select(&options, times);
    } else {
        measure_http(&options, times);
    }
    qsort(times, options.reads, sizeof(*times), compare_times);
    printf("%.1f %.1f\n", times[options.reads / 2],
           times[options.reads * 99 / 100]);
    free(times);
    return 0;
}
