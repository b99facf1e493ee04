/*
 * test_search.c - questions of POST /v1/search: reading them, and deciding
 * on an event.
 */

#include "search_fixture.h"

#include "meter_time.h"

static void
assert_refused(struct place *place, const char *body, const char *error)
{
    assert_false(ask(place, body));
    assert_string_equal(place->error, error);
}


/* ---- numbers --------------------------------------------------------- */

static void
number_compare__spellings_and_signs__by_value(void **state)
{
    /* Ascending; those of one line are equal. */
    static const char *const numbers[][4] = {
        {"-1e400", "-10e399"},
        {"-10", "-1e1", "-10.0"},
        {"-9.5"},
        {"-1"},
        {"-0.001", "-1e-3"},
        {"0", "-0", "0.0", "0e9"},
        {"1e-400"},
        {"0.1", "1e-1"},
        {"0.11"},
        {"1", "1.0", "10e-1", "0.1e1"},
        {"1.000000000000000000000000000001"},
        {"9"},
        {"10", "1E1"},
        {"10.5"},
        {"11"},
        {"12345678901234567890.1"},
        {"12345678901234567890.2"},
        {"1e30"},
    };
    size_t count = sizeof(numbers) / sizeof(numbers[0]);

    (void)state;
    for (size_t i = 0; i < count * 4; i++) {
        const char *a = numbers[i / 4][i % 4];

        for (size_t j = 0; a != NULL && j < count * 4; j++) {
            const char *b = numbers[j / 4][j % 4];
            int order;

            if (b == NULL) {
                continue;
            }
            order = search_number_compare(str_of(a), str_of(b));
            assert_int_equal((order > 0) - (order < 0),
                             (i / 4 > j / 4) - (i / 4 < j / 4));
        }
    }
}


/* ---- matching -------------------------------------------------------- */

/* filter on attribute a of an event; 1: it matches. */
static int
matches(struct place *place, const char *term, const char *attributes)
{
    struct search_event event = {.type = str_of("call")};
    char body[1024];

    snprintf(body, sizeof(body), "{\"filter\":{\"a\":%s}}", term);
    assert_asked(place, body);
    event.attributes = read_json(place, attributes);
    return search_matches(&place->search, &event);
}

static void
matches__each_operator__as_documented(void **state)
{
    /* term, attributes that match, attributes that do not; up to NULL. */
    static const struct {
        const char *term;
        const char *good[5];
        const char *bad[8];
    } rows[] = {
        {"1",
         {"{\"a\":1}", "{\"a\":1.0}", "{\"a\":10e-1}"},
         {"{\"a\":\"1\"}", "{\"a\":true}", "{\"a\":2}", "{}", "{\"a\":null}",
          "{\"a\":[1]}"}},
        {"\"x\"", {"{\"a\":\"x\"}"}, {"{\"a\":\"xy\"}", "{\"a\":\"X\"}", "{}"}},
        {"true", {"{\"a\":true}"}, {"{\"a\":false}", "{\"a\":\"true\"}"}},
        {"{\"eq\":false}", {"{\"a\":false}"}, {"{\"a\":true}", "{}"}},
        {"{\"ne\":1}",
         {"{\"a\":2}", "{\"a\":\"1\"}", "{}", "{\"a\":null}", "{\"a\":{}}"},
         {"{\"a\":1}", "{\"a\":1.00}"}},
        {"{\"in\":[1,\"x\",true]}",
         {"{\"a\":1.0}", "{\"a\":\"x\"}", "{\"a\":true}"},
         {"{\"a\":\"1\"}", "{\"a\":false}", "{}", "{\"a\":[1]}"}},
        {"{\"lt\":10}",
         {"{\"a\":9}", "{\"a\":-1e9}", "{\"a\":9.999}"},
         {"{\"a\":10}", "{\"a\":10.0}", "{\"a\":11}", "{\"a\":\"1\"}", "{}",
          "{\"a\":true}"}},
        {"{\"lte\":10}", {"{\"a\":10.0}", "{\"a\":2}"}, {"{\"a\":10.1}", "{}"}},
        {"{\"gt\":\"b\"}",
         {"{\"a\":\"ba\"}", "{\"a\":\"c\"}", "{\"a\":\"\xc3\xa9\"}"},
         {"{\"a\":\"b\"}", "{\"a\":\"B\"}", "{\"a\":3}", "{}", "{\"a\":null}"}},
        {"{\"gte\":\"b\"}", {"{\"a\":\"b\"}"}, {"{\"a\":\"az\"}", "{\"a\":9}"}},
        {"{\"gt\":1,\"lt\":3,\"ne\":2}",
         {"{\"a\":1.5}", "{\"a\":2.1}"},
         {"{\"a\":1}", "{\"a\":2.0}", "{\"a\":3}", "{}"}},
        {"{\"exists\":true}",
         {"{\"a\":0}", "{\"a\":\"\"}", "{\"a\":{}}", "{\"a\":[]}"},
         {"{}", "{\"a\":null}"}},
        {"{\"exists\":false}",
         {"{}", "{\"a\":null}", "{\"b\":1}"},
         {"{\"a\":false}", "{\"a\":[]}"}},
        {"{\"prefix\":\"ab\"}",
         {"{\"a\":\"ab\"}", "{\"a\":\"abc\"}"},
         {"{\"a\":\"a\"}", "{\"a\":\"Ab\"}", "{\"a\":5}", "{}"}},
        {"{\"prefix\":\"\"}", {"{\"a\":\"\"}", "{\"a\":\"x\"}"}, {"{\"a\":5}"}},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t g = 0; g < 5 && rows[i].good[g] != NULL; g++) {
            if (!matches(*state, rows[i].term, rows[i].good[g])) {
                fail_msg("%s: not %s", rows[i].term, rows[i].good[g]);
            }
        }
        for (size_t b = 0; b < 8 && rows[i].bad[b] != NULL; b++) {
            if (matches(*state, rows[i].term, rows[i].bad[b])) {
                fail_msg("%s: %s", rows[i].term, rows[i].bad[b]);
            }
        }
    }
}

static void
matches__dotted_names__key_first_then_path(void **state)
{
    struct place *place = *state;
    static const struct {
        const char *name;
        const char *attributes;
        bool is_found;
    } rows[] = {
        {"x.y", "{\"x.y\":1,\"x\":{\"y\":2}}", true},
        {"x.y", "{\"x\":{\"y\":1}}", true},
        {"x.y", "{\"x\":{\"z\":1}}", false},
        {"x.y", "{\"x\":1}", false},
        {"x.y.z", "{\"x\":{\"y\":{\"z\":1}}}", true},
        {".x", "{\".x\":1}", true},
        {"x.", "{\"x\":{\"\":1}}", false},
        {"x..y", "{\"x..y\":1}", true},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct search_event event = {.type = str_of("call")};
        char body[256];

        snprintf(body, sizeof(body), "{\"filter\":{\"%s\":1}}", rows[i].name);
        assert_asked(place, body);
        event.attributes = read_json(place, rows[i].attributes);
        assert_int_equal(search_matches(&place->search, &event),
                         rows[i].is_found);
    }
}

static void
matches__type_customer_resource__all_of_them(void **state)
{
    static const struct json_value nothing = {.kind = JSON_OBJECT};
    struct place *place = *state;
    struct search_event event = {str_of("call"), str_of("c"), str_of("r"),
                                 &nothing};

    assert_asked(place, "{\"type\":\"call\",\"customer\":\"c\","
                        "\"resource\":\"r\"}");
    assert_true(search_matches(&place->search, &event));
    event.customer = str_of("d");
    assert_false(search_matches(&place->search, &event));
    event.customer = (struct meter_str){NULL, 0};
    assert_false(search_matches(&place->search, &event));
    event.customer = str_of("c");
    event.resource = str_of("s");
    assert_false(search_matches(&place->search, &event));
    event.resource = str_of("r");
    event.type = str_of("bare");
    assert_false(search_matches(&place->search, &event));
}


/* ---- reading --------------------------------------------------------- */

static void
read__times__rfc3339_or_epoch(void **state)
{
    struct place *place = *state;

    assert_asked(place, "{}");
    assert_true(place->search.from_us == METER_TIME_MIN);
    assert_true(place->search.to_us == METER_TIME_MAX + 1);
    assert_asked(place, "{\"from\":\"2026-09-01T00:00:00Z\","
                        "\"to\":1788220800.5}");
    assert_true(place->search.from_us == INT64_C(1788220800000000));
    assert_true(place->search.to_us == INT64_C(1788220800500000));
    assert_refused(place, "{\"from\":true}",
                   "from must be an RFC 3339 string or an epoch number");
    assert_refused(place, "{\"to\":1e30}",
                   "to is outside the years 0001 to 9999: \"1e30\"");
    assert_refused(place, "{\"from\":5,\"to\":5}", "from must be before to");
}

static void
read__where__names_what_is_not_indexed(void **state)
{
    struct place *place = *state;

    assert_asked(place, "{\"type\":\"call\",\"where\":{\"who.name\":1}}");
    assert_int_equal(place->search.terms[0].path.segment_count, 2);
    assert_asked(place, "{\"where\":{}}");
    assert_refused(place, "{\"where\":{\"route\":1}}",
                   "where needs a type: attributes are indexed by type");
    assert_refused(place, "{\"type\":\"call\",\"where\":{\"free\":1}}",
                   "attribute \"free\" is not indexed for type \"call\"; "
                   "\"filter\" takes any attribute");
    assert_refused(place, "{\"type\":\"call\",\"where\":{\"who\":1}}",
                   "attribute \"who\" is not indexed for type \"call\"; "
                   "\"filter\" takes any attribute");
}

static void
read__type__names_what_is_not_declared(void **state)
{
    static const char any_rules[] =
        "events:\n  - { type: \"*\", indexed: [route] }\n";
    struct place *place = *state;
    struct config *rules = place->config;
    struct config_errors errors;

    assert_asked(place, "{\"type\":\"bare\"}");
    assert_refused(place, "{\"type\":\"none\"}", "unknown event type \"none\"");
    assert_refused(place, "{\"type\":\"none\",\"where\":{\"route\":1}}",
                   "unknown event type \"none\"");
    assert_refused(place, "{\"type\":\"*\"}", "unknown event type \"*\"");

    assert_true(
        config_load_text("rules", str_of(any_rules), &place->config, &errors));
    assert_asked(place, "{\"type\":\"none\",\"where\":{\"route\":1}}");
    assert_refused(place, "{\"type\":\"*\"}", "unknown event type \"*\"");
    config_unref(place->config);
    place->config = rules;
}

static void
read__limits__exactly(void **state)
{
    struct place *place = *state;
    char body[16384];

    for (int count = 32; count <= 33; count++) {
        size_t at = (size_t)snprintf(body, sizeof(body), "{\"filter\":{");

        for (int i = 0; i < count; i++) {
            at += (size_t)snprintf(body + at, sizeof(body) - at, "%s\"a%d\":1",
                                   i == 0 ? "" : ",", i);
        }
        snprintf(body + at, sizeof(body) - at, "}}");
        assert_int_equal(ask(place, body), count == 32);
    }
    for (int count = 1000; count <= 1001; count++) {
        size_t at = (size_t)snprintf(body, sizeof(body),
                                     "{\"filter\":{\"a\":{\"in\":[");

        for (int i = 0; i < count; i++) {
            at += (size_t)snprintf(body + at, sizeof(body) - at, "%s%d",
                                   i == 0 ? "" : ",", i);
        }
        snprintf(body + at, sizeof(body) - at, "]}}}");
        assert_int_equal(ask(place, body), count == 1000);
    }
}

static void
read__values_of_operators__checked(void **state)
{
    static const char *const bad[] = {
        "null",
        "[1]",
        "{}",
        "{\"eq\":null}",
        "{\"eq\":{}}",
        "{\"ne\":[1]}",
        "{\"in\":1}",
        "{\"in\":[]}",
        "{\"in\":[null]}",
        "{\"in\":[[1]]}",
        "{\"lt\":true}",
        "{\"lte\":null}",
        "{\"gt\":[]}",
        "{\"gte\":false}",
        "{\"exists\":\"true\"}",
        "{\"prefix\":1}",
        "{\"like\":\"x\"}",
        "{\"EQ\":1}",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char body[128];

        snprintf(body, sizeof(body), "{\"filter\":{\"a\":%s}}", bad[i]);
        if (ask(*state, body)) {
            fail_msg("taken: %s", bad[i]);
        }
    }
}

static const struct CMUnitTest tests[] = {
    TEST(number_compare__spellings_and_signs__by_value),
    TEST(matches__each_operator__as_documented),
    TEST(matches__dotted_names__key_first_then_path),
    TEST(matches__type_customer_resource__all_of_them),
    TEST(read__times__rfc3339_or_epoch),
    TEST(read__where__names_what_is_not_indexed),
    TEST(read__type__names_what_is_not_declared),
    TEST(read__limits__exactly),
    TEST(read__values_of_operators__checked),
};

RUN_TAP(tests)
