/*
 * filter.c - see filter.h.
 */

#include "query/filter.h"

#include "base/json_writer.h"
#include "base/reason.h"
#include "meter_decimal.h"
#include "meter_dims.h"

size_t
filter_dimension(const struct series *series, struct meter_str name)
{
    size_t d = 0;

    while (d < series->dimension_count &&
           !meter_str_equal(series->dimensions[d].name, name)) {
        d++;
    }
    return d;
}

const char *
filters_add(struct query_filters *filters, const struct series *series,
            const struct query_filter *filter, struct arena *arena)
{
    size_t d = filter_dimension(series, filter->name);
    size_t at = 0;

    if (d == series->dimension_count) {
        return reason_format(arena, "\"where\": the metric has no dimension %s",
                             reason_quote(filter->name).text);
    }
    while (at < filters->count &&
           filter_dimension(series, filters->items[at].name) < d) {
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
member_read(const struct json_member *member, struct arena *arena,
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

const char *
filters_read(struct query_filters *filters, const struct series *series,
             const struct json_value *object, struct arena *arena)
{
    struct query_filter filter;
    const char *error = NULL;

    if (object->kind != JSON_OBJECT) {
        return "\"where\" must be an object: {\"dimension\": value}";
    }
    for (uint32_t i = 0; i < object->count && error == NULL; i++) {
        error = member_read(&object->members[i], arena, &filter);
        if (error == NULL) {
            error = filters_add(filters, series, &filter, arena);
        }
    }
    return error;
}

bool
filters_json(const struct query_filters *filters, struct arena *arena,
             struct buf *out)
{
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    for (size_t f = 0; f < filters->count; f++) {
        const struct query_filter *filter = &filters->items[f];

        json_key_str(&json, filter->name);
        json_array_begin(&json);
        for (size_t i = 0; i < filter->count; i++) {
            struct meter_str text;

            if (!json_canonical(&filter->values[i], arena, &text)) {
                return false;
            }
            json_raw(&json, text);
        }
        json_array_end(&json);
    }
    json_object_end(&json);
    return !out->failed;
}


/* ---- all combinations ------------------------------------------------ */

static bool
dim_of(const struct query_filter *filter, const struct json_value *value,
       struct arena *arena, struct meter_dim *out)
{
    char number[METER_NUMBER_TEXT_SIZE + 1];
    struct meter_str canonical = {number, 0};

    *out = (struct meter_dim){filter->name, METER_DIM_NULL, METER_STR("")};
    switch (value->kind) {
    case JSON_STRING:
        out->kind = METER_DIM_STRING;
        out->value = value->text;
        return true;
    case JSON_NUMBER:
        out->kind = METER_DIM_NUMBER;
        return meter_number_canonical(value->text, number, &canonical.size) &&
               arena_copy(arena, canonical, &out->value);
    case JSON_TRUE:
    case JSON_FALSE:
        out->kind = METER_DIM_BOOL;
        out->value =
            value->kind == JSON_TRUE ? METER_STR("true") : METER_STR("false");
        return true;
    default: return value->kind == JSON_NULL;
    }
}

bool
filters_keys(const struct query_filters *filters, const struct series *series,
             struct arena *arena, struct filter_keys *out)
{
    struct meter_dim dims[METER_DIMENSION_COUNT_MAX];
    size_t total = 1;

    if (filters->count < series->dimension_count) {
        return false;
    }
    for (size_t f = 0; f < filters->count; f++) {
        total *= filters->items[f].count;
        if (total > FILTER_KEYS_MAX) {
            return false;
        }
    }
    out->items = arena_alloc(arena, total * sizeof(out->items[0]));
    if (out->items == NULL) {
        return false;
    }
    for (size_t i = 0; i < total; i++) {
        size_t rest = i;

        for (size_t f = 0; f < filters->count; f++) {
            const struct query_filter *filter = &filters->items[f];

            if (!dim_of(filter, &filter->values[rest % filter->count], arena,
                        &dims[f])) {
                return false;
            }
            rest /= filter->count;
        }
        meter_dims_key(dims, filters->count, out->items[i]);
    }
    out->count = total;
    return true;
}
