/*
 * What a request's headers make of its body.
 */

#include "meter_cmocka.h"

#include "api/events.c"

static struct meter_request
request_of(const char *content_type)
{
    struct meter_request request = {.body_size = 2};

    if (content_type != NULL) {
        request.content_type = str_of(content_type);
    }
    return request;
}

static void
assert_form(const struct meter_request *request, enum envelope_form expected)
{
    enum envelope_form form = ENVELOPE_JSON;
    const char *error = NULL;

    if (!event_format_choose(request, &form, &error)) {
        fail_msg("%.*s: %s", (int)request->content_type.size,
                 request->content_type.data, error);
    }
    assert_int_equal(form, expected);
}

static void
assert_refused(const struct meter_request *request, const char *fragment)
{
    enum envelope_form form;
    const char *error = NULL;

    if (event_format_choose(request, &form, &error)) {
        fail_msg("%.*s is taken", (int)request->content_type.size,
                 request->content_type.data);
    }
    assert_non_null(strstr(error, fragment));
}

static void
choose__content_types__of_each_form(void **state)
{
    static const struct {
        const char *type;
        enum envelope_form form;
    } table[] = {
        {"application/json", ENVELOPE_JSON},
        {"Application/JSON; charset=utf-8", ENVELOPE_JSON},
        {"application/x-ndjson", ENVELOPE_LINES},
        {"application/ndjson;charset=UTF-8", ENVELOPE_LINES},
        {"application/jsonl", ENVELOPE_LINES},
        {"application/cloudevents+json", ENVELOPE_CLOUD_EVENT},
        {"application/cloudevents+json ; Charset=\"utf-8\"",
         ENVELOPE_CLOUD_EVENT},
        {"application/cloudevents-batch+json; charset=utf-8",
         ENVELOPE_CLOUD_BATCH},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct meter_request request = request_of(table[i].type);

        assert_form(&request, table[i].form);
    }
}

static void
choose__other_types__are_refused_with_the_list(void **state)
{
    static const char *const types[] = {
        NULL,
        "",
        "text/plain",
        "application/xml",
        "application/jsonx",
        "application/vnd.x+json",
        "application/cloudevents",
        "application/cloudevents+xml",
        "application/cloudevents+avro",
        "application/json, text/plain",
        "application/json;charset=utf-8;charset=latin1",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct meter_request request = request_of(types[i]);

        assert_refused(&request, "application/json, application/x-ndjson");
        assert_refused(&request, "application/cloudevents-batch+json");
    }
}

static void
choose__other_charsets__are_refused(void **state)
{
    static const char *const types[] = {
        "application/json; charset=latin1",
        "application/x-ndjson; charset=utf-16",
        "application/cloudevents+json; charset=iso-8859-1",
        "application/cloudevents-batch+json; charset=\"\"",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct meter_request request = request_of(types[i]);

        assert_refused(&request, "charset");
    }
}

static void
choose__ce_headers__make_it_binary(void **state)
{
    static const char *const names[] = {"ce-id", "ce-source", "ce-specversion",
                                        "ce-type"};
    struct meter_request request = request_of("application/json");

    (void)state;
    request.header_count = 1;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        request.headers[0].name = str_of(names[i]);
        assert_form(&request, ENVELOPE_CLOUD_BINARY);
    }
    request.content_type = METER_STR("application/vnd.x+json;charset=utf-8");
    assert_form(&request, ENVELOPE_CLOUD_BINARY);

    /* An extension alone is nothing. */
    request.headers[0].name = METER_STR("ce-traceparent");
    request.content_type = METER_STR("application/json");
    assert_form(&request, ENVELOPE_JSON);
}

static void
choose__structured_type__wins_over_ce_headers(void **state)
{
    struct meter_request request = request_of("application/cloudevents+json");

    (void)state;
    request.headers[0].name = METER_STR("ce-id");
    request.header_count = 1;
    assert_form(&request, ENVELOPE_CLOUD_EVENT);
    request.content_type = METER_STR("application/cloudevents-batch+json");
    assert_form(&request, ENVELOPE_CLOUD_BATCH);
}

static void
choose__binary_data_that_is_no_json__is_refused(void **state)
{
    static const char *const types[] = {"text/plain", "application/x-ndjson",
                                        "application/octet-stream", NULL};

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct meter_request request = request_of(types[i]);

        request.headers[0].name = METER_STR("ce-id");
        request.header_count = 1;
        assert_refused(&request, "ce- headers");
    }
}

static void
choose__binary_without_data__needs_no_type(void **state)
{
    struct meter_request request = request_of(NULL);

    (void)state;
    request.headers[0].name = METER_STR("ce-id");
    request.header_count = 1;
    request.body_size = 0;
    assert_form(&request, ENVELOPE_CLOUD_BINARY);
    request.content_type = METER_STR("application/json; charset=latin1");
    assert_refused(&request, "charset");
}

static void
coding__names_in_any_case(void **state)
{
    static const struct {
        const char *text;
        enum event_coding coding;
    } table[] = {
        {"", EVENT_CODING_NONE},          {"identity", EVENT_CODING_NONE},
        {"Identity", EVENT_CODING_NONE},  {"gzip", EVENT_CODING_GZIP},
        {"GZIP", EVENT_CODING_GZIP},      {"x-gzip", EVENT_CODING_GZIP},
        {"deflate", EVENT_CODING_OTHER},  {"br", EVENT_CODING_OTHER},
        {"zstd", EVENT_CODING_OTHER},     {"gzip, gzip", EVENT_CODING_OTHER},
        {"gzip,br", EVENT_CODING_OTHER},  {"gzip2", EVENT_CODING_OTHER},
        {"identity,", EVENT_CODING_OTHER}};

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        assert_int_equal(event_coding_read(str_of(table[i].text)),
                         table[i].coding);
    }
    assert_int_equal(event_coding_read((struct meter_str){NULL, 0}),
                     EVENT_CODING_NONE);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(choose__content_types__of_each_form),
    cmocka_unit_test(choose__other_types__are_refused_with_the_list),
    cmocka_unit_test(choose__other_charsets__are_refused),
    cmocka_unit_test(choose__ce_headers__make_it_binary),
    cmocka_unit_test(choose__structured_type__wins_over_ce_headers),
    cmocka_unit_test(choose__binary_data_that_is_no_json__is_refused),
    cmocka_unit_test(choose__binary_without_data__needs_no_type),
    cmocka_unit_test(coding__names_in_any_case),
};

RUN_TAP(tests)
