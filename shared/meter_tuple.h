/*
 * meter_tuple.h - a digest of a tuple, fed field by field.
 *
 * Fields are gathered in a buffer on the stack and reach the hash in one
 * call when the whole tuple fits, else buffer by buffer; the digest is the
 * same. Length-prefixed fields make the bytes injective.
 */

#ifndef METER_TUPLE_H
#define METER_TUPLE_H

#include "meter_digest.h"
#include "meter_types.h"

#define METER_TUPLE_BUFFER_SIZE 1024

struct meter_tuple {
    struct meter_hmac_state state;
    bool keyed;
    size_t at;
    uint8_t buffer[METER_TUPLE_BUFFER_SIZE];
};

/* key NULL: plain SHA-256; else HMAC. The key is borrowed until final. */
void
meter_tuple_init(struct meter_tuple *tuple, const struct meter_digest_key *key);
void meter_tuple_u8(struct meter_tuple *tuple, uint8_t value);
void meter_tuple_u64(struct meter_tuple *tuple, uint64_t value);
/* The bytes alone. */
void
meter_tuple_bytes(struct meter_tuple *tuple, const void *data, size_t size);
/* u32 length and the bytes, as meter_put_str; str is below 4 GiB. */
void meter_tuple_str(struct meter_tuple *tuple, struct meter_str str);
/* u8 0 when data is NULL; else u8 1 and the string. */
void meter_tuple_optional(struct meter_tuple *tuple, struct meter_str str);
void
meter_tuple_final(struct meter_tuple *tuple, uint8_t digest[METER_DIGEST_SIZE]);

#endif
