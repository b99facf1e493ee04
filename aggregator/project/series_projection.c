/*
 * series_projection.c - what series need of a transaction: the states of
 * their entities.
 *
 *   accepted items -> [collect] -> entities -> made and locked in key order
 *                  -> [fold], [apply] -> states before, marks -> written
 *
 * Series themselves are folded after the commit. Both paths go the same way:
 * an entity's row is locked before it is asked, and later transactions of
 * other lanes wait for it, so the order of commits is that of its states.
 */

#include "project/series.h"

#include "project/recount.h"

#include "base/log.h"
#include "base/map.h"

#include <stdlib.h>

#define ARENA_BLOCK   ((size_t)64 << 10)
#define ARENA_MAX     ((size_t)512 << 20)
#define COUNT_MAX     ((size_t)1 << 24)
#define LIST_ROOM_MIN 64
#define KEY_SIZE_MAX \
    (4 + METER_TENANT_SIZE_MAX + SERIES_OWNER_SIZE_MAX + SERIES_ENTITY_SIZE_MAX)

/* An entity of a state series. */
struct entity {
    struct meter_str key;
    struct meter_str tenant; /* parts of key, as the rest */
    struct meter_str owner;
    struct meter_str entity;
    struct meter_str now; /* canonical JSON; data NULL: none */
    int64_t updated_us;
    bool is_locked;
};

/* One change of the item applied last, for the way back. */
struct step {
    struct entity *entity;
    struct meter_str from;
};

struct series_rows {
    struct map map;
    struct entity **list; /* by (tenant, owner, entity) */
    size_t count;
    size_t room;
    struct step *steps;
    size_t step_count;
    size_t step_room;
    struct arena arena;
};

static const struct series_effect *
effect_of(const struct projected *item)
{
    return item->effects->of[PROJECTION_SERIES];
}

static void *
series_rows_create(void)
{
    struct series_rows *rows = calloc(1, sizeof(*rows));

    if (rows != NULL) {
        map_init(&rows->map, COUNT_MAX);
        arena_init(&rows->arena, ARENA_BLOCK, ARENA_MAX);
    }
    return rows;
}

/* Gives back all memory; the rows are as new. */
static void
rows_trim(struct series_rows *rows)
{
    map_fini(&rows->map);
    free(rows->list);
    free(rows->steps);
    arena_fini(&rows->arena);
    rows->list = NULL;
    rows->room = 0;
    rows->steps = NULL;
    rows->step_room = 0;
}

static void
series_rows_destroy(void *data)
{
    if (data != NULL) {
        rows_trim(data);
        free(data);
    }
}

static void
series_rows_clear(void *data, bool is_trim)
{
    struct series_rows *rows = data;

    if (is_trim) {
        rows_trim(rows);
    }
    map_clear(&rows->map);
    arena_reset(&rows->arena);
    rows->count = 0;
    rows->step_count = 0;
}

/* Injective: two sizes, tenant, owner, entity. */
static struct meter_str
entity_key(struct meter_str tenant, struct meter_str owner,
           struct meter_str entity, char out[KEY_SIZE_MAX])
{
    struct meter_writer writer;

    meter_writer_init(&writer, out, KEY_SIZE_MAX);
    meter_put_u16(&writer, (uint16_t)tenant.size);
    meter_put_u16(&writer, (uint16_t)owner.size);
    meter_put_bytes(&writer, tenant.data, tenant.size);
    meter_put_bytes(&writer, owner.data, owner.size);
    meter_put_bytes(&writer, entity.data, entity.size);
    return writer.failed ? (struct meter_str){NULL, 0}
                         : (struct meter_str){out, writer.at};
}

/* NULL: none; also when the parts are no key. */
static struct entity *
entity_find(const struct series_rows *rows, struct meter_str tenant,
            struct meter_str owner, struct meter_str entity)
{
    char bytes[KEY_SIZE_MAX];
    struct meter_str key = entity_key(tenant, owner, entity, bytes);

    return key.data == NULL ? NULL : map_find(&rows->map, key);
}

static bool
list_push(struct series_rows *rows, struct entity *entity)
{
    size_t room = rows->room == 0 ? LIST_ROOM_MIN : rows->room * 2;
    struct entity **list;

    if (rows->count == rows->room) {
        list = realloc(rows->list, room * sizeof(struct entity *));
        if (list == NULL) {
            return false;
        }
        rows->list = list;
        rows->room = room;
    }
    rows->list[rows->count++] = entity;
    return true;
}

/* False: no memory. */
static bool
entity_take(struct series_rows *rows, struct meter_str tenant,
            const struct series_change *change)
{
    char bytes[KEY_SIZE_MAX];
    char owner_text[SERIES_OWNER_SIZE_MAX];
    struct meter_str owner = series_owner(change->series, owner_text);
    struct meter_str key = entity_key(tenant, owner, change->entity, bytes);
    struct entity *entity;
    const char *at;

    CHECK(key.data != NULL);
    if (map_find(&rows->map, key) != NULL) {
        return true;
    }
    entity = arena_zalloc(&rows->arena, sizeof(*entity));
    if (entity == NULL || !arena_copy(&rows->arena, key, &entity->key)) {
        return false;
    }
    at = entity->key.data + 4;
    entity->tenant = (struct meter_str){at, tenant.size};
    at += tenant.size;
    entity->owner = (struct meter_str){at, owner.size};
    at += owner.size;
    entity->entity = (struct meter_str){at, change->entity.size};
    return map_add(&rows->map, entity->key, entity) == entity &&
           list_push(rows, entity);
}

static bool
series_collect(void *data, enum projection_phase phase,
               const struct projected *item)
{
    const struct series_effect *effect = effect_of(item);

    if (phase != PROJECTION_STATES || effect->state_count == 0) {
        return true;
    }
    for (size_t i = 0; i < effect->count; i++) {
        if (effect->changes[i].entity.data != NULL &&
            !entity_take(data, item->event->tenant, &effect->changes[i])) {
            return false;
        }
    }
    return true;
}

/* States have an order: a transaction is later than those before it. */
static int64_t
series_stamp_floor(const void *data)
{
    const struct series_rows *rows = data;
    int64_t floor_us = 0;

    for (size_t i = 0; i < rows->count; i++) {
        if (rows->list[i]->updated_us > floor_us) {
            floor_us = rows->list[i]->updated_us;
        }
    }
    return floor_us;
}

static void
steps_undo(struct series_rows *rows)
{
    while (rows->step_count > 0) {
        const struct step *step = &rows->steps[--rows->step_count];

        step->entity->now = step->from;
    }
}

static bool
steps_reserve(struct series_rows *rows, size_t count)
{
    struct step *steps;

    if (count <= rows->step_room) {
        return true;
    }
    steps = realloc(rows->steps, count * sizeof(*steps));
    if (steps == NULL) {
        return false;
    }
    rows->steps = steps;
    rows->step_room = count;
    return true;
}

/*
 * They outlive the rows: the buffer asks for them after the commit. Made
 * once for all tries of an item, with room for the longest state.
 */
static bool
mark_from(const struct series_rows *rows, const struct projected *item)
{
    struct meter_str *from = item->marks->series_from;
    size_t count = effect_of(item)->state_count;

    if (from == NULL) {
        from = arena_alloc(item->arena,
                           count * (sizeof(*from) + SERIES_STATE_SIZE_MAX));
        if (from == NULL) {
            return false;
        }
        item->marks->series_from = from;
    }
    for (size_t i = 0; i < count; i++) {
        char *text = (char *)(from + count) + i * SERIES_STATE_SIZE_MAX;
        struct meter_str state = rows->steps[i].from;

        from[i] = (struct meter_str){NULL, 0};
        if (state.data != NULL) {
            memcpy(text, state.data, state.size);
            from[i] = (struct meter_str){text, state.size};
        }
    }
    return true;
}

/* "series:<name>":"<state>"|null,...: members of the ledger's from_state. */
static bool
mark_members(struct series_rows *rows, const struct projected *item)
{
    struct meter_writer writer;
    size_t room = 0;
    char *text;

    for (size_t i = 0; i < rows->step_count; i++) {
        room += rows->steps[i].entity->owner.size + 8 +
                METER_JSON_ESCAPED_SIZE(rows->steps[i].from.size);
    }
    text = arena_alloc(&rows->arena, room);
    if (text == NULL) {
        return false;
    }
    meter_writer_init(&writer, text, room);
    for (size_t i = 0; i < rows->step_count; i++) {
        const struct step *step = &rows->steps[i];

        meter_put_bytes(&writer, ",", i > 0);
        meter_put_u8(&writer, '"');
        meter_put_bytes(&writer, step->entity->owner.data,
                        step->entity->owner.size);
        meter_put_bytes(&writer, "\":", 2);
        if (step->from.data == NULL) {
            meter_put_bytes(&writer, "null", 4);
            continue;
        }
        meter_put_u8(&writer, '"');
        meter_put_json_escaped(&writer, step->from);
        meter_put_u8(&writer, '"');
    }
    CHECK(!writer.failed);
    item->marks->series_members = (struct meter_str){text, writer.at};
    return true;
}

/* Moves the entities on. MISSING: one is not locked. */
static enum projection_apply
steps_make(struct series_rows *rows, const struct projected *item)
{
    const struct series_effect *effect = effect_of(item);

    for (size_t i = 0; i < effect->count; i++) {
        const struct series_change *change = &effect->changes[i];
        char owner[SERIES_OWNER_SIZE_MAX];
        struct entity *entity;

        if (change->entity.data == NULL) {
            continue;
        }
        entity =
            entity_find(rows, item->event->tenant,
                        series_owner(change->series, owner), change->entity);
        if (entity == NULL || !entity->is_locked) {
            return PROJECTION_MISSING;
        }
        rows->steps[rows->step_count++] = (struct step){entity, entity->now};
        entity->now = change->state;
    }
    return PROJECTION_APPLIED;
}

static enum projection_apply
series_apply(void *data, const struct projected *item,
             const struct projection_stamp *stamp, const char **error)
{
    const struct series_effect *effect = effect_of(item);
    struct series_rows *rows = data;
    enum projection_apply applied;

    (void)stamp;
    rows->step_count = 0;
    item->marks->series_members = (struct meter_str){NULL, 0};
    if (effect->state_count == 0) {
        return PROJECTION_APPLIED;
    }
    if (!steps_reserve(rows, effect->state_count)) {
        return PROJECTION_MISSING; /* the transaction waits, then tries again */
    }
    applied = steps_make(rows, item);
    if (applied == PROJECTION_APPLIED && !mark_members(rows, item)) {
        applied = PROJECTION_MISSING;
    }
    if (applied == PROJECTION_APPLIED && !mark_from(rows, item)) {
        *error = "no memory is left for the event's series";
        applied =
            item->arena->no_memory ? PROJECTION_MISSING : PROJECTION_REJECTED;
    }
    if (applied != PROJECTION_APPLIED) {
        steps_undo(rows);
    }
    return applied;
}

static void
series_undo(void *data, const struct projected *item)
{
    steps_undo(data);
    item->marks->series_members = (struct meter_str){NULL, 0};
}

/* The rows are locked on the fast path, too; only rejecting takes care. */
static enum projection_result
series_fold(void *data, const struct projected *item,
            const struct projection_stamp *stamp)
{
    const char *error;

    switch (series_apply(data, item, stamp, &error)) {
    case PROJECTION_APPLIED: return PROJECTION_OK;
    case PROJECTION_REJECTED: return PROJECTION_CAREFUL;
    case PROJECTION_MISSING: break;
    }
    return PROJECTION_FAULT;
}

static enum projection_result
series_fold_end(void *data)
{
    (void)data;
    return PROJECTION_OK;
}

static int
entities_compare(const void *left, const void *right)
{
    const struct entity *a = *(struct entity *const *)left;
    const struct entity *b = *(struct entity *const *)right;
    int order = meter_str_compare(a->tenant, b->tenant);

    if (order == 0) {
        order = meter_str_compare(a->owner, b->owner);
    }
    if (order == 0) {
        order = meter_str_compare(a->entity, b->entity);
    }
    return order;
}

static void
put_texts(struct pg_params *out, const struct series_rows *rows, size_t member)
{
    pg_param_array_begin(out, PG_TEXT, rows->count);
    for (size_t i = 0; i < rows->count; i++) {
        struct meter_str text;

        memcpy(&text, (const char *)rows->list[i] + member, sizeof(text));
        pg_put_text(&out->bytes, text);
    }
    pg_param_array_end(out);
}

static void
put_keys(struct pg_params *out, const struct series_rows *rows)
{
    put_texts(out, rows, offsetof(struct entity, tenant));
    put_texts(out, rows, offsetof(struct entity, owner));
    put_texts(out, rows, offsetof(struct entity, entity));
}

static void
put_written(struct pg_params *out, const struct series_rows *rows,
            const struct projection_stamp *stamp)
{
    put_keys(out, rows);
    pg_param_array_begin(out, PG_BYTEA, rows->count);
    for (size_t i = 0; i < rows->count; i++) {
        pg_put_null(&out->bytes); /* of no counter row */
    }
    pg_param_array_end(out);
    put_texts(out, rows, offsetof(struct entity, now));
    pg_param_time(out, stamp->recorded_us);
}

static bool
series_next(void *data, enum projection_phase phase,
            const struct projection_stamp *stamp, size_t *at,
            struct projection_query *out)
{
    struct series_rows *rows = data;
    bool is_write = phase == PROJECTION_APPLY || phase == PROJECTION_WRITE;

    if (rows->count == 0 || (!is_write && phase != PROJECTION_STATES) ||
        *at >= (is_write ? 1 : 2)) {
        return false;
    }
    if (is_write) {
        out->statement = STATEMENT_ENTITY_STATE_WRITE;
        put_written(out->params, rows, stamp);
    } else {
        if (*at == 0 && !projection_is_unsorted) {
            qsort(rows->list, rows->count, sizeof(struct entity *),
                  entities_compare);
        }
        out->statement = *at == 0 ? STATEMENT_ENTITY_STATE_ENSURE
                                  : STATEMENT_ENTITY_STATE_LOCK;
        put_keys(out->params, rows);
    }
    ++*at;
    return true;
}

/* What the database said cannot be: nothing is decided on it. */
static enum projection_result
fault(const char *text)
{
    log_error("series", text);
    return PROJECTION_FAULT;
}

static enum projection_result
answer_lock(struct series_rows *rows, const void *result)
{
    int count = pg_row_count(result);

    for (int i = 0; i < count; i++) {
        struct entity *entity =
            entity_find(rows, pg_get_bytes(result, i, 0),
                        pg_get_bytes(result, i, 1), pg_get_bytes(result, i, 2));

        if (entity == NULL || entity->is_locked) {
            return fault("an entity was locked that no event has");
        }
        if (!pg_is_null(result, i, 4)) {
            struct meter_str now = pg_get_bytes(result, i, 4);

            if (now.size > SERIES_STATE_SIZE_MAX) {
                return fault("an entity has a state that no event gave it");
            }
            if (!arena_copy(&rows->arena, now, &entity->now)) {
                return PROJECTION_FAULT;
            }
        }
        entity->updated_us = pg_get_time(result, i, 5);
        entity->is_locked = true;
    }
    if ((size_t)count != rows->count) {
        log_error("series", "an entity was not found");
        return PROJECTION_RETRY;
    }
    return PROJECTION_OK;
}

static enum projection_result
series_answer(void *data, enum projection_phase phase, size_t at,
              const void *result)
{
    struct series_rows *rows = data;

    if (phase == PROJECTION_STATES) {
        return at == 0 ? PROJECTION_OK : answer_lock(rows, result);
    }
    if (pg_affected(result) != (int64_t)rows->count) {
        return fault("entities were passed over");
    }
    return PROJECTION_OK;
}

static size_t
series_changed(const void *data)
{
    const struct series_rows *rows = data;

    return rows->count;
}

const struct projection projection_series = {
    .name = "series",
    .project = series_project,
    .rows_create = series_rows_create,
    .rows_destroy = series_rows_destroy,
    .rows_clear = series_rows_clear,
    .has_fast_states = true,
    .fold = series_fold,
    .fold_end = series_fold_end,
    .collect = series_collect,
    .stamp_floor = series_stamp_floor,
    .apply = series_apply,
    .undo = series_undo,
    .next = series_next,
    .answer = series_answer,
    .changed = series_changed,
    .recount = &series_recount,
};
