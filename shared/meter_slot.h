/*
 * meter_slot.h - requests in flight: answered, but their record not final.
 *
 *   admitted -> RESERVED -> header sent: body, ANSWERED -> record, FREE
 *
 * Fixed entries in the ring file. An adopter turns ANSWERED ones into
 * recovered events and drops RESERVED ones: nobody got an answer. The body
 * is an event's (meter_record_event_encode) as it was known when the header
 * left; one that is too long is cut by the caller, attributes first.
 *
 * operation: a delta that is added at the end of the request; equal to the
 * one in a cell's current half: it was applied, the slot is done with. The
 * next operation is begun only behind freeing the slot.
 */

#ifndef METER_SLOT_H
#define METER_SLOT_H

#include "meter_types.h"

#define METER_SLOT_SIZE      1024
#define METER_SLOT_BODY_SIZE (METER_SLOT_SIZE - 32)
#define METER_SLOT_NONE      UINT32_MAX

enum meter_slot_state {
    METER_SLOT_FREE = 0,
    METER_SLOT_RESERVED = 1,
    METER_SLOT_ANSWERED = 2
};

struct meter_slot {
    uint64_t seq;       /* record being published from it; 0: none */
    uint64_t operation; /* 0: none */
    uint32_t state;     /* enum meter_slot_state */
    uint32_t place;     /* of the body: offset << 16 | size */
    uint64_t zero;
    uint8_t body[METER_SLOT_BODY_SIZE];
};

_Static_assert(sizeof(struct meter_slot) == METER_SLOT_SIZE, "packed");

struct meter_slots {
    struct meter_slot *items; /* in the map */
    uint32_t count;
    uint32_t *free; /* scratch: a stack of free indexes; at its far end those
                       that a claimer has to emit */
    uint32_t free_count;
};

/* Takes a free slot; METER_SLOT_NONE: all are in use. */
uint32_t meter_slot_take(struct meter_slots *slots);
/*
 * RESERVED or ANSWERED -> ANSWERED with this body. A second body goes beside
 * the first one; where there is no room for both the first one stays. False:
 * empty or longer than METER_SLOT_BODY_SIZE, nothing has changed.
 */
bool meter_slot_answer(struct meter_slots *slots, uint32_t index,
                       struct meter_str body);
void meter_slot_free(struct meter_slots *slots, uint32_t index);

/* For adopters. Empty: the slot is damaged. */
struct meter_str meter_slot_body(const struct meter_slot *slot);
/* Stacks the free ones. */
void meter_slots_load(struct meter_slots *slots);

#endif
