/*
 * meter_ring.c - the outbox: ring file header, records, recovery scan.
 *
 *   worker -> record -> ring file -> DATA frame -> session
 *                          |
 *                          +-> [scan] -> adopter, after a crash
 *
 * A record proves itself: aligned size, matching body size, zero padding,
 * a sequence number and a checksum over all of it. A torn write, a stale
 * record of an earlier lap and foreign bytes all fail one of these.
 */

#include "meter_ring.h"

#include "meter_field.h"
#include "meter_hash.h"

#define ALIGNMENT         8
#define HEADER_CRC_OFFSET 12
#define RECORD_CRC_OFFSET 4
#define CRC_SIZE          4
#define KIND_LAST         METER_RECORD_LOSSNOTE

enum event_field {
    EVENT_TENANT = 1, /* bytes, critical, required */
    EVENT_TYPE = 2,   /* bytes, critical, required */
    EVENT_TS = 3,     /* i64 microseconds, critical, required */
    EVENT_ID = 4,
    EVENT_CUSTOMER = 5,
    EVENT_RESOURCE = 6,
    EVENT_QUANTITY = 7,
    EVENT_COUNT = 8,     /* i64; absent: 1 */
    EVENT_FLAGS = 9,     /* u32; absent: 0 */
    EVENT_ATTRIBUTE = 10 /* pair, repeats */
};

enum loss_field {
    LOSS_COUNT = 1,  /* u64, critical, required */
    LOSS_FIRST = 2,  /* i64 microseconds */
    LOSS_LAST = 3,   /* i64 microseconds */
    LOSS_REASONS = 4 /* u32, enum meter_loss_reason */
};


/* Checksum of size bytes with the four at crc_at left out. */
static uint32_t
crc_around(const uint8_t *data, size_t size, size_t crc_at)
{
    size_t behind = crc_at + CRC_SIZE;
    uint32_t crc = meter_crc32c(0, data, crc_at);

    return meter_crc32c(crc, data + behind, size - behind);
}


/* Fills in the checksum of what was written from start on. */
static void
put_crc_around(struct meter_writer *out, size_t start, size_t crc_at)
{
    struct meter_writer field;

    if (out->failed) {
        return;
    }
    meter_writer_init(&field, out->data + start + crc_at, CRC_SIZE);
    meter_put_u32(&field,
                  crc_around(out->data + start, out->at - start, crc_at));
}


void
meter_ring_header_encode(const struct meter_ring_header *header,
                         struct meter_writer *out)
{
    size_t start = out->at;

    meter_put_u64(out, METER_RING_MAGIC);
    meter_put_u32(out, header->version);
    meter_put_u32(out, 0);
    meter_put_bytes(out, header->session, sizeof(header->session));
    meter_put_bytes(out, header->boot_id, sizeof(header->boot_id));
    meter_put_u64(out, header->file_size);
    meter_put_u64(out, header->record_offset);
    meter_put_u64(out, header->record_size);
    meter_put_u32(out, header->slot_count);
    meter_put_u32(out, header->cell_count);
    meter_put_zeros(out, METER_RING_IDENTITY_SIZE - 80);
    put_crc_around(out, start, HEADER_CRC_OFFSET);
}


/* The record area lies behind the header page, aligned, in the file. */
static bool
layout_holds(const struct meter_ring_header *header)
{
    return header->record_offset >= METER_RING_HEADER_SIZE &&
           header->record_offset % ALIGNMENT == 0 &&
           header->record_size % ALIGNMENT == 0 &&
           header->record_size >= METER_RECORD_SIZE_MAX &&
           header->record_offset <= header->file_size &&
           header->record_size <= header->file_size - header->record_offset;
}


bool
meter_ring_header_decode(struct meter_str bytes,
                         struct meter_ring_header *header)
{
    struct meter_reader reader;
    struct meter_str id;
    uint64_t magic;
    uint32_t crc;

    if (bytes.size < METER_RING_IDENTITY_SIZE) {
        return false;
    }
    meter_reader_init(&reader, bytes.data, METER_RING_IDENTITY_SIZE);
    magic = meter_get_u64(&reader);
    header->version = meter_get_u32(&reader);
    crc = meter_get_u32(&reader);
    id = meter_get_bytes(&reader, sizeof(header->session));
    memcpy(header->session, id.data, sizeof(header->session));
    id = meter_get_bytes(&reader, sizeof(header->boot_id));
    memcpy(header->boot_id, id.data, sizeof(header->boot_id));
    header->file_size = meter_get_u64(&reader);
    header->record_offset = meter_get_u64(&reader);
    header->record_size = meter_get_u64(&reader);
    header->slot_count = meter_get_u32(&reader);
    header->cell_count = meter_get_u32(&reader);
    return magic == METER_RING_MAGIC && header->version == METER_RING_VERSION &&
           crc == crc_around(reader.data, METER_RING_IDENTITY_SIZE,
                             HEADER_CRC_OFFSET) &&
           layout_holds(header);
}


size_t
meter_record_size(size_t body_size)
{
    return (METER_RING_RECORD_HEADER_SIZE + body_size + ALIGNMENT - 1) /
           ALIGNMENT * ALIGNMENT;
}


/* The header; body and padding follow, then put_crc_around. */
static void
put_record_header(struct meter_writer *out, const struct meter_record *record)
{
    meter_put_u32(out, (uint32_t)meter_record_size(record->body.size));
    meter_put_u32(out, 0);
    meter_put_u64(out, record->seq);
    meter_put_u8(out, record->kind);
    meter_put_zeros(out, 3);
    meter_put_u32(out, (uint32_t)record->body.size);
}


void
meter_record_encode(const struct meter_record *record, struct meter_writer *out)
{
    size_t start = out->at;
    size_t size;

    if (record->body.size > METER_RECORD_BODY_SIZE_MAX || record->seq == 0 ||
        record->kind > KIND_LAST) {
        out->failed = true;
        return;
    }
    size = meter_record_size(record->body.size);
    put_record_header(out, record);
    meter_put_bytes(out, record->body.data, record->body.size);
    meter_put_zeros(out,
                    size - METER_RING_RECORD_HEADER_SIZE - record->body.size);
    put_crc_around(out, start, RECORD_CRC_OFFSET);
}


size_t
meter_record_close(uint8_t *data, uint64_t seq, enum meter_record_kind kind,
                   size_t body_size)
{
    struct meter_record record = {
        .seq = seq, .kind = (uint8_t)kind, .body.size = body_size};
    size_t end = METER_RING_RECORD_HEADER_SIZE + body_size;
    size_t size = meter_record_size(body_size);
    struct meter_writer out;

    meter_writer_init(&out, data, size);
    put_record_header(&out, &record);
    memset(data + end, 0, size - end);
    out.at = size;
    put_crc_around(&out, 0, RECORD_CRC_OFFSET);
    return size;
}


void
meter_record_pad_encode(uint64_t seq, size_t size, struct meter_writer *out)
{
    struct meter_record pad = {.seq = seq, .kind = METER_RECORD_PAD};
    size_t start = out->at;

    if (size < METER_RING_RECORD_HEADER_SIZE || size % ALIGNMENT != 0 ||
        size > METER_RECORD_SIZE_MAX || seq == 0) {
        out->failed = true;
        return;
    }
    pad.body.size = size - METER_RING_RECORD_HEADER_SIZE;
    put_record_header(out, &pad);
    meter_put_zeros(out, pad.body.size);
    put_crc_around(out, start, RECORD_CRC_OFFSET);
}


static bool
all_zero(struct meter_str bytes)
{
    for (size_t i = 0; i < bytes.size; i++) {
        if (bytes.data[i] != 0) {
            return false;
        }
    }
    return true;
}


enum meter_decode
meter_record_decode(const void *data, size_t size, struct meter_record *record,
                    size_t *used)
{
    struct meter_reader reader;
    struct meter_str zeros, padding;
    uint32_t whole, crc, body_size;

    if (size < METER_RING_RECORD_HEADER_SIZE) {
        return METER_DECODE_MORE;
    }
    meter_reader_init(&reader, data, size);
    whole = meter_get_u32(&reader);
    crc = meter_get_u32(&reader);
    record->seq = meter_get_u64(&reader);
    record->kind = meter_get_u8(&reader);
    zeros = meter_get_bytes(&reader, 3);
    body_size = meter_get_u32(&reader);
    if (body_size > METER_RECORD_BODY_SIZE_MAX ||
        whole != meter_record_size(body_size) || record->seq == 0 ||
        record->kind > KIND_LAST || !all_zero(zeros)) {
        return METER_DECODE_BAD;
    }
    if (whole > size) {
        return METER_DECODE_MORE;
    }
    record->body = meter_get_bytes(&reader, body_size);
    padding = meter_get_bytes(&reader, whole - reader.at);
    if (crc != crc_around(data, whole, RECORD_CRC_OFFSET) ||
        !all_zero(padding)) {
        return METER_DECODE_BAD;
    }
    *used = whole;
    return METER_DECODE_OK;
}


void
meter_record_event_encode(const struct meter_record_event *event,
                          struct meter_writer *out)
{
    if (event->attribute_count > METER_ATTRIBUTE_COUNT_MAX) {
        out->failed = true;
        return;
    }
    meter_put_field_str(out, EVENT_TENANT | METER_TAG_CRITICAL, event->tenant);
    meter_put_field_str(out, EVENT_TYPE | METER_TAG_CRITICAL, event->type);
    meter_put_field_u64(out, EVENT_TS | METER_TAG_CRITICAL,
                        (uint64_t)event->ts_us);
    meter_put_field_optional(out, EVENT_ID, event->event_id);
    meter_put_field_optional(out, EVENT_CUSTOMER, event->customer);
    meter_put_field_optional(out, EVENT_RESOURCE, event->resource);
    meter_put_field_optional(out, EVENT_QUANTITY, event->quantity);
    if (event->count != 1) {
        meter_put_field_u64(out, EVENT_COUNT, (uint64_t)event->count);
    }
    if (event->flags != 0) {
        meter_put_field_u32(out, EVENT_FLAGS, event->flags);
    }
    for (size_t i = 0; i < event->attribute_count; i++) {
        meter_put_field_pair(out, EVENT_ATTRIBUTE, event->attributes[i].name,
                             event->attributes[i].value);
    }
}


static void
take_attribute(struct meter_field_list *list, const struct meter_field *field,
               struct meter_record_event *event)
{
    struct meter_record_attribute *attribute;

    if (event->attribute_count == METER_ATTRIBUTE_COUNT_MAX) {
        list->failed = true;
        return;
    }
    attribute = &event->attributes[event->attribute_count++];
    meter_field_pair(list, field, &attribute->name, &attribute->value);
}


static struct meter_str *
event_string(struct meter_record_event *event, uint16_t number)
{
    switch (number) {
    case EVENT_TENANT: return &event->tenant;
    case EVENT_TYPE: return &event->type;
    case EVENT_ID: return &event->event_id;
    case EVENT_CUSTOMER: return &event->customer;
    case EVENT_RESOURCE: return &event->resource;
    case EVENT_QUANTITY: return &event->quantity;
    default: return NULL;
    }
}


bool
meter_record_event_decode(struct meter_str body,
                          struct meter_record_event *event)
{
    struct meter_field_list list;
    struct meter_field field;

    /* The 8 KiB of attributes are filled in as they come. */
    memset(event, 0, offsetof(struct meter_record_event, attributes));
    event->attribute_count = 0;
    event->count = 1;
    meter_field_list_init(&list, body);
    while (meter_field_next(&list, &field)) {
        struct meter_str *string = event_string(event, field.number);

        if (string != NULL) {
            *string = meter_field_str(&list, &field);
            continue;
        }
        switch (field.number) {
        case EVENT_TS:
            event->ts_us = (int64_t)meter_field_u64(&list, &field);
            break;
        case EVENT_COUNT:
            event->count = (int64_t)meter_field_u64(&list, &field);
            break;
        case EVENT_FLAGS: event->flags = meter_field_u32(&list, &field); break;
        case EVENT_ATTRIBUTE: take_attribute(&list, &field, event); break;
        default: meter_field_unknown(&list, &field);
        }
    }
    return meter_field_list_end(&list, METER_FIELD_BIT(EVENT_TENANT) |
                                           METER_FIELD_BIT(EVENT_TYPE) |
                                           METER_FIELD_BIT(EVENT_TS));
}


void
meter_loss_encode(const struct meter_loss *loss, struct meter_writer *out)
{
    meter_put_field_u64(out, LOSS_COUNT | METER_TAG_CRITICAL, loss->count);
    meter_put_field_u64(out, LOSS_FIRST, (uint64_t)loss->first_us);
    meter_put_field_u64(out, LOSS_LAST, (uint64_t)loss->last_us);
    meter_put_field_u32(out, LOSS_REASONS, loss->reasons);
}


bool
meter_loss_decode(struct meter_str body, struct meter_loss *loss)
{
    struct meter_field_list list;
    struct meter_field field;

    memset(loss, 0, sizeof(*loss));
    meter_field_list_init(&list, body);
    while (meter_field_next(&list, &field)) {
        switch (field.number) {
        case LOSS_COUNT: loss->count = meter_field_u64(&list, &field); break;
        case LOSS_FIRST:
            loss->first_us = (int64_t)meter_field_u64(&list, &field);
            break;
        case LOSS_LAST:
            loss->last_us = (int64_t)meter_field_u64(&list, &field);
            break;
        case LOSS_REASONS:
            loss->reasons = meter_field_u32(&list, &field);
            break;
        default: meter_field_unknown(&list, &field);
        }
    }
    return meter_field_list_end(&list, METER_FIELD_BIT(LOSS_COUNT));
}


/* The cell's own flags and sums, if it has any, make way for the final. */
void
meter_record_delta_encode(struct meter_str cell_body, int64_t count,
                          struct meter_decimal quantity, uint32_t flags,
                          struct meter_writer *out)
{
    char text[METER_DECIMAL_TEXT_SIZE + 1];
    struct meter_field_list list;
    struct meter_field field;

    meter_field_list_init(&list, cell_body);
    while (meter_field_next(&list, &field)) {
        switch (field.number) {
        case EVENT_QUANTITY:
        case EVENT_COUNT: break;
        case EVENT_FLAGS: flags |= meter_field_u32(&list, &field); break;
        default:
            meter_put_field_str(
                out, field.number | (field.critical ? METER_TAG_CRITICAL : 0),
                field.value);
        }
    }
    if (!meter_field_list_end(&list, 0)) {
        out->failed = true;
        return;
    }
    meter_put_field_str(
        out, EVENT_QUANTITY,
        (struct meter_str){text, meter_decimal_format(quantity, text)});
    meter_put_field_u64(out, EVENT_COUNT, (uint64_t)count);
    if (flags != 0) {
        meter_put_field_u32(out, EVENT_FLAGS, flags);
    }
}


/* An eight-byte field of a body; `absent` where there is none. */
static int64_t
body_i64(struct meter_str body, uint16_t number, int64_t absent)
{
    struct meter_field_list list;
    struct meter_field field;

    meter_field_list_init(&list, body);
    while (meter_field_next(&list, &field)) {
        if (field.number == number) {
            int64_t value = (int64_t)meter_field_u64(&list, &field);

            return list.failed ? absent : value;
        }
    }
    return absent;
}


int64_t
meter_record_weight(const struct meter_record *record)
{
    switch (record->kind) {
    case METER_RECORD_EVENT:
    case METER_RECORD_DUPNOTE: return 1;
    case METER_RECORD_DELTA: return body_i64(record->body, EVENT_COUNT, 1);
    default: return 0;
    }
}


int64_t
meter_record_ts(const struct meter_record *record)
{
    switch (record->kind) {
    case METER_RECORD_EVENT:
    case METER_RECORD_DELTA:
    case METER_RECORD_DUPNOTE: return body_i64(record->body, EVENT_TS, 0);
    case METER_RECORD_LOSSNOTE: return body_i64(record->body, LOSS_FIRST, 0);
    default: return 0;
    }
}


/*
 * A PAD carries the sequence number of the record behind the wrap, so that
 * one of an earlier lap cannot send the scan back to the start; and it must
 * reach to the very end of the area.
 */
bool
meter_ring_scan(const uint8_t *area, size_t area_size,
                struct meter_ring_place *place, size_t bytes,
                meter_ring_visit_cb visit, void *asker)
{
    size_t begun = place->walked;

    if (place->offset > area_size || place->offset % ALIGNMENT != 0) {
        return false;
    }
    while (place->walked < area_size) {
        size_t left = area_size - place->offset;
        struct meter_record record;
        size_t used;

        if (place->walked - begun >= bytes) {
            return true;
        }
        if (left < METER_RING_RECORD_HEADER_SIZE) {
            place->walked += left; /* no room for a PAD: the wrap is implied */
            place->offset = 0;
            continue;
        }
        if (meter_record_decode(area + place->offset, left, &record, &used) !=
                METER_DECODE_OK ||
            record.seq != place->next_seq || used > area_size - place->walked) {
            break;
        }
        place->walked += used;
        if (record.kind == METER_RECORD_PAD) {
            if (used != left) {
                break;
            }
            place->offset = 0;
            continue;
        }
        visit(asker, &record, place->offset);
        place->next_seq++;
        place->offset += used;
    }
    return false;
}
