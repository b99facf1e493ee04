/*
 * meter_claim.c - the outbox of a dead owner: settled, then emitted.
 *
 *   open -> [recover] marks, counts, slots, cells -> [emit] -> records
 *
 * A claimer may die here too: every step, done again, gives the same. What
 * was counted is remembered together with its count (is_discarding,
 * torn_counted).
 */

#include "meter_outbox.h"

#include "meter_live.h"

/* What a recovered event adds to the body of its slot: flags. */
#define FLAGS_SIZE (6 + 4)


/* True: the record that was made from the entry is out. */
static bool
settle_mark(uint64_t *entry, uint64_t head)
{
    if (*entry == 0) {
        return false;
    }
    if (*entry < head) {
        return true;
    }
    meter_store(entry, 0);
    return false;
}


static void
drop_slot(struct meter_slot *slot)
{
    meter_store_u32(&slot->state, METER_SLOT_FREE);
    meter_store(&slot->operation, 0);
    meter_store(&slot->seq, 0);
}


static void
drop_cell(struct meter_cell *cell)
{
    meter_store_u32(&cell->state, 0);
    meter_store(&cell->seq, 0);
}


/*
 * Only the operation given last can have been applied without its slot
 * being freed behind it.
 */
static bool
is_applied(const struct meter_outbox *outbox, uint64_t operation)
{
    if (operation == 0 || operation != outbox->live->operation) {
        return false;
    }
    for (uint32_t i = 0; i < outbox->cells.count; i++) {
        const struct meter_cell *cell = &outbox->cells.items[i];

        if (cell->state != 0 &&
            meter_cell_current(cell)->operation == operation) {
            return true;
        }
    }
    return false;
}


/* Leaves only ANSWERED ones that have no record yet. */
static void
settle_slots(struct meter_outbox *outbox, struct meter_outbox_report *report)
{
    uint64_t head = outbox->live->head;

    for (uint32_t i = 0; i < outbox->slots.count; i++) {
        struct meter_slot *slot = &outbox->slots.items[i];

        if (slot->state == METER_SLOT_FREE) {
            if (slot->seq != 0 || slot->operation != 0) {
                drop_slot(slot);
            }
        } else if (slot->state != METER_SLOT_ANSWERED) {
            report->dropped_slots++;
            drop_slot(slot);
        } else if (settle_mark(&slot->seq, head) ||
                   is_applied(outbox, slot->operation)) {
            drop_slot(slot);
        }
    }
}


/* Leaves only open ones that have no record yet. */
static void
settle_cells(struct meter_outbox *outbox)
{
    uint64_t head = outbox->live->head;

    for (uint32_t i = 0; i < outbox->cells.count; i++) {
        struct meter_cell *cell = &outbox->cells.items[i];
        uint64_t count = meter_cell_current(cell)->count;

        if (cell->state == 0) {
            if (cell->seq != 0) {
                drop_cell(cell);
            }
        } else if (settle_mark(&cell->seq, head) || count == 0 ||
                   count > INT64_MAX) {
            drop_cell(cell);
        }
    }
}


static void
settle_loss(struct meter_outbox_live *live)
{
    if (settle_mark(&live->loss.seq, live->head)) {
        meter_store(&live->loss.loss.count, 0);
        meter_store(&live->loss.seq, 0);
    }
}


static uint64_t
sum_open(const struct meter_outbox *outbox)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < outbox->cells.count; i++) {
        const struct meter_cell *cell = &outbox->cells.items[i];

        if (cell->state != 0) {
            sum += meter_cell_current(cell)->count;
        }
    }
    return sum;
}


static uint32_t
count_answered(const struct meter_slots *slots)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < slots->count; i++) {
        count += slots->items[i].state == METER_SLOT_ANSWERED;
    }
    return count;
}


/* Another boot: nobody knows in which order the pages reached the disk. */
static void
discard_entries(struct meter_outbox *outbox, int64_t now_us,
                struct meter_outbox_report *report)
{
    struct meter_outbox_live *live = outbox->live;
    uint64_t answered = count_answered(&outbox->slots);
    uint64_t open = sum_open(outbox);

    if (live->is_discarding == 0 && answered + open > 0) {
        struct meter_outbox_live after = *live;

        report->lost_requests = answered + open;
        meter_live_lose(&after, report->lost_requests, METER_LOSS_REBOOT,
                        now_us);
        after.counts.lost += report->lost_requests;
        after.counts.seen += answered;
        after.counts.open -= open;
        after.is_discarding = 1;
        meter_live_change(live, &after);
    }
    for (uint32_t i = 0; i < outbox->slots.count; i++) {
        if (outbox->slots.items[i].state != METER_SLOT_FREE) {
            drop_slot(&outbox->slots.items[i]);
        }
    }
    for (uint32_t i = 0; i < outbox->cells.count; i++) {
        if (outbox->cells.items[i].state != 0) {
            drop_cell(&outbox->cells.items[i]);
        }
    }
    meter_store(&live->is_discarding, 0);
}


/* They stay in `recorded` until the session ends: see meter_outbox_renew. */
static void
lose_torn(struct meter_outbox_live *live, uint64_t torn, int64_t now_us)
{
    struct meter_outbox_live after = *live;

    if (torn <= live->torn_counted) {
        return;
    }
    meter_live_lose(&after, torn - live->torn_counted, METER_LOSS_TORN, now_us);
    after.torn_counted = torn;
    meter_live_change(live, &after);
}


static void
settle_counts(struct meter_outbox *outbox)
{
    struct meter_outbox_live *live = outbox->live;
    struct meter_outbox_counts *counts = &live->counts;

    meter_live_begin(live);
    if (live->recorded_head != live->head) {
        meter_store(&counts->recorded, live->recorded_next);
        meter_store(&live->recorded_head, live->head);
    }
    meter_store(&counts->open, sum_open(outbox));
    meter_store(&counts->seen, counts->filtered + counts->lost +
                                   counts->recorded + counts->open);
    meter_live_end(live);
}


/* Free ones are stacked, those to emit wait at the far end of the stack. */
static void
load_entries(struct meter_outbox *outbox)
{
    struct meter_slots *slots = &outbox->slots;

    meter_slots_load(slots);
    outbox->emit_slots = 0;
    for (uint32_t i = slots->count; i > 0; i--) {
        if (slots->items[i - 1].state == METER_SLOT_ANSWERED) {
            outbox->emit_slots++;
            slots->free[slots->count - outbox->emit_slots] = i - 1;
        }
    }
    outbox->emit_cells = meter_cells_load(&outbox->cells);
}


void
meter_outbox_recover(struct meter_outbox *outbox, const uint8_t boot_id[16],
                     int64_t now_us, struct meter_outbox_report *report)
{
    struct meter_outbox_live *live = outbox->live;
    uint64_t torn = report->torn_records;

    report->other_boot = memcmp(outbox->header.boot_id, boot_id,
                                sizeof(outbox->header.boot_id)) != 0;
    meter_live_settle(live);
    settle_slots(outbox, report);
    settle_cells(outbox);
    settle_loss(live);
    settle_counts(outbox);
    if (report->other_boot || live->is_discarding != 0) {
        discard_entries(outbox, now_us, report);
    }
    lose_torn(live, torn, now_us);
    settle_counts(outbox);
    load_entries(outbox);
    report->answered_slots = outbox->emit_slots;
    report->open_cells = outbox->emit_cells;
}


/* Only damage makes one of these. */
static void
lose_slot(struct meter_outbox *outbox)
{
    struct meter_outbox_live after = *outbox->live;

    meter_live_lose(&after, 1, METER_LOSS_TORN, outbox->live->beat_us);
    after.counts.lost++;
    after.counts.seen++;
    meter_live_change(outbox->live, &after);
}


/* False: no room. */
static bool
emit_slot(struct meter_outbox *outbox)
{
    struct meter_slots *slots = &outbox->slots;
    uint32_t index = slots->free[slots->count - outbox->emit_slots];
    struct meter_slot *slot = &slots->items[index];
    struct meter_record_event event;
    struct meter_writer out;
    uint8_t *body;

    body = meter_outbox_reserve(outbox, METER_SLOT_BODY_SIZE + FLAGS_SIZE);
    if (body == NULL) {
        return false;
    }
    if (meter_record_event_decode(meter_slot_body(slot), &event)) {
        event.flags |= METER_EVENT_RECOVERED;
        meter_writer_init(&out, body, METER_SLOT_BODY_SIZE + FLAGS_SIZE);
        meter_record_event_encode(&event, &out);
        meter_outbox_commit(outbox, METER_RECORD_EVENT, out.at, 1, true,
                            &slot->seq);
    } else {
        lose_slot(outbox);
    }
    outbox->emit_slots--;
    meter_slot_free(slots, index);
    return true;
}


uint32_t
meter_outbox_emit(struct meter_outbox *outbox)
{
    METER_CRASH_POINT("claim_before_emit");
    while (outbox->emit_slots > 0 && emit_slot(outbox)) {
        METER_CRASH_POINT("claim_mid_emit");
    }
    while (outbox->emit_slots == 0 && outbox->emit_cells > 0 &&
           meter_cell_seal_oldest(outbox)) {
        METER_CRASH_POINT("claim_mid_emit");
    }
    return outbox->emit_slots + outbox->emit_cells;
}
