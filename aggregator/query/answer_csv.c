/*
 * answer_csv.c - the table of an answer: a line for each window and group.
 *
 * Of a state series a line for each transition. See answer.h.
 */

#include "query/answer.h"

#include "query/quantile.h"

#include <stdio.h>

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


/* ---- the head -------------------------------------------------------- */

static void
histogram_head(struct csv_writer *csv, const struct query *query)
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
head_put(struct csv_writer *csv, const struct query *query)
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
        histogram_head(csv, query);
    }
    csv_name(csv, "partial");
    csv_row_end(csv);
}


/* ---- a line ---------------------------------------------------------- */

static void
scalar_put(struct csv_writer *csv, const struct json_value *value)
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

static bool
text_read(struct meter_str text, struct arena *arena, struct json_value *out)
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

/* The window and the dimensions. */
static void
place_put(const struct answer *answer, struct csv_writer *csv, size_t place,
          size_t slot, struct arena *arena)
{
    const struct query *query = answer->query;
    struct json_value group;

    csv_time(csv, answer->windows->bounds_us[slot]);
    if (!text_read(answer->groups->json[place], arena, &group)) {
        csv->out->failed = true; /* half an answer is none */
        return;
    }
    for (size_t d = 0; d < query->series->dimension_count; d++) {
        if (query->is_grouped[d]) {
            scalar_put(csv, json_member_find(
                                &group, query->series->dimensions[d].name));
        }
    }
}

static void
histogram_put(const struct answer *answer, struct csv_writer *csv,
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
transitions_put(const struct answer *answer, struct csv_writer *csv,
                size_t place, size_t slot, const struct answer_cell *cell,
                struct arena *arena)
{
    for (size_t i = 0; i < cell->tally_count; i++) {
        struct json_value pair;

        place_put(answer, csv, place, slot, arena);
        if (!text_read(cell->tallies[i].label, arena, &pair) ||
            pair.kind != JSON_ARRAY || pair.count != 2) {
            csv->out->failed = true;
            return;
        }
        scalar_put(csv, &pair.items[0]);
        scalar_put(csv, &pair.items[1]);
        csv_int(csv, cell->tallies[i].count);
        csv_bool(csv, answer->windows->is_partial[slot]);
        csv_row_end(csv);
        arena_reset(arena);
    }
}

static void
line_put(const struct answer *answer, void *writer, size_t place, size_t slot,
         const struct answer_cell *cell, struct arena *arena)
{
    struct csv_writer *csv = writer;
    enum series_kind kind = answer->query->series->kind;

    if (kind == SERIES_STATE && cell != NULL) {
        transitions_put(answer, csv, place, slot, cell, arena);
        return;
    }
    place_put(answer, csv, place, slot, arena);
    csv_empties(csv, kind == SERIES_STATE ? 2 : 0);
    if (cell == NULL) {
        csv_empty(csv);
    } else if (kind == SERIES_HISTOGRAM) {
        csv_int(csv, cell->count);
    } else {
        csv_figure(csv, cell->figure);
    }
    if (kind == SERIES_HISTOGRAM) {
        histogram_put(answer, csv, cell);
    } else if (kind == SERIES_GAUGE && cell != NULL) {
        csv_int(csv, cell->count);
    } else if (kind == SERIES_GAUGE) {
        csv_empty(csv);
    }
    csv_bool(csv, answer->windows->is_partial[slot]);
    csv_row_end(csv);
    arena_reset(arena);
}

void
answer_csv(struct answer *answer, struct csv_writer *csv, struct arena *arena)
{
    head_put(csv, answer->query);
    answer_each_row(answer, line_put, csv, arena);
}
