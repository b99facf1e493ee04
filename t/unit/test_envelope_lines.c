/*
 * NDJSON bodies: lines and their numbers, broken ones alone, limits.
 */

#include "envelope_fixture.h"

#include "base/buf.h"
#include "ingest/envelope.c"

#define EVENT(id)                                        \
    "{\"event_id\":\"" id "\",\"type\":\"api.request\"," \
    "\"ts\":\"2025-06-01T00:00:00Z\",\"attributes\":{\"route\":\"/\"}}"

/* ---- lines ----------------------------------------------------------- */

static void
split__line_ends_and_blanks__number_what_is_left(void **state)
{
    static const struct {
        const char *body;
        const char *lines; /* number and text of each */
    } table[] = {
        {"", ""},
        {"\n", ""},
        {" \t\r\n\r\n ", ""},
        {"a", "1a;"},
        {"a\n", "1a;"},
        {"a\r\n", "1a;"},
        {"a\nb", "1a;2b;"},
        {"a\r\nb\r\n", "1a;2b;"},
        {"\na\n\n\nb\n\n", "2a;5b;"},
        {" a \n\t\n b c \r\n", "1a;3b c;"},
        {"\r\n\r\na", "3a;"},
        {"a\rb\n", "1a\rb;"}, /* CR alone ends no line */
        {"  \n  \n  a", "3a;"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct line_split split = {.rest = str_of(table[i].body)};
        struct meter_str line;
        struct buf seen;

        buf_init(&seen, 1024);
        while (line_split_next(&split, &line)) {
            buf_printf(&seen, "%zu%.*s;", split.number, (int)line.size,
                       line.data);
        }
        assert_str(buf_str(&seen), table[i].lines);
        buf_fini(&seen);
    }
}

static void
split__no_bytes_at_all__has_no_line(void **state)
{
    struct line_split split = {.rest = {NULL, 0}};
    struct meter_str line;

    (void)state;
    assert_false(line_split_next(&split, &line));
}

/* ---- bodies ---------------------------------------------------------- */

static void
assert_list(struct fixture *f, const char *body, size_t count)
{
    assert_int_equal(read_form(f, ENVELOPE_LINES, body), ENVELOPE_LIST);
    assert_int_equal(f->count, count);
}

static void
lines__one_or_none__are_a_list(void **state)
{
    struct fixture *f = *state;

    assert_list(f, "", 0);
    assert_list(f, "\r\n\n", 0);
    assert_list(f, EVENT("a"), 1);
    assert_null(f->list[0].error);
    assert_str(f->list[0].event.event_id, "a");
}

static void
lines__each_is_an_event_in_order(void **state)
{
    struct fixture *f = *state;

    assert_list(f, "\r\n" EVENT("a") "\r\n\r\n  " EVENT("b") " \n" EVENT("c"),
                3);
    assert_str(f->list[0].event.event_id, "a");
    assert_str(f->list[1].event.event_id, "b");
    assert_str(f->list[2].event.event_id, "c");
    assert_int_equal(f->list[0].line, 2);
    assert_int_equal(f->list[1].line, 4);
    assert_int_equal(f->list[2].line, 5);
    for (size_t i = 0; i < 3; i++) {
        assert_null(f->list[i].error);
    }
}

/* Whatever stands on a line, its neighbours are what they are. */
static void
lines__broken_line__is_rejected_alone(void **state)
{
    static const struct {
        const char *line;
        const char *reason;
        const char *id; /* NULL: not known */
    } table[] = {
        {"x", "an event must be a JSON object", NULL},
        {"[]", "an event must be a JSON object", NULL},
        {"[" EVENT("x") "]", "an event must be a JSON object", NULL},
        {"null", "an event must be a JSON object", NULL},
        {"\xef\xbb\xbf" EVENT("x"), "an event must be a JSON object", NULL},
        {"{", "invalid JSON", NULL},
        {"{}", "type is missing", NULL},
        {"{\"event_id\":\"x\"", "invalid JSON", "x"},
        {"{\"event_id\":\"x\",\"type\":\"api", "invalid JSON", "x"},
        {EVENT("x") "}", "surplus bytes behind the event at byte 92", "x"},
        {EVENT("x") EVENT("y"), "surplus bytes behind the event", "x"},
        {EVENT("x") ",", "surplus bytes behind the event", "x"},
        {"{\"event_id\":\"x\",\"type\":\"nope\",\"ts\":1}",
         "unknown event type", "x"},
        {"{\"event_id\":\"x\",\"type\":\"\xff\"}", "invalid JSON", "x"},
        {"{\"event_id\":\"x\",\"\x01\":1}", "invalid JSON", "x"},
        {"]", "an event must be a JSON object", NULL},
        {"\"", "an event must be a JSON object", NULL},
        {"{\"event_id\":\"x\",\"a\":\"", "invalid JSON", "x"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct buf body;

        buf_init(&body, 4096);
        buf_printf(&body, EVENT("a") "\n%s\n" EVENT("b") "\n", table[i].line);
        buf_put_byte(&body, 0);
        assert_list(f, body.data, 3);
        assert_null(f->list[0].error);
        assert_contains(f->list[1].error, table[i].reason, table[i].line);
        assert_int_equal(f->list[1].line, 2);
        if (table[i].id != NULL) {
            assert_str(f->list[1].id_seen, table[i].id);
        } else {
            assert_null(f->list[1].id_seen.data);
        }
        assert_null(f->list[2].error);
        assert_str(f->list[2].event.event_id, "b");
        buf_fini(&body);
    }
}

/* One event over several lines is not NDJSON: each line is judged. */
static void
lines__an_event_over_several_lines__is_none(void **state)
{
    struct fixture *f = *state;

    assert_list(f, "{\n\"event_id\":\"a\"\n}\n" EVENT("b"), 4);
    for (size_t i = 0; i < 3; i++) {
        assert_non_null(f->list[i].error);
    }
    assert_null(f->list[3].error);
}

static void
put_large(struct buf *body, size_t size)
{
    size_t start = body->size;

    buf_put_text(body, "{\"event_id\":\"big\",\"type\":\"api.request\","
                       "\"ts\":1,\"attributes\":{\"route\":[");
    while (body->size - start + 4 < size - 3) {
        buf_put_text(body, "100,");
    }
    buf_put_text(body, "1");
    while (body->size - start < size - 3) {
        buf_put_byte(body, '1');
    }
    buf_put_text(body, "]}}");
    assert_int_equal(body->size - start, size);
}

static void
lines__event_of_the_largest_size__and_one_byte_more(void **state)
{
    struct fixture *f = *state;
    struct buf body;

    buf_init(&body, 1 << 20);
    put_large(&body, METER_EVENT_SIZE_MAX);
    buf_put_text(&body, "\r\n");
    put_large(&body, METER_EVENT_SIZE_MAX + 1);
    buf_put_text(&body, "\n" EVENT("a"));
    assert_int_equal(
        read_input(f, &(struct envelope_input){.form = ENVELOPE_LINES,
                                               .body = buf_str(&body)}),
        ENVELOPE_LIST);
    assert_int_equal(f->count, 3);
    assert_null(f->list[0].error);
    assert_contains(f->list[1].error, "larger than 65536 bytes", "large");
    assert_str(f->list[1].id_seen, "big");
    assert_null(f->list[2].error);
    buf_fini(&body);
}

static void
lines__5000_events__and_one_more(void **state)
{
    struct fixture *f = *state;
    struct envelope_input input = {.form = ENVELOPE_LINES};
    struct buf body;

    buf_init(&body, 8 << 20);
    for (int i = 0; i < METER_BATCH_EVENTS_MAX; i++) {
        buf_put_text(&body, i % 2 == 0 ? "{}\n\n" : "x\r\n");
    }
    buf_put_text(&body, "\n \n");
    input.body = buf_str(&body);
    assert_int_equal(read_input(f, &input), ENVELOPE_LIST);
    assert_int_equal(f->count, METER_BATCH_EVENTS_MAX);
    buf_put_text(&body, "x");
    input.body = buf_str(&body);
    assert_int_equal(read_input(f, &input), ENVELOPE_BAD);
    assert_contains(f->error, "more than 5000 events", "5001 lines");
    assert_int_equal(f->count, 0);
    buf_fini(&body);
}

static void
lines__memory_runs_out__refuses_the_body(void **state)
{
    struct fixture *f = *state;

    for (size_t room = 512; room < 16384; room += 512) {
        struct envelope_input input = {
            .form = ENVELOPE_LINES,
            .body = str_of(EVENT("a") "\n" EVENT("b\\u0041") "\nx\n")};
        enum envelope_body body;
        struct arena small;

        arena_init(&small, 512, room);
        body = envelope_read(&input, &f->context, &small, &f->list, &f->count,
                             &f->error);
        if (body == ENVELOPE_BAD) {
            assert_contains(f->error, "too much memory", "small arena");
        } else {
            assert_null(f->list[0].error);
            assert_null(f->list[1].error);
        }
        arena_fini(&small);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(split__line_ends_and_blanks__number_what_is_left),
    cmocka_unit_test(split__no_bytes_at_all__has_no_line),
    TEST(lines__one_or_none__are_a_list),
    TEST(lines__each_is_an_event_in_order),
    TEST(lines__broken_line__is_rejected_alone),
    TEST(lines__an_event_over_several_lines__is_none),
    TEST(lines__event_of_the_largest_size__and_one_byte_more),
    TEST(lines__5000_events__and_one_more),
    TEST(lines__memory_runs_out__refuses_the_body),
};

RUN_TAP(tests)
