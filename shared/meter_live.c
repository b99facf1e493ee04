/*
 * meter_live.c - how the outbox stores words that must survive its owner.
 *
 *   append, ack, loss, renew -> [live words] -> claimer, after a crash
 *                                     |
 *                                     +-> snapshot, from another process
 */

#include "meter_live.h"

#include "meter_hash.h"

#define SNAPSHOT_TRIES 1000
#define LIVE_WORDS     (sizeof(struct meter_outbox_live) / sizeof(uint64_t))
#define CHANGE_OFFSET  offsetof(struct meter_outbox_live, counts)
#define CHANGE_SIZE \
    (offsetof(struct meter_outbox_live, is_changing) - CHANGE_OFFSET)
#define CHANGE_WORDS (CHANGE_SIZE / sizeof(uint64_t))

_Static_assert(CHANGE_SIZE == sizeof(((struct meter_outbox_live *)NULL)->next),
               "next holds all that may change together");


void
meter_live_settle(struct meter_outbox_live *live)
{
    uint64_t *words = (uint64_t *)(void *)((uint8_t *)live + CHANGE_OFFSET);

    if (live->is_changing == 0) {
        return;
    }
    for (size_t i = 0; i < CHANGE_WORDS; i++) {
        meter_store(&words[i], live->next[i]);
    }
    meter_store(&live->is_changing, 0);
}


void
meter_live_finish(struct meter_outbox_live *copy)
{
    if (copy->is_changing != 0) {
        memcpy((uint8_t *)copy + CHANGE_OFFSET, copy->next, CHANGE_SIZE);
    }
}


void
meter_live_change(struct meter_outbox_live *live,
                  const struct meter_outbox_live *after)
{
    uint64_t words[CHANGE_WORDS];

    memcpy(words, (const uint8_t *)after + CHANGE_OFFSET, sizeof(words));
    meter_live_begin(live);
    for (size_t i = 0; i < CHANGE_WORDS; i++) {
        meter_store(&live->next[i], words[i]);
    }
    meter_store(&live->is_changing, 1);
    meter_live_settle(live);
    meter_live_end(live);
}


void
meter_live_lose(struct meter_outbox_live *after, uint64_t count,
                enum meter_loss_reason reason, int64_t now_us)
{
    struct meter_loss *loss = &after->loss.loss;

    if (loss->count == 0) {
        loss->first_us = now_us;
        loss->reasons = 0;
    }
    loss->count += count;
    loss->last_us = now_us;
    loss->reasons |= (uint32_t)reason;
}


static uint64_t
acked_check(const struct meter_outbox_acked *acked)
{
    return meter_hash(acked, offsetof(struct meter_outbox_acked, check), 0);
}


bool
meter_live_acked(const struct meter_outbox_live *live,
                 struct meter_outbox_acked *out)
{
    bool found = false;

    for (size_t i = 0; i < 2; i++) {
        struct meter_outbox_acked copy = live->acked[i];

        if (copy.check == acked_check(&copy) &&
            (!found || copy.turn > out->turn)) {
            *out = copy;
            found = true;
        }
    }
    return found;
}


void
meter_live_ack(struct meter_outbox_live *live, uint64_t turn, uint64_t seq,
               uint64_t offset)
{
    struct meter_outbox_acked copy = {
        .seq = seq, .offset = offset, .turn = turn};
    struct meter_outbox_acked *at = &live->acked[turn & 1];

    copy.check = acked_check(&copy);
    meter_store(&at->seq, seq);
    METER_CRASH_POINT("ack_half_written");
    meter_store(&at->offset, offset);
    meter_store(&at->turn, turn);
    meter_store(&at->check, copy.check);
}


static void
copy_words(const uint64_t *from, uint64_t *to)
{
    for (size_t i = 0; i < LIVE_WORDS; i++) {
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    }
}


bool
meter_outbox_snapshot(const void *page, struct meter_outbox_live *out)
{
    const uint8_t *at = (const uint8_t *)page + METER_OUTBOX_LIVE_OFFSET;
    const struct meter_outbox_live *live = (const void *)at;
    uint64_t words[LIVE_WORDS];
    bool is_whole = false;

    for (int try = 0; try < SNAPSHOT_TRIES && !is_whole; try++) {
        uint64_t guard = __atomic_load_n(&live->guard, __ATOMIC_ACQUIRE);

        copy_words((const uint64_t *)(const void *)at, words);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        is_whole = guard % 2 == 0 &&
                   guard == __atomic_load_n(&live->guard, __ATOMIC_RELAXED);
    }
    memcpy(out, words, sizeof(words));
    meter_live_finish(out);
    return is_whole;
}
