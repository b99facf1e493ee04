/*
 * json_reader.c - strict JSON into a tree, see json_reader.h.
 *
 *   text -> [json_read] -> tree -> json_canonical -> ledger, fingerprint
 *
 * One pass. Members and items gather on the stack and reach the arena with
 * their exact number, so an event of a few keys costs two allocations.
 * Recursion is bounded by limits->depth_max.
 */

#include "base/json_reader.h"

#include <stdlib.h>

#include "base/json_lexeme.h"

#define LOCAL_COUNT    16 /* members or items that gather on the stack */
#define INSERTION_MAX  24 /* members; more are sorted by qsort */
#define MEMBERS_WALKED 8  /* up to here sizes tell names apart faster */

struct reader {
    const char *start;
    const char *at;
    const char *end;
    const struct json_limits *limits;
    struct arena *arena;
    struct json_error *error;
    size_t depth;
    size_t key_count;
};

static bool read_value(struct reader *reader, struct json_value *out);

static bool
fail(struct reader *reader, enum json_fault fault, const char *at,
     const char *text)
{
    *reader->error = (struct json_error){
        .fault = fault, .text = text, .offset = (size_t)(at - reader->start)};
    return false;
}

static bool
fail_syntax(struct reader *reader, const char *text)
{
    return fail(reader, JSON_FAULT_SYNTAX, reader->at,
                reader->at == reader->end ? "unexpected end" : text);
}

static bool
fail_memory(struct reader *reader)
{
    return fail(reader, JSON_FAULT_MEMORY, reader->at, "out of memory");
}

static bool
is_blank(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static const char *
skip_blanks(const char *at, const char *end)
{
    while (at < end && is_blank(*at)) {
        at++;
    }
    return at;
}

/* The reader stands on the opening quote. */
static bool
read_string(struct reader *reader, struct meter_str *out)
{
    struct json_lexeme_error wrong;
    const char *behind;
    bool escaped;

    behind = json_lexeme_string(reader->at, reader->end, out, &escaped, &wrong);
    if (behind == NULL) {
        return fail(reader, JSON_FAULT_SYNTAX, wrong.at, wrong.text);
    }
    if (escaped) {
        char *text = arena_alloc(reader->arena, out->size);

        if (text == NULL) {
            return fail_memory(reader);
        }
        if (!json_lexeme_unescape(*out, text, &out->size, &wrong)) {
            return fail(reader, JSON_FAULT_SYNTAX, wrong.at, wrong.text);
        }
        out->data = text;
    }
    reader->at = behind;
    return true;
}

/* ---- numbers and words ----------------------------------------------- */

/* 12x and truefalse are no values. */
static bool
scalar_ends(struct reader *reader)
{
    const char *at = reader->at;

    if (at == reader->end || is_blank(*at) || *at == ',' || *at == ']' ||
        *at == '}') {
        return true;
    }
    return fail_syntax(reader, "unexpected byte behind a value");
}

static bool
read_number(struct reader *reader, struct json_value *out)
{
    const char *start = reader->at;
    struct json_lexeme_error wrong;
    const char *behind;

    behind = json_lexeme_number(start, reader->end, &wrong);
    if (behind == NULL) {
        return fail(reader, JSON_FAULT_SYNTAX, wrong.at, wrong.text);
    }
    out->kind = JSON_NUMBER;
    out->count = 0;
    out->text = (struct meter_str){start, (size_t)(behind - start)};
    reader->at = behind;
    if (!scalar_ends(reader)) {
        return false;
    }
    if (!json_lexeme_number_fits(out->text)) {
        return fail(reader, JSON_FAULT_NUMBER, start,
                    "number with too many digits or too large an exponent");
    }
    return true;
}

static bool
read_word(struct reader *reader, struct meter_str word, enum json_kind kind,
          struct json_value *out)
{
    if ((size_t)(reader->end - reader->at) < word.size ||
        memcmp(reader->at, word.data, word.size) != 0) {
        return fail_syntax(reader, "expected a value");
    }
    reader->at += word.size;
    out->kind = kind;
    out->count = 0;
    out->text = word;
    return scalar_ends(reader);
}

/* ---- arrays and objects ---------------------------------------------- */

/*
 * How many elements the open array or object still has from here: one more
 * than its commas. Exact as long as the text is valid, so one allocation
 * serves whatever is too large for the stack.
 */
static size_t
count_rest(const struct reader *reader)
{
    const char *at = reader->at;
    size_t count = 1;
    size_t depth = 0;

    for (; at < reader->end; at++) {
        switch (*at) {
        case '"':
            at++;
            while (at < reader->end && *at != '"') {
                at += *at == '\\' && at + 1 < reader->end ? 2 : 1;
            }
            break;
        case ',': count += depth == 0; break;
        case '[':
        case '{': depth++; break;
        case ']':
        case '}':
            if (depth-- == 0) {
                return count;
            }
            break;
        default: break;
        }
    }
    return count;
}

/* Elements gathered so far move to a larger place. */
static bool
grow(struct reader *reader, void **elements, size_t count, size_t *room,
     size_t size)
{
    size_t more = count_rest(reader);
    void *larger = arena_alloc(reader->arena, (count + more) * size);

    if (larger == NULL) {
        return fail_memory(reader);
    }
    memcpy(larger, *elements, count * size);
    *elements = larger;
    *room = count + more;
    return true;
}

/* Elements on the stack move to the arena; others are there already. */
static bool
settle(struct reader *reader, const void *local, void **elements, size_t count,
       size_t size)
{
    void *copy;

    if (*elements != local) {
        return true;
    }
    if (count == 0) {
        *elements = NULL;
        return true;
    }
    copy = arena_alloc(reader->arena, count * size);
    if (copy == NULL) {
        return fail_memory(reader);
    }
    memcpy(copy, local, count * size);
    *elements = copy;
    return true;
}

static bool
enter(struct reader *reader)
{
    if (reader->depth == reader->limits->depth_max) {
        return fail(reader, JSON_FAULT_DEPTH, reader->at, "nested too deeply");
    }
    reader->depth++;
    reader->at = skip_blanks(reader->at + 1, reader->end);
    return true;
}

/* Behind an element: true with *more set, or an error. */
static bool
read_separator(struct reader *reader, char close, bool *more)
{
    reader->at = skip_blanks(reader->at, reader->end);
    if (reader->at < reader->end && *reader->at == ',') {
        *more = true;
        reader->at = skip_blanks(reader->at + 1, reader->end);
        return true;
    }
    if (reader->at < reader->end && *reader->at == close) {
        *more = false;
        reader->at++;
        reader->depth--;
        return true;
    }
    return fail_syntax(reader, close == '}' ? "expected a comma or }"
                                            : "expected a comma or ]");
}

static bool
read_array(struct reader *reader, struct json_value *out)
{
    struct json_value local[LOCAL_COUNT];
    void *items = local;
    size_t room = LOCAL_COUNT;
    size_t count = 0;
    bool more = true;

    if (!enter(reader)) {
        return false;
    }
    if (reader->at < reader->end && *reader->at == ']') {
        reader->at++;
        reader->depth--;
        more = false;
    }
    while (more) {
        if (count == room &&
            !grow(reader, &items, count, &room, sizeof(local[0]))) {
            return false;
        }
        if (!read_value(reader, &((struct json_value *)items)[count]) ||
            !read_separator(reader, ']', &more)) {
            return false;
        }
        count++;
    }
    if (count > UINT32_MAX) {
        return fail_memory(reader);
    }
    if (!settle(reader, local, &items, count, sizeof(local[0]))) {
        return false;
    }
    out->kind = JSON_ARRAY;
    out->count = (uint32_t)count;
    out->items = items;
    return true;
}

static bool
read_member(struct reader *reader, struct json_member *member)
{
    const char *start = reader->at;

    if (reader->at == reader->end || *reader->at != '"') {
        return fail_syntax(reader, "expected a key in quotes");
    }
    if (reader->key_count == reader->limits->key_count_max) {
        return fail(reader, JSON_FAULT_KEYS, start, "too many keys");
    }
    reader->key_count++;
    if (!read_string(reader, &member->name)) {
        return false;
    }
    if (member->name.size > reader->limits->name_size_max) {
        return fail(reader, JSON_FAULT_NAME, start, "key is too long");
    }
    reader->at = skip_blanks(reader->at, reader->end);
    if (reader->at == reader->end || *reader->at != ':') {
        return fail_syntax(reader, "expected a colon");
    }
    reader->at++;
    return read_value(reader, &member->value);
}

static int
compare_members(const void *a, const void *b)
{
    return meter_str_compare(((const struct json_member *)a)->name,
                             ((const struct json_member *)b)->name);
}

/* False: two have the same name. */
static bool
sort_members(struct json_member *members, size_t count)
{
    if (count > INSERTION_MAX) {
        qsort(members, count, sizeof(members[0]), compare_members);
        for (size_t i = 1; i < count; i++) {
            if (compare_members(&members[i - 1], &members[i]) == 0) {
                return false;
            }
        }
        return true;
    }
    for (size_t i = 1; i < count; i++) {
        struct json_member moved = members[i];
        size_t at = i;
        int order = -1;

        while (at > 0) {
            order = meter_str_compare(members[at - 1].name, moved.name);
            if (order <= 0) {
                break;
            }
            members[at] = members[at - 1];
            at--;
        }
        if (at > 0 && order == 0) {
            return false;
        }
        members[at] = moved;
    }
    return true;
}

static bool
read_object(struct reader *reader, struct json_value *out)
{
    const char *start = reader->at;
    struct json_member local[LOCAL_COUNT];
    void *members = local;
    size_t room = LOCAL_COUNT;
    size_t count = 0;
    bool more = true;

    if (!enter(reader)) {
        return false;
    }
    if (reader->at < reader->end && *reader->at == '}') {
        reader->at++;
        reader->depth--;
        more = false;
    }
    while (more) {
        if (count == room &&
            !grow(reader, &members, count, &room, sizeof(local[0]))) {
            return false;
        }
        if (!read_member(reader, &((struct json_member *)members)[count]) ||
            !read_separator(reader, '}', &more)) {
            return false;
        }
        count++;
    }
    if (!sort_members(members, count)) {
        return fail(reader, JSON_FAULT_SYNTAX, start,
                    "object with the same key twice");
    }
    if (count > UINT32_MAX) {
        return fail_memory(reader);
    }
    if (!settle(reader, local, &members, count, sizeof(local[0]))) {
        return false;
    }
    out->kind = JSON_OBJECT;
    out->count = (uint32_t)count;
    out->members = members;
    return true;
}

static bool
read_string_value(struct reader *reader, struct json_value *out)
{
    const char *start = reader->at;

    out->kind = JSON_STRING;
    out->count = 0;
    if (!read_string(reader, &out->text)) {
        return false;
    }
    if (out->text.size > reader->limits->string_size_max) {
        return fail(reader, JSON_FAULT_STRING, start, "string is too long");
    }
    return true;
}

static bool
read_value(struct reader *reader, struct json_value *out)
{
    reader->at = skip_blanks(reader->at, reader->end);
    if (reader->at == reader->end) {
        return fail_syntax(reader, "expected a value");
    }
    switch (*reader->at) {
    case '"': return read_string_value(reader, out);
    case '{': return read_object(reader, out);
    case '[': return read_array(reader, out);
    case 't': return read_word(reader, METER_STR("true"), JSON_TRUE, out);
    case 'f': return read_word(reader, METER_STR("false"), JSON_FALSE, out);
    case 'n': return read_word(reader, METER_STR("null"), JSON_NULL, out);
    case '-':
    case '0' ... '9': return read_number(reader, out);
    default: return fail_syntax(reader, "expected a value");
    }
}

bool
json_read(struct meter_str text, const struct json_limits *limits,
          struct arena *arena, struct json_value *out, size_t *used,
          struct json_error *error)
{
    struct reader reader = {
        .start = text.data,
        .at = text.data,
        .end = text.size == 0 ? text.data : text.data + text.size,
        .limits = limits,
        .arena = arena,
        .error = error,
    };

    CHECK(limits->depth_max <= JSON_DEPTH_LIMIT);
    if (!read_value(&reader, out)) {
        return false;
    }
    *used = (size_t)(reader.at - reader.start);
    return true;
}

const struct json_value *
json_member_find(const struct json_value *object, struct meter_str name)
{
    size_t low = 0;
    size_t high;

    CHECK(object->kind == JSON_OBJECT);
    high = object->count;
    if (high <= MEMBERS_WALKED) {
        for (size_t i = 0; i < high; i++) {
            if (meter_str_equal(object->members[i].name, name)) {
                return &object->members[i].value;
            }
        }
        return NULL;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = meter_str_compare(object->members[middle].name, name);

        if (order == 0) {
            return &object->members[middle].value;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}
