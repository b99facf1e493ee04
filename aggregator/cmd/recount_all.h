/*
 * recount_all.h - all that a command line of `meterd rebuild` or `meterd
 * reconcile` asks for.
 *
 *   [recount] counters, usage, meters, states -> [series] -> [index]
 */

#ifndef CMD_RECOUNT_ALL_H
#define CMD_RECOUNT_ALL_H

#include "cmd/recount_options.h"

/*
 * wish: as recount_options_wish made it, with the caller's cb. *out adds up:
 * tenants and events are those of the one that had most. What is to be said
 * beside the differences is said on stderr when it went to the end.
 */
MUST_CHECK enum recount_end
recount_all_run(const struct recount_options *options,
                const struct recount_wish *wish, struct recount_outcome *out);

#endif
