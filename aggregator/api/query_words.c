/*
 * query_words.c - see query_words.h.
 */

#include "api/query_words.h"

#include "api/dimension_query.h"
#include "base/reason.h"

#define ERROR_MEMORY "the query is too long"
#define WHERE        "where."
#define WHERE_SIZE   (sizeof(WHERE) - 1)
#define LIST_MAX     64

static bool
is_where(struct meter_str name)
{
    return name.size > WHERE_SIZE && memcmp(name.data, WHERE, WHERE_SIZE) == 0;
}

/* QUERY_WORDS: there is no such word. */
static size_t
word_of(struct meter_str name)
{
    size_t word = 0;

    while (word < QUERY_WORDS &&
           !meter_str_equal(
               name, (struct meter_str){query_word_names[word],
                                        strlen(query_word_names[word])})) {
        word++;
    }
    return word;
}

/* Pieces between commas; of nothing none. */
static const char *
list_read(struct meter_str text, struct arena *arena, struct json_value *out)
{
    struct json_value *items = arena_alloc(arena, LIST_MAX * sizeof(*items));

    if (items == NULL) {
        return ERROR_MEMORY;
    }
    *out = (struct json_value){.kind = JSON_ARRAY};
    out->items = items;
    while (text.size > 0) {
        const char *comma = memchr(text.data, ',', text.size);
        size_t size = comma == NULL ? text.size : (size_t)(comma - text.data);

        if (out->count == LIST_MAX) {
            return "a list has more than 64 parts";
        }
        items[out->count++] = (struct json_value){
            .kind = JSON_STRING,
            .text = {text.data, size},
        };
        size += comma != NULL;
        text.data += size;
        text.size -= size;
    }
    return NULL;
}

_Static_assert(LIST_MAX == 64, "the sentence says 64");

static const char *
where_read(struct meter_str text, struct arena *arena, struct json_value *out)
{
    static const struct json_limits limits = {
        .depth_max = 2,
        .key_count_max = METER_DIMENSION_COUNT_MAX,
        .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,
        .string_size_max = METER_DIMENSION_SIZE_MAX,
    };
    struct json_error error;
    size_t used;

    if (!json_read(text, &limits, arena, out, &used, &error)) {
        return reason_format(arena, "\"where\" is not JSON: %s, byte %zu",
                             error.text, error.offset);
    }
    return used == text.size ? NULL : "\"where\" goes on behind its JSON";
}

/* No instant has a blank in it: each was a '+' that was not escaped. */
static const char *
instant_read(struct meter_str text, struct arena *arena, struct json_value *out)
{
    char *plain = arena_alloc(arena, text.size + 1);

    if (plain == NULL) {
        return ERROR_MEMORY;
    }
    for (size_t i = 0; i < text.size; i++) {
        plain[i] = (char)(text.data[i] == ' ' ? '+' : text.data[i]);
    }
    *out = (struct json_value){
        .kind = JSON_STRING,
        .text = {plain, text.size},
    };
    return NULL;
}

const char *
query_words_read(const struct url_arguments *arguments, struct arena *arena,
                 const struct json_value *values[QUERY_WORDS])
{
    struct json_value *room = arena_zalloc(arena, QUERY_WORDS * sizeof(*room));
    const char *error = NULL;

    if (room == NULL) {
        return ERROR_MEMORY;
    }
    for (size_t word = 0; word < QUERY_WORDS; word++) {
        values[word] = NULL;
    }
    for (size_t i = 0; i < arguments->count && error == NULL; i++) {
        const struct url_argument *argument = &arguments->items[i];
        size_t word = word_of(argument->name);

        if (word == QUERY_WORDS) {
            if (!is_where(argument->name)) {
                return reason_format(arena, "unknown argument %s",
                                     reason_quote(argument->name).text);
            }
            continue;
        }
        values[word] = &room[word];
        if (word == QUERY_GROUP_BY || word == QUERY_QUANTILES) {
            error = list_read(argument->value, arena, &room[word]);
        } else if (word == QUERY_WHERE) {
            error = where_read(argument->value, arena, &room[word]);
        } else if (word == QUERY_FROM || word == QUERY_TO) {
            error = instant_read(argument->value, arena, &room[word]);
        } else {
            room[word].kind = JSON_STRING;
            room[word].text = argument->value;
        }
    }
    return error;
}


/* ---- where.NAME ------------------------------------------------------ */

static const char *
filter_make(const struct dimension_filter *from, struct arena *arena,
            struct query_filter *out)
{
    struct json_value *values =
        arena_zalloc(arena, from->reading_count * sizeof(*values));

    if (values == NULL) {
        return ERROR_MEMORY;
    }
    for (size_t i = 0; i < from->reading_count; i++) {
        const struct meter_dim *reading = &from->readings[i];

        values[i].text = reading->value;
        switch (reading->kind) {
        case METER_DIM_STRING: values[i].kind = JSON_STRING; break;
        case METER_DIM_NUMBER: values[i].kind = JSON_NUMBER; break;
        case METER_DIM_BOOL:
            values[i].kind = meter_str_equal(reading->value, METER_STR("true"))
                                 ? JSON_TRUE
                                 : JSON_FALSE;
            break;
        case METER_DIM_NULL: values[i].kind = JSON_NULL; break;
        }
    }
    *out = (struct query_filter){
        .name = from->name,
        .values = values,
        .count = from->reading_count,
        .is_loose = true,
    };
    return NULL;
}

/* The same arguments under names that can only be dimensions. */
static const char *
arguments_pick(const struct url_arguments *arguments,
               const struct series *series, struct arena *arena,
               struct url_arguments *out)
{
    out->count = 0;
    for (size_t i = 0; i < arguments->count; i++) {
        struct meter_str name = arguments->items[i].name;
        const char *text;

        if (!is_where(name)) {
            continue;
        }
        name.data += WHERE_SIZE;
        name.size -= WHERE_SIZE;
        if (filter_dimension(series, name) == series->dimension_count) {
            return reason_format(arena,
                                 "\"where\": the metric has no dimension %s",
                                 reason_quote(name).text);
        }
        text =
            reason_format(arena, "dimension.%.*s", (int)name.size, name.data);
        out->items[out->count++] = (struct url_argument){
            {text, strlen(text)},
            arguments->items[i].value,
        };
    }
    return NULL;
}

const char *
query_words_filters(const struct url_arguments *arguments,
                    const struct series *series, struct arena *arena,
                    struct query_filters *filters)
{
    const struct counter dimensions_of = {
        .dimensions = series->dimensions,
        .dimension_count = series->dimension_count,
    };
    struct url_arguments *picked = arena_alloc(arena, sizeof(*picked));
    struct dimension_query *query = arena_alloc(arena, sizeof(*query));
    const char *error = NULL;

    if (picked == NULL || query == NULL) {
        return ERROR_MEMORY;
    }
    error = arguments_pick(arguments, series, arena, picked);
    if (error != NULL ||
        !dimension_query_read(&dimensions_of, picked, arena, query, &error)) {
        return error;
    }
    for (size_t i = 0; i < query->count && error == NULL; i++) {
        struct query_filter filter;

        error = filter_make(&query->filters[i], arena, &filter);
        if (error == NULL) {
            error = filters_add(filters, series, &filter, arena);
        }
    }
    return error;
}
