/*
 * The accumulator of a bucket: exact, and the same in any order.
 */

#include "series_fixture.h"

#include "meter_random.h"
#include "series/cell.h"

#define SAMPLES 200
#define PARTS   7

struct sample {
    struct series_change change;
    struct meter_str from;
    struct cell_place place;
};

static const struct meter_str nothing = {NULL, 0};

/* All columns of a cell. */
static void
cell_bytes(const struct cell *cell, struct buf *out)
{
    buf_init(out, 1 << 20);
    for (int column = 0; column < CELL_COLUMNS; column++) {
        cell_put(cell, (enum cell_column)column, out);
    }
    assert_false(out->failed);
}

static void
assert_cells_equal(const struct cell *a, const struct cell *b)
{
    struct buf left, right;

    cell_bytes(a, &left);
    cell_bytes(b, &right);
    assert_int_equal(left.size, right.size);
    assert_memory_equal(left.data, right.data, left.size);
    buf_fini(&left);
    buf_fini(&right);
}

/* The text of a column; "-" for NULL. */
static void
assert_text(const struct cell *cell, enum cell_column column,
            const char *expected)
{
    struct buf out;

    buf_init(&out, 1 << 20);
    cell_put(cell, column, &out);
    if (strcmp(expected, "-") == 0) {
        assert_memory_equal(out.data, "\xff\xff\xff\xff", 4);
        assert_int_equal(out.size, 4);
    } else {
        assert_int_equal((uint8_t)out.data[2] << 8 | (uint8_t)out.data[3],
                         strlen(expected));
        assert_str((struct meter_str){out.data + 4, out.size - 4}, expected);
    }
    buf_fini(&out);
}

static struct meter_decimal
decimal(int64_t units)
{
    return (struct meter_decimal){units};
}

static void
value_set(struct series_change *change, struct meter_decimal value)
{
    change->value = value;
    change->total = decimal_sum_times(value, change->count);
}

static void
fold__counter__has_count_and_sum_only(void **state)
{
    struct series_change change = {.count = 3,
                                   .total = decimal_sum_of(decimal(5))};
    struct cell_place place = {.ts_us = 1};
    volatile size_t size = CELL_SIZE(SERIES_COUNTER);
    struct cell *cell = malloc(size);

    (void)state;
    assert_int_equal(size, 64);
    cell_init(cell, SERIES_COUNTER, 5000000);
    assert_true(cell_fold(cell, &change, nothing, &place));
    assert_true(cell_fold(cell, &change, nothing, &place));
    assert_int_equal(cell->bucket_us, 5000000);
    assert_int_equal(cell->count, 6);
    assert_sum(cell->sum, "0.00000001");
    for (int column = CELL_MIN; column < CELL_COLUMNS; column++) {
        assert_text(cell, (enum cell_column)column, "-");
    }
    assert_int_equal(cell_size(cell), 0);
    cell_fini(cell);
    free(cell);
}

static void
fold__gauge__keeps_extremes_and_the_last_by_place(void **state)
{
    struct cell_place at = {.ts_us = 10, .recorded_us = 5, .seq = 5};
    struct series_change change = {.count = 1};
    struct cell cell;

    (void)state;
    cell_init(&cell, SERIES_GAUGE, 0);
    value_set(&change, decimal(-3000000000));
    assert_true(cell_fold(&cell, &change, nothing, &at));
    value_set(&change, decimal(-7000000000));
    at.ts_us = 9; /* earlier, though it came later */
    at.recorded_us = 6;
    assert_true(cell_fold(&cell, &change, nothing, &at));
    assert_decimal(cell.last, "-3");
    assert_decimal(cell.min, "-7");
    assert_decimal(cell.max, "-3");
    at = (struct cell_place){.ts_us = 10, .recorded_us = 5, .seq = 4};
    assert_true(cell_fold(&cell, &change, nothing, &at));
    assert_decimal(cell.last, "-3");
    at.seq = 6;
    assert_true(cell_fold(&cell, &change, nothing, &at));
    assert_decimal(cell.last, "-7");
    at.seq = 1;
    at.writer[15] = 1;
    value_set(&change, decimal(1000000000));
    assert_true(cell_fold(&cell, &change, nothing, &at));
    assert_decimal(cell.last, "1");
    assert_int_equal(cell.last_place.seq, 1);
    assert_sum(cell.sum, "-23");
    assert_text(&cell, CELL_LABELS, "-");
    cell_fini(&cell);
}

static void
fold__histogram__tallies_by_label_bytewise(void **state)
{
    struct series_change change = {.count = 2};
    struct cell_place place = {.ts_us = 1};
    struct cell cell;

    (void)state;
    cell_init(&cell, SERIES_HISTOGRAM, 0);
    assert_text(&cell, CELL_LABELS, "-");
    change.label = str_of("inf");
    assert_true(cell_fold(&cell, &change, nothing, &place));
    change.label = str_of("5");
    assert_true(cell_fold(&cell, &change, nothing, &place));
    change.label = str_of("10");
    change.count = 1;
    assert_true(cell_fold(&cell, &change, nothing, &place));
    change.label = str_of("5");
    assert_true(cell_fold(&cell, &change, nothing, &place));
    assert_text(&cell, CELL_LABELS, "{\"10\",\"5\",\"inf\"}");
    assert_text(&cell, CELL_COUNTS, "{1,3,2}");
    assert_text(&cell, CELL_LAST_AT, "-");
    assert_int_equal(cell.count, 6);
    cell_fini(&cell);
}

static void
fold__state__labels_are_from_and_to(void **state)
{
    struct series_change change = {.count = 1, .state = str_of("\"a\\\"b\"")};
    struct cell_place place = {.ts_us = 1};
    struct cell cell;
    char longest[SERIES_STATE_SIZE_MAX];

    (void)state;
    cell_init(&cell, SERIES_STATE, 0);
    assert_true(cell_fold(&cell, &change, nothing, &place));
    assert_true(cell_fold(&cell, &change, str_of("1"), &place));
    /* [null,"a\"b"] in an array literal */
    assert_text(&cell, CELL_LABELS,
                "{\"[1,\\\"a\\\\\\\"b\\\"]\",\"[null,\\\"a\\\\\\\"b\\\"]\"}");
    assert_text(&cell, CELL_COUNTS, "{1,1}");
    assert_true(cell_fold(&cell, &change, str_of("\"x\""), &place));
    assert_text(&cell, CELL_COUNTS, "{1,1,1}");
    memset(longest, '7', sizeof(longest));
    change.state = (struct meter_str){longest, sizeof(longest)};
    assert_true(cell_fold(&cell, &change, change.state, &place));
    assert_int_equal(cell.tally_count, 4);
    cell_fini(&cell);
}

static void
sample_make(struct meter_random *random, struct series_fixture *f,
            enum series_kind kind, struct sample *out)
{
    char text[16];
    struct meter_decimal value;
    struct meter_str label;

    *out = (struct sample){
        .place = {.ts_us = (int64_t)random_below(random, 4),
                  .recorded_us = (int64_t)random_below(random, 3),
                  .seq = (int64_t)random_below(random, 1000)}};
    out->place.writer[3] = (uint8_t)random_below(random, 2);
    out->change.count = 1 + (int64_t)random_below(random, 3);
    /* The place decides about the value: real places are never equal. */
    value = decimal(out->place.ts_us + 10 * out->place.recorded_us +
                    100 * out->place.writer[3] + 1000 * (out->place.seq - 500));
    value.units *= (meter_int128)10000000000000000 * 10000000000000000;
    value_set(&out->change, value);
    snprintf(text, sizeof(text), "%u", (unsigned)random_below(random, 40));
    assert_true(arena_copy(&f->arena, str_of(text), &label));
    out->change.label = label;
    out->change.state = label;
    if (kind == SERIES_STATE && random_below(random, 4) > 0) {
        snprintf(text, sizeof(text), "\"%u\"",
                 (unsigned)random_below(random, 5));
        assert_true(arena_copy(&f->arena, str_of(text), &out->from));
    }
}

static void
shuffle(struct meter_random *random, struct sample *samples, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t j = random_below(random, i);
        struct sample swap = samples[i - 1];

        samples[i - 1] = samples[j];
        samples[j] = swap;
    }
}

/* Into parts at random, then the parts into one, in some order. */
static void
fold_parts(struct meter_random *random, enum series_kind kind,
           const struct sample *samples, struct cell *whole)
{
    struct cell parts[PARTS];
    size_t first = random_below(random, PARTS);

    for (size_t i = 0; i < PARTS; i++) {
        cell_init(&parts[i], kind, (int64_t)i);
    }
    for (size_t i = 0; i < SAMPLES; i++) {
        assert_true(cell_fold(&parts[random_below(random, PARTS)],
                              &samples[i].change, samples[i].from,
                              &samples[i].place));
    }
    cell_init(whole, kind, 77);
    for (size_t i = 0; i < PARTS; i++) {
        assert_true(cell_merge(whole, &parts[(first + i) % PARTS]));
    }
    assert_int_equal(whole->bucket_us, 77);
    for (size_t i = 0; i < PARTS; i++) {
        cell_fini(&parts[i]);
    }
}

static void
any_order_and_any_parts__give_the_same_bytes(void **state)
{
    struct series_fixture *f = *state;
    struct meter_random random = {20261};

    for (int kind = SERIES_COUNTER; kind <= SERIES_STATE; kind++) {
        for (int round = 0; round < 50; round++) {
            struct sample samples[SAMPLES];
            struct cell straight, merged;

            cell_init(&straight, (enum series_kind)kind, 77);
            for (size_t i = 0; i < SAMPLES; i++) {
                sample_make(&random, f, (enum series_kind)kind, &samples[i]);
                assert_true(cell_fold(&straight, &samples[i].change,
                                      samples[i].from, &samples[i].place));
            }
            shuffle(&random, samples, SAMPLES);
            fold_parts(&random, (enum series_kind)kind, samples, &merged);
            assert_cells_equal(&straight, &merged);
            cell_fini(&straight);
            cell_fini(&merged);
        }
        arena_reset(&f->arena);
    }
}

static void
sums__past_38_digits__stay_exact(void **state)
{
    static const char largest[] = "99999999999999999999999999999.999999999";
    struct series_change change = {.count = 1};
    struct cell_place place = {.ts_us = 1};
    struct cell cell, other;

    (void)state;
    cell_init(&cell, SERIES_GAUGE, 0);
    value_set(&change, decimal_of(largest));
    for (int i = 0; i < 1000; i++) {
        assert_true(cell_fold(&cell, &change, nothing, &place));
    }
    assert_sum(cell.sum, "99999999999999999999999999999999.999999");
    assert_decimal(cell.min, largest);
    assert_decimal(cell.last, largest);
    cell_init(&other, SERIES_GAUGE, 0);
    assert_true(cell_merge(&other, &cell));
    assert_true(cell_merge(&other, &cell));
    assert_sum(other.sum, "199999999999999999999999999999999.999998");
    change.count = 2000;
    value_set(&change, (struct meter_decimal){-decimal_of(largest).units});
    assert_true(cell_fold(&other, &change, nothing, &place));
    assert_sum(other.sum, "0");
    cell_fini(&cell);
    cell_fini(&other);
}

static void
counts__past_64_bits__stop_there(void **state)
{
    struct series_change change = {.count = INT64_MAX - 1,
                                   .label = str_of("1")};
    struct cell_place place = {.ts_us = 1};
    struct cell cell;

    (void)state;
    cell_init(&cell, SERIES_HISTOGRAM, 0);
    assert_true(cell_fold(&cell, &change, nothing, &place));
    assert_true(cell_fold(&cell, &change, nothing, &place));
    assert_true(cell.count == INT64_MAX);
    assert_text(&cell, CELL_COUNTS, "{9223372036854775807}");
    cell_fini(&cell);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fold__counter__has_count_and_sum_only),
        cmocka_unit_test(fold__gauge__keeps_extremes_and_the_last_by_place),
        cmocka_unit_test(fold__histogram__tallies_by_label_bytewise),
        cmocka_unit_test(fold__state__labels_are_from_and_to),
        cmocka_unit_test(any_order_and_any_parts__give_the_same_bytes),
        cmocka_unit_test(sums__past_38_digits__stay_exact),
        cmocka_unit_test(counts__past_64_bits__stop_there),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, series_setup, series_teardown);
}
