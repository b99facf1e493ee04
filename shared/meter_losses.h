/*
 * meter_losses.h - requests that no ring could take: a page beside the rings.
 *
 *   a worker without a ring -> [add] -> page -> [move] -> loss entry of a ring
 *                                                           -> LOSSNOTE
 *
 * Pure: works on a page that somebody mapped shared. All workers of a
 * directory have the same one, so that what could not be told yet survives
 * them. To add takes no lock. To move takes the file's lock and a ring of
 * one's own; the ring keeps the number of the move, changed together with its
 * loss entry, so that of a mover who died it is known whether it moved.
 */

#ifndef METER_LOSSES_H
#define METER_LOSSES_H

#include "meter_outbox.h"

#define METER_LOSSES_SIZE  4096
#define METER_LOSSES_MAGIC 0x315353534f4c4d45ull

/* Host byte order. */
struct meter_losses {
    uint64_t magic;
    uint64_t lost;     /* requests answered and not recorded, ever */
    uint64_t filtered; /* decided without a ring: not billed */
    int64_t first_us;  /* of those that are not moved; 0: not known */
    int64_t last_us;
    uint64_t moved; /* of lost: in rings */
    uint64_t upto;  /* what `moved` becomes; the same: no move has begun */
    uint64_t ring;  /* where to: the number in the ring's name */
    uint64_t turn;  /* of the move */
};

/* Zeros become a page. False: it is something else. */
METER_MUST_CHECK bool meter_losses_open(struct meter_losses *losses);

void meter_losses_add(struct meter_losses *losses, uint64_t lost,
                      uint64_t filtered, int64_t now_us);

/*
 * The rest with a copy, which has one moment's words, or with the lock.
 * turn: of the ring that `ring` names, 0 when it is gone.
 */
bool meter_losses_is_moving(const struct meter_losses *losses);
uint64_t meter_losses_left(const struct meter_losses *losses, uint64_t turn);
/* Brings a move to its end whose mover died. */
void meter_losses_settle(struct meter_losses *losses, uint64_t turn);
/* All that is left goes into the loss entry of a ring of this number. */
void meter_losses_move(struct meter_losses *losses, struct meter_outbox *outbox,
                       uint64_t ring);

/* The number of the last move to a ring, from its first page. */
uint64_t meter_losses_turn(const void *page);

#endif
