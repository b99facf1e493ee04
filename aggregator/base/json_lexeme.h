/*
 * json_lexeme.h - strings and numbers of JSON: where they end, what they
 * stand for. Pure; used by json_reader, and where text may be a number.
 *
 * RFC 8259, and stricter: well-formed UTF-8, no NUL in any spelling, no
 * lone surrogates, numbers within METER_NUMBER_*.
 */

#ifndef BASE_JSON_LEXEME_H
#define BASE_JSON_LEXEME_H

#include "base/check.h"

struct json_lexeme_error {
    const char *text; /* fixed sentence */
    const char *at;   /* the byte it is about */
};

/*
 * From the opening quote to behind the closing one; NULL: *error. *raw is
 * what lies between, valid UTF-8; with *escaped it needs unescaping.
 */
MUST_CHECK const char *
json_lexeme_string(const char *quote, const char *end, struct meter_str *raw,
                   bool *escaped, struct json_lexeme_error *error);

/*
 * out has raw.size bytes: no escape is shorter than what it stands for.
 * raw is of json_lexeme_string, so every backslash has a byte behind it.
 */
MUST_CHECK bool
json_lexeme_unescape(struct meter_str raw, char *out, size_t *size,
                     struct json_lexeme_error *error);

/* From '-' or a digit to behind the last digit; NULL: *error. */
MUST_CHECK const char *json_lexeme_number(const char *at, const char *end,
                                          struct json_lexeme_error *error);
/* Within the limits of meter_number_canonical. */
bool json_lexeme_number_fits(struct meter_str lexeme);

#endif
