/*
 * test_search_drive.c - which part of the index holds all events that can
 * match.
 */

#include "search_fixture.h"

#include "meter_random.h"
#include "project/index.h"

/* "ledger", "values route=1|2", "range status -..: 1..5" */
static const char *
drive_of(struct place *place, const char *where)
{
    static char text[2048];
    const struct search_drive *drive = &place->search.drive;
    size_t at;
    char body[2048];

    snprintf(body, sizeof(body), "{\"type\":\"call\",\"where\":%s}", where);
    assert_asked(place, body);
    switch (drive->kind) {
    case SEARCH_DRIVE_LEDGER: return "ledger";
    case SEARCH_DRIVE_VALUES:
        at = (size_t)snprintf(text, sizeof(text),
                              "%.*s:", (int)drive->attribute.size,
                              drive->attribute.data);
        for (size_t i = 0; i < drive->value_count; i++) {
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %.*s",
                                   (int)drive->values[i].size,
                                   drive->values[i].data);
        }
        return text;
    case SEARCH_DRIVE_RANGE: break;
    }
    snprintf(text, sizeof(text), "%.*s: [%.*s, %.*s) %.*s to %.*s",
             (int)drive->attribute.size, drive->attribute.data,
             (int)drive->low.size, drive->low.data, (int)drive->high.size,
             drive->high.data, (int)drive->number_low.size,
             drive->number_low.data == NULL ? "" : drive->number_low.data,
             (int)drive->number_high.size,
             drive->number_high.data == NULL ? "" : drive->number_high.data);
    return text;
}

static void
drive__best_term__eq_in_prefix_order(void **state)
{
    static const char *const rows[][2] = {
        {"{}", "ledger"},
        {"{\"route\":{\"ne\":1}}", "ledger"},
        {"{\"route\":{\"exists\":true}}", "ledger"},
        {"{\"route\":{\"exists\":false}}", "ledger"},
        {"{\"route\":1.0}", "route: 1"},
        {"{\"route\":\"a\\u0041\"}", "route: \"aA\""},
        {"{\"route\":{\"in\":[2,1.0,1,\"1\"]}}", "route: \"1\" 1 2"},
        {"{\"route\":{\"in\":[1]},\"status\":5}", "status: 5"},
        {"{\"route\":{\"prefix\":\"x\"},\"status\":{\"in\":[5]}}", "status: 5"},
        {"{\"route\":{\"lt\":1},\"status\":{\"prefix\":\"x\"}}",
         "status: [\"x, \"y)  to "},
        {"{\"route\":{\"prefix\":\"\"}}", "route: [\", #)  to "},
        {"{\"route\":{\"gt\":\"b\"}}", "route: [\", #)  to "},
        {"{\"route\":{\"gt\":1}}", "route: [-, :) 1 to "},
        {"{\"route\":{\"gte\":1,\"gt\":2.5,\"lt\":9,\"lte\":7}}",
         "route: [-, :) 2.5 to 7"},
        {"{\"route\":{\"gt\":1,\"lt\":\"b\"}}", "route: [-, :) 1 to "},
        {"{\"route\":{\"gt\":1},\"status\":{\"lt\":2}}", "route: [-, :) 1 to "},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_string_equal(drive_of(*state, rows[i][0]), rows[i][1]);
    }
}

static void
drive__filter__never(void **state)
{
    struct place *place = *state;

    assert_asked(place, "{\"type\":\"call\",\"filter\":{\"route\":1}}");
    assert_int_equal(place->search.drive.kind, SEARCH_DRIVE_LEDGER);
}

static void
drive__end_of_a_prefix__next_character(void **state)
{
    static const char *const rows[][2] = {
        {"a", "\"b"},
        {"\x7f", "\"\xc2\x80"},
        {"\xdf\xbf", "\"\xe0\xa0\x80"},
        {"\xed\x9f\xbf", "\"\xee\x80\x80"},
        {"\xef\xbf\xbf", "\"\xf0\x90\x80\x80"},
        {"a\xf4\x8f\xbf\xbf", "\"b"},
        {"\xf4\x8f\xbf\xbf\xf4\x8f\xbf\xbf", "#"},
    };
    struct place *place = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char body[256];

        snprintf(
            body, sizeof(body),
            "{\"type\":\"call\",\"where\":{\"route\":{\"prefix\":\"%s\"}}}",
            rows[i][0]);
        assert_asked(place, body);
        assert_int_equal(place->search.drive.high.size, strlen(rows[i][1]));
        assert_memory_equal(place->search.drive.high.data, rows[i][1],
                            strlen(rows[i][1]));
    }
}

/* A value as JSON: short and long, cut inside and around characters. */
static void
random_value(struct meter_random *random, char *out, size_t size)
{
    static const char *const values[] = {
        "1",           "1.0",      "-3",           "2.5",  "1e30",
        "\"a\"",       "\"ab\"",   "\"b\"",        "true", "false",
        "\"\\n\"",     "\"\\\"\"", "\"\xc3\xa9\"", "\"\"", "10",
        "\"\\u0001x\""};
    static const char *const pieces[] = {"a", "\xc3\xa9", "\xf0\x9f\x98\x80",
                                         "\\n"};
    size_t at;

    if (random_below(random, 3) > 0) {
        snprintf(
            out, size, "%s",
            values[random_below(random, sizeof(values) / sizeof(values[0]))]);
        return;
    }
    at = (size_t)snprintf(out, size, "\"");
    while (at < 250 + random_below(random, 10)) {
        at += (size_t)snprintf(out + at, size - at, "%s",
                               pieces[at < 248 ? 0 : random_below(random, 4)]);
    }
    snprintf(out + at, size - at, "\"");
}

/* The index entry of the event's route lies in what drives. */
static bool
is_driven(struct place *place, const struct json_value *attributes)
{
    const struct search_drive *drive = &place->search.drive;
    const struct json_value *value =
        json_member_find(attributes, str_of("route"));
    struct meter_str json;

    assert_true(json_canonical(value, &place->arena, &json));
    json = index_value_cut(json);
    if (drive->kind == SEARCH_DRIVE_LEDGER) {
        return true;
    }
    if (drive->kind == SEARCH_DRIVE_VALUES) {
        for (size_t i = 0; i < drive->value_count; i++) {
            if (meter_str_equal(drive->values[i], json)) {
                return true;
            }
        }
        return false;
    }
    return meter_str_compare(json, drive->low) >= 0 &&
           meter_str_compare(json, drive->high) < 0 &&
           (drive->number_low.data == NULL ||
            search_number_compare(json, drive->number_low) >= 0) &&
           (drive->number_high.data == NULL ||
            search_number_compare(json, drive->number_high) <= 0);
}

static void
drive__random__holds_all_that_matches(void **state)
{
    static const char *const forms[] = {
        "%s",           "{\"in\":[%s,1]}", "{\"prefix\":%s}", "{\"lt\":%s}",
        "{\"lte\":%s}", "{\"gt\":%s}",     "{\"gte\":%s}",    "{\"ne\":%s}"};
    struct place *place = *state;
    struct meter_random random;
    size_t matched = 0;

    random.state = 20261116;
    for (int i = 0; i < 20000; i++) {
        struct search_event event = {.type = str_of("call")};
        char value[400];
        char term[450];
        char body[600];
        char attributes[600];

        arena_reset(&place->arena);
        random_value(&random, value, sizeof(value));
        snprintf(term, sizeof(term), forms[random_below(&random, 8)], value);
        snprintf(body, sizeof(body),
                 "{\"type\":\"call\",\"where\":{\"route\":%s}}", term);
        if (!ask(place, body)) {
            continue;
        }
        if (random_below(&random, 2) == 0) {
            random_value(&random, value, sizeof(value));
        }
        snprintf(attributes, sizeof(attributes), "{\"route\":%s}", value);
        event.attributes = read_json(place, attributes);
        if (search_matches(&place->search, &event)) {
            matched++;
            if (!is_driven(place, event.attributes)) {
                fail_msg("%s does not drive %s", term, value);
            }
        }
    }
    assert_true(matched > 2000);
}

static const struct CMUnitTest tests[] = {
    TEST(drive__best_term__eq_in_prefix_order),
    TEST(drive__filter__never),
    TEST(drive__end_of_a_prefix__next_character),
    TEST(drive__random__holds_all_that_matches),
};

RUN_TAP(tests)
