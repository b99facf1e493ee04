/*
 * test_bucket_add.c - increments added up: each gets what it would get by
 * itself, and whatever is no plain increment is not added up.
 */

#include "json_fixture.h"

#include "buckets/bucket_batch.h"
#include "meter_random.h"

#define NOW    INT64_C(1000)
#define ROUNDS 2000
#define SIZE   40
#define NAMES  5

static struct operation *operations[SIZE];
static size_t operation_count;

static struct operation *
push(struct operation_request request)
{
    struct operation *operation;

    request.key.tenant = str_of("acme");
    operation = operation_create(&request, NULL, NULL);
    assert_non_null(operation);
    operations[operation_count++] = operation;
    return operation;
}


static struct operation_request
increment(const char *name, int64_t amount)
{
    return (struct operation_request){
        .key = {.name = str_of(name)},
        .write = {BUCKET_INCREMENT, amount, BUCKET_NEVER},
    };
}


static int
free_all(void **state)
{
    while (operation_count > 0) {
        operation_free(operations[--operation_count]);
    }
    return teardown(state);
}


static bool
is_added_up(struct operation_request other)
{
    struct bucket_batch batch;
    bool is_plain;

    push(increment("a", 1));
    push(other);
    assert_true(
        bucket_batch_make(&batch, operations, operation_count, &arena));
    is_plain = bucket_batch_add(&batch);
    while (operation_count > 0) {
        operation_free(operations[--operation_count]);
    }
    return is_plain;
}


static void
make__what_is_no_plain_increment__is_not_added_up(void **state)
{
    struct operation_request other = increment("a", 2);

    (void)state;
    assert_true(is_added_up(other));
    other.write.kind = BUCKET_DECREMENT;
    assert_false(is_added_up(other));
    other.write.kind = BUCKET_SET;
    assert_false(is_added_up(other));
    other = increment("a", 2);
    other.write.expires_us = 5000;
    assert_false(is_added_up(other));
    other = increment("a", 2);
    other.idempotency_key = str_of("k");
    assert_false(is_added_up(other));
    assert_false(is_added_up(increment("a", INT64_MAX)));
    assert_true(is_added_up(increment("a", INT64_MAX - 1)));
    assert_true(is_added_up(increment("b", INT64_MAX)));
}


/* Against bucket_batch_decide, which applies them one by one. */
static void
decide__random_batches__as_one_by_one(void **state)
{
    static const char *const names[NAMES] = {"a", "b", "c", "d", "e"};
    struct meter_random random = {20261117};

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        size_t count = 1 + random_below(&random, SIZE);
        struct operation_result expected[SIZE];
        struct bucket_batch batch;

        for (size_t i = 0; i < count; i++) {
            push(increment(names[random_below(&random, NAMES)],
                           1 + (int64_t)random_below(&random, 1000)));
        }
        assert_true(bucket_batch_make(&batch, operations, count, &arena));
        for (size_t b = 0; b < batch.bucket_count; b++) {
            int64_t subbed = (int64_t)random_below(&random, 1000);

            batch.buckets[b].found = (struct bucket){
                .exists = true,
                .added = subbed + (int64_t)random_below(&random, 1000),
                .subbed = subbed,
                .expires_us = BUCKET_NEVER,
            };
        }
        bucket_batch_decide(&batch, NOW);
        for (size_t i = 0; i < count; i++) {
            expected[i] = operations[i]->result;
            operations[i]->result = (struct operation_result){0};
        }

        assert_true(bucket_batch_add(&batch));
        for (size_t b = 0; b < batch.bucket_count; b++) {
            struct batch_bucket *bucket = &batch.buckets[b];

            assert_int_equal(bucket->now.added,
                             bucket->found.added + bucket->amount);
        }
        bucket_batch_decide_added(&batch);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(operations[i]->result.end, OPERATION_DECIDED);
            assert_int_equal(operations[i]->result.outcome, BUCKET_APPLIED);
            assert_int_equal(operations[i]->result.added, expected[i].added);
            assert_int_equal(operations[i]->result.subbed, expected[i].subbed);
        }
        while (operation_count > 0) {
            operation_free(operations[--operation_count]);
        }
        arena_reset(&arena);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(
        make__what_is_no_plain_increment__is_not_added_up, setup, free_all),
    cmocka_unit_test_setup_teardown(decide__random_batches__as_one_by_one,
                                    setup, free_all),
};

RUN_TAP(tests)
