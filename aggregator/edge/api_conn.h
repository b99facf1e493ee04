/*
 * api_conn.h - the API on a connection: requests in, answers out.
 *
 *   connection -> [api_conn] -> on_request ... exchange_answer -> connection
 *                      +-> on_hello: the connection is a ring's, see link.h
 *                      +-> on_mux: it carries many requests, see mux.h
 *
 * One request at a time; what a client sends ahead waits, at most
 * API_READ_SIZE bytes of it in memory, the rest in the socket. A body
 * is read only after the owner granted room for it. A client that goes
 * away while its request is worked on cancels it. Nothing waits for ever:
 * a half-sent request or an answer nobody reads ends the connection after
 * API_CONN_IDLE_MS.
 */

#ifndef EDGE_API_CONN_H
#define EDGE_API_CONN_H

#include "edge/connection.h"
#include "edge/exchange.h"

#define API_CONN_IDLE_MS 30000

struct api_conn;

struct api_conn_events {
    struct exchange_events exchange;
    bool is_full; /* one request is refused, then the connection ends */
    /* True: room for a body of this size. False: api_conn_granted follows. */
    bool (*on_body)(void *owner, struct api_conn *conn, size_t size);
    /* The room on_body gave is free again (0: it gave none). */
    void (*on_body_done)(void *owner, struct api_conn *conn, size_t size);
    /*
     * The first frame is a HELLO. Somebody else must speak from now on, or
     * the connection be closed; the API's side is freed when this returns. The
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
api_conn_attach(struct connection *connection,
                const struct api_conn_events *events, void *owner);

/* The room that on_body could not give at once. */
void api_conn_granted(struct api_conn *conn);

/* For the owner's list of those that wait for room. */
struct list_node *api_conn_waiting_node(struct api_conn *conn);
/* The size that was asked of on_body. */
size_t api_conn_body_size(const struct api_conn *conn);

#endif
