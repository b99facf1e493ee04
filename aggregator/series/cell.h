/*
 * cell.h - the accumulator of one dimension set and bucket. Pure.
 *
 *   change -> [fold] -> cell -> [merge] -> cell -> [put] -> row of a level
 *
 * All kinds keep count and sum; gauges min, max and last (ties: later ts,
 * then later commit); histograms and state series a tally by label. Numbers
 * are exact, so any order and any grouping gives the same bytes.
 */

#ifndef SERIES_CELL_H
#define SERIES_CELL_H

#include "pg/param.h"
#include "project/series.h"

/* Where a sample stands among others: the later one is the last. */
struct cell_place {
    int64_t ts_us;
    int64_t recorded_us;
    uint8_t writer[16];
    int64_t seq;
};

struct cell_tally {
    struct meter_str label;
    int64_t count;
};

/* Only gauges have what is behind tallies: see CELL_SIZE. */
struct cell {
    int64_t bucket_us;
    int64_t count;
    struct decimal_sum sum;
    uint32_t kind : 2; /* enum series_kind */
    uint32_t tally_count : 30;
    uint32_t tally_room;
    uint32_t text_size; /* of all labels, which lie behind the tallies */
    uint32_t text_room;
    struct cell_tally *tallies; /* histogram, state: by label, bytewise */
    struct meter_decimal min;   /* gauge, as the rest; count > 0 */
    struct meter_decimal max;
    struct meter_decimal last;
    struct cell_place last_place;
};

/* Bytes that a cell of a kind takes up; no more need be allocated. */
#define CELL_SIZE(kind) \
    ((kind) == SERIES_GAUGE ? sizeof(struct cell) : offsetof(struct cell, min))

/* Nothing folded yet. */
void cell_init(struct cell *cell, enum series_kind kind, int64_t bucket_us);
void cell_fini(struct cell *cell);

/*
 * One sample. from: state series, data NULL for none, at most
 * SERIES_STATE_SIZE_MAX bytes. False: no memory, the cell is as it was.
 * Labels are copied.
 */
MUST_CHECK bool
cell_fold(struct cell *cell, const struct series_change *change,
          struct meter_str from, const struct cell_place *place);
/* Adds other, of the same kind; buckets may differ: cell keeps its own. */
MUST_CHECK bool cell_merge(struct cell *cell, const struct cell *other);

/* Bytes that the cell holds beside itself, for the bound of the buffer. */
static inline size_t
cell_size(const struct cell *cell)
{
    return cell->tally_room * sizeof(struct cell_tally) + cell->text_room;
}

/* Columns count to counts of a row, as elements of arrays; see flush. */
enum cell_column {
    CELL_COUNT,
    CELL_SUM,
    CELL_MIN,
    CELL_MAX,
    CELL_LAST,
    CELL_LAST_AT,
    CELL_LAST_RECORDED_AT,
    CELL_LAST_WRITER,
    CELL_LAST_SEQ,
    CELL_LABELS, /* text: an array literal {"a","b"}; NULL: none */
    CELL_COUNTS, /* text: an array literal {1,2}; NULL: none */
    CELL_COLUMNS
};
enum pg_type cell_column_type(enum cell_column column);
void
cell_put(const struct cell *cell, enum cell_column column, struct buf *out);

#endif
