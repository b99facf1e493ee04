/*
 * test_page.c - limit and cursor of an answer in pages.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "api/page.h"
#include "meter_random.h"

static int
setup(void **state)
{
    struct arena *arena = calloc(1, sizeof(*arena));

    arena_init(arena, 4096, 4u << 20);
    *state = arena;
    return 0;
}

static int
teardown(void **state)
{
    arena_fini(*state);
    free(*state);
    return 0;
}

/* The question `about`; NULL, or the error. */
static const char *
page_of(struct arena *arena, const char *about, const char *raw,
        struct page *page)
{
    struct url_arguments args;
    const char *error = NULL;

    assert_true(url_arguments_read((struct meter_str){raw, strlen(raw)}, arena,
                                   &args, &error));
    page_init(page);
    page_ask(page, METER_STR("counters"));
    page_ask(page, (struct meter_str){about, strlen(about)});
    return page_read(page, &args, arena, &error) ? NULL : error;
}

/* The whole answer {"cursor":"..."}, in the arena. */
static char *
answer_of(struct arena *arena, const struct page *page, int rows,
          struct meter_str key)
{
    struct json_writer json;
    struct buf out;
    char *text;

    buf_init(&out, 65536);
    json_writer_init(&json, &out);
    json_object_begin(&json);
    page_end(page, rows, key, &json);
    json_object_end(&json);
    buf_put_byte(&out, '\0');
    assert_false(out.failed);
    text = arena_strdup(arena, out.data);
    buf_fini(&out);
    return text;
}

/* "cursor=..." of an answer that has one. */
static char *
cursor_of(struct arena *arena, const struct page *page, struct meter_str key)
{
    char *answer = answer_of(arena, page, (int)page->limit + 1, key);
    char *text = arena_alloc(arena, strlen(answer) + 1);
    char *quote;

    assert_memory_equal(answer, "{\"cursor\":\"", 11);
    strcpy(text, "cursor=");
    strcat(text, answer + 11);
    quote = strchr(text, '"');
    assert_non_null(quote);
    *quote = '\0';
    return text;
}

static void
page_read__limit__within_its_range(void **state)
{
    static const char *const bad[] = {
        "limit=0",    "limit=1001",
        "limit=",     "limit=-1",
        "limit=+5",   "limit=5x",
        "limit=x",    "limit=1e2",
        "limit=%205", "limit=99999999999999999999999",
    };
    struct page page;

    assert_null(page_of(*state, "c", "", &page));
    assert_int_equal(page.limit, 100);
    assert_null(page.after.data);
    assert_null(page_of(*state, "c", "limit=1", &page));
    assert_int_equal(page.limit, 1);
    assert_int_equal(page_row_limit(&page), 2);
    assert_null(page_of(*state, "c", "other=7&limit=1000", &page));
    assert_int_equal(page.limit, 1000);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_string_equal(page_of(*state, "c", bad[i], &page),
                            "\"limit\" must be from 1 to 1000");
    }
}

static void
page_end__more_rows_than_shown__has_a_cursor(void **state)
{
    struct page page;
    struct meter_str key = METER_STR("k");

    assert_null(page_of(*state, "c", "limit=2", &page));
    assert_int_equal(page_row_count(&page, 0), 0);
    assert_int_equal(page_row_count(&page, 2), 2);
    assert_int_equal(page_row_count(&page, 3), 2);
    assert_string_equal(answer_of(*state, &page, 0, key), "{}");
    assert_string_equal(answer_of(*state, &page, 2, key), "{}");
    assert_non_null(strstr(answer_of(*state, &page, 3, key), "\"cursor\":\""));
}

/* Every length: base64url has three ways to end. */
static void
page_read__cursor__gives_the_key_back(void **state)
{
    struct meter_random random = {4711};
    char key[PAGE_KEY_SIZE_MAX];

    for (size_t size = 1; size <= PAGE_KEY_SIZE_MAX; size += size / 40 + 1) {
        struct page page;
        char *cursor;

        for (size_t i = 0; i < size; i++) {
            key[i] = (char)random_u64(&random);
        }
        assert_null(page_of(*state, "c", "limit=5", &page));
        cursor = cursor_of(*state, &page, (struct meter_str){key, size});
        assert_null(page_of(*state, "c", cursor, &page));
        assert_int_equal(page.after.size, size);
        assert_memory_equal(page.after.data, key, size);
    }
}

static void
page_read__cursor_of_another_question__refused(void **state)
{
    struct page page;
    char *cursor;

    assert_null(page_of(*state, "c", "", &page));
    cursor = cursor_of(*state, &page, METER_STR("key"));
    assert_null(page_of(*state, "c", cursor, &page));
    assert_string_equal(page_of(*state, "d", cursor, &page), PAGE_ERROR_CURSOR);
    assert_string_equal(page_of(*state, "", cursor, &page), PAGE_ERROR_CURSOR);
    /* limit may change from page to page. */
    cursor = strcat(strcpy(arena_alloc(*state, 256), cursor), "&limit=7");
    assert_null(page_of(*state, "c", cursor, &page));
    assert_int_equal(page.limit, 7);
}

/* Pieces are apart: "ab", "c" is another question than "a", "bc". */
static void
page_ask__same_bytes_in_other_pieces__another_question(void **state)
{
    struct url_arguments none = {.count = 0};
    struct page one;
    struct page two;
    const char *error;

    page_init(&one);
    page_ask(&one, METER_STR("ab"));
    page_ask(&one, METER_STR("c"));
    page_init(&two);
    page_ask(&two, METER_STR("a"));
    page_ask(&two, METER_STR("bc"));
    assert_true(page_read(&one, &none, *state, &error));
    assert_true(page_read(&two, &none, *state, &error));
    assert_memory_not_equal(one.asked, two.asked, sizeof(one.asked));
}

/* Each letter changed, each end cut, and what is no base64url at all. */
static void
page_read__broken_cursor__refused(void **state)
{
    static const char *const bad[] = {
        "cursor=",
        "cursor=A",
        "cursor=AA",
        "cursor=AAAA",
        "cursor=AAAAAAAAAAAAAAAA",
        "cursor=%3D",
        "cursor=AAAAAAAAAAAAAAAA==",
    };
    struct page page;
    char *cursor;
    size_t size;

    assert_null(page_of(*state, "c", "", &page));
    cursor = cursor_of(*state, &page, METER_STR("some key"));
    size = strlen(cursor);
    for (size_t i = strlen("cursor="); i < size; i++) {
        char held = cursor[i];

        cursor[i] = held == 'A' ? 'B' : 'A';
        assert_string_equal(page_of(*state, "c", cursor, &page),
                            PAGE_ERROR_CURSOR);
        cursor[i] = '\0';
        assert_string_equal(page_of(*state, "c", cursor, &page),
                            PAGE_ERROR_CURSOR);
        cursor[i] = held;
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_string_equal(page_of(*state, "c", bad[i], &page),
                            PAGE_ERROR_CURSOR);
    }
}

/* One value, one text: bits that no byte holds must be 0. */
static void
page_read__other_spelling_of_a_cursor__refused(void **state)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    struct page page;
    size_t refused = 0;

    for (size_t size = 1; size <= 3; size++) {
        char *cursor;
        char *last;

        assert_null(page_of(*state, "c", "", &page));
        cursor = cursor_of(*state, &page, (struct meter_str){"xyz", size});
        last = cursor + strlen(cursor) - 1;
        for (size_t i = 0; i < 64; i++) {
            *last = letters[i];
            refused += page_of(*state, "c", cursor, &page) != NULL;
        }
    }
    assert_int_equal(refused, 3 * 63);
}

static void
page_read__cursor_too_long__refused(void **state)
{
    size_t size = METER_BASE64URL_SIZE(8 + PAGE_KEY_SIZE_MAX) + 1;
    char *raw = arena_zalloc(*state, size + 16);
    struct page page;

    strcpy(raw, "cursor=");
    memset(raw + 7, 'A', size);
    assert_string_equal(page_of(*state, "c", raw, &page), PAGE_ERROR_CURSOR);
}

int
main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(page_read__limit__within_its_range),
        T(page_end__more_rows_than_shown__has_a_cursor),
        T(page_read__cursor__gives_the_key_back),
        T(page_read__cursor_of_another_question__refused),
        T(page_ask__same_bytes_in_other_pieces__another_question),
        T(page_read__broken_cursor__refused),
        T(page_read__other_spelling_of_a_cursor__refused),
        T(page_read__cursor_too_long__refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
