/*
 * meter_frame.h - the 40-byte frame header of the link.
 *
 *    0 magic u32 "MTR1"    4 version u8    5 type u8    6 flags u16
 *    8 size u32            12 crc32c u32   16 seq u64   24 count u32
 *   28 zero u32            32 session_tag u64           40 payload[size]
 *
 * Little endian. The checksum covers header (its own field as zero) and
 * payload. Every bound is checked before any addition or allocation:
 * size <= METER_FRAME_SIZE_MAX, count <= METER_BATCH_EVENTS_MAX, zero = 0.
 * A REQUEST or RESPONSE is followed by the raw body whose length its
 * message gives; that body is not part of the frame and has no checksum.
 *
 * A connection that begins with MUX, and is answered MUX, carries many
 * requests at once: seq numbers a REQUEST, its RESPONSE has the same, in any
 * order, and CANCEL takes it back. Elsewhere seq of these means nothing.
 */

#ifndef METER_FRAME_H
#define METER_FRAME_H

#include "meter_bytes.h"
#include "meter_limits.h"
#include "meter_types.h"

#define METER_FRAME_MAGIC       0x3152544du /* "MTR1" */
#define METER_FRAME_HEADER_SIZE 40
#define METER_PROTOCOL_MIN      1
#define METER_PROTOCOL_MAX      1

enum meter_frame_type {
    METER_FRAME_HELLO = 1,
    METER_FRAME_HELLO_ACK = 2,
    METER_FRAME_DATA = 3,
    METER_FRAME_RESULT = 4,
    METER_FRAME_CREDIT = 5,
    METER_FRAME_NACK = 6,
    METER_FRAME_PING = 7,
    METER_FRAME_PONG = 8,
    METER_FRAME_DRAIN = 9,
    METER_FRAME_BYE = 10,
    METER_FRAME_PUSH = 11,
    METER_FRAME_REQUEST = 12,
    METER_FRAME_RESPONSE = 13,
    METER_FRAME_MUX = 14,
    METER_FRAME_CANCEL = 15
};

enum meter_frame_flag {
    /* A receiver that does not know the type must close, not skip. */
    METER_FRAME_CRITICAL = 1 << 0
};

struct meter_frame {
    uint8_t version;
    uint8_t type;
    uint16_t flags;
    uint64_t seq;
    uint32_t count;
    uint64_t session_tag;
    struct meter_str payload; /* borrowed */
};

/* Why a frame is bad; a fixed sentence for the log. */
enum meter_frame_error {
    METER_FRAME_OK,
    METER_FRAME_BAD_MAGIC,
    METER_FRAME_BAD_VERSION,
    METER_FRAME_BAD_ZERO,
    METER_FRAME_TOO_LARGE,
    METER_FRAME_BAD_COUNT,
    METER_FRAME_BAD_CRC
};
const char *meter_frame_error_text(enum meter_frame_error error);
/* "REQUEST"; "?" for an unknown type. */
const char *meter_frame_type_name(uint8_t type);

/*
 * Takes one frame from the front of data. OK: *frame borrows from data and
 * *used bytes belong to it. MORE: *need is how many bytes a decision takes
 * in all (header first, then header and payload). BAD: *error says why.
 */
METER_MUST_CHECK enum meter_decode
meter_frame_decode(const void *data, size_t size, struct meter_frame *frame,
                   size_t *used, size_t *need, enum meter_frame_error *error);

/* Writes header and payload; the writer fails when there is no room. */
void
meter_frame_encode(const struct meter_frame *frame, struct meter_writer *out);

/*
 * Encode in place: leaves room for the header, the caller puts the payload,
 * then seal fills in header and checksum. start is the offset begin gave.
 */
size_t meter_frame_begin(struct meter_writer *out);
void meter_frame_seal(struct meter_writer *out, size_t start,
                      const struct meter_frame *frame);

#endif
