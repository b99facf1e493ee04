/*
 * token_cache.h - what the database said of a token, for a short time.
 *
 * Known and unknown ids are kept apart, so that a flood of invented ids
 * cannot push out the tokens in use. A part that is full is emptied. An
 * entry lives until the look-up that made it is older than the TTL, which
 * is therefore the longest delay of a revocation.
 */

#ifndef API_TOKEN_CACHE_H
#define API_TOKEN_CACHE_H

#include "api/token.h"
#include "base/map.h"
#include "meter_limits.h"

#define TOKEN_CACHE_KNOWN_MAX   4096
#define TOKEN_CACHE_UNKNOWN_MAX 4096

/* What is known of an id; revoked and absent ones are not known. */
struct token_record {
    bool known;
    unsigned scopes;
    uint8_t digest[METER_DIGEST_SIZE];
    struct meter_str tenant; /* at most METER_TENANT_SIZE_MAX bytes */
};

struct token_cache {
    struct map known;
    struct map unknown;
};

void token_cache_init(struct token_cache *cache);
void token_cache_fini(struct token_cache *cache);

/* Borrowed until the next put. NULL: absent or expired. */
const struct token_record *
token_cache_find(struct token_cache *cache, struct meter_str id,
                 uint64_t now_us);
/* Copies id and record. Without memory nothing is kept. */
void token_cache_put(struct token_cache *cache, struct meter_str id,
                     const struct token_record *record, uint64_t expires_us);

/*
 * True when the record is known and the secret's digest is its digest. The
 * same work is done for a record that is not known.
 */
bool token_record_matches(const struct token_record *record,
                          const uint8_t digest[METER_DIGEST_SIZE]);

#endif
