/*
 * test_catalog.c - the compiled rules.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "config/config.h"
#include "meter_time.h"

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

static const struct event_type *
type_of(const struct config *config, const char *name)
{
    return catalog_event_type(config->catalog,
                              (struct meter_str){name, strlen(name)});
}

#define assert_str(actual, expected)                                   \
    do {                                                               \
        assert_int_equal((actual).size, strlen(expected));             \
        assert_memory_equal((actual).data, (expected), (actual).size); \
    } while (0)

static void
catalog_event_type__declared__has_its_settings(void **state)
{
    struct config *config = load(
        "events:\n"
        "  - { type: api.request, required: [route, a.b],\n"
        "      indexed: [status], delta: true }\n"
        "  - { type: job.done, idempotency: { requireEventId: false } }\n");
    const struct event_type *type = type_of(config, "api.request");

    (void)state;
    assert_non_null(type);
    assert_true(type->declared);
    assert_true(type->delta);
    assert_true(type->require_event_id);
    assert_int_equal(type->required.count, 2);
    assert_str(type->required.items[0].name, "a.b");
    assert_int_equal(type->required.items[0].segment_count, 2);
    assert_str(type->required.items[0].segments[0], "a");
    assert_str(type->required.items[0].segments[1], "b");
    assert_str(type->required.items[1].name, "route");
    assert_int_equal(type->required.items[1].segment_count, 1);
    assert_int_equal(type->indexed.count, 1);
    assert_false(type_of(config, "job.done")->require_event_id);
    assert_false(type_of(config, "job.done")->delta);
    assert_null(type_of(config, "job"));
    assert_null(type_of(config, ""));
    assert_null(type_of(config, "*"));
    config_unref(config);
}

static void
catalog_event_type__any__matches_what_has_no_row(void **state)
{
    struct config *config =
        load("events:\n"
             "  - { type: known }\n"
             "  - { type: \"*\", required: [x], idempotency:\n"
             "      { requireEventId: false } }\n"
             "counters:\n"
             "  - { counterName: c, dimensions: [], rules:\n"
             "      [ { on: job.done, op: increment } ] }\n");

    (void)state;
    assert_str(type_of(config, "known")->name, "known");
    assert_int_equal(type_of(config, "known")->required.count, 0);
    assert_str(type_of(config, "other")->name, "*");
    assert_ptr_equal(type_of(config, "other"), config->catalog->any_type);
    assert_int_equal(type_of(config, "other")->counter_count, 0);
    /* A rule must not change how a type is checked. */
    assert_str(type_of(config, "job.done")->name, "job.done");
    assert_false(type_of(config, "job.done")->declared);
    assert_false(type_of(config, "job.done")->require_event_id);
    assert_int_equal(type_of(config, "job.done")->required.count, 1);
    assert_int_equal(type_of(config, "job.done")->counter_count, 1);
    config_unref(config);
}

static void
catalog_counter__dimensions__sorted_bytewise(void **state)
{
    struct config *config = load("counters:\n"
                                 "  - counterName: c\n"
                                 "    dimensions: [b, a.c, B, a, ab]\n"
                                 "    floorAtZero: true\n"
                                 "    rules: [ { on: x, op: increment } ]\n");
    const struct counter *counter =
        catalog_counter(config->catalog, METER_STR("c"));
    static const char *const sorted[] = {"B", "a", "a.c", "ab", "b"};

    (void)state;
    assert_non_null(counter);
    assert_null(catalog_counter(config->catalog, METER_STR("d")));
    assert_int_equal(counter->dimension_count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_str(counter->dimensions[i].name, sorted[i]);
    }
    assert_true(counter->floor_at_zero);
    assert_false(counter->audit);
    assert_int_equal(counter->keys_max, 1000000);
    assert_null(counter->entity);
    config_unref(config);
}

static void
catalog_event_type__rules_of_several_counters__in_order_of_the_file(
    void **state)
{
    struct config *config =
        load("counters:\n"
             "  - { counterName: second, dimensions: [], rules:\n"
             "      [ { on: x, op: decrement }, { on: y, op: increment },\n"
             "        { on: x, op: increment } ] }\n"
             "  - { counterName: first, dimensions: [], rules:\n"
             "      [ { on: x, op: increment } ] }\n");
    const struct event_type *type = type_of(config, "x");

    (void)state;
    assert_int_equal(type->counter_count, 3);
    assert_str(type->counters[0].counter->name, "second");
    assert_int_equal(type->counters[0].delta, -1);
    assert_str(type->counters[1].counter->name, "second");
    assert_int_equal(type->counters[1].delta, 1);
    assert_str(type->counters[2].counter->name, "first");
    assert_int_equal(type->counters[2].counter->index, 1);
    assert_int_equal(type->counters[0].counter->rule_count, 3);
    assert_str(type->counters[0].counter->rules[1].on, "y");
    assert_null(type->counters[0].by);
    config_unref(config);
}

static void
catalog_counter__transitions__listed_like_any_other(void **state)
{
    struct config *config =
        load("counters:\n"
             "  - { counterName: bytes, dimensions: [], rules:\n"
             "      [ { on: x, op: increment, by: size.total },\n"
             "        { on: x, op: decrement } ] }\n"
             "  - { counterName: online, dimensions: [], transitions:\n"
             "      { entity: id }, rules: [ { on: x, op: increment } ] }\n"
             "  - { counterName: plain, dimensions: [], rules:\n"
             "      [ { on: x, op: increment } ] }\n");
    const struct counter *bytes =
        catalog_counter(config->catalog, METER_STR("bytes"));
    const struct counter *online =
        catalog_counter(config->catalog, METER_STR("online"));

    (void)state;
    assert_null(bytes->entity);
    assert_str(bytes->rules[0].by->name, "size.total");
    assert_str(online->entity->name, "id");
    assert_int_equal(type_of(config, "x")->counter_count, 4);
    assert_str(type_of(config, "x")->counters[0].by->name, "size.total");
    assert_null(type_of(config, "x")->counters[1].by);
    assert_ptr_equal(type_of(config, "x")->counters[2].counter, online);
    assert_str(type_of(config, "x")->counters[3].counter->name, "plain");
    config_unref(config);
}

/* The option stands behind the rules here: order does not matter. */
static void
catalog_counter__keys_max__from_the_option(void **state)
{
    struct config *config =
        load("counters:\n"
             "  - { counterName: a, dimensions: [d], rules:\n"
             "      [ { on: x, op: increment } ] }\n"
             "  - { counterName: b, dimensions: [], transitions:\n"
             "      { entity: e }, rules: [ { on: x, op: increment } ] }\n"
             "limits: { counterKeys: 3 }\n");

    (void)state;
    assert_int_equal(config->catalog->counters[0].keys_max, 3);
    assert_int_equal(config->catalog->counters[1].keys_max, 3);
    assert_int_equal(type_of(config, "x")->counters[1].counter->keys_max, 3);
    config_unref(config);
}

static void
catalog_usage__columns_and_status__reach_the_types(void **state)
{
    struct config *config = load(
        "usage:\n"
        "  storageBytes: { increment: [made], decrement: [gone], by: size }\n"
        "  entryCount: { increment: [made] }\n"
        "  provisioned: tenant.up\n"
        "  decommissioned: tenant.down\n");
    const struct event_type *made = type_of(config, "made");

    (void)state;
    assert_true(config->catalog->usage);
    assert_int_equal(config->catalog->usage_rule_count, 3);
    assert_int_equal(made->usage_count, 2);
    assert_int_equal(made->usage[0].column, USAGE_ENTRY_COUNT);
    assert_null(made->usage[0].by);
    assert_int_equal(made->usage[1].column, USAGE_STORAGE_BYTES);
    assert_str(made->usage[1].by->name, "size");
    assert_int_equal(type_of(config, "gone")->usage[0].delta, -1);
    assert_int_equal(type_of(config, "tenant.up")->usage_status,
                     USAGE_STATUS_ACTIVE);
    assert_int_equal(type_of(config, "tenant.down")->usage_status,
                     USAGE_STATUS_DECOMMISSIONED);
    config_unref(config);
}

static void
catalog_meter__defaults__filled_in(void **state)
{
    struct config *config =
        load("defaults: { lateness: 24h }\n"
             "meters:\n"
             "  - { metric: a, on: [x, y], aggregation: avg, period: day }\n"
             "  - { metric: b, on: [y], value: size, aggregation: unique,\n"
             "      period: hour, lateness: 0s, groupBy: [z, a] }\n");
    const struct billing_meter *a =
        catalog_meter(config->catalog, METER_STR("a"));
    const struct billing_meter *b =
        catalog_meter(config->catalog, METER_STR("b"));

    (void)state;
    assert_int_equal(a->aggregation, BILLING_AVG);
    assert_int_equal(a->period, BILLING_DAY);
    assert_int_equal(a->lateness_us, 24 * METER_TIME_HOUR);
    assert_null(a->value);
    assert_int_equal(a->group_by_count, 0);
    assert_int_equal(a->on_count, 2);
    assert_int_equal(b->lateness_us, 0);
    assert_str(b->value->name, "size");
    assert_str(b->group_by[0].name, "a");
    assert_int_equal(type_of(config, "y")->meter_count, 2);
    assert_ptr_equal(type_of(config, "y")->meters[1], b);
    assert_null(catalog_meter(config->catalog, METER_STR("c")));
    config_unref(config);
}

/* The version of the only series of these rules; its entry in the middle. */
static int64_t
version_of(const char *entry)
{
    char text[512];
    struct config *config;
    int64_t version;

    snprintf(text, sizeof(text),
             "series: [ { name: s, on: [x], %s } ]\n"
             "events: [ { type: x }, { type: y } ]\n",
             entry);
    config = load(text);
    version = catalog_series(config->catalog, METER_STR("s"))->version;
    config_unref(config);
    return version;
}

static void
catalog_series__other_definition__is_another_version(void **state)
{
    static const char *const definitions[] = {
        "kind: counter",
        "kind: counter, dimensions: [a, b]",
        "kind: counter, dimensions: [ab]",
        "kind: gauge, value: v, policy: last",
        "kind: gauge, value: v, policy: avg",
        "kind: histogram, value: v, buckets: [1, 2]",
        "kind: histogram, value: v, buckets: [1, 2, 3]",
        "kind: histogram, value: v, buckets: [12]",
        "kind: state, entity: e, state: t",
        "kind: state, entity: t, state: e",
        "kind: state, entity: e, state: t, dimensions: [a]",
    };
    const size_t count = sizeof(definitions) / sizeof(*definitions);
    int64_t versions[sizeof(definitions) / sizeof(*definitions)];

    (void)state;
    for (size_t i = 0; i < count; i++) {
        versions[i] = version_of(definitions[i]);
        assert_true(versions[i] > 0);
        for (size_t j = 0; j < i; j++) {
            assert_true(versions[i] != versions[j]);
        }
    }
    /* The same, told in another way; and where the value is read. */
    assert_true(version_of("dimensions: [b, a], kind: counter") == versions[1]);
    assert_true(version_of("kind: counter, value: v") == versions[0]);
    assert_true(version_of("kind: histogram, value: w, buckets: [1.0, 2]") ==
                versions[5]);
    /* Frozen: rows are stored under it. */
    assert_int_equal(versions[1], INT64_C(515462179749272995));
}

static void
catalog_series__each_kind__has_its_fields(void **state)
{
    struct config *config =
        load("series:\n"
             "  - { name: c, kind: counter, on: [x] }\n"
             "  - { name: g, kind: gauge, policy: max, on: [x], value: v }\n"
             "  - { name: h, kind: histogram, on: [x], value: v,\n"
             "      buckets: [0.5, 1, 2.25] }\n"
             "  - { name: s, kind: state, on: [x], entity: id, state: st }\n");
    const struct catalog *catalog = config->catalog;
    const struct series *histogram = catalog_series(catalog, METER_STR("h"));
    char text[METER_DECIMAL_TEXT_SIZE + 1];

    (void)state;
    assert_int_equal(catalog->series_count, 4);
    assert_null(catalog_series(catalog, METER_STR("c"))->value);
    assert_int_equal(catalog_series(catalog, METER_STR("g"))->policy,
                     SERIES_MAX);
    assert_int_equal(histogram->bucket_count, 3);
    assert_int_equal(meter_decimal_format(histogram->buckets[2], text), 4);
    assert_memory_equal(text, "2.25", 4);
    assert_str(catalog_series(catalog, METER_STR("s"))->entity->name, "id");
    assert_str(catalog_series(catalog, METER_STR("s"))->state->name, "st");
    assert_int_equal(type_of(config, "x")->series_count, 4);
    config_unref(config);
}

static void
catalog_event_type__four_thousand_types__all_found(void **state)
{
    size_t room = 128 * CATALOG_ENTRIES_MAX;
    char *text = malloc(room);
    struct config *config;
    size_t at = (size_t)snprintf(text, room, "events:\n");

    (void)state;
    for (int i = 0; i < CATALOG_ENTRIES_MAX; i++) {
        at += (size_t)snprintf(text + at, room - at,
                               " - { type: type.number.%d }\n", i);
    }
    config = load(text);
    for (int i = 0; i < CATALOG_ENTRIES_MAX; i++) {
        const struct event_type *type;
        char name[32];

        snprintf(name, sizeof(name), "type.number.%d", i);
        type = type_of(config, name);
        assert_non_null(type);
        assert_int_equal(type->index, i);
    }
    config_unref(config);
    free(text);
}

static void
catalog_build__more_event_types_than_room__refused(void **state)
{
    size_t room = 128 * (CATALOG_ENTRIES_MAX + 8);
    char *text = malloc(room);
    struct config_errors errors;
    struct config *config;
    size_t at = (size_t)snprintf(text, room, "events:\n");

    (void)state;
    for (int i = 0; i < CATALOG_ENTRIES_MAX; i++) {
        at += (size_t)snprintf(text + at, room - at,
                               " - { type: type.number.%d }\n", i);
    }
    at += (size_t)snprintf(text + at, room - at,
                           "usage: { provisioned: completely }\n");
    assert_false(
        config_load_text("t", (struct meter_str){text, at}, &config, &errors));
    assert_non_null(strstr(errors.items[0].text, "more than 4096 entries"));
    free(text);
}

static void
catalog_names__every_value__is_the_word_of_the_grammar(void **state)
{
    (void)state;
    assert_string_equal(billing_aggregation_name(BILLING_SUM), "sum");
    assert_string_equal(billing_aggregation_name(BILLING_UNIQUE), "unique");
    assert_string_equal(billing_period_name(BILLING_MONTH), "month");
    assert_string_equal(series_kind_name(SERIES_STATE), "state");
    assert_string_equal(series_policy_name(SERIES_LAST), "last");
    assert_string_equal(usage_column_name(USAGE_API_CALL_COUNT),
                        "apiCallCount");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catalog_event_type__declared__has_its_settings),
        cmocka_unit_test(catalog_event_type__any__matches_what_has_no_row),
        cmocka_unit_test(catalog_counter__dimensions__sorted_bytewise),
        cmocka_unit_test(
            catalog_event_type__rules_of_several_counters__in_order_of_the_file),
        cmocka_unit_test(catalog_counter__transitions__listed_like_any_other),
        cmocka_unit_test(catalog_counter__keys_max__from_the_option),
        cmocka_unit_test(catalog_usage__columns_and_status__reach_the_types),
        cmocka_unit_test(catalog_meter__defaults__filled_in),
        cmocka_unit_test(catalog_series__each_kind__has_its_fields),
        cmocka_unit_test(catalog_series__other_definition__is_another_version),
        cmocka_unit_test(catalog_event_type__four_thousand_types__all_found),
        cmocka_unit_test(catalog_build__more_event_types_than_room__refused),
        cmocka_unit_test(
            catalog_names__every_value__is_the_word_of_the_grammar),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
