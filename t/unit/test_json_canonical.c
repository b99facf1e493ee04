/*
 * The canonical text of JSON values: one text for equal values.
 */

#include "json_fixture.h"

#include "meter_decimal.h"
#include "meter_random.h"

static void
assert_canonical(const char *text, const char *expected)
{
    struct json_value value = read_good(text);
    struct meter_str canonical;

    assert_true(json_canonical(&value, &arena, &canonical));
    assert_str(canonical, expected);
}

static void
canonical__order_blanks_numbers_escapes__one_text(void **state)
{
    (void)state;
    assert_canonical(" { \"b\" : [ 1.0 , -0 , 1e2 ] , \"a\" : null }",
                     "{\"a\":null,\"b\":[1,0,100]}");
    assert_canonical("[true,false,{},[]]", "[true,false,{},[]]");
    assert_canonical("\"\\u0041\\/\\u00e9\\u2028\\u007f\"",
                     "\"A/\xc3\xa9\xe2\x80\xa8\x7f\"");
    assert_canonical("\"\\u0008\\u000c\\u000a\\u000d\\u0009\\u0001\\u001F\"",
                     "\"\\b\\f\\n\\r\\t\\u0001\\u001f\"");
    assert_canonical("{\"\\u0022\":\"\\\\\"}", "{\"\\\"\":\"\\\\\"}");
    assert_canonical("1E+2", "100");
    assert_canonical("-1.250", "-1.25");
    assert_canonical("0.0", "0");
}

static void
canonical__integers_as_they_are__as_the_slow_way(void **state)
{
    struct meter_random random = {7};

    (void)state;
    for (int turn = 0; turn < 20000; turn++) {
        char lexeme[64], expected[METER_NUMBER_TEXT_SIZE + 1];
        size_t digits = 1 + random_below(&random, 45);
        struct meter_str canonical;
        struct json_value value;
        size_t size, at = 0;

        if (random_below(&random, 4) == 0) {
            lexeme[at++] = '-';
        }
        lexeme[at++] = (char)('1' + random_below(&random, 9));
        for (size_t i = 1; i < digits; i++) {
            lexeme[at++] = random_below(&random, 3)
                               ? '0'
                               : (char)('0' + random_below(&random, 10));
        }
        lexeme[at] = '\0';
        value = read_good(lexeme);
        arena_reset(&arena);
        assert_true(json_canonical(&value, &arena, &canonical));
        assert_true(meter_number_canonical(str_of(lexeme), expected, &size));
        assert_str(canonical, expected);
    }
    assert_canonical("0", "0");
}

/* Larger than the stack's buffer: measured, then written. */
static void
canonical__large__is_whole(void **state)
{
    struct meter_str canonical, again;
    struct json_value value, second;
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 20);
    buf_put_text(&text, "[");
    for (int i = 0; i < 500; i++) {
        buf_printf(&text, "{\"b\":\"\\u0001\\\"\\n%d\",\"a\":[%d.5e30,true]},",
                   i, i);
    }
    buf_put_text(&text, "null]");
    buf_put_byte(&text, 0);
    value = read_good(text.data);
    assert_true(json_canonical(&value, &arena, &canonical));
    assert_true(canonical.size > 10000);
    assert_true(arena_copy(&arena, canonical, &canonical));
    second = read_good(canonical.data);
    assert_true(json_canonical(&second, &arena, &again));
    assert_true(meter_str_equal(canonical, again));
    buf_fini(&text);
}

/* Random trees, written with random blanks, orders and spellings. */
static void
put_random(struct meter_random *random, struct buf *out, int depth)
{
    static const char *const scalars[] = {
        "null",         "true",   "false", "0",         "-1",
        "1.5",          "1e3",    "\"\"",  "\"a\\nb\"", "\"\\ud83d\\ude00\"",
        "\"\xc3\xa9\"", "\"a/b\""};
    size_t count = random_below(random, 20);
    bool object = random_below(random, 2);

    buf_put_text(out, random_below(random, 2) ? " " : "");
    if (depth == 0 || random_below(random, 3) == 0) {
        buf_put_text(out, scalars[random_below(
                              random, sizeof(scalars) / sizeof(scalars[0]))]);
        return;
    }
    buf_put_byte(out, object ? '{' : '[');
    for (size_t i = 0; i < count; i++) {
        buf_put_text(out, i == 0 ? "" : " ,");
        if (object) {
            buf_printf(out, "\"%zu\":", (i * 7 + 3) % 19 + (i / 19) * 100);
        }
        put_random(random, out, depth - 1);
    }
    buf_put_text(out, object ? "}" : "\n]");
}

static void
canonical__random_trees__are_fixed_points(void **state)
{
    struct meter_random random = {42};
    struct buf text;

    (void)state;
    buf_init(&text, 4 << 20);
    for (int turn = 0; turn < 2000; turn++) {
        struct meter_str canonical, again;
        struct json_value value;

        arena_reset(&arena);
        buf_reset(&text);
        put_random(&random, &text, 3);
        buf_put_byte(&text, 0);
        value = read_good(text.data);
        assert_true(json_canonical(&value, &arena, &canonical));
        assert_true(arena_copy(&arena, canonical, &canonical));
        value = read_good(canonical.data);
        assert_true(json_canonical(&value, &arena, &again));
        assert_true(meter_str_equal(canonical, again));
    }
    buf_fini(&text);
}

static const struct CMUnitTest tests[] = {
    TEST(canonical__order_blanks_numbers_escapes__one_text),
    TEST(canonical__integers_as_they_are__as_the_slow_way),
    TEST(canonical__large__is_whole),
    TEST(canonical__random_trees__are_fixed_points),
};

RUN_TAP(tests)
