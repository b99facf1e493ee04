/*
 * token.c - the text of a token and the names of its scopes.
 *
 * auth.c reads what a client presents; `meterd token` makes new ones. All of
 * it is pure: random bytes come from the caller.
 */

#include "api/token.h"

#define PREFIX METER_STR("em_")

static const struct {
    enum token_scope scope;
    const char *name;
} scope_names[] = {
    {TOKEN_SCOPE_INGEST, "ingest"},
    {TOKEN_SCOPE_READ, "read"},
    {TOKEN_SCOPE_WRITE, "write"},
    {TOKEN_SCOPE_ADMIN, "admin"},
};

#define SCOPE_COUNT (sizeof(scope_names) / sizeof(scope_names[0]))

static bool
is_alphanumeric(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
}

bool
token_parse(struct meter_str text, struct token *out)
{
    size_t at = PREFIX.size;
    size_t start = at;

    if (text.size < at || memcmp(text.data, PREFIX.data, at) != 0) {
        return false;
    }
    while (at < text.size && is_alphanumeric(text.data[at])) {
        at++;
    }
    out->id = (struct meter_str){text.data + start, at - start};
    if (out->id.size < TOKEN_ID_SIZE_MIN || out->id.size > TOKEN_ID_SIZE_MAX ||
        at == text.size || text.data[at] != '_') {
        return false;
    }
    start = ++at;
    while (at < text.size && (is_alphanumeric(text.data[at]) ||
                              text.data[at] == '-' || text.data[at] == '_')) {
        at++;
    }
    out->secret = (struct meter_str){text.data + start, at - start};
    return at == text.size && out->secret.size > 0 &&
           out->secret.size <= TOKEN_SECRET_SIZE_MAX;
}

void
token_format(const struct token_random *random, char out[TOKEN_TEXT_SIZE + 1])
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
    char *at = out;

    memcpy(at, PREFIX.data, PREFIX.size);
    at += PREFIX.size;
    for (size_t i = 0; i < TOKEN_ID_SIZE; i++) {
        *at++ = alphabet[random->id[i] & 31]; /* 80 bits, without bias */
    }
    *at++ = '_';
    meter_base64url(random->secret, sizeof(random->secret), at);
}

static bool
scope_find(struct meter_str name, unsigned *scopes)
{
    for (size_t i = 0; i < SCOPE_COUNT; i++) {
        const char *known = scope_names[i].name;

        if (meter_str_equal(name, (struct meter_str){known, strlen(known)})) {
            *scopes |= scope_names[i].scope;
            return true;
        }
    }
    return false;
}

bool
token_scopes_parse(struct meter_str text, char separator, unsigned *scopes,
                   struct meter_str *unknown)
{
    size_t at = 0;

    *scopes = 0;
    *unknown = (struct meter_str){NULL, 0};
    while (at < text.size) {
        size_t start = at;
        struct meter_str name;

        while (at < text.size && text.data[at] != separator) {
            at++;
        }
        name = (struct meter_str){text.data + start, at - start};
        at++;
        while (name.size > 0 && name.data[0] == ' ') {
            name.data++;
            name.size--;
        }
        while (name.size > 0 && name.data[name.size - 1] == ' ') {
            name.size--;
        }
        if (!scope_find(name, scopes)) {
            *unknown = name;
            return false;
        }
    }
    return *scopes != 0;
}

void
token_scopes_format(unsigned scopes, char separator, struct buf *out)
{
    bool first = true;

    for (size_t i = 0; i < SCOPE_COUNT; i++) {
        if ((scopes & scope_names[i].scope) == 0) {
            continue;
        }
        if (!first) {
            buf_put_byte(out, (uint8_t)separator);
        }
        buf_put_text(out, scope_names[i].name);
        first = false;
    }
}
