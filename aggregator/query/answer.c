/*
 * answer.c - cells to what the client reads.
 *
 *   windows, groups, cells -> JSON, rows or series
 *                          -> CSV, a line for each window and group
 *
 * api/query.c calls answer_write once the question is done. Figures are
 * exact decimals from end to end; a value that is not there is null, or an
 * empty cell. Of a state series a table has a line for each transition.
 */

#include "query/question.h"

#include "base/json_writer.h"
#include "config/scalar.h"
#include "meter_decimal.h"

#include <stdio.h>
#include <stdlib.h>

#define SCRATCH_BLOCK_SIZE 4096
#define SCRATCH_SIZE_MAX   (1u << 20)
#define UNITS_PER_ONE      INT64_C(1000000000) /* of a meter_decimal */

__extension__ typedef unsigned __int128 uint128;


struct answer {
    const struct query *query;
    enum meter_level level;
    const struct windows *windows;
    const struct groups *groups;
    struct cells *cells; /* is sorted as it is needed */
    uint32_t *shown;     /* places of groups, ascending */
    size_t shown_count;
    bool *is_window_shown;
    size_t window_count;
};

/* A row that is shown; cell NULL: there is nothing in it. */
typedef void (*answer_row_cb)(const struct answer *answer, void *writer,
                              size_t place, size_t slot,
                              const struct answer_cell *cell,
                              struct arena *arena);

/* Written for one cell, or for all windows of a group. */
typedef void (*put_cb)(const struct answer *answer, struct json_writer *json,
                       const struct answer_cell *cell, struct arena *arena);

/* ---- what is shown --------------------------------------------------- */

/* A partial window that is forbidden is as empty as one without samples. */
static bool
is_hidden(const struct answer *answer, size_t slot)
{
    return !answer->query->is_allowed && answer->windows->is_partial[slot];
}

/*
 * Which groups and windows are shown: groups that have a cell in the range,
 * the one without dimensions always. False: no memory.
 */
static bool
answer_init(struct answer *answer, struct arena *arena)
{
    const struct query *query = answer->query;
    size_t windows = answer->windows->count;

    answer->shown = arena_alloc(arena, (answer->groups->count + 1) *
                                           sizeof(answer->shown[0]));
    answer->is_window_shown = arena_zalloc(arena, windows + 1);
    if (answer->shown == NULL || answer->is_window_shown == NULL) {
        return false;
    }
    answer->shown_count = 0;
    if (query->grouped_count == 0) {
        answer->shown[answer->shown_count++] = 0;
    }
    for (size_t i = 0; i < answer->cells->count; i++) {
        const struct answer_cell *cell = &answer->cells->items[i];

        answer->is_window_shown[cell->slot] = !is_hidden(answer, cell->slot);
        if (answer->shown_count == 0 ||
            answer->shown[answer->shown_count - 1] != cell->place) {
            answer->shown[answer->shown_count++] = cell->place;
        }
    }
    answer->window_count = 0;
    for (size_t w = 0; w < windows; w++) {
        answer->is_window_shown[w] |= !query->is_dropped;
        answer->window_count += answer->is_window_shown[w];
    }
    return true;
}

/* How many values there will be, nulls included. */
static size_t
answer_size(const struct answer *answer)
{
    if (!answer->query->is_series && answer->query->is_dropped) {
        return answer->cells->count;
    }
    return answer->shown_count * answer->window_count;
}

/*
 * The cell of a group in a window; NULL: none, or it is hidden. *next goes
 * along the cells, so windows and groups come as these are sorted.
 */
static const struct answer_cell *
cell_at(const struct answer *answer, size_t place, size_t slot, size_t *next)
{
    const struct answer_cell *cell = &answer->cells->items[*next];

    if (*next == answer->cells->count || cell->place != place ||
        cell->slot != slot) {
        return NULL;
    }
    (*next)++;
    return is_hidden(answer, slot) ? NULL : cell;
}

static int
cells_slot_compare(const void *a, const void *b)
{
    const struct answer_cell *one = a;
    const struct answer_cell *other = b;

    if (one->slot != other->slot) {
        return one->slot < other->slot ? -1 : 1;
    }
    return (one->place > other->place) - (one->place < other->place);
}

static void
cells_sort_by_slot(struct cells *cells)
{
    qsort(cells->items, cells->count, sizeof(cells->items[0]),
          cells_slot_compare);
}

/* By window, then by group. */
static void
answer_each_row(struct answer *answer, answer_row_cb cb, void *writer,
                struct arena *arena)
{
    struct cells *cells = answer->cells;
    size_t next = 0;

    cells_sort_by_slot(cells);
    for (size_t i = 0; answer->query->is_dropped && i < cells->count; i++) {
        const struct answer_cell *cell = &cells->items[i];

        if (!is_hidden(answer, cell->slot)) {
            cb(answer, writer, cell->place, cell->slot, cell, arena);
        }
    }
    if (answer->query->is_dropped) {
        return;
    }
    for (size_t w = 0; w < answer->windows->count; w++) {
        for (size_t g = 0; g < answer->shown_count; g++) {
            size_t place = answer->shown[g];

            cb(answer, writer, place, w, cell_at(answer, place, w, &next),
               arena);
        }
    }
}


/* ---- quantiles ------------------------------------------------------- */

/*
 * length * part / whole, half-even, though the product may need more than
 * 128 bits: part is taken in bit by bit. part <= whole <= 2^94.
 */
static uint128
quantile_proportion(uint128 length, uint128 part, uint128 whole)
{
    uint128 rest = length % whole;
    uint128 quotient = 0;
    uint128 remainder = 0;

    for (int bit = 94; bit >= 0; bit--) {
        quotient *= 2;
        remainder *= 2;
        if ((part >> bit) & 1) {
            remainder += rest;
        }
        while (remainder >= whole) {
            remainder -= whole;
            quotient++;
        }
    }
    quotient += length / whole * part;
    if (2 * remainder > whole ||
        (2 * remainder == whole && (quotient & 1) != 0)) {
        quotient++;
    }
    return quotient;
}

/* Inside tally i, so far from its start as part is of whole. */
static struct meter_decimal
quantile_place(const struct meter_decimal *bounds, size_t i, meter_int128 part,
               meter_int128 whole)
{
    struct meter_decimal low = {0};
    uint128 length; /* of 38 digits below 0 to 38 above: 128 bits */

    if (i > 0) {
        low = bounds[i - 1];
    } else if (bounds[0].units <= 0) {
        return bounds[0];
    }
    length = (uint128)bounds[i].units - (uint128)low.units;
    return (struct meter_decimal){
        (meter_int128)((uint128)low.units +
                       quantile_proportion(length, (uint128)part,
                                           (uint128)whole))};
}

/*
 *   bounds    b0        b1        b2
 *   tallies   | c0      | c1      | c2     | c3 (above the last bound)
 *
 * The sample of rank q * count is looked for, and its place is taken to be
 * in proportion between the bounds around it. The lowest tally reaches from
 * 0 to its bound, or has the bound itself where that is not above 0; what
 * is above the last bound is given as the last bound.
 *
 * bounds: count of them, ascending, at least 1; tallies: count + 1, none
 * negative. q: 0 to 1. False: there are no samples. Rounded half-even.
 */
static bool
quantile_of(const struct meter_decimal *bounds, size_t count,
            const int64_t *tallies, struct meter_decimal q,
            struct meter_decimal *out)
{
    meter_int128 total = 0;
    meter_int128 before = 0;
    meter_int128 rank;

    CHECK(count > 0 && q.units >= 0 && q.units <= UNITS_PER_ONE);
    for (size_t i = 0; i <= count; i++) {
        CHECK(tallies[i] >= 0);
        total += tallies[i];
    }
    if (total == 0) {
        return false;
    }
    rank = q.units * total; /* in UNITS_PER_ONE, as all below */
    for (size_t i = 0; i < count; i++) {
        meter_int128 held = (meter_int128)tallies[i] * UNITS_PER_ONE;

        if (held > 0 && before + held >= rank) {
            *out = quantile_place(bounds, i, rank - before, held);
            return true;
        }
        before += held;
    }
    *out = bounds[count - 1];
    return true;
}


/* ---- figures of one cell --------------------------------------------- */

static void
put_figure(struct json_writer *json, struct decimal_sum figure)
{
    char text[DECIMAL_SUM_TEXT_SIZE + 1];

    decimal_sum_format(figure, text);
    json_text(json, text);
}

static bool
is_tally(const struct series *series)
{
    return series->kind == SERIES_HISTOGRAM || series->kind == SERIES_STATE;
}

/* Tallies of a histogram by bound; as many as buckets, and one above. */
static void
answer_tallies(const struct series *series, const struct answer_cell *cell,
               int64_t tallies[CATALOG_BUCKETS_MAX + 1])
{
    for (size_t b = 0; b <= series->bucket_count; b++) {
        tallies[b] = 0;
    }
    for (size_t i = 0; i < cell->tally_count; i++) {
        struct meter_decimal bound;
        size_t b = series->bucket_count;

        if (meter_decimal_parse(cell->tallies[i].label, &bound) ==
            METER_DECIMAL_OK) {
            b = 0;
            while (b < series->bucket_count &&
                   meter_decimal_compare(series->buckets[b], bound) != 0) {
                b++;
            }
        }
        tallies[b] += cell->tallies[i].count;
    }
}

/* Dimensions, or the two states of a transition. */
static bool
label_read(struct meter_str text, struct arena *arena, struct json_value *out)
{
    static const struct json_limits limits = {
        .depth_max = 1,
        .key_count_max = METER_DIMENSION_COUNT_MAX,
        .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,
        .string_size_max = METER_ATTRIBUTE_STRING_SIZE_MAX,
    };
    struct json_error error;
    size_t used;

    return json_read(text, &limits, arena, out, &used, &error);
}

static bool
transition_read(struct meter_str label, struct arena *arena,
                struct json_value *out)
{
    return label_read(label, arena, out) && out->kind == JSON_ARRAY &&
           out->count == 2;
}

static void
put_value(const struct answer *answer, struct json_writer *json,
          const struct answer_cell *cell, struct arena *arena)
{
    (void)arena;
    if (is_tally(answer->query->series)) {
        json_int_string(json, cell->count);
    } else {
        put_figure(json, cell->figure);
    }
}

static void
put_count(const struct answer *answer, struct json_writer *json,
          const struct answer_cell *cell, struct arena *arena)
{
    (void)answer;
    (void)arena;
    json_int_string(json, cell->count);
}

static void
put_sum(const struct answer *answer, struct json_writer *json,
        const struct answer_cell *cell, struct arena *arena)
{
    (void)answer;
    (void)arena;
    put_figure(json, cell->figure);
}

static void
put_quantiles(const struct answer *answer, struct json_writer *json,
              const struct answer_cell *cell, struct arena *arena)
{
    const struct query *query = answer->query;
    const struct series *series = query->series;
    int64_t tallies[CATALOG_BUCKETS_MAX + 1];

    (void)arena;
    answer_tallies(series, cell, tallies);
    json_object_begin(json);
    for (size_t i = 0; i < query->quantile_count; i++) {
        char name[METER_DECIMAL_TEXT_SIZE + 1];
        struct meter_decimal value;

        meter_decimal_format(query->quantiles[i], name);
        json_key(json, name);
        if (quantile_of(series->buckets, series->bucket_count, tallies,
                        query->quantiles[i], &value)) {
            put_figure(json, decimal_sum_of(value));
        } else {
            json_null(json);
        }
    }
    json_object_end(json);
}

static void
put_counts(const struct answer *answer, struct json_writer *json,
           const struct answer_cell *cell, struct arena *arena)
{
    const struct series *series = answer->query->series;
    int64_t tallies[CATALOG_BUCKETS_MAX + 1];

    (void)arena;
    answer_tallies(series, cell, tallies);
    json_object_begin(json);
    for (size_t b = 0; b <= series->bucket_count; b++) {
        char name[METER_DECIMAL_TEXT_SIZE + 1] = "inf";

        if (b < series->bucket_count) {
            meter_decimal_format(series->buckets[b], name);
        }
        json_key(json, name);
        json_int_string(json, tallies[b]);
    }
    json_object_end(json);
}

static void
put_transitions(const struct answer *answer, struct json_writer *json,
                const struct answer_cell *cell, struct arena *arena)
{
    (void)answer;
    json_array_begin(json);
    for (size_t i = 0; i < cell->tally_count; i++) {
        struct json_value pair;
        struct meter_str from;
        struct meter_str to;

        if (!transition_read(cell->tallies[i].label, arena, &pair) ||
            !json_canonical(&pair.items[0], arena, &from) ||
            !json_canonical(&pair.items[1], arena, &to)) {
            json->out->failed = true; /* half an answer is none */
            break;
        }
        json_object_begin(json);
        json_key(json, "from");
        json_raw(json, from);
        json_key(json, "to");
        json_raw(json, to);
        json_key(json, "count");
        json_int_string(json, cell->tallies[i].count);
        json_object_end(json);
        arena_reset(arena);
    }
    json_array_end(json);
}

/* Members of a row, by kind; "value" is "values" in a series. */
static const struct {
    const char *name;
    unsigned kinds;
    put_cb put;
} members[] = {
    {"count", 1u << SERIES_GAUGE | 1u << SERIES_HISTOGRAM, put_count},
    {"sum", 1u << SERIES_HISTOGRAM, put_sum},
    {"quantiles", 1u << SERIES_HISTOGRAM, put_quantiles},
    {"counts", 1u << SERIES_HISTOGRAM, put_counts},
    {"transitions", 1u << SERIES_STATE, put_transitions},
};

#define MEMBER_COUNT (sizeof(members) / sizeof(members[0]))

static void
put_or_null(const struct answer *answer, struct json_writer *json, put_cb put,
            const struct answer_cell *cell, struct arena *arena)
{
    if (cell == NULL) {
        json_null(json);
    } else {
        put(answer, json, cell, arena);
    }
}


/* ---- as JSON: rows ------------------------------------------------------ */

static void
put_row(const struct answer *answer, void *writer, size_t place, size_t slot,
        const struct answer_cell *cell, struct arena *arena)
{
    struct json_writer *json = writer;

    json_object_begin(json);
    json_key(json, "bucket");
    json_time(json, answer->windows->bounds_us[slot]);
    json_key(json, "dimensions");
    json_raw(json, answer->groups->json[place]);
    json_key(json, "value");
    put_or_null(answer, json, put_value, cell, arena);
    for (size_t m = 0; m < MEMBER_COUNT; m++) {
        if ((members[m].kinds >> answer->query->series->kind & 1) != 0) {
            json_key(json, members[m].name);
            put_or_null(answer, json, members[m].put, cell, arena);
        }
    }
    if (answer->windows->is_partial[slot]) {
        json_key(json, "partial");
        json_bool(json, true);
    }
    json_object_end(json);
}

static void
put_rows(struct answer *answer, struct json_writer *json, struct arena *arena)
{
    json_key(json, "rows");
    json_array_begin(json);
    answer_each_row(answer, put_row, json, arena);
    json_array_end(json);
}


/* ---- as JSON: series ---------------------------------------------------- */

/* One member of a group: an array along the windows that are shown. */
static void
put_along(const struct answer *answer, struct json_writer *json, put_cb put,
          size_t place, size_t first, struct arena *arena)
{
    json_array_begin(json);
    for (size_t w = 0; w < answer->windows->count; w++) {
        const struct answer_cell *cell = cell_at(answer, place, w, &first);

        if (answer->is_window_shown[w]) {
            put_or_null(answer, json, put, cell, arena);
        }
    }
    json_array_end(json);
}

static void
put_group(const struct answer *answer, struct json_writer *json, size_t place,
          size_t first, struct arena *arena)
{
    json_object_begin(json);
    json_key(json, "dimensions");
    json_raw(json, answer->groups->json[place]);
    json_key(json, "values");
    put_along(answer, json, put_value, place, first, arena);
    for (size_t m = 0; m < MEMBER_COUNT; m++) {
        if ((members[m].kinds >> answer->query->series->kind & 1) != 0) {
            json_key(json, members[m].name);
            put_along(answer, json, members[m].put, place, first, arena);
        }
    }
    json_object_end(json);
}

static void
put_windows(const struct answer *answer, struct json_writer *json)
{
    const struct windows *windows = answer->windows;

    json_key(json, "buckets");
    json_array_begin(json);
    for (size_t w = 0; w < windows->count; w++) {
        if (answer->is_window_shown[w]) {
            json_time(json, windows->bounds_us[w]);
        }
    }
    json_array_end(json);
    json_key(json, "partial");
    json_array_begin(json);
    for (size_t w = 0; w < windows->count; w++) {
        if (answer->is_window_shown[w]) {
            json_bool(json, windows->is_partial[w]);
        }
    }
    json_array_end(json);
}

static void
put_series(const struct answer *answer, struct json_writer *json,
           struct arena *arena)
{
    size_t first = 0;

    put_windows(answer, json);
    json_key(json, "series");
    json_array_begin(json);
    for (size_t g = 0; g < answer->shown_count; g++) {
        put_group(answer, json, answer->shown[g], first, arena);
        while (first < answer->cells->count &&
               answer->cells->items[first].place == answer->shown[g]) {
            first++;
        }
    }
    json_array_end(json);
}

static void
answer_put(struct answer *answer, struct json_writer *json, struct arena *arena)
{
    const struct query *query = answer->query;
    char interval[SCALAR_DURATION_TEXT_SIZE + 1];

    scalar_duration_format(query->interval_us, interval);
    json_object_begin(json);
    json_key(json, "metric");
    json_string(json, query->series->name);
    json_key(json, "level");
    json_text(json, meter_level_name(answer->level));
    json_key(json, "interval");
    json_text(json, interval);
    if (query->zone.data != NULL) {
        json_key(json, "tz");
        json_string(json, query->zone);
    }
    if (query->is_series) {
        put_series(answer, json, arena);
    } else {
        put_rows(answer, json, arena);
    }
    json_object_end(json);
}


/* ---- as a table --------------------------------------------------------- */

static void
csv_name(struct csv_writer *csv, const char *name)
{
    csv_cell(csv, (struct meter_str){name, strlen(name)});
}

static void
csv_figure(struct csv_writer *csv, struct decimal_sum figure)
{
    char text[DECIMAL_SUM_TEXT_SIZE + 1];
    size_t size = decimal_sum_format(figure, text);

    csv_cell(csv, (struct meter_str){text, size});
}

static void
csv_empties(struct csv_writer *csv, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        csv_empty(csv);
    }
}


/* ---- as a table: the head ----------------------------------------------- */

static void
csv_histogram_head(struct csv_writer *csv, const struct query *query)
{
    const struct series *series = query->series;
    char number[METER_DECIMAL_TEXT_SIZE + 1];
    char name[METER_DECIMAL_TEXT_SIZE + 8];

    csv_name(csv, "count");
    csv_name(csv, "sum");
    for (size_t i = 0; i < query->quantile_count; i++) {
        meter_decimal_format(query->quantiles[i], number);
        snprintf(name, sizeof(name), "q%s", number);
        csv_name(csv, name);
    }
    for (size_t b = 0; b < series->bucket_count; b++) {
        meter_decimal_format(series->buckets[b], number);
        snprintf(name, sizeof(name), "le_%s", number);
        csv_name(csv, name);
    }
    csv_name(csv, "le_inf");
}

static void
csv_head(struct csv_writer *csv, const struct query *query)
{
    const struct series *series = query->series;

    csv_name(csv, "bucket");
    for (size_t d = 0; d < series->dimension_count; d++) {
        if (query->is_grouped[d]) {
            csv_cell(csv, series->dimensions[d].name);
        }
    }
    if (series->kind == SERIES_STATE) {
        csv_name(csv, "from");
        csv_name(csv, "to");
    }
    csv_name(csv, "value");
    if (series->kind == SERIES_GAUGE) {
        csv_name(csv, "count");
    } else if (series->kind == SERIES_HISTOGRAM) {
        csv_histogram_head(csv, query);
    }
    csv_name(csv, "partial");
    csv_row_end(csv);
}


/* ---- as a table: a line ------------------------------------------------- */

static void
csv_scalar(struct csv_writer *csv, const struct json_value *value)
{
    if (value == NULL || value->kind == JSON_NULL) {
        csv_empty(csv);
    } else if (value->kind == JSON_STRING) {
        csv_client_text(csv, value->text);
    } else if (value->kind == JSON_NUMBER) {
        csv_cell(csv, value->text);
    } else {
        csv_bool(csv, value->kind == JSON_TRUE);
    }
}

bool
csv_dimensions(struct csv_writer *csv, const struct attribute_path *paths,
               size_t count, const bool *is_shown, struct meter_str json,
               struct arena *arena)
{
    struct json_value object;

    if (!label_read(json, arena, &object)) {
        return false;
    }
    for (size_t d = 0; d < count; d++) {
        if (is_shown == NULL || is_shown[d]) {
            csv_scalar(csv, json_member_find(&object, paths[d].name));
        }
    }
    return true;
}

/* The window and the dimensions. */
static void
csv_line_begin(const struct answer *answer, struct csv_writer *csv,
               size_t place, size_t slot, struct arena *arena)
{
    const struct query *query = answer->query;

    csv_time(csv, answer->windows->bounds_us[slot]);
    if (!csv_dimensions(csv, query->series->dimensions,
                        query->series->dimension_count, query->is_grouped,
                        answer->groups->json[place], arena)) {
        csv->out->failed = true; /* half an answer is none */
    }
}

static void
csv_histogram(const struct answer *answer, struct csv_writer *csv,
              const struct answer_cell *cell)
{
    const struct query *query = answer->query;
    const struct series *series = query->series;
    int64_t tallies[CATALOG_BUCKETS_MAX + 1];

    if (cell == NULL) {
        csv_empties(csv, 2 + query->quantile_count + series->bucket_count + 1);
        return;
    }
    answer_tallies(series, cell, tallies);
    csv_int(csv, cell->count);
    csv_figure(csv, cell->figure);
    for (size_t i = 0; i < query->quantile_count; i++) {
        struct meter_decimal value;

        if (quantile_of(series->buckets, series->bucket_count, tallies,
                        query->quantiles[i], &value)) {
            csv_figure(csv, decimal_sum_of(value));
        } else {
            csv_empty(csv);
        }
    }
    for (size_t b = 0; b <= series->bucket_count; b++) {
        csv_int(csv, tallies[b]);
    }
}

static void
csv_transitions(const struct answer *answer, struct csv_writer *csv,
                size_t place, size_t slot, const struct answer_cell *cell,
                struct arena *arena)
{
    for (size_t i = 0; i < cell->tally_count; i++) {
        struct json_value pair;

        csv_line_begin(answer, csv, place, slot, arena);
        if (!transition_read(cell->tallies[i].label, arena, &pair)) {
            csv->out->failed = true;
            return;
        }
        csv_scalar(csv, &pair.items[0]);
        csv_scalar(csv, &pair.items[1]);
        csv_int(csv, cell->tallies[i].count);
        csv_bool(csv, answer->windows->is_partial[slot]);
        csv_row_end(csv);
        arena_reset(arena);
    }
}

static void
csv_line(const struct answer *answer, void *writer, size_t place, size_t slot,
         const struct answer_cell *cell, struct arena *arena)
{
    struct csv_writer *csv = writer;
    enum series_kind kind = answer->query->series->kind;

    if (kind == SERIES_STATE && cell != NULL) {
        csv_transitions(answer, csv, place, slot, cell, arena);
        return;
    }
    csv_line_begin(answer, csv, place, slot, arena);
    csv_empties(csv, kind == SERIES_STATE ? 2 : 0);
    if (cell == NULL) {
        csv_empty(csv);
    } else if (kind == SERIES_HISTOGRAM) {
        csv_int(csv, cell->count);
    } else {
        csv_figure(csv, cell->figure);
    }
    if (kind == SERIES_HISTOGRAM) {
        csv_histogram(answer, csv, cell);
    } else if (kind == SERIES_GAUGE && cell != NULL) {
        csv_int(csv, cell->count);
    } else if (kind == SERIES_GAUGE) {
        csv_empty(csv);
    }
    csv_bool(csv, answer->windows->is_partial[slot]);
    csv_row_end(csv);
    arena_reset(arena);
}

static void
answer_csv(struct answer *answer, struct csv_writer *csv, struct arena *arena)
{
    csv_head(csv, answer->query);
    answer_each_row(answer, csv_line, csv, arena);
}


/* ---- either way ------------------------------------------------------ */

bool
answer_write(struct question *question, bool is_table, struct buf *out)
{
    struct answer answer = {
        .query = &question->query,
        .level = question->level,
        .windows = &question->windows,
        .groups = &question->groups,
        .cells = &question->cells,
    };
    struct json_writer json;
    struct csv_writer csv;
    struct arena scratch;

    if (!answer_init(&answer, question->arena) ||
        answer_size(&answer) > CELLS_MAX) {
        return false;
    }
    arena_init(&scratch, SCRATCH_BLOCK_SIZE, SCRATCH_SIZE_MAX);
    if (is_table) {
        csv_writer_init(&csv, out);
        answer_csv(&answer, &csv, &scratch);
    } else {
        json_writer_init(&json, out);
        answer_put(&answer, &json, &scratch);
    }
    arena_fini(&scratch);
    return !out->failed;
}
