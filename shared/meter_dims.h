/*
 * meter_dims.h - dimension sets: one canonical encoding, one key.
 *
 *   encoding = version u8 (1), then for each dimension with a value, in
 *   bytewise order of names: name (u32 length, bytes), kind u8, value
 *   (u32 length, bytes)
 *   key      = SHA-256 of the encoding
 *
 * Typed and length-prefixed, so it is injective: 1 and "1" differ, null and
 * missing are the same (both left out), order does not matter. Numbers are
 * given in their canonical text. Frozen by golden vectors in t/unit.
 */

#ifndef METER_DIMS_H
#define METER_DIMS_H

#include "meter_bytes.h"
#include "meter_digest.h"
#include "meter_limits.h"

enum meter_dim_kind {
    METER_DIM_NULL = 0,
    METER_DIM_STRING = 1,
    METER_DIM_NUMBER = 2, /* canonical text, see meter_number_canonical */
    METER_DIM_BOOL = 3    /* "true" or "false" */
};

struct meter_dim {
    struct meter_str name;
    enum meter_dim_kind kind;
    struct meter_str value; /* unescaped bytes */
};

/* Sorts by name in place. Names must differ: false when two are equal. */
METER_MUST_CHECK bool meter_dims_sort(struct meter_dim *dims, size_t count);

/* dims must be sorted. */
void meter_dims_encode(const struct meter_dim *dims, size_t count,
                       struct meter_writer *out);

/* dims must be sorted; at most METER_DIMENSION_COUNT_MAX of them. */
void meter_dims_key(const struct meter_dim *dims, size_t count,
                    uint8_t key[METER_DIGEST_SIZE]);

/* {"a":"x","b":1,"c":null}: sorted, canonical JSON; null is written. */
void meter_dims_json(const struct meter_dim *dims, size_t count,
                     struct meter_writer *out);

#endif
