/*
 * The JSON reader: what is taken, what is refused and where, limits, and
 * where elements end.
 */

#include "json_fixture.h"

#include "meter_limits.h"

static void
assert_fault(struct meter_str text, const struct json_limits *limits,
             enum json_fault fault, const char *sentence, size_t offset)
{
    struct meter_str copy = exact_copy(text);
    struct json_error error;
    struct json_value value;
    size_t used;

    if (json_read(copy, limits, &arena, &value, &used, &error)) {
        fail_msg("\"%.*s\" is taken", (int)text.size, text.data);
    }
    if (strstr(error.text, sentence) == NULL || error.offset != offset) {
        fail_msg("\"%.*s\": \"%s\" at %zu, not \"%s\" at %zu", (int)text.size,
                 text.data, error.text, error.offset, sentence, offset);
    }
    assert_int_equal(error.fault, fault);
    assert_true(error.offset <= text.size);
    free((char *)copy.data);
}

/* ---- what is taken --------------------------------------------------- */

static void
read__each_kind__comes_as_written(void **state)
{
    struct json_value value;

    (void)state;
    assert_int_equal(read_good("null").kind, JSON_NULL);
    assert_int_equal(read_good("true").kind, JSON_TRUE);
    assert_int_equal(read_good(" \t\r\nfalse").kind, JSON_FALSE);
    value = read_good("-12.50e+3");
    assert_int_equal(value.kind, JSON_NUMBER);
    assert_str(value.text, "-12.50e+3");
    value = read_good("\"text\"");
    assert_int_equal(value.kind, JSON_STRING);
    assert_str(value.text, "text");
    value = read_good("[]");
    assert_int_equal(value.kind, JSON_ARRAY);
    assert_int_equal(value.count, 0);
    value = read_good("[1, \"a\" ,[null]]");
    assert_int_equal(value.count, 3);
    assert_str(value.items[1].text, "a");
    assert_int_equal(value.items[2].items[0].kind, JSON_NULL);
    value = read_good("{ \"b\" : 1 , \"a\" : { } }");
    assert_int_equal(value.kind, JSON_OBJECT);
    assert_int_equal(value.count, 2);
    assert_str(value.members[0].name, "a");
    assert_str(value.members[1].value.text, "1");
}

static void
read__numbers__keep_their_lexeme(void **state)
{
    static const char *const numbers[] = {
        "0",
        "-0",
        "10",
        "0.5",
        "1E5",
        "1e-5",
        "1.0e+05",
        "123456789012345678901234567890",
        "0.000000000000000000000000000000000000000000000000000000000000000001",
        "0e999999999999",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        assert_str(read_good(numbers[i]).text, numbers[i]);
    }
}

static void
read__escapes__are_undone(void **state)
{
    (void)state;
    assert_str(read_good("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"").text,
               "\"\\/\b\f\n\r\t");
    assert_str(read_good("\"a\\u0041\\u00e9\\u20AC\\ud83d\\ude00z\"").text,
               "aA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z");
    assert_str(read_good("\"\\ud800\\udc00\\udbff\\udfff\\uffff\"").text,
               "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xef\xbf\xbf");
    assert_str(read_good("\"\x7f\xc2\x80\xed\x9f\xbf\xee\x80\x80\"").text,
               "\x7f\xc2\x80\xed\x9f\xbf\xee\x80\x80");
}

static void
read__strings_of_every_size__end_where_they_end(void **state)
{
    char text[64];

    (void)state;
    for (size_t size = 0; size < 40; size++) {
        for (size_t lead = 0; lead < 9; lead++) {
            struct json_value value;

            memset(text, ' ', lead);
            text[lead] = '"';
            memset(text + lead + 1, 'x', size);
            strcpy(text + lead + 1 + size, "\"");
            value = read_good(text);
            assert_int_equal(value.text.size, size);
            assert_ptr_equal(value.text.data, text + lead + 1);
        }
    }
}

static void
read__value_in_front_of_more__stops_behind_it(void **state)
{
    static const struct {
        const char *text;
        size_t used;
    } table[] = {
        {"1,2", 1},    {"{}{}", 2},       {"[] x", 2},   {" true]", 5},
        {"\"a\"b", 3}, {"-1.5e2}", 6},    {"null\n", 4}, {"0 1", 1},
        {"[1]]", 3},   {"{\"a\":1},", 7},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct json_error error;
        struct json_value value;
        size_t used;

        assert_true(json_read(str_of(table[i].text), &wide, &arena, &value,
                              &used, &error));
        assert_int_equal(used, table[i].used);
        assert_int_equal(json_skip(str_of(table[i].text)), table[i].used);
    }
}

static void
read__many_items_and_members__all_come(void **state)
{
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 20);
    for (int count = 0; count < 70; count++) {
        struct json_value value;

        buf_reset(&text);
        buf_put_text(&text, "{\"l\":[");
        for (int i = 0; i < count; i++) {
            buf_printf(&text, "%s[%d,\"],[\\\"\"]", i == 0 ? "" : " ,", i);
        }
        buf_put_text(&text, "],\"o\":{");
        for (int i = 0; i < count; i++) {
            buf_printf(&text, "%s\"%02d\":[{\",}\":%d}]", i == 0 ? "" : ", ",
                       (i * 71) % count, i);
        }
        buf_put_text(&text, "}}");
        buf_put_byte(&text, 0);
        value = read_good(text.data);
        assert_int_equal(value.members[0].value.count, count);
        assert_int_equal(value.members[1].value.count, count);
        for (int i = 0; i < count; i++) {
            const struct json_value *item = &value.members[0].value.items[i];
            char name[16];

            snprintf(name, sizeof(name), "%d", i);
            assert_str(item->items[0].text, name);
            snprintf(name, sizeof(name), "%02d", i);
            assert_str(value.members[1].value.members[i].name, name);
        }
    }
    buf_fini(&text);
}

static void
member_find__every_name__is_found(void **state)
{
    struct json_value value = read_good(
        "{\"bb\":2,\"a\":1,\"\":0,\"b\":3,\"a.b\":4,\"\xc3\xa9\":5,\"B\":6}");

    (void)state;
    for (uint32_t i = 0; i < value.count; i++) {
        assert_ptr_equal(json_member_find(&value, value.members[i].name),
                         &value.members[i].value);
    }
    assert_str(json_member_find(&value, METER_STR(""))->text, "0");
    assert_str(json_member_find(&value, METER_STR("bb"))->text, "2");
    assert_null(json_member_find(&value, METER_STR("bbb")));
    assert_null(json_member_find(&value, METER_STR("A")));
    value = read_good("{}");
    assert_null(json_member_find(&value, METER_STR("")));
}

/* ---- what is refused ------------------------------------------------- */

static void
read__not_json__is_refused_with_its_place(void **state)
{
    static const struct {
        const char *text;
        const char *sentence;
        size_t offset;
    } table[] = {
        {"", "unexpected end", 0},
        {"  ", "unexpected end", 2},
        {"nul", "expected a value", 0},
        {"nullx", "unexpected byte behind a value", 4},
        {"True", "expected a value", 0},
        {"'a'", "expected a value", 0},
        {"+1", "expected a value", 0},
        {".5", "expected a value", 0},
        {"01", "unexpected byte behind a value", 1},
        {"-01", "unexpected byte behind a value", 2},
        {"1.", "expected a digit", 2},
        {"1.e5", "expected a digit", 2},
        {"1e", "expected a digit", 2},
        {"1e+", "expected a digit", 3},
        {"-", "expected a digit", 1},
        {"--1", "expected a digit", 1},
        {"0x10", "unexpected byte behind a value", 1},
        {"1:", "unexpected byte behind a value", 1},
        {"1[", "unexpected byte behind a value", 1},
        {"true\"", "unexpected byte behind a value", 4},
        {"[", "unexpected end", 1},
        {"[1", "unexpected end", 2},
        {"[1,", "unexpected end", 3},
        {"[1,]", "expected a value", 3},
        {"[,1]", "expected a value", 1},
        {"[1 2]", "expected a comma or ]", 3},
        {"[1}", "expected a comma or ]", 2},
        {"]", "expected a value", 0},
        {"{", "unexpected end", 1},
        {"{a:1}", "expected a key in quotes", 1},
        {"{\"a\"}", "expected a colon", 4},
        {"{\"a\" 1}", "expected a colon", 5},
        {"{\"a\":}", "expected a value", 5},
        {"{\"a\":1,}", "expected a key in quotes", 7},
        {"{\"a\":1 \"b\":2}", "expected a comma or }", 7},
        {"{\"a\":1]", "expected a comma or }", 6},
        {"{\"a\":1", "unexpected end", 6},
        {"{1:2}", "expected a key in quotes", 1},
        {"{\"a\":1,\"a\":2}", "same key twice", 0},
        {"[{\"b\":1,\"a\":1,\"\\u0062\":2}]", "same key twice", 1},
        {"\"a", "string without an end", 0},
        {"\"a\\", "string without an end", 0},
        {"\"a\\\"", "string without an end", 0},
        {"\"\\q\"", "unknown escape", 1},
        {"\"\\u12\"", "\\u without four", 1},
        {"\"\\u12g4\"", "\\u without four", 1},
        {"\"\\u 123\"", "\\u without four", 1},
        {"\"\\u0000\"", "\\u0000 in a string", 1},
        {"\"ab\\ud800\"", "lone surrogate", 3},
        {"\"\\udc00\"", "lone surrogate", 1},
        {"\"\\ud800\\ud800\"", "lone surrogate", 1},
        {"\"\\ud800\\n\"", "lone surrogate", 1},
        {"\"\\ud800abcdef\"", "lone surrogate", 1},
        {"\"\\ud800\\u12\"", "lone surrogate", 1},
        {"\"a\nb\"", "control character", 2},
        {"\"12345678\x1f\"", "control character", 9},
        {"\"\xff\"", "not valid UTF-8", 0},
        {"\"12345678\xc0\xaf\"", "not valid UTF-8", 0},
        {"\"\xed\xa0\x80\"", "not valid UTF-8", 0},
        {"\"\xe2\x82\"", "not valid UTF-8", 0},
        {"{\"\xf4\x90\x80\x80\":1}", "not valid UTF-8", 1},
        {"\xc2\xa0"
         "1",
         "expected a value", 0},
        {"\v1", "expected a value", 0},
        {"\xef\xbb\xbf{}", "expected a value", 0},
        {"/**/1", "expected a value", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        assert_fault(str_of(table[i].text), &wide, JSON_FAULT_SYNTAX,
                     table[i].sentence, table[i].offset);
    }
    assert_fault(METER_STR("\"a\0b\""), &wide, JSON_FAULT_SYNTAX,
                 "NUL byte in a string", 2);
    assert_fault(METER_STR("\0"), &wide, JSON_FAULT_SYNTAX, "expected a value",
                 0);
    assert_fault(METER_STR("[1\0]"), &wide, JSON_FAULT_SYNTAX,
                 "unexpected byte behind a value", 2);
}

static void
read__every_control_byte_in_a_string__is_refused(void **state)
{
    (void)state;
    for (int byte = 0; byte < 0x20; byte++) {
        for (size_t at = 1; at < 18; at++) {
            char text[] = "\"0123456789abcdefg\"";

            text[at] = (char)byte;
            assert_fault((struct meter_str){text, sizeof(text) - 1}, &wide,
                         JSON_FAULT_SYNTAX, byte == 0 ? "NUL" : "control", at);
        }
    }
}

static void
read__same_key_twice_among_many__is_found(void **state)
{
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 20);
    for (int count = 2; count < 60; count++) {
        for (int twice = 0; twice < count - 1; twice += 5) {
            buf_reset(&text);
            for (int i = 0; i < count; i++) {
                int name = i == count - 1 ? twice : i;

                buf_printf(&text, "%s\"%d\":0", i == 0 ? "{" : ",", name * 7);
            }
            buf_put_text(&text, "}");
            assert_fault(buf_str(&text), &wide, JSON_FAULT_SYNTAX,
                         "same key twice", 0);
        }
    }
    buf_fini(&text);
}

static void
read__limits__are_inclusive(void **state)
{
    static const struct json_limits tight = {.depth_max = 2,
                                             .key_count_max = 3,
                                             .name_size_max = 4,
                                             .string_size_max = 5};
    static const char *const inside[] = {
        "[[1]]", "{\"a\":{\"b\":1},\"c\":2}", "[{\"abcd\":\"12345\"}]",
        "\"\\u0041\\u0041\\u0041\\u0041\\u0041\"", "{\"\\u00e9\\u00e9\":1}"};
    struct json_error error;
    struct json_value value;
    size_t used;

    (void)state;
    for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++) {
        assert_true(json_read(str_of(inside[i]), &tight, &arena, &value, &used,
                              &error));
    }
    assert_fault(str_of("[[[1]]]"), &tight, JSON_FAULT_DEPTH, "nested", 2);
    assert_fault(str_of("[{\"a\":[]}]"), &tight, JSON_FAULT_DEPTH, "nested", 6);
    assert_fault(str_of("{\"a\":{\"b\":1,\"c\":1},\"d\":1}"), &tight,
                 JSON_FAULT_KEYS, "too many keys", 19);
    assert_fault(str_of("{\"abcde\":1}"), &tight, JSON_FAULT_NAME,
                 "key is too long", 1);
    assert_fault(str_of("[\"123456\"]"), &tight, JSON_FAULT_STRING,
                 "string is too long", 1);
}

static void
read__numbers_past_the_limits__are_refused(void **state)
{
    char text[128];

    (void)state;
    memset(text, '7', sizeof(text));
    text[METER_NUMBER_DIGITS_MAX] = '\0';
    read_good(text);
    text[METER_NUMBER_DIGITS_MAX] = '7';
    assert_fault((struct meter_str){text, METER_NUMBER_DIGITS_MAX + 1}, &wide,
                 JSON_FAULT_NUMBER, "too many digits", 0);
    memset(text + 1, '0', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    read_good(text); /* 7 and 126 zeros: one significant digit */
    read_good("1e399");
    assert_fault(str_of("[1e401]"), &wide, JSON_FAULT_NUMBER,
                 "too large an exponent", 1);
    assert_fault(str_of("1E-99999999999999999999"), &wide, JSON_FAULT_NUMBER,
                 "too large an exponent", 0);
}

static void
read__no_memory__is_told_apart(void **state)
{
    static const char text[] =
        "{\"a\":[1,2,3,\"\\u0041\"],\"b\":{\"c\":\"\\n\"}}";
    size_t enough = 0;

    (void)state;
    for (size_t room = 16; room <= 1024; room += 16) {
        struct arena small;
        struct json_error error;
        struct json_value value;
        size_t used;

        arena_init(&small, 16, room);
        if (json_read(str_of(text), &wide, &small, &value, &used, &error)) {
            enough = enough == 0 ? room : enough;
        } else {
            assert_int_equal(error.fault, JSON_FAULT_MEMORY);
            assert_int_equal(enough, 0);
        }
        arena_fini(&small);
    }
    assert_true(enough > 16 && enough < 1024);
}

/* ---- where an element ends ------------------------------------------- */

static void
skip__broken_inside__finds_the_end(void **state)
{
    static const struct {
        struct meter_str text;
        size_t end;
    } table[] = {
        {{"{\"a\":\0}x", 8}, 7},
        {{"{'a':01,}]", 10}, 9},
        {{"[[[}]]]", 7}, 0},
        {{"{[}]", 4}, 4},
        {{"{\"]\":\"}\"}", 9}, 9},
        {{"{\"\\\"}\":1}", 9}, 9},
        {{"{\"\\\\\"}", 6}, 6},
        {{"nonsense,", 9}, 8},
        {{"a\0b]", 4}, 3},
        {{"12:x }", 6}, 4},
        {{"\xff\xfe,", 3}, 2},
        {{"  \"\xff\x01\"", 6}, 6},
        {{"", 0}, 0},
        {{"  ", 2}, 0},
        {{",1", 2}, 0},
        {{"]", 1}, 0},
        {{"}", 1}, 0},
        {{"{", 1}, 0},
        {{"{\"a\":1]", 7}, 0},
        {{"[1}", 3}, 0},
        {{"\"abc", 4}, 0},
        {{"\"abc\\\"", 6}, 0},
        {{"\"abc\\", 5}, 0},
        {{"{\"a\\", 4}, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct meter_str copy = exact_copy(table[i].text);

        if (json_skip(copy) != table[i].end) {
            fail_msg("\"%.*s\" ends at %zu", (int)copy.size, copy.data,
                     json_skip(copy));
        }
        free((char *)copy.data);
    }
}

static void
skip__a_million_brackets__costs_no_stack(void **state)
{
    size_t size = 2000000;
    char *text = malloc(size);

    (void)state;
    memset(text, '[', size / 2);
    memset(text + size / 2, ']', size / 2);
    assert_int_equal(json_skip((struct meter_str){text, size}), size);
    assert_int_equal(json_skip((struct meter_str){text, size - 1}), 0);
    assert_fault((struct meter_str){text, size}, &wide, JSON_FAULT_DEPTH,
                 "nested too deeply", 64);
    free(text);
}

static const struct CMUnitTest tests[] = {
    TEST(read__each_kind__comes_as_written),
    TEST(read__numbers__keep_their_lexeme),
    TEST(read__escapes__are_undone),
    TEST(read__strings_of_every_size__end_where_they_end),
    TEST(read__value_in_front_of_more__stops_behind_it),
    TEST(read__many_items_and_members__all_come),
    TEST(member_find__every_name__is_found),
    TEST(read__not_json__is_refused_with_its_place),
    TEST(read__every_control_byte_in_a_string__is_refused),
    TEST(read__same_key_twice_among_many__is_found),
    TEST(read__limits__are_inclusive),
    TEST(read__numbers_past_the_limits__are_refused),
    TEST(read__no_memory__is_told_apart),
    TEST(skip__broken_inside__finds_the_end),
    TEST(skip__a_million_brackets__costs_no_stack),
};

RUN_TAP(tests)
