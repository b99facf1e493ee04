/*
 * test_csv.c - tables: quoting, formulas, which form is asked for, links to
 * the next page.
 */

#include "meter_cmocka.h"

#include "api/page.c"
#include "base/csv.h"

struct place {
    struct buf out;
    struct csv_writer csv;
};

static int
setup(void **state)
{
    struct place *place = calloc(1, sizeof(*place));

    buf_init(&place->out, 1u << 20);
    csv_writer_init(&place->csv, &place->out);
    *state = place;
    return 0;
}

static int
teardown(void **state)
{
    struct place *place = *state;

    buf_fini(&place->out);
    free(place);
    return 0;
}

static void
assert_out(struct place *place, const char *expected)
{
    assert_int_equal(place->out.size, strlen(expected));
    assert_memory_equal(place->out.data, expected, strlen(expected));
    buf_reset(&place->out);
}

static void
csv__rows__commas_between_cells_and_crlf(void **state)
{
    struct place *place = *state;

    csv_cell(&place->csv, str_of("a"));
    csv_empty(&place->csv);
    csv_int(&place->csv, -5);
    csv_row_end(&place->csv);
    csv_empty(&place->csv);
    csv_bool(&place->csv, true);
    csv_bool(&place->csv, false);
    csv_time(&place->csv, 0);
    csv_row_end(&place->csv);
    assert_out(place, "a,,-5\r\n,true,false,1970-01-01T00:00:00.000000Z\r\n");
}

static void
csv__special_bytes__quoted(void **state)
{
    static const char *const rows[][2] = {
        {"a b", "a b"},     {"a,b", "\"a,b\""},   {"a\"b", "\"a\"\"b\""},
        {"\"", "\"\"\"\""}, {"a\r", "\"a\r\""},   {"a\nb", "\"a\nb\""},
        {"it's", "it's"},   {"a;b\tc", "a;b\tc"}, {"\xc3\xb6", "\xc3\xb6"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct place *place = *state;

        csv_writer_init(&place->csv, &place->out);
        csv_client_text(&place->csv, str_of(rows[i][0]));
        assert_out(place, rows[i][1]);
        csv_writer_init(&place->csv, &place->out);
        csv_cell(&place->csv, str_of(rows[i][0]));
        assert_out(place, rows[i][1]);
    }
}

static void
csv__client_text_like_a_formula__gets_an_apostrophe(void **state)
{
    static const char *const rows[][2] = {
        {"=1+1", "'=1+1"},
        {"+1", "'+1"},
        {"-1", "'-1"},
        {"@x", "'@x"},
        {"\tx", "'\tx"},
        {"\rx", "\"'\rx\""},
        {"1-1", "1-1"},
        {"=a,b", "\"'=a,b\""},
        {"", "\"\""},
        {" =1", "' =1"},
        {"\n=1", "\"'\n=1\""},
        {" ", "' "},
        {"\v=1", "'\v=1"},
        {"\xef\xbc\x9dx", "'\xef\xbc\x9dx"}, /* full-width = + - @ */
        {"\xef\xbc\x8bx", "'\xef\xbc\x8bx"},
        {"\xef\xbc\x8dx", "'\xef\xbc\x8dx"},
        {"\xef\xbc\xa0x", "'\xef\xbc\xa0x"},
        {"\xef\xbc\xa1", "\xef\xbc\xa1"}, /* full-width A */
        {"\xef\xbc", "\xef\xbc"},         /* cut off */
        {"a =1", "a =1"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct place *place = *state;

        csv_writer_init(&place->csv, &place->out);
        csv_client_text(&place->csv, str_of(rows[i][0]));
        assert_out(place, rows[i][1]);
    }
}

static void
csv__numbers__never_changed(void **state)
{
    struct place *place = *state;

    csv_cell(&place->csv, str_of("-1.5"));
    csv_cell(&place->csv, str_of("+2"));
    assert_out(place, "-1.5,+2");
}

static void
accept__headers__form_that_is_wanted_most(void **state)
{
    static const struct {
        const char *header;
        enum accept_form form;
    } rows[] = {
        {"", ACCEPT_JSON},
        {"*/*", ACCEPT_JSON},
        {"application/json", ACCEPT_JSON},
        {"text/csv", ACCEPT_CSV},
        {"TEXT/CSV ; header=present", ACCEPT_CSV},
        {" text/csv ,\tapplication/json", ACCEPT_JSON},
        {"text/csv;q=0.9,application/json;q=0.8", ACCEPT_CSV},
        {"text/csv;q=0.8,application/json;q=0.81", ACCEPT_JSON},
        {"text/csv ; q=0.123 , */* ; q=0.1", ACCEPT_CSV},
        {"text/*;q=0.1, */*;q=0.9", ACCEPT_JSON},
        {"application/*;q=0.1, text/*", ACCEPT_CSV},
        {"*/*;q=0.9, text/csv;q=0.1, application/json;q=0", ACCEPT_CSV},
        {"application/json;q=0, */*;q=0.1", ACCEPT_CSV},
        {"text/csv;q=0", ACCEPT_NEITHER},
        {"text/html", ACCEPT_NEITHER},
        {"*/*;q=0", ACCEPT_NEITHER},
        {"application/xml, application/json;q=0.000", ACCEPT_NEITHER},
        {"text/csv;q=nonsense", ACCEPT_JSON},
        {"text/csv;q=1.001", ACCEPT_JSON},
        {"text/csv;q=0.1234", ACCEPT_JSON},
        {",,;,", ACCEPT_JSON},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (accept_choose(str_of(rows[i].header)) != rows[i].form) {
            fail_msg("Accept: %s", rows[i].header);
        }
    }
    assert_int_equal(accept_choose((struct meter_str){NULL, 0}), ACCEPT_JSON);
}

static void
link__arguments__kept_but_for_the_cursor(void **state)
{
    static const char *const rows[][2] = {
        {"", "<?cursor=NEW>; rel=\"next\""},
        {"a=1", "<?a=1&cursor=NEW>; rel=\"next\""},
        {"cursor=old&a=1", "<?a=1&cursor=NEW>; rel=\"next\""},
        {"a=1&%63ursor=old&b", "<?a=1&b&cursor=NEW>; rel=\"next\""},
        {"&&a=%22x%22+y&", "<?a=%22x%22+y&cursor=NEW>; rel=\"next\""},
        {"a=>;\"x\" \xc3\xb6#&precursor=1",
         "<?a=%3E;%22x%22%20%C3%B6%23&precursor=1&cursor=NEW>; rel=\"next\""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct place *place = *state;

        table_link(str_of(rows[i][0]), "NEW", &place->out);
        assert_out(place, rows[i][1]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            csv__rows__commas_between_cells_and_crlf, setup, teardown),
        cmocka_unit_test_setup_teardown(csv__special_bytes__quoted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            csv__client_text_like_a_formula__gets_an_apostrophe, setup,
            teardown),
        cmocka_unit_test_setup_teardown(csv__numbers__never_changed, setup,
                                        teardown),
        cmocka_unit_test(accept__headers__form_that_is_wanted_most),
        cmocka_unit_test_setup_teardown(
            link__arguments__kept_but_for_the_cursor, setup, teardown),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
