/*
 * envelope.c - JSON text to events, see envelope.h.
 *
 *   body -> split -> [element] -> validate -> envelope
 *
 * The fast way reads an element once and takes the reader's word for its
 * end. Only where the reader fails is the element's end looked for by its
 * brackets, so that its neighbours do not suffer.
 */

#include "ingest/envelope.h"

#include "base/reason.h"
#include "ingest/json_split.h"
#include "ingest/validate.h"

#define SIZE_GUESS 128 /* bytes of an event, for the first allocation */

static const char no_memory[] =
    "the body takes too much memory; send fewer events at a time";
static const char no_end[] = "an event has no end";

static const struct json_limits event_limits = {
    .depth_max = METER_JSON_DEPTH_MAX,
    .key_count_max = METER_ATTRIBUTE_COUNT_MAX + VALIDATE_MEMBER_COUNT,
    .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,
    .string_size_max = METER_ATTRIBUTE_STRING_SIZE_MAX,
};

/* What a fault of the reader means for an event. */
static const char *
fault_reason(const struct json_error *error, struct arena *arena)
{
    switch (error->fault) {
    case JSON_FAULT_DEPTH:
        return reason_format(arena, "nested deeper than %d levels at byte %zu",
                             METER_JSON_DEPTH_MAX, error->offset);
    case JSON_FAULT_KEYS:
        return reason_format(arena, "attributes have more than %d keys",
                             METER_ATTRIBUTE_COUNT_MAX);
    case JSON_FAULT_NAME:
        return reason_format(arena, "key longer than %d bytes at byte %zu",
                             METER_ATTRIBUTE_NAME_SIZE_MAX, error->offset);
    case JSON_FAULT_STRING:
        return reason_format(arena, "string longer than %d bytes at byte %zu",
                             METER_ATTRIBUTE_STRING_SIZE_MAX, error->offset);
    case JSON_FAULT_NUMBER:
        return reason_format(arena,
                             "number with more than %d digits or an exponent "
                             "past %d at byte %zu",
                             METER_NUMBER_DIGITS_MAX, METER_NUMBER_EXPONENT_MAX,
                             error->offset);
    case JSON_FAULT_SYNTAX:
    case JSON_FAULT_MEMORY: break;
    }
    return reason_format(arena, "invalid JSON: %s at byte %zu", error->text,
                         error->offset);
}

/*
 * The event_id of an element that could not be read, for the answer. Only
 * when there is one such key, and its text is one that could be an id.
 */
static struct meter_str
find_id(struct meter_str element, struct arena *arena)
{
    static const struct json_limits limits = {.string_size_max =
                                                  METER_EVENT_ID_SIZE_MAX};
    struct meter_str id = {NULL, 0};
    struct meter_str name, text;
    size_t at = 1;

    while (json_split_member(element, &at, &name, &text)) {
        struct json_error error;
        struct json_value value;
        size_t used;

        if (!meter_str_equal(name, METER_STR("\"event_id\""))) {
            continue;
        }
        if (id.data != NULL || text.data[0] != '"' ||
            !json_read(text, &limits, arena, &value, &used, &error) ||
            value.text.size == 0) {
            return (struct meter_str){NULL, 0};
        }
        id = value.text;
    }
    return id;
}

/* Its end by brackets alone; 0: there is none. */
static size_t
reject_broken(struct meter_str rest, const struct json_error *error,
              struct arena *arena, struct envelope *out)
{
    size_t size = json_skip(rest);

    if (size == 0) {
        return 0;
    }
    if (size > METER_EVENT_SIZE_MAX) {
        out->error = reason_format(arena, "event is larger than %d bytes",
                                   METER_EVENT_SIZE_MAX);
    } else {
        out->error = fault_reason(error, arena);
    }
    out->id_seen = find_id((struct meter_str){rest.data, size}, arena);
    return size;
}

/* One element from the front of rest. NULL, or why the body is refused. */
static const char *
read_element(struct meter_str rest, const struct envelope_context *context,
             struct arena *arena, struct envelope *out, size_t *size)
{
    struct meter_str text = rest;
    struct json_error error;
    struct json_value object;

    *out = (struct envelope){.error = NULL};
    if (rest.data[0] != '{') {
        out->error = "an event must be a JSON object";
        *size = json_skip(rest);
        return *size == 0 ? no_end : NULL;
    }
    if (text.size > METER_EVENT_SIZE_MAX) {
        text.size = METER_EVENT_SIZE_MAX; /* a longer event finds no end */
    }
    if (json_read(text, &event_limits, arena, &object, size, &error)) {
        return validate_event(&object, context, arena, out) ? NULL : no_memory;
    }
    if (error.fault == JSON_FAULT_MEMORY) {
        return no_memory;
    }
    *size = reject_broken(rest, &error, arena, out);
    return *size == 0 ? no_end : NULL;
}

/* The envelopes of a body, as they gather. */
struct gathering {
    struct envelope *list;
    size_t count;
    size_t room;
};

static bool
gathering_grow(struct gathering *gathering, size_t room, struct arena *arena)
{
    struct envelope *list;

    if (room > METER_BATCH_EVENTS_MAX) {
        room = METER_BATCH_EVENTS_MAX;
    }
    list = arena_alloc(arena, room * sizeof(*list));
    if (list == NULL) {
        return false;
    }
    if (gathering->count > 0) {
        memcpy(list, gathering->list, gathering->count * sizeof(*list));
    }
    gathering->list = list;
    gathering->room = room;
    return true;
}

/* NULL, or why the body is refused; a broken outline is in the split. */
static const char *
read_elements(struct json_split *split, const struct envelope_context *context,
              struct arena *arena, struct gathering *gathering)
{
    struct meter_str rest;

    if (!gathering_grow(gathering, split->body.size / SIZE_GUESS + 1, arena)) {
        return no_memory;
    }
    while (json_split_next(split, &rest)) {
        const char *refused;
        size_t size;

        if (gathering->count == METER_BATCH_EVENTS_MAX) {
            return reason_format(arena, "the body has more than %d events",
                                 METER_BATCH_EVENTS_MAX);
        }
        if (gathering->count == gathering->room &&
            !gathering_grow(gathering, gathering->room * 2, arena)) {
            return no_memory;
        }
        refused = read_element(rest, context, arena,
                               &gathering->list[gathering->count], &size);
        if (refused == no_end) {
            return reason_format(arena, "%s, from byte %zu of the body on",
                                 no_end, split->at);
        }
        if (refused != NULL) {
            return refused;
        }
        json_split_take(split, size);
        gathering->count++;
    }
    return NULL;
}

enum envelope_body
envelope_read(struct meter_str body, const struct envelope_context *context,
              struct arena *arena, struct envelope **out, size_t *count,
              const char **error)
{
    struct gathering gathering = {0};
    struct json_split split;

    *out = NULL;
    *count = 0;
    *error = NULL;
    if (json_split_init(&split, body)) {
        *error = read_elements(&split, context, arena, &gathering);
    }
    if (split.error != NULL) {
        *error = reason_format(arena, "%s, at byte %zu of the body",
                               split.error, split.error_offset);
    }
    if (*error != NULL) {
        return ENVELOPE_BAD;
    }
    *out = gathering.list;
    *count = gathering.count;
    return split.list ? ENVELOPE_LIST : ENVELOPE_SINGLE;
}
