/*
 * projection_fake.h - projections without a database, for the tests of
 * batches: each adds up steps per row, refuses to pass a limit, and notes
 * which items it saw in which order. Takes the place of project/projection.c.
 */

#ifndef UNIT_PROJECTION_FAKE_H
#define UNIT_PROJECTION_FAKE_H

#include "project/projection.h"

#include <stdlib.h>

#define FAKE_ROWS 8
#define FAKE_SEEN 600

struct fake_effect {
    size_t row;
    int64_t delta;
    bool is_careful;
};

struct fake_rows {
    int64_t values[FAKE_ROWS];
    bool is_locked[FAKE_ROWS];
    const struct meter_event *seen[FAKE_SEEN];
    int64_t seqs[FAKE_SEEN];
    size_t seen_count;
    size_t state_count; /* collected for the phase STATES */
};

/* What the rows hold before a batch, how far they may go, their times. */
static int64_t fake_start[PROJECTION_COUNT][FAKE_ROWS];
static int64_t fake_limit = INT64_MAX;
static int64_t fake_floor_us[PROJECTION_COUNT];
static bool fake_is_short; /* collect leaves row 0 out */

static void *
fake_create(void)
{
    return calloc(1, sizeof(struct fake_rows));
}

static void
fake_clear(void *rows, bool is_trim)
{
    (void)is_trim;
    memset(rows, 0, sizeof(struct fake_rows));
}

static void
fake_see(struct fake_rows *rows, const struct projected *item)
{
    rows->seqs[rows->seen_count] = item->writer_seq;
    rows->seen[rows->seen_count++] = item->event;
}

static size_t
fake_changed(const void *data)
{
    const struct fake_rows *rows = data;

    return rows->state_count;
}

static enum projection_result
fake_fold_end(void *rows)
{
    (void)rows;
    return PROJECTION_OK;
}

/* One set of functions for each place in the table. */
#define FAKE_PROJECTION(place)                                                \
    static enum projection_result fake_fold_##place(                          \
        void *data, const struct projected *item,                             \
        const struct projection_stamp *stamp)                                 \
    {                                                                         \
        const struct fake_effect *effect = item->effects->of[place];          \
        struct fake_rows *rows = data;                                        \
                                                                              \
        (void)stamp;                                                          \
        fake_see(rows, item);                                                 \
        rows->values[effect->row] += effect->delta;                           \
        return effect->is_careful ? PROJECTION_CAREFUL : PROJECTION_OK;       \
    }                                                                         \
    static bool fake_collect_##place(void *data, enum projection_phase phase, \
                                     const struct projected *item)            \
    {                                                                         \
        const struct fake_effect *effect = item->effects->of[place];          \
        struct fake_rows *rows = data;                                        \
                                                                              \
        rows->state_count += phase == PROJECTION_STATES;                      \
        if (phase == PROJECTION_LOCK &&                                       \
            !(fake_is_short && effect->row == 0)) {                           \
            rows->is_locked[effect->row] = true;                              \
            rows->values[effect->row] = fake_start[place][effect->row];       \
        }                                                                     \
        return true;                                                          \
    }                                                                         \
    static int64_t fake_floor_##place(const void *data)                       \
    {                                                                         \
        (void)data;                                                           \
        return fake_floor_us[place];                                          \
    }                                                                         \
    static enum projection_apply fake_apply_##place(                          \
        void *data, const struct projected *item,                             \
        const struct projection_stamp *stamp, const char **error)             \
    {                                                                         \
        const struct fake_effect *effect = item->effects->of[place];          \
        struct fake_rows *rows = data;                                        \
                                                                              \
        (void)stamp;                                                          \
        if (!rows->is_locked[effect->row]) {                                  \
            return PROJECTION_MISSING;                                        \
        }                                                                     \
        if (effect->delta > fake_limit - rows->values[effect->row]) {         \
            *error = "row " #place " is full";                                \
            return PROJECTION_REJECTED;                                       \
        }                                                                     \
        fake_see(rows, item);                                                 \
        rows->values[effect->row] += effect->delta;                           \
        return PROJECTION_APPLIED;                                            \
    }                                                                         \
    static void fake_undo_##place(void *data, const struct projected *item)   \
    {                                                                         \
        const struct fake_effect *effect = item->effects->of[place];          \
        struct fake_rows *rows = data;                                        \
                                                                              \
        rows->values[effect->row] -= effect->delta;                           \
        rows->seen_count--;                                                   \
    }                                                                         \
    static const struct projection fake_##place = {                           \
        .name = #place,                                                       \
        .rows_create = fake_create,                                           \
        .rows_destroy = free,                                                 \
        .rows_clear = fake_clear,                                             \
        .fold = fake_fold_##place,                                            \
        .fold_end = fake_fold_end,                                            \
        .collect = fake_collect_##place,                                      \
        .stamp_floor = fake_floor_##place,                                    \
        .apply = fake_apply_##place,                                          \
        .undo = fake_undo_##place,                                            \
        .has_fast_states = (place) == PROJECTION_SERIES,                      \
        .changed = fake_changed,                                              \
    }

FAKE_PROJECTION(PROJECTION_METERS);
FAKE_PROJECTION(PROJECTION_COUNTERS);
FAKE_PROJECTION(PROJECTION_USAGE);
FAKE_PROJECTION(PROJECTION_INDEX);
FAKE_PROJECTION(PROJECTION_SERIES);

const struct projection *const projections[PROJECTION_COUNT] = {
    [PROJECTION_METERS] = &fake_PROJECTION_METERS,
    [PROJECTION_COUNTERS] = &fake_PROJECTION_COUNTERS,
    [PROJECTION_USAGE] = &fake_PROJECTION_USAGE,
    [PROJECTION_INDEX] = &fake_PROJECTION_INDEX,
    [PROJECTION_SERIES] = &fake_PROJECTION_SERIES,
};

#endif
