/*
 * meter_live.h - how the outbox stores words that must survive its owner.
 *
 * For the files of the outbox only. A process that is killed has executed
 * its stores in program order, so what matters is that the compiler keeps
 * that order: every word goes through meter_store. Three ways to change:
 *
 *   one word     is there or is not
 *   two copies   acked: the one of the higher turn whose check holds
 *   a change     many words at once: `next` is filled in, is_changing set,
 *                next copied over them, is_changing cleared. Done again from
 *                is_changing on it gives the same
 */

#ifndef METER_LIVE_H
#define METER_LIVE_H

#include "meter_crash.h"
#include "meter_outbox.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "live words are little endian");

/* A test that includes the sources may stop between any two stores. */
#ifndef METER_STORE_POINT
#define METER_STORE_POINT() ((void)0)
#endif

static inline void
meter_store(uint64_t *word, uint64_t value)
{
    METER_STORE_POINT();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void
meter_store_u32(uint32_t *word, uint32_t value)
{
    METER_STORE_POINT();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void
meter_store_i64(int64_t *word, int64_t value)
{
    METER_STORE_POINT();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void
meter_add(uint64_t *word, uint64_t value)
{
    meter_store(word, *word + value);
}

static inline struct meter_outbox_live *
meter_live_of(void *map)
{
    return (struct meter_outbox_live *)(void *)((uint8_t *)map +
                                                METER_OUTBOX_LIVE_OFFSET);
}

/* Bytes of the area from one offset up to another; equal: all, or none. */
static inline size_t
meter_outbox_distance(const struct meter_outbox *outbox, size_t from, size_t to,
                      bool is_all)
{
    if (from == to) {
        return is_all ? outbox->area_size : 0;
    }
    return to > from ? to - from : outbox->area_size - from + to;
}

/* Around everything that changes counts. */
static inline void
meter_live_begin(struct meter_outbox_live *live)
{
    meter_store(&live->guard, live->guard | 1);
}

static inline void
meter_live_end(struct meter_outbox_live *live)
{
    meter_store(&live->guard, (live->guard | 1) + 1);
}

/* From `after`, a copy of live that was edited, takes counts to loss. */
void meter_live_change(struct meter_outbox_live *live,
                       const struct meter_outbox_live *after);
/* Gives a copy the words that a change under way is about to store. */
void meter_live_finish(struct meter_outbox_live *copy);
/* Brings a change that a dead owner began to its end. */
void meter_live_settle(struct meter_outbox_live *live);
/* Edits the loss entry of such a copy. */
void meter_live_lose(struct meter_outbox_live *after, uint64_t count,
                     enum meter_loss_reason reason, int64_t now_us);

/* False: neither copy holds. */
METER_MUST_CHECK bool meter_live_acked(const struct meter_outbox_live *live,
                                       struct meter_outbox_acked *out);
void meter_live_ack(struct meter_outbox_live *live, uint64_t turn, uint64_t seq,
                    uint64_t offset);

#endif
