/*
 * meter_digest.c - SHA-256 and HMAC-SHA-256 by libcrypto.
 *
 *   event key, fingerprint, derived id, dimension key, token -> [digest]
 *
 * Runs three or four times for each event. The low-level SHA256_*
 * functions are used on purpose, deprecated as they are: EVP allocates a
 * context and fetches its implementation behind a lock, which costs more
 * than hashing a hundred bytes. These work on plain memory, allocate nothing
 * and lock nothing. An HMAC starts from a copy of two prepared states, so
 * the key is never hashed again.
 */

#define OPENSSL_SUPPRESS_DEPRECATED

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "meter_digest.h"

struct key_states {
    SHA256_CTX inner;
    SHA256_CTX outer;
};

_Static_assert(sizeof(struct key_states) <= sizeof(struct meter_digest_key),
               "two SHA-256 states must fit into a key");
_Static_assert(sizeof(SHA256_CTX) <= sizeof(struct meter_sha256_state),
               "a SHA-256 state must fit");
_Static_assert(_Alignof(struct key_states) <= _Alignof(struct meter_digest_key),
               "a key must be aligned for its states");
_Static_assert(METER_DIGEST_SIZE == SHA256_DIGEST_LENGTH, "SHA-256");


void
meter_digest_key_init(struct meter_digest_key *key, const void *secret,
                      size_t size)
{
    struct key_states *states = (struct key_states *)key->opaque;
    uint8_t block[SHA256_CBLOCK] = {0};

    memset(key, 0, sizeof(*key));
    if (size > sizeof(block)) {
        meter_sha256(secret, size, block);
    } else if (size > 0) {
        memcpy(block, secret, size);
    }
    for (size_t i = 0; i < sizeof(block); i++) {
        block[i] ^= 0x36;
    }
    SHA256_Init(&states->inner);
    SHA256_Update(&states->inner, block, sizeof(block));
    for (size_t i = 0; i < sizeof(block); i++) {
        block[i] ^= 0x36 ^ 0x5c;
    }
    SHA256_Init(&states->outer);
    SHA256_Update(&states->outer, block, sizeof(block));
    OPENSSL_cleanse(block, sizeof(block));
}


void
meter_hmac_init(struct meter_hmac_state *state,
                const struct meter_digest_key *key)
{
    const struct key_states *states = (const struct key_states *)key->opaque;

    memcpy(state->inner.opaque, &states->inner, sizeof(states->inner));
    state->key = key;
}


void
meter_hmac_update(struct meter_hmac_state *state, const void *data, size_t size)
{
    meter_sha256_update(&state->inner, data, size);
}


void
meter_hmac_final(struct meter_hmac_state *state,
                 uint8_t digest[METER_DIGEST_SIZE])
{
    const struct key_states *states =
        (const struct key_states *)state->key->opaque;
    SHA256_CTX outer = states->outer;

    meter_sha256_final(&state->inner, digest);
    SHA256_Update(&outer, digest, METER_DIGEST_SIZE);
    SHA256_Final(digest, &outer);
}


void
meter_hmac(const struct meter_digest_key *key, const void *data, size_t size,
           uint8_t digest[METER_DIGEST_SIZE])
{
    struct meter_hmac_state state;

    meter_hmac_init(&state, key);
    meter_hmac_update(&state, data, size);
    meter_hmac_final(&state, digest);
}


void
meter_sha256_init(struct meter_sha256_state *state)
{
    SHA256_Init((SHA256_CTX *)state->opaque);
}


void
meter_sha256_update(struct meter_sha256_state *state, const void *data,
                    size_t size)
{
    if (size > 0) {
        SHA256_Update((SHA256_CTX *)state->opaque, data, size);
    }
}


void
meter_sha256_final(struct meter_sha256_state *state,
                   uint8_t digest[METER_DIGEST_SIZE])
{
    SHA256_Final(digest, (SHA256_CTX *)state->opaque);
}


void
meter_sha256(const void *data, size_t size, uint8_t digest[METER_DIGEST_SIZE])
{
    struct meter_sha256_state state;

    meter_sha256_init(&state);
    meter_sha256_update(&state, data, size);
    meter_sha256_final(&state, digest);
}


bool
meter_equal_constant_time(const void *a, const void *b, size_t size)
{
    return size == 0 || CRYPTO_memcmp(a, b, size) == 0;
}


void
meter_base64url(const void *data, size_t size, char *out)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const uint8_t *at = data;

    while (size >= 3) {
        uint32_t group = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];

        *out++ = letters[group >> 18];
        *out++ = letters[group >> 12 & 63];
        *out++ = letters[group >> 6 & 63];
        *out++ = letters[group & 63];
        at += 3;
        size -= 3;
    }
    if (size == 2) {
        *out++ = letters[at[0] >> 2];
        *out++ = letters[(at[0] << 4 | at[1] >> 4) & 63];
        *out++ = letters[at[1] << 2 & 63];
    } else if (size == 1) {
        *out++ = letters[at[0] >> 2];
        *out++ = letters[at[0] << 4 & 63];
    }
    *out = '\0';
}


void
meter_hex(const void *data, size_t size, char *out)
{
    static const char letters[] = "0123456789abcdef";
    const uint8_t *at = data;

    for (size_t i = 0; i < size; i++) {
        *out++ = letters[at[i] >> 4];
        *out++ = letters[at[i] & 15];
    }
    *out = '\0';
}
