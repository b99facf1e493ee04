/*
 * test_scalar.c - strict values from text.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "config/scalar.h"
#include "meter_time.h"

static struct meter_str
str(const char *text)
{
    return (struct meter_str){text, strlen(text)};
}

static void
scalar_integer__limits_of_64_bits__exact(void **state)
{
    int64_t value;

    (void)state;
    assert_true(scalar_integer(METER_STR("0"), &value));
    assert_int_equal(value, 0);
    assert_true(scalar_integer(METER_STR("9223372036854775807"), &value));
    assert_true(value == INT64_MAX);
    assert_true(scalar_integer(METER_STR("-9223372036854775808"), &value));
    assert_true(value == INT64_MIN);
    assert_false(scalar_integer(METER_STR("9223372036854775808"), &value));
    assert_false(scalar_integer(METER_STR("-9223372036854775809"), &value));
    assert_false(scalar_integer(METER_STR("92233720368547758070"), &value));
}

static void
scalar_integer__other_notations__refused(void **state)
{
    static const char *const refused[] = {"",    "-",   "-0",  "+1",  "00",
                                          "010", "0x1", "0o7", "1_0", "1e3",
                                          "1.0", " 1",  "1 ",  "--1", "1-"};
    int64_t value;

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_false(scalar_integer(str(refused[i]), &value));
    }
}

static void
scalar_duration__every_unit__in_microseconds(void **state)
{
    static const struct {
        const char *text;
        int64_t value_us;
    } cases[] = {
        {"0s", 0},
        {"1ms", 1000},
        {"5s", 5 * METER_TIME_SECOND},
        {"90m", 90 * METER_TIME_MINUTE},
        {"48h", 48 * METER_TIME_HOUR},
        {"730d", 730 * METER_TIME_DAY},
        {"106751991d", 106751991 * METER_TIME_DAY},
    };
    int64_t value;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(scalar_duration(str(cases[i].text), &value));
        assert_true(value == cases[i].value_us);
    }
}

static void
scalar_duration__other_text__refused(void **state)
{
    static const char *const refused[] = {
        "",       "s",   "5",    "5 s",        "5w",
        "5us",    "-5s", "+5s",  "05s",        "1.5h",
        "1h30m",  "5S",  "5sec", "106751992d", "99999999999999999999ms",
        "forever"};
    int64_t value;

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_false(scalar_duration(str(refused[i]), &value));
    }
}

static void
scalar_duration_format__read_again__same_value(void **state)
{
    static const int64_t values[] = {0,
                                     1000,
                                     1500000,
                                     METER_TIME_MINUTE,
                                     90 * METER_TIME_MINUTE,
                                     48 * METER_TIME_HOUR,
                                     730 * METER_TIME_DAY,
                                     INT64_MAX / 1000 * 1000};
    char text[SCALAR_DURATION_TEXT_SIZE + 1];
    int64_t value;

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        scalar_duration_format(values[i], text);
        assert_true(scalar_duration(str(text), &value));
        assert_true(value == values[i]);
    }
    scalar_duration_format(48 * METER_TIME_HOUR, text);
    assert_string_equal(text, "2d");
}

static void
scalar_is_name__first_letter_and_128_bytes__accepted(void **state)
{
    char text[130];

    (void)state;
    memset(text, 'a', sizeof(text));
    assert_true(scalar_is_name((struct meter_str){text, 1}));
    assert_true(scalar_is_name((struct meter_str){text, 128}));
    assert_false(scalar_is_name((struct meter_str){text, 129}));
    assert_false(scalar_is_name((struct meter_str){text, 0}));
    assert_true(scalar_is_name(METER_STR("Z9_.-")));
    assert_false(scalar_is_name(METER_STR("9a")));
    assert_false(scalar_is_name(METER_STR("_a")));
    assert_false(scalar_is_name(METER_STR("a b")));
    assert_false(scalar_is_name(METER_STR("a\0b")));
    assert_false(scalar_is_name(METER_STR("\xc3\xa4")));
    assert_false(scalar_is_name(METER_STR("a'; DROP TABLE x--")));
}

static void
scalar_is_node__host_names__accepted(void **state)
{
    (void)state;
    assert_true(scalar_is_node(METER_STR("gw-1")));
    assert_true(scalar_is_node(METER_STR("7b3f.example")));
    assert_false(scalar_is_node(METER_STR("-gw")));
    assert_false(scalar_is_node(METER_STR("")));
}

static void
scalar_distance__small_changes__counted(void **state)
{
    static const struct {
        const char *a;
        const char *b;
        unsigned distance;
    } cases[] = {
        {"", "", 0},
        {"abc", "abc", 0},
        {"abc", "abd", 1},
        {"abc", "ab", 1},
        {"abc", "abcd", 1},
        {"abcd", "abdc", 1},
        {"abc", "cab", 2},
        {"", "ab", 2},
        {"ab", "", 2},
        {"abcdef", "abef", 2},
        {"abc", "xyz", 3},
        {"abcdef", "abc", 3},
        {"evnets", "events", 1},
        {"kitten", "sitting", 3},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(scalar_distance(str(cases[i].a), str(cases[i].b), 2),
                         cases[i].distance);
        assert_int_equal(scalar_distance(str(cases[i].b), str(cases[i].a), 2),
                         cases[i].distance);
    }
}

/* The whole table, without the band: what scalar_distance must agree with. */
static unsigned
distance_plain(struct meter_str a, struct meter_str b)
{
    unsigned table[12][12];

    for (size_t i = 0; i <= a.size; i++) {
        for (size_t j = 0; j <= b.size; j++) {
            unsigned best = (unsigned)(i + j);

            if (i > 0 && j > 0) {
                unsigned other = a.data[i - 1] != b.data[j - 1];

                best = table[i - 1][j - 1] + other;
                if (table[i - 1][j] + 1 < best) {
                    best = table[i - 1][j] + 1;
                }
                if (table[i][j - 1] + 1 < best) {
                    best = table[i][j - 1] + 1;
                }
                if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] &&
                    a.data[i - 2] == b.data[j - 1] &&
                    table[i - 2][j - 2] + 1 < best) {
                    best = table[i - 2][j - 2] + 1;
                }
            }
            table[i][j] = best;
        }
    }
    return table[a.size][b.size];
}

static void
scalar_distance__random_words__agrees_with_the_whole_table(void **state)
{
    (void)state;
    srandom(7);
    for (int round = 0; round < 20000; round++) {
        char a[10];
        char b[10];
        struct meter_str text_a = {a, (size_t)random() % 11};
        struct meter_str text_b = {b, (size_t)random() % 11};
        unsigned limit = (unsigned)random() % 3;
        unsigned expected;

        for (int i = 0; i < 10; i++) {
            a[i] = "abc"[random() % 3];
            b[i] = random() % 4 == 0 ? "abc"[random() % 3] : a[i];
        }
        expected = distance_plain(text_a, text_b);
        expected = expected > limit ? limit + 1 : expected;
        assert_int_equal(scalar_distance(text_a, text_b, limit), expected);
    }
}

static void
scalar_suggest__nearest_word__found(void **state)
{
    static const char *const words[] = {"on", "op", "events", "counters", NULL};

    (void)state;
    assert_string_equal(scalar_suggest(METER_STR("evnts"), words), "events");
    assert_string_equal(scalar_suggest(METER_STR("Counter"), words),
                        "counters");
    assert_null(scalar_suggest(METER_STR("colour"), words));
    assert_null(scalar_suggest(METER_STR("x"), words));
    assert_null(scalar_suggest(METER_STR(""), words));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalar_integer__limits_of_64_bits__exact),
        cmocka_unit_test(scalar_integer__other_notations__refused),
        cmocka_unit_test(scalar_duration__every_unit__in_microseconds),
        cmocka_unit_test(scalar_duration__other_text__refused),
        cmocka_unit_test(scalar_duration_format__read_again__same_value),
        cmocka_unit_test(scalar_is_name__first_letter_and_128_bytes__accepted),
        cmocka_unit_test(scalar_is_node__host_names__accepted),
        cmocka_unit_test(scalar_distance__small_changes__counted),
        cmocka_unit_test(
            scalar_distance__random_words__agrees_with_the_whole_table),
        cmocka_unit_test(scalar_suggest__nearest_word__found),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
