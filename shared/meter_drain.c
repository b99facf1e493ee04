/*
 * meter_drain.c - the outbox's way out: reading, acking, going back.
 *
 *   ring -> [next] -> link -> meterd -> durable -> [ack] -> room
 *     ^                          |
 *     +-------- [rewind] <-------+  it knows less than it once said
 *
 * Acked records stay where they are until they are written over, so that
 * the database may lose its last second and get it again from here.
 */

#include "meter_outbox.h"

#include "meter_live.h"

#define ALIGNMENT 8


/*
 * The record with this number, from offset on, past a wrap. Headers are
 * looked at, checksums are not: the records were verified when the ring was
 * opened, or made by this process.
 */
static bool
find_record(const struct meter_outbox *outbox, size_t *offset, uint64_t seq,
            struct meter_record *record)
{
    for (int wraps = 0; wraps < 2; wraps++) {
        size_t left = outbox->area_size - *offset;
        struct meter_reader reader;
        uint32_t size, body_size;

        if (left >= METER_RING_RECORD_HEADER_SIZE) {
            const uint8_t *at = outbox->area + *offset;

            meter_reader_init(&reader, at, METER_RING_RECORD_HEADER_SIZE);
            size = meter_get_u32(&reader);
            (void)meter_get_u32(&reader);
            record->seq = meter_get_u64(&reader);
            record->kind = meter_get_u8(&reader);
            (void)meter_get_bytes(&reader, 3);
            body_size = meter_get_u32(&reader);
            if (record->seq != seq || body_size > METER_RECORD_BODY_SIZE_MAX ||
                size != meter_record_size(body_size) || size > left) {
                return false;
            }
            if (record->kind != METER_RECORD_PAD) {
                record->body.data =
                    (const char *)at + METER_RING_RECORD_HEADER_SIZE;
                record->body.size = body_size;
                return true;
            }
        }
        *offset = 0;
    }
    return false;
}


static size_t
offset_behind(const struct meter_outbox *outbox, size_t offset,
              const struct meter_record *record)
{
    size_t end = offset + meter_record_size(record->body.size);

    return end == outbox->area_size ? 0 : end;
}


void
meter_outbox_cursor(const struct meter_outbox *outbox,
                    struct meter_outbox_cursor *cursor)
{
    cursor->seq = outbox->acked + 1;
    cursor->offset = outbox->acked_offset;
}


bool
meter_outbox_next(const struct meter_outbox *outbox,
                  struct meter_outbox_cursor *cursor, struct meter_str *bytes)
{
    struct meter_record record;

    if (cursor->seq >= outbox->head || cursor->offset >= outbox->area_size ||
        !find_record(outbox, &cursor->offset, cursor->seq, &record)) {
        return false;
    }
    bytes->data = record.body.data - METER_RING_RECORD_HEADER_SIZE;
    bytes->size = meter_record_size(record.body.size);
    cursor->offset = offset_behind(outbox, cursor->offset, &record);
    cursor->seq++;
    return true;
}


/* Stores where acked is, and what follows from it. */
static void
move_acked(struct meter_outbox *outbox, uint64_t seq, size_t offset)
{
    bool is_empty = seq + 1 == outbox->head;
    struct meter_record record;
    size_t at = offset;
    int64_t waiting_us = 0;

    outbox->acked_turn++;
    meter_live_ack(outbox->live, outbox->acked_turn, seq, offset);
    outbox->acked = seq;
    outbox->acked_offset = offset;
    outbox->used =
        meter_outbox_distance(outbox, offset, outbox->head_offset, !is_empty);
    if (!is_empty && find_record(outbox, &at, seq + 1, &record)) {
        waiting_us = meter_record_ts(&record);
    }
    meter_store_i64(&outbox->live->waiting_us, waiting_us);
    meter_store(&outbox->live->used_bytes, outbox->used);
}


void
meter_outbox_ack(struct meter_outbox *outbox, uint64_t upto)
{
    size_t offset = outbox->acked_offset;
    uint64_t seq = outbox->acked;
    struct meter_record record;

    if (upto <= outbox->acked) {
        return;
    }
    if (upto >= outbox->head - 1) {
        move_acked(outbox, outbox->head - 1, outbox->head_offset);
        return;
    }
    while (seq < upto && find_record(outbox, &offset, seq + 1, &record)) {
        offset = offset_behind(outbox, offset, &record);
        seq++;
    }
    if (seq > outbox->acked) {
        move_acked(outbox, seq, offset);
    }
}


/* ---- going back ------------------------------------------------------- */

/*
 * Follows acked records from offset on while they verify. True: they lead
 * up to the first one without ack. *until: where that, or a wrap, stopped it.
 */
static bool
leads_to_acked(const struct meter_outbox *outbox, size_t offset, uint64_t seq,
               size_t *until)
{
    size_t walked = 0;
    bool has_wrapped = false;

    *until = offset;
    while (walked < outbox->area_size - outbox->used) {
        size_t left = outbox->area_size - offset;
        struct meter_record record = {.kind = METER_RECORD_PAD};
        size_t size = left;

        if (seq == outbox->acked + 1 && offset == outbox->acked_offset) {
            return true;
        }
        if (left >= METER_RING_RECORD_HEADER_SIZE &&
            (seq > outbox->acked ||
             meter_record_decode(outbox->area + offset, left, &record, &size) !=
                 METER_DECODE_OK ||
             record.seq != seq)) {
            return false;
        }
        if (record.kind != METER_RECORD_PAD) {
            seq++;
        } else if (size != left) {
            return false;
        }
        walked += size;
        offset += size;
        if (!has_wrapped) {
            *until = offset;
        }
        if (offset == outbox->area_size) {
            offset = 0;
            has_wrapped = true;
        }
    }
    return seq == outbox->acked + 1 && offset == outbox->acked_offset;
}


/* A number that a record at this place would have; 0: none can be there. */
static uint64_t
seq_at(const struct meter_outbox *outbox, size_t offset)
{
    struct meter_reader reader;
    uint32_t size;

    meter_reader_init(&reader, outbox->area + offset,
                      METER_RING_RECORD_HEADER_SIZE);
    size = meter_get_u32(&reader);
    if (size < METER_RING_RECORD_HEADER_SIZE || size > METER_RECORD_SIZE_MAX ||
        size % ALIGNMENT != 0) {
        return 0;
    }
    (void)meter_get_u32(&reader);
    return meter_get_u64(&reader);
}


uint64_t
meter_outbox_rewind(struct meter_outbox *outbox, uint64_t last)
{
    uint64_t first = outbox->acked + 1;
    size_t first_offset = 0;
    size_t offset = 0;

    if (last >= outbox->acked) {
        return last + 1;
    }
    while (outbox->area_size - offset >= METER_RING_RECORD_HEADER_SIZE) {
        uint64_t seq = seq_at(outbox, offset);
        size_t until = offset;

        if (seq > last && seq < first &&
            leads_to_acked(outbox, offset, seq, &until)) {
            first = seq;
            first_offset = offset;
        }
        /* What was walked over holds no beginning of a better way. */
        offset = until > offset ? until : offset + ALIGNMENT;
    }
    if (first <= outbox->acked) {
        move_acked(outbox, first - 1, first_offset);
    }
    return first;
}
