#include "meter_cmocka.h"

#include "outbox_fixture.h"

enum { SIZE = METER_OUTBOX_SIZE_MIN, COUNT = 64 };


static struct meter_str
filled(char *buffer, size_t size, char letter)
{
    memset(buffer, letter, size);
    return (struct meter_str){buffer, size};
}


static void
take__all_of_them__each_once_then_none(void **state)
{
    bool is_taken[COUNT] = {false};
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    for (int i = 0; i < COUNT; i++) {
        uint32_t index = meter_slot_take(&box.outbox.slots);

        assert_true(index < COUNT && !is_taken[index]);
        is_taken[index] = true;
        assert_int_equal(box.outbox.slots.items[index].state,
                         METER_SLOT_RESERVED);
    }
    assert_int_equal(meter_slot_take(&box.outbox.slots), METER_SLOT_NONE);
    assert_false(meter_outbox_is_drained(&box.outbox));
    meter_slot_free(&box.outbox.slots, 17);
    assert_int_equal(meter_slot_take(&box.outbox.slots), 17);
    for (uint32_t i = 0; i < COUNT; i++) {
        meter_slot_free(&box.outbox.slots, i);
    }
    assert_int_equal(box.outbox.slots.free_count, COUNT);
    assert_true(meter_outbox_is_drained(&box.outbox));
    box_free(&box);
}


static void
free__twice__counts_once(void **state)
{
    uint32_t index;
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    index = meter_slot_take(&box.outbox.slots);
    meter_slot_free(&box.outbox.slots, index);
    meter_slot_free(&box.outbox.slots, index);
    assert_int_equal(box.outbox.slots.free_count, COUNT);
    box_free(&box);
}


static void
answer__any_size__body_as_given(void **state)
{
    char buffer[METER_SLOT_BODY_SIZE + 1];
    struct box box;
    uint32_t index;
    struct meter_slot *slot;

    (void)state;
    box_init(&box, SIZE);
    index = meter_slot_take(&box.outbox.slots);
    slot = &box.outbox.slots.items[index];
    assert_false(meter_slot_answer(&box.outbox.slots, index,
                                   (struct meter_str){NULL, 0}));
    assert_false(
        meter_slot_answer(&box.outbox.slots, index,
                          filled(buffer, METER_SLOT_BODY_SIZE + 1, 'x')));
    assert_int_equal(slot->state, METER_SLOT_RESERVED);
    for (size_t size = 1; size <= METER_SLOT_BODY_SIZE; size += 13) {
        struct meter_str body = filled(buffer, size, 'a' + (char)(size % 26));

        index = meter_slot_take(&box.outbox.slots);
        slot = &box.outbox.slots.items[index];
        assert_true(meter_slot_answer(&box.outbox.slots, index, body));
        assert_int_equal(slot->state, METER_SLOT_ANSWERED);
        assert_true(meter_str_equal(meter_slot_body(slot), body));
        meter_slot_free(&box.outbox.slots, index);
        assert_int_equal(slot->seq, 0);
        assert_int_equal(slot->operation, 0);
    }
    box_free(&box);
}


/* The one that counts is never written over. */
static void
answer__again__beside_the_first_or_not_at_all(void **state)
{
    static const struct {
        size_t sizes[4];
        size_t expected; /* index of the one that counts at last */
    } cases[] = {
        {{100, 200, 0}, 1},        {{100, 100, 100, 100}, 3},
        {{600, 300, 500, 400}, 3}, {{600, 393, 0}, 0},
        {{600, 392, 0}, 1},        {{992, 1, 0}, 0},
        {{500, 400, 600, 0}, 1},   {{500, 492, 500, 492}, 3},
    };
    struct box box;

    (void)state;
    box_init(&box, SIZE);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t index = meter_slot_take(&box.outbox.slots);
        struct meter_slot *slot = &box.outbox.slots.items[index];
        char buffer[METER_SLOT_BODY_SIZE];
        struct meter_str body;

        for (size_t k = 0; k < 4 && cases[i].sizes[k] > 0; k++) {
            char before[METER_SLOT_BODY_SIZE];
            struct meter_str old = meter_slot_body(slot);

            if (k > 0) {
                memcpy(before, old.data, old.size);
            }
            assert_true(meter_slot_answer(
                &box.outbox.slots, index,
                filled(buffer, cases[i].sizes[k], 'a' + (char)k)));
            if (k > 0) {
                assert_memory_equal(old.data, before, old.size);
            }
        }
        body = meter_slot_body(slot);
        assert_int_equal(body.size, cases[i].sizes[cases[i].expected]);
        assert_int_equal(body.data[0], 'a' + (char)cases[i].expected);
        assert_int_equal(body.data[body.size - 1],
                         'a' + (char)cases[i].expected);
        meter_slot_free(&box.outbox.slots, index);
    }
    box_free(&box);
}


static void
body__damaged_place__is_empty(void **state)
{
    static const uint32_t places[] = {0xffffffff, 993, 992 << 16 | 1,
                                      1 << 16 | 992, 0xffff0000};
    static struct meter_slot slot;

    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        slot.place = places[i];
        assert_int_equal(meter_slot_body(&slot).size, 0);
    }
    slot.place = 992;
    assert_int_equal(meter_slot_body(&slot).size, 992);
    slot.place = 991 << 16 | 1;
    assert_int_equal(meter_slot_body(&slot).size, 1);
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(take__all_of_them__each_once_then_none),
    cmocka_unit_test(free__twice__counts_once),
    cmocka_unit_test(answer__any_size__body_as_given),
    cmocka_unit_test(answer__again__beside_the_first_or_not_at_all),
    cmocka_unit_test(body__damaged_place__is_empty),
};

RUN_TAP(tests)
