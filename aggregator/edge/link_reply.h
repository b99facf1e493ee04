/*
 * link_reply.h - what meterd says to a ring, as frames behind each other in
 * a buf. Pure.
 */

#ifndef EDGE_LINK_REPLY_H
#define EDGE_LINK_REPLY_H

#include "base/buf.h"
#include "meter_msg.h"

/* The tag of a session's frames: its first eight bytes, little endian. */
uint64_t link_tag(const uint8_t session[16]);

/* What every frame to one ring carries. */
struct link_ring {
    uint64_t tag;
    uint8_t version; /* the one chosen; HELLO_ACK and NACK go in the lowest */
};

/* The buf fails when there is no room. */
void link_reply_hello_ack(struct buf *out, const struct link_ring *to,
                          const struct meter_hello_ack *ack);
/* Several frames where one cannot hold all codes. */
void link_reply_result(struct buf *out, const struct link_ring *to,
                       const struct meter_result *result);
void link_reply_credit(struct buf *out, const struct link_ring *to,
                       uint64_t seq_limit);
void link_reply_nack(struct buf *out, const struct link_ring *to,
                     enum meter_nack_code code, uint64_t value);
/* PONG with the PING's number, DRAIN, BYE. */
void link_reply_empty(struct buf *out, const struct link_ring *to, uint8_t type,
                      uint64_t seq);

#endif
