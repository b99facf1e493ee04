/*
 * meter_field.c - tagged fields: the list inside messages and records.
 *
 *   frame payload, record body <-> [fields] <-> meter_msg, meter_record
 *
 * The rules that let either side be one version ahead are kept here once:
 * unknown and not critical is skipped, unknown and critical is bad, twice
 * is bad, a wrong size is bad.
 */

#include "meter_field.h"


void
meter_field_list_init(struct meter_field_list *list, struct meter_str bytes)
{
    meter_reader_init(&list->reader, bytes.data, bytes.size);
    list->seen = 0;
    list->failed = false;
}


bool
meter_field_next(struct meter_field_list *list, struct meter_field *field)
{
    uint16_t tag;
    uint32_t size;

    if (list->failed || meter_reader_left(&list->reader) == 0) {
        return false;
    }
    tag = meter_get_u16(&list->reader);
    size = meter_get_u32(&list->reader);
    field->value = meter_get_bytes(&list->reader, size);
    field->number = tag & (METER_TAG_CRITICAL - 1);
    field->critical = (tag & METER_TAG_CRITICAL) != 0;
    list->failed = list->reader.failed;
    return !list->failed;
}


/* Marks a field as there; false when it was there before. */
static bool
once(struct meter_field_list *list, const struct meter_field *field)
{
    uint64_t bit = METER_FIELD_BIT(field->number & METER_FIELD_NUMBER_MAX);

    if (list->seen & bit) {
        list->failed = true;
        return false;
    }
    list->seen |= bit;
    return true;
}


/* A reader over the value, when it has this size and is there once. */
static void
sized(struct meter_field_list *list, const struct meter_field *field,
      size_t size, struct meter_reader *value)
{
    meter_reader_init(value, field->value.data, field->value.size);
    if (!once(list, field) || field->value.size != size) {
        list->failed = true;
        value->failed = true;
    }
}


uint8_t
meter_field_u8(struct meter_field_list *list, const struct meter_field *field)
{
    struct meter_reader value;

    sized(list, field, 1, &value);
    return meter_get_u8(&value);
}


uint16_t
meter_field_u16(struct meter_field_list *list, const struct meter_field *field)
{
    struct meter_reader value;

    sized(list, field, 2, &value);
    return meter_get_u16(&value);
}


uint32_t
meter_field_u32(struct meter_field_list *list, const struct meter_field *field)
{
    struct meter_reader value;

    sized(list, field, 4, &value);
    return meter_get_u32(&value);
}


uint64_t
meter_field_u64(struct meter_field_list *list, const struct meter_field *field)
{
    struct meter_reader value;

    sized(list, field, 8, &value);
    return meter_get_u64(&value);
}


void
meter_field_fixed(struct meter_field_list *list,
                  const struct meter_field *field, void *out, size_t size)
{
    struct meter_reader value;
    struct meter_str bytes;

    sized(list, field, size, &value);
    bytes = meter_get_bytes(&value, size);
    if (bytes.size == size && size > 0) {
        memcpy(out, bytes.data, size);
    }
}


struct meter_str
meter_field_str(struct meter_field_list *list, const struct meter_field *field)
{
    (void)once(list, field);
    return field->value;
}


void
meter_field_pair(struct meter_field_list *list, const struct meter_field *field,
                 struct meter_str *name, struct meter_str *value)
{
    struct meter_reader pair;
    uint32_t size;

    list->seen |= METER_FIELD_BIT(field->number & METER_FIELD_NUMBER_MAX);
    meter_reader_init(&pair, field->value.data, field->value.size);
    size = meter_get_u32(&pair);
    *name = meter_get_bytes(&pair, size);
    *value = meter_get_bytes(&pair, meter_reader_left(&pair));
    if (pair.failed) {
        list->failed = true;
    }
}


void
meter_field_unknown(struct meter_field_list *list,
                    const struct meter_field *field)
{
    if (field->critical) {
        list->failed = true;
    }
}


bool
meter_field_list_end(const struct meter_field_list *list, uint64_t required)
{
    return !list->failed && (list->seen & required) == required;
}


static void
put_field_header(struct meter_writer *out, uint16_t tag, size_t size)
{
    if (size > UINT32_MAX) {
        out->failed = true;
    }
    meter_put_u16(out, tag);
    meter_put_u32(out, (uint32_t)size);
}


void
meter_put_field_u8(struct meter_writer *out, uint16_t tag, uint8_t value)
{
    put_field_header(out, tag, 1);
    meter_put_u8(out, value);
}


void
meter_put_field_u16(struct meter_writer *out, uint16_t tag, uint16_t value)
{
    put_field_header(out, tag, 2);
    meter_put_u16(out, value);
}


void
meter_put_field_u32(struct meter_writer *out, uint16_t tag, uint32_t value)
{
    put_field_header(out, tag, 4);
    meter_put_u32(out, value);
}


void
meter_put_field_u64(struct meter_writer *out, uint16_t tag, uint64_t value)
{
    put_field_header(out, tag, 8);
    meter_put_u64(out, value);
}


void
meter_put_field_str(struct meter_writer *out, uint16_t tag,
                    struct meter_str value)
{
    put_field_header(out, tag, value.size);
    meter_put_bytes(out, value.data, value.size);
}


void
meter_put_field_optional(struct meter_writer *out, uint16_t tag,
                         struct meter_str value)
{
    if (value.data != NULL) {
        meter_put_field_str(out, tag, value);
    }
}


void
meter_put_field_pair(struct meter_writer *out, uint16_t tag,
                     struct meter_str name, struct meter_str value)
{
    /* Each part first, so that the sum cannot wrap. */
    if (name.size > UINT32_MAX / 2 || value.size > UINT32_MAX / 4) {
        out->failed = true;
        return;
    }
    put_field_header(out, tag, 4 + name.size + value.size);
    meter_put_str(out, name);
    meter_put_bytes(out, value.data, value.size);
}
