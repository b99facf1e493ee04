/*
 * meter_slot.c - requests in flight: answered, but their record not final.
 *
 *   admission -> [take] -> header filter -> [answer] -> record -> [free]
 *                                              |
 *                                              +-> adopter, after a crash
 *
 * A slot is what its state says; everything else of it is stored before.
 */

#include "meter_slot.h"

#include "meter_live.h"

#define PLACE(offset, size) ((uint32_t)(offset) << 16 | (uint32_t)(size))
#define PLACE_OFFSET(place) ((place) >> 16)
#define PLACE_SIZE(place)   ((place)&0xffff)

_Static_assert(METER_SLOT_BODY_SIZE <= 0xffff, "half a place holds a size");


void
meter_slots_load(struct meter_slots *slots)
{
    slots->free_count = 0;
    /* From the far end, so that low ones are taken first. */
    for (uint32_t i = slots->count; i > 0; i--) {
        if (slots->items[i - 1].state == METER_SLOT_FREE) {
            slots->free[slots->free_count++] = i - 1;
        }
    }
}


uint32_t
meter_slot_take(struct meter_slots *slots)
{
    struct meter_slot *slot;
    uint32_t index;

    if (slots->free_count == 0) {
        return METER_SLOT_NONE;
    }
    index = slots->free[--slots->free_count];
    slot = &slots->items[index];
    meter_store_u32(&slot->place, 0);
    meter_store_u32(&slot->state, METER_SLOT_RESERVED);
    METER_CRASH_POINT("slot_reserved");
    return index;
}


/* Where the body may be written without touching the one that counts. */
static bool
find_place(const struct meter_slot *slot, size_t size, size_t *offset)
{
    size_t start = PLACE_OFFSET(slot->place);
    size_t end = start + PLACE_SIZE(slot->place);

    if (slot->state != METER_SLOT_ANSWERED || size <= start) {
        *offset = 0;
        return true;
    }
    *offset = end;
    return size <= METER_SLOT_BODY_SIZE - end;
}


bool
meter_slot_answer(struct meter_slots *slots, uint32_t index,
                  struct meter_str body)
{
    struct meter_slot *slot = &slots->items[index];
    size_t offset;

    if (body.size == 0 || body.size > METER_SLOT_BODY_SIZE) {
        return false;
    }
    if (!find_place(slot, body.size, &offset)) {
        return true;
    }
    METER_STORE_POINT();
    memcpy(slot->body + offset, body.data, body.size);
    METER_CRASH_POINT("slot_mid_body");
    meter_store_u32(&slot->place, PLACE(offset, body.size));
    METER_CRASH_POINT("slot_before_answered");
    meter_store_u32(&slot->state, METER_SLOT_ANSWERED);
    METER_CRASH_POINT("slot_answered");
    return true;
}


/* The mark goes last: a slot in use without one would be emitted. */
void
meter_slot_free(struct meter_slots *slots, uint32_t index)
{
    struct meter_slot *slot = &slots->items[index];

    if (slot->state == METER_SLOT_FREE) {
        return;
    }
    METER_CRASH_POINT("slot_before_free");
    meter_store_u32(&slot->state, METER_SLOT_FREE);
    meter_store(&slot->operation, 0);
    meter_store(&slot->seq, 0);
    slots->free[slots->free_count++] = index;
}


struct meter_str
meter_slot_body(const struct meter_slot *slot)
{
    size_t offset = PLACE_OFFSET(slot->place);
    size_t size = PLACE_SIZE(slot->place);

    if (offset > METER_SLOT_BODY_SIZE || size > METER_SLOT_BODY_SIZE - offset) {
        return (struct meter_str){NULL, 0};
    }
    return (struct meter_str){(const char *)slot->body + offset, size};
}
