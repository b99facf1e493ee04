/*
 * meter_bytes.c - bounded little-endian reader and writer.
 *
 *   frame, message, record <-> [bytes] <-> buffers of the callers
 *
 * Every bound of every codec is checked here and nowhere else: get_room and
 * put_room compare with what is left before anything is added, so no sum
 * can wrap. Integers are taken apart byte by byte; compilers make one load
 * or store of it on little-endian machines.
 */

#include "meter_bytes.h"


/* The next size bytes, or NULL and failed. */
static const uint8_t *
get_room(struct meter_reader *reader, size_t size)
{
    const uint8_t *at;

    if (reader->failed || size > reader->size - reader->at) {
        reader->failed = true;
        return NULL;
    }
    at = reader->data + reader->at;
    reader->at += size;
    return at;
}


void
meter_reader_init(struct meter_reader *reader, const void *data, size_t size)
{
    reader->data = data;
    reader->size = size;
    reader->at = 0;
    reader->failed = false;
}


uint8_t
meter_get_u8(struct meter_reader *reader)
{
    const uint8_t *at = get_room(reader, 1);

    return at == NULL ? 0 : at[0];
}


uint16_t
meter_get_u16(struct meter_reader *reader)
{
    const uint8_t *at = get_room(reader, 2);

    return at == NULL ? 0 : (uint16_t)(at[0] | at[1] << 8);
}


uint32_t
meter_get_u32(struct meter_reader *reader)
{
    const uint8_t *at = get_room(reader, 4);

    if (at == NULL) {
        return 0;
    }
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}


uint64_t
meter_get_u64(struct meter_reader *reader)
{
    const uint8_t *at = get_room(reader, 8);

    if (at == NULL) {
        return 0;
    }
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 |
           (uint64_t)at[3] << 24 | (uint64_t)at[4] << 32 |
           (uint64_t)at[5] << 40 | (uint64_t)at[6] << 48 |
           (uint64_t)at[7] << 56;
}


struct meter_str
meter_get_bytes(struct meter_reader *reader, size_t size)
{
    const uint8_t *at;

    if (size == 0 && reader->data == NULL) {
        return (struct meter_str){NULL, 0}; /* no arithmetic on NULL */
    }
    at = get_room(reader, size);
    return (struct meter_str){(const char *)at, at == NULL ? 0 : size};
}


size_t
meter_reader_left(const struct meter_reader *reader)
{
    return reader->failed ? 0 : reader->size - reader->at;
}


/* Where size bytes may be put, or NULL and failed. */
static uint8_t *
put_room(struct meter_writer *writer, size_t size)
{
    uint8_t *at;

    if (writer->failed || size > writer->size - writer->at) {
        writer->failed = true;
        return NULL;
    }
    at = writer->data + writer->at;
    writer->at += size;
    return at;
}


void
meter_writer_init(struct meter_writer *writer, void *data, size_t size)
{
    writer->data = data;
    writer->size = size;
    writer->at = 0;
    writer->failed = false;
}


void
meter_put_u8(struct meter_writer *writer, uint8_t value)
{
    uint8_t *at = put_room(writer, 1);

    if (at != NULL) {
        at[0] = value;
    }
}


void
meter_put_u16(struct meter_writer *writer, uint16_t value)
{
    uint8_t *at = put_room(writer, 2);

    if (at != NULL) {
        at[0] = (uint8_t)value;
        at[1] = (uint8_t)(value >> 8);
    }
}


void
meter_put_u32(struct meter_writer *writer, uint32_t value)
{
    uint8_t *at = put_room(writer, 4);

    if (at != NULL) {
        at[0] = (uint8_t)value;
        at[1] = (uint8_t)(value >> 8);
        at[2] = (uint8_t)(value >> 16);
        at[3] = (uint8_t)(value >> 24);
    }
}


void
meter_put_u64(struct meter_writer *writer, uint64_t value)
{
    uint8_t *at = put_room(writer, 8);

    if (at != NULL) {
        at[0] = (uint8_t)value;
        at[1] = (uint8_t)(value >> 8);
        at[2] = (uint8_t)(value >> 16);
        at[3] = (uint8_t)(value >> 24);
        at[4] = (uint8_t)(value >> 32);
        at[5] = (uint8_t)(value >> 40);
        at[6] = (uint8_t)(value >> 48);
        at[7] = (uint8_t)(value >> 56);
    }
}


void
meter_put_bytes(struct meter_writer *writer, const void *data, size_t size)
{
    uint8_t *at;

    if (size == 0) {
        return;
    }
    at = put_room(writer, size);
    if (at != NULL) {
        memcpy(at, data, size);
    }
}


void
meter_put_zeros(struct meter_writer *writer, size_t size)
{
    uint8_t *at;

    if (size == 0) {
        return;
    }
    at = put_room(writer, size);
    if (at != NULL) {
        memset(at, 0, size);
    }
}


void
meter_put_str(struct meter_writer *writer, struct meter_str str)
{
    if (str.size > UINT32_MAX) {
        writer->failed = true;
        return;
    }
    meter_put_u32(writer, (uint32_t)str.size);
    meter_put_bytes(writer, str.data, str.size);
}


/* The letter of a two-byte escape, or 0 for the \u00xx form. */
static char
escape_letter(unsigned char byte)
{
    switch (byte) {
    case '"': return '"';
    case '\\': return '\\';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
    }
}


void
meter_put_json_escaped(struct meter_writer *writer, struct meter_str str)
{
    static const char hex[] = "0123456789abcdef";
    size_t run = 0; /* where the bytes not yet written start */

    for (size_t i = 0; i < str.size; i++) {
        unsigned char byte = (unsigned char)str.data[i];
        char letter;

        if (byte >= 0x20 && byte != '"' && byte != '\\') {
            continue;
        }
        meter_put_bytes(writer, str.data + run, i - run);
        run = i + 1;
        letter = escape_letter(byte);
        if (letter != 0) {
            meter_put_u8(writer, '\\');
            meter_put_u8(writer, (uint8_t)letter);
        } else {
            meter_put_bytes(writer, "\\u00", 4);
            meter_put_u8(writer, (uint8_t)hex[byte >> 4]);
            meter_put_u8(writer, (uint8_t)hex[byte & 15]);
        }
    }
    if (run < str.size) {
        meter_put_bytes(writer, str.data + run, str.size - run);
    }
}
