#include "meter_cmocka.h"

#include "meter_random.h"
#include "outbox_fixture.h"

enum { SIZE = METER_OUTBOX_SIZE_MIN };


static uint64_t
append(struct box *box, size_t size)
{
    static const char noise[METER_RECORD_BODY_SIZE_MAX];

    return box_append(box, (struct meter_str){noise, size}, NULL);
}


/* Numbers from the cursor's up to head, each once, all verify. */
static void
check_from(struct box *box, uint64_t first)
{
    struct meter_outbox_cursor cursor;
    struct meter_record record;

    meter_outbox_cursor(&box->outbox, &cursor);
    assert_int_equal(cursor.seq, first);
    while (box_next(box, &cursor, &record)) {
        assert_int_equal(record.seq, first);
        first++;
    }
    assert_int_equal(first, box->outbox.head);
}


static void
ack__beyond_behind_and_again__stays_in_bounds(void **state)
{
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    meter_outbox_ack(&box.outbox, 5);
    assert_int_equal(box.outbox.acked, 0);
    for (int i = 0; i < 6; i++) {
        assert_int_not_equal(append(&box, 100), 0);
    }
    meter_outbox_ack(&box.outbox, 3);
    check_from(&box, 4);
    meter_outbox_ack(&box.outbox, 2);
    meter_outbox_ack(&box.outbox, 3);
    meter_outbox_ack(&box.outbox, 0);
    check_from(&box, 4);
    assert_int_equal(box.outbox.used, 3 * meter_record_size(100));
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    assert_int_equal(box.outbox.acked, 6);
    assert_int_equal(box.outbox.used, 0);
    box_free(&box);
}


/* Somebody writes into the file: no step is made into the unknown. */
static void
walk__headers_damaged_while_open__stops(void **state)
{
    struct meter_outbox_cursor cursor;
    struct meter_str bytes;
    struct box box;

    (void)state;
    for (size_t at = 0; at < 24; at++) {
        box_init(&box, SIZE);
        for (int i = 0; i < 6; i++) {
            assert_int_not_equal(append(&box, 100), 0);
        }
        box.outbox.area[2 * meter_record_size(100) + at] ^= 0x81;
        meter_outbox_cursor(&box.outbox, &cursor);
        for (int i = 0; i < 10; i++) {
            (void)!meter_outbox_next(&box.outbox, &cursor, &bytes);
        }
        meter_outbox_ack(&box.outbox, 5);
        assert_true(box.outbox.acked == 2 || box.outbox.acked == 5);
        box_free(&box);
    }
}


static void
rewind__nothing_missing__leaves_it(void **state)
{
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_int_equal(meter_outbox_rewind(&box.outbox, 0), 1);
    for (int i = 0; i < 6; i++) {
        assert_int_not_equal(append(&box, 100), 0);
    }
    meter_outbox_ack(&box.outbox, 4);
    assert_int_equal(meter_outbox_rewind(&box.outbox, 4), 5);
    assert_int_equal(meter_outbox_rewind(&box.outbox, 6), 7);
    check_from(&box, 5);
    box_free(&box);
}


/* Oldest record with nothing written over it, by where they all lie. */
static uint64_t
oldest_whole(const struct meter_outbox *outbox, const size_t *offsets)
{
    size_t end = outbox->head_offset;
    uint64_t seq = outbox->head;
    size_t covered = 0;

    while (seq > 1) {
        size_t offset = offsets[seq - 1];

        covered +=
            end > offset ? end - offset : outbox->area_size - offset + end;
        if (covered > outbox->area_size) {
            break;
        }
        end = offset;
        seq--;
    }
    return seq;
}


static void
rewind__random_rings__everything_that_is_left(void **state)
{
    enum { RECORDS = 3000 };
    static size_t offsets[RECORDS + 1];
    struct meter_random random = {31};
    int some = 0, all = 0;

    (void)state;
    for (int round = 0; round < 150; round++) {
        size_t count = 1 + random_below(&random, RECORDS - 1);
        uint64_t last, first, oldest, acked;
        struct box box;

        box_init(&box, SIZE + random_below(&random, 5) * 8);
        for (size_t i = 1; i <= count; i++) {
            size_t size = random_below(&random, 16) == 0
                              ? random_below(&random, 4073)
                              : random_below(&random, 300);
            size_t end;

            if (append(&box, size) == 0) {
                meter_outbox_ack(&box.outbox, i - 1);
                assert_int_not_equal(append(&box, size), 0);
            }
            end = box.outbox.head_offset == 0 ? box.outbox.area_size
                                              : box.outbox.head_offset;
            offsets[i] = end - meter_record_size(size);
        }
        acked = box.outbox.acked +
                random_below(&random, box.outbox.head - box.outbox.acked);
        meter_outbox_ack(&box.outbox, acked);
        last = random_below(&random, acked + 1);
        oldest = oldest_whole(&box.outbox, offsets);
        first = meter_outbox_rewind(&box.outbox, last);
        if (last >= acked) {
            assert_int_equal(first, last + 1);
        } else {
            assert_int_equal(first, oldest > last ? oldest : last + 1);
            check_from(&box, first);
            some += first > last + 1;
            all += first == last + 1;
            assert_true(box.outbox.used <= box.outbox.area_size);
            box_claim(&box, box_boot);
            assert_false(meter_outbox_is_torn(&box.outbox));
            check_from(&box, first);
        }
        box_free(&box);
    }
    assert_true(some > 20 && all > 20);
}


static void
rewind__damaged_record_between__only_what_is_behind_it(void **state)
{
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    for (int i = 0; i < 20; i++) {
        assert_int_not_equal(append(&box, 100), 0);
    }
    meter_outbox_ack(&box.outbox, 18);
    box.outbox.area[9 * meter_record_size(100) + 30] ^= 1; /* number 10 */
    assert_int_equal(meter_outbox_rewind(&box.outbox, 3), 11);
    check_from(&box, 11);
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    memset(box.outbox.area, 0, box.outbox.area_size);
    assert_int_equal(meter_outbox_rewind(&box.outbox, 3), 21);
    assert_int_equal(box.outbox.acked, 20);
    box_free(&box);
}


/* The session before has the same numbers, in front of this one's. */
static void
rewind__records_of_an_earlier_session__are_not_taken(void **state)
{
    uint8_t session[16];
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    for (int i = 0; i < 9; i++) {
        assert_int_not_equal(append(&box, 100), 0);
    }
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    box_session(2, session);
    meter_outbox_renew(&box.outbox, session, box_boot);
    for (int i = 0; i < 5; i++) {
        assert_int_not_equal(append(&box, 100), 0);
    }
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    assert_int_equal(meter_outbox_rewind(&box.outbox, 0), 1);
    assert_int_equal(box.outbox.used, 5 * meter_record_size(100));
    check_from(&box, 1);
    box_free(&box);
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ack__beyond_behind_and_again__stays_in_bounds),
    cmocka_unit_test(walk__headers_damaged_while_open__stops),
    cmocka_unit_test(rewind__nothing_missing__leaves_it),
    cmocka_unit_test(rewind__random_rings__everything_that_is_left),
    cmocka_unit_test(rewind__damaged_record_between__only_what_is_behind_it),
    cmocka_unit_test(rewind__records_of_an_earlier_session__are_not_taken),
};

RUN_TAP(tests)
