#include "meter_cmocka.h"

#include "meter_random.h"
#include "series/rollup.c"

#define MARKS_MAX 20000


static void
rollup_quarantine__first_failures__same_batch_again(void **state)
{
    struct rollup_quarantine quarantine;

    (void)state;
    rollup_quarantine_init(&quarantine);
    assert_false(rollup_quarantine_is_careful(&quarantine));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rollup_quarantine_failed(&quarantine, 100, 7, 0),
                         ROLLUP_AGAIN);
        assert_int_equal(quarantine.limit, ROLLUP_BATCH_MARKS);
    }
    assert_int_equal(rollup_quarantine_failed(&quarantine, 100, 7, 0),
                     ROLLUP_SMALLER);
    assert_int_equal(quarantine.limit, 50);
    assert_true(rollup_quarantine_is_careful(&quarantine));
}


/* Before that its id is not known. */
static void
rollup_quarantine__only_mark__asked_for_alone_first(void **state)
{
    struct rollup_quarantine quarantine;

    (void)state;
    rollup_quarantine_init(&quarantine);
    (void)rollup_quarantine_failed(&quarantine, 1, -1, 0);
    (void)rollup_quarantine_failed(&quarantine, 1, -1, 0);
    assert_int_equal(rollup_quarantine_failed(&quarantine, 1, -1, 0),
                     ROLLUP_SMALLER);
    assert_int_equal(quarantine.limit, 1);
    assert_int_equal(rollup_quarantine_failed(&quarantine, 1, 7, 5),
                     ROLLUP_QUARANTINED);
    assert_int_equal(quarantine.count, 1);
    assert_int_equal(quarantine.ids[0], 7);
}


static void
rollup_quarantine__done__larger_then_calm(void **state)
{
    struct rollup_quarantine quarantine;
    int batches = 0;

    (void)state;
    rollup_quarantine_init(&quarantine);
    quarantine.limit = 1;
    quarantine.failures = 9;
    while (rollup_quarantine_is_careful(&quarantine) && batches < 100) {
        rollup_quarantine_done(&quarantine);
        batches++;
    }
    assert_int_equal(batches, 13);
    assert_int_equal(quarantine.limit, ROLLUP_BATCH_MARKS);
    assert_int_equal(rollup_quarantine_failed(&quarantine, 10, 1, 0),
                     ROLLUP_AGAIN);
}


static void
rollup_quarantine__too_many__again(void **state)
{
    struct rollup_quarantine quarantine;

    (void)state;
    rollup_quarantine_init(&quarantine);
    quarantine.limit = 1;
    quarantine.failures = 2;
    for (int i = 0; i < ROLLUP_QUARANTINE_MAX; i++) {
        assert_int_equal(rollup_quarantine_failed(&quarantine, 1, i, 0),
                         ROLLUP_QUARANTINED);
    }
    assert_int_equal(rollup_quarantine_failed(&quarantine, 1, 999, 0),
                     ROLLUP_AGAIN);
    assert_int_equal(quarantine.count, ROLLUP_QUARANTINE_MAX);
}


static void
rollup_quarantine_retry__after_its_time__all_are_tried(void **state)
{
    struct rollup_quarantine quarantine;

    (void)state;
    rollup_quarantine_init(&quarantine);
    quarantine.limit = 1;
    quarantine.failures = 2;
    (void)rollup_quarantine_failed(&quarantine, 1, 7, 1000);
    (void)rollup_quarantine_failed(&quarantine, 1, 8, 2000);
    rollup_quarantine_retry(&quarantine, 999 + ROLLUP_QUARANTINE_MS);
    assert_int_equal(quarantine.count, 2);
    rollup_quarantine_retry(&quarantine, 1000 + ROLLUP_QUARANTINE_MS);
    assert_int_equal(quarantine.count, 0);
}


static bool
is_quarantined(const struct rollup_quarantine *quarantine, int64_t id)
{
    for (size_t i = 0; i < quarantine->count; i++) {
        if (quarantine->ids[i] == id) {
            return true;
        }
    }
    return false;
}


/* One batch from the front; gives back whether something was taken. */
static bool
batch(struct rollup_quarantine *quarantine, const bool *is_bad, bool *is_done,
      size_t marks)
{
    size_t taken[ROLLUP_BATCH_MARKS];
    size_t count = 0;
    bool is_refused = false;

    for (size_t i = 0; i < marks && count < quarantine->limit; i++) {
        if (!is_done[i] && !is_quarantined(quarantine, (int64_t)i)) {
            taken[count++] = i;
            is_refused |= is_bad[i];
        }
    }
    if (count == 0) {
        return false;
    }
    if (is_refused) {
        (void)rollup_quarantine_failed(quarantine, count, (int64_t)taken[0], 0);
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        is_done[taken[i]] = true;
    }
    rollup_quarantine_done(quarantine);
    return true;
}


static void
rollup_quarantine__random_marks__those_refused_are_left(void **state)
{
    static bool is_bad[MARKS_MAX];
    static bool is_done[MARKS_MAX];
    struct meter_random random = {20};

    (void)state;
    for (int round = 0; round < 200; round++) {
        size_t marks = 1 + random_below(&random, MARKS_MAX);
        size_t bad = random_below(&random, 20);
        struct rollup_quarantine quarantine;
        int batches = 0;

        memset(is_bad, 0, sizeof(is_bad));
        memset(is_done, 0, sizeof(is_done));
        for (size_t i = 0; i < bad; i++) {
            is_bad[random_below(&random, marks)] = true;
        }
        rollup_quarantine_init(&quarantine);
        while (batch(&quarantine, is_bad, is_done, marks)) {
            assert_true(++batches < 1000);
        }
        for (size_t i = 0; i < marks; i++) {
            assert_int_equal(is_done[i], !is_bad[i]);
            assert_int_equal(is_quarantined(&quarantine, (int64_t)i),
                             is_bad[i]);
        }
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rollup_quarantine__first_failures__same_batch_again),
    cmocka_unit_test(rollup_quarantine__only_mark__asked_for_alone_first),
    cmocka_unit_test(rollup_quarantine__done__larger_then_calm),
    cmocka_unit_test(rollup_quarantine__too_many__again),
    cmocka_unit_test(rollup_quarantine_retry__after_its_time__all_are_tried),
    cmocka_unit_test(rollup_quarantine__random_marks__those_refused_are_left),
};

RUN_TAP(tests)
