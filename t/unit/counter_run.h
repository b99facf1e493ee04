/*
 * counter_run.h - events and transactions for the tests of counter rows, on
 * the tables of counter_fixture.h.
 *
 *   item_make, change_add -> items -> [run] -> tables, errors, marks
 *
 * A transaction goes as in ingest: the fast path; the careful one when that
 * does not hold; again without the events that were rejected.
 */

#ifndef UNIT_COUNTER_RUN_H
#define UNIT_COUNTER_RUN_H

#include "counter_fixture.h"

/* Not in the order of their names. */
enum { RAW, FLOOR, LOGGED, LIMITED, DEVICES, SEATS, RULES_COUNT };

static const struct attribute_path entity_path = {{"device", 6}, NULL, 1};

static struct counter rules[RULES_COUNT] = {
    [RAW] = {.name = {"raw", 3}},
    [FLOOR] = {.name = {"floor", 5}, .floor_at_zero = true},
    [LOGGED] = {.name = {"logged", 6}, .floor_at_zero = true, .audit = true},
    [LIMITED] = {.name = {"limited", 7}, .keys_max = 3},
    [DEVICES] = {.name = {"devices", 7}, .entity = &entity_path},
    [SEATS] = {.name = {"seats", 5},
               .entity = &entity_path,
               .floor_at_zero = true,
               .audit = true,
               .keys_max = 3},
};

struct item {
    struct meter_event event;
    struct effects effects;
    struct counter_effect effect;
    struct counter_change changes[CHANGES_MAX];
    struct projection_marks marks;
    struct projected projected;
    const char *error; /* rejected */
};

static struct item items[ITEMS_MAX];
static struct dimension_set sets[SETS_MAX];
static char set_text_of[SETS_MAX][24];
static void *rows;
static struct arena arena;
static struct pg_params params;
static struct projection_stamp stamp;
static int64_t last_seq;
static bool was_careful; /* the last transaction */
static size_t careful_runs;

static inline int
set_up(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SETS_MAX; i++) {
        memset(sets[i].key, 0, METER_DIGEST_SIZE);
        sets[i].key[0] = (uint8_t)(i * 167); /* arrival is not key order */
        sets[i].key[1] = (uint8_t)(i >> 8);
        sets[i].key[2] = (uint8_t)i;
        snprintf(set_text_of[i], sizeof(set_text_of[i]), "{\"d\":%u}", i);
        sets[i].json = str_of(set_text_of[i]);
    }
    memset(items, 0, sizeof(items));
    rows = counters->rows_create();
    assert_non_null(rows);
    arena_init(&arena, 4096, 64 << 20);
    pg_params_init(&params);
    stamp = (struct projection_stamp){writer, RECORDED, RECORDED};
    last_seq = 100;
    projection_is_unsorted = false;
    executed_count = 0;
    return 0;
}

static inline int
tear_down(void **state)
{
    (void)state;
    counters->rows_destroy(rows);
    pg_params_fini(&params);
    arena_fini(&arena);
    tables_free();
    return 0;
}

static inline struct item *
item_make(size_t i, const char *tenant)
{
    struct item *item = &items[i];

    *item = (struct item){.event = {.tenant = str_of(tenant), .count = 1}};
    item->effect.changes = item->changes;
    item->effects.of[PROJECTION_COUNTERS] = &item->effect;
    item->projected = (struct projected){
        .event = &item->event,
        .effects = &item->effects,
        .marks = &item->marks,
        .arena = &arena,
    };
    return item;
}

static inline void
change_add(struct item *item, int rule, size_t set, int64_t delta)
{
    assert_true(item->effect.count < CHANGES_MAX);
    item->changes[item->effect.count++] = (struct counter_change){
        .counter = &rules[rule],
        .set = sets[set],
        .delta = delta,
    };
}

/* One of DEVICES or SEATS; entity is canonical JSON. */
static inline void
transition_add(struct item *item, int rule, size_t set, int64_t delta,
               const char *entity)
{
    change_add(item, rule, set, delta);
    item->changes[item->effect.count - 1].entity = str_of(entity);
    item->effects.is_careful = true;
}

/* An event with one change. */
static inline struct item *
event_make(size_t i, int rule, size_t set, int64_t delta)
{
    struct item *item = item_make(i, "acme");

    change_add(item, rule, set, delta);
    return item;
}

static inline struct item *
transition_make(size_t i, int rule, size_t set, int64_t delta,
                const char *entity)
{
    struct item *item = item_make(i, "acme");

    transition_add(item, rule, set, delta, entity);
    return item;
}

/* All statements of a phase; the first answer that is not OK. */
static inline enum projection_result
run_phase(enum projection_phase phase)
{
    struct projection_query query = {.params = &params};
    enum projection_result worst = PROJECTION_OK;
    size_t at = 0;

    for (;;) {
        size_t asked = at;
        enum projection_result said;
        PGresult *result;

        pg_params_reset(&params);
        if (!counters->next(rows, phase, &stamp, &at, &query)) {
            return worst;
        }
        assert_int_equal(at, asked + 1);
        result = execute(&query);
        said = counters->answer(rows, phase, asked, result);
        worst = worst == PROJECTION_OK ? said : worst;
        PQclear(result);
    }
}

/* Numbers those that are not rejected, in arrival order. */
static inline void
run_number(size_t count)
{
    int64_t seq = last_seq;

    for (size_t i = 0; i < count; i++) {
        items[i].projected.writer_seq = items[i].error == NULL ? ++seq : 0;
    }
}

static inline enum projection_result
run_folds(size_t count)
{
    enum projection_result result = PROJECTION_OK;

    for (size_t i = 0; result == PROJECTION_OK && i < count; i++) {
        if (items[i].error == NULL) {
            result = counters->fold(rows, &items[i].projected, &stamp);
        }
    }
    return result == PROJECTION_OK ? counters->fold_end(rows) : result;
}

/* False: the careful path, please; nothing is changed. */
static inline bool
run_fast(size_t count)
{
    enum projection_result result;

    counters->rows_clear(rows, false);
    run_number(count);
    tables_begin();
    is_overflown = false;
    result = run_folds(count);
    if (result == PROJECTION_OK) {
        result = run_phase(PROJECTION_APPLY);
    }
    if (is_overflown || result != PROJECTION_OK) {
        assert_true(is_overflown || result == PROJECTION_CAREFUL ||
                    result == PROJECTION_OVERTAKEN);
        tables_rollback();
        return false;
    }
    return true;
}

static inline void
run_collect(size_t count, enum projection_phase phase)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i].error == NULL) {
            assert_true(counters->collect(rows, phase, &items[i].projected));
        }
    }
    assert_int_equal(run_phase(phase), PROJECTION_OK);
}

/* Begins a careful try, up to the locked rows. */
static inline void
run_lock(size_t count)
{
    counters->rows_clear(rows, false);
    run_number(count);
    tables_begin();
    run_collect(count, PROJECTION_STATES);
    run_collect(count, PROJECTION_LOCK);
    if (counters->stamp_floor(rows) >= stamp.recorded_us) {
        stamp.recorded_us = counters->stamp_floor(rows) + 1;
    }
}

static inline enum projection_apply
run_apply(size_t i)
{
    return counters->apply(rows, &items[i].projected, &stamp, &items[i].error);
}

/* How many were rejected; then nothing is changed. */
static inline size_t
run_careful(size_t count)
{
    size_t rejected = 0;

    careful_runs++;
    run_lock(count);
    for (size_t i = 0; i < count; i++) {
        enum projection_apply applied;

        if (items[i].error != NULL) {
            continue;
        }
        applied = run_apply(i);
        if (applied == PROJECTION_MISSING) {
            assert_true(rejected > 0);
            assert_null(items[i].error);
            break;
        }
        assert_true((applied == PROJECTION_REJECTED) ==
                    (items[i].error != NULL));
        rejected += applied == PROJECTION_REJECTED;
    }
    if (rejected > 0) {
        tables_rollback();
    } else {
        assert_int_equal(run_phase(PROJECTION_WRITE), PROJECTION_OK);
    }
    return rejected;
}

/* One transaction of the first `count` items. */
static inline void
run(size_t count)
{
    bool needs_care = false;
    size_t accepted = 0;

    stamp.recorded_us++;
    stamp.clock_us++;
    for (size_t i = 0; i < count; i++) {
        needs_care |= items[i].effects.is_careful;
    }
    was_careful = needs_care || !run_fast(count);
    careful_runs = 0;
    while (was_careful && run_careful(count) > 0) {
    }
    for (size_t i = 0; i < count; i++) {
        accepted += items[i].error == NULL;
    }
    last_seq += (int64_t)accepted;
}

static inline struct table_row *
row_of(int rule, size_t set)
{
    return table_find(COUNTER, str_of("acme"), rules[rule].name,
                      (const char *)sets[set].key, NULL);
}

static inline void
assert_value(int rule, size_t set, int64_t value)
{
    const struct table_row *row = row_of(rule, set);

    assert_non_null(row);
    assert_true(row->value == value);
}

static inline int64_t
keys_of(int rule)
{
    const struct table_row *keys =
        table_find(KEYS, str_of("acme"), rules[rule].name, NULL, NULL);

    return keys == NULL ? 0 : keys->value;
}

static inline void
assert_from_state(size_t i, const char *expected)
{
    struct meter_str from = items[i].marks.from_state;

    if (expected == NULL) {
        assert_null(from.data);
    } else if (!is_text(expected, from)) {
        fail_msg("%.*s is not %s", (int)from.size, from.data, expected);
    }
}

#endif
