#include "meter_cmocka.h"

#include "base/map.h"
#include "meter_random.h"

#define KEYS 400

static void
map__empty__has_nothing(void **state)
{
    struct map map;
    size_t cursor = 0;

    (void)state;
    map_init(&map, 10);
    assert_null(map_find(&map, METER_STR("a")));
    assert_null(map_remove(&map, METER_STR("a")));
    assert_null(map_next(&map, &cursor));
    map_clear(&map);
    map_fini(&map);
}

static void
add__same_key__returns_the_older_value(void **state)
{
    int first, second;
    struct map map;

    (void)state;
    map_init(&map, 10);
    assert_ptr_equal(map_add(&map, METER_STR("a"), &first), &first);
    assert_ptr_equal(map_add(&map, METER_STR("a"), &second), &first);
    assert_ptr_equal(map_find(&map, METER_STR("a")), &first);
    assert_int_equal(map.count, 1);
    map_fini(&map);
}

static void
find__keys_with_a_common_part__are_told_apart(void **state)
{
    static const struct meter_str keys[] = {{"", 0},     {"a", 1},  {"a\0", 2},
                                            {"a\0b", 3}, {"ab", 2}, {"A", 1}};
    enum { COUNT = sizeof(keys) / sizeof(keys[0]) };
    struct map map;
    int values[COUNT];

    (void)state;
    map_init(&map, 10);
    for (size_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(map_add(&map, keys[i], &values[i]), &values[i]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_ptr_equal(map_find(&map, keys[i]), &values[i]);
    }
    assert_null(map_find(&map, METER_STR("a\0c")));
    map_fini(&map);
}

static void
add__full__refuses_new_keys_only(void **state)
{
    char names[3] = "abc";
    struct map map;

    (void)state;
    map_init(&map, 2);
    for (int i = 0; i < 2; i++) {
        assert_non_null(
            map_add(&map, (struct meter_str){&names[i], 1}, &names[i]));
    }
    assert_null(map_add(&map, METER_STR("c"), &names[2]));
    assert_ptr_equal(map_add(&map, METER_STR("a"), &names[2]), &names[0]);
    assert_ptr_equal(map_remove(&map, METER_STR("a")), &names[0]);
    assert_non_null(map_add(&map, METER_STR("c"), &names[2]));
    map_fini(&map);
}

/* Clusters, wraps and holes: everything a probe can meet. */
static void
map__random_adds_and_removes__as_a_plain_array(void **state)
{
    static char names[KEYS][8];
    static bool there[KEYS];
    struct meter_random random = {4};
    struct map map;
    size_t count = 0;

    (void)state;
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof(names[i]), "k%zu", i);
        there[i] = false;
    }
    map_init(&map, KEYS);
    for (int turn = 0; turn < 100000; turn++) {
        /* Runs of adding and of removing, so that it fills and empties. */
        bool add = random_below(&random, 10) < (turn / 2000 % 2 ? 3u : 7u);
        size_t i = random_below(&random, KEYS);
        struct meter_str key = str_of(names[i]);

        if (add) {
            assert_ptr_equal(map_add(&map, key, names[i]), names[i]);
            count += !there[i];
            there[i] = true;
        } else {
            assert_ptr_equal(map_remove(&map, key), there[i] ? names[i] : NULL);
            count -= there[i];
            there[i] = false;
        }
        assert_int_equal(map.count, count);
        if (turn % 500 == 0) {
            size_t cursor = 0, seen = 0;
            char *value;

            for (i = 0; i < KEYS; i++) {
                assert_ptr_equal(map_find(&map, str_of(names[i])),
                                 there[i] ? names[i] : NULL);
            }
            while ((value = map_next(&map, &cursor)) != NULL) {
                assert_true(there[(value - names[0]) / sizeof(names[0])]);
                seen++;
            }
            assert_int_equal(seen, count);
        }
    }
    map_clear(&map);
    assert_int_equal(map.count, 0);
    for (size_t i = 0; i < KEYS; i++) {
        assert_null(map_find(&map, str_of(names[i])));
    }
    map_fini(&map);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(map__empty__has_nothing),
    cmocka_unit_test(add__same_key__returns_the_older_value),
    cmocka_unit_test(find__keys_with_a_common_part__are_told_apart),
    cmocka_unit_test(add__full__refuses_new_keys_only),
    cmocka_unit_test(map__random_adds_and_removes__as_a_plain_array),
};

RUN_TAP(tests)
