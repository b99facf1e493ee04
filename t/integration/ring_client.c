/*
 * ring_client.c - a worker's ring without a worker.
 *
 *   61-adopt.t -> [ring_client FILE WORD...] -> ring file -> meterd adopts it
 *
 * The words are carried out in order; then the process ends as a killed
 * worker would, leaving the ring as it is:
 *
 *   make:SIZE[:BOOT]   a new ring; BOOT: 32 digits instead of the kernel's
 *   claim              an old one, recovered but not emitted
 *   event:N            N events without an id
 *   id:ID              one event with this id
 *   answered:N         N slots with an answer and no record
 *   reserved:N         N slots without an answer
 *   add:KEY:N          N requests into the cell of KEY
 *   lost:N             N requests without room
 *   flip:SEQ           a bit of that record, unacked, turns over
 *   ack:SEQ            durable up to here
 *   version:N          of the file; any other than ours is not touched
 *   busy:N             the word itself
 *   show               what the live words say
 *   hold               waits for the end of standard input
 */

#include "base/check.h"
#include "meter_bytes.h"
#include "meter_outbox.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TS_US INT64_C(1788264000000000) /* 2026-09-01T12:00:00Z */

struct ring {
    int fd;
    size_t size;
    uint8_t *map;
    struct meter_outbox outbox;
    struct meter_outbox_report report;
    uint8_t boot_id[16];
};

static void
die(const char *what)
{
    perror(what);
    exit(1);
}

static void
hex_read(const char *text, uint8_t out[16])
{
    size_t digits = 0;

    memset(out, 0, 16);
    for (; *text != '\0' && digits < 32; text++) {
        static const char hex[] = "0123456789abcdef";
        const char *digit = *text == '-' ? NULL : strchr(hex, *text);

        if (digit != NULL) {
            out[digits / 2] = (uint8_t)(out[digits / 2] << 4 | (digit - hex));
            digits++;
        }
    }
    CHECK(digits == 32);
}

static void
boot_id_read(uint8_t out[16])
{
    char text[64] = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    if (file == NULL || fgets(text, sizeof(text), file) == NULL) {
        die("boot_id");
    }
    fclose(file);
    hex_read(text, out);
}


/* ---- the file -------------------------------------------------------- */

static void
ring_map(struct ring *ring)
{
    struct stat file;

    if (flock(ring->fd, LOCK_EX | LOCK_NB) != 0) {
        die("flock");
    }
    if (fstat(ring->fd, &file) != 0) {
        die("fstat");
    }
    ring->size = (size_t)file.st_size;
    ring->map = mmap(NULL, ring->size, PROT_READ | PROT_WRITE, MAP_SHARED,
                     ring->fd, 0);
    if (ring->map == MAP_FAILED) {
        die("mmap");
    }
}

static void
ring_open(struct ring *ring)
{
    struct meter_ring_header header;

    CHECK(meter_outbox_layout(ring->size, &header));
    CHECK(meter_outbox_open(&ring->outbox, ring->map, ring->size,
                            malloc(meter_outbox_scratch_size(&header))) ==
          METER_OUTBOX_OK);
    CHECK(!meter_outbox_verify(&ring->outbox, SIZE_MAX, &ring->report));
}

static void
ring_make(struct ring *ring, const char *path, const char *argument)
{
    const char *boot = strchr(argument, ':');
    uint8_t session[16];
    long size = strtol(argument, NULL, 10);

    ring->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0660);
    if (ring->fd < 0 || posix_fallocate(ring->fd, 0, size) != 0) {
        die(path);
    }
    ring_map(ring);
    if (boot != NULL) {
        hex_read(boot + 1, ring->boot_id);
    }
    CHECK(getrandom(session, sizeof(session), 0) == sizeof(session));
    CHECK(meter_outbox_format(ring->map, ring->size, session, ring->boot_id));
    ring_open(ring);
}

static void
ring_claim(struct ring *ring, const char *path)
{
    ring->fd = open(path, O_RDWR | O_CLOEXEC);
    if (ring->fd < 0) {
        die(path);
    }
    ring_map(ring);
    ring_open(ring);
    meter_outbox_recover(&ring->outbox, ring->boot_id, TS_US, &ring->report);
    ring->outbox.live->busy = METER_OUTBOX_BUSY;
}

/* Another process may own it meanwhile. */
static void
ring_look(struct ring *ring, const char *path)
{
    ring->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (ring->fd < 0) {
        die(path);
    }
    ring->map = mmap(NULL, METER_RING_HEADER_SIZE, PROT_READ, MAP_SHARED,
                     ring->fd, 0);
    if (ring->map == MAP_FAILED) {
        die("mmap");
    }
}

static void
ring_show(const struct ring *ring)
{
    const struct meter_outbox_live *live =
        (const void *)(ring->map + METER_OUTBOX_LIVE_OFFSET);

    printf("session ");
    for (size_t i = 0; i < 16; i++) {
        printf("%02x", ring->map[16 + i]);
    }
    printf("\nbusy %" PRIu64 "\nhead %" PRIu64 "\nacked %" PRIu64
           "\nrecorded %" PRIu64 "\nverdicts",
           live->busy, live->head,
           live->acked[live->acked[1].turn > live->acked[0].turn].seq,
           live->counts.recorded + live->past.recorded);
    for (size_t i = 0; i < METER_VERDICT_COUNT; i++) {
        printf(" %" PRIu64, live->verdicts[i] + live->past_verdicts[i]);
    }
    printf("\nlost %" PRIu64 "\n", live->counts.lost + live->past.lost);
}


/* ---- requests -------------------------------------------------------- */

static size_t
event_body(void *room, size_t size, const char *id, const char *route,
           uint32_t flags)
{
    struct meter_record_event event = {
        .tenant = METER_STR("acme"),
        .type = METER_STR("api.request"),
        .event_id = {id, strlen(id)},
        .quantity = METER_STR("1"),
        .ts_us = TS_US,
        .count = 1,
        .flags = flags,
        .attribute_count = 1,
    };
    struct meter_writer out;

    event.attributes[0].name = METER_STR("route");
    event.attributes[0].value = (struct meter_str){route, strlen(route)};
    meter_writer_init(&out, room, size);
    meter_record_event_encode(&event, &out);
    CHECK(!out.failed);
    return out.at;
}

static void
put_event(struct meter_outbox *outbox, const char *id)
{
    uint8_t *room = meter_outbox_reserve(outbox, 512);

    CHECK(room != NULL);
    CHECK(meter_outbox_commit(outbox, METER_RECORD_EVENT,
                              event_body(room, 512, id, "/event",
                                         METER_EVENT_CAPTURED),
                              1, true, NULL) != 0);
}

static void
put_slot(struct meter_outbox *outbox, bool answered)
{
    uint32_t index = meter_slot_take(&outbox->slots);
    char body[512];
    size_t size =
        event_body(body, sizeof(body), "", "/slot", METER_EVENT_CAPTURED);

    CHECK(index != METER_SLOT_NONE);
    if (answered) {
        CHECK(meter_slot_answer(&outbox->slots, index,
                                (struct meter_str){body, size}));
    }
}

/* The key of a cell: an event's body without count and quantity. */
static void
add_delta(struct meter_outbox *outbox, const char *argument)
{
    struct meter_record_event event = {
        .tenant = METER_STR("acme"),
        .type = METER_STR("api.delta"),
        .ts_us = TS_US,
        .count = 1,
        .flags = METER_EVENT_CAPTURED,
        .attribute_count = 1,
    };
    const char *colon = strchr(argument, ':');
    struct meter_decimal one;
    struct meter_writer out;
    char body[METER_CELL_BODY_SIZE];

    CHECK(colon != NULL);
    event.attributes[0].name = METER_STR("route");
    event.attributes[0].value =
        (struct meter_str){argument, (size_t)(colon - argument)};
    meter_writer_init(&out, body, sizeof(body));
    meter_record_event_encode(&event, &out);
    CHECK(!out.failed);
    CHECK(meter_decimal_parse(METER_STR("1.5"), &one) == METER_DECIMAL_OK);
    for (long n = strtol(colon + 1, NULL, 10); n > 0; n--) {
        CHECK(meter_cell_add(outbox, (struct meter_str){body, out.at}, TS_US,
                             one, 0));
    }
}

static void
flip_record(struct meter_outbox *outbox, uint64_t seq)
{
    struct meter_outbox_cursor cursor;
    struct meter_str bytes;

    meter_outbox_cursor(outbox, &cursor);
    while (meter_outbox_next(outbox, &cursor, &bytes)) {
        if (cursor.seq == seq + 1) {
            ((char *)(uintptr_t)bytes.data)[bytes.size - 9] ^= 1;
            return;
        }
    }
    CHECK(false);
}

static void
set_version(uint8_t *map, uint32_t version)
{
    struct meter_writer out;

    meter_writer_init(&out, map + 8, 4);
    meter_put_u32(&out, version);
}

static void
carry_out(struct ring *ring, const char *path, const char *word)
{
    struct meter_outbox *outbox = &ring->outbox;
    const char *colon = strchr(word, ':');
    const char *argument = colon == NULL ? "" : colon + 1;
    size_t size = colon == NULL ? strlen(word) : (size_t)(colon - word);
    long number = strtol(argument, NULL, 10);
    char last;

#define IS(name) (size == strlen(name) && memcmp(word, name, size) == 0)
    if (IS("make")) {
        ring_make(ring, path, argument);
    } else if (IS("claim")) {
        ring_claim(ring, path);
    } else if (IS("event")) {
        while (number-- > 0) {
            put_event(outbox, "");
        }
    } else if (IS("id")) {
        put_event(outbox, argument);
    } else if (IS("answered") || IS("reserved")) {
        while (number-- > 0) {
            put_slot(outbox, IS("answered"));
        }
    } else if (IS("add")) {
        add_delta(outbox, argument);
    } else if (IS("lost")) {
        meter_outbox_lost(outbox, (uint64_t)number, METER_LOSS_FULL, TS_US);
    } else if (IS("flip")) {
        flip_record(outbox, (uint64_t)number);
    } else if (IS("ack")) {
        meter_outbox_ack(outbox, (uint64_t)number);
    } else if (IS("version")) {
        set_version(ring->map, (uint32_t)number);
    } else if (IS("busy")) {
        outbox->live->busy = (uint64_t)number;
    } else if (IS("show")) {
        if (ring->map == NULL) {
            ring_look(ring, path);
        }
        ring_show(ring);
    } else if (IS("hold")) {
        printf("held\n");
        fflush(stdout);
        CHECK(read(STDIN_FILENO, &last, 1) <= 0);
    } else {
        fprintf(stderr, "what is %s?\n", word);
        exit(2);
    }
#undef IS
}

int
main(int argc, char **argv)
{
    struct ring ring = {.fd = -1};

    if (argc < 3) {
        fprintf(stderr, "usage: ring_client FILE WORD...\n");
        return 2;
    }
    boot_id_read(ring.boot_id);
    for (int i = 2; i < argc; i++) {
        carry_out(&ring, argv[1], argv[i]);
    }
    return 0;
}
