/*
 * cells.h - rows of a level to the cells of an answer.
 *
 *   rows of query_plain, query_rows, query_lasts, query_tallies
 *     -> [cells_read] -> cells
 *
 * A cell is one group in one window that has samples. What its value is
 * depends on the kind of the series and, of a gauge, on its policy.
 */

#ifndef QUERY_CELLS_H
#define QUERY_CELLS_H

#include "base/decimal_sum.h"
#include "pg/statements.h"
#include "query/query.h"
#include "query/window.h"

/* Of one answer. */
#define CELLS_MAX   100000
#define TALLIES_MAX 500000

struct cell_label {
    struct meter_str label;
    int64_t count;
};

struct answer_cell {
    uint32_t place; /* of the group */
    uint32_t slot;  /* of the window */
    int64_t count;
    struct decimal_sum figure;        /* counter, gauge: value; else sum */
    const struct cell_label *tallies; /* histogram, state: by label */
    size_t tally_count;
};

struct cells {
    struct answer_cell *items; /* by place, then by slot */
    size_t count;
    int64_t floor_us; /* from where on the level is kept */
};

enum cells_result {
    CELLS_OK,
    CELLS_MANY,  /* more than an answer has */
    CELLS_RANGE, /* a figure passes what sums hold */
    CELLS_MEMORY
};

/* Which statement answers, and how its rows look. */
enum cells_shape { CELLS_PLAIN, CELLS_ROWS, CELLS_LASTS, CELLS_TALLIES };

/* is_single: each window is a bucket, each group a dimension set. */
enum cells_shape cells_shape_of(const struct series *series, bool is_single);
enum statement cells_statement(enum cells_shape shape, enum meter_level level);
/* Of CELLS_PLAIN: which column is asked for. */
int32_t cells_figure(const struct series *series);

/* What was asked. */
struct cells_asked {
    const struct series *series;
    enum cells_shape shape;
    size_t group_count;
    const struct windows *windows;
};

/* In the arena; labels borrow from the result. */
enum cells_result
cells_read(const struct cells_asked *asked, const void *result,
           struct arena *arena, struct cells *out);

/* By slot, then by place. */
void cells_sort_by_slot(struct cells *cells);

#endif
