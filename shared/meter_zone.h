/*
 * meter_zone.h - ids the edge has seen: a cache in shared memory.
 *
 *   ABSENT -> PENDING (forwarded, no verdict) -> DURABLE (its transaction
 *   has committed: a repeat may be called a duplicate at once)
 *
 * Fixed sets of eight slots, no lists, no locks. A slot is eight words, one
 * of them a checksum of the others: a half-written one, or one that two
 * workers wrote at the same time, does not verify and is ABSENT. Any slot
 * may be evicted at any time. Identity is a keyed 128-bit digest of (tenant,
 * event id); XXH3 only picks the set. A slot remembers the epoch of the
 * database it was made under; another epoch makes it ABSENT.
 *
 * Any number of workers may call everything below format at the same time.
 * What two of them do to one slot may be lost, never mixed up: a slot that
 * says DURABLE was settled so.
 */

#ifndef METER_ZONE_H
#define METER_ZONE_H

#include "meter_types.h"

#define METER_ZONE_WAYS     8
#define METER_ZONE_SIZE_MIN 4096

enum meter_zone_state {
    METER_ZONE_ABSENT = 0,
    METER_ZONE_PENDING = 1,
    METER_ZONE_DURABLE = 2
};

struct meter_zone_slot {
    uint64_t check;
    uint64_t key[2];
    uint64_t content; /* digest of type, customer, resource */
    uint64_t tag;     /* session, first eight bytes */
    uint64_t seq;
    uint64_t state; /* enum meter_zone_state, digest of the epoch << 8 */
    uint64_t stamp; /* last touched, any growing number */
};

_Static_assert(sizeof(struct meter_zone_slot) == 64, "a cache line");

/* Lies at the front of the memory. */
struct meter_zone {
    uint64_t magic;
    uint8_t secret[16];
    uint64_t epoch;
    uint64_t turn; /* how often everything was forgotten */
    uint64_t set_count;
    uint64_t zero[2];
    struct meter_zone_slot slots[];
};

_Static_assert(sizeof(struct meter_zone) == 64, "slots are cache lines");

struct meter_zone_id {
    uint64_t key[2];
    uint64_t content;
};

/* NULL: too small. The memory is 64-byte aligned and stays where it is. */
struct meter_zone *
meter_zone_format(void *memory, size_t size, const uint8_t secret[16]);
/* NULL: not a zone of this layout. */
struct meter_zone *meter_zone_open(void *memory, size_t size);

/* Absent (data NULL) and empty are the same. Any size is taken; only strings
   within the limits of meter_limits.h are ever forwarded. */
void meter_zone_id(const struct meter_zone *zone, struct meter_str tenant,
                   struct meter_str event_id, struct meter_str type,
                   struct meter_str customer, struct meter_str resource,
                   struct meter_zone_id *out);

/*
 * PENDING and DURABLE only with the same content; *is_other: known with
 * another one, then ABSENT is answered: always forwarded. Writes the stamp
 * only when half of the set was touched later.
 */
enum meter_zone_state
meter_zone_find(struct meter_zone *zone, const struct meter_zone_id *id,
                uint64_t stamp, bool *is_other);
/*
 * Notes a forwarded event. Takes the place of the same id, a free slot or
 * the one touched least recently. Returns the slot's index; *is_evicted:
 * a verifying slot of another id had to go. An id that is DURABLE stays so,
 * whatever the content now: the event is not noted, settle will not match.
 */
size_t meter_zone_pending(struct meter_zone *zone,
                          const struct meter_zone_id *id, uint64_t tag,
                          uint64_t seq, uint64_t stamp, bool *is_evicted);
/*
 * Verdict of (tag, seq): durable, or forget it. A slot that holds something
 * else by now is left alone. Only for a verdict that was given under the
 * zone's epoch.
 */
void meter_zone_settle(struct meter_zone *zone, size_t index, uint64_t tag,
                       uint64_t seq, bool is_durable);

/* Another database than before: everything is ABSENT. The same: nothing. */
void meter_zone_epoch(struct meter_zone *zone, uint64_t epoch);
/* A database that went back under the same epoch: everything is ABSENT. */
void meter_zone_forget(struct meter_zone *zone);

/* Slots that verify, by state, among count of them from first on. */
void meter_zone_sample(const struct meter_zone *zone, size_t first,
                       size_t count, size_t *pending, size_t *durable);
/* The same of all of them: walks the whole zone. */
void meter_zone_count(const struct meter_zone *zone, size_t *pending,
                      size_t *durable, size_t *slots);

#endif
