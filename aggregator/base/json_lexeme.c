/*
 * json_lexeme.c - strings and numbers of JSON, see json_lexeme.h.
 *
 * Plain text is searched eight bytes at a time, which is where a reader of
 * events spends most of its bytes.
 */

#include "base/json_lexeme.h"

#include <endian.h>

#include "meter_decimal.h"
#include "meter_event.h"
#include "meter_limits.h"

static const char *
fail(struct json_lexeme_error *error, const char *text, const char *at)
{
    *error = (struct json_lexeme_error){text, at};
    return NULL;
}

static bool
is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* The next quote, backslash, control or non-ASCII byte; or the end. */
static const char *
skip_plain(const char *at, const char *end)
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
take_hex(const char *at, const char *end)
{
    int32_t value = 0;

    if (end - at < 4) {
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        char lower = (char)(at[i] | 0x20);

        if (is_digit(at[i])) {
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
put_utf8(char *out, int32_t point)
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
take_unicode(const char **at, const char *end, int32_t *point)
{
    int32_t high = take_hex(*at, end);
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
    low = take_hex(*at + 2, end);
    if (low < 0xdc00 || low > 0xdfff) {
        return "lone surrogate in a string";
    }
    *at += 6;
    *point = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return NULL;
}

/* One escape; *at is behind the backslash. NULL, or what is wrong. */
static const char *
take_escape(const char **at, const char *end, char **out)
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
    case 'u': wrong = take_unicode(at, end, &point); break;
    default: return "unknown escape in a string";
    }
    if (wrong == NULL) {
        *out = put_utf8(*out, point);
    }
    return wrong;
}

bool
json_lexeme_unescape(struct meter_str raw, char *out, size_t *size,
                     struct json_lexeme_error *error)
{
    const char *at = raw.data;
    const char *end = raw.data + raw.size;
    char *to = out;

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
        wrong = take_escape(&at, end, &to);
        if (wrong != NULL) {
            *error = (struct json_lexeme_error){wrong, stop};
            return false;
        }
    }
    *size = (size_t)(to - out);
    return true;
}

const char *
json_lexeme_string(const char *quote, const char *end, struct meter_str *raw,
                   bool *escaped, struct json_lexeme_error *error)
{
    const char *start = quote + 1;
    const char *at = start;
    bool wide = false;

    *escaped = false;
    for (;;) {
        at = skip_plain(at, end);
        if (at == end || (*at == '\\' && end - at < 2)) {
            return fail(error, "string without an end", quote);
        }
        if (*at == '"') {
            break;
        }
        if (*at == '\\') {
            *escaped = true;
            at += 2;
        } else if ((unsigned char)*at >= 0x80) {
            wide = true;
            at++;
        } else if (*at == '\0') {
            return fail(error, "NUL byte in a string", at);
        } else {
            return fail(error, "control character in a string", at);
        }
    }
    *raw = (struct meter_str){start, (size_t)(at - start)};
    if (wide && !meter_utf8_valid(*raw)) {
        return fail(error, "string is not valid UTF-8", quote);
    }
    return at + 1;
}

/* At least one digit; NULL when there is none. */
static const char *
skip_digits(const char *at, const char *end, struct json_lexeme_error *error)
{
    const char *start = at;

    while (at < end && is_digit(*at)) {
        at++;
    }
    return at > start ? at : fail(error, "expected a digit", at);
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
        at = skip_digits(at, end, error);
    }
    if (at != NULL && at < end && *at == '.') {
        at = skip_digits(at + 1, end, error);
    }
    if (at != NULL && at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-')) {
            at++;
        }
        at = skip_digits(at, end, error);
    }
    return at;
}

bool
json_lexeme_number_fits(struct meter_str lexeme)
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
