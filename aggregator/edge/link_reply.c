/*
 * link_reply.c - see link_reply.h.
 */

#include "edge/link_reply.h"

/* Field heads and numbers of any message here; texts and codes aside. */
#define REPLY_FIELDS_SIZE 256

uint64_t
link_tag(const uint8_t session[16])
{
    uint64_t tag = 0;

    for (int i = 7; i >= 0; i--) {
        tag = tag << 8 | session[i];
    }
    return tag;
}

/* Room for one frame; the writer stands behind its header. */
static bool
reply_begin(struct buf *out, size_t more_size, struct meter_writer *writer)
{
    size_t size = METER_FRAME_HEADER_SIZE + REPLY_FIELDS_SIZE + more_size;
    char *room = buf_reserve(out, size);

    if (room == NULL) {
        return false;
    }
    meter_writer_init(writer, room, size);
    CHECK(meter_frame_begin(writer) == 0);
    return true;
}

static void
reply_end(struct buf *out, struct meter_writer *writer,
          const struct meter_frame *frame)
{
    meter_frame_seal(writer, 0, frame);
    CHECK(!writer->failed);
    buf_commit(out, writer->at);
}

void
link_reply_hello_ack(struct buf *out, const struct link_ring *to,
                     const struct meter_hello_ack *ack)
{
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MIN, /* by rule, whatever was chosen */
        .type = METER_FRAME_HELLO_ACK,
        .session_tag = to->tag,
    };
    struct meter_writer writer;

    if (reply_begin(out, ack->instance.size, &writer)) {
        meter_hello_ack_encode(ack, &writer);
        reply_end(out, &writer, &frame);
    }
}

void
link_reply_result(struct buf *out, const struct link_ring *to,
                  const struct meter_result *result)
{
    struct meter_result part = *result;
    struct meter_frame frame = {
        .version = to->version,
        .type = METER_FRAME_RESULT,
        .session_tag = to->tag,
    };
    struct meter_writer writer;
    size_t at = 0;

    do {
        size_t left = result->codes.size - at;

        part.first_seq = result->first_seq + at;
        part.codes.size =
            left < METER_BATCH_EVENTS_MAX ? left : METER_BATCH_EVENTS_MAX;
        part.codes.data = left == 0 ? NULL : result->codes.data + at;
        frame.seq = part.first_seq;
        frame.count = (uint32_t)part.codes.size;
        if (!reply_begin(out, part.codes.size, &writer)) {
            return;
        }
        meter_result_encode(&part, &writer);
        reply_end(out, &writer, &frame);
        at += part.codes.size;
    } while (at < result->codes.size);
}

void
link_reply_credit(struct buf *out, const struct link_ring *to,
                  uint64_t seq_limit)
{
    struct meter_frame frame = {
        .version = to->version,
        .type = METER_FRAME_CREDIT,
        .session_tag = to->tag,
    };
    struct meter_credit credit = {seq_limit};
    struct meter_writer writer;

    if (reply_begin(out, 0, &writer)) {
        meter_credit_encode(&credit, &writer);
        reply_end(out, &writer, &frame);
    }
}

void
link_reply_nack(struct buf *out, const struct link_ring *to,
                enum meter_nack_code code, uint64_t value)
{
    struct meter_frame frame = {
        .version = METER_PROTOCOL_MIN, /* VERSION comes before any choice */
        .type = METER_FRAME_NACK,
        .session_tag = to->tag,
    };
    struct meter_nack nack = {(uint8_t)code, value};
    struct meter_writer writer;

    if (reply_begin(out, 0, &writer)) {
        meter_nack_encode(&nack, &writer);
        reply_end(out, &writer, &frame);
    }
}

void
link_reply_empty(struct buf *out, const struct link_ring *to, uint8_t type,
                 uint64_t seq)
{
    struct meter_frame frame = {
        .version = to->version,
        .type = type,
        .seq = seq,
        .session_tag = to->tag,
    };
    struct meter_writer writer;

    if (reply_begin(out, 0, &writer)) {
        reply_end(out, &writer, &frame);
    }
}
