/*
 * query.c - words to a question about a series.
 *
 * GET and POST /v1/query call query_read; both give JSON values by name.
 * What comes out is checked: the metric exists, the range is one, the
 * dimensions are those of the metric. Nothing is asked of the database.
 */

#include "query/query.h"

#include "base/reason.h"
#include "config/scalar.h"

#define ONE_UNITS INT64_C(1000000000) /* 1 as a meter_decimal */

const char *const query_word_names[QUERY_WORDS] = {
    [QUERY_METRIC] = "metric",
    [QUERY_FROM] = "from",
    [QUERY_TO] = "to",
    [QUERY_ROLLUP] = "rollup",
    [QUERY_INTERVAL] = "interval",
    [QUERY_WHERE] = "where",
    [QUERY_GROUP_BY] = "group_by",
    [QUERY_FORMAT] = "format",
    [QUERY_PARTIAL] = "partial",
    [QUERY_PAD] = "pad",
    [QUERY_TZ] = "tz",
    [QUERY_QUANTILES] = "quantiles",
};

/* What one reading needs; error is the first one's. */
struct asked {
    const struct json_value *const *values;
    struct arena *arena;
    struct query *out;
};

/* ---- words ----------------------------------------------------------- */

/* The text of a word; data NULL: not given. False: it is no text. */
static bool
text_of(const struct asked *asked, enum query_word word, struct meter_str *out,
        const char **error)
{
    const struct json_value *value = asked->values[word];

    *out = (struct meter_str){NULL, 0};
    if (value == NULL) {
        return true;
    }
    if (value->kind != JSON_STRING) {
        *error = reason_format(asked->arena, "\"%s\" must be a text",
                               query_word_names[word]);
        return false;
    }
    *out = value->text;
    return true;
}

/* Which of two words it is; the first by default. */
static const char *
choice_read(const struct asked *asked, enum query_word word,
            const char *const *words, bool *is_second)
{
    struct meter_str text;
    const char *error = NULL;
    int at;

    if (!text_of(asked, word, &text, &error)) {
        return error;
    }
    at = text.data == NULL ? 0 : scalar_word(text, words);
    if (at < 0) {
        return reason_format(asked->arena, "\"%s\" must be %s or %s, not %s",
                             query_word_names[word], words[0], words[1],
                             reason_quote(text).text);
    }
    *is_second = at == 1;
    return NULL;
}

static const char *
choices_read(const struct asked *asked)
{
    static const char *const formats[] = {"rows", "series", NULL};
    static const char *const partials[] = {"allow", "forbid", NULL};
    static const char *const pads[] = {"null", "drop", NULL};
    struct query *out = asked->out;
    bool is_forbidden = false;
    const char *error =
        choice_read(asked, QUERY_FORMAT, formats, &out->is_series);

    if (error == NULL) {
        error = choice_read(asked, QUERY_PARTIAL, partials, &is_forbidden);
        out->is_allowed = !is_forbidden;
    }
    if (error == NULL) {
        error = choice_read(asked, QUERY_PAD, pads, &out->is_dropped);
    }
    if (error == NULL && asked->values[QUERY_PAD] == NULL) {
        out->is_dropped = !out->is_series;
    }
    return error;
}


/* ---- range and windows ----------------------------------------------- */

static const char *
time_read(const struct asked *asked, enum query_word word, int64_t *out_us)
{
    const struct json_value *value = asked->values[word];
    bool is_right = false;

    if (value->kind == JSON_STRING) {
        is_right = meter_time_parse(value->text, out_us) ||
                   meter_time_parse_epoch(value->text, out_us);
    } else if (value->kind == JSON_NUMBER) {
        is_right = meter_time_parse_epoch(value->text, out_us);
    }
    return is_right ? NULL
                    : reason_format(asked->arena,
                                    "\"%s\" must be RFC 3339, like "
                                    "2026-09-01T12:00:00Z, or an epoch number",
                                    query_word_names[word]);
}

static const char *
range_read(const struct asked *asked)
{
    struct query *out = asked->out;
    const char *error;

    if (asked->values[QUERY_FROM] == NULL) {
        return "\"from\" is missing";
    }
    error = time_read(asked, QUERY_FROM, &out->from_us);
    out->has_to = asked->values[QUERY_TO] != NULL;
    if (error == NULL && out->has_to) {
        error = time_read(asked, QUERY_TO, &out->to_us);
    }
    if (error == NULL && out->has_to && out->from_us >= out->to_us) {
        return "\"from\" must be before \"to\"";
    }
    return error;
}

/* 90s, 3h, 1h30m: units d, h, m, s in this order, each once. */
static bool
query_interval_read(struct meter_str text, int64_t *out_us)
{
    static const struct {
        char unit;
        int64_t size_us;
    } units[] = {
        {'d', METER_TIME_DAY},
        {'h', METER_TIME_HOUR},
        {'m', METER_TIME_MINUTE},
        {'s', METER_TIME_SECOND},
    };
    size_t u = 0; /* the first unit that may still come */
    size_t at = 0;

    *out_us = 0;
    while (at < text.size) {
        int64_t number = 0;
        size_t first = at;

        while (at < text.size && text.data[at] >= '0' && text.data[at] <= '9' &&
               at - first < 10) {
            number = number * 10 + (text.data[at++] - '0');
        }
        while (u < 4 && at < text.size && units[u].unit != text.data[at]) {
            u++;
        }
        if (at == first || at == text.size || u == 4 ||
            number > QUERY_INTERVAL_MAX_US / units[u].size_us) {
            return false;
        }
        *out_us += number * units[u++].size_us;
        at++;
    }
    return *out_us > 0 && *out_us <= QUERY_INTERVAL_MAX_US &&
           *out_us % QUERY_STEP_US == 0;
}

static const char *
interval_read(const struct asked *asked)
{
    struct meter_str rollup;
    struct meter_str interval;
    enum meter_level level;
    const char *error = NULL;

    if (!text_of(asked, QUERY_ROLLUP, &rollup, &error) ||
        !text_of(asked, QUERY_INTERVAL, &interval, &error)) {
        return error;
    }
    if ((rollup.data == NULL) == (interval.data == NULL)) {
        return "either \"rollup\" or \"interval\" must be given";
    }
    if (rollup.data != NULL) {
        if (!meter_level_parse(rollup, &level)) {
            return "\"rollup\" must be 5s, 1m, 1h, 1d or 7d";
        }
        /* The largest level that divides a level's size is the level. */
        asked->out->interval_us = meter_level_size_us(level);
        return NULL;
    }
    if (!query_interval_read(interval, &asked->out->interval_us)) {
        return "\"interval\" must be a multiple of 5s up to 36500d, like 90s, "
               "1h30m or 9d";
    }
    return NULL;
}

/*
 * A name of the IANA form: Europe/Berlin, Etc/GMT+5, UTC. PostgreSQL would
 * take rules such as X5Y for a zone, too.
 */
static bool
query_is_zone(struct meter_str text)
{
    static const struct meter_str fixed = METER_STR("Etc/GMT");
    bool has_slash = false;

    if (meter_str_equal(text, METER_STR("UTC"))) {
        return true;
    }
    if (text.size > fixed.size &&
        memcmp(text.data, fixed.data, fixed.size) == 0) {
        char sign = text.data[fixed.size];

        /* The database knows which hours there are. */
        for (size_t i = fixed.size + 1; i < text.size; i++) {
            if (text.data[i] < '0' || text.data[i] > '9') {
                return false;
            }
        }
        return (sign == '+' || sign == '-') && text.size > fixed.size + 1 &&
               text.size <= fixed.size + 3;
    }
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];

        has_slash = has_slash || (c == '/' && i > 0 && i + 1 < text.size);
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '_' &&
            c != '-' && c != '/') {
            return false;
        }
    }
    return has_slash && text.size <= QUERY_ZONE_SIZE_MAX;
}

static const char *
zone_read(const struct asked *asked)
{
    struct query *out = asked->out;
    const char *error = NULL;

    if (!text_of(asked, QUERY_TZ, &out->zone, &error) ||
        out->zone.data == NULL) {
        return error;
    }
    if (!query_is_zone(out->zone)) {
        return "\"tz\" must be an IANA time zone, like Europe/Berlin";
    }
    if (asked->values[QUERY_ROLLUP] != NULL) {
        return "\"tz\" goes with \"interval\": buckets of a \"rollup\" start "
               "in UTC";
    }
    if (out->interval_us % METER_TIME_DAY != 0) {
        return "\"tz\" goes with multiples of 1d only";
    }
    return NULL;
}


/* ---- filters --------------------------------------------------------- */

size_t
dimension_place(const struct attribute_path *paths, size_t count,
                struct meter_str name)
{
    size_t place = 0;

    while (place < count && !meter_str_equal(paths[place].name, name)) {
        place++;
    }
    return place;
}

static size_t
series_dimension(const struct series *series, struct meter_str name)
{
    return dimension_place(series->dimensions, series->dimension_count, name);
}

const char *
query_filter_add(struct query *query, const struct query_filter *filter,
                 struct arena *arena)
{
    struct query_filters *filters = &query->filters;
    const struct series *series = query->series;
    size_t d = series_dimension(series, filter->name);
    size_t at = 0;

    if (d == series->dimension_count) {
        return reason_format(arena, "\"where\": the metric has no dimension %s",
                             reason_quote(filter->name).text);
    }
    while (at < filters->count &&
           series_dimension(series, filters->items[at].name) < d) {
        at++;
    }
    if (at < filters->count &&
        meter_str_equal(filters->items[at].name, filter->name)) {
        return reason_format(arena, "\"where\" has the dimension %s twice",
                             reason_quote(filter->name).text);
    }
    memmove(&filters->items[at + 1], &filters->items[at],
            (filters->count - at) * sizeof(filters->items[0]));
    filters->items[at] = *filter;
    filters->count++;
    return NULL;
}

static bool
is_scalar(const struct json_value *value)
{
    return value->kind != JSON_ARRAY && value->kind != JSON_OBJECT;
}

/* One value, or a list of them. */
static const char *
filter_read(const struct json_member *member, struct arena *arena,
            struct query_filter *out)
{
    const struct json_value *value = &member->value;
    bool is_list = value->kind == JSON_ARRAY;

    *out = (struct query_filter){
        .name = member->name,
        .values = is_list ? value->items : value,
        .count = is_list ? value->count : 1,
    };
    if (out->count == 0 || out->count > FILTER_VALUES_MAX) {
        return reason_format(arena,
                             "\"where\": the list of %s must have 1 to %d "
                             "values",
                             reason_quote(member->name).text,
                             FILTER_VALUES_MAX);
    }
    for (size_t i = 0; i < out->count; i++) {
        if (!is_scalar(&out->values[i])) {
            return reason_format(arena,
                                 "\"where\": %s must be a text, a number, "
                                 "true, false, null or a list of such",
                                 reason_quote(member->name).text);
        }
    }
    return NULL;
}

static const char *
where_read(const struct asked *asked)
{
    const struct json_value *object = asked->values[QUERY_WHERE];
    struct query_filter filter;
    const char *error = NULL;

    if (object == NULL) {
        return NULL;
    }
    if (object->kind != JSON_OBJECT) {
        return "\"where\" must be an object: {\"dimension\": value}";
    }
    for (uint32_t i = 0; i < object->count && error == NULL; i++) {
        error = filter_read(&object->members[i], asked->arena, &filter);
        if (error == NULL) {
            error = query_filter_add(asked->out, &filter, asked->arena);
        }
    }
    return error;
}


/* ---- dimensions and quantiles ---------------------------------------- */

static const char *
group_by_read(const struct asked *asked)
{
    const struct json_value *value = asked->values[QUERY_GROUP_BY];
    struct query *out = asked->out;
    const struct series *series = out->series;

    if (value == NULL) {
        for (size_t d = 0; d < series->dimension_count; d++) {
            out->is_grouped[d] = true;
        }
        out->grouped_count = series->dimension_count;
        return NULL;
    }
    if (value->kind != JSON_ARRAY) {
        return "\"group_by\" must be a list of dimensions";
    }
    for (uint32_t i = 0; i < value->count; i++) {
        const struct json_value *name = &value->items[i];
        size_t d;

        if (name->kind != JSON_STRING) {
            return "\"group_by\" must be a list of dimensions";
        }
        d = series_dimension(series, name->text);
        if (d == series->dimension_count) {
            return reason_format(asked->arena,
                                 "\"group_by\": the metric has no dimension %s",
                                 reason_quote(name->text).text);
        }
        out->grouped_count += !out->is_grouped[d];
        out->is_grouped[d] = true;
    }
    return NULL;
}

static const char *
quantile_read(const struct json_value *value, struct meter_decimal *out)
{
    if ((value->kind != JSON_STRING && value->kind != JSON_NUMBER) ||
        meter_decimal_parse(value->text, out) != METER_DECIMAL_OK ||
        out->units < 0 || out->units > ONE_UNITS) {
        return "\"quantiles\" must be numbers from 0 to 1";
    }
    return NULL;
}

static const char *
quantiles_read(const struct asked *asked)
{
    static const int64_t usual[] = {500000000, 900000000, 950000000, 990000000};
    const struct json_value *value = asked->values[QUERY_QUANTILES];
    struct query *out = asked->out;
    const char *error = NULL;

    if (value == NULL) {
        for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++) {
            out->quantiles[out->quantile_count++].units = usual[i];
        }
        return NULL;
    }
    if (out->series->kind != SERIES_HISTOGRAM) {
        return "\"quantiles\" goes with histograms only";
    }
    if (value->kind != JSON_ARRAY || value->count > QUERY_QUANTILES_MAX) {
        return "\"quantiles\" must be a list of at most 16 numbers";
    }
    for (uint32_t i = 0; i < value->count && error == NULL; i++) {
        struct meter_decimal one = {0};
        size_t at = 0;

        error = quantile_read(&value->items[i], &one);
        while (at < out->quantile_count &&
               out->quantiles[at].units != one.units) {
            at++;
        }
        if (at < out->quantile_count) {
            return "\"quantiles\" has one twice";
        }
        out->quantiles[out->quantile_count++] = one;
    }
    return error;
}

_Static_assert(QUERY_QUANTILES_MAX == 16, "the sentence says 16");


/* ---- the whole ------------------------------------------------------- */

static unsigned
metric_read(const struct asked *asked, const struct catalog *catalog,
            const char **error)
{
    struct meter_str name;

    if (!text_of(asked, QUERY_METRIC, &name, error)) {
        return 400;
    }
    if (name.data == NULL) {
        *error = "\"metric\" is missing";
        return 400;
    }
    asked->out->series = catalog_series(catalog, name);
    if (asked->out->series == NULL) {
        *error = "no such metric";
        return 404;
    }
    return 0;
}

unsigned
query_read(const struct catalog *catalog,
           const struct json_value *const values[QUERY_WORDS],
           struct arena *arena, struct query *out, const char **error)
{
    static const char *(*const readings[])(const struct asked *) = {
        range_read,    interval_read,  zone_read,  choices_read,
        group_by_read, quantiles_read, where_read,
    };
    struct asked asked = {values, arena, out};
    unsigned status;

    *out = (struct query){.series = NULL};
    status = metric_read(&asked, catalog, error);
    if (status != 0) {
        return status;
    }
    *error = NULL;
    for (size_t i = 0;
         i < sizeof(readings) / sizeof(readings[0]) && *error == NULL; i++) {
        *error = readings[i](&asked);
    }
    return *error == NULL ? 0 : 400;
}
