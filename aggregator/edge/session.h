/*
 * session.h - the API on a connection: requests in, answers out.
 *
 *   connection -> [session] -> on_request ... exchange_answer -> connection
 *                     +-> on_hello: the connection is a ring's, see link.h
 *                     +-> on_mux: it carries many requests, see mux.h
 *
 * One request at a time; what a client sends ahead waits, at most
 * SESSION_READ_SIZE bytes of it in memory, the rest in the socket. A body
 * is read only after the owner granted room for it. A client that goes
 * away while its request is worked on cancels it. Nothing waits for ever:
 * a half-sent request or an answer nobody reads ends the connection after
 * SESSION_IDLE_MS.
 */

#ifndef EDGE_SESSION_H
#define EDGE_SESSION_H

#include "edge/connection.h"
#include "edge/exchange.h"

#define SESSION_IDLE_MS 30000

struct session;

struct session_events {
    struct exchange_events exchange;
    bool is_full; /* one request is refused, then the connection ends */
    /* True: room for a body of this size. False: session_granted follows. */
    bool (*on_body)(void *owner, struct session *session, size_t size);
    /* The room on_body gave is free again (0: it gave none). */
    void (*on_body_done)(void *owner, struct session *session, size_t size);
    /*
     * The first frame is a HELLO. Somebody else must speak from now on, or
     * the connection be closed; the session is freed when this returns. The
     * bytes read so far, from the frame on, move out.
     */
    void (*on_hello)(void *owner, struct connection *connection,
                     struct buf *bytes);
    /* The same for a MUX. */
    void (*on_mux)(void *owner, struct connection *connection,
                   struct buf *bytes);
};

/* Speaks on a new connection until it is freed. False: no memory, logged. */
MUST_CHECK bool
session_attach(struct connection *connection,
               const struct session_events *events, void *owner);

/* The room that on_body could not give at once. */
void session_granted(struct session *session);

/* For the owner's list of those that wait for room. */
struct list_node *session_waiting_node(struct session *session);
/* The size that was asked of on_body. */
size_t session_body_size(const struct session *session);

#endif
