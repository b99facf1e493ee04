/*
 * group.c - see group.h.
 */

#include "query/group.h"

#include "base/json_writer.h"

#include <stdlib.h>

bool
groups_init(struct groups *groups, const struct query *query, size_t key_count,
            struct arena *arena)
{
    *groups = (struct groups){.query = query, .arena = arena};
    for (size_t i = 0; i < METER_DIMENSION_COUNT_MAX; i++) {
        groups->readings[i] = -1;
    }
    groups->keys = arena_alloc(arena, (key_count + 1) * sizeof(*groups->keys));
    groups->json = arena_alloc(arena, (key_count + 1) * sizeof(*groups->json));
    return groups->keys != NULL && groups->json != NULL;
}

/* False: another set had another reading of the same text. */
static bool
reading_note(struct groups *groups, size_t f, const struct json_value *held)
{
    const struct query_filter *filter = &groups->query->filters.items[f];
    int reading = 0;

    if (!filter->is_loose || filter->count < 2) {
        return true;
    }
    /* Readings of one text differ in their kind. */
    while ((size_t)reading + 1 < filter->count &&
           filter->values[reading].kind != held->kind) {
        reading++;
    }
    if (groups->readings[f] < 0) {
        groups->readings[f] = reading;
    }
    return groups->readings[f] == reading;
}

/* What group_by leaves, as canonical JSON. */
static bool
group_write(const struct groups *groups, const struct json_value *object,
            struct arena *scratch, struct buf *out)
{
    const struct series *series = groups->query->series;
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    for (size_t d = 0; d < series->dimension_count; d++) {
        const struct json_value *held;
        struct meter_str text = METER_STR("null");

        if (!groups->query->is_grouped[d]) {
            continue;
        }
        held = json_member_find(object, series->dimensions[d].name);
        if (held != NULL && !json_canonical(held, scratch, &text)) {
            return false;
        }
        json_key_str(&json, series->dimensions[d].name);
        json_raw(&json, text);
    }
    json_object_end(&json);
    return !out->failed;
}

static enum groups_result
group_read(struct groups *groups, struct meter_str dimensions,
           struct arena *scratch, struct buf *out)
{
    static const struct json_limits limits = {
        .depth_max = 1,
        .key_count_max = METER_DIMENSION_COUNT_MAX,
        .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,
        .string_size_max = METER_DIMENSION_SIZE_MAX,
    };
    static const struct json_value none = {.kind = JSON_NULL};
    const struct query_filters *filters = &groups->query->filters;
    struct json_value object;
    struct json_error error;
    size_t used;

    if (!json_read(dimensions, &limits, scratch, &object, &used, &error) ||
        object.kind != JSON_OBJECT) {
        return GROUPS_MEMORY;
    }
    for (size_t f = 0; f < filters->count; f++) {
        const struct json_value *held =
            json_member_find(&object, filters->items[f].name);

        if (!reading_note(groups, f, held == NULL ? &none : held)) {
            return GROUPS_MIXED;
        }
    }
    return group_write(groups, &object, scratch, out) ? GROUPS_OK
                                                      : GROUPS_MEMORY;
}

enum groups_result
groups_add(struct groups *groups, struct meter_str key,
           struct meter_str dimensions)
{
    struct group_key *one = &groups->keys[groups->key_count];
    enum groups_result result;
    struct arena scratch;
    struct buf text;

    CHECK(key.size == METER_DIGEST_SIZE);
    memcpy(one->key, key.data, METER_DIGEST_SIZE);
    arena_init(&scratch, 4096, 1u << 20);
    buf_init(&text, 1u << 20);
    result = group_read(groups, dimensions, &scratch, &text);
    if (result == GROUPS_OK &&
        !arena_copy(groups->arena, buf_str(&text), &one->json)) {
        result = GROUPS_MEMORY;
    }
    buf_fini(&text);
    arena_fini(&scratch);
    groups->key_count += result == GROUPS_OK;
    return result;
}

static int
bytes_compare(struct meter_str a, struct meter_str b)
{
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size == 0 ? 0 : memcmp(a.data, b.data, size);

    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static int
key_compare(const void *a, const void *b)
{
    const struct group_key *one = a;
    const struct group_key *other = b;
    int order = bytes_compare(one->json, other->json);

    return order != 0 ? order : memcmp(one->key, other->key, METER_DIGEST_SIZE);
}

void
groups_sort(struct groups *groups)
{
    qsort(groups->keys, groups->key_count, sizeof(groups->keys[0]),
          key_compare);
    for (size_t i = 0; i < groups->key_count; i++) {
        struct group_key *key = &groups->keys[i];

        if (i == 0 || !meter_str_equal(key->json, key[-1].json)) {
            groups->json[groups->count++] = key->json;
        }
        key->place = (int32_t)groups->count - 1;
    }
    if (groups->count == 0 && groups->query->grouped_count == 0) {
        groups->json[groups->count++] = METER_STR("{}");
    }
}
