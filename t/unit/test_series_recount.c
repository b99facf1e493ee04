/*
 * test_series_recount.c - rows of series and entries of the index: what they
 * should be against what they are.
 */

#include "maintain/index_recount_entries.h"
#include "maintain/series_recount_rows.h"
#include "maintain/series_recount_text.h"
#include "series_fixture.h"

#define MINUTE INT64_C(60000000)

static const uint8_t other_key[METER_DIGEST_SIZE] = {7};

static const struct series *
series_of(struct series_fixture *f, const char *name)
{
    return catalog_series(f->config->catalog, str_of(name));
}

static enum series_rows_end
fold_from(struct series_fixture *f, struct series_rows *rows,
          const struct meter_str *from, int64_t ts_us)
{
    const struct cell_place place = {
        .ts_us = ts_us, .recorded_us = 9, .seq = 1};

    return series_rows_fold(rows, f->effect, from, &place, NULL);
}

static void
fold(struct series_fixture *f, struct series_rows *rows, int64_t ts_us)
{
    assert_int_equal(fold_from(f, rows, NULL, ts_us), SERIES_ROWS_OK);
}

/* A row of `requests` or `bytes` as the database would have it. */
static enum series_rows_end
found(struct series_rows *rows, const struct series_rows_at *at, int64_t count,
      const char *sum)
{
    struct series_rows_found row;
    enum series_rows_end end;

    memset(&row, 0, sizeof(row));
    cell_init(&row.cell, at->series->kind, at->bucket_us);
    row.cell.count = count;
    row.cell.sum = decimal_sum_of(decimal_of(sum));
    row.nulls = series_rows_nulls(&row.cell);
    end = series_rows_found(rows, at, &row);
    cell_fini(&row.cell);
    return end;
}

static void
assert_texts(const struct series_rows_row *row, enum meter_level level,
             const char *key, const char *expected, const char *actual)
{
    struct buf text;

    buf_init(&text, 1 << 20);
    series_recount_put_key(&text, row, level);
    assert_str(buf_str(&text), key);
    if (expected != NULL) {
        buf_reset(&text);
        series_recount_put_expected(&text, row);
        assert_str(buf_str(&text), expected);
    }
    if (actual != NULL) {
        buf_reset(&text);
        series_recount_put_found(&text, row);
        assert_str(buf_str(&text), actual);
    }
    buf_fini(&text);
}

static void
rows__as_expected__do_not_differ(void **state)
{
    struct series_fixture *f = *state;
    struct series_rows *rows = series_rows_create(f->config->catalog);
    struct series_rows_at at;
    size_t count;

    assert_true(
        series_event(f, "request", "{\"route\":\"/a\",\"size\":2}", 3, "1.5"));
    series_rows_start(rows, METER_LEVEL_5S, 10);
    fold(f, rows, MINUTE + 1);
    fold(f, rows, MINUTE + 2);
    for (size_t i = 0; i < f->effect->count; i++) {
        at = (struct series_rows_at){f->effect->changes[i].series,
                                     f->effect->changes[i].set.key, MINUTE};
        assert_int_equal(found(rows, &at, 6, i == 0 ? "3" : "12"),
                         SERIES_ROWS_OK);
    }
    assert_non_null(series_rows_differing(rows, &count));
    assert_int_equal(count, 0);
    series_rows_destroy(rows);
}

static void
rows__that_differ__are_told_by_their_columns(void **state)
{
    struct series_fixture *f = *state;
    struct series_rows *rows = series_rows_create(f->config->catalog);
    struct series_rows_row *const *list;
    struct series_rows_at at = {series_of(f, "requests"), other_key,
                                2 * MINUTE};
    size_t count;

    assert_true(series_event(f, "request", "{\"route\":\"/a\"}", 1, "1.5"));
    assert_int_equal(f->effect->count, 1);
    series_rows_start(rows, METER_LEVEL_1M, 10);
    fold(f, rows, MINUTE + 1);
    fold(f, rows, 3 * MINUTE);
    assert_int_equal(found(rows, &at, 5, "7"), SERIES_ROWS_OK);
    at.key = f->effect->changes[0].set.key;
    at.bucket_us = MINUTE;
    assert_int_equal(found(rows, &at, 2, "1.5"), SERIES_ROWS_OK);

    list = series_rows_differing(rows, &count);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++) {
        int64_t bucket_us = list[i]->expected.bucket_us;

        if (bucket_us == MINUTE) {
            assert_texts(list[i], METER_LEVEL_1M,
                         "{\"series\":\"requests\",\"level\":\"1m\","
                         "\"dimensions\":{\"account.id\":null,\"route\":"
                         "\"/a\"},\"bucket\":\"1970-01-01T00:01:00.000000Z\"}",
                         "{\"count\":\"1\"}", "{\"count\":\"2\"}");
        } else if (bucket_us == 2 * MINUTE) {
            assert_texts(list[i], METER_LEVEL_1M,
                         "{\"series\":\"requests\",\"level\":\"1m\","
                         "\"dimension_key\":\"0700000000000000000000000000000"
                         "000000000000000000000000000000000\",\"bucket\":"
                         "\"1970-01-01T00:02:00.000000Z\"}",
                         NULL, "{\"count\":\"5\",\"sum\":\"7\"}");
            assert_int_equal(list[i]->expected.count, 0);
        } else {
            assert_null(list[i]->found);
            assert_int_equal(list[i]->expected.count, 1);
        }
    }
    series_rows_destroy(rows);
}

static void
rows__of_a_level__are_the_sum_of_those_below_unless_marked(void **state)
{
    struct series_fixture *f = *state;
    struct series_rows *rows = series_rows_create(f->config->catalog);
    const struct series *series = series_of(f, "requests");
    struct series_rows_at at = {series, other_key, 0};
    struct series_rows_found child;
    size_t count;

    series_rows_start(rows, METER_LEVEL_1M, 10);
    memset(&child, 0, sizeof(child));
    cell_init(&child.cell, SERIES_COUNTER, 0);
    child.cell.count = 2;
    child.cell.sum = decimal_sum_of(decimal_of("0.5"));
    for (int i = 0; i < 12; i++) {
        at.bucket_us = i * 5000000;
        assert_int_equal(series_rows_merge(rows, &at, &child), SERIES_ROWS_OK);
    }
    at.bucket_us = 0;
    assert_int_equal(found(rows, &at, 24, "6"), SERIES_ROWS_OK);
    assert_non_null(series_rows_differing(rows, &count));
    assert_int_equal(count, 0);

    at.bucket_us = MINUTE;
    assert_int_equal(found(rows, &at, 1, "1"), SERIES_ROWS_OK);
    assert_non_null(series_rows_differing(rows, &count));
    assert_int_equal(count, 1);
    assert_int_equal(series_rows_mark(rows, &at), SERIES_ROWS_OK);
    assert_non_null(series_rows_differing(rows, &count));
    assert_int_equal(count, 0);
    series_rows_destroy(rows);
}

static void
rows__more_than_allowed__are_refused_and_start_again(void **state)
{
    struct series_fixture *f = *state;
    struct series_rows *rows = series_rows_create(f->config->catalog);
    size_t count;

    assert_true(series_event(f, "request", "{\"route\":\"/a\"}", 1, "1"));
    series_rows_start(rows, METER_LEVEL_5S, 2);
    fold(f, rows, 0);
    fold(f, rows, MINUTE);
    assert_int_equal(fold_from(f, rows, NULL, 2 * MINUTE), SERIES_ROWS_FULL);
    fold(f, rows, MINUTE);
    series_rows_start(rows, METER_LEVEL_1H, 2);
    fold(f, rows, 2 * MINUTE);
    fold(f, rows, 3 * MINUTE);
    assert_non_null(series_rows_differing(rows, &count));
    assert_int_equal(count, 1);
    series_rows_destroy(rows);
}

static void
states__that_nobody_knows__count_for_nothing(void **state)
{
    struct series_fixture *f = *state;
    struct series_rows *rows = series_rows_create(f->config->catalog);
    struct meter_str from[2] = {{NULL, 0}, {series_from_unknown, 0}};
    struct series_rows_row *const *list;
    size_t count;

    assert_true(series_event(
        f, "changed", "{\"order\":1,\"state\":\"new\",\"region\":\"eu\"}", 1,
        "1"));
    assert_int_equal(f->effect->state_count, 2);
    series_rows_start(rows, METER_LEVEL_5S, 10);
    assert_int_equal(fold_from(f, rows, from, 0), SERIES_ROWS_OK);
    list = series_rows_differing(rows, &count);
    assert_int_equal(count, 1);
    assert_ptr_equal(list[0]->set->series, series_of(f, "orders"));
    assert_str(list[0]->expected.tallies[0].label, "[null,\"new\"]");
    series_rows_destroy(rows);
}

static void
columns__null_or_odd__differ(void **state)
{
    struct series_rows_found row;
    struct cell cell;

    (void)state;
    memset(&row, 0, sizeof(row));
    memset(&cell, 0, sizeof(cell));
    cell_init(&cell, SERIES_GAUGE, 0);
    cell.count = 1;
    row.cell = cell;
    row.nulls = series_rows_nulls(&cell);
    for (int i = 0; i < CELL_COLUMNS; i++) {
        assert_true(series_rows_column_equal(&cell, row.nulls, &row, i));
    }
    row.nulls |= 1u << CELL_MAX;
    assert_false(series_rows_column_equal(&cell, series_rows_nulls(&cell), &row,
                                          CELL_MAX));
    row.nulls = series_rows_nulls(&cell) | SERIES_ROWS_ODD;
    row.nulls &= ~(1u << CELL_LABELS);
    assert_false(series_rows_column_equal(&cell, row.nulls, &row, CELL_LABELS));
}

static void
dictionary__missing_or_another__differs(void **state)
{
    struct series_fixture *f = *state;
    struct series_rows *rows = series_rows_create(f->config->catalog);
    struct series_rows_set *const *list;
    struct series_rows_set *set;
    struct series_rows_at at;
    size_t count;

    assert_true(series_event(f, "request", "{\"route\":\"/a\"}", 1, "1"));
    series_rows_start(rows, METER_LEVEL_5S, 10);
    fold(f, rows, 0);
    set = series_rows_unasked(rows, NULL);
    assert_non_null(set);
    assert_null(series_rows_unasked(rows, set));
    assert_non_null(series_rows_sets_differing(rows, &count));
    assert_int_equal(count, 0); /* not asked yet */
    set->is_asked = true;
    list = series_rows_sets_differing(rows, &count);
    assert_int_equal(count, 1);
    assert_ptr_equal(list[0], set);
    at = (struct series_rows_at){set->series, set->key, 0};
    assert_int_equal(series_rows_dictionary(rows, &at, METER_STR("{}")),
                     SERIES_ROWS_OK);
    assert_non_null(series_rows_sets_differing(rows, &count));
    assert_int_equal(count, 1);
    assert_int_equal(series_rows_dictionary(rows, &at, set->json),
                     SERIES_ROWS_OK);
    assert_non_null(series_rows_sets_differing(rows, &count));
    assert_int_equal(count, 0);
    series_rows_start(rows, METER_LEVEL_5S, 10);
    assert_null(series_rows_unasked(rows, NULL)); /* sets outlive a slice */
    series_rows_destroy(rows);
}


/* ---- index ------------------------------------------------------------ */

static const char index_rules[] = "events:\n"
                                  "  - { type: call, indexed: [route, size] }\n"
                                  "  - { type: other }\n";

struct index_case {
    const char *type; /* NULL: no event */
    const char *attributes;
    const char *entries; /* NULL: none */
    const char *missing;
    const char *extra;
    size_t strangers;
};

static const struct index_case index_cases[] = {
    {"call", "{\"route\":\"/a\"}",
     "[[\"call\",\"route\",\"\\\"/a\\\"\",\"5\"]]", "{}", "{}", 0},
    {"call", "{\"route\":\"/a\",\"size\":1}", NULL,
     "{\"route\":\"\\\"/a\\\"\",\"size\":\"1\"}", "{}", 0},
    {"call", "{\"size\":1}", "[[\"call\",\"size\",\"1\",\"6\"]]",
     "{\"size\":\"1\"}", "{\"size\":\"1\"}", 0},
    {"call", "{\"size\":1}",
     "[[\"call\",\"size\",\"1\",\"5\"],[\"call\",\"size\",\"1\",\"5\"]]", "{}",
     "{\"size\":\"1\"}", 0},
    {"call", "{\"size\":1}",
     "[[\"call\",\"size\",\"1\",\"5\"],[\"call\",\"gone\",\"1\",\"5\"]]", "{}",
     "{}", 1},
    {"other", "{\"size\":1}", "[[\"call\",\"size\",\"1\",\"5\"]]", "{}",
     "{\"size\":\"1\"}", 0},
    {"other", "{\"size\":1}", "[[\"other\",\"size\",\"1\",\"5\"]]", "{}", "{}",
     1},
    {NULL, NULL, "[[\"call\",\"size\",\"1\",\"-5\"]]", "{}", "{\"size\":\"1\"}",
     0},
};

static void
entries__are_compared_with_the_event(void **state)
{
    struct config_errors errors;
    struct config *config;
    struct arena arena;
    struct buf text;

    (void)state;
    assert_true(
        config_load_text("rules", str_of(index_rules), &config, &errors));
    arena_init(&arena, 4096, 1 << 20);
    buf_init(&text, 1 << 20);
    for (size_t i = 0; i < sizeof(index_cases) / sizeof(index_cases[0]); i++) {
        const struct index_case *one = &index_cases[i];
        struct index_recount_event event = {.ts_us = 5};
        struct meter_str entries = {NULL, 0};
        struct index_recount_entries out;
        const char *error;

        if (one->type != NULL) {
            event.type = str_of(one->type);
            event.attributes = str_of(one->attributes);
        }
        if (one->entries != NULL) {
            entries = str_of(one->entries);
        }
        assert_true(index_recount_compare(config->catalog, &event, entries,
                                          &arena, &out, &error));
        buf_reset(&text);
        index_recount_put_entries(&text, &out.missing);
        assert_str(buf_str(&text), one->missing);
        buf_reset(&text);
        index_recount_put_entries(&text, &out.extra);
        assert_str(buf_str(&text), one->extra);
        assert_int_equal(out.strangers, one->strangers);
    }
    buf_fini(&text);
    arena_fini(&arena);
    config_unref(config);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows__as_expected__do_not_differ),
        cmocka_unit_test(rows__that_differ__are_told_by_their_columns),
        cmocka_unit_test(
            rows__of_a_level__are_the_sum_of_those_below_unless_marked),
        cmocka_unit_test(rows__more_than_allowed__are_refused_and_start_again),
        cmocka_unit_test(states__that_nobody_knows__count_for_nothing),
        cmocka_unit_test(columns__null_or_odd__differ),
        cmocka_unit_test(dictionary__missing_or_another__differs),
        cmocka_unit_test(entries__are_compared_with_the_event),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, series_setup, series_teardown);
}
