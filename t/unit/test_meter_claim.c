#include "meter_cmocka.h"

#include "outbox_fixture.h"

enum { SIZE = METER_OUTBOX_SIZE_MIN, COUNT = 64 };


static uint32_t
answer(struct box *box, const char *name)
{
    uint32_t index = meter_slot_take(&box->outbox.slots);
    uint8_t buffer[512];

    assert_int_not_equal(index, METER_SLOT_NONE);
    assert_true(
        meter_slot_answer(&box->outbox.slots, index,
                          box_body(buffer, sizeof(buffer), name, BOX_TS)));
    return index;
}


static void
add(struct box *box, const char *name, uint64_t operation)
{
    uint8_t buffer[512];

    assert_true(meter_cell_add(&box->outbox,
                               box_body(buffer, sizeof(buffer), name, BOX_TS),
                               BOX_TS, meter_decimal_from_int(2), operation));
}


/* The next record is this event, or this delta. */
static void
expect(struct box *box, struct meter_outbox_cursor *cursor, uint8_t kind,
       const char *name, uint32_t flags)
{
    static struct meter_record_event event;
    struct meter_record record;

    assert_true(box_next(box, cursor, &record));
    assert_int_equal(record.kind, kind);
    assert_true(meter_record_event_decode(record.body, &event));
    assert_true(meter_str_equal(event.resource, str_of(name)));
    assert_int_equal(event.flags, flags);
}


static void
claim__released_in_order__reports_nothing(void **state)
{
    static const struct meter_outbox_report nothing;
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_int_equal(box_append_named(&box, "a"), 1);
    box_claim(&box, box_boot);
    assert_memory_equal(&box.report, &nothing, sizeof(nothing));
    assert_int_equal(meter_outbox_emit(&box.outbox), 0);
    assert_int_equal(box.outbox.head, 2);
    box_free(&box);
}


static void
claim__slots_and_cells__emitted_as_recovered(void **state)
{
    const uint32_t flags = METER_EVENT_CAPTURED | METER_EVENT_RECOVERED;
    struct meter_outbox_cursor cursor;
    struct box box;
    uint32_t slot;

    (void)state;
    box_init(&box, SIZE);
    answer(&box, "one");
    (void)meter_slot_take(&box.outbox.slots);
    answer(&box, "two");
    slot = answer(&box, "gone");
    meter_slot_free(&box.outbox.slots, slot);
    add(&box, "cell", 0);
    add(&box, "cell", 0);
    box_claim(&box, box_boot);
    assert_false(box.report.other_boot);
    assert_int_equal(box.report.answered_slots, 2);
    assert_int_equal(box.report.dropped_slots, 1);
    assert_int_equal(box.report.open_cells, 1);
    assert_int_equal(box.report.lost_requests, 0);
    assert_false(meter_outbox_is_drained(&box.outbox));
    assert_int_equal(box.outbox.live->counts.open, 2);
    assert_int_equal(meter_outbox_emit(&box.outbox), 0);
    meter_outbox_cursor(&box.outbox, &cursor);
    expect(&box, &cursor, METER_RECORD_EVENT, "one", flags);
    expect(&box, &cursor, METER_RECORD_EVENT, "two", flags);
    expect(&box, &cursor, METER_RECORD_DELTA, "cell", flags);
    assert_int_equal(box.outbox.live->counts.recorded, 4);
    assert_int_equal(box.outbox.live->counts.open, 0);
    assert_counts_hold(&box.outbox.live->counts);
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    assert_true(meter_outbox_is_drained(&box.outbox));
    assert_int_equal(box.outbox.slots.free_count, COUNT);
    assert_int_equal(box.outbox.cells.free_count, COUNT);
    box_free(&box);
}


/* A ring that is full when it is claimed, and used at the same time. */
static void
emit__little_room_and_new_requests__nothing_is_mixed_up(void **state)
{
    static const char big[METER_RECORD_BODY_SIZE_MAX];
    int slots = 0, cells = 0;
    struct meter_outbox_cursor cursor;
    struct meter_record record;
    uint32_t left, mine;
    char name[16];
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    for (int i = 0; i < COUNT - 4; i++) {
        snprintf(name, sizeof(name), "s%d", i);
        answer(&box, name);
        snprintf(name, sizeof(name), "c%d", i);
        add(&box, name, 0);
    }
    while (box_append(&box, (struct meter_str){big, sizeof(big)}, NULL) != 0) {
    }
    box_claim(&box, box_boot);
    left = 2 * (COUNT - 4);
    mine = answer(&box, "mine");
    add(&box, "c3", 0); /* a key that is among the recovered */
    for (int round = 0; left > 0; round++) {
        uint32_t now = meter_outbox_emit(&box.outbox);

        assert_true(now <= left && round < 1000);
        left = now;
        meter_outbox_ack(&box.outbox, box.outbox.acked + 1);
        assert_int_equal(box.outbox.slots.items[mine].state,
                         METER_SLOT_ANSWERED);
        if (round % 3 == 0) {
            meter_slot_free(&box.outbox.slots,
                            meter_slot_take(&box.outbox.slots));
        }
    }
    assert_int_equal(box.outbox.live->counts.open, 1);
    assert_int_equal(box.outbox.slots.free_count, COUNT - 1);
    meter_outbox_cursor(&box.outbox, &cursor);
    while (box_next(&box, &cursor, &record)) {
        slots += record.kind == METER_RECORD_EVENT && record.body.size < 200;
        cells += record.kind == METER_RECORD_DELTA;
    }
    assert_in_range(slots + cells, 100, 120);
    assert_int_equal(box.outbox.live->counts.recorded, box.outbox.head - 1);
    assert_counts_hold(&box.outbox.live->counts);
    box_free(&box);
}


static void
claim__operation_in_a_cell__its_slot_is_done(void **state)
{
    struct meter_outbox_cursor cursor;
    uint64_t operation;
    struct box box;
    uint32_t applied, open;

    (void)state;
    box_init(&box, SIZE);
    applied = answer(&box, "early");
    operation = meter_outbox_operation(&box.outbox);
    assert_int_equal(operation, 1);
    box.outbox.slots.items[applied].operation = operation;
    add(&box, "early", operation);
    meter_slot_free(&box.outbox.slots, applied);

    open = answer(&box, "open");
    applied = answer(&box, "applied");
    operation = meter_outbox_operation(&box.outbox);
    assert_int_equal(operation, 2);
    assert_int_equal(box.outbox.live->operation, 2);
    box.outbox.slots.items[applied].operation = operation;
    add(&box, "applied", operation);
    (void)open;
    box_claim(&box, box_boot);
    assert_int_equal(box.report.answered_slots, 1);
    assert_int_equal(box.report.open_cells, 2);
    assert_int_equal(meter_outbox_emit(&box.outbox), 0);
    meter_outbox_cursor(&box.outbox, &cursor);
    expect(&box, &cursor, METER_RECORD_EVENT, "open",
           METER_EVENT_CAPTURED | METER_EVENT_RECOVERED);

    /* A number that no cell has: not applied. */
    applied = answer(&box, "late");
    box.outbox.slots.items[applied].operation =
        meter_outbox_operation(&box.outbox);
    box_claim(&box, box_boot);
    assert_int_equal(box.report.answered_slots, 1);
    box_free(&box);
}


static void
claim__another_boot__entries_become_a_loss_once(void **state)
{
    struct meter_outbox_live *live;
    struct box box;
    uint8_t session[16];

    (void)state;
    box_init(&box, SIZE);
    live = box.outbox.live;
    assert_int_equal(box_append_named(&box, "record"), 1);
    answer(&box, "slot");
    (void)meter_slot_take(&box.outbox.slots);
    add(&box, "cell", 0);
    add(&box, "cell", 0);
    box_claim(&box, box_other_boot);
    assert_true(box.report.other_boot);
    assert_int_equal(box.report.lost_requests, 3);
    assert_int_equal(box.report.answered_slots, 0);
    assert_int_equal(box.report.open_cells, 0);
    assert_int_equal(live->loss.loss.count, 3);
    assert_int_equal(live->loss.loss.reasons, METER_LOSS_REBOOT);
    assert_int_equal(live->loss.loss.last_us, BOX_TS);
    assert_int_equal(live->counts.lost, 3);
    assert_int_equal(live->counts.seen, 4);
    assert_int_equal(live->counts.open, 0);
    assert_int_equal(meter_outbox_emit(&box.outbox), 0);
    box_claim(&box, box_other_boot);
    assert_int_equal(box.report.lost_requests, 0);
    assert_int_equal(live->loss.loss.count, 3);
    /* It is drained under its session, with the loss, and goes on. */
    assert_true(meter_outbox_tell_loss(&box.outbox));
    live->verdicts[0] = 1;
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    assert_true(meter_outbox_is_drained(&box.outbox));
    box_session(2, session);
    meter_outbox_renew(&box.outbox, session, box_other_boot);
    box_claim(&box, box_other_boot);
    assert_false(box.report.other_boot);
    assert_int_equal(live->past.lost, 3);
    assert_int_equal(live->past.recorded, 1);
    assert_counts_hold(&live->past);
    box_free(&box);
}


/* ---- torn ------------------------------------------------------------- */

static void
damage(struct box *box, uint64_t seq)
{
    struct meter_outbox_cursor cursor;
    struct meter_str bytes;

    meter_outbox_cursor(&box->outbox, &cursor);
    do {
        assert_true(meter_outbox_next(&box->outbox, &cursor, &bytes));
    } while (cursor.seq <= seq);
    ((char *)(uintptr_t)bytes.data)[bytes.size - 9] ^= 1;
}


static void
torn__some_records__the_rest_is_lost_once(void **state)
{
    struct meter_outbox_live *live;
    struct meter_outbox_cursor cursor;
    struct meter_record record;
    uint8_t session[16];
    struct box box;
    int found = 0;

    (void)state;
    box_init(&box, SIZE);
    live = box.outbox.live;
    for (int i = 0; i < 10; i++) {
        assert_int_not_equal(box_append_named(&box, "x"), 0);
    }
    meter_outbox_ack(&box.outbox, 2);
    answer(&box, "slot");
    add(&box, "cell", 0);
    damage(&box, 7);
    for (int i = 0; i < 2; i++) {
        box_claim(&box, box_boot);
        assert_true(meter_outbox_is_torn(&box.outbox));
        assert_int_equal(box.report.torn_records, 4);
        assert_int_equal(live->loss.loss.count, 4);
        assert_int_equal(live->loss.loss.reasons, METER_LOSS_TORN);
    }
    meter_outbox_cursor(&box.outbox, &cursor);
    while (box_next(&box, &cursor, &record)) {
        found++;
    }
    assert_int_equal(found, 4);
    /* Nothing goes in; what is left to emit waits. */
    assert_int_equal(box_append_named(&box, "y"), 0);
    assert_false(meter_outbox_has_room(&box.outbox, 0));
    assert_false(meter_outbox_tell_loss(&box.outbox));
    assert_int_equal(meter_outbox_emit(&box.outbox), 2);
    assert_false(meter_outbox_is_drained(&box.outbox));
    live->verdicts[0] = 6;
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    assert_int_equal(box.outbox.acked, 6);
    assert_true(meter_outbox_is_drained(&box.outbox));

    box_session(2, session);
    meter_outbox_renew(&box.outbox, session, box_boot);
    assert_false(meter_outbox_is_torn(&box.outbox));
    assert_int_equal(live->past.seen, 10);
    assert_int_equal(live->past.lost, 4);
    assert_int_equal(live->past.recorded, 6);
    assert_int_equal(live->counts.seen, 1);
    assert_int_equal(live->counts.open, 1);
    assert_counts_hold(&live->past);
    assert_counts_hold(&live->counts);
    assert_int_equal(meter_outbox_emit(&box.outbox), 0);
    assert_true(meter_outbox_tell_loss(&box.outbox));
    meter_outbox_cursor(&box.outbox, &cursor);
    expect(&box, &cursor, METER_RECORD_EVENT, "slot",
           METER_EVENT_CAPTURED | METER_EVENT_RECOVERED);
    expect(&box, &cursor, METER_RECORD_DELTA, "cell",
           METER_EVENT_CAPTURED | METER_EVENT_RECOVERED);
    assert_true(box_next(&box, &cursor, &record));
    assert_int_equal(record.kind, METER_RECORD_LOSSNOTE);
    box_claim(&box, box_boot);
    assert_false(meter_outbox_is_torn(&box.outbox));
    assert_int_equal(live->loss.loss.count, 0);
    box_free(&box);
}


static void
torn__head_that_cannot_be__is_bounded(void **state)
{
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    for (int i = 0; i < 3; i++) {
        assert_int_not_equal(box_append_named(&box, "x"), 0);
    }
    box.outbox.live->head = UINT64_MAX;
    box_claim(&box, box_boot);
    assert_true(meter_outbox_is_torn(&box.outbox));
    assert_int_equal(box.outbox.head, 4);
    assert_true(box.report.torn_records <= box.outbox.area_size / 24);

    meter_outbox_ack(&box.outbox, 2);
    box.outbox.live->head = 1; /* behind what was acked */
    box_claim(&box, box_boot);
    assert_true(meter_outbox_is_torn(&box.outbox));
    assert_int_equal(box.report.torn_records, 0);
    assert_true(meter_outbox_is_drained(&box.outbox));
    box_free(&box);
}


/* ---- damage ----------------------------------------------------------- */

static void
damaged__slots_and_cells__are_a_loss(void **state)
{
    struct meter_outbox_live *live;
    struct meter_cell *cells;
    struct box box;
    uint32_t slot;

    (void)state;
    box_init(&box, SIZE);
    live = box.outbox.live;
    cells = box.outbox.cells.items;
    slot = answer(&box, "cut");
    box.outbox.slots.items[slot].body[3] ^= 0x40;
    slot = answer(&box, "elsewhere");
    box.outbox.slots.items[slot].place = 0xffffffff;
    slot = answer(&box, "state");
    box.outbox.slots.items[slot].state = 77;
    add(&box, "one", 0);
    add(&box, "two", 0);
    add(&box, "two", 0);
    add(&box, "three", 0);
    add(&box, "four", 0);
    cells[1].body[3] ^= 0x40;
    cells[2].half[0].count = 0;
    cells[3].half[0].count = UINT64_MAX;
    box_claim(&box, box_boot);
    assert_int_equal(box.report.answered_slots, 2);
    assert_int_equal(box.report.dropped_slots, 1);
    assert_int_equal(box.report.open_cells, 2);
    assert_int_equal(meter_outbox_emit(&box.outbox), 0);
    assert_int_equal(live->counts.recorded, 1);
    assert_int_equal(live->counts.lost, 4);
    assert_int_equal(live->loss.loss.count, 4);
    assert_int_equal(live->loss.loss.reasons, METER_LOSS_TORN);
    assert_counts_hold(&live->counts);
    assert_true(meter_outbox_tell_loss(&box.outbox));
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    assert_true(meter_outbox_is_drained(&box.outbox));
    box_free(&box);
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(claim__released_in_order__reports_nothing),
    cmocka_unit_test(claim__slots_and_cells__emitted_as_recovered),
    cmocka_unit_test(emit__little_room_and_new_requests__nothing_is_mixed_up),
    cmocka_unit_test(claim__operation_in_a_cell__its_slot_is_done),
    cmocka_unit_test(claim__another_boot__entries_become_a_loss_once),
    cmocka_unit_test(torn__some_records__the_rest_is_lost_once),
    cmocka_unit_test(torn__head_that_cannot_be__is_bounded),
    cmocka_unit_test(damaged__slots_and_cells__are_a_loss),
};

RUN_TAP(tests)
