/*
 * fuzz_outbox.c - claiming a damaged ring file.
 *
 * The input lets an owner work and then damages the file. Oracle: whoever
 * claims it ends, never reads outside of it, delivers records that verify,
 * one number behind the other, keeps the counts in balance, and gets the
 * ring empty and into a new session.
 *
 *   u8 count, count bytes of work (see work), then damage up to the end:
 *   (u8 part, u16 where, u8 xor)
 */

#include "fuzz_check.h"

#include "meter_outbox.h"

enum { SIZE = METER_OUTBOX_SIZE_MIN, STEPS_MAX = 100000, STEP = 1000 };

struct file {
    uint8_t *map;
    void *scratch;
    struct meter_outbox outbox;
    struct meter_outbox_report report;
};

static const uint8_t session[16] = "a session";
static const uint8_t boots[2][16] = {"this boot", "an earlier boot"};


/* Verified a few bytes at a time, as by a worker that has other work. */
static enum meter_outbox_open
open_file(struct file *file)
{
    enum meter_outbox_open found =
        meter_outbox_open(&file->outbox, file->map, SIZE, file->scratch);

    if (found == METER_OUTBOX_OK) {
        while (meter_outbox_verify(&file->outbox, STEP, &file->report)) {
        }
    }
    return found;
}


static struct file *
make_file(void)
{
    static struct file file;
    struct meter_ring_header header;

    FUZZ_CHECK(meter_outbox_layout(SIZE, &header));
    if (file.map == NULL) {
        file.map = aligned_alloc(4096, SIZE);
        file.scratch = aligned_alloc(16, meter_outbox_scratch_size(&header));
    }
    memset(file.map, 0, SIZE);
    FUZZ_CHECK(meter_outbox_format(file.map, SIZE, session, boots[0]));
    FUZZ_CHECK(open_file(&file) == METER_OUTBOX_OK);
    meter_outbox_recover(&file.outbox, boots[0], 1, &file.report);
    return &file;
}


static struct meter_str
make_body(uint8_t *buffer, size_t room, uint8_t name)
{
    static struct meter_record_event event;
    struct meter_writer out;

    memset(&event, 0, offsetof(struct meter_record_event, attributes));
    event.tenant = METER_STR("t");
    event.type = METER_STR("u");
    event.resource = (struct meter_str){(const char *)&name, 1};
    event.ts_us = 1000 + name;
    event.count = 1;
    event.attribute_count = 0;
    meter_writer_init(&out, buffer, room);
    meter_record_event_encode(&event, &out);
    FUZZ_CHECK(!out.failed);
    return (struct meter_str){(const char *)buffer, out.at};
}


static void
append(struct meter_outbox *outbox, struct meter_str body, size_t size)
{
    uint8_t *at = meter_outbox_reserve(outbox, size);

    if (at != NULL) {
        memset(at, 0, size);
        memcpy(at, body.data, body.size < size ? body.size : size);
        meter_outbox_commit(outbox, METER_RECORD_EVENT, size, 1, true, NULL);
    }
}


/* Low bits choose, the others are a size or a name. */
static void
work(struct meter_outbox *outbox, uint8_t step)
{
    struct meter_slots *slots = &outbox->slots;
    uint8_t buffer[512], name = step >> 4;
    struct meter_str body = make_body(buffer, sizeof(buffer), name);
    uint32_t slot;

    switch (step & 15) {
    case 0: append(outbox, body, body.size); break;
    case 1: append(outbox, body, 270 * (size_t)name); break;
    case 2: meter_outbox_ack(outbox, outbox->acked + name); break;
    case 3: meter_outbox_ack(outbox, UINT64_MAX); break;
    case 4: (void)meter_slot_take(slots); break;
    case 5:
        slot = meter_slot_take(slots);
        if (slot != METER_SLOT_NONE) {
            FUZZ_CHECK(meter_slot_answer(slots, slot, body));
            slots->items[slot].operation =
                name % 2 == 0 ? 0 : meter_outbox_operation(outbox);
        }
        break;
    case 6: meter_slot_free(slots, name); break;
    case 7:
        (void)!meter_cell_add(outbox, body, 1000, meter_decimal_from_int(name),
                              name % 2 == 0 ? 0 : outbox->live->operation);
        break;
    case 8: meter_cell_seal(outbox, INT64_MAX); break;
    case 9: meter_outbox_lost(outbox, name, METER_LOSS_FULL, 7); break;
    case 10: meter_outbox_tell_loss(outbox); break;
    case 11: meter_outbox_filtered(outbox); break;
    case 12: (void)meter_outbox_rewind(outbox, outbox->acked / 2); break;
    case 13:
        for (int i = 0; i < 30; i++) {
            append(outbox, body, 3000);
        }
        break;
    default:
        if (meter_outbox_is_drained(outbox)) {
            meter_outbox_renew(outbox, session, boots[0]);
        }
    }
}


static void
damage(struct file *file, const uint8_t *data, size_t size)
{
    const struct meter_ring_header *header = &file->outbox.header;
    const size_t cells =
        METER_RING_HEADER_SIZE + (size_t)header->slot_count * METER_SLOT_SIZE;
    const size_t starts[4] = {0, METER_RING_HEADER_SIZE, cells,
                              header->record_offset};

    for (size_t at = 0; size - at >= 4; at += 4) {
        size_t where = data[at + 1] | (size_t)data[at + 2] << 8;

        switch (data[at] & 3) {
        case 0: where %= METER_RING_HEADER_SIZE; break;
        case 3: where *= 2 + (data[at] >> 7); break;
        default: break;
        }
        where += starts[data[at] & 3];
        file->map[where % SIZE] ^= data[at + 3];
    }
}


static void
check_counts(const struct meter_outbox *outbox)
{
    const struct meter_outbox_counts *counts = &outbox->live->counts;

    FUZZ_CHECK(counts->seen == counts->filtered + counts->lost +
                                   counts->recorded + counts->open);
    FUZZ_CHECK(outbox->live->guard % 2 == 0);
    FUZZ_CHECK(outbox->used <= outbox->area_size);
}


/* Everything between acked and head, then all of it acked. */
static void
drain(struct meter_outbox *outbox)
{
    struct meter_outbox_cursor cursor;
    uint64_t seq = outbox->acked;
    struct meter_str bytes;

    meter_outbox_cursor(outbox, &cursor);
    while (meter_outbox_next(outbox, &cursor, &bytes)) {
        struct meter_record record;
        size_t used;

        FUZZ_CHECK(bytes.data >= (const char *)outbox->area);
        FUZZ_CHECK(bytes.data + bytes.size <=
                   (const char *)outbox->area + outbox->area_size);
        FUZZ_CHECK(meter_record_decode(bytes.data, bytes.size, &record,
                                       &used) == METER_DECODE_OK);
        FUZZ_CHECK(used == bytes.size && record.kind != METER_RECORD_PAD);
        FUZZ_CHECK(record.seq == ++seq);
    }
    FUZZ_CHECK(seq + 1 == outbox->head);
    meter_outbox_ack(outbox, seq);
    FUZZ_CHECK(outbox->acked == seq && outbox->used == 0);
}


/* As an adopter does it, to the very end. */
static void
adopt(struct file *file, const uint8_t *boot_id, bool goes_back)
{
    struct meter_outbox *outbox = &file->outbox;
    struct meter_outbox_live copy;
    int steps = 0;

    meter_outbox_recover(outbox, boot_id, 5, &file->report);
    check_counts(outbox);
    FUZZ_CHECK(meter_outbox_snapshot(file->map, &copy));
    drain(outbox);
    if (meter_outbox_is_torn(outbox)) {
        FUZZ_CHECK(meter_outbox_is_drained(outbox));
        meter_outbox_renew(outbox, session, boot_id);
    }
    while (meter_outbox_emit(outbox) > 0 || meter_outbox_tell_loss(outbox)) {
        drain(outbox);
        FUZZ_CHECK(++steps < STEPS_MAX);
    }
    drain(outbox);
    check_counts(outbox);
    FUZZ_CHECK(meter_outbox_is_drained(outbox));
    FUZZ_CHECK(outbox->live->counts.open == 0);
    if (goes_back) {
        (void)meter_outbox_rewind(outbox, 0);
        drain(outbox);
    }
    meter_outbox_renew(outbox, session, boot_id);
    FUZZ_CHECK(open_file(file) == METER_OUTBOX_OK);
    FUZZ_CHECK(outbox->head == 1 && !meter_outbox_is_torn(outbox));
    FUZZ_CHECK(meter_outbox_is_drained(outbox));
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct file *file;
    size_t count;

    if (size < 2) {
        return 0;
    }
    file = make_file();
    count = data[0] < size - 1 ? data[0] : size - 1;
    for (size_t i = 1; i <= count; i++) {
        work(&file->outbox, data[i]);
        FUZZ_CHECK(!meter_outbox_is_torn(&file->outbox));
    }
    damage(file, data + 1 + count, size - 1 - count);
    switch (open_file(file)) {
    case METER_OUTBOX_OK:
        adopt(file, boots[data[0] & 1], (data[0] & 6) == 6);
        break;
    case METER_OUTBOX_UNFINISHED:
        FUZZ_CHECK(meter_outbox_format(file->map, SIZE, session, boots[0]));
        FUZZ_CHECK(open_file(file) == METER_OUTBOX_OK);
        adopt(file, boots[0], false);
        break;
    default: break;
    }
    return 0;
}
