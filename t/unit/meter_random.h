/*
 * meter_random.h - a seeded generator for property tests (splitmix64).
 *
 * The same seed gives the same cases on every machine, so a failure can be
 * repeated.
 */

#ifndef METER_RANDOM_H
#define METER_RANDOM_H

#include <stdint.h>

struct meter_random {
    uint64_t state;
};

static inline uint64_t
random_u64(struct meter_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* 0..bound-1 */
static inline uint64_t
random_below(struct meter_random *random, uint64_t bound)
{
    return random_u64(random) % bound;
}

#endif
