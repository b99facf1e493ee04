/*
 * cells.h - rows of a level to the cells of an answer.
 *
 *   rows of query_rows, query_lasts, query_tallies -> [cells_read] -> cells
 *
 * A cell is one group in one window that has samples. What its value is
 * depends on the kind of the series and, of a gauge, on its policy.
 */

#ifndef QUERY_CELLS_H
#define QUERY_CELLS_H

#include "query/query.h"
#include "store/statements.h"

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
    struct meter_decimal value;
    struct meter_decimal sum;         /* histogram */
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
    CELLS_RANGE, /* a figure passes 38 digits */
    CELLS_MEMORY
};

/* The statement that answers this kind of series from a level. */
enum statement
cells_statement(const struct series *series, enum meter_level level);

/* It takes a limit of tallies, too. */
bool cells_has_tallies(const struct series *series);

/* In the arena; labels borrow from the result. */
enum cells_result
cells_read(const struct series *series, const void *result, size_t group_count,
           size_t window_count, struct arena *arena, struct cells *out);

/* By slot, then by place. */
void cells_sort_by_slot(struct cells *cells);

#endif
