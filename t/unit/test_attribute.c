/*
 * Attributes as rules read them: where they are found, what they are worth.
 */

#include "meter_cmocka.h"

#include "meter_random.h"
#include "project/attribute.h"

static struct arena arena;

static int
setup(void **state)
{
    (void)state;
    arena_init(&arena, 4096, 64 << 20);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static struct json_value
read_json(const char *text)
{
    static const struct json_limits limits = {16, 256, 128, 8192};
    struct json_error error;
    struct json_value value;
    size_t used;

    assert_true(
        json_read(str_of(text), &limits, &arena, &value, &used, &error));
    return value;
}

/* A name without dots. */
static struct attribute_path
plain(const char *name)
{
    return (struct attribute_path){.name = str_of(name), .segment_count = 1};
}

static void
assert_str(struct meter_str actual, const char *expected)
{
    if (actual.size != strlen(expected) ||
        memcmp(actual.data, expected, actual.size) != 0) {
        fail_msg("\"%.*s\" is not \"%s\"", (int)actual.size, actual.data,
                 expected);
    }
}

static void
find__exact_key__then_the_path(void **state)
{
    static const struct meter_str segments[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    static const struct attribute_path path = {{"a.b.c", 5}, segments, 3};
    static const struct attribute_path single = {{"a", 1}, segments, 1};
    static const struct {
        const char *attributes;
        const char *found;
    } table[] = {
        {"{\"a.b.c\":1,\"a\":{\"b\":{\"c\":2}}}", "1"},
        {"{\"a\":{\"b\":{\"c\":2}}}", "2"},
        {"{\"a\":{\"b.c\":2}}", NULL},
        {"{\"a.b\":{\"c\":2}}", NULL},
        {"{\"a\":{\"b\":[{\"c\":2}]}}", NULL},
        {"{\"a\":{\"b\":3}}", NULL},
        {"{\"a\":\"b\"}", NULL},
        {"{}", NULL},
    };
    struct json_value attributes;

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct json_value *value;

        attributes = read_json(table[i].attributes);
        value = attribute_find(&attributes, &path);
        if (table[i].found == NULL) {
            assert_null(value);
        } else {
            assert_str(value->text, table[i].found);
        }
    }
    attributes = read_json("{\"a\":4}");
    assert_str(attribute_find(&attributes, &single)->text, "4");
}

/*
 * More sets than are remembered, many of them twice, so that places are
 * taken from one another: each has its own key all the same.
 */
static void
dimensions__seen_before_or_not__have_the_key_of_their_content(void **state)
{
    struct meter_random random = {7};
    const struct attribute_path paths[] = {plain("n"), plain("s")};

    (void)state;
    for (size_t turn = 0; turn < 60000; turn++) {
        unsigned number = (unsigned)random_below(&random, 12000);
        unsigned size = random_below(&random, 8) == 0 ? 200 : 3;
        struct meter_dim dims[2] = {
            {.name = str_of("n"), .kind = METER_DIM_NULL},
            {.name = str_of("s"), .kind = METER_DIM_STRING},
        };
        uint8_t key[METER_DIGEST_SIZE];
        char text[512], value[256], digits[16];
        struct dimension_set set;
        struct json_value attributes;
        const char *error = NULL;

        arena_reset(&arena);
        snprintf(value, sizeof(value), "%0*u", (int)size, number);
        snprintf(digits, sizeof(digits), "%u", number);
        snprintf(text, sizeof(text), "{\"n\":%s,\"s\":\"%s\"}",
                 number % 3 == 0 ? "null" : digits, value);
        attributes = read_json(text);
        assert_true(attribute_dimensions(&attributes, paths, 2, "counter",
                                         str_of("c"), &arena, &set, &error));
        if (number % 3 != 0) {
            dims[0].kind = METER_DIM_NUMBER;
            dims[0].value = str_of(digits);
        }
        dims[1].value = str_of(value);
        meter_dims_key(dims, 2, key);
        assert_memory_equal(set.key, key, sizeof(key));
        assert_str(set.json, text);
    }
}

static void
dimensions__of_other_names__are_other_sets(void **state)
{
    const struct attribute_path one = plain("a");
    const struct attribute_path other = plain("b");
    struct json_value attributes = read_json("{\"a\":1,\"b\":1}");
    struct dimension_set a, b, none;
    const char *error = NULL;

    (void)state;
    assert_true(attribute_dimensions(&attributes, &one, 1, "counter",
                                     str_of("c"), &arena, &a, &error));
    assert_true(attribute_dimensions(&attributes, &other, 1, "counter",
                                     str_of("c"), &arena, &b, &error));
    assert_true(attribute_dimensions(&attributes, NULL, 0, "counter",
                                     str_of("c"), &arena, &none, &error));
    assert_memory_not_equal(a.key, b.key, METER_DIGEST_SIZE);
    assert_memory_not_equal(a.key, none.key, METER_DIGEST_SIZE);
    assert_str(none.json, "{}");
}

static void
dimensions__reason__says_whose_they_are(void **state)
{
    const struct attribute_path path = plain("a");
    struct json_value attributes = read_json("{\"a\":[]}");
    struct dimension_set set;
    const char *error = NULL;

    (void)state;
    assert_false(attribute_dimensions(&attributes, &path, 1, "meter",
                                      str_of("m"), &arena, &set, &error));
    assert_string_equal(error, "attribute \"a\" is an array: it cannot be a "
                               "dimension of meter \"m\"");
}

static void
decimal__numbers_and_captured_text__are_read(void **state)
{
    static const struct {
        const char *attributes;
        uint32_t flags;
        enum attribute_reading reading;
        const char *value;
    } table[] = {
        {"{\"a\":5}", 0, ATTRIBUTE_OK, "5"},
        {"{\"a\":-1.5e1}", 0, ATTRIBUTE_OK, "-15"},
        {"{\"a\":0.000000001}", 0, ATTRIBUTE_OK, "0.000000001"},
        {"{\"a\":\"5\"}", METER_EVENT_CAPTURED, ATTRIBUTE_OK, "5"},
        {"{}", 0, ATTRIBUTE_ABSENT, NULL},
        {"{\"a\":null}", METER_EVENT_CAPTURED, ATTRIBUTE_ABSENT, NULL},
        {"{\"a\":\"5\"}", 0, ATTRIBUTE_BAD, NULL},
        {"{\"a\":\"5 \"}", METER_EVENT_CAPTURED, ATTRIBUTE_BAD, NULL},
        {"{\"a\":true}", METER_EVENT_CAPTURED, ATTRIBUTE_BAD, NULL},
        {"{\"a\":0.0000000001}", 0, ATTRIBUTE_BAD, NULL},
        {"{\"a\":1e30}", 0, ATTRIBUTE_BAD, NULL},
    };
    const struct attribute_path path = plain("a");

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct json_value attributes = read_json(table[i].attributes);
        struct meter_event event = {.flags = table[i].flags};
        struct meter_decimal value = {0};
        char text[METER_DECIMAL_TEXT_SIZE + 1];

        assert_int_equal(attribute_decimal(&attributes, &path, &event, &value),
                         table[i].reading);
        if (table[i].reading == ATTRIBUTE_OK) {
            size_t size = meter_decimal_format(value, text);

            assert_str((struct meter_str){text, size}, table[i].value);
        }
    }
}

static void
scalar__is_canonical_and_typed(void **state)
{
    static const struct {
        const char *attributes;
        enum attribute_reading reading;
        const char *value;
    } table[] = {
        {"{\"a\":1.0}", ATTRIBUTE_OK, "1"},
        {"{\"a\":\"1\"}", ATTRIBUTE_OK, "\"1\""},
        {"{\"a\":false}", ATTRIBUTE_OK, "false"},
        {"{\"a\":\"\\u0041\\\"\"}", ATTRIBUTE_OK, "\"A\\\"\""},
        {"{\"a\":\"123456\"}", ATTRIBUTE_OK, "\"123456\""},
        {"{\"a\":\"1234567\"}", ATTRIBUTE_BAD, NULL},
        {"{\"a\":{}}", ATTRIBUTE_BAD, NULL},
        {"{\"a\":[]}", ATTRIBUTE_BAD, NULL},
        {"{\"a\":null}", ATTRIBUTE_ABSENT, NULL},
        {"{}", ATTRIBUTE_ABSENT, NULL},
    };
    const struct attribute_path path = plain("a");

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct json_value attributes = read_json(table[i].attributes);
        struct meter_str value = {NULL, 0};

        assert_int_equal(
            attribute_scalar(&attributes, &path, 8, &arena, &value),
            table[i].reading);
        if (table[i].reading == ATTRIBUTE_OK) {
            assert_str(value, table[i].value);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(find__exact_key__then_the_path),
    TEST(dimensions__seen_before_or_not__have_the_key_of_their_content),
    TEST(dimensions__of_other_names__are_other_sets),
    TEST(dimensions__reason__says_whose_they_are),
    TEST(decimal__numbers_and_captured_text__are_read),
    TEST(scalar__is_canonical_and_typed),
};

RUN_TAP(tests)
