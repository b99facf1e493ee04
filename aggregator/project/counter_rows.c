/*
 * counter_rows.c - rows, entities and keys of a transaction: found, made,
 * sorted. counter_projection.c leads them through it.
 *
 *   (tenant, name, dimension key) -> [map] -> row -> group (tenant, name)
 *   (tenant, name, entity) -------> [map] -> state
 *
 * Memory is kept from one transaction to the next, until it is trimmed.
 */

#include "project/counter_rows.h"

#include <stdlib.h>

#define GROUP_KEY_SIZE_MAX (2 + METER_TENANT_SIZE_MAX + METER_NAME_SIZE_MAX)
#define ROW_KEY_SIZE_MAX   (METER_DIGEST_SIZE + GROUP_KEY_SIZE_MAX)
#define STATE_KEY_SIZE_MAX (2 + GROUP_KEY_SIZE_MAX + COUNTER_ENTITY_SIZE_MAX)

static size_t
put_size(char *out, size_t size)
{
    out[0] = (char)(size & 0xff);
    out[1] = (char)(size >> 8);
    return 2;
}

static size_t
put_text(char *out, struct meter_str text)
{
    memcpy(out, text.data, text.size);
    return text.size;
}

/* Injective: the tenant's size, tenant, name. */
static size_t
group_key(struct meter_str tenant, struct meter_str name, char *out)
{
    size_t at = put_size(out, tenant.size);

    at += put_text(out + at, tenant);
    return at + put_text(out + at, name);
}

/* The digest, then the key of the group. */
static size_t
row_key(struct meter_str tenant, struct meter_str name,
        const uint8_t *dimension_key, char out[ROW_KEY_SIZE_MAX])
{
    memcpy(out, dimension_key, METER_DIGEST_SIZE);
    return METER_DIGEST_SIZE + group_key(tenant, name, out + METER_DIGEST_SIZE);
}

/* The size of the group's key, that key, the entity. */
static size_t
state_key(struct meter_str tenant, struct meter_str name,
          struct meter_str entity, char out[STATE_KEY_SIZE_MAX])
{
    size_t size = group_key(tenant, name, out + 2);

    return put_size(out, size) + size + put_text(out + 2 + size, entity);
}

static bool
is_name(struct meter_str tenant, struct meter_str name)
{
    return tenant.size <= METER_TENANT_SIZE_MAX &&
           name.size <= METER_NAME_SIZE_MAX;
}

/* The group whose key is the end of a row's key, which it borrows. */
static struct counter_group *
group_take(struct counter_rows *rows, const struct counter *counter,
           struct meter_str key)
{
    struct counter_group *group = map_find(&rows->group_map, key);

    if (group == NULL) {
        group = arena_zalloc(&rows->arena, sizeof(*group));
        if (group == NULL) {
            return NULL;
        }
        group->key = key;
        if (map_add(&rows->group_map, key, group) != group) {
            return NULL;
        }
    }
    /* Two versions of the rules may meet in a batch: the stricter one. */
    if (counter->keys_max > 0 &&
        (group->keys_max == 0 || counter->keys_max < group->keys_max)) {
        group->keys_max = counter->keys_max;
    }
    return group;
}

static struct counter_row *
row_add(struct counter_rows *rows, struct meter_str tenant,
        const struct counter *counter, const struct dimension_set *set,
        struct meter_str key)
{
    struct counter_row *row = arena_zalloc(&rows->arena, sizeof(*row));

    if (row == NULL || !arena_copy(&rows->arena, key, &row->key)) {
        return NULL;
    }
    row->tenant = tenant;
    row->name = counter->name;
    memcpy(row->dimension_key, set->key, METER_DIGEST_SIZE);
    row->dimensions = set->json;
    counter_fold_init(&row->tally.fold);
    row->tally.has_fold = true;
    row->group =
        group_take(rows, counter,
                   (struct meter_str){row->key.data + METER_DIGEST_SIZE,
                                      row->key.size - METER_DIGEST_SIZE});
    if (row->group == NULL || map_add(&rows->row_map, row->key, row) != row) {
        return NULL;
    }
    vec_push(&rows->rows, row);
    return row;
}

/* Where a row that was asked for a moment ago is remembered. */
static struct counter_row **
recent_place(struct counter_rows *rows, const struct counter *counter,
             const struct dimension_set *set)
{
    size_t place = (size_t)set->key[0] | (size_t)set->key[1] << 8;

    return &rows->recent[(place + counter->index * 61) & (COUNTER_RECENT - 1)];
}

static bool
row_is(const struct counter_row *row, struct meter_str tenant,
       const struct counter *counter, const struct dimension_set *set)
{
    return row != NULL &&
           memcmp(row->dimension_key, set->key, METER_DIGEST_SIZE) == 0 &&
           meter_str_equal(row->name, counter->name) &&
           meter_str_equal(row->tenant, tenant);
}

/* Found among all rows, or made. NULL: no memory. */
static struct counter_row *
row_find_or_add(struct counter_rows *rows, struct meter_str tenant,
                const struct counter *counter, const struct dimension_set *set)
{
    char bytes[ROW_KEY_SIZE_MAX];
    struct meter_str key = {bytes, 0};
    struct counter_row *row;

    CHECK(is_name(tenant, counter->name));
    key.size = row_key(tenant, counter->name, set->key, bytes);
    row = map_find(&rows->row_map, key);
    return row != NULL ? row : row_add(rows, tenant, counter, set, key);
}

struct counter_row *
counter_row_take(struct counter_rows *rows, struct meter_str tenant,
                 const struct counter *counter, const struct dimension_set *set)
{
    struct counter_row **recent = recent_place(rows, counter, set);
    struct counter_row *row = *recent;

    if (!row_is(row, tenant, counter, set)) {
        row = row_find_or_add(rows, tenant, counter, set);
        *recent = row;
    }
    if (row != NULL) {
        row->is_floored |= counter->floor_at_zero;
        if (counter->audit && !row->is_audited) {
            row->is_audited = true;
            rows->audited_count++;
        }
    }
    return row;
}

struct counter_row *
counter_row_find(const struct counter_rows *rows, struct meter_str tenant,
                 struct meter_str name, struct meter_str dimension_key)
{
    char bytes[ROW_KEY_SIZE_MAX];
    struct meter_str key = {bytes, 0};

    if (!is_name(tenant, name) || dimension_key.size != METER_DIGEST_SIZE) {
        return NULL;
    }
    key.size =
        row_key(tenant, name, (const uint8_t *)dimension_key.data, bytes);
    return map_find(&rows->row_map, key);
}

struct counter_group *
counter_group_find(const struct counter_rows *rows, struct meter_str tenant,
                   struct meter_str name)
{
    char bytes[GROUP_KEY_SIZE_MAX];
    struct meter_str key = {bytes, 0};

    if (!is_name(tenant, name)) {
        return NULL;
    }
    key.size = group_key(tenant, name, bytes);
    return map_find(&rows->group_map, key);
}

static struct counter_state *
state_add(struct counter_rows *rows, struct meter_str tenant,
          const struct counter *counter, struct meter_str entity,
          struct meter_str key)
{
    struct counter_state *state = arena_zalloc(&rows->arena, sizeof(*state));

    if (state == NULL || !arena_copy(&rows->arena, key, &state->key)) {
        return NULL;
    }
    state->tenant = tenant;
    state->name = counter->name;
    state->entity = entity;
    if (map_add(&rows->state_map, state->key, state) != state) {
        return NULL;
    }
    vec_push(&rows->states, state);
    return state;
}

struct counter_state *
counter_state_take(struct counter_rows *rows, struct meter_str tenant,
                   const struct counter *counter, struct meter_str entity)
{
    char bytes[STATE_KEY_SIZE_MAX];
    struct meter_str key = {bytes, 0};
    struct counter_state *state;

    CHECK(is_name(tenant, counter->name));
    CHECK(entity.size <= COUNTER_ENTITY_SIZE_MAX);
    key.size = state_key(tenant, counter->name, entity, bytes);
    state = map_find(&rows->state_map, key);
    return state != NULL ? state
                         : state_add(rows, tenant, counter, entity, key);
}

struct counter_state *
counter_state_find(const struct counter_rows *rows, struct meter_str tenant,
                   struct meter_str name, struct meter_str entity)
{
    char bytes[STATE_KEY_SIZE_MAX];
    struct meter_str key = {bytes, 0};

    if (!is_name(tenant, name) || entity.size > COUNTER_ENTITY_SIZE_MAX) {
        return NULL;
    }
    key.size = state_key(tenant, name, entity, bytes);
    return map_find(&rows->state_map, key);
}

static int
rows_compare(const void *left, const void *right)
{
    const struct counter_row *a = *(void *const *)left;
    const struct counter_row *b = *(void *const *)right;
    int order = meter_str_compare(a->tenant, b->tenant);

    if (order == 0) {
        order = meter_str_compare(a->name, b->name);
    }
    if (order == 0) {
        order = memcmp(a->dimension_key, b->dimension_key, METER_DIGEST_SIZE);
    }
    return order;
}

static int
states_compare(const void *left, const void *right)
{
    const struct counter_state *a = *(void *const *)left;
    const struct counter_state *b = *(void *const *)right;
    int order = meter_str_compare(a->tenant, b->tenant);

    if (order == 0) {
        order = meter_str_compare(a->name, b->name);
    }
    if (order == 0) {
        order = meter_str_compare(a->entity, b->entity);
    }
    return order;
}

static void
list_sort(void *items, size_t count, int (*compare)(const void *, const void *))
{
    if (!projection_is_unsorted && count > 1) {
        qsort(items, count, sizeof(void *), compare);
    }
}

void
counter_rows_sort(struct counter_rows *rows)
{
    list_sort(rows->rows.items, rows->rows.count, rows_compare);
    list_sort(rows->states.items, rows->states.count, states_compare);
}
