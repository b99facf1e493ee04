/*
 * test_meter_zone_torn.c - what dying and racing workers leave in a zone.
 */

#include "zone_fixture.h"

#include <pthread.h>

#include "meter_crash.h"

static jmp_buf crashed;


/* ---- torn slots ------------------------------------------------------- */

static void
torn__any_bit_of_any_word__is_absent(void **state)
{
    struct meter_zone *zone = new_zone(SMALL);
    struct meter_zone_id id = id_of(7);
    size_t index = make_durable(zone, id, 11, 1);
    uint64_t *words = (uint64_t *)&zone->slots[index];
    bool is_other, is_evicted;

    (void)state;
    for (size_t word = 0; word < 8; word++) {
        for (int bit = 0; bit < 64; bit++) {
            words[word] ^= UINT64_C(1) << bit;
            assert_int_equal(meter_zone_find(zone, &id, 2, &is_other),
                             METER_ZONE_ABSENT);
            assert_false(is_other);
            words[word] ^= UINT64_C(1) << bit;
            assert_int_equal(state_of(zone, id, 2), METER_ZONE_DURABLE);
        }
    }
    words[0]++;
    assert_int_equal(meter_zone_pending(zone, &id, TAG, 12, 3, &is_evicted),
                     index);
    assert_false(is_evicted);
    assert_int_equal(state_of(zone, id, 4), METER_ZONE_PENDING);
}


/* Some words of one writer, the others of another one: all 256 mixtures. */
static void
torn__two_writers__one_of_them_or_absent(void **state)
{
    uint64_t numbers[2], words[2][8], *slot;
    struct meter_zone_id ids[2];
    struct meter_zone *zone;
    bool is_evicted;
    size_t index;

    (void)state;
    numbers_of_one_set(numbers, 2);
    ids[0] = id_of(numbers[0]);
    ids[1] = id_of(numbers[1]);
    ids[1].content = 2;
    zone = new_zone(SMALL);
    index = meter_zone_pending(zone, &ids[0], TAG + 1, 11, 1, &is_evicted);
    slot = (uint64_t *)&zone->slots[index];
    memcpy(words[0], slot, sizeof(words[0]));
    zone = new_zone(SMALL);
    assert_int_equal(make_durable(zone, ids[1], 12, 2), index);
    memcpy(words[1], slot, sizeof(words[1]));

    for (unsigned mask = 0; mask < 256; mask++) {
        for (int i = 0; i < 8; i++) {
            slot[i] = words[mask >> i & 1][i];
        }
        assert_int_equal(state_of(zone, ids[0], 0),
                         mask == 0 ? METER_ZONE_PENDING : METER_ZONE_ABSENT);
        assert_int_equal(state_of(zone, ids[1], 0),
                         mask == 255 ? METER_ZONE_DURABLE : METER_ZONE_ABSENT);
    }
}


static void
crash_now(const char *name)
{
    assert_string_equal(name, "zone_half_written");
    meter_crash_hook = NULL;
    longjmp(crashed, 1);
}


static void
crash__half_written_slot__absent_and_free(void **state)
{
    uint64_t numbers[METER_ZONE_WAYS + 1];
    struct meter_zone *zone;
    struct meter_zone_id late;
    size_t pending, durable, slots;
    bool is_evicted;

    (void)state;
    numbers_of_one_set(numbers, METER_ZONE_WAYS + 1);
    zone = new_zone(SMALL);
    for (size_t i = 0; i < METER_ZONE_WAYS; i++) {
        make_durable(zone, id_of(numbers[i]), i, 1 + i);
    }
    late = id_of(numbers[METER_ZONE_WAYS]);
    meter_crash_hook = crash_now;
    if (setjmp(crashed) == 0) {
        (void)pend(zone, late, 50, 50);
        fail_msg("no crash point in a write");
    }
    assert_int_equal(state_of(zone, late, 0), METER_ZONE_ABSENT);
    assert_int_equal(state_of(zone, id_of(numbers[0]), 0), METER_ZONE_ABSENT);
    meter_zone_count(zone, &pending, &durable, &slots);
    assert_int_equal(pending, 0);
    assert_int_equal(durable, METER_ZONE_WAYS - 1);
    (void)meter_zone_pending(zone, &late, TAG, 51, 51, &is_evicted);
    assert_false(is_evicted);
    assert_int_equal(state_of(zone, late, 0), METER_ZONE_PENDING);
}


static void
crash__while_settling__absent(void **state)
{
    struct meter_zone *zone = new_zone(SMALL);
    size_t index = pend(zone, id_of(7), 1, 1);

    (void)state;
    meter_crash_hook = crash_now;
    if (setjmp(crashed) == 0) {
        meter_zone_settle(zone, index, TAG, 1, true);
        fail_msg("no crash point in settle");
    }
    assert_int_equal(state_of(zone, id_of(7), 2), METER_ZONE_ABSENT);
    make_durable(zone, id_of(7), 2, 3);
    assert_int_equal(state_of(zone, id_of(7), 4), METER_ZONE_DURABLE);
}


/* ---- many ------------------------------------------------------------- */

/* The zone against a set that forgets nothing. */
static void
flood__million_ids__durable_only_when_settled(void **state)
{
    enum { COUNT = 1000000 };
    struct meter_zone *zone = new_zone(LARGE);
    uint8_t *settled = calloc(1, COUNT);
    struct meter_random random = {3};
    size_t pending, durable, slots, known = 0;

    (void)state;
    for (uint64_t i = 0; i < COUNT; i++) {
        size_t index = pend(zone, id_of(i), i, i);
        uint64_t dice = random_below(&random, 8);
        uint64_t past;

        if (dice < 6) {
            settled[i] = dice < 4;
            meter_zone_settle(zone, index, TAG, i, dice < 4);
        }
        /* Some recent one: it may be there; any other one: hardly. */
        past = i - random_below(&random, (dice & 1 ? i : i % 600) + 1);
        if (state_of(zone, id_of(past), i) == METER_ZONE_DURABLE) {
            assert_true(settled[past]);
            known++;
        }
    }
    assert_true(known > COUNT / 20);
    meter_zone_count(zone, &pending, &durable, &slots);
    assert_int_equal(slots, 63 * METER_ZONE_WAYS);
    assert_true(pending + durable <= slots);
    for (size_t i = LARGE; i < sizeof(memory); i++) {
        assert_int_equal(memory[i], 0xa5);
    }
    free(settled);
}


enum { IDS = 96, ROUNDS = 400000 };

static uint8_t allowed[IDS]; /* its transaction has committed */

struct hammer {
    struct meter_zone *zone;
    uint64_t tag;
    bool is_wrong;
    size_t known;
};


/* Even ids become durable, odd ones never; one place in 8 stays pending. */
static void *
hammer(void *asker)
{
    struct hammer *self = asker;
    struct meter_random random = {self->tag};

    for (uint64_t seq = 1; seq <= ROUNDS; seq++) {
        uint64_t number = random_below(&random, IDS);
        struct meter_zone_id id = id_of(number);
        bool is_other, is_evicted;
        size_t index;

        if (meter_zone_find(self->zone, &id, seq, &is_other) ==
            METER_ZONE_DURABLE) {
            self->known++;
            if (!__atomic_load_n(&allowed[number], __ATOMIC_ACQUIRE)) {
                self->is_wrong = true;
            }
            continue;
        }
        if (is_other) {
            self->is_wrong = true;
        }
        index = meter_zone_pending(self->zone, &id, self->tag, seq, seq,
                                   &is_evicted);
        if (random_below(&random, 8) == 0) {
            continue;
        }
        if (number % 2 == 0) {
            __atomic_store_n(&allowed[number], 1, __ATOMIC_RELEASE);
        }
        meter_zone_settle(self->zone, index, self->tag, seq, number % 2 == 0);
    }
    return NULL;
}


static void
threads__same_zone__no_false_durable(void **state)
{
    struct meter_zone *zone = new_zone(SMALL);
    struct hammer hammers[2] = {{zone, 1, false, 0}, {zone, 2, false, 0}};
    pthread_t threads[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, &hammers[i]),
                         0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_false(hammers[i].is_wrong);
        assert_true(hammers[i].known > 0);
    }
    for (uint64_t number = 1; number < IDS; number += 2) {
        assert_int_not_equal(state_of(zone, id_of(number), 0),
                             METER_ZONE_DURABLE);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(torn__any_bit_of_any_word__is_absent),
    cmocka_unit_test(torn__two_writers__one_of_them_or_absent),
    cmocka_unit_test(crash__half_written_slot__absent_and_free),
    cmocka_unit_test(crash__while_settling__absent),
    cmocka_unit_test(flood__million_ids__durable_only_when_settled),
    cmocka_unit_test(threads__same_zone__no_false_durable),
};

RUN_TAP(tests)
