/*
 * batch.c - repeats, verdicts, effects and rings of one transaction.
 *
 *   items -> [load] -> known rows -> [decide] -> verdicts
 *   accepted items -> [fold] ------------------------------> rows  fast
 *   accepted items -> [collect] -> locked rows -> [apply] -> rows  careful
 *   records of rings -> locked sessions -> [judge] -> [advance] -> totals
 *
 * attempt.c drives it, ingest_check.c as far as the verdicts. One pass over
 * the items per step; the map holds one entry per distinct identity. Every
 * projection sees the same items in the same order, and an item is taken by
 * all of them or by none.
 */

#include "ingest/batch.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCH_ARENA_BLOCK ((size_t)256 << 10)
#define BATCH_ARENA_MAX   ((size_t)512 << 20)
#define BATCH_COUNT_MAX   ((size_t)1 << 24)
#define BATCH_REASON_SIZE 256

void
batch_init(struct batch *batch)
{
    memset(batch, 0, sizeof(*batch));
    map_init(&batch->identities, BATCH_COUNT_MAX);
    map_init(&batch->rings.session_map, BATCH_COUNT_MAX);
    arena_init(&batch->arena, BATCH_ARENA_BLOCK, BATCH_ARENA_MAX);
    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        batch->rows[i] = projections[i]->rows_create();
        CHECK(batch->rows[i] != NULL);
    }
}

static void
batch_rows_clear(struct batch *batch, bool is_trim)
{
    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        projections[i]->rows_clear(batch->rows[i], is_trim);
    }
}

void
batch_fini(struct batch *batch)
{
    batch_trim(batch);
    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        if (batch->rows[i] != NULL) {
            projections[i]->rows_destroy(batch->rows[i]);
            batch->rows[i] = NULL;
        }
    }
}

void
batch_trim(struct batch *batch)
{
    batch_rows_clear(batch, true);
    map_fini(&batch->identities);
    map_fini(&batch->rings.session_map);
    free(batch->rings.sessions);
    batch->rings.sessions = NULL;
    batch->rings.session_count = 0;
    batch->rings.session_room = 0;
    arena_fini(&batch->arena);
    free(batch->by_key);
    batch->by_key = NULL;
    batch->key_count = 0;
    batch->key_room = 0;
    batch->items = NULL;
    batch->count = 0;
}

size_t
batch_identity(const uint8_t key[METER_KEY_SIZE], struct meter_str scope,
               char out[BATCH_IDENTITY_SIZE_MAX])
{
    CHECK(scope.size <= METER_TENANT_SIZE_MAX);
    memcpy(out, key, METER_KEY_SIZE);
    if (scope.size > 0) {
        memcpy(out + METER_KEY_SIZE, scope.data, scope.size);
    }
    return METER_KEY_SIZE + scope.size;
}

static void
batch_item_forget(struct batch_item *item)
{
    item->first = NULL;
    item->holder = NULL;
    item->is_known = false;
    item->is_registered = false;
    item->is_same = false;
    item->first_seen_us = 0;
    item->writer_seq = 0;
    item->verdict = METER_VERDICT_REJECTED;
    item->marks = (struct projection_marks){
        .series_from = item->marks.series_from, /* its memory is used again */
    };
}

/* By key, then scope: as the registry's primary key. */
static int
batch_compare_keys(const void *left, const void *right)
{
    const struct batch_item *a = *(struct batch_item *const *)left;
    const struct batch_item *b = *(struct batch_item *const *)right;

    return meter_str_compare(a->identity, b->identity);
}

/* Time-ordered ids come that way. */
static bool
batch_keys_are_sorted(const struct batch *batch)
{
    for (size_t i = 1; i < batch->key_count; i++) {
        if (batch_compare_keys(&batch->by_key[i - 1], &batch->by_key[i]) > 0) {
            return false;
        }
    }
    return true;
}

static void
batch_add_scope(struct batch *batch, struct meter_str scope)
{
    size_t count = batch->scope_count;

    if (count > BATCH_SCOPES_MAX) {
        return;
    }
    while (count > 0) {
        if (meter_str_equal(batch->scopes[--count], scope)) {
            return;
        }
    }
    if (batch->scope_count < BATCH_SCOPES_MAX) {
        batch->scopes[batch->scope_count] = scope;
    }
    batch->scope_count++;
}

/* Nothing to count: rejected, no event at all, or not taken. */
static bool
batch_item_is_out(const struct batch_item *item)
{
    return item->error != NULL || item->event == NULL ||
           (item->record != NULL && item->record->fate != BATCH_TAKEN);
}

/* Into the batch's list of identities. False: no memory. */
static bool
batch_add(struct batch *batch, struct batch_item *item)
{
    if (item->identity.size == 0) {
        item->first = item;
        return true;
    }
    item->first = map_add(&batch->identities, item->identity, item);
    if (item->first == item) {
        batch->by_key[batch->key_count++] = item;
        batch_add_scope(batch, batch_item_scope(item));
    }
    return item->first != NULL;
}

/*
 * Rings: the rules of judge and advance are the same walk in arrival order;
 * judge needs the locked rows only, advance the verdicts as well. Totals are
 * 64-bit and stop at the end of that range: no count that a record claims can
 * keep its session from moving on.
 */

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

static bool
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
batch_load(struct batch *batch, struct batch_item **items, size_t count)
{
    CHECK(count > 0 && count <= BATCH_COUNT_MAX);
    map_clear(&batch->identities);
    batch_rows_clear(batch, false);
    arena_reset(&batch->arena);
    batch->items = items;
    batch->count = count;
    batch->key_count = 0;
    batch->scope_count = 0;
    batch->accepted_count = 0;
    batch->minted_count = 0;
    batch->audited_count = 0;
    batch->rings = (struct batch_rings){
        .sessions = batch->rings.sessions,
        .session_room = batch->rings.session_room,
        .session_map = batch->rings.session_map,
    };
    if (count > batch->key_room) {
        batch->by_key = memory_grow(batch->by_key, &batch->key_room, count,
                                    sizeof(struct batch_item *));
    }
    for (size_t i = 0; i < count; i++) {
        struct batch_item *item = items[i];

        batch_item_forget(item);
        batch->rings.record_count += item->record != NULL;
        if (!batch_item_is_out(item) && !batch_add(batch, item)) {
            return false;
        }
    }
    if (batch->rings.record_count > 0 && !batch_rings_load(batch)) {
        return false;
    }
    if (!batch_keys_are_sorted(batch)) {
        qsort(batch->by_key, batch->key_count, sizeof(*batch->by_key),
              batch_compare_keys);
    }
    return true;
}

struct batch_item *
batch_find(const struct batch *batch, const uint8_t key[METER_KEY_SIZE],
           struct meter_str scope)
{
    char identity[BATCH_IDENTITY_SIZE_MAX];
    size_t size;

    if (scope.size > METER_TENANT_SIZE_MAX) {
        return NULL;
    }
    size = batch_identity(key, scope, identity);
    return map_find(&batch->identities, (struct meter_str){identity, size});
}

/* Rows mostly come in key order, so the next key is looked at first. */
struct batch_item *
batch_find_next(const struct batch *batch, size_t *next, struct meter_str key,
                struct meter_str scope)
{
    const uint8_t *wanted = (const uint8_t *)key.data;

    while (*next < batch->key_count) {
        struct batch_item *item = batch->by_key[*next];
        int order = memcmp(batch_item_key(item), wanted, METER_KEY_SIZE);

        if (order > 0) {
            break;
        }
        ++*next;
        if (order == 0 && meter_str_equal(batch_item_scope(item), scope)) {
            return item;
        }
    }
    return batch_find(batch, wanted, scope);
}

bool
batch_item_known(struct batch *batch, struct batch_item *item,
                 const struct batch_known *known)
{
    CHECK(item->first == item);
    item->is_known = true;
    item->known_tenant = item->event->tenant;
    item->known = known->fingerprint;
    item->first_seen_us = known->first_seen_us;
    if (meter_str_equal(known->tenant, item->event->tenant)) {
        return true;
    }
    return arena_copy(&batch->arena, known->tenant, &item->known_tenant);
}

/*
 * Against the registry. Another tenant's row can only be met when ids are
 * unique over all tenants; its content is never comparable.
 */
static enum meter_verdict
batch_judge_known(const struct batch_item *item)
{
    const struct batch_item *first = item->first;

    if (!meter_str_equal(item->event->tenant, first->known_tenant)) {
        return METER_VERDICT_CONFLICT;
    }
    return meter_fingerprint_compare(&first->known, &item->fingerprint);
}

/* Against the item that is accepted under the same identity. */
static enum meter_verdict
batch_judge_repeat(const struct batch_item *item,
                   const struct batch_item *holder)
{
    if (!meter_str_equal(item->event->tenant, holder->event->tenant)) {
        return METER_VERDICT_CONFLICT;
    }
    return meter_fingerprint_compare(&holder->fingerprint, &item->fingerprint);
}

void
batch_decide(struct batch *batch, int64_t last, int64_t seen_us)
{
    batch->accepted_count = 0;
    batch->minted_count = 0;
    batch->audited_count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct batch_item *item = batch->items[i];
        struct batch_item *first = item->first;

        if (first == NULL) {
            continue;
        }
        if (first == item && !item->is_known) {
            item->verdict = METER_VERDICT_ACCEPTED;
            item->first_seen_us = seen_us;
            item->writer_seq = ++last;
            batch->accepted_count++;
            batch->minted_count += item->identity.size == 0;
            continue;
        }
        item->verdict = first->is_known ? batch_judge_known(item)
                                        : batch_judge_repeat(item, first);
        item->is_same = item->verdict == METER_VERDICT_DUPLICATE &&
                        item->fingerprint.has_body &&
                        (first->is_known ? first->known.has_body
                                         : first->fingerprint.has_body);
        item->first_seen_us = first->first_seen_us;
        batch->audited_count++;
    }
}

void
batch_item_reject(struct batch_item *item, const char *format, ...)
{
    char *reason = arena_alloc(item->arena, BATCH_REASON_SIZE);
    va_list args;

    item->verdict = METER_VERDICT_REJECTED;
    item->error = "the event cannot be stored";
    if (reason != NULL) {
        va_start(args, format);
        vsnprintf(reason, BATCH_REASON_SIZE, format, args);
        va_end(args);
        item->error = reason;
    }
}


/* Effects: accepted items and the rows of the projections. */

static struct projected
batch_item_view(struct batch_item *item)
{
    return (struct projected){
        .event = item->event,
        .effects = &item->effects,
        .writer_seq = item->writer_seq,
        .part_day = item->part_day,
        .marks = &item->marks,
        .arena = item->arena,
    };
}

static bool
batch_item_has_effect(const struct batch_item *item)
{
    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        if (item->effects.of[i] != NULL) {
            return true;
        }
    }
    return false;
}

bool
batch_needs_care(struct batch_item *const *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i]->error == NULL && items[i]->event != NULL &&
            items[i]->effects.is_careful) {
            return true;
        }
    }
    return false;
}

/* item->first: whatever is not out; who is accepted is not known yet. */
bool
batch_look(struct batch *batch, int64_t now_us)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct batch_item *item = batch->items[i];
        struct projected view = batch_item_view(item);

        for (size_t p = 0; item->first != NULL && p < PROJECTION_COUNT; p++) {
            if (item->effects.of[p] != NULL && projections[p]->look != NULL &&
                !projections[p]->look(batch->rows[p], &view, now_us)) {
                return false;
            }
        }
    }
    return true;
}

static enum projection_result
batch_fold_item(struct batch *batch, struct batch_item *item,
                const struct projection_stamp *stamp)
{
    struct projected view = batch_item_view(item);

    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        enum projection_result result = PROJECTION_OK;

        if (item->effects.of[i] != NULL) {
            result = projections[i]->fold(batch->rows[i], &view, stamp);
        }
        if (result != PROJECTION_OK) {
            return result;
        }
    }
    return PROJECTION_OK;
}

enum projection_result
batch_fold(struct batch *batch, const struct projection_stamp *stamp)
{
    enum projection_result result = PROJECTION_OK;

    for (size_t i = 0; result == PROJECTION_OK && i < batch->count; i++) {
        if (batch->items[i]->verdict == METER_VERDICT_ACCEPTED) {
            result = batch_fold_item(batch, batch->items[i], stamp);
        }
    }
    for (size_t i = 0; result == PROJECTION_OK && i < PROJECTION_COUNT; i++) {
        result = projections[i]->fold_end(batch->rows[i]);
    }
    return result;
}

bool
batch_collect(struct batch *batch, enum projection_phase phase)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct batch_item *item = batch->items[i];
        struct projected view = batch_item_view(item);

        if (item->verdict != METER_VERDICT_ACCEPTED) {
            continue;
        }
        for (size_t p = 0; p < PROJECTION_COUNT; p++) {
            if (item->effects.of[p] != NULL &&
                !projections[p]->collect(batch->rows[p], phase, &view)) {
                return false;
            }
        }
    }
    return true;
}

bool
batch_collect_fast(struct batch *batch, bool *has_states)
{
    *has_states = false;
    for (size_t p = 0; p < PROJECTION_COUNT; p++) {
        for (size_t i = 0; projections[p]->has_fast_states && i < batch->count;
             i++) {
            struct batch_item *item = batch->items[i];
            struct projected view = batch_item_view(item);

            if (item->verdict == METER_VERDICT_ACCEPTED &&
                item->effects.of[p] != NULL &&
                !projections[p]->collect(batch->rows[p], PROJECTION_STATES,
                                         &view)) {
                return false;
            }
        }
        *has_states |= projections[p]->has_fast_states &&
                       projections[p]->changed(batch->rows[p]) > 0;
    }
    return true;
}

int64_t
batch_stamp_floor(const struct batch *batch)
{
    int64_t highest = 0;

    for (size_t i = 0; i < PROJECTION_COUNT; i++) {
        int64_t floor_us = projections[i]->stamp_floor(batch->rows[i]);

        highest = floor_us > highest ? floor_us : highest;
    }
    return highest;
}

/* By all projections, or by none and a reason. */
static enum projection_apply
batch_apply_item(struct batch *batch, struct batch_item *item,
                 const struct projection_stamp *stamp)
{
    struct projected view = batch_item_view(item);
    enum projection_apply applied = PROJECTION_APPLIED;
    const char *error = NULL;
    size_t i;

    for (i = 0; i < PROJECTION_COUNT; i++) {
        if (item->effects.of[i] != NULL) {
            applied =
                projections[i]->apply(batch->rows[i], &view, stamp, &error);
        }
        if (applied != PROJECTION_APPLIED) {
            break;
        }
    }
    if (applied == PROJECTION_APPLIED) {
        return applied;
    }
    while (i > 0) {
        i--;
        if (item->effects.of[i] != NULL) {
            projections[i]->undo(batch->rows[i], &view);
        }
    }
    if (applied == PROJECTION_REJECTED) {
        batch_item_reject(item, "%s", error);
    }
    return applied;
}

/*
 * A repeat of an item that was rejected just now is the next candidate for
 * its id, as it would be had the events come one by one. When it touches a
 * row that is not locked the walk ends: the next run decides from there.
 */
bool
batch_apply(struct batch *batch, const struct projection_stamp *stamp,
            size_t *rejected)
{
    *rejected = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct batch_item *item = batch->items[i];
        enum projection_apply applied;

        if (item->first == NULL || item->first->is_known ||
            item->first->holder != NULL) {
            continue;
        }
        applied = batch_item_has_effect(item)
                      ? batch_apply_item(batch, item, stamp)
                      : PROJECTION_APPLIED;
        if (applied == PROJECTION_MISSING) {
            return *rejected > 0;
        }
        if (applied == PROJECTION_REJECTED) {
            ++*rejected;
        } else {
            item->first->holder = item;
        }
    }
    return true;
}


/* ---- rings ------------------------------------------------------------ */

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
