/*
 * flush_rows.h - the cells of a flush as parameters of statements. Pure.
 *
 *   cells by key -> [flush_rows] -> keys, then rows of 5s 1m 1h 1d 7d, marks
 *
 * A cell goes to the lowest level that still has its bucket, and marks the
 * bucket above it; what no level has is left out. Statements come piece by
 * piece, in the order in which tables are locked, rows in that of their keys.
 */

#ifndef SERIES_FLUSH_ROWS_H
#define SERIES_FLUSH_ROWS_H

#include "pg/statements.h"
#include "series/buffer.h"
#include "series/flush_floors.h"

/* Rows of one statement: some milliseconds of the loop. */
#define FLUSH_ROWS_MAX 2000

struct flush_row {
    const struct buffer_key *key;
    const struct cell *cell;
    int64_t bucket_us;
    size_t first; /* its first cell */
};

enum flush_stage {
    FLUSH_STAGE_KEYS,
    FLUSH_STAGE_CELLS,
    FLUSH_STAGE_MARKS,
    FLUSH_STAGE_END
};

struct flush_rows {
    struct buffer_cell *const *cells;
    size_t count;
    struct flush_floors floors;
    int64_t marked_us;
    size_t of_level[METER_LEVEL_COUNT + 1]; /* cells; the last: expired */

    enum flush_stage stage;
    enum meter_level level;
    size_t at;       /* next cell */
    size_t piece_at; /* first cell that the piece looked at */
    size_t row_max;  /* of a piece */
    struct flush_row rows[FLUSH_ROWS_MAX];
    size_t row_count;
    struct cell merged[FLUSH_ROWS_MAX]; /* of levels above 5s */
    size_t merged_count;

    int64_t written; /* rows of levels */
    int64_t expired; /* samples that no level has */
    int64_t marks;
};

/*
 * cells: as buffer_flushing gives them, borrowed. marked_us: everything
 * committed before is not in these cells.
 */
void flush_rows_init(struct flush_rows *rows, struct buffer_cell *const *cells,
                     size_t count, const struct flush_floors *floors,
                     int64_t marked_us);
void flush_rows_fini(struct flush_rows *rows);

enum flush_rows_result {
    FLUSH_ROWS_NEXT, /* statement and params are set */
    FLUSH_ROWS_END,
    FLUSH_ROWS_NO_MEMORY
};

/* params is given empty. */
MUST_CHECK enum flush_rows_result
flush_rows_next(struct flush_rows *rows, enum statement *statement,
                struct pg_params *params);

/* The piece that came last was not written. */
void flush_rows_take_back(struct flush_rows *rows);
/* And comes again, in pieces of so many rows. */
void flush_rows_again(struct flush_rows *rows, size_t row_max);

#endif
