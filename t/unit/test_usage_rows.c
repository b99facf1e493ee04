/*
 * test_usage_rows.c - usage rows of a transaction: which statements, in
 * which order of tenants, and what their answers decide.
 *
 * Answers are made here as the server would give them; what the statements
 * do is tested on a server (t/sql/09-usage.sql).
 */

#include "meter_random.h"
#include "usage_fixture.h"


/* ---- fast path ------------------------------------------------------- */

static void
next__no_effect__no_statement(void **state)
{
    static const enum projection_phase phases[] = {
        PROJECTION_LOOK, PROJECTION_STATES, PROJECTION_LOCK, PROJECTION_APPLY,
        PROJECTION_WRITE};
    struct fixture *f = *state;

    assert_int_equal(usage->fold(f->rows, item_of(f, "a", NULL), &f->stamp),
                     PROJECTION_OK);
    for (size_t i = 0; i < 5; i++) {
        size_t at = 0;

        assert_false(next(f, phases[i], &at));
    }
    assert_int_equal(usage->changed(f->rows), 0);
}

static void
fold__tenants_in_any_order__locked_by_their_bytes(void **state)
{
    static const char *const sorted[] = {"A", "a", "ab", "b", "\xc3\xa9"};
    static const int order[] = {3, 0, 4, 2, 1, 3, 0};
    struct fixture *f = *state;
    size_t at = 3;

    for (size_t i = 0; i < 7; i++) {
        fold(f, sorted[order[i]], entries(1));
    }
    assert_int_equal(usage->fold_end(f->rows), PROJECTION_OK);
    assert_int_equal(usage->changed(f->rows), 5);
    assert_next(f, PROJECTION_APPLY, 0, STATEMENT_USAGE_ROW_ENSURE);
    assert_int_equal(f->params.count, 2);
    assert_next(f, PROJECTION_APPLY, 1, STATEMENT_USAGE_ROW_LOCK);
    assert_int_equal(f->params.count, 1);
    for (size_t i = 0; i < 5; i++) {
        assert_text(f, 0, i, sorted[i]);
    }
    assert_next(f, PROJECTION_APPLY, 2, STATEMENT_USAGE_ROW_APPLY);
    assert_int_equal(f->params.count, 9);
    for (size_t i = 0; i < 5; i++) {
        assert_text(f, 0, i, sorted[i]);
        assert_true(number_of(f, 1, i) == (i == 0 || i == 3 ? 2 : 1));
    }
    assert_false(next(f, PROJECTION_APPLY, &at));
}

static void
fold__steps_and_status__leave_as_a_and_b(void **state)
{
    struct fixture *f = *state;

    fold(f, "a", entries(-3));
    fold(f, "a", entries(2));
    fold(f, "a",
         (struct usage_effect){.status = USAGE_STATUS_DECOMMISSIONED,
                               .is_ordered = true});
    fold(f, "b", calls(4));
    assert_int_equal(usage->fold_end(f->rows), PROJECTION_OK);
    assert_next(f, PROJECTION_APPLY, 2, STATEMENT_USAGE_ROW_APPLY);
    assert_true(number_of(f, 1, 0) == -1);
    assert_true(number_of(f, 2, 0) == 2);
    assert_true(number_of(f, 6, 0) == INT64_MIN); /* untouched: no clamp */
    assert_text(f, 7, 0, "decommissioned");
    assert_true(number_of(f, 1, 1) == 0);
    assert_true(number_of(f, 2, 1) == INT64_MIN);
    assert_true(number_of(f, 5, 1) == 4);
    assert_true(number_of(f, 6, 1) == 0);
    assert_text(f, 7, 1, NULL);
}

static void
fold__past_64_bits__careful(void **state)
{
    struct usage_effect much = entries(INT64_MAX);
    struct fixture *f = *state;

    fold(f, "a", much);
    assert_int_equal(usage->fold(f->rows, item_of(f, "a", &much), &f->stamp),
                     PROJECTION_CAREFUL);
}

static void
lock__row_not_older_than_the_transaction__careful(void **state)
{
    struct fixture *f = *state;

    for (int64_t by = -1; by <= 1; by++) {
        usage->rows_clear(f->rows, false);
        fold(f, "a", entries(1));
        assert_int_equal(usage->fold_end(f->rows), PROJECTION_OK);
        assert_int_equal(locked(f, server_row("a", 5, RECORDED + by)),
                         by < 0 ? PROJECTION_OK : PROJECTION_OVERTAKEN);
    }
}

/* One ordered effect among others is enough. */
static void
lock__one_effect_ordered__the_row_is(void **state)
{
    struct fixture *f = *state;

    fold(f, "a", entries(1));
    fold(f, "a", calls(1));
    assert_int_equal(locked(f, server_row("a", 5, RECORDED)),
                     PROJECTION_OVERTAKEN);
}

static void
lock__order_does_not_matter__newer_row_is_taken(void **state)
{
    struct fixture *f = *state;

    fold(f, "a", calls(1));
    assert_int_equal(locked(f, server_row("a", 5, RECORDED + 1000)),
                     PROJECTION_OK);
}

static void
lock__row_made_by_this_transaction__is_never_too_new(void **state)
{
    struct server_row row = server_row("a", 0, RECORDED);
    struct fixture *f = *state;

    fold(f, "a", entries(1));
    assert_int_equal(answer(f, PROJECTION_APPLY, 0, &row, 1), PROJECTION_OK);
    assert_int_equal(answer(f, PROJECTION_APPLY, 1, &row, 1), PROJECTION_OK);
    row.row.value[0] = 1;
    assert_int_equal(answer(f, PROJECTION_APPLY, 2, &row, 1), PROJECTION_OK);
}

static void
lock__overflow_on_the_way__careful_though_the_end_fits(void **state)
{
    struct fixture *f = *state;

    fold(f, "a", entries(10));
    fold(f, "a", entries(-10));
    assert_int_equal(locked(f, server_row("a", INT64_MAX - 9, 5)),
                     PROJECTION_CAREFUL);
    usage->rows_clear(f->rows, true);
    fold(f, "a", entries(10));
    fold(f, "a", entries(-10));
    assert_int_equal(locked(f, server_row("a", INT64_MAX - 10, 5)),
                     PROJECTION_OK);
}

static void
lock__row_missing__again(void **state)
{
    struct server_row row = server_row("b", 1, 5);
    struct fixture *f = *state;

    fold(f, "a", entries(1));
    fold(f, "b", entries(1));
    assert_int_equal(answer(f, PROJECTION_APPLY, 1, &row, 1), PROJECTION_RETRY);
}

static void
answers__rows_that_cannot_be__fault(void **state)
{
    struct server_row rows[2] = {server_row("x", 1, 5), server_row("x", 1, 5)};
    struct fixture *f = *state;

    fold(f, "a", entries(1));
    assert_int_equal(answer(f, PROJECTION_APPLY, 0, rows, 1), PROJECTION_FAULT);
    assert_int_equal(answer(f, PROJECTION_APPLY, 1, rows, 1), PROJECTION_FAULT);
    rows[0].tenant = rows[1].tenant = "a";
    assert_int_equal(answer(f, PROJECTION_APPLY, 1, rows, 2), PROJECTION_FAULT);
    usage->rows_clear(f->rows, false);
    fold(f, "a", entries(1));
    rows[0].row.status = USAGE_STATUS_KEEP;
    assert_int_equal(answer(f, PROJECTION_APPLY, 1, rows, 1), PROJECTION_FAULT);
}

static void
apply__server_folds_otherwise__fault(void **state)
{
    struct server_row row = server_row("a", 1, 5);
    struct fixture *f = *state;

    fold(f, "a", entries(-3));
    fold(f, "a", entries(2));
    assert_int_equal(locked(f, row), PROJECTION_OK);
    row.row.value[0] = 0; /* a sum, clamped at its end */
    assert_int_equal(answer(f, PROJECTION_APPLY, 2, &row, 1), PROJECTION_FAULT);
    assert_int_equal(answer(f, PROJECTION_APPLY, 2, &row, 0), PROJECTION_FAULT);
    row.row.value[0] = 2;
    assert_int_equal(answer(f, PROJECTION_APPLY, 2, &row, 1), PROJECTION_OK);
}


/* ---- careful path ---------------------------------------------------- */

static enum projection_apply
apply(struct fixture *f, const struct projected *item)
{
    f->error = NULL;
    return usage->apply(f->rows, item, &f->stamp, &f->error);
}

/* Ensures and locks what was collected. */
static void
lock(struct fixture *f, const struct server_row *rows, size_t count)
{
    size_t at = 2;

    assert_next(f, PROJECTION_LOCK, 0, STATEMENT_USAGE_ROW_ENSURE);
    assert_int_equal(answer(f, PROJECTION_LOCK, 0, NULL, 0), PROJECTION_OK);
    assert_next(f, PROJECTION_LOCK, 1, STATEMENT_USAGE_ROW_LOCK);
    assert_int_equal(answer(f, PROJECTION_LOCK, 1, rows, count), PROJECTION_OK);
    assert_false(next(f, PROJECTION_LOCK, &at));
}

static void
careful__newer_row__gives_the_floor_of_the_stamp(void **state)
{
    struct server_row rows[3] = {
        server_row("a", 1, RECORDED + 7),
        server_row("b", 1, RECORDED + 9),
        server_row("c", 1, RECORDED - 1),
    };
    struct fixture *f = *state;

    collect(f, "c", entries(1));
    collect(f, "b", calls(1)); /* in any order */
    collect(f, "a", entries(1));
    lock(f, rows, 3);
    assert_true(usage->stamp_floor(f->rows) == RECORDED + 7);
}

static void
careful__fresh_row__binds_no_stamp(void **state)
{
    struct server_row row = server_row("a", 0, RECORDED);
    struct fixture *f = *state;

    collect(f, "a", entries(1));
    assert_int_equal(answer(f, PROJECTION_LOCK, 0, &row, 1), PROJECTION_OK);
    assert_int_equal(answer(f, PROJECTION_LOCK, 1, &row, 1), PROJECTION_OK);
    assert_true(usage->stamp_floor(f->rows) == 0);
}

static void
careful__overflow__rejects_that_event_alone(void **state)
{
    struct server_row row = server_row("a", INT64_MAX - 1, 5);
    const struct projected *items[3];
    struct fixture *f = *state;

    items[0] = collect(f, "a", entries(2));
    items[1] = collect(f, "a", entries(1));
    items[2] = collect(f, "a", entries(-1));
    lock(f, &row, 1);
    assert_int_equal(apply(f, items[0]), PROJECTION_REJECTED);
    assert_string_equal(f->error, "usage entryCount would overflow 64 bits");
    assert_int_equal(apply(f, items[1]), PROJECTION_APPLIED);
    assert_int_equal(apply(f, items[2]), PROJECTION_APPLIED);
    assert_next(f, PROJECTION_WRITE, 0, STATEMENT_USAGE_ROW_WRITE);
    assert_int_equal(f->params.count, 6);
    assert_text(f, 0, 0, "a");
    assert_true(number_of(f, 1, 0) == INT64_MAX - 1);
    assert_text(f, 4, 0, "active");
    /* Nothing was updated, says this answer. */
    assert_int_equal(answer(f, PROJECTION_WRITE, 0, NULL, 0), PROJECTION_FAULT);
}

/* A clamp cannot be turned back by adding. */
static void
careful__undo__gives_the_row_before(void **state)
{
    struct server_row row = server_row("a", 2, 5);
    struct usage_effect down = entries(-5);
    const struct projected *item;
    const struct projected *none;
    struct fixture *f = *state;

    down.status = USAGE_STATUS_DECOMMISSIONED;
    item = collect(f, "a", down);
    none = item_of(f, "a", NULL);
    lock(f, &row, 1);
    assert_int_equal(apply(f, item), PROJECTION_APPLIED);
    assert_int_equal(apply(f, none), PROJECTION_APPLIED);
    usage->undo(f->rows, none);
    assert_next(f, PROJECTION_WRITE, 0, STATEMENT_USAGE_ROW_WRITE);
    assert_true(number_of(f, 1, 0) == 0);
    assert_text(f, 4, 0, "decommissioned");
    usage->undo(f->rows, item);
    assert_next(f, PROJECTION_WRITE, 0, STATEMENT_USAGE_ROW_WRITE);
    assert_true(number_of(f, 1, 0) == 2);
    assert_text(f, 4, 0, "active");
}

static void
careful__row_not_locked_or_not_bound__missing(void **state)
{
    struct server_row row = server_row("a", 2, RECORDED + 9);
    struct usage_effect down = entries(-1);
    const struct projected *item;
    struct fixture *f = *state;

    item = collect(f, "a", calls(1));
    assert_int_equal(apply(f, item), PROJECTION_MISSING);
    lock(f, &row, 1);
    assert_int_equal(apply(f, item_of(f, "b", &down)), PROJECTION_MISSING);
    /* The stamp was chosen without regard for this row's time. */
    assert_true(usage->stamp_floor(f->rows) == 0);
    assert_int_equal(apply(f, item_of(f, "a", &down)), PROJECTION_MISSING);
    assert_int_equal(apply(f, item), PROJECTION_APPLIED);
}


/* ---- both ------------------------------------------------------------ */

static struct meter_random random_state = {99};

static int64_t
below(unsigned bound)
{
    return (int64_t)random_below(&random_state, bound);
}

static struct usage_effect
random_effect(void)
{
    struct usage_effect effect = {.is_ordered = true};

    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        effect.is_touched[i] = below(3) > 0;
        effect.delta[i] = effect.is_touched[i] ? below(7) - 3 : 0;
    }
    effect.status = (enum usage_status)(below(8) < 6 ? 0 : 1 + below(2));
    return effect;
}

/* What usage_row_apply makes of a column. */
static int64_t
server_fold(const struct fixture *f, int column, size_t row, int64_t value)
{
    int64_t a = number_of(f, 1 + 2 * column, row);
    int64_t b = number_of(f, 2 + 2 * column, row);

    return value + a > b ? value + a : b;
}

/* The same items on the same rows, both ways. */
static void
both__random_items__same_values(void **state)
{
    static const char *const tenants[] = {"a", "b", "c"};
    struct fixture *f = *state;
    struct fixture *g;
    void *other;

    assert_int_equal(setup(&other), 0);
    g = other;
    for (int round = 0; round < 5000; round++) {
        struct server_row rows[3];
        size_t count = 8 + (size_t)below(20);

        f->count = g->count = 0;
        usage->rows_clear(f->rows, round % 7 == 0);
        usage->rows_clear(g->rows, false);
        for (size_t i = 0; i < 3; i++) {
            rows[i] = server_row(tenants[i], below(4), 5);
            fold(f, tenants[i], calls(0));
            collect(g, tenants[i], entries(0));
        }
        for (size_t i = 0; i < count; i++) {
            struct usage_effect effect = random_effect();
            const char *tenant = tenants[below(3)];

            fold(f, tenant, effect);
            collect(g, tenant, effect);
        }
        assert_int_equal(usage->fold_end(f->rows), PROJECTION_OK);
        assert_int_equal(answer(f, PROJECTION_APPLY, 1, rows, 3),
                         PROJECTION_OK);
        lock(g, rows, 3);
        for (size_t i = 0; i < g->count; i++) {
            assert_int_equal(apply(g, &g->items[i]), PROJECTION_APPLIED);
        }
        assert_next(f, PROJECTION_APPLY, 2, STATEMENT_USAGE_ROW_APPLY);
        assert_next(g, PROJECTION_WRITE, 0, STATEMENT_USAGE_ROW_WRITE);
        for (size_t i = 0; i < 3; i++) {
            int32_t size;

            for (int column = 0; column < USAGE_COLUMN_COUNT; column++) {
                rows[i].row.value[column] =
                    server_fold(f, column, i, rows[i].row.value[column]);
                assert_true(rows[i].row.value[column] ==
                            number_of(g, 1 + column, i));
            }
            (void)element(f, 7, i, &size);
            if (size > 0) {
                const char *text = element(g, 4, i, &size);

                assert_memory_equal(element(f, 7, i, &size), text,
                                    (size_t)size);
            }
        }
        assert_int_equal(answer(f, PROJECTION_APPLY, 2, rows, 3),
                         PROJECTION_OK);
    }
    assert_int_equal(teardown(&other), 0);
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

static const struct CMUnitTest tests[] = {
    T(next__no_effect__no_statement),
    T(fold__tenants_in_any_order__locked_by_their_bytes),
    T(fold__steps_and_status__leave_as_a_and_b),
    T(fold__past_64_bits__careful),
    T(lock__row_not_older_than_the_transaction__careful),
    T(lock__one_effect_ordered__the_row_is),
    T(lock__order_does_not_matter__newer_row_is_taken),
    T(lock__row_made_by_this_transaction__is_never_too_new),
    T(lock__overflow_on_the_way__careful_though_the_end_fits),
    T(lock__row_missing__again),
    T(answers__rows_that_cannot_be__fault),
    T(apply__server_folds_otherwise__fault),
    T(careful__newer_row__gives_the_floor_of_the_stamp),
    T(careful__fresh_row__binds_no_stamp),
    T(careful__overflow__rejects_that_event_alone),
    T(careful__undo__gives_the_row_before),
    T(careful__row_not_locked_or_not_bound__missing),
    T(both__random_items__same_values),
};

RUN_TAP(tests)
