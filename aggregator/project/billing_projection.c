/*
 * billing_projection.c - the projection `meters`: the way of meter rows
 * through a transaction.
 *
 *   LOOK    which periods are closed; only those that are over are asked
 *   APPLY   fast: one upsert of all rows, then the values of `unique`
 *   STATES  careful: rows made and locked, tenant by tenant; their values
 *   WRITE   careful: rows, values, adjustments
 *
 * A fold is right when every event is on time one by one. Against events of
 * its own transaction that is seen here; against the stored watermark the
 * upsert sees it, by the least ts + lateness of the row's events.
 *
 * On the careful path an event that is on time is folded and moves the
 * watermark; one that is too late, or whose period is closed, becomes an
 * adjustment. That is worth what it does to the total. Folded sums and the
 * watermark do not move for it, so that no late event makes others late.
 */

#include "project/billing_rows.h"

#include "base/log.h"
#include "base/reason.h"
#include "config/scalar.h"
#include "pg/column.h"
#include "project/recount.h"

#include <stdio.h>
#include <stdlib.h>

#define ARENA_BLOCK ((size_t)256 << 10)
#define ARENA_MAX   ((size_t)512 << 20)
#define COUNT_MAX   ((size_t)1 << 24)


/* ---- rows -----------------------------------------------------------------
 */

static size_t
billing_tenant_end(const struct billing_rows *rows, size_t from)
{
    struct meter_str tenant = billing_row_at(rows, from)->tenant;
    size_t to = from + 1;

    while (to < rows->rows.count &&
           meter_str_equal(billing_row_at(rows, to)->tenant, tenant)) {
        to++;
    }
    return to;
}

static void *
billing_rows_create(void)
{
    struct billing_rows *rows = memory_alloc(sizeof(*rows));

    map_init(&rows->row_map, COUNT_MAX);
    map_init(&rows->unique_map, COUNT_MAX);
    map_init(&rows->close_map, COUNT_MAX);
    arena_init(&rows->arena, ARENA_BLOCK, ARENA_MAX);
    return rows;
}

/* Gives back all memory; the rows are as new. */
static void
rows_trim(struct billing_rows *rows)
{
    map_fini(&rows->row_map);
    map_fini(&rows->unique_map);
    map_fini(&rows->close_map);
    vec_fini(&rows->rows);
    vec_fini(&rows->uniques);
    vec_fini(&rows->closes);
    vec_fini(&rows->adjustments);
    vec_fini(&rows->changed);
    vec_fini(&rows->steps);
    arena_fini(&rows->arena);
    arena_init(&rows->arena, ARENA_BLOCK, ARENA_MAX);
}

static void
billing_rows_destroy(void *data)
{
    if (data != NULL) {
        rows_trim(data);
        free(data);
    }
}

static void
billing_rows_clear(void *data, bool is_trim)
{
    struct billing_rows *rows = data;

    if (is_trim) {
        rows_trim(rows);
    }
    map_clear(&rows->row_map);
    map_clear(&rows->unique_map);
    map_clear(&rows->close_map);
    vec_clear(&rows->rows);
    vec_clear(&rows->uniques);
    vec_clear(&rows->closes);
    vec_clear(&rows->adjustments);
    vec_clear(&rows->changed);
    vec_clear(&rows->steps);
    rows->adjustment_count = 0;
    arena_reset(&rows->arena);
}


/* ---- parameters -----------------------------------------------------------
 */

#define ROW_COLUMN(kind, member) PG_COLUMN(kind, struct billing_row, member)
#define ROW_COLUMN_IF(kind, member, has) \
    PG_COLUMN_IF(kind, struct billing_row, member, has)
#define ROW_WATERMARK \
    PG_COLUMN_NULL_IF(TIME, struct billing_row, tally.watermark_us, INT64_MIN)

/* Of sums that have no value, min to last_seq are NULL. */
#define SUMS_VALUES(sums)                                              \
    ROW_COLUMN_IF(NUMERIC, tally.sums.min, tally.sums.has_value),      \
        ROW_COLUMN_IF(NUMERIC, tally.sums.max, tally.sums.has_value),  \
        ROW_COLUMN_IF(NUMERIC, tally.sums.last, tally.sums.has_value), \
        ROW_COLUMN_IF(TIME, tally.sums.last_mark.ts_us, tally.sums.has_value)
#define SUMS_RECORDED(sums)                               \
    ROW_COLUMN_IF(TIME, tally.sums.last_mark.recorded_us, \
                  tally.sums.has_value),                  \
        ROW_COLUMN_IF(UUID, tally.sums.last_mark.writer, tally.sums.has_value)
#define SUMS_SEQ(sums) \
    ROW_COLUMN_IF(INT8, tally.sums.last_mark.writer_seq, tally.sums.has_value)

#define ROW_KEY_COLUMNS    5
#define ROW_ENSURE_COLUMNS 6

/* The first five are the key, the sixth are the groups. */
static const struct pg_column row_columns[] = {
    ROW_COLUMN(TEXT, tenant),      ROW_COLUMN(TEXT, metric),
    ROW_COLUMN(TIME, period_us),   ROW_COLUMN(TEXT, customer),
    ROW_COLUMN(DIGEST, group_key), ROW_COLUMN(TEXT, groups),
};

/* meter_upsert, after the groups. */
static const struct pg_column fold_columns[] = {
    ROW_COLUMN(NUMERIC, tally.folded.sum),
    ROW_COLUMN(INT8, tally.folded.count),
    SUMS_VALUES(folded),
    SUMS_SEQ(folded),
    ROW_WATERMARK,
    ROW_COLUMN(TIME, step_limit_us),
};

/* meter_write, after the key. */
static const struct pg_column sums_columns[] = {
    ROW_COLUMN(NUMERIC, tally.folded.sum),
    ROW_COLUMN(INT8, tally.folded.count),
    SUMS_VALUES(folded),
    SUMS_RECORDED(folded),
    SUMS_SEQ(folded),
    ROW_COLUMN(INT8, tally.folded.uniques),
    ROW_WATERMARK,
    ROW_COLUMN_IF(NUMERIC, tally.late.sum, tally.has_late),
    ROW_COLUMN_IF(INT8, tally.late.count, tally.has_late),
    SUMS_VALUES(late),
    SUMS_RECORDED(late),
    SUMS_SEQ(late),
    ROW_COLUMN_IF(INT8, tally.late.uniques, tally.has_late),
};

static const struct pg_column close_columns[] = {
    PG_COLUMN(TEXT, struct billing_close, tenant),
    PG_COLUMN(TEXT, struct billing_close, metric),
    PG_COLUMN(TIME, struct billing_close, period_us),
};

/* The second is written only. */
static const struct pg_column unique_columns[] = {
    PG_COLUMN(TEXT, struct billing_unique, value),
    PG_COLUMN(BOOL, struct billing_unique, is_folded),
};

#define ADJUSTMENT_COLUMN(kind, member) \
    PG_COLUMN(kind, struct billing_adjustment, member)

/* A value of a `unique` meter has no figure. */
static const struct pg_column adjustment_columns[] = {
    ADJUSTMENT_COLUMN(TEXT, event_id),
    ADJUSTMENT_COLUMN(NUMERIC, amount),
    ADJUSTMENT_COLUMN(TEXT, reason),
    ADJUSTMENT_COLUMN(TIME, ts_us),
    PG_COLUMN_IF(NUMERIC, struct billing_adjustment, reading.value, has_value),
    PG_COLUMN_IF(NUMERIC, struct billing_adjustment, reading.sum, has_value),
    ADJUSTMENT_COLUMN(INT8, reading.count),
    ADJUSTMENT_COLUMN(TEXT, reading.unique),
    ADJUSTMENT_COLUMN(INT8, writer_seq),
};

/* Columns of all items of a list of pointers. */
#define PUT_LIST(out, columns, column_count, list) \
    pg_param_pointers(out, columns, column_count,  \
                      (const void *const *)(list).items, (list).count)

/* The asker's numbers from..from + count - 1. */
static void
put_numbers(struct pg_params *out, size_t from, size_t count)
{
    pg_param_array_begin(out, PG_INT4, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_int4(&out->bytes, (int32_t)(from + i));
    }
    pg_param_array_end(out);
}

static void
billing_upsert_params(const struct billing_rows *rows,
                      const struct projection_stamp *stamp,
                      struct pg_params *out)
{
    PUT_LIST(out, row_columns, ROW_ENSURE_COLUMNS, rows->rows);
    PUT_LIST(out, fold_columns, PG_COLUMN_COUNT(fold_columns), rows->rows);
    pg_param_uuid(out, stamp->writer);
    pg_param_time(out, stamp->recorded_us);
    pg_param_time(out, stamp->clock_us);
}

/* The tenant is one for all; then the rest of the key. */
static void
billing_lock_params(const struct billing_rows *rows, size_t from,
                    struct pg_params *out)
{
    size_t count = billing_tenant_end(rows, from) - from;

    pg_param_text(out, billing_row_at(rows, from)->tenant);
    pg_param_pointers(out, row_columns + 1, ROW_KEY_COLUMNS - 1,
                      (const void *const *)(rows->rows.items + from), count);
    put_numbers(out, from, count);
}

static void
billing_write_params(const struct billing_rows *rows,
                     const struct projection_stamp *stamp,
                     struct pg_params *out)
{
    PUT_LIST(out, row_columns, ROW_KEY_COLUMNS, rows->rows);
    PUT_LIST(out, sums_columns, PG_COLUMN_COUNT(sums_columns), rows->rows);
    pg_param_time(out, stamp->clock_us);
}

/* A pg_row_next: the row of each value. */
static const void *
unique_row_next(const void *data, size_t *cursor)
{
    const struct billing_uniques *list = data;

    return *cursor < list->count ? list->items[(*cursor)++]->row : NULL;
}

static void
put_uniques(struct pg_params *out, const struct billing_uniques *list,
            size_t column_count)
{
    pg_param_columns(out, row_columns, ROW_KEY_COLUMNS, list, list->count,
                     unique_row_next);
    PUT_LIST(out, unique_columns, column_count, *list);
}

/* Likewise of each adjustment. */
static const void *
adjustment_row_next(const void *data, size_t *cursor)
{
    const struct billing_rows *rows = data;

    return *cursor < rows->adjustments.count
               ? rows->adjustments.items[(*cursor)++]->row
               : NULL;
}

static void
billing_adjustment_params(const struct billing_rows *rows,
                          const struct projection_stamp *stamp,
                          struct pg_params *out)
{
    pg_param_columns(out, row_columns, ROW_ENSURE_COLUMNS, rows,
                     rows->adjustments.count, adjustment_row_next);
    PUT_LIST(out, adjustment_columns, PG_COLUMN_COUNT(adjustment_columns),
             rows->adjustments);
    pg_param_uuid(out, stamp->writer);
    pg_param_time(out, stamp->clock_us);
    if (stamp->recorded_us == stamp->clock_us) {
        pg_param_null(out);
    } else {
        pg_param_time(out, stamp->recorded_us);
    }
}


/* ---- the careful path -----------------------------------------------------
 */

#define REASON_SIZE 128

/* Columns of meter_lock; ten of sums each. */
enum lock_column {
    LOCK_NUMBER = 0,
    LOCK_GROUPS = 1,
    LOCK_FOLDED = 2,
    LOCK_WATERMARK = 12,
    LOCK_LATE = 13,
    LOCK_MANUAL = 23
};

static bool
billing_collect(void *data, enum projection_phase phase,
                const struct projected *item)
{
    const struct billing_effect *effect = billing_effect_of(item);
    struct billing_rows *rows = data;

    if (phase != PROJECTION_STATES) {
        return true; /* all is known from the events */
    }
    for (size_t i = 0; i < effect->count; i++) {
        const struct billing_change *change = &effect->changes[i];
        struct billing_row *row =
            billing_row_take(rows, item->event->tenant, change);

        if (row == NULL ||
            (change->reading.unique.size > 0 &&
             billing_unique_take(rows, row, change->reading.unique) == NULL)) {
            return false;
        }
    }
    return true;
}

/* Ten columns from `at` on. False: numbers that cannot be. */
static bool
sums_read(struct billing_sums *sums, const void *result, int row, int at)
{
    struct meter_str writer = pg_get_bytes(result, row, at + 7);

    billing_sums_init(sums);
    if (!pg_get_numeric(result, row, at, &sums->sum)) {
        return false;
    }
    sums->count = pg_get_int8(result, row, at + 1);
    sums->uniques = pg_get_int8(result, row, at + 9);
    sums->has_value = writer.data != NULL;
    if (!sums->has_value) {
        return true;
    }
    CHECK(writer.size == sizeof(sums->last_mark.writer));
    memcpy(sums->last_mark.writer, writer.data, writer.size);
    sums->last_mark.ts_us = pg_get_time(result, row, at + 5);
    sums->last_mark.recorded_us = pg_get_time(result, row, at + 6);
    sums->last_mark.writer_seq = pg_get_int8(result, row, at + 8);
    return pg_get_numeric(result, row, at + 2, &sums->min) &&
           pg_get_numeric(result, row, at + 3, &sums->max) &&
           pg_get_numeric(result, row, at + 4, &sums->last);
}

static bool
row_read(struct billing_row *row, const void *result, int at)
{
    struct billing_tally *tally = &row->tally;

    row->is_locked = true;
    row->is_foreign =
        !meter_str_equal(row->groups, pg_get_bytes(result, at, LOCK_GROUPS));
    tally->watermark_us = pg_is_null(result, at, LOCK_WATERMARK)
                              ? INT64_MIN
                              : pg_get_time(result, at, LOCK_WATERMARK);
    tally->has_late = !pg_is_null(result, at, LOCK_LATE);
    return sums_read(&tally->folded, result, at, LOCK_FOLDED) &&
           (!tally->has_late ||
            sums_read(&tally->late, result, at, LOCK_LATE)) &&
           (pg_is_null(result, at, LOCK_MANUAL) ||
            pg_get_numeric(result, at, LOCK_MANUAL, &row->manual));
}

static enum projection_result
billing_locked(struct billing_rows *rows, size_t from, const void *result)
{
    size_t to = billing_tenant_end(rows, from);
    int count = pg_row_count(result);

    for (int i = 0; i < count; i++) {
        int32_t number = pg_get_int4(result, i, LOCK_NUMBER);
        struct billing_row *row = billing_row_at(rows, (size_t)number);

        CHECK(!row->is_locked);
        if (!row_read(row, result, i)) {
            log_error("meters", "a meter row holds no numbers",
                      log_bytes("tenant", row->tenant),
                      log_bytes("metric", row->metric));
            return PROJECTION_FAULT;
        }
    }
    /* meter_ensure holds them all; one that is gone all the same: again. */
    for (size_t i = from; i < to; i++) {
        if (!billing_row_at(rows, i)->is_locked) {
            return PROJECTION_RETRY;
        }
    }
    return PROJECTION_OK;
}

static void
billing_uniques_read(struct billing_rows *rows, const void *result)
{
    for (int i = 0; i < pg_row_count(result); i++) {
        size_t number = (size_t)pg_get_int4(result, i, 0);

        billing_unique_at(rows, number)->before =
            pg_get_bool(result, i, 1) ? BILLING_SEEN_FOLDED : BILLING_SEEN_LATE;
    }
    for (size_t i = 0; i < rows->uniques.count; i++) {
        struct billing_unique *unique = billing_unique_at(rows, i);

        unique->now = unique->before;
        unique->is_read = true;
    }
}

static void
billing_uniques_changed(struct billing_rows *rows)
{
    vec_clear(&rows->changed);
    for (size_t i = 0; i < rows->uniques.count; i++) {
        struct billing_unique *unique = billing_unique_at(rows, i);

        if (unique->now != unique->before) {
            unique->is_folded = unique->now == BILLING_SEEN_FOLDED;
            vec_push(&rows->changed, unique);
        }
    }
}

/* Newest first, as an item may touch a row twice. */
static void
billing_undo_item(void *data, const struct projected *item)
{
    struct billing_rows *rows = data;

    while (rows->steps.count > 0) {
        const struct billing_step *step =
            &rows->steps.items[--rows->steps.count];

        step->row->tally = step->tally;
        if (step->unique != NULL) {
            step->unique->now = step->seen;
        }
    }
    rows->adjustments.count = rows->adjustment_count;
    item->marks->is_adjusted = rows->was_adjusted;
}

/* Notes how things are, for undo. False: something is not locked. */
static bool
step_begin(struct billing_rows *rows, struct meter_str tenant,
           const struct billing_change *change, struct billing_step **begun)
{
    struct billing_row *row = billing_row_find(rows, tenant, change);
    struct billing_unique *unique = NULL;
    struct billing_step *step;

    if (row == NULL || !row->is_locked) {
        return false;
    }
    if (change->reading.unique.size > 0) {
        unique = billing_unique_find(rows, row, change->reading.unique);
        if (unique == NULL || !unique->is_read) {
            return false;
        }
    }
    step = vec_add(&rows->steps);
    step->row = row;
    step->tally = row->tally;
    step->unique = unique;
    step->seen = unique != NULL ? unique->now : BILLING_UNSEEN;
    *begun = step;
    return true;
}

/* A value moves from unseen to late to folded, and never back. */
static void
unique_count(struct billing_unique *unique, bool is_late)
{
    struct billing_tally *tally = &unique->row->tally;

    if (is_late && unique->now == BILLING_UNSEEN) {
        tally->late.uniques++;
        unique->now = BILLING_SEEN_LATE;
    }
    if (!is_late && unique->now != BILLING_SEEN_FOLDED) {
        tally->late.uniques -= unique->now == BILLING_SEEN_LATE;
        tally->folded.uniques++;
        unique->now = BILLING_SEEN_FOLDED;
    }
}

/* False: past 38 digits. */
static bool
row_total(const struct billing_row *row, enum billing_aggregation aggregation,
          const struct billing_tally *tally, struct meter_decimal *out)
{
    struct billing_total total = {
        .folded = &tally->folded,
        .late = tally->has_late ? &tally->late : NULL,
        .manual = row->manual,
    };
    bool has_value;

    return billing_total(aggregation, &total, out, &has_value);
}

/*
 * What the event does to the row of the step. False: past 38 digits or 64
 * bits, of the sums or of the total; *amount is only made for a late one.
 */
static bool
step_take(const struct billing_step *step, const struct billing_change *change,
          const struct billing_mark *mark, int64_t clock_us, bool is_late,
          struct meter_decimal *amount)
{
    enum billing_aggregation aggregation = change->meter->aggregation;
    struct billing_tally *tally = &step->row->tally;
    struct meter_decimal before;
    struct meter_decimal after;

    if (!billing_sums_add(is_late ? &tally->late : &tally->folded,
                          &change->reading, mark)) {
        return false;
    }
    if (step->unique != NULL) {
        unique_count(step->unique, is_late);
    }
    if (is_late) {
        tally->has_late = true;
    } else {
        billing_watermark_move(&tally->watermark_us, mark->ts_us, clock_us);
    }
    if (!row_total(step->row, aggregation, tally, &after)) {
        return false;
    }
    return !is_late ||
           (row_total(step->row, aggregation, &step->tally, &before) &&
            meter_decimal_subtract(after, before, amount));
}

/* Why the event is late, as the adjustment tells it. False: no memory. */
static bool
adjustment_reason(struct arena *arena, const struct billing_meter *meter,
                  const struct billing_row *row, struct meter_str *out)
{
    char lateness[SCALAR_DURATION_TEXT_SIZE + 1];
    char text[REASON_SIZE];
    int size;

    if (row->is_closed) {
        *out = METER_STR("period is closed");
        return true;
    }
    scalar_duration_format(meter->lateness_us, lateness);
    size = snprintf(text, sizeof(text),
                    "older than the watermark by more than the lateness of %s",
                    lateness);
    return arena_copy(arena, (struct meter_str){text, (size_t)size}, out);
}

/* False: no memory. */
static bool
adjustment_add(struct billing_rows *rows, const struct projected *item,
               const struct billing_change *change,
               const struct billing_row *row, struct meter_decimal amount)
{
    struct billing_adjustment *made = arena_alloc(&rows->arena, sizeof(*made));
    struct meter_str reason;

    if (made == NULL ||
        !adjustment_reason(&rows->arena, change->meter, row, &reason)) {
        return false;
    }
    *made = (struct billing_adjustment){
        .row = row,
        .event_id = item->event->event_id,
        .ts_us = item->event->ts_us,
        .writer_seq = item->writer_seq,
        .reading = change->reading,
        .has_value = change->reading.unique.size == 0,
        .amount = amount,
        .reason = reason,
    };
    vec_push(&rows->adjustments, made);
    item->marks->is_adjusted = true;
    return true;
}

static void
collision_log(const struct billing_row *row, struct meter_str groups)
{
    char key[2 * METER_DIGEST_SIZE + 1];

    meter_hex(row->group_key, METER_DIGEST_SIZE, key);
    log_error("meters", "two sets of groups share a key",
              log_bytes("tenant", row->tenant),
              log_bytes("metric", row->metric), log_str("groupKey", key),
              log_bytes("groups", groups));
}

/* As meter_upsert: one that a clock ahead has left counts as now. */
static int64_t
watermark_now(const struct billing_row *row, int64_t clock_us)
{
    int64_t watermark_us = row->tally.watermark_us;

    return watermark_us < clock_us ? watermark_us : clock_us;
}

static enum projection_apply
change_apply(struct billing_rows *rows, const struct billing_change *change,
             const struct projected *item, const struct projection_stamp *stamp,
             const char **error)
{
    struct billing_mark mark = billing_mark_of(item, stamp);
    struct meter_decimal amount;
    struct billing_step *step;
    bool is_late;

    if (!step_begin(rows, item->event->tenant, change, &step)) {
        return PROJECTION_MISSING;
    }
    if (step->row->is_foreign ||
        !meter_str_equal(step->row->groups, change->group.json)) {
        collision_log(step->row, change->group.json);
        *error = reason_format(item->arena,
                               "meter %s: these groups share their key with "
                               "others",
                               reason_quote(change->meter->metric).text);
        return PROJECTION_REJECTED;
    }
    is_late = step->row->is_closed ||
              !billing_is_on_time(change->meter, mark.ts_us,
                                  watermark_now(step->row, stamp->clock_us));
    if (!step_take(step, change, &mark, stamp->clock_us, is_late, &amount)) {
        *error = reason_format(item->arena,
                               "meter %s would leave 38 digits, or 64 bits "
                               "of count",
                               reason_quote(change->meter->metric).text);
        return PROJECTION_REJECTED;
    }
    if (is_late && !adjustment_add(rows, item, change, step->row, amount)) {
        return PROJECTION_MISSING; /* the transaction waits, then tries again */
    }
    return PROJECTION_APPLIED;
}

static enum projection_apply
billing_apply_item(void *data, const struct projected *item,
                   const struct projection_stamp *stamp, const char **error)
{
    const struct billing_effect *effect = billing_effect_of(item);
    struct billing_rows *rows = data;
    enum projection_apply applied = PROJECTION_APPLIED;

    vec_clear(&rows->steps);
    rows->adjustment_count = rows->adjustments.count;
    rows->was_adjusted = item->marks->is_adjusted;
    for (size_t i = 0; applied == PROJECTION_APPLIED && i < effect->count;
         i++) {
        applied = change_apply(rows, &effect->changes[i], item, stamp, error);
    }
    if (applied != PROJECTION_APPLIED) {
        billing_undo_item(rows, item);
    }
    return applied;
}


/* ---- the fast path, statements and answers --------------------------------
 */

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
    PUT_LIST(out->params, close_columns, PG_COLUMN_COUNT(close_columns),
             rows->closes);
    put_numbers(out->params, 0, rows->closes.count);
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
        PUT_LIST(out->params, row_columns, ROW_ENSURE_COLUMNS, rows->rows);
        pg_param_time(out->params, stamp->clock_us);
        *at = 1;
    } else if (*at <= count) {
        out->statement = STATEMENT_METER_LOCK;
        billing_lock_params(rows, *at - 1, out->params);
        *at = 1 + billing_tenant_end(rows, *at - 1);
    } else {
        out->statement = STATEMENT_METER_UNIQUE_READ;
        put_uniques(out->params, &rows->uniques, 1);
        put_numbers(out->params, 0, rows->uniques.count);
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
        put_uniques(out->params, &rows->uniques, 1);
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
        put_uniques(out->params, &rows->changed,
                    PG_COLUMN_COUNT(unique_columns));
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
