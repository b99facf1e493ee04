/*
 * index.c - declared attributes of an event, see index.h. Pure.
 *
 *   paths under `indexed`, attribute tree -> [index_project] -> entries
 */

#include "project/index.h"

#include "project/attribute.h"

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
