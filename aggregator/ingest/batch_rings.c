/*
 * batch_rings.c - sessions, fates and totals, see batch_rings.h.
 *
 * The rules of judge and advance are the same walk in arrival order; judge
 * needs the locked rows only, advance the verdicts as well. Totals are 64-bit
 * and stop at the end of that range: no count that a record claims can keep
 * its session from moving on.
 */

#include "ingest/batch_rings.h"

#include "base/memory.h"
#include "ingest/batch.h"

#include <stdlib.h>

#define SESSION_COUNT_MAX ((size_t)1 << 24)

void
batch_rings_init(struct batch_rings *rings)
{
    *rings = (struct batch_rings){.record_count = 0};
    map_init(&rings->session_map, SESSION_COUNT_MAX);
}

void
batch_rings_fini(struct batch_rings *rings)
{
    map_fini(&rings->session_map);
    free(rings->sessions);
    batch_rings_init(rings);
}

void
batch_rings_clear(struct batch_rings *rings)
{
    rings->record_count = 0;
    rings->hello_count = 0;
    rings->session_count = 0;
    rings->letters = NULL;
    rings->letter_count = 0;
    rings->moved_count = 0;
    rings->settled_count = 0;
    rings->dead_count = 0;
    rings->loss_count = 0;
}

/* The session of a ring, made when it is the first one; NULL: no memory. */
static struct batch_session *
session_take(struct batch *batch, const struct batch_ring *ring)
{
    struct batch_rings *rings = &batch->rings;
    struct meter_str key = {(const char *)ring->session, BATCH_SESSION_SIZE};
    struct batch_session *session = map_find(&rings->session_map, key);

    if (session != NULL) {
        return session;
    }
    session = arena_zalloc(&batch->arena, sizeof(*session));
    if (session == NULL) {
        return NULL;
    }
    if (rings->session_count == rings->session_room) {
        rings->sessions = memory_grow(rings->sessions, &rings->session_room,
                                      rings->session_count + 1,
                                      sizeof(struct batch_session *));
    }
    session->key = key;
    if (map_add(&rings->session_map, key, session) != session) {
        return NULL;
    }
    rings->sessions[rings->session_count++] = session;
    return session;
}

/* The order of locking, the same in every process. */
static int
sessions_compare(const void *left, const void *right)
{
    const struct batch_session *a = *(struct batch_session *const *)left;
    const struct batch_session *b = *(struct batch_session *const *)right;

    return meter_str_compare(a->key, b->key);
}

/* What is rejected or gone needs no row. False: no memory. */
static bool
letter_load(struct batch *batch, struct batch_item *item)
{
    struct batch_rings *rings = &batch->rings;

    item->record->is_found = false;
    if (item->error != NULL || item->record->fate != BATCH_TAKEN) {
        return true;
    }
    if (rings->letters == NULL) {
        rings->letters = arena_alloc(
            &batch->arena, rings->record_count * sizeof(*rings->letters));
    }
    if (rings->letters == NULL) {
        return false;
    }
    rings->letters[rings->letter_count++] = item;
    return true;
}

bool
batch_rings_load(struct batch *batch)
{
    struct batch_rings *rings = &batch->rings;
    const struct batch_ring *before = NULL;

    map_clear(&rings->session_map);
    for (size_t i = 0; i < batch->count; i++) {
        struct batch_record *record = batch->items[i]->record;

        if (record == NULL) {
            continue;
        }
        if (record->ring != before) {
            record->ring->row = session_take(batch, record->ring);
            if (record->ring->row == NULL) {
                return false;
            }
            if (!record->ring->is_letters) {
                record->ring->row->node = record->ring->node;
            }
            before = record->ring;
        }
        if (record->ring->is_letters && !letter_load(batch, batch->items[i])) {
            return false;
        }
        if (record->kind == BATCH_HELLO) {
            record->ring->row->is_hello = true;
            rings->hello_count++;
        }
    }
    qsort(rings->sessions, rings->session_count, sizeof(*rings->sessions),
          sessions_compare);
    return true;
}

bool
batch_session_locked(struct batch *batch, struct meter_str session,
                     const struct batch_totals *totals)
{
    struct batch_session *row = map_find(&batch->rings.session_map, session);

    if (row == NULL || row->is_locked || totals->last_seq < 0 ||
        totals->last_seq > BATCH_SEQ_MAX) {
        return false;
    }
    row->is_locked = true;
    row->locked = *totals;
    return true;
}

bool
batch_letter_found(struct batch *batch, int64_t place)
{
    if (place < 1 || (size_t)place > batch->rings.letter_count) {
        return false;
    }
    batch->rings.letters[place - 1]->record->is_found = true;
    return true;
}

/* Gone: someone else has booked it. Rejected: nobody wants its row. */
static enum batch_fate
letter_judge(const struct batch_item *item)
{
    return item->record->is_found || item->error != NULL ? BATCH_TAKEN
                                                         : BATCH_REPLAY;
}

/* A row that is gone was there when the ring said hello. */
static enum batch_fate
record_judge(const struct batch_record *record, struct batch_session *row)
{
    if (record->kind == BATCH_HELLO) {
        row->is_gapped = false;
        if (record->seq > row->next_seq) {
            row->next_seq = record->seq;
        }
        return BATCH_TAKEN;
    }
    if (row->is_gapped) {
        return BATCH_BEHIND;
    }
    if (!row->is_locked || record->seq > row->next_seq) {
        row->is_gapped = true;
        return BATCH_GAP;
    }
    if (record->seq < row->next_seq) {
        return BATCH_REPLAY;
    }
    row->next_seq++;
    return BATCH_TAKEN;
}

bool
batch_rings_judge(struct batch *batch)
{
    struct batch_rings *rings = &batch->rings;
    bool is_same = true;

    for (size_t i = 0; i < rings->session_count; i++) {
        struct batch_session *row = rings->sessions[i];

        row->next_seq = row->locked.last_seq + 1;
        row->is_gapped = false;
    }
    for (size_t i = 0; i < batch->count; i++) {
        struct batch_record *record = batch->items[i]->record;
        enum batch_fate fate;

        if (record == NULL) {
            continue;
        }
        fate = record->ring->is_letters
                   ? letter_judge(batch->items[i])
                   : record_judge(record, record->ring->row);
        if (fate == BATCH_GAP) {
            record->ring->expected_seq = record->ring->row->next_seq;
        }
        is_same = is_same && fate == record->fate;
        record->fate = fate;
    }
    return is_same;
}

static void
total_add(int64_t *total, int64_t count)
{
    if (__builtin_add_overflow(*total, count, total)) {
        *total = INT64_MAX;
    }
}

/* The ring cannot send what lies between: it is given up. */
static void
hello_advance(struct batch_record *record, struct batch_totals *totals)
{
    record->ring->missing = 0;
    if (record->seq > totals->last_seq + 1) {
        record->ring->missing = record->seq - 1 - totals->last_seq;
        totals->last_seq = record->seq - 1;
    }
}

static void
record_advance(const struct batch_item *item, struct batch_totals *totals)
{
    const struct batch_record *record = item->record;

    CHECK(record->seq == totals->last_seq + 1);
    totals->last_seq = record->seq;
    if (record->kind == BATCH_EVENT) {
        total_add(&totals->verdicts[item->verdict], record->weight);
    } else if (item->error == NULL) {
        total_add(&totals->lost, (int64_t)record->loss.count);
    }
}

/*
 * What was counted as rejected is no more. A row that has forgotten them (it
 * was made anew) has nothing to take them from.
 */
static void
letter_settle(const struct batch_item *item, struct batch_totals *totals)
{
    const struct batch_record *record = item->record;
    int64_t *rejected = &totals->verdicts[METER_VERDICT_REJECTED];

    if (record->kind == BATCH_LOSS) {
        total_add(&totals->lost, (int64_t)record->loss.count);
        return;
    }
    total_add(&totals->verdicts[item->verdict], record->weight);
    *rejected -= record->weight < *rejected ? record->weight : *rejected;
}

bool
batch_item_is_dead(const struct batch_item *item)
{
    return item->record != NULL && item->error != NULL &&
           item->record->fate == BATCH_TAKEN && !item->record->ring->is_letters;
}

bool
batch_item_has_loss(const struct batch_item *item)
{
    const struct batch_record *record = item->record;

    if (record == NULL || record->fate != BATCH_TAKEN) {
        return false;
    }
    return record->kind == BATCH_LOSS
               ? item->error == NULL
               : record->kind == BATCH_HELLO && record->ring->missing > 0;
}

/* A taken item, told to its session. */
static void
item_advance(const struct batch_item *item, struct batch_session *row)
{
    struct batch_record *record = item->record;

    if (record->ring->is_letters) {
        if (item->error == NULL && row->is_locked) {
            letter_settle(item, &row->totals);
            row->is_settled = true;
        }
        return;
    }
    if (record->kind == BATCH_HELLO) {
        hello_advance(record, &row->totals);
    } else {
        record_advance(item, &row->totals);
    }
    row->is_moved = true;
}

/* Rows that move say all of it in one go. */
static void
sessions_count(struct batch_rings *rings)
{
    for (size_t i = 0; i < rings->session_count; i++) {
        struct batch_session *row = rings->sessions[i];

        row->is_settled = row->is_settled && !row->is_moved;
        rings->moved_count += row->is_moved;
        rings->settled_count += row->is_settled;
    }
}

void
batch_rings_advance(struct batch *batch)
{
    struct batch_rings *rings = &batch->rings;

    rings->moved_count = 0;
    rings->settled_count = 0;
    rings->dead_count = 0;
    rings->loss_count = 0;
    for (size_t i = 0; i < rings->session_count; i++) {
        rings->sessions[i]->totals = rings->sessions[i]->locked;
        rings->sessions[i]->is_moved = false;
        rings->sessions[i]->is_settled = false;
    }
    for (size_t i = 0; i < batch->count; i++) {
        const struct batch_item *item = batch->items[i];
        struct batch_record *record = item->record;
        struct batch_session *row;

        if (record == NULL) {
            continue;
        }
        row = record->ring->row;
        if (record->fate == BATCH_TAKEN) {
            item_advance(item, row);
        }
        record->ring->totals = row->totals;
        rings->dead_count += batch_item_is_dead(item);
        rings->loss_count += batch_item_has_loss(item);
    }
    sessions_count(rings);
}
