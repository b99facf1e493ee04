/*
 * record_client.c - rings without an edge: speaks to ingest directly.
 *
 *   22-records.t -> lines in a FIFO -> [record_client] -> ingest -> database
 *
 *   r KIND name=value ...    adds a record to the next frame: tenant, type,
 *                            id, customer, resource, quantity, count, flags,
 *                            ts (seconds from now), a.NAME, times (copies of
 *                            it), lost, raw (the whole body); %XX is a byte
 *   send TAG SESSION SEQ     submits the frame, numbered from SEQ on
 *   hello TAG SESSION OLDEST
 *   api TAG TENANT JSON
 *   withdraw TAG, cancel TAG
 *   spoil                    the next frame has a wrong byte
 *   metric NAME, epoch, end
 *
 * A session is a number. All lines that come in one write are carried out
 * before anything else happens, so they share a batch. Answers are lines on
 * standard output: TAG OUTCOME last_seq=.. verdicts codes.
 */

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "ingest/ingest.h"
#include "meter_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TIME_LIMIT_MS 120000
#define FRAME_SIZE    (8u << 20)
#define LINE_SIZE     (1u << 20)
#define ASKED_MAX     1024
#define NODE          "edge-1"

struct asked {
    char tag[32];
    struct ingest_request *request; /* NULL: answered */
};

struct client {
    uv_loop_t loop;
    uv_timer_t limit;
    uv_poll_t poll;
    struct lane *lane;
    struct partition *partition;
    struct ingest *ingest;
    bool is_lane_ready;
    bool is_partition_ready;
    bool is_started;
    int fifo;
    char line[LINE_SIZE];
    size_t line_size;

    struct meter_record records[METER_BATCH_EVENTS_MAX];
    size_t record_count;
    char bodies[FRAME_SIZE];
    size_t bodies_size;
    bool is_spoilt;
    struct asked asked[ASKED_MAX];
    size_t asked_count;
};

static struct client client;

static const char *const outcomes[] = {
    [INGEST_DONE] = "done",       [INGEST_BAD] = "bad",
    [INGEST_BUSY] = "busy",       [INGEST_UNAVAILABLE] = "unavailable",
    [INGEST_GAP] = "gap",
};

__attribute__((noreturn)) static void
die(const char *what)
{
    printf("died: %s\n", what);
    exit(1);
}


/* --- answers ----------------------------------------------------------- */

static void
answer_cb(void *asker, const struct ingest_answer *answer)
{
    struct asked *asked = asker;

    asked->request = NULL;
    printf("%s %s", asked->tag, outcomes[answer->outcome]);
    if (answer->session != NULL) {
        const struct ingest_session *session = answer->session;

        printf(" last=%llu verdicts=%llu/%llu/%llu/%llu missing=%llu",
               (unsigned long long)session->last_seq,
               (unsigned long long)session->verdicts[0],
               (unsigned long long)session->verdicts[1],
               (unsigned long long)session->verdicts[2],
               (unsigned long long)session->verdicts[3],
               (unsigned long long)session->missing);
    }
    printf(" counts=%zu/%zu/%zu/%zu", answer->counts[0], answer->counts[1],
           answer->counts[2], answer->counts[3]);
    if (answer->codes != NULL) {
        printf(" codes=");
        for (size_t i = 0; i < answer->count && i < 64; i++) {
            putchar(answer->codes[i] == 0xff ? '-' : '0' + answer->codes[i]);
        }
    }
    putchar('\n');
    fflush(stdout);
}


static struct asked *
asked_add(const char *tag)
{
    struct asked *asked = &client.asked[client.asked_count++];

    if (client.asked_count == ASKED_MAX) {
        die("too many tags");
    }
    snprintf(asked->tag, sizeof(asked->tag), "%s", tag);
    return asked;
}


static struct asked *
asked_find(const char *tag)
{
    for (size_t i = client.asked_count; i > 0; i--) {
        if (strcmp(client.asked[i - 1].tag, tag) == 0) {
            return &client.asked[i - 1];
        }
    }
    die("no such tag");
}


/* --- records ----------------------------------------------------------- */

/* %XX in place. */
static struct meter_str
unescape(char *text)
{
    char *to = text;
    const char *from = text;

    while (*from != '\0') {
        if (*from == '%' && from[1] != '\0' && from[2] != '\0') {
            char hex[3] = {from[1], from[2], '\0'};

            *to++ = (char)strtoul(hex, NULL, 16);
            from += 3;
        } else {
            *to++ = *from++;
        }
    }
    return (struct meter_str){text, (size_t)(to - text)};
}


static uint8_t
kind_of(const char *name)
{
    static const char *const names[] = {"PAD", "EVENT", "DELTA", "DUPNOTE",
                                        "LOSSNOTE"};

    for (uint8_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    die("no such kind");
}


struct wish {
    struct meter_record_event event;
    struct meter_loss loss;
    struct meter_str raw;
    size_t times;
};

static void
wish_set(struct wish *wish, const char *name, char *text)
{
    struct meter_record_event *event = &wish->event;
    long long number = strtoll(text, NULL, 10);

    if (strcmp(name, "tenant") == 0) {
        event->tenant = unescape(text);
    } else if (strcmp(name, "type") == 0) {
        event->type = unescape(text);
    } else if (strcmp(name, "id") == 0) {
        event->event_id = unescape(text);
    } else if (strcmp(name, "customer") == 0) {
        event->customer = unescape(text);
    } else if (strcmp(name, "resource") == 0) {
        event->resource = unescape(text);
    } else if (strcmp(name, "quantity") == 0) {
        event->quantity = unescape(text);
    } else if (strcmp(name, "count") == 0) {
        event->count = number;
    } else if (strcmp(name, "flags") == 0) {
        event->flags = (uint32_t)number;
    } else if (strcmp(name, "ts") == 0) {
        event->ts_us += number * 1000000;
    } else if (strcmp(name, "lost") == 0) {
        wish->loss.count = (uint64_t)number;
    } else if (strcmp(name, "times") == 0) {
        wish->times = (size_t)number;
    } else if (strcmp(name, "raw") == 0) {
        wish->raw = unescape(text);
    } else if (strncmp(name, "a.", 2) == 0) {
        event->attributes[event->attribute_count++] =
            (struct meter_record_attribute){
                .name = {name + 2, strlen(name + 2)},
                .value = unescape(text),
            };
    } else {
        die("no such field");
    }
}


/* The body as bytes that stay. */
static struct meter_str
body_make(const struct wish *wish, uint8_t kind)
{
    struct meter_writer writer;
    char *to = client.bodies + client.bodies_size;

    meter_writer_init(&writer, to, sizeof(client.bodies) - client.bodies_size);
    if (wish->raw.data != NULL) {
        meter_put_bytes(&writer, wish->raw.data, wish->raw.size);
    } else if (kind == METER_RECORD_LOSSNOTE) {
        meter_loss_encode(&wish->loss, &writer);
    } else {
        meter_record_event_encode(&wish->event, &writer);
    }
    if (writer.failed) {
        die("the body is too large");
    }
    client.bodies_size += writer.at;
    return (struct meter_str){to, writer.at};
}


static void
record_add(char *words)
{
    static struct wish wish;
    int64_t now_us = clock_wall_us();
    char *rest = NULL;
    uint8_t kind = kind_of(strtok_r(words, " ", &rest));
    struct meter_str body;
    char *word;

    memset(&wish, 0, sizeof(wish));
    wish.times = 1;
    wish.event.tenant = METER_STR("acme");
    wish.event.type = METER_STR("api.request");
    wish.event.count = 1;
    wish.event.ts_us = now_us;
    wish.loss = (struct meter_loss){
        .count = 1, .first_us = now_us, .last_us = now_us, .reasons = 1};
    while ((word = strtok_r(NULL, " ", &rest)) != NULL) {
        char *equals = strchr(word, '=');

        if (equals == NULL) {
            die("a field without a value");
        }
        *equals = '\0';
        wish_set(&wish, word, equals + 1);
    }
    body = body_make(&wish, kind);
    for (size_t i = 0; i < wish.times; i++) {
        if (client.record_count == METER_BATCH_EVENTS_MAX) {
            die("too many records");
        }
        client.records[client.record_count++] =
            (struct meter_record){.kind = kind, .body = body};
    }
}


static struct ingest_ring
ring_of(const char *session)
{
    struct ingest_ring ring = {.node = METER_STR(NODE)};

    memset(ring.session, (int)strtol(session, NULL, 10), 16);
    return ring;
}


static void
frame_send(const char *tag, const char *session, uint64_t first_seq)
{
    struct ingest_ring ring = ring_of(session);
    struct asked *asked = asked_add(tag);
    struct ingest_request *request;
    struct meter_writer writer;
    struct buf frame;
    char *room;

    buf_init(&frame, FRAME_SIZE);
    room = buf_reserve(&frame, FRAME_SIZE);
    if (room == NULL) {
        die("no memory");
    }
    meter_writer_init(&writer, room, FRAME_SIZE);
    for (size_t i = 0; i < client.record_count; i++) {
        client.records[i].seq = first_seq + i;
        meter_record_encode(&client.records[i], &writer);
    }
    if (writer.failed) {
        die("the frame is too large");
    }
    if (client.is_spoilt) {
        room[writer.at - 1] ^= 1;
    }
    buf_commit(&frame, writer.at);
    request = ingest_submit_records(client.ingest, &ring, first_seq,
                                    client.record_count, &frame, answer_cb,
                                    asked);
    asked->request = request;
    buf_fini(&frame);
    client.record_count = 0;
    client.bodies_size = 0;
    client.is_spoilt = false;
}


/* --- lines ------------------------------------------------------------- */

static void
end(void)
{
    ingest_destroy(client.ingest);
    partition_destroy(client.partition);
    lane_destroy(client.lane);
    uv_close((uv_handle_t *)&client.limit, NULL);
    uv_close((uv_handle_t *)&client.poll, NULL);
}


static void
metric_say(const char *name)
{
#define SAY(metric, help)                                     \
    if (strcmp(name, #metric) == 0) {                         \
        printf("%s %lld\n", name, (long long)metrics.metric); \
    }
#define SILENT(metric, help)
    METRICS(SAY, SAY, SILENT)
#undef SAY
#undef SILENT
    fflush(stdout);
}


static void
api_send(const char *tag, const char *tenant, const char *json)
{
    struct asked *asked = asked_add(tag);
    struct buf body;

    buf_init(&body, METER_BODY_SIZE_MAX);
    buf_put_text(&body, json);
    asked->request =
        ingest_submit(client.ingest,
                      &(struct ingest_input){.tenant = {tenant,
                                                        strlen(tenant)}},
                      &body, answer_cb, asked);
    buf_fini(&body);
}


static void
line_do(char *line)
{
    char *rest = NULL;
    char *verb = strtok_r(line, " ", &rest);
    char *one = rest;
    char *two;
    char *three;

    if (verb == NULL) {
        return;
    }
    if (strcmp(verb, "r") == 0) {
        record_add(one);
        return;
    }
    one = strtok_r(NULL, " ", &rest);
    if (strcmp(verb, "end") == 0) {
        end();
        return;
    } else if (strcmp(verb, "spoil") == 0) {
        client.is_spoilt = true;
        return;
    } else if (strcmp(verb, "epoch") == 0) {
        printf("epoch %llx\n",
               (unsigned long long)ingest_db_epoch(client.ingest));
        fflush(stdout);
        return;
    } else if (one == NULL) {
        die("a word is missing");
    } else if (strcmp(verb, "metric") == 0) {
        metric_say(one);
        return;
    } else if (strcmp(verb, "withdraw") == 0) {
        ingest_withdraw(asked_find(one)->request);
        return;
    } else if (strcmp(verb, "cancel") == 0) {
        ingest_cancel(asked_find(one)->request);
        return;
    }
    two = strtok_r(NULL, " ", &rest);
    three = rest;
    if (two == NULL || three == NULL) {
        die("a word is missing");
    } else if (strcmp(verb, "send") == 0) {
        frame_send(one, two, strtoull(three, NULL, 10));
    } else if (strcmp(verb, "hello") == 0) {
        struct ingest_ring ring = ring_of(two);
        struct asked *asked = asked_add(one);

        asked->request =
            ingest_open_ring(client.ingest, &ring, strtoull(three, NULL, 10),
                             answer_cb, asked);
    } else if (strcmp(verb, "api") == 0) {
        api_send(one, two, three);
    } else {
        die("no such verb");
    }
}


/* Everything that is there, line by line, before the loop goes on. */
static void
fifo_cb(uv_poll_t *poll, int status, int events)
{
    ssize_t size;

    (void)poll;
    (void)events;
    if (status != 0) {
        die("poll");
    }
    while ((size = read(client.fifo, client.line + client.line_size,
                        sizeof(client.line) - client.line_size)) > 0) {
        char *start = client.line;
        char *newline;

        client.line_size += (size_t)size;
        while ((newline = memchr(start, '\n',
                                 client.line_size -
                                     (size_t)(start - client.line))) != NULL) {
            *newline = '\0';
            line_do(start);
            start = newline + 1;
        }
        client.line_size -= (size_t)(start - client.line);
        memmove(client.line, start, client.line_size);
    }
    if (size == 0 || errno != EAGAIN) {
        die("the commands ended");
    }
}


/* --- life -------------------------------------------------------------- */

static void
start_if_ready(void)
{
    if (!client.is_lane_ready || !client.is_partition_ready ||
        client.is_started) {
        return;
    }
    client.is_started = true;
    uv_poll_start(&client.poll, UV_READABLE, fifo_cb);
    printf("ready\n");
    fflush(stdout);
}


static void
lane_ready(void *owner, int64_t last, int64_t batch)
{
    (void)owner;
    ingest_lane_ready(client.ingest, last, batch);
    client.is_lane_ready = true;
    start_if_ready();
}


static void
lane_lost(void *owner, const char *why)
{
    (void)owner;
    (void)why;
    ingest_lane_lost(client.ingest);
}


static void
lane_refused(void *owner, const char *why)
{
    (void)owner;
    die(why);
}


static void
lane_not_replicated(void *owner)
{
    (void)owner;
    ingest_not_replicated(client.ingest);
}


static void
partition_ready(void *owner)
{
    (void)owner;
    client.is_partition_ready = true;
    start_if_ready();
}


static void
limit_cb(uv_timer_t *timer)
{
    (void)timer;
    die("time limit");
}


int
main(int argc, char **argv)
{
    static const struct lane_events lane_events = {
        .on_ready = lane_ready,
        .on_lost = lane_lost,
        .on_refused = lane_refused,
        .on_not_replicated = lane_not_replicated,
    };
    struct ingest_options options = {.answer_timeout_ms = 3000};
    struct config_errors errors;
    struct config *config;

    if (argc != 4 || !config_load((const char *const *)argv + 2, 2, &config,
                                  &errors)) {
        die("usage: record_client FIFO RULES SETTINGS");
    }

    struct lane_options lane = {.url = config->database,
                                .state_dir = config->state_dir,
                                .node = "test",
                                .index = 0};
    struct partition_options partition = {
        .admin_url = config->admin_database,
        .retention_days = {CONFIG_NONE, CONFIG_NONE}};

    client.fifo = open(argv[1], O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (client.fifo < 0) {
        die(strerror(errno));
    }
    uv_loop_init(&client.loop);
    uv_timer_init(&client.loop, &client.limit);
    uv_timer_start(&client.limit, limit_cb, TIME_LIMIT_MS, 0);
    uv_poll_init(&client.loop, &client.poll, client.fifo);
    client.partition =
        partition_create(&client.loop, &partition, partition_ready, NULL);
    if (client.partition == NULL ||
        !lane_create(&client.loop, &lane, &lane_events, NULL, &client.lane)) {
        die("cannot start");
    }
    client.ingest = ingest_create(&client.loop, config, client.lane,
                                  client.partition, &options);
    if (client.ingest == NULL) {
        die("cannot start");
    }
    uv_run(&client.loop, UV_RUN_DEFAULT);
    config_unref(config);
    close(client.fifo);
    printf("ended\n");
    return uv_loop_close(&client.loop) == 0 ? 0 : 1;
}
