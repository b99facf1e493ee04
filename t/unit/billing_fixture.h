/*
 * billing_fixture.h - events, and transactions of projection_meters on fake
 * tables.
 *
 *   event_make -> [transaction_run] -> fake rows, verdicts
 *
 * A transaction does what ingest does with a projection: look, fold and
 * apply; when that is refused, again from the start with locked rows, one by
 * one; and again without the events that were rejected.
 */

#ifndef BILLING_FIXTURE_H
#define BILLING_FIXTURE_H

#include "billing_statements.h"

#define NOON  INT64_C(1788264000000000) /* 2026-09-01T12:00:00Z */
#define HOUR  METER_TIME_HOUR
#define EPOCH INT64_C(946684800000000) /* the server's, in our microseconds */

enum transaction_way { WAY_FAST, WAY_CAREFUL };

struct item {
    struct meter_event event;
    struct effects effects;
    struct projection_marks marks;
    int64_t writer_seq;
    const char *error; /* rejected */
};

static const uint8_t test_writer[16] = {1, 2, 3};
static size_t fake_carefuls; /* folds that were not taken */
static void *test_rows;

static inline struct projected
view_of(struct item *item)
{
    return (struct projected){.event = &item->event,
                              .effects = &item->effects,
                              .writer_seq = item->writer_seq,
                              .marks = &item->marks,
                              .arena = &arena};
}

/* All statements of a phase; stops at the first answer that is not OK. */
static inline enum projection_result
phase_run(enum projection_phase phase, const struct projection_stamp *stamp)
{
    enum projection_result result = PROJECTION_OK;
    struct pg_params params;
    size_t at = 0;

    pg_params_init(&params);
    while (result == PROJECTION_OK) {
        struct projection_query query = {.params = &params};
        size_t number = at;
        PGresult *answer;

        pg_params_reset(&params);
        if (!projection_meters.next(test_rows, phase, stamp, &at, &query)) {
            break;
        }
        assert_true(at > number);
        answer = fake_run(&query);
        result = projection_meters.answer(test_rows, phase, number, answer);
        PQclear(answer);
    }
    pg_params_fini(&params);
    return result;
}

static inline void
transaction_look(struct item **items, size_t count,
                 const struct projection_stamp *stamp)
{
    projection_meters.rows_clear(test_rows, false);
    for (size_t i = 0; i < count; i++) {
        struct projected view = view_of(items[i]);

        items[i]->marks = (struct projection_marks){0};
        if (items[i]->error == NULL) {
            assert_true(
                projection_meters.look(test_rows, &view, stamp->clock_us));
        }
    }
    assert_int_equal(phase_run(PROJECTION_LOOK, stamp), PROJECTION_OK);
}

static inline enum projection_result
transaction_fast(struct item **items, size_t count,
                 const struct projection_stamp *stamp)
{
    enum projection_result result = PROJECTION_OK;

    transaction_look(items, count, stamp);
    for (size_t i = 0; result == PROJECTION_OK && i < count; i++) {
        struct projected view = view_of(items[i]);

        if (items[i]->error == NULL) {
            result = projection_meters.fold(test_rows, &view, stamp);
        }
    }
    if (result == PROJECTION_OK) {
        result = projection_meters.fold_end(test_rows);
    }
    return result == PROJECTION_OK ? phase_run(PROJECTION_APPLY, stamp)
                                   : result;
}

static inline void
transaction_collect(struct item **items, size_t count,
                    enum projection_phase phase)
{
    for (size_t i = 0; i < count; i++) {
        struct projected view = view_of(items[i]);

        if (items[i]->error == NULL) {
            assert_true(projection_meters.collect(test_rows, phase, &view));
        }
    }
}

/* RETRY: some were rejected, or a row was lost. */
static inline enum projection_result
transaction_careful(struct item **items, size_t count,
                    const struct projection_stamp *stamp)
{
    enum projection_result result;
    size_t rejected = 0;

    transaction_look(items, count, stamp);
    transaction_collect(items, count, PROJECTION_STATES);
    result = phase_run(PROJECTION_STATES, stamp);
    if (result != PROJECTION_OK) {
        return result;
    }
    transaction_collect(items, count, PROJECTION_LOCK);
    assert_int_equal(phase_run(PROJECTION_LOCK, stamp), PROJECTION_OK);
    assert_int_equal(projection_meters.stamp_floor(test_rows), 0);
    for (size_t i = 0; i < count; i++) {
        struct projected view = view_of(items[i]);

        if (items[i]->error != NULL) {
            continue;
        }
        switch (projection_meters.apply(test_rows, &view, stamp,
                                        &items[i]->error)) {
        case PROJECTION_APPLIED: break;
        case PROJECTION_REJECTED: rejected++; break;
        case PROJECTION_MISSING: return PROJECTION_FAULT;
        }
    }
    return rejected > 0 ? PROJECTION_RETRY : phase_run(PROJECTION_WRITE, stamp);
}

/* How far the order is ahead of the clock, which is recorded_us below. */
static int64_t test_ahead_us;

static inline void
transaction_run(struct item **items, size_t count, int64_t recorded_us,
                enum transaction_way way)
{
    static struct fake_database before;
    struct projection_stamp stamp = {test_writer, recorded_us + test_ahead_us,
                                     recorded_us};

    before = fake;
    if (way == WAY_FAST) {
        enum projection_result result = transaction_fast(items, count, &stamp);

        if (result == PROJECTION_OK) {
            return;
        }
        assert_int_equal(result, PROJECTION_CAREFUL);
        fake_carefuls++;
    }
    for (;;) {
        enum projection_result result;

        fake = before;
        result = transaction_careful(items, count, &stamp);
        if (result == PROJECTION_OK) {
            return;
        }
        assert_int_equal(result, PROJECTION_RETRY);
    }
}

/* An event of the type; the arena keeps its attributes. */
static inline void
item_make(struct item *item, const struct event_type *type, const char *id,
          int64_t ts_us, const char *quantity, const char *attributes)
{
    struct json_value *tree = arena_alloc(&arena, sizeof(*tree));
    const char *error = NULL;

    assert_non_null(tree);
    *tree = read_good(attributes);
    memset(item, 0, sizeof(*item));
    item->event = (struct meter_event){
        .tenant = str_of("acme"),
        .event_id = str_of(id),
        .type = type->name,
        .attributes = str_of(attributes),
        .ts_us = ts_us,
        .count = 1,
    };
    assert_int_equal(
        meter_decimal_parse(str_of(quantity), &item->event.quantity),
        METER_DECIMAL_OK);
    if (!billing_project(type, &item->event, tree, &arena,
                         &item->effects.of[PROJECTION_METERS],
                         &item->effects.is_careful, &error)) {
        fail_msg("%s: %s", id, error);
    }
    assert_false(item->effects.is_careful);
}

/* Rows in the order of their bytes, so that two databases compare. */
static inline int
fake_compare_rows(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct fake_row));
}

static inline int
fake_compare_uniques(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct fake_unique));
}

static inline int
fake_compare_adjustments(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct fake_adjustment));
}

static inline void
fake_sort(void)
{
    qsort(fake.rows, fake.row_count, sizeof(*fake.rows), fake_compare_rows);
    qsort(fake.uniques, fake.unique_count, sizeof(*fake.uniques),
          fake_compare_uniques);
    qsort(fake.adjustments, fake.adjustment_count, sizeof(*fake.adjustments),
          fake_compare_adjustments);
}

/* Period and lateness of a meter on quantity; the rest is set by tests. */
#define METER(name, how)                                 \
    {                                                    \
        .metric = METER_STR(name), .aggregation = (how), \
        .period = BILLING_DAY, .lateness_us = HOUR,      \
    }

static inline int
setup_rows(void **state)
{
    test_rows = projection_meters.rows_create();
    assert_non_null(test_rows);
    memset(&fake, 0, sizeof(fake));
    fake_carefuls = 0;
    fake_lost = 0;
    return setup(state);
}

static inline int
teardown_rows(void **state)
{
    projection_meters.rows_destroy(test_rows);
    return teardown(state);
}

#define TEST_ROWS(name) \
    cmocka_unit_test_setup_teardown(name, setup_rows, teardown_rows)

#endif
