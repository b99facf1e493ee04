/*
 * exchange.h - one request, and where its answer goes.
 *
 *   api_conn | mux -> on_request(exchange) ... exchange_answer -> the same
 *
 * Embedded by whoever has read the request.
 */

#ifndef EDGE_EXCHANGE_H
#define EDGE_EXCHANGE_H

#include "base/buf.h"
#include "meter_msg.h"

struct exchange {
    void (*answer)(struct exchange *exchange, const struct meter_response *head,
                   struct buf *body);
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
    exchange->answer(exchange, head, body);
}

#endif
