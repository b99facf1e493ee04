/*
 * connection.h - one connection on the socket and what is spoken on it.
 *
 *   listener -> [connection] -> api_conn | mux | link (capture)
 *
 * The connection owns the pipe. A speaker understands the bytes; it may be
 * replaced once it sees that another protocol begins. Read and write errors
 * and the other side's end close the connection; a speaker hears of every
 * close through on_close and of nothing after it but on_free.
 */

#ifndef EDGE_CONNECTION_H
#define EDGE_CONNECTION_H

#include "edge/list.h"

#include <uv.h>

struct connection;

struct connection_protocol {
    /* Room for the next read. *data NULL: none, which ends it. */
    void (*on_room)(void *speaker, char **data, size_t *size);
    /* So many bytes were put there. */
    void (*on_bytes)(void *speaker, size_t size);
    /* What connection_write was given is with the kernel. */
    void (*on_written)(void *speaker);
    /* Begin nothing new and end when nothing is at hand. */
    void (*on_drain)(void *speaker);
    /* About once a second. */
    void (*on_tick)(void *speaker, uint64_t now_ms);
    /* The connection ends: let go of everything but the memory. */
    void (*on_close)(void *speaker);
    /* libuv has let go: the speaker may be freed. */
    void (*on_free)(void *speaker);
};

/*
 * Takes the connected socket fd in any case. NULL: no memory, logged.
 * on_closed is the last word: the connection is freed when it returns.
 * connection_speak and connection_read_start must follow.
 */
typedef void (*connection_closed_cb)(void *owner,
                                     struct connection *connection);
MUST_CHECK struct connection *
connection_create(uv_loop_t *loop, int fd, connection_closed_cb on_closed,
                  void *owner);

/* From now on this one speaks; the one before it is the caller's to free. */
void
connection_speak(struct connection *connection,
                 const struct connection_protocol *protocol, void *speaker);

/* No effect where it is already so. Starting may close, when it fails. */
void connection_read_start(struct connection *connection);
void connection_read_stop(struct connection *connection);

/*
 * One write at a time. The bytes stay where they are until on_written or
 * on_free. A failure closes.
 */
void connection_write(struct connection *connection, const uv_buf_t *parts,
                      unsigned count);

/* Closes now; again has no effect. */
void connection_close(struct connection *connection, const char *why);
bool connection_is_closed(const struct connection *connection);
/* To the speaker. */
void connection_drain(struct connection *connection);
void connection_tick(struct connection *connection, uint64_t now_ms);

/* For the owner's list. */
struct list_node *connection_node(struct connection *connection);

/*
 * A peer that is broken or hostile can send as much nonsense as it likes, on
 * as many connections. All of them together get PROTOCOL_LOG_LINES_MAX lines a
 * second; what was left out is counted and told in one line afterwards.
 */
#define PROTOCOL_LOG_LINES_MAX 10

/* False: do not write a line; that is counted. */
MUST_CHECK bool protocol_log_take(void);
/* Now and then. True: something is left to be told, come again. */
bool protocol_log_tick(void);

#endif
