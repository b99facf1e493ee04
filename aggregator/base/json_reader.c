/*
 * json_reader.c - strict JSON: a tree, the end of an element, canonical text.
 *
 *   text -> [json_read] -> tree -> [json_canonical] -> ledger, fingerprint
 *   broken element -> [json_skip] -> the next element
 *
 * Reading is one pass. Plain text is searched eight bytes at a time, which is
 * where a reader of events spends most of its bytes. Members and items gather
 * on the stack and reach the arena with their exact number, so an event of a
 * few keys costs two allocations. Recursion is bounded by limits->depth_max.
 */

#include "base/json_reader.h"

#include "meter_bytes.h"
#include "meter_decimal.h"
#include "meter_event.h"
#include "meter_limits.h"

#include <endian.h>
#include <stdlib.h>

#define LOCAL_COUNT    16   /* members or items that gather on the stack */
#define INSERTION_MAX  24   /* members; more are sorted by qsort */
#define MEMBERS_WALKED 8    /* up to here sizes tell names apart faster */
#define STACK_ROOM     1024 /* for the canonical text of most trees */
#define PLAIN_DIGITS   40   /* an integer up to here is canonical as it is */

struct json_reader {
    const char *start;
    const char *at;
    const char *end;
    const struct json_limits *limits;
    struct arena *arena;
    struct json_error *error;
    size_t depth;
    size_t key_count;
};

static bool json_read_value(struct json_reader *reader, struct json_value *out);

static bool
json_fail(struct json_reader *reader, enum json_fault fault, const char *at,
          const char *text)
{
    *reader->error = (struct json_error){
        .fault = fault, .text = text, .offset = (size_t)(at - reader->start)};
    return false;
}

static bool
json_fail_syntax(struct json_reader *reader, const char *text)
{
    return json_fail(reader, JSON_FAULT_SYNTAX, reader->at,
                     reader->at == reader->end ? "unexpected end" : text);
}

static bool
json_fail_memory(struct json_reader *reader)
{
    return json_fail(reader, JSON_FAULT_MEMORY, reader->at, "out of memory");
}

static bool
json_is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static bool
json_is_blank(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static const char *
json_skip_blanks(const char *at, const char *end)
{
    while (at < end && json_is_blank(*at)) {
        at++;
    }
    return at;
}

/* ---- strings --------------------------------------------------------- */

/* The next quote, backslash, control or non-ASCII byte; or the end. */
static const char *
json_skip_plain(const char *at, const char *end)
{
    const uint64_t ones = 0x0101010101010101u;
    const uint64_t highs = 0x8080808080808080u;

    while (end - at >= 8) {
        uint64_t word, found;

        memcpy(&word, at, 8);
        word = le64toh(word);
        /* Borrows only run upwards: the lowest mark is always a true one. */
        found = (word | (word - 0x20 * ones) | ((word ^ '"' * ones) - ones) |
                 ((word ^ '\\' * ones) - ones)) &
                highs;
        if (found != 0) {
            return at + __builtin_ctzll(found) / 8;
        }
        at += 8;
    }
    while (at < end && (unsigned char)*at >= 0x20 &&
           (unsigned char)*at < 0x80 && *at != '"' && *at != '\\') {
        at++;
    }
    return at;
}

/* Four hexadecimal digits, or -1. */
static int32_t
json_take_hex(const char *at, const char *end)
{
    int32_t value = 0;

    if (end - at < 4) {
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        char lower = (char)(at[i] | 0x20);

        if (json_is_digit(at[i])) {
            value = value * 16 + (at[i] - '0');
        } else if (lower >= 'a' && lower <= 'f') {
            value = value * 16 + (lower - 'a' + 10);
        } else {
            return -1;
        }
    }
    return value;
}

static char *
json_put_utf8(char *out, int32_t point)
{
    if (point < 0x80) {
        *out++ = (char)point;
    } else if (point < 0x800) {
        *out++ = (char)(0xc0 | point >> 6);
        *out++ = (char)(0x80 | (point & 0x3f));
    } else if (point < 0x10000) {
        *out++ = (char)(0xe0 | point >> 12);
        *out++ = (char)(0x80 | (point >> 6 & 0x3f));
        *out++ = (char)(0x80 | (point & 0x3f));
    } else {
        *out++ = (char)(0xf0 | point >> 18);
        *out++ = (char)(0x80 | (point >> 12 & 0x3f));
        *out++ = (char)(0x80 | (point >> 6 & 0x3f));
        *out++ = (char)(0x80 | (point & 0x3f));
    }
    return out;
}

/* What stands behind \u; *at is at the first digit and moves on. */
static const char *
json_take_unicode(const char **at, const char *end, int32_t *point)
{
    int32_t high = json_take_hex(*at, end);
    int32_t low;

    if (high < 0) {
        return "\\u without four hexadecimal digits";
    }
    *at += 4;
    *point = high;
    if (high == 0) {
        return "\\u0000 in a string";
    }
    if (high < 0xd800 || high > 0xdfff) {
        return NULL;
    }
    if (high > 0xdbff || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u') {
        return "lone surrogate in a string";
    }
    low = json_take_hex(*at + 2, end);
    if (low < 0xdc00 || low > 0xdfff) {
        return "lone surrogate in a string";
    }
    *at += 6;
    *point = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return NULL;
}

/* One escape; *at is behind the backslash. NULL, or what is wrong. */
static const char *
json_take_escape(const char **at, const char *end, char **out)
{
    const char *wrong = NULL;
    int32_t point = 0;

    switch (*(*at)++) {
    case '"': point = '"'; break;
    case '\\': point = '\\'; break;
    case '/': point = '/'; break;
    case 'b': point = '\b'; break;
    case 'f': point = '\f'; break;
    case 'n': point = '\n'; break;
    case 'r': point = '\r'; break;
    case 't': point = '\t'; break;
    case 'u': wrong = json_take_unicode(at, end, &point); break;
    default: return "unknown escape in a string";
    }
    if (wrong == NULL) {
        *out = json_put_utf8(*out, point);
    }
    return wrong;
}

/* Into the arena: no escape is shorter than what it stands for. */
static bool
json_read_escaped(struct json_reader *reader, struct meter_str raw,
                  struct meter_str *out)
{
    char *text = arena_alloc(reader->arena, raw.size);
    const char *at = raw.data;
    const char *end = raw.data + raw.size;
    char *to = text;

    if (text == NULL) {
        return json_fail_memory(reader);
    }
    while (at < end) {
        const char *stop = memchr(at, '\\', (size_t)(end - at));
        const char *wrong;

        stop = stop == NULL ? end : stop;
        memcpy(to, at, (size_t)(stop - at));
        to += stop - at;
        at = stop;
        if (at == end) {
            break;
        }
        at++;
        wrong = json_take_escape(&at, end, &to);
        if (wrong != NULL) {
            return json_fail(reader, JSON_FAULT_SYNTAX, stop, wrong);
        }
    }
    *out = (struct meter_str){text, (size_t)(to - text)};
    return true;
}

/* The reader stands on the opening quote. */
static bool
json_read_string(struct json_reader *reader, struct meter_str *out)
{
    const char *quote = reader->at;
    const char *end = reader->end;
    const char *at = quote + 1;
    bool is_escaped = false;
    bool is_wide = false;

    for (;;) {
        at = json_skip_plain(at, end);
        if (at == end || (*at == '\\' && end - at < 2)) {
            return json_fail(reader, JSON_FAULT_SYNTAX, quote,
                             "string without an end");
        }
        if (*at == '"') {
            break;
        }
        if (*at == '\\') {
            is_escaped = true;
            at += 2;
        } else if ((unsigned char)*at >= 0x80) {
            is_wide = true;
            at++;
        } else if (*at == '\0') {
            return json_fail(reader, JSON_FAULT_SYNTAX, at,
                             "NUL byte in a string");
        } else {
            return json_fail(reader, JSON_FAULT_SYNTAX, at,
                             "control character in a string");
        }
    }
    *out = (struct meter_str){quote + 1, (size_t)(at - quote - 1)};
    if (is_wide && !meter_utf8_valid(*out)) {
        return json_fail(reader, JSON_FAULT_SYNTAX, quote,
                         "string is not valid UTF-8");
    }
    if (is_escaped && !json_read_escaped(reader, *out, out)) {
        return false;
    }
    reader->at = at + 1;
    return true;
}


/* ---- numbers and words ----------------------------------------------- */

/* At least one digit; NULL when there is none. */
static const char *
json_skip_digits(const char *at, const char *end,
                 struct json_lexeme_error *error)
{
    const char *start = at;

    while (at < end && json_is_digit(*at)) {
        at++;
    }
    if (at == start) {
        *error = (struct json_lexeme_error){"expected a digit", at};
        return NULL;
    }
    return at;
}

const char *
json_lexeme_number(const char *at, const char *end,
                   struct json_lexeme_error *error)
{
    if (*at == '-') {
        at++;
    }
    if (at < end && *at == '0') {
        at++;
    } else {
        at = json_skip_digits(at, end, error);
    }
    if (at != NULL && at < end && *at == '.') {
        at = json_skip_digits(at + 1, end, error);
    }
    if (at != NULL && at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-')) {
            at++;
        }
        at = json_skip_digits(at, end, error);
    }
    return at;
}

/* Within the limits of meter_number_canonical. */
static bool
json_number_fits(struct meter_str lexeme)
{
    char text[METER_NUMBER_TEXT_SIZE + 1];
    size_t size;

    /* Only long ones and those with an exponent can be past the limits. */
    if (lexeme.size <= METER_NUMBER_DIGITS_MAX &&
        memchr(lexeme.data, 'e', lexeme.size) == NULL &&
        memchr(lexeme.data, 'E', lexeme.size) == NULL) {
        return true;
    }
    return meter_number_canonical(lexeme, text, &size);
}

/* 12x and truefalse are no values. */
static bool
json_scalar_ends(struct json_reader *reader)
{
    const char *at = reader->at;

    if (at == reader->end || json_is_blank(*at) || *at == ',' || *at == ']' ||
        *at == '}') {
        return true;
    }
    return json_fail_syntax(reader, "unexpected byte behind a value");
}

static bool
json_read_number(struct json_reader *reader, struct json_value *out)
{
    const char *start = reader->at;
    struct json_lexeme_error wrong;
    const char *behind;

    behind = json_lexeme_number(start, reader->end, &wrong);
    if (behind == NULL) {
        return json_fail(reader, JSON_FAULT_SYNTAX, wrong.at, wrong.text);
    }
    out->kind = JSON_NUMBER;
    out->count = 0;
    out->text = (struct meter_str){start, (size_t)(behind - start)};
    reader->at = behind;
    if (!json_scalar_ends(reader)) {
        return false;
    }
    if (!json_number_fits(out->text)) {
        return json_fail(
            reader, JSON_FAULT_NUMBER, start,
            "number with too many digits or too large an exponent");
    }
    return true;
}

static bool
json_read_word(struct json_reader *reader, struct meter_str word,
               enum json_kind kind, struct json_value *out)
{
    if ((size_t)(reader->end - reader->at) < word.size ||
        memcmp(reader->at, word.data, word.size) != 0) {
        return json_fail_syntax(reader, "expected a value");
    }
    reader->at += word.size;
    out->kind = kind;
    out->count = 0;
    out->text = word;
    return json_scalar_ends(reader);
}

/* ---- arrays and objects ---------------------------------------------- */

/*
 * How many elements the open array or object still has from here: one more
 * than its commas. Exact as long as the text is valid, so one allocation
 * serves whatever is too large for the stack.
 */
static size_t
json_count_rest(const struct json_reader *reader)
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
json_grow(struct json_reader *reader, void **elements, size_t count,
          size_t *room, size_t size)
{
    size_t more = json_count_rest(reader);
    void *larger = arena_alloc(reader->arena, (count + more) * size);

    if (larger == NULL) {
        return json_fail_memory(reader);
    }
    memcpy(larger, *elements, count * size);
    *elements = larger;
    *room = count + more;
    return true;
}

/* Elements on the stack move to the arena; others are there already. */
static bool
json_settle(struct json_reader *reader, const void *local, void **elements,
            size_t count, size_t size)
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
        return json_fail_memory(reader);
    }
    memcpy(copy, local, count * size);
    *elements = copy;
    return true;
}

/* Into an array or object; *more is false where it is empty. */
static bool
json_enter(struct json_reader *reader, char close, bool *more)
{
    if (reader->depth == reader->limits->depth_max) {
        return json_fail(reader, JSON_FAULT_DEPTH, reader->at,
                         "nested too deeply");
    }
    reader->at = json_skip_blanks(reader->at + 1, reader->end);
    *more = reader->at == reader->end || *reader->at != close;
    reader->depth += *more;
    reader->at += !*more;
    return true;
}

/* Behind an element: true with *more set, or an error. */
static bool
json_read_separator(struct json_reader *reader, char close, bool *more)
{
    reader->at = json_skip_blanks(reader->at, reader->end);
    if (reader->at < reader->end && *reader->at == ',') {
        *more = true;
        reader->at = json_skip_blanks(reader->at + 1, reader->end);
        return true;
    }
    if (reader->at < reader->end && *reader->at == close) {
        *more = false;
        reader->at++;
        reader->depth--;
        return true;
    }
    return json_fail_syntax(reader, close == '}' ? "expected a comma or }"
                                                 : "expected a comma or ]");
}

static bool
json_read_array(struct json_reader *reader, struct json_value *out)
{
    struct json_value local[LOCAL_COUNT];
    void *items = local;
    size_t room = LOCAL_COUNT;
    size_t count = 0;
    bool more;

    if (!json_enter(reader, ']', &more)) {
        return false;
    }
    while (more) {
        if (count == room &&
            !json_grow(reader, &items, count, &room, sizeof(local[0]))) {
            return false;
        }
        if (!json_read_value(reader, &((struct json_value *)items)[count]) ||
            !json_read_separator(reader, ']', &more)) {
            return false;
        }
        count++;
    }
    if (count > UINT32_MAX) {
        return json_fail_memory(reader);
    }
    if (!json_settle(reader, local, &items, count, sizeof(local[0]))) {
        return false;
    }
    out->kind = JSON_ARRAY;
    out->count = (uint32_t)count;
    out->items = items;
    return true;
}

static bool
json_read_member(struct json_reader *reader, struct json_member *member)
{
    const char *start = reader->at;

    if (reader->at == reader->end || *reader->at != '"') {
        return json_fail_syntax(reader, "expected a key in quotes");
    }
    if (reader->key_count == reader->limits->key_count_max) {
        return json_fail(reader, JSON_FAULT_KEYS, start, "too many keys");
    }
    reader->key_count++;
    if (!json_read_string(reader, &member->name)) {
        return false;
    }
    if (member->name.size > reader->limits->name_size_max) {
        return json_fail(reader, JSON_FAULT_NAME, start, "key is too long");
    }
    reader->at = json_skip_blanks(reader->at, reader->end);
    if (reader->at == reader->end || *reader->at != ':') {
        return json_fail_syntax(reader, "expected a colon");
    }
    reader->at++;
    return json_read_value(reader, &member->value);
}

static int
json_compare_members(const void *a, const void *b)
{
    return meter_str_compare(((const struct json_member *)a)->name,
                             ((const struct json_member *)b)->name);
}

/* False: two have the same name. */
static bool
json_sort_members(struct json_member *members, size_t count)
{
    if (count > INSERTION_MAX) {
        qsort(members, count, sizeof(members[0]), json_compare_members);
        for (size_t i = 1; i < count; i++) {
            if (json_compare_members(&members[i - 1], &members[i]) == 0) {
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
json_read_object(struct json_reader *reader, struct json_value *out)
{
    const char *start = reader->at;
    struct json_member local[LOCAL_COUNT];
    void *members = local;
    size_t room = LOCAL_COUNT;
    size_t count = 0;
    bool more;

    if (!json_enter(reader, '}', &more)) {
        return false;
    }
    while (more) {
        if (count == room &&
            !json_grow(reader, &members, count, &room, sizeof(local[0]))) {
            return false;
        }
        if (!json_read_member(reader,
                              &((struct json_member *)members)[count]) ||
            !json_read_separator(reader, '}', &more)) {
            return false;
        }
        count++;
    }
    if (!json_sort_members(members, count)) {
        return json_fail(reader, JSON_FAULT_SYNTAX, start,
                         "object with the same key twice");
    }
    if (count > UINT32_MAX) {
        return json_fail_memory(reader);
    }
    if (!json_settle(reader, local, &members, count, sizeof(local[0]))) {
        return false;
    }
    out->kind = JSON_OBJECT;
    out->count = (uint32_t)count;
    out->members = members;
    return true;
}

static bool
json_read_string_value(struct json_reader *reader, struct json_value *out)
{
    const char *start = reader->at;

    out->kind = JSON_STRING;
    out->count = 0;
    if (!json_read_string(reader, &out->text)) {
        return false;
    }
    if (out->text.size > reader->limits->string_size_max) {
        return json_fail(reader, JSON_FAULT_STRING, start,
                         "string is too long");
    }
    return true;
}

static bool
json_read_value(struct json_reader *reader, struct json_value *out)
{
    reader->at = json_skip_blanks(reader->at, reader->end);
    if (reader->at == reader->end) {
        return json_fail_syntax(reader, "expected a value");
    }
    switch (*reader->at) {
    case '"': return json_read_string_value(reader, out);
    case '{': return json_read_object(reader, out);
    case '[': return json_read_array(reader, out);
    case 't': return json_read_word(reader, METER_STR("true"), JSON_TRUE, out);
    case 'f':
        return json_read_word(reader, METER_STR("false"), JSON_FALSE, out);
    case 'n': return json_read_word(reader, METER_STR("null"), JSON_NULL, out);
    case '-':
    case '0' ... '9': return json_read_number(reader, out);
    default: return json_fail_syntax(reader, "expected a value");
    }
}

bool
json_read(struct meter_str text, const struct json_limits *limits,
          struct arena *arena, struct json_value *out, size_t *used,
          struct json_error *error)
{
    struct json_reader reader = {
        .start = text.data,
        .at = text.data,
        .end = text.size == 0 ? text.data : text.data + text.size,
        .limits = limits,
        .arena = arena,
        .error = error,
    };

    CHECK(limits->depth_max <= JSON_DEPTH_LIMIT);
    if (!json_read_value(&reader, out)) {
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


/* ---- where an element ends ------------------------------------------- */

/*
 * Follows quotes, escapes and brackets only, in one pass without memory, so
 * neither depth nor content of a broken element can harm the next one.
 */
static const char *
json_skip_string(const char *at, const char *end)
{
    for (at++; at < end; at++) {
        if (*at == '"') {
            return at + 1;
        }
        if (*at == '\\' && at + 1 < end) {
            at++;
        }
    }
    return NULL;
}

/* From an opening bracket to behind the one that closes it, or NULL. */
static const char *
json_skip_nested(const char *at, const char *end)
{
    size_t depth = 0;
    size_t braces = 0; /* opened less closed; wraps, and comes back */

    while (at != NULL && at < end) {
        switch (*at) {
        case '"': at = json_skip_string(at, end); continue;
        case '{':
            braces++;
            depth++;
            break;
        case '[': depth++; break;
        case '}':
            braces--;
            depth--;
            break;
        case ']': depth--; break;
        default: at++; continue;
        }
        at++;
        if (depth == 0) {
            return braces == 0 ? at : NULL;
        }
    }
    return NULL;
}

static bool
json_ends_bare(char byte)
{
    return json_is_blank(byte) || byte == ',' || byte == '"' || byte == '[' ||
           byte == ']' || byte == '{' || byte == '}';
}

size_t
json_skip(struct meter_str text)
{
    const char *at = text.data;
    const char *start, *end;

    if (text.size == 0) {
        return 0;
    }
    end = text.data + text.size;
    at = json_skip_blanks(at, end);
    start = at;
    if (at < end && *at == '"') {
        at = json_skip_string(at, end);
    } else if (at < end && (*at == '{' || *at == '[')) {
        at = json_skip_nested(at, end);
    } else {
        while (at < end && !json_ends_bare(*at)) {
            at++;
        }
    }
    if (at == NULL || at == start) {
        return 0;
    }
    return (size_t)(at - text.data);
}


/* ---- canonical text -------------------------------------------------- */

/* Digits alone: nothing to cut, no point, no exponent. */
static bool
json_is_plain_integer(struct meter_str lexeme)
{
    if (lexeme.size > PLAIN_DIGITS) {
        return false;
    }
    for (size_t i = 0; i < lexeme.size; i++) {
        if (!json_is_digit(lexeme.data[i])) {
            return false;
        }
    }
    return true;
}

static void
canonical_number(struct meter_str lexeme, struct meter_writer *out)
{
    char text[METER_NUMBER_TEXT_SIZE + 1];
    size_t size;

    if (json_is_plain_integer(lexeme)) {
        meter_put_bytes(out, lexeme.data, lexeme.size);
    } else if (meter_number_canonical(lexeme, text, &size)) {
        meter_put_bytes(out, text, size);
    } else {
        out->failed = true;
    }
}

static void
canonical_string(struct meter_str text, struct meter_writer *out)
{
    meter_put_u8(out, '"');
    meter_put_json_escaped(out, text);
    meter_put_u8(out, '"');
}

static void
canonical_value(const struct json_value *value, struct meter_writer *out)
{
    switch (value->kind) {
    case JSON_NULL: meter_put_bytes(out, "null", 4); break;
    case JSON_FALSE: meter_put_bytes(out, "false", 5); break;
    case JSON_TRUE: meter_put_bytes(out, "true", 4); break;
    case JSON_NUMBER: canonical_number(value->text, out); break;
    case JSON_STRING: canonical_string(value->text, out); break;
    case JSON_ARRAY:
        meter_put_u8(out, '[');
        for (uint32_t i = 0; i < value->count && !out->failed; i++) {
            if (i > 0) {
                meter_put_u8(out, ',');
            }
            canonical_value(&value->items[i], out);
        }
        meter_put_u8(out, ']');
        break;
    case JSON_OBJECT:
        meter_put_u8(out, '{');
        for (uint32_t i = 0; i < value->count && !out->failed; i++) {
            if (i > 0) {
                meter_put_u8(out, ',');
            }
            canonical_string(value->members[i].name, out);
            meter_put_u8(out, ':');
            canonical_value(&value->members[i].value, out);
        }
        meter_put_u8(out, '}');
        break;
    }
}

static size_t
json_string_room(struct meter_str text)
{
    size_t room = text.size + 2;

    for (size_t i = 0; i < text.size; i++) {
        unsigned char byte = (unsigned char)text.data[i];

        room += byte < 0x20 ? 5 : byte == '"' || byte == '\\';
    }
    return room;
}

/* At least what canonical_value writes. */
static size_t
json_value_room(const struct json_value *value)
{
    size_t room = 2;

    switch (value->kind) {
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE: return 5;
    case JSON_NUMBER:
        return json_is_plain_integer(value->text) ? value->text.size
                                                  : METER_NUMBER_TEXT_SIZE;
    case JSON_STRING: return json_string_room(value->text);
    case JSON_ARRAY:
        for (uint32_t i = 0; i < value->count; i++) {
            room += 1 + json_value_room(&value->items[i]);
        }
        break;
    case JSON_OBJECT:
        for (uint32_t i = 0; i < value->count; i++) {
            room += 2 + json_string_room(value->members[i].name) +
                    json_value_room(&value->members[i].value);
        }
        break;
    }
    return room;
}

bool
json_canonical(const struct json_value *value, struct arena *arena,
               struct meter_str *out)
{
    uint8_t stack[STACK_ROOM];
    struct meter_writer writer;
    size_t room;
    char *text;

    meter_writer_init(&writer, stack, sizeof(stack));
    canonical_value(value, &writer);
    if (!writer.failed) {
        return arena_copy(
            arena, (struct meter_str){(const char *)stack, writer.at}, out);
    }
    room = json_value_room(value);
    text = arena_alloc(arena, room);
    if (text == NULL) {
        return false;
    }
    meter_writer_init(&writer, text, room);
    canonical_value(value, &writer);
    *out = (struct meter_str){text, writer.at};
    return !writer.failed;
}
