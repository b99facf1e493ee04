/*
 * json_fixture.h - an arena and wide limits to read JSON with.
 */

#ifndef JSON_FIXTURE_H
#define JSON_FIXTURE_H

#include "meter_cmocka.h"

#include "base/buf.h"
#include "base/json_reader.h"

static const struct json_limits wide = {
    .depth_max = 64,
    .key_count_max = 100000,
    .name_size_max = 1 << 20,
    .string_size_max = 1 << 20,
};

static struct arena arena;

static inline int
setup(void **state)
{
    (void)state;
    arena_init(&arena, 4096, 64 << 20);
    return 0;
}

static inline int
teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

/* A copy without a byte behind it, so that the sanitizer sees overruns. */
static inline struct meter_str
exact_copy(struct meter_str text)
{
    char *copy = malloc(text.size == 0 ? 1 : text.size);

    memcpy(copy, text.data, text.size);
    return (struct meter_str){copy, text.size};
}

static inline struct json_value
read_good(const char *text)
{
    struct json_error error;
    struct json_value value;
    size_t used;

    if (!json_read(str_of(text), &wide, &arena, &value, &used, &error)) {
        fail_msg("%s: %s at %zu", text, error.text, error.offset);
    }
    assert_int_equal(used, strlen(text));
    assert_int_equal(json_skip(str_of(text)), used);
    return value;
}

static inline void
assert_str(struct meter_str actual, const char *expected)
{
    if (actual.size != strlen(expected) ||
        memcmp(actual.data, expected, actual.size) != 0) {
        fail_msg("\"%.*s\" is not \"%s\"", (int)actual.size, actual.data,
                 expected);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
