/*
 * index.c - the projection `index`: rows of event_index that a transaction
 * adds.
 *
 *   paths under `indexed`, attribute tree -> [index_project] -> entries
 *   accepted items -> [fold | apply] -> list -> event_index_insert
 *
 * Rows are new and nobody's but this transaction's: there is nothing to lock
 * and nothing to decide. Items whose day is past the retention of the index
 * are left out here, before a partition is missed; those that retention has
 * taken meanwhile, by the statement.
 */

#include "project/index.h"

#include "base/log.h"
#include "base/memory.h"
#include "project/attribute.h"

#include <stdlib.h>

struct indexed_item {
    const struct meter_event *event;
    const struct index_effect *effect;
    int64_t writer_seq;
    int32_t part_day;
};

struct index_rows {
    VEC(struct indexed_item) items; /* arrival order */
    size_t entry_count;             /* of all items */
};


/* ---- what an event adds ---------------------------------------------- */

struct meter_str
index_value_cut(struct meter_str json)
{
    size_t size = INDEX_VALUE_SIZE_MAX;

    if (json.size <= size) {
        return json;
    }
    while (size > 0 && ((unsigned char)json.data[size] & 0xc0) == 0x80) {
        size--;
    }
    return (struct meter_str){json.data, size};
}

static bool
is_scalar(const struct json_value *value)
{
    return value != NULL && value->kind != JSON_NULL &&
           value->kind != JSON_OBJECT && value->kind != JSON_ARRAY;
}

/* Room for all paths; NULL: no memory. */
static struct index_effect *
effect_create(const struct event_type *type, struct arena *arena)
{
    struct index_effect *made = arena_alloc(
        arena, sizeof(*made) + type->indexed.count * sizeof(made->entries[0]));

    if (made != NULL) {
        made->count = 0;
    }
    return made;
}

bool
index_project(const struct event_type *type, const struct meter_event *event,
              const struct json_value *attributes, struct arena *arena,
              const void **effect, bool *is_careful, const char **error)
{
    struct index_effect *made = NULL;

    (void)event;
    (void)is_careful; /* rows of the index are nobody else's */
    *effect = NULL;
    for (size_t i = 0; i < type->indexed.count; i++) {
        const struct attribute_path *path = &type->indexed.items[i];
        const struct json_value *value = attribute_find(attributes, path);
        struct meter_str json;

        if (!is_scalar(value)) {
            continue;
        }
        if (made == NULL) {
            made = effect_create(type, arena);
        }
        if (made == NULL || !json_canonical(value, arena, &json)) {
            *error = "no memory is left for the event's indexed attributes";
            return false;
        }
        made->entries[made->count++] =
            (struct index_entry){path->name, index_value_cut(json)};
    }
    *effect = made;
    return true;
}


/* ---- items ----------------------------------------------------------- */

static void *
index_rows_create(void)
{
    return memory_alloc(sizeof(struct index_rows));
}

static void
index_rows_clear(void *of, bool is_trim)
{
    struct index_rows *rows = of;

    vec_clear(&rows->items);
    rows->entry_count = 0;
    if (is_trim) {
        vec_fini(&rows->items);
    }
}

static void
index_rows_destroy(void *of)
{
    if (of != NULL) {
        index_rows_clear(of, true);
        free(of);
    }
}

static const struct index_effect *
effect_of(const struct projected *item)
{
    return item->effects->of[PROJECTION_INDEX];
}

static void
rows_add(struct index_rows *rows, const struct projected *item)
{
    const struct index_effect *effect = effect_of(item);

    if (effect == NULL) {
        return;
    }
    *vec_add(&rows->items) = (struct indexed_item){
        item->event, effect, item->writer_seq, item->part_day};
    rows->entry_count += effect->count;
}

static enum projection_result
index_rows_fold(void *of, const struct projected *item,
                const struct projection_stamp *stamp)
{
    if (item->part_day >= stamp->index_floor) {
        rows_add(of, item);
    }
    return PROJECTION_OK;
}

static enum projection_result
index_rows_fold_end(void *of)
{
    (void)of;
    return PROJECTION_OK;
}

static bool
index_rows_collect(void *of, enum projection_phase phase,
                   const struct projected *item)
{
    (void)of;
    (void)phase;
    (void)item;
    return true;
}

static int64_t
index_rows_stamp_floor(const void *of)
{
    (void)of;
    return 0;
}

static enum projection_apply
index_rows_apply(void *of, const struct projected *item,
                 const struct projection_stamp *stamp, const char **error)
{
    (void)error;
    if (item->part_day >= stamp->index_floor) {
        rows_add(of, item);
    }
    return PROJECTION_APPLIED;
}

static void
index_rows_undo(void *of, const struct projected *item)
{
    struct index_rows *rows = of;

    if (rows->items.count > 0 &&
        rows->items.items[rows->items.count - 1].event == item->event) {
        rows->entry_count -=
            rows->items.items[rows->items.count - 1].effect->count;
        rows->items.count--;
    }
}


/* ---- the statement --------------------------------------------------- */

enum entry_column { ENTRY_TENANT, ENTRY_TYPE, ENTRY_ATTRIBUTE, ENTRY_VALUE };

static struct meter_str
entry_text(const struct indexed_item *item, size_t entry,
           enum entry_column column)
{
    switch (column) {
    case ENTRY_TENANT: return item->event->tenant;
    case ENTRY_TYPE: return item->event->type;
    case ENTRY_ATTRIBUTE: return item->effect->entries[entry].attribute;
    case ENTRY_VALUE: break;
    }
    return item->effect->entries[entry].value;
}

static void
put_texts(struct pg_params *out, const struct index_rows *rows,
          enum entry_column column)
{
    pg_param_array_begin(out, PG_TEXT, rows->entry_count);
    for (size_t i = 0; i < rows->items.count; i++) {
        for (size_t e = 0; e < rows->items.items[i].effect->count; e++) {
            pg_put_text(&out->bytes,
                        entry_text(&rows->items.items[i], e, column));
        }
    }
    pg_param_array_end(out);
}

static void
put_places(struct pg_params *out, const struct index_rows *rows)
{
    pg_param_array_begin(out, PG_TIMESTAMPTZ, rows->entry_count);
    for (size_t i = 0; i < rows->items.count; i++) {
        for (size_t e = 0; e < rows->items.items[i].effect->count; e++) {
            pg_put_time(&out->bytes, rows->items.items[i].event->ts_us);
        }
    }
    pg_param_array_end(out);
    pg_param_array_begin(out, PG_DATE, rows->entry_count);
    for (size_t i = 0; i < rows->items.count; i++) {
        for (size_t e = 0; e < rows->items.items[i].effect->count; e++) {
            pg_put_date(&out->bytes, rows->items.items[i].part_day);
        }
    }
    pg_param_array_end(out);
    pg_param_array_begin(out, PG_INT8, rows->entry_count);
    for (size_t i = 0; i < rows->items.count; i++) {
        for (size_t e = 0; e < rows->items.items[i].effect->count; e++) {
            pg_put_int8(&out->bytes, rows->items.items[i].writer_seq);
        }
    }
    pg_param_array_end(out);
}

static bool
index_rows_next(void *of, enum projection_phase phase,
                const struct projection_stamp *stamp, size_t *at,
                struct projection_query *out)
{
    const struct index_rows *rows = of;

    if (*at > 0 || rows->items.count == 0 ||
        (phase != PROJECTION_APPLY && phase != PROJECTION_WRITE)) {
        return false;
    }
    out->statement = STATEMENT_EVENT_INDEX_INSERT;
    put_texts(out->params, rows, ENTRY_TENANT);
    put_texts(out->params, rows, ENTRY_TYPE);
    put_texts(out->params, rows, ENTRY_ATTRIBUTE);
    put_texts(out->params, rows, ENTRY_VALUE);
    put_places(out->params, rows);
    pg_param_uuid(out->params, stamp->writer);
    ++*at;
    return true;
}

/* Fewer: days that retention has taken. */
static enum projection_result
index_rows_answer(void *of, enum projection_phase phase, size_t at,
                  const void *result)
{
    const struct index_rows *rows = of;
    int64_t added = pg_affected(result);

    (void)phase;
    (void)at;
    if (added >= 0 && (size_t)added <= rows->entry_count) {
        return PROJECTION_OK;
    }
    log_error("project", "more was indexed than was sent",
              log_int("sent", (int64_t)rows->entry_count),
              log_int("added", added));
    return PROJECTION_FAULT;
}

static size_t
index_rows_changed(const void *of)
{
    const struct index_rows *rows = of;

    return rows->entry_count;
}

const struct projection projection_index = {
    .name = "index",
    .project = index_project,
    .rows_create = index_rows_create,
    .rows_destroy = index_rows_destroy,
    .rows_clear = index_rows_clear,
    .look = NULL,
    .fold = index_rows_fold,
    .fold_end = index_rows_fold_end,
    .collect = index_rows_collect,
    .stamp_floor = index_rows_stamp_floor,
    .apply = index_rows_apply,
    .undo = index_rows_undo,
    .next = index_rows_next,
    .answer = index_rows_answer,
    .changed = index_rows_changed,
    .recount = NULL,
};
