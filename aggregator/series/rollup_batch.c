/*
 * rollup_batch.c - see rollup_batch.h.
 */

#include "series/rollup_batch.h"

#include <stdlib.h>

#define BLOCK_SIZE (64u << 10)
#define ARENA_MAX  (64u << 20)

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
    free(batch->buckets.list);
    free(batch->above.list);
}


void
rollup_batch_reset(struct rollup_batch *batch, enum meter_level level)
{
    CHECK(level > METER_LEVEL_5S && level < METER_LEVEL_COUNT);
    arena_reset(&batch->arena);
    batch->level = level;
    batch->buckets.count = 0;
    batch->above.count = 0;
}


static bool
push(struct rollup_marks *marks, const struct rollup_mark *mark)
{
    if (marks->count == marks->room) {
        size_t room = marks->room == 0 ? 256 : 2 * marks->room;
        struct rollup_mark *list = realloc(marks->list, room * sizeof(*list));

        if (list == NULL) {
            return false;
        }
        marks->list = list;
        marks->room = room;
    }
    marks->list[marks->count++] = *mark;
    return true;
}


bool
rollup_batch_add(struct rollup_batch *batch, const struct rollup_mark *mark)
{
    struct rollup_mark copy = *mark;

    return arena_copy(&batch->arena, mark->tenant, &copy.tenant) &&
           arena_copy(&batch->arena, mark->series, &copy.series) &&
           arena_copy(&batch->arena, mark->dimension_key,
                      &copy.dimension_key) &&
           push(&batch->buckets, &copy);
}


static int
order_int(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}


/* The order in which rows of a level are locked. */
static int
order_marks(const void *left, const void *right)
{
    const struct rollup_mark *a = left;
    const struct rollup_mark *b = right;
    int order = meter_str_compare(a->tenant, b->tenant);

    if (order == 0) {
        order = meter_str_compare(a->series, b->series);
    }
    if (order == 0) {
        order = order_int(a->version, b->version);
    }
    if (order == 0) {
        order = meter_str_compare(a->dimension_key, b->dimension_key);
    }
    return order == 0 ? order_int(a->bucket_us, b->bucket_us) : order;
}


/* Marks are in order: equal ones become one, with the oldest time. */
static void
unite(struct rollup_marks *marks)
{
    size_t kept = 0;

    for (size_t i = 0; i < marks->count; i++) {
        const struct rollup_mark *mark = &marks->list[i];

        if (kept > 0 && order_marks(&marks->list[kept - 1], mark) == 0) {
            struct rollup_mark *same = &marks->list[kept - 1];

            if (mark->marked_us < same->marked_us) {
                same->marked_us = mark->marked_us;
            }
            continue;
        }
        marks->list[kept++] = *mark;
    }
    marks->count = kept;
}


static void
leave_out_below(struct rollup_marks *marks, int64_t floor_us)
{
    size_t kept = 0;

    for (size_t i = 0; i < marks->count; i++) {
        if (marks->list[i].bucket_us >= floor_us) {
            marks->list[kept++] = marks->list[i];
        }
    }
    marks->count = kept;
}


bool
rollup_batch_settle(struct rollup_batch *batch, int64_t child_floor_us)
{
    struct rollup_marks *buckets = &batch->buckets;

    leave_out_below(buckets, child_floor_us);
    if (buckets->count > 0) {
        qsort(buckets->list, buckets->count, sizeof(*buckets->list),
              order_marks);
    }
    unite(buckets);

    if (batch->level == METER_LEVEL_7D) {
        return true;
    }
    for (size_t i = 0; i < buckets->count; i++) {
        struct rollup_mark mark = buckets->list[i];

        mark.bucket_us = meter_level_bucket(batch->level + 1, mark.bucket_us);
        if (!push(&batch->above, &mark)) {
            return false;
        }
    }
    unite(&batch->above);
    return true;
}


void
rollup_batch_range(const struct rollup_batch *batch, int64_t *first_us,
                   int64_t *end_us)
{
    int64_t first = INT64_MAX;
    int64_t last = INT64_MIN;

    CHECK(batch->buckets.count > 0);
    for (size_t i = 0; i < batch->buckets.count; i++) {
        int64_t bucket_us = batch->buckets.list[i].bucket_us;

        first = bucket_us < first ? bucket_us : first;
        last = bucket_us > last ? bucket_us : last;
    }
    *first_us = first;
    *end_us = last + meter_level_size_us(batch->level);
}


void
rollup_marks_put(const struct rollup_marks *marks, struct pg_params *params)
{
    const struct rollup_mark *list = marks->list;
    size_t count = marks->count;

    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, list[i].tenant);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, list[i].series);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_int8(&params->bytes, list[i].version);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_bytes(&params->bytes, list[i].dimension_key);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_TIMESTAMPTZ, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_time(&params->bytes, list[i].bucket_us);
    }
    pg_param_array_end(params);
}


void
rollup_batch_put_ends(const struct rollup_batch *batch,
                      struct pg_params *params)
{
    const struct rollup_marks *buckets = &batch->buckets;
    int64_t size_us = meter_level_size_us(batch->level);

    pg_param_array_begin(params, PG_TIMESTAMPTZ, buckets->count);
    for (size_t i = 0; i < buckets->count; i++) {
        pg_put_time(&params->bytes, buckets->list[i].bucket_us + size_us);
    }
    pg_param_array_end(params);
}


void
rollup_marks_put_marked(const struct rollup_marks *marks,
                        struct pg_params *params)
{
    pg_param_array_begin(params, PG_TIMESTAMPTZ, marks->count);
    for (size_t i = 0; i < marks->count; i++) {
        pg_put_time(&params->bytes, marks->list[i].marked_us);
    }
    pg_param_array_end(params);
}


size_t
rollup_marks_put_series(const struct rollup_marks *marks, size_t from,
                        struct pg_params *params)
{
    const struct rollup_mark *first = &marks->list[from];
    size_t end = from;

    while (end < marks->count &&
           meter_str_equal(marks->list[end].tenant, first->tenant) &&
           meter_str_equal(marks->list[end].series, first->series) &&
           marks->list[end].version == first->version) {
        end++;
    }
    pg_param_text(params, first->tenant);
    pg_param_text(params, first->series);
    pg_param_int8(params, first->version);
    pg_param_array_begin(params, PG_BYTEA, end - from);
    for (size_t i = from; i < end; i++) {
        pg_put_bytes(&params->bytes, marks->list[i].dimension_key);
    }
    pg_param_array_end(params);
    return end;
}
