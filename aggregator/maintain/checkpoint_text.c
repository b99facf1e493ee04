/*
 * checkpoint_text.c - see checkpoint_text.h.
 */

#include "maintain/checkpoint_text.h"

#include "base/json_reader.h"
#include "base/json_writer.h"
#include "meter_time.h"

#define FORMAT_NAME "edgemeter-checkpoint"

#define HEX_SIZE  (2 * METER_DIGEST_SIZE)
#define UUID_SIZE 36

/* Members of each line, for those that have more are not ours. */
#define HEADER_MEMBERS  7
#define COUNTER_MEMBERS 6
#define ENTITY_MEMBERS  6
#define USAGE_MEMBERS   4
#define TRAILER_MEMBERS 2

static const struct json_limits limits = {
    .depth_max = 2,
    .key_count_max = 10000000, /* writers; the line's size is the limit */
    .name_size_max = 64,
    .string_size_max = 1 << 20,
};


/* ---- writing ---------------------------------------------------------- */

static void
uuid_format(const uint8_t uuid[16], char out[UUID_SIZE + 1])
{
    static const size_t sizes[] = {4, 2, 2, 2, 6};
    size_t from = 0;
    char *to = out;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        meter_hex(uuid + from, sizes[i], to);
        from += sizes[i];
        to += 2 * sizes[i];
        *to++ = '-';
    }
    to[-1] = '\0';
}

static void
put_digest(struct json_writer *json, const char *key,
           const uint8_t digest[METER_DIGEST_SIZE])
{
    char hex[HEX_SIZE + 1];

    meter_hex(digest, METER_DIGEST_SIZE, hex);
    json_key(json, key);
    json_text(json, hex);
}

static void
put_str(struct json_writer *json, const char *key, struct meter_str value)
{
    json_key(json, key);
    json_string(json, value);
}

static void
put_time(struct json_writer *json, const char *key, int64_t ts_us)
{
    json_key(json, key);
    json_time(json, ts_us);
}

void
checkpoint_put_header(struct buf *out, const struct checkpoint_header *header)
{
    char uuid[UUID_SIZE + 1];
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    put_str(&json, "format", METER_STR(FORMAT_NAME));
    json_key(&json, "version");
    json_int(&json, CHECKPOINT_VERSION);
    put_time(&json, "created_at", header->created_us);
    json_key(&json, "schema");
    json_int(&json, header->schema_version);
    put_digest(&json, "salt_sha256", header->salt_digest);
    json_key(&json, "incarnation");
    json_text(&json, header->incarnation);
    json_key(&json, "writers");
    json_object_begin(&json);
    for (size_t i = 0; i < header->writer_count; i++) {
        uuid_format(header->writers[i].writer, uuid);
        json_key(&json, uuid);
        json_int_string(&json, header->writers[i].last);
    }
    json_object_end(&json);
    json_object_end(&json);
    buf_put_byte(out, '\n');
}

static void
put_place(struct json_writer *json, const struct checkpoint_row *row)
{
    if (row->has_dimensions) {
        put_digest(json, "key", row->dimension_key);
        put_str(json, "dimensions", row->dimensions);
        return;
    }
    json_key(json, "key");
    json_null(json);
    json_key(json, "dimensions");
    json_null(json);
}

static void
put_usage(struct json_writer *json, const struct checkpoint_row *row)
{
    json_key(json, "usage");
    json_array_begin(json);
    for (size_t i = 0; i < CHECKPOINT_USAGE_COLUMNS; i++) {
        json_int_string(json, row->usage[i]);
    }
    json_array_end(json);
    put_str(json, "status", row->status);
}

void
checkpoint_put_row(struct buf *out, const struct checkpoint_row *row)
{
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    put_str(&json, "tenant", row->tenant);
    switch (row->kind) {
    case CHECKPOINT_COUNTER:
        put_str(&json, "counter", row->name);
        put_place(&json, row);
        json_key(&json, "value");
        json_int_string(&json, row->value);
        break;
    case CHECKPOINT_ENTITY:
        put_str(&json, "owner", row->name);
        put_str(&json, "entity", row->entity);
        put_place(&json, row);
        break;
    default: put_usage(&json, row); break;
    }
    put_time(&json, "updated_at", row->updated_us);
    json_object_end(&json);
    buf_put_byte(out, '\n');
}

void
checkpoint_put_trailer(struct buf *out,
                       const struct checkpoint_trailer *trailer)
{
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    json_key(&json, "rows");
    json_int_string(&json, trailer->rows);
    put_digest(&json, "sha256", trailer->digest);
    json_object_end(&json);
    buf_put_byte(out, '\n');
}


/* ---- reading ---------------------------------------------------------- */

/* A member's value when it is of that kind. */
static const struct json_value *
get(const struct json_value *object, const char *name, enum json_kind kind)
{
    const struct json_value *value =
        json_member_find(object, (struct meter_str){name, strlen(name)});

    return value != NULL && value->kind == kind ? value : NULL;
}

static bool
get_str(const struct json_value *object, const char *name,
        struct meter_str *out)
{
    const struct json_value *value = get(object, name, JSON_STRING);

    if (value == NULL) {
        return false;
    }
    *out = value->text;
    return true;
}

/* Digits with a sign where it is negative: the only spelling of a number. */
static bool
int_read(struct meter_str text, int64_t *out)
{
    bool is_negative = text.size > 0 && text.data[0] == '-';
    size_t at = is_negative;
    int64_t value = 0;

    if (at == text.size ||
        (text.data[at] == '0' && (text.size > 1 || is_negative))) {
        return text.size == 1 && text.data[0] == '0' && (*out = 0, true);
    }
    for (; at < text.size; at++) {
        int digit = text.data[at] - '0';

        if (digit < 0 || digit > 9 ||
            __builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, digit, &value)) {
            return false;
        }
    }
    *out = value; /* summed up below 0, where there is room for all */
    return is_negative || !__builtin_sub_overflow(0, value, out);
}

static bool
get_int(const struct json_value *object, const char *name, enum json_kind kind,
        int64_t *out)
{
    const struct json_value *value = get(object, name, kind);

    return value != NULL && int_read(value->text, out);
}

static bool
get_time(const struct json_value *object, const char *name, int64_t *ts_us)
{
    struct meter_str text;
    char again[METER_TIME_TEXT_SIZE + 1];

    if (!get_str(object, name, &text) || !meter_time_parse(text, ts_us)) {
        return false;
    }
    meter_time_format(*ts_us, again);
    return meter_str_equal(text, (struct meter_str){again, strlen(again)});
}

static int
hex_digit(char byte)
{
    if (byte >= '0' && byte <= '9') {
        return byte - '0';
    }
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static bool
hex_read(const char *text, size_t size, uint8_t *out)
{
    for (size_t i = 0; i < size; i++) {
        int high = hex_digit(text[2 * i]);
        int low = hex_digit(text[2 * i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool
get_digest(const struct json_value *object, const char *name,
           uint8_t out[METER_DIGEST_SIZE])
{
    struct meter_str text;

    return get_str(object, name, &text) && text.size == HEX_SIZE &&
           hex_read(text.data, METER_DIGEST_SIZE, out);
}

static bool
uuid_read(struct meter_str text, uint8_t out[16])
{
    char again[UUID_SIZE + 1];
    size_t at = 0;

    for (size_t i = 0; i < 16; i++) {
        at += i == 4 || i == 6 || i == 8 || i == 10;
        if (at + 2 > text.size || !hex_read(text.data + at, 1, out + i)) {
            return false;
        }
        at += 2;
    }
    uuid_format(out, again);
    return meter_str_equal(text, (struct meter_str){again, UUID_SIZE});
}

/* Members are sorted by name, which is the order of the bytes. */
static bool
writers_read(const struct json_value *object, struct arena *arena,
             struct checkpoint_header *header)
{
    const struct json_value *writers = get(object, "writers", JSON_OBJECT);
    struct checkpoint_seq *seqs;

    if (writers == NULL) {
        return false;
    }
    seqs = arena_zalloc(arena, (writers->count + (size_t)1) * sizeof(*seqs));
    if (seqs == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < writers->count; i++) {
        const struct json_member *member = &writers->members[i];

        if (member->value.kind != JSON_STRING ||
            !uuid_read(member->name, seqs[i].writer) ||
            !int_read(member->value.text, &seqs[i].last) || seqs[i].last < 1) {
            return false;
        }
    }
    header->writers = seqs;
    header->writer_count = writers->count;
    return true;
}

static enum checkpoint_line
header_read(const struct json_value *object, struct arena *arena,
            struct checkpoint_found *out)
{
    struct checkpoint_header *header = &out->header;
    struct meter_str text;
    int64_t schema;

    if (!get_str(object, "format", &text) ||
        !meter_str_equal(text, METER_STR(FORMAT_NAME)) ||
        !get_int(object, "version", JSON_NUMBER, &out->version)) {
        return CHECKPOINT_LINE_BAD;
    }
    if (out->version != CHECKPOINT_VERSION) {
        return CHECKPOINT_LINE_VERSION;
    }
    if (object->count != HEADER_MEMBERS ||
        !get_time(object, "created_at", &header->created_us) ||
        !get_int(object, "schema", JSON_NUMBER, &schema) || schema < 0 ||
        schema > INT32_MAX ||
        !get_digest(object, "salt_sha256", header->salt_digest) ||
        !get_str(object, "incarnation", &text) ||
        text.size >= CHECKPOINT_INCARNATION_SIZE ||
        !writers_read(object, arena, header)) {
        return CHECKPOINT_LINE_BAD;
    }
    header->schema_version = (int)schema;
    memcpy(header->incarnation, text.data, text.size);
    header->incarnation[text.size] = '\0';
    return CHECKPOINT_LINE_HEADER;
}

/* Of an entity both may be null: it is not counted. */
static bool
place_read(const struct json_value *object, struct checkpoint_row *row)
{
    if (row->kind == CHECKPOINT_ENTITY &&
        get(object, "key", JSON_NULL) != NULL &&
        get(object, "dimensions", JSON_NULL) != NULL) {
        return true;
    }
    row->has_dimensions = true;
    return get_digest(object, "key", row->dimension_key) &&
           get_str(object, "dimensions", &row->dimensions);
}

static bool
usage_read(const struct json_value *object, struct checkpoint_row *row)
{
    const struct json_value *usage = get(object, "usage", JSON_ARRAY);

    if (usage == NULL || usage->count != CHECKPOINT_USAGE_COLUMNS) {
        return false;
    }
    for (size_t i = 0; i < CHECKPOINT_USAGE_COLUMNS; i++) {
        if (usage->items[i].kind != JSON_STRING ||
            !int_read(usage->items[i].text, &row->usage[i]) ||
            row->usage[i] < 0) {
            return false;
        }
    }
    return get_str(object, "status", &row->status) &&
           (meter_str_equal(row->status, METER_STR("active")) ||
            meter_str_equal(row->status, METER_STR("decommissioned")));
}

static bool
row_read(const struct json_value *object, struct checkpoint_row *row)
{
    uint32_t members;

    *row = (struct checkpoint_row){.kind = CHECKPOINT_USAGE};
    if (!get_str(object, "tenant", &row->tenant) || row->tenant.size == 0 ||
        !get_time(object, "updated_at", &row->updated_us)) {
        return false;
    }
    if (get_str(object, "counter", &row->name)) {
        row->kind = CHECKPOINT_COUNTER;
        members = COUNTER_MEMBERS;
        if (!place_read(object, row) ||
            !get_int(object, "value", JSON_STRING, &row->value)) {
            return false;
        }
    } else if (get_str(object, "owner", &row->name)) {
        row->kind = CHECKPOINT_ENTITY;
        members = ENTITY_MEMBERS;
        if (!get_str(object, "entity", &row->entity) ||
            !place_read(object, row)) {
            return false;
        }
    } else {
        members = USAGE_MEMBERS;
        if (!usage_read(object, row)) {
            return false;
        }
    }
    return object->count == members;
}

static bool
trailer_read(const struct json_value *object,
             struct checkpoint_trailer *trailer)
{
    return object->count == TRAILER_MEMBERS &&
           get_int(object, "rows", JSON_STRING, &trailer->rows) &&
           get_digest(object, "sha256", trailer->digest);
}

enum checkpoint_line
checkpoint_line_read(struct meter_str line, struct arena *arena,
                     struct checkpoint_found *out)
{
    struct json_value object;
    struct json_error error;
    size_t used;

    if (!json_read(line, &limits, arena, &object, &used, &error) ||
        used != line.size || object.kind != JSON_OBJECT) {
        return CHECKPOINT_LINE_BAD;
    }
    if (get(&object, "format", JSON_STRING) != NULL) {
        return header_read(&object, arena, out);
    }
    if (get(&object, "tenant", JSON_STRING) != NULL) {
        return row_read(&object, &out->row) ? CHECKPOINT_LINE_ROW
                                            : CHECKPOINT_LINE_BAD;
    }
    return trailer_read(&object, &out->trailer) ? CHECKPOINT_LINE_TRAILER
                                                : CHECKPOINT_LINE_BAD;
}
