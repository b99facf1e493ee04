/*
 * zone_fixture.h - a zone in static memory, numbered ids, short calls.
 */

#ifndef ZONE_FIXTURE_H
#define ZONE_FIXTURE_H

#include "meter_cmocka.h"

#include "meter_random.h"
#include "meter_zone.h"

#define SMALL 4096  /* 7 sets */
#define LARGE 32768 /* 63 sets */
#define TAG   UINT64_C(0x0706050403020100)

static const uint8_t secret[16] = "0123456789abcdef";

static _Alignas(64) uint8_t memory[LARGE + 64];

static inline struct meter_zone *
new_zone(size_t size)
{
    struct meter_zone *zone;

    memset(memory, 0xa5, sizeof(memory));
    zone = meter_zone_format(memory, size, secret);
    assert_ptr_equal(zone, memory);
    return zone;
}

/* An id of its own for each number; its content is 1. */
static inline struct meter_zone_id
id_of(uint64_t number)
{
    struct meter_random random = {number};
    struct meter_zone_id id = {{random_u64(&random), number}, 1};

    return id;
}

static inline enum meter_zone_state
state_of(struct meter_zone *zone, struct meter_zone_id id, uint64_t stamp)
{
    bool is_other;

    return meter_zone_find(zone, &id, stamp, &is_other);
}

static inline size_t
pend(struct meter_zone *zone, struct meter_zone_id id, uint64_t seq,
     uint64_t stamp)
{
    bool is_evicted;

    return meter_zone_pending(zone, &id, TAG, seq, stamp, &is_evicted);
}

static inline size_t
make_durable(struct meter_zone *zone, struct meter_zone_id id, uint64_t seq,
             uint64_t stamp)
{
    size_t index = pend(zone, id, seq, stamp);

    meter_zone_settle(zone, index, TAG, seq, true);
    return index;
}

/* The numbers of ids that share a set with id_of(0). */
static inline void
numbers_of_one_set(uint64_t *numbers, size_t count)
{
    struct meter_zone *zone = new_zone(SMALL);
    size_t set = pend(zone, id_of(0), 1, 1) / METER_ZONE_WAYS;

    for (uint64_t number = 0; count > 0; number++) {
        if (pend(zone, id_of(number), 1, 1) / METER_ZONE_WAYS == set) {
            *numbers++ = number;
            count--;
        }
    }
}

#endif
