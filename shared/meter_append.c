/*
 * meter_append.c - the outbox's way in: records, and decisions without one.
 *
 *   request, slot, cell, loss -> [reserve, commit] -> ring -> drain
 *
 * The stores of an append, in this order; between any two of them the owner
 * may die:
 *
 *   body, PAD, record header, checksum    nothing points there yet
 *   guard odd, recorded_next              tell nothing while head stands
 *   entry's seq = head                    a claimer clears it again
 *   head + 1                              published; a claimer frees the
 *                                         entry, takes recorded_next
 *   recorded, seen or open                a claimer does them again
 *   recorded_head, guard even             all is counted
 */

#include "meter_outbox.h"

#include "meter_live.h"

#define LOSS_BODY_SIZE 64


/* Room for one record; `kept` bytes stay free behind it. */
static uint8_t *
reserve(struct meter_outbox *outbox, size_t body_max, size_t kept)
{
    size_t size = meter_record_size(body_max);
    size_t left = outbox->area_size - outbox->head_offset;
    size_t skipped = size > left ? left : 0;
    struct meter_writer out;

    outbox->reserved_at = SIZE_MAX;
    if (body_max > METER_RECORD_BODY_SIZE_MAX || meter_outbox_is_torn(outbox) ||
        skipped + size + kept > outbox->area_size - outbox->used) {
        return NULL;
    }
    METER_CRASH_POINT("ring_before_record");
    outbox->reserved_at = outbox->head_offset;
    outbox->reserved_max = body_max;
    if (skipped > 0) {
        outbox->reserved_at = 0;
    }
    if (skipped >= METER_RING_RECORD_HEADER_SIZE) {
        METER_STORE_POINT();
        meter_writer_init(&out, outbox->area + outbox->head_offset, skipped);
        meter_record_pad_encode(outbox->head, skipped, &out);
    }
    return outbox->area + outbox->reserved_at + METER_RING_RECORD_HEADER_SIZE;
}


uint8_t *
meter_outbox_reserve(struct meter_outbox *outbox, size_t body_max)
{
    return reserve(outbox, body_max, METER_OUTBOX_RESERVE + outbox->kept);
}


bool
meter_outbox_has_room(const struct meter_outbox *outbox, size_t count)
{
    size_t left = outbox->area_size - outbox->used;

    /* One more may be skipped at the end of the area. */
    return !meter_outbox_is_torn(outbox) && left >= METER_OUTBOX_RESERVE &&
           count < (left - METER_OUTBOX_RESERVE) / METER_RECORD_SIZE_MAX;
}


/* From guard odd to guard even: see the head comment. */
static void
publish(struct meter_outbox *outbox, uint64_t weight, bool is_seen,
        uint64_t *entry)
{
    struct meter_outbox_live *live = outbox->live;
    struct meter_outbox_counts *counts = &live->counts;
    uint64_t seq = outbox->head;

    meter_live_begin(live);
    meter_store(&live->recorded_next, counts->recorded + weight);
    if (entry != NULL) {
        meter_store(entry, seq);
    }
    METER_CRASH_POINT("ring_before_head");
    meter_store(&live->head, seq + 1);
    METER_CRASH_POINT("ring_after_head");
    meter_store(&counts->recorded, live->recorded_next);
    if (is_seen) {
        meter_add(&counts->seen, weight);
    } else {
        meter_add(&counts->open, -weight);
    }
    METER_CRASH_POINT("ring_before_counts_end");
    meter_store(&live->recorded_head, seq + 1);
    meter_live_end(live);
}


uint64_t
meter_outbox_commit(struct meter_outbox *outbox, enum meter_record_kind kind,
                    size_t body_size, uint64_t weight, bool is_seen,
                    uint64_t *entry)
{
    size_t at = outbox->reserved_at;
    uint64_t seq = outbox->head;
    size_t size, end;

    if (at == SIZE_MAX || body_size > outbox->reserved_max) {
        return 0;
    }
    outbox->reserved_at = SIZE_MAX;
    METER_CRASH_POINT("ring_mid_record");
    METER_STORE_POINT();
    size = meter_record_close(outbox->area + at, seq, kind, body_size);
    publish(outbox, weight, is_seen, entry);
    if (outbox->acked + 1 == seq) {
        struct meter_record record = {
            seq,
            (uint8_t)kind,
            {(char *)outbox->area + at + METER_RING_RECORD_HEADER_SIZE,
             body_size}};

        meter_store_i64(&outbox->live->waiting_us, meter_record_ts(&record));
    }
    end = at + size == outbox->area_size ? 0 : at + size;
    outbox->used =
        meter_outbox_distance(outbox, outbox->acked_offset, end, true);
    outbox->head_offset = end;
    outbox->head = seq + 1;
    meter_store(&outbox->live->used_bytes, outbox->used);
    return seq;
}


void
meter_outbox_filtered(struct meter_outbox *outbox)
{
    struct meter_outbox_live *live = outbox->live;

    meter_live_begin(live);
    meter_add(&live->counts.filtered, 1);
    meter_add(&live->counts.seen, 1);
    meter_live_end(live);
}


void
meter_outbox_lost(struct meter_outbox *outbox, uint64_t count,
                  enum meter_loss_reason reason, int64_t now_us)
{
    struct meter_outbox_live after = *outbox->live;

    meter_live_lose(&after, count, reason, now_us);
    after.counts.lost += count;
    after.counts.seen += count;
    meter_live_change(outbox->live, &after);
}


bool
meter_outbox_tell_loss(struct meter_outbox *outbox)
{
    struct meter_outbox_loss *entry = &outbox->live->loss;
    struct meter_writer out;
    uint8_t *body;

    if (entry->loss.count == 0) {
        return false;
    }
    body = reserve(outbox, LOSS_BODY_SIZE, 0);
    if (body == NULL) {
        return false;
    }
    meter_writer_init(&out, body, LOSS_BODY_SIZE);
    meter_loss_encode(&entry->loss, &out);
    meter_outbox_commit(outbox, METER_RECORD_LOSSNOTE, out.at, 0, true,
                        &entry->seq);
    METER_CRASH_POINT("loss_before_free");
    meter_store(&entry->loss.count, 0);
    meter_store(&entry->seq, 0);
    return true;
}
