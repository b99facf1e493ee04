/*
 * rollup_batch.c - the buckets of one rollup transaction. Pure.
 *
 *   marks as taken -> [add] -> [settle] -> buckets, once each, in key order
 *                                       -> marks of the level above
 *
 * rollup.c takes marks by the thousand and puts them into its statements from
 * here; meterd rebuild does the same without a loop.
 */

#include "series/rollup_batch.h"

#include "pg/column.h"

#include <stdlib.h>

#define BLOCK_SIZE (64u << 10)
#define ARENA_MAX  (64u << 20)

static const struct pg_column mark_columns[] = {
    PG_COLUMN(TEXT, struct rollup_mark, tenant),
    PG_COLUMN(TEXT, struct rollup_mark, series),
    PG_COLUMN(INT8, struct rollup_mark, version),
    PG_COLUMN(BYTES, struct rollup_mark, dimension_key),
    PG_COLUMN(TIME, struct rollup_mark, bucket_us),
};

static const struct pg_column marked_column[] = {
    PG_COLUMN(TIME, struct rollup_mark, marked_us),
};

void
rollup_batch_init(struct rollup_batch *batch)
{
    *batch = (struct rollup_batch){.level = METER_LEVEL_1M};
    arena_init(&batch->arena, BLOCK_SIZE, ARENA_MAX);
}

void
rollup_batch_fini(struct rollup_batch *batch)
{
    arena_fini(&batch->arena);
    vec_fini(&batch->buckets);
    vec_fini(&batch->above);
}

void
rollup_batch_reset(struct rollup_batch *batch, enum meter_level level)
{
    CHECK(level > METER_LEVEL_5S && level < METER_LEVEL_COUNT);
    arena_reset(&batch->arena);
    batch->level = level;
    vec_clear(&batch->buckets);
    vec_clear(&batch->above);
}

bool
rollup_batch_add(struct rollup_batch *batch, const struct rollup_mark *mark)
{
    struct rollup_mark copy = *mark;

    if (!arena_copy(&batch->arena, mark->tenant, &copy.tenant) ||
        !arena_copy(&batch->arena, mark->series, &copy.series) ||
        !arena_copy(&batch->arena, mark->dimension_key, &copy.dimension_key)) {
        return false;
    }
    vec_push(&batch->buckets, copy);
    return true;
}

static int
rollup_order_int(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

/* The order in which rows of a level are locked. */
static int
rollup_order_marks(const void *left, const void *right)
{
    const struct rollup_mark *a = left;
    const struct rollup_mark *b = right;
    int order = meter_str_compare(a->tenant, b->tenant);

    if (order == 0) {
        order = meter_str_compare(a->series, b->series);
    }
    if (order == 0) {
        order = rollup_order_int(a->version, b->version);
    }
    if (order == 0) {
        order = meter_str_compare(a->dimension_key, b->dimension_key);
    }
    return order == 0 ? rollup_order_int(a->bucket_us, b->bucket_us) : order;
}

/* Marks are in order: equal ones become one, with the oldest time. */
static void
rollup_marks_unite(struct rollup_marks *marks)
{
    size_t kept = 0;

    for (size_t i = 0; i < marks->count; i++) {
        const struct rollup_mark *mark = &marks->items[i];

        if (kept > 0 &&
            rollup_order_marks(&marks->items[kept - 1], mark) == 0) {
            struct rollup_mark *same = &marks->items[kept - 1];

            if (mark->marked_us < same->marked_us) {
                same->marked_us = mark->marked_us;
            }
            continue;
        }
        marks->items[kept++] = *mark;
    }
    marks->count = kept;
}

static void
rollup_marks_leave_out(struct rollup_marks *marks, int64_t floor_us)
{
    size_t kept = 0;

    for (size_t i = 0; i < marks->count; i++) {
        if (marks->items[i].bucket_us >= floor_us) {
            marks->items[kept++] = marks->items[i];
        }
    }
    marks->count = kept;
}

void
rollup_batch_settle(struct rollup_batch *batch, int64_t child_floor_us)
{
    struct rollup_marks *buckets = &batch->buckets;

    rollup_marks_leave_out(buckets, child_floor_us);
    if (buckets->count > 0) {
        qsort(buckets->items, buckets->count, sizeof(*buckets->items),
              rollup_order_marks);
    }
    rollup_marks_unite(buckets);
    for (size_t i = 0; i < buckets->count && batch->level < METER_LEVEL_7D;
         i++) {
        struct rollup_mark mark = buckets->items[i];

        mark.bucket_us = meter_level_bucket(batch->level + 1, mark.bucket_us);
        vec_push(&batch->above, mark);
    }
    rollup_marks_unite(&batch->above);
}

void
rollup_batch_range(const struct rollup_batch *batch, int64_t *first_us,
                   int64_t *end_us)
{
    int64_t first = INT64_MAX;
    int64_t last = INT64_MIN;

    CHECK(batch->buckets.count > 0);
    for (size_t i = 0; i < batch->buckets.count; i++) {
        int64_t bucket_us = batch->buckets.items[i].bucket_us;

        first = bucket_us < first ? bucket_us : first;
        last = bucket_us > last ? bucket_us : last;
    }
    *first_us = first;
    *end_us = last + meter_level_size_us(batch->level);
}

void
rollup_marks_put(const struct rollup_marks *marks, struct pg_params *params)
{
    pg_param_rows(params, mark_columns, PG_COLUMN_COUNT(mark_columns),
                  marks->items, marks->count, sizeof(*marks->items));
}

void
rollup_marks_put_marked(const struct rollup_marks *marks,
                        struct pg_params *params)
{
    pg_param_rows(params, marked_column, 1, marks->items, marks->count,
                  sizeof(*marks->items));
}

void
rollup_batch_put_ends(const struct rollup_batch *batch,
                      struct pg_params *params)
{
    const struct rollup_marks *buckets = &batch->buckets;
    int64_t size_us = meter_level_size_us(batch->level);

    pg_param_array_begin(params, PG_TIMESTAMPTZ, buckets->count);
    for (size_t i = 0; i < buckets->count; i++) {
        pg_put_time(&params->bytes, buckets->items[i].bucket_us + size_us);
    }
    pg_param_array_end(params);
}

size_t
rollup_marks_put_series(const struct rollup_marks *marks, size_t from,
                        struct pg_params *params)
{
    const struct rollup_mark *first = &marks->items[from];
    size_t end = from;

    while (end < marks->count &&
           meter_str_equal(marks->items[end].tenant, first->tenant) &&
           meter_str_equal(marks->items[end].series, first->series) &&
           marks->items[end].version == first->version) {
        end++;
    }
    pg_param_text(params, first->tenant);
    pg_param_text(params, first->series);
    pg_param_int8(params, first->version);
    pg_param_array_begin(params, PG_BYTEA, end - from);
    for (size_t i = from; i < end; i++) {
        pg_put_bytes(&params->bytes, marks->items[i].dimension_key);
    }
    pg_param_array_end(params);
    return end;
}
