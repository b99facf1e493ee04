#include "meter_cmocka.h"

#include <pthread.h>

#include "meter_live.h"
#include "meter_losses.h"
#include "outbox_fixture.h"

enum { SIZE = METER_OUTBOX_SIZE_MIN };


/* ---- layout ----------------------------------------------------------- */

static void
layout__any_size__parts_lie_behind_each_other(void **state)
{
    static const uint64_t sizes[] = {
        METER_OUTBOX_SIZE_MIN,     METER_OUTBOX_SIZE_MIN + 1,
        METER_OUTBOX_SIZE_MIN + 7, 1 << 20,
        (16 << 20) + 4095,         64 << 20,
        METER_OUTBOX_SIZE_MAX - 1, METER_OUTBOX_SIZE_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct meter_ring_header header;

        assert_true(meter_outbox_layout(sizes[i], &header));
        assert_int_equal(header.version, METER_RING_VERSION);
        assert_int_equal(header.file_size, sizes[i]);
        assert_true(header.slot_count <= 8192);
        assert_true(header.slot_count * 1024ull <= sizes[i] / 4);
        assert_true(header.cell_count <= 16384);
        assert_true(header.cell_count * 512ull <= sizes[i] / 8);
        assert_int_equal(header.record_offset, 4096 +
                                                   header.slot_count * 1024ull +
                                                   header.cell_count * 512ull);
        assert_int_equal(header.record_size % 8, 0);
        assert_true(header.record_offset + header.record_size <= sizes[i]);
        assert_true(header.record_offset + header.record_size + 8 > sizes[i]);
        assert_int_equal(meter_outbox_scratch_size(&header) % 16, 0);
    }
}


static void
layout__smallest_file__known_numbers(void **state)
{
    struct meter_ring_header header;

    (void)state;
    assert_true(meter_outbox_layout(METER_OUTBOX_SIZE_MIN, &header));
    assert_int_equal(header.slot_count, 64);
    assert_int_equal(header.cell_count, 64);
    assert_int_equal(header.record_offset, 102400);
    assert_int_equal(header.record_size, 159744);
    assert_true(meter_outbox_layout(METER_OUTBOX_SIZE_MAX, &header));
    assert_int_equal(header.slot_count, 8192);
    assert_int_equal(header.cell_count, 16384);
}


/* debian/meterd.postrm looks at a ring without this code. */
static void
layout__busy_word__where_the_purge_looks(void **state)
{
    (void)state;
    assert_int_equal(METER_RING_VERSION, 1);
    assert_int_equal(METER_OUTBOX_LIVE_OFFSET +
                         offsetof(struct meter_outbox_live, busy),
                     776);
    assert_int_equal(METER_OUTBOX_SPARE, 0);
    assert_int_equal(METER_LOSSES_MAGIC, 0x315353534f4c4d45);
    assert_int_equal(offsetof(struct meter_losses, lost), 8);
    assert_int_equal(offsetof(struct meter_losses, moved), 40);
}

static void
layout__out_of_bounds__refused(void **state)
{
    struct meter_ring_header header;

    (void)state;
    assert_false(meter_outbox_layout(0, &header));
    assert_false(meter_outbox_layout(METER_OUTBOX_SIZE_MIN - 1, &header));
    assert_false(
        meter_outbox_layout((uint64_t)METER_OUTBOX_SIZE_MAX + 1, &header));
    assert_false(meter_outbox_layout(UINT64_MAX, &header));
}


/* ---- format and open -------------------------------------------------- */

static void
format__zeros__open_finds_an_empty_ring(void **state)
{
    struct box box;
    struct meter_outbox_cursor cursor;
    struct meter_str bytes;

    (void)state;
    box_make(&box, SIZE + 5);
    box_format(&box, 7);
    box_claim(&box, box_boot);
    assert_true(meter_outbox_is_drained(&box.outbox));
    assert_false(meter_outbox_is_torn(&box.outbox));
    assert_int_equal(box.outbox.header.session[0], 7);
    assert_int_equal(box.outbox.live->busy, METER_OUTBOX_BUSY);
    assert_int_equal(box.outbox.live->head, 1);
    assert_int_equal(box.outbox.slots.free_count, 64);
    assert_int_equal(box.report.torn_records, 0);
    assert_false(box.report.other_boot);
    meter_outbox_cursor(&box.outbox, &cursor);
    assert_false(meter_outbox_next(&box.outbox, &cursor, &bytes));
    assert_false(meter_outbox_format(box.map, 4096, box_boot, box_boot));
    box_free(&box);
}


static void
format__map_of_an_old_ring__nothing_of_it_stays(void **state)
{
    uint8_t body[512];
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_int_equal(box_append_named(&box, "old"), 1);
    assert_true(
        meter_slot_answer(&box.outbox.slots, meter_slot_take(&box.outbox.slots),
                          box_body(body, sizeof(body), "slot", BOX_TS)));
    assert_true(meter_cell_add(&box.outbox, METER_STR("key"), BOX_TS,
                               meter_decimal_from_int(1), 0));
    box_format(&box, 2);
    box_claim(&box, box_boot);
    assert_true(meter_outbox_is_drained(&box.outbox));
    assert_int_equal(box.report.answered_slots, 0);
    assert_int_equal(box.report.open_cells, 0);
    assert_int_equal(box.outbox.live->counts.seen, 0);
    box_free(&box);
}


static void
open__files_that_are_none__are_told_apart(void **state)
{
    struct box box;
    uint8_t saved[4096];

    (void)state;
    box_make(&box, SIZE);
    assert_int_equal(box_open(&box), METER_OUTBOX_UNFINISHED);
    box.map[900] = 1; /* not all zeros: somebody's file */
    assert_int_equal(box_open(&box), METER_OUTBOX_FOREIGN);
    memset(box.map, 0, 4096);
    box_format(&box, 1);
    memcpy(saved, box.map, sizeof(saved));
    assert_int_equal(box_open(&box), METER_OUTBOX_OK);

    box.map[8] = METER_RING_VERSION + 1;
    assert_int_equal(box_open(&box), METER_OUTBOX_VERSION);
    assert_ptr_equal(box.outbox.map, box.map);
    memcpy(box.map, saved, sizeof(saved));
    for (size_t i = 0; i < METER_RING_IDENTITY_SIZE; i++) {
        box.map[i] ^= 0x10;
        assert_int_not_equal(box_open(&box), METER_OUTBOX_OK);
        assert_int_not_equal(box_open(&box), METER_OUTBOX_UNFINISHED);
        box.map[i] ^= 0x10;
    }
    box.size -= 8; /* a file that was cut */
    assert_int_equal(box_open(&box), METER_OUTBOX_FOREIGN);
    box.size = 1000;
    assert_int_equal(box_open(&box), METER_OUTBOX_FOREIGN);
    box_free(&box);
}


static void
open__identity_half_written__is_unfinished(void **state)
{
    struct box box;
    struct meter_outbox_live *live;

    (void)state;
    box_make(&box, SIZE);
    box_format(&box, 1);
    live = meter_live_of(box.map);
    live->busy = METER_OUTBOX_FORMATTING;
    assert_int_equal(box_open(&box), METER_OUTBOX_UNFINISHED);
    memset(box.map + 20, 0x77, 40);
    assert_int_equal(box_open(&box), METER_OUTBOX_UNFINISHED);
    memset(box.map, 0, METER_RING_IDENTITY_SIZE);
    assert_int_equal(box_open(&box), METER_OUTBOX_UNFINISHED);
    /* A word that happens to be 2 does not give away a stranger's file. */
    memset(box.map, 'x', METER_RING_IDENTITY_SIZE);
    assert_int_equal(box_open(&box), METER_OUTBOX_FOREIGN);
    memset(box.map, 0, METER_RING_IDENTITY_SIZE);
    box_format(&box, 2);
    box_claim(&box, box_boot);
    assert_int_equal(box.outbox.header.session[0], 2);
    box_free(&box);
}


static void
open__identity_with_other_parts__is_foreign(void **state)
{
    struct box box;

    (void)state;
    box_make(&box, SIZE);
    for (int kind = 0; kind < 4; kind++) {
        struct meter_ring_header header;
        struct meter_writer out;

        box_format(&box, 1);
        assert_true(meter_outbox_layout(SIZE, &header));
        switch (kind) {
        case 0: header.slot_count++; break;
        case 1: header.cell_count--; break;
        case 2: header.slot_count = 100000; break;
        default: header.record_offset += 8; header.record_size -= 8;
        }
        meter_writer_init(&out, box.map, METER_RING_IDENTITY_SIZE);
        meter_ring_header_encode(&header, &out);
        assert_int_equal(box_open(&box), METER_OUTBOX_FOREIGN);
    }
    box_free(&box);
}


static void
open__acked_copies__the_newer_good_one(void **state)
{
    struct box box;
    struct meter_outbox_acked *acked;

    (void)state;
    box_init(&box, SIZE);
    for (int i = 0; i < 5; i++) {
        assert_int_not_equal(box_append_named(&box, "x"), 0);
    }
    meter_outbox_ack(&box.outbox, 2);
    meter_outbox_ack(&box.outbox, 3);
    acked = &box.outbox.live->acked[box.outbox.acked_turn & 1];
    assert_int_equal(acked->seq, 3);
    assert_int_equal(box_open(&box), METER_OUTBOX_OK);
    assert_int_equal(box.outbox.acked, 3);
    acked->seq = 5; /* half written */
    assert_int_equal(box_open(&box), METER_OUTBOX_OK);
    assert_int_equal(box.outbox.acked, 2);
    assert_int_equal(box.outbox.head, 6);
    /* The next one goes over the bad copy. */
    meter_outbox_ack(&box.outbox, 4);
    assert_int_equal(acked->seq, 4);
    assert_int_equal(box_open(&box), METER_OUTBOX_OK);
    assert_int_equal(box.outbox.acked, 4);
    memset(box.outbox.live->acked, 0x11, sizeof(box.outbox.live->acked));
    assert_int_equal(box_open(&box), METER_OUTBOX_FOREIGN);
    box_free(&box);
}


static void
open__whole_record_at_head__was_never_published(void **state)
{
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_int_equal(box_append_named(&box, "one"), 1);
    assert_int_equal(box_append_named(&box, "two"), 2);
    box.outbox.live->head = 2;
    box_claim(&box, box_boot);
    assert_int_equal(box.outbox.head, 2);
    assert_false(meter_outbox_is_torn(&box.outbox));
    assert_int_equal(box_append_named(&box, "three"), 2);
    box_free(&box);
}


/* ---- sessions --------------------------------------------------------- */

static void
renew__drained__counts_become_past_and_numbers_start_again(void **state)
{
    struct meter_outbox_live *live;
    uint8_t session[16];
    struct box box;
    size_t offset;

    (void)state;
    box_init(&box, SIZE);
    live = box.outbox.live;
    for (int i = 0; i < 10; i++) {
        assert_int_not_equal(box_append_named(&box, "x"), 0);
    }
    meter_outbox_filtered(&box.outbox);
    meter_outbox_lost(&box.outbox, 3, METER_LOSS_FULL, BOX_TS);
    assert_true(meter_outbox_tell_loss(&box.outbox));
    live->verdicts[METER_VERDICT_ACCEPTED] = 7;
    live->verdicts[METER_VERDICT_REJECTED] = 1;
    assert_false(meter_outbox_is_drained(&box.outbox));
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    assert_true(meter_outbox_is_drained(&box.outbox));
    offset = box.outbox.head_offset;

    box_session(2, session);
    meter_outbox_renew(&box.outbox, session, box_other_boot);
    assert_int_equal(live->busy, METER_OUTBOX_BUSY);
    assert_int_equal(live->head, 1);
    assert_int_equal(live->counts.seen, 0);
    assert_int_equal(live->verdicts[METER_VERDICT_ACCEPTED], 0);
    assert_int_equal(live->past.seen, 14);
    assert_int_equal(live->past.filtered, 1);
    assert_int_equal(live->past.lost, 5); /* two got no verdict */
    assert_int_equal(live->past.recorded, 8);
    assert_int_equal(live->past_verdicts[METER_VERDICT_ACCEPTED], 7);
    assert_int_equal(live->past_verdicts[METER_VERDICT_REJECTED], 1);
    assert_counts_hold(&live->past);

    assert_int_equal(box_append_named(&box, "new"), 1);
    box_claim(&box, box_other_boot);
    assert_memory_equal(box.outbox.header.session, session, 16);
    assert_false(box.report.other_boot);
    assert_int_equal(box.outbox.head, 2);
    /* Behind the old records, not over them. */
    assert_int_equal(box.outbox.acked_offset, offset);
    assert_int_equal(live->counts.recorded, 1);
    box_free(&box);
}


/* ---- snapshot --------------------------------------------------------- */

struct writing {
    struct box box;
    int is_over;
};

static void *
write_all_kinds(void *asker)
{
    struct writing *writing = asker;
    struct meter_outbox *outbox = &writing->box.outbox;

    for (int i = 0; i < 200000; i++) {
        switch (i % 4) {
        case 0: meter_outbox_filtered(outbox); break;
        case 1: meter_outbox_lost(outbox, 2, METER_LOSS_FULL, BOX_TS); break;
        case 2:
            if (!meter_cell_add(outbox, METER_STR("some key"), 0,
                                meter_decimal_from_int(1), 0)) {
                abort();
            }
            break;
        default:
            meter_cell_seal(outbox, i % 3 == 0 ? INT64_MAX : 0);
            meter_outbox_tell_loss(outbox);
            meter_outbox_ack(outbox, UINT64_MAX);
        }
    }
    __atomic_store_n(&writing->is_over, 1, __ATOMIC_RELEASE);
    return NULL;
}


static void
snapshot__while_a_thread_writes__counts_hold(void **state)
{
    static struct writing writing;
    int whole = 0;
    pthread_t thread;

    (void)state;
    box_init(&writing.box, SIZE);
    assert_int_equal(pthread_create(&thread, NULL, write_all_kinds, &writing),
                     0);
    while (!__atomic_load_n(&writing.is_over, __ATOMIC_ACQUIRE)) {
        struct meter_outbox_live live;

        if (meter_outbox_snapshot(writing.box.map, &live)) {
            assert_counts_hold(&live.counts);
            whole++;
        }
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(whole > 0);
    box_free(&writing.box);
}


static void
snapshot__owner_died_while_counting__filled_but_false(void **state)
{
    struct meter_outbox_live live;
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_int_equal(box_append_named(&box, "x"), 1);
    assert_true(meter_outbox_snapshot(box.map, &live));
    assert_memory_equal(&live, box.outbox.live, sizeof(live));
    box.outbox.live->guard++;
    memset(&live, 0, sizeof(live));
    assert_false(meter_outbox_snapshot(box.map, &live));
    assert_memory_equal(&live, box.outbox.live, sizeof(live));
    box_claim(&box, box_boot);
    assert_true(meter_outbox_snapshot(box.map, &live));
    box_free(&box);
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(layout__any_size__parts_lie_behind_each_other),
    cmocka_unit_test(layout__smallest_file__known_numbers),
    cmocka_unit_test(layout__busy_word__where_the_purge_looks),
    cmocka_unit_test(layout__out_of_bounds__refused),
    cmocka_unit_test(format__zeros__open_finds_an_empty_ring),
    cmocka_unit_test(format__map_of_an_old_ring__nothing_of_it_stays),
    cmocka_unit_test(open__files_that_are_none__are_told_apart),
    cmocka_unit_test(open__identity_half_written__is_unfinished),
    cmocka_unit_test(open__identity_with_other_parts__is_foreign),
    cmocka_unit_test(open__acked_copies__the_newer_good_one),
    cmocka_unit_test(open__whole_record_at_head__was_never_published),
    cmocka_unit_test(
        renew__drained__counts_become_past_and_numbers_start_again),
    cmocka_unit_test(snapshot__while_a_thread_writes__counts_hold),
    cmocka_unit_test(snapshot__owner_died_while_counting__filled_but_false),
};

RUN_TAP(tests)
