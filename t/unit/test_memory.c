/* Small allocations that cannot fail, and arrays that grow. */

#include "meter_cmocka.h"

#include "base/memory.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct pair {
    int64_t key;
    const char *text;
};


static void
alloc__any_size__zeroed(void **state)
{
    const size_t sizes[] = {1, 7, 4096, 1u << 20};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char *bytes = memory_alloc(sizes[i]);

        for (size_t j = 0; j < sizes[i]; j++) {
            assert_int_equal(bytes[j], 0);
        }
        free(bytes);
    }
}

static void
array__no_items__still_memory(void **state)
{
    struct pair *none = memory_array(0, sizeof(*none));
    struct pair *three = memory_array(3, sizeof(*three));

    (void)state;
    assert_non_null(none);
    assert_null(three[2].text);
    assert_int_equal(three[2].key, 0);
    free(none);
    free(three);
}

static void
strdup__text__copied_with_its_end(void **state)
{
    char text[] = "meter";
    char *copy = memory_strdup(text);

    (void)state;
    text[0] = 'M';
    assert_string_equal(copy, "meter");
    free(copy);
    copy = memory_strdup("");
    assert_string_equal(copy, "");
    free(copy);
}

/* A child that asks for more than there is: killed by abort, with a message. */
static void
array__more_than_there_is__ends_the_process(void **state)
{
    int status;
    pid_t child;

    (void)state;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        volatile size_t count = SIZE_MAX / 2;

        setrlimit(RLIMIT_CORE, &none);
        close(STDERR_FILENO);
        memory_array(count, 16);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
#if defined(__SANITIZE_ADDRESS__)
    assert_int_not_equal(status, 0); /* the sanitizer's calloc is first */
#else
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
#endif
}


static void
grow__from_nothing__sixteen_then_doubled(void **state)
{
    size_t room = 0;
    int *items = memory_grow(NULL, &room, 1, sizeof(*items));

    (void)state;
    assert_int_equal(room, 16);
    items[15] = 15;
    items = memory_grow(items, &room, 17, sizeof(*items));
    assert_int_equal(room, 32);
    assert_int_equal(items[15], 15);
    items = memory_grow(items, &room, 33, sizeof(*items));
    assert_int_equal(room, 64);
    assert_int_equal(items[15], 15);
    free(items);
}

static void
grow__want_above_the_double__exactly_that(void **state)
{
    size_t room = 0;
    int *items = memory_grow(NULL, &room, 1000, sizeof(*items));

    (void)state;
    assert_int_equal(room, 1000);
    items[999] = 999;
    items = memory_grow(items, &room, 5000, sizeof(*items));
    assert_int_equal(room, 5000);
    assert_int_equal(items[999], 999);
    free(items);
}


static void
vec_push__thousands__kept_in_order(void **state)
{
    VEC(struct pair) pairs = {0};
    size_t moves = 0;

    (void)state;
    for (int64_t i = 0; i < 10000; i++) {
        size_t room = pairs.room;

        vec_push(&pairs, ((struct pair){i, "x"}));
        moves += pairs.room != room;
        assert_true(pairs.count <= pairs.room);
    }
    assert_int_equal(pairs.count, 10000);
    assert_int_equal(moves, 11); /* 16, 32, ... 16384 */
    for (int64_t i = 0; i < 10000; i++) {
        assert_int_equal(pairs.items[i].key, i);
        assert_string_equal(pairs.items[i].text, "x");
    }
    vec_fini(&pairs);
    assert_null(pairs.items);
    assert_int_equal(pairs.count, 0);
    assert_int_equal(pairs.room, 0);
}

static void
vec_add__pointer__to_the_item_that_was_counted(void **state)
{
    VEC(int) numbers = {0};
    int *first = vec_add(&numbers);

    (void)state;
    *first = 7;
    assert_int_equal(numbers.count, 1);
    assert_ptr_equal(first, &numbers.items[0]);
    *vec_add(&numbers) = 8;
    assert_int_equal(numbers.items[0], 7);
    assert_int_equal(numbers.items[1], 8);
    vec_fini(&numbers);
}

static void
vec_reserve__room_is_there__nothing_moves(void **state)
{
    VEC(int) numbers = {0};
    int *items;

    (void)state;
    vec_reserve(&numbers, 100);
    assert_int_equal(numbers.room, 100);
    assert_int_equal(numbers.count, 0);
    items = numbers.items;
    for (int i = 0; i < 100; i++) {
        vec_push(&numbers, i);
    }
    assert_ptr_equal(numbers.items, items);
    assert_int_equal(numbers.room, 100);
    vec_push(&numbers, 100);
    assert_int_equal(numbers.room, 200);
    assert_int_equal(numbers.items[100], 100);
    vec_fini(&numbers);
}

static void
vec_clear__items__forgotten_memory_kept(void **state)
{
    VEC(int) numbers = {0};

    (void)state;
    vec_push(&numbers, 1);
    vec_push(&numbers, 2);
    vec_clear(&numbers);
    assert_int_equal(numbers.count, 0);
    assert_int_equal(numbers.room, 16);
    vec_push(&numbers, 3);
    assert_int_equal(numbers.items[0], 3);
    vec_fini(&numbers);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(alloc__any_size__zeroed),
    cmocka_unit_test(array__no_items__still_memory),
    cmocka_unit_test(strdup__text__copied_with_its_end),
    cmocka_unit_test(array__more_than_there_is__ends_the_process),
    cmocka_unit_test(grow__from_nothing__sixteen_then_doubled),
    cmocka_unit_test(grow__want_above_the_double__exactly_that),
    cmocka_unit_test(vec_push__thousands__kept_in_order),
    cmocka_unit_test(vec_add__pointer__to_the_item_that_was_counted),
    cmocka_unit_test(vec_reserve__room_is_there__nothing_moves),
    cmocka_unit_test(vec_clear__items__forgotten_memory_kept),
};

RUN_TAP(tests)
