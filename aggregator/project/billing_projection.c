/*
 * billing_projection.c - the projection `meters`, see billing_rows.h.
 *
 *   LOOK    which periods are closed; only those that are over are asked
 *   APPLY   fast: one upsert of all rows, then the values of `unique`
 *   STATES  careful: rows made and locked, tenant by tenant; their values
 *   WRITE   careful: rows, values, adjustments
 *
 * A fold is right when every event is on time one by one. Against events of
 * its own transaction that is seen here; against the stored watermark the
 * upsert sees it, by the least ts + lateness of the row's events.
 */

#include "project/billing_rows.h"

#include "base/log.h"
#include "project/recount.h"

/* Statements of the phases APPLY and WRITE, in their order. */
enum apply_step { APPLY_ROWS, APPLY_UNIQUES, APPLY_END };
enum write_step { WRITE_ROWS, WRITE_UNIQUES, WRITE_ADJUSTMENTS, WRITE_END };

static bool
billing_look(void *data, const struct projected *item, int64_t now_us)
{
    const struct billing_effect *effect = billing_effect_of(item);

    for (size_t i = 0; i < effect->count; i++) {
        const struct billing_change *change = &effect->changes[i];

        if (change->period_end_us <= now_us + PROJECTION_CLOCK_MARGIN_US &&
            !billing_close_take(data, item->event->tenant, change)) {
            return false;
        }
    }
    return true;
}

/* So far that the careful path would have to look at each event. */
static bool
fold_is_large(const struct billing_sums *sums)
{
    return sums->sum.units > BILLING_FOLD_SUM_MAX ||
           sums->sum.units < -BILLING_FOLD_SUM_MAX ||
           sums->count > BILLING_FOLD_COUNT_MAX;
}

static enum projection_result
fold_change(struct billing_rows *rows, struct meter_str tenant,
            const struct billing_change *change,
            const struct billing_mark *mark, int64_t clock_us)
{
    struct billing_row *row = billing_row_take(rows, tenant, change);
    int64_t limit_us = mark->ts_us + change->meter->lateness_us;

    if (row == NULL) {
        return PROJECTION_FAULT;
    }
    if (row->is_closed || !meter_str_equal(row->groups, change->group.json) ||
        !billing_is_on_time(change->meter, mark->ts_us,
                            row->tally.watermark_us) ||
        !billing_sums_add(&row->tally.folded, &change->reading, mark) ||
        fold_is_large(&row->tally.folded)) {
        return PROJECTION_CAREFUL;
    }
    billing_watermark_move(&row->tally.watermark_us, mark->ts_us, clock_us);
    if (limit_us < row->step_limit_us) {
        row->step_limit_us = limit_us;
    }
    if (change->reading.unique.size > 0 &&
        billing_unique_take(rows, row, change->reading.unique) == NULL) {
        return PROJECTION_FAULT;
    }
    return PROJECTION_OK;
}

static enum projection_result
billing_fold(void *data, const struct projected *item,
             const struct projection_stamp *stamp)
{
    const struct billing_effect *effect = billing_effect_of(item);
    struct billing_mark mark = billing_mark_of(item, stamp);
    enum projection_result result = PROJECTION_OK;

    for (size_t i = 0; result == PROJECTION_OK && i < effect->count; i++) {
        result = fold_change(data, item->event->tenant, &effect->changes[i],
                             &mark, stamp->clock_us);
    }
    return result;
}

static enum projection_result
billing_fold_end(void *data)
{
    billing_rows_sort(data);
    return PROJECTION_OK;
}

/* Sums commute and `last` goes by ts first: any recorded_at will do. */
static int64_t
billing_stamp_floor(const void *data)
{
    (void)data;
    return 0;
}

static bool
next_look(const struct billing_rows *rows, size_t *at,
          struct projection_query *out)
{
    if (*at > 0 || rows->closes.count == 0) {
        return false;
    }
    ++*at;
    out->statement = STATEMENT_METER_CLOSED;
    billing_closed_params(rows, out->params);
    return true;
}

/* 0: ensure; 1 + row: lock from there on; behind the rows: their values. */
static bool
next_states(struct billing_rows *rows, const struct projection_stamp *stamp,
            size_t *at, struct projection_query *out)
{
    size_t count = rows->rows.count;

    if (count == 0 || *at > count + 1 ||
        (*at == count + 1 && rows->uniques.count == 0)) {
        return false;
    }
    if (*at == 0) {
        billing_rows_sort(rows);
        out->statement = STATEMENT_METER_ENSURE;
        billing_ensure_params(rows, stamp, out->params);
        *at = 1;
    } else if (*at <= count) {
        out->statement = STATEMENT_METER_LOCK;
        billing_lock_params(rows, *at - 1, out->params);
        *at = 1 + billing_tenant_end(rows, *at - 1);
    } else {
        out->statement = STATEMENT_METER_UNIQUE_READ;
        billing_unique_read_params(rows, out->params);
        ++*at;
    }
    return true;
}

static bool
next_apply(const struct billing_rows *rows,
           const struct projection_stamp *stamp, size_t *at,
           struct projection_query *out)
{
    if (*at == APPLY_ROWS && rows->rows.count > 0) {
        out->statement = STATEMENT_METER_UPSERT;
        billing_upsert_params(rows, stamp, out->params);
    } else if (*at == APPLY_UNIQUES && rows->uniques.count > 0) {
        out->statement = STATEMENT_METER_UNIQUE_FOLD;
        billing_unique_fold_params(rows, out->params);
    } else {
        return false;
    }
    ++*at;
    return true;
}

/* The first step from `at` on that has something to write. */
static size_t
write_step(const struct billing_rows *rows, size_t at)
{
    if (at == WRITE_ROWS && rows->rows.count == 0) {
        at = WRITE_UNIQUES;
    }
    if (at == WRITE_UNIQUES && rows->changed.count == 0) {
        at = WRITE_ADJUSTMENTS;
    }
    if (at == WRITE_ADJUSTMENTS && rows->adjustments.count == 0) {
        at = WRITE_END;
    }
    return at;
}

static bool
next_write(struct billing_rows *rows, const struct projection_stamp *stamp,
           size_t *at, struct projection_query *out)
{
    if (*at == 0) {
        billing_uniques_changed(rows);
    }
    switch (write_step(rows, *at)) {
    case WRITE_ROWS:
        out->statement = STATEMENT_METER_WRITE;
        billing_write_params(rows, stamp, out->params);
        *at = WRITE_UNIQUES;
        return true;
    case WRITE_UNIQUES:
        out->statement = STATEMENT_METER_UNIQUE_WRITE;
        billing_unique_write_params(rows, out->params);
        *at = WRITE_ADJUSTMENTS;
        return true;
    case WRITE_ADJUSTMENTS:
        out->statement = STATEMENT_METER_ADJUSTMENT_INSERT;
        billing_adjustment_params(rows, stamp, out->params);
        *at = WRITE_END;
        return true;
    default: return false;
    }
}

static bool
billing_next(void *data, enum projection_phase phase,
             const struct projection_stamp *stamp, size_t *at,
             struct projection_query *out)
{
    switch (phase) {
    case PROJECTION_LOOK: return next_look(data, at, out);
    case PROJECTION_STATES: return next_states(data, stamp, at, out);
    case PROJECTION_LOCK: return false;
    case PROJECTION_APPLY: return next_apply(data, stamp, at, out);
    case PROJECTION_WRITE: return next_write(data, stamp, at, out);
    }
    return false;
}

static void
answer_look(const struct billing_rows *rows, const void *result)
{
    for (int i = 0; i < pg_row_count(result); i++) {
        size_t number = (size_t)pg_get_int4(result, i, 0);
        struct billing_close *close;

        CHECK(number < rows->closes.count);
        close = rows->closes.items[number];
        close->is_closed = true;
    }
}

static enum projection_result
answer_states(struct billing_rows *rows, size_t at, const void *result)
{
    if (at == 0) {
        return PROJECTION_OK;
    }
    if (at <= rows->rows.count) {
        return billing_locked(rows, at - 1, result);
    }
    billing_uniques_read(rows, result);
    return PROJECTION_OK;
}

/* Rows that were locked are there; ids that are new have no row. */
static enum projection_result
answer_write(const struct billing_rows *rows, size_t at, const void *result)
{
    int64_t touched = pg_affected(result);
    size_t due = 0;

    switch (write_step(rows, at)) {
    case WRITE_ROWS: due = rows->rows.count; break;
    case WRITE_UNIQUES: due = rows->changed.count; break;
    case WRITE_ADJUSTMENTS: due = rows->adjustments.count; break;
    }
    if (touched == (int64_t)due) {
        return PROJECTION_OK;
    }
    log_error(
        "meters", "rows were not written", log_int("due", (int64_t)due),
        log_int("written", touched),
        log_bool("adjustments", write_step(rows, at) == WRITE_ADJUSTMENTS));
    return PROJECTION_FAULT;
}

static enum projection_result
billing_answer(void *data, enum projection_phase phase, size_t at,
               const void *result)
{
    struct billing_rows *rows = data;

    switch (phase) {
    case PROJECTION_LOOK: answer_look(rows, result); break;
    case PROJECTION_STATES: return answer_states(rows, at, result);
    case PROJECTION_LOCK: break;
    case PROJECTION_APPLY:
        if (at == APPLY_ROWS &&
            pg_affected(result) != (int64_t)rows->rows.count) {
            return PROJECTION_CAREFUL;
        }
        break;
    case PROJECTION_WRITE: return answer_write(rows, at, result);
    }
    return PROJECTION_OK;
}

static size_t
billing_changed(const void *data)
{
    return ((const struct billing_rows *)data)->rows.count;
}

const struct projection projection_meters = {
    .name = "meters",
    .project = billing_project,
    .rows_create = billing_rows_create,
    .rows_destroy = billing_rows_destroy,
    .rows_clear = billing_rows_clear,
    .look = billing_look,
    .fold = billing_fold,
    .fold_end = billing_fold_end,
    .collect = billing_collect,
    .stamp_floor = billing_stamp_floor,
    .apply = billing_apply_item,
    .undo = billing_undo_item,
    .next = billing_next,
    .answer = billing_answer,
    .changed = billing_changed,
    .recount = &billing_recount,
};
