/*
 * session.h - one connection on the socket: requests in, answers out.
 *
 *   listener -> [session] -> on_request ... session_answer -> socket
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

#include "base/buf.h"
#include "meter_msg.h"

#include <uv.h>

#define SESSION_IDLE_MS 30000

struct session;

struct session_events {
    /*
     * A whole request; it lives until the answer or on_cancel. The bytes
     * of body may be taken. The owner answers with session_answer, during
     * this call or later. What it returns is given to on_cancel; NULL when
     * the answer was given already.
     */
    void *(*on_request)(void *owner, struct session *session,
                        const struct meter_request *request, struct buf *body);
    /* The client is gone; no answer may be given any more. */
    void (*on_cancel)(void *owner, void *work);
    /* True: room for a body of this size. False: session_granted follows. */
    bool (*on_body)(void *owner, struct session *session, size_t size);
    /* The room on_body gave is free again (0: it gave none). */
    void (*on_body_done)(void *owner, struct session *session, size_t size);
    /* The last word: session is freed when this returns. */
    void (*on_closed)(void *owner, struct session *session);
};

/*
 * Takes the connected socket fd in any case. NULL: no memory, logged.
 * next and previous of the list are the owner's.
 */
MUST_CHECK struct session *
session_create(uv_loop_t *loop, int fd, const struct session_events *events,
               void *owner);

/* The room that on_body could not give at once. */
void session_granted(struct session *session);

/*
 * The answer to the request at hand. body's bytes move in (the buf is
 * emptied); head's body_size is set from it.
 */
void session_answer(struct session *session, const struct meter_response *head,
                    struct buf *body);

/* Closes now when no request is at hand, else after its answer. */
void session_drain(struct session *session);
/* Closes now; a request at hand is cancelled. */
void session_close(struct session *session, const char *why);
/* Closes when a deadline has passed. */
void session_tick(struct session *session, uint64_t now_ms);

/* Links for the owner's lists. */
struct session_link {
    struct session *previous;
    struct session *next;
};
struct session_link *session_link(struct session *session);
struct session_link *session_waiting_link(struct session *session);
/* The size that was asked of on_body. */
size_t session_body_size(const struct session *session);

#endif
