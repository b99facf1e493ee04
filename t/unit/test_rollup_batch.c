#include "meter_cmocka.h"

#include "meter_random.h"
#include "series/rollup_batch.h"

#include <stdio.h>

static int64_t
at(const char *text)
{
    int64_t ts_us = -77;

    if (!meter_time_parse(str_of(text), &ts_us)) {
        fail_msg("refused: %s", text);
    }
    return ts_us;
}


static void
add(struct rollup_batch *batch, const char *tenant, const char *key,
    const char *bucket, int64_t marked_us)
{
    struct rollup_mark mark = {
        .tenant = str_of(tenant),
        .series = METER_STR("calls"),
        .version = 1,
        .dimension_key = str_of(key),
        .bucket_us = at(bucket),
        .marked_us = marked_us,
    };

    assert_true(rollup_batch_add(batch, &mark));
}


static void
assert_mark(const struct rollup_marks *marks, size_t index, const char *tenant,
            const char *key, const char *bucket, int64_t marked_us)
{
    const struct rollup_mark *mark = &marks->items[index];

    assert_true(index < marks->count);
    assert_true(meter_str_equal(mark->tenant, str_of(tenant)));
    assert_true(meter_str_equal(mark->dimension_key, str_of(key)));
    assert_true(mark->bucket_us == at(bucket));
    assert_true(mark->marked_us == marked_us);
}


static void
settle__marks_of_one_bucket__are_one_with_the_oldest_time(void **state)
{
    struct rollup_batch batch;

    (void)state;
    rollup_batch_init(&batch);
    rollup_batch_reset(&batch, METER_LEVEL_1M);
    add(&batch, "b", "k", "2026-09-01T12:01:00Z", 30);
    add(&batch, "a", "k", "2026-09-01T12:01:00Z", 40);
    add(&batch, "b", "k", "2026-09-01T12:01:00Z", 10);
    add(&batch, "b", "k", "2026-09-01T12:01:00Z", 20);
    add(&batch, "b", "k", "2026-09-01T12:00:00Z", 50);
    add(&batch, "b", "j", "2026-09-01T13:00:00Z", 60);
    rollup_batch_settle(&batch, METER_TIME_MIN);

    assert_int_equal(batch.buckets.count, 4);
    assert_mark(&batch.buckets, 0, "a", "k", "2026-09-01T12:01:00Z", 40);
    assert_mark(&batch.buckets, 1, "b", "j", "2026-09-01T13:00:00Z", 60);
    assert_mark(&batch.buckets, 2, "b", "k", "2026-09-01T12:00:00Z", 50);
    assert_mark(&batch.buckets, 3, "b", "k", "2026-09-01T12:01:00Z", 10);
    assert_int_equal(batch.above.count, 3);
    assert_mark(&batch.above, 0, "a", "k", "2026-09-01T12:00:00Z", 40);
    assert_mark(&batch.above, 1, "b", "j", "2026-09-01T13:00:00Z", 60);
    assert_mark(&batch.above, 2, "b", "k", "2026-09-01T12:00:00Z", 10);
    rollup_batch_fini(&batch);
}


static void
settle__below_the_floor__is_left_out_and_marks_nothing(void **state)
{
    struct rollup_batch batch;
    int64_t first_us;
    int64_t end_us;

    (void)state;
    rollup_batch_init(&batch);
    rollup_batch_reset(&batch, METER_LEVEL_1H);
    add(&batch, "a", "k", "2026-08-31T23:00:00Z", 1);
    add(&batch, "a", "k", "2026-09-01T00:00:00Z", 2);
    add(&batch, "a", "k", "2026-09-03T05:00:00Z", 3);
    rollup_batch_settle(&batch, at("2026-09-01T00:00:00Z"));
    assert_int_equal(batch.buckets.count, 2);
    assert_mark(&batch.buckets, 0, "a", "k", "2026-09-01T00:00:00Z", 2);
    assert_int_equal(batch.above.count, 2);
    assert_mark(&batch.above, 0, "a", "k", "2026-09-01T00:00:00Z", 2);
    rollup_batch_range(&batch, &first_us, &end_us);
    assert_true(first_us == at("2026-09-01T00:00:00Z"));
    assert_true(end_us == at("2026-09-03T06:00:00Z"));

    rollup_batch_reset(&batch, METER_LEVEL_1H);
    add(&batch, "a", "k", "2026-08-31T23:00:00Z", 1);
    rollup_batch_settle(&batch, at("2026-09-01T00:00:00Z"));
    assert_int_equal(batch.buckets.count, 0);
    assert_int_equal(batch.above.count, 0);
    rollup_batch_fini(&batch);
}


static void
settle__last_level__has_nothing_above(void **state)
{
    struct rollup_batch batch;

    (void)state;
    rollup_batch_init(&batch);
    rollup_batch_reset(&batch, METER_LEVEL_1D);
    add(&batch, "a", "k", "2026-09-06T00:00:00Z", 1);
    add(&batch, "a", "k", "2026-09-07T00:00:00Z", 2);
    rollup_batch_settle(&batch, METER_TIME_MIN);
    assert_int_equal(batch.above.count, 2);
    assert_mark(&batch.above, 0, "a", "k", "2026-08-31T00:00:00Z", 1);
    assert_mark(&batch.above, 1, "a", "k", "2026-09-07T00:00:00Z", 2);

    rollup_batch_reset(&batch, METER_LEVEL_7D);
    add(&batch, "a", "k", "2026-08-31T00:00:00Z", 1);
    rollup_batch_settle(&batch, METER_TIME_MIN);
    assert_int_equal(batch.buckets.count, 1);
    assert_int_equal(batch.above.count, 0);
    rollup_batch_fini(&batch);
}


static void
settle__random_marks__every_one_is_there_in_order(void **state)
{
    static const char *const tenants[] = {"a", "a\x01", "ab", "b"};
    struct meter_random random = {7};
    struct rollup_batch batch;
    bool seen[4][8][10] = {{{false}}};
    size_t distinct = 0;
    int64_t hour_us = at("2026-09-01T12:00:00Z");

    (void)state;
    rollup_batch_init(&batch);
    rollup_batch_reset(&batch, METER_LEVEL_1M);
    for (int i = 0; i < 1000; i++) {
        size_t tenant = random_below(&random, 4);
        size_t key = random_below(&random, 8);
        size_t minute = random_below(&random, 10);
        char text[] = {(char)(0x7c + key), 0}; /* signed and not */
        struct rollup_mark mark = {
            .tenant = str_of(tenants[tenant]),
            .series = METER_STR("calls"),
            .version = 1,
            .dimension_key = {text, 1},
            .bucket_us = hour_us + (int64_t)minute * METER_TIME_MINUTE,
        };

        assert_true(rollup_batch_add(&batch, &mark));
        distinct += !seen[tenant][key][minute];
        seen[tenant][key][minute] = true;
    }
    rollup_batch_settle(&batch, METER_TIME_MIN);
    assert_int_equal(batch.buckets.count, distinct);
    for (size_t i = 1; i < batch.buckets.count; i++) {
        const struct rollup_mark *a = &batch.buckets.items[i - 1];
        const struct rollup_mark *b = &batch.buckets.items[i];
        int order = meter_str_compare(a->tenant, b->tenant);

        if (order == 0) {
            order = meter_str_compare(a->dimension_key, b->dimension_key);
        }
        assert_true(order < 0 || (order == 0 && a->bucket_us < b->bucket_us));
    }
    assert_true(batch.above.count <= 32);
    rollup_batch_fini(&batch);
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(settle__marks_of_one_bucket__are_one_with_the_oldest_time),
    cmocka_unit_test(settle__below_the_floor__is_left_out_and_marks_nothing),
    cmocka_unit_test(settle__last_level__has_nothing_above),
    cmocka_unit_test(settle__random_marks__every_one_is_there_in_order),
};

RUN_TAP(tests)
