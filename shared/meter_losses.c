/*
 * meter_losses.c - requests that no ring could take: a page beside the rings.
 *
 * The stores of a move, in this order; between any two the mover may die:
 *
 *   ring, turn       tell nothing while upto is moved
 *   upto             begun: the next one asks the ring
 *   the ring's loss  with its turn: it has happened
 *   moved            ended
 */

#include "meter_losses.h"

#include "meter_live.h"


bool
meter_losses_open(struct meter_losses *losses)
{
    if (losses->magic == 0) {
        meter_store(&losses->magic, METER_LOSSES_MAGIC);
    }
    return losses->magic == METER_LOSSES_MAGIC;
}


static void
add_shared(uint64_t *word, uint64_t value)
{
    METER_STORE_POINT();
    __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
}


void
meter_losses_add(struct meter_losses *losses, uint64_t lost, uint64_t filtered,
                 int64_t now_us)
{
    if (filtered > 0) {
        add_shared(&losses->filtered, filtered);
    }
    if (lost > 0) {
        if (losses->first_us == 0) {
            meter_store_i64(&losses->first_us, now_us);
        }
        meter_store_i64(&losses->last_us, now_us);
        add_shared(&losses->lost, lost);
    }
}


bool
meter_losses_is_moving(const struct meter_losses *losses)
{
    return losses->upto != losses->moved;
}


uint64_t
meter_losses_left(const struct meter_losses *losses, uint64_t turn)
{
    bool is_there = turn != 0 && turn == losses->turn;

    return losses->lost - (is_there ? losses->upto : losses->moved);
}


void
meter_losses_settle(struct meter_losses *losses, uint64_t turn)
{
    if (turn != 0 && turn == losses->turn) {
        meter_store(&losses->moved, losses->upto);
    } else {
        meter_store(&losses->upto, losses->moved);
    }
}


/* No number that the ring has had, also where the page is a new one. */
static uint32_t
next_turn(const struct meter_losses *losses, const struct meter_loss *loss)
{
    uint32_t turn = (uint32_t)losses->turn;

    return (loss->turn > turn ? loss->turn : turn) + 1;
}


void
meter_losses_move(struct meter_losses *losses, struct meter_outbox *outbox,
                  uint64_t ring)
{
    uint64_t upto = __atomic_load_n(&losses->lost, __ATOMIC_ACQUIRE);
    struct meter_outbox_live after = *outbox->live;
    struct meter_loss *loss = &after.loss.loss;
    uint64_t count = upto - losses->moved;
    int64_t first_us = losses->first_us;

    if (count == 0) {
        return;
    }
    meter_store_i64(&losses->first_us, 0);
    meter_live_lose(&after, count, METER_LOSS_FULL, losses->last_us);
    if (first_us != 0 && first_us < loss->first_us) {
        loss->first_us = first_us;
    }
    loss->turn = next_turn(losses, loss);
    after.counts.lost += count;
    after.counts.seen += count;
    meter_store(&losses->ring, ring);
    meter_store(&losses->turn, loss->turn);
    meter_store(&losses->upto, upto);
    meter_live_change(outbox->live, &after);
    meter_store(&losses->moved, upto);
}


/*
 * Not a snapshot: a dead owner's page never is whole. Only who has the lock
 * asks, so that no turn changes meanwhile but by bringing a change to its end.
 */
uint64_t
meter_losses_turn(const void *page)
{
    const uint8_t *at = (const uint8_t *)page + METER_OUTBOX_LIVE_OFFSET;
    const struct meter_outbox_live *live = (const void *)at;
    struct meter_outbox_live copy;

    if (__atomic_load_n(&live->is_changing, __ATOMIC_ACQUIRE) == 0) {
        return __atomic_load_n(&live->loss.loss.turn, __ATOMIC_RELAXED);
    }
    copy = *live;
    copy.is_changing = 1;
    meter_live_finish(&copy);
    return copy.loss.loss.turn;
}
