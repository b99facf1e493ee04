/*
 * usage.c - GET /v1/usage: what billing meters say.
 *
 *   metric=api_calls&customer=c1&period=2026-09     one figure
 *   metric=api_calls&from=2026-01&to=2026-07        a list, [from, to)
 *   ...&route=/a                                    one group
 *   ...&groups=true                                 each group for itself
 *
 *   arguments -> usage_query -> statement -> figures -> JSON or CSV
 *
 * One customer, one period: one object, with zeros where nothing came. Else
 * a list of what there is, by period, customer and group, in pages. One
 * statement reads figures and their adjustments, so they agree. Value and
 * total are computed here, from sums, by the functions that ingest uses too:
 * one meaning of a meter.
 *
 * A dimension of the meter is an argument of its name, or dimension.NAME
 * where the name is one of ours; values are read as those of counters (see
 * dimension_query.h), and either all of them are given or none.
 */

#include "api/billing.h"
#include "api/call.h"
#include "api/dimension_query.h"
#include "api/page.h"
#include "base/csv.h"
#include "base/json_writer.h"
#include "base/reason.h"
#include "config/catalog.h"
#include "meter_bytes.h"
#include "meter_event.h"
#include "project/billing.h"
#include "project/period.h"
#include "query/question.h"

#define USAGE_PERIODS_MAX 1000

/* Adjustments of one figure; of a long list fewer, so that it fits. */
#define USAGE_ADJUSTMENTS_MAX      100
#define USAGE_ADJUSTMENTS_LIST_MAX 10000

/* Where a list goes on: after this row. */
struct usage_place {
    int64_t period_us;
    struct meter_str customer;
    uint8_t group_key[METER_DIGEST_SIZE];
};

struct usage_query {
    const struct billing_meter *meter;
    int64_t from_us; /* start of the first period */
    int64_t to_us;   /* end of the last one */
    bool has_customer;
    struct meter_str customer; /* "": events without one */
    bool is_grouped;           /* groups=true */
    bool has_group;            /* one group is asked for */
    struct dimension_query dimensions;
    struct dimension_keys keys;
    struct page page;
    bool has_after;
    struct usage_place after;
};

/* What a meter says of one period, customer and, where asked for, group. */
struct usage_figure {
    struct usage_place place;
    struct meter_str groups; /* canonical JSON; data NULL: all together */
    bool is_closed;
    bool has_watermark;
    int64_t watermark_us;
    bool has_value;
    struct meter_decimal value;
    bool has_total;
    struct meter_decimal total;
    int first_line; /* row of its first adjustment */
    int line_count;
};

enum usage_rows {
    USAGE_ROWS_OK,
    USAGE_ROWS_RANGE, /* a figure passes 38 digits */
    USAGE_ROWS_MEMORY
};


#define PREFIX "dimension."

static bool
usage_is_own(struct meter_str name)
{
    static const char *const names[] = {"metric", "period",   "from",
                                        "to",     "customer", "groups"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (meter_str_equal(name,
                            (struct meter_str){names[i], strlen(names[i])})) {
            return true;
        }
    }
    return page_is_argument(name);
}


/* ---- metric and periods ---------------------------------------------- */

/* Both ends of from and to. */
static const char *
usage_range_read(const struct billing_meter *meter, struct meter_str from,
                 struct meter_str to, struct arena *arena,
                 struct usage_query *out)
{
    const char *error =
        billing_period_read(meter, "from", from, arena, &out->from_us);
    int64_t at_us;

    if (error == NULL) {
        error = billing_period_read(meter, "to", to, arena, &out->to_us);
    }
    if (error != NULL) {
        return error;
    }
    if (out->from_us >= out->to_us) {
        return "\"from\" must be before \"to\"";
    }
    at_us = out->from_us;
    for (size_t i = 0; i < USAGE_PERIODS_MAX && at_us < out->to_us; i++) {
        at_us = period_end(meter->period, at_us);
    }
    return at_us < out->to_us ? "more than 1000 periods are asked for" : NULL;
}

_Static_assert(USAGE_PERIODS_MAX == 1000, "the sentence says 1000");

static const char *
usage_periods_read(const struct url_arguments *arguments, struct arena *arena,
                   struct usage_query *out)
{
    const struct url_argument *period = url_argument_find(arguments, "period");
    const struct url_argument *from = url_argument_find(arguments, "from");
    const struct url_argument *to = url_argument_find(arguments, "to");
    const char *error;

    if (period != NULL && from == NULL && to == NULL) {
        error = billing_period_read(out->meter, "period", period->value, arena,
                                    &out->from_us);
        if (error == NULL) {
            out->to_us = period_end(out->meter->period, out->from_us);
        }
        return error;
    }
    if (period != NULL || from == NULL || to == NULL) {
        return "either \"period\" or both \"from\" and \"to\" must be given";
    }
    return usage_range_read(out->meter, from->value, to->value, arena, out);
}


/* ---- groups ---------------------------------------------------------- */

static const char *
usage_groups_read(const struct url_arguments *arguments,
                  struct usage_query *out)
{
    const struct url_argument *groups = url_argument_find(arguments, "groups");

    out->is_grouped =
        groups != NULL && meter_str_equal(groups->value, METER_STR("true"));
    if (groups != NULL && !out->is_grouped &&
        !meter_str_equal(groups->value, METER_STR("false"))) {
        return "\"groups\" must be true or false";
    }
    return NULL;
}

/* Which of the meter's dimensions an argument names; group_by_count: none. */
static size_t
usage_dimension(const struct billing_meter *meter, struct meter_str name)
{
    struct meter_str bare = name;
    size_t i = 0;

    if (name.size > sizeof(PREFIX) - 1 &&
        memcmp(name.data, PREFIX, sizeof(PREFIX) - 1) == 0) {
        bare.data += sizeof(PREFIX) - 1;
        bare.size -= sizeof(PREFIX) - 1;
    }
    while (i < meter->group_by_count &&
           !meter_str_equal(meter->group_by[i].name, bare) &&
           !meter_str_equal(meter->group_by[i].name, name)) {
        i++;
    }
    return i;
}

/* "missing dimensions: a, b" */
static const char *
usage_missing_dimensions(const struct usage_query *query, struct arena *arena)
{
    const char *list = NULL;
    size_t given = 0;

    for (size_t i = 0; i < query->meter->group_by_count; i++) {
        struct meter_str name = query->meter->group_by[i].name;

        if (given < query->dimensions.count &&
            meter_str_equal(query->dimensions.filters[given].name, name)) {
            given++;
            continue;
        }
        list = reason_format(arena, "%s%s%.*s", list == NULL ? "" : list,
                             list == NULL ? "missing dimensions: " : ", ",
                             (int)name.size, name.data);
    }
    return list;
}

/* What is left of the arguments must be dimensions. */
static const char *
usage_group_read(const struct url_arguments *arguments, struct arena *arena,
                 struct usage_query *out)
{
    const struct billing_meter *meter = out->meter;
    const char *error = NULL;

    for (size_t i = 0; i < arguments->count && error == NULL; i++) {
        const struct url_argument *argument = &arguments->items[i];
        size_t place = usage_dimension(meter, argument->name);

        if (usage_is_own(argument->name)) {
            continue;
        }
        error = place == meter->group_by_count
                    ? reason_format(arena, "the metric has no dimension %s",
                                    reason_quote(argument->name).text)
                    : dimension_query_add(&out->dimensions, meter->group_by,
                                          meter->group_by_count, place,
                                          argument->value, arena);
    }
    out->has_group = out->dimensions.count > 0;
    if (error != NULL || !out->has_group) {
        return error;
    }
    if (!out->dimensions.is_key) {
        return usage_missing_dimensions(out, arena);
    }
    return dimension_query_keys(&out->dimensions, &out->keys, &error) ? NULL
                                                                      : error;
}


/* ---- pages ----------------------------------------------------------- */

/* One customer, one period and no list of groups: one object. */
static bool
usage_query_is_single(const struct usage_query *query)
{
    return query->has_customer && !query->is_grouped &&
           period_end(query->meter->period, query->from_us) == query->to_us;
}

/* Groups are shown, each for itself. */
static bool
usage_query_shows_groups(const struct usage_query *query)
{
    return query->is_grouped || query->has_group;
}

/* How many adjustments each object shows. */
static int
usage_query_adjustments_max(const struct usage_query *query)
{
    int64_t share = USAGE_ADJUSTMENTS_LIST_MAX / query->page.limit;

    if (usage_query_is_single(query) || share > USAGE_ADJUSTMENTS_MAX) {
        return USAGE_ADJUSTMENTS_MAX;
    }
    return (int)share;
}

/* The key of a cursor and back; out gets PAGE_KEY_SIZE_MAX bytes. */
static size_t
usage_place_write(const struct usage_query *query,
                  const struct usage_place *place, char *out)
{
    struct meter_writer writer;

    meter_writer_init(&writer, out, PAGE_KEY_SIZE_MAX);
    meter_put_u64(&writer, (uint64_t)place->period_us);
    if (usage_query_shows_groups(query)) {
        meter_put_bytes(&writer, place->group_key, METER_DIGEST_SIZE);
    }
    meter_put_bytes(&writer, place->customer.data, place->customer.size);
    CHECK(!writer.failed);
    return writer.at;
}

static bool
usage_place_read(const struct usage_query *query, struct meter_str key,
                 struct usage_place *out)
{
    struct meter_reader reader;
    size_t group_size = usage_query_shows_groups(query) ? METER_DIGEST_SIZE : 0;
    struct meter_str group;

    *out = (struct usage_place){.period_us = 0};
    if (key.size < 8 + group_size) {
        return false;
    }
    meter_reader_init(&reader, key.data, key.size);
    out->period_us = (int64_t)meter_get_u64(&reader);
    group = meter_get_bytes(&reader, group_size);
    if (group_size > 0) {
        memcpy(out->group_key, group.data, group_size);
    }
    out->customer = meter_get_bytes(&reader, key.size - 8 - group_size);
    return !reader.failed && meter_utf8_valid(out->customer) &&
           out->period_us >= query->from_us && out->period_us < query->to_us;
}

static void
page_ask_number(struct page *page, int64_t number)
{
    page_ask(page, (struct meter_str){(const char *)&number, sizeof(number)});
}

static const char *
usage_page_read(const struct url_arguments *arguments, struct meter_str tenant,
                struct arena *arena, struct usage_query *out)
{
    struct page *page = &out->page;
    const char *error;

    page_init(page);
    page_ask(page, METER_STR("usage"));
    page_ask(page, tenant);
    page_ask(page, out->meter->metric);
    page_ask_number(page, out->from_us);
    page_ask_number(page, out->to_us);
    page_ask_number(page, out->has_customer);
    page_ask(page, out->customer);
    page_ask_number(page, out->is_grouped);
    page_ask(page, (struct meter_str){(const char *)out->keys.items,
                                      out->keys.count * METER_DIGEST_SIZE});
    if (!page_read(page, arguments, arena, &error)) {
        return error;
    }
    out->has_after = page->after.data != NULL;
    if (out->has_after && !usage_place_read(out, page->after, &out->after)) {
        return PAGE_ERROR_CURSOR;
    }
    return NULL;
}


/* ---- the whole query ---------------------------------------------------- */

/*
 * out is filled in place; the catalog must outlive it. 0, or the status of
 * an answer with *error, a sentence in the arena or a literal.
 */
static unsigned
usage_query_read(const struct catalog *catalog, struct meter_str tenant,
                 const struct url_arguments *arguments, struct arena *arena,
                 struct usage_query *out, const char **error)
{
    const struct url_argument *customer;
    unsigned status = 400;

    *out = (struct usage_query){.customer = METER_STR("")};
    out->meter = billing_metric_read(catalog, arguments, &status, error);
    if (out->meter == NULL) {
        return status;
    }
    customer = url_argument_find(arguments, "customer");
    if (customer != NULL) {
        out->has_customer = true;
        out->customer = customer->value;
    }
    *error = usage_periods_read(arguments, arena, out);
    if (*error == NULL) {
        *error = usage_groups_read(arguments, out);
    }
    if (*error == NULL) {
        *error = usage_group_read(arguments, arena, out);
    }
    if (*error == NULL) {
        *error = usage_page_read(arguments, tenant, arena, out);
    }
    return *error == NULL ? 0 : 400;
}


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

/*
 * From what was summed; the rest of figure is left. False: a figure passes
 * 38 digits.
 */
static bool
usage_figure_compute(const struct billing_meter *meter,
                     const struct billing_total *sums,
                     struct usage_figure *figure)
{
    figure->has_value =
        billing_value(meter->aggregation, sums->folded, &figure->value);
    return billing_total(meter->aggregation, sums, &figure->total,
                         &figure->has_total);
}

/* As of a customer without any event. */
static void
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
usage_sums_read(const void *result, int row, int first,
                struct billing_sums *sums)
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
usage_row_place(const void *result, int row, struct usage_place *place)
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
usage_figure_read(const struct billing_meter *meter, const void *result,
                  int row, struct usage_figure *figure)
{
    struct billing_sums folded;
    struct billing_sums late;
    struct billing_total total = {.folded = &folded, .late = &late};

    *figure = (struct usage_figure){
        .is_closed = pg_get_bool(result, row, ROW_IS_CLOSED),
        .has_watermark = !pg_is_null(result, row, ROW_WATERMARK),
        .first_line = row + 1,
    };
    usage_row_place(result, row, &figure->place);
    if (!pg_is_null(result, row, ROW_GROUPS)) {
        figure->groups = pg_get_bytes(result, row, ROW_GROUPS);
    }
    if (figure->has_watermark) {
        figure->watermark_us = pg_get_time(result, row, ROW_WATERMARK);
    }
    return usage_sums_read(result, row, ROW_FOLDED, &folded) &&
           usage_sums_read(result, row, ROW_LATE, &late) &&
           numeric_or_zero(result, row, ROW_MANUAL_SUM, &total.manual) &&
           usage_figure_compute(meter, &total, figure);
}

/* The place of an adjustment's row is that of the figure before it. */
static bool
usage_is_line_of(const void *result, int row, const struct usage_figure *figure)
{
    struct usage_place place;

    usage_row_place(result, row, &place);
    return place.period_us == figure->place.period_us &&
           meter_str_equal(place.customer, figure->place.customer) &&
           memcmp(place.group_key, figure->place.group_key,
                  sizeof(place.group_key)) == 0;
}

/* All figures of a result, in the arena; they borrow from the result. */
static enum usage_rows
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
                  usage_is_line_of(result, row, &made[made_count - 1]));
            made[made_count - 1].line_count++;
        } else if (!usage_figure_read(meter, result, row,
                                      &made[made_count++])) {
            return USAGE_ROWS_RANGE;
        }
    }
    return USAGE_ROWS_OK;
}


/* ---- as JSON --------------------------------------------------------- */

static void
usage_put_adjustments(struct json_writer *json, const struct usage_query *query,
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
        adjustment_put(json, &one);
    }
    json_array_end(json);
    if (is_cut) {
        member_bool(json, "adjustments_truncated", true);
    }
}

/* One object. result NULL: without adjustments. */
static void
usage_put(struct json_writer *json, const struct usage_query *query,
          const struct usage_figure *figure, const void *result)
{
    char period[PERIOD_TEXT_SIZE + 1];

    period_format(query->meter->period, figure->place.period_us, period);
    json_object_begin(json);
    member_string(json, "metric", query->meter->metric);
    billing_put_customer(json, figure->place.customer);
    member_text(json, "period", period);
    if (figure->groups.data != NULL) {
        member_raw(json, "group", figure->groups);
    }
    member_decimal(json, "value", figure->has_value, figure->value);
    usage_put_adjustments(json, query, figure, result);
    member_decimal(json, "total", figure->has_total, figure->total);
    json_key(json, "watermark");
    if (figure->has_watermark) {
        json_time(json, figure->watermark_us);
    } else {
        json_null(json);
    }
    member_bool(json, "closed", figure->is_closed);
    json_object_end(json);
}


/* ---- as a table ------------------------------------------------------ */

static void
csv_name(struct csv_writer *csv, const char *name)
{
    csv_cell(csv, (struct meter_str){name, strlen(name)});
}

/* The head of a table and a line of it. False: no memory, or range. */
static void
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

static bool
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
        !csv_dimensions(csv, query->meter->group_by,
                        query->meter->group_by_count, NULL, figure->groups,
                        arena)) {
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


/* The call's state. */
struct usage_question {
    struct usage_query query;
    enum accept_form form;
};

static void usage_rows_cb(void *asker, const struct pg_answer *answer);
static void usage_closed_cb(void *asker, const struct pg_answer *answer);


/* ---- asking ---------------------------------------------------------- */

/* Probed one by one for a customer; a list of all goes along the key. */
static void
usage_param_periods(struct pg_params *params, const struct usage_query *query)
{
    size_t count = 0;

    for (int64_t at_us = query->from_us;
         query->has_customer && at_us < query->to_us;
         at_us = period_end(query->meter->period, at_us)) {
        count++;
    }
    pg_param_array_begin(params, PG_TIMESTAMPTZ, count);
    for (int64_t at_us = query->from_us;
         query->has_customer && at_us < query->to_us;
         at_us = period_end(query->meter->period, at_us)) {
        pg_put_time(&params->bytes, at_us);
    }
    pg_param_array_end(params);
}

/* A second row for one figure would be an ambiguity: enough to know. */
static int64_t
usage_row_limit(const struct usage_query *query)
{
    return usage_query_is_single(query) ? 2 : page_row_limit(&query->page);
}

static void
usage_ask(struct api_call *call, const struct usage_query *query)
{
    bool shows_groups = usage_query_shows_groups(query);
    struct pg_params *params = call_params(call);

    pg_param_text(params, call_tenant(call));
    pg_param_text(params, query->meter->metric);
    pg_param_text(params, query->has_customer ? query->customer
                                              : (struct meter_str){NULL, 0});
    usage_param_periods(params, query);
    pg_param_time(params, query->has_after ? query->after.period_us
                                           : query->from_us - 1);
    pg_param_text(params,
                  query->has_after ? query->after.customer : METER_STR(""));
    if (shows_groups) {
        pg_param_bytes(
            params,
            query->has_after
                ? (struct meter_str){(const char *)query->after.group_key,
                                     METER_DIGEST_SIZE}
                : METER_STR(""));
    }
    pg_param_time(params, query->to_us);
    pg_param_int8(params, usage_row_limit(query));
    pg_param_int8(params, usage_query_adjustments_max(query) + 1);
    if (query->has_group) {
        dimension_keys_param(params, &query->keys);
    } else if (shows_groups) {
        pg_param_null(params);
    }
    call_read(call,
              shows_groups ? STATEMENT_USAGE_GROUPS : STATEMENT_USAGE_LIST,
              usage_rows_cb);
}

static void
usage_get(struct api_call *call)
{
    struct usage_question *question;
    const struct url_arguments *arguments;
    enum accept_form form;
    const char *error = NULL;
    unsigned status;

    if (!table_form(call, &form) ||
        (question = call_state(call, sizeof(*question))) == NULL ||
        (arguments = call_arguments(call)) == NULL) {
        return;
    }
    question->form = form;
    status =
        usage_query_read(call->config->catalog, call_tenant(call), arguments,
                         &call->arena, &question->query, &error);
    if (status != 0) {
        call_answer_error(call, status, 0, error);
        return;
    }
    usage_ask(call, &question->query);
}


/* ---- answering ------------------------------------------------------- */

/* False: the call has its answer. */
static bool
usage_table_put(struct api_call *call, const struct usage_query *query,
                const struct usage_figure *figures, int count)
{
    struct csv_writer csv;
    struct arena scratch;
    bool fits = true;

    csv_writer_init(&csv, &call->out);
    usage_csv_head(&csv, query);
    arena_init(&scratch, 4096, 1u << 20);
    for (int i = 0; i < count && fits; i++) {
        fits = usage_csv(&csv, query, &figures[i], &scratch);
        arena_reset(&scratch);
    }
    arena_fini(&scratch);
    if (!fits) {
        call_answer_error(call, 422, 0, CALL_ERROR_RANGE);
    }
    return fits;
}

static void
usage_single_answer(struct api_call *call, const struct usage_figure *figure,
                    const void *result)
{
    const struct usage_question *question = call->state;

    if (question->form == ACCEPT_CSV) {
        if (usage_table_put(call, &question->query, figure, 1)) {
            table_answer(call, NULL);
        }
        return;
    }
    usage_put(&call->json, &question->query, figure, result);
    call_answer(call, 200);
}

/* Nothing came: a period that is closed says so all the same. */
static void
usage_ask_closed(struct api_call *call, const struct usage_query *query)
{
    struct pg_params *params = call_params(call);

    pg_param_text(params, call_tenant(call));
    pg_param_text(params, query->meter->metric);
    pg_param_time(params, query->from_us);
    call_read(call, STATEMENT_CLOSE_READ, usage_closed_cb);
}

static void
usage_closed_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct usage_question *question = call->state;
    const struct usage_query *query = &question->query;
    struct usage_figure figure;

    usage_figure_zero(query->meter, &figure);
    figure.place.period_us = query->from_us;
    figure.place.customer = query->customer;
    figure.is_closed = pg_row_count(answer->result) > 0;
    if (query->has_group &&
        !dimension_query_json(&query->dimensions, (struct meter_str){NULL, 0},
                              &call->arena, &figure.groups)) {
        call_answer_unavailable(call);
        return;
    }
    usage_single_answer(call, &figure, NULL);
}

static void
usage_list_answer(struct api_call *call, const struct usage_figure *figures,
                  int count, const void *result)
{
    const struct usage_question *question = call->state;
    const struct usage_query *query = &question->query;
    int shown = page_row_count(&query->page, count);
    char key[PAGE_KEY_SIZE_MAX];
    char cursor[PAGE_CURSOR_SIZE_MAX + 1];
    struct meter_str last = {key, 0};
    bool has_more;

    if (shown > 0) {
        last.size = usage_place_write(query, &figures[shown - 1].place, key);
    }
    has_more = page_cursor(&query->page, count, last, cursor);
    if (question->form == ACCEPT_CSV) {
        if (usage_table_put(call, query, figures, shown)) {
            table_answer(call, has_more ? cursor : NULL);
        }
        return;
    }
    json_object_begin(&call->json);
    json_key(&call->json, "usage");
    json_array_begin(&call->json);
    for (int i = 0; i < shown; i++) {
        usage_put(&call->json, query, &figures[i], result);
    }
    json_array_end(&call->json);
    page_end(&query->page, count, last, &call->json);
    json_object_end(&call->json);
    call_answer(call, 200);
}

static void
usage_rows_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct usage_question *question = call->state;
    const struct usage_query *query = &question->query;
    struct usage_figure *figures;
    int count;

    switch (usage_rows_read(query->meter, answer->result, &call->arena,
                            &figures, &count)) {
    case USAGE_ROWS_OK: break;
    case USAGE_ROWS_RANGE:
        call_answer_error(call, 422, 0, CALL_ERROR_RANGE);
        return;
    case USAGE_ROWS_MEMORY: call_answer_unavailable(call); return;
    }
    if (!usage_query_is_single(query)) {
        usage_list_answer(call, figures, count, answer->result);
    } else if (count == 0) {
        usage_ask_closed(call, query);
    } else if (count == 1) {
        usage_single_answer(call, &figures[0], answer->result);
    } else {
        call_answer_error(call, 400, 0, question_error_mixed);
    }
}


static const struct route usage_routes[] = {
    {METER_METHOD_GET, "/v1/usage", TOKEN_SCOPE_READ, usage_get},
};

const struct resource usage_resource = {
    RESOURCE_ROUTES(usage_routes),
};
