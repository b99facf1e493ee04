/*
 * json_outline.c - json_skip: where an element ends, whatever is inside.
 *
 *   broken element -> [json_skip] -> the next element
 *
 * Follows quotes, escapes and brackets only, in one pass without memory,
 * so neither depth nor content of a broken element can harm the next one.
 */

#include "base/json_reader.h"

static bool
is_blank(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

/* Behind the closing quote, NULL when there is none. */
static const char *
skip_string(const char *at, const char *end)
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
skip_nested(const char *at, const char *end)
{
    size_t depth = 0;
    size_t braces = 0; /* opened less closed; wraps, and comes back */

    while (at != NULL && at < end) {
        switch (*at) {
        case '"': at = skip_string(at, end); continue;
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
ends_scalar(char byte)
{
    return is_blank(byte) || byte == ',' || byte == '"' || byte == '[' ||
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
    while (at < end && is_blank(*at)) {
        at++;
    }
    start = at;
    if (at < end && *at == '"') {
        at = skip_string(at, end);
    } else if (at < end && (*at == '{' || *at == '[')) {
        at = skip_nested(at, end);
    } else {
        while (at < end && !ends_scalar(*at)) {
            at++;
        }
    }
    if (at == NULL || at == start) {
        return 0;
    }
    return (size_t)(at - text.data);
}
