/*
 * meter_siphash.c - SipHash-2-4 with 128 bits: a keyed digest for the edge.
 *
 *   key, data -> [siphash128] -> identity of an id in the zone
 *
 * Aumasson and Bernstein, "SipHash: a fast short-input PRF": two rounds for
 * each eight bytes, four at the end, once for each half of the output.
 */

#include "meter_siphash.h"

struct state {
    uint64_t v0, v1, v2, v3;
};


/* Little endian; compilers make one load of it. */
static uint64_t
load(const uint8_t *at)
{
    uint64_t word = 0;

    for (int i = 0; i < 8; i++) {
        word |= (uint64_t)at[i] << 8 * i;
    }
    return word;
}


static inline uint64_t
rotate(uint64_t word, int bits)
{
    return word << bits | word >> (64 - bits);
}


static inline void
rounds(struct state *s, int count)
{
    while (count-- > 0) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 = rotate(s->v0, 32) + s->v3;
        s->v2 += s->v1;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v2 = rotate(s->v2, 32);
    }
}


static inline void
absorb(struct state *s, uint64_t word)
{
    s->v3 ^= word;
    rounds(s, 2);
    s->v0 ^= word;
}


void
meter_siphash128(const uint8_t key[16], const void *data, size_t size,
                 uint64_t out[2])
{
    const uint8_t *at = data;
    uint64_t k0 = load(key), k1 = load(key + 8);
    uint64_t last = (uint64_t)size << 56;
    struct state s = {
        k0 ^ UINT64_C(0x736f6d6570736575),
        k1 ^ UINT64_C(0x646f72616e646f6d) ^ 0xee, /* of the 128-bit form */
        k0 ^ UINT64_C(0x6c7967656e657261),
        k1 ^ UINT64_C(0x7465646279746573),
    };

    for (; size >= 8; at += 8, size -= 8) {
        absorb(&s, load(at));
    }
    for (size_t i = 0; i < size; i++) {
        last |= (uint64_t)at[i] << 8 * i;
    }
    absorb(&s, last);

    s.v2 ^= 0xee;
    rounds(&s, 4);
    out[0] = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
    s.v1 ^= 0xdd;
    rounds(&s, 4);
    out[1] = s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
