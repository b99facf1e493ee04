/*
 * http_load.c - posts bodies of events over keep-alive connections.
 *
 *   http_load --port N --tokens DIR --connections 4 --requests N
 *             --events 5000 --ids v7|random [--seed N] [--clock SECONDS]
 *             [--shape plain|series|keys] [--orders 100]
 *
 * Each connection is one thread that sends its next body when the answer
 * to the last has come. Bodies are made before the clock starts. Every
 * token file in DIR is one tenant. The same --seed and --clock give the
 * same events, so that a second run sends only duplicates. Prints requests
 * answered 200, accepted, duplicates, events, seconds and events per second.
 */

#include "sample.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TOKENS_MAX 128
#define TOKEN_SIZE 256

struct options {
    int port;
    const char *tokens;
    size_t connections;
    size_t requests; /* of each connection */
    size_t events;
    enum sample_ids ids;
    enum sample_shape shape;
    uint64_t orders;
    uint64_t seed;
    uint64_t clock_us;
};

struct client {
    const struct options *options;
    pthread_t thread;
    size_t index;
    char **requests; /* head and body, one after the other */
    size_t *sizes;
    size_t ok;
    size_t accepted;
    size_t duplicates;
};

static char tokens[TOKENS_MAX][TOKEN_SIZE];
static size_t tokens_count;
static pthread_barrier_t ready;

static void
die(const char *what)
{
    fprintf(stderr, "http_load: %s\n", what);
    exit(1);
}

static double
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void
read_tokens(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    if (dir == NULL) {
        die("cannot open the token directory");
    }
    while ((entry = readdir(dir)) != NULL && tokens_count < TOKENS_MAX) {
        char name[4096];
        FILE *file;

        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        file = fopen(name, "r");
        if (file != NULL &&
            fgets(tokens[tokens_count], TOKEN_SIZE, file) != NULL) {
            tokens[tokens_count][strcspn(tokens[tokens_count], "\n")] = '\0';
            tokens_count++;
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    closedir(dir);
    if (tokens_count == 0) {
        die("no tokens");
    }
}

static void
make_requests(struct client *client)
{
    const struct options *options = client->options;
    size_t room = options->events * 448 + 1024;
    char *body = malloc(room);
    struct sample sample;

    sample_init(&sample, options->ids, options->seed + client->index,
                options->clock_us);
    sample.shape = options->shape;
    sample.orders = options->orders;
    client->requests = calloc(options->requests, sizeof(char *));
    client->sizes = calloc(options->requests, sizeof(size_t));
    for (size_t i = 0; i < options->requests; i++) {
        size_t tenant = (client->index + i) % tokens_count;
        size_t size =
            sample_body(&sample, (unsigned)tenant, options->events, body, room);
        char *request = malloc(size + 1024);
        int head = snprintf(request, 1024,
                            "POST /v1/events HTTP/1.1\r\nHost: bench\r\n"
                            "Authorization: Bearer %s\r\nContent-Type: "
                            "application/json\r\nContent-Length: %zu\r\n\r\n",
                            tokens[tenant], size);

        memcpy(request + head, body, size);
        client->requests[i] = request;
        client->sizes[i] = (size_t)head + size;
    }
    free(body);
}

static size_t
number_after(const char *text, const char *name)
{
    const char *found = strstr(text, name);

    return found == NULL ? 0 : strtoul(found + strlen(name), NULL, 10);
}

/* Reads one answer: header, then Content-Length or chunked body. */
static void
read_answer(struct client *client, int fd, char *buffer, size_t room)
{
    size_t size = 0;
    char *body = NULL;
    size_t want = 0;
    int chunked = 0;

    for (;;) {
        ssize_t got = read(fd, buffer + size, room - 1 - size);

        if (got <= 0) {
            die("connection closed before the answer");
        }
        size += (size_t)got;
        buffer[size] = '\0';
        if (body == NULL && (body = strstr(buffer, "\r\n\r\n")) != NULL) {
            char *length = strcasestr(buffer, "\r\ncontent-length:");

            body += 4;
            chunked = length == NULL || length > body;
            want = chunked ? 0 : strtoul(length + 17, NULL, 10);
        }
        if (body == NULL) {
            continue;
        }
        if (!chunked && size - (size_t)(body - buffer) >= want) {
            break;
        }
        if (chunked && memcmp(buffer + size - 5, "0\r\n\r\n", 5) == 0) {
            break;
        }
    }
    if (strncmp(buffer, "HTTP/1.1 200", 12) != 0) {
        fprintf(stderr, "http_load: %.200s\n", buffer);
        exit(1);
    }
    client->ok++;
    client->accepted += number_after(body, "\"accepted\":");
    client->duplicates += number_after(body, "\"duplicates\":");
}

static void *
run_client(void *data)
{
    struct client *client = data;
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)client->options->port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    size_t room = client->options->events * 160 + 65536;
    char *buffer = malloc(room);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    make_requests(client);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        die("cannot connect");
    }
    pthread_barrier_wait(&ready);
    for (size_t i = 0; i < client->options->requests; i++) {
        size_t sent = 0;

        while (sent < client->sizes[i]) {
            ssize_t wrote = send(fd, client->requests[i] + sent,
                                 client->sizes[i] - sent, MSG_NOSIGNAL);

            if (wrote <= 0) {
                die("cannot send");
            }
            sent += (size_t)wrote;
        }
        read_answer(client, fd, buffer, room);
    }
    close(fd);
    free(buffer);
    return NULL;
}

static void
parse_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {
        {"port", required_argument, NULL, 'p'},
        {"tokens", required_argument, NULL, 't'},
        {"connections", required_argument, NULL, 'c'},
        {"requests", required_argument, NULL, 'r'},
        {"events", required_argument, NULL, 'e'},
        {"ids", required_argument, NULL, 'i'},
        {"seed", required_argument, NULL, 's'},
        {"clock", required_argument, NULL, 'k'},
        {"shape", required_argument, NULL, 'h'},
        {"orders", required_argument, NULL, 'o'},
        {0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (option) {
        case 'p': options->port = atoi(optarg); break;
        case 't': options->tokens = optarg; break;
        case 'c': options->connections = strtoul(optarg, NULL, 10); break;
        case 'r': options->requests = strtoul(optarg, NULL, 10); break;
        case 'e': options->events = strtoul(optarg, NULL, 10); break;
        case 'i':
            options->ids = strcmp(optarg, "random") == 0 ? SAMPLE_IDS_RANDOM
                                                         : SAMPLE_IDS_V7;
            break;
        case 's': options->seed = strtoull(optarg, NULL, 10); break;
        case 'k':
            options->clock_us = strtoull(optarg, NULL, 10) * 1000000;
            break;
        case 'o': options->orders = strtoull(optarg, NULL, 10); break;
        case 'h':
            if (!sample_shape_parse(optarg, &options->shape)) {
                die("no such shape");
            }
            break;
        default: exit(2);
        }
    }
    if (options->tokens == NULL || options->port == 0 || options->orders == 0 ||
        options->connections < 1 || options->connections > 64) {
        die("--port, --tokens and 1 to 64 --connections are needed");
    }
}

int
main(int argc, char **argv)
{
    struct options options = {.connections = 4,
                              .requests = 10,
                              .events = 5000,
                              .orders = SAMPLE_ORDERS,
                              .seed = (uint64_t)time(NULL),
                              .clock_us = (uint64_t)time(NULL) * 1000000};
    struct client clients[64] = {0};
    struct client all = {0};
    double start;
    double seconds;

    parse_options(argc, argv, &options);
    read_tokens(options.tokens);
    pthread_barrier_init(&ready, NULL, (unsigned)options.connections + 1);
    for (size_t i = 0; i < options.connections; i++) {
        clients[i] = (struct client){.options = &options, .index = i};
        if (pthread_create(&clients[i].thread, NULL, run_client, &clients[i]) !=
            0) {
            die("thread");
        }
    }
    pthread_barrier_wait(&ready);
    start = now();
    for (size_t i = 0; i < options.connections; i++) {
        pthread_join(clients[i].thread, NULL);
        all.ok += clients[i].ok;
        all.accepted += clients[i].accepted;
        all.duplicates += clients[i].duplicates;
    }
    seconds = now() - start;
    printf("%zu %zu %zu %zu %.6f %.1f\n", all.ok, all.accepted, all.duplicates,
           all.ok * options.events, seconds,
           (double)(all.ok * options.events) / seconds);
    return 0;
}
