/*
 * CloudEvents 1.0: each attribute in both modes, headers as the HTTP binding
 * encodes them, and one event in two modes.
 */

#include "envelope_fixture.h"

#include "base/buf.h"

#define HEAD                                              \
    "\"specversion\":\"1.0\",\"id\":\"a\",\"source\":\"/" \
    "s\",\"type\":\"job.done\""

/* ---- structured mode ------------------------------------------------- */

static const struct envelope *
read_cloud(struct fixture *f, const char *body)
{
    assert_int_equal(read_form(f, ENVELOPE_CLOUD_EVENT, body), ENVELOPE_SINGLE);
    assert_int_equal(f->count, 1);
    return &f->list[0];
}

static void
structured__all_attributes__become_members(void **state)
{
    const struct envelope *one = read_cloud(
        *state,
        "{" HEAD ",\"time\":\"2025-06-01T02:00:00+02:00\",\"subject\":\"c1\","
        "\"datacontenttype\":\"application/json\",\"dataschema\":\"urn:x\","
        "\"quantity\":2.50,\"resource\":\"r1\",\"tenant\":\"acme\","
        "\"traceparent\":\"00-ab\",\"count\":7,"
        "\"data\":{\"b\":1.0,\"a\":[true]}}");

    assert_null(one->error);
    assert_str(one->event.event_id, "a");
    assert_str(one->id_seen, "a");
    assert_str(one->event.type, "job.done");
    assert_str(one->event.source, "/s");
    assert_str(one->event.customer, "c1");
    assert_str(one->event.resource, "r1");
    assert_str(one->event.tenant, "acme");
    assert_str(one->event.attributes, "{\"a\":[true],\"b\":1}");
    assert_true(one->event.ts_us == INT64_C(1748736000000000));
    assert_true(one->event.quantity.units == INT64_C(2500000000));
    assert_int_equal(one->event.count, 1);
    assert_int_equal(one->event.flags, 0);
}

static void
structured__least_event__has_defaults(void **state)
{
    static const char *const bodies[] = {
        "{" HEAD "}",
        "{" HEAD ",\"data\":null,\"subject\":null,\"time\":null,"
        "\"data_base64\":null,\"datacontenttype\":null,\"quantity\":null,"
        "\"resource\":null,\"tenant\":null}",
        "{" HEAD ",\"data\":{}}",
    };

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        const struct envelope *one = read_cloud(*state, bodies[i]);

        assert_null(one->error);
        assert_str(one->event.attributes, "{}");
        assert_null(one->event.customer.data);
        assert_null(one->event.resource.data);
        assert_true(one->event.ts_us == NOW_US);
        assert_int_equal(one->event.flags, METER_EVENT_SERVER_TIME);
        assert_true(one->event.quantity.units == INT64_C(1000000000));
    }
}

static void
structured__what_is_wrong__is_named(void **state)
{
    static const char *const table[][2] = {
        {"{}", "specversion is missing"},
        {"{\"specversion\":null}", "specversion is missing"},
        {"{\"specversion\":\"0.3\",\"id\":\"a\"}",
         "specversion must be \"1.0\""},
        {"{\"specversion\":1.0}", "specversion must be \"1.0\""},
        {"{\"specversion\":\"1.0\",\"source\":\"/s\",\"type\":\"job.done\"}",
         "id is missing"},
        {"{\"specversion\":\"1.0\",\"id\":null,\"source\":\"/s\","
         "\"type\":\"job.done\"}",
         "id is missing"},
        {"{\"specversion\":\"1.0\",\"id\":\"\",\"source\":\"/s\","
         "\"type\":\"job.done\"}",
         "id is empty"},
        {"{\"specversion\":\"1.0\",\"id\":7,\"source\":\"/s\","
         "\"type\":\"job.done\"}",
         "id must be a string"},
        {"{\"specversion\":\"1.0\",\"id\":\"a\",\"type\":\"job.done\"}",
         "source is missing"},
        {"{\"specversion\":\"1.0\",\"id\":\"a\",\"source\":\"\","
         "\"type\":\"job.done\"}",
         "source is empty"},
        {"{\"specversion\":\"1.0\",\"id\":\"a\",\"source\":[],"
         "\"type\":\"job.done\"}",
         "source must be a string"},
        {"{\"specversion\":\"1.0\",\"id\":\"a\",\"source\":\"/s\"}",
         "type is missing"},
        {"{\"specversion\":\"1.0\",\"id\":\"a\",\"source\":\"/s\","
         "\"type\":\"\"}",
         "type is empty"},
        {"{\"specversion\":\"1.0\",\"id\":\"a\",\"source\":\"/s\","
         "\"type\":\"nope\"}",
         "unknown event type \"nope\""},
        {"{" HEAD ",\"subject\":\"\"}", "subject is empty"},
        {"{" HEAD ",\"subject\":5}", "subject must be a string"},
        {"{" HEAD ",\"time\":1748736000}", "time must be a string"},
        {"{" HEAD ",\"time\":\"yesterday\"}",
         "time is not an RFC 3339 instant"},
        {"{" HEAD ",\"time\":\"1748736000\"}",
         "time is not an RFC 3339 instant"},
        {"{" HEAD ",\"time\":\"2026-01-01T02:00:00Z\"}", "ahead of"},
        {"{" HEAD ",\"data\":[]}", "data must be an object"},
        {"{" HEAD ",\"data\":\"text\"}", "data must be an object"},
        {"{" HEAD ",\"data\":5}", "data must be an object"},
        {"{" HEAD ",\"data\":false}", "data must be an object"},
        {"{" HEAD ",\"data_base64\":\"e30=\"}", "data_base64 is not taken"},
        {"{" HEAD ",\"data_base64\":\"\"}", "data_base64 is not taken"},
        {"{" HEAD ",\"datacontenttype\":\"text/plain\",\"data\":{}}",
         "datacontenttype must be JSON"},
        {"{" HEAD ",\"datacontenttype\":\"json\"}",
         "datacontenttype must be JSON"},
        {"{" HEAD ",\"datacontenttype\":\"\"}", "datacontenttype must be JSON"},
        {"{" HEAD ",\"datacontenttype\":1}",
         "datacontenttype must be a string"},
        {"{" HEAD ",\"datacontenttype\":\"application/json;charset=x\"}",
         "charset utf-8"},
        {"{" HEAD ",\"quantity\":true}", "quantity must be a number"},
        {"{" HEAD ",\"quantity\":\"much\"}", "quantity"},
        {"{" HEAD ",\"resource\":\"\"}", "resource is empty"},
        {"{" HEAD ",\"tenant\":\"globex\"}", "not the one of the credential"},
        {"{" HEAD ",\"id\":\"b\"}", "invalid JSON"}, /* twice */
        {"{" HEAD ",}", "invalid JSON"},
        {"{\"specversion\":\"1.0\","
         "\"id\":\"edge-853e27a7bb7a025e9c20fa6b3bb7e2fb-1-1794855810534000\","
         "\"source\":\"/s\",\"type\":\"job.done\"}",
         "only the edge makes"},
        {"{\"specversion\":\"1.0\",\"id\":\"a\",\"source\":\"/s\","
         "\"type\":\"api.request\"}",
         "attribute \"route\" is required"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        assert_contains(read_cloud(*state, table[i][0])->error, table[i][1],
                        table[i][0]);
    }
}

static void
structured__json_content_types__are_taken(void **state)
{
    static const char *const types[] = {
        "application/json", "Application/JSON; charset=UTF-8", "text/json",
        "application/vnd.acme.usage+json"};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        char body[512];

        snprintf(body, sizeof(body), "{" HEAD ",\"datacontenttype\":\"%s\"}",
                 types[i]);
        assert_null(read_cloud(*state, body)->error);
    }
}

static void
structured__bad_event_with_an_id__is_named_in_the_answer(void **state)
{
    assert_str(
        read_cloud(*state, "{\"id\":\"a\",\"specversion\":\"2\"}")->id_seen,
        "a");
    assert_str(read_cloud(*state, "{\"id\":\"a\",\"x\":nope}")->id_seen, "a");
    assert_null(
        read_cloud(*state, "{\"event_id\":\"a\",\"x\":nope}")->id_seen.data);
}

static void
structured__sizes__have_the_limits_of_events(void **state)
{
    static const struct {
        const char *name;
        size_t size_max;
    } table[] = {{"subject", METER_CUSTOMER_SIZE_MAX},
                 {"resource", METER_RESOURCE_SIZE_MAX}};

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        for (size_t more = 0; more <= 1; more++) {
            const struct envelope *one;
            char body[1024];

            snprintf(body, sizeof(body), "{" HEAD ",\"%s\":\"%0*d\"}",
                     table[i].name, (int)(table[i].size_max + more), 7);
            one = read_cloud(*state, body);
            if (more == 0) {
                assert_null(one->error);
            } else {
                assert_contains(one->error, "is longer than", body);
                assert_contains(one->error, table[i].name, body);
            }
        }
    }
}

/* An object named "events" is an extension, no list. */
static void
structured__other_outlines__are_refused_whole(void **state)
{
    static const struct {
        enum envelope_form form;
        const char *body;
        const char *reason;
    } table[] = {
        {ENVELOPE_CLOUD_EVENT, "", "one JSON object"},
        {ENVELOPE_CLOUD_EVENT, "[{" HEAD "}]", "one JSON object"},
        {ENVELOPE_CLOUD_EVENT, "null", "one JSON object"},
        {ENVELOPE_CLOUD_EVENT, "{" HEAD "}{" HEAD "}", "surplus bytes"},
        {ENVELOPE_CLOUD_EVENT, "{" HEAD, "no end"},
        {ENVELOPE_CLOUD_BATCH, "", "a JSON array"},
        {ENVELOPE_CLOUD_BATCH, "{" HEAD "}", "a JSON array"},
        {ENVELOPE_CLOUD_BATCH, "{\"events\":[]}", "a JSON array"},
        {ENVELOPE_CLOUD_BATCH, "[{" HEAD "}", "no end"},
        {ENVELOPE_CLOUD_BATCH, "[{" HEAD "}]x", "surplus bytes"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        assert_int_equal(read_form(f, table[i].form, table[i].body),
                         ENVELOPE_BAD);
        assert_contains(f->error, table[i].reason, table[i].body);
    }
    assert_contains(read_cloud(f, "{\"events\":[]}")->error, "specversion",
                    "events");
}

static void
batch__one_bad_event__harms_no_other(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(read_form(f, ENVELOPE_CLOUD_BATCH,
                               " [ {" HEAD "}, {\"id\":\"b\"}, 5, {" HEAD
                               ",\"x\":nope}, {" HEAD "} ] "),
                     ENVELOPE_LIST);
    assert_int_equal(f->count, 5);
    assert_null(f->list[0].error);
    assert_contains(f->list[1].error, "specversion", "second");
    assert_contains(f->list[2].error, "must be a JSON object", "third");
    assert_contains(f->list[3].error, "invalid JSON", "fourth");
    assert_null(f->list[4].error);
    assert_int_equal(f->list[4].line, 0);
    assert_int_equal(read_form(f, ENVELOPE_CLOUD_BATCH, "[]"), ENVELOPE_LIST);
    assert_int_equal(f->count, 0);
}

/* ---- binary mode ----------------------------------------------------- */

/* "name: value" lines over the four that must be there. */
static const struct envelope *
read_binary(struct fixture *f, const char *const *lines, size_t count,
            const char *body)
{
    struct meter_header headers[METER_HEADER_COUNT_MAX];
    struct envelope_input input = {.form = ENVELOPE_CLOUD_BINARY,
                                   .body = str_of(body),
                                   .headers = headers,
                                   .header_count = count};

    for (size_t i = 0; i < count; i++) {
        const char *colon = strchr(lines[i], ':');

        headers[i].name =
            (struct meter_str){lines[i], (size_t)(colon - lines[i])};
        headers[i].value = str_of(colon + 2);
    }
    assert_int_equal(read_input(f, &input), ENVELOPE_SINGLE);
    assert_int_equal(f->count, 1);
    return &f->list[0];
}

#define BINARY(f, body, ...)                                 \
    read_binary(f, (const char *const[]){__VA_ARGS__},       \
                sizeof((const char *const[]){__VA_ARGS__}) / \
                    sizeof(const char *),                    \
                body)
#define LEAST \
    "ce-specversion: 1.0", "ce-id: a", "ce-source: /s", "ce-type: job.done"

static void
binary__headers__become_members(void **state)
{
    const struct envelope *one = BINARY(
        *state, " {\"b\":1.0,\"a\":[true]}\n", LEAST,
        "ce-time: 2025-06-01T00:00:00Z", "ce-subject: c1", "ce-quantity: 2.5",
        "ce-resource: r1", "ce-tenant: acme", "ce-traceparent: %zz",
        "ce-datacontenttype: text/plain", "ce-data: x", "x-other: y");

    assert_null(one->error);
    assert_str(one->event.event_id, "a");
    assert_str(one->event.source, "/s");
    assert_str(one->event.customer, "c1");
    assert_str(one->event.resource, "r1");
    assert_str(one->event.attributes, "{\"a\":[true],\"b\":1}");
    assert_true(one->event.ts_us == INT64_C(1748736000000000));
    assert_true(one->event.quantity.units == INT64_C(2500000000));
    assert_int_equal(one->event.flags, 0);
}

static void
binary__no_data__is_empty(void **state)
{
    static const char *const bodies[] = {"", " \r\n\t", "null", " null ", "{}"};

    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        const struct envelope *one = BINARY(*state, bodies[i], LEAST);

        assert_null(one->error);
        assert_str(one->event.attributes, "{}");
        assert_int_equal(one->event.flags, METER_EVENT_SERVER_TIME);
    }
}

static void
binary__bad_data__is_a_rejected_event_with_its_id(void **state)
{
    static const char *const table[][2] = {
        {"[]", "data must be an object"},
        {"\"x\"", "data must be an object"},
        {"5", "data must be an object"},
        {"{", "invalid JSON"},
        {"{\"a\":\"\xff\"}", "invalid JSON"},
        {"x", "invalid JSON"},
        {"{} {}", "surplus bytes behind the data"},
        {"{}\n{}", "surplus bytes behind the data"},
        {"null null", "surplus bytes behind the data"},
        {"{\"a\":1,\"a\":2}", "invalid JSON"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct envelope *one = BINARY(*state, table[i][0], LEAST);

        assert_contains(one->error, table[i][1], table[i][0]);
        assert_str(one->id_seen, "a");
    }
}

/* What the standard's HTTP binding says of header values. */
static void
binary__header_values__are_decoded_once(void **state)
{
    static const char *const table[][2] = {
        {"ce-subject: plain", "plain"},
        {"ce-subject: a%20b", "a b"},
        {"ce-subject: %41%5a%5A", "AZZ"},
        {"ce-subject: Euro%20%E2%82%AC%20%F0%9F%98%80",
         "Euro \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"ce-subject: %2541", "%41"},
        {"ce-subject: a+b", "a+b"},
        {"ce-subject: \"quoted\"", "quoted"},
        {"ce-subject: \"a \\\"b\\\" \\\\ %20\"", "a \"b\" \\  "},
        {"ce-subject: a \"b\"", "a \"b\""},
        {"ce-subject: \xc3\xa9", "\xc3\xa9"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct envelope *one = BINARY(*state, "", LEAST, table[i][0]);

        if (one->error != NULL) {
            fail_msg("%s: %s", table[i][0], one->error);
        }
        assert_str(one->event.customer, table[i][1]);
    }
}

static void
binary__bad_headers__are_named(void **state)
{
    static const char *const table[][2] = {
        {"ce-subject: 100%", "without two digits"},
        {"ce-subject: %4", "without two digits"},
        {"ce-subject: %zz", "without two digits"},
        {"ce-subject: %4g", "without two digits"},
        {"ce-subject: %C0%A0", "is not UTF-8"},
        {"ce-subject: %ED%A0%80", "is not UTF-8"},
        {"ce-subject: \xe9", "is not UTF-8"},
        {"ce-subject: a%00b", "is not UTF-8"},
        {"ce-subject: \"a", "unpaired quotes"},
        {"ce-subject: \"a\\\"", "unpaired quotes"},
        {"ce-subject: \"a\"b", "unpaired quotes"},
        {"ce-subject: \"", "unpaired quotes"},
        {"ce-subject: ", "subject is empty"},
        {"ce-subject: \"\"", "subject is empty"},
        {"ce-source: /t", "\"ce-source\" is sent twice"},
        {"ce-id: a", "\"ce-id\" is sent twice"},
        {"ce-time: 1748736000", "time is not an RFC 3339 instant"},
        {"ce-quantity: many", "quantity"},
        {"ce-tenant: globex", "not the one of the credential"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        assert_contains(BINARY(*state, "", LEAST, table[i][0])->error,
                        table[i][1], table[i][0]);
    }
}

static void
binary__missing_headers__are_named(void **state)
{
    assert_contains(
        BINARY(*state, "", "ce-id: a", "ce-source: /s", "ce-type: job.done")
            ->error,
        "specversion is missing", "specversion");
    assert_contains(BINARY(*state, "", "ce-specversion: 0.3", "ce-id: a",
                           "ce-source: /s", "ce-type: job.done")
                        ->error,
                    "specversion must be", "0.3");
    assert_contains(BINARY(*state, "", "ce-specversion: 1.0", "ce-source: /s",
                           "ce-type: job.done")
                        ->error,
                    "id is missing", "id");
    assert_contains(BINARY(*state, "", "ce-specversion: 1.0", "ce-id: a",
                           "ce-type: job.done")
                        ->error,
                    "source is missing", "source");
    assert_contains(
        BINARY(*state, "", "ce-specversion: 1.0", "ce-id: a", "ce-source: /s")
            ->error,
        "type is missing", "type");
}

/* The request may outlive the connection that its headers came from. */
static void
binary__headers_are_gone__the_event_stays(void **state)
{
    char *id = strdup("held");
    struct meter_header headers[] = {
        {METER_STR("ce-specversion"), METER_STR("1.0")},
        {METER_STR("ce-id"), {id, 4}},
        {METER_STR("ce-source"), METER_STR("/s")},
        {METER_STR("ce-type"), METER_STR("job.done")},
    };
    struct fixture *f = *state;
    struct envelope_input input = {
        .form = ENVELOPE_CLOUD_BINARY, .headers = headers, .header_count = 4};

    assert_int_equal(read_input(f, &input), ENVELOPE_SINGLE);
    memset(id, 'x', 4);
    free(id);
    assert_str(f->list[0].event.event_id, "held");
    assert_str(f->list[0].id_seen, "held");
}

/* Data has the same room in both modes. */
static void
both_modes__depth_and_keys__have_the_same_limit(void **state)
{
    for (size_t depth = 14; depth <= 16; depth++) {
        struct buf data, body;
        const struct envelope *one;
        bool structured;

        buf_init(&data, 4096);
        buf_init(&body, 4096);
        buf_put_text(&data, "{\"a\":");
        for (size_t i = 1; i < depth; i++) {
            buf_put_byte(&data, '[');
        }
        for (size_t i = 1; i < depth; i++) {
            buf_put_byte(&data, ']');
        }
        buf_put_text(&data, "}");
        buf_put_byte(&data, 0);
        buf_printf(&body, "{" HEAD ",\"data\":%s}", data.data);
        buf_put_byte(&body, 0);
        structured = read_cloud(*state, body.data)->error == NULL;
        one = BINARY(*state, data.data, LEAST);
        assert_int_equal(one->error == NULL, structured);
        assert_int_equal(structured, depth <= 15);
        buf_fini(&data);
        buf_fini(&body);
    }
    for (size_t keys = METER_ATTRIBUTE_COUNT_MAX;
         keys <= METER_ATTRIBUTE_COUNT_MAX + 1; keys++) {
        struct buf data, body;

        buf_init(&data, 65536);
        buf_init(&body, 65536);
        for (size_t i = 0; i < keys; i++) {
            buf_printf(&data, "%c\"k%zu\":1", i == 0 ? '{' : ',', i);
        }
        buf_put_text(&data, "}");
        buf_put_byte(&data, 0);
        buf_printf(&body, "{" HEAD ",\"data\":%s}", data.data);
        buf_put_byte(&body, 0);
        assert_int_equal(read_cloud(*state, body.data)->error == NULL,
                         keys <= METER_ATTRIBUTE_COUNT_MAX);
        assert_int_equal(BINARY(*state, data.data, LEAST)->error == NULL,
                         keys <= METER_ATTRIBUTE_COUNT_MAX);
        buf_fini(&data);
        buf_fini(&body);
    }
}

static void
binary__data_past_the_size_of_an_event__is_rejected(void **state)
{
    char *body = malloc(METER_EVENT_SIZE_MAX + 2);

    memset(body, ' ', METER_EVENT_SIZE_MAX + 2);
    memcpy(body, "{}", 2);
    body[METER_EVENT_SIZE_MAX] = 0;
    assert_null(BINARY(*state, body, LEAST)->error);
    body[METER_EVENT_SIZE_MAX] = ' ';
    body[METER_EVENT_SIZE_MAX + 1] = 0;
    assert_contains(BINARY(*state, body, LEAST)->error,
                    "larger than 65536 bytes", "large");
    free(body);
}

/* ---- one event in two modes ------------------------------------------ */

static void
both_modes__same_event__same_fingerprint(void **state)
{
    struct fixture *f = *state;
    struct meter_fingerprint structured, binary, timeless;
    const struct envelope *one;

    one = read_cloud(f, "{" HEAD ",\"time\":\"2025-06-01T02:00:00+02:00\","
                        "\"subject\":\"c \\u20ac\",\"quantity\":2.50,"
                        "\"other\":true,\"data\":{\"b\":1.0,\"a\":1}}");
    assert_null(one->error);
    meter_event_fingerprint(&f->salt, &one->event, &structured);
    one = BINARY(f, "{\"a\":1e0, \"b\":1}", LEAST, "ce-other: 1",
                 "ce-time: 2025-06-01T00:00:00.000Z", "ce-quantity: 2.5",
                 "ce-subject: c%20%e2%82%ac");
    assert_null(one->error);
    meter_event_fingerprint(&f->salt, &one->event, &binary);
    assert_true(structured.has_body && binary.has_body);
    assert_true(structured.body == binary.body);
    assert_int_equal(meter_fingerprint_compare(&structured, &binary),
                     METER_VERDICT_DUPLICATE);

    /* Without a time only what it is about is compared. */
    one = BINARY(f, "{\"a\":2}", LEAST, "ce-subject: c%20%e2%82%ac");
    meter_event_fingerprint(&f->salt, &one->event, &timeless);
    assert_false(timeless.has_body);
    assert_int_equal(meter_fingerprint_compare(&structured, &timeless),
                     METER_VERDICT_DUPLICATE);
    one = BINARY(f, "{\"a\":2}", LEAST, "ce-subject: other");
    meter_event_fingerprint(&f->salt, &one->event, &timeless);
    assert_int_equal(meter_fingerprint_compare(&structured, &timeless),
                     METER_VERDICT_CONFLICT);
}

/* The source is a part of what is compared. */
static void
structured__another_source__is_other_content(void **state)
{
    struct fixture *f = *state;
    struct meter_fingerprint first, second;
    const struct envelope *one =
        read_cloud(f, "{" HEAD ",\"time\":\"2025-06-01T00:00:00Z\"}");

    meter_event_fingerprint(&f->salt, &one->event, &first);
    one = read_cloud(f, "{\"specversion\":\"1.0\",\"id\":\"a\",\"source\":"
                        "\"/t\",\"type\":\"job.done\","
                        "\"time\":\"2025-06-01T00:00:00Z\"}");
    meter_event_fingerprint(&f->salt, &one->event, &second);
    assert_int_equal(meter_fingerprint_compare(&first, &second),
                     METER_VERDICT_CONFLICT);
}

static const struct CMUnitTest tests[] = {
    TEST(structured__all_attributes__become_members),
    TEST(structured__least_event__has_defaults),
    TEST(structured__what_is_wrong__is_named),
    TEST(structured__json_content_types__are_taken),
    TEST(structured__bad_event_with_an_id__is_named_in_the_answer),
    TEST(structured__sizes__have_the_limits_of_events),
    TEST(structured__other_outlines__are_refused_whole),
    TEST(batch__one_bad_event__harms_no_other),
    TEST(binary__headers__become_members),
    TEST(binary__no_data__is_empty),
    TEST(binary__bad_data__is_a_rejected_event_with_its_id),
    TEST(binary__header_values__are_decoded_once),
    TEST(binary__bad_headers__are_named),
    TEST(binary__missing_headers__are_named),
    TEST(binary__headers_are_gone__the_event_stays),
    TEST(both_modes__depth_and_keys__have_the_same_limit),
    TEST(binary__data_past_the_size_of_an_event__is_rejected),
    TEST(both_modes__same_event__same_fingerprint),
    TEST(structured__another_source__is_other_content),
};

RUN_TAP(tests)
