/*
 * envelope.c - the body of a request to events.
 *
 *   JSON, CloudEvents -> json_split -> [element] -> validate, cloud_event
 *   NDJSON            -> line_split -> [line]    -> validate
 *   headers, data                   -> [binary]  -> cloud_event
 *
 * request.c calls envelope_read. The two splits find where elements begin
 * and end; what is inside an element is the reader's to judge. The fast way
 * reads an element once and takes the reader's word for its end. Only where
 * the reader fails is the element's end looked for by its brackets, so that
 * its neighbours do not suffer.
 */

#include "ingest/envelope.h"

#include "base/reason.h"
#include "ingest/cloud_event.h"
#include "ingest/validate.h"

#define EVENTS_KEY_SIZE_MAX 38  /* "events" with every letter as \uXXXX */
#define SIZE_GUESS          128 /* bytes of an event, for the first allocation */

static const char no_memory[] =
    "the body takes too much memory; send fewer events at a time";
static const char no_end[] = "an event has no end";


/*
 * The lines of an NDJSON body. They end in LF or CRLF, the last one also at
 * the end of the body, and borrow from it. Blank lines are passed byte by
 * byte in one walk: a body of nothing but line ends costs no more than any
 * other.
 */

struct line_split {
    struct meter_str rest;
    size_t number; /* of the line handed out last, from 1 */
};

static bool
line_is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

/* The next line that is not blank, without blanks around it. False: none. */
static bool
line_split_next(struct line_split *split, struct meter_str *line)
{
    const char *at = split->rest.data;
    const char *end, *feed;

    if (split->rest.size == 0) {
        return false;
    }
    end = at + split->rest.size;
    split->number++;
    while (at < end && (line_is_blank(*at) || *at == '\n')) {
        split->number += *at++ == '\n';
    }
    feed = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    split->rest.data = feed == NULL ? end : feed + 1;
    split->rest.size = (size_t)(end - split->rest.data);
    *line = (struct meter_str){at, (size_t)((feed == NULL ? end : feed) - at)};
    while (line->size > 0 && line_is_blank(line->data[line->size - 1])) {
        line->size--;
    }
    return line->size > 0;
}


/*
 * The outline of a JSON body: one object; an array; {"events": [...]}, an
 * object whose only member is an array named "events". CloudEvents have the
 * first two, and their Content-Type says which. Every byte that is not
 * inside an element is looked at here, so a body with surplus, missing or
 * unpaired bytes between its elements is refused as a whole: nobody could
 * say which elements it was meant to have.
 */

struct json_split {
    struct meter_str body;
    size_t at;
    bool list;         /* an array, or wrapped in "events" */
    bool wrapped;      /* {"events": [...]} */
    bool first;        /* no element was handed out yet */
    bool done;         /* nothing is left */
    const char *error; /* fixed sentence; NULL: the outline holds */
    size_t error_offset;
};

static bool
json_split_fail(struct json_split *split, size_t offset, const char *text)
{
    split->error = text;
    split->error_offset = offset;
    split->done = true;
    return false;
}

static size_t
skip_blanks(struct meter_str text, size_t at)
{
    while (at < text.size && (text.data[at] == ' ' || text.data[at] == '\n' ||
                              text.data[at] == '\r' || text.data[at] == '\t')) {
        at++;
    }
    return at;
}

static bool
has_byte(struct meter_str text, size_t at, char byte)
{
    return at < text.size && text.data[at] == byte;
}

/*
 * Walks the members of an object that may be broken inside: *at starts at
 * 1, after its brace. True: name is the raw text of a key with its quotes,
 * value starts at its value and ends where the value ends. False: no more,
 * or the walk is lost.
 */
static bool
json_split_member(struct meter_str object, size_t *at, struct meter_str *name,
                  struct meter_str *value)
{
    struct meter_str rest;
    size_t start = skip_blanks(object, *at);
    size_t size;

    if (has_byte(object, start, ',') && *at > 1) {
        start = skip_blanks(object, start + 1);
    }
    if (!has_byte(object, start, '"')) {
        return false;
    }
    rest = (struct meter_str){object.data + start, object.size - start};
    *name = (struct meter_str){rest.data, json_skip(rest)};
    if (name->size == 0) {
        return false;
    }
    start = skip_blanks(object, start + name->size);
    if (!has_byte(object, start, ':')) {
        return false;
    }
    start = skip_blanks(object, start + 1);
    rest = (struct meter_str){object.data + start, object.size - start};
    size = json_skip(rest);
    if (size == 0) {
        return false;
    }
    *value = (struct meter_str){rest.data, size};
    *at = start + size;
    return true;
}

/* The raw key, quotes included, spells "events" in one way or another. */
static bool
json_split_is_events(struct meter_str raw)
{
    static const struct json_limits limits = {0, 0, 0, 6};
    struct json_value key;
    struct json_error error;
    struct arena arena;
    size_t used;
    bool is;

    if (meter_str_equal(raw, METER_STR("\"events\""))) {
        return true;
    }
    if (raw.size > EVENTS_KEY_SIZE_MAX ||
        memchr(raw.data, '\\', raw.size) == NULL) {
        return false;
    }
    arena_init(&arena, 64, 64);
    is = json_read(raw, &limits, &arena, &key, &used, &error) &&
         meter_str_equal(key.text, METER_STR("events"));
    arena_fini(&arena);
    return is;
}

/*
 * At the opening brace: finds an "events" that is an array. It must be the
 * only member; the first is looked at without walking through its array.
 */
static bool
json_split_open_object(struct json_split *split)
{
    struct meter_str object = {split->body.data + split->at,
                               split->body.size - split->at};
    struct meter_str name, value;
    size_t at = 1;
    size_t start = skip_blanks(object, 1);

    if (has_byte(object, start, '"')) {
        struct meter_str rest = {object.data + start, object.size - start};

        name = (struct meter_str){rest.data, json_skip(rest)};
        start = skip_blanks(object, start + name.size);
        if (name.size > 0 && json_split_is_events(name) &&
            has_byte(object, start, ':')) {
            start = skip_blanks(object, start + 1);
            if (has_byte(object, start, '[')) {
                split->list = true;
                split->wrapped = true;
                split->at += start + 1;
                return true;
            }
        }
    }
    while (json_split_member(object, &at, &name, &value)) {
        if (json_split_is_events(name) && value.data[0] == '[') {
            return json_split_fail(
                split, split->at,
                "\"events\" must be the only member of the body");
        }
    }
    return true;
}

/* False: error says why the body is none of the forms. */
static bool
json_split_init(struct json_split *split, struct meter_str body)
{
    *split = (struct json_split){.body = body, .first = true};
    split->at = skip_blanks(body, 0);
    if (split->at == body.size) {
        return json_split_fail(split, split->at,
                               "an event or a list of events is expected");
    }
    switch (body.data[split->at]) {
    case '[':
        split->list = true;
        split->at++;
        return true;
    case '{': return json_split_open_object(split);
    default:
        return json_split_fail(split, split->at,
                               "the body must be a JSON object or array");
    }
}

/* The same for one form alone: an array, or one object of any members. */
static bool
json_split_init_form(struct json_split *split, struct meter_str body,
                     bool is_list)
{
    *split = (struct json_split){.body = body, .list = is_list, .first = true};
    split->at = skip_blanks(body, 0);
    if (!has_byte(body, split->at, is_list ? '[' : '{')) {
        return json_split_fail(split, split->at,
                               is_list ? "the body must be a JSON array"
                                       : "the body must be one JSON object");
    }
    split->at += is_list ? 1 : 0;
    return true;
}

/* Behind the list's bracket. */
static bool
json_split_close(struct json_split *split)
{
    size_t at = skip_blanks(split->body, split->at);

    if (split->wrapped) {
        if (has_byte(split->body, at, ',')) {
            return json_split_fail(
                split, at, "\"events\" must be the only member of the body");
        }
        if (!has_byte(split->body, at, '}')) {
            return json_split_fail(split, at, "expected } behind the events");
        }
        at = skip_blanks(split->body, at + 1);
    }
    if (at < split->body.size) {
        return json_split_fail(split, at, "surplus bytes behind the events");
    }
    split->done = true;
    return false;
}

/* Between elements: a comma, unless it is the first or the last. */
static bool
json_split_list_next(struct json_split *split)
{
    size_t at = skip_blanks(split->body, split->at);

    if (has_byte(split->body, at, ']')) {
        split->at = at + 1;
        return json_split_close(split);
    }
    if (at < split->body.size && !split->first) {
        if (!has_byte(split->body, at, ',')) {
            return json_split_fail(split, at,
                                   "expected a comma or ] behind an event");
        }
        at = skip_blanks(split->body, at + 1);
    }
    split->at = at;
    if (at == split->body.size) {
        return json_split_fail(split, at, "the list of events has no end");
    }
    if (has_byte(split->body, at, ',') || has_byte(split->body, at, ']') ||
        has_byte(split->body, at, '}')) {
        return json_split_fail(split, at, "expected an event");
    }
    return true;
}

/*
 * The next element: *rest starts at its first byte and goes to the end of
 * the body, so that one pass can find its end and its content. False: the
 * end, or error is set. After true comes json_split_take.
 */
static bool
json_split_next(struct json_split *split, struct meter_str *rest)
{
    if (split->done) {
        return false;
    }
    if (split->list) {
        if (!json_split_list_next(split)) {
            return false;
        }
    } else if (!split->first) {
        split->at = skip_blanks(split->body, split->at);
        split->done = true;
        if (split->at < split->body.size) {
            return json_split_fail(split, split->at,
                                   "surplus bytes behind the object");
        }
        return false;
    }
    split->first = false;
    *rest = (struct meter_str){split->body.data + split->at,
                               split->body.size - split->at};
    return true;
}

/* The element was this long. */
static void
json_split_take(struct json_split *split, size_t size)
{
    CHECK(size > 0 && size <= split->body.size - split->at);
    split->at += size;
}


/* Elements. */

/* How the elements of a form are read. */
struct element_kind {
    struct json_limits limits;
    struct meter_str id_key; /* raw, with its quotes */
    bool (*judge)(const struct json_value *object,
                  const struct envelope_context *context, struct arena *arena,
                  struct envelope *out);
};

#define ELEMENT_LIMITS(members)                                 \
    {                                                           \
        .depth_max = METER_JSON_DEPTH_MAX,                      \
        .key_count_max = METER_ATTRIBUTE_COUNT_MAX + (members), \
        .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,         \
        .string_size_max = METER_ATTRIBUTE_STRING_SIZE_MAX,     \
    }

static const struct element_kind event_kind = {
    .limits = ELEMENT_LIMITS(EVENT_MEMBERS),
    .id_key = {"\"event_id\"", 10},
    .judge = validate_event,
};

static const struct element_kind cloud_kind = {
    .limits = ELEMENT_LIMITS(CLOUD_EVENT_MEMBER_COUNT),
    .id_key = {"\"id\"", 4},
    .judge = cloud_event_read,
};

/* Data alone lies one level higher than inside its event. */
static const struct json_limits data_limits = {
    .depth_max = METER_JSON_DEPTH_MAX - 1,
    .key_count_max = METER_ATTRIBUTE_COUNT_MAX,
    .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,
    .string_size_max = METER_ATTRIBUTE_STRING_SIZE_MAX,
};

/* What every step of reading a body needs. */
struct reading {
    const struct envelope_context *context;
    struct arena *arena;
    const struct element_kind *kind;
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
 * The id of an element that could not be read, for the answer. Only when
 * there is one such key, and its text is one that could be an id.
 */
static struct meter_str
find_id(const struct reading *reading, struct meter_str element)
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

        if (!meter_str_equal(name, reading->kind->id_key)) {
            continue;
        }
        if (id.data != NULL || text.data[0] != '"' ||
            !json_read(text, &limits, reading->arena, &value, &used, &error) ||
            value.text.size == 0) {
            return (struct meter_str){NULL, 0};
        }
        id = value.text;
    }
    return id;
}

static const char *
large_reason(struct arena *arena)
{
    return reason_format(arena, "event is larger than %d bytes",
                         METER_EVENT_SIZE_MAX);
}

/* What is said of an element of this size that could not be read. */
static const char *
broken_reason(const struct json_error *error, size_t size, struct arena *arena)
{
    return size > METER_EVENT_SIZE_MAX ? large_reason(arena)
                                       : fault_reason(error, arena);
}

/* Its end by brackets alone; 0: there is none. */
static size_t
reject_broken(const struct reading *reading, struct meter_str rest,
              const struct json_error *error, struct envelope *out)
{
    size_t size = json_skip(rest);

    if (size == 0) {
        return 0;
    }
    out->error = broken_reason(error, size, reading->arena);
    out->id_seen = find_id(reading, (struct meter_str){rest.data, size});
    return size;
}

/* One element from the front of rest. NULL, or why the body is refused. */
static const char *
read_element(const struct reading *reading, struct meter_str rest,
             struct envelope *out, size_t *size)
{
    const struct element_kind *kind = reading->kind;
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
    if (json_read(text, &kind->limits, reading->arena, &object, size, &error)) {
        return kind->judge(&object, reading->context, reading->arena, out)
                   ? NULL
                   : no_memory;
    }
    if (error.fault == JSON_FAULT_MEMORY) {
        return no_memory;
    }
    *size = reject_broken(reading, rest, &error, out);
    return *size == 0 ? no_end : NULL;
}

/* A whole line. NULL, or why the body is refused. */
static const char *
read_line(const struct reading *reading, struct meter_str line,
          struct envelope *out)
{
    const struct element_kind *kind = reading->kind;
    struct meter_str text = line;
    struct json_error error;
    struct json_value object;
    size_t size;

    *out = (struct envelope){.error = NULL};
    if (line.data[0] != '{') {
        out->error = "an event must be a JSON object";
        return NULL;
    }
    if (text.size > METER_EVENT_SIZE_MAX) {
        text.size = METER_EVENT_SIZE_MAX;
    }
    if (!json_read(text, &kind->limits, reading->arena, &object, &size,
                   &error)) {
        if (error.fault == JSON_FAULT_MEMORY) {
            return no_memory;
        }
        out->error = broken_reason(&error, line.size, reading->arena);
        out->id_seen = find_id(reading, line);
        return NULL;
    }
    if (size < line.size) {
        out->error = reason_format(
            reading->arena, "surplus bytes behind the event at byte %zu", size);
        out->id_seen = find_id(reading, line);
        return NULL;
    }
    return kind->judge(&object, reading->context, reading->arena, out)
               ? NULL
               : no_memory;
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

/* Room for one more. NULL, or why the body is refused. */
static const char *
gathering_next(struct gathering *gathering, struct arena *arena,
               struct envelope **next)
{
    if (gathering->count == METER_BATCH_EVENTS_MAX) {
        return reason_format(arena, "the body has more than %d events",
                             METER_BATCH_EVENTS_MAX);
    }
    if (gathering->count == gathering->room &&
        !gathering_grow(gathering, gathering->room * 2, arena)) {
        return no_memory;
    }
    *next = &gathering->list[gathering->count];
    return NULL;
}

/* NULL, or why the body is refused; a broken outline is in the split. */
static const char *
read_elements(const struct reading *reading, struct json_split *split,
              struct gathering *gathering)
{
    struct meter_str rest;

    while (json_split_next(split, &rest)) {
        struct envelope *next = NULL;
        const char *refused = gathering_next(gathering, reading->arena, &next);
        size_t size;

        if (refused == NULL) {
            refused = read_element(reading, rest, next, &size);
        }
        if (refused == no_end) {
            return reason_format(reading->arena,
                                 "%s, from byte %zu of the body on", no_end,
                                 split->at);
        }
        if (refused != NULL) {
            return refused;
        }
        json_split_take(split, size);
        gathering->count++;
    }
    return NULL;
}

static const char *
read_lines(const struct reading *reading, struct meter_str body,
           struct gathering *gathering)
{
    struct line_split split = {.rest = body};
    struct meter_str line;

    while (line_split_next(&split, &line)) {
        struct envelope *next = NULL;
        const char *refused = gathering_next(gathering, reading->arena, &next);

        if (refused == NULL) {
            refused = read_line(reading, line, next);
        }
        if (refused != NULL) {
            return refused;
        }
        next->line = split.number;
        gathering->count++;
    }
    return NULL;
}

/*
 * The data of a CloudEvent in binary mode; nothing but blanks is none.
 * NULL, or the reason against the event.
 */
static const char *
read_data(const struct reading *reading, struct meter_str body,
          struct json_value *data, bool *has_data)
{
    struct line_split split = {.rest = body};
    struct json_error error;
    struct meter_str line;
    size_t used;

    *has_data = line_split_next(&split, &line);
    if (!*has_data) {
        return NULL;
    }
    if (body.size > METER_EVENT_SIZE_MAX) {
        return large_reason(reading->arena);
    }
    if (!json_read(body, &data_limits, reading->arena, data, &used, &error)) {
        return error.fault == JSON_FAULT_MEMORY
                   ? no_memory
                   : fault_reason(&error, reading->arena);
    }
    split.rest = (struct meter_str){body.data + used, body.size - used};
    return line_split_next(&split, &line) ? "surplus bytes behind the data"
                                          : NULL;
}

static const char *
read_binary(const struct reading *reading, const struct envelope_input *input,
            struct gathering *gathering)
{
    struct envelope *one = gathering->list;
    struct json_value data;
    bool has_data;
    const char *error = read_data(reading, input->body, &data, &has_data);

    *one = (struct envelope){.error = NULL};
    if (error == no_memory ||
        !cloud_event_read_headers(input->headers, input->header_count,
                                  has_data && error == NULL ? &data : NULL,
                                  error, reading->context, reading->arena,
                                  one)) {
        return no_memory;
    }
    gathering->count = 1;
    return NULL;
}

/* The outline of a form that has one. */
static bool
open_split(const struct envelope_input *input, struct json_split *split)
{
    switch (input->form) {
    case ENVELOPE_CLOUD_EVENT:
        return json_split_init_form(split, input->body, false);
    case ENVELOPE_CLOUD_BATCH:
        return json_split_init_form(split, input->body, true);
    default: return json_split_init(split, input->body);
    }
}

static const char *
read_split(const struct reading *reading, const struct envelope_input *input,
           struct gathering *gathering, bool *is_list)
{
    struct json_split split;
    const char *error = NULL;

    if (open_split(input, &split)) {
        error = read_elements(reading, &split, gathering);
    }
    *is_list = split.list;
    if (split.error != NULL) {
        error = reason_format(reading->arena, "%s, at byte %zu of the body",
                              split.error, split.error_offset);
    }
    return error;
}

enum envelope_body
envelope_read(const struct envelope_input *input,
              const struct envelope_context *context, struct arena *arena,
              struct envelope **out, size_t *count, const char **error)
{
    bool is_cloud = input->form >= ENVELOPE_CLOUD_EVENT;
    struct reading reading = {context, arena,
                              is_cloud ? &cloud_kind : &event_kind};
    struct gathering gathering = {0};
    bool is_list = true;

    *out = NULL;
    *count = 0;
    if (!gathering_grow(&gathering, input->body.size / SIZE_GUESS + 1, arena)) {
        *error = no_memory;
        return ENVELOPE_BAD;
    }
    switch (input->form) {
    case ENVELOPE_LINES:
        *error = read_lines(&reading, input->body, &gathering);
        break;
    case ENVELOPE_CLOUD_BINARY:
        *error = read_binary(&reading, input, &gathering);
        is_list = false;
        break;
    default: *error = read_split(&reading, input, &gathering, &is_list);
    }
    if (*error != NULL) {
        return ENVELOPE_BAD;
    }
    *out = gathering.list;
    *count = gathering.count;
    return is_list ? ENVELOPE_LIST : ENVELOPE_SINGLE;
}
