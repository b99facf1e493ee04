/*
 * What an event does to which counter row.
 */

#include "meter_cmocka.h"

#include "config/config.h"
#include "project/counter.h"

static const char rules[] =
    "events:\n"
    "  - { type: up }\n"
    "  - { type: down }\n"
    "  - { type: idle }\n"
    "  - { type: move }\n"
    "counters:\n"
    "  - counterName: open\n"
    "    mode: persistent\n"
    "    dimensions: [zone, account.id]\n"
    "    floorAtZero: true\n"
    "    rules: [ { on: up, op: increment }, { on: down, op: decrement } ]\n"
    "  - counterName: bytes\n"
    "    mode: persistent\n"
    "    dimensions: []\n"
    "    rules: [ { on: up, op: increment, by: size },\n"
    "             { on: down, op: decrement, by: size } ]\n"
    "  - counterName: states\n"
    "    mode: persistent\n"
    "    dimensions: []\n"
    "    transitions: { entity: device }\n"
    "    rules: [ { on: up, op: increment }, { on: down, op: decrement } ]\n"
    "  - counterName: zones\n"
    "    mode: persistent\n"
    "    dimensions: [account.id, zone]\n"
    "    rules: [ { on: up, op: increment }, { on: move, op: increment } ]\n"
    "  - counterName: regions\n"
    "    mode: persistent\n"
    "    dimensions: [account.id, region]\n"
    "    rules: [ { on: move, op: increment } ]\n";

struct fixture {
    struct config *config;
    struct arena arena;
    struct json_value attributes;
    struct meter_event event;
    const struct counter_change *changes;
    size_t count;
    bool is_careful;
    const char *error;
};

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct config_errors errors;

    if (!config_load_text("rules", str_of(rules), &f->config, &errors)) {
        config_errors_print(&errors, stderr);
        abort();
    }
    arena_init(&f->arena, 4096, 16 << 20);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;

    arena_fini(&f->arena);
    config_unref(f->config);
    free(f);
    return 0;
}

static bool
project_in(struct fixture *f, const struct event_type *row, struct arena *arena)
{
    const void *data = &f; /* must be overwritten */
    const struct counter_effect *effect;

    f->changes = NULL;
    f->count = 0;
    f->error = NULL;
    f->is_careful = false;
    if (!counter_project(row, &f->event, &f->attributes, arena, &data,
                         &f->is_careful, &f->error)) {
        return false;
    }
    effect = data;
    if (effect != NULL) {
        assert_true(effect->count > 0);
        f->changes = effect->changes;
        f->count = effect->count;
    }
    return true;
}

static bool
project_flagged(struct fixture *f, const char *type, const char *attributes,
                int64_t count, uint32_t flags)
{
    static const struct json_limits limits = {16, 256, 128, 8192};
    const struct event_type *row =
        catalog_event_type(f->config->catalog, str_of(type));
    struct json_error error;
    size_t used;

    assert_non_null(row);
    assert_true(json_read(str_of(attributes), &limits, &f->arena,
                          &f->attributes, &used, &error));
    f->event = (struct meter_event){.count = count, .flags = flags};
    return project_in(f, row, &f->arena);
}

static bool
project(struct fixture *f, const char *type, const char *attributes,
        int64_t count)
{
    return project_flagged(f, type, attributes, count, 0);
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
assert_refused(struct fixture *f, const char *attributes, const char *fragment)
{
    assert_false(project(f, "up", attributes, 1));
    if (strstr(f->error, fragment) == NULL) {
        fail_msg("%s: %s", attributes, f->error);
    }
}

static void
project__plain_event__changes_rows_in_order_of_the_rules(void **state)
{
    struct fixture *f = *state;

    assert_true(project(f, "up", "{\"zone\":\"z\",\"size\":7}", 1));
    assert_int_equal(f->count, 3); /* no entity, no transition */
    assert_false(f->is_careful);
    assert_str(f->changes[0].counter->name, "open");
    assert_true(f->changes[0].delta == 1);
    assert_str(f->changes[0].set.json, "{\"account.id\":null,\"zone\":\"z\"}");
    assert_str(f->changes[1].counter->name, "bytes");
    assert_true(f->changes[1].delta == 7);
    assert_str(f->changes[1].set.json, "{}");
    assert_str(f->changes[2].counter->name, "zones");
    assert_true(project(f, "down", "{\"zone\":\"z\",\"size\":7}", 1));
    assert_int_equal(f->count, 2);
    assert_true(f->changes[0].delta == -1);
    assert_true(f->changes[1].delta == -7);
    assert_true(project(f, "idle", "{}", 1));
    assert_int_equal(f->count, 0);
}

static void
project__deltas__are_multiplied_by_count(void **state)
{
    struct fixture *f = *state;

    assert_true(project(f, "down", "{\"size\":7}", 1000));
    assert_true(f->changes[0].delta == -1000);
    assert_true(f->changes[1].delta == -7000);
    assert_true(project(f, "up", "{\"size\":9223372036854775807}", 1));
    assert_true(f->changes[1].delta == INT64_MAX);
    assert_true(project(f, "down", "{\"size\":9223372036854775807}", 1));
    assert_true(f->changes[1].delta == -INT64_MAX);
    assert_false(project(f, "down", "{\"size\":9223372036854775807}", 2));
    assert_non_null(strstr(f->error, "amount for counter \"bytes\""));
}

static void
project__amount__is_a_non_negative_integer_by_value(void **state)
{
    static const struct {
        const char *attributes;
        int64_t delta;
    } good[] = {
        {"{}", 0},
        {"{\"size\":null}", 0},
        {"{\"size\":0}", 0},
        {"{\"size\":-0}", 0},
        {"{\"size\":5.0}", 5},
        {"{\"size\":1.5e3}", 1500},
        {"{\"size\":9223372036854775807.000000000}", INT64_MAX},
    };
    static const char *const bad[] = {
        "{\"size\":-1}",    "{\"size\":1.5}",
        "{\"size\":\"5\"}", "{\"size\":true}",
        "{\"size\":[]}",    "{\"size\":{}}",
        "{\"size\":1e19}",  "{\"size\":9223372036854775808}",
        "{\"size\":1e-9}",  "{\"size\":1e-300}",
        "{\"size\":1e300}", "{\"size\":\"\"}",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(project(f, "up", good[i].attributes, 1));
        assert_true(f->changes[1].delta == good[i].delta);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_refused(f, bad[i],
                       "attribute \"size\" is not a non-negative 64-bit");
    }
}

static void
project__amount_of_a_captured_event__may_be_text(void **state)
{
    static const struct {
        const char *attributes;
        int64_t delta; /* -1: refused */
    } table[] = {
        {"{\"size\":\"0\"}", 0},
        {"{\"size\":\"512\"}", 512},
        {"{\"size\":\"5.0\"}", 5},
        {"{\"size\":5}", 5},
        {"{}", 0},
        {"{\"size\":\"\"}", -1},
        {"{\"size\":\"-\"}", -1},
        {"{\"size\":\"-1\"}", -1},
        {"{\"size\":\"1.5\"}", -1},
        {"{\"size\":\"5, 6\"}", -1},
        {"{\"size\":\" 5\"}", -1},
        {"{\"size\":true}", -1},
        {"{\"size\":\"1e19\"}", -1},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        bool is_good = project_flagged(f, "up", table[i].attributes, 1,
                                       METER_EVENT_CAPTURED);

        if (is_good != (table[i].delta >= 0)) {
            fail_msg("%s", table[i].attributes);
        }
        if (is_good) {
            assert_true(f->changes[1].delta == table[i].delta);
        }
    }
    /* Any other flag leaves the rule as it is. */
    assert_false(project_flagged(f, "up", "{\"size\":\"5\"}", 1,
                                 ~(uint32_t)METER_EVENT_CAPTURED));
}

static void
project__dimension_kinds__are_typed(void **state)
{
    static const char *const different[][2] = {
        {"{\"zone\":1}", "{\"account.id\":null,\"zone\":1}"},
        {"{\"zone\":\"1\"}", "{\"account.id\":null,\"zone\":\"1\"}"},
        {"{\"zone\":true}", "{\"account.id\":null,\"zone\":true}"},
        {"{\"zone\":\"true\"}", "{\"account.id\":null,\"zone\":\"true\"}"},
        {"{\"zone\":null}", "{\"account.id\":null,\"zone\":null}"},
        {"{\"zone\":\"null\"}", "{\"account.id\":null,\"zone\":\"null\"}"},
        {"{\"zone\":\"\"}", "{\"account.id\":null,\"zone\":\"\"}"},
        {"{\"zone\":1.5}", "{\"account.id\":null,\"zone\":1.5}"},
        {"{\"account.id\":1}", "{\"account.id\":1,\"zone\":null}"},
        {"{\"zone\":\"\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\"}",
         "{\"account.id\":null,"
         "\"zone\":\"\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\"}"},
    };
    enum { KINDS = sizeof(different) / sizeof(different[0]) };
    uint8_t keys[KINDS][METER_DIGEST_SIZE];
    struct fixture *f = *state;

    for (size_t i = 0; i < KINDS; i++) {
        assert_true(project(f, "up", different[i][0], 1));
        assert_str(f->changes[0].set.json, different[i][1]);
        memcpy(keys[i], f->changes[0].set.key, METER_DIGEST_SIZE);
        for (size_t j = 0; j < i; j++) {
            assert_memory_not_equal(keys[i], keys[j], METER_DIGEST_SIZE);
        }
    }
}

static void
project__same_dimensions_in_other_words__are_one_row(void **state)
{
    static const char *const same[][2] = {
        {"{\"zone\":1}", "{\"zone\":1.0}"},
        {"{\"zone\":100}", "{\"zone\":1e2}"},
        {"{\"zone\":0}", "{\"zone\":-0.00}"},
        {"{\"zone\":null}", "{\"other\":1}"},
        {"{\"zone\":\"a\",\"account.id\":2}",
         "{\"account\":{\"id\":2.0},\"zone\":\"\\u0061\"}"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        uint8_t key[METER_DIGEST_SIZE];
        struct meter_str dimensions;

        assert_true(project(f, "up", same[i][0], 1));
        memcpy(key, f->changes[0].set.key, sizeof(key));
        dimensions = f->changes[0].set.json;
        assert_true(project(f, "up", same[i][1], 1));
        assert_memory_equal(key, f->changes[0].set.key, sizeof(key));
        assert_true(meter_str_equal(dimensions, f->changes[0].set.json));
    }
}

static void
project__what_cannot_be_a_dimension__rejects_the_event(void **state)
{
    struct fixture *f = *state;
    char text[2048];

    assert_refused(f, "{\"zone\":{}}",
                   "attribute \"zone\" is an object: it cannot be a "
                   "dimension of counter \"open\"");
    assert_refused(f, "{\"zone\":[1]}", "is an array");
    assert_refused(f, "{\"account.id\":[]}", "\"account.id\" is an array");
    snprintf(text, sizeof(text), "{\"zone\":\"%01024d\"}", 1);
    assert_true(project(f, "up", text, 1));
    snprintf(text, sizeof(text), "{\"zone\":\"%01025d\"}", 1);
    assert_refused(f, text, "is longer than 1024 bytes");
}

static void
project__no_memory__is_a_reason(void **state)
{
    struct fixture *f = *state;
    const struct event_type *row;
    size_t failed = 0;

    assert_true(project(f, "up", "{\"zone\":\"z\"}", 1));
    row = catalog_event_type(f->config->catalog, METER_STR("up"));
    for (size_t room = 16; room < 2048; room += 16) {
        struct arena small;

        arena_init(&small, 16, room);
        if (!project_in(f, row, &small)) {
            assert_non_null(f->error);
            failed++;
        }
        arena_fini(&small);
    }
    assert_true(failed > 0 && failed < 127);
}

/* Equal lists of dimensions, in whatever order: worked out once. */
static void
project__counters_with_the_same_dimensions__share_the_set(void **state)
{
    struct fixture *f = *state;

    assert_true(project(f, "up", "{\"zone\":\"z\",\"device\":1}", 1));
    assert_int_equal(f->count, 4);
    assert_str(f->changes[3].counter->name, "zones");
    assert_ptr_equal(f->changes[3].set.json.data, f->changes[0].set.json.data);
    assert_memory_equal(f->changes[3].set.key, f->changes[0].set.key,
                        METER_DIGEST_SIZE);
    assert_str(f->changes[2].counter->name, "states");
    assert_ptr_equal(f->changes[2].set.json.data, f->changes[1].set.json.data);
    /* As many, but others. */
    assert_true(project(f, "move", "{\"zone\":\"z\",\"region\":\"r\"}", 1));
    assert_int_equal(f->count, 2);
    assert_str(f->changes[0].set.json, "{\"account.id\":null,\"zone\":\"z\"}");
    assert_str(f->changes[1].set.json,
               "{\"account.id\":null,\"region\":\"r\"}");
}

static void
project__entity__makes_the_event_careful(void **state)
{
    static const char *const entities[][2] = {
        {"{\"device\":\"d\"}", "\"d\""}, {"{\"device\":1.0}", "1"},
        {"{\"device\":\"1\"}", "\"1\""}, {"{\"device\":true}", "true"},
        {"{\"device\":\"\"}", "\"\""},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(entities) / sizeof(entities[0]); i++) {
        assert_true(project(f, "down", entities[i][0], 1));
        assert_int_equal(f->count, 3);
        assert_true(f->is_careful);
        assert_null(f->changes[0].entity.data);
        assert_str(f->changes[2].entity, entities[i][1]);
        assert_true(f->changes[2].delta == -1);
    }
    assert_true(project(f, "down", "{\"device\":null}", 1));
    assert_int_equal(f->count, 2);
    assert_false(f->is_careful);
}

static void
project__what_cannot_name_an_entity__rejects_the_event(void **state)
{
    struct fixture *f = *state;
    char text[4096];

    assert_refused(f, "{\"device\":{}}",
                   "attribute \"device\" cannot name an entity of counter "
                   "\"states\"");
    assert_refused(f, "{\"device\":[1]}", "cannot name an entity");
    snprintf(text, sizeof(text), "{\"device\":\"%01998d\"}", 1);
    assert_true(project(f, "up", text, 1));
    snprintf(text, sizeof(text), "{\"device\":\"%01999d\"}", 1);
    assert_refused(f, text, "longer than 2000 bytes");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(project__plain_event__changes_rows_in_order_of_the_rules),
    TEST(project__deltas__are_multiplied_by_count),
    TEST(project__amount__is_a_non_negative_integer_by_value),
    TEST(project__amount_of_a_captured_event__may_be_text),
    TEST(project__dimension_kinds__are_typed),
    TEST(project__same_dimensions_in_other_words__are_one_row),
    TEST(project__what_cannot_be_a_dimension__rejects_the_event),
    TEST(project__no_memory__is_a_reason),
    TEST(project__counters_with_the_same_dimensions__share_the_set),
    TEST(project__entity__makes_the_event_careful),
    TEST(project__what_cannot_name_an_entity__rejects_the_event),
};

RUN_TAP(tests)
