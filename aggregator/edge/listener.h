/*
 * listener.h - the socket for nginx and the connections on it.
 *
 *   nginx -> [listener] -> connection -> api_conn -> on_request
 *                                   +--> mux -> on_request
 *                                   +--> link -> intake
 *
 * At most LISTENER_CONNECTIONS_MAX. One more is counted as refused, and its
 * one request is answered (is_full), so that its client learns that it was not
 * applied; LISTENER_REFUSALS_MAX are refused so at a time, and any other is
 * closed at once.
 *
 * A connection begins as one of the API; when its first frame is a
 * HELLO it becomes a link, with a MUX a mux. Bodies that are read or worked
 * on together hold at most LISTENER_BODY_BYTES_MAX; past it a request waits for
 * its turn, in the order of arrival. Without a free descriptor accepting
 * pauses.
 */

#ifndef EDGE_LISTENER_H
#define EDGE_LISTENER_H

#include "config/config.h"
#include "edge/api_conn.h"
#include "edge/link.h"

#define LISTENER_CONNECTIONS_MAX 4096
#define LISTENER_REFUSALS_MAX    256
#define LISTENER_BODY_BYTES_MAX  (256u << 20)

/* Who may connect: our own user, root, and those named in limits.peers. */
struct peers {
    uid_t uids[CONFIG_PEERS_MAX + 2];
    size_t count;
};

bool peers_allow(const struct peers *peers, uid_t uid);

struct listener;

struct listener_events {
    struct exchange_events exchange;
    /* After listener_drain or listener_destroy: no connection is left. */
    void (*on_drained)(void *owner);
};

/*
 * Takes lock and socket and accepts. The place is where links bring their
 * records; it outlives the listener. NULL: logged.
 */
MUST_CHECK struct listener *
listener_create(uv_loop_t *loop, const char *path,
                const struct config_users *peers,
                const struct link_place *place,
                const struct listener_events *events, void *owner);

/* After a reload; connections that are open stay. */
void
listener_peers_set(struct listener *listener, const struct config_users *peers);
/* Who may connect; lives as long as the listener. */
const struct peers *listener_peers(const struct listener *listener);

/* Accepts no more; each connection ends after what is at hand. */
void listener_drain(struct listener *listener);
/* Closes every connection now. */
void listener_abort(struct listener *listener);
/* Behind on_drained. Freed when libuv has let go of it. */
void listener_destroy(struct listener *listener);

#endif
