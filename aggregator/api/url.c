/*
 * url.c - the pieces of a raw request target: path segments, arguments.
 *
 * api.c cuts the path of every request and the arguments of those that take
 * some. Bytes come as the client sent them; what leaves is decoded once, is
 * well-formed UTF-8 and lives in the arena.
 */

#include "api/url.h"

#include "meter_event.h"

#define ERROR_ESCAPE "the request target has a bad percent escape"
#define ERROR_UTF8   "the request target is not valid UTF-8"
#define ERROR_MEMORY "the request target is too long"

static int
hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes into *out, in the arena; NULL, or what is wrong. */
static const char *
url_decode(struct meter_str raw, bool plus, struct arena *arena,
           struct meter_str *out)
{
    char *to = arena_alloc(arena, raw.size + 1);
    size_t size = 0;

    if (to == NULL) {
        return ERROR_MEMORY;
    }
    for (size_t i = 0; i < raw.size; i++) {
        char c = raw.data[i];

        if (c == '%') {
            int high = raw.size - i > 2 ? hex_digit(raw.data[i + 1]) : -1;
            int low = high >= 0 ? hex_digit(raw.data[i + 2]) : -1;

            if (low < 0) {
                return ERROR_ESCAPE;
            }
            c = (char)(high * 16 + low);
            i += 2;
        } else if (plus && c == '+') {
            c = ' ';
        }
        to[size++] = c;
    }
    to[size] = '\0';
    *out = (struct meter_str){to, size};
    return meter_utf8_valid(*out) ? NULL : ERROR_UTF8;
}

/* Cuts raw at the first separator; *rest has data NULL after the last. */
static struct meter_str
url_cut(struct meter_str raw, char separator, struct meter_str *rest)
{
    const char *at =
        raw.size == 0 ? NULL : memchr(raw.data, separator, raw.size);
    size_t size;

    if (at == NULL) {
        *rest = (struct meter_str){NULL, 0};
        return raw;
    }
    size = (size_t)(at - raw.data);
    *rest = (struct meter_str){at + 1, raw.size - size - 1};
    return (struct meter_str){raw.data, size};
}

bool
url_path_read(struct meter_str raw, struct arena *arena, struct url_path *out,
              const char **error)
{
    struct meter_str rest;

    out->count = 0;
    out->too_deep = false;
    if (raw.size == 0 || raw.data[0] != '/') {
        *error = "the path must start with '/'";
        return false;
    }
    rest = (struct meter_str){raw.data + 1, raw.size - 1};
    do {
        struct meter_str segment = url_cut(rest, '/', &rest);
        struct meter_str decoded;

        *error = url_decode(segment, false, arena, &decoded);
        if (*error != NULL) {
            return false;
        }
        if (out->count == URL_SEGMENTS_MAX) {
            out->too_deep = true;
            continue;
        }
        out->segments[out->count++] = decoded;
    } while (rest.data != NULL);
    return true;
}

static const char *
url_argument_read(struct meter_str pair, struct arena *arena,
                  struct url_arguments *out)
{
    struct url_argument *argument;
    struct meter_str value;
    struct meter_str name = url_cut(pair, '=', &value);
    const char *error;

    if (out->count == URL_ARGUMENTS_MAX) {
        return "there are more than 64 query arguments";
    }
    argument = &out->items[out->count];
    error = url_decode(name, true, arena, &argument->name);
    if (error == NULL) {
        error = url_decode(value, true, arena, &argument->value);
    }
    if (error != NULL) {
        return error;
    }
    for (size_t i = 0; i < out->count; i++) {
        if (meter_str_equal(out->items[i].name, argument->name)) {
            return "a query argument is given twice";
        }
    }
    out->count++;
    return NULL;
}

bool
url_arguments_read(struct meter_str raw, struct arena *arena,
                   struct url_arguments *out, const char **error)
{
    struct meter_str rest = raw;

    out->count = 0;
    *error = NULL;
    while (rest.data != NULL && *error == NULL) {
        struct meter_str pair = url_cut(rest, '&', &rest);

        if (pair.size > 0) {
            *error = url_argument_read(pair, arena, out);
        }
    }
    return *error == NULL;
}

const struct url_argument *
url_argument_find(const struct url_arguments *arguments, const char *name)
{
    struct meter_str wanted = {name, strlen(name)};

    for (size_t i = 0; i < arguments->count; i++) {
        if (meter_str_equal(arguments->items[i].name, wanted)) {
            return &arguments->items[i];
        }
    }
    return NULL;
}
