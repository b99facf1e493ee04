/*
 * crash_fixture.h - a worker that dies anywhere, and what is known of it.
 *
 *   script -> outbox, dies at the n-th store -> claimer (dies too) -> claimer
 *               |                                                       |
 *               +-- what was promised when --> compared <-- delivered --+
 *
 * The sources of the outbox are compiled into the test, with a point at each
 * of their stores beside the named ones.
 */

#ifndef UNIT_CRASH_FIXTURE_H
#define UNIT_CRASH_FIXTURE_H

static void crash_at_store(void);
#define METER_STORE_POINT() crash_at_store()

#include "outbox_fixture.h"

#include "../../shared/meter_append.c"
#include "../../shared/meter_cell.c"
#include "../../shared/meter_claim.c"
#include "../../shared/meter_drain.c"
#include "../../shared/meter_live.c"
#include "../../shared/meter_losses.c"
#include "../../shared/meter_outbox.c"
#include "../../shared/meter_slot.c"

enum { REQUESTS_MAX = 60, RECORDS_MAX = 256, NAMES_MAX = 64 };

/* ---- dying ------------------------------------------------------------ */

struct crash {
    jmp_buf jump;
    long left; /* points to pass by; below 0: immortal */
    bool at_stores;
    bool has_died;
    const uint8_t *watched; /* a page whose counts must hold at each point */
    const char *names[NAMES_MAX]; /* that were met */
    size_t name_count;
};

static struct crash crash;

static void
crash_here(void)
{
    struct meter_outbox_live live;

    if (crash.watched != NULL && meter_outbox_snapshot(crash.watched, &live)) {
        assert_counts_hold(&live.counts);
    }
    if (crash.left >= 0 && crash.left-- == 0) {
        crash.has_died = true;
        longjmp(crash.jump, 1);
    }
}

static void
crash_at_store(void)
{
    if (crash.at_stores) {
        crash_here();
    }
}

static void
crash_at_name(const char *name)
{
    size_t i = 0;

    while (i < crash.name_count && strcmp(crash.names[i], name) != 0) {
        i++;
    }
    if (i == crash.name_count) {
        assert_true(i < NAMES_MAX);
        crash.names[crash.name_count++] = name;
    }
    crash_here();
}

/* ---- what is known ---------------------------------------------------- */

enum fate { NEVER, PERHAPS, SURELY };

/* Requests are numbered; one is in a record, in a delta or in a loss. */
struct world {
    struct box box;
    uint8_t session_number;
    enum fate answered[REQUESTS_MAX]; /* to be found exactly once */
    enum fate lost[REQUESTS_MAX];
    enum fate filtered[REQUESTS_MAX];
    int count;
    struct meter_losses losses; /* the page beside the ring */

    /* What meterd has; by session and number, never to change. */
    struct {
        uint8_t session;
        uint64_t seq;
        size_t size;
        uint8_t bytes[2048];
    } records[RECORDS_MAX];
    size_t record_count;
    uint64_t session_weight;
};

static struct world world;

/* Delivers what the ring has; told says up to where meterd answers. */
static void
world_deliver(bool is_told)
{
    struct meter_outbox *outbox = &world.box.outbox;
    struct meter_outbox_cursor cursor;
    struct meter_str bytes;

    meter_outbox_cursor(outbox, &cursor);
    while (meter_outbox_next(outbox, &cursor, &bytes)) {
        uint8_t session = outbox->header.session[0];
        struct meter_record record;
        size_t i = 0, used;

        assert_int_equal(
            meter_record_decode(bytes.data, bytes.size, &record, &used),
            METER_DECODE_OK);
        while (i < world.record_count && (world.records[i].session != session ||
                                          world.records[i].seq != record.seq)) {
            i++;
        }
        if (i < world.record_count) { /* again: the same bytes */
            assert_int_equal(world.records[i].size, bytes.size);
            assert_memory_equal(world.records[i].bytes, bytes.data, bytes.size);
            continue;
        }
        assert_true(i < RECORDS_MAX && bytes.size <= 2048);
        if (record.seq == 1) {
            world.session_weight = 0;
        }
        world.session_weight += (uint64_t)meter_record_weight(&record);
        world.records[i].session = session;
        world.records[i].seq = record.seq;
        world.records[i].size = bytes.size;
        memcpy(world.records[i].bytes, bytes.data, bytes.size);
        world.record_count++;
    }
    if (is_told) {
        outbox->live->verdicts[0] =
            outbox->head == 1 ? 0 : world.session_weight;
        meter_outbox_ack(outbox, cursor.seq - 1);
    }
}

static void
world_session(uint8_t session[16])
{
    memset(session, 0, 16);
    session[0] = ++world.session_number;
}

/* Whoever has the lock of the page; he need not have the ring. */
static void
world_settle(void)
{
    uint64_t turn = meter_losses_turn(world.box.map);

    if (meter_losses_is_moving(&world.losses)) {
        meter_losses_settle(&world.losses, turn);
    }
}

static void
world_move(void)
{
    world_settle();
    meter_losses_move(&world.losses, &world.box.outbox, 1);
}

static void
world_claim(const uint8_t boot_id[16])
{
    struct box *box = &world.box;
    enum meter_outbox_open found = box_open(box);
    uint8_t session[16];

    if (found == METER_OUTBOX_UNFINISHED) {
        world_session(session);
        assert_true(meter_outbox_format(box->map, box->size, session, boot_id));
        found = box_open(box);
    }
    assert_int_equal(found, METER_OUTBOX_OK);
    meter_outbox_recover(&box->outbox, boot_id, BOX_TS, &box->report);
    assert_false(meter_outbox_is_torn(&box->outbox));
    assert_counts_hold(&box->outbox.live->counts);
    while (meter_outbox_emit(&box->outbox) > 0) {
        world_deliver(true);
    }
}

#endif
