/*
 * billing_careful.c - meters one by one, on locked rows; see billing_rows.h.
 *
 *   items -> [collect] -> rows, values -> locked and read
 *         -> [apply] --> on time: folded, the watermark moves
 *                    --> too late, or the period is closed: an adjustment
 *         -> [undo]
 *
 * An adjustment is worth what it does to the total. Folded sums and the
 * watermark do not move for it, so that no late event makes others late.
 */

#include "project/billing_rows.h"

#include "base/log.h"
#include "base/reason.h"
#include "config/scalar.h"

#include <stdio.h>

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

bool
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

enum projection_result
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

void
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

void
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
void
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

enum projection_apply
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
