/*
 * test_replay_source.c - bytes to records: in pieces of any size, lines that
 * are too long, quotes that are never closed.
 */

#include "meter_cmocka.h"

#include "base/buf.h"
#include "cmd/replay_input.c"

#include <errno.h>

/* A file that gives at most so many bytes at once. */
struct pieces {
    struct meter_str text;
    size_t at;
    size_t piece;
    bool stutters; /* EAGAIN before each piece */
    bool has_stuttered;
    bool fails;
};

static ssize_t
read_cb(void *asker, char *out, size_t size)
{
    struct pieces *pieces = asker;
    size_t left = pieces->text.size - pieces->at;

    if (pieces->fails) {
        errno = EIO;
        return -1;
    }
    pieces->has_stuttered = pieces->stutters && !pieces->has_stuttered;
    if (pieces->has_stuttered) {
        errno = EAGAIN;
        return -1;
    }
    size = size < pieces->piece ? size : pieces->piece;
    size = size < left ? size : left;
    memcpy(out, pieces->text.data + pieces->at, size);
    pieces->at += size;
    return (ssize_t)size;
}

/* "1:text@4 2!too long@9 ": line, text or start of the error, next byte. */
static void
records_put(struct pieces *pieces, bool is_csv, struct buf *out)
{
    struct replay_source *source =
        replay_source_create(is_csv, read_cb, pieces);
    struct replay_record record;
    enum replay_next next;

    assert_non_null(source);
    while ((next = replay_source_next(source, &record)) == REPLAY_RECORD ||
           next == REPLAY_AGAIN) {
        if (next == REPLAY_AGAIN) {
            assert_true(pieces->stutters);
            continue;
        }
        buf_printf(out, "%d", (int)record.line);
        if (record.error == NULL) {
            buf_put_byte(out, ':');
            buf_put_str(out, record.text);
        } else {
            buf_printf(out, "!%s",
                       strstr(record.error, "quotes") != NULL ? "quotes "
                                                              : "long ");
            buf_put(out, record.text.data,
                    record.text.size < 8 ? record.text.size : 8);
        }
        buf_printf(out, "@%d>%d ", (int)record.offset_next,
                   (int)record.line_next);
    }
    buf_put_text(out, next == REPLAY_END ? "." : "failed");
    buf_put_byte(out, 0);
    replay_source_destroy(source);
}

static void
assert_records(bool is_csv, const char *text, const char *expected)
{
    struct buf out;

    buf_init(&out, 1 << 20);
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++) {
        for (int stutters = 0; stutters < 2; stutters++) {
            struct pieces pieces = {
                .text = str_of(text), .piece = piece, .stutters = stutters};

            buf_reset(&out);
            records_put(&pieces, is_csv, &out);
            assert_string_equal(out.data, expected);
        }
    }
    buf_fini(&out);
}

static void
lines__in_pieces_of_any_size__are_the_same(void **state)
{
    static const char *const rows[][2] = {
        {"", "."},
        {"\n\n", "."},
        {"a", "1:a@1>1 ."},
        {"a\nb\n", "1:a@2>2 2:b@4>3 ."},
        {"a\r\nb\r\n", "1:a@3>2 2:b@6>3 ."},
        {"\n \n\t\r\na\n\nb", "4:a@8>5 6:b@10>6 ."},
        {" a \n", "1: a @4>2 ."},
        {"\"a\nb\"\n", "1:\"a@3>2 2:b\"@6>3 ."},
        {"\xef\xbb\xbf"
         "a\nb",
         "1:a@5>2 2:b@6>2 ."},
        {"\xef\xbb\xbf", "."},
        {"\xef\xbb", "1:\xef\xbb@2>1 ."},
        {"a\n\xef\xbb\xbf"
         "b",
         "1:a@2>2 2:\xef\xbb\xbf"
         "b@6>2 ."},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_records(false, rows[i][0], rows[i][1]);
    }
}

static void
csv__in_pieces_of_any_size__is_the_same(void **state)
{
    static const char *const rows[][2] = {
        {"a,b\nc,d", "1:a,b@4>2 2:c,d@7>2 ."},
        {"a,\"b\nc\"\r\nd\n", "1:a,\"b\nc\"@9>3 3:d@11>4 ."},
        {"\xef\xbb\xbf\"a\n\n\"\nb", "1:\"a\n\n\"@9>4 4:b@10>4 ."},
        {"a,\"\"\"\n\"\"\"\nb", "1:a,\"\"\"\n\"\"\"@10>3 3:b@11>3 ."},
        /* a quote that is not closed takes its own line only */
        {"a,\"b\nc\nd", "1!quotes a,\"b@5>2 2:c@7>3 3:d@8>3 ."},
        {"a,\"b\nc,\"d\"\ne\n", "1!quotes a,\"b@5>2 2:c,\"d\"@11>3 3:e@13>4 ."},
        {"\"a\"b\nc", "1!quotes \"a\"b@5>2 2:c@6>2 ."},
        {"a\"b\nc", "1:a\"b@4>2 2:c@5>2 ."},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_records(true, rows[i][0], rows[i][1]);
    }
}

/* before, then so many x, then after. */
static void
assert_long(bool is_csv, const char *before, size_t count, const char *after,
            const char *expected)
{
    static const size_t pieces_of[] = {1, 7, 4096, 65536, 65537, 1u << 24};
    struct buf text;
    struct buf out;

    buf_init(&text, 1u << 24);
    buf_init(&out, 1u << 20);
    buf_put_text(&text, before);
    for (size_t i = 0; i < count; i++) {
        buf_put_byte(&text, 'x');
    }
    buf_put_text(&text, after);
    for (size_t i = count > 200000; i < 6; i++) {
        struct pieces pieces = {.text = buf_str(&text), .piece = pieces_of[i]};

        buf_reset(&out);
        records_put(&pieces, is_csv, &out);
        if (strncmp(expected, "...", 3) == 0) { /* the end of it */
            size_t size = strlen(expected) - 3;

            assert_true(strlen(out.data) > size);
            assert_string_equal(out.data + strlen(out.data) - size,
                                expected + 3);
        } else {
            assert_string_equal(out.data, expected);
        }
    }
    buf_fini(&text);
    buf_fini(&out);
}

static void
line__that_is_too_long__is_skipped(void **state)
{
    (void)state;
    for (int is_csv = 0; is_csv < 2; is_csv++) {
        assert_long(is_csv, "a\n", 65536, "\nb", "...x@65539>3 3:b@65540>3 .");
        assert_long(is_csv, "a\n", 65536, "\r\nb",
                    "...x@65540>3 3:b@65541>3 .");
        assert_long(is_csv, "a\n", 65537, "\nb",
                    "1:a@2>2 2!long xxxxxxxx@65540>3 3:b@65541>3 .");
        assert_long(is_csv, "a\n", 65537, "",
                    "1:a@2>2 2!long xxxxxxxx@65539>2 .");
        assert_long(is_csv, "a\n", 5000000, "\nb",
                    "1:a@2>2 2!long xxxxxxxx@5000003>3 3:b@5000004>3 .");
        assert_long(is_csv, "", 5000000, "", "1!long xxxxxxxx@5000000>1 .");
    }
}

static void
quote__that_is_never_closed__takes_one_line(void **state)
{
    (void)state;
    assert_long(true, "\"a\nb\n", 65000, "\nc\n\"", "...\n\"@65009>5 .");
    assert_long(true, "\"a\nb\n", 65600, "\nc\n\"",
                "1!quotes \"a@3>2 2:b@5>3 3!long xxxxxxxx@65606>4 "
                "4:c@65608>5 5!quotes \"@65609>5 .");
    assert_long(true, "\"a\nb\n", 5000000, "\nc",
                "1!quotes \"a@3>2 2:b@5>3 3!long xxxxxxxx@5000006>4 "
                "4:c@5000007>4 .");
}

static void
source__that_was_moved__goes_on_there(void **state)
{
    struct pieces pieces = {.text = str_of("a\nb\nc\n"), .piece = 100};
    struct replay_source *source =
        replay_source_create(false, read_cb, &pieces);
    struct replay_record record;

    (void)state;
    assert_int_equal(replay_source_next(source, &record), REPLAY_RECORD);
    pieces.at = 4;
    replay_source_moved(source, 4, 3);
    assert_int_equal(replay_source_next(source, &record), REPLAY_RECORD);
    assert_int_equal(record.line, 3);
    assert_int_equal(record.offset_next, 6);
    assert_int_equal(record.text.data[0], 'c');
    assert_int_equal(replay_source_next(source, &record), REPLAY_END);
    assert_int_equal(replay_source_next(source, &record), REPLAY_END);
    replay_source_destroy(source);
}

static void
source__that_cannot_be_read__says_so(void **state)
{
    struct pieces pieces = {.text = str_of("a"), .piece = 1, .fails = true};
    struct replay_source *source = replay_source_create(true, read_cb, &pieces);
    struct replay_record record;

    (void)state;
    assert_int_equal(replay_source_next(source, &record), REPLAY_FAILED);
    assert_int_equal(errno, EIO);
    replay_source_destroy(source);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines__in_pieces_of_any_size__are_the_same),
        cmocka_unit_test(csv__in_pieces_of_any_size__is_the_same),
        cmocka_unit_test(line__that_is_too_long__is_skipped),
        cmocka_unit_test(quote__that_is_never_closed__takes_one_line),
        cmocka_unit_test(source__that_was_moved__goes_on_there),
        cmocka_unit_test(source__that_cannot_be_read__says_so),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
