/*
 * Bodies to envelopes: forms, limits, and each member of an event.
 */

#include "envelope_fixture.h"

#include "base/buf.h"

static void
assert_bad(struct fixture *f, const char *body, const char *fragment)
{
    assert_int_equal(read_text(f, body), ENVELOPE_BAD);
    assert_contains(f->error, fragment, body);
    assert_int_equal(f->count, 0);
    assert_null(f->list);
}

static void
assert_rejected(struct fixture *f, const char *body, const char *fragment)
{
    assert_contains(read_one(f, body)->error, fragment, body);
}

/* ---- the forms of a body --------------------------------------------- */

#define EVENT(id)                                        \
    "{\"event_id\":\"" id "\",\"type\":\"api.request\"," \
    "\"ts\":\"2025-06-01T00:00:00Z\",\"attributes\":{\"route\":\"/\"}}"

static void
body__one_object__is_single(void **state)
{
    assert_str(read_good(*state, " \r\n\t" EVENT("a") " \n")->event.event_id,
               "a");
}

static void
body__array__is_a_list_in_order(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(read_text(f, " [ " EVENT("a") " , " EVENT("b") "\n] "),
                     ENVELOPE_LIST);
    assert_int_equal(f->count, 2);
    assert_str(f->list[0].event.event_id, "a");
    assert_str(f->list[1].event.event_id, "b");
    assert_null(f->list[0].error);
    assert_null(f->list[1].error);
}

static void
body__events_member__is_a_list(void **state)
{
    struct fixture *f = *state;
    static const char *const forms[] = {
        "{\"events\":[" EVENT("a") "," EVENT("b") "]}",
        " { \"events\" : [ " EVENT("a") ", " EVENT("b") " ] } ",
        "{\"\\u0065vent\\u0073\":[" EVENT("a") "," EVENT("b") "]}",
    };

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        assert_int_equal(read_text(f, forms[i]), ENVELOPE_LIST);
        assert_int_equal(f->count, 2);
        assert_null(f->list[1].error);
        assert_str(f->list[1].event.event_id, "b");
    }
}

static void
body__empty_lists__are_valid(void **state)
{
    struct fixture *f = *state;
    static const char *const forms[] = {"[]", " [ ] ", "{\"events\":[]}",
                                        "{ \"events\" : [ ] }\n"};

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        assert_int_equal(read_text(f, forms[i]), ENVELOPE_LIST);
        assert_int_equal(f->count, 0);
    }
}

static void
body__broken_outline__is_refused_as_a_whole(void **state)
{
    static const char *const table[][2] = {
        {"", "an event or a list of events is expected"},
        {" \n", "an event or a list of events is expected"},
        {"\"text\"", "must be a JSON object or array"},
        {"5", "must be a JSON object or array"},
        {"null", "must be a JSON object or array"},
        {"\xef\xbb\xbf{}", "must be a JSON object or array"},
        {"}", "must be a JSON object or array"},
        {"[", "the list of events has no end"},
        {"[" EVENT("a"), "the list of events has no end"},
        {"[" EVENT("a") ",", "the list of events has no end"},
        {"[" EVENT("a") ",]", "expected an event, at byte 94"},
        {"[,]", "expected an event"},
        {"[" EVENT("a") "}", "expected a comma or ]"},
        {"[" EVENT("a") " " EVENT("b") "]", "expected a comma or ]"},
        {"[" EVENT("a") "]]", "surplus bytes behind the events"},
        {"[" EVENT("a") "],", "surplus bytes behind the events"},
        {EVENT("a") EVENT("b"), "surplus bytes behind the object"},
        {EVENT("a") "\n" EVENT("b") "\n", "surplus bytes behind the object"},
        {EVENT("a") "}", "surplus bytes behind the object"},
        {"{\"event_id\":\"a\"", "an event has no end, from byte 0"},
        {"{\"event_id\":\"a", "an event has no end"},
        {"{\"event_id\":\"a\\", "an event has no end"},
        {"{", "an event has no end"},
        {"{\"events\":[" EVENT("a") "]", "expected } behind the events"},
        {"{\"events\":[" EVENT("a") "}", "expected a comma or ]"},
        {"{\"events\":[]} x", "surplus bytes"},
        {"{\"events\":[],\"source\":\"x\"}", "must be the only member"},
        {"{\"events\":[],\"events\":[]}", "must be the only member"},
        {"{\"source\":\"x\",\"events\":[]}", "must be the only member"},
        {"{\"source\":\"x\",\"ev\\u0065nts\":[]}", "must be the only member"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        assert_bad(*state, table[i][0], table[i][1]);
    }
}

static void
body__events_that_is_no_array__is_a_bad_event(void **state)
{
    assert_rejected(*state, "{\"events\":7}", "unknown member \"events\"");
    assert_rejected(*state, "{\"events\":{\"a\":[]}}",
                    "unknown member \"events\"");
    assert_rejected(*state, "{}", "type is missing");
}

static void
body__as_many_events_as_allowed__and_one_more(void **state)
{
    struct fixture *f = *state;
    struct buf body;

    buf_init(&body, 8 << 20);
    buf_put_text(&body, "[" EVENT("a"));
    for (size_t i = 1; i < METER_BATCH_EVENTS_MAX; i++) {
        buf_put_text(&body, i % 2 ? ",{}" : "," EVENT("b"));
    }
    buf_put_text(&body, "]");
    assert_int_equal(read_body(f, buf_str(&body)), ENVELOPE_LIST);
    assert_int_equal(f->count, METER_BATCH_EVENTS_MAX);
    body.size--;
    buf_put_text(&body, ",{}]");
    assert_int_equal(read_body(f, buf_str(&body)), ENVELOPE_BAD);
    assert_contains(f->error, "more than 5000 events", "5001");
    buf_fini(&body);
}

static void
body__more_than_the_arena_holds__is_refused_as_a_whole(void **state)
{
    struct fixture *f = *state;
    struct arena small;

    for (size_t room = 1024; room < 64 << 10; room += 1024) {
        enum envelope_body body;
        struct buf text;

        buf_init(&text, 1 << 20);
        buf_put_text(&text, "[" EVENT("a"));
        for (size_t i = 0; i < 20; i++) {
            buf_put_text(&text, "," EVENT("\\u0041"));
        }
        buf_put_text(&text, "]");
        arena_init(&small, 1024, room);
        body = envelope_read(
            &(struct envelope_input){.body = buf_str(&text)}, &f->context,
            &small, &f->list, &f->count, &f->error);
        if (body == ENVELOPE_BAD) {
            assert_contains(f->error, "too much memory", "small arena");
        } else {
            assert_int_equal(body, ENVELOPE_LIST);
            for (size_t i = 0; i < f->count; i++) {
                assert_null(f->list[i].error);
            }
        }
        assert_true(body == ENVELOPE_BAD || room > 4096);
        assert_true(body != ENVELOPE_BAD || room < 60 << 10);
        arena_fini(&small);
        buf_fini(&text);
    }
}

/* ---- members --------------------------------------------------------- */

static void
event__all_members__are_taken(void **state)
{
    const struct envelope *one = read_good(
        *state,
        "{\"quantity\":\"12.50\",\"event_id\":\"e\\u00e9\\ud83d\\ude00\","
        "\"type\":\"api.request\",\"ts\":1735689600.25,\"tenant\":\"acme\","
        "\"customer\":\"c\",\"resource\":\"r\",\"source\":\"s\","
        "\"attributes\":{\"z\":1.50,\"route\":\"/\\/\",\"a\":[true,null,-0]}}");
    struct meter_decimal expected;

    assert_str(one->event.event_id, "e\xc3\xa9\xf0\x9f\x98\x80");
    assert_str(one->id_seen, "e\xc3\xa9\xf0\x9f\x98\x80");
    assert_str(one->event.tenant, "acme");
    assert_str(one->event.type, "api.request");
    assert_str(one->event.customer, "c");
    assert_str(one->event.resource, "r");
    assert_str(one->event.source, "s");
    assert_str(one->event.attributes,
               "{\"a\":[true,null,0],\"route\":\"//\",\"z\":1.5}");
    assert_true(one->event.ts_us == INT64_C(1735689600250000));
    assert_int_equal(meter_decimal_parse(METER_STR("12.5"), &expected),
                     METER_DECIMAL_OK);
    assert_int_equal(meter_decimal_compare(one->event.quantity, expected), 0);
    assert_int_equal(one->event.count, 1);
    assert_int_equal(one->event.flags, 0);
    assert_int_equal(one->attributes.kind, JSON_OBJECT);
    assert_int_equal(one->attributes.count, 3);
    assert_str(one->type->name, "api.request");
}

static void
event__only_what_must_be__gets_the_defaults(void **state)
{
    const struct envelope *one = read_good(
        *state, "{\"event_id\":\"e\",\"type\":\"job.done\",\"ts\":1735689600,"
                "\"tenant\":null,\"customer\":null,\"resource\":null,"
                "\"source\":null,\"quantity\":null,\"attributes\":null}");

    assert_null(one->event.customer.data);
    assert_null(one->event.resource.data);
    assert_null(one->event.source.data);
    assert_str(one->event.tenant, "acme");
    assert_str(one->event.attributes, "{}");
    assert_int_equal(one->attributes.kind, JSON_OBJECT);
    assert_int_equal(one->attributes.count, 0);
    assert_int_equal(
        meter_decimal_compare(one->event.quantity, meter_decimal_from_int(1)),
        0);
}

static void
event__same_content_in_other_words__is_the_same(void **state)
{
    static const char *const spellings[] = {
        "{\"event_id\":\"e\",\"type\":\"api.request\",\"ts\":1735689600,"
        "\"quantity\":10,\"attributes\":{\"route\":\"/\",\"n\":100}}",
        "{\"attributes\":{\"n\":1e2,\"route\":\"\\u002f\"},\"quantity\":"
        "\"1e1\","
        "\"ts\":\"2025-01-01T01:00:00+01:00\",\"type\":\"api.request\","
        "\"event_id\":\"\\u0065\",\"customer\":null}",
        "{ \"attributes\" : { \"n\" : 100.000 , \"r\\u006fute\" : \"\\/\" } ,"
        "\"quantity\":10.0,\"ts\":1735689600000,\"type\":\"api.request\","
        "\"event_id\":\"e\",\"tenant\":\"acme\"}",
    };
    struct fixture *f = *state;
    struct meter_fingerprint first, other;

    meter_event_fingerprint(&f->salt, &read_good(f, spellings[0])->event,
                            &first);
    for (size_t i = 1; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        meter_event_fingerprint(&f->salt, &read_good(f, spellings[i])->event,
                                &other);
        assert_int_equal(meter_fingerprint_compare(&first, &other),
                         METER_VERDICT_DUPLICATE);
    }
}

static void
event__id_absent_where_the_type_allows_it__is_derived(void **state)
{
    static const char body[] =
        "{\"type\":\"job.done\",\"ts\":1735689600,\"customer\":\"c\"}";
    struct fixture *f = *state;
    const struct envelope *one = read_good(f, body);
    struct meter_str first = one->event.event_id;

    assert_int_equal(first.size, METER_DERIVED_ID_SIZE);
    assert_int_equal(one->event.flags, METER_EVENT_DERIVED_ID);
    assert_true(meter_str_equal(one->id_seen, first));
    assert_true(meter_str_equal(read_good(f, body)->event.event_id, first));
    one = read_good(f, "{\"type\":\"job.done\",\"ts\":1735689601,"
                       "\"customer\":\"c\"}");
    assert_false(meter_str_equal(one->event.event_id, first));
    assert_rejected(f, "{\"type\":\"job.done\",\"ts\":1,\"event_id\":null}",
                    "event_id must be a string");
}

static void
event__limits_of_texts__are_inclusive(void **state)
{
    static const struct {
        const char *name;
        size_t size_max;
    } texts[] = {{"event_id", METER_EVENT_ID_SIZE_MAX},
                 {"customer", METER_CUSTOMER_SIZE_MAX},
                 {"resource", METER_RESOURCE_SIZE_MAX},
                 {"source", METER_SOURCE_SIZE_MAX}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (size_t over = 0; over < 2; over++) {
            char text[2048], body[4096];

            memset(text, 'x', sizeof(text));
            text[texts[i].size_max + over] = '\0';
            snprintf(body, sizeof(body),
                     "{\"type\":\"job.done\",\"ts\":1735689600,\"%s\":\"%s\"}",
                     texts[i].name, text);
            if (over) {
                assert_rejected(*state, body, "is longer than");
                assert_rejected(*state, body, texts[i].name);
            } else {
                read_good(*state, body);
            }
        }
    }
}

static void
event__limits_of_attributes__are_inclusive(void **state)
{
    static const char head[] = "{\"event_id\":\"e\",\"type\":\"job.done\","
                               "\"ts\":1735689600,\"attributes\":";
    struct fixture *f = *state;
    struct buf body;

    buf_init(&body, 1 << 20);
    buf_put_text(&body, head);
    for (int i = 0; i < METER_ATTRIBUTE_COUNT_MAX; i++) {
        buf_printf(&body, "%s\"%d\":%d", i == 0 ? "{" : ",", i, i);
    }
    buf_put_text(&body, "}}");
    buf_put_byte(&body, 0);
    read_good(f, body.data);

    buf_reset(&body); /* 16 levels: the event, attributes and 14 arrays */
    buf_printf(&body, "%s{\"x\":%.*s%.*s}}", head, 14, "[[[[[[[[[[[[[[[[", 14,
               "]]]]]]]]]]]]]]]]");
    buf_put_byte(&body, 0);
    read_good(f, body.data);

    buf_reset(&body);
    buf_printf(&body, "%s{\"%0128d\":\"%08192d\"}}", head, 1, 1);
    buf_put_byte(&body, 0);
    read_good(f, body.data);

    buf_reset(&body);
    buf_put_text(&body, head);
    buf_put_text(&body, "{}");
    while (body.size < METER_EVENT_SIZE_MAX - 1) {
        buf_put_byte(&body, ' ');
    }
    buf_put_text(&body, "}");
    assert_int_equal(read_body(f, buf_str(&body)), ENVELOPE_SINGLE);
    assert_null(f->list[0].error);
    body.size--;
    buf_put_text(&body, " }");
    assert_int_equal(read_body(f, buf_str(&body)), ENVELOPE_SINGLE);
    assert_contains(f->list[0].error, "larger than 65536 bytes", "65537");
    buf_fini(&body);
}

static void
event__skew__is_inclusive_to_the_microsecond(void **state)
{
    struct fixture *f = *state;

    read_good(f, "{\"event_id\":\"e\",\"type\":\"job.done\","
                 "\"ts\":\"2026-01-01T01:00:00Z\"}");
    assert_rejected(f,
                    "{\"event_id\":\"e\",\"type\":\"job.done\","
                    "\"ts\":\"2026-01-01T01:00:00.000001Z\"}",
                    "ts is more than 3600 s ahead of the server's clock");
    read_good(f, "{\"event_id\":\"e\",\"type\":\"job.done\","
                 "\"ts\":\"1926-01-01T00:00:00Z\"}");
    assert_rejected(f,
                    "{\"event_id\":\"e\",\"type\":\"job.done\","
                    "\"ts\":\"1925-12-31T23:59:59.999999Z\"}",
                    "behind the server's clock");
}

static void
event__no_past_skew__any_age_is_taken(void **state)
{
    struct fixture *f = *state;

    config_unref(f->config);
    f->config = load_rules("events: [ { type: a } ]\n");
    f->context.config = f->config;
    read_good(f, "{\"event_id\":\"e\",\"type\":\"a\","
                 "\"ts\":\"0001-01-01T00:00:00Z\"}");
}

static void
event__any_type__is_taken_where_the_rules_say_so(void **state)
{
    struct fixture *f = *state;

    config_unref(f->config);
    f->config = load_rules("events: [ { type: \"*\", required: [a] } ]\n");
    f->context.config = f->config;
    read_good(f, "{\"event_id\":\"e\",\"type\":\"what ever\",\"ts\":1,"
                 "\"attributes\":{\"a\":false}}");
    assert_rejected(f, "{\"event_id\":\"e\",\"type\":\"x\",\"ts\":1}",
                    "attribute \"a\" is required for type \"x\"");
    assert_rejected(f,
                    "{\"event_id\":\"e\",\"type\":\"*\",\"ts\":1,"
                    "\"attributes\":{\"a\":1}}",
                    "unknown event type");
}

static void
event__required_dotted_path__exact_key_or_nested(void **state)
{
#define SPAN(attributes)                                             \
    "{\"event_id\":\"e\",\"type\":\"span.ended\",\"ts\":1735689600," \
    "\"attributes\":" attributes "}"
    struct fixture *f = *state;

    read_good(f, SPAN("{\"resource.service\":\"s\"}"));
    read_good(f, SPAN("{\"resource\":{\"service\":0}}"));
    assert_rejected(f, SPAN("{\"resource\":{\"services\":1}}"),
                    "attribute \"resource.service\" is required");
    assert_rejected(f, SPAN("{\"resource\":[\"service\"]}"), "is required");
}

static void
event__bad__is_answered_under_its_id_where_it_has_one(void **state)
{
    static const struct {
        const char *body;
        const char *id;
    } table[] = {
        {"{\"event_id\":\"x\",\"a\":\"\\ud800\"}", "x"},
        {"{\"a\":[01],\"event_id\":\"x\\u0079\"}", "xy"},
        {"{ \"a\" : {{}} , \"event_id\" : \"x\" }", "x"},
        {"{\"event_id\":\"x\",\"unknown\":1}", "x"},
        {"{\"event_id\":\"x\",\"event_id\":\"y\"}", NULL},
        {"{\"event_id\":7,\"a\":01}", NULL},
        {"{\"event_id\":\"\",\"a\":01}", NULL},
        {"{\"event_id\":\"\\ud800\",\"a\":1}", NULL},
        {"{\"event_id\":\"a\x01\"}", NULL},
        {"{\"event_id\":\"\xff\"}", NULL},
        {"{\"a\":{\"event_id\":\"x\"}}", NULL},
        {"{\"event_id\":\"\",\"type\":1}", NULL},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct envelope *one = read_one(*state, table[i].body);

        assert_non_null(one->error);
        if (table[i].id == NULL) {
            assert_null(one->id_seen.data);
        } else {
            assert_str(one->id_seen, table[i].id);
        }
    }
}

static void
reason__what_was_sent__is_cut_and_escaped(void **state)
{
    struct fixture *f = *state;
    const char *error;
    char body[1024];

    assert_rejected(f, "{\"a\\\"\\n\\u0001\\\\\":1}",
                    "unknown member \"a\\\"\\n\\u0001\\\\\"");
    memset(body, 0, sizeof(body));
    strcpy(body, "{\"");
    for (int i = 0; i < 20; i++) {
        strcat(body, "\\u0001\xe2\x82\xac");
    }
    strcat(body, "\":1}");
    error = read_one(f, body)->error;
    assert_true(strlen(error) <= strlen("unknown member \"\"...") + 64);
    assert_non_null(strstr(error, "\"..."));
    assert_true(meter_utf8_valid(str_of(error)));
}

/* Every prefix of a valid body is refused as a whole, and none is read
   past its end (each has an allocation of its own, for the sanitizer). */
static void
body__every_prefix__is_refused(void **state)
{
    static const char text[] =
        "{\"events\":[" EVENT("a") ",{\"event_id\":\"b\",\"type\":\"job.done\","
                                   "\"ts\":1.5e9,\"quantity\":-1.25,"
                                   "\"attributes\":{\"k\":[true,false,"
                                   "null,\"\\u00e9\\ud83d\\ude00\"]}}]}";
    struct fixture *f = *state;

    for (size_t size = 0; size < sizeof(text) - 1; size++) {
        char *copy = malloc(size + 1);

        memcpy(copy, text, size);
        copy = realloc(copy, size == 0 ? 1 : size);
        assert_int_equal(read_body(f, (struct meter_str){copy, size}),
                         ENVELOPE_BAD);
        assert_non_null(f->error);
        free(copy);
    }
    assert_int_equal(read_text(f, text), ENVELOPE_LIST);
    assert_int_equal(f->count, 2);
    assert_null(f->list[0].error);
    assert_null(f->list[1].error);
}

/* The tenant of an event of a file, or the reason against it. */
static void
assert_backfill(struct fixture *f, const char *given, const char *member,
                const char *tenant, const char *error)
{
    char body[300];
    const struct envelope *one;

    snprintf(body, sizeof(body),
             "{\"event_id\":\"e\",\"type\":\"api.request\","
             "\"ts\":1735689600,\"attributes\":{\"route\":\"/\"}%s}",
             member);
    f->context.is_backfill = true;
    f->context.tenant = str_of(given);
    one = read_one(f, body);
    if (error != NULL) {
        assert_non_null(one->error);
        assert_string_equal(one->error, error);
        return;
    }
    assert_null(one->error);
    assert_str(one->event.tenant, tenant);
}

static void
event__of_a_file__names_its_tenant(void **state)
{
    struct fixture *f = *state;

    assert_backfill(f, "", ",\"tenant\":\"t\"", "t", NULL);
    assert_backfill(f, "", "", NULL, "tenant is missing");
    assert_backfill(f, "", ",\"tenant\":null", NULL, "tenant is missing");
    assert_backfill(f, "", ",\"tenant\":\"\"", NULL, "tenant is empty");
    assert_backfill(f, "t", ",\"tenant\":\"t\"", "t", NULL);
    assert_backfill(f, "t", "", "t", NULL);
    assert_backfill(f, "t", ",\"tenant\":\"u\"", NULL,
                    "tenant is not the one of --tenant");
}

static const struct CMUnitTest tests[] = {
    TEST(body__one_object__is_single),
    TEST(body__array__is_a_list_in_order),
    TEST(body__events_member__is_a_list),
    TEST(body__empty_lists__are_valid),
    TEST(body__broken_outline__is_refused_as_a_whole),
    TEST(body__events_that_is_no_array__is_a_bad_event),
    TEST(body__as_many_events_as_allowed__and_one_more),
    TEST(body__more_than_the_arena_holds__is_refused_as_a_whole),
    TEST(body__every_prefix__is_refused),
    TEST(event__all_members__are_taken),
    TEST(event__only_what_must_be__gets_the_defaults),
    TEST(event__same_content_in_other_words__is_the_same),
    TEST(event__id_absent_where_the_type_allows_it__is_derived),
    TEST(event__limits_of_texts__are_inclusive),
    TEST(event__limits_of_attributes__are_inclusive),
    TEST(event__skew__is_inclusive_to_the_microsecond),
    TEST(event__no_past_skew__any_age_is_taken),
    TEST(event__any_type__is_taken_where_the_rules_say_so),
    TEST(event__required_dotted_path__exact_key_or_nested),
    TEST(event__of_a_file__names_its_tenant),
    TEST(event__bad__is_answered_under_its_id_where_it_has_one),
    TEST(reason__what_was_sent__is_cut_and_escaped),
};

RUN_TAP(tests)
