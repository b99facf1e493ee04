/*
 * The buffer of series: keys, buckets, generations, memory.
 */

#include "series_fixture.h"

#include "meter_random.h"
#include "series/buffer.h"

#define SECOND INT64_C(1000000)

static void
fold(struct buffer *buffer, const char *tenant,
     const struct series_effect *effect, const struct meter_str *from,
     int64_t ts_us, int64_t seq)
{
    struct buffer_event event = {
        .tenant = str_of(tenant),
        .effect = effect,
        .from = from,
        .place = {.ts_us = ts_us, .recorded_us = 1, .seq = seq}};

    assert_true(buffer_fold(buffer, &event));
}

static struct buffer_cell *const *
cut(struct buffer *buffer, size_t *count)
{
    struct buffer_cell *const *cells;

    buffer_cut(buffer);
    cells = buffer_flushing(buffer, count);
    assert_non_null(cells);
    return cells;
}

static void
fold__same_set_and_bucket__is_one_cell(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    struct buffer_cell *const *cells;
    size_t count;

    assert_true(series_event(f, "request", "{\"route\":\"/a\"}", 1, "2"));
    fold(buffer, "t", f->effect, NULL, 0, 1);
    fold(buffer, "t", f->effect, NULL, 5 * SECOND - 1, 2);
    fold(buffer, "t", f->effect, NULL, 5 * SECOND, 3);
    fold(buffer, "t", f->effect, NULL, -1, 4);
    fold(buffer, "u", f->effect, NULL, 0, 5);
    assert_int_equal(buffer_filling(buffer), 4);
    cells = cut(buffer, &count);
    assert_int_equal(count, 4);
    assert_int_equal(cells[0]->cell.bucket_us, -5 * SECOND);
    assert_int_equal(cells[1]->cell.bucket_us, 0);
    assert_int_equal(cells[1]->cell.count, 2);
    assert_sum(cells[1]->cell.sum, "4");
    assert_int_equal(cells[2]->cell.bucket_us, 5 * SECOND);
    assert_str(cells[3]->key->tenant, "u");
    assert_str(cells[3]->key->series, "requests");
    assert_str(cells[3]->key->set.json,
               "{\"account.id\":null,\"route\":\"/a\"}");
    assert_ptr_equal(cells[0]->key, cells[2]->key);
    assert_int_equal(cells[0]->key->version,
                     f->effect->changes[0].series->version);
    buffer_destroy(buffer);
}

static void
fold__states__take_the_state_before(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    struct meter_str from[2] = {{NULL, 0}, {"5", 1}};
    struct buffer_cell *const *cells;
    size_t count;

    assert_true(series_event(
        f, "changed", "{\"order\":1,\"state\":\"new\",\"region\":6}", 1, "1"));
    fold(buffer, "t", f->effect, from, 0, 1);
    cells = cut(buffer, &count);
    assert_int_equal(count, 2);
    assert_str(cells[0]->key->series, "orders");
    assert_str(cells[0]->cell.tallies[0].label, "[null,\"new\"]");
    assert_str(cells[1]->cell.tallies[0].label, "[5,6]");
    buffer_flushed(buffer);
    /* The ledger does not know the first one: only the other is counted. */
    from[0] = (struct meter_str){series_from_unknown, 0};
    fold(buffer, "t", f->effect, from, 0, 2);
    cells = cut(buffer, &count);
    assert_int_equal(count, 1);
    assert_str(cells[0]->key->series, "regions");
    buffer_destroy(buffer);
}

static void
cut__later_events__wait_for_the_next_flush(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    struct buffer_cell *const *cells;
    const struct buffer_key *key;
    size_t count;

    assert_true(series_event(f, "sample", "{\"depth\":4}", 1, "1"));
    fold(buffer, "t", f->effect, NULL, 0, 1);
    buffer_cut(buffer);
    fold(buffer, "t", f->effect, NULL, 0, 2);
    fold(buffer, "t", f->effect, NULL, 0, 3);
    cells = buffer_flushing(buffer, &count);
    assert_int_equal(count, 1);
    assert_int_equal(cells[0]->cell.count, 1);
    assert_int_equal(cells[0]->cell.last_place.seq, 1);
    assert_false(cells[0]->key->is_stored);
    key = cells[0]->key;
    assert_int_equal(buffer_filling(buffer), 1);
    buffer_flushed(buffer);
    cells = cut(buffer, &count);
    assert_int_equal(count, 1);
    assert_int_equal(cells[0]->cell.count, 2);
    assert_ptr_equal(cells[0]->key, key); /* keys outlive their cells */
    assert_true(cells[0]->key->is_stored);
    buffer_flushed(buffer);
    cells = cut(buffer, &count);
    assert_int_equal(count, 0);
    buffer_flushed(buffer);
    buffer_destroy(buffer);
}

static void
clear__forgets_cells_and_keys(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    size_t empty = buffer_size(buffer);
    struct buffer_cell *const *cells;
    size_t count;

    assert_true(series_event(f, "request", "{\"ms\":4}", 1, "1"));
    fold(buffer, "t", f->effect, NULL, 0, 1);
    cells = cut(buffer, &count);
    assert_int_equal(count, 2);
    fold(buffer, "t", f->effect, NULL, 0, 2);
    buffer_clear(buffer);
    assert_int_equal(buffer_filling(buffer), 0);
    assert_int_equal(buffer_size(buffer), empty);
    fold(buffer, "t", f->effect, NULL, 0, 1);
    cells = cut(buffer, &count);
    assert_int_equal(count, 2);
    assert_false(cells[0]->key->is_stored);
    buffer_destroy(buffer);
}

static void
flushing__cells__are_in_the_order_of_keys(void **state)
{
    static const char *const tenants[] = {"b", "a", "ab", "\xc3\xa4"};
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    struct meter_random random = {7};
    struct buffer_cell *const *cells;
    size_t count;

    for (int i = 0; i < 2000; i++) {
        char text[64];

        snprintf(text, sizeof(text), "{\"route\":%u,\"ms\":3,\"size\":1}",
                 (unsigned)random_below(&random, 50));
        assert_true(series_event(f, "request", text, 1, "1"));
        fold(buffer, tenants[random_below(&random, 4)], f->effect, NULL,
             (int64_t)random_below(&random, 20) * SECOND, i);
    }
    cells = cut(buffer, &count);
    assert_true(count > 1000);
    for (size_t i = 1; i < count; i++) {
        const struct buffer_key *a = cells[i - 1]->key;
        const struct buffer_key *b = cells[i]->key;
        int order = meter_str_compare(a->tenant, b->tenant);

        order = order != 0 ? order : meter_str_compare(a->series, b->series);
        order = order != 0 ? order
                           : memcmp(a->set.key, b->set.key, METER_DIGEST_SIZE);
        if (order == 0) {
            order = cells[i - 1]->cell.bucket_us < cells[i]->cell.bucket_us ? -1
                                                                            : 1;
        }
        assert_true(order < 0);
    }
    buffer_destroy(buffer);
}

/* As a million would be: what each costs is told by a tenth. */
static void
size__counters_of_one_bucket__are_compact(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    size_t keys = 100000;

    for (size_t i = 0; i < keys; i++) {
        char text[64];

        snprintf(text, sizeof(text),
                 "{\"route\":\"/r\",\"account\":{\"id\":%zu}}", i);
        assert_true(series_event(f, "request", text, 1, "1"));
        fold(buffer, "tenant", f->effect, NULL, 0, (int64_t)i);
        arena_reset(&f->arena);
    }
    assert_int_equal(buffer_filling(buffer), keys);
    if (buffer_size(buffer) > keys * 280) {
        fail_msg("%zu bytes each", buffer_size(buffer) / keys);
    }
    buffer_cut(buffer);
    buffer_flushed(buffer);
    if (buffer_size(buffer) > keys * 200) {
        fail_msg("%zu bytes a key", buffer_size(buffer) / keys);
    }
    /* Two flushes without them: there are too many idle ones. */
    buffer_cut(buffer);
    buffer_flushed(buffer);
    assert_true(buffer_size(buffer) < (4u << 20));
    buffer_destroy(buffer);
}

static void
filling__long_tallies__count_as_several(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    struct meter_str from = {NULL, 0};
    size_t size = buffer_size(buffer);

    for (int i = 0; i < 800; i++) {
        char text[64];

        snprintf(text, sizeof(text), "{\"order\":1,\"state\":%d}", i);
        assert_true(series_event(f, "changed", text, 1, "1"));
        fold(buffer, "t", f->effect, &from, 0, i);
    }
    assert_int_equal(buffer_filling(buffer), 101);
    assert_true(buffer_size(buffer) > size + 800 * 24);
    buffer_destroy(buffer);
}

/* A back-fill: one key, very many buckets. */
static void
fold__many_buckets_of_one_key__stays_fast(void **state)
{
    struct series_fixture *f = *state;
    struct buffer *buffer = buffer_create();
    struct buffer_cell *const *cells;
    size_t count;

    assert_true(series_event(f, "sample", "{\"depth\":4}", 1, "1"));
    for (int64_t i = 0; i < 200000; i++) {
        fold(buffer, "t", f->effect, NULL, i * 5 * SECOND, i);
        fold(buffer, "t", f->effect, NULL, (i / 2) * 5 * SECOND, i);
    }
    cells = cut(buffer, &count);
    assert_int_equal(count, 200000);
    assert_int_equal(cells[1]->cell.count, 3);
    assert_int_equal(cells[199999]->cell.count, 1);
    buffer_destroy(buffer);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fold__same_set_and_bucket__is_one_cell),
        cmocka_unit_test(fold__states__take_the_state_before),
        cmocka_unit_test(cut__later_events__wait_for_the_next_flush),
        cmocka_unit_test(clear__forgets_cells_and_keys),
        cmocka_unit_test(flushing__cells__are_in_the_order_of_keys),
        cmocka_unit_test(size__counters_of_one_bucket__are_compact),
        cmocka_unit_test(filling__long_tallies__count_as_several),
        cmocka_unit_test(fold__many_buckets_of_one_key__stays_fast),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, series_setup, series_teardown);
}
