/*
 * edge.h - what the parts of this room share: who answers requests, where
 * records of rings go, who may come.
 *
 *   nginx -> listener -> connection -> api_conn -> on_request
 *                                 +--> mux ------> on_request
 *                                 +--> link -----> intake -> ingest
 *   outbox directory --> adopt ------------------> intake -> ingest
 *
 * The daemon fills in a struct edge and owns it.
 */

#ifndef EDGE_EDGE_H
#define EDGE_EDGE_H

#include "base/log.h"
#include "config/config.h"
#include "edge/intake.h"
#include "meter_msg.h"

#include <sys/queue.h>
#include <sys/types.h>
#include <uv.h>

/* One request, and where its answer goes; embedded by who has read it. */
struct exchange {
    void (*answer)(struct exchange *exchange, const struct meter_response *head,
                   struct buf *body);
    void *work;        /* of on_request, for on_cancel */
    bool *is_answered; /* of exchange_submit under way; NULL: it is over */
};

struct exchange_events {
    /*
     * A whole request; it lives until the answer or on_cancel. The bytes
     * of body may be taken. The owner answers with exchange_answer, during
     * this call or later. What it returns is given to on_cancel; NULL when
     * the answer was given already. is_full: there is no room for it; it is
     * refused, during this call.
     */
    void *(*on_request)(void *owner, struct exchange *exchange,
                        const struct meter_request *request, struct buf *body,
                        bool is_full);
    /* The client is gone; no answer may be given any more. */
    void (*on_cancel)(void *owner, void *work);
};

/*
 * The answer, once. body's bytes move in (the buf is emptied); head's
 * body_size is set from it.
 */
static inline void
exchange_answer(struct exchange *exchange, const struct meter_response *head,
                struct buf *body)
{
    if (exchange->is_answered != NULL) {
        *exchange->is_answered = true;
        exchange->is_answered = NULL;
    }
    exchange->answer(exchange, head, body);
}

/* Who may connect and own rings: our user, root, those of limits.peers. */
struct peers {
    uid_t uids[CONFIG_PEERS_MAX + 2];
    size_t count;
};

struct edge {
    uv_loop_t *loop;
    const struct exchange_events *events;
    void *owner; /* of events */
    struct intakes intakes;
    struct peers peers;
    /* What HELLO_ACK tells a ring. */
    const struct lane *lane; /* the database's clock */
    struct meter_str instance;
    uint64_t config_version;

    /* The rest is of the listener and its connections; all zero at first. */
    bool is_draining;
    struct log_limit lines; /* about what peers send */
    size_t body_bytes;      /* of API requests that are read or worked on */
    TAILQ_HEAD(api_conns, api_conn) waiting; /* for room for a body, in order */
    bool is_granting; /* a granted request may end at once, and so on */
};

/*
 * Looks the names up; one that is unknown is logged and left out. At start and
 * at reload only: the look-up may read files.
 */
void peers_init(struct peers *peers, const struct config_users *users);
bool peers_allow(const struct peers *peers, uid_t uid);

/* Gives a whole request to its owner; the answer may free the exchange. */
void exchange_submit(const struct edge *edge, struct exchange *exchange,
                     const struct meter_request *request, struct buf *body,
                     bool is_full);
/* The client of a request that has no answer yet is gone. */
void exchange_cancel(const struct edge *edge, const struct exchange *exchange);


/* ---- the socket for nginx --------------------------------------------- */

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


/* ---- rings that nobody owns any more are drained by meterd ------------- */

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
