/*
 * meter_frame.c - the 40-byte frame header of the link.
 *
 *   socket bytes -> [decode] -> frame -> meter_msg, records
 *   message -> [begin ... seal] -> socket bytes
 *
 * decode is a pure function of the bytes seen so far: however a stream is
 * cut into reads, the same frames come out. What encode and seal refuse is
 * just what decode would call bad.
 */

#include "meter_frame.h"

#include "meter_hash.h"

#define CRC_OFFSET 12
#define CRC_SIZE   4


const char *
meter_frame_error_text(enum meter_frame_error error)
{
    switch (error) {
    case METER_FRAME_OK: return "no error";
    case METER_FRAME_BAD_MAGIC: return "bytes that are no frame";
    case METER_FRAME_BAD_VERSION: return "unknown protocol version";
    case METER_FRAME_BAD_ZERO: return "reserved header bytes are not zero";
    case METER_FRAME_TOO_LARGE: return "payload larger than allowed";
    case METER_FRAME_BAD_COUNT: return "more entries than allowed";
    case METER_FRAME_BAD_CRC: return "checksum mismatch";
    }
    return "unknown error";
}


const char *
meter_frame_type_name(uint8_t type)
{
    static const char *const names[] = {
        [METER_FRAME_HELLO] = "HELLO",
        [METER_FRAME_HELLO_ACK] = "HELLO_ACK",
        [METER_FRAME_DATA] = "DATA",
        [METER_FRAME_RESULT] = "RESULT",
        [METER_FRAME_CREDIT] = "CREDIT",
        [METER_FRAME_NACK] = "NACK",
        [METER_FRAME_PING] = "PING",
        [METER_FRAME_PONG] = "PONG",
        [METER_FRAME_DRAIN] = "DRAIN",
        [METER_FRAME_BYE] = "BYE",
        [METER_FRAME_PUSH] = "PUSH",
        [METER_FRAME_REQUEST] = "REQUEST",
        [METER_FRAME_RESPONSE] = "RESPONSE",
        [METER_FRAME_MUX] = "MUX",
        [METER_FRAME_CANCEL] = "CANCEL",
    };

    if (type >= sizeof(names) / sizeof(names[0]) || names[type] == NULL) {
        return "?";
    }
    return names[type];
}


/* Header with its checksum field as zero, then the payload behind it. */
static uint32_t
frame_crc(const uint8_t *header, size_t payload_size)
{
    static const uint8_t zeros[CRC_SIZE];
    size_t behind = CRC_OFFSET + CRC_SIZE;
    uint32_t crc = meter_crc32c(0, header, CRC_OFFSET);

    crc = meter_crc32c(crc, zeros, CRC_SIZE);
    return meter_crc32c(crc, header + behind,
                        METER_FRAME_HEADER_SIZE - behind + payload_size);
}


/* True when the bytes seen so far can start a frame. */
static bool
magic_possible(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size && i < 4; i++) {
        if (data[i] != (uint8_t)(METER_FRAME_MAGIC >> 8 * i)) {
            return false;
        }
    }
    return true;
}


/* What is wrong with a whole header, its checksum aside. */
static enum meter_frame_error
header_check(uint8_t version, uint32_t payload_size, uint32_t count,
             uint32_t zero)
{
    if (version < METER_PROTOCOL_MIN || version > METER_PROTOCOL_MAX) {
        return METER_FRAME_BAD_VERSION;
    }
    if (zero != 0) {
        return METER_FRAME_BAD_ZERO;
    }
    if (payload_size > METER_FRAME_SIZE_MAX) {
        return METER_FRAME_TOO_LARGE;
    }
    if (count > METER_BATCH_EVENTS_MAX) {
        return METER_FRAME_BAD_COUNT;
    }
    return METER_FRAME_OK;
}


enum meter_decode
meter_frame_decode(const void *data, size_t size, struct meter_frame *frame,
                   size_t *used, size_t *need, enum meter_frame_error *error)
{
    struct meter_reader reader;
    uint32_t payload_size, crc, zero;

    *error = METER_FRAME_OK;
    if (!magic_possible(data, size)) {
        *error = METER_FRAME_BAD_MAGIC;
        return METER_DECODE_BAD;
    }
    if (size < METER_FRAME_HEADER_SIZE) {
        *need = METER_FRAME_HEADER_SIZE;
        return METER_DECODE_MORE;
    }
    meter_reader_init(&reader, data, size);
    (void)meter_get_u32(&reader);
    frame->version = meter_get_u8(&reader);
    frame->type = meter_get_u8(&reader);
    frame->flags = meter_get_u16(&reader);
    payload_size = meter_get_u32(&reader);
    crc = meter_get_u32(&reader);
    frame->seq = meter_get_u64(&reader);
    frame->count = meter_get_u32(&reader);
    zero = meter_get_u32(&reader);
    frame->session_tag = meter_get_u64(&reader);

    *error = header_check(frame->version, payload_size, frame->count, zero);
    if (*error != METER_FRAME_OK) {
        return METER_DECODE_BAD;
    }
    if (payload_size > size - METER_FRAME_HEADER_SIZE) {
        *need = METER_FRAME_HEADER_SIZE + (size_t)payload_size;
        return METER_DECODE_MORE;
    }
    if (crc != frame_crc(data, payload_size)) {
        *error = METER_FRAME_BAD_CRC;
        return METER_DECODE_BAD;
    }
    frame->payload = meter_get_bytes(&reader, payload_size);
    *used = METER_FRAME_HEADER_SIZE + (size_t)payload_size;
    return METER_DECODE_OK;
}


void
meter_frame_encode(const struct meter_frame *frame, struct meter_writer *out)
{
    size_t start = meter_frame_begin(out);

    meter_put_bytes(out, frame->payload.data, frame->payload.size);
    meter_frame_seal(out, start, frame);
}


size_t
meter_frame_begin(struct meter_writer *out)
{
    size_t start = out->at;

    meter_put_zeros(out, METER_FRAME_HEADER_SIZE);
    return start;
}


void
meter_frame_seal(struct meter_writer *out, size_t start,
                 const struct meter_frame *frame)
{
    struct meter_writer header;
    size_t payload_size;

    if (out->failed) {
        return;
    }
    payload_size = out->at - start - METER_FRAME_HEADER_SIZE;
    if (payload_size > METER_FRAME_SIZE_MAX ||
        header_check(frame->version, (uint32_t)payload_size, frame->count, 0) !=
            METER_FRAME_OK) {
        out->failed = true;
        return;
    }
    meter_writer_init(&header, out->data + start, METER_FRAME_HEADER_SIZE);
    meter_put_u32(&header, METER_FRAME_MAGIC);
    meter_put_u8(&header, frame->version);
    meter_put_u8(&header, frame->type);
    meter_put_u16(&header, frame->flags);
    meter_put_u32(&header, (uint32_t)payload_size);
    meter_put_u32(&header, 0);
    meter_put_u64(&header, frame->seq);
    meter_put_u32(&header, frame->count);
    meter_put_u32(&header, 0);
    meter_put_u64(&header, frame->session_tag);

    header.at = CRC_OFFSET;
    meter_put_u32(&header, frame_crc(out->data + start, payload_size));
}
