/*
 * media_type.c - what a Content-Type says: its name and its charset. Pure.
 *
 *   type "/" subtype *( OWS ";" OWS [ name "=" ( token / "quoted" ) ] )
 */

#include "base/media_type.h"

#include <strings.h>

struct cursor {
    const char *at;
    const char *end;
};

static bool
is_blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

static bool
is_token(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') ||
           (byte != '\0' && strchr("!#$%&'*+-.^_`|~", byte) != NULL);
}

static void
skip_blanks(struct cursor *cursor)
{
    while (cursor->at < cursor->end && is_blank(*cursor->at)) {
        cursor->at++;
    }
}

static bool
take_byte(struct cursor *cursor, char byte)
{
    if (cursor->at < cursor->end && *cursor->at == byte) {
        cursor->at++;
        return true;
    }
    return false;
}

static bool
take_token(struct cursor *cursor, struct meter_str *out)
{
    const char *start = cursor->at;

    while (cursor->at < cursor->end && is_token(*cursor->at)) {
        cursor->at++;
    }
    *out = (struct meter_str){start, (size_t)(cursor->at - start)};
    return out->size > 0;
}

/* What lies between the quotes; escapes stay as they are. */
static bool
take_quoted(struct cursor *cursor, struct meter_str *out)
{
    const char *start;

    if (!take_byte(cursor, '"')) {
        return false;
    }
    start = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != '"') {
        cursor->at +=
            *cursor->at == '\\' && cursor->at + 1 < cursor->end ? 2 : 1;
    }
    *out = (struct meter_str){start, (size_t)(cursor->at - start)};
    return take_byte(cursor, '"');
}

static bool
is_word(struct meter_str text, const char *word)
{
    return text.size == strlen(word) &&
           strncasecmp(text.data, word, text.size) == 0;
}

/* Behind a semicolon; nothing at all is allowed there. */
static bool
take_parameter(struct cursor *cursor, struct media_type *out)
{
    struct meter_str name, value;

    skip_blanks(cursor);
    if (!take_token(cursor, &name)) {
        return true;
    }
    if (!take_byte(cursor, '=') ||
        (!take_quoted(cursor, &value) && !take_token(cursor, &value))) {
        return false;
    }
    if (!is_word(name, "charset")) {
        return true;
    }
    if (out->charset.data != NULL &&
        (out->charset.size != value.size ||
         strncasecmp(out->charset.data, value.data, value.size) != 0)) {
        return false; /* which of the two? */
    }
    out->charset = value;
    return true;
}

bool
media_type_read(struct meter_str text, struct media_type *out)
{
    struct cursor cursor = {text.data, text.data + text.size};
    struct meter_str part;

    *out = (struct media_type){.charset = {NULL, 0}};
    if (text.size == 0) {
        return false;
    }
    skip_blanks(&cursor);
    out->name.data = cursor.at;
    if (!take_token(&cursor, &part) || !take_byte(&cursor, '/') ||
        !take_token(&cursor, &part)) {
        return false;
    }
    out->name.size = (size_t)(cursor.at - out->name.data);
    skip_blanks(&cursor);
    while (take_byte(&cursor, ';')) {
        if (!take_parameter(&cursor, out)) {
            return false;
        }
        skip_blanks(&cursor);
    }
    return cursor.at == cursor.end;
}

bool
media_type_is(const struct media_type *type, const char *name)
{
    return is_word(type->name, name);
}

bool
media_type_is_json(const struct media_type *type)
{
    static const char suffix[] = "+json";
    size_t size = sizeof(suffix) - 1;
    const char *end = type->name.data + type->name.size;
    const char *slash = memchr(type->name.data, '/', type->name.size);

    if (slash != NULL &&
        is_word((struct meter_str){slash + 1, (size_t)(end - slash - 1)},
                "json")) {
        return true;
    }
    return type->name.size > size &&
           is_word((struct meter_str){end - size, size}, suffix);
}

bool
media_type_is_utf8(const struct media_type *type)
{
    return type->charset.data == NULL || is_word(type->charset, "utf-8") ||
           is_word(type->charset, "utf8");
}
