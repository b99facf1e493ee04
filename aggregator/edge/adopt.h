/*
 * adopt.h - rings that nobody owns any more are drained by meterd.
 */

#ifndef EDGE_ADOPT_H
#define EDGE_ADOPT_H

#include "edge/edge.h"

struct adopt;

/*
 * What is given outlives it. node: what our records say. NULL: the kernel's
 * boot id cannot be read; logged.
 */
MUST_CHECK struct adopt *
adopt_create(struct edge *edge, const char *directory, const char *node);

/*
 * Releases every ring; those that are not drained stay orphans. NULL is
 * allowed. Freed when libuv has let go of it.
 */
void adopt_destroy(struct adopt *adopt);

#endif
