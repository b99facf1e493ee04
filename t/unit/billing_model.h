/*
 * billing_model.h - what meters are to be, said plainly.
 *
 *   events in arrival order -> [model] -> lists of folded and late events
 *                                      -> every figure, from scratch
 *
 * Nothing is kept but lists of events; nothing is shared with the code under
 * test but the readings of an event.
 */

#ifndef BILLING_MODEL_H
#define BILLING_MODEL_H

#include "billing_fixture.h"

#define MODEL_ENTRIES_MAX 16
#define MODEL_ROWS_MAX    24

struct model_entry {
    const struct billing_change *change;
    int64_t ts_us;
    int64_t recorded_us;
    int64_t writer_seq;
};

struct model_list {
    struct model_entry entries[MODEL_ENTRIES_MAX];
    size_t count;
};

struct model_row {
    const struct billing_meter *meter;
    int64_t period_us;
    struct model_list folded;
    struct model_list late;
};

struct model_adjustment {
    struct meter_str id;
    struct meter_str metric;
    const char *reason;
    meter_int128 amount;
};

struct model {
    struct model_row rows[MODEL_ROWS_MAX];
    size_t row_count;
    struct model_adjustment adjustments[FAKE_ROWS_MAX];
    size_t adjustment_count;
};

static struct model model;

static inline struct model_row *
model_row(const struct billing_change *change)
{
    for (size_t i = 0; i < model.row_count; i++) {
        struct model_row *row = &model.rows[i];

        if (row->meter == change->meter &&
            row->period_us == change->period_us) {
            return row;
        }
    }
    assert_true(model.row_count < MODEL_ROWS_MAX);
    memset(&model.rows[model.row_count], 0, sizeof(*model.rows));
    model.rows[model.row_count].meter = change->meter;
    model.rows[model.row_count].period_us = change->period_us;
    return &model.rows[model.row_count++];
}

static inline bool
model_has_value(const struct model_list *list, size_t count,
                struct meter_str value)
{
    for (size_t i = 0; i < count; i++) {
        if (meter_str_equal(list->entries[i].change->reading.unique, value)) {
            return true;
        }
    }
    return false;
}

/* Distinct values of the list that `but` does not have. */
static inline int64_t
model_uniques(const struct model_list *list, const struct model_list *but)
{
    int64_t uniques = 0;

    for (size_t i = 0; i < list->count; i++) {
        struct meter_str value = list->entries[i].change->reading.unique;

        uniques += value.size > 0 && !model_has_value(list, i, value) &&
                   !model_has_value(but, but->count, value);
    }
    return uniques;
}

/* The entry with the greatest (ts, recorded_at, seq). */
static inline const struct model_entry *
model_last(const struct model_list *list)
{
    const struct model_entry *last = &list->entries[0];

    for (size_t i = 1; i < list->count; i++) {
        const struct model_entry *entry = &list->entries[i];

        if (entry->ts_us > last->ts_us ||
            (entry->ts_us == last->ts_us &&
             (entry->recorded_us > last->recorded_us ||
              (entry->recorded_us == last->recorded_us &&
               entry->writer_seq > last->writer_seq)))) {
            last = entry;
        }
    }
    return last;
}

static inline meter_int128
model_sum(const struct model_list *list)
{
    meter_int128 sum = 0;

    for (size_t i = 0; i < list->count; i++) {
        sum += list->entries[i].change->reading.sum.units;
    }
    return sum;
}

static inline int64_t
model_count(const struct model_list *list)
{
    int64_t count = 0;

    for (size_t i = 0; i < list->count; i++) {
        count += list->entries[i].change->reading.count;
    }
    return count;
}

/* sign 1: the least value; -1: the greatest. */
static inline meter_int128
model_extreme(const struct model_list *list, int sign)
{
    meter_int128 least = sign * list->entries[0].change->reading.value.units;

    for (size_t i = 1; i < list->count; i++) {
        meter_int128 value =
            sign * list->entries[i].change->reading.value.units;

        least = value < least ? value : least;
    }
    return sign * least;
}

/* sum / count: the two neighbours, the nearer, the even one of two. */
static inline meter_int128
model_avg(meter_int128 sum, int64_t count)
{
    meter_int128 below = sum / count - (sum % count < 0);
    meter_int128 gap = sum - below * count; /* 0..count - 1 */

    if (2 * gap != count) {
        return below + (2 * gap > count);
    }
    return below % 2 == 0 ? below : below + 1;
}

static inline meter_int128
model_total(const struct model_row *row)
{
    struct model_list both = row->folded;
    struct model_list none = {.count = 0};

    for (size_t i = 0; i < row->late.count; i++) {
        both.entries[both.count++] = row->late.entries[i];
    }
    if (both.count == 0) {
        return 0;
    }
    switch (row->meter->aggregation) {
    case BILLING_SUM: return model_sum(&both);
    case BILLING_COUNT: return model_count(&both) * INT64_C(1000000000);
    case BILLING_MIN: return model_extreme(&both, 1);
    case BILLING_MAX: return model_extreme(&both, -1);
    case BILLING_AVG: return model_avg(model_sum(&both), model_count(&both));
    case BILLING_LAST: return model_last(&both)->change->reading.value.units;
    case BILLING_UNIQUE:
        return model_uniques(&both, &none) * INT64_C(1000000000);
    }
    return 0;
}

static inline int64_t
model_watermark(const struct model_row *row)
{
    int64_t watermark_us = INT64_MIN;

    for (size_t i = 0; i < row->folded.count; i++) {
        const struct model_entry *entry = &row->folded.entries[i];
        int64_t seen_us = entry->ts_us < entry->recorded_us
                              ? entry->ts_us
                              : entry->recorded_us;

        watermark_us = seen_us > watermark_us ? seen_us : watermark_us;
    }
    return watermark_us;
}

static inline bool
model_is_closed(const struct model_row *row)
{
    for (size_t i = 0; i < fake.close_count; i++) {
        if (fake.closes[i].period == row->period_us - EPOCH &&
            strcmp(fake.closes[i].metric, row->meter->metric.data) == 0) {
            return true;
        }
    }
    return false;
}

/* One event arrives. */
static inline void
model_arrive(const struct item *item, int64_t recorded_us)
{
    const struct billing_effect *effect = item->effects.of[PROJECTION_METERS];

    for (size_t i = 0; i < effect->count; i++) {
        const struct billing_change *change = &effect->changes[i];
        struct model_row *row = model_row(change);
        struct model_entry entry = {change, item->event.ts_us, recorded_us,
                                    item->writer_seq};
        bool is_closed = model_is_closed(row);
        int64_t watermark_us = model_watermark(row);
        meter_int128 before = model_total(row);

        if (!is_closed &&
            (watermark_us == INT64_MIN ||
             watermark_us - change->meter->lateness_us <= item->event.ts_us)) {
            row->folded.entries[row->folded.count++] = entry;
            continue;
        }
        row->late.entries[row->late.count++] = entry;
        model.adjustments[model.adjustment_count++] = (struct model_adjustment){
            .id = item->event.event_id,
            .metric = change->meter->metric,
            .reason = is_closed ? "period is closed"
                                : "older than the watermark by more than the "
                                  "lateness of 1h",
            .amount = model_total(row) - before,
        };
    }
}

static inline void
check_number(const struct fake_cell *cell, meter_int128 want)
{
    assert_true(cell->is_set);
    assert_true(cell->number == want);
}

static inline void
model_check_sums(const struct model_list *list, const struct model_list *but,
                 const struct fake_cell *cells)
{
    bool has_value =
        list->count > 0 && list->entries[0].change->reading.unique.size == 0;

    check_number(&cells[FAKE_SUM], model_sum(list));
    check_number(&cells[FAKE_COUNT], model_count(list));
    check_number(&cells[FAKE_UNIQUES], model_uniques(list, but));
    if (!has_value) {
        for (int i = FAKE_MIN; i <= FAKE_LAST_SEQ; i++) {
            assert_false(cells[i].is_set);
        }
        return;
    }
    const struct model_entry *last = model_last(list);

    check_number(&cells[FAKE_MIN], model_extreme(list, 1));
    check_number(&cells[FAKE_MAX], model_extreme(list, -1));
    check_number(&cells[FAKE_LAST], last->change->reading.value.units);
    check_number(&cells[FAKE_LAST_TS], last->ts_us - EPOCH);
    check_number(&cells[FAKE_LAST_RECORDED], last->recorded_us - EPOCH);
    check_number(&cells[FAKE_LAST_SEQ], last->writer_seq);
    assert_true(cells[FAKE_LAST_WRITER].is_set);
    assert_memory_equal(cells[FAKE_LAST_WRITER].uuid, test_writer, 16);
}

static inline void
model_check_row(const struct model_row *row)
{
    const struct model_list none = {.count = 0};
    const struct fake_row *found = NULL;
    int64_t watermark_us = model_watermark(row);

    for (size_t i = 0; i < fake.row_count; i++) {
        if (fake.rows[i].key.period == row->period_us - EPOCH &&
            strcmp(fake.rows[i].key.metric, row->meter->metric.data) == 0) {
            assert_null(found);
            found = &fake.rows[i];
        }
    }
    assert_non_null(found);
    model_check_sums(&row->folded, &none, found->cells);
    assert_int_equal(found->cells[FAKE_WATERMARK].is_set,
                     watermark_us != INT64_MIN);
    if (watermark_us != INT64_MIN) {
        check_number(&found->cells[FAKE_WATERMARK], watermark_us - EPOCH);
    }
    if (row->late.count > 0) {
        model_check_sums(&row->late, &row->folded, found->cells + FAKE_LATE);
    }
    for (int i = 0; row->late.count == 0 && i <= FAKE_UNIQUES; i++) {
        assert_false(found->cells[FAKE_LATE + i].is_set);
    }
}

/* Each adjustment of the model is there once, and no other one. */
static inline void
model_check_adjustments(void)
{
    assert_int_equal(fake.adjustment_count, model.adjustment_count);
    for (size_t i = 0; i < model.adjustment_count; i++) {
        const struct model_adjustment *want = &model.adjustments[i];
        size_t found = 0;

        for (size_t j = 0; j < fake.adjustment_count; j++) {
            const struct fake_adjustment *is = &fake.adjustments[j];

            if (meter_str_equal(str_of(is->id), want->id) &&
                meter_str_equal(str_of(is->key.metric), want->metric)) {
                assert_string_equal(is->reason, want->reason);
                check_number(&is->amount, want->amount);
                found++;
            }
        }
        assert_int_equal(found, 1);
    }
}

/* The fake database is what the model says. */
static inline void
model_check(void)
{
    assert_int_equal(fake.row_count, model.row_count);
    for (size_t i = 0; i < model.row_count; i++) {
        model_check_row(&model.rows[i]);
    }
    model_check_adjustments();
}

#endif
