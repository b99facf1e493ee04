/*
 * test_lookup_skip.c - when the question for known ids may be skipped.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ingest/lookup_skip.h"

static struct lookup_skip skip;

static void
ask(unsigned times, size_t known_count)
{
    for (unsigned i = 0; i < times; i++) {
        lookup_skip_asked(&skip, known_count);
    }
}

static void
lookup_skip__calm_long_enough__allows(void **state)
{
    (void)state;
    lookup_skip_init(&skip);
    ask(LOOKUP_SKIP_NEEDED_MIN - 1, 0);
    assert_false(lookup_skip_allows(&skip));
    ask(1, 0);
    assert_true(lookup_skip_allows(&skip));
}

static void
lookup_skip__known_id_found__starts_anew(void **state)
{
    (void)state;
    lookup_skip_init(&skip);
    ask(LOOKUP_SKIP_NEEDED_MIN, 0);
    ask(1, 1);
    assert_false(lookup_skip_allows(&skip));
    ask(LOOKUP_SKIP_NEEDED_MIN, 0);
    assert_true(lookup_skip_allows(&skip));
}

static void
lookup_skip__dashed_again_and_again__is_earned_ever_longer_up_to_a_bound(void **state)
{
    (void)state;
    lookup_skip_init(&skip);
    for (unsigned needed = 2 * LOOKUP_SKIP_NEEDED_MIN; needed <= LOOKUP_SKIP_NEEDED_MAX;
         needed *= 2) {
        lookup_skip_failed(&skip);
        ask(needed - 1, 0);
        assert_false(lookup_skip_allows(&skip));
        ask(1, 0);
        assert_true(lookup_skip_allows(&skip));
    }
    lookup_skip_failed(&skip);
    ask(LOOKUP_SKIP_NEEDED_MAX, 0);
    assert_true(lookup_skip_allows(&skip));
}

static void
lookup_skip__held_for_long__is_earned_sooner_again(void **state)
{
    (void)state;
    lookup_skip_init(&skip);
    lookup_skip_failed(&skip);
    for (unsigned i = 0; i < LOOKUP_SKIP_NEEDED_MAX; i++) {
        lookup_skip_held(&skip);
    }
    ask(LOOKUP_SKIP_NEEDED_MIN, 0);
    assert_true(lookup_skip_allows(&skip));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookup_skip__calm_long_enough__allows),
        cmocka_unit_test(lookup_skip__known_id_found__starts_anew),
        cmocka_unit_test(
            lookup_skip__dashed_again_and_again__is_earned_ever_longer_up_to_a_bound),
        cmocka_unit_test(lookup_skip__held_for_long__is_earned_sooner_again),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
