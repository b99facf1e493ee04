#include "zone_fixture.h"


/* ---- the memory ------------------------------------------------------- */

static void
format__too_small__is_refused(void **state)
{
    (void)state;
    assert_null(meter_zone_format(memory, METER_ZONE_SIZE_MIN - 1, secret));
    assert_non_null(meter_zone_format(memory, METER_ZONE_SIZE_MIN, secret));
}


static void
open__only_the_same_layout__is_taken(void **state)
{
    struct meter_zone *zone = new_zone(LARGE);
    size_t pending, durable, slots;

    (void)state;
    make_durable(zone, id_of(1), 1, 1);
    assert_ptr_equal(meter_zone_open(memory, LARGE), zone);
    assert_int_equal(state_of(zone, id_of(1), 2), METER_ZONE_DURABLE);
    assert_null(meter_zone_open(memory, LARGE - 4096));
    assert_null(meter_zone_open(memory, 64));
    meter_zone_count(zone, &pending, &durable, &slots);
    assert_int_equal(slots, 63 * METER_ZONE_WAYS);
    zone->magic ^= 1;
    assert_null(meter_zone_open(memory, LARGE));
    memset(memory, 0, LARGE);
    assert_null(meter_zone_open(memory, LARGE));
}


/* ---- identity --------------------------------------------------------- */

static struct meter_zone_id
named(const struct meter_zone *zone, const char *tenant, const char *event_id,
      const char *type, const char *customer, const char *resource)
{
    struct meter_zone_id id;

    meter_zone_id(zone, str_of(tenant), str_of(event_id), str_of(type),
                  customer == NULL ? (struct meter_str){0} : str_of(customer),
                  resource == NULL ? (struct meter_str){0} : str_of(resource),
                  &id);
    return id;
}


static bool
same_key(struct meter_zone_id a, struct meter_zone_id b)
{
    return a.key[0] == b.key[0] && a.key[1] == b.key[1];
}


/* siphash128 by another implementation over u32 lengths and bytes. */
static void
id__known_event__frozen_bytes(void **state)
{
    struct meter_zone_id id =
        named(new_zone(SMALL), "acme", "e-1", "api", "c1", NULL);

    (void)state;
    assert_true(id.key[0] == UINT64_C(0x6d6b264222fdb8a9));
    assert_true(id.key[1] == UINT64_C(0xa23aa92a5f1e5c83));
    assert_true(id.content == UINT64_C(0x3f484817c1e1425f));
}


static void
id__key_and_content__cover_their_fields(void **state)
{
    struct meter_zone *zone = new_zone(SMALL);
    struct meter_zone_id id = named(zone, "t", "e", "type", "c", "r");
    struct meter_zone_id other;
    uint8_t other_secret[16] = {1};

    (void)state;
    assert_false(same_key(id, named(zone, "T", "e", "type", "c", "r")));
    assert_false(same_key(id, named(zone, "t", "E", "type", "c", "r")));
    assert_false(same_key(id, named(zone, "te", "", "type", "c", "r")));
    assert_false(same_key(id, named(zone, "", "te", "type", "c", "r")));
    other = named(zone, "t", "e", "Type", "C", "R");
    assert_true(same_key(id, other));
    assert_true(id.content != other.content);
    assert_true(id.content != named(zone, "t", "e", "typ", "ec", "r").content);
    assert_true(id.content != named(zone, "t", "e", "type", "cr", "").content);
    assert_true(id.content ==
                named(zone, "t2", "e2", "type", "c", "r").content);
    assert_true(named(zone, "t", "e", "type", NULL, NULL).content ==
                named(zone, "t", "e", "type", "", "").content);

    zone = meter_zone_format(memory, SMALL, other_secret);
    other = named(zone, "t", "e", "type", "c", "r");
    assert_true(id.key[0] != other.key[0] && id.key[1] != other.key[1]);
    assert_true(id.content != other.content);
}


static void
id__long_strings__each_byte_counts(void **state)
{
    static char text[5001], last[5001];
    struct meter_zone *zone = new_zone(SMALL);

    (void)state;
    for (size_t size = 250; size <= 5000; size += size < 260 ? 1 : 237) {
        struct meter_zone_id id;

        memset(text, 'x', size);
        text[size] = '\0';
        memcpy(last, text, size + 1);
        last[size - 1] = 'y';
        id = named(zone, text, text, text, text, text);
        assert_false(same_key(id, named(zone, last, text, "", "", "")));
        assert_false(same_key(id, named(zone, text, last, "", "", "")));
        assert_true(id.content !=
                    named(zone, text, text, text, text, last).content);
        assert_true(id.content !=
                    named(zone, text, text, text, text, text + 1).content);
        assert_true(same_key(id, named(zone, text, text, "", "", "")));
    }
}


/* ---- states ----------------------------------------------------------- */

static void
states__forwarded_then_settled__durable(void **state)
{
    struct meter_zone *zone = new_zone(SMALL);
    struct meter_zone_id id = id_of(7);
    size_t index, pending, durable, slots;

    (void)state;
    assert_int_equal(state_of(zone, id, 1), METER_ZONE_ABSENT);
    index = pend(zone, id, 11, 1);
    assert_int_equal(state_of(zone, id, 2), METER_ZONE_PENDING);
    meter_zone_count(zone, &pending, &durable, &slots);
    assert_int_equal(pending, 1);
    assert_int_equal(durable, 0);

    meter_zone_settle(zone, index, TAG, 11, true);
    assert_int_equal(state_of(zone, id, 3), METER_ZONE_DURABLE);
    meter_zone_count(zone, &pending, &durable, &slots);
    assert_int_equal(pending, 0);
    assert_int_equal(durable, 1);
    assert_int_equal(slots, 7 * METER_ZONE_WAYS);
}


static void
settle__not_durable__forgets(void **state)
{
    struct meter_zone *zone = new_zone(SMALL);
    struct meter_zone_id id = id_of(7);
    size_t index = pend(zone, id, 11, 1);

    (void)state;
    meter_zone_settle(zone, index, TAG, 11, false);
    assert_int_equal(state_of(zone, id, 2), METER_ZONE_ABSENT);
    meter_zone_settle(zone, index, TAG, 11, true);
    assert_int_equal(state_of(zone, id, 3), METER_ZONE_ABSENT);
    make_durable(zone, id, 12, 4);
    assert_int_equal(state_of(zone, id, 5), METER_ZONE_DURABLE);
}


static void
settle__another_record_there_by_now__is_left_alone(void **state)
{
    struct meter_zone *zone = new_zone(SMALL);
    struct meter_zone_id id = id_of(7);
    size_t index = pend(zone, id, 11, 1);

    (void)state;
    assert_int_equal(pend(zone, id, 12, 2), index);
    meter_zone_settle(zone, index, TAG, 11, true);
    assert_int_equal(state_of(zone, id, 3), METER_ZONE_PENDING);
    meter_zone_settle(zone, index, TAG, 11, false);
    meter_zone_settle(zone, index, TAG + 1, 12, true);
    meter_zone_settle(zone, index, TAG + 1, 12, false);
    meter_zone_settle(zone, index + 1, TAG, 12, true);
    meter_zone_settle(zone, SIZE_MAX, TAG, 12, true);
    meter_zone_settle(zone, (size_t)1 << 40, TAG, 12, true);
    meter_zone_settle(zone, 7 * METER_ZONE_WAYS, TAG, 12, true);
    assert_int_equal(state_of(zone, id, 4), METER_ZONE_PENDING);

    /* A verdict that is told again does not undo the first. */
    meter_zone_settle(zone, index, TAG, 12, true);
    meter_zone_settle(zone, index, TAG, 12, false);
    assert_int_equal(state_of(zone, id, 5), METER_ZONE_DURABLE);
}


static void
pending__durable_already__stays_durable(void **state)
{
    struct meter_zone *zone = new_zone(SMALL);
    struct meter_zone_id id = id_of(7), other = id;
    bool is_other, is_evicted = true;
    size_t index = make_durable(zone, id, 11, 1);

    (void)state;
    assert_int_equal(meter_zone_pending(zone, &id, TAG, 12, 2, &is_evicted),
                     index);
    assert_false(is_evicted);
    assert_int_equal(state_of(zone, id, 3), METER_ZONE_DURABLE);
    meter_zone_settle(zone, index, TAG, 12, false);
    assert_int_equal(state_of(zone, id, 4), METER_ZONE_DURABLE);

    /* The registry holds the first content: the other one is a conflict. */
    other.content = 2;
    index = pend(zone, other, 13, 5);
    meter_zone_settle(zone, index, TAG, 13, false);
    assert_int_equal(state_of(zone, id, 6), METER_ZONE_DURABLE);
    assert_int_equal(meter_zone_find(zone, &other, 7, &is_other),
                     METER_ZONE_ABSENT);
    assert_true(is_other);
}


static void
find__other_content__absent_and_said_so(void **state)
{
    struct meter_zone *zone = new_zone(SMALL);
    struct meter_zone_id id = id_of(7), other = id;
    bool is_other = true;
    size_t index;

    (void)state;
    other.content = 2;
    assert_int_equal(meter_zone_find(zone, &other, 1, &is_other),
                     METER_ZONE_ABSENT);
    assert_false(is_other);
    index = pend(zone, id, 11, 1);
    assert_int_equal(meter_zone_find(zone, &other, 2, &is_other),
                     METER_ZONE_ABSENT);
    assert_true(is_other);
    meter_zone_settle(zone, index, TAG, 11, true);
    assert_int_equal(meter_zone_find(zone, &other, 3, &is_other),
                     METER_ZONE_ABSENT);
    assert_true(is_other);
    assert_int_equal(meter_zone_find(zone, &id, 4, &is_other),
                     METER_ZONE_DURABLE);
    assert_false(is_other);

    /* Of two contents that are pending the later one is noted. */
    zone = new_zone(SMALL);
    index = pend(zone, id, 11, 1);
    assert_int_equal(pend(zone, other, 12, 2), index);
    assert_int_equal(state_of(zone, other, 3), METER_ZONE_PENDING);
    assert_int_equal(meter_zone_find(zone, &id, 3, &is_other),
                     METER_ZONE_ABSENT);
    assert_true(is_other);
}


/* Two workers that note one id at the same time may take two slots. */
static void
find__noted_twice__best_answer_of_both(void **state)
{
    struct meter_zone_id id = id_of(7), other = id;
    bool is_other = true;

    (void)state;
    other.content = 2;
    for (size_t order = 0; order < 2; order++) {
        struct meter_zone *zone = new_zone(SMALL);
        size_t first = pend(zone, other, 11, 1);
        size_t index = first + order;
        struct meter_zone_slot copy = zone->slots[first];

        assert_int_equal(pend(zone, id, 12, 2), first);
        zone->slots[index] = zone->slots[first];
        zone->slots[first + !order] = copy;
        assert_int_equal(meter_zone_find(zone, &id, 3, &is_other),
                         METER_ZONE_PENDING);
        assert_false(is_other);
        assert_int_equal(meter_zone_find(zone, &other, 3, &is_other),
                         METER_ZONE_PENDING);
        assert_false(is_other);

        meter_zone_settle(zone, index, TAG, 12, true);
        assert_int_equal(pend(zone, id, 13, 4), index);
        assert_int_equal(pend(zone, other, 14, 4), index);
        assert_int_equal(meter_zone_find(zone, &id, 5, &is_other),
                         METER_ZONE_DURABLE);
        assert_false(is_other);
    }
}


/* Half a key is no key. */
static void
find__one_word_of_the_key__is_another_id(void **state)
{
    struct meter_zone *zone = new_zone(SMALL);
    struct meter_zone_id id = id_of(7), near;
    bool is_other;

    (void)state;
    make_durable(zone, id, 1, 1);
    for (int half = 0; half < 2; half++) {
        for (uint64_t i = 1; i < 100; i++) {
            near = id;
            near.key[half] += i;
            assert_int_equal(meter_zone_find(zone, &near, 2, &is_other),
                             METER_ZONE_ABSENT);
            assert_false(is_other);
        }
    }
}


/* ---- eviction --------------------------------------------------------- */

static void
eviction__full_set__least_recently_touched_goes(void **state)
{
    enum { SPARE = 4 };
    uint64_t numbers[METER_ZONE_WAYS + SPARE];
    struct meter_zone *zone;
    bool is_evicted;

    (void)state;
    numbers_of_one_set(numbers, METER_ZONE_WAYS + SPARE);
    zone = new_zone(SMALL);
    for (size_t i = 0; i < METER_ZONE_WAYS; i++) {
        struct meter_zone_id id = id_of(numbers[i]);

        meter_zone_settle(
            zone, meter_zone_pending(zone, &id, TAG, i, 100 + i, &is_evicted),
            TAG, i, true);
        assert_false(is_evicted);
    }
    /* The two oldest are asked for: then the third is the one to go. */
    assert_int_equal(state_of(zone, id_of(numbers[0]), 200),
                     METER_ZONE_DURABLE);
    assert_int_equal(pend(zone, id_of(numbers[1]), 90, 201) / METER_ZONE_WAYS,
                     pend(zone, id_of(numbers[0]), 91, 202) / METER_ZONE_WAYS);
    for (size_t i = 0; i < SPARE; i++) {
        struct meter_zone_id id = id_of(numbers[METER_ZONE_WAYS + i]);

        (void)meter_zone_pending(zone, &id, TAG, 50 + i, 300 + i, &is_evicted);
        assert_true(is_evicted);
        for (size_t j = 0; j < METER_ZONE_WAYS; j++) {
            bool is_gone = j >= 2 && j <= 2 + i;

            /* A stamp of the past: looking changes nothing. */
            assert_int_equal(state_of(zone, id_of(numbers[j]), 0),
                             is_gone ? METER_ZONE_ABSENT : METER_ZONE_DURABLE);
        }
    }
}


/* A hit on a young slot writes nothing; the map stays clean. */
static void
find__young_slot__is_not_written(void **state)
{
    static uint8_t before[SMALL];
    uint64_t numbers[METER_ZONE_WAYS];
    struct meter_zone *zone;

    (void)state;
    numbers_of_one_set(numbers, METER_ZONE_WAYS);
    zone = new_zone(SMALL);
    for (size_t i = 0; i < METER_ZONE_WAYS; i++) {
        make_durable(zone, id_of(numbers[i]), i, 100 + i);
    }
    memcpy(before, memory, SMALL);
    for (size_t i = METER_ZONE_WAYS / 2; i < METER_ZONE_WAYS; i++) {
        (void)state_of(zone, id_of(numbers[i]), 1000);
    }
    assert_memory_equal(before, memory, SMALL);
    assert_int_equal(state_of(zone, id_of(numbers[3]), 1000),
                     METER_ZONE_DURABLE);
    assert_memory_not_equal(before, memory, SMALL);
    assert_int_equal(state_of(zone, id_of(numbers[3]), 1000),
                     METER_ZONE_DURABLE);
}


static void
pending__free_slot_in_the_set__nobody_is_evicted(void **state)
{
    uint64_t numbers[METER_ZONE_WAYS + 1];
    struct meter_zone *zone;
    struct meter_zone_id id;
    bool is_evicted = true;
    size_t index = 0;

    (void)state;
    numbers_of_one_set(numbers, METER_ZONE_WAYS + 1);
    for (size_t hole = 0; hole < METER_ZONE_WAYS; hole++) {
        zone = new_zone(SMALL);
        for (size_t i = 0; i < METER_ZONE_WAYS; i++) {
            size_t at = pend(zone, id_of(numbers[i]), i, 100 + i);

            index = i == hole ? at : index;
        }
        meter_zone_settle(zone, index, TAG, hole, false);
        /* The same id before the free slot, wherever that is. */
        id = id_of(numbers[(hole + 1) % METER_ZONE_WAYS]);
        assert_int_not_equal(
            meter_zone_pending(zone, &id, TAG, 70, 200, &is_evicted), index);
        assert_false(is_evicted);
        id = id_of(numbers[METER_ZONE_WAYS]);
        assert_int_equal(
            meter_zone_pending(zone, &id, TAG, 71, 201, &is_evicted), index);
        assert_false(is_evicted);
    }
}


static void
collisions__thousand_ids_in_one_set__eight_stay(void **state)
{
    enum { COUNT = 1000 };
    static uint64_t numbers[COUNT];
    struct meter_zone *zone;
    uint64_t stranger = 0;
    size_t set, pending, durable, slots;

    (void)state;
    numbers_of_one_set(numbers, COUNT);
    zone = new_zone(SMALL);
    set = pend(zone, id_of(numbers[0]), 1, 1) / METER_ZONE_WAYS;
    while (pend(zone, id_of(stranger), 1, 1) / METER_ZONE_WAYS == set) {
        stranger++;
    }
    make_durable(zone, id_of(stranger), 2, 1);
    for (size_t i = 0; i < COUNT; i++) {
        make_durable(zone, id_of(numbers[i]), i, 2 + i);
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(state_of(zone, id_of(numbers[i]), 0),
                         i < COUNT - METER_ZONE_WAYS ? METER_ZONE_ABSENT
                                                     : METER_ZONE_DURABLE);
    }
    assert_int_equal(state_of(zone, id_of(stranger), 0), METER_ZONE_DURABLE);
    meter_zone_count(zone, &pending, &durable, &slots);
    assert_int_equal(durable, METER_ZONE_WAYS + 1);
}


/* ---- epochs ----------------------------------------------------------- */

static void
epoch__another_one__everything_is_absent(void **state)
{
    static const uint64_t epochs[] = {5,          6, 5, UINT64_C(5) << 60 | 5,
                                      UINT64_MAX, 0};
    struct meter_zone *zone = new_zone(SMALL);
    size_t pending, durable, slots;

    (void)state;
    for (size_t i = 0; i < sizeof(epochs) / sizeof(epochs[0]); i++) {
        make_durable(zone, id_of(1), i, i);
        (void)pend(zone, id_of(2), i, i);
        meter_zone_epoch(zone, epochs[i]);
        assert_int_equal(state_of(zone, id_of(1), i), METER_ZONE_ABSENT);
        assert_int_equal(state_of(zone, id_of(2), i), METER_ZONE_ABSENT);
        meter_zone_count(zone, &pending, &durable, &slots);
        assert_int_equal(pending + durable, 0);
        assert_true(zone->epoch == epochs[i]);
    }
    make_durable(zone, id_of(1), 9, 9);
    meter_zone_epoch(zone, 0);
    assert_int_equal(state_of(zone, id_of(1), 9), METER_ZONE_DURABLE);
    meter_zone_forget(zone);
    assert_int_equal(state_of(zone, id_of(1), 9), METER_ZONE_ABSENT);
    assert_true(zone->epoch == 0);
}


/* Whoever changes the epoch may be held up, or die, after forgetting. */
static void
epoch__being_changed__notes_made_meanwhile_do_not_stay(void **state)
{
    static const uint64_t epochs[] = {6, 1 << 20, UINT64_C(1) << 63};

    (void)state;
    for (size_t i = 0; i < sizeof(epochs) / sizeof(epochs[0]); i++) {
        struct meter_zone *zone = new_zone(SMALL);

        meter_zone_forget(zone);
        make_durable(zone, id_of(1), 1, 1);
        zone->epoch = epochs[i];
        assert_int_equal(state_of(zone, id_of(1), 2), METER_ZONE_ABSENT);
    }
}


static void
settle__verdict_of_an_earlier_epoch__is_ignored(void **state)
{
    struct meter_zone *zone = new_zone(SMALL);
    size_t index = pend(zone, id_of(1), 1, 1);

    (void)state;
    meter_zone_epoch(zone, 6);
    meter_zone_settle(zone, index, TAG, 1, true);
    assert_int_equal(state_of(zone, id_of(1), 2), METER_ZONE_ABSENT);
    meter_zone_epoch(zone, 0);
    assert_int_equal(state_of(zone, id_of(1), 2), METER_ZONE_ABSENT);
}


static void
pending__slot_of_an_earlier_epoch__is_free(void **state)
{
    uint64_t numbers[2 * METER_ZONE_WAYS];
    struct meter_zone *zone;
    bool is_evicted;

    (void)state;
    numbers_of_one_set(numbers, 2 * METER_ZONE_WAYS);
    zone = new_zone(SMALL);
    for (size_t i = 0; i < 2 * METER_ZONE_WAYS; i++) {
        struct meter_zone_id id = id_of(numbers[i]);

        if (i == METER_ZONE_WAYS) {
            meter_zone_epoch(zone, 1);
        }
        /* Younger stamps in the old epoch do not protect. */
        (void)meter_zone_pending(zone, &id, TAG, i, 100 - i, &is_evicted);
        assert_false(is_evicted);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(format__too_small__is_refused),
    cmocka_unit_test(open__only_the_same_layout__is_taken),
    cmocka_unit_test(id__known_event__frozen_bytes),
    cmocka_unit_test(id__key_and_content__cover_their_fields),
    cmocka_unit_test(id__long_strings__each_byte_counts),
    cmocka_unit_test(states__forwarded_then_settled__durable),
    cmocka_unit_test(settle__not_durable__forgets),
    cmocka_unit_test(settle__another_record_there_by_now__is_left_alone),
    cmocka_unit_test(pending__durable_already__stays_durable),
    cmocka_unit_test(find__other_content__absent_and_said_so),
    cmocka_unit_test(find__noted_twice__best_answer_of_both),
    cmocka_unit_test(find__one_word_of_the_key__is_another_id),
    cmocka_unit_test(eviction__full_set__least_recently_touched_goes),
    cmocka_unit_test(find__young_slot__is_not_written),
    cmocka_unit_test(pending__free_slot_in_the_set__nobody_is_evicted),
    cmocka_unit_test(collisions__thousand_ids_in_one_set__eight_stay),
    cmocka_unit_test(epoch__another_one__everything_is_absent),
    cmocka_unit_test(epoch__being_changed__notes_made_meanwhile_do_not_stay),
    cmocka_unit_test(settle__verdict_of_an_earlier_epoch__is_ignored),
    cmocka_unit_test(pending__slot_of_an_earlier_epoch__is_free),
};

RUN_TAP(tests)
