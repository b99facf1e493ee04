/*
 * test_index.c - declared attributes: what an event leaves in the index, and
 * the rows of a transaction.
 */

#include "meter_cmocka.h"

#include "project/index.h"

#include <endian.h>

#define FLOOR_DAY 100

static const struct projection *const indexer = &projection_index;

struct fixture {
    struct arena arena;
    void *rows;
    struct pg_params params;
};

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    arena_init(&f->arena, 4096, 8u << 20);
    f->rows = indexer->rows_create();
    assert_non_null(f->rows);
    pg_params_init(&f->params);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;

    indexer->rows_destroy(f->rows);
    pg_params_fini(&f->params);
    arena_fini(&f->arena);
    free(f);
    return 0;
}

static struct attribute_path
path_of(const char *name)
{
    static struct meter_str segments[16][4];
    static size_t used;
    struct meter_str *mine = segments[used++ % 16];
    const char *dot = strchr(name, '.');

    if (dot == NULL) {
        mine[0] = str_of(name);
        return (struct attribute_path){str_of(name), mine, 1};
    }
    mine[0] = (struct meter_str){name, (size_t)(dot - name)};
    mine[1] = str_of(dot + 1);
    return (struct attribute_path){str_of(name), mine, 2};
}

/* What an event with these attributes leaves, of paths a, b.c and t. */
static const struct index_effect *
project(struct fixture *f, const char *attributes)
{
    struct attribute_path paths[] = {path_of("a"), path_of("b.c"),
                                     path_of("t")};
    struct event_type type = {.indexed = {paths, 3}};
    struct meter_event event = {.tenant = str_of("acme")};
    struct json_limits limits = {16, 256, 8192, 65536};
    struct json_value value;
    struct json_error json_error;
    const void *effect = &type;
    const char *error = NULL;
    bool is_careful = false;
    size_t used;

    assert_true(json_read(str_of(attributes), &limits, &f->arena, &value, &used,
                          &json_error));
    assert_true(index_project(&type, &event, &value, &f->arena, &effect,
                              &is_careful, &error));
    assert_false(is_careful);
    return effect;
}

/* "a=1 t=true" */
static void
assert_entries(struct fixture *f, const char *attributes, const char *expected)
{
    const struct index_effect *effect = project(f, attributes);
    char text[1024] = "";
    size_t at = 0;

    for (size_t i = 0; effect != NULL && i < effect->count; i++) {
        const struct index_entry *entry = &effect->entries[i];

        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%.*s=%.*s",
                               i == 0 ? "" : " ", (int)entry->attribute.size,
                               entry->attribute.data, (int)entry->value.size,
                               entry->value.data);
    }
    assert_string_equal(text, expected);
}


/* ---- effects --------------------------------------------------------- */

static void
project__scalars__canonical(void **state)
{
    assert_entries(*state, "{\"a\":1.50,\"b\":{\"c\":\"x\\u0041\"},\"t\":true}",
                   "a=1.5 b.c=\"xA\" t=true");
    assert_entries(*state, "{\"a\":10e-1}", "a=1");
    assert_entries(*state, "{\"a\":\"1\"}", "a=\"1\"");
    assert_entries(*state, "{\"a\":false,\"z\":1}", "a=false");
}

static void
project__missing_null_object_array__no_entry(void **state)
{
    assert_null(project(*state, "{}"));
    assert_null(project(*state, "{\"a\":null,\"b\":1,\"t\":[1]}"));
    assert_entries(*state, "{\"a\":{\"x\":1},\"t\":0}", "t=0");
}

static void
project__exact_key__goes_before_the_path(void **state)
{
    assert_entries(*state, "{\"b.c\":1,\"b\":{\"c\":2}}", "b.c=1");
    assert_entries(*state, "{\"b.c\":null,\"b\":{\"c\":2}}", "");
}

static void
project__no_memory__a_reason(void **state)
{
    static const struct json_value attributes = {.kind = JSON_OBJECT};
    struct json_value value = {.kind = JSON_TRUE};
    struct json_member member = {METER_STR("a"), value};
    struct json_value object = attributes;
    struct attribute_path path = path_of("a");
    struct event_type type = {.indexed = {&path, 1}};
    struct meter_event event = {.tenant = str_of("acme")};
    struct arena none;
    const void *effect;
    const char *error = NULL;
    bool is_careful = false;

    (void)state;
    object.count = 1;
    object.members = &member;
    arena_init(&none, 16, 16);
    assert_false(index_project(&type, &event, &object, &none, &effect,
                               &is_careful, &error));
    assert_non_null(error);
    arena_fini(&none);
}

static void
cut__at_256_bytes__whole_characters(void **state)
{
    char text[600];

    (void)state;
    memset(text, 'a', sizeof(text));
    for (size_t size = 254; size < 260; size++) {
        assert_int_equal(index_value_cut((struct meter_str){text, size}).size,
                         size < 256 ? size : 256);
    }
    /* A character of two, three and four bytes over the border. */
    for (size_t width = 2; width <= 4; width++) {
        for (size_t before = 1; before < width; before++) {
            memset(text, 'a', sizeof(text));
            memset(text + 256 - before, 0x80, width);
            text[256 - before] = (char)0xf0;
            assert_int_equal(
                index_value_cut((struct meter_str){text, 400}).size,
                256 - before);
        }
    }
}


/* ---- rows of a transaction ------------------------------------------- */

struct made {
    struct meter_event event;
    struct effects effects;
    struct projected item;
};

static struct made *
item_of(struct fixture *f, const char *attributes, int64_t seq, int32_t day)
{
    struct made *made = arena_zalloc(&f->arena, sizeof(*made));

    assert_non_null(made);
    made->event = (struct meter_event){
        .tenant = str_of("acme"), .type = str_of("call"), .ts_us = 7};
    made->effects.of[PROJECTION_INDEX] = project(f, attributes);
    made->item = (struct projected){.event = &made->event,
                                    .effects = &made->effects,
                                    .writer_seq = seq,
                                    .part_day = day,
                                    .arena = &f->arena};
    return made;
}

static const struct projection_stamp *
stamp(void)
{
    static const uint8_t writer[16] = {1, 2, 3};
    static struct projection_stamp value;

    value = (struct projection_stamp){
        .writer = writer, .recorded_us = 9, .clock_us = 9,
        .index_floor = FLOOR_DAY};
    return &value;
}

static void
fold(struct fixture *f, const char *attributes, int64_t seq, int32_t day)
{
    assert_int_equal(indexer->fold(f->rows,
                                   &item_of(f, attributes, seq, day)->item,
                                   stamp()),
                     PROJECTION_OK);
}

static bool
next(struct fixture *f, enum projection_phase phase, size_t *at)
{
    struct projection_query query = {.params = &f->params};

    pg_params_reset(&f->params);
    if (!indexer->next(f->rows, phase, stamp(), at, &query)) {
        return false;
    }
    assert_int_equal(query.statement, STATEMENT_EVENT_INDEX_INSERT);
    assert_int_equal(f->params.count, 8);
    return true;
}

/* The elements of a text array: "x|y". */
static void
assert_texts(const struct fixture *f, int parameter, const char *expected)
{
    const char *at = f->params.bytes.data + f->params.offset[parameter];
    char text[1024] = "";
    size_t used = 0;
    uint32_t count;

    memcpy(&count, at + 12, 4);
    at += 20;
    for (uint32_t i = 0; i < be32toh(count); i++) {
        uint32_t size;

        memcpy(&size, at, 4);
        size = be32toh(size);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%.*s",
                                 i == 0 ? "" : "|", (int)size, at + 4);
        at += 4 + size;
    }
    assert_string_equal(text, expected);
}

/* The elements of an array of 8 or 4 bytes each. */
static void
assert_numbers(const struct fixture *f, int parameter, int size,
               const int64_t *expected, size_t count)
{
    const char *at = f->params.bytes.data + f->params.offset[parameter] + 20;

    for (size_t i = 0; i < count; i++) {
        uint64_t wide;
        uint32_t narrow;

        at += 4;
        memcpy(&wide, at, 8);
        memcpy(&narrow, at, 4);
        assert_true((size == 8
                         ? (int64_t)be64toh(wide)
                         : (int64_t)(int32_t)be32toh(narrow)) == expected[i]);
        at += size;
    }
}

static void
fold__entries_of_all_items__one_statement(void **state)
{
    static const int64_t seqs[] = {5, 5, 6};
    static const int64_t days[] = {101 - 10957, 101 - 10957, 100 - 10957};
    struct fixture *f = *state;
    size_t at = 0;

    fold(f, "{\"a\":1,\"t\":\"x\"}", 5, 101);
    fold(f, "{\"a\":2}", 6, FLOOR_DAY);
    fold(f, "{}", 7, 101);
    assert_int_equal(indexer->fold_end(f->rows), PROJECTION_OK);
    assert_int_equal(indexer->changed(f->rows), 3);
    assert_true(next(f, PROJECTION_APPLY, &at));
    assert_int_equal(at, 1);
    assert_texts(f, 0, "acme|acme|acme");
    assert_texts(f, 1, "call|call|call");
    assert_texts(f, 2, "a|t|a");
    assert_texts(f, 3, "1|\"x\"|2");
    assert_numbers(f, 5, 4, days, 3);
    assert_numbers(f, 6, 8, seqs, 3);
    assert_int_equal(f->params.size[7], 16);
    assert_false(next(f, PROJECTION_APPLY, &at));
}

static void
fold__below_the_floor__left_out(void **state)
{
    struct fixture *f = *state;
    size_t at = 0;

    fold(f, "{\"a\":1}", 5, FLOOR_DAY - 1);
    assert_int_equal(indexer->changed(f->rows), 0);
    assert_false(next(f, PROJECTION_APPLY, &at));
}

static void
next__other_phases__nothing(void **state)
{
    static const enum projection_phase phases[] = {
        PROJECTION_LOOK, PROJECTION_STATES, PROJECTION_LOCK};
    struct fixture *f = *state;

    fold(f, "{\"a\":1}", 5, FLOOR_DAY);
    for (size_t i = 0; i < 3; i++) {
        size_t at = 0;

        assert_false(next(f, phases[i], &at));
    }
    indexer->rows_clear(f->rows, false);
    for (size_t at = 0; at < 1; at++) {
        assert_false(next(f, PROJECTION_APPLY, &at));
    }
}

static void
apply__undone__not_written(void **state)
{
    struct fixture *f = *state;
    struct made *one = item_of(f, "{\"a\":1}", 5, FLOOR_DAY);
    struct made *two = item_of(f, "{\"a\":2,\"t\":1}", 6, FLOOR_DAY);
    struct made *late = item_of(f, "{\"a\":3}", 7, FLOOR_DAY - 1);
    const char *error = NULL;
    size_t at = 0;

    assert_true(indexer->collect(f->rows, PROJECTION_LOCK, &one->item));
    assert_int_equal(indexer->stamp_floor(f->rows), 0);
    assert_int_equal(indexer->apply(f->rows, &one->item, stamp(), &error),
                     PROJECTION_APPLIED);
    assert_int_equal(indexer->apply(f->rows, &two->item, stamp(), &error),
                     PROJECTION_APPLIED);
    indexer->undo(f->rows, &two->item);
    assert_int_equal(indexer->apply(f->rows, &late->item, stamp(), &error),
                     PROJECTION_APPLIED);
    assert_int_equal(indexer->changed(f->rows), 1);
    indexer->undo(f->rows, &late->item);
    assert_int_equal(indexer->changed(f->rows), 1);
    assert_true(next(f, PROJECTION_WRITE, &at));
    assert_texts(f, 3, "1");
}

static void
fold__many_items__all_kept(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 3000; i++) {
        fold(f, "{\"a\":1}", i, FLOOR_DAY);
    }
    assert_int_equal(indexer->changed(f->rows), 3000);
    indexer->rows_clear(f->rows, true);
    assert_int_equal(indexer->changed(f->rows), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(project__scalars__canonical),
    TEST(project__missing_null_object_array__no_entry),
    TEST(project__exact_key__goes_before_the_path),
    TEST(project__no_memory__a_reason),
    TEST(cut__at_256_bytes__whole_characters),
    TEST(fold__entries_of_all_items__one_statement),
    TEST(fold__below_the_floor__left_out),
    TEST(next__other_phases__nothing),
    TEST(apply__undone__not_written),
    TEST(fold__many_items__all_kept),
};

RUN_TAP(tests)
