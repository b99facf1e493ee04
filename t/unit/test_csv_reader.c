/*
 * test_csv_reader.c - CSV as RFC 4180 has it: where records end, what cells
 * hold, and what is refused.
 */

#include "meter_cmocka.h"

#include "base/csv.h"

static void
record_end__of_any_text__is_outside_of_quotes(void **state)
{
    static const struct {
        const char *text;
        enum csv_end more; /* when something may follow */
        enum csv_end last; /* when nothing does */
        size_t size;
    } rows[] = {
        {"", CSV_END_MORE, CSV_END_FOUND, 0},
        {"\n", CSV_END_FOUND, CSV_END_FOUND, 1},
        {"a,b\nc", CSV_END_FOUND, CSV_END_FOUND, 4},
        {"a,b\r\nc", CSV_END_FOUND, CSV_END_FOUND, 5},
        {"a,b", CSV_END_MORE, CSV_END_FOUND, 3},
        {"a,b\r", CSV_END_MORE, CSV_END_FOUND, 4},
        {"\"a\nb\"\nc", CSV_END_FOUND, CSV_END_FOUND, 6},
        {"x,\"a\nb\"\r\nc", CSV_END_FOUND, CSV_END_FOUND, 9},
        {"\"a\"\"\nb\"\nc", CSV_END_FOUND, CSV_END_FOUND, 8},
        {"\"\"\nc", CSV_END_FOUND, CSV_END_FOUND, 3},
        {"\"\"\"\nc", CSV_END_MORE, CSV_END_BROKEN, 0},
        {"\"a\n", CSV_END_MORE, CSV_END_BROKEN, 0},
        {"\"a\"", CSV_END_MORE, CSV_END_FOUND, 3},
        {"\"a\"\r", CSV_END_MORE, CSV_END_FOUND, 4},
        {"\"a\"b\n", CSV_END_BROKEN, CSV_END_BROKEN, 0},
        {"\"a\"\rb\n", CSV_END_BROKEN, CSV_END_BROKEN, 0},
        {"\"a\" ,b\n", CSV_END_BROKEN, CSV_END_BROKEN, 0},
        /* not at a cell's front it opens nothing */
        {"a\"b\nc", CSV_END_FOUND, CSV_END_FOUND, 4},
        {"a \"b\nc\"", CSV_END_FOUND, CSV_END_FOUND, 5},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t size = 0;

        assert_int_equal(csv_record_end(str_of(rows[i].text), false, &size),
                         rows[i].more);
        assert_true(rows[i].more != CSV_END_FOUND || size == rows[i].size);
        assert_int_equal(csv_record_end(str_of(rows[i].text), true, &size),
                         rows[i].last);
        assert_true(rows[i].last != CSV_END_FOUND || size == rows[i].size);
    }
}

/* Cells with | between; ! for a broken one. */
static void
assert_cells(const char *record, const char *expected)
{
    struct csv_reader reader;
    struct meter_str cell;
    struct buf unquoted;
    struct buf all;
    enum csv_next next;

    buf_init(&unquoted, 1000);
    buf_init(&all, 1000);
    csv_reader_init(&reader, str_of(record));
    while ((next = csv_cell_next(&reader, &unquoted, &cell)) == CSV_CELL) {
        buf_put_str(&all, cell);
        buf_put_byte(&all, '|');
    }
    buf_put_text(&all, next == CSV_CELL_BROKEN ? "!" : "");
    buf_put_byte(&all, 0);
    assert_string_equal(all.data, expected);
    buf_fini(&unquoted);
    buf_fini(&all);
}

static void
cells__of_any_record__are_without_their_quotes(void **state)
{
    static const char *const rows[][2] = {
        {"", "|"},
        {"a", "a|"},
        {"a,b", "a|b|"},
        {",", "||"},
        {"a,,", "a|||"},
        {"\"\"", "|"},
        {"\"a,b\",c", "a,b|c|"},
        {"\"a\"\"b\"", "a\"b|"},
        {"\"\"\"\"", "\"|"},
        {"\"a\r\nb\"", "a\r\nb|"},
        {" a , b ", " a | b |"},
        {"a,\"b\"", "a|b|"},
        {"a,\"\"", "a||"},
        {"a\"b", "!"},
        {"a,b\"", "a|!"},
        {"\"a\"b", "!"},
        {"\"a", "!"},
        {"\"", "!"},
        {"a,\"b\" ", "a|!"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_cells(rows[i][0], rows[i][1]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_end__of_any_text__is_outside_of_quotes),
        cmocka_unit_test(cells__of_any_record__are_without_their_quotes),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
