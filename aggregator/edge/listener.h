/*
 * listener.h - the socket for nginx and the sessions on it.
 *
 *   nginx -> [listener] -> session -> on_request
 *
 * At most LISTENER_SESSIONS_MAX connections; one more is closed at once
 * and counted. Bodies that are read or worked on together hold at most
 * LISTENER_BODY_BYTES_MAX; past it a request waits for its turn, in the
 * order of arrival. Without a free descriptor accepting pauses.
 */

#ifndef EDGE_LISTENER_H
#define EDGE_LISTENER_H

#include "config/config.h"
#include "edge/session.h"

#define LISTENER_SESSIONS_MAX   4096
#define LISTENER_BODY_BYTES_MAX (256u << 20)

struct listener;

/* As in struct session_events. */
struct listener_events {
    void *(*on_request)(void *owner, struct session *session,
                        const struct meter_request *request, struct buf *body);
    void (*on_cancel)(void *owner, void *work);
    /* After listener_drain or listener_destroy: no session is left. */
    void (*on_drained)(void *owner);
};

/* Takes lock and socket and accepts. NULL: logged. */
MUST_CHECK struct listener *
listener_create(uv_loop_t *loop, const char *path,
                const struct config_users *peers,
                const struct listener_events *events, void *owner);

/* After a reload; sessions that are open stay. */
void
listener_peers_set(struct listener *listener, const struct config_users *peers);

/* Accepts no more; each session ends after the request at hand. */
void listener_drain(struct listener *listener);
/* Closes every session now. */
void listener_abort(struct listener *listener);
/* Behind on_drained. Freed when libuv has let go of it. */
void listener_destroy(struct listener *listener);

#endif
