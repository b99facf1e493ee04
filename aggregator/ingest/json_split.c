/*
 * json_split.c - the outline of a request body, see json_split.h.
 *
 * Every byte that is not inside an element is looked at here, so a body
 * with surplus, missing or unpaired bytes between its elements is refused
 * as a whole: nobody could say which elements it was meant to have.
 */

#include "ingest/json_split.h"

#include "base/arena.h"
#include "base/json_reader.h"

#define EVENTS_KEY_SIZE_MAX 38 /* "events" with every letter as \uXXXX */

static bool
fail(struct json_split *split, size_t offset, const char *text)
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

bool
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
is_events_key(struct meter_str raw)
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
open_object(struct json_split *split)
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
        if (name.size > 0 && is_events_key(name) &&
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
        if (is_events_key(name) && value.data[0] == '[') {
            return fail(split, split->at,
                        "\"events\" must be the only member of the body");
        }
    }
    return true;
}

bool
json_split_init(struct json_split *split, struct meter_str body)
{
    *split = (struct json_split){.body = body, .first = true};
    split->at = skip_blanks(body, 0);
    if (split->at == body.size) {
        return fail(split, split->at,
                    "an event or a list of events is expected");
    }
    switch (body.data[split->at]) {
    case '[':
        split->list = true;
        split->at++;
        return true;
    case '{': return open_object(split);
    default:
        return fail(split, split->at,
                    "the body must be a JSON object or array");
    }
}

bool
json_split_init_form(struct json_split *split, struct meter_str body,
                     bool is_list)
{
    *split = (struct json_split){.body = body, .list = is_list, .first = true};
    split->at = skip_blanks(body, 0);
    if (!has_byte(body, split->at, is_list ? '[' : '{')) {
        return fail(split, split->at,
                    is_list ? "the body must be a JSON array"
                            : "the body must be one JSON object");
    }
    split->at += is_list ? 1 : 0;
    return true;
}

/* Behind the list's bracket. */
static bool
close_list(struct json_split *split)
{
    size_t at = skip_blanks(split->body, split->at);

    if (split->wrapped) {
        if (has_byte(split->body, at, ',')) {
            return fail(split, at,
                        "\"events\" must be the only member of the body");
        }
        if (!has_byte(split->body, at, '}')) {
            return fail(split, at, "expected } behind the events");
        }
        at = skip_blanks(split->body, at + 1);
    }
    if (at < split->body.size) {
        return fail(split, at, "surplus bytes behind the events");
    }
    split->done = true;
    return false;
}

/* Between elements: a comma, unless it is the first or the last. */
static bool
list_next(struct json_split *split)
{
    size_t at = skip_blanks(split->body, split->at);

    if (has_byte(split->body, at, ']')) {
        split->at = at + 1;
        return close_list(split);
    }
    if (at < split->body.size && !split->first) {
        if (!has_byte(split->body, at, ',')) {
            return fail(split, at, "expected a comma or ] behind an event");
        }
        at = skip_blanks(split->body, at + 1);
    }
    split->at = at;
    if (at == split->body.size) {
        return fail(split, at, "the list of events has no end");
    }
    if (has_byte(split->body, at, ',') || has_byte(split->body, at, ']') ||
        has_byte(split->body, at, '}')) {
        return fail(split, at, "expected an event");
    }
    return true;
}

bool
json_split_next(struct json_split *split, struct meter_str *rest)
{
    if (split->done) {
        return false;
    }
    if (split->list) {
        if (!list_next(split)) {
            return false;
        }
    } else if (!split->first) {
        split->at = skip_blanks(split->body, split->at);
        split->done = true;
        if (split->at < split->body.size) {
            return fail(split, split->at, "surplus bytes behind the object");
        }
        return false;
    }
    split->first = false;
    *rest = (struct meter_str){split->body.data + split->at,
                               split->body.size - split->at};
    return true;
}

void
json_split_take(struct json_split *split, size_t size)
{
    CHECK(size > 0 && size <= split->body.size - split->at);
    split->at += size;
}
