/*
 * dimension_query.c - query arguments to the keys they may mean.
 *
 * Counters, usage and query call this with the dimensions that a client
 * gave. An argument has no type, so each value is read in every way it may
 * have been sent; the header tells which. All of it is pure.
 */

#include "api/dimension_query.h"

#include "base/reason.h"
#include "meter_decimal.h"
#include "pg/column.h"
#include "query/query.h"

#define ERROR_MEMORY "the query is too long"

/* What a scalar grows to as JSON, at most. */
#define JSON_SIZE(size) (METER_JSON_ESCAPED_SIZE(size) + 2)

static void
reading_add(struct dimension_filter *filter, enum meter_dim_kind kind,
            struct meter_str value)
{
    CHECK(filter->reading_count < DIMENSION_READINGS_MAX);
    filter->readings[filter->reading_count++] =
        (struct meter_dim){filter->name, kind, value};
}

const char *
dimension_filter_read(struct meter_str name, struct meter_str value,
                      struct arena *arena, struct dimension_filter *out)
{
    char number[METER_NUMBER_TEXT_SIZE + 1];
    struct meter_str canonical = {number, 0};
    struct meter_str kept;

    *out = (struct dimension_filter){.name = name};
    if (value.size > METER_DIMENSION_SIZE_MAX + 2) {
        return reason_format(arena, "the value of \"%.*s\" is too long",
                             (int)name.size, name.data);
    }
    if (value.size == 0) {
        reading_add(out, METER_DIM_NULL, value);
        return NULL;
    }
    if (value.size >= 2 && value.data[0] == '"' &&
        value.data[value.size - 1] == '"') {
        reading_add(out, METER_DIM_STRING,
                    (struct meter_str){value.data + 1, value.size - 2});
        return NULL;
    }
    reading_add(out, METER_DIM_STRING, value);
    if (meter_str_equal(value, METER_STR("null"))) {
        reading_add(out, METER_DIM_NULL, value);
    } else if (meter_str_equal(value, METER_STR("true")) ||
               meter_str_equal(value, METER_STR("false"))) {
        reading_add(out, METER_DIM_BOOL, value);
    } else if (meter_number_canonical(value, number, &canonical.size)) {
        if (!arena_copy(arena, canonical, &kept)) {
            return ERROR_MEMORY;
        }
        reading_add(out, METER_DIM_NUMBER, kept);
    }
    return NULL;
}


/* ---- which arguments ------------------------------------------------- */

const char *
dimension_query_add(struct dimension_query *query,
                    const struct attribute_path *paths, size_t count,
                    size_t place, struct meter_str value, struct arena *arena)
{
    size_t at = 0;

    while (at < query->count &&
           dimension_place(paths, count, query->filters[at].name) < place) {
        at++;
    }
    if (at < query->count &&
        meter_str_equal(query->filters[at].name, paths[place].name)) {
        return reason_format(arena, "the dimension %s is given twice",
                             reason_quote(paths[place].name).text);
    }
    memmove(&query->filters[at + 1], &query->filters[at],
            (query->count - at) * sizeof(query->filters[0]));
    query->count++;
    query->is_key = query->count == count;
    return dimension_filter_read(paths[place].name, value, arena,
                                 &query->filters[at]);
}


/* ---- all combinations ------------------------------------------------ */

bool
dimension_query_keys(const struct dimension_query *query,
                     struct dimension_keys *out, const char **error)
{
    struct meter_dim dims[METER_DIMENSION_COUNT_MAX];
    size_t total = 1;

    CHECK(query->is_key);
    for (size_t d = 0; d < query->count; d++) {
        total *= query->filters[d].reading_count;
        if (total > DIMENSION_KEYS_MAX) {
            *error = "too many values may be texts or numbers; put the texts "
                     "in quotes";
            return false;
        }
    }
    for (size_t i = 0; i < total; i++) {
        size_t rest = i;

        for (size_t d = 0; d < query->count; d++) {
            const struct dimension_filter *filter = &query->filters[d];

            dims[d] = filter->readings[rest % filter->reading_count];
            rest /= filter->reading_count;
        }
        meter_dims_key(dims, query->count, out->items[i]);
    }
    out->count = total;
    return true;
}

void
dimension_keys_param(struct pg_params *params,
                     const struct dimension_keys *keys)
{
    static const struct pg_column digest[] = {
        {.field = PG_FIELD_DIGEST, .size = METER_DIGEST_SIZE},
    };

    pg_param_rows(params, digest, 1, keys->items, keys->count,
                  METER_DIGEST_SIZE);
}


/* ---- as JSON --------------------------------------------------------- */

bool
dimension_query_json(const struct dimension_query *query,
                     struct meter_str picked, struct arena *arena,
                     struct meter_str *out)
{
    struct meter_dim dims[METER_DIMENSION_COUNT_MAX];
    struct meter_writer writer;
    size_t room = sizeof("{}");
    char *data;

    if (picked.size != 0 && picked.size != query->count) {
        return false;
    }
    for (size_t d = 0; d < query->count; d++) {
        const struct dimension_filter *filter = &query->filters[d];
        size_t reading = picked.size == 0 ? 0 : (size_t)(picked.data[d] - '0');

        if (reading >= filter->reading_count) {
            return false;
        }
        dims[d] = filter->readings[reading];
        room += JSON_SIZE(filter->name.size) + JSON_SIZE(dims[d].value.size) +
                sizeof("null:,");
    }
    data = arena_alloc(arena, room);
    if (data == NULL) {
        return false;
    }
    meter_writer_init(&writer, data, room);
    meter_dims_json(dims, query->count, &writer);
    CHECK(!writer.failed);
    *out = (struct meter_str){data, writer.at};
    return true;
}
