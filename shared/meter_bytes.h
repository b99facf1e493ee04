/*
 * meter_bytes.h - bounded little-endian reader and writer.
 *
 * Both carry a sticky `failed`: put, put, put, check once. A failed reader
 * returns zeros and empty strings and never moves; a failed writer drops
 * what it is given. Neither allocates. No struct is memcpy'ed to the wire.
 */

#ifndef METER_BYTES_H
#define METER_BYTES_H

#include "meter_types.h"

struct meter_reader {
    const uint8_t *data;
    size_t size;
    size_t at;
    bool failed;
};

struct meter_writer {
    uint8_t *data;
    size_t size; /* room */
    size_t at;   /* written */
    bool failed;
};

void
meter_reader_init(struct meter_reader *reader, const void *data, size_t size);
uint8_t meter_get_u8(struct meter_reader *reader);
uint16_t meter_get_u16(struct meter_reader *reader);
uint32_t meter_get_u32(struct meter_reader *reader);
uint64_t meter_get_u64(struct meter_reader *reader);
/* The next size bytes, borrowed from the reader's data. */
struct meter_str meter_get_bytes(struct meter_reader *reader, size_t size);
size_t meter_reader_left(const struct meter_reader *reader);

void meter_writer_init(struct meter_writer *writer, void *data, size_t size);
void meter_put_u8(struct meter_writer *writer, uint8_t value);
void meter_put_u16(struct meter_writer *writer, uint16_t value);
void meter_put_u32(struct meter_writer *writer, uint32_t value);
void meter_put_u64(struct meter_writer *writer, uint64_t value);
void
meter_put_bytes(struct meter_writer *writer, const void *data, size_t size);
void meter_put_zeros(struct meter_writer *writer, size_t size);
/* u32 length, then the bytes: the injective form used in hashed tuples. */
void meter_put_str(struct meter_writer *writer, struct meter_str str);

/*
 * The inside of a canonical JSON string, without its quotes: \" \\ \b \f
 * \n \r \t, \u00xx for other bytes below 0x20, everything else as it is.
 * At most 6 bytes for each one; pieces may be escaped one by one.
 */
#define METER_JSON_ESCAPED_SIZE(size) ((size)*6)
void meter_put_json_escaped(struct meter_writer *writer, struct meter_str str);

#endif
