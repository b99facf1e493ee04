/*
 * Persistent counters: folding steps against applying them one by one, and
 * what an event does to which row.
 */

#include "meter_cmocka.h"

#include "config/config.h"
#include "meter_random.h"
#include "project/counter.h"

/* ---- folds ----------------------------------------------------------- */

#define STEPS_MAX 16

struct step {
    int64_t delta;
    bool floor_at_zero;
};

/* Small, and now and then as large as 64 bits allow. */
static int64_t
random_delta(struct meter_random *random, bool extreme)
{
    if (extreme && random_below(random, 4) == 0) {
        int64_t near = (int64_t)random_below(random, 3);

        switch (random_below(random, 4)) {
        case 0: return INT64_MAX - near;
        case 1: return INT64_MIN + near;
        case 2: return INT64_MAX / 2 + near;
        default: return INT64_MIN / 2 - near;
        }
    }
    return (int64_t)random_below(random, 11) - 5;
}

static size_t
random_steps(struct meter_random *random, struct step *steps)
{
    size_t count = random_below(random, STEPS_MAX + 1);
    bool extreme = random_below(random, 4) == 0;
    uint64_t floors = random_below(random, 4); /* 0: none, 1: mixed, all */

    for (size_t i = 0; i < count; i++) {
        steps[i].delta = random_delta(random, extreme);
        steps[i].floor_at_zero =
            floors > 1 || (floors == 1 && random_below(random, 2));
    }
    return count;
}

/* The definition, in 128 bits. False: a step leaves 64 bits. */
static bool
one_by_one(const struct step *steps, size_t count, int64_t *value)
{
    meter_int128 now = *value;

    for (size_t i = 0; i < count; i++) {
        now += steps[i].delta;
        if (now < INT64_MIN || now > INT64_MAX) {
            return false;
        }
        if (steps[i].floor_at_zero && now < 0) {
            now = 0;
        }
    }
    *value = (int64_t)now;
    return true;
}

static bool
fold_steps(const struct step *steps, size_t count, struct counter_fold *fold)
{
    counter_fold_init(fold);
    for (size_t i = 0; i < count; i++) {
        if (!counter_fold_step(fold, steps[i].delta,
                               steps[i].floor_at_zero)) {
            return false;
        }
    }
    return true;
}

static void
assert_folds_equal(const struct counter_fold *a, const struct counter_fold *b)
{
    assert_true(a->a == b->a);
    assert_true(a->high == b->high);
    assert_true(a->low == b->low);
    assert_true(a->has_b == b->has_b);
    assert_true(!a->has_b || a->b == b->b);
}

static int64_t
random_value(struct meter_random *random)
{
    return random_below(random, 2) ? (int64_t)random_below(random, 7) - 2
                                   : random_delta(random, true);
}

static void
fold__a_million_random_batches__equals_one_by_one(void **state)
{
    struct meter_random random = {1};
    size_t folded = 0, overflowed = 0, naive_differs = 0;

    (void)state;
    for (size_t turn = 0; turn < 1000000; turn++) {
        struct step steps[STEPS_MAX];
        size_t count = random_steps(&random, steps);
        int64_t start = random_value(&random);
        int64_t expected = start, value = start;
        meter_int128 naive = start;
        struct counter_fold fold;
        bool fits = one_by_one(steps, count, &expected);

        if (!fold_steps(steps, count, &fold)) {
            continue;
        }
        folded++;
        assert_true(counter_fold_apply(&fold, &value) == fits);
        assert_true(value == (fits ? expected : start));
        overflowed += !fits;
        for (size_t i = 0; i < count; i++) {
            naive += steps[i].delta;
        }
        if (count > 0 && steps[count - 1].floor_at_zero && naive < 0) {
            naive = 0;
        }
        naive_differs += fits && naive != expected;
    }
    /* The cases are worth something: most fold, some overflow, and adding
       up before clamping is wrong in many of them. */
    assert_true(folded > 800000);
    assert_true(overflowed > 10000);
    assert_true(naive_differs > 100000);
}

static void
fold__what_the_statement_computes__equals_one_by_one(void **state)
{
    struct meter_random random = {2};

    (void)state;
    for (size_t turn = 0; turn < 200000; turn++) {
        struct step steps[STEPS_MAX];
        size_t count = random_steps(&random, steps);
        int64_t start = (int64_t)random_below(&random, 20) - 5;
        int64_t expected = start;
        struct counter_fold fold;
        meter_int128 value;

        if (!one_by_one(steps, count, &expected) ||
            !fold_steps(steps, count, &fold)) {
            continue;
        }
        value = (meter_int128)start + fold.a; /* GREATEST(value + a, b) */
        if (fold.has_b && value < fold.b) {
            value = fold.b;
        }
        assert_true(value == expected);
    }
}

static void
fold__refused__only_where_64_bits_end(void **state)
{
    struct meter_random random = {3};
    size_t refused = 0;

    (void)state;
    for (size_t turn = 0; turn < 200000; turn++) {
        struct step steps[STEPS_MAX];
        size_t count = random_steps(&random, steps);
        struct counter_fold fold;

        counter_fold_init(&fold);
        for (size_t i = 0; i < count; i++) {
            struct counter_fold before = fold;
            meter_int128 a = (meter_int128)fold.a + steps[i].delta;
            meter_int128 b = (meter_int128)fold.b + steps[i].delta;
            bool fits = a >= INT64_MIN && a <= INT64_MAX &&
                        (!fold.has_b || (b >= INT64_MIN && b <= INT64_MAX));

            assert_true(counter_fold_step(&fold, steps[i].delta,
                                          steps[i].floor_at_zero) == fits);
            if (!fits) {
                assert_folds_equal(&fold, &before);
                refused++;
            }
        }
    }
    assert_true(refused > 1000);
}

static void
merge__any_split__equals_the_whole(void **state)
{
    struct meter_random random = {4};
    size_t merged = 0;

    (void)state;
    for (size_t turn = 0; turn < 300000; turn++) {
        struct step steps[STEPS_MAX];
        size_t count = random_steps(&random, steps);
        size_t cut = random_below(&random, count + 1);
        struct counter_fold whole, first, second, before;
        bool folds = fold_steps(steps, count, &whole);
        int64_t start = random_value(&random);
        int64_t expected = start;
        bool fits = one_by_one(steps, count, &expected);

        if (!fold_steps(steps, cut, &first) ||
            !fold_steps(steps + cut, count - cut, &second)) {
            continue;
        }
        before = first;
        if (!counter_fold_merge(&first, &second)) {
            assert_folds_equal(&first, &before);
            assert_false(folds);
            continue;
        }
        if (folds) {
            assert_folds_equal(&first, &whole);
            merged++;
        }
        assert_true(counter_fold_apply(&first, &start) == fits);
        assert_true(!fits || start == expected);
    }
    assert_true(merged > 200000);
}

static void
merge__three_parts__is_associative(void **state)
{
    struct meter_random random = {5};

    (void)state;
    for (size_t turn = 0; turn < 200000; turn++) {
        struct step steps[3][STEPS_MAX];
        struct counter_fold folds[3], left, right;
        bool fold = true;

        for (int i = 0; i < 3; i++) {
            size_t count = random_steps(&random, steps[i]);

            fold = fold && fold_steps(steps[i], count, &folds[i]);
        }
        if (!fold) {
            continue;
        }
        left = folds[0];
        right = folds[1];
        if (counter_fold_merge(&left, &folds[1]) &&
            counter_fold_merge(&left, &folds[2]) &&
            counter_fold_merge(&right, &folds[2]) &&
            counter_fold_merge(&folds[0], &right)) {
            assert_folds_equal(&left, &folds[0]);
        }
    }
}

static void
fold__down_then_up_on_zero__is_one_not_zero(void **state)
{
    struct counter_fold fold;
    int64_t value = 0;

    (void)state;
    counter_fold_init(&fold);
    assert_true(counter_fold_step(&fold, -1, true));
    assert_true(counter_fold_step(&fold, 1, true));
    assert_true(fold.a == 0 && fold.has_b && fold.b == 1);
    assert_true(counter_fold_apply(&fold, &value));
    assert_true(value == 1);
}

static void
fold__identity__changes_nothing(void **state)
{
    static const int64_t values[] = {INT64_MIN, -1, 0, 1, INT64_MAX};
    struct counter_fold identity, fold;

    (void)state;
    counter_fold_init(&identity);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        int64_t value = values[i];

        assert_true(counter_fold_apply(&identity, &value));
        assert_true(value == values[i]);
    }
    counter_fold_init(&fold);
    assert_true(counter_fold_step(&fold, -3, true));
    assert_true(counter_fold_merge(&fold, &identity));
    assert_true(counter_fold_merge(&identity, &fold));
    assert_folds_equal(&identity, &fold);
}

static void
apply__at_the_ends_of_64_bits__refuses_what_leaves_them(void **state)
{
    static const struct {
        int64_t value, delta;
        bool floor_at_zero;
        bool fits;
        int64_t result;
    } table[] = {
        {INT64_MAX, 1, false, false, 0},
        {INT64_MAX, 1, true, false, 0},
        {INT64_MAX - 1, 1, false, true, INT64_MAX},
        {INT64_MAX, 0, false, true, INT64_MAX},
        {INT64_MIN, -1, false, false, 0},
        {INT64_MIN, -1, true, false, 0},
        {INT64_MIN + 1, -1, false, true, INT64_MIN},
        {INT64_MIN, 0, true, true, 0},
        {0, INT64_MIN, false, true, INT64_MIN},
        {0, INT64_MIN, true, true, 0},
        {-1, INT64_MIN, true, false, 0},
        {INT64_MAX, INT64_MIN, false, true, -1},
        {INT64_MAX, INT64_MIN, true, true, 0},
        {INT64_MIN, INT64_MAX, false, true, -1},
        {1, INT64_MAX, false, false, 0},
        {5, -6, true, true, 0},
        {5, -6, false, true, -1},
        {-5, 3, true, true, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct counter_fold fold;
        int64_t value = table[i].value;
        int64_t expected = table[i].fits ? table[i].result : value;

        assert_true(counter_apply(&value, table[i].delta,
                                  table[i].floor_at_zero) == table[i].fits);
        assert_true(value == expected);
        value = table[i].value;
        counter_fold_init(&fold);
        assert_true(counter_fold_step(&fold, table[i].delta,
                                      table[i].floor_at_zero));
        assert_true(counter_fold_apply(&fold, &value) == table[i].fits);
        assert_true(value == expected);
    }
}

static void
fold__overflow_on_the_way_that_comes_back__is_seen(void **state)
{
    struct counter_fold fold;
    int64_t value = INT64_MAX;

    (void)state;
    counter_fold_init(&fold);
    assert_true(counter_fold_step(&fold, 1, false));
    assert_true(counter_fold_step(&fold, -1, false));
    assert_true(fold.a == 0);
    assert_false(counter_fold_apply(&fold, &value));
    assert_true(value == INT64_MAX);
    value = INT64_MAX - 1;
    assert_true(counter_fold_apply(&fold, &value));
    assert_true(value == INT64_MAX - 1);

    counter_fold_init(&fold);
    assert_true(counter_fold_step(&fold, INT64_MAX, true));
    assert_false(counter_fold_step(&fold, 1, true));
    assert_true(fold.a == INT64_MAX);
}

/* ---- what an event does ---------------------------------------------- */

static const char rules[] =
    "events:\n"
    "  - { type: up }\n"
    "  - { type: down }\n"
    "  - { type: idle }\n"
    "counters:\n"
    "  - counterName: open\n"
    "    mode: persistent\n"
    "    dimensions: [zone, account.id]\n"
    "    floorAtZero: true\n"
    "    rules: [ { on: up, op: increment }, { on: down, op: decrement } ]\n"
    "  - counterName: bytes\n"
    "    mode: persistent\n"
    "    dimensions: []\n"
    "    rules: [ { on: up, op: increment, by: size },\n"
    "             { on: down, op: decrement, by: size } ]\n"
    "  - counterName: states\n"
    "    mode: persistent\n"
    "    dimensions: []\n"
    "    transitions: { entity: account }\n"
    "    rules: [ { on: up, op: increment }, { on: down, op: decrement } ]\n";

struct fixture {
    struct config *config;
    struct arena arena;
    struct json_value attributes;
    struct meter_event event;
    struct counter_change *changes;
    size_t count;
    const char *error;
};

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct config_errors errors;

    if (!config_load_text("rules", str_of(rules), &f->config, &errors)) {
        config_errors_print(&errors, stderr);
        abort();
    }
    arena_init(&f->arena, 4096, 16 << 20);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;

    arena_fini(&f->arena);
    config_unref(f->config);
    free(f);
    return 0;
}

static bool
project(struct fixture *f, const char *type, const char *attributes,
        int64_t count)
{
    static const struct json_limits limits = {16, 256, 128, 8192};
    const struct event_type *row =
        catalog_event_type(f->config->catalog, str_of(type));
    struct json_error error;
    size_t used;

    assert_non_null(row);
    assert_true(json_read(str_of(attributes), &limits, &f->arena,
                          &f->attributes, &used, &error));
    f->event = (struct meter_event){.count = count};
    f->error = NULL;
    return counter_project(row, &f->event, &f->attributes, &f->arena,
                           &f->changes, &f->count, &f->error);
}

static void
assert_str(struct meter_str actual, const char *expected)
{
    if (actual.size != strlen(expected) ||
        memcmp(actual.data, expected, actual.size) != 0) {
        fail_msg("\"%.*s\" is not \"%s\"", (int)actual.size, actual.data,
                 expected);
    }
}

static void
assert_refused(struct fixture *f, const char *attributes, const char *fragment)
{
    assert_false(project(f, "up", attributes, 1));
    if (strstr(f->error, fragment) == NULL) {
        fail_msg("%s: %s", attributes, f->error);
    }
}

static void
project__plain_event__changes_rows_in_order_of_the_rules(void **state)
{
    struct fixture *f = *state;

    assert_true(project(f, "up", "{\"zone\":\"z\",\"size\":7}", 1));
    assert_int_equal(f->count, 2); /* the one with transitions is not here */
    assert_str(f->changes[0].counter->name, "open");
    assert_true(f->changes[0].delta == 1);
    assert_str(f->changes[0].dimensions, "{\"account.id\":null,\"zone\":\"z\"}");
    assert_str(f->changes[1].counter->name, "bytes");
    assert_true(f->changes[1].delta == 7);
    assert_str(f->changes[1].dimensions, "{}");
    assert_true(project(f, "down", "{\"zone\":\"z\",\"size\":7}", 1));
    assert_true(f->changes[0].delta == -1);
    assert_true(f->changes[1].delta == -7);
    assert_true(project(f, "idle", "{}", 1));
    assert_int_equal(f->count, 0);
}

static void
project__deltas__are_multiplied_by_count(void **state)
{
    struct fixture *f = *state;

    assert_true(project(f, "down", "{\"size\":7}", 1000));
    assert_true(f->changes[0].delta == -1000);
    assert_true(f->changes[1].delta == -7000);
    assert_true(project(f, "up", "{\"size\":9223372036854775807}", 1));
    assert_true(f->changes[1].delta == INT64_MAX);
    assert_true(project(f, "down", "{\"size\":9223372036854775807}", 1));
    assert_true(f->changes[1].delta == -INT64_MAX);
    assert_false(project(f, "down", "{\"size\":9223372036854775807}", 2));
    assert_non_null(strstr(f->error, "amount for counter \"bytes\""));
}

static void
project__amount__is_a_non_negative_integer_by_value(void **state)
{
    static const struct {
        const char *attributes;
        int64_t delta;
    } good[] = {
        {"{}", 0},
        {"{\"size\":null}", 0},
        {"{\"size\":0}", 0},
        {"{\"size\":-0}", 0},
        {"{\"size\":5.0}", 5},
        {"{\"size\":1.5e3}", 1500},
        {"{\"size\":9223372036854775807.000000000}", INT64_MAX},
    };
    static const char *const bad[] = {
        "{\"size\":-1}",   "{\"size\":1.5}",
        "{\"size\":\"5\"}", "{\"size\":true}",
        "{\"size\":[]}",   "{\"size\":{}}",
        "{\"size\":1e19}", "{\"size\":9223372036854775808}",
        "{\"size\":1e-9}", "{\"size\":1e-300}",
        "{\"size\":1e300}", "{\"size\":\"\"}",
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(project(f, "up", good[i].attributes, 1));
        assert_true(f->changes[1].delta == good[i].delta);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_refused(f, bad[i],
                       "attribute \"size\" is not a non-negative 64-bit");
    }
}

static void
project__dimension_kinds__are_typed(void **state)
{
    static const char *const different[][2] = {
        {"{\"zone\":1}", "{\"account.id\":null,\"zone\":1}"},
        {"{\"zone\":\"1\"}", "{\"account.id\":null,\"zone\":\"1\"}"},
        {"{\"zone\":true}", "{\"account.id\":null,\"zone\":true}"},
        {"{\"zone\":\"true\"}", "{\"account.id\":null,\"zone\":\"true\"}"},
        {"{\"zone\":null}", "{\"account.id\":null,\"zone\":null}"},
        {"{\"zone\":\"null\"}", "{\"account.id\":null,\"zone\":\"null\"}"},
        {"{\"zone\":\"\"}", "{\"account.id\":null,\"zone\":\"\"}"},
        {"{\"zone\":1.5}", "{\"account.id\":null,\"zone\":1.5}"},
        {"{\"account.id\":1}", "{\"account.id\":1,\"zone\":null}"},
        {"{\"zone\":\"\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\"}",
         "{\"account.id\":null,"
         "\"zone\":\"\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\"}"},
    };
    enum { KINDS = sizeof(different) / sizeof(different[0]) };
    uint8_t keys[KINDS][METER_DIGEST_SIZE];
    struct fixture *f = *state;

    for (size_t i = 0; i < KINDS; i++) {
        assert_true(project(f, "up", different[i][0], 1));
        assert_str(f->changes[0].dimensions, different[i][1]);
        memcpy(keys[i], f->changes[0].dimension_key, METER_DIGEST_SIZE);
        for (size_t j = 0; j < i; j++) {
            assert_memory_not_equal(keys[i], keys[j], METER_DIGEST_SIZE);
        }
    }
}

static void
project__same_dimensions_in_other_words__are_one_row(void **state)
{
    static const char *const same[][2] = {
        {"{\"zone\":1}", "{\"zone\":1.0}"},
        {"{\"zone\":100}", "{\"zone\":1e2}"},
        {"{\"zone\":0}", "{\"zone\":-0.00}"},
        {"{\"zone\":null}", "{\"other\":1}"},
        {"{\"zone\":\"a\",\"account.id\":2}",
         "{\"account\":{\"id\":2.0},\"zone\":\"\\u0061\"}"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        uint8_t key[METER_DIGEST_SIZE];
        struct meter_str dimensions;

        assert_true(project(f, "up", same[i][0], 1));
        memcpy(key, f->changes[0].dimension_key, sizeof(key));
        dimensions = f->changes[0].dimensions;
        assert_true(project(f, "up", same[i][1], 1));
        assert_memory_equal(key, f->changes[0].dimension_key, sizeof(key));
        assert_true(
            meter_str_equal(dimensions, f->changes[0].dimensions));
    }
}

static void
project__what_cannot_be_a_dimension__rejects_the_event(void **state)
{
    struct fixture *f = *state;
    char text[2048];

    assert_refused(f, "{\"zone\":{}}",
                   "attribute \"zone\" is an object: it cannot be a "
                   "dimension of counter \"open\"");
    assert_refused(f, "{\"zone\":[1]}", "is an array");
    assert_refused(f, "{\"account.id\":[]}", "\"account.id\" is an array");
    snprintf(text, sizeof(text), "{\"zone\":\"%01024d\"}", 1);
    assert_true(project(f, "up", text, 1));
    snprintf(text, sizeof(text), "{\"zone\":\"%01025d\"}", 1);
    assert_refused(f, text, "is longer than 1024 bytes");
}

static void
project__no_memory__is_a_reason(void **state)
{
    struct fixture *f = *state;
    const struct event_type *row;
    size_t failed = 0;

    assert_true(project(f, "up", "{\"zone\":\"z\"}", 1));
    row = catalog_event_type(f->config->catalog, METER_STR("up"));
    for (size_t room = 16; room < 2048; room += 16) {
        struct arena small;

        arena_init(&small, 16, room);
        f->error = NULL;
        if (!counter_project(row, &f->event, &f->attributes, &small,
                             &f->changes, &f->count, &f->error)) {
            assert_non_null(f->error);
            failed++;
        }
        arena_fini(&small);
    }
    assert_true(failed > 0 && failed < 127);
}

static void
attribute_find__exact_key__then_the_path(void **state)
{
    static const struct meter_str segments[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    static const struct attribute_path path = {{"a.b.c", 5}, segments, 3};
    static const struct attribute_path plain = {{"a", 1}, segments, 1};
    static const struct {
        const char *attributes;
        const char *found;
    } table[] = {
        {"{\"a.b.c\":1,\"a\":{\"b\":{\"c\":2}}}", "1"},
        {"{\"a\":{\"b\":{\"c\":2}}}", "2"},
        {"{\"a\":{\"b.c\":2}}", NULL},
        {"{\"a.b\":{\"c\":2}}", NULL},
        {"{\"a\":{\"b\":[{\"c\":2}]}}", NULL},
        {"{\"a\":{\"b\":3}}", NULL},
        {"{\"a\":\"b\"}", NULL},
        {"{}", NULL},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct json_value *value;

        assert_true(project(f, "idle", table[i].attributes, 1));
        value = attribute_find(&f->attributes, &path);
        if (table[i].found == NULL) {
            assert_null(value);
        } else {
            assert_str(value->text, table[i].found);
        }
    }
    assert_true(project(f, "idle", "{\"a\":4}", 1));
    assert_str(attribute_find(&f->attributes, &plain)->text, "4");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(fold__a_million_random_batches__equals_one_by_one),
    cmocka_unit_test(fold__what_the_statement_computes__equals_one_by_one),
    cmocka_unit_test(fold__refused__only_where_64_bits_end),
    cmocka_unit_test(merge__any_split__equals_the_whole),
    cmocka_unit_test(merge__three_parts__is_associative),
    cmocka_unit_test(fold__down_then_up_on_zero__is_one_not_zero),
    cmocka_unit_test(fold__identity__changes_nothing),
    cmocka_unit_test(apply__at_the_ends_of_64_bits__refuses_what_leaves_them),
    cmocka_unit_test(fold__overflow_on_the_way_that_comes_back__is_seen),
    TEST(project__plain_event__changes_rows_in_order_of_the_rules),
    TEST(project__deltas__are_multiplied_by_count),
    TEST(project__amount__is_a_non_negative_integer_by_value),
    TEST(project__dimension_kinds__are_typed),
    TEST(project__same_dimensions_in_other_words__are_one_row),
    TEST(project__what_cannot_be_a_dimension__rejects_the_event),
    TEST(project__no_memory__is_a_reason),
    TEST(attribute_find__exact_key__then_the_path),
};

RUN_TAP(tests)
