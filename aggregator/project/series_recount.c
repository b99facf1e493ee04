/*
 * series_recount.c - states of entities from the ledger, see recount.h.
 *
 *   events -> [series_project] -> state of each entity behind its last event
 *   live rows ------------------> [compare]
 *
 * An event that was recorded before the series was there changed no state.
 * Buckets are not here: see maintain/series_recount.h.
 */

#include "project/recount.h"

#include "base/json_writer.h"
#include "project/series.h"

#include <stdlib.h>

#define ARENA_BLOCK ((size_t)1 << 20)
#define KEY_MAX     (SERIES_OWNER_SIZE_MAX + 1 + METER_EVENT_SIZE_MAX)
#define TEXT_MAX    ((size_t)4 << 20)
#define AT_ONCE     5000

struct state_text {
    char text[SERIES_STATE_SIZE_MAX];
    uint16_t size; /* 0: no state */
};

struct state_entity {
    struct meter_str key; /* owner, NUL, entity */
    struct meter_str owner;
    struct meter_str name;
    struct state_text expected;
    struct state_text found;
    int64_t updated_us; /* the latest of both */
    int64_t since_us;   /* as in struct recount_origin */
    bool is_found;      /* there is a row */
    bool is_odd;        /* with more in it than a state */
    bool is_marked;
    struct state_entity *next;
};

struct state_recounting {
    struct recount_scope scope;
    struct map map;
    struct arena arena;
    struct buf key;
    struct state_entity *entities;
    struct state_entity **marked;
    size_t marked_count;
    size_t strangers;
};


/* ---- entities --------------------------------------------------------- */

static void *
recount_create(const struct recount_scope *scope)
{
    struct state_recounting *all = calloc(1, sizeof(*all));

    if (all != NULL) {
        all->scope = *scope;
        map_init(&all->map, RECOUNT_ROWS_MAX);
        arena_init(&all->arena, ARENA_BLOCK, RECOUNT_MEMORY_MAX);
        buf_init(&all->key, KEY_MAX);
    }
    return all;
}

static void
recount_destroy(void *recount)
{
    struct state_recounting *all = recount;

    if (all == NULL) {
        return;
    }
    map_fini(&all->map);
    arena_fini(&all->arena);
    buf_fini(&all->key);
    free(all->marked);
    free(all);
}

/* Made when it is the first time; NULL: no memory. */
static struct state_entity *
entity_take(struct state_recounting *all, struct meter_str owner,
            struct meter_str name)
{
    struct state_entity *entity;

    buf_reset(&all->key);
    buf_put_str(&all->key, owner);
    buf_put_byte(&all->key, 0);
    buf_put_str(&all->key, name);
    if (all->key.failed) {
        return NULL;
    }
    entity = map_find(&all->map, buf_str(&all->key));
    if (entity != NULL) {
        return entity;
    }
    entity = arena_zalloc(&all->arena, sizeof(*entity));
    if (entity == NULL ||
        !arena_copy(&all->arena, buf_str(&all->key), &entity->key)) {
        return NULL;
    }
    entity->since_us = RECOUNT_SINCE_NEVER;
    entity->owner = (struct meter_str){entity->key.data, owner.size};
    entity->name =
        (struct meter_str){entity->key.data + owner.size + 1, name.size};
    if (map_add(&all->map, entity->key, entity) == NULL) {
        return NULL;
    }
    entity->next = all->entities;
    all->entities = entity;
    return entity;
}

static void
since_lower(struct state_entity *entity, int64_t us)
{
    if (us < entity->since_us) {
        entity->since_us = us;
    }
}

static bool
is_in_scope(const struct state_recounting *all, const struct series *series)
{
    return all->scope.name.data == NULL ||
           meter_str_equal(all->scope.name, series->name);
}


/* ---- events ----------------------------------------------------------- */

static bool
change_add(struct state_recounting *all, const struct series_change *change,
           int64_t recorded_us)
{
    char text[SERIES_OWNER_SIZE_MAX];
    struct state_entity *entity =
        entity_take(all, series_owner(change->series, text), change->entity);

    if (entity == NULL) {
        return false;
    }
    CHECK(change->state.size <= sizeof(entity->expected.text));
    memcpy(entity->expected.text, change->state.data, change->state.size);
    entity->expected.size = (uint16_t)change->state.size;
    since_lower(entity, recorded_us);
    if (recorded_us > entity->updated_us) {
        entity->updated_us = recorded_us;
    }
    return true;
}

static enum recount_result
recount_add(void *recount, const struct recount_event *event,
            struct arena *arena, const char **error)
{
    struct state_recounting *all = recount;
    const struct series_effect *effect;
    const struct meter_str *from;
    const void *made = NULL;
    bool is_careful = false;
    size_t entities = 0;

    if (!series_project(event->type, &event->row->event, event->attributes,
                        arena, &made, &is_careful, error)) {
        return arena->no_memory ? RECOUNT_FAULT : RECOUNT_UNFIT;
    }
    effect = made;
    if (effect == NULL || effect->state_count == 0) {
        return RECOUNT_OK;
    }
    *error = "its states cannot be read";
    if (!series_from_read(effect, event->row->from_state, arena, &from)) {
        return arena->no_memory ? RECOUNT_FAULT : RECOUNT_UNFIT;
    }
    for (size_t i = 0; i < effect->count; i++) {
        const struct series_change *change = &effect->changes[i];

        if (change->entity.data == NULL ||
            from[entities++].data == series_from_unknown ||
            !is_in_scope(all, change->series)) {
            continue;
        }
        if (!change_add(all, change, event->row->recorded_us)) {
            return RECOUNT_FAULT;
        }
    }
    return RECOUNT_OK;
}


/* ---- live rows -------------------------------------------------------- */

static void
put_params(const void *recount, struct pg_params *params)
{
    const struct state_recounting *all = recount;
    const struct series *series =
        all->scope.name.data == NULL
            ? NULL
            : catalog_series(all->scope.catalog, all->scope.name);
    char text[SERIES_OWNER_SIZE_MAX];

    pg_param_text(params, all->scope.tenant);
    if (series == NULL) {
        pg_param_null(params);
    } else {
        pg_param_text(params, series_owner(series, text));
    }
}

static bool
is_known(const struct state_recounting *all, struct meter_str owner)
{
    size_t prefix = sizeof(SERIES_OWNER_PREFIX) - 1;
    const struct series *series;

    if (owner.size < prefix) {
        return false;
    }
    series = catalog_series(
        all->scope.catalog,
        (struct meter_str){owner.data + prefix, owner.size - prefix});
    return series != NULL && series->kind == SERIES_STATE;
}

static bool
live_row(void *recount, const void *result, int row)
{
    struct state_recounting *all = recount;
    struct meter_str owner = pg_get_bytes(result, row, 0);
    struct meter_str state = pg_get_bytes(result, row, 2);
    int64_t updated_us = pg_get_time(result, row, 4);
    struct state_entity *entity;

    if (!is_known(all, owner)) {
        all->strangers++;
        return true;
    }
    entity = entity_take(all, owner, pg_get_bytes(result, row, 1));
    if (entity == NULL) {
        return false;
    }
    entity->is_found = true;
    since_lower(entity, recount_made(result, row, 5));
    entity->is_odd =
        !pg_get_bool(result, row, 3) || state.size > sizeof(entity->found.text);
    entity->found.size = (uint16_t)(state.size > sizeof(entity->found.text)
                                        ? sizeof(entity->found.text)
                                        : state.size);
    if (entity->found.size > 0) {
        memcpy(entity->found.text, state.data, entity->found.size);
    }
    if (updated_us > entity->updated_us) {
        entity->updated_us = updated_us;
    }
    return true;
}


/* ---- differences ------------------------------------------------------ */

static struct meter_str
text_of(const struct state_text *state)
{
    return (struct meter_str){state->size == 0 ? NULL : state->text,
                              state->size};
}

static int
order(const void *a, const void *b)
{
    const struct state_entity *const *one = a;
    const struct state_entity *const *two = b;

    return meter_str_compare((*one)->key, (*two)->key);
}

/* A row without a state is as good as none. */
static bool
recount_compare(void *recount, size_t *count)
{
    struct state_recounting *all = recount;

    all->marked = calloc(all->map.count + 1, sizeof(struct state_entity *));
    if (all->marked == NULL) {
        return false;
    }
    for (struct state_entity *entity = all->entities; entity != NULL;
         entity = entity->next) {
        entity->is_marked =
            entity->is_odd || !meter_str_equal(text_of(&entity->expected),
                                               text_of(&entity->found));
        if (entity->is_marked) {
            all->marked[all->marked_count++] = entity;
        }
    }
    qsort(all->marked, all->marked_count, sizeof(struct state_entity *), order);
    *count = all->marked_count;
    return true;
}

static bool
recount_differences(void *recount, recount_difference_cb cb, void *asker)
{
    struct state_recounting *all = recount;
    bool is_good = true;
    struct buf key;

    buf_init(&key, TEXT_MAX);
    for (size_t i = 0; is_good && i < all->marked_count; i++) {
        const struct state_entity *entity = all->marked[i];
        struct meter_str series = {
            entity->owner.data + sizeof(SERIES_OWNER_PREFIX) - 1,
            entity->owner.size - sizeof(SERIES_OWNER_PREFIX) + 1};
        struct recount_difference one = {
            .origin = {.kind = RULE_SERIES,
                       .names = {series},
                       .name_count = 1,
                       .since_us = entity->since_us},
            .what = "state",
            .expected = text_of(&entity->expected),
            .found = text_of(&entity->found),
        };
        struct json_writer json;

        buf_reset(&key);
        json_writer_init(&json, &key);
        json_object_begin(&json);
        json_key(&json, "series");
        json_string(&json, series);
        json_key(&json, "entity");
        json_raw(&json, entity->name);
        json_object_end(&json);
        one.key = buf_str(&key);
        is_good = !key.failed;
        if (is_good) {
            cb(asker, &one);
        }
    }
    buf_fini(&key);
    return is_good;
}


/* ---- writes ----------------------------------------------------------- */

static void
put_names(struct pg_params *params, struct state_entity *const *list,
          size_t count)
{
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, list[i]->owner);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, list[i]->name);
    }
    pg_param_array_end(params);
}

/* Never back in time: a row only takes what is later than itself. */
static void
put_states(struct pg_params *params, struct state_entity *const *list,
           size_t count)
{
    pg_param_array_begin(params, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_null(&params->bytes);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, text_of(&list[i]->expected));
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_TIMESTAMPTZ, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_time(&params->bytes, list[i]->updated_us);
    }
    pg_param_array_end(params);
}

/* Of each AT_ONCE: all away, then those that have a state come again. */
static bool
recount_write(void *recount, size_t *at, struct projection_query *out)
{
    struct state_recounting *all = recount;
    struct state_entity *some[AT_ONCE];
    size_t from = *at / 2 * AT_ONCE;
    bool is_insert = *at % 2 == 1;
    size_t count = 0;

    if (from >= all->marked_count) {
        return false;
    }
    for (size_t i = from; i < all->marked_count && i < from + AT_ONCE; i++) {
        if (!is_insert || all->marked[i]->expected.size > 0) {
            some[count++] = all->marked[i];
        }
    }
    pg_param_text(out->params, all->scope.tenant);
    put_names(out->params, some, count);
    out->statement = STATEMENT_RECOUNT_ENTITIES_DELETE;
    if (is_insert) {
        put_states(out->params, some, count);
        out->statement = STATEMENT_RECOUNT_ENTITIES_INSERT;
    }
    ++*at;
    return true;
}

static size_t
recount_strangers(const void *recount)
{
    const struct state_recounting *all = recount;

    return all->strangers;
}

static const struct recount_source sources[] = {
    {RECOUNT_LIVE, STATEMENT_SERIES_RECOUNT_STATES, put_params, live_row},
};

const struct recount_ops series_recount = {
    .create = recount_create,
    .destroy = recount_destroy,
    .sources = sources,
    .source_count = sizeof(sources) / sizeof(sources[0]),
    .add = recount_add,
    .compare = recount_compare,
    .differences = recount_differences,
    .write = recount_write,
    .strangers = recount_strangers,
};
