/*
 * cells.c - see cells.h.
 */

#include "query/cells.h"

#include "pg/param.h"

#include <stdlib.h>

/* Columns that all statements but query_plain begin with. */
enum { COLUMN_PLACE, COLUMN_SLOT, COLUMN_COUNT, COLUMN_FIRST };

/* Behind them. */
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

enum { PLAIN_PLACE, PLAIN_BUCKETS, PLAIN_COUNTS, PLAIN_FIGURES, PLAIN_FLOOR };

/* As query_plain numbers them. */
enum figure { FIGURE_SUM, FIGURE_MIN, FIGURE_MAX, FIGURE_LAST, FIGURE_COUNT };

/* A row of the result, for sorting. */
struct row {
    uint32_t place;
    uint32_t slot;
    int row;
    struct meter_str label; /* data NULL: the window itself */
};

enum cells_shape
cells_shape_of(const struct series *series, bool is_single)
{
    if (series->kind == SERIES_HISTOGRAM || series->kind == SERIES_STATE) {
        return CELLS_TALLIES;
    }
    if (is_single) {
        return CELLS_PLAIN;
    }
    return series->kind == SERIES_GAUGE && series->policy == SERIES_LAST
               ? CELLS_LASTS
               : CELLS_ROWS;
}

enum statement
cells_statement(enum cells_shape shape, enum meter_level level)
{
    static const enum statement statements_of[][METER_LEVEL_COUNT] = {
        [CELLS_PLAIN] = {STATEMENT_QUERY_PLAIN_5S, STATEMENT_QUERY_PLAIN_1M,
                         STATEMENT_QUERY_PLAIN_1H, STATEMENT_QUERY_PLAIN_1D,
                         STATEMENT_QUERY_PLAIN_7D},
        [CELLS_ROWS] = {STATEMENT_QUERY_ROWS_5S, STATEMENT_QUERY_ROWS_1M,
                        STATEMENT_QUERY_ROWS_1H, STATEMENT_QUERY_ROWS_1D,
                        STATEMENT_QUERY_ROWS_7D},
        [CELLS_LASTS] = {STATEMENT_QUERY_LASTS_5S, STATEMENT_QUERY_LASTS_1M,
                         STATEMENT_QUERY_LASTS_1H, STATEMENT_QUERY_LASTS_1D,
                         STATEMENT_QUERY_LASTS_7D},
        [CELLS_TALLIES] = {STATEMENT_QUERY_TALLIES_5S,
                           STATEMENT_QUERY_TALLIES_1M,
                           STATEMENT_QUERY_TALLIES_1H,
                           STATEMENT_QUERY_TALLIES_1D,
                           STATEMENT_QUERY_TALLIES_7D},
    };

    return statements_of[shape][level];
}

static enum figure
figure_of(const struct series *series)
{
    if (series->kind == SERIES_GAUGE) {
        switch (series->policy) {
        case SERIES_MIN: return FIGURE_MIN;
        case SERIES_MAX: return FIGURE_MAX;
        case SERIES_LAST: return FIGURE_LAST;
        case SERIES_AVG: break;
        }
    }
    return FIGURE_SUM;
}

int32_t
cells_figure(const struct series *series)
{
    return (int32_t)figure_of(series);
}


/* ---- one cell -------------------------------------------------------- */

/* Where the figure stands. */
static int
figure_column(enum cells_shape shape, enum figure figure)
{
    static const int of_rows[FIGURE_COUNT] = {
        [FIGURE_SUM] = ROWS_SUM,
        [FIGURE_MIN] = ROWS_MIN,
        [FIGURE_MAX] = ROWS_MAX,
    };

    switch (shape) {
    case CELLS_LASTS: return LASTS_LAST;
    case CELLS_TALLIES: return TALLIES_SUM;
    case CELLS_ROWS:
    case CELLS_PLAIN: break;
    }
    return of_rows[figure];
}

/* The average, where the figure is a sum of samples. False: out of range. */
static bool
cell_divide(const struct series *series, struct answer_cell *cell)
{
    struct meter_decimal mean;

    if (series->kind != SERIES_GAUGE || series->policy != SERIES_AVG) {
        return true;
    }
    if (!decimal_sum_mean(cell->figure, cell->count, &mean)) {
        return false;
    }
    cell->figure = decimal_sum_of(mean);
    return true;
}

static bool
cell_read(const struct cells_asked *asked, const void *result,
          const struct row *from, struct answer_cell *cell)
{
    const struct series *series = asked->series;
    int row = from->row;

    *cell = (struct answer_cell){
        .place = from->place,
        .slot = from->slot,
        .count = pg_get_int8(result, row, COLUMN_COUNT),
    };
    if (series->kind == SERIES_STATE) {
        return true;
    }
    return pg_get_sum(result, row,
                      figure_column(asked->shape, figure_of(series)),
                      &cell->figure) &&
           cell_divide(series, cell);
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
rows_find(const struct cells_asked *asked, const void *result, struct row *rows,
          struct cells *out)
{
    static const int floors[] = {
        [CELLS_ROWS] = ROWS_FLOOR,
        [CELLS_LASTS] = LASTS_FLOOR,
        [CELLS_TALLIES] = TALLIES_FLOOR,
    };
    size_t count = 0;

    for (int row = 0; row < pg_row_count(result); row++) {
        struct meter_str label = {NULL, 0};

        if (pg_is_null(result, row, COLUMN_PLACE)) {
            out->floor_us = pg_get_time(result, row, floors[asked->shape]);
            continue;
        }
        if (asked->shape == CELLS_TALLIES &&
            !pg_is_null(result, row, TALLIES_LABEL)) {
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

/* False: a figure passes what sums hold. */
static bool
rows_fold(const struct cells_asked *asked, const void *result,
          const struct row *rows, size_t count, struct cell_label *tallies,
          struct cells *out)
{
    struct answer_cell *cell = NULL;
    size_t tally_count = 0;

    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];

        if (row->label.data == NULL) {
            cell = &out->items[out->count++];
            if (!cell_read(asked, result, row, cell)) {
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


/* ---- buckets as they are --------------------------------------------- */

static int
place_compare(const void *a, const void *b)
{
    const struct answer_cell *one = a;
    const struct answer_cell *other = b;

    if (one->place != other->place) {
        return one->place < other->place ? -1 : 1;
    }
    return (one->slot > other->slot) - (one->slot < other->slot);
}

/* As the primary key gives them, more often than not. */
static void
cells_sort(struct cells *cells)
{
    for (size_t i = 1; i < cells->count; i++) {
        if (place_compare(&cells->items[i - 1], &cells->items[i]) > 0) {
            qsort(cells->items, cells->count, sizeof(cells->items[0]),
                  place_compare);
            return;
        }
    }
}

/* False: a figure passes what sums hold. */
static bool
plain_row_read(const struct cells_asked *asked, const void *result, int row,
               struct cells *out)
{
    const int64_t *bounds_us = asked->windows->bounds_us;
    uint32_t place = (uint32_t)pg_get_int4(result, row, PLAIN_PLACE);
    struct pg_array buckets = pg_get_array(result, row, PLAIN_BUCKETS);
    struct pg_array counts = pg_get_array(result, row, PLAIN_COUNTS);
    struct pg_array figures = pg_get_array(result, row, PLAIN_FIGURES);

    CHECK(place < asked->group_count && counts.count == buckets.count &&
          figures.count == buckets.count);
    while (buckets.count > 0) {
        struct answer_cell *cell = &out->items[out->count++];
        int64_t since_us = pg_time_of(pg_array_next(&buckets)) - bounds_us[0];

        *cell = (struct answer_cell){
            .place = place,
            .slot = (uint32_t)(since_us / (bounds_us[1] - bounds_us[0])),
            .count = pg_int8_of(pg_array_next(&counts)),
        };
        CHECK(since_us >= 0 && cell->slot < asked->windows->count);
        if (!pg_sum_of(pg_array_next(&figures), &cell->figure) ||
            !cell_divide(asked->series, cell)) {
            return false;
        }
    }
    return true;
}

static enum cells_result
plain_read(const struct cells_asked *asked, const void *result,
           struct arena *arena, struct cells *out)
{
    int row_count = pg_row_count(result);
    size_t room = 1;

    for (int row = 0; row < row_count; row++) {
        room += pg_get_array(result, row, PLAIN_BUCKETS).count;
    }
    out->items = arena_alloc(arena, room * sizeof(out->items[0]));
    if (out->items == NULL) {
        return CELLS_MEMORY;
    }
    for (int row = 0; row < row_count; row++) {
        if (pg_is_null(result, row, PLAIN_PLACE)) {
            out->floor_us = pg_get_time(result, row, PLAIN_FLOOR);
        } else if (!plain_row_read(asked, result, row, out)) {
            return CELLS_RANGE;
        }
    }
    cells_sort(out);
    return CELLS_OK;
}


/* ---- either way ------------------------------------------------------ */

static enum cells_result
rows_read(const struct cells_asked *asked, const void *result,
          struct arena *arena, struct cells *out)
{
    size_t room = (size_t)pg_row_count(result) + 1;
    struct row *rows = arena_alloc(arena, room * sizeof(*rows));
    struct cell_label *tallies = arena_alloc(
        arena, (asked->shape == CELLS_TALLIES ? room : 1) * sizeof(*tallies));
    size_t cell_count = 0;
    size_t count;

    out->items = arena_alloc(arena, (room < CELLS_MAX ? room : CELLS_MAX) *
                                        sizeof(out->items[0]));
    if (rows == NULL || tallies == NULL || out->items == NULL) {
        return CELLS_MEMORY;
    }
    count = rows_find(asked, result, rows, out);
    for (size_t i = 0; i < count; i++) {
        CHECK(rows[i].place < asked->group_count &&
              rows[i].slot < asked->windows->count);
        cell_count += rows[i].label.data == NULL;
    }
    if (cell_count > CELLS_MAX || count - cell_count > TALLIES_MAX) {
        return CELLS_MANY;
    }
    qsort(rows, count, sizeof(rows[0]), row_compare);
    return rows_fold(asked, result, rows, count, tallies, out) ? CELLS_OK
                                                               : CELLS_RANGE;
}

enum cells_result
cells_read(const struct cells_asked *asked, const void *result,
           struct arena *arena, struct cells *out)
{
    *out = (struct cells){.floor_us = METER_TIME_MIN};
    return asked->shape == CELLS_PLAIN ? plain_read(asked, result, arena, out)
                                       : rows_read(asked, result, arena, out);
}
