/*
 * counter_recount.c - counters from the ledger, see recount.h.
 *
 *   events -> [counter_project] -> one by one -> rows, entities
 *   live rows, entities, numbers of keys ------> [compare]
 *
 * Whether a transition was valid is what the ledger says (from_state): it
 * was decided on the locked entity. Only where the ledger does not know the
 * counter, or knew it with other dimensions, the entity's own history
 * decides.
 */

#include "project/counter_recount.h"

#include <stdlib.h>

#define ARENA_BLOCK ((size_t)1 << 20)

static const struct json_limits from_limits = {
    .depth_max = 4,
    .key_count_max = CATALOG_ENTRIES_MAX * (METER_DIMENSION_COUNT_MAX + 1),
    .name_size_max = METER_EVENT_SIZE_MAX,
    .string_size_max = METER_EVENT_SIZE_MAX,
};


/* ---- rows and entities ------------------------------------------------ */

static void *
recount_create(const struct recount_scope *scope)
{
    struct counter_recounting *all = calloc(1, sizeof(*all));

    if (all == NULL) {
        return NULL;
    }
    all->scope = *scope;
    map_init(&all->row_map, RECOUNT_ROWS_MAX);
    map_init(&all->entity_map, RECOUNT_ROWS_MAX);
    arena_init(&all->arena, ARENA_BLOCK, RECOUNT_MEMORY_MAX);
    buf_init(&all->key, RECOUNT_KEY_MAX);
    all->keys = calloc(scope->catalog->counter_count + 1, sizeof(*all->keys));
    if (all->keys == NULL) {
        counter_recount.destroy(all);
        return NULL;
    }
    return all;
}

static void
recount_destroy(void *recount)
{
    struct counter_recounting *all = recount;

    if (all == NULL) {
        return;
    }
    map_fini(&all->row_map);
    map_fini(&all->entity_map);
    arena_fini(&all->arena);
    buf_fini(&all->key);
    free(all->keys);
    free(all->rows.items);
    free(all->entities.items);
    free(all);
}

/* name, NUL, tail: names have no NUL. */
static struct meter_str
key_of(struct counter_recounting *all, struct meter_str name,
       struct meter_str tail)
{
    buf_reset(&all->key);
    buf_put_str(&all->key, name);
    buf_put_byte(&all->key, 0);
    buf_put_str(&all->key, tail);
    return buf_str(&all->key);
}

/* The row of a set, made when it is the first time; NULL: no memory. */
static struct recounted_row *
row_take(struct counter_recounting *all, const struct counter *counter,
         const struct dimension_set *set)
{
    struct meter_str key =
        key_of(all, counter->name,
               (struct meter_str){(const char *)set->key, sizeof(set->key)});
    struct recounted_row *row;

    if (all->key.failed) {
        return NULL;
    }
    row = map_find(&all->row_map, key);
    if (row != NULL) {
        return row;
    }
    row = arena_zalloc(&all->arena, sizeof(*row));
    if (row == NULL || !arena_copy(&all->arena, key, &row->key) ||
        !arena_copy(&all->arena, set->json, &row->set.json)) {
        return NULL;
    }
    memcpy(row->set.key, set->key, sizeof(row->set.key));
    row->counter = counter;
    row->since_us = RECOUNT_SINCE_NEVER;
    return map_add(&all->row_map, row->key, row);
}

static struct recounted_entity *
entity_take(struct counter_recounting *all, const struct counter *counter,
            struct meter_str name)
{
    struct meter_str key = key_of(all, counter->name, name);
    struct recounted_entity *entity;

    if (all->key.failed) {
        return NULL;
    }
    entity = map_find(&all->entity_map, key);
    if (entity != NULL) {
        return entity;
    }
    entity = arena_zalloc(&all->arena, sizeof(*entity));
    if (entity == NULL || !arena_copy(&all->arena, key, &entity->key)) {
        return NULL;
    }
    entity->counter = counter;
    entity->since_us = RECOUNT_SINCE_NEVER;
    entity->name = (struct meter_str){entity->key.data + counter->name.size + 1,
                                      name.size};
    return map_add(&all->entity_map, entity->key, entity);
}

/* NULL: not recomputed. */
static const struct counter *
counter_in_scope(const struct counter_recounting *all, struct meter_str name)
{
    const struct counter *counter = catalog_counter(all->scope.catalog, name);

    return all->scope.name.data == NULL ||
                   meter_str_equal(all->scope.name, name)
               ? counter
               : NULL;
}


/* ---- events ----------------------------------------------------------- */

/* One change made, for the way back. */
struct recounted_step {
    struct recounted_row *row;
    struct recounted_row was;
    struct recounted_entity *entity;
    struct recounted_entity was_entity;
};

struct recounting_event {
    struct counter_recounting *all;
    const struct recount_event *event;
    struct arena *arena;
    const struct counter_effect *effect;
    struct json_value from; /* the ledger's from_state, an object or null */
    struct recounted_step *steps;
    size_t step_count;
};

/* Earlier changes of this event have moved the entity already. */
static bool
was_moved(const struct recounting_event *one,
          const struct recounted_entity *entity)
{
    for (size_t i = 0; i < one->step_count; i++) {
        if (one->steps[i].entity == entity) {
            return true;
        }
    }
    return false;
}

/* Where the entity was before the event, as the ledger has it. */
static bool
entity_place(struct recounting_event *one, struct recounted_entity *entity,
             const char **error)
{
    const struct counter *counter = entity->counter;
    const struct json_value *from = NULL;
    struct dimension_set set;

    if (one->from.kind == JSON_OBJECT && !was_moved(one, entity)) {
        from = json_member_find(&one->from, counter->name);
    }
    if (from == NULL) {
        return true;
    }
    if (from->kind == JSON_NULL) {
        entity->place = NULL;
        return true;
    }
    if (from->kind != JSON_OBJECT || from->count != counter->dimension_count) {
        return true;
    }
    for (size_t i = 0; i < counter->dimension_count; i++) {
        if (!meter_str_equal(from->members[i].name,
                             counter->dimensions[i].name)) {
            return true;
        }
    }
    if (!attribute_dimensions(from, counter->dimensions,
                              counter->dimension_count, "counter",
                              counter->name, one->arena, &set, error)) {
        return false;
    }
    entity->place = row_take(one->all, counter, &set);
    return entity->place != NULL;
}

static void
since_lower(int64_t *since_us, int64_t us)
{
    if (us < *since_us) {
        *since_us = us;
    }
}

/* Up once while it is counted nowhere, down once where it is. */
static struct recounted_row *
entity_move(struct recounted_entity *entity,
            const struct counter_change *change, struct recounted_row *row)
{
    struct recounted_row *from = entity->place;

    if (change->delta > 0) {
        entity->place = from == NULL ? row : from;
        return from == NULL ? row : NULL;
    }
    entity->place = NULL;
    return from;
}

static enum recount_result
change_apply(struct recounting_event *one, const struct counter_change *change,
             const char **error)
{
    int64_t recorded_us = one->event->row->recorded_us;
    struct recounted_step *step = &one->steps[one->step_count];
    struct recounted_row *row =
        row_take(one->all, change->counter, &change->set);

    if (row == NULL) {
        return RECOUNT_FAULT;
    }
    *step = (struct recounted_step){.row = NULL};
    if (change->entity.data != NULL) {
        struct recounted_entity *entity =
            entity_take(one->all, change->counter, change->entity);

        if (entity == NULL) {
            return RECOUNT_FAULT;
        }
        step->was_entity = *entity;
        if (!entity_place(one, entity, error)) {
            return RECOUNT_FAULT;
        }
        step->entity = entity;
        row = entity_move(entity, change, row);
        entity->is_expected = true;
        entity->updated_us = recorded_us;
        since_lower(&entity->since_us, recorded_us);
    }
    one->step_count++;
    if (row == NULL) {
        return RECOUNT_OK;
    }
    step->row = row;
    step->was = *row;
    if (!counter_apply(&row->value, change->delta,
                       change->counter->floor_at_zero)) {
        *error = "a counter would overflow 64 bits";
        return RECOUNT_UNFIT;
    }
    row->is_expected = true;
    if (recorded_us > row->updated_us) {
        row->updated_us = recorded_us;
    }
    /* Where an entity was before decides, too. */
    since_lower(&row->since_us,
                step->entity != NULL ? step->entity->since_us : recorded_us);
    return RECOUNT_OK;
}

static void
steps_undo(struct recounting_event *one)
{
    while (one->step_count > 0) {
        struct recounted_step *step = &one->steps[--one->step_count];

        if (step->row != NULL) {
            *step->row = step->was;
        }
        if (step->entity != NULL) {
            *step->entity = step->was_entity;
        }
    }
}

/* A text that cannot be read is none: the entity's history decides. */
static bool
from_state_read(struct recounting_event *one)
{
    struct json_error error;
    size_t used;

    one->from = (struct json_value){.kind = JSON_NULL};
    if (one->event->row->from_state.data == NULL ||
        json_read(one->event->row->from_state, &from_limits, one->arena,
                  &one->from, &used, &error)) {
        return true;
    }
    one->from = (struct json_value){.kind = JSON_NULL};
    return error.fault != JSON_FAULT_MEMORY;
}

static enum recount_result
recount_add(void *recount, const struct recount_event *event,
            struct arena *arena, const char **error)
{
    struct recounting_event one = {
        .all = recount, .event = event, .arena = arena};
    enum recount_result result = RECOUNT_OK;
    const void *effect;
    bool is_careful;

    if (!counter_project(event->type, &event->row->event, event->attributes,
                         arena, &effect, &is_careful, error)) {
        return arena->no_memory ? RECOUNT_FAULT : RECOUNT_UNFIT;
    }
    if (effect == NULL) {
        return RECOUNT_OK;
    }
    one.effect = effect;
    one.steps = arena_alloc(arena, one.effect->count * sizeof(*one.steps));
    if (one.steps == NULL || !from_state_read(&one)) {
        return RECOUNT_FAULT;
    }
    for (size_t i = 0; result == RECOUNT_OK && i < one.effect->count; i++) {
        const struct counter_change *change = &one.effect->changes[i];

        if (counter_in_scope(one.all, change->counter->name) != NULL) {
            result = change_apply(&one, change, error);
        }
    }
    if (result != RECOUNT_OK) {
        steps_undo(&one);
    }
    return result;
}

static bool
recount_base_row(void *recount, const struct recount_base *base)
{
    struct counter_recounting *all = recount;
    const struct counter *counter;
    struct recounted_entity *entity;
    struct recounted_row *row = NULL;

    if (base->kind == RECOUNT_BASE_USAGE ||
        (counter = counter_in_scope(all, base->name)) == NULL) {
        return true;
    }
    if (base->has_set) {
        row = row_take(all, counter, &base->set);
        if (row == NULL) {
            return false;
        }
    }
    if (base->kind == RECOUNT_BASE_COUNTER) {
        row->value = base->value;
        row->updated_us = base->updated_us;
        row->since_us = RECOUNT_SINCE_EVER;
        row->is_expected = true;
        return true;
    }
    entity = entity_take(all, counter, base->entity);
    if (entity == NULL) {
        return false;
    }
    entity->place = row;
    entity->is_expected = true;
    entity->updated_us = base->updated_us;
    entity->since_us = RECOUNT_SINCE_EVER;
    return true;
}


/* ---- live rows -------------------------------------------------------- */

static void
put_scope(const void *recount, struct pg_params *params)
{
    const struct counter_recounting *all = recount;

    pg_param_text(params, all->scope.tenant);
    pg_param_text(params, all->scope.name);
}

static void
put_audited(const void *recount, struct pg_params *params)
{
    const struct counter_recounting *all = recount;
    const struct catalog *catalog = all->scope.catalog;
    size_t count = 0;

    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < catalog->counter_count; i++) {
            const struct counter *counter = &catalog->counters[i];

            if (!counter->audit || !all->scope.is_chained ||
                counter_in_scope(all, counter->name) == NULL) {
                continue;
            }
            if (turn == 0) {
                count++;
            } else {
                pg_put_text(&params->bytes, counter->name);
            }
        }
        if (turn == 0) {
            pg_param_text(params, all->scope.tenant);
            pg_param_array_begin(params, PG_TEXT, count);
        }
    }
    pg_param_array_end(params);
}

/* False: the size is none; a damaged row is shown under a key of its own. */
static bool
set_read(const void *result, int row, int column, struct dimension_set *set)
{
    struct meter_str key = pg_get_bytes(result, row, column);

    if (key.size != sizeof(set->key)) {
        return false;
    }
    memcpy(set->key, key.data, sizeof(set->key));
    set->json = pg_get_bytes(result, row, column + 1);
    return true;
}

static bool
live_row(void *recount, const void *result, int at)
{
    struct counter_recounting *all = recount;
    const struct counter *counter =
        counter_in_scope(all, pg_get_bytes(result, at, 0));
    struct dimension_set set;
    struct recounted_row *row;

    if (counter == NULL || !set_read(result, at, 1, &set)) {
        all->strangers++;
        return true;
    }
    row = row_take(all, counter, &set);
    if (row == NULL) {
        return false;
    }
    row->is_found = true;
    row->found = pg_get_int8(result, at, 3);
    row->found_us = pg_get_time(result, at, 4);
    since_lower(&row->since_us, recount_made(result, at, 5));
    if (!meter_str_equal(set.json, row->set.json)) {
        return arena_copy(&all->arena, set.json, &row->found_json);
    }
    return true;
}

static bool
live_keys(void *recount, const void *result, int at)
{
    struct counter_recounting *all = recount;
    const struct counter *counter =
        counter_in_scope(all, pg_get_bytes(result, at, 0));

    if (counter == NULL) {
        all->strangers++;
        return true;
    }
    all->keys[counter->index].is_found = true;
    all->keys[counter->index].found = pg_get_int8(result, at, 1);
    return true;
}

static bool
live_entity(void *recount, const void *result, int at)
{
    struct counter_recounting *all = recount;
    const struct counter *counter =
        counter_in_scope(all, pg_get_bytes(result, at, 0));
    struct recounted_entity *entity;
    struct dimension_set set;

    if (counter == NULL) {
        all->strangers++;
        return true;
    }
    entity = entity_take(all, counter, pg_get_bytes(result, at, 1));
    if (entity == NULL) {
        return false;
    }
    entity->is_found = true;
    entity->found_us = pg_get_time(result, at, 4);
    since_lower(&entity->since_us, recount_made(result, at, 5));
    if (!set_read(result, at, 2, &set)) {
        return true;
    }
    entity->found = row_take(all, counter, &set);
    return entity->found != NULL;
}

/* A row is not what its audit log ends with. */
static bool
live_chain(void *recount, const void *result, int at)
{
    struct counter_recounting *all = recount;
    const struct counter *counter =
        counter_in_scope(all, pg_get_bytes(result, at, 0));
    struct dimension_set set;
    struct recounted_row *row;

    if (counter == NULL || !set_read(result, at, 1, &set)) {
        return true;
    }
    row = row_take(all, counter, &set);
    if (row == NULL) {
        return false;
    }
    row->is_unchained = true;
    row->logged = pg_get_int8(result, at, 4);
    return true;
}

static size_t
recount_strangers(const void *recount)
{
    const struct counter_recounting *all = recount;

    return all->strangers;
}

static const struct recount_source sources[] = {
    {RECOUNT_LIVE, STATEMENT_RECOUNT_COUNTERS, put_scope, live_row},
    {RECOUNT_LIVE, STATEMENT_RECOUNT_COUNTER_KEYS, put_scope, live_keys},
    {RECOUNT_LIVE, STATEMENT_RECOUNT_ENTITIES, put_scope, live_entity},
    {RECOUNT_LIVE, STATEMENT_RECOUNT_CHAINS, put_audited, live_chain},
};

const struct recount_ops counter_recount = {
    .create = recount_create,
    .destroy = recount_destroy,
    .base = recount_base_row,
    .sources = sources,
    .source_count = sizeof(sources) / sizeof(sources[0]),
    .add = recount_add,
    .compare = counter_recount_compare,
    .differences = counter_recount_differences,
    .write = counter_recount_write,
    .strangers = recount_strangers,
};
