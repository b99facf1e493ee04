#include "meter_cmocka.h"

#include "base/json_reader.h"
#include "base/json_writer.h"
#include "meter_event.h"
#include "meter_random.h"

static struct buf out;
static struct json_writer json;

static int
setup(void **state)
{
    (void)state;
    buf_init(&out, 1 << 20);
    json_writer_init(&json, &out);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    buf_fini(&out);
    return 0;
}

static void
assert_out(const char *expected)
{
    assert_false(out.failed);
    if (out.size != strlen(expected) ||
        memcmp(out.data, expected, out.size) != 0) {
        fail_msg("%.*s\nis not\n%s", (int)out.size, out.data, expected);
    }
}

static void
write__nested__puts_the_commas(void **state)
{
    (void)state;
    json_object_begin(&json);
    json_key(&json, "a");
    json_array_begin(&json);
    json_int(&json, 1);
    json_text(&json, "x");
    json_object_begin(&json);
    json_object_end(&json);
    json_array_begin(&json);
    json_array_end(&json);
    json_null(&json);
    json_array_end(&json);
    json_key_str(&json, METER_STR("b"));
    json_bool(&json, true);
    json_key(&json, "c");
    json_bool(&json, false);
    json_key(&json, "d");
    json_object_begin(&json);
    json_key(&json, "e");
    json_raw(&json, METER_STR("{\"f\":1.5}"));
    json_object_end(&json);
    json_object_end(&json);
    assert_out("{\"a\":[1,\"x\",{},[],null],\"b\":true,\"c\":false,"
               "\"d\":{\"e\":{\"f\":1.5}}}");
}

static void
write__numbers_and_times__are_exact(void **state)
{
    (void)state;
    json_array_begin(&json);
    json_int(&json, INT64_MIN);
    json_int_string(&json, INT64_MAX);
    json_int_string(&json, -1);
    json_time(&json, 0);
    json_time(&json, INT64_C(1756728000000001));
    json_array_end(&json);
    assert_out("[-9223372036854775808,\"9223372036854775807\",\"-1\","
               "\"1970-01-01T00:00:00.000000Z\","
               "\"2025-09-01T12:00:00.000001Z\"]");
}

static void
escape__each_special_byte__has_its_form(void **state)
{
    (void)state;
    json_string(&json, METER_STR("\"\\\b\f\n\r\t\0\x01\x1f\x7f/"));
    assert_out("\"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u0001\\u001f\\u007f/\"");
}

static void
escape__line_separators_and_text__stay_valid_everywhere(void **state)
{
    (void)state;
    json_text(&json, "\xc3\xa9\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xa7"
                     "\xf0\x9f\x98\x80");
    assert_out("\"\xc3\xa9\\u2028\\u2029\xe2\x80\xa7\xf0\x9f\x98\x80\"");
}

static void
escape__what_terminals_obey__is_written_out(void **state)
{
    (void)state;
    json_text(&json, "\xc2\x80\xc2\x9b"
                     "31m\xc2\x9f\xc2\xa0\xe2\x80\xaa\xe2\x80\xae"
                     "\xe2\x80\xaf\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa");
    assert_out("\"\\u0080\\u009b31m\\u009f\xc2\xa0\\u202a\\u202e"
               "\xe2\x80\xaf\\u2066\\u2069\xe2\x81\xaa\"");
}

static void
escape__bytes_that_are_no_utf8__become_replacements(void **state)
{
    static const struct {
        struct meter_str bytes;
        int replaced;
    } table[] = {
        {{"\x80", 1}, 1},         {{"\xff", 1}, 1},
        {{"\xc0\xaf", 2}, 2},     {{"\xe2\x82", 2}, 2},
        {{"\xed\xa0\x80", 3}, 3}, {{"\xf4\x90\x80\x80", 4}, 4},
        {{"\xf0\x9f\x98", 3}, 3}, {{"\xc3", 1}, 1},
        {{"\xe0\x80\xaf", 3}, 3},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct buf expected;

        buf_init(&expected, 100);
        for (int n = 0; n < table[i].replaced; n++) {
            buf_put_text(&expected, "\xef\xbf\xbd");
        }
        buf_put_byte(&expected, 0);
        buf_reset(&out);
        json_escape(&out, table[i].bytes);
        assert_out(expected.data);
        buf_fini(&expected);
    }
}

/* Whatever bytes: the output is JSON, and valid text comes back as it was. */
static void
escape__random_bytes__read_back(void **state)
{
    static const struct json_limits limits = {4, 4, 4096, 4096};
    struct meter_random random = {5};
    struct arena arena;

    (void)state;
    arena_init(&arena, 4096, 1 << 20);
    for (int turn = 0; turn < 20000; turn++) {
        char bytes[24];
        size_t size = random_below(&random, sizeof(bytes));
        struct meter_str text = {bytes, size};
        struct json_error error;
        struct json_value value;
        size_t used;

        for (size_t i = 0; i < size; i++) {
            bytes[i] = (char)(turn % 3 == 0 ? 1 + random_below(&random, 127)
                                            : 1 + random_below(&random, 255));
        }
        buf_reset(&out);
        json_writer_init(&json, &out);
        json_string(&json, text);
        arena_reset(&arena);
        assert_true(
            json_read(buf_str(&out), &limits, &arena, &value, &used, &error));
        assert_int_equal(used, out.size);
        if (meter_utf8_valid(text)) {
            assert_true(meter_str_equal(value.text, text));
        }
    }
    arena_fini(&arena);
}

static void
write__more_than_the_buffer_may_hold__fails_once(void **state)
{
    (void)state;
    buf_fini(&out);
    buf_init(&out, 20);
    json_writer_init(&json, &out);
    json_array_begin(&json);
    for (int i = 0; i < 100; i++) {
        json_text(&json, "text");
    }
    json_array_end(&json);
    assert_true(out.failed);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(write__nested__puts_the_commas),
    TEST(write__numbers_and_times__are_exact),
    TEST(escape__each_special_byte__has_its_form),
    TEST(escape__line_separators_and_text__stay_valid_everywhere),
    TEST(escape__what_terminals_obey__is_written_out),
    TEST(escape__bytes_that_are_no_utf8__become_replacements),
    TEST(escape__random_bytes__read_back),
    TEST(write__more_than_the_buffer_may_hold__fails_once),
};

RUN_TAP(tests)
