/*
 * usage_rows.c - usage rows of one transaction: the projection `usage`.
 *
 *   accepted items -> [fold] -> ensure, lock, apply       fast path
 *   accepted items -> [collect] -> ensure, lock -> [apply] -> write
 *                                                         careful path
 *
 * A row is found by its tenant. Both paths lock it before it changes, so
 * the fold is tried here on the very values that the server folds, and a
 * row that is newer than the transaction is seen before anything is
 * committed. Rows that this transaction has made are newer than nothing.
 */

#include "project/usage.h"

#include "base/log.h"
#include "base/reason.h"
#include "project/recount.h"

#include <stdlib.h>

#define ROW_ROOM_MIN   64
#define ROW_COUNT_MAX  ((size_t)1 << 24)
#define ROW_ARENA_SIZE ((size_t)64 << 10)
#define ROW_ARENA_MAX  ((size_t)8 << 30)

/* Statements of the phases APPLY and LOCK; the third is of APPLY only. */
enum usage_step { STEP_ENSURE, STEP_LOCK, STEP_APPLY };

struct tenant_row {
    struct meter_str tenant;
    struct usage_fold fold;  /* fast path */
    struct usage_row value;  /* as locked, then as folded or decided */
    struct usage_row before; /* careful path: the item applied last */
    int64_t updated_us;      /* as locked */
    bool is_ordered;         /* some effect here is */
    bool is_fresh;           /* made by this transaction */
    bool is_locked;          /* value is there */
};

struct usage_rows {
    struct arena arena;
    struct map map; /* by tenant */
    struct tenant_row **rows;
    size_t count;
    size_t room;
    int64_t recorded_us; /* of the fast path */
};


/* ---- rows ------------------------------------------------------------ */

static void *
usage_rows_create(void)
{
    struct usage_rows *rows = calloc(1, sizeof(*rows));

    if (rows != NULL) {
        arena_init(&rows->arena, ROW_ARENA_SIZE, ROW_ARENA_MAX);
        map_init(&rows->map, ROW_COUNT_MAX);
    }
    return rows;
}

static void
usage_rows_clear(void *of, bool is_trim)
{
    struct usage_rows *rows = of;

    map_clear(&rows->map);
    arena_reset(&rows->arena);
    rows->count = 0;
    if (is_trim) {
        map_fini(&rows->map);
        arena_fini(&rows->arena);
        free(rows->rows);
        rows->rows = NULL;
        rows->room = 0;
    }
}

static void
usage_rows_destroy(void *of)
{
    if (of != NULL) {
        usage_rows_clear(of, true);
        free(of);
    }
}

static bool
rows_reserve(struct usage_rows *rows)
{
    size_t room = rows->room == 0 ? ROW_ROOM_MIN : rows->room * 2;
    struct tenant_row **list;

    if (rows->count < rows->room) {
        return true;
    }
    list = realloc(rows->rows, room * sizeof(*list));
    if (list == NULL) {
        return false;
    }
    rows->rows = list;
    rows->room = room;
    return true;
}

/* The tenant's row, made when it is the first time; NULL: no memory. */
static struct tenant_row *
row_take(struct usage_rows *rows, struct meter_str tenant)
{
    struct tenant_row *row;

    /* Events of a request have one tenant, so mostly it is the last one. */
    if (rows->count > 0) {
        row = rows->rows[rows->count - 1];
        if (meter_str_equal(row->tenant, tenant)) {
            return row;
        }
    }
    row = map_find(&rows->map, tenant);
    if (row != NULL) {
        return row;
    }
    row = rows_reserve(rows) ? arena_zalloc(&rows->arena, sizeof(*row)) : NULL;
    if (row == NULL) {
        return NULL;
    }
    row->tenant = tenant;
    usage_fold_init(&row->fold);
    if (map_add(&rows->map, row->tenant, row) != row) {
        return NULL;
    }
    rows->rows[rows->count++] = row;
    return row;
}

/* The order of locking, the same in every process. */
static int
rows_compare(const void *left, const void *right)
{
    const struct tenant_row *a = *(struct tenant_row *const *)left;
    const struct tenant_row *b = *(struct tenant_row *const *)right;

    return meter_str_compare(a->tenant, b->tenant);
}

static void
rows_sort(struct usage_rows *rows)
{
    if (!projection_is_unsorted && rows->count > 1) {
        qsort(rows->rows, rows->count, sizeof(*rows->rows), rows_compare);
    }
}

static const struct usage_effect *
effect_of(const struct projected *item)
{
    return item->effects->of[PROJECTION_USAGE];
}


/* ---- items ----------------------------------------------------------- */

static enum projection_result
usage_rows_fold(void *of, const struct projected *item,
                const struct projection_stamp *stamp)
{
    const struct usage_effect *effect = effect_of(item);
    struct usage_rows *rows = of;
    struct tenant_row *row;

    rows->recorded_us = stamp->recorded_us;
    if (effect == NULL) {
        return PROJECTION_OK;
    }
    row = row_take(rows, item->event->tenant);
    if (row == NULL) {
        return PROJECTION_FAULT;
    }
    row->is_ordered = row->is_ordered || effect->is_ordered;
    return usage_fold_step(&row->fold, effect) ? PROJECTION_OK
                                               : PROJECTION_CAREFUL;
}

static enum projection_result
usage_rows_fold_end(void *of)
{
    rows_sort(of);
    return PROJECTION_OK;
}

static bool
usage_rows_collect(void *of, enum projection_phase phase,
                   const struct projected *item)
{
    const struct usage_effect *effect = effect_of(item);
    struct tenant_row *row;

    if (effect == NULL || phase != PROJECTION_LOCK) {
        return true;
    }
    row = row_take(of, item->event->tenant);
    if (row == NULL) {
        return false;
    }
    row->is_ordered = row->is_ordered || effect->is_ordered;
    return true;
}

/* The row must be older than a transaction whose order it has to keep. */
static bool
row_is_binding(const struct tenant_row *row)
{
    return row->is_ordered && !row->is_fresh;
}

static int64_t
usage_rows_stamp_floor(const void *of)
{
    const struct usage_rows *rows = of;
    int64_t floor_us = 0;

    for (size_t i = 0; i < rows->count; i++) {
        const struct tenant_row *row = rows->rows[i];

        if (row_is_binding(row) && row->updated_us > floor_us) {
            floor_us = row->updated_us;
        }
    }
    return floor_us;
}

static enum projection_apply
usage_rows_apply(void *of, const struct projected *item,
                 const struct projection_stamp *stamp, const char **error)
{
    const struct usage_effect *effect = effect_of(item);
    struct usage_rows *rows = of;
    struct tenant_row *row;
    enum usage_column column;

    (void)stamp;
    if (effect == NULL) {
        return PROJECTION_APPLIED;
    }
    row = map_find(&rows->map, item->event->tenant);
    /* An ordered effect on a row that was not asked to be older. */
    if (row == NULL || !row->is_locked ||
        (effect->is_ordered && !row->is_ordered)) {
        return PROJECTION_MISSING;
    }
    row->before = row->value;
    if (!usage_apply(&row->value, effect, &column)) {
        *error = reason_format(item->arena, "usage %s would overflow 64 bits",
                               usage_column_name(column));
        return PROJECTION_REJECTED;
    }
    return PROJECTION_APPLIED;
}

static void
usage_rows_undo(void *of, const struct projected *item)
{
    struct usage_rows *rows = of;
    struct tenant_row *row;

    if (effect_of(item) != NULL) {
        row = map_find(&rows->map, item->event->tenant);
        CHECK(row != NULL && row->is_locked);
        row->value = row->before;
    }
}


/* ---- parameters ------------------------------------------------------ */

static void
put_tenants(struct pg_params *out, const struct usage_rows *rows)
{
    pg_param_array_begin(out, PG_TEXT, rows->count);
    for (size_t i = 0; i < rows->count; i++) {
        pg_put_text(&out->bytes, rows->rows[i]->tenant);
    }
    pg_param_array_end(out);
}

/* Two columns for each total: a, b. */
static void
put_folds(struct pg_params *out, const struct usage_rows *rows, int column)
{
    pg_param_array_begin(out, PG_INT8, rows->count);
    for (size_t i = 0; i < rows->count; i++) {
        pg_put_int8(&out->bytes, rows->rows[i]->fold.column[column].a);
    }
    pg_param_array_end(out);
    pg_param_array_begin(out, PG_INT8, rows->count);
    for (size_t i = 0; i < rows->count; i++) {
        const struct counter_fold *fold = &rows->rows[i]->fold.column[column];

        if (fold->has_b) {
            pg_put_int8(&out->bytes, fold->b);
        } else {
            pg_put_null(&out->bytes);
        }
    }
    pg_param_array_end(out);
}

static void
put_values(struct pg_params *out, const struct usage_rows *rows, int column)
{
    pg_param_array_begin(out, PG_INT8, rows->count);
    for (size_t i = 0; i < rows->count; i++) {
        pg_put_int8(&out->bytes, rows->rows[i]->value.value[column]);
    }
    pg_param_array_end(out);
}

static void
put_status(struct buf *out, enum usage_status status)
{
    const char *name = usage_status_name(status);

    if (name == NULL) {
        pg_put_null(out);
    } else {
        pg_put_text(out, (struct meter_str){name, strlen(name)});
    }
}

static void
apply_params(const struct usage_rows *rows, struct pg_params *out)
{
    for (int column = 0; column < USAGE_COLUMN_COUNT; column++) {
        put_folds(out, rows, column);
    }
    pg_param_array_begin(out, PG_TEXT, rows->count);
    for (size_t i = 0; i < rows->count; i++) {
        put_status(&out->bytes, rows->rows[i]->fold.status);
    }
    pg_param_array_end(out);
}

static void
write_params(const struct usage_rows *rows, struct pg_params *out)
{
    for (int column = 0; column < USAGE_COLUMN_COUNT; column++) {
        put_values(out, rows, column);
    }
    pg_param_array_begin(out, PG_TEXT, rows->count);
    for (size_t i = 0; i < rows->count; i++) {
        put_status(&out->bytes, rows->rows[i]->value.status);
    }
    pg_param_array_end(out);
}

/* Rows are sorted by the end of the fold, or here, before they are locked. */
static bool
next_step(struct usage_rows *rows, enum projection_phase phase, size_t at,
          struct projection_query *out)
{
    if (at > (phase == PROJECTION_APPLY ? STEP_APPLY : STEP_LOCK)) {
        return false;
    }
    if (at == STEP_ENSURE && phase == PROJECTION_LOCK) {
        rows_sort(rows);
    }
    put_tenants(out->params, rows);
    switch ((enum usage_step)at) {
    case STEP_ENSURE: out->statement = STATEMENT_USAGE_ROW_ENSURE; break;
    case STEP_LOCK: out->statement = STATEMENT_USAGE_ROW_LOCK; break;
    case STEP_APPLY:
        out->statement = STATEMENT_USAGE_ROW_APPLY;
        apply_params(rows, out->params);
        break;
    }
    return true;
}

static bool
usage_rows_next(void *of, enum projection_phase phase,
                const struct projection_stamp *stamp, size_t *at,
                struct projection_query *out)
{
    struct usage_rows *rows = of;

    if (rows->count == 0) {
        return false;
    }
    switch (phase) {
    case PROJECTION_LOOK:
    case PROJECTION_STATES: return false;
    case PROJECTION_LOCK:
    case PROJECTION_APPLY:
        if (!next_step(rows, phase, *at, out)) {
            return false;
        }
        break;
    case PROJECTION_WRITE:
        if (*at > 0) {
            return false;
        }
        out->statement = STATEMENT_USAGE_ROW_WRITE;
        put_tenants(out->params, rows);
        write_params(rows, out->params);
        break;
    }
    if (out->statement != STATEMENT_USAGE_ROW_LOCK) {
        pg_param_time(out->params, stamp->recorded_us);
    }
    ++*at;
    return true;
}


/* ---- answers --------------------------------------------------------- */

static struct tenant_row *
row_of(const struct usage_rows *rows, const void *result, int number)
{
    return map_find(&rows->map, pg_get_bytes(result, number, 0));
}

static enum projection_result
ensure_answer(struct usage_rows *rows, const void *result)
{
    int count = pg_row_count(result);

    for (int i = 0; i < count; i++) {
        struct tenant_row *row = row_of(rows, result, i);

        if (row == NULL || row->is_fresh) {
            log_error("project", "a usage row was made that is not wanted");
            return PROJECTION_FAULT;
        }
        row->is_fresh = true;
    }
    return PROJECTION_OK;
}

static bool
row_read(struct tenant_row *row, const void *result, int number)
{
    if (row == NULL || row->is_locked) {
        return false;
    }
    row->is_locked = true;
    for (int column = 0; column < USAGE_COLUMN_COUNT; column++) {
        row->value.value[column] = pg_get_int8(result, number, 1 + column);
    }
    row->updated_us = pg_get_time(result, number, 2 + USAGE_COLUMN_COUNT);
    return usage_status_parse(
        pg_get_bytes(result, number, 1 + USAGE_COLUMN_COUNT),
        &row->value.status);
}

static enum projection_result
lock_answer(struct usage_rows *rows, const void *result)
{
    int count = pg_row_count(result);

    for (int i = 0; i < count; i++) {
        if (!row_read(row_of(rows, result, i), result, i)) {
            log_error("project", "a usage row is not what it should be");
            return PROJECTION_FAULT;
        }
    }
    /* One was deleted behind usage_row_ensure: it is made anew. */
    return (size_t)count == rows->count ? PROJECTION_OK : PROJECTION_RETRY;
}

/* What a fold cannot promise; else the values that the server must get. */
static enum projection_result
folds_try(struct usage_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        struct tenant_row *row = rows->rows[i];

        if (row_is_binding(row) && row->updated_us >= rows->recorded_us) {
            return PROJECTION_OVERTAKEN;
        }
        if (!usage_fold_apply(&row->fold, &row->value)) {
            return PROJECTION_CAREFUL;
        }
    }
    return PROJECTION_OK;
}

static enum projection_result
apply_answer(const struct usage_rows *rows, const void *result)
{
    int count = pg_row_count(result);
    bool is_right = (size_t)count == rows->count;

    for (int i = 0; i < count && is_right; i++) {
        const struct tenant_row *row = row_of(rows, result, i);

        is_right = row != NULL;
        for (int column = 0; column < USAGE_COLUMN_COUNT && is_right;
             column++) {
            is_right =
                pg_get_int8(result, i, 1 + column) == row->value.value[column];
        }
    }
    if (!is_right) {
        log_error("project", "usage rows are not what was folded");
    }
    return is_right ? PROJECTION_OK : PROJECTION_FAULT;
}

static enum projection_result
write_answer(const struct usage_rows *rows, const void *result)
{
    int64_t changed = pg_affected(result);

    if ((size_t)changed == rows->count) {
        return PROJECTION_OK;
    }
    log_error("project", "usage rows were passed over",
              log_int("sent", (int64_t)rows->count),
              log_int("changed", changed));
    return PROJECTION_FAULT;
}

static enum projection_result
usage_rows_answer(void *of, enum projection_phase phase, size_t at,
                  const void *result)
{
    struct usage_rows *rows = of;
    enum projection_result locked;

    if (phase == PROJECTION_WRITE) {
        return write_answer(rows, result);
    }
    switch ((enum usage_step)at) {
    case STEP_ENSURE: return ensure_answer(rows, result);
    case STEP_LOCK:
        locked = lock_answer(rows, result);
        return locked == PROJECTION_OK && phase == PROJECTION_APPLY
                   ? folds_try(rows)
                   : locked;
    case STEP_APPLY: return apply_answer(rows, result);
    }
    return PROJECTION_FAULT;
}

static size_t
usage_rows_changed(const void *of)
{
    const struct usage_rows *rows = of;

    return rows->count;
}

const struct projection projection_usage = {
    .name = "usage",
    .project = usage_project,
    .rows_create = usage_rows_create,
    .rows_destroy = usage_rows_destroy,
    .rows_clear = usage_rows_clear,
    .look = NULL,
    .fold = usage_rows_fold,
    .fold_end = usage_rows_fold_end,
    .collect = usage_rows_collect,
    .stamp_floor = usage_rows_stamp_floor,
    .apply = usage_rows_apply,
    .undo = usage_rows_undo,
    .next = usage_rows_next,
    .answer = usage_rows_answer,
    .changed = usage_rows_changed,
    .recount = &usage_recount,
};
