/*
 * meter_digest.h - cryptographic digests: identity, fingerprints, tokens.
 *
 * SHA-256 and HMAC-SHA-256 by libcrypto. A keyed digest is prepared once
 * (struct meter_digest_key) and then costs no key schedule per event.
 */

#ifndef METER_DIGEST_H
#define METER_DIGEST_H

#include "meter_types.h"

#define METER_DIGEST_SIZE 32
#define METER_KEY_SIZE    16 /* registry key: a UUID or a cut digest */

/* Opaque, embeddable: two prepared SHA-256 states. */
struct meter_digest_key {
    _Alignas(16) uint8_t opaque[256];
};

void meter_digest_key_init(struct meter_digest_key *key, const void *secret,
                           size_t size);
void meter_hmac(const struct meter_digest_key *key, const void *data,
                size_t size, uint8_t digest[METER_DIGEST_SIZE]);
void
meter_sha256(const void *data, size_t size, uint8_t digest[METER_DIGEST_SIZE]);

/* Digests of pieces: init, update any number of times, final once. */
struct meter_sha256_state {
    _Alignas(16) uint8_t opaque[128];
};

void meter_sha256_init(struct meter_sha256_state *state);
void meter_sha256_update(struct meter_sha256_state *state, const void *data,
                         size_t size);
void meter_sha256_final(struct meter_sha256_state *state,
                        uint8_t digest[METER_DIGEST_SIZE]);

struct meter_hmac_state {
    struct meter_sha256_state inner;
    const struct meter_digest_key *key; /* borrowed until final */
};

void meter_hmac_init(struct meter_hmac_state *state,
                     const struct meter_digest_key *key);
void meter_hmac_update(struct meter_hmac_state *state, const void *data,
                       size_t size);
void meter_hmac_final(struct meter_hmac_state *state,
                      uint8_t digest[METER_DIGEST_SIZE]);

/* True when equal; time depends on size only. */
bool meter_equal_constant_time(const void *a, const void *b, size_t size);

/* base64url without padding; out gets 4 * size / 3 rounded up, and a NUL. */
#define METER_BASE64URL_SIZE(size) (((size)*4 + 2) / 3)
void meter_base64url(const void *data, size_t size, char *out);

/* Lower-case hexadecimal; out gets 2 * size bytes and a NUL. */
void meter_hex(const void *data, size_t size, char *out);

#endif
