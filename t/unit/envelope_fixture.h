/*
 * envelope_fixture.h - rules, a tenant and an arena to read bodies with.
 */

#ifndef ENVELOPE_FIXTURE_H
#define ENVELOPE_FIXTURE_H

#include "meter_cmocka.h"

#include "ingest/envelope.h"

#define NOW_US INT64_C(1767225600000000) /* 2026-01-01 */

static const char rules[] =
    "idempotency: { futureSkew: 1h, pastSkew: 36525d }\n"
    "events:\n"
    "  - { type: api.request, required: [route] }\n"
    "  - { type: span.ended, required: [resource.service] }\n"
    "  - { type: job.done, idempotency: { requireEventId: false } }\n";

struct fixture {
    struct config *config;
    struct meter_salt salt;
    struct envelope_context context;
    struct arena arena;
    struct envelope *list;
    size_t count;
    const char *error;
};

static inline struct config *
load_rules(const char *text)
{
    struct config_errors errors;
    struct config *config;

    if (!config_load_text("rules", str_of(text), &config, &errors)) {
        config_errors_print(&errors, stderr);
        abort();
    }
    return config;
}

static inline int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->config = load_rules(rules);
    meter_salt_init(&f->salt, "secret", 6);
    f->context = (struct envelope_context){.config = f->config,
                                           .salt = &f->salt,
                                           .tenant = METER_STR("acme"),
                                           .now_us = NOW_US};
    arena_init(&f->arena, 1 << 16, 64 << 20);
    *state = f;
    return 0;
}

static inline int
teardown(void **state)
{
    struct fixture *f = *state;

    arena_fini(&f->arena);
    config_unref(f->config);
    free(f);
    return 0;
}

static inline enum envelope_body
read_input(struct fixture *f, const struct envelope_input *input)
{
    return envelope_read(input, &f->context, &f->arena, &f->list, &f->count,
                         &f->error);
}

static inline enum envelope_body
read_form(struct fixture *f, enum envelope_form form, const char *body)
{
    return read_input(
        f, &(struct envelope_input){.form = form, .body = str_of(body)});
}

static inline enum envelope_body
read_body(struct fixture *f, struct meter_str body)
{
    return read_input(f, &(struct envelope_input){.body = body});
}

static inline enum envelope_body
read_text(struct fixture *f, const char *body)
{
    return read_body(f, str_of(body));
}

static inline const struct envelope *
read_one(struct fixture *f, const char *body)
{
    assert_int_equal(read_text(f, body), ENVELOPE_SINGLE);
    assert_int_equal(f->count, 1);
    return &f->list[0];
}

static inline const struct envelope *
read_good(struct fixture *f, const char *body)
{
    const struct envelope *one = read_one(f, body);

    if (one->error != NULL) {
        fail_msg("%s: %s", body, one->error);
    }
    return one;
}

static inline void
assert_str(struct meter_str actual, const char *expected)
{
    assert_int_equal(actual.size, strlen(expected));
    assert_memory_equal(actual.data, expected, actual.size);
}

static inline void
assert_contains(const char *text, const char *fragment, const char *name)
{
    if (text == NULL || strstr(text, fragment) == NULL) {
        fail_msg("%s: \"%s\" is not in \"%s\"", name, fragment,
                 text == NULL ? "(valid)" : text);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
