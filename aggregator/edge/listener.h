/*
 * listener.h - the socket for nginx: its file, who may connect, the
 * connections on it.
 */

#ifndef EDGE_LISTENER_H
#define EDGE_LISTENER_H

#include "edge/edge.h"

struct listener;

/*
 * Takes lock and socket and accepts. edge outlives the listener. on_drained,
 * with edge->owner: after listener_drain, no connection is left. NULL: logged.
 */
MUST_CHECK struct listener *listener_create(struct edge *edge, const char *path,
                                            void (*on_drained)(void *owner));

/*
 * Accepts no more. Each connection ends after what is at hand; is_now: at
 * once.
 */
void listener_drain(struct listener *listener, bool is_now);
/* After on_drained. NULL is allowed. Freed when libuv has let go of it. */
void listener_destroy(struct listener *listener);

#endif
