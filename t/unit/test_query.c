/*
 * test_query.c - questions about series: words, filters and groups.
 */

#include "meter_cmocka.h"

#include "api/query.c"
#include "base/buf.h"
#include "config/config.h"
#include "meter_dims.h"
#include "query/query.c"
#include "query/question.c"

#define RULES                                                              \
    "events: [ { type: t } ]\n"                                            \
    "series:\n"                                                            \
    "  - { name: calls, kind: counter, on: [t], dimensions: [b, a, c] }\n" \
    "  - { name: ms, kind: histogram, on: [t], value: v, buckets: [1] }\n"

#define RANGE "&from=2025-03-03T00:00:00Z&to=2025-03-04T00:00:00Z"

struct place {
    struct arena arena;
    struct config *config;
    struct query query;
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
    const struct json_value *values[QUERY_WORDS];
    struct url_arguments *arguments =
        arena_alloc(&place->arena, sizeof(*arguments));
    unsigned status;

    assert_true(url_arguments_read(str_of(args), &place->arena, arguments,
                                   &place->error));
    place->error = query_words_read(arguments, &place->arena, values);
    if (place->error != NULL) {
        return 400;
    }
    status = query_read(place->config->catalog, values, &place->arena,
                        &place->query, &place->error);
    if (status != 0) {
        return status;
    }
    place->error = query_words_filters(arguments, &place->arena, &place->query);
    return place->error == NULL ? 0 : 400;
}

/* In a query string "+02:00" arrives as " 02:00". */
static void
range__offset_with_a_plus_that_was_not_escaped__is_read(void **state)
{
    static const char *const ranges[] = {
        "&from=2025-03-03T02:00:00+02:00&to=2025-03-04T02:00:00.5+02:00",
        "&from=2025-03-03T02:00:00%2B02:00&to=2025-03-04T02:00:00.5%2b02:00",
        "&from=2025-03-03T02:00:00%2002:00&to=2025-03-03T22:00:00.5-02:00",
    };
    static const char *const wrong[] = {
        "&from=2025-03-03+02:00:00Z",
        "&from=+2025-03-03T02:00:00Z",
        "&from=2025-03-03T02:00:00Z+",
        "&from=2025-03-03T02:00:00++02:00",
    };
    struct place *place = *state;
    char args[256];

    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        snprintf(args, sizeof(args), "metric=calls&interval=1m%s", ranges[i]);
        assert_int_equal(ask(place, args), 0);
        assert_true(place->query.from_us == INT64_C(1740960000000000));
        assert_true(place->query.to_us == INT64_C(1741046400500000));
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(args, sizeof(args), "metric=calls&interval=1m%s", wrong[i]);
        assert_int_equal(ask(place, args), 400);
    }
}

static void
interval__grammar(void **state)
{
    static const struct {
        const char *text;
        int64_t seconds; /* 0: refused */
    } rows[] = {
        {"5s", 5},
        {"90s", 90},
        {"1m30s", 90},
        {"1h30m", 5400},
        {"3h", 10800},
        {"9d", 777600},
        {"1d12h", 129600},
        {"1d1h1m5s", 90065},
        {"36500d", 36500LL * 86400},
        {"0d5s", 5},
        {"", 0},
        {"5", 0},
        {"s", 0},
        {"4s", 0},
        {"0s", 0},
        {"-5s", 0},
        {"5s5s", 0},
        {"30s1m", 0},
        {"1.5m", 0},
        {"5 s", 0},
        {"5S", 0},
        {"1w", 0},
        {"36501d", 0},
        {"36500d5s", 0},
        {"99999999999999999999s", 0},
        {"5s ", 0},
        {"5000ms", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t got_us = 0;
        bool is_right = query_interval_read(str_of(rows[i].text), &got_us);

        if (is_right != (rows[i].seconds != 0) ||
            (is_right && got_us != rows[i].seconds * 1000000)) {
            fail_msg("%s: %lld", rows[i].text, (long long)got_us);
        }
    }
}

static void
zone__grammar(void **state)
{
    static const char *const right[] = {
        "UTC",       "Europe/Berlin", "America/Port-au-Prince",
        "Etc/GMT+5", "Etc/GMT-14",    "America/Argentina/Buenos_Aires",
        "Etc/UTC",
    };
    static const char *const wrong[] = {
        "",         "Berlin", "EST5EDT",   "A/B5",     "Europe/Berlin5",
        "+01:00",   "/x",     "x/",        "Etc/GMT+", "Etc/GMT+123",
        "Etc/GMT5", "a b/c",  "Europe/B'",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        if (!query_is_zone(str_of(right[i]))) {
            fail_msg("%s is one", right[i]);
        }
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (query_is_zone(str_of(wrong[i]))) {
            fail_msg("%s is none", wrong[i]);
        }
    }
}

static void
query__defaults(void **state)
{
    struct place *place = *state;
    const struct query *query = &place->query;

    assert_int_equal(ask(place, "metric=calls&interval=1m" RANGE), 0);
    assert_true(query->is_dropped);
    assert_true(query->is_allowed);
    assert_false(query->is_series);
    assert_int_equal(query->grouped_count, 3);
    assert_null(query->zone.data);
    assert_int_equal(ask(place, "metric=calls&rollup=1h&format=series" RANGE),
                     0);
    assert_false(query->is_dropped);
    assert_int_equal(query->interval_us, METER_TIME_HOUR);
    assert_int_equal(
        ask(place, "metric=calls&interval=1m&from=0&group_by=c,c,a"), 0);
    assert_false(query->has_to);
    assert_int_equal(query->grouped_count, 2);
    assert_true(query->is_grouped[0] && !query->is_grouped[1] &&
                query->is_grouped[2]);
    assert_int_equal(ask(place, "metric=ms&interval=1m" RANGE), 0);
    assert_int_equal(query->quantile_count, 4);
}

static void
words__unknown_argument__is_named(void **state)
{
    struct place *place = *state;

    assert_int_equal(ask(place, "metric=calls&interval=1m&a=1" RANGE), 400);
    assert_string_equal(place->error, "unknown argument \"a\"");
    assert_int_equal(ask(place, "metric=calls&interval=1m&where.x=1" RANGE),
                     400);
    assert_string_equal(place->error,
                        "\"where\": the metric has no dimension \"x\"");
}

static void
filters__json__sorted_and_canonical(void **state)
{
    struct place *place = *state;
    struct buf out;

    assert_int_equal(
        ask(place, "metric=calls&interval=1m&where={\"c\":[1.0,null,\"%27\"]}"
                   "&where.a=5" RANGE),
        0);
    buf_init(&out, 1u << 20);
    assert_true(filters_json(&place->query.filters, &place->arena, &out));
    buf_put_byte(&out, '\0');
    assert_string_equal(out.data, "{\"a\":[\"5\",5],\"c\":[1,null,\"'\"]}");
    buf_fini(&out);
}

static void
filters__all_dimensions__keys_of_all_combinations(void **state)
{
    struct place *place = *state;
    struct filter_keys keys;
    struct meter_dim dims[] = {
        {METER_STR("a"), METER_DIM_STRING, METER_STR("x")},
        {METER_STR("b"), METER_DIM_NUMBER, METER_STR("5")},
        {METER_STR("c"), METER_DIM_NULL, METER_STR("")},
    };
    uint8_t key[METER_DIGEST_SIZE];

    assert_int_equal(ask(place, "metric=calls&interval=1m&where.a=x&where.b=5"
                                "&where.c=" RANGE),
                     0);
    assert_true(filters_keys(&place->query.filters, place->query.series,
                             &place->arena, &keys));
    assert_int_equal(keys.count, 2);
    meter_dims_key(dims, 3, key);
    assert_memory_equal(keys.items[1], key, sizeof(key));
    dims[1].kind = METER_DIM_STRING;
    meter_dims_key(dims, 3, key);
    assert_memory_equal(keys.items[0], key, sizeof(key));

    assert_int_equal(ask(place, "metric=calls&interval=1m&where.a=x" RANGE), 0);
    assert_false(filters_keys(&place->query.filters, place->query.series,
                              &place->arena, &keys));
}


/* ---- groups ---------------------------------------------------------- */

static enum groups_result
add(struct groups *groups, uint8_t number, const char *json)
{
    char key[METER_DIGEST_SIZE] = {(char)number};

    return groups_add(groups, (struct meter_str){key, sizeof(key)},
                      str_of(json));
}

static void
groups__what_group_by_leaves__by_bytes(void **state)
{
    struct place *place = *state;
    struct groups groups;

    assert_int_equal(ask(place, "metric=calls&interval=1m&group_by=b" RANGE),
                     0);
    assert_true(groups_init(&groups, &place->query, 4, &place->arena));
    assert_int_equal(add(&groups, 1, "{\"a\":1,\"b\":\"y\",\"c\":null}"),
                     GROUPS_OK);
    assert_int_equal(add(&groups, 2, "{\"a\":2,\"b\":\"x\",\"c\":null}"),
                     GROUPS_OK);
    assert_int_equal(add(&groups, 3, "{\"a\":3,\"b\":\"y\",\"c\":null}"),
                     GROUPS_OK);
    assert_int_equal(add(&groups, 4, "{\"a\":3}"), GROUPS_OK);
    groups_sort(&groups);
    assert_int_equal(groups.count, 3);
    assert_string_equal(groups.json[0].data, "{\"b\":\"x\"}");
    assert_string_equal(groups.json[1].data, "{\"b\":\"y\"}");
    assert_string_equal(groups.json[2].data, "{\"b\":null}");
    assert_int_equal(groups.keys[0].key[0], 2);
    assert_int_equal(groups.keys[1].place, 1);
    assert_int_equal(groups.keys[2].place, 1);
    assert_int_equal(groups.keys[3].place, 2);
}

static void
groups__no_keys__one_only_without_dimensions(void **state)
{
    struct place *place = *state;
    struct groups groups;

    assert_int_equal(ask(place, "metric=calls&interval=1m" RANGE), 0);
    assert_true(groups_init(&groups, &place->query, 0, &place->arena));
    groups_sort(&groups);
    assert_int_equal(groups.count, 0);
    assert_int_equal(ask(place, "metric=calls&interval=1m&group_by=" RANGE), 0);
    assert_true(groups_init(&groups, &place->query, 0, &place->arena));
    groups_sort(&groups);
    assert_int_equal(groups.count, 1);
}

static void
groups__text_and_number__are_mixed_where_loose(void **state)
{
    struct place *place = *state;
    struct groups groups;

    assert_int_equal(ask(place, "metric=calls&interval=1m&where.a=5" RANGE), 0);
    assert_true(groups_init(&groups, &place->query, 3, &place->arena));
    assert_int_equal(add(&groups, 1, "{\"a\":5}"), GROUPS_OK);
    assert_int_equal(add(&groups, 2, "{\"a\":5,\"b\":1}"), GROUPS_OK);
    assert_int_equal(add(&groups, 3, "{\"a\":\"5\"}"), GROUPS_MIXED);

    assert_int_equal(ask(place, "metric=calls&interval=1m&where={\"a\":[5,"
                                "\"5\"]}" RANGE),
                     0);
    assert_true(groups_init(&groups, &place->query, 2, &place->arena));
    assert_int_equal(add(&groups, 1, "{\"a\":5}"), GROUPS_OK);
    assert_int_equal(add(&groups, 3, "{\"a\":\"5\"}"), GROUPS_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(interval__grammar),
    TEST(range__offset_with_a_plus_that_was_not_escaped__is_read),
    cmocka_unit_test(zone__grammar),
    TEST(query__defaults),
    TEST(words__unknown_argument__is_named),
    TEST(filters__json__sorted_and_canonical),
    TEST(filters__all_dimensions__keys_of_all_combinations),
    TEST(groups__what_group_by_leaves__by_bytes),
    TEST(groups__no_keys__one_only_without_dimensions),
    TEST(groups__text_and_number__are_mixed_where_loose),
};

RUN_TAP(tests)
