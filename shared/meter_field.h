/*
 * meter_field.h - tagged fields: the list inside messages and records.
 *
 *   tag u16 | size u32 | size bytes        and the next one behind it
 *
 * The high bit of a tag marks the field critical; the other 15 bits are its
 * number, 1..63, unique within one kind of message. A known number is taken
 * with or without the bit. The reader keeps which numbers it has seen: one
 * that may not repeat and does, or one whose size is wrong, fails the list.
 */

#ifndef METER_FIELD_H
#define METER_FIELD_H

#include "meter_bytes.h"

#define METER_TAG_CRITICAL      0x8000
#define METER_FIELD_HEADER_SIZE 6
#define METER_FIELD_NUMBER_MAX  63

struct meter_field {
    uint16_t number;
    bool critical;
    struct meter_str value; /* borrowed */
};

struct meter_field_list {
    struct meter_reader reader;
    uint64_t seen; /* one bit for each number */
    bool failed;
};

void
meter_field_list_init(struct meter_field_list *list, struct meter_str bytes);

/* False at the end and after a failure. */
METER_MUST_CHECK bool
meter_field_next(struct meter_field_list *list, struct meter_field *field);

/* Each takes one field that must not repeat, of exactly that size. */
uint8_t
meter_field_u8(struct meter_field_list *list, const struct meter_field *field);
uint16_t
meter_field_u16(struct meter_field_list *list, const struct meter_field *field);
uint32_t
meter_field_u32(struct meter_field_list *list, const struct meter_field *field);
uint64_t
meter_field_u64(struct meter_field_list *list, const struct meter_field *field);
void meter_field_fixed(struct meter_field_list *list,
                       const struct meter_field *field, void *out, size_t size);
/* Any size; never NULL, so that empty and absent differ. */
struct meter_str
meter_field_str(struct meter_field_list *list, const struct meter_field *field);
/* May repeat: u32 length and name, then the value up to the end. */
void
meter_field_pair(struct meter_field_list *list, const struct meter_field *field,
                 struct meter_str *name, struct meter_str *value);

/* A number the message does not know: fails the list when critical. */
void meter_field_unknown(struct meter_field_list *list,
                         const struct meter_field *field);

/* True: the list ended well and every number in the mask was there. */
#define METER_FIELD_BIT(number) (UINT64_C(1) << (number))
METER_MUST_CHECK bool
meter_field_list_end(const struct meter_field_list *list, uint64_t required);

/* Writers; tag is a number, with METER_TAG_CRITICAL or without. */
void meter_put_field_u8(struct meter_writer *out, uint16_t tag, uint8_t value);
void
meter_put_field_u16(struct meter_writer *out, uint16_t tag, uint16_t value);
void
meter_put_field_u32(struct meter_writer *out, uint16_t tag, uint32_t value);
void
meter_put_field_u64(struct meter_writer *out, uint16_t tag, uint64_t value);
void meter_put_field_str(struct meter_writer *out, uint16_t tag,
                         struct meter_str value);
/* Nothing at all when data is NULL. */
void meter_put_field_optional(struct meter_writer *out, uint16_t tag,
                              struct meter_str value);
void meter_put_field_pair(struct meter_writer *out, uint16_t tag,
                          struct meter_str name, struct meter_str value);

#endif
