#include "meter_cmocka.h"

#include "base/said.h"

#include <stdio.h>
#include <string.h>


static void
said__a_reason_again__is_due_once_a_minute(void **state)
{
    struct said said = {0};

    (void)state;
    assert_true(said_is_due(&said, "no route", 1000));
    assert_false(said_is_due(&said, "no route", 1000));
    assert_false(said_is_due(&said, "no route", 1000 + SAID_EVERY_MS - 1));
    assert_true(said_is_due(&said, "no route", 1000 + SAID_EVERY_MS));
    assert_false(said_is_due(&said, "no route", 1000 + SAID_EVERY_MS + 1));
}


static void
said__two_reasons_by_turns__each_is_due_once_a_minute(void **state)
{
    struct said said = {0};
    int lines = 0;

    (void)state;
    for (uint64_t ms = 0; ms < 10 * SAID_EVERY_MS; ms += 100) {
        lines += said_is_due(&said, ms / 100 % 2 == 0 ? "a" : "b", ms);
    }
    assert_int_equal(lines, 20);
}


static void
said__another_reason__is_due_at_once(void **state)
{
    struct said said = {0};

    (void)state;
    assert_true(said_is_due(&said, "refused", 5));
    assert_true(said_is_due(&said, "starting up", 6));
    assert_false(said_is_due(&said, "refused", 7));
    said_forget(&said);
    assert_true(said_is_due(&said, "refused", 8));
}


/* Reasons with a number in them must not fill the disk. */
static void
said__always_another_reason__is_bounded(void **state)
{
    struct said said = {0};
    int lines = 0;
    char reason[32];

    (void)state;
    for (uint64_t ms = 0; ms < SAID_EVERY_MS; ms += 10) {
        snprintf(reason, sizeof(reason), "number %d", (int)ms);
        lines += said_is_due(&said, reason, ms);
    }
    assert_int_equal(lines, SAID_MAX);
    assert_true(said_is_due(&said, "later", 2 * SAID_EVERY_MS));
}


static void
said__long_and_empty_reasons__are_reasons(void **state)
{
    struct said said = {0};
    char reason[2 * SAID_SIZE_MAX];

    (void)state;
    memset(reason, 'x', sizeof(reason));
    reason[sizeof(reason) - 1] = '\0';
    assert_true(said_is_due(&said, reason, 1));
    assert_false(said_is_due(&said, reason, 2));
    assert_true(said_is_due(&said, "", 3));
    assert_false(said_is_due(&said, "", 4));
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(said__a_reason_again__is_due_once_a_minute),
    cmocka_unit_test(said__two_reasons_by_turns__each_is_due_once_a_minute),
    cmocka_unit_test(said__another_reason__is_due_at_once),
    cmocka_unit_test(said__always_another_reason__is_bounded),
    cmocka_unit_test(said__long_and_empty_reasons__are_reasons),
};

RUN_TAP(tests)
