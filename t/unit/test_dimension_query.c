/*
 * test_dimension_query.c - arguments of a question to the keys they mean.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "api/counters.c"

static const struct attribute_path two_paths[] = {
    {{"a", 1}, NULL, 1},
    {{"b", 1}, NULL, 1},
};
static const struct counter two = {
    .name = {"two", 3},
    .dimensions = two_paths,
    .dimension_count = 2,
};

/* Names that mean something else, sorted. */
static const struct attribute_path odd_paths[] = {
    {{"dimension.limit", 15}, NULL, 2},
    {{"dimension.x", 11}, NULL, 2},
    {{"limit", 5}, NULL, 1},
    {{"sum", 3}, NULL, 1},
};
static const struct counter odd = {
    .name = {"odd", 3},
    .dimensions = odd_paths,
    .dimension_count = 4,
};

static int
setup(void **state)
{
    struct arena *arena = calloc(1, sizeof(*arena));

    arena_init(arena, 4096, 1u << 20);
    *state = arena;
    return 0;
}

static int
teardown(void **state)
{
    arena_fini(*state);
    free(*state);
    return 0;
}

static const char *
query_of(const struct counter *counter, struct arena *arena, const char *raw,
         struct dimension_query *out)
{
    struct url_arguments args;
    const char *error = NULL;

    assert_true(url_arguments_read((struct meter_str){raw, strlen(raw)}, arena,
                                   &args, &error));
    return counter_dimensions_read(counter, &args, arena, out, &error) ? NULL
                                                                       : error;
}

/* All dimensions of `two` must be given; how many keys that may mean. */
static size_t
keys_of(struct arena *arena, const char *raw, struct dimension_keys *keys)
{
    struct dimension_query query;
    const char *error;

    assert_null(query_of(&two, arena, raw, &query));
    assert_true(query.is_key);
    assert_true(dimension_query_keys(&query, keys, &error));
    return keys->count;
}

static bool
has_key(const struct dimension_keys *found, enum meter_dim_kind kind_a,
        const char *a, enum meter_dim_kind kind_b, const char *b)
{
    struct meter_dim dims[] = {
        {{"a", 1}, kind_a, {a, strlen(a)}},
        {{"b", 1}, kind_b, {b, strlen(b)}},
    };
    uint8_t key[METER_DIGEST_SIZE];

    meter_dims_key(dims, 2, key);
    for (size_t i = 0; i < found->count; i++) {
        if (memcmp(found->items[i], key, sizeof(key)) == 0) {
            return true;
        }
    }
    return false;
}

static void
dimension_query__readings_of_a_value__as_documented(void **state)
{
    struct dimension_keys k;

    assert_int_equal(keys_of(*state, "a=x&b=%22x%22", &k), 1);
    assert_true(has_key(&k, METER_DIM_STRING, "x", METER_DIM_STRING, "x"));

    assert_int_equal(keys_of(*state, "b=5&a=%225%22", &k), 2);
    assert_true(has_key(&k, METER_DIM_STRING, "5", METER_DIM_STRING, "5"));
    assert_true(has_key(&k, METER_DIM_STRING, "5", METER_DIM_NUMBER, "5"));
    assert_false(has_key(&k, METER_DIM_NUMBER, "5", METER_DIM_NUMBER, "5"));

    assert_int_equal(keys_of(*state, "a=5.0&b=true", &k), 4);
    assert_true(has_key(&k, METER_DIM_NUMBER, "5", METER_DIM_BOOL, "true"));
    assert_true(has_key(&k, METER_DIM_STRING, "5.0", METER_DIM_STRING, "true"));

    assert_int_equal(keys_of(*state, "a=&b=%22%22", &k), 1);
    assert_true(has_key(&k, METER_DIM_NULL, "", METER_DIM_STRING, ""));

    assert_int_equal(keys_of(*state, "a=null&b=x", &k), 2);
    assert_true(has_key(&k, METER_DIM_NULL, "", METER_DIM_STRING, "x"));
    assert_true(has_key(&k, METER_DIM_STRING, "null", METER_DIM_STRING, "x"));

    assert_int_equal(keys_of(*state, "a=007&b=%2B5", &k), 1);
}

static void
dimension_query__some_given__no_key(void **state)
{
    struct dimension_query q;

    assert_null(query_of(&two, *state, "", &q));
    assert_int_equal(q.count, 0);
    assert_false(q.is_key);
    assert_null(query_of(&two, *state, "b=5", &q));
    assert_int_equal(q.count, 1);
    assert_false(q.is_key);
    assert_memory_equal(q.filters[0].name.data, "b", 1);
    assert_int_equal(q.filters[0].reading_count, 2);
    assert_null(query_of(&two, *state, "limit=5&cursor=x&sum=true&b=1", &q));
    assert_int_equal(q.count, 1);
    assert_null(query_of(&two, *state, "b=1&a=2", &q));
    assert_true(q.is_key);
    assert_memory_equal(q.filters[0].name.data, "a", 1);
}

static void
dimension_query__names_that_mean_something_else__reached_by_the_prefix(
    void **state)
{
    struct dimension_query q;

    assert_null(query_of(&odd, *state, "limit=5&sum=true", &q));
    assert_int_equal(q.count, 0);
    assert_null(query_of(&odd, *state, "dimension.limit=a", &q));
    assert_int_equal(q.count, 1);
    assert_memory_equal(q.filters[0].name.data, "limit", 5);
    assert_null(query_of(&odd, *state,
                         "dimension.dimension.limit=a&dimension.sum=b&"
                         "dimension.x=c",
                         &q));
    assert_int_equal(q.count, 3);
    assert_int_equal(q.filters[0].name.size, strlen("dimension.limit"));
    assert_int_equal(q.filters[1].name.size, strlen("dimension.x"));
    assert_int_equal(q.filters[2].name.size, strlen("sum"));
    assert_string_equal(
        query_of(&odd, *state, "dimension.x=1&dimension.dimension.x=2", &q),
        "the dimension \"dimension.x\" is given twice");
    assert_string_equal(query_of(&two, *state, "dimension.=1", &q),
                        "the counter has no dimension \"dimension.\"");
}

static void
dimension_query__unknown_or_too_long__named(void **state)
{
    static char raw[METER_DIMENSION_SIZE_MAX + 64];
    struct dimension_query q;

    assert_string_equal(query_of(&two, *state, "a=1&b=2&zip=3", &q),
                        "the counter has no dimension \"zip\"");
    assert_string_equal(query_of(&two, *state, "a=1&dimension.a=3", &q),
                        "the dimension \"a\" is given twice");
    memcpy(raw, "b=1&a=", 6);
    memset(raw + 6, 'x', METER_DIMENSION_SIZE_MAX + 3);
    assert_string_equal(query_of(&two, *state, raw, &q),
                        "the value of \"a\" is too long");
}

static void
dimension_query_keys__too_many_combinations__refused(void **state)
{
    struct attribute_path paths[7];
    struct counter counter = {
        .dimensions = paths,
        .dimension_count = 7,
    };
    struct dimension_query q;
    struct dimension_keys k;
    const char *error = NULL;

    for (size_t i = 0; i < 7; i++) {
        static const char names[] = "abcdefg";

        paths[i] = (struct attribute_path){{names + i, 1}, NULL, 1};
    }
    assert_null(
        query_of(&counter, *state, "a=1&b=1&c=1&d=1&e=1&f=1&g=%221%22", &q));
    assert_true(dimension_query_keys(&q, &k, &error));
    assert_int_equal(k.count, DIMENSION_KEYS_MAX);
    assert_null(query_of(&counter, *state, "a=1&b=1&c=1&d=1&e=1&f=1&g=1", &q));
    assert_false(dimension_query_keys(&q, &k, &error));
    assert_non_null(strstr(error, "in quotes"));
}

static void
dimension_query_json__what_was_picked__canonical(void **state)
{
    struct dimension_query q;
    struct meter_str json;

#define JSON(picked_, expected)                                           \
    do {                                                                  \
        assert_true(                                                      \
            dimension_query_json(&q, METER_STR(picked_), *state, &json)); \
        assert_true(meter_str_equal(json, METER_STR(expected)));          \
    } while (0)

    assert_null(query_of(&two, *state, "a=5.0&b=%22q%5C%22%0A%22", &q));
    JSON("00", "{\"a\":\"5.0\",\"b\":\"q\\\\\\\"\\n\"}");
    JSON("10", "{\"a\":5,\"b\":\"q\\\\\\\"\\n\"}");
    JSON("", "{\"a\":\"5.0\",\"b\":\"q\\\\\\\"\\n\"}");
    assert_false(dimension_query_json(&q, METER_STR("1"), *state, &json));
    assert_false(dimension_query_json(&q, METER_STR("01"), *state, &json));
    assert_false(dimension_query_json(&q, METER_STR("x0"), *state, &json));
    assert_null(query_of(&two, *state, "a=null&b=true", &q));
    JSON("11", "{\"a\":null,\"b\":true}");
    assert_null(query_of(&two, *state, "", &q));
    JSON("", "{}");
#undef JSON
}

static void
dimension_reading_json__each_kind__a_scalar(void **state)
{
    static const struct {
        const char *raw;
        size_t reading;
        const char *json;
    } rows[] = {
        {"a=x%22y", 0, "\"x\\\"y\""}, {"a=1e2", 0, "\"1e2\""},
        {"a=1e2", 1, "100"},          {"a=false", 1, "false"},
        {"a=null", 1, "null"},        {"a=", 0, "null"},
        {"a=%22%22", 0, "\"\""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct dimension_query q;
        struct meter_str json;

        assert_null(query_of(&two, *state, rows[i].raw, &q));
        assert_true(counter_reading_json(
            &q.filters[0].readings[rows[i].reading], *state, &json));
        assert_int_equal(json.size, strlen(rows[i].json));
        assert_memory_equal(json.data, rows[i].json, json.size);
    }
}

int
main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(dimension_query__readings_of_a_value__as_documented),
        T(dimension_query__some_given__no_key),
        T(dimension_query__names_that_mean_something_else__reached_by_the_prefix),
        T(dimension_query__unknown_or_too_long__named),
        T(dimension_query_keys__too_many_combinations__refused),
        T(dimension_query_json__what_was_picked__canonical),
        T(dimension_reading_json__each_kind__a_scalar),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
