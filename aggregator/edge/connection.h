/*
 * connection.h - one connection on the socket and what is spoken on it.
 *
 *   listener -> [connection] -> api_conn | mux | link
 *
 * The connection owns the pipe and the bytes that are written. A speaker
 * understands the bytes that are read. api_conn speaks first; it leaves to
 * link or mux when the first frame is a HELLO or a MUX. Read and write errors,
 * the other side's end and silence in the middle of something close the
 * connection; a speaker hears of every close through on_close and of nothing
 * after it but on_free.
 */

#ifndef EDGE_CONNECTION_H
#define EDGE_CONNECTION_H

#include "edge/edge.h"
#include "meter_frame.h"

#define CONNECTION_IDLE_MS   30000 /* half a frame, or answers not read */
#define CONNECTION_LINES_MAX 10    /* a second, about what peers send */

struct connection;

struct connection_protocol {
    const char *log_name; /* subsystem of its lines */
    size_t out_max;       /* bytes of answers that wait to be written */
    /*
     * Sets connection->speaker and begins to read. bytes: what was read
     * before, from a whole first frame on; they move in.
     */
    void (*on_begin)(struct connection *connection, struct buf *bytes);
    /* Room for the next read. *data NULL: none, which ends it. */
    void (*on_room)(void *speaker, char **data, size_t *size);
    /* So many bytes were put there. */
    void (*on_bytes)(void *speaker, size_t size);
    /* What was sent is with the kernel. */
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

extern const struct connection_protocol api_protocol;
extern const struct connection_protocol mux_protocol;
extern const struct connection_protocol link_protocol;

/* Made by the listener; a speaker writes to out alone. */
struct connection {
    struct edge *edge;
    const struct connection_protocol *protocol;
    void *speaker;
    bool is_full;   /* one too many: its one request is refused */
    bool is_closed; /* waits for libuv to let go */
    /* The last word: the connection is freed when it returns. */
    void (*on_closed)(struct connection *connection);
    void *owner;
    TAILQ_ENTRY(connection) next; /* of the owner's list */

    uv_pipe_t pipe;
    uv_write_t write;
    struct buf out;         /* frames for the next write */
    struct buf sending;     /* with the kernel; empty: none */
    struct buf body;        /* goes out after sending */
    uint64_t sent_since_ms; /* of sending */
    uint64_t half_since_ms; /* 0: no frame is half read */
};

/* From now on this one speaks; the one before it is the caller's to free. */
void connection_become(struct connection *connection,
                       const struct connection_protocol *protocol,
                       struct buf *bytes);

/* No effect where it is already so. Starting may close, when it fails. */
void connection_read_start(struct connection *connection);
void connection_read_stop(struct connection *connection);
/* Whether the peer owes us the rest of a frame; the first time counts. */
void connection_half_set(struct connection *connection, bool is_half);

/*
 * Sends out, then the body (NULL: none), whose bytes move in. During a write
 * it has no effect: on_written comes. A failure closes, also that of out.
 */
void connection_send(struct connection *connection, struct buf *body);

/* Closes now; again has no effect. */
void connection_close(struct connection *connection, const char *why);
/* What the peer sends or gets has no room: logs, closes. */
void connection_no_memory(struct connection *connection);
/* Bytes that are none of the protocol: counts, logs, closes. */
void connection_bad(struct connection *connection, const char *why);
/* In on_tick. True: it was silent for too long and is closed. */
bool connection_is_late(struct connection *connection, uint64_t now_ms);
/*
 * May a line about what the peer sent be written? All peers together get
 * CONNECTION_LINES_MAX a second; the listener tells how many were left out.
 */
MUST_CHECK bool connection_may_log(struct connection *connection);

/*
 * A frame into out: room for size bytes with its header, then encode, then
 * end. False: out has failed.
 */
MUST_CHECK bool
frame_begin(struct buf *out, size_t size, struct meter_writer *writer);
void frame_end(struct buf *out, struct meter_writer *writer,
               const struct meter_frame *frame);
/* One without payload. */
void frame_put(struct buf *out, const struct meter_frame *frame);

/* Gives back the room of an empty buf that has more than so much. */
void buf_trim(struct buf *buf, size_t room_max);

#endif
