/*
 * batch_projections.c - accepted items and the projections' rows.
 *
 *   accepted items -> [fold] ------------------------------> rows  fast
 *   accepted items -> [collect] -> locked rows -> [apply] -> rows  careful
 *
 * Every projection sees the same items in the same order, and an item is
 * taken by all of them or by none.
 */

#include "ingest/batch.h"

static struct projected
item_view(struct batch_item *item)
{
    return (struct projected){
        .event = item->event,
        .effects = &item->effects,
        .writer_seq = item->writer_seq,
        .part_day = item->part_day,
        .marks = &item->marks,
        .arena = item->arena,
    };
}

static bool
item_has_effect(const struct batch_item *item)
{
    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        if (item->effects.of[i] != NULL) {
            return true;
        }
    }
    return false;
}

bool
batch_needs_care(struct batch_item *const *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i]->error == NULL && items[i]->event != NULL &&
            items[i]->effects.is_careful) {
            return true;
        }
    }
    return false;
}

/* item->first: whatever is not out; who is accepted is not known yet. */
bool
batch_look(struct batch *batch, int64_t now_us)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct batch_item *item = batch->items[i];
        struct projected view = item_view(item);

        for (size_t p = 0; item->first != NULL && p < PROJECTION_COUNT; p++) {
            if (item->effects.of[p] != NULL && projections[p]->look != NULL &&
                !projections[p]->look(batch->rows[p], &view, now_us)) {
                return false;
            }
        }
    }
    return true;
}

static enum projection_result
fold_item(struct batch *batch, struct batch_item *item,
          const struct projection_stamp *stamp)
{
    struct projected view = item_view(item);

    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        enum projection_result result = PROJECTION_OK;

        if (item->effects.of[i] != NULL) {
            result = projections[i]->fold(batch->rows[i], &view, stamp);
        }
        if (result != PROJECTION_OK) {
            return result;
        }
    }
    return PROJECTION_OK;
}

enum projection_result
batch_fold(struct batch *batch, const struct projection_stamp *stamp)
{
    enum projection_result result = PROJECTION_OK;

    for (size_t i = 0; result == PROJECTION_OK && i < batch->count; i++) {
        if (batch->items[i]->verdict == METER_VERDICT_ACCEPTED) {
            result = fold_item(batch, batch->items[i], stamp);
        }
    }
    for (size_t i = 0; result == PROJECTION_OK && i < PROJECTION_COUNT; i++) {
        result = projections[i]->fold_end(batch->rows[i]);
    }
    return result;
}

bool
batch_collect(struct batch *batch, enum projection_phase phase)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct batch_item *item = batch->items[i];
        struct projected view = item_view(item);

        if (item->verdict != METER_VERDICT_ACCEPTED) {
            continue;
        }
        for (size_t p = 0; p < PROJECTION_COUNT; p++) {
            if (item->effects.of[p] != NULL &&
                !projections[p]->collect(batch->rows[p], phase, &view)) {
                return false;
            }
        }
    }
    return true;
}

bool
batch_collect_fast(struct batch *batch, bool *has_states)
{
    *has_states = false;
    for (size_t p = 0; p < PROJECTION_COUNT; p++) {
        for (size_t i = 0; projections[p]->has_fast_states && i < batch->count;
             i++) {
            struct batch_item *item = batch->items[i];
            struct projected view = item_view(item);

            if (item->verdict == METER_VERDICT_ACCEPTED &&
                item->effects.of[p] != NULL &&
                !projections[p]->collect(batch->rows[p], PROJECTION_STATES,
                                         &view)) {
                return false;
            }
        }
        *has_states |= projections[p]->has_fast_states &&
                       projections[p]->changed(batch->rows[p]) > 0;
    }
    return true;
}

int64_t
batch_stamp_floor(const struct batch *batch)
{
    int64_t highest = 0;

    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        int64_t floor_us = projections[i]->stamp_floor(batch->rows[i]);

        highest = floor_us > highest ? floor_us : highest;
    }
    return highest;
}

/* By all projections, or by none and a reason. */
static enum projection_apply
item_apply(struct batch *batch, struct batch_item *item,
           const struct projection_stamp *stamp)
{
    struct projected view = item_view(item);
    enum projection_apply applied = PROJECTION_APPLIED;
    const char *error = NULL;
    size_t i;

    for (i = 0; i < PROJECTION_COUNT; i++) {
        if (item->effects.of[i] != NULL) {
            applied =
                projections[i]->apply(batch->rows[i], &view, stamp, &error);
        }
        if (applied != PROJECTION_APPLIED) {
            break;
        }
    }
    if (applied == PROJECTION_APPLIED) {
        return applied;
    }
    while (i > 0) {
        i--;
        if (item->effects.of[i] != NULL) {
            projections[i]->undo(batch->rows[i], &view);
        }
    }
    if (applied == PROJECTION_REJECTED) {
        batch_item_reject(item, "%s", error);
    }
    return applied;
}

/*
 * A repeat of an item that was rejected just now is the next candidate for
 * its id, as it would be had the events come one by one. When it touches a
 * row that is not locked the walk ends: the next run decides from there.
 */
bool
batch_apply(struct batch *batch, const struct projection_stamp *stamp,
            size_t *rejected)
{
    *rejected = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct batch_item *item = batch->items[i];
        enum projection_apply applied;

        if (item->first == NULL || item->first->is_known ||
            item->first->holder != NULL) {
            continue;
        }
        applied = item_has_effect(item) ? item_apply(batch, item, stamp)
                                        : PROJECTION_APPLIED;
        if (applied == PROJECTION_MISSING) {
            return *rejected > 0;
        }
        if (applied == PROJECTION_REJECTED) {
            ++*rejected;
        } else {
            item->first->holder = item;
        }
    }
    return true;
}
