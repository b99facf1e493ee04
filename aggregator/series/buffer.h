/*
 * buffer.h - series of accepted events, before they are flushed.
 *
 *   accepted -> [fold] -> filling -> [cut] -> flushing -> flush -> [done]
 *
 * Keyed by tenant, series, version, dimension set and bucket of 5 s. A cut
 * is at a writer_seq: all events up to it are in what is flushed, none
 * after it. Keys outlive their cells, so that the dictionary is written
 * once for each; they are forgotten when too many are idle.
 */

#ifndef SERIES_BUFFER_H
#define SERIES_BUFFER_H

#include "series/cell.h"

struct buffer;

/* A dimension set that was seen. */
struct buffer_key {
    struct meter_str tenant;
    struct meter_str series;
    int64_t version;
    enum series_kind kind;
    bool is_stored; /* the dictionary has it, committed */
    struct dimension_set set;
};

struct buffer_cell {
    struct buffer_key *key;
    struct buffer_cell *next; /* the buffer's own */
    struct cell cell;         /* CELL_SIZE of its kind: not to be copied */
};

/* An accepted event, committed. */
struct buffer_event {
    struct meter_str tenant;
    const struct series_effect *effect;
    const struct meter_str *from; /* as series_from_read gives them */
    struct cell_place place;
};

struct buffer *buffer_create(void);
void buffer_destroy(struct buffer *buffer);

/*
 * False: no memory; the buffer then lacks the event and is torn: it has to
 * be cleared and made again from the ledger.
 */
MUST_CHECK bool
buffer_fold(struct buffer *buffer, const struct buffer_event *event);

/*
 * Cells that are filling, long tallies counted as several; bytes of all that
 * is held.
 */
size_t buffer_filling(const struct buffer *buffer);
size_t buffer_size(const struct buffer *buffer);

/* Nothing may be flushing. What is filling is flushed next. */
void buffer_cut(struct buffer *buffer);
/*
 * What is flushing, by (tenant, series, version, dimension_key, bucket),
 * bytewise; *count may be 0.
 */
struct buffer_cell *const *
buffer_flushing(struct buffer *buffer, size_t *count);
/* The flush has committed: its cells go, its keys are stored. */
void buffer_flushed(struct buffer *buffer);

/* Forgets all cells and keys. */
void buffer_clear(struct buffer *buffer);

#endif
