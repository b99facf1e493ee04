/*
 * counter_load.c - many clients of the counters API in one thread.
 *
 *   counter_load --port N --tokens DIR --operation increment|incrementSync|get
 *                [--connections 64] [--names 10000] [--seconds 4]
 *                [--requests N] [--seed N]
 *
 *   request -> nginx -> ... -> answer -> next request of that connection
 *
 * Each keep-alive connection sends its next request when the answer to the
 * last has come. Names are drawn uniformly by a generator of --seed; --names 1
 * is one hot key. A name belongs to one of the tenants whose token files are
 * in DIR. Stops after --seconds, or after --requests where given, and then
 * waits for the answers under way: every request sent is counted. Every answer
 * must be 200. Prints operations per second, p50, p99 and p99.9 in
 * microseconds, and how many there were.
 *
 * It shares two cores with what it measures: a request is a text made
 * beforehand with the name put in, one send and one recv.
 */

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TENANTS_MAX     128
#define CONNECTIONS_MAX 1024
#define ANSWER_SIZE     4096
#define REQUEST_SIZE    2048
#define NAME_DIGITS     6
#define NAMES_MAX       1000000
/* nginx closes a connection after a thousand requests. */
#define KEPT_REQUESTS 900
#define DURATION      "3600"
#define TIMESTAMP     "2026-03-15T10:30:00Z"

struct options {
    int port;
    const char *tokens;
    const char *operation;
    size_t connections;
    uint64_t names;
    double seconds;
    size_t requests; /* 0: as many as fit the time */
    uint64_t seed;
};

/* The request text of one tenant. */
struct tenant {
    char text[REQUEST_SIZE];
    size_t size;
    char *name; /* its digits, in the text */
};

struct connection {
    int fd;
    size_t sent; /* on this socket */
    double started_us;
    size_t size; /* of the answer so far */
    char answer[ANSWER_SIZE];
};

struct load {
    const struct options *options;
    int epoll;
    struct tenant *tenants;
    size_t tenants_count;
    struct connection *connections;
    size_t under_way;
    uint64_t state; /* of the generator */
    double end_us;
    float *times; /* in us */
    size_t count;
    size_t room;
};

__attribute__((noreturn)) static void
die(const char *what, const char *why)
{
    fprintf(stderr, "counter_load: %s: %s\n", what, why);
    exit(1);
}

static double
now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void *
allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (memory == NULL) {
        die("memory", "out of it");
    }
    return memory;
}

/* splitmix64. */
static uint64_t
draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* --- texts ------------------------------------------------------------- */

static void
tenant_make(struct tenant *tenant, const char *operation, const char *name,
            const char *token)
{
    static const char body[] = "{\"durationSeconds\":" DURATION
                               ",\"timestamp\":\"" TIMESTAMP "\",\"amount\":1}";
    const char *place = "/bench-";
    char common[512];
    int size;

    snprintf(common, sizeof(common),
             "HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n", token);
    if (strcmp(operation, "get") == 0) {
        size =
            snprintf(tenant->text, sizeof(tenant->text),
                     "GET /api/counters/%s%s%0*d/get?durationSeconds="
                     "%s&timestamp=%s %s\r\n",
                     name, place, NAME_DIGITS, 0, DURATION, TIMESTAMP, common);
    } else {
        size = snprintf(tenant->text, sizeof(tenant->text),
                        "POST /api/counters/%s%s%0*d/%s %sContent-Type: "
                        "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                        name, place, NAME_DIGITS, 0, operation, common,
                        sizeof(body) - 1, body);
    }
    tenant->size = (size_t)size;
    tenant->name = strstr(tenant->text, place) + strlen(place);
}

static int
is_token(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void
tenants_make(struct load *load)
{
    struct dirent **entries;
    int count = scandir(load->options->tokens, &entries, is_token, alphasort);

    if (count <= 0 || count > TENANTS_MAX) {
        die(load->options->tokens, "no tokens, or too many");
    }
    load->tenants_count = (size_t)count;
    load->tenants = allocate((size_t)count, sizeof(*load->tenants));
    for (int i = 0; i < count; i++) {
        char path[4096];
        char token[256] = "";
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", load->options->tokens,
                 entries[i]->d_name);
        file = fopen(path, "r");
        if (file == NULL || fgets(token, sizeof(token), file) == NULL) {
            die(path, "no token");
        }
        fclose(file);
        token[strcspn(token, "\n")] = '\0';
        tenant_make(&load->tenants[i], load->options->operation,
                    entries[i]->d_name, token);
        free(entries[i]);
    }
    free(entries);
}

/* --- connections ------------------------------------------------------- */

static void
connection_open(struct load *load, struct connection *connection)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_port = htons((uint16_t)load->options->port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 ||
        connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
        epoll_ctl(load->epoll, EPOLL_CTL_ADD, fd, &event) < 0) {
        die("connect", strerror(errno));
    }
    connection->fd = fd;
}

/* The digits go right into the tenant's text: one thread, one send. */
static void
connection_send(struct load *load, struct connection *connection)
{
    uint64_t key = draw(&load->state) % load->options->names;
    struct tenant *tenant = &load->tenants[key % load->tenants_count];

    if (++connection->sent > KEPT_REQUESTS) {
        close(connection->fd);
        connection_open(load, connection);
        connection->sent = 1;
    }
    for (char *digit = tenant->name + NAME_DIGITS; digit > tenant->name;
         key /= 10) {
        *--digit = (char)('0' + key % 10);
    }
    connection->size = 0;
    connection->started_us = now_us();
    load->under_way++;
    if (send(connection->fd, tenant->text, tenant->size, MSG_NOSIGNAL) !=
        (ssize_t)tenant->size) {
        die("send", strerror(errno));
    }
}

/* False: there is more to come. */
static int
answer_is_whole(const char *answer, size_t size)
{
    static const char word[] = "\r\nContent-Length: ";
    const char *end = memmem(answer, size, "\r\n\r\n", 4);
    const char *length;

    if (end == NULL) {
        return 0;
    }
    length = memmem(answer, (size_t)(end - answer), word, sizeof(word) - 1);
    if (strncmp(answer, "HTTP/1.1 200 ", 13) != 0 || length == NULL) {
        die("not answered 200", answer);
    }
    return (size_t)(answer + size - end) >=
           4 + strtoul(length + sizeof(word) - 1, NULL, 10);
}

static void
time_keep(struct load *load, double us)
{
    if (load->count == load->room) {
        load->room = 2 * load->room + 65536;
        load->times = realloc(load->times, load->room * sizeof(*load->times));
        if (load->times == NULL) {
            die("memory", "out of it");
        }
    }
    load->times[load->count++] = (float)us;
}

static int
is_over(const struct load *load, double now)
{
    size_t requests = load->options->requests;

    return requests > 0 ? load->count + load->under_way >= requests
                        : now >= load->end_us;
}

static void
connection_receive(struct load *load, struct connection *connection)
{
    size_t room = sizeof(connection->answer) - 1 - connection->size;
    ssize_t got = recv(connection->fd, connection->answer + connection->size,
                       room, MSG_DONTWAIT);
    double now;

    if (got < 0 && errno == EAGAIN) {
        return;
    }
    if (got <= 0) {
        die("recv", "closed before the answer, or it is too long");
    }
    connection->size += (size_t)got;
    connection->answer[connection->size] = '\0';
    if (!answer_is_whole(connection->answer, connection->size)) {
        return;
    }
    now = now_us();
    load->under_way--;
    time_keep(load, now - connection->started_us);
    if (!is_over(load, now)) {
        connection_send(load, connection);
    }
}

/* --- the run ----------------------------------------------------------- */

/* Gives the seconds it took. */
static double
run(struct load *load)
{
    const struct options *options = load->options;
    struct epoll_event events[64];
    double started;

    load->epoll = epoll_create1(EPOLL_CLOEXEC);
    load->connections =
        allocate(options->connections, sizeof(*load->connections));
    for (size_t i = 0; i < options->connections; i++) {
        connection_open(load, &load->connections[i]);
        /* They are not to be made anew all at once. */
        load->connections[i].sent = i * KEPT_REQUESTS / options->connections;
    }
    started = now_us();
    load->end_us = started + options->seconds * 1e6;
    for (size_t i = 0; i < options->connections && !is_over(load, started);
         i++) {
        connection_send(load, &load->connections[i]);
    }
    while (load->under_way > 0) {
        int count = epoll_wait(load->epoll, events, 64, 30000);

        if (count == 0) {
            die("no answer", "in 30 s");
        }
        for (int i = 0; i < count; i++) {
            connection_receive(load, events[i].data.ptr);
        }
    }
    return (now_us() - started) / 1e6;
}

static int
compare_times(const void *left, const void *right)
{
    float a = *(const float *)left;
    float b = *(const float *)right;

    return a < b ? -1 : a > b;
}

static double
percentile(const struct load *load, double part)
{
    return (double)load->times[(size_t)((double)(load->count - 1) * part)];
}

static void
read_options(struct options *options, int argc, char **argv)
{
    static const struct option list[] = {
        {"port", required_argument, NULL, 'p'},
        {"tokens", required_argument, NULL, 't'},
        {"operation", required_argument, NULL, 'o'},
        {"connections", required_argument, NULL, 'c'},
        {"names", required_argument, NULL, 'n'},
        {"seconds", required_argument, NULL, 's'},
        {"requests", required_argument, NULL, 'r'},
        {"seed", required_argument, NULL, 'd'},
        {NULL, 0, NULL, 0},
    };
    int found;

    while ((found = getopt_long(argc, argv, "", list, NULL)) != -1) {
        switch (found) {
        case 'p': options->port = (int)strtol(optarg, NULL, 10); break;
        case 't': options->tokens = optarg; break;
        case 'o': options->operation = optarg; break;
        case 'c': options->connections = strtoul(optarg, NULL, 10); break;
        case 'n': options->names = strtoul(optarg, NULL, 10); break;
        case 's': options->seconds = strtod(optarg, NULL); break;
        case 'r': options->requests = strtoul(optarg, NULL, 10); break;
        case 'd': options->seed = strtoull(optarg, NULL, 10); break;
        default: exit(2);
        }
    }
    if (options->port == 0 || options->tokens == NULL ||
        options->operation == NULL || options->connections == 0 ||
        options->connections > CONNECTIONS_MAX || options->names == 0 ||
        options->names > NAMES_MAX || !(options->seconds > 0)) {
        die("options", "see the head of this program");
    }
}

int
main(int argc, char **argv)
{
    struct options options = {
        .connections = 64, .names = 10000, .seconds = 4, .seed = 1};
    struct load load = {.options = &options};
    double seconds;

    read_options(&options, argc, argv);
    load.state = options.seed;
    tenants_make(&load);
    seconds = run(&load);
    qsort(load.times, load.count, sizeof(*load.times), compare_times);
    printf("%.1f %.0f %.0f %.0f %zu\n", (double)load.count / seconds,
           percentile(&load, 0.5), percentile(&load, 0.99),
           percentile(&load, 0.999), load.count);
    free(load.times);
    free(load.connections);
    free(load.tenants);
    return 0;
}
