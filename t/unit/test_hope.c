/*
 * test_hope.c - when the question for known ids may be skipped.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ingest/hope.h"

static struct hope hope;

static void
ask(unsigned times, size_t known_count)
{
    for (unsigned i = 0; i < times; i++) {
        hope_asked(&hope, known_count);
    }
}

static void
hope__calm_long_enough__allows(void **state)
{
    (void)state;
    hope_init(&hope);
    ask(HOPE_NEEDED_MIN - 1, 0);
    assert_false(hope_allows(&hope));
    ask(1, 0);
    assert_true(hope_allows(&hope));
}

static void
hope__known_id_found__starts_anew(void **state)
{
    (void)state;
    hope_init(&hope);
    ask(HOPE_NEEDED_MIN, 0);
    ask(1, 1);
    assert_false(hope_allows(&hope));
    ask(HOPE_NEEDED_MIN, 0);
    assert_true(hope_allows(&hope));
}

static void
hope__dashed_again_and_again__is_earned_ever_longer_up_to_a_bound(void **state)
{
    (void)state;
    hope_init(&hope);
    for (unsigned needed = 2 * HOPE_NEEDED_MIN; needed <= HOPE_NEEDED_MAX;
         needed *= 2) {
        hope_dashed(&hope);
        ask(needed - 1, 0);
        assert_false(hope_allows(&hope));
        ask(1, 0);
        assert_true(hope_allows(&hope));
    }
    hope_dashed(&hope);
    ask(HOPE_NEEDED_MAX, 0);
    assert_true(hope_allows(&hope));
}

static void
hope__held_for_long__is_earned_sooner_again(void **state)
{
    (void)state;
    hope_init(&hope);
    hope_dashed(&hope);
    for (unsigned i = 0; i < HOPE_NEEDED_MAX; i++) {
        hope_held(&hope);
    }
    ask(HOPE_NEEDED_MIN, 0);
    assert_true(hope_allows(&hope));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hope__calm_long_enough__allows),
        cmocka_unit_test(hope__known_id_found__starts_anew),
        cmocka_unit_test(
            hope__dashed_again_and_again__is_earned_ever_longer_up_to_a_bound),
        cmocka_unit_test(hope__held_for_long__is_earned_sooner_again),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
