/*
 * cells.c - see cells.h.
 */

#include "query/cells.h"

#include "store/pg_param.h"

#include <stdlib.h>

/* Columns that all three statements begin with. */
enum { COLUMN_PLACE, COLUMN_SLOT, COLUMN_COUNT, COLUMN_FIRST };

/* Behind them: sum, min, max, floor; last, floor; sum, label, floor. */
enum {
    ROWS_SUM = COLUMN_FIRST,
    ROWS_MIN,
    ROWS_MAX,
    ROWS_FLOOR,
    LASTS_LAST = COLUMN_FIRST,
    LASTS_FLOOR,
    TALLIES_SUM = COLUMN_FIRST,
    TALLIES_LABEL,
    TALLIES_FLOOR
};

enum shape { SHAPE_ROWS, SHAPE_LASTS, SHAPE_TALLIES };

/* A row of the result, for sorting. */
struct row {
    uint32_t place;
    uint32_t slot;
    int row;
    struct meter_str label; /* data NULL: the window itself */
};

static enum shape
shape_of(const struct series *series)
{
    switch (series->kind) {
    case SERIES_GAUGE:
        return series->policy == SERIES_LAST ? SHAPE_LASTS : SHAPE_ROWS;
    case SERIES_HISTOGRAM:
    case SERIES_STATE: return SHAPE_TALLIES;
    case SERIES_COUNTER: break;
    }
    return SHAPE_ROWS;
}

enum statement
cells_statement(const struct series *series, enum meter_level level)
{
    static const enum statement statements_of[][METER_LEVEL_COUNT] = {
        [SHAPE_ROWS] = {STATEMENT_QUERY_ROWS_5S, STATEMENT_QUERY_ROWS_1M,
                        STATEMENT_QUERY_ROWS_1H, STATEMENT_QUERY_ROWS_1D,
                        STATEMENT_QUERY_ROWS_7D},
        [SHAPE_LASTS] = {STATEMENT_QUERY_LASTS_5S, STATEMENT_QUERY_LASTS_1M,
                         STATEMENT_QUERY_LASTS_1H, STATEMENT_QUERY_LASTS_1D,
                         STATEMENT_QUERY_LASTS_7D},
        [SHAPE_TALLIES] = {STATEMENT_QUERY_TALLIES_5S,
                           STATEMENT_QUERY_TALLIES_1M,
                           STATEMENT_QUERY_TALLIES_1H,
                           STATEMENT_QUERY_TALLIES_1D,
                           STATEMENT_QUERY_TALLIES_7D},
    };

    return statements_of[shape_of(series)][level];
}

bool
cells_has_tallies(const struct series *series)
{
    return shape_of(series) == SHAPE_TALLIES;
}


/* ---- one cell -------------------------------------------------------- */

static bool
gauge_read(const struct series *series, const void *result, int row,
           struct answer_cell *cell)
{
    struct meter_decimal sum;

    switch (series->policy) {
    case SERIES_MIN: return pg_get_numeric(result, row, ROWS_MIN, &cell->value);
    case SERIES_MAX: return pg_get_numeric(result, row, ROWS_MAX, &cell->value);
    case SERIES_LAST:
        return pg_get_numeric(result, row, LASTS_LAST, &cell->value);
    case SERIES_AVG: break;
    }
    if (!pg_get_numeric(result, row, ROWS_SUM, &sum)) {
        return false;
    }
    cell->value = meter_decimal_divide(sum, cell->count);
    return true;
}

static bool
cell_read(const struct series *series, const void *result,
          const struct row *from, struct answer_cell *cell)
{
    int row = from->row;

    *cell = (struct answer_cell){
        .place = from->place,
        .slot = from->slot,
        .count = pg_get_int8(result, row, COLUMN_COUNT),
    };
    switch (series->kind) {
    case SERIES_COUNTER:
        return pg_get_numeric(result, row, ROWS_SUM, &cell->value);
    case SERIES_GAUGE: return gauge_read(series, result, row, cell);
    case SERIES_HISTOGRAM:
        cell->value = meter_decimal_from_int(cell->count);
        return pg_get_numeric(result, row, TALLIES_SUM, &cell->sum);
    case SERIES_STATE:
        cell->value = meter_decimal_from_int(cell->count);
        return true;
    }
    return false;
}


/* ---- all of them ----------------------------------------------------- */

static int
label_compare(struct meter_str a, struct meter_str b)
{
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size == 0 ? 0 : memcmp(a.data, b.data, size);

    if ((a.data == NULL) != (b.data == NULL)) {
        return a.data == NULL ? -1 : 1;
    }
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static int
row_compare(const void *a, const void *b)
{
    const struct row *one = a;
    const struct row *other = b;

    if (one->place != other->place) {
        return one->place < other->place ? -1 : 1;
    }
    if (one->slot != other->slot) {
        return one->slot < other->slot ? -1 : 1;
    }
    return label_compare(one->label, other->label);
}

static int
slot_compare(const void *a, const void *b)
{
    const struct answer_cell *one = a;
    const struct answer_cell *other = b;

    if (one->slot != other->slot) {
        return one->slot < other->slot ? -1 : 1;
    }
    return (one->place > other->place) - (one->place < other->place);
}

void
cells_sort_by_slot(struct cells *cells)
{
    qsort(cells->items, cells->count, sizeof(cells->items[0]), slot_compare);
}

/* The rows that are cells or tallies; the one with the floor is taken out. */
static size_t
rows_find(enum shape shape, const void *result, struct row *rows,
          struct cells *out)
{
    static const int floors[] = {
        [SHAPE_ROWS] = ROWS_FLOOR,
        [SHAPE_LASTS] = LASTS_FLOOR,
        [SHAPE_TALLIES] = TALLIES_FLOOR,
    };
    size_t count = 0;

    for (int row = 0; row < pg_row_count(result); row++) {
        struct meter_str label = {NULL, 0};

        if (pg_is_null(result, row, COLUMN_PLACE)) {
            out->floor_us = pg_get_time(result, row, floors[shape]);
            continue;
        }
        if (shape == SHAPE_TALLIES && !pg_is_null(result, row, TALLIES_LABEL)) {
            label = pg_get_bytes(result, row, TALLIES_LABEL);
        }
        rows[count++] = (struct row){
            .place = (uint32_t)pg_get_int4(result, row, COLUMN_PLACE),
            .slot = (uint32_t)pg_get_int4(result, row, COLUMN_SLOT) - 1,
            .row = row,
            .label = label,
        };
    }
    return count;
}

/* False: a figure passes 38 digits. */
static bool
rows_fold(const struct series *series, const void *result,
          const struct row *rows, size_t count, struct cell_label *tallies,
          struct cells *out)
{
    struct answer_cell *cell = NULL;
    size_t tally_count = 0;

    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];

        if (row->label.data == NULL) {
            cell = &out->items[out->count++];
            if (!cell_read(series, result, row, cell)) {
                return false;
            }
            cell->tallies = &tallies[tally_count];
            continue;
        }
        CHECK(cell != NULL && cell->place == row->place &&
              cell->slot == row->slot);
        tallies[tally_count++] = (struct cell_label){
            row->label,
            pg_get_int8(result, row->row, COLUMN_COUNT),
        };
        cell->tally_count++;
    }
    return true;
}

enum cells_result
cells_read(const struct series *series, const void *result, size_t group_count,
           size_t window_count, struct arena *arena, struct cells *out)
{
    enum shape shape = shape_of(series);
    size_t room = (size_t)pg_row_count(result) + 1;
    struct row *rows = arena_alloc(arena, room * sizeof(*rows));
    struct cell_label *tallies = arena_alloc(
        arena, (shape == SHAPE_TALLIES ? room : 1) * sizeof(*tallies));
    size_t cell_count = 0;
    size_t count;

    *out = (struct cells){
        .floor_us = METER_TIME_MIN,
        .items = arena_alloc(arena, (room < CELLS_MAX ? room : CELLS_MAX) *
                                        sizeof(out->items[0]))};
    if (rows == NULL || tallies == NULL || out->items == NULL) {
        return CELLS_MEMORY;
    }
    count = rows_find(shape, result, rows, out);
    for (size_t i = 0; i < count; i++) {
        CHECK(rows[i].place < group_count && rows[i].slot < window_count);
        cell_count += rows[i].label.data == NULL;
    }
    if (cell_count > CELLS_MAX || count - cell_count > TALLIES_MAX) {
        return CELLS_MANY;
    }
    qsort(rows, count, sizeof(rows[0]), row_compare);
    return rows_fold(series, result, rows, count, tallies, out) ? CELLS_OK
                                                                : CELLS_RANGE;
}
