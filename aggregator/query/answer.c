/*
 * answer.c - see answer.h.
 */

#include "query/answer.h"

#include "config/scalar.h"
#include "query/quantile.h"

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

bool
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

size_t
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

void
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

void
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

bool
answer_transition(struct meter_str label, struct arena *arena,
                  struct meter_str *from, struct meter_str *to)
{
    static const struct json_limits limits = {
        .depth_max = 1,
        .key_count_max = 1,
        .name_size_max = 1,
        .string_size_max = METER_ATTRIBUTE_STRING_SIZE_MAX,
    };
    struct json_value pair;
    struct json_error error;
    size_t used;

    return json_read(label, &limits, arena, &pair, &used, &error) &&
           pair.kind == JSON_ARRAY && pair.count == 2 &&
           json_canonical(&pair.items[0], arena, from) &&
           json_canonical(&pair.items[1], arena, to);
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
        struct meter_str from;
        struct meter_str to;

        if (!answer_transition(cell->tallies[i].label, arena, &from, &to)) {
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


/* ---- rows ------------------------------------------------------------ */

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


/* ---- series ---------------------------------------------------------- */

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

void
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
