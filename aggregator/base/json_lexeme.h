/*
 * json_lexeme.h - whether text is a number as JSON writes them. Pure; part of
 * json_reader.c, for those who have no JSON around the number.
 */

#ifndef BASE_JSON_LEXEME_H
#define BASE_JSON_LEXEME_H

#include "base/check.h"

struct json_lexeme_error {
    const char *text; /* fixed sentence */
    const char *at;   /* the byte it is about */
};

/* From '-' or a digit to after the last digit; NULL: *error. */
MUST_CHECK const char *json_lexeme_number(const char *at, const char *end,
                                          struct json_lexeme_error *error);

#endif
