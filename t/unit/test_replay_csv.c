/*
 * test_replay_csv.c - records of CSV to events: headers, types of cells,
 * attributes; and the resume file as text.
 */

#include "meter_cmocka.h"

#include "cmd/replay_input.c"
#include "cmd/replay_job.c"

static const char *const code[] = {"code"};

static struct replay_csv *
csv_of(const char *header, struct arena *arena, const char **error)
{
    return replay_csv_create(str_of(header), code,
                             strstr(header, "code") != NULL, arena, error);
}

static void
assert_event(const char *header, const char *record, const char *expected)
{
    const char *error;
    struct arena arena;
    struct buf out;
    struct replay_csv *csv;

    arena_init(&arena, 4096, 1u << 20);
    buf_init(&out, 1u << 20);
    csv = csv_of(header, &arena, &error);
    assert_non_null(csv);
    error = replay_csv_convert(csv, str_of(record), &arena, &out);
    assert_true(error == NULL || out.size == 0);
    buf_put_byte(&out, 0);
    assert_string_equal(error == NULL ? out.data : error, expected);
    replay_csv_destroy(csv);
    buf_fini(&out);
    arena_fini(&arena);
}

static void
header__of_any_kind__is_taken_or_refused(void **state)
{
    static const char *const rows[][2] = {
        {"type,ts", NULL},
        {"\"ts\",\"type\",x", NULL},
        {"type,ts,tenant,attributes.tenant", NULL},
        {"type,ts,attributes,attributes.attributes", NULL},
        {"ts", "the first line is no header: it has to name the columns "
               "\"type\" and \"ts\""},
        {"type,ts,", "column 3 of the header has no name"},
        {"type,ts,a,a", "the header has \"a\" twice"},
        {"type,ts,a,attributes.a", "the header has \"a\" twice"},
        {"type,ts,ts", "the header has \"ts\" twice"},
        {"type,ts,a\"", "a quote stands where CSV has none"},
        {"type,ts,\xff", "the header is not UTF-8"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena arena;
        const char *error;
        struct replay_csv *csv;

        arena_init(&arena, 4096, 1u << 20);
        csv = csv_of(rows[i][0], &arena, &error);
        if (rows[i][1] == NULL) {
            assert_non_null(csv);
        } else {
            assert_null(csv);
            assert_string_equal(error, rows[i][1]);
        }
        replay_csv_destroy(csv);
        arena_fini(&arena);
    }
}

static void
record__of_fields__has_their_types(void **state)
{
    (void)state;
    assert_event("type,ts,event_id,quantity,customer", "7,1.5,1,2.50,true",
                 "{\"type\":\"7\",\"ts\":1.5,\"event_id\":\"1\","
                 "\"quantity\":\"2.50\",\"customer\":\"true\","
                 "\"attributes\":{}}");
    assert_event("type,ts", "a,2026-01-01T00:00:00Z",
                 "{\"type\":\"a\",\"ts\":\"2026-01-01T00:00:00Z\","
                 "\"attributes\":{}}");
    assert_event("type,ts", ",", "{\"attributes\":{}}");
    assert_event("type,ts", "\"\",\"\"", "{\"attributes\":{}}");
    assert_event("ts,type", "a", "1 cells, where the header has 2");
    assert_event("ts,type", "a,b,c", "3 cells, where the header has 2");
    assert_event("ts,type", "a,b\"", "a quote stands where CSV has none");
    assert_event("ts,type", "a,\xc3", "the line is not UTF-8 text");
}

/* Of column x alone. */
static void
assert_attribute(const char *column, const char *cell, const char *expected)
{
    char header[100];
    char record[200];
    char wanted[300];

    snprintf(header, sizeof(header), "type,ts,%s", column);
    snprintf(record, sizeof(record), "a,1,%s", cell);
    snprintf(wanted, sizeof(wanted),
             "{\"type\":\"a\",\"ts\":1,\"attributes\":{%s}}", expected);
    assert_event(header, record, wanted);
}

static void
attribute__by_its_cell__is_number_word_or_text(void **state)
{
    static const char *const rows[][2] = {
        {"1", "1"},
        {"-1.50e+3", "-1.50e+3"},
        {"0", "0"},
        {"\"1\"", "1"},
        {"true", "true"},
        {"false", "false"},
        {"007", "\"007\""},
        {"1.", "\"1.\""},
        {"+1", "\"+1\""},
        {".5", "\".5\""},
        {"1 ", "\"1 \""},
        {"-", "\"-\""},
        {"0x1", "\"0x1\""},
        {"1e", "\"1e\""},
        {"NaN", "\"NaN\""},
        {"True", "\"True\""},
        {"null", "\"null\""},
        {"1-2", "\"1-2\""},
        {"\"a\"\"b\"", "\"a\\\"b\""},
    };
    char expected[100];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(expected, sizeof(expected), "\"x\":%s", rows[i][1]);
        assert_attribute("x", rows[i][0], expected);
    }
    assert_attribute("x", "", "");
    assert_attribute("code", "1", "\"code\":\"1\"");
    assert_attribute("code", "true", "\"code\":\"true\"");
    assert_attribute("a.b", "1", "\"a.b\":1");
    assert_attribute("attributes.type", "1", "\"type\":1");
    assert_attribute("count", "2", "\"count\":2");
}

static void
attributes__as_an_object__join_the_others(void **state)
{
    (void)state;
    assert_event("type,ts,attributes,x",
                 "a,1,\" {\"\"y\"\":{\"\"z\"\":1}} \",2",
                 "{\"type\":\"a\",\"ts\":1,\"attributes\":{\"y\":{\"z\":1},"
                 "\"x\":2}}");
    assert_event("type,ts,x,attributes", "a,1,2,{}",
                 "{\"type\":\"a\",\"ts\":1,\"attributes\":{\"x\":2}}");
    assert_event("type,ts,attributes", "a,1,[]",
                 "attributes is not a JSON object");
    assert_event("type,ts,attributes", "a,1,{",
                 "attributes is not a JSON object");
    /* nothing of it gets out of its braces */
    assert_event("type,ts,attributes", "a,1,\"{},\"\"tenant\"\":{}\"",
                 "attributes is not a JSON object");
    assert_event("type,ts,attributes", "a,1,\"{}}{\"",
                 "attributes is not a JSON object");
}

static struct replay_resume
some_resume(void)
{
    struct replay_resume resume = {
        .file = {.size = INT64_MAX, .changed_ns = -5},
        .options = UINT64_MAX,
        .db_epoch = 7,
        .batch = 12,
        .offset = INT64_MAX,
        .line_next = INT64_MAX,
        .counts = {INT64_MAX, 2, 3, INT64_MAX},
        .rejects_size = INT64_MAX,
    };

    memset(resume.file.head, 0xa5, sizeof(resume.file.head));
    memset(resume.writer, 0x0f, sizeof(resume.writer));
    return resume;
}

static void
resume__as_text__comes_back(void **state)
{
    struct replay_resume resume = some_resume();
    struct replay_resume again;
    char text[REPLAY_RESUME_SIZE];
    size_t size = replay_resume_format(&resume, text);

    (void)state;
    assert_true(replay_resume_parse((struct meter_str){text, size}, &again));
    assert_memory_equal(&again, &resume, sizeof(resume));
}

static void
resume__with_any_byte_changed_or_missing__is_damaged(void **state)
{
    struct replay_resume resume = some_resume();
    struct replay_resume again;
    char text[REPLAY_RESUME_SIZE];
    size_t size = replay_resume_format(&resume, text);

    (void)state;
    for (size_t i = 0; i < size; i++) {
        assert_false(replay_resume_parse((struct meter_str){text, i}, &again));
        for (int bit = 0; bit < 8; bit++) {
            text[i] = (char)(text[i] ^ (1 << bit));
            assert_false(
                replay_resume_parse((struct meter_str){text, size}, &again));
            text[i] = (char)(text[i] ^ (1 << bit));
        }
    }
    text[size] = '\n';
    assert_false(
        replay_resume_parse((struct meter_str){text, size + 1}, &again));
}

static void
resume_path__of_two_files__differs(void **state)
{
    char one[PATH_MAX];
    char two[PATH_MAX];
    char directory[PATH_MAX];

    (void)state;
    assert_true(replay_resume_path("/state", "/a", one));
    assert_true(replay_resume_path("/state", "/b", two));
    assert_string_not_equal(one, two);
    assert_int_equal(strlen(one), strlen("/state/.resume") + 32);
    memset(directory, 'x', sizeof(directory) - 1);
    directory[PATH_MAX - 1] = '\0';
    assert_false(replay_resume_path(directory, "/a", one));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header__of_any_kind__is_taken_or_refused),
        cmocka_unit_test(record__of_fields__has_their_types),
        cmocka_unit_test(attribute__by_its_cell__is_number_word_or_text),
        cmocka_unit_test(attributes__as_an_object__join_the_others),
        cmocka_unit_test(resume__as_text__comes_back),
        cmocka_unit_test(resume__with_any_byte_changed_or_missing__is_damaged),
        cmocka_unit_test(resume_path__of_two_files__differs),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
