/*
 * token.h - bearer tokens em_<id>_<secret>: their text and scopes. Pure.
 *
 * The id is public: letters and digits, 12 to 32 of them. The secret is 32
 * random bytes as base64url, which may itself hold '_'; so a token is cut
 * at its first two '_' only. The database keeps SHA-256 of the secret's
 * text and nothing else of it.
 */

#ifndef API_TOKEN_H
#define API_TOKEN_H

#include "base/buf.h"
#include "meter_digest.h"

#define TOKEN_ID_SIZE         16 /* of ids made here */
#define TOKEN_ID_SIZE_MIN     12
#define TOKEN_ID_SIZE_MAX     32
#define TOKEN_SECRET_SIZE     METER_BASE64URL_SIZE(32)
#define TOKEN_SECRET_SIZE_MAX 128
#define TOKEN_TEXT_SIZE       (3 + TOKEN_ID_SIZE + 1 + TOKEN_SECRET_SIZE)

enum token_scope {
    TOKEN_SCOPE_NONE = 0,
    TOKEN_SCOPE_INGEST = 1 << 0,
    TOKEN_SCOPE_READ = 1 << 1,
    TOKEN_SCOPE_WRITE = 1 << 2,
    TOKEN_SCOPE_ADMIN = 1 << 3
};

/* What a client presented: borrowed from its header. */
struct token {
    struct meter_str id;
    struct meter_str secret;
};

/* False: not the text of a token. */
MUST_CHECK bool token_parse(struct meter_str text, struct token *out);

/* A token from 16 + 32 random bytes. */
struct token_random {
    uint8_t id[TOKEN_ID_SIZE];
    uint8_t secret[32];
};
void
token_format(const struct token_random *random, char out[TOKEN_TEXT_SIZE + 1]);

/*
 * Scope names between separators, "ingest read" or "ingest,read"; blanks
 * around a name are skipped. False: an unknown name, which *unknown is, or
 * none at all, then *unknown is empty.
 */
MUST_CHECK bool token_scopes_parse(struct meter_str text, char separator,
                                   unsigned *scopes, struct meter_str *unknown);
/* Names in a fixed order with a separator between them. */
void token_scopes_format(unsigned scopes, char separator, struct buf *out);

#endif
