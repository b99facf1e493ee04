/*
 * test_rule_digest.c - what makes a rule another one, and what does not.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "config/config.h"
#include "config/rule_digest.h"

#define EVENTS                              \
    "events:\n"                             \
    "  - { type: call, indexed: [b, a] }\n" \
    "  - { type: open }\n"                  \
    "  - { type: \"*\", indexed: [z] }\n"
#define COUNTERS                                            \
    "counters:\n"                                           \
    "  - counterName: c\n"                                  \
    "    dimensions: [route, zone]\n"                       \
    "    rules: [ { on: call, op: increment, by: size },\n" \
    "             { on: open, op: decrement } ]\n"          \
    "  - counterName: e\n"                                  \
    "    dimensions: []\n"                                  \
    "    transitions: { entity: device }\n"                 \
    "    rules: [ { on: call, op: increment },\n"           \
    "             { on: open, op: decrement } ]\n"
#define USAGE                                           \
    "usage:\n"                                          \
    "  entryCount: { increment: [call, open] }\n"       \
    "  storageBytes: { increment: [call], by: size }\n" \
    "  provisioned: open\n"
#define METERS                                                            \
    "meters:\n"                                                           \
    "  - { metric: m, on: [call, open], aggregation: sum, period: month," \
    " value: size, lateness: 1h, groupBy: [route] }\n"
#define SERIES                                                       \
    "series:\n"                                                      \
    "  - { name: s, kind: histogram, on: [call, open], value: size," \
    " buckets: [1, 2], dimensions: [route] }\n"                      \
    "  - { name: t, kind: state, on: [call], entity: device,"        \
    " state: status }\n"
#define ALL EVENTS COUNTERS USAGE METERS SERIES

static struct config *
load(const char *text)
{
    struct config_errors errors;
    struct config *config;

    if (!config_load_text("t.yaml", (struct meter_str){text, strlen(text)},
                          &config, &errors)) {
        config_errors_print(&errors, stderr);
        fail();
    }
    return config;
}

/* The text with one piece of it replaced; the caller frees it. */
static char *
replaced(const char *from, const char *to)
{
    const char *at = strstr(ALL, from);
    size_t size = strlen(ALL) + strlen(to) + 1;
    char *text = malloc(size);

    assert_non_null(text);
    assert_non_null(at);
    snprintf(text, size, "%.*s%s%s", (int)(at - ALL), ALL, to,
             at + strlen(from));
    return text;
}

/* "counter c, meter m": what differs or is there on one side only. */
static void
changes(const char *text, char *out, size_t size)
{
    struct config *before = load(ALL);
    struct config *after = load(text);
    struct rule_digests a;
    struct rule_digests b;
    size_t used = 0;

    out[0] = '\0';
    assert_true(rule_digests_make(before->catalog, &a));
    assert_true(rule_digests_make(after->catalog, &b));
    for (int side = 0; side < 2; side++) {
        const struct rule_digests *these = side == 0 ? &a : &b;
        const struct rule_digests *those = side == 0 ? &b : &a;

        for (size_t i = 0; i < these->count; i++) {
            const struct rule_digest *one = &these->items[i];
            const struct rule_digest *other =
                rule_digests_find(those, one->kind, one->name);
            bool is_told = other == NULL ||
                           (side == 0 && memcmp(one->digest, other->digest,
                                                sizeof(one->digest)) != 0);

            if (is_told) {
                used += (size_t)snprintf(out + used, size - used, "%s%s %.*s",
                                         used > 0 ? ", " : "",
                                         rule_kind_name(one->kind),
                                         (int)one->name.size, one->name.data);
                assert_true(used < size);
            }
        }
    }
    rule_digests_fini(&a);
    rule_digests_fini(&b);
    config_unref(before);
    config_unref(after);
}

static void
rule_digests__what_figures_depend_on__is_another_rule(void **state)
{
    static const struct {
        const char *from;
        const char *to;
        const char *changed;
    } cases[] = {
        {"[route, zone]", "[route]", "counter c"},
        {"by: size },\n", "by: length },\n", "counter c"},
        {", by: size },\n", "},\n", "counter c"},
        {"{ on: open, op: decrement } ]\n  - counterName: e",
         "{ on: open, op: increment } ]\n  - counterName: e", "counter c"},
        {"    rules: [ { on: call, op: increment, by: size },\n"
         "             { on: open, op: decrement } ]\n",
         "    rules: [ { on: call, op: increment, by: size } ]\n", "counter c"},
        {"    dimensions: [route, zone]\n",
         "    dimensions: [route, zone]\n    floorAtZero: true\n", "counter c"},
        {"entity: device }", "entity: other }", "counter e"},
        {"    transitions: { entity: device }\n", "", "counter e"},
        {"increment: [call, open] }", "increment: [call] }",
         "usage entryCount"},
        {"increment: [call, open] }", "increment: [call], decrement: [open] }",
         "usage entryCount"},
        {"[call], by: size }", "[call], by: length }", "usage storageBytes"},
        {"provisioned: open", "decommissioned: open", "usage status"},
        {"aggregation: sum", "aggregation: max", "meter m"},
        {"period: month", "period: day", "meter m"},
        {", value: size, lateness", ", value: length, lateness", "meter m"},
        {", value: size, lateness", ", lateness", "meter m"},
        {"groupBy: [route]", "groupBy: [zone]", "meter m"},
        {"metric: m, on: [call, open]", "metric: m, on: [call]", "meter m"},
        {"histogram, on: [call, open]", "histogram, on: [call]", "series s"},
        {"open], value: size, buckets", "open], value: length, buckets",
         "series s"},
        {"buckets: [1, 2]", "buckets: [1, 3]", "series s"},
        {"dimensions: [route] }", "dimensions: [zone] }", "series s"},
        {"device, state: status", "other, state: status", "series t"},
        {"state: status", "state: other", "series t"},
        {"indexed: [b, a]", "indexed: [a]", "index call"},
        {"indexed: [b, a]", "indexed: [a, b, c]", "index call"},
        {"indexed: [z]", "indexed: [y]", "index *"},
        {"  - { type: open }\n", "  - { type: open }\n  - { type: new }\n",
         "index *, index new"},
        {"metric: m,", "metric: n,", "meter m, meter n"},
        {USAGE, "",
         "usage apiCallCount, usage entryCount, usage status, usage "
         "storageBytes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = replaced(cases[i].from, cases[i].to);
        char got[256];

        changes(text, got, sizeof(got));
        assert_string_equal(got, cases[i].changed);
        free(text);
    }
}

static void
rule_digests__layout_and_what_no_figure_shows__is_the_same(void **state)
{
    static const struct {
        const char *from;
        const char *to;
    } cases[] = {
        {COUNTERS USAGE, USAGE COUNTERS},
        {"counters:\n", "# a comment\ncounters:   # and another\n"},
        {"[route, zone]", "[ zone,\n      route ]"},
        {"{ on: call, op: increment, by: size },\n"
         "             { on: open, op: decrement }",
         "{ op: decrement, on: open },\n"
         "             { by: size, on: call, op: increment }"},
        {"    dimensions: [route, zone]\n",
         "    floorAtZero: false\n    audit: true\n    dimensions: [route, "
         "zone]\n"},
        {"increment: [call, open]", "increment: [open, call]"},
        {"metric: m, on: [call, open]", "on: [open, call], metric: m"},
        {"lateness: 1h", "lateness: 5h"},
        {"histogram, on: [call, open]", "histogram, on: [open, call]"},
        {"buckets: [1, 2]", "buckets: [1.0, 2]"},
        {"indexed: [b, a]", "indexed: [a, b]"},
        {"{ type: open }", "{ type: open, required: [x] }"},
        {"  - { type: call, indexed: [b, a] }\n  - { type: open }\n",
         "  - { type: open }\n  - { type: call, indexed: [b, a] }\n"},
        {"events:\n", "log: { level: warn }\nlimits: { counterKeys: 7 }\n"
                      "events:\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = replaced(cases[i].from, cases[i].to);
        char got[256];

        changes(text, got, sizeof(got));
        assert_string_equal(got, "");
        free(text);
    }
}

/* On a clamped row the order of two rules of one type can be told. */
static void
rule_digests__rules_of_one_type__have_an_order(void **state)
{
    static const char *const texts[] = {
        "counters:\n  - { counterName: c, dimensions: [], floorAtZero: true, "
        "rules: [\n"
        "    { on: a, op: increment }, { on: a, op: decrement, by: x } ] }\n",
        "counters:\n  - { counterName: c, dimensions: [], floorAtZero: true, "
        "rules: [\n"
        "    { on: a, op: decrement, by: x }, { on: a, op: increment } ] }\n",
    };
    struct config *configs[2];
    struct rule_digests digests[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        configs[i] = load(texts[i]);
        assert_true(rule_digests_make(configs[i]->catalog, &digests[i]));
    }
    assert_memory_not_equal(digests[0].items[0].digest,
                            digests[1].items[0].digest, METER_DIGEST_SIZE);
    for (int i = 0; i < 2; i++) {
        rule_digests_fini(&digests[i]);
        config_unref(configs[i]);
    }
}

static void
rule_digests__no_rules__none(void **state)
{
    struct config *config = load("events: []\n");
    struct rule_digests digests;

    (void)state;
    assert_true(rule_digests_make(config->catalog, &digests));
    assert_int_equal(digests.count, 0);
    assert_null(rule_digests_find(&digests, RULE_COUNTER, METER_STR("c")));
    rule_digests_fini(&digests);
    config_unref(config);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule_digests__what_figures_depend_on__is_another_rule),
        cmocka_unit_test(
            rule_digests__layout_and_what_no_figure_shows__is_the_same),
        cmocka_unit_test(rule_digests__rules_of_one_type__have_an_order),
        cmocka_unit_test(rule_digests__no_rules__none),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
