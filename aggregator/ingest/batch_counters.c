/*
 * batch_counters.c - counter rows of one transaction.
 *
 *   accepted items -> [fold] -> one max(x + a, b) per row     fast path
 *   accepted items -> [collect] -> locked values -> [apply]   careful path
 *
 * A row is found by (tenant, counter name, dimension key). The fold gives
 * what one-by-one application gives; where it cannot (64 bits, two
 * dimension sets under one key) the careful path decides event by event.
 */

#include "ingest/batch.h"

#include <stdlib.h>

#define ROW_KEY_SIZE_MAX \
    (METER_DIGEST_SIZE + 2 + METER_TENANT_SIZE_MAX + METER_NAME_SIZE_MAX)
#define ROW_ROOM_MIN 256

/* Injective: the digest, the tenant's size, tenant, name. */
static size_t
row_key(struct meter_str tenant, struct meter_str name,
        const uint8_t *dimension_key, char out[ROW_KEY_SIZE_MAX])
{
    size_t at = METER_DIGEST_SIZE;

    CHECK(tenant.size <= METER_TENANT_SIZE_MAX);
    CHECK(name.size <= METER_NAME_SIZE_MAX);
    memcpy(out, dimension_key, METER_DIGEST_SIZE);
    out[at++] = (char)(tenant.size & 0xff);
    out[at++] = (char)(tenant.size >> 8);
    memcpy(out + at, tenant.data, tenant.size);
    at += tenant.size;
    memcpy(out + at, name.data, name.size);
    return at + name.size;
}

static struct batch_row *
row_find(const struct batch *batch, struct meter_str tenant,
         struct meter_str name, const uint8_t *dimension_key)
{
    char key[ROW_KEY_SIZE_MAX];
    size_t size = row_key(tenant, name, dimension_key, key);

    return map_find(&batch->row_map, (struct meter_str){key, size});
}

static struct batch_row *
row_of_change(const struct batch *batch, const struct batch_item *item,
              const struct counter_change *change)
{
    return row_find(batch, item->event->tenant, change->counter->name,
                    change->dimension_key);
}

static bool
rows_reserve(struct batch *batch)
{
    size_t room = batch->row_room == 0 ? ROW_ROOM_MIN : batch->row_room * 2;
    struct batch_row **rows;

    if (batch->row_count < batch->row_room) {
        return true;
    }
    rows = realloc(batch->rows, room * sizeof(*rows));
    if (rows == NULL) {
        return false;
    }
    batch->rows = rows;
    batch->row_room = room;
    return true;
}

/* A new row with its own copy of the key; NULL: no memory. */
static struct batch_row *
row_add(struct batch *batch, const struct batch_item *item,
        const struct counter_change *change, struct meter_str key)
{
    struct batch_row *row;

    if (!rows_reserve(batch)) {
        return NULL;
    }
    row = arena_zalloc(&batch->arena, sizeof(*row));
    if (row == NULL || !arena_copy(&batch->arena, key, &row->key)) {
        return NULL;
    }
    row->tenant = item->event->tenant;
    row->name = change->counter->name;
    row->dimension_key = change->dimension_key;
    row->dimensions = change->dimensions;
    counter_fold_init(&row->fold);
    if (map_add(&batch->row_map, row->key, row) != row) {
        return NULL;
    }
    batch->rows[batch->row_count++] = row;
    return row;
}

/* The row of a change, made when it is the first one; NULL: no memory. */
static struct batch_row *
row_take(struct batch *batch, const struct batch_item *item,
         const struct counter_change *change)
{
    char bytes[ROW_KEY_SIZE_MAX];
    struct meter_str key = {bytes, 0};
    struct batch_row *row;

    key.size = row_key(item->event->tenant, change->counter->name,
                       change->dimension_key, bytes);
    row = map_find(&batch->row_map, key);
    return row != NULL ? row : row_add(batch, item, change, key);
}

/* The order of locking, the same in every process. */
static int
rows_compare(const void *left, const void *right)
{
    const struct batch_row *a = *(struct batch_row *const *)left;
    const struct batch_row *b = *(struct batch_row *const *)right;
    int order = meter_str_compare(a->tenant, b->tenant);

    if (order == 0) {
        order = meter_str_compare(a->name, b->name);
    }
    if (order == 0) {
        order = memcmp(a->dimension_key, b->dimension_key, METER_DIGEST_SIZE);
    }
    return order;
}

static void
rows_sort(struct batch *batch)
{
    if (!batch->is_unsorted && batch->row_count > 1) {
        qsort(batch->rows, batch->row_count, sizeof(*batch->rows),
              rows_compare);
    }
}

static void
rows_clear(struct batch *batch)
{
    map_clear(&batch->row_map);
    batch->row_count = 0;
}

static enum batch_fold
fold_item(struct batch *batch, const struct batch_item *item)
{
    for (size_t i = 0; i < item->change_count; i++) {
        const struct counter_change *change = &item->changes[i];
        struct batch_row *row = row_take(batch, item, change);

        if (row == NULL) {
            return BATCH_FOLD_MEMORY;
        }
        if (!meter_str_equal(row->dimensions, change->dimensions) ||
            !counter_fold_step(&row->fold, change->delta,
                               change->counter->floor_at_zero)) {
            return BATCH_FOLD_CAREFUL;
        }
    }
    return BATCH_FOLD_OK;
}

/* How far each fold strays from its end. False: too far to tell. */
static bool
rows_measure(struct batch *batch)
{
    batch->up_max = 0;
    batch->down_max = 0;
    for (size_t i = 0; i < batch->row_count; i++) {
        const struct counter_fold *fold = &batch->rows[i]->fold;
        int64_t up;
        int64_t down;

        if (__builtin_sub_overflow(fold->high, fold->a, &up) ||
            __builtin_sub_overflow(fold->a, fold->low, &down)) {
            return false;
        }
        batch->up_max = up > batch->up_max ? up : batch->up_max;
        /* Behind a clamp the way down is no longer known, nor of interest. */
        if (!fold->has_b && down > batch->down_max) {
            batch->down_max = down;
        }
    }
    return true;
}

bool
batch_fold_fits(const struct batch *batch, int64_t value_min, int64_t value_max)
{
    int64_t edge;

    return !__builtin_add_overflow(value_max, batch->up_max, &edge) &&
           !__builtin_sub_overflow(value_min, batch->down_max, &edge);
}

enum batch_fold
batch_fold(struct batch *batch)
{
    rows_clear(batch);
    for (size_t i = 0; i < batch->count; i++) {
        const struct batch_item *item = batch->items[i];

        if (item->verdict == METER_VERDICT_ACCEPTED) {
            enum batch_fold folded = fold_item(batch, item);

            if (folded != BATCH_FOLD_OK) {
                return folded;
            }
        }
    }
    if (!rows_measure(batch)) {
        return BATCH_FOLD_CAREFUL;
    }
    rows_sort(batch);
    return BATCH_FOLD_OK;
}

static size_t
changes_max(const struct batch *batch)
{
    size_t most = 1;

    for (size_t i = 0; i < batch->count; i++) {
        if (batch->items[i]->change_count > most) {
            most = batch->items[i]->change_count;
        }
    }
    return most;
}

bool
batch_rows_collect(struct batch *batch)
{
    rows_clear(batch);
    batch->before =
        arena_alloc(&batch->arena, changes_max(batch) * sizeof(*batch->before));
    if (batch->before == NULL) {
        return false;
    }
    for (size_t i = 0; i < batch->count; i++) {
        const struct batch_item *item = batch->items[i];

        if (item->verdict != METER_VERDICT_ACCEPTED) {
            continue;
        }
        for (size_t j = 0; j < item->change_count; j++) {
            if (row_take(batch, item, &item->changes[j]) == NULL) {
                return false;
            }
        }
    }
    rows_sort(batch);
    return true;
}

bool
batch_row_locked(struct batch *batch, struct meter_str tenant,
                 struct meter_str name, struct meter_str dimension_key,
                 struct meter_str dimensions, int64_t value)
{
    struct batch_row *row;

    if (tenant.size > METER_TENANT_SIZE_MAX ||
        name.size > METER_NAME_SIZE_MAX ||
        dimension_key.size != METER_DIGEST_SIZE) {
        return false;
    }
    row = row_find(batch, tenant, name, (const uint8_t *)dimension_key.data);
    if (row == NULL || row->is_locked) {
        return false;
    }
    row->is_locked = true;
    row->is_foreign = !meter_str_equal(row->dimensions, dimensions);
    row->value = value;
    return true;
}

/* Takes back the first `count` changes of an item, newest first. */
static void
item_undo(struct batch *batch, const struct batch_item *item, size_t count)
{
    while (count > 0) {
        count--;
        row_of_change(batch, item, &item->changes[count])->value =
            batch->before[count];
    }
}

/*
 * All changes of one item, or none and a reason. The values before are
 * kept aside, since a clamp cannot be turned back.
 */
static void
item_apply(struct batch *batch, struct batch_item *item)
{
    for (size_t i = 0; i < item->change_count; i++) {
        const struct counter_change *change = &item->changes[i];
        const struct counter *counter = change->counter;
        struct batch_row *row = row_of_change(batch, item, change);

        batch->before[i] = row->value;
        if (row->is_foreign ||
            !meter_str_equal(row->dimensions, change->dimensions)) {
            batch_item_reject(item,
                              "counter %.*s: these dimensions share their "
                              "key with others",
                              (int)counter->name.size, counter->name.data);
        } else if (!counter_apply(&row->value, change->delta,
                                  counter->floor_at_zero)) {
            batch_item_reject(item, "counter %.*s would overflow 64 bits",
                              (int)counter->name.size, counter->name.data);
        }
        if (item->error != NULL) {
            item_undo(batch, item, i);
            return;
        }
    }
}

/* True when every row that the item would change is locked. */
static bool
item_has_rows(const struct batch *batch, const struct batch_item *item)
{
    for (size_t i = 0; i < item->change_count; i++) {
        const struct batch_row *row =
            row_of_change(batch, item, &item->changes[i]);

        if (row == NULL || !row->is_locked) {
            return false;
        }
    }
    return true;
}

/*
 * A repeat of an item that was rejected just now is the next candidate for
 * its id, as it would be had the events come one by one. When it touches a
 * row that is not locked the walk ends: the next run decides from there.
 */
size_t
batch_apply(struct batch *batch)
{
    size_t rejected = 0;

    for (size_t i = 0; i < batch->count; i++) {
        struct batch_item *item = batch->items[i];

        if (item->first == NULL || item->first->is_known ||
            item->first->holder != NULL) {
            continue;
        }
        if (!item_has_rows(batch, item)) {
            CHECK(rejected > 0);
            return rejected;
        }
        item_apply(batch, item);
        if (item->error != NULL) {
            rejected++;
        } else {
            item->first->holder = item;
        }
    }
    return rejected;
}
