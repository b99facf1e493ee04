/*
 * dimension_query.c - see dimension_query.h.
 */

#include "api/dimension_query.h"

#include "base/reason.h"
#include "meter_decimal.h"

#define READINGS_MAX 2 /* of one value */

/* The ways to read one argument. */
struct readings {
    struct meter_dim items[READINGS_MAX];
    size_t count;
};

static void
readings_add(struct readings *readings, struct meter_str name,
             enum meter_dim_kind kind, struct meter_str value)
{
    CHECK(readings->count < READINGS_MAX);
    readings->items[readings->count++] = (struct meter_dim){name, kind, value};
}

static const char *
readings_make(struct meter_str name, struct meter_str value,
              struct arena *arena, struct readings *out)
{
    char number[METER_NUMBER_TEXT_SIZE + 1];
    struct meter_str canonical = {number, 0};
    struct meter_str kept;

    out->count = 0;
    if (value.size == 0) {
        readings_add(out, name, METER_DIM_NULL, value);
        return NULL;
    }
    if (value.size >= 2 && value.data[0] == '"' &&
        value.data[value.size - 1] == '"') {
        readings_add(out, name, METER_DIM_STRING,
                     (struct meter_str){value.data + 1, value.size - 2});
        return NULL;
    }
    readings_add(out, name, METER_DIM_STRING, value);
    if (meter_str_equal(value, METER_STR("null"))) {
        readings_add(out, name, METER_DIM_NULL, value);
    } else if (meter_str_equal(value, METER_STR("true")) ||
               meter_str_equal(value, METER_STR("false"))) {
        readings_add(out, name, METER_DIM_BOOL, value);
    } else if (meter_number_canonical(value, number, &canonical.size)) {
        if (!arena_copy(arena, canonical, &kept)) {
            return "the query is too long";
        }
        readings_add(out, name, METER_DIM_NUMBER, kept);
    }
    return NULL;
}


/* ---- which arguments ------------------------------------------------- */

static const struct url_argument *
argument_find(const struct url_arguments *arguments, struct meter_str name)
{
    for (size_t i = 0; i < arguments->count; i++) {
        if (meter_str_equal(arguments->items[i].name, name)) {
            return &arguments->items[i];
        }
    }
    return NULL;
}

static const char *
arguments_check_known(const struct counter *counter,
                      const struct url_arguments *arguments,
                      struct arena *arena)
{
    for (size_t i = 0; i < arguments->count; i++) {
        struct meter_str name = arguments->items[i].name;
        bool known = false;

        for (size_t d = 0; d < counter->dimension_count && !known; d++) {
            known = meter_str_equal(counter->dimensions[d].name, name);
        }
        if (!known) {
            return reason_format(arena, "the counter has no dimension %s",
                                 reason_quote(name).text);
        }
    }
    return NULL;
}

/* "missing dimensions: a, b" */
static const char *
arguments_check_missing(const struct counter *counter,
                        const struct url_arguments *arguments,
                        struct arena *arena)
{
    const char *list = NULL;

    for (size_t d = 0; d < counter->dimension_count; d++) {
        struct meter_str name = counter->dimensions[d].name;

        if (argument_find(arguments, name) != NULL) {
            continue;
        }
        list = reason_format(arena, "%s%s%.*s", list == NULL ? "" : list,
                             list == NULL ? "missing dimensions: " : ", ",
                             (int)name.size, name.data);
    }
    return list;
}


/* ---- all combinations ------------------------------------------------ */

static const char *
combinations_make(const struct readings *readings, size_t dimension_count,
                  struct dimension_query *out)
{
    struct meter_dim dims[METER_DIMENSION_COUNT_MAX];
    size_t total = 1;

    for (size_t d = 0; d < dimension_count; d++) {
        total *= readings[d].count;
        if (total > DIMENSION_READINGS_MAX) {
            return "too many values may be texts or numbers; put the texts "
                   "in quotes";
        }
    }
    for (size_t i = 0; i < total; i++) {
        size_t rest = i;

        for (size_t d = 0; d < dimension_count; d++) {
            dims[d] = readings[d].items[rest % readings[d].count];
            rest /= readings[d].count;
        }
        meter_dims_key(dims, dimension_count, out->keys[i]);
    }
    out->count = total;
    return NULL;
}

bool
dimension_query_build(const struct counter *counter,
                      const struct url_arguments *arguments,
                      struct arena *arena, struct dimension_query *out,
                      const char **error)
{
    struct readings readings[METER_DIMENSION_COUNT_MAX];

    CHECK(counter->dimension_count <= METER_DIMENSION_COUNT_MAX);
    *error = arguments_check_known(counter, arguments, arena);
    if (*error == NULL) {
        *error = arguments_check_missing(counter, arguments, arena);
    }
    for (size_t d = 0; *error == NULL && d < counter->dimension_count; d++) {
        struct meter_str name = counter->dimensions[d].name;
        const struct url_argument *argument = argument_find(arguments, name);

        if (argument->value.size > METER_DIMENSION_SIZE_MAX + 2) {
            *error = reason_format(arena, "the value of \"%.*s\" is too long",
                                   (int)name.size, name.data);
            break;
        }
        *error = readings_make(name, argument->value, arena, &readings[d]);
    }
    if (*error == NULL) {
        *error = combinations_make(readings, counter->dimension_count, out);
    }
    return *error == NULL;
}
