/*
 * json_reader.h - strict JSON into a tree in an arena. Pure.
 *
 * RFC 8259 and nothing else: well-formed UTF-8, no NUL (also not as
 * \u0000), no lone surrogates, no duplicate keys, bounded depth, key count
 * and sizes. Numbers stay lexemes: nothing passes through a double.
 * Members are sorted by name, bytewise. Strings without escapes borrow
 * from the input, which must outlive the tree.
 */

#ifndef BASE_JSON_READER_H
#define BASE_JSON_READER_H

#include "base/arena.h"

enum json_kind {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER, /* text is the lexeme */
    JSON_STRING, /* text is unescaped UTF-8 */
    JSON_ARRAY,
    JSON_OBJECT
};

struct json_value {
    enum json_kind kind;
    uint32_t count; /* of items or members */
    union {
        struct meter_str text;
        struct json_value *items;
        struct json_member *members; /* sorted by name */
    };
};

struct json_member {
    struct meter_str name;
    struct json_value value;
};

#define JSON_DEPTH_LIMIT 128 /* no limits->depth_max is above: recursion */

struct json_limits {
    size_t depth_max;     /* 1: a scalar inside one array or object */
    size_t key_count_max; /* all levels together */
    size_t name_size_max;
    size_t string_size_max;
};

/* What kind of fault it was, for callers who name their own limits. */
enum json_fault {
    JSON_FAULT_SYNTAX,
    JSON_FAULT_DEPTH,
    JSON_FAULT_KEYS,
    JSON_FAULT_NAME,   /* longer than name_size_max */
    JSON_FAULT_STRING, /* longer than string_size_max */
    JSON_FAULT_NUMBER, /* METER_NUMBER_DIGITS_MAX, _EXPONENT_MAX */
    JSON_FAULT_MEMORY  /* not the text's fault: the arena is full */
};

struct json_error {
    enum json_fault fault;
    const char *text; /* fixed sentence, says "at byte" nowhere */
    size_t offset;
};

/*
 * One value from the front of text, leading blanks skipped. *used is how
 * far it went; a number or a word must end at a blank, a comma, a closing
 * bracket or the end. False: *error says what and where; the arena may
 * hold remains, a small multiple of what was read.
 */
MUST_CHECK bool
json_read(struct meter_str text, const struct json_limits *limits,
          struct arena *arena, struct json_value *out, size_t *used,
          struct json_error *error);

/* The member's value, NULL when absent; value must be an object. */
const struct json_value *
json_member_find(const struct json_value *object, struct meter_str name);

/*
 * End of the element at text's front without judging its content: only
 * quotes, escapes and brackets are followed, to any depth. 0: there is none
 * or it never ends, or its last bracket is of the other kind. Where
 * json_read succeeds it says the same as *used.
 */
size_t json_skip(struct meter_str text);

/*
 * Canonical text: sorted members, canonical numbers, minimal escapes, no
 * blanks. Equal values give equal bytes. False: no memory; a tree that
 * json_read made holds no number past the limits.
 */
MUST_CHECK bool json_canonical(const struct json_value *value,
                               struct arena *arena, struct meter_str *out);

/* ---- for those who have no JSON around the number ---------------------- */

struct json_lexeme_error {
    const char *text; /* fixed sentence */
    const char *at;   /* the byte it is about */
};

/* From '-' or a digit to after the last digit; NULL: *error. */
MUST_CHECK const char *json_lexeme_number(const char *at, const char *end,
                                          struct json_lexeme_error *error);

#endif
