/* Readings, sums, figures and totals of billing meters. */

#include "json_fixture.h"

#include "meter_time.h"
#include "project/billing.h"

#define NOON INT64_C(1788264000000000) /* 2026-09-01T12:00:00Z */
#define MOST "99999999999999999999999999999.999999999"

static struct meter_decimal
decimal(const char *text)
{
    struct meter_decimal value = {0};

    assert_int_equal(meter_decimal_parse(str_of(text), &value),
                     METER_DECIMAL_OK);
    return value;
}

static void
assert_decimal(struct meter_decimal value, const char *want)
{
    char text[METER_DECIMAL_TEXT_SIZE + 1];

    meter_decimal_format(value, text);
    assert_string_equal(text, want);
}


/* ---- sums ------------------------------------------------------------ */

static struct billing_reading
reading(const char *value)
{
    return (struct billing_reading){
        .value = decimal(value), .sum = decimal(value), .count = 1};
}

static void
add(struct billing_sums *sums, const char *value, int64_t ts_us)
{
    struct billing_reading read = reading(value);
    struct billing_mark mark = {.ts_us = ts_us};

    assert_true(billing_sums_add(sums, &read, &mark));
}

static void
mark_compare__each_part__decides_behind_the_ones_before_it(void **state)
{
    /* ascending */
    static const struct billing_mark marks[] = {
        {.ts_us = -5, .recorded_us = 9, .writer = {9}, .writer_seq = 9},
        {.ts_us = 1, .recorded_us = 1, .writer = {9}, .writer_seq = 9},
        {.ts_us = 1, .recorded_us = 2, .writer = {1, 9}, .writer_seq = 9},
        {.ts_us = 1, .recorded_us = 2, .writer = {2}, .writer_seq = 1},
        {.ts_us = 1, .recorded_us = 2, .writer = {2}, .writer_seq = 2},
        {.ts_us = 1, .recorded_us = 2, .writer = {0xff}, .writer_seq = 0},
        {.ts_us = 2, .recorded_us = 0, .writer = {0}, .writer_seq = 0},
    };
    size_t count = sizeof(marks) / sizeof(marks[0]);

    (void)state;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            int order = billing_mark_compare(&marks[i], &marks[j]);

            assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
        }
    }
}

static void
sums__added_in_either_order__are_the_same(void **state)
{
    struct billing_sums up, down;

    (void)state;
    billing_sums_init(&up);
    billing_sums_init(&down);
    add(&up, "-1.5", 1);
    add(&up, "3", 2);
    add(&up, "0.000000001", 3);
    add(&down, "0.000000001", 3);
    add(&down, "3", 2);
    add(&down, "-1.5", 1);
    assert_memory_equal(&up, &down, sizeof(up));
    assert_decimal(up.sum, "1.500000001");
    assert_decimal(up.min, "-1.5");
    assert_decimal(up.max, "3");
    assert_decimal(up.last, "0.000000001");
    assert_int_equal(up.count, 3);
    assert_int_equal(up.last_mark.ts_us, 3);
}

static void
sums_add__past_38_digits_or_64_bits__changes_nothing(void **state)
{
    struct billing_reading read = reading("0.000000001");
    struct billing_mark mark = {.ts_us = 9};
    struct billing_sums sums, before;

    (void)state;
    billing_sums_init(&sums);
    add(&sums, MOST, 1);
    before = sums;
    assert_false(billing_sums_add(&sums, &read, &mark));
    assert_memory_equal(&sums, &before, sizeof(sums));
    read = reading("-1");
    read.count = INT64_MAX;
    assert_false(billing_sums_add(&sums, &read, &mark));
    assert_memory_equal(&sums, &before, sizeof(sums));
    assert_false(billing_sums_merge(&sums, &before));
    assert_memory_equal(&sums, &before, sizeof(sums));
    read.count = INT64_MAX - 1;
    assert_true(billing_sums_add(&sums, &read, &mark));
    assert_true(sums.count == INT64_MAX);
    billing_sums_init(&sums);
    billing_sums_init(&before);
    sums.uniques = INT64_MAX;
    before.uniques = 1;
    assert_false(billing_sums_merge(&sums, &before));
    assert_true(sums.uniques == INT64_MAX);
}

static void
sums_add__value_of_unique__only_counts(void **state)
{
    struct billing_reading read = {.count = 3, .unique = METER_STR("\"a\"")};
    struct billing_mark mark = {.ts_us = 9};
    struct billing_sums sums;

    (void)state;
    billing_sums_init(&sums);
    assert_true(billing_sums_add(&sums, &read, &mark));
    assert_int_equal(sums.count, 3);
    assert_false(sums.has_value);
    assert_decimal(sums.sum, "0");
    assert_int_equal(sums.uniques, 0);
}

static void
sums_merge__parts__are_the_whole(void **state)
{
    struct billing_sums whole, left, right, none;

    (void)state;
    billing_sums_init(&whole);
    billing_sums_init(&left);
    billing_sums_init(&right);
    billing_sums_init(&none);
    add(&whole, "5", 2);
    add(&whole, "-7", 1);
    add(&whole, "6", 3);
    add(&left, "6", 3);
    add(&right, "-7", 1);
    add(&right, "5", 2);
    left.uniques = 2;
    right.uniques = 3;
    assert_true(billing_sums_merge(&left, &none));
    assert_true(billing_sums_merge(&left, &right));
    assert_int_equal(left.uniques, 5);
    left.uniques = 0;
    assert_memory_equal(&left, &whole, sizeof(whole));
    assert_true(billing_sums_merge(&none, &whole));
    assert_memory_equal(&none, &whole, sizeof(whole));
}

static const enum billing_aggregation all[] = {
    BILLING_SUM, BILLING_COUNT, BILLING_MIN,   BILLING_MAX,
    BILLING_AVG, BILLING_LAST,  BILLING_UNIQUE};

static void
value__of_nothing__is_0_and_for_some_there_is_none(void **state)
{
    static const bool has_value[] = {true,  true,  false, false,
                                     false, false, true};
    struct billing_sums sums;

    (void)state;
    billing_sums_init(&sums);
    for (size_t i = 0; i < 7; i++) {
        struct meter_decimal value = {7};

        assert_int_equal(billing_value(all[i], &sums, &value), has_value[i]);
        assert_decimal(value, "0");
    }
}

static void
value__of_some_events__is_that_of_the_aggregation(void **state)
{
    static const char *const want[] = {"10",          "3", "-2", "8",
                                       "3.333333333", "4", "2"};
    struct billing_sums sums;

    (void)state;
    billing_sums_init(&sums);
    add(&sums, "8", 1);
    add(&sums, "4", 3);
    add(&sums, "-2", 2);
    sums.uniques = 2;
    for (size_t i = 0; i < 7; i++) {
        struct meter_decimal value;

        assert_true(billing_value(all[i], &sums, &value));
        assert_decimal(value, want[i]);
    }
}

static void
value__average__rounds_halves_to_even(void **state)
{
    static const struct {
        const char *sum;
        int64_t count;
        const char *want;
    } cases[] = {
        {"1", 3, "0.333333333"},
        {"2", 3, "0.666666667"},
        {"-2", 3, "-0.666666667"},
        {"0.000000001", 2, "0"},
        {"0.000000003", 2, "0.000000002"},
        {"0.000000005", 2, "0.000000002"},
        {"-0.000000001", 2, "0"},
        {"-0.000000003", 2, "-0.000000002"},
        {"1.000000005", 10, "0.1"},
        {"1.000000015", 10, "0.100000002"},
        {MOST, 2, "50000000000000000000000000000"},
        {MOST, 3, "33333333333333333333333333333.333333333"},
        {MOST, INT64_MAX, "10842021724.855044341"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct billing_sums sums;
        struct meter_decimal value;

        billing_sums_init(&sums);
        add(&sums, cases[i].sum, 1);
        sums.count = cases[i].count;
        assert_true(billing_value(BILLING_AVG, &sums, &value));
        assert_decimal(value, cases[i].want);
    }
}

static void
total__folded_and_late__are_one_then_the_manual_on_top(void **state)
{
    static const char *const want[] = {"18.5",        "4.5", "-0.5", "12.5",
                                       "7.166666667", "9.5", "5.5"};
    struct billing_sums folded, late;
    struct billing_total total = {
        .folded = &folded, .late = &late, .manual = decimal("1.5")};

    (void)state;
    billing_sums_init(&folded);
    billing_sums_init(&late);
    add(&folded, "11", 1);
    add(&folded, "8", 3);
    add(&late, "-2", 2);
    folded.uniques = 3;
    late.uniques = 1;
    for (size_t i = 0; i < 7; i++) {
        struct meter_decimal value;
        bool has_value = false;

        assert_true(billing_total(all[i], &total, &value, &has_value));
        assert_true(has_value);
        assert_decimal(value, want[i]);
    }
}

static void
total__of_nothing__has_a_value_by_manual_amounts_only(void **state)
{
    struct billing_sums none;
    struct billing_total total = {.folded = &none, .late = NULL};
    struct meter_decimal value;
    bool has_value;

    (void)state;
    billing_sums_init(&none);
    assert_true(billing_total(BILLING_MIN, &total, &value, &has_value));
    assert_false(has_value);
    total.manual = decimal("-3");
    assert_true(billing_total(BILLING_MIN, &total, &value, &has_value));
    assert_true(has_value);
    assert_decimal(value, "-3");
    add(&none, "-" MOST, 1);
    assert_false(billing_total(BILLING_MIN, &total, &value, &has_value));
    total.manual = decimal("0");
    total.late = &none;
    assert_false(billing_total(BILLING_SUM, &total, &value, &has_value));
}

static void
is_on_time__watermark_at_ts_and_lateness__is_the_edge(void **state)
{
    struct billing_meter meter = {.lateness_us = 10};

    (void)state;
    assert_true(billing_is_on_time(&meter, 100, INT64_MIN));
    assert_true(billing_is_on_time(&meter, 100, 110));
    assert_false(billing_is_on_time(&meter, 100, 111));
    meter.lateness_us = 0;
    assert_true(billing_is_on_time(&meter, 100, 100));
    assert_false(billing_is_on_time(&meter, 100, 101));
    assert_true(billing_is_on_time(&meter, METER_TIME_MIN, INT64_MIN));
}


/* ---- project --------------------------------------------------------- */

static const struct meter_str segments[] = {{"size", 4}, {"route", 5}};
static const struct attribute_path size_path = {
    .name = {"size", 4}, .segments = &segments[0], .segment_count = 1};
static const struct attribute_path route_path = {
    .name = {"route", 5}, .segments = &segments[1], .segment_count = 1};

/* One meter on one event; NULL: it does nothing, or *error. */
static const struct billing_change *
project(const struct billing_meter *meter, const struct meter_event *event,
        const char *attributes, const char **error)
{
    struct event_type type = {.meters = &meter, .meter_count = 1};
    struct json_value tree = read_good(attributes);
    const void *effect = &type;
    bool is_careful = false;

    *error = NULL;
    if (!billing_project(&type, event, &tree, &arena, &effect, &is_careful,
                         error)) {
        return NULL;
    }
    assert_false(is_careful);
    if (effect == NULL) {
        return NULL;
    }
    assert_int_equal(((const struct billing_effect *)effect)->count, 1);
    return ((const struct billing_effect *)effect)->changes;
}

static struct meter_event
event_of(const char *quantity)
{
    return (struct meter_event){.tenant = METER_STR("acme"),
                                .ts_us = NOON + 1,
                                .quantity = decimal(quantity),
                                .count = 1};
}

static void
project__quantity__is_the_sum_of_a_delta_already(void **state)
{
    struct billing_meter meter = {.metric = METER_STR("m"),
                                  .period = BILLING_MONTH};
    struct meter_event event = event_of("12.5");
    const struct billing_change *change;
    const char *error;

    (void)state;
    event.count = 4;
    change = project(&meter, &event, "{}", &error);
    assert_non_null(change);
    assert_ptr_equal(change->meter, &meter);
    assert_decimal(change->reading.sum, "12.5");
    assert_decimal(change->reading.value, "12.5");
    assert_int_equal(change->reading.count, 4);
    assert_int_equal(change->reading.unique.size, 0);
    assert_str(change->customer, "");
    assert_non_null(change->customer.data);
    assert_str(change->group.json, "{}");
    assert_int_equal(change->period_us, INT64_C(1788220800000000));
    assert_int_equal(change->period_end_us, INT64_C(1790812800000000));
}

static void
project__attribute__is_multiplied_by_count(void **state)
{
    struct billing_meter meter = {.metric = METER_STR("m"),
                                  .period = BILLING_HOUR,
                                  .value = &size_path,
                                  .group_by = &route_path,
                                  .group_by_count = 1};
    struct meter_event event = event_of("1");
    const struct billing_change *change;
    const char *error;

    (void)state;
    event.count = 3;
    event.customer = str_of("c-1");
    change =
        project(&meter, &event, "{\"size\":-1.5e1,\"route\":\"/a\"}", &error);
    assert_non_null(change);
    assert_decimal(change->reading.value, "-15");
    assert_decimal(change->reading.sum, "-45");
    assert_int_equal(change->reading.count, 3);
    assert_str(change->customer, "c-1");
    assert_str(change->group.json, "{\"route\":\"/a\"}");
    assert_int_equal(change->period_us, NOON);
}

static void
project__attribute_missing_or_null__passes_the_event_over(void **state)
{
    struct billing_meter meter = {.metric = METER_STR("m"),
                                  .value = &size_path};
    struct meter_event event = event_of("1");
    const char *error;

    (void)state;
    for (int how = BILLING_SUM; how <= BILLING_UNIQUE; how++) {
        meter.aggregation = (enum billing_aggregation)how;
        assert_null(project(&meter, &event, "{}", &error));
        assert_null(error);
        assert_null(project(&meter, &event, "{\"size\":null}", &error));
        assert_null(error);
    }
}

static void
project__what_cannot_be_read__is_rejected_by_name(void **state)
{
    static const struct {
        enum billing_aggregation aggregation;
        const char *attributes;
        const char *error;
    } cases[] = {
        {BILLING_SUM, "{\"size\":\"5\"}",
         "attribute \"size\" is not a decimal, as meter \"m\" wants it"},
        {BILLING_COUNT, "{\"size\":true}",
         "attribute \"size\" is not a decimal, as meter \"m\" wants it"},
        {BILLING_MIN, "{\"size\":{}}",
         "attribute \"size\" is not a decimal, as meter \"m\" wants it"},
        {BILLING_SUM, "{\"size\":0.0000000001}",
         "attribute \"size\" is not a decimal, as meter \"m\" wants it"},
        {BILLING_SUM, "{\"size\":1e29}",
         "attribute \"size\" is not a decimal, as meter \"m\" wants it"},
        {BILLING_SUM, "{\"size\":4e28}",
         "attribute \"size\" times count is past 38 digits, for meter \"m\""},
        {BILLING_UNIQUE, "{\"size\":[1]}",
         "attribute \"size\" is not a scalar of at most 2000 bytes, as meter "
         "\"m\" wants it"},
        {BILLING_SUM, "{\"size\":1,\"route\":[]}",
         "attribute \"route\" is an array: it cannot be a dimension of meter "
         "\"m\""},
    };
    struct billing_meter meter = {.metric = METER_STR("m"),
                                  .value = &size_path,
                                  .group_by = &route_path,
                                  .group_by_count = 1};
    struct meter_event event = event_of("1");

    (void)state;
    event.count = 3;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *error;

        meter.aggregation = cases[i].aggregation;
        assert_null(project(&meter, &event, cases[i].attributes, &error));
        assert_non_null(error);
        assert_string_equal(error, cases[i].error);
    }
}

static void
project__captured_event__reads_a_number_s_text(void **state)
{
    struct billing_meter meter = {.metric = METER_STR("m"),
                                  .value = &size_path};
    struct meter_event event = event_of("1");
    const struct billing_change *change;
    const char *error;

    (void)state;
    event.flags = METER_EVENT_CAPTURED;
    change = project(&meter, &event, "{\"size\":\"2.50\"}", &error);
    assert_non_null(change);
    assert_decimal(change->reading.sum, "2.5");
    assert_null(project(&meter, &event, "{\"size\":\"much\"}", &error));
    assert_non_null(error);
}

static void
project__unique__takes_any_scalar_by_value(void **state)
{
    static const char *const cases[][2] = {
        {"{\"size\":\"a\"}", "\"a\""}, {"{\"size\":1.0}", "1"},
        {"{\"size\":\"1\"}", "\"1\""}, {"{\"size\":10e-1}", "1"},
        {"{\"size\":true}", "true"},   {"{\"size\":\"\"}", "\"\""},
        {"{\"size\":1e99}", "1e+99"},
    };
    struct billing_meter meter = {.metric = METER_STR("m"),
                                  .aggregation = BILLING_UNIQUE,
                                  .value = &size_path};
    struct meter_event event = event_of("-0.50");
    const struct billing_change *change;
    const char *error;

    (void)state;
    event.count = 2;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        change = project(&meter, &event, cases[i][0], &error);
        assert_non_null(change);
        assert_str(change->reading.unique, cases[i][1]);
        assert_decimal(change->reading.sum, "0");
        assert_int_equal(change->reading.count, 2);
    }
    meter.value = NULL;
    change = project(&meter, &event, "{}", &error);
    assert_non_null(change);
    assert_str(change->reading.unique, "-0.5");
}

static void
project__unique_of_2000_bytes__is_the_longest(void **state)
{
    struct billing_meter meter = {.metric = METER_STR("m"),
                                  .aggregation = BILLING_UNIQUE,
                                  .value = &size_path};
    struct meter_event event = event_of("1");
    char text[2100];
    const char *error;

    (void)state;
    snprintf(text, sizeof(text), "{\"size\":\"%01998d\"}", 0);
    assert_non_null(project(&meter, &event, text, &error));
    snprintf(text, sizeof(text), "{\"size\":\"%01999d\"}", 0);
    assert_null(project(&meter, &event, text, &error));
    assert_non_null(error);
}

static void
project__several_meters__each_that_reads_something_in_order(void **state)
{
    struct billing_meter a = {.metric = METER_STR("a")};
    struct billing_meter b = {.metric = METER_STR("b"), .value = &size_path};
    struct billing_meter c = {.metric = METER_STR("c"), .period = BILLING_DAY};
    const struct billing_meter *const list[] = {&a, &b, &c};
    struct event_type type = {.meters = list, .meter_count = 3};
    struct meter_event event = event_of("1");
    struct json_value tree = read_good("{}");
    const struct billing_effect *effect;
    const void *made = NULL;
    const char *error = NULL;
    bool is_careful = false;

    (void)state;
    assert_true(billing_project(&type, &event, &tree, &arena, &made,
                                &is_careful, &error));
    effect = made;
    assert_int_equal(effect->count, 2);
    assert_ptr_equal(effect->changes[0].meter, &a);
    assert_ptr_equal(effect->changes[1].meter, &c);
    type.meter_count = 0;
    assert_true(billing_project(&type, &event, &tree, &arena, &made,
                                &is_careful, &error));
    assert_null(made);
}

static const struct CMUnitTest tests[] = {
    TEST(mark_compare__each_part__decides_behind_the_ones_before_it),
    TEST(sums__added_in_either_order__are_the_same),
    TEST(sums_add__past_38_digits_or_64_bits__changes_nothing),
    TEST(sums_add__value_of_unique__only_counts),
    TEST(sums_merge__parts__are_the_whole),
    TEST(value__of_nothing__is_0_and_for_some_there_is_none),
    TEST(value__of_some_events__is_that_of_the_aggregation),
    TEST(value__average__rounds_halves_to_even),
    TEST(total__folded_and_late__are_one_then_the_manual_on_top),
    TEST(total__of_nothing__has_a_value_by_manual_amounts_only),
    TEST(is_on_time__watermark_at_ts_and_lateness__is_the_edge),
    TEST(project__quantity__is_the_sum_of_a_delta_already),
    TEST(project__attribute__is_multiplied_by_count),
    TEST(project__attribute_missing_or_null__passes_the_event_over),
    TEST(project__what_cannot_be_read__is_rejected_by_name),
    TEST(project__captured_event__reads_a_number_s_text),
    TEST(project__unique__takes_any_scalar_by_value),
    TEST(project__unique_of_2000_bytes__is_the_longest),
    TEST(project__several_meters__each_that_reads_something_in_order),
};

RUN_TAP(tests)
