/*
 * test_bucket_batch.c - operations decided together: which buckets and keys
 * there are, who gets which answer, what is written.
 */

#include "json_fixture.h"

#include <time.h>

#include "buckets/bucket_batch.h"
#include "meter_random.h"

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))
#define NOW         INT64_C(1000)
#define MOST        INT64_MAX

/* An operation as a test writes it. */
struct line {
    const char *tenant;
    const char *name;
    enum bucket_kind kind;
    int64_t amount;
    const char *key; /* NULL: none */
    uint8_t digest;  /* its first byte */
    int64_t duration_s;
    int64_t start_us;
};

static struct operation *operations[BUCKET_BATCH_MAX];
static size_t operation_count;

static void
push(const struct line *line)
{
    struct operation_request request = {
        .key = {str_of(line->tenant), str_of(line->name), line->duration_s,
                line->start_us},
        .write = {line->kind, line->amount, BUCKET_NEVER},
        .digest = {line->digest},
    };

    if (line->key != NULL) {
        request.idempotency_key = str_of(line->key);
    }
    operations[operation_count] = operation_create(&request, NULL, NULL);
    assert_non_null(operations[operation_count]);
    operation_count++;
}


static void
make(struct bucket_batch *batch, const struct line *lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        push(&lines[i]);
    }
    assert_true(bucket_batch_make(batch, operations, operation_count, &arena));
}


static int
free_all(void **state)
{
    for (size_t i = 0; i < operation_count; i++) {
        operation_free(operations[i]);
    }
    operation_count = 0;
    return teardown(state);
}


static void
assert_applied(size_t index, int64_t added, int64_t subbed)
{
    const struct operation_result *result = &operations[index]->result;

    if (result->end != OPERATION_DECIDED || result->outcome != BUCKET_APPLIED ||
        result->added != added || result->subbed != subbed) {
        fail_msg("operation %zu: end %d, outcome %d, %lld - %lld", index,
                 result->end, result->outcome, (long long)result->added,
                 (long long)result->subbed);
    }
}


static void
assert_refused(size_t index, enum bucket_outcome outcome)
{
    const struct operation_result *result = &operations[index]->result;

    assert_int_equal(result->end, OPERATION_DECIDED);
    assert_int_equal(result->outcome, outcome);
    assert_true(result->added == 0 && result->subbed == 0);
}


static void
assert_bucket(const struct batch_bucket *bucket, bool is_changed, int64_t added,
              int64_t subbed)
{
    assert_int_equal(bucket->is_changed, is_changed);
    assert_true(bucket->now.added == added);
    assert_true(bucket->now.subbed == subbed);
}


/* ---- making ---------------------------------------------------------- */

static void
make__buckets__once_each_in_locking_order(void **state)
{
    static const struct line lines[] = {
        {"b", "a", BUCKET_INCREMENT, 1, NULL, 0, 60, 0},
        {"a", "z", BUCKET_INCREMENT, 1, NULL, 0, 60, 60},
        {"a", "z", BUCKET_INCREMENT, 1, NULL, 0, 0, 0},
        {"b", "a", BUCKET_DECREMENT, 1, NULL, 0, 60, 0},
        {"a", "z", BUCKET_INCREMENT, 1, NULL, 0, 60, -60},
        {"a", "za", BUCKET_INCREMENT, 1, NULL, 0, 0, 0},
        {"a", "z", BUCKET_SET, 1, NULL, 0, 60, 60},
        {"\xc3\xa9", "A", BUCKET_INCREMENT, 1, NULL, 0, 0, 0},
    };
    static const uint32_t bucket_of[] = {4, 2, 0, 4, 1, 3, 2, 5};
    static const size_t first[] = {2, 4, 1, 5, 0, 7};
    struct bucket_batch batch;

    (void)state;
    make(&batch, lines, COUNT(lines));
    assert_int_equal(batch.count, COUNT(lines));
    assert_int_equal(batch.bucket_count, COUNT(first));
    assert_memory_equal(batch.bucket_of, bucket_of, sizeof(bucket_of));
    for (size_t i = 0; i < COUNT(first); i++) {
        assert_memory_equal(&batch.buckets[i].key,
                            &operations[first[i]]->request.key,
                            sizeof(batch.buckets[i].key));
        assert_false(batch.buckets[i].found.exists);
        assert_true(batch.buckets[i].found.expires_us == BUCKET_NEVER);
    }
    assert_int_equal(batch.key_count, 0);
    for (size_t i = 0; i < COUNT(lines); i++) {
        assert_ptr_equal(batch.operations[i], operations[i]);
        assert_int_equal(batch.key_of[i], BUCKET_BATCH_NO_KEY);
    }
}


static void
make__keys__once_each_by_tenant(void **state)
{
    static const struct line lines[] = {
        {"b", "n", BUCKET_INCREMENT, 1, "a"},
        {"a", "n", BUCKET_INCREMENT, 1, "z"},
        {"a", "n", BUCKET_INCREMENT, 1, NULL},
        {"a", "m", BUCKET_INCREMENT, 1, "z"},
        {"b", "n", BUCKET_INCREMENT, 1, "z"},
        {"a", "n", BUCKET_INCREMENT, 1, "B"},
        {"a", "n", BUCKET_INCREMENT, 1, "zz"},
    };
    static const uint32_t key_of[] = {3, 1, BUCKET_BATCH_NO_KEY, 1, 4, 0, 2};
    static const char *const keys[] = {"B", "z", "zz", "a", "z"};
    struct bucket_batch batch;

    (void)state;
    make(&batch, lines, COUNT(lines));
    assert_memory_equal(batch.key_of, key_of, sizeof(key_of));
    assert_int_equal(batch.key_count, COUNT(keys));
    for (size_t i = 0; i < COUNT(keys); i++) {
        assert_str(batch.keys[i].key, keys[i]);
        assert_str(batch.keys[i].tenant, i < 3 ? "a" : "b");
        assert_false(batch.keys[i].is_known);
    }
}


static void
make__none__nothing_to_decide(void **state)
{
    struct bucket_batch batch;

    (void)state;
    assert_true(bucket_batch_make(&batch, NULL, 0, &arena));
    assert_int_equal(batch.bucket_count, 0);
    assert_int_equal(batch.key_count, 0);
    bucket_batch_decide(&batch, NOW);
}


/* With any amount of memory it works or says that there is none. */
static void
make__memory_full__false(void **state)
{
    struct bucket_batch batch;
    size_t failures = 0;

    (void)state;
    for (int i = 0; i < 20; i++) {
        char name[] = {(char)('a' + i), 0};
        struct line line = {"t", name, BUCKET_INCREMENT, 1, name};

        push(&line);
    }
    for (size_t most = 16; most < 8192; most += 16) {
        struct arena small;

        arena_init(&small, 16, most);
        if (!bucket_batch_make(&batch, operations, operation_count, &small)) {
            failures++;
        } else {
            bucket_batch_decide(&batch, NOW);
            assert_applied(19, 1, 0);
        }
        arena_fini(&small);
    }
    assert_true(failures > 100 && failures < 500);
}


/* ---- deciding -------------------------------------------------------- */

static void
decide__one_bucket__each_on_what_the_one_before_left(void **state)
{
    static const struct line lines[] = {
        {"t", "n", BUCKET_INCREMENT, 5},
        {"t", "n", BUCKET_DECREMENT, 10}, /* not hidden by the next one */
        {"t", "n", BUCKET_INCREMENT, 6},
        {"t", "n", BUCKET_DECREMENT, 10},
        {"t", "n", BUCKET_INCREMENT, MOST}, /* alone */
        {"t", "n", BUCKET_SET, 4},
        {"t", "n", BUCKET_DECREMENT, 5},
        {"t", "n", BUCKET_SET, 0},
        {"t", "n", BUCKET_INCREMENT, MOST - 14},
        {"t", "n", BUCKET_SET, MOST}, /* added would leave its bits */
        {"t", "n", BUCKET_INCREMENT, 1},
    };
    struct bucket_batch batch;

    (void)state;
    make(&batch, lines, COUNT(lines));
    bucket_batch_decide(&batch, NOW);
    assert_applied(0, 5, 0);
    assert_refused(1, BUCKET_NEGATIVE);
    assert_applied(2, 11, 0);
    assert_applied(3, 11, 10);
    assert_refused(4, BUCKET_OVERFLOW);
    assert_applied(5, 14, 10);
    assert_refused(6, BUCKET_NEGATIVE);
    assert_applied(7, 14, 14);
    assert_applied(8, MOST, 14);
    assert_refused(9, BUCKET_OVERFLOW);
    assert_refused(10, BUCKET_OVERFLOW);
    assert_int_equal(batch.bucket_count, 1);
    assert_bucket(&batch.buckets[0], true, MOST, 14);
    assert_true(batch.buckets[0].now.exists);
}


static void
decide__nothing_applied__nothing_written(void **state)
{
    static const struct line lines[] = {
        {"t", "a", BUCKET_DECREMENT, 1},
        {"t", "b", BUCKET_INCREMENT, 1},
        {"t", "c", BUCKET_SET, 3},
        {"t", "d", BUCKET_SET, 0},
    };
    struct bucket_batch batch;

    (void)state;
    make(&batch, lines, COUNT(lines));
    batch.buckets[1].found = (struct bucket){true, MOST, 5, BUCKET_NEVER};
    batch.buckets[2].found = (struct bucket){true, 5, 2, NOW + 1};
    bucket_batch_decide(&batch, NOW);
    assert_refused(0, BUCKET_NEGATIVE);
    assert_refused(1, BUCKET_OVERFLOW);
    assert_applied(2, 5, 2);
    assert_applied(3, 0, 0);
    assert_bucket(&batch.buckets[0], false, 0, 0);
    assert_false(batch.buckets[0].now.exists);
    assert_bucket(&batch.buckets[1], false, MOST, 5);
    assert_bucket(&batch.buckets[2], false, 5, 2);
    /* 0 is a value: the bucket is there from now on. */
    assert_bucket(&batch.buckets[3], true, 0, 0);
    assert_true(batch.buckets[3].now.exists);
}


static void
decide__end_alone_moves__is_written(void **state)
{
    static const struct line line = {"t", "a", BUCKET_SET, 3};
    struct bucket_batch batch;

    (void)state;
    make(&batch, &line, 1);
    operations[0]->request.write.expires_us = NOW + 5;
    batch.buckets[0].found = (struct bucket){true, 3, 0, NOW + 1};
    bucket_batch_decide(&batch, NOW);
    assert_applied(0, 3, 0);
    assert_bucket(&batch.buckets[0], true, 3, 0);
    assert_true(batch.buckets[0].now.expires_us == NOW + 5);
}


static void
decide__same_key_twice__the_first_answer(void **state)
{
    static const struct line lines[] = {
        {"t", "n", BUCKET_INCREMENT, 5, "k", 1},
        {"t", "n", BUCKET_INCREMENT, 1},
        {"t", "n", BUCKET_INCREMENT, 5, "k", 1},
        {"t", "m", BUCKET_INCREMENT, 5, "k", 2}, /* another request */
        {"t", "n", BUCKET_INCREMENT, 5, "k", 1},
        {"u", "n", BUCKET_INCREMENT, 5, "k", 2}, /* another tenant's */
        {"t", "p", BUCKET_DECREMENT, 1, "l", 3},
        {"t", "p", BUCKET_INCREMENT, 9},
        {"t", "p", BUCKET_DECREMENT, 1, "l", 3}, /* fails for ever */
        {"t", "p", BUCKET_INCREMENT, 1, "l", 4},
    };
    struct bucket_batch batch;

    (void)state;
    make(&batch, lines, COUNT(lines));
    bucket_batch_decide(&batch, NOW);
    assert_applied(0, 5, 0);
    assert_applied(1, 6, 0);
    assert_applied(2, 5, 0);
    assert_int_equal(operations[3]->result.end, OPERATION_KEY_TAKEN);
    assert_applied(4, 5, 0);
    assert_applied(5, 5, 0);
    assert_refused(6, BUCKET_NEGATIVE);
    assert_applied(7, 9, 0);
    assert_refused(8, BUCKET_NEGATIVE);
    assert_int_equal(operations[9]->result.end, OPERATION_KEY_TAKEN);

    assert_bucket(&batch.buckets[0], false, 0, 0); /* t, m */
    assert_bucket(&batch.buckets[1], true, 6, 0);  /* t, n */
    assert_bucket(&batch.buckets[2], true, 9, 0);  /* t, p */
    assert_bucket(&batch.buckets[3], true, 5, 0);  /* u, n */
    assert_int_equal(batch.key_count, 3);
    for (size_t i = 0; i < 3; i++) {
        static const uint8_t digests[] = {1, 3, 2};

        assert_true(batch.keys[i].is_fresh);
        assert_int_equal(batch.keys[i].digest[0], digests[i]);
    }
    assert_int_equal(batch.keys[0].result.added, 5);
    assert_int_equal(batch.keys[1].result.outcome, BUCKET_NEGATIVE);
}


static void
decide__known_key__bucket_untouched(void **state)
{
    static const struct line lines[] = {
        {"t", "n", BUCKET_INCREMENT, 5, "k", 1},
        {"t", "n", BUCKET_INCREMENT, 6, "k", 2},
        {"t", "n", BUCKET_INCREMENT, 5, "l", 3},
    };
    struct bucket_batch batch;

    (void)state;
    make(&batch, lines, COUNT(lines));
    batch.buckets[0].found = (struct bucket){true, 70, 7, BUCKET_NEVER};
    batch.keys[0].is_known = true;
    batch.keys[0].digest[0] = 1;
    batch.keys[0].result =
        (struct operation_result){OPERATION_DECIDED, BUCKET_APPLIED, 33, 3};
    batch.keys[1].is_known = true;
    batch.keys[1].digest[0] = 3;
    batch.keys[1].result =
        (struct operation_result){OPERATION_DECIDED, BUCKET_OVERFLOW, 0, 0};
    bucket_batch_decide(&batch, NOW);
    assert_applied(0, 33, 3);
    assert_int_equal(operations[1]->result.end, OPERATION_KEY_TAKEN);
    assert_refused(2, BUCKET_OVERFLOW);
    assert_bucket(&batch.buckets[0], false, 70, 7);
    assert_false(batch.keys[0].is_fresh);
    assert_false(batch.keys[1].is_fresh);
    assert_int_equal(batch.keys[0].digest[0], 1);
}


static void
decide__again__nothing_is_left_of_the_first_time(void **state)
{
    static const struct line lines[] = {
        {"t", "n", BUCKET_INCREMENT, 5, "k", 1},
        {"t", "n", BUCKET_DECREMENT, 6, "l", 2},
        {"t", "n", BUCKET_INCREMENT, 1},
    };
    struct bucket_batch batch;

    (void)state;
    make(&batch, lines, COUNT(lines));
    bucket_batch_decide(&batch, NOW);
    assert_applied(0, 5, 0);
    assert_refused(1, BUCKET_NEGATIVE);
    assert_applied(2, 6, 0);

    /* Someone else has made the bucket and used a key meanwhile. */
    bucket_batch_forget(&batch);
    batch.buckets[0].found = (struct bucket){true, 10, 0, BUCKET_NEVER};
    batch.keys[0].is_known = true;
    batch.keys[0].digest[0] = 9;
    bucket_batch_decide(&batch, NOW);
    assert_int_equal(operations[0]->result.end, OPERATION_KEY_TAKEN);
    assert_applied(1, 10, 6);
    assert_applied(2, 11, 6);
    assert_false(batch.keys[0].is_fresh);
    assert_true(batch.keys[1].is_fresh);
    assert_true(batch.keys[1].result.outcome == BUCKET_APPLIED);

    bucket_batch_forget(&batch);
    bucket_batch_decide(&batch, NOW);
    assert_applied(0, 5, 0);
    assert_refused(1, BUCKET_NEGATIVE);
    assert_bucket(&batch.buckets[0], true, 6, 0);
    assert_true(batch.keys[0].is_fresh);
}


/* ---- speed ----------------------------------------------------------- */

/* The loop waits while a batch is made: not longer than for a round trip. */
static void
batch__5000_operations__take_no_time(void **state)
{
    int64_t best_ns = INT64_MAX;
    struct meter_random random = {3};

    (void)state;
    for (size_t i = 0; i < BUCKET_BATCH_MAX; i++) {
        char name[40];
        char key[40];
        struct line line = {"5f2b6c0e-52a1-4c55-9a3e-0b7b4f6a9d21", name,
                            BUCKET_INCREMENT, 1, key};

        snprintf(name, sizeof(name), "page_views.user-%llu",
                 (unsigned long long)random_below(&random, 100000));
        snprintf(key, sizeof(key), "%016llx",
                 (unsigned long long)random_u64(&random));
        push(&line);
    }
    for (int round = 0; round < 20; round++) {
        struct bucket_batch batch;
        struct timespec from, to;
        int64_t took_ns;

        arena_reset(&arena);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        assert_true(
            bucket_batch_make(&batch, operations, operation_count, &arena));
        bucket_batch_decide(&batch, NOW);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        took_ns = (to.tv_sec - from.tv_sec) * INT64_C(1000000000) +
                  (to.tv_nsec - from.tv_nsec);
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    print_message("# 5000 operations: %lld us\n", (long long)best_ns / 1000);
#ifndef __SANITIZE_ADDRESS__
    assert_true(best_ns < 4000000);
#endif
}


#define BATCH_TEST(name) cmocka_unit_test_setup_teardown(name, setup, free_all)

static const struct CMUnitTest tests[] = {
    BATCH_TEST(make__buckets__once_each_in_locking_order),
    BATCH_TEST(make__keys__once_each_by_tenant),
    BATCH_TEST(make__none__nothing_to_decide),
    BATCH_TEST(make__memory_full__false),
    BATCH_TEST(decide__one_bucket__each_on_what_the_one_before_left),
    BATCH_TEST(decide__nothing_applied__nothing_written),
    BATCH_TEST(decide__end_alone_moves__is_written),
    BATCH_TEST(decide__same_key_twice__the_first_answer),
    BATCH_TEST(decide__known_key__bucket_untouched),
    BATCH_TEST(decide__again__nothing_is_left_of_the_first_time),
    BATCH_TEST(batch__5000_operations__take_no_time),
};

RUN_TAP(tests)
