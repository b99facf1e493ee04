/*
 * adopt.h - rings that nobody owns any more.
 *
 *   outbox directory -> [adopt] -> adoption -> intake -> ingest
 *
 * Workers adopt the rings of dead workers within seconds. Where no worker is
 * left to do it, meterd does: once a second it looks at every ring-* file; a
 * ring that holds something and that nobody has locked is an orphan, and
 * after ADOPT_WAIT_MS it is drained, ADOPT_AT_ONCE of them at a time. While
 * the database cannot be reached no ring is taken, so that a worker that
 * comes back finds it.
 */

#ifndef EDGE_ADOPT_H
#define EDGE_ADOPT_H

#include "edge/intake.h"
#include "edge/listener.h"

#define ADOPT_WAIT_MS   10000
#define ADOPT_AT_ONCE   4
#define ADOPT_RINGS_MAX 4096 /* orphans known at once; more wait */

struct adopt;

/*
 * What is borrowed outlives it. peers: who may own a ring. NULL: no memory,
 * or the kernel's boot id cannot be read; logged.
 */
MUST_CHECK struct adopt *
adopt_create(uv_loop_t *loop, const char *directory, const char *node,
             const struct peers *peers, struct intakes *intakes);

/* Releases every ring; those that are not drained stay orphans. */
void adopt_stop(struct adopt *adopt);
/* NULL is allowed. Freed when libuv has let go of it. */
void adopt_destroy(struct adopt *adopt);

/*
 * Whether an orphan that was first seen then has waited long enough. It may
 * have been seen later than now, the time at which the look began. Pure.
 */
bool adopt_is_due(uint64_t since_ms, uint64_t wait_ms, uint64_t now_ms);

#endif
