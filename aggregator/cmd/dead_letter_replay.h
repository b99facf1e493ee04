/*
 * dead_letter_replay.h - dead letters judged again and booked.
 *
 *   letter_store -> [dead_letter_replay] -> ingest -> lane -> PostgreSQL
 *
 * One letter after the other, each in a transaction of its own, oldest first.
 * A writer of its own in stateDir/replay: a running meterd is not disturbed,
 * and one replay at a time works there. It may be ended at any moment; what
 * is booked is gone from the letters, and the rest is still there.
 */

#ifndef CMD_DEAD_LETTER_REPLAY_H
#define CMD_DEAD_LETTER_REPLAY_H

#include "config/config.h"
#include "cmd/letter_store.h"

struct dead_letter_wish {
    struct config *config;
    const struct letter_identity *identity; /* NULL: all of the tenant */
    const char *tenant;                     /* NULL: of all tenants */
    bool is_dry; /* only tells what the rules say now */
};

/*
 * Letters that are rejected again are told on stdout, the counts too. Returns
 * the exit status: 1 when some could not be replayed.
 */
int dead_letter_replay(const struct dead_letter_wish *wish);

#endif
