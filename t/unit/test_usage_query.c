/*
 * test_usage_query.c - questions about billing meters, and the figures that
 * sums become.
 */

#include "meter_cmocka.h"

#include "api/usage.c"
#include "config/config.h"
#include "meter_time.h"

#define RULES                                                        \
    "events: [ { type: t } ]\n"                                      \
    "meters:\n"                                                      \
    "  - { metric: calls, on: [t], aggregation: sum, period: month," \
    " groupBy: [route, zone] }\n"                                    \
    "  - { metric: daily, on: [t], aggregation: count, period: day," \
    " groupBy: [customer, dimension.x] }\n"                          \
    "  - { metric: hourly, on: [t], aggregation: max, period: hour }\n"

struct place {
    struct arena arena;
    struct config *config;
    struct usage_query query;
    const char *error;
};

static int
setup(void **state)
{
    struct place *place = calloc(1, sizeof(*place));
    struct config_errors errors;

    arena_init(&place->arena, 4096, 1u << 20);
    if (!config_load_text("rules", str_of(RULES), &place->config, &errors)) {
        print_message("# %s\n", errors.items[0].text);
        return -1;
    }
    *state = place;
    return 0;
}

static int
teardown(void **state)
{
    struct place *place = *state;

    config_unref(place->config);
    arena_fini(&place->arena);
    free(place);
    return 0;
}

static unsigned
ask(struct place *place, const char *args)
{
    struct url_arguments *arguments =
        arena_alloc(&place->arena, sizeof(*arguments));

    assert_true(url_arguments_read(str_of(args), &place->arena, arguments,
                                   &place->error));
    return usage_query_read(place->config->catalog, str_of("acme"), arguments,
                            &place->arena, &place->query, &place->error);
}

static int64_t
at(const char *text)
{
    int64_t ts_us = 0;

    assert_true(meter_time_parse(str_of(text), &ts_us));
    return ts_us;
}

static void
query__period__its_start_and_end(void **state)
{
    struct place *place = *state;

    assert_int_equal(ask(place, "metric=calls&period=2024-02&customer=c"), 0);
    assert_int_equal(place->query.from_us, at("2024-02-01T00:00:00Z"));
    assert_int_equal(place->query.to_us, at("2024-03-01T00:00:00Z"));
    assert_true(usage_query_is_single(&place->query));
    assert_false(usage_query_shows_groups(&place->query));
    assert_int_equal(ask(place, "metric=daily&period=2024-02-29"), 0);
    assert_int_equal(place->query.to_us, at("2024-03-01T00:00:00Z"));
    assert_false(usage_query_is_single(&place->query));
    assert_int_equal(ask(place, "metric=hourly&period=2024-02-29T23"), 0);
    assert_int_equal(place->query.from_us, at("2024-02-29T23:00:00Z"));
    assert_int_equal(ask(place, "metric=calls&from=2023-12&to=2024-02"), 0);
    assert_int_equal(place->query.from_us, at("2023-12-01T00:00:00Z"));
    assert_int_equal(place->query.to_us, at("2024-02-01T00:00:00Z"));
}

static void
query__one_customer_one_period__single(void **state)
{
    struct place *place = *state;
    static const struct {
        const char *args;
        bool is_single;
    } rows[] = {
        {"metric=calls&period=2024-02&customer=", true},
        {"metric=calls&from=2024-02&to=2024-03&customer=c", true},
        {"metric=calls&from=2024-02&to=2024-04&customer=c", false},
        {"metric=calls&period=2024-02", false},
        {"metric=calls&period=2024-02&customer=c&groups=true", false},
        {"metric=calls&period=2024-02&customer=c&groups=false", true},
        {"metric=calls&period=2024-02&customer=c&route=a&zone=b", true},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(ask(place, rows[i].args), 0);
        assert_int_equal(usage_query_is_single(&place->query),
                         rows[i].is_single);
    }
}

static void
query__customer__empty_is_none_and_absent_is_all(void **state)
{
    struct place *place = *state;

    assert_int_equal(ask(place, "metric=calls&period=2024-02"), 0);
    assert_false(place->query.has_customer);
    assert_int_equal(ask(place, "metric=calls&period=2024-02&customer="), 0);
    assert_true(place->query.has_customer);
    assert_int_equal(place->query.customer.size, 0);
}

static void
query__bad_questions__status_and_sentence(void **state)
{
    struct place *place = *state;
    static const struct {
        const char *args;
        unsigned status;
        const char *says;
    } rows[] = {
        {"period=2024-02", 400, "\"metric\" is missing"},
        {"metric=none&period=2024-02", 404, "no such metric"},
        {"metric=calls", 400, "either"},
        {"metric=calls&from=2024-02", 400, "either"},
        {"metric=calls&period=2024-02&to=2024-03", 400, "either"},
        {"metric=calls&period=2024-2", 400, "month of this metric"},
        {"metric=daily&period=2024-02-30", 400, "day of this metric"},
        {"metric=hourly&period=2024-02-01", 400, "an hour of this metric"},
        {"metric=calls&from=x&to=2024-03", 400, "\"from\" must be a month"},
        {"metric=calls&from=2024-03&to=x", 400, "\"to\" must be a month"},
        {"metric=calls&from=2024-03&to=2024-03", 400, "before"},
        {"metric=calls&from=2024-04&to=2024-03", 400, "before"},
        {"metric=calls&period=2024-02&groups=1", 400, "\"groups\""},
        {"metric=calls&period=2024-02&limit=0", 400, "\"limit\""},
        {"metric=calls&period=2024-02&cursor=x", 400, "cursor"},
        {"metric=calls&period=2024-02&x=1", 400, "no dimension \"x\""},
        {"metric=calls&period=2024-02&sum=true", 400, "no dimension \"sum\""},
        {"metric=calls&period=2024-02&route=1", 400,
         "missing dimensions: zone"},
        {"metric=calls&period=2024-02&route=1&dimension.route=1&zone=1", 400,
         "twice"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(ask(place, rows[i].args), rows[i].status);
        if (strstr(place->error, rows[i].says) == NULL) {
            fail_msg("%s: %s", rows[i].args, place->error);
        }
    }
}

static void
query__periods__at_most_a_thousand(void **state)
{
    struct place *place = *state;

    assert_int_equal(
        ask(place, "metric=hourly&from=2024-01-01T00&to=2024-02-11T16"), 0);
    assert_int_equal(
        ask(place, "metric=hourly&from=2024-01-01T00&to=2024-02-11T17"), 400);
    assert_int_equal(ask(place, "metric=calls&from=0001-01&to=9999-12"), 400);
    assert_int_equal(ask(place, "metric=calls&period=9999-12&customer=c"), 0);
    assert_true(usage_query_is_single(&place->query));
}

/* A dimension may have the name of an argument of ours. */
static void
query__group__by_name_or_by_long_name(void **state)
{
    struct place *place = *state;

    assert_int_equal(
        ask(place, "metric=calls&period=2024-02&route=5&zone=%22a%22"), 0);
    assert_true(place->query.has_group);
    assert_true(usage_query_shows_groups(&place->query));
    assert_int_equal(place->query.keys.count, 2); /* the text, the number */
    assert_int_equal(ask(place, "metric=daily&period=2024-02-01&customer=c&"
                                "dimension.customer=x&dimension.x=y"),
                     0);
    assert_true(place->query.has_group);
    assert_memory_equal(place->query.customer.data, "c", 1);
    assert_int_equal(ask(place, "metric=daily&period=2024-02-01&"
                                "dimension.customer=x&dimension.dimension.x=y"),
                     0);
    assert_true(place->query.has_group);
    assert_false(place->query.has_customer);
}

static void
query__cursor__comes_back_and_belongs_to_its_question(void **state)
{
    struct place *place = *state;
    struct usage_place from = {.customer = str_of("cust")};
    struct usage_place back;
    char key[PAGE_KEY_SIZE_MAX];
    char cursor[PAGE_CURSOR_SIZE_MAX + 1];
    char args[2048];
    size_t size;

    for (int grouped = 0; grouped < 2; grouped++) {
        const char *tail = grouped ? "&groups=true" : "";

        snprintf(args, sizeof(args), "metric=calls&period=2024-02&limit=3%s",
                 tail);
        assert_int_equal(ask(place, args), 0);
        assert_false(place->query.has_after);
        from.period_us = place->query.from_us;
        memset(from.group_key, 7, sizeof(from.group_key));
        size = usage_place_write(&place->query, &from, key);
        assert_true(usage_place_read(&place->query,
                                     (struct meter_str){key, size}, &back));
        assert_true(page_cursor(&place->query.page, 4,
                                (struct meter_str){key, size}, cursor));
        assert_false(page_cursor(&place->query.page, 3,
                                 (struct meter_str){key, size}, cursor));
        assert_true(page_cursor(&place->query.page, 4,
                                (struct meter_str){key, size}, cursor));

        snprintf(args, sizeof(args),
                 "metric=calls&period=2024-02&limit=9&cursor=%s%s", cursor,
                 tail);
        assert_int_equal(ask(place, args), 0);
        assert_true(place->query.has_after);
        assert_int_equal(place->query.after.period_us, from.period_us);
        assert_true(
            meter_str_equal(place->query.after.customer, from.customer));
        assert_int_equal(place->query.after.group_key[31], grouped ? 7 : 0);

        snprintf(args, sizeof(args), "metric=calls&period=2024-03&cursor=%s%s",
                 cursor, tail);
        assert_int_equal(ask(place, args), 400);
        snprintf(args, sizeof(args),
                 "metric=calls&period=2024-02&customer=&cursor=%s%s", cursor,
                 tail);
        assert_int_equal(ask(place, args), 400);
    }
}

/* A key is read as carefully as an argument: its check is no signature. */
static void
query__cursor_key__out_of_the_range_is_none(void **state)
{
    struct place *place = *state;
    struct usage_place from = {.customer = str_of("")};
    struct usage_place back;
    char key[PAGE_KEY_SIZE_MAX];
    size_t size;

    assert_int_equal(ask(place, "metric=calls&period=2024-02"), 0);
    from.period_us = place->query.to_us;
    size = usage_place_write(&place->query, &from, key);
    assert_false(
        usage_place_read(&place->query, (struct meter_str){key, size}, &back));
    from.period_us = place->query.from_us;
    from.customer = str_of("\xff");
    size = usage_place_write(&place->query, &from, key);
    assert_false(
        usage_place_read(&place->query, (struct meter_str){key, size}, &back));
    assert_false(
        usage_place_read(&place->query, (struct meter_str){key, 7}, &back));
}

static void
query__adjustments__fewer_in_long_lists(void **state)
{
    struct place *place = *state;
    static const struct {
        const char *args;
        int max;
    } rows[] = {
        {"metric=calls&period=2024-02&customer=c", 100},
        {"metric=calls&period=2024-02&customer=c&limit=1000", 100},
        {"metric=calls&period=2024-02&limit=1", 100},
        {"metric=calls&period=2024-02", 100},
        {"metric=calls&period=2024-02&limit=200", 50},
        {"metric=calls&period=2024-02&limit=1000", 10},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(ask(place, rows[i].args), 0);
        assert_int_equal(usage_query_adjustments_max(&place->query),
                         rows[i].max);
    }
}


/* ---- figures --------------------------------------------------------- */

static void
figure__nothing__zero_or_no_value(void **state)
{
    static const struct {
        enum billing_aggregation aggregation;
        bool has_value;
    } rows[] = {
        {BILLING_SUM, true},   {BILLING_COUNT, true}, {BILLING_UNIQUE, true},
        {BILLING_MIN, false},  {BILLING_MAX, false},  {BILLING_AVG, false},
        {BILLING_LAST, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct billing_meter meter = {.aggregation = rows[i].aggregation};
        struct usage_figure figure;

        usage_figure_zero(&meter, &figure);
        assert_int_equal(figure.has_value, rows[i].has_value);
        assert_int_equal(figure.has_total, rows[i].has_value);
        assert_true(figure.value.units == 0 && figure.total.units == 0);
        assert_false(figure.has_watermark);
        assert_false(figure.is_closed);
    }
}

static void
figure__folded_late_and_manual__value_and_total(void **state)
{
    struct billing_sums folded = {
        .sum = meter_decimal_from_int(10),
        .count = 2,
        .has_value = true,
        .min = meter_decimal_from_int(4),
        .max = meter_decimal_from_int(6),
        .last = meter_decimal_from_int(6),
        .last_mark = {.ts_us = 5},
        .uniques = 2,
    };
    struct billing_sums late = {
        .sum = meter_decimal_from_int(2),
        .count = 1,
        .has_value = true,
        .min = meter_decimal_from_int(2),
        .max = meter_decimal_from_int(2),
        .last = meter_decimal_from_int(2),
        .last_mark = {.ts_us = 9},
        .uniques = 1,
    };
    const struct billing_total total = {
        .folded = &folded,
        .late = &late,
        .manual = meter_decimal_from_int(100),
    };
    static const int64_t expected[][2] = {
        [BILLING_SUM] = {10, 112},   [BILLING_COUNT] = {2, 103},
        [BILLING_MIN] = {4, 102},    [BILLING_MAX] = {6, 106},
        [BILLING_AVG] = {5, 104},    [BILLING_LAST] = {6, 102},
        [BILLING_UNIQUE] = {2, 103},
    };

    (void)state;
    for (int i = BILLING_SUM; i <= BILLING_UNIQUE; i++) {
        struct billing_meter meter = {.aggregation =
                                          (enum billing_aggregation)i};
        struct usage_figure figure;

        assert_true(usage_figure_compute(&meter, &total, &figure));
        assert_true(figure.has_value && figure.has_total);
        assert_true(
            meter_decimal_compare(figure.value,
                                  meter_decimal_from_int(expected[i][0])) == 0);
        assert_true(
            meter_decimal_compare(figure.total,
                                  meter_decimal_from_int(expected[i][1])) == 0);
    }
}

static void
figure__more_than_38_digits__refused(void **state)
{
    struct billing_meter meter = {.aggregation = BILLING_SUM};
    struct billing_sums folded;
    struct billing_total total = {.folded = &folded};
    struct usage_figure figure;

    (void)state;
    billing_sums_init(&folded);
    assert_int_equal(meter_decimal_parse(
                         str_of("60000000000000000000000000000"), &folded.sum),
                     METER_DECIMAL_OK);
    assert_true(usage_figure_compute(&meter, &total, &figure));
    total.manual = folded.sum;
    assert_false(usage_figure_compute(&meter, &total, &figure));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(query__period__its_start_and_end),
        TEST(query__one_customer_one_period__single),
        TEST(query__customer__empty_is_none_and_absent_is_all),
        TEST(query__bad_questions__status_and_sentence),
        TEST(query__periods__at_most_a_thousand),
        TEST(query__group__by_name_or_by_long_name),
        TEST(query__cursor__comes_back_and_belongs_to_its_question),
        TEST(query__cursor_key__out_of_the_range_is_none),
        TEST(query__adjustments__fewer_in_long_lists),
        cmocka_unit_test(figure__nothing__zero_or_no_value),
        cmocka_unit_test(figure__folded_late_and_manual__value_and_total),
        cmocka_unit_test(figure__more_than_38_digits__refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
