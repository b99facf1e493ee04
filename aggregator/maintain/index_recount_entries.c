/*
 * index_recount_entries.c - see index_recount_entries.h.
 *
 *   attributes -> [index_project] -> expected   missing
 *   JSON ------------------------> found   ---> extra
 */

#include "maintain/index_recount_entries.h"

#include "base/json_writer.h"

#define ENTRY_MEMBERS 4 /* type, attribute, value, ts */

/* As they were accepted; what is in the ledger was within. */
static const struct json_limits attribute_limits = {
    .depth_max = METER_JSON_DEPTH_MAX,
    .key_count_max = METER_ATTRIBUTE_COUNT_MAX,
    .name_size_max = METER_EVENT_SIZE_MAX,
    .string_size_max = METER_EVENT_SIZE_MAX,
};

static const struct json_limits entry_limits = {
    .depth_max = 4,
    .key_count_max = 1,
    .name_size_max = 1,
    .string_size_max = METER_EVENT_SIZE_MAX,
};

static bool
list_make(struct index_recount_list *list, size_t room, struct arena *arena)
{
    *list = (struct index_recount_list){NULL, 0};
    list->items = arena_alloc(arena, (room + 1) * sizeof(*list->items));
    return list->items != NULL;
}

static bool
expected_make(const struct catalog *catalog,
              const struct index_recount_event *event, struct arena *arena,
              struct index_recount_list *out, const char **error)
{
    const struct event_type *type =
        event->type.data == NULL ? NULL
                                 : catalog_event_type(catalog, event->type);
    const struct index_effect *effect;
    struct json_value attributes;
    struct json_error json_error;
    const void *made = NULL;
    bool is_careful = false;
    size_t used;

    if (type == NULL || type->indexed.count == 0) {
        return list_make(out, 0, arena);
    }
    *error = "its attributes cannot be read";
    if (!json_read(event->attributes, &attribute_limits, arena, &attributes,
                   &used, &json_error) ||
        attributes.kind != JSON_OBJECT ||
        !index_project(type, NULL, &attributes, arena, &made, &is_careful,
                       error)) {
        return false;
    }
    effect = made;
    if (!list_make(out, effect == NULL ? 0 : effect->count, arena)) {
        return false;
    }
    for (size_t i = 0; effect != NULL && i < effect->count; i++) {
        out->items[out->count++] = (struct index_recount_entry){
            event->type, effect->entries[i].attribute, effect->entries[i].value,
            event->ts_us};
    }
    return true;
}

/* Do the rules index the attribute of the type? */
static bool
is_indexed(const struct catalog *catalog,
           const struct index_recount_entry *entry)
{
    const struct event_type *type = catalog_event_type(catalog, entry->type);

    for (size_t i = 0; type != NULL && i < type->indexed.count; i++) {
        if (meter_str_equal(type->indexed.items[i].name, entry->attribute)) {
            return true;
        }
    }
    return false;
}

static bool
number_read(struct meter_str text, int64_t *out)
{
    bool is_negative = text.size > 0 && text.data[0] == '-';
    uint64_t value = 0;

    for (size_t i = is_negative; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return false;
        }
        value = value * 10 + (uint64_t)(text.data[i] - '0');
    }
    *out = is_negative ? -(int64_t)value : (int64_t)value;
    return text.size > (size_t)is_negative;
}

static bool
entry_read(const struct json_value *value, struct index_recount_entry *out)
{
    if (value->kind != JSON_ARRAY || value->count != ENTRY_MEMBERS) {
        return false;
    }
    for (size_t i = 0; i < ENTRY_MEMBERS; i++) {
        if (value->items[i].kind != JSON_STRING) {
            return false;
        }
    }
    out->type = value->items[0].text;
    out->attribute = value->items[1].text;
    out->value = value->items[2].text;
    return number_read(value->items[3].text, &out->ts_us);
}

static bool
found_read(const struct catalog *catalog, struct meter_str text,
           struct arena *arena, struct index_recount_entries *out,
           const char **error)
{
    struct json_value all = {.kind = JSON_ARRAY};
    struct json_error json_error;
    size_t used;

    *error = "its entries cannot be read";
    if ((text.data != NULL &&
         !json_read(text, &entry_limits, arena, &all, &used, &json_error)) ||
        all.kind != JSON_ARRAY || !list_make(&out->found, all.count, arena)) {
        return false;
    }
    for (uint32_t i = 0; i < all.count; i++) {
        struct index_recount_entry *entry = &out->found.items[out->found.count];

        if (!entry_read(&all.items[i], entry)) {
            return false;
        }
        if (is_indexed(catalog, entry)) {
            out->found.count++;
        } else {
            out->strangers++;
        }
    }
    return true;
}

static bool
is_equal(const struct index_recount_entry *a,
         const struct index_recount_entry *b)
{
    return a->ts_us == b->ts_us && meter_str_equal(a->type, b->type) &&
           meter_str_equal(a->attribute, b->attribute) &&
           meter_str_equal(a->value, b->value);
}

/* Those of one list that have no partner in the other. */
static bool
without_partner(const struct index_recount_list *list,
                const struct index_recount_list *other, struct arena *arena,
                struct index_recount_list *out)
{
    bool *is_taken = arena_zalloc(arena, other->count + 1);

    if (is_taken == NULL || !list_make(out, list->count, arena)) {
        return false;
    }
    for (size_t i = 0; i < list->count; i++) {
        size_t at = 0;

        while (
            at < other->count &&
            (is_taken[at] || !is_equal(&list->items[i], &other->items[at]))) {
            at++;
        }
        if (at < other->count) {
            is_taken[at] = true;
        } else {
            out->items[out->count++] = list->items[i];
        }
    }
    return true;
}

bool
index_recount_compare(const struct catalog *catalog,
                      const struct index_recount_event *event,
                      struct meter_str text, struct arena *arena,
                      struct index_recount_entries *out, const char **error)
{
    *out = (struct index_recount_entries){.strangers = 0};
    *error = "no memory is left for its entries";
    return expected_make(catalog, event, arena, &out->expected, error) &&
           found_read(catalog, text, arena, out, error) &&
           without_partner(&out->expected, &out->found, arena, &out->missing) &&
           without_partner(&out->found, &out->expected, arena, &out->extra);
}

void
index_recount_put_entries(struct buf *out,
                          const struct index_recount_list *list)
{
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    for (size_t i = 0; i < list->count; i++) {
        json_key_str(&json, list->items[i].attribute);
        json_string(&json, list->items[i].value);
    }
    json_object_end(&json);
}
