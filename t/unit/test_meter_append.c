#include "meter_cmocka.h"

#include "meter_random.h"
#include "outbox_fixture.h"

enum { SIZE = METER_OUTBOX_SIZE_MIN, WAITING_MAX = 8192 };


/* ---- a model ---------------------------------------------------------- */

struct expected {
    uint64_t seq;
    int64_t ts_us;
    uint64_t seed; /* its body is made from it again */
    size_t body_size;
};

/* What is in the ring, oldest first. */
struct model {
    struct box box;
    struct meter_random random;
    struct expected waiting[WAITING_MAX];
    size_t count;
    uint64_t published;
    int wraps, refusals;
};

/* ts in front as an encoder puts it, then noise. */
static size_t
make_body(uint8_t *body, size_t wanted, int64_t ts_us, uint64_t seed)
{
    struct meter_random random = {seed};
    struct meter_str fields = box_body(body, 512, "r", ts_us);
    size_t size = wanted < fields.size ? fields.size : wanted;

    for (size_t i = fields.size; i < size; i++) {
        body[i] = (uint8_t)random_u64(&random);
    }
    return size;
}


static void
model_append(struct model *model)
{
    struct meter_outbox *outbox = &model->box.outbox;
    struct expected *expected = &model->waiting[model->count];
    size_t most = random_below(&model->random, 8) == 0
                      ? METER_RECORD_BODY_SIZE_MAX
                      : 100 + random_below(&model->random, 400);
    size_t before = outbox->head_offset;
    uint8_t body[METER_RECORD_BODY_SIZE_MAX];
    uint8_t *at;

    assert_true(model->count < WAITING_MAX);
    expected->seed = random_u64(&model->random);
    expected->ts_us = (int64_t)(BOX_TS + model->published);
    expected->body_size =
        make_body(body, random_below(&model->random, most + 1), expected->ts_us,
                  expected->seed);
    at = meter_outbox_reserve(outbox, most);
    if (at == NULL) {
        size_t left = outbox->area_size - outbox->used;

        /* Only for a reason: the record, a skip and the reserve. */
        assert_true(left < 2 * meter_record_size(most) + METER_OUTBOX_RESERVE);
        assert_false(meter_outbox_has_room(outbox, 1));
        model->refusals++;
        return;
    }
    if (expected->body_size > most) {
        return; /* reserved, not used */
    }
    memcpy(at, body, expected->body_size);
    expected->seq = meter_outbox_commit(outbox, METER_RECORD_EVENT,
                                        expected->body_size, 1, true, NULL);
    assert_int_equal(expected->seq, ++model->published);
    model->count++;
    model->wraps += outbox->head_offset < before;
    assert_true(outbox->area_size - outbox->used >= METER_OUTBOX_RESERVE);
}


static void
model_ack(struct model *model)
{
    size_t taken = random_below(&model->random, model->count + 1);

    if (random_below(&model->random, 4) == 0) {
        taken = model->count;
    }
    meter_outbox_ack(&model->box.outbox,
                     model->published - model->count + taken);
    model->count -= taken;
    memmove(model->waiting, model->waiting + taken,
            model->count * sizeof(model->waiting[0]));
}


static void
model_check(struct model *model)
{
    const struct meter_outbox *outbox = &model->box.outbox;
    struct meter_outbox_cursor cursor;
    struct meter_record record;
    size_t bytes = 0;

    meter_outbox_cursor(outbox, &cursor);
    for (size_t i = 0; i < model->count; i++) {
        const struct expected *expected = &model->waiting[i];
        uint8_t body[METER_RECORD_BODY_SIZE_MAX];

        assert_true(box_next(&model->box, &cursor, &record));
        assert_int_equal(record.seq, expected->seq);
        assert_int_equal(record.kind, METER_RECORD_EVENT);
        assert_int_equal(record.body.size, expected->body_size);
        make_body(body, expected->body_size, expected->ts_us, expected->seed);
        assert_memory_equal(record.body.data, body, expected->body_size);
        bytes += meter_record_size(record.body.size);
    }
    assert_false(box_next(&model->box, &cursor, &record));
    assert_true(outbox->used >= bytes);
    assert_true(outbox->used < bytes + METER_RECORD_SIZE_MAX);
    assert_true(outbox->used <= outbox->area_size);
    assert_int_equal(outbox->live->used_bytes, outbox->used);
    assert_int_equal(outbox->live->waiting_us,
                     model->count > 0 ? model->waiting[0].ts_us : 0);
    assert_int_equal(outbox->live->counts.recorded, model->published);
    assert_int_equal(outbox->live->counts.seen, model->published);
}


static void
model_reopen(struct model *model)
{
    struct meter_outbox before = model->box.outbox;

    box_claim(&model->box, box_boot);
    assert_int_equal(model->box.report.torn_records, 0);
    assert_int_equal(before.head, model->box.outbox.head);
    assert_int_equal(before.head_offset, model->box.outbox.head_offset);
    assert_int_equal(before.acked, model->box.outbox.acked);
    assert_int_equal(before.acked_offset, model->box.outbox.acked_offset);
    assert_int_equal(before.used, model->box.outbox.used);
}


static void
append__random_records_acks_and_claims__all_come_back(void **state)
{
    static struct model model;
    int wraps = 0, refusals = 0;

    (void)state;
    for (int round = 0; round < 24; round++) {
        memset(&model, 0, sizeof(model));
        model.random.state = (uint64_t)round;
        box_init(&model.box, SIZE + (size_t)round * 8);
        for (int step = 0; step < 20000; step++) {
            switch (random_below(&model.random, 300)) {
            case 0: model_ack(&model); break;
            case 1: model_check(&model); break;
            case 2: model_reopen(&model); break;
            default: model_append(&model);
            }
        }
        model_check(&model);
        wraps += model.wraps;
        refusals += model.refusals;
        box_free(&model.box);
    }
    assert_true(wraps > 100 && refusals > 1000);
}


/* ---- room ------------------------------------------------------------- */

static void
has_room__promised_records__always_fit(void **state)
{
    struct meter_random random = {5};
    static const char big[METER_RECORD_BODY_SIZE_MAX];
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_true(meter_outbox_has_room(&box.outbox, 1));
    assert_true(meter_outbox_has_room(&box.outbox, 30));
    assert_false(meter_outbox_has_room(&box.outbox, 1000));
    assert_false(meter_outbox_has_room(&box.outbox, SIZE_MAX));
    for (int round = 0; round < 300; round++) {
        size_t promised = 0;

        while (meter_outbox_has_room(&box.outbox, promised + 1)) {
            promised++;
        }
        for (size_t i = 0; i < promised; i++) {
            assert_int_not_equal(
                box_append(&box, (struct meter_str){big, sizeof(big)}, NULL),
                0);
        }
        assert_false(meter_outbox_has_room(&box.outbox, 1));
        meter_outbox_ack(&box.outbox, UINT64_MAX);
        while (random_below(&random, 9) > 0) {
            assert_int_not_equal(
                box_append(&box,
                           (struct meter_str){big, random_below(&random, 500)},
                           NULL),
                0);
        }
        meter_outbox_ack(&box.outbox, UINT64_MAX);
    }
    box_free(&box);
}


/* At every distance from the end of the area that a record can have. */
static void
loss__ring_full_to_the_brim__still_fits(void **state)
{
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    for (size_t shift = 0; shift < 600; shift += 8) {
        static const char big[METER_RECORD_BODY_SIZE_MAX];
        struct meter_outbox_cursor cursor;
        struct meter_record record, last = {0};
        struct meter_loss loss;

        assert_int_not_equal(
            box_append(&box, (struct meter_str){big, shift}, NULL), 0);
        meter_outbox_ack(&box.outbox, UINT64_MAX);
        for (size_t size = sizeof(big) + 1; size-- > 0;) {
            while (box_append(&box, (struct meter_str){big, size}, NULL) != 0) {
            }
        }
        assert_int_equal(box_append(&box, METER_STR(""), NULL), 0);
        meter_outbox_lost(&box.outbox, 41, METER_LOSS_FULL, BOX_TS + 5);
        meter_outbox_lost(&box.outbox, 1, METER_LOSS_TORN, BOX_TS + 9);
        assert_true(meter_outbox_tell_loss(&box.outbox));
        assert_false(meter_outbox_tell_loss(&box.outbox));
        meter_outbox_cursor(&box.outbox, &cursor);
        while (box_next(&box, &cursor, &record)) {
            last = record;
        }
        assert_int_equal(last.kind, METER_RECORD_LOSSNOTE);
        assert_true(meter_loss_decode(last.body, &loss));
        assert_int_equal(loss.count, 42);
        assert_int_equal(loss.first_us, BOX_TS + 5);
        assert_int_equal(loss.last_us, BOX_TS + 9);
        assert_int_equal(loss.reasons, METER_LOSS_FULL | METER_LOSS_TORN);
        meter_outbox_ack(&box.outbox, UINT64_MAX);
    }
    assert_counts_hold(&box.outbox.live->counts);
    assert_int_equal(box.outbox.live->counts.lost, 75 * 42);
    box_free(&box);
}


static void
loss__told_then_more__starts_again(void **state)
{
    struct meter_outbox_loss *entry;
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    entry = &box.outbox.live->loss;
    assert_false(meter_outbox_tell_loss(&box.outbox));
    meter_outbox_lost(&box.outbox, 2, METER_LOSS_TORN, 10);
    assert_true(meter_outbox_tell_loss(&box.outbox));
    meter_outbox_lost(&box.outbox, 5, METER_LOSS_FULL, 20);
    assert_int_equal(entry->loss.count, 5);
    assert_int_equal(entry->loss.first_us, 20);
    assert_int_equal(entry->loss.reasons, METER_LOSS_FULL);
    assert_int_equal(box.outbox.live->counts.lost, 7);
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    assert_false(meter_outbox_is_drained(&box.outbox));
    assert_true(meter_outbox_tell_loss(&box.outbox));
    meter_outbox_ack(&box.outbox, UINT64_MAX);
    assert_true(meter_outbox_is_drained(&box.outbox));
    box_free(&box);
}


static void
commit__without_room_or_too_long__publishes_nothing(void **state)
{
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    assert_int_equal(
        meter_outbox_commit(&box.outbox, METER_RECORD_EVENT, 0, 1, true, NULL),
        0);
    assert_null(
        meter_outbox_reserve(&box.outbox, METER_RECORD_BODY_SIZE_MAX + 1));
    assert_null(meter_outbox_reserve(&box.outbox, SIZE_MAX));
    assert_non_null(meter_outbox_reserve(&box.outbox, 100));
    assert_int_equal(meter_outbox_commit(&box.outbox, METER_RECORD_EVENT, 101,
                                         1, true, NULL),
                     0);
    assert_int_equal(meter_outbox_commit(&box.outbox, METER_RECORD_EVENT, 100,
                                         1, true, NULL),
                     1);
    assert_int_equal(meter_outbox_commit(&box.outbox, METER_RECORD_EVENT, 100,
                                         1, true, NULL),
                     0);
    assert_int_equal(box.outbox.live->head, 2);
    box_free(&box);
}


static void
counts__kinds_of_records__weights_move_between(void **state)
{
    struct meter_outbox_counts *counts;
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    counts = &box.outbox.live->counts;
    assert_non_null(meter_outbox_reserve(&box.outbox, 8));
    meter_outbox_commit(&box.outbox, METER_RECORD_DUPNOTE, 0, 1, true, NULL);
    for (int i = 0; i < 3; i++) {
        assert_true(meter_cell_add(&box.outbox, METER_STR("key"), 0,
                                   meter_decimal_from_int(1), 0));
    }
    assert_int_equal(counts->open, 3);
    assert_int_equal(counts->seen, 4);
    assert_counts_hold(counts);
    assert_true(meter_cell_seal(&box.outbox, INT64_MAX));
    meter_outbox_filtered(&box.outbox);
    meter_outbox_lost(&box.outbox, 2, METER_LOSS_FULL, 1);
    assert_true(meter_outbox_tell_loss(&box.outbox));
    assert_int_equal(counts->open, 0);
    assert_int_equal(counts->recorded, 1); /* the cell's body was no list */
    assert_int_equal(counts->lost, 5);
    assert_int_equal(counts->filtered, 1);
    assert_int_equal(counts->seen, 7);
    assert_counts_hold(counts);
    box_free(&box);
}


/* Whatever others append and seal, the ones that were promised fit. */
static void
kept__others_fill_the_ring__promised_records_fit(void **state)
{
    (void)state;
    for (size_t promised = 1; promised < 8; promised++) {
        struct box box;
        uint64_t acked = 0;

        box_init(&box, SIZE);
        box.outbox.kept = (promised + 1) * METER_RECORD_SIZE_MAX;
        for (int lap = 0; lap < 5; lap++) {
            uint8_t *body;

            while ((body = meter_outbox_reserve(&box.outbox, 1000)) != NULL) {
                memset(body, 0, 1000);
                meter_outbox_commit(&box.outbox, METER_RECORD_EVENT, 1000, 1,
                                    true, NULL);
            }
            assert_true(meter_cell_add(&box.outbox, METER_STR("key"), 0,
                                       meter_decimal_from_int(1), 0));
            (void)meter_cell_seal(&box.outbox, INT64_MAX);
            for (size_t left = promised; left > 0; left--) {
                box.outbox.kept = (left - 1) * METER_RECORD_SIZE_MAX;
                assert_non_null(meter_outbox_reserve(
                    &box.outbox, METER_RECORD_BODY_SIZE_MAX));
                meter_outbox_commit(&box.outbox, METER_RECORD_EVENT,
                                    METER_RECORD_BODY_SIZE_MAX, 1, true, NULL);
            }
            box.outbox.kept = (promised + 1) * METER_RECORD_SIZE_MAX;
            acked = box.outbox.head - 1 - (uint64_t)lap;
            meter_outbox_ack(&box.outbox, acked);
        }
        box_free(&box);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(append__random_records_acks_and_claims__all_come_back),
    cmocka_unit_test(has_room__promised_records__always_fit),
    cmocka_unit_test(kept__others_fill_the_ring__promised_records_fit),
    cmocka_unit_test(loss__ring_full_to_the_brim__still_fits),
    cmocka_unit_test(loss__told_then_more__starts_again),
    cmocka_unit_test(commit__without_room_or_too_long__publishes_nothing),
    cmocka_unit_test(counts__kinds_of_records__weights_move_between),
};

RUN_TAP(tests)
