#include "meter_cmocka.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>


static void
log_repeat__a_reason_again__is_due_once_a_minute(void **state)
{
    struct log_repeat repeat = {0};

    (void)state;
    assert_true(log_repeat_is_due(&repeat, "no route", 1000));
    assert_false(log_repeat_is_due(&repeat, "no route", 1000));
    assert_false(
        log_repeat_is_due(&repeat, "no route", 1000 + LOG_REPEAT_EVERY_MS - 1));
    assert_true(
        log_repeat_is_due(&repeat, "no route", 1000 + LOG_REPEAT_EVERY_MS));
    assert_false(
        log_repeat_is_due(&repeat, "no route", 1000 + LOG_REPEAT_EVERY_MS + 1));
}


static void
log_repeat__two_reasons_by_turns__each_is_due_once_a_minute(void **state)
{
    struct log_repeat repeat = {0};
    int lines = 0;

    (void)state;
    for (uint64_t ms = 0; ms < 10 * LOG_REPEAT_EVERY_MS; ms += 100) {
        lines += log_repeat_is_due(&repeat, ms / 100 % 2 == 0 ? "a" : "b", ms);
    }
    assert_int_equal(lines, 20);
}


static void
log_repeat__another_reason__is_due_at_once(void **state)
{
    struct log_repeat repeat = {0};

    (void)state;
    assert_true(log_repeat_is_due(&repeat, "refused", 5));
    assert_true(log_repeat_is_due(&repeat, "starting up", 6));
    assert_false(log_repeat_is_due(&repeat, "refused", 7));
    log_repeat_forget(&repeat);
    assert_true(log_repeat_is_due(&repeat, "refused", 8));
}


/* Reasons with a number in them must not fill the disk. */
static void
log_repeat__always_another_reason__is_bounded(void **state)
{
    struct log_repeat repeat = {0};
    int lines = 0;
    char reason[32];

    (void)state;
    for (uint64_t ms = 0; ms < LOG_REPEAT_EVERY_MS; ms += 10) {
        snprintf(reason, sizeof(reason), "number %d", (int)ms);
        lines += log_repeat_is_due(&repeat, reason, ms);
    }
    assert_int_equal(lines, LOG_REPEAT_MAX);
    assert_true(log_repeat_is_due(&repeat, "later", 2 * LOG_REPEAT_EVERY_MS));
}


static void
log_repeat__long_and_empty_reasons__are_reasons(void **state)
{
    struct log_repeat repeat = {0};
    char reason[2 * LOG_REPEAT_SIZE_MAX];

    (void)state;
    memset(reason, 'x', sizeof(reason));
    reason[sizeof(reason) - 1] = '\0';
    assert_true(log_repeat_is_due(&repeat, reason, 1));
    assert_false(log_repeat_is_due(&repeat, reason, 2));
    assert_true(log_repeat_is_due(&repeat, "", 3));
    assert_false(log_repeat_is_due(&repeat, "", 4));
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(log_repeat__a_reason_again__is_due_once_a_minute),
    cmocka_unit_test(
        log_repeat__two_reasons_by_turns__each_is_due_once_a_minute),
    cmocka_unit_test(log_repeat__another_reason__is_due_at_once),
    cmocka_unit_test(log_repeat__always_another_reason__is_bounded),
    cmocka_unit_test(log_repeat__long_and_empty_reasons__are_reasons),
};

RUN_TAP(tests)
