/*
 * counter_recount_compare.c - counters that are not what they should be, see
 * counter_recount.h.
 *
 *   rows, entities -> [compare] -> marked -> [differences], [write]
 *
 * Where a row of a counter is marked, its number of keys is written anew
 * too: until then ingest may have made or missed the row.
 */

#include "project/counter_recount.h"

#include "base/json_writer.h"

#include <stdlib.h>

#define CHUNK_ROWS 1000 /* of one statement */
#define TEXT_MAX   ((size_t)1 << 20)


/* ---- compare ---------------------------------------------------------- */

static int
key_compare(const void *left, const void *right)
{
    const struct meter_str *a = *(void *const *)left;
    const struct meter_str *b = *(void *const *)right;

    return meter_str_compare(*a, *b);
}

/* Both kinds begin with their key. */
_Static_assert(offsetof(struct recounted_row, key) == 0, "sorted by key");
_Static_assert(offsetof(struct recounted_entity, key) == 0, "sorted by key");

static bool
list_fill(struct recounted_list *list, const struct map *map, size_t count,
          bool (*is_marked)(const void *item))
{
    size_t cursor = 0;
    void *item;

    free(list->items);
    list->count = 0;
    list->items = calloc(count + 1, sizeof(*list->items));
    if (list->items == NULL) {
        return false;
    }
    while ((item = map_next(map, &cursor)) != NULL) {
        if (is_marked(item)) {
            list->items[list->count++] = item;
        }
    }
    CHECK(list->count == count);
    qsort(list->items, list->count, sizeof(*list->items), key_compare);
    return true;
}

static bool
row_differs(const struct recounted_row *row)
{
    return row->is_expected != row->is_found || row->is_unchained ||
           (row->is_expected &&
            (row->value != row->found || row->found_json.data != NULL));
}

static bool
row_is_marked(const void *item)
{
    return ((const struct recounted_row *)item)->is_marked;
}

static bool
entity_is_marked(const void *item)
{
    return ((const struct recounted_entity *)item)->is_marked;
}

static size_t
mark_rows(struct counter_recounting *all)
{
    struct recounted_row *row;
    size_t cursor = 0;
    size_t marked = 0;

    for (size_t i = 0; i < all->scope.catalog->counter_count; i++) {
        all->keys[i].since_us = RECOUNT_SINCE_NEVER;
    }
    while ((row = map_next(&all->row_map, &cursor)) != NULL) {
        struct recounted_keys *keys = &all->keys[row->counter->index];

        keys->count += row->is_expected;
        if (row->since_us < keys->since_us) {
            keys->since_us = row->since_us;
        }
        row->is_marked = row_differs(row);
        keys->is_marked |= row->is_marked;
        marked += row->is_marked;
    }
    return marked;
}

/* Not known and known as not counted are the same. */
static size_t
mark_entities(struct counter_recounting *all)
{
    struct recounted_entity *entity;
    size_t cursor = 0;
    size_t marked = 0;

    while ((entity = map_next(&all->entity_map, &cursor)) != NULL) {
        entity->is_marked = entity->place != entity->found;
        marked += entity->is_marked;
    }
    return marked;
}

static size_t
mark_keys(struct counter_recounting *all)
{
    size_t different = 0;

    for (size_t i = 0; i < all->scope.catalog->counter_count; i++) {
        struct recounted_keys *keys = &all->keys[i];

        keys->is_different = keys->count != (keys->is_found ? keys->found : 0);
        keys->is_marked |= keys->is_different;
        different += keys->is_different;
    }
    return different;
}

bool
counter_recount_compare(void *recount, size_t *count)
{
    struct counter_recounting *all = recount;
    size_t rows = mark_rows(all);
    size_t entities = mark_entities(all);

    *count = rows + entities + mark_keys(all);
    return list_fill(&all->rows, &all->row_map, rows, row_is_marked) &&
           list_fill(&all->entities, &all->entity_map, entities,
                     entity_is_marked);
}


/* ---- differences ------------------------------------------------------ */

/* Texts of one difference, used again for the next. */
struct telling {
    struct buf key;
    struct buf expected;
    struct buf found;
    recount_difference_cb cb;
    void *asker;
};

static void
put_number(struct buf *out, int64_t value)
{
    buf_printf(out, "\"%lld\"", (long long)value);
}

static void
key_begin(struct telling *telling, struct json_writer *json,
          const struct counter *counter)
{
    buf_reset(&telling->key);
    buf_reset(&telling->expected);
    buf_reset(&telling->found);
    json_writer_init(json, &telling->key);
    json_object_begin(json);
    json_key(json, "counter");
    json_string(json, counter->name);
}

/* False: no memory. */
static bool
tell(struct telling *telling, const char *what, const struct counter *counter,
     int64_t since_us)
{
    struct recount_difference one = {
        .origin = {.kind = RULE_COUNTER,
                   .names = {counter->name},
                   .name_count = 1,
                   .since_us = since_us},
        .what = what,
        .key = buf_str(&telling->key),
        .expected = buf_str(&telling->expected),
        .found = buf_str(&telling->found),
    };

    if (telling->key.failed || telling->expected.failed ||
        telling->found.failed) {
        return false;
    }
    if (one.expected.size == 0) {
        one.expected.data = NULL;
    }
    if (one.found.size == 0) {
        one.found.data = NULL;
    }
    telling->cb(telling->asker, &one);
    return true;
}

static bool
tell_row(struct telling *telling, const struct recounted_row *row)
{
    struct json_writer json;
    const char *what = "counter";

    key_begin(telling, &json, row->counter);
    json_key(&json, "dimensions");
    json_raw(&json, row->set.json);
    json_object_end(&json);
    if (row->is_expected) {
        put_number(&telling->expected, row->value);
    }
    if (row->is_found) {
        put_number(&telling->found, row->found);
    }
    if (row->is_expected && row->is_found && row->value == row->found) {
        buf_reset(&telling->expected);
        buf_reset(&telling->found);
        what = row->found_json.data != NULL ? "dimensions" : "audit";
        if (row->found_json.data != NULL) {
            buf_put_str(&telling->expected, row->set.json);
            json_writer_init(&json, &telling->found);
            json_string(&json, row->found_json);
        } else {
            put_number(&telling->expected, row->value);
            put_number(&telling->found, row->logged);
        }
    }
    /* The log of updates knows no rules. */
    return tell(telling, what, row->counter,
                row->is_unchained ? RECOUNT_SINCE_NEVER : row->since_us);
}

static bool
tell_entity(struct telling *telling, const struct recounted_entity *entity)
{
    struct json_writer json;

    key_begin(telling, &json, entity->counter);
    json_key(&json, "entity");
    json_raw(&json, entity->name);
    json_object_end(&json);
    if (entity->place != NULL) {
        buf_put_str(&telling->expected, entity->place->set.json);
    }
    if (entity->found != NULL) {
        buf_put_str(&telling->found, entity->found->set.json);
    }
    return tell(telling, "entity", entity->counter, entity->since_us);
}

static bool
tell_keys(struct telling *telling, const struct counter *counter,
          const struct recounted_keys *keys)
{
    struct json_writer json;

    key_begin(telling, &json, counter);
    json_object_end(&json);
    put_number(&telling->expected, keys->count);
    if (keys->is_found) {
        put_number(&telling->found, keys->found);
    }
    return tell(telling, "keys", counter, keys->since_us);
}

static bool
tell_all(const struct counter_recounting *all, struct telling *telling)
{
    for (size_t i = 0; i < all->rows.count; i++) {
        if (!tell_row(telling, all->rows.items[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < all->entities.count; i++) {
        if (!tell_entity(telling, all->entities.items[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < all->scope.catalog->counter_count; i++) {
        if (all->keys[i].is_different &&
            !tell_keys(telling, &all->scope.catalog->counters[i],
                       &all->keys[i])) {
            return false;
        }
    }
    return true;
}

bool
counter_recount_differences(void *recount, recount_difference_cb cb,
                            void *asker)
{
    struct telling telling = {.cb = cb, .asker = asker};
    bool is_good;

    buf_init(&telling.key, TEXT_MAX);
    buf_init(&telling.expected, TEXT_MAX);
    buf_init(&telling.found, TEXT_MAX);
    is_good = tell_all(recount, &telling);
    buf_fini(&telling.key);
    buf_fini(&telling.expected);
    buf_fini(&telling.found);
    return is_good;
}


/* ---- writes ----------------------------------------------------------- */

/* A stretch of a list; only those that are wanted become rows. */
struct chunk {
    void *const *items;
    size_t count;
    bool (*is_wanted)(const void *item);
};

static struct chunk
chunk_of(const struct recounted_list *list, size_t at,
         bool (*is_wanted)(const void *item))
{
    size_t left = list->count - at * CHUNK_ROWS;

    return (struct chunk){list->items + at * CHUNK_ROWS,
                          left < CHUNK_ROWS ? left : CHUNK_ROWS, is_wanted};
}

static size_t
chunks_of(const struct recounted_list *list)
{
    return (list->count + CHUNK_ROWS - 1) / CHUNK_ROWS;
}

static void
put_column(struct pg_params *out, const struct chunk *chunk, enum pg_type type,
           void (*put)(struct buf *bytes, const void *item))
{
    size_t count = 0;

    for (size_t i = 0; i < chunk->count; i++) {
        count += chunk->is_wanted(chunk->items[i]);
    }
    pg_param_array_begin(out, type, count);
    for (size_t i = 0; i < chunk->count; i++) {
        if (chunk->is_wanted(chunk->items[i])) {
            put(&out->bytes, chunk->items[i]);
        }
    }
    pg_param_array_end(out);
}

static bool
any(const void *item)
{
    return item != NULL;
}

static bool
row_is_expected(const void *item)
{
    return ((const struct recounted_row *)item)->is_expected;
}

static bool
row_is_audited(const void *item)
{
    const struct recounted_row *row = item;

    return row->is_expected && row->counter->audit;
}

static void
put_row_counter(struct buf *bytes, const void *item)
{
    pg_put_text(bytes, ((const struct recounted_row *)item)->counter->name);
}

static void
put_row_key(struct buf *bytes, const void *item)
{
    const struct recounted_row *row = item;

    pg_put_bytes(bytes, (struct meter_str){(const char *)row->set.key,
                                           sizeof(row->set.key)});
}

static void
put_row_dimensions(struct buf *bytes, const void *item)
{
    pg_put_text(bytes, ((const struct recounted_row *)item)->set.json);
}

static void
put_row_value(struct buf *bytes, const void *item)
{
    pg_put_int8(bytes, ((const struct recounted_row *)item)->value);
}

/* Never back: clamped rows only take what is later than themselves. */
static void
put_row_updated(struct buf *bytes, const void *item)
{
    const struct recounted_row *row = item;

    pg_put_time(bytes, row->found_us > row->updated_us ? row->found_us
                                                       : row->updated_us);
}

static void
write_rows(struct pg_params *out, const struct chunk *chunk, bool is_delete)
{
    put_column(out, chunk, PG_TEXT, put_row_counter);
    put_column(out, chunk, PG_BYTEA, put_row_key);
    if (!is_delete) {
        put_column(out, chunk, PG_TEXT, put_row_dimensions);
        put_column(out, chunk, PG_INT8, put_row_value);
        put_column(out, chunk, PG_TIMESTAMPTZ, put_row_updated);
    }
}

static bool
entity_is_expected(const void *item)
{
    return ((const struct recounted_entity *)item)->is_expected;
}

static void
put_entity_owner(struct buf *bytes, const void *item)
{
    pg_put_text(bytes, ((const struct recounted_entity *)item)->counter->name);
}

static void
put_entity_name(struct buf *bytes, const void *item)
{
    pg_put_text(bytes, ((const struct recounted_entity *)item)->name);
}

static void
put_entity_key(struct buf *bytes, const void *item)
{
    const struct recounted_entity *entity = item;

    if (entity->place == NULL) {
        pg_put_null(bytes);
    } else {
        put_row_key(bytes, entity->place);
    }
}

static void
put_entity_dimensions(struct buf *bytes, const void *item)
{
    const struct recounted_entity *entity = item;

    if (entity->place == NULL) {
        pg_put_null(bytes);
    } else {
        put_row_dimensions(bytes, entity->place);
    }
}

static void
put_entity_updated(struct buf *bytes, const void *item)
{
    const struct recounted_entity *entity = item;

    pg_put_time(bytes, entity->found_us > entity->updated_us
                           ? entity->found_us
                           : entity->updated_us);
}

static void
write_entities(struct pg_params *out, const struct chunk *chunk, bool is_delete)
{
    put_column(out, chunk, PG_TEXT, put_entity_owner);
    put_column(out, chunk, PG_TEXT, put_entity_name);
    if (!is_delete) {
        put_column(out, chunk, PG_BYTEA, put_entity_key);
        put_column(out, chunk, PG_TEXT, put_entity_dimensions);
        put_column(out, chunk, PG_TIMESTAMPTZ, put_entity_updated);
    }
}

/* As they are behind all events; a counter without keys has no row. */
static void
write_keys(struct counter_recounting *all, struct pg_params *out,
           bool is_delete)
{
    const struct catalog *catalog = all->scope.catalog;
    struct recounted_row *row;
    size_t cursor = 0;
    size_t count = 0;

    for (size_t i = 0; i < catalog->counter_count; i++) {
        all->keys[i].count = 0;
    }
    while ((row = map_next(&all->row_map, &cursor)) != NULL) {
        all->keys[row->counter->index].count += row->is_expected;
    }
    for (size_t i = 0; i < catalog->counter_count; i++) {
        const struct recounted_keys *keys = &all->keys[i];

        count += keys->is_marked && (is_delete || keys->count > 0);
    }
    pg_param_array_begin(out, PG_TEXT, count);
    for (size_t i = 0; i < catalog->counter_count; i++) {
        const struct recounted_keys *keys = &all->keys[i];

        if (keys->is_marked && (is_delete || keys->count > 0)) {
            pg_put_text(&out->bytes, catalog->counters[i].name);
        }
    }
    pg_param_array_end(out);
    if (is_delete) {
        return;
    }
    pg_param_array_begin(out, PG_INT8, count);
    for (size_t i = 0; i < catalog->counter_count; i++) {
        if (all->keys[i].is_marked && all->keys[i].count > 0) {
            pg_put_int8(&out->bytes, all->keys[i].count);
        }
    }
    pg_param_array_end(out);
}

/* What is written, in this order; of lists so many statements as chunks. */
static const struct part {
    enum statement statement;
    enum { PART_ROWS, PART_ENTITIES, PART_KEYS } of;
    bool is_delete;
    bool (*is_wanted)(const void *item);
} parts[] = {
    {STATEMENT_RECOUNT_ENTITIES_DELETE, PART_ENTITIES, true, any},
    {STATEMENT_RECOUNT_ENTITIES_INSERT, PART_ENTITIES, false,
     entity_is_expected},
    {STATEMENT_RECOUNT_COUNTERS_DELETE, PART_ROWS, true, any},
    {STATEMENT_RECOUNT_COUNTERS_INSERT, PART_ROWS, false, row_is_expected},
    {STATEMENT_RECOUNT_AUDIT_INSERT, PART_ROWS, false, row_is_audited},
    {STATEMENT_RECOUNT_COUNTER_KEYS_DELETE, PART_KEYS, true, NULL},
    {STATEMENT_RECOUNT_COUNTER_KEYS_INSERT, PART_KEYS, false, NULL},
};

static size_t
part_statements(const struct counter_recounting *all, const struct part *part)
{
    switch (part->of) {
    case PART_ROWS: return chunks_of(&all->rows);
    case PART_ENTITIES: return chunks_of(&all->entities);
    case PART_KEYS: break;
    }
    return 1;
}

bool
counter_recount_write(void *recount, size_t *at, struct projection_query *out)
{
    struct counter_recounting *all = recount;
    size_t left = *at;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const struct part *part = &parts[i];
        size_t count = part_statements(all, part);
        struct chunk chunk;

        if (left >= count) {
            left -= count;
            continue;
        }
        (*at)++;
        out->statement = part->statement;
        pg_param_text(out->params, all->scope.tenant);
        switch (part->of) {
        case PART_ROWS:
            chunk = chunk_of(&all->rows, left, part->is_wanted);
            write_rows(out->params, &chunk, part->is_delete);
            break;
        case PART_ENTITIES:
            chunk = chunk_of(&all->entities, left, part->is_wanted);
            write_entities(out->params, &chunk, part->is_delete);
            break;
        case PART_KEYS: write_keys(all, out->params, part->is_delete); break;
        }
        return true;
    }
    return false;
}
