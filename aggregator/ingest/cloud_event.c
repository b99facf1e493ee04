/*
 * cloud_event.c - see cloud_event.h.
 *
 *   members or headers -> found[attribute] -> what CloudEvents ask for
 *                                          -> validate_parts
 *
 * Here is only what the standard says beyond our own rules: its version,
 * what must be there, and what data may be. Everything else (texts, their
 * sizes, the time, the type) is judged as of any event, in its words.
 */

#include "ingest/cloud_event.h"

#include "base/media_type.h"
#include "base/reason.h"
#include "ingest/validate.h"

#define HEADER_PREFIX METER_STR("ce-")

enum cloud_attribute {
    CLOUD_DATA,
    CLOUD_DATA_BASE64,
    CLOUD_DATACONTENTTYPE,
    CLOUD_ID,
    CLOUD_QUANTITY,
    CLOUD_RESOURCE,
    CLOUD_SOURCE,
    CLOUD_SPECVERSION,
    CLOUD_SUBJECT,
    CLOUD_TENANT,
    CLOUD_TIME,
    CLOUD_TYPE,
    CLOUD_ATTRIBUTES
};

static const struct {
    struct meter_str name;
    bool is_header; /* ce-NAME in binary mode */
} attributes[CLOUD_ATTRIBUTES] = {
    [CLOUD_DATA] = {{"data", 4}, false},
    [CLOUD_DATA_BASE64] = {{"data_base64", 11}, false},
    [CLOUD_DATACONTENTTYPE] = {{"datacontenttype", 15}, false},
    [CLOUD_ID] = {{"id", 2}, true},
    [CLOUD_QUANTITY] = {{"quantity", 8}, true},
    [CLOUD_RESOURCE] = {{"resource", 8}, true},
    [CLOUD_SOURCE] = {{"source", 6}, true},
    [CLOUD_SPECVERSION] = {{"specversion", 11}, true},
    [CLOUD_SUBJECT] = {{"subject", 7}, true},
    [CLOUD_TENANT] = {{"tenant", 6}, true},
    [CLOUD_TIME] = {{"time", 4}, true},
    [CLOUD_TYPE] = {{"type", 4}, true},
};

/* The names that its sender knows, for reasons. */
static const struct meter_str cloud_names[EVENT_MEMBERS] = {
    [EVENT_ATTRIBUTES] = {"data", 4},   [EVENT_COUNT] = {"count", 5},
    [EVENT_CUSTOMER] = {"subject", 7},  [EVENT_ID] = {"id", 2},
    [EVENT_QUANTITY] = {"quantity", 8}, [EVENT_RESOURCE] = {"resource", 8},
    [EVENT_SOURCE] = {"source", 6},     [EVENT_TENANT] = {"tenant", 6},
    [EVENT_TS] = {"time", 4},           [EVENT_TYPE] = {"type", 4},
};

/* What was found; NULL: absent. */
struct cloud {
    const struct json_value *found[CLOUD_ATTRIBUTES];
    struct json_value texts[CLOUD_ATTRIBUTES]; /* of headers */
};


/* ---- what the standard asks for -------------------------------------- */

static const char *
check_version(const struct json_value *value)
{
    if (value == NULL) {
        return "specversion is missing";
    }
    if (value->kind != JSON_STRING ||
        !meter_str_equal(value->text, METER_STR("1.0"))) {
        return "specversion must be \"1.0\"";
    }
    return NULL;
}

/* Absent: application/json. */
static const char *
check_content_type(const struct json_value *value)
{
    struct media_type type;

    if (value == NULL) {
        return NULL;
    }
    if (value->kind != JSON_STRING) {
        return "datacontenttype must be a string";
    }
    if (!media_type_read(value->text, &type) || !media_type_is_json(&type)) {
        return "datacontenttype must be JSON, such as application/json";
    }
    return media_type_is_utf8(&type)
               ? NULL
               : "datacontenttype must have the charset utf-8, or none";
}

static const char *
check_cloud(const struct cloud *cloud)
{
    const struct json_value *const *found = cloud->found;
    const char *error = check_version(found[CLOUD_SPECVERSION]);

    if (error != NULL) {
        return error;
    }
    if (found[CLOUD_ID] == NULL) {
        return "id is missing";
    }
    if (found[CLOUD_SOURCE] == NULL) {
        return "source is missing";
    }
    if (found[CLOUD_TIME] != NULL && found[CLOUD_TIME]->kind != JSON_STRING) {
        return "time must be a string";
    }
    if (found[CLOUD_DATA_BASE64] != NULL) {
        return "data_base64 is not taken: data must be a JSON object";
    }
    return check_content_type(found[CLOUD_DATACONTENTTYPE]);
}

static bool
cloud_validate(const struct cloud *cloud, const char *error,
               const struct envelope_context *context, struct arena *arena,
               struct envelope *out)
{
    const struct json_value *const *found = cloud->found;
    struct validate_parts parts = {
        .values =
            {
                [EVENT_ATTRIBUTES] = found[CLOUD_DATA],
                [EVENT_CUSTOMER] = found[CLOUD_SUBJECT],
                [EVENT_ID] = found[CLOUD_ID],
                [EVENT_QUANTITY] = found[CLOUD_QUANTITY],
                [EVENT_RESOURCE] = found[CLOUD_RESOURCE],
                [EVENT_SOURCE] = found[CLOUD_SOURCE],
                [EVENT_TENANT] = found[CLOUD_TENANT],
                [EVENT_TS] = found[CLOUD_TIME],
                [EVENT_TYPE] = found[CLOUD_TYPE],
            },
        .names = cloud_names,
        .may_lack_time = true,
        .error = error != NULL ? error : check_cloud(cloud),
    };

    return validate_parts(&parts, context, arena, out);
}


/* ---- structured mode ------------------------------------------------- */

bool
cloud_event_read(const struct json_value *object,
                 const struct envelope_context *context, struct arena *arena,
                 struct envelope *out)
{
    struct cloud cloud = {.found = {NULL}};

    for (size_t i = 0; i < CLOUD_ATTRIBUTES; i++) {
        const struct json_value *value =
            json_member_find(object, attributes[i].name);

        if (value != NULL && value->kind != JSON_NULL) {
            cloud.found[i] = value;
        }
    }
    return cloud_validate(&cloud, NULL, context, arena, out);
}


/* ---- binary mode ----------------------------------------------------- */

/* Which attribute a header stands for; CLOUD_ATTRIBUTES: none of ours. */
static enum cloud_attribute
header_attribute(struct meter_str name)
{
    struct meter_str prefix = HEADER_PREFIX;
    enum cloud_attribute i = 0;

    if (name.size <= prefix.size ||
        memcmp(name.data, prefix.data, prefix.size) != 0) {
        return CLOUD_ATTRIBUTES;
    }
    name.data += prefix.size;
    name.size -= prefix.size;
    while (i < CLOUD_ATTRIBUTES &&
           (!attributes[i].is_header ||
            !meter_str_equal(name, attributes[i].name))) {
        i++;
    }
    return i;
}

bool
cloud_event_is_binary(const struct meter_header *headers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        switch (header_attribute(headers[i].name)) {
        case CLOUD_ID:
        case CLOUD_SOURCE:
        case CLOUD_SPECVERSION:
        case CLOUD_TYPE: return true;
        default: break;
        }
    }
    return false;
}

/* "a \"b\"" becomes a "b"; a value without quotes stays. -1: no end. */
static ptrdiff_t
unquote(struct meter_str value, char *out)
{
    size_t size = 0;

    if (value.size == 0) {
        return 0;
    }
    if (value.data[0] != '"') {
        memcpy(out, value.data, value.size);
        return (ptrdiff_t)value.size;
    }
    for (size_t at = 1; at < value.size; at++) {
        if (value.data[at] == '"') {
            return at + 1 == value.size ? (ptrdiff_t)size : -1;
        }
        if (value.data[at] == '\\' && at + 1 < value.size) {
            at++;
        }
        out[size++] = value.data[at];
    }
    return -1;
}

static int
hex_value(char letter)
{
    if (letter >= '0' && letter <= '9') {
        return letter - '0';
    }
    letter = (char)(letter | 0x20);
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* One round, in place. -1: a % without two digits. */
static ptrdiff_t
percent_decode(char *text, size_t size)
{
    size_t used = 0;

    for (size_t at = 0; at < size; at++) {
        int high, low;

        if (text[at] != '%') {
            text[used++] = text[at];
            continue;
        }
        high = at + 2 < size ? hex_value(text[at + 1]) : -1;
        low = high >= 0 ? hex_value(text[at + 2]) : -1;
        if (low < 0) {
            return -1;
        }
        text[used++] = (char)(high << 4 | low);
        at += 2;
    }
    return (ptrdiff_t)used;
}

/* What a header's value stands for; NULL, or the reason against it. */
static const char *
header_decode(const struct meter_header *header, struct arena *arena,
              struct meter_str *out, bool *no_memory)
{
    char *text = arena_alloc(arena, header->value.size + 1);
    ptrdiff_t size;

    if (text == NULL) {
        *no_memory = true;
        return "no memory";
    }
    size = unquote(header->value, text);
    if (size < 0) {
        return reason_format(arena, "the header %s has unpaired quotes",
                             reason_quote(header->name).text);
    }
    size = percent_decode(text, (size_t)size);
    if (size < 0) {
        return reason_format(arena,
                             "the header %s has a %% without two digits "
                             "behind it",
                             reason_quote(header->name).text);
    }
    *out = (struct meter_str){text, (size_t)size};
    return meter_utf8_valid(*out)
               ? NULL
               : reason_format(arena, "the header %s is not UTF-8",
                               reason_quote(header->name).text);
}

/* NULL, or why the headers make no event. */
static const char *
headers_sort(const struct meter_header *headers, size_t count,
             struct arena *arena, struct cloud *cloud, bool *no_memory)
{
    const char *first = NULL;

    for (size_t i = 0; i < count; i++) {
        enum cloud_attribute attribute = header_attribute(headers[i].name);
        struct json_value *text;
        const char *error;

        if (attribute == CLOUD_ATTRIBUTES) {
            continue;
        }
        text = &cloud->texts[attribute];
        if (cloud->found[attribute] != NULL) {
            error = reason_format(arena, "the header %s is sent twice",
                                  reason_quote(headers[i].name).text);
            cloud->found[attribute] = NULL;
        } else {
            text->kind = JSON_STRING;
            error = header_decode(&headers[i], arena, &text->text, no_memory);
            cloud->found[attribute] = error == NULL ? text : NULL;
        }
        first = first == NULL ? error : first;
    }
    return first;
}

bool
cloud_event_read_headers(const struct meter_header *headers, size_t count,
                         const struct json_value *data, const char *error,
                         const struct envelope_context *context,
                         struct arena *arena, struct envelope *out)
{
    struct cloud cloud = {.found = {NULL}};
    bool no_memory = false;
    const char *strange =
        headers_sort(headers, count, arena, &cloud, &no_memory);

    if (no_memory) {
        return false;
    }
    if (data != NULL && data->kind != JSON_NULL) {
        cloud.found[CLOUD_DATA] = data;
    }
    return cloud_validate(&cloud, strange != NULL ? strange : error, context,
                          arena, out);
}
