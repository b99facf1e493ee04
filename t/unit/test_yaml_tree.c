/*
 * test_yaml_tree.c - YAML as a bounded tree with places.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "config/yaml_tree.h"

struct fixture {
    struct arena arena;
    struct config_errors errors;
    const struct yaml_node *root;
};

static int
setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    arena_init(&fixture->arena, 4096, 64u << 20);
    *state = fixture;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *fixture = *state;

    arena_fini(&fixture->arena);
    free(fixture);
    return 0;
}

static bool
read_text(struct fixture *fixture, const char *text)
{
    config_errors_clear(&fixture->errors);
    return yaml_tree_read("t.yaml", (struct meter_str){text, strlen(text)},
                          &fixture->arena, &fixture->errors, &fixture->root);
}

static const struct yaml_node *
child(const struct yaml_node *map, const char *key)
{
    const struct yaml_node *node = yaml_node_find(map, key);

    assert_non_null(node);
    return node;
}

static void
yaml_tree_read__nested__nodes_know_their_places(void **state)
{
    struct fixture *fixture = *state;
    const struct yaml_node *list;
    const struct yaml_node *map;

    assert_true(read_text(fixture, "# head\n"
                                   "list:\n"
                                   "  - one\n"
                                   "  - { key: 'two' }\n"));
    list = child(fixture->root, "list");
    assert_int_equal(list->kind, YAML_LIST);
    assert_int_equal(list->count, 2);
    assert_int_equal(list->key->line, 2);
    assert_int_equal(list->key->column, 1);
    assert_string_equal(list->first->text.data, "one");
    assert_string_equal(list->first->file, "t.yaml");
    assert_int_equal(list->first->line, 3);
    assert_int_equal(list->first->column, 5);
    map = list->first->next;
    assert_int_equal(map->kind, YAML_MAP);
    assert_int_equal(map->line, 4);
    assert_int_equal(map->column, 5);
    assert_int_equal(child(map, "key")->column, 12);
    assert_null(map->next);
}

static void
yaml_tree_read__column__counts_characters_not_bytes(void **state)
{
    struct fixture *fixture = *state;

    assert_true(read_text(fixture, "{ \"\xc3\xa4\xc3\xb6\": x, b: y }\n"));
    assert_int_equal(child(fixture->root, "b")->key->column, 12);
}

static void
yaml_tree_read__styles__only_plain_is_not_quoted(void **state)
{
    struct fixture *fixture = *state;

    assert_true(read_text(fixture, "a: true\nb: \"true\"\nc: 'true'\n"
                                   "d: |\n  true\ne: >-\n  true\n"));
    assert_false(child(fixture->root, "a")->quoted);
    assert_true(child(fixture->root, "b")->quoted);
    assert_true(child(fixture->root, "c")->quoted);
    assert_true(child(fixture->root, "d")->quoted);
    assert_true(child(fixture->root, "e")->quoted);
    assert_string_equal(child(fixture->root, "d")->text.data, "true\n");
    assert_string_equal(child(fixture->root, "e")->text.data, "true");
}

static void
yaml_node_is_null__plain_only__quoted_is_text(void **state)
{
    struct fixture *fixture = *state;

    assert_true(
        read_text(fixture, "a:\nb: ~\nc: null\nd: ''\ne: 'null'\nf: {}\n"));
    assert_true(yaml_node_is_null(child(fixture->root, "a")));
    assert_true(yaml_node_is_null(child(fixture->root, "b")));
    assert_true(yaml_node_is_null(child(fixture->root, "c")));
    assert_false(yaml_node_is_null(child(fixture->root, "d")));
    assert_false(yaml_node_is_null(child(fixture->root, "e")));
    assert_false(yaml_node_is_null(child(fixture->root, "f")));
}

static void
yaml_tree_read__depth_16__accepted_17_refused(void **state)
{
    struct fixture *fixture = *state;
    char text[64];

    snprintf(text, sizeof(text), "a: %.15s%.15s\n", "[[[[[[[[[[[[[[[",
             "]]]]]]]]]]]]]]]");
    assert_true(read_text(fixture, text));
    snprintf(text, sizeof(text), "a: %.16s%.16s\n", "[[[[[[[[[[[[[[[[",
             "]]]]]]]]]]]]]]]]");
    assert_false(read_text(fixture, text));
    assert_int_equal(fixture->errors.count, 1);
    assert_int_equal(fixture->errors.items[0].column, 19);
}

static void
yaml_tree_read__thousands_of_brackets__refused_at_once(void **state)
{
    struct fixture *fixture = *state;
    size_t size = 1000000;
    char *text = malloc(size + 4);

    memcpy(text, "a: ", 3);
    memset(text + 3, '[', size);
    text[size + 3] = '\0';
    assert_false(read_text(fixture, text));
    free(text);
    assert_true(fixture->arena.total < 1u << 20);
}

/* "- x" per line: one node each, and the list and the root map. */
static void
yaml_tree_read__too_many_values__refused(void **state)
{
    struct fixture *fixture = *state;
    size_t lines = YAML_TREE_NODES_MAX;
    char *text = malloc(lines * 4 + 8);
    size_t at = 0;

    memcpy(text, "a:\n", 3);
    at = 3;
    for (size_t i = 0; i < lines; i++) {
        memcpy(text + at, "- x\n", 4);
        at += 4;
    }
    text[at] = '\0';
    assert_false(read_text(fixture, text));
    assert_string_equal(fixture->errors.items[0].text,
                        "more than 65536 values in one file");
    free(text);
}

static void
yaml_tree_read__too_many_keys__refused(void **state)
{
    struct fixture *fixture = *state;
    char text[8192] = "";
    size_t at = 0;

    for (int i = 0; i < YAML_TREE_KEYS_MAX; i++) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "k%d: x\n", i);
    }
    assert_true(read_text(fixture, text));
    snprintf(text + at, sizeof(text) - at, "more: x\n");
    assert_false(read_text(fixture, text));
    assert_int_equal(fixture->errors.items[0].line, YAML_TREE_KEYS_MAX + 1);
}

static void
yaml_tree_read__arena_full__error_not_crash(void **state)
{
    struct fixture *fixture = *state;
    const struct yaml_node *root;
    struct arena small;

    arena_init(&small, 256, 256);
    assert_false(yaml_tree_read("t.yaml", METER_STR("a: [b, c, d, e, f]\n"),
                                &small, &fixture->errors, &root));
    assert_string_equal(fixture->errors.items[0].text,
                        "the configuration needs too much memory");
    arena_fini(&small);
}

static void
yaml_value_bool__only_two_words__others_refused(void **state)
{
    struct fixture *fixture = *state;
    bool value = false;
    static const char *const refused[] = {
        "a: yes", "a: no", "a: True",      "a: TRUE",
        "a: on",  "a: 1",  "a: truefalse", "a: 'true'",
        "a: ''",  "a:",    "a: [true]",    "a: \"false\"",
    };

    assert_true(read_text(fixture, "a: true\n"));
    assert_true(yaml_value_bool(&fixture->errors, child(fixture->root, "a"),
                                "a", &value));
    assert_true(value);
    assert_true(read_text(fixture, "a: false\n"));
    assert_true(yaml_value_bool(&fixture->errors, child(fixture->root, "a"),
                                "a", &value));
    assert_false(value);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_true(read_text(fixture, refused[i]));
        assert_false(yaml_value_bool(&fixture->errors,
                                     child(fixture->root, "a"), "a", &value));
        assert_string_equal(fixture->errors.items[0].text,
                            "\"a\" must be true or false, without quotes");
    }
}

#define TREE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TREE_TEST(yaml_tree_read__nested__nodes_know_their_places),
        TREE_TEST(yaml_tree_read__column__counts_characters_not_bytes),
        TREE_TEST(yaml_tree_read__styles__only_plain_is_not_quoted),
        TREE_TEST(yaml_node_is_null__plain_only__quoted_is_text),
        TREE_TEST(yaml_tree_read__depth_16__accepted_17_refused),
        TREE_TEST(yaml_tree_read__thousands_of_brackets__refused_at_once),
        TREE_TEST(yaml_tree_read__too_many_values__refused),
        TREE_TEST(yaml_tree_read__too_many_keys__refused),
        TREE_TEST(yaml_tree_read__arena_full__error_not_crash),
        TREE_TEST(yaml_value_bool__only_two_words__others_refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
