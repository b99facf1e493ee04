/*
 * series_fixture.h - rules with a series of every kind, and events of theirs.
 *
 *   rules, JSON of attributes -> [series_event] -> struct series_effect
 */

#ifndef UNIT_SERIES_FIXTURE_H
#define UNIT_SERIES_FIXTURE_H

#include "meter_cmocka.h"

#include "config/config.h"
#include "project/series.h"

static const char series_rules[] =
    "events:\n"
    "  - { type: request }\n"
    "  - { type: sample }\n"
    "  - { type: changed }\n"
    "  - { type: idle }\n"
    "series:\n"
    "  - { name: requests, kind: counter, on: [request],\n"
    "      dimensions: [route, account.id] }\n"
    "  - { name: bytes, kind: counter, on: [request], value: size,\n"
    "      dimensions: [route, account.id] }\n"
    "  - { name: latency, kind: histogram, on: [request], value: ms,\n"
    "      buckets: [1, 2.5, 10], dimensions: [route] }\n"
    "  - { name: depth, kind: gauge, policy: last, on: [sample],\n"
    "      value: depth }\n"
    "  - { name: orders, kind: state, on: [changed], entity: order,\n"
    "      state: state }\n"
    "  - { name: regions, kind: state, on: [changed], entity: order,\n"
    "      state: region, dimensions: [account] }\n";

struct series_fixture {
    struct config *config;
    struct arena arena;
    struct meter_event event;
    const struct series_effect *effect; /* NULL: none */
    const char *error;
};

static inline int
series_setup(void **state)
{
    struct series_fixture *f = calloc(1, sizeof(*f));
    struct config_errors errors;

    if (!config_load_text("rules", str_of(series_rules), &f->config, &errors)) {
        config_errors_print(&errors, stderr);
        abort();
    }
    arena_init(&f->arena, 4096, 64 << 20);
    *state = f;
    return 0;
}

static inline int
series_teardown(void **state)
{
    struct series_fixture *f = *state;

    arena_fini(&f->arena);
    config_unref(f->config);
    free(f);
    return 0;
}

static inline struct meter_decimal
decimal_of(const char *text)
{
    struct meter_decimal decimal;

    assert_int_equal(meter_decimal_parse(str_of(text), &decimal),
                     METER_DECIMAL_OK);
    return decimal;
}

/* False: f->error. The text must live as long as the effect. */
static inline bool
series_event(struct series_fixture *f, const char *type, const char *attributes,
             int64_t count, const char *quantity)
{
    static const struct json_limits limits = {16, 256, 128, 8192};
    const struct event_type *row =
        catalog_event_type(f->config->catalog, str_of(type));
    struct json_value object;
    struct json_error error;
    const void *effect = &f; /* must be overwritten */
    bool is_careful = false;
    size_t used;

    assert_non_null(row);
    assert_true(json_read(str_of(attributes), &limits, &f->arena, &object,
                          &used, &error));
    f->event =
        (struct meter_event){.count = count, .quantity = decimal_of(quantity)};
    f->error = NULL;
    f->effect = NULL;
    if (!series_project(row, &f->event, &object, &f->arena, &effect,
                        &is_careful, &f->error)) {
        return false;
    }
    assert_false(is_careful);
    f->effect = effect;
    return true;
}

static inline void
assert_str(struct meter_str actual, const char *expected)
{
    if (actual.data == NULL || actual.size != strlen(expected) ||
        memcmp(actual.data, expected, actual.size) != 0) {
        fail_msg("\"%.*s\" is not \"%s\"", (int)actual.size, actual.data,
                 expected);
    }
}

static inline void
assert_decimal(struct meter_decimal actual, const char *expected)
{
    char text[METER_DECIMAL_TEXT_SIZE + 1];

    meter_decimal_format(actual, text);
    assert_string_equal(text, expected);
}

static inline void
assert_sum(struct decimal_sum actual, const char *expected)
{
    char text[DECIMAL_SUM_TEXT_SIZE + 1];

    decimal_sum_format(actual, text);
    assert_string_equal(text, expected);
}

#endif
