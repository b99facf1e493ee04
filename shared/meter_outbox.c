/*
 * meter_outbox.c - a mapped ring file at work: layout, opening, sessions.
 *
 *   zeros -> [format] -> file -> [open] -> claim -> append -> drain
 *                         ^                                     |
 *                         +--------------- [renew] <------------+
 *
 * The first one to open a file after its owner trusts the identity, head,
 * acked and then only records that verify.
 */

#include "meter_outbox.h"

#include "meter_live.h"

#define ALIGNMENT      8
#define SCRATCH_ALIGN  16
#define SLOT_COUNT_MAX 8192
#define CELL_COUNT_MAX 16384


/* ---- the file --------------------------------------------------------- */

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}


static uint64_t
cells_offset(const struct meter_ring_header *header)
{
    return METER_RING_HEADER_SIZE +
           (uint64_t)header->slot_count * METER_SLOT_SIZE;
}


static uint64_t
records_offset(const struct meter_ring_header *header)
{
    return cells_offset(header) +
           (uint64_t)header->cell_count * METER_CELL_SIZE;
}


bool
meter_outbox_layout(uint64_t file_size, struct meter_ring_header *header)
{
    if (file_size < METER_OUTBOX_SIZE_MIN ||
        file_size > METER_OUTBOX_SIZE_MAX) {
        return false;
    }
    memset(header, 0, sizeof(*header));
    header->version = METER_RING_VERSION;
    header->file_size = file_size;
    header->slot_count =
        (uint32_t)smaller(SLOT_COUNT_MAX, file_size / 4 / METER_SLOT_SIZE);
    header->cell_count =
        (uint32_t)smaller(CELL_COUNT_MAX, file_size / 8 / METER_CELL_SIZE);
    header->record_offset = records_offset(header);
    header->record_size =
        (file_size - header->record_offset) / ALIGNMENT * ALIGNMENT;
    return true;
}


static size_t
bucket_count(const struct meter_ring_header *header)
{
    size_t count = 1;

    while (count < header->cell_count) {
        count *= 2;
    }
    return count;
}


/* Takes count words off scratch; NULL only counts. */
static uint32_t *
take_words(uint8_t *scratch, size_t *at, size_t count)
{
    size_t start = *at;

    *at += (count * sizeof(uint32_t) + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN *
           SCRATCH_ALIGN;
    return scratch == NULL ? NULL : (uint32_t *)(void *)(scratch + start);
}


static size_t
bind_scratch(const struct meter_ring_header *header, uint8_t *scratch,
             struct meter_slots *slots, struct meter_cells *cells)
{
    size_t buckets = bucket_count(header);
    size_t at = 0;

    slots->free = take_words(scratch, &at, header->slot_count);
    cells->free = take_words(scratch, &at, header->cell_count);
    cells->chain = take_words(scratch, &at, header->cell_count);
    cells->older = take_words(scratch, &at, header->cell_count);
    cells->newer = take_words(scratch, &at, header->cell_count);
    cells->buckets = take_words(scratch, &at, buckets);
    cells->bucket_mask = (uint32_t)buckets - 1;
    return at;
}


size_t
meter_outbox_scratch_size(const struct meter_ring_header *header)
{
    struct meter_slots slots;
    struct meter_cells cells;

    return bind_scratch(header, NULL, &slots, &cells);
}


/*
 * Everything of a session's beginning but its counts. The file is FORMATTING
 * meanwhile: whoever finds it so does this again. The records go on where
 * the last session's ended, so that an old page, come back after a power
 * failure, does not hold the numbers expected in that place.
 */
static void
begin_session(uint8_t *map, const struct meter_ring_header *header,
              uint64_t offset)
{
    struct meter_outbox_live *live = meter_live_of(map);
    uint8_t identity[METER_RING_IDENTITY_SIZE];
    struct meter_writer out;

    meter_writer_init(&out, identity, sizeof(identity));
    meter_ring_header_encode(header, &out);
    METER_STORE_POINT();
    memcpy(map, identity, sizeof(identity) / 2);
    METER_CRASH_POINT("renew_mid");
    METER_STORE_POINT();
    memcpy(map + sizeof(identity) / 2, identity + sizeof(identity) / 2,
           sizeof(identity) / 2);
    meter_store(&live->head, 1);
    meter_store(&live->recorded_head, 1);
    meter_store(&live->torn_counted, 0);
    meter_live_ack(live, 2, 0, offset);
    meter_live_ack(live, 3, 0, offset);
    meter_store_i64(&live->waiting_us, 0);
    meter_store(&live->used_bytes, 0);
    meter_store(&live->busy, METER_OUTBOX_BUSY);
}


static bool
is_zero(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] != 0) {
            return false;
        }
    }
    return true;
}


/*
 * What is zero already is not written: a new file would get 16 MB of dirty
 * pages for nothing.
 */
static void
clear_bytes(void *data, size_t size)
{
    if (!is_zero(data, size)) {
        memset(data, 0, size);
    }
}


/* Whatever the map held before is nothing now. */
static void
clear(uint8_t *map, const struct meter_ring_header *header)
{
    struct meter_slot *slots = (void *)(map + METER_RING_HEADER_SIZE);
    struct meter_cell *cells = (void *)(map + cells_offset(header));

    memset(map, 0, METER_RING_HEADER_SIZE);
    for (uint32_t i = 0; i < header->slot_count; i++) {
        clear_bytes(&slots[i], offsetof(struct meter_slot, body));
    }
    for (uint32_t i = 0; i < header->cell_count; i++) {
        clear_bytes(&cells[i], offsetof(struct meter_cell, body));
    }
}


bool
meter_outbox_format(void *map, size_t size, const uint8_t session[16],
                    const uint8_t boot_id[16])
{
    struct meter_outbox_live *live = meter_live_of(map);
    struct meter_outbox_acked acked = {0};
    struct meter_ring_header header;

    if (!meter_outbox_layout(size, &header)) {
        return false;
    }
    memcpy(header.session, session, sizeof(header.session));
    memcpy(header.boot_id, boot_id, sizeof(header.boot_id));
    if (live->busy != METER_OUTBOX_FORMATTING) {
        clear(map, &header);
        meter_store(&live->busy, METER_OUTBOX_FORMATTING);
    } else if (!meter_live_acked(live, &acked) ||
               acked.offset >= header.record_size ||
               acked.offset % ALIGNMENT != 0) {
        acked.offset = 0;
    }
    begin_session(map, &header, acked.offset);
    return true;
}


/* ---- opening ---------------------------------------------------------- */

static enum meter_outbox_open
identify(const uint8_t *map, size_t size, struct meter_ring_header *header)
{
    struct meter_str bytes = {(const char *)map, METER_RING_IDENTITY_SIZE};
    const struct meter_outbox_live *live =
        (const void *)(map + METER_OUTBOX_LIVE_OFFSET);
    struct meter_reader reader;
    uint64_t magic;
    uint32_t version;

    if (size < METER_OUTBOX_SIZE_MIN || size > METER_OUTBOX_SIZE_MAX) {
        return METER_OUTBOX_FOREIGN;
    }
    meter_reader_init(&reader, map, METER_RING_IDENTITY_SIZE);
    magic = meter_get_u64(&reader);
    version = meter_get_u32(&reader);
    if (magic == METER_RING_MAGIC && version != METER_RING_VERSION &&
        version != 0) {
        return METER_OUTBOX_VERSION;
    }
    if (live->busy == METER_OUTBOX_FORMATTING &&
        (magic == METER_RING_MAGIC || magic == 0)) {
        return METER_OUTBOX_UNFINISHED;
    }
    if (!meter_ring_header_decode(bytes, header)) {
        return is_zero(map, METER_RING_HEADER_SIZE) ? METER_OUTBOX_UNFINISHED
                                                    : METER_OUTBOX_FOREIGN;
    }
    if (header->file_size != size || header->slot_count > SLOT_COUNT_MAX ||
        header->cell_count > CELL_COUNT_MAX ||
        header->record_offset != records_offset(header)) {
        return METER_OUTBOX_FOREIGN;
    }
    return METER_OUTBOX_OK;
}


static void
bind(struct meter_outbox *outbox, uint8_t *scratch)
{
    const struct meter_ring_header *header = &outbox->header;
    uint8_t *map = outbox->map;

    outbox->live = meter_live_of(map);
    outbox->area = map + header->record_offset;
    outbox->area_size = header->record_size;
    outbox->reserved_at = SIZE_MAX;
    outbox->slots.items = (void *)(map + METER_RING_HEADER_SIZE);
    outbox->slots.count = header->slot_count;
    outbox->cells.items = (void *)(map + cells_offset(header));
    outbox->cells.count = header->cell_count;
    bind_scratch(header, scratch, &outbox->slots, &outbox->cells);
}


static void
visit_published(void *asker, const struct meter_record *record, size_t offset)
{
    struct meter_outbox *outbox = asker;
    size_t end = offset + meter_record_size(record->body.size);

    if (record->seq >= outbox->live->head) {
        return; /* whole, but never published */
    }
    if (record->seq == outbox->acked + 1) {
        meter_store_i64(&outbox->live->waiting_us, meter_record_ts(record));
    }
    outbox->head = record->seq + 1;
    outbox->head_offset = end == outbox->area_size ? 0 : end;
}


/* False: there is no telling where the records are. */
static bool
find_acked(struct meter_outbox *outbox)
{
    struct meter_outbox_acked acked;

    if (!meter_live_acked(outbox->live, &acked) ||
        acked.offset >= outbox->area_size || acked.offset % ALIGNMENT != 0 ||
        acked.seq == UINT64_MAX) {
        return false;
    }
    outbox->acked = acked.seq;
    outbox->acked_offset = acked.offset;
    outbox->acked_turn = acked.turn;
    outbox->head = acked.seq + 1;
    outbox->head_offset = acked.offset;
    outbox->verified = (struct meter_ring_place){.offset = acked.offset,
                                                 .next_seq = acked.seq + 1};
    return true;
}


enum meter_outbox_open
meter_outbox_open(struct meter_outbox *outbox, void *map, size_t size,
                  void *scratch)
{
    enum meter_outbox_open found;

    memset(outbox, 0, sizeof(*outbox));
    outbox->map = map;
    outbox->size = size;
    found = identify(map, size, &outbox->header);
    if (found != METER_OUTBOX_OK) {
        return found;
    }
    bind(outbox, scratch);
    return find_acked(outbox) ? METER_OUTBOX_OK : METER_OUTBOX_FOREIGN;
}


bool
meter_outbox_verify(struct meter_outbox *outbox, size_t bytes,
                    struct meter_outbox_report *report)
{
    uint64_t head = outbox->live->head;

    if (outbox->verified.walked == 0) {
        memset(report, 0, sizeof(*report));
        meter_store_i64(&outbox->live->waiting_us, 0);
    }
    if (meter_ring_scan(outbox->area, outbox->area_size, &outbox->verified,
                        bytes, visit_published, outbox)) {
        return true;
    }
    outbox->used =
        meter_outbox_distance(outbox, outbox->acked_offset, outbox->head_offset,
                              outbox->head > outbox->acked + 1);
    meter_store(&outbox->live->used_bytes, outbox->used);
    if (head > outbox->head) {
        /* A head that no ring of this size can have is damaged itself. */
        report->torn_records =
            smaller(head - outbox->head,
                    outbox->area_size / METER_RING_RECORD_HEADER_SIZE);
    }
    meter_slots_load(&outbox->slots);
    outbox->emit_cells = meter_cells_load(&outbox->cells);
    return false;
}


bool
meter_outbox_is_torn(const struct meter_outbox *outbox)
{
    return outbox->head != outbox->live->head;
}


bool
meter_outbox_is_drained(const struct meter_outbox *outbox)
{
    if (outbox->acked + 1 != outbox->head) {
        return false;
    }
    return meter_outbox_is_torn(outbox) ||
           (outbox->slots.free_count == outbox->slots.count &&
            !meter_cell_is_any_open(outbox) &&
            outbox->live->loss.loss.count == 0);
}


static void
add_counts(struct meter_outbox_counts *to, const struct meter_outbox_counts *by)
{
    to->seen += by->seen;
    to->filtered += by->filtered;
    to->lost += by->lost;
    to->recorded += by->recorded;
    to->open += by->open;
}


/* Open cells stay with the session to come. */
static void
fold_counts(struct meter_outbox_live *live)
{
    struct meter_outbox_live after = *live;
    struct meter_outbox_counts ended = live->counts;
    uint64_t told = 0;

    for (int i = 0; i < METER_VERDICT_COUNT; i++) {
        told += live->verdicts[i];
        after.past_verdicts[i] += live->verdicts[i];
        after.verdicts[i] = 0;
    }
    if (told < ended.recorded) {
        ended.lost += ended.recorded - told;
        ended.recorded = told;
    }
    ended.seen -= ended.open;
    ended.open = 0;
    add_counts(&after.past, &ended);
    after.counts = (struct meter_outbox_counts){.seen = live->counts.open,
                                                .open = live->counts.open};
    meter_live_change(live, &after);
}


void
meter_outbox_renew(struct meter_outbox *outbox, const uint8_t session[16],
                   const uint8_t boot_id[16])
{
    struct meter_ring_header *header = &outbox->header;

    fold_counts(outbox->live);
    memcpy(header->session, session, sizeof(header->session));
    memcpy(header->boot_id, boot_id, sizeof(header->boot_id));
    meter_store(&outbox->live->busy, METER_OUTBOX_FORMATTING);
    begin_session(outbox->map, header, outbox->acked_offset);
    outbox->head = 1;
    outbox->head_offset = outbox->acked_offset;
    outbox->acked = 0;
    outbox->acked_turn = 3;
    outbox->used = 0;
    outbox->reserved_at = SIZE_MAX;
}
