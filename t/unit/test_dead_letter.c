/*
 * test_dead_letter.c - dead letters as people and programs read them.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "cmd/dead_letter.c"

#define SESSION "000102030405060708090a0b0c0d0e0f"

static char record_bytes[METER_RECORD_SIZE_MAX];

/* A record around this body. */
static struct meter_str
record_of(enum meter_record_kind kind, struct meter_str body)
{
    struct meter_record record = {.seq = 7, .kind = kind, .body = body};
    struct meter_writer writer;

    meter_writer_init(&writer, record_bytes, sizeof(record_bytes));
    meter_record_encode(&record, &writer);
    assert_false(writer.failed);
    return (struct meter_str){record_bytes, writer.at};
}

static struct meter_str
event_record(const char *customer)
{
    static char body[METER_RECORD_BODY_SIZE_MAX];
    static struct meter_record_event event;
    struct meter_writer writer;

    event = (struct meter_record_event){
        .tenant = METER_STR("acme"),
        .type = METER_STR("api.new"),
        .customer = {customer, strlen(customer)},
        .ts_us = INT64_C(1788264000000000),
        .count = 1,
        .flags = 1,
        .attributes = {{METER_STR("route"), METER_STR("/\"x\"")}},
        .attribute_count = 1,
    };
    meter_writer_init(&writer, body, sizeof(body));
    meter_record_event_encode(&event, &writer);
    assert_false(writer.failed);
    return record_of(METER_RECORD_EVENT, (struct meter_str){body, writer.at});
}

static struct letter_row
row_of(struct meter_str record)
{
    struct letter_row row = {.tenant = METER_STR("acme"),
                             .has_identity = true,
                             .identity.seq = 7,
                             .reason = METER_STR("unknown event type \"x\""),
                             .record = record,
                             .recorded_us = INT64_C(1788264000000000),
                             .node = METER_STR("gw-1")};

    for (uint8_t i = 0; i < 16; i++) {
        row.identity.session[i] = i;
    }
    return row;
}

/* What a function puts, as text. */
static const char *
text_of(void (*put)(struct buf *, const struct letter_row *),
        const struct letter_row *row)
{
    static char text[32768];
    struct buf out;

    buf_init(&out, sizeof(text) - 1);
    put(&out, row);
    assert_false(out.failed);
    memcpy(text, out.data, out.size);
    text[out.size] = '\0';
    buf_fini(&out);
    return text;
}

static void
put_json(struct buf *out, const struct letter_row *row)
{
    struct json_writer json;

    json_writer_init(&json, out);
    dead_letter_json(&json, row, true);
}

static void
identity__formatted__parses_to_itself(void **state)
{
    static const int64_t numbers[] = {0, 1, 42, INT64_MAX};
    char text[LETTER_IDENTITY_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct letter_identity made = {.seq = numbers[i]};
        struct letter_identity read;

        for (uint8_t j = 0; j < 16; j++) {
            made.session[j] = (uint8_t)(j * 17 + i);
        }
        dead_letter_identity_format(&made, text);
        assert_true(dead_letter_identity_parse(text, &read));
        assert_memory_equal(&made, &read, sizeof(made));
    }
}

static void
identity__uuid_and_capitals__are_understood(void **state)
{
    static const char *const texts[] = {
        SESSION "-9", "00010203-0405-0607-0809-0a0b0c0d0e0f-9",
        "000102030405060708090A0B0C0D0E0F-9", SESSION "-009"};
    struct letter_identity read;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_true(dead_letter_identity_parse(texts[i], &read));
        assert_int_equal(read.session[15], 15);
        assert_int_equal(read.seq, 9);
    }
}

static void
identity__anything_else__is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "-",
        "9",
        SESSION,
        SESSION "-",
        SESSION "9",
        SESSION "--9",
        SESSION "- 9",
        SESSION "-+9",
        SESSION "-9x",
        SESSION "-9223372036854775808",
        SESSION "-99999999999999999999",
        " " SESSION "-9",
        "0001020304050607-08090a0b0c0d0e0f-9",
        "00010203-04050607-0809-0a0b0c0d0e0f-9",
        "000102030405060708090a0b0c0d0e-9",
        "000102030405060708090a0b0c0d0e0g-9",
        "edge-" SESSION "-9",
    };
    struct letter_identity read;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_false(dead_letter_identity_parse(texts[i], &read));
    }
}

static void
text__that_steers_a_terminal__is_shown_as_question_marks(void **state)
{
    static const struct {
        struct meter_str text;
        const char *shown;
    } cases[] = {
        {METER_STR("plain \"x\" \\"), "plain \"x\" \\"},
        {METER_STR("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f"},
        {METER_STR("a\x1b[31m\nb\x7f"), "a?[31m?b?"},
        {METER_STR("c1\xc2\x9b"), "c1?"},
        {METER_STR("\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa8"), "???"},
        {METER_STR("\xff\xc3"), "??"},
        {METER_STR("nul\0"), "nul?"},
    };
    struct buf out;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        buf_init(&out, 100);
        buf_put_printable(&out, cases[i].text);
        assert_int_equal(out.size, strlen(cases[i].shown));
        assert_memory_equal(out.data, cases[i].shown, out.size);
        buf_fini(&out);
    }
}

static void
line__has_its_columns(void **state)
{
    struct letter_row row = row_of(event_record("c"));

    (void)state;
    assert_string_equal(
        text_of(dead_letter_put_line, &row),
        "2026-09-01T12:00:00.000000Z  acme              " SESSION
        "-7      api.new           "
        "unknown event type \"x\"\n");
    row.has_identity = false;
    row.record = METER_STR("torn");
    row.tenant = METER_STR("a tenant with a long name");
    assert_string_equal(
        text_of(dead_letter_put_line, &row),
        "2026-09-01T12:00:00.000000Z  a tenant with a long name  -             "
        "                          -                 unknown event type "
        "\"x\"\n");
}

static void
json__of_an_event__has_all_of_it(void **state)
{
    struct letter_row row = row_of(event_record("\x1b\xff"));
    char expected[1024];

    (void)state;
    snprintf(expected, sizeof(expected),
             "{\"recorded_at\":\"2026-09-01T12:00:00.000000Z\","
             "\"tenant\":\"acme\",\"identity\":\"" SESSION "-7\","
             "\"kind\":\"event\",\"type\":\"api.new\","
             "\"reason\":\"unknown event type \\\"x\\\"\",\"node\":\"gw-1\","
             "\"size\":%zu,\"event\":{\"tenant\":\"acme\",\"type\":\"api.new\","
             "\"ts\":\"2026-09-01T12:00:00.000000Z\","
             "\"customer\":\"\\u001b\xef\xbf\xbd\",\"count\":1,\"flags\":1,"
             "\"attributes\":{\"route\":\"/\\\"x\\\"\"}}}",
             row.record.size);
    assert_string_equal(text_of(put_json, &row), expected);
}

static void
content__loss_and_bytes__are_shown_as_far_as_they_go(void **state)
{
    struct meter_loss loss = {
        .count = 7, .first_us = 0, .last_us = 1000000, .reasons = 3};
    char body[128];
    struct meter_writer writer;
    struct letter_row row;

    (void)state;
    meter_writer_init(&writer, body, sizeof(body));
    meter_loss_encode(&loss, &writer);
    row = row_of(
        record_of(METER_RECORD_LOSSNOTE, (struct meter_str){body, writer.at}));
    assert_non_null(
        strstr(text_of(dead_letter_put_fields, &row),
               "\nloss        {\"count\":\"7\",\"first\":\"1970-01-01T00:00:00"
               ".000000Z\",\"last\":\"1970-01-01T00:00:01.000000Z\","
               "\"reasons\":3}\n"));
    row = row_of(record_of(METER_RECORD_EVENT, METER_STR("nothing")));
    assert_non_null(
        strstr(text_of(dead_letter_put_fields, &row), "\nrecord      event, "));
    row = row_of(METER_STR("torn\xff"));
    row.node = (struct meter_str){NULL, 0};
    assert_non_null(strstr(text_of(dead_letter_put_fields, &row),
                           "\nnode        -\nrecord      damaged, 5 bytes\n"
                           "bytes       \"746f726eff\"\n"));
    assert_non_null(
        strstr(text_of(put_json, &row), "\"kind\":\"?\",\"type\":\"\","));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identity__formatted__parses_to_itself),
        cmocka_unit_test(identity__uuid_and_capitals__are_understood),
        cmocka_unit_test(identity__anything_else__is_refused),
        cmocka_unit_test(
            text__that_steers_a_terminal__is_shown_as_question_marks),
        cmocka_unit_test(line__has_its_columns),
        cmocka_unit_test(json__of_an_event__has_all_of_it),
        cmocka_unit_test(content__loss_and_bytes__are_shown_as_far_as_they_go),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
