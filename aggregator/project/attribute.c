/*
 * attribute.c - attributes of an event as rules read them, see attribute.h.
 *
 *   path -> [find] -> value -> [dimensions] -> canonical JSON -> key
 *                           -> [decimal], [scalar]
 *
 * Most dimension sets were seen a moment ago: their keys and their JSON are
 * remembered under a record of names, kinds and values, which is compared in
 * full.
 */

#include "project/attribute.h"

#include "base/reason.h"
#include "meter_decimal.h"
#include "meter_hash.h"

#define MEMO_COUNT       4096 /* power of two; 2 MiB in all */
#define MEMO_RECORD_SIZE 220  /* longer sets are made each time */
#define MEMO_JSON_SIZE   256

/* A set that came by not long ago. */
struct memo {
    uint8_t key[METER_DIGEST_SIZE];
    uint16_t record_size; /* 0: empty; a set of no dimensions has one too */
    uint16_t json_size;
    char record[MEMO_RECORD_SIZE];
    char json[MEMO_JSON_SIZE];
};

static struct memo memos[MEMO_COUNT]; /* of the loop's thread */

_Static_assert(sizeof(struct memo) == 512, "eight cache lines each");
_Static_assert((MEMO_COUNT & (MEMO_COUNT - 1)) == 0, "a mask picks the place");

const struct json_value *
attribute_find(const struct json_value *attributes,
               const struct attribute_path *path)
{
    const struct json_value *value = json_member_find(attributes, path->name);

    if (value != NULL || path->segment_count == 1) {
        return value;
    }
    value = attributes;
    for (size_t i = 0; i < path->segment_count; i++) {
        if (value == NULL || value->kind != JSON_OBJECT) {
            return NULL;
        }
        value = json_member_find(value, path->segments[i]);
    }
    return value;
}

/* Room for the canonical text of a number, one per dimension. */
typedef char number_text[METER_NUMBER_TEXT_SIZE + 1];

/* NULL, or what keeps the value from being a dimension. */
static const char *
dimension_read(const struct json_value *value, struct meter_dim *dim,
               number_text number)
{
    dim->kind = METER_DIM_NULL;
    dim->value = (struct meter_str){NULL, 0};
    if (value == NULL) {
        return NULL;
    }
    switch (value->kind) {
    case JSON_NULL: return NULL;
    case JSON_FALSE:
    case JSON_TRUE: dim->kind = METER_DIM_BOOL; break;
    case JSON_STRING: dim->kind = METER_DIM_STRING; break;
    case JSON_NUMBER: dim->kind = METER_DIM_NUMBER; break;
    case JSON_ARRAY: return "is an array";
    case JSON_OBJECT: return "is an object";
    }
    dim->value = value->text;
    if (value->kind == JSON_NUMBER) {
        if (!meter_number_canonical(value->text, number, &dim->value.size)) {
            return "has too many digits";
        }
        dim->value.data = number;
    }
    if (dim->value.size > METER_DIMENSION_SIZE_MAX) {
        return "is longer than 1024 bytes";
    }
    return NULL;
}

_Static_assert(METER_DIMENSION_SIZE_MAX == 1024, "the sentence says 1024");

/* Canonical JSON; escapes are rare, so the first room is without them. */
static bool
dimensions_write(const struct meter_dim *dims, size_t count,
                 struct arena *arena, struct meter_str *out)
{
    struct meter_writer writer = {.failed = true};
    size_t room = 2;

    for (size_t i = 0; i < count; i++) {
        room += dims[i].name.size + dims[i].value.size + 10;
    }
    while (writer.failed) {
        char *text = arena_alloc(arena, room);

        if (text == NULL) {
            return false;
        }
        meter_writer_init(&writer, text, room);
        meter_dims_json(dims, count, &writer);
        *out = (struct meter_str){text, writer.at};
        room = METER_JSON_ESCAPED_SIZE(room);
    }
    return true;
}

/* Sizes in front of the bytes, so that no two sets have one record. */
static size_t
record_write(const struct meter_dim *dims, size_t count,
             char record[MEMO_RECORD_SIZE])
{
    size_t at = 1;

    record[0] = (char)count;
    for (size_t i = 0; i < count; i++) {
        size_t name_size = dims[i].name.size;
        size_t value_size = dims[i].value.size;

        if (name_size > UINT8_MAX || value_size > UINT8_MAX ||
            at + 3 + name_size + value_size > MEMO_RECORD_SIZE) {
            return 0;
        }
        record[at++] = (char)dims[i].kind;
        record[at++] = (char)name_size;
        record[at++] = (char)value_size;
        memcpy(record + at, dims[i].name.data, name_size);
        at += name_size;
        if (value_size > 0) {
            memcpy(record + at, dims[i].value.data, value_size);
            at += value_size;
        }
    }
    return at;
}

/* Made from the dimensions themselves. False: no memory. */
static bool
set_make(const struct meter_dim *dims, size_t count, struct arena *arena,
         struct dimension_set *out)
{
    meter_dims_key(dims, count, out->key);
    return dimensions_write(dims, count, arena, &out->json);
}

static void
memo_fill(struct memo *memo, struct meter_str record,
          const struct dimension_set *set)
{
    if (set->json.size > MEMO_JSON_SIZE) {
        return;
    }
    memcpy(memo->key, set->key, METER_DIGEST_SIZE);
    memcpy(memo->record, record.data, record.size);
    memo->record_size = (uint16_t)record.size;
    memcpy(memo->json, set->json.data, set->json.size);
    memo->json_size = (uint16_t)set->json.size;
}

/* False: no memory. */
static bool
set_find(const struct meter_dim *dims, size_t count, struct arena *arena,
         struct dimension_set *out)
{
    char record[MEMO_RECORD_SIZE];
    size_t size = record_write(dims, count, record);
    struct memo *memo;

    if (size == 0) {
        return set_make(dims, count, arena, out);
    }
    memo = &memos[meter_hash(record, size, 0) & (MEMO_COUNT - 1)];
    if (memo->record_size == size && memcmp(memo->record, record, size) == 0) {
        memcpy(out->key, memo->key, METER_DIGEST_SIZE);
        return arena_copy(
            arena, (struct meter_str){memo->json, memo->json_size}, &out->json);
    }
    if (!set_make(dims, count, arena, out)) {
        return false;
    }
    memo_fill(memo, (struct meter_str){record, size}, out);
    return true;
}

bool
attribute_dimensions(const struct json_value *attributes,
                     const struct attribute_path *paths, size_t count,
                     const char *of, struct meter_str name, struct arena *arena,
                     struct dimension_set *out, const char **error)
{
    struct meter_dim dims[METER_DIMENSION_COUNT_MAX];
    number_text numbers[METER_DIMENSION_COUNT_MAX];

    CHECK(count <= METER_DIMENSION_COUNT_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct attribute_path *path = &paths[i];
        const char *wrong;

        dims[i].name = path->name;
        wrong = dimension_read(attribute_find(attributes, path), &dims[i],
                               numbers[i]);
        if (wrong != NULL) {
            *error = reason_format(arena,
                                   "attribute %s %s: it cannot be a dimension "
                                   "of %s %s",
                                   reason_quote(path->name).text, wrong, of,
                                   reason_quote(name).text);
            return false;
        }
    }
    if (!set_find(dims, count, arena, out)) {
        *error =
            reason_format(arena, "no memory is left for the event's %ss", of);
        return false;
    }
    return true;
}

enum attribute_reading
attribute_decimal(const struct json_value *attributes,
                  const struct attribute_path *path,
                  const struct meter_event *event, struct meter_decimal *out)
{
    const struct json_value *value = attribute_find(attributes, path);
    bool is_captured = (event->flags & METER_EVENT_CAPTURED) != 0;

    if (value == NULL || value->kind == JSON_NULL) {
        return ATTRIBUTE_ABSENT;
    }
    if ((value->kind != JSON_NUMBER &&
         !(is_captured && value->kind == JSON_STRING)) ||
        meter_decimal_parse(value->text, out) != METER_DECIMAL_OK) {
        return ATTRIBUTE_BAD;
    }
    return ATTRIBUTE_OK;
}

enum attribute_reading
attribute_scalar(const struct json_value *attributes,
                 const struct attribute_path *path, size_t size_max,
                 struct arena *arena, struct meter_str *out)
{
    const struct json_value *value = attribute_find(attributes, path);

    if (value == NULL || value->kind == JSON_NULL) {
        return ATTRIBUTE_ABSENT;
    }
    if (value->kind == JSON_OBJECT || value->kind == JSON_ARRAY ||
        !json_canonical(value, arena, out) || out->size > size_max) {
        return ATTRIBUTE_BAD;
    }
    return ATTRIBUTE_OK;
}
