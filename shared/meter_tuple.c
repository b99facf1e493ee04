/*
 * meter_tuple.c - a digest of a tuple, fed field by field.
 *
 *   fingerprint, derived id, dimension key -> [tuple] -> digest
 *
 * The hash's own update call costs about as much as the few bytes of a
 * length prefix; gathering fields first makes one call of twenty.
 */

#include "meter_tuple.h"


void
meter_tuple_init(struct meter_tuple *tuple, const struct meter_digest_key *key)
{
    tuple->keyed = key != NULL;
    tuple->at = 0;
    if (tuple->keyed) {
        meter_hmac_init(&tuple->state, key);
    } else {
        meter_sha256_init(&tuple->state.inner);
    }
}


/* HMAC's inner hash is plain SHA-256, so both kinds take the same bytes. */
static void
flush(struct meter_tuple *tuple)
{
    meter_sha256_update(&tuple->state.inner, tuple->buffer, tuple->at);
    tuple->at = 0;
}


void
meter_tuple_bytes(struct meter_tuple *tuple, const void *data, size_t size)
{
    if (size > METER_TUPLE_BUFFER_SIZE - tuple->at) {
        flush(tuple);
        if (size > METER_TUPLE_BUFFER_SIZE) {
            meter_sha256_update(&tuple->state.inner, data, size);
            return;
        }
    }
    if (size > 0) {
        memcpy(tuple->buffer + tuple->at, data, size);
        tuple->at += size;
    }
}


void
meter_tuple_u8(struct meter_tuple *tuple, uint8_t value)
{
    meter_tuple_bytes(tuple, &value, 1);
}


void
meter_tuple_u64(struct meter_tuple *tuple, uint64_t value)
{
    uint8_t bytes[8];

    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(value >> 8 * i);
    }
    meter_tuple_bytes(tuple, bytes, sizeof(bytes));
}


void
meter_tuple_str(struct meter_tuple *tuple, struct meter_str str)
{
    uint8_t bytes[4];

    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(str.size >> 8 * i);
    }
    meter_tuple_bytes(tuple, bytes, sizeof(bytes));
    meter_tuple_bytes(tuple, str.data, str.size);
}


void
meter_tuple_optional(struct meter_tuple *tuple, struct meter_str str)
{
    if (str.data == NULL) {
        meter_tuple_u8(tuple, 0);
        return;
    }
    meter_tuple_u8(tuple, 1);
    meter_tuple_str(tuple, str);
}


void
meter_tuple_final(struct meter_tuple *tuple, uint8_t digest[METER_DIGEST_SIZE])
{
    flush(tuple);
    if (tuple->keyed) {
        meter_hmac_final(&tuple->state, digest);
    } else {
        meter_sha256_final(&tuple->state.inner, digest);
    }
}
