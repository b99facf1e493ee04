/*
 * mux.h - many requests of a worker at once, on one connection.
 *
 *   connection -> [mux] -> on_request ... exchange_answer -> connection
 *
 * The worker numbers its requests; answers come in any order and carry the
 * number. CANCEL takes a request back, and the end of the connection all of
 * them. Answers of one turn of the loop go out in one write. A request that
 * comes while MUX_REQUESTS_MAX of them or MUX_BYTES_MAX bytes of them are
 * in flight is refused (is_full). Past MUX_OUT_HOLD bytes of answers that
 * are not written nothing more is read: what is sent waits in the socket.
 * Bodies are small, at most METER_MUX_BODY_MAX. Half a request, or answers
 * nobody reads, end the connection after MUX_IDLE_MS.
 *
 * When meterd drains, DRAIN is sent: the worker sends no more requests and
 * closes when all that it has sent are answered.
 */

#ifndef EDGE_MUX_H
#define EDGE_MUX_H

#include "edge/connection.h"
#include "edge/exchange.h"

#define MUX_REQUESTS_MAX 16384
#define MUX_BYTES_MAX    (64u << 20)
#define MUX_OUT_HOLD     (1u << 20)
#define MUX_IDLE_MS      30000
#define MUX_DRAINED_MS   1000 /* nothing is left, but it is not closed */

/*
 * Takes over a connection whose first bytes, a whole MUX frame and what was
 * read behind it, are given; they move in. False: no memory, logged.
 */
MUST_CHECK bool mux_attach(struct connection *connection, uv_loop_t *loop,
                           const struct exchange_events *events, void *owner,
                           struct buf *bytes);

#endif
