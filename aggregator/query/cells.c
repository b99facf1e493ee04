/*
 * cells.c - the buckets of a level: how they are asked for, what they hold.
 *
 *   question -> [cells_ask] -> query_plain, query_rows, query_lasts or
 *   query_tallies of its level -> [cells_take] -> cells, by place and slot
 *
 * PostgreSQL sums buckets up in windows. What the value of a cell is depends
 * on the kind of the series and, of a gauge, on its policy.
 */

#include "query/question.h"

#include "pg/column.h"

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

/* Which statement answers, and how its rows look. */
enum cells_shape { CELLS_PLAIN, CELLS_ROWS, CELLS_LASTS, CELLS_TALLIES };

enum cells_result {
    CELLS_OK,
    CELLS_MANY,  /* more than an answer has */
    CELLS_RANGE, /* a figure passes what sums hold */
    CELLS_MEMORY
};

const char question_error_size[] =
    "the answer would have more than 100000 values; ask for fewer windows, "
    "or for fewer groups by \"where\" or \"group_by\"";

_Static_assert(CELLS_MAX == 100000, "the sentence says 100000");

/*
 * Nothing is to be summed up: every window is a bucket, every group a set, and
 * no answer that is too large can come of it.
 */
static bool
cells_are_single(const struct question *question)
{
    return question->query.zone.data == NULL &&
           question->query.interval_us ==
               meter_level_size_us(question->level) &&
           question->groups.key_count == question->groups.count &&
           question->groups.count * question->windows.count <= CELLS_MAX;
}

static enum cells_shape
cells_shape(const struct question *question)
{
    const struct series *series = question->query.series;

    if (series->kind == SERIES_HISTOGRAM || series->kind == SERIES_STATE) {
        return CELLS_TALLIES;
    }
    if (cells_are_single(question)) {
        return CELLS_PLAIN;
    }
    return series->kind == SERIES_GAUGE && series->policy == SERIES_LAST
               ? CELLS_LASTS
               : CELLS_ROWS;
}

static enum statement
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
cells_figure(const struct series *series)
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


/* ---- asking ---------------------------------------------------------- */

enum statement
cells_ask(const struct question *question, struct pg_params *params)
{
    static const struct pg_column group_columns[] = {
        PG_COLUMN(DIGEST, struct group_key, key),
        PG_COLUMN(INT4, struct group_key, place),
    };
    static const struct pg_column bound[] = {{.field = PG_FIELD_TIME}};
    const struct query *query = &question->query;
    const struct groups *groups = &question->groups;
    enum cells_shape shape = cells_shape(question);

    pg_param_text(params, question->tenant);
    pg_param_text(params, query->series->name);
    pg_param_int8(params, query->series->version);
    pg_param_rows(params, group_columns, PG_COLUMN_COUNT(group_columns),
                  groups->keys, groups->key_count, sizeof(groups->keys[0]));
    if (shape != CELLS_PLAIN) {
        pg_param_rows(params, bound, 1, question->windows.bounds_us,
                      question->windows.count, sizeof(int64_t));
    }
    pg_param_time(params, meter_level_bucket(question->level, query->from_us));
    pg_param_time(params, query->to_us);
    if (shape == CELLS_PLAIN) {
        pg_param_int4(params, (int32_t)cells_figure(query->series));
    } else {
        pg_param_int8(params, CELLS_MAX + 1);
    }
    if (shape == CELLS_TALLIES) {
        pg_param_int8(params, TALLIES_MAX + 1);
    }
    return cells_statement(shape, question->level);
}


/* ---- one cell -------------------------------------------------------- */

/* Where the figure stands. */
static int
cells_figure_column(enum cells_shape shape, enum figure figure)
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
cell_read(const struct question *question, enum cells_shape shape,
          const void *result, const struct row *from, struct answer_cell *cell)
{
    const struct series *series = question->query.series;
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
                      cells_figure_column(shape, cells_figure(series)),
                      &cell->figure) &&
           cell_divide(series, cell);
}


/* ---- all of them ----------------------------------------------------- */

static int
cells_label_compare(struct meter_str a, struct meter_str b)
{
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size == 0 ? 0 : memcmp(a.data, b.data, size);

    if ((a.data == NULL) != (b.data == NULL)) {
        return a.data == NULL ? -1 : 1;
    }
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static int
cells_row_compare(const void *a, const void *b)
{
    const struct row *one = a;
    const struct row *other = b;

    if (one->place != other->place) {
        return one->place < other->place ? -1 : 1;
    }
    if (one->slot != other->slot) {
        return one->slot < other->slot ? -1 : 1;
    }
    return cells_label_compare(one->label, other->label);
}

/* The rows that are cells or tallies; the one with the floor is taken out. */
static size_t
cells_rows_find(enum cells_shape shape, const void *result, struct row *rows,
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
            out->floor_us = pg_get_time(result, row, floors[shape]);
            continue;
        }
        if (shape == CELLS_TALLIES && !pg_is_null(result, row, TALLIES_LABEL)) {
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
cells_rows_fold(const struct question *question, enum cells_shape shape,
                const void *result, const struct row *rows, size_t count,
                struct cell_label *tallies, struct cells *out)
{
    struct answer_cell *cell = NULL;
    size_t tally_count = 0;

    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];

        if (row->label.data == NULL) {
            cell = &out->items[out->count++];
            if (!cell_read(question, shape, result, row, cell)) {
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
cell_compare(const void *a, const void *b)
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
        if (cell_compare(&cells->items[i - 1], &cells->items[i]) > 0) {
            qsort(cells->items, cells->count, sizeof(cells->items[0]),
                  cell_compare);
            return;
        }
    }
}

/* False: a figure passes what sums hold. */
static bool
cells_plain_row_read(const struct question *question, const void *result,
                     int row, struct cells *out)
{
    const int64_t *bounds_us = question->windows.bounds_us;
    uint32_t place = (uint32_t)pg_get_int4(result, row, PLAIN_PLACE);
    struct pg_array buckets = pg_get_array(result, row, PLAIN_BUCKETS);
    struct pg_array counts = pg_get_array(result, row, PLAIN_COUNTS);
    struct pg_array figures = pg_get_array(result, row, PLAIN_FIGURES);

    CHECK(place < question->groups.count && counts.count == buckets.count &&
          figures.count == buckets.count);
    while (buckets.count > 0) {
        struct answer_cell *cell = &out->items[out->count++];
        int64_t since_us = pg_time_of(pg_array_next(&buckets)) - bounds_us[0];

        *cell = (struct answer_cell){
            .place = place,
            .slot = (uint32_t)(since_us / (bounds_us[1] - bounds_us[0])),
            .count = pg_int8_of(pg_array_next(&counts)),
        };
        CHECK(since_us >= 0 && cell->slot < question->windows.count);
        if (!pg_sum_of(pg_array_next(&figures), &cell->figure) ||
            !cell_divide(question->query.series, cell)) {
            return false;
        }
    }
    return true;
}

static enum cells_result
cells_plain_read(const struct question *question, const void *result,
                 struct cells *out)
{
    int row_count = pg_row_count(result);
    size_t room = 1;

    for (int row = 0; row < row_count; row++) {
        room += pg_get_array(result, row, PLAIN_BUCKETS).count;
    }
    out->items = arena_alloc(question->arena, room * sizeof(out->items[0]));
    if (out->items == NULL) {
        return CELLS_MEMORY;
    }
    for (int row = 0; row < row_count; row++) {
        if (pg_is_null(result, row, PLAIN_PLACE)) {
            out->floor_us = pg_get_time(result, row, PLAIN_FLOOR);
        } else if (!cells_plain_row_read(question, result, row, out)) {
            return CELLS_RANGE;
        }
    }
    cells_sort(out);
    return CELLS_OK;
}


/* ---- either way ------------------------------------------------------ */

static enum cells_result
cells_rows_read(const struct question *question, enum cells_shape shape,
                const void *result, struct cells *out)
{
    size_t room = (size_t)pg_row_count(result) + 1;
    struct row *rows = arena_alloc(question->arena, room * sizeof(*rows));
    struct cell_label *tallies =
        arena_alloc(question->arena,
                    (shape == CELLS_TALLIES ? room : 1) * sizeof(*tallies));
    size_t cell_count = 0;
    size_t count;

    out->items =
        arena_alloc(question->arena, (room < CELLS_MAX ? room : CELLS_MAX) *
                                         sizeof(out->items[0]));
    if (rows == NULL || tallies == NULL || out->items == NULL) {
        return CELLS_MEMORY;
    }
    count = cells_rows_find(shape, result, rows, out);
    for (size_t i = 0; i < count; i++) {
        CHECK(rows[i].place < question->groups.count &&
              rows[i].slot < question->windows.count);
        cell_count += rows[i].label.data == NULL;
    }
    if (cell_count > CELLS_MAX || count - cell_count > TALLIES_MAX) {
        return CELLS_MANY;
    }
    qsort(rows, count, sizeof(rows[0]), cells_row_compare);
    return cells_rows_fold(question, shape, result, rows, count, tallies, out)
               ? CELLS_OK
               : CELLS_RANGE;
}

unsigned
cells_take(struct question *question, const void *rows, const char **error)
{
    enum cells_shape shape = cells_shape(question);
    struct cells *out = &question->cells;

    *out = (struct cells){.floor_us = METER_TIME_MIN};
    switch (shape == CELLS_PLAIN
                ? cells_plain_read(question, rows, out)
                : cells_rows_read(question, shape, rows, out)) {
    case CELLS_OK: return 0;
    case CELLS_RANGE: *error = QUESTION_ERROR_RANGE; return 422;
    case CELLS_MANY:
    case CELLS_MEMORY: break;
    }
    *error = question_error_size;
    return 422;
}
