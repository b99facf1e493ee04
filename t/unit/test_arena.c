#include "meter_cmocka.h"

#include "base/arena.h"
#include "meter_random.h"

static void
alloc__any_size__is_aligned_and_apart(void **state)
{
    struct meter_random random = {1};
    struct arena arena;
    unsigned char *places[200];
    size_t sizes[200];

    (void)state;
    arena_init(&arena, 256, 1 << 20);
    for (int i = 0; i < 200; i++) {
        sizes[i] = random_below(&random, i % 10 == 0 ? 2000 : 60);
        places[i] = arena_alloc(&arena, sizes[i]);
        assert_non_null(places[i]);
        assert_int_equal((uintptr_t)places[i] % 16, 0);
        memset(places[i], i, sizes[i]);
    }
    for (int i = 0; i < 200; i++) {
        for (size_t at = 0; at < sizes[i]; at++) {
            assert_int_equal(places[i][at], i);
        }
    }
    arena_fini(&arena);
}

static void
alloc__past_the_maximum__is_null(void **state)
{
    struct arena arena;

    (void)state;
    arena_init(&arena, 64, 256);
    assert_null(arena_alloc(&arena, 257));
    assert_null(arena_alloc(&arena, SIZE_MAX));
    assert_non_null(arena_alloc(&arena, 256));
    assert_null(arena_alloc(&arena, 1));
    arena_fini(&arena);
    assert_int_equal(arena.total, 0);
    assert_non_null(arena_alloc(&arena, 1)); /* fini leaves it usable */
    arena_fini(&arena);
}

/* The last block is smaller when only that much is left. */
static void
alloc__block_larger_than_what_is_left__takes_what_is_left(void **state)
{
    struct arena arena;

    (void)state;
    arena_init(&arena, 1024, 1536);
    assert_non_null(arena_alloc(&arena, 1024));
    assert_non_null(arena_alloc(&arena, 496));
    assert_non_null(arena_alloc(&arena, 16));
    assert_int_equal(arena.total, 1536);
    assert_null(arena_alloc(&arena, 16));
    arena_fini(&arena);
}

static void
alloc__total__never_passes_the_maximum(void **state)
{
    struct meter_random random = {2};

    (void)state;
    for (int turn = 0; turn < 200; turn++) {
        size_t block = 1 + random_below(&random, 512);
        size_t most = block + random_below(&random, 4096);
        struct arena arena;

        arena_init(&arena, block, most);
        for (int i = 0; i < 100; i++) {
            size_t size = random_below(&random, 300);
            unsigned char *place = arena_alloc(&arena, size);

            if (place != NULL) {
                memset(place, 1, size);
            }
            assert_true(arena.total <= most);
        }
        arena_fini(&arena);
    }
}

static void
reset__keeps_one_block__and_starts_anew(void **state)
{
    struct arena arena;
    void *first;

    (void)state;
    arena_init(&arena, 64, 1 << 16);
    arena_reset(&arena); /* nothing there yet */
    for (int i = 0; i < 100; i++) {
        assert_non_null(arena_alloc(&arena, 64));
    }
    assert_int_equal(arena.total, 6400);
    arena_reset(&arena);
    assert_int_equal(arena.total, 64);
    first = arena_alloc(&arena, 64);
    arena_reset(&arena);
    assert_ptr_equal(arena_alloc(&arena, 10), first);
    arena_fini(&arena);
}

static void
zalloc_copy_strdup__give_their_bytes(void **state)
{
    struct arena arena;
    struct meter_str copy;
    unsigned char *zeros;

    (void)state;
    arena_init(&arena, 64, 4096);
    memset(arena_alloc(&arena, 64), 0xff, 64);
    arena_reset(&arena);
    zeros = arena_zalloc(&arena, 40);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(zeros[i], 0);
    }
    assert_true(arena_copy(&arena, METER_STR("a\0b"), &copy));
    assert_int_equal(copy.size, 3);
    assert_memory_equal(copy.data, "a\0b", 4);
    assert_true(arena_copy(&arena, (struct meter_str){NULL, 0}, &copy));
    assert_int_equal(copy.size, 0);
    assert_non_null(copy.data);
    assert_string_equal(arena_strdup(&arena, "text"), "text");
    assert_null(arena_zalloc(&arena, 5000));
    assert_false(arena_copy(&arena, (struct meter_str){"x", 4096}, &copy));
    arena_fini(&arena);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(alloc__any_size__is_aligned_and_apart),
    cmocka_unit_test(alloc__past_the_maximum__is_null),
    cmocka_unit_test(alloc__block_larger_than_what_is_left__takes_what_is_left),
    cmocka_unit_test(alloc__total__never_passes_the_maximum),
    cmocka_unit_test(reset__keeps_one_block__and_starts_anew),
    cmocka_unit_test(zalloc_copy_strdup__give_their_bytes),
};

RUN_TAP(tests)
