#include "meter_cmocka.h"

#include "edge/adopt.c"


static void
adopt_is_due__waited__due(void **state)
{
    (void)state;
    assert_true(adopt_is_due(500, ADOPT_WAIT_MS, 500 + ADOPT_WAIT_MS));
    assert_true(adopt_is_due(500, ADOPT_WAIT_MS, 501 + ADOPT_WAIT_MS));
    assert_true(adopt_is_due(500, 0, 500));
}


static void
adopt_is_due__not_waited__not_due(void **state)
{
    (void)state;
    assert_false(adopt_is_due(500, ADOPT_WAIT_MS, 500));
    assert_false(adopt_is_due(500, ADOPT_WAIT_MS, 499 + ADOPT_WAIT_MS));
}


/* A millisecond ended between the look's beginning and the ring. */
static void
adopt_is_due__seen_after_now__not_due(void **state)
{
    (void)state;
    assert_false(adopt_is_due(501, ADOPT_WAIT_MS, 500));
    assert_false(adopt_is_due(501, 0, 500));
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(adopt_is_due__waited__due),
    cmocka_unit_test(adopt_is_due__not_waited__not_due),
    cmocka_unit_test(adopt_is_due__seen_after_now__not_due),
};

RUN_TAP(tests)
