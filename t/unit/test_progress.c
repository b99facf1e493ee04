/*
 * test_progress.c - what a person who waits is told.
 */

#include "meter_cmocka.h"

#include "base/progress.h"

static const struct progress_figures half = {
    .doing = "counters",
    .unit = "events",
    .total = 2000000,
    .done = 1000000,
    .elapsed_ms = 10000,
};

static const char *
bar(struct progress_figures figures, size_t width)
{
    static char text[PROGRESS_TEXT_SIZE];
    size_t size = progress_format_bar(&figures, width, text);

    assert_int_equal(size, strlen(text));
    assert_true(size <= width);
    return text;
}

static const char *
line(struct progress_figures figures)
{
    static char text[PROGRESS_TEXT_SIZE];
    size_t size = progress_format_line(&figures, text);

    assert_int_equal(size, strlen(text));
    return text;
}

static void
bar__with_a_total__has_percent_rate_and_time(void **state)
{
    (void)state;
    assert_string_equal(bar(half, 60), "counters  [==========>          ]   50%"
                                       "  100000/s  0:10 left");
    assert_string_equal(bar(half, 200),
                        "counters  [====================>                   ]"
                        "   50%  100000/s  0:10 left");
}

static void
bar__at_its_ends__is_empty_and_full(void **state)
{
    struct progress_figures figures = half;

    (void)state;
    figures.done = 0;
    assert_string_equal(bar(figures, 50),
                        "counters  [>                               ]    0%");
    figures.done = figures.total;
    assert_string_equal(bar(figures, 55), "counters  [================]  100%"
                                          "  200000/s  0:00 left");
}

static void
bar__without_a_total__counts(void **state)
{
    struct progress_figures figures = half;

    (void)state;
    figures.total = 0;
    assert_string_equal(bar(figures, 80),
                        "counters  1000000 events  100000/s  0:10");
    figures.total = 999999; /* there were more than expected */
    assert_string_equal(bar(figures, 80),
                        "counters  1000000 events  100000/s  0:10");
}

static void
bar__at_any_width__fits(void **state)
{
    struct progress_figures figures = half;

    (void)state;
    for (size_t width = 0; width < 300; width++) {
        char text[PROGRESS_TEXT_SIZE];
        size_t size = progress_format_bar(&figures, width, text);

        assert_true(size <= width && size < sizeof(text));
        assert_int_equal(size, strlen(text));
    }
    assert_string_equal(bar(half, 45), "counters   50%  100000/s  0:10 left");
    assert_string_equal(bar(half, 12), "counters   5");
    assert_string_equal(bar(half, 0), "");
}

static void
time_left__of_hours_and_of_too_many__is_told_or_not(void **state)
{
    struct progress_figures figures = half;

    (void)state;
    figures.elapsed_ms = 3725000; /* 1:02:05 */
    assert_string_equal(line(figures), "counters: 50%, 1000000 of 2000000 "
                                       "events, 268/s, 1:02:05 left");
    figures.done = 1;
    assert_string_equal(line(figures),
                        "counters: 0%, 1 of 2000000 events, 0.0/s");
    figures.elapsed_ms = 0;
    assert_string_equal(line(figures), "counters: 0%, 1 of 2000000 events");
}

static void
line__without_a_total__counts(void **state)
{
    struct progress_figures figures = half;

    (void)state;
    figures.total = 0;
    figures.done = INT64_MAX;
    figures.elapsed_ms = 1000;
    assert_string_equal(line(figures), "counters: 9223372036854775807 events, "
                                       "9223372036854775808/s");
}

static void
bytes__of_any_size__have_their_unit(void **state)
{
    struct progress_figures figures = {.doing = "5 events",
                                       .total = 2500000,
                                       .done = 1250000,
                                       .elapsed_ms = 1000};

    (void)state;
    assert_string_equal(line(figures), "5 events: 50%, 1.2 MB of 2.5 MB, "
                                       "1.2 MB/s, 0:01 left");
    figures.total = 0;
    figures.done = 999;
    assert_string_equal(line(figures), "5 events: 999 bytes, 999 bytes/s");
    figures.done = 1000;
    assert_string_equal(bar(figures, 80), "5 events  1.0 kB  1.0 kB/s  0:01");
    figures.done = INT64_MAX;
    figures.elapsed_ms = 0;
    assert_string_equal(line(figures), "5 events: 9223372.0 TB");
}

static void
rate__of_what_was_skipped__does_not_count_it(void **state)
{
    struct progress_figures figures = half;

    (void)state;
    figures.skipped = 900000;
    assert_string_equal(line(figures), "counters: 50%, 1000000 of 2000000 "
                                       "events, 10000/s, 1:40 left");
    figures.skipped = figures.done;
    assert_string_equal(line(figures),
                        "counters: 50%, 1000000 of 2000000 events");
}

static void
text__of_any_size__is_cut(void **state)
{
    char doing[2 * PROGRESS_TEXT_SIZE];
    struct progress_figures figures = half;

    (void)state;
    memset(doing, 'x', sizeof(doing) - 1);
    doing[sizeof(doing) - 1] = '\0';
    figures.doing = doing;
    assert_int_equal(strlen(line(figures)), PROGRESS_TEXT_SIZE - 1);
    assert_int_equal(strlen(bar(figures, 1000)), PROGRESS_TEXT_SIZE - 1);
    assert_int_equal(strlen(bar(figures, 80)), 80);
}

static void
progress__in_its_first_moments__says_nothing(void **state)
{
    struct progress progress;

    (void)state;
    progress_start(&progress, "counters", "events", 10);
    for (int i = 0; i < 10; i++) {
        progress_add(&progress, 1);
    }
    assert_int_equal(progress.done, 10);
    assert_int_equal(progress.told_ms, progress.started_ms);
    progress_end(&progress);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bar__with_a_total__has_percent_rate_and_time),
        cmocka_unit_test(bar__at_its_ends__is_empty_and_full),
        cmocka_unit_test(bar__without_a_total__counts),
        cmocka_unit_test(bar__at_any_width__fits),
        cmocka_unit_test(time_left__of_hours_and_of_too_many__is_told_or_not),
        cmocka_unit_test(line__without_a_total__counts),
        cmocka_unit_test(bytes__of_any_size__have_their_unit),
        cmocka_unit_test(rate__of_what_was_skipped__does_not_count_it),
        cmocka_unit_test(text__of_any_size__is_cut),
        cmocka_unit_test(progress__in_its_first_moments__says_nothing),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
