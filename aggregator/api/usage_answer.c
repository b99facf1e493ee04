/*
 * usage_answer.c - see usage_answer.h.
 */

#include "api/usage_answer.h"

#include "api/adjustment.h"
#include "project/period.h"

/* Columns of usage_list and usage_groups. */
enum usage_column_of_row {
    ROW_PERIOD_START,
    ROW_CUSTOMER,
    ROW_GROUP_KEY,
    ROW_GROUPS,
    ROW_IS_CLOSED,
    ROW_WATERMARK,
    ROW_FOLDED,    /* SUMS_COLUMNS of them */
    ROW_LATE = 16, /* likewise */
    ROW_MANUAL_SUM = 26,
    ROW_ID, /* NULL: the figure; else one of its adjustments */
    ROW_IS_MANUAL,
    ROW_AMOUNT,
    ROW_REASON,
    ROW_ACTOR,
    ROW_TS,
    ROW_RECORDED_AT
};

/* Columns of sums, from ROW_FOLDED or ROW_LATE on. */
enum sums_column {
    SUMS_SUM,
    SUMS_COUNT,
    SUMS_MIN,
    SUMS_MAX,
    SUMS_LAST,
    SUMS_LAST_TS,
    SUMS_LAST_RECORDED_AT,
    SUMS_LAST_WRITER,
    SUMS_LAST_SEQ,
    SUMS_UNIQUES,
    SUMS_COLUMNS
};

_Static_assert((int)ROW_LATE == (int)ROW_FOLDED + (int)SUMS_COLUMNS &&
                   (int)ROW_MANUAL_SUM == (int)ROW_LATE + (int)SUMS_COLUMNS,
               "the columns of the statements");


/* ---- figures --------------------------------------------------------- */

bool
usage_figure_compute(const struct billing_meter *meter,
                     const struct billing_total *sums,
                     struct usage_figure *figure)
{
    figure->has_value =
        billing_value(meter->aggregation, sums->folded, &figure->value);
    return billing_total(meter->aggregation, sums, &figure->total,
                         &figure->has_total);
}

void
usage_figure_zero(const struct billing_meter *meter,
                  struct usage_figure *figure)
{
    struct billing_sums nothing;
    struct billing_total total = {.folded = &nothing};
    bool fits;

    billing_sums_init(&nothing);
    *figure = (struct usage_figure){.is_closed = false};
    fits = usage_figure_compute(meter, &total, figure);
    CHECK(fits);
}

/* NULL counts as 0. */
static int64_t
int8_or_zero(const void *result, int row, int column)
{
    return pg_is_null(result, row, column) ? 0
                                           : pg_get_int8(result, row, column);
}

static bool
numeric_or_zero(const void *result, int row, int column,
                struct meter_decimal *out)
{
    out->units = 0;
    return pg_is_null(result, row, column) ||
           pg_get_numeric(result, row, column, out);
}

static bool
sums_read(const void *result, int row, int first, struct billing_sums *sums)
{
    struct meter_str writer;

    billing_sums_init(sums);
    sums->count = int8_or_zero(result, row, first + SUMS_COUNT);
    sums->uniques = int8_or_zero(result, row, first + SUMS_UNIQUES);
    if (!numeric_or_zero(result, row, first + SUMS_SUM, &sums->sum)) {
        return false;
    }
    if (pg_is_null(result, row, first + SUMS_LAST_TS)) {
        return true;
    }
    sums->has_value = true;
    sums->last_mark.ts_us = pg_get_time(result, row, first + SUMS_LAST_TS);
    sums->last_mark.recorded_us =
        pg_get_time(result, row, first + SUMS_LAST_RECORDED_AT);
    sums->last_mark.writer_seq =
        pg_get_int8(result, row, first + SUMS_LAST_SEQ);
    writer = pg_get_bytes(result, row, first + SUMS_LAST_WRITER);
    CHECK(writer.size == sizeof(sums->last_mark.writer));
    memcpy(sums->last_mark.writer, writer.data, writer.size);
    return numeric_or_zero(result, row, first + SUMS_MIN, &sums->min) &&
           numeric_or_zero(result, row, first + SUMS_MAX, &sums->max) &&
           numeric_or_zero(result, row, first + SUMS_LAST, &sums->last);
}

static void
place_read(const void *result, int row, struct usage_place *place)
{
    *place = (struct usage_place){
        .period_us = pg_get_time(result, row, ROW_PERIOD_START),
        .customer = pg_get_bytes(result, row, ROW_CUSTOMER),
    };
    if (!pg_is_null(result, row, ROW_GROUP_KEY)) {
        struct meter_str key = pg_get_bytes(result, row, ROW_GROUP_KEY);

        CHECK(key.size == sizeof(place->group_key));
        memcpy(place->group_key, key.data, key.size);
    }
}

static bool
figure_read(const struct billing_meter *meter, const void *result, int row,
            struct usage_figure *figure)
{
    struct billing_sums folded;
    struct billing_sums late;
    struct billing_total total = {.folded = &folded, .late = &late};

    *figure = (struct usage_figure){
        .is_closed = pg_get_bool(result, row, ROW_IS_CLOSED),
        .has_watermark = !pg_is_null(result, row, ROW_WATERMARK),
        .first_line = row + 1,
    };
    place_read(result, row, &figure->place);
    if (!pg_is_null(result, row, ROW_GROUPS)) {
        figure->groups = pg_get_bytes(result, row, ROW_GROUPS);
    }
    if (figure->has_watermark) {
        figure->watermark_us = pg_get_time(result, row, ROW_WATERMARK);
    }
    return sums_read(result, row, ROW_FOLDED, &folded) &&
           sums_read(result, row, ROW_LATE, &late) &&
           numeric_or_zero(result, row, ROW_MANUAL_SUM, &total.manual) &&
           usage_figure_compute(meter, &total, figure);
}

/* The place of an adjustment's row is that of the figure before it. */
static bool
is_line_of(const void *result, int row, const struct usage_figure *figure)
{
    struct usage_place place;

    place_read(result, row, &place);
    return place.period_us == figure->place.period_us &&
           meter_str_equal(place.customer, figure->place.customer) &&
           memcmp(place.group_key, figure->place.group_key,
                  sizeof(place.group_key)) == 0;
}

enum usage_rows
usage_rows_read(const struct billing_meter *meter, const void *result,
                struct arena *arena, struct usage_figure **figures, int *count)
{
    int rows = pg_row_count(result);
    struct usage_figure *made;
    int made_count = 0;

    for (int row = 0; row < rows; row++) {
        made_count += pg_is_null(result, row, ROW_ID);
    }
    made = arena_alloc(arena, ((size_t)made_count + 1) * sizeof(*made));
    if (made == NULL) {
        return USAGE_ROWS_MEMORY;
    }
    *figures = made;
    *count = made_count;
    made_count = 0;
    for (int row = 0; row < rows; row++) {
        if (!pg_is_null(result, row, ROW_ID)) {
            CHECK(made_count > 0 &&
                  is_line_of(result, row, &made[made_count - 1]));
            made[made_count - 1].line_count++;
        } else if (!figure_read(meter, result, row, &made[made_count++])) {
            return USAGE_ROWS_RANGE;
        }
    }
    return USAGE_ROWS_OK;
}


/* ---- as JSON --------------------------------------------------------- */

static void
put_adjustments(struct json_writer *json, const struct usage_query *query,
                const struct usage_figure *figure, const void *result)
{
    int shown = usage_query_adjustments_max(query);
    bool is_cut = figure->line_count > shown;

    if (!is_cut) {
        shown = figure->line_count;
    }
    json_key(json, "adjustments");
    json_array_begin(json);
    for (int row = figure->first_line; row < figure->first_line + shown;
         row++) {
        struct adjustment one = {
            .is_manual = pg_get_bool(result, row, ROW_IS_MANUAL),
            .id = pg_get_bytes(result, row, ROW_ID),
            .reason = pg_get_bytes(result, row, ROW_REASON),
            .ts_us = pg_get_time(result, row, ROW_TS),
            .recorded_us = pg_get_time(result, row, ROW_RECORDED_AT),
        };
        bool fits = pg_get_numeric(result, row, ROW_AMOUNT, &one.amount);

        CHECK(fits);
        if (one.is_manual) {
            one.actor = pg_get_bytes(result, row, ROW_ACTOR);
        }
        adjustment_put_brief(json, &one);
    }
    json_array_end(json);
    if (is_cut) {
        json_key(json, "adjustments_truncated");
        json_bool(json, true);
    }
}

void
usage_put(struct json_writer *json, const struct usage_query *query,
          const struct usage_figure *figure, const void *result)
{
    char period[PERIOD_TEXT_SIZE + 1];

    period_format(query->meter->period, figure->place.period_us, period);
    json_object_begin(json);
    json_key(json, "metric");
    json_string(json, query->meter->metric);
    adjustment_put_customer(json, figure->place.customer);
    json_key(json, "period");
    json_text(json, period);
    if (figure->groups.data != NULL) {
        json_key(json, "group");
        json_raw(json, figure->groups);
    }
    adjustment_put_decimal(json, "value", figure->has_value, figure->value);
    put_adjustments(json, query, figure, result);
    adjustment_put_decimal(json, "total", figure->has_total, figure->total);
    json_key(json, "watermark");
    if (figure->has_watermark) {
        json_time(json, figure->watermark_us);
    } else {
        json_null(json);
    }
    json_key(json, "closed");
    json_bool(json, figure->is_closed);
    json_object_end(json);
}


/* ---- as a table ------------------------------------------------------ */

static void
csv_name(struct csv_writer *csv, const char *name)
{
    csv_cell(csv, (struct meter_str){name, strlen(name)});
}

void
usage_csv_head(struct csv_writer *csv, const struct usage_query *query)
{
    static const char *const figures[] = {"value", "total", "adjustments",
                                          "watermark", "closed"};

    csv_name(csv, "metric");
    csv_name(csv, "customer");
    csv_name(csv, "period");
    if (usage_query_shows_groups(query)) {
        for (size_t i = 0; i < query->meter->group_by_count; i++) {
            csv_cell(csv, query->meter->group_by[i].name);
        }
    }
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        csv_name(csv, figures[i]);
    }
    csv_row_end(csv);
}

static void
csv_decimal(struct csv_writer *csv, bool has_value, struct meter_decimal value)
{
    char text[METER_DECIMAL_TEXT_SIZE + 1];
    size_t size;

    if (!has_value) {
        csv_empty(csv);
        return;
    }
    size = meter_decimal_format(value, text);
    csv_cell(csv, (struct meter_str){text, size});
}

/* A cell for each dimension, from the group's JSON. */
static bool
csv_groups(struct csv_writer *csv, const struct billing_meter *meter,
           struct meter_str groups, struct arena *arena)
{
    static const struct json_limits limits = {
        .depth_max = 1,
        .key_count_max = METER_DIMENSION_COUNT_MAX,
        .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,
        .string_size_max = METER_DIMENSION_SIZE_MAX,
    };
    struct json_value object;
    struct json_error error;
    size_t used;

    if (!json_read(groups, &limits, arena, &object, &used, &error)) {
        return false;
    }
    for (size_t i = 0; i < meter->group_by_count; i++) {
        const struct json_value *value =
            json_member_find(&object, meter->group_by[i].name);

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
    return true;
}

bool
usage_csv(struct csv_writer *csv, const struct usage_query *query,
          const struct usage_figure *figure, struct arena *arena)
{
    char period[PERIOD_TEXT_SIZE + 1];
    struct meter_decimal difference;
    size_t size;

    csv_cell(csv, query->meter->metric);
    if (figure->place.customer.size == 0) {
        csv_empty(csv);
    } else {
        csv_client_text(csv, figure->place.customer);
    }
    size = period_format(query->meter->period, figure->place.period_us, period);
    csv_cell(csv, (struct meter_str){period, size});
    if (figure->groups.data != NULL &&
        !csv_groups(csv, query->meter, figure->groups, arena)) {
        return false;
    }
    csv_decimal(csv, figure->has_value, figure->value);
    csv_decimal(csv, figure->has_total, figure->total);
    if (!meter_decimal_subtract(figure->total, figure->value, &difference)) {
        return false;
    }
    csv_decimal(csv, figure->has_total, difference);
    if (figure->has_watermark) {
        csv_time(csv, figure->watermark_us);
    } else {
        csv_empty(csv);
    }
    csv_bool(csv, figure->is_closed);
    csv_row_end(csv);
    return true;
}
