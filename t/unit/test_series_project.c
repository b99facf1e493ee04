/*
 * What an event adds to which series.
 */

#include "series_fixture.h"

static void
project__request__counts_sums_and_finds_the_bound(void **state)
{
    struct series_fixture *f = *state;
    const struct series_change *changes;

    assert_true(series_event(
        f, "request",
        "{\"route\":\"/a\",\"account\":{\"id\":7},\"size\":12,\"ms\":2.5}", 1,
        "3"));
    assert_int_equal(f->effect->count, 3);
    assert_int_equal(f->effect->state_count, 0);
    changes = f->effect->changes;
    assert_str(changes[0].series->name, "requests");
    assert_str(changes[0].set.json, "{\"account.id\":7,\"route\":\"/a\"}");
    assert_sum(changes[0].total, "3");
    assert_str(changes[1].series->name, "bytes");
    assert_sum(changes[1].total, "12");
    assert_memory_equal(changes[1].set.key, changes[0].set.key, 32);
    assert_str(changes[2].series->name, "latency");
    assert_str(changes[2].set.json, "{\"route\":\"/a\"}");
    assert_str(changes[2].label, "2.5");
    assert_null(changes[2].entity.data);
}

static void
project__bounds__are_inclusive(void **state)
{
    static const struct {
        const char *attributes;
        const char *label;
    } cases[] = {
        {"{\"ms\":-4}", "1"},        {"{\"ms\":1}", "1"},
        {"{\"ms\":1.0}", "1"},       {"{\"ms\":1.000000001}", "2.5"},
        {"{\"ms\":2.5}", "2.5"},     {"{\"ms\":2.500000001}", "10"},
        {"{\"ms\":1e1}", "10"},      {"{\"ms\":10.000000001}", "inf"},
        {"{\"ms\":1000000}", "inf"},
    };
    struct series_fixture *f = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_true(series_event(f, "request", cases[i].attributes, 1, "1"));
        assert_int_equal(f->effect->count, 2); /* bytes has no value */
        assert_str(f->effect->changes[1].label, cases[i].label);
    }
}

static void
project__delta__values_are_taken_count_times(void **state)
{
    struct series_fixture *f = *state;

    assert_true(series_event(f, "request", "{\"size\":5}", 40, "8"));
    assert_int_equal(f->effect->count, 2);
    assert_int_equal(f->effect->changes[0].count, 40);
    assert_sum(f->effect->changes[0].total, "8"); /* the sum already */
    assert_decimal(f->effect->changes[1].value, "5");
    assert_sum(f->effect->changes[1].total, "200");
}

static void
project__missing_parts__pass_the_series_over(void **state)
{
    struct series_fixture *f = *state;

    assert_true(series_event(f, "sample", "{}", 1, "1"));
    assert_null(f->effect);
    assert_true(series_event(f, "sample", "{\"depth\":null}", 1, "1"));
    assert_null(f->effect);
    assert_true(series_event(f, "idle", "{}", 1, "1"));
    assert_null(f->effect);
    assert_true(series_event(f, "changed", "{\"state\":\"new\"}", 1, "1"));
    assert_null(f->effect);
    assert_true(series_event(f, "changed", "{\"order\":1}", 1, "1"));
    assert_null(f->effect);
    assert_true(
        series_event(f, "changed", "{\"order\":1,\"region\":\"eu\"}", 1, "1"));
    assert_int_equal(f->effect->count, 1);
    assert_str(f->effect->changes[0].series->name, "regions");
}

static void
project__state__is_a_scalar_of_an_entity(void **state)
{
    struct series_fixture *f = *state;

    assert_true(series_event(
        f, "changed", "{\"order\":\"7\",\"state\":\"new\",\"region\":5.0}", 1,
        "1"));
    assert_int_equal(f->effect->count, 2);
    assert_int_equal(f->effect->state_count, 2);
    assert_str(f->effect->changes[0].entity, "\"7\"");
    assert_str(f->effect->changes[0].state, "\"new\"");
    assert_str(f->effect->changes[1].state, "5");
    assert_sum(f->effect->changes[0].total, "0");
}

static void
assert_refused(struct series_fixture *f, const char *type,
               const char *attributes, int64_t count, const char *quantity,
               const char *fragment)
{
    if (series_event(f, type, attributes, count, quantity)) {
        fail_msg("taken: %s", attributes);
    }
    if (strstr(f->error, fragment) == NULL) {
        fail_msg("%s: %s", attributes, f->error);
    }
}

static void
project__wrong_parts__reject_the_event(void **state)
{
    struct series_fixture *f = *state;

    assert_refused(f, "request", "{\"size\":\"x\"}", 1, "1", "not a decimal");
    assert_refused(f, "request", "{\"route\":[]}", 1, "1", "is an array");
    assert_refused(f, "changed", "{\"order\":{},\"state\":1}", 1, "1",
                   "not a scalar of at most 2000 bytes");
    assert_refused(f, "changed", "{\"order\":1,\"state\":[1]}", 1, "1",
                   "not a scalar of at most 256 bytes");
    assert_refused(f, "request", "{}", INT64_C(1000000000001), "1",
                   "the count is past 10^12");
}

static void
project__values_of_38_digits__are_taken(void **state)
{
    static const char largest[] = "99999999999999999999999999999.999999999";
    struct series_fixture *f = *state;

    assert_true(series_event(
        f, "request",
        "{\"size\":-99999999999999999999999999999.999999999,\"ms\":1e28}",
        INT64_C(1000000000000), largest));
    assert_int_equal(f->effect->count, 3);
    assert_sum(f->effect->changes[0].total, largest);
    assert_sum(f->effect->changes[1].total,
               "-99999999999999999999999999999999999999000");
    assert_str(f->effect->changes[2].label, "inf");
    assert_sum(f->effect->changes[2].total,
               "10000000000000000000000000000000000000000");
    assert_refused(f, "request", "{\"size\":1e29}", 1, "1", "not a decimal");
}

static void
from_read__what_ingest_writes__is_read(void **state)
{
    struct series_fixture *f = *state;
    const struct meter_str *from;
    static const char both[] =
        "{\"open\":{\"zone\":\"z\"},\"series:orders\":\"\\\"new\\\"\","
        "\"series:regions\":null}";

    assert_true(series_event(
        f, "changed", "{\"order\":7,\"state\":\"a\",\"region\":1}", 1, "1"));
    assert_true(series_from_read(f->effect, str_of(both), &f->arena, &from));
    assert_str(from[0], "\"new\"");
    assert_null(from[1].data);
    assert_int_equal(from[1].size, 0);
}

static void
from_read__series_of_later_rules__is_unknown(void **state)
{
    struct series_fixture *f = *state;
    const struct meter_str *from;

    assert_true(series_event(
        f, "changed", "{\"order\":7,\"state\":\"a\",\"region\":1}", 1, "1"));
    assert_true(series_from_read(
        f->effect, str_of("{\"series:regions\":\"3\"}"), &f->arena, &from));
    assert_ptr_equal(from[0].data, series_from_unknown);
    assert_str(from[1], "3");
    assert_true(series_from_read(f->effect, (struct meter_str){NULL, 0},
                                 &f->arena, &from));
    assert_ptr_equal(from[0].data, series_from_unknown);
    assert_ptr_equal(from[1].data, series_from_unknown);
}

static void
from_read__anything_else__is_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "[]",
        "{\"series:orders\":1}",
        "{\"series:orders\":{}}",
        "{}x",
        "{\"series:orders\":\"\"}",
    };
    struct series_fixture *f = *state;
    const struct meter_str *from;

    assert_true(
        series_event(f, "changed", "{\"order\":7,\"state\":\"a\"}", 1, "1"));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        if (series_from_read(f->effect, str_of(wrong[i]), &f->arena, &from)) {
            fail_msg("taken: %s", wrong[i]);
        }
    }
    assert_true(series_event(f, "request", "{}", 1, "1"));
    assert_true(series_from_read(f->effect, str_of("nonsense"), &f->arena,
                                 &from)); /* nothing to read */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(project__request__counts_sums_and_finds_the_bound),
        cmocka_unit_test(project__bounds__are_inclusive),
        cmocka_unit_test(project__delta__values_are_taken_count_times),
        cmocka_unit_test(project__missing_parts__pass_the_series_over),
        cmocka_unit_test(project__state__is_a_scalar_of_an_entity),
        cmocka_unit_test(project__wrong_parts__reject_the_event),
        cmocka_unit_test(project__values_of_38_digits__are_taken),
        cmocka_unit_test(from_read__what_ingest_writes__is_read),
        cmocka_unit_test(from_read__series_of_later_rules__is_unknown),
        cmocka_unit_test(from_read__anything_else__is_refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, series_setup, series_teardown);
}
