/*
 * Folding the steps of one counter row against applying them one by one.
 */

#include "meter_cmocka.h"

#include "meter_random.h"
#include "project/counter.h"

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
        if (!counter_fold_step(fold, steps[i].delta, steps[i].floor_at_zero)) {
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
        assert_true(
            counter_fold_step(&fold, table[i].delta, table[i].floor_at_zero));
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
};

RUN_TAP(tests)
