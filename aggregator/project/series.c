/*
 * series.c - what an event adds to which series, see series.h.
 *
 *   event, attributes -> [series_project] -> changes, one per series
 *   ledger's from_state -> [series_from_read] -> states before
 *
 * Nothing here knows cells or SQL: a change says which dimension set, how
 * many samples and what each is worth.
 */

#include "project/series.h"

#include "base/reason.h"

const char series_from_unknown[] = "unknown";

/* One event on one series. */
struct change_source {
    const struct meter_event *event;
    const struct json_value *attributes;
    struct arena *arena;
};

/* The value of one sample and of all of them together. */
static enum attribute_reading
value_read(const struct change_source *from, struct series_change *change,
           const char **error)
{
    const struct series *series = change->series;
    enum attribute_reading read;

    if (series->value == NULL) {
        change->value = from->event->quantity;
        change->total = decimal_sum_of(change->value);
        return ATTRIBUTE_OK;
    }
    read = attribute_decimal(from->attributes, series->value, from->event,
                             &change->value);
    if (read == ATTRIBUTE_OK) {
        change->total = decimal_sum_times(change->value, change->count);
    } else if (read == ATTRIBUTE_BAD) {
        *error = reason_format(from->arena,
                               "attribute %s is not a decimal, as series %s "
                               "wants it",
                               reason_quote(series->value->name).text,
                               reason_quote(series->name).text);
    }
    return read;
}

_Static_assert(SERIES_COUNT_MAX == 1000000000000, "the reason says so");

/* The first bound that is not below the value. */
static bool
label_make(const struct series_change *change, struct arena *arena,
           struct meter_str *label)
{
    const struct series *series = change->series;
    char text[METER_DECIMAL_TEXT_SIZE + 1];
    size_t low = 0;
    size_t high = series->bucket_count;
    size_t size;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (meter_decimal_compare(change->value, series->buckets[middle]) > 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == series->bucket_count) {
        *label = METER_STR(SERIES_LABEL_INF);
        return true;
    }
    size = meter_decimal_format(series->buckets[low], text);
    return arena_copy(arena, (struct meter_str){text, size}, label);
}

static enum attribute_reading
scalar_read(const struct change_source *from, const struct series *series,
            const struct attribute_path *path, size_t size_max,
            struct meter_str *out, const char **error)
{
    enum attribute_reading read =
        attribute_scalar(from->attributes, path, size_max, from->arena, out);

    if (read == ATTRIBUTE_BAD) {
        *error = reason_format(from->arena,
                               "attribute %s is not a scalar of at most %zu "
                               "bytes, as series %s wants it",
                               reason_quote(path->name).text, size_max,
                               reason_quote(series->name).text);
    }
    return read;
}

static enum attribute_reading
state_read(const struct change_source *from, struct series_change *change,
           const char **error)
{
    const struct series *series = change->series;
    enum attribute_reading read =
        scalar_read(from, series, series->entity, SERIES_ENTITY_SIZE_MAX,
                    &change->entity, error);

    if (read == ATTRIBUTE_OK) {
        read = scalar_read(from, series, series->state, SERIES_STATE_SIZE_MAX,
                           &change->state, error);
    }
    return read;
}

static bool
dimensions_are_equal(const struct series *a, const struct series *b)
{
    if (a->dimension_count != b->dimension_count) {
        return false;
    }
    for (size_t i = 0; i < a->dimension_count; i++) {
        if (!meter_str_equal(a->dimensions[i].name, b->dimensions[i].name)) {
            return false;
        }
    }
    return true;
}

/* The set of change number `at`: that of an earlier one where it can be. */
static bool
set_read(const struct change_source *from, struct series_change *changes,
         size_t at, const char **error)
{
    const struct series *series = changes[at].series;

    for (size_t i = at; i > 0; i--) {
        if (dimensions_are_equal(changes[i - 1].series, series)) {
            changes[at].set = changes[i - 1].set;
            return true;
        }
    }
    return attribute_dimensions(from->attributes, series->dimensions,
                                series->dimension_count, "series", series->name,
                                from->arena, &changes[at].set, error);
}

/* ABSENT: the series passes the event over. */
static enum attribute_reading
change_read(const struct change_source *from, const struct series *series,
            struct series_change *changes, size_t at, const char **error)
{
    struct series_change *change = &changes[at];
    enum attribute_reading read;

    *change =
        (struct series_change){.series = series, .count = from->event->count};
    read = series->kind == SERIES_STATE ? state_read(from, change, error)
                                        : value_read(from, change, error);
    if (read == ATTRIBUTE_OK && !set_read(from, changes, at, error)) {
        read = ATTRIBUTE_BAD;
    }
    if (read == ATTRIBUTE_OK && series->kind == SERIES_HISTOGRAM &&
        !label_make(change, from->arena, &change->label)) {
        *error = "no memory is left for the event's series";
        read = ATTRIBUTE_BAD;
    }
    return read;
}

bool
series_project(const struct event_type *type, const struct meter_event *event,
               const struct json_value *attributes, struct arena *arena,
               const void **effect, bool *is_careful, const char **error)
{
    const struct change_source from = {event, attributes, arena};
    struct series_effect *made;
    struct series_change *changes;

    (void)is_careful; /* states are decided on the fast path, too */
    *effect = NULL;
    if (type->series_count == 0) {
        return true;
    }
    if (event->count > SERIES_COUNT_MAX) {
        *error = "the count is past 10^12: no series takes it";
        return false;
    }
    made = arena_alloc(arena, sizeof(*made));
    changes = arena_alloc(arena, type->series_count * sizeof(*changes));
    if (made == NULL || changes == NULL) {
        *error = "no memory is left for the event's series";
        return false;
    }
    *made = (struct series_effect){.changes = changes};
    for (size_t i = 0; i < type->series_count; i++) {
        enum attribute_reading read =
            change_read(&from, type->series[i], changes, made->count, error);

        if (read == ATTRIBUTE_BAD) {
            return false;
        }
        if (read == ATTRIBUTE_OK) {
            made->state_count += changes[made->count].entity.data != NULL;
            made->count++;
        }
    }
    *effect = made->count > 0 ? made : NULL;
    return true;
}

struct meter_str
series_owner(const struct series *series, char out[SERIES_OWNER_SIZE_MAX])
{
    size_t size = sizeof(SERIES_OWNER_PREFIX) - 1;

    CHECK(series->name.size <= CATALOG_NAME_SIZE_MAX);
    memcpy(out, SERIES_OWNER_PREFIX, size);
    memcpy(out + size, series->name.data, series->name.size);
    return (struct meter_str){out, size + series->name.size};
}

/* What the ledger says of one series. False: not what ingest writes. */
static bool
from_take(const struct json_value *object, const struct series *series,
          struct meter_str *from)
{
    char text[SERIES_OWNER_SIZE_MAX];
    const struct json_value *value =
        object == NULL ? NULL
                       : json_member_find(object, series_owner(series, text));

    *from = (struct meter_str){NULL, 0};
    if (value == NULL) {
        from->data = series_from_unknown;
        return true;
    }
    if (value->kind == JSON_STRING && value->text.size > 0 &&
        value->text.size <= SERIES_STATE_SIZE_MAX) {
        *from = value->text;
        return true;
    }
    return value->kind == JSON_NULL;
}

bool
series_from_read(const struct series_effect *effect,
                 struct meter_str from_state, struct arena *arena,
                 const struct meter_str **from)
{
    /* Members of counters are objects of dimensions. */
    static const struct json_limits limits = {
        3, CATALOG_ENTRIES_MAX * METER_DIMENSION_COUNT_MAX,
        METER_NAME_SIZE_MAX + sizeof(SERIES_OWNER_PREFIX),
        METER_ATTRIBUTE_STRING_SIZE_MAX};
    struct json_value object;
    struct json_error error;
    struct meter_str *made;
    size_t count = 0;
    size_t used;

    *from = NULL;
    if (effect->state_count == 0) {
        return true;
    }
    made = arena_alloc(arena, effect->state_count * sizeof(*made));
    if (made == NULL ||
        (from_state.data != NULL &&
         (!json_read(from_state, &limits, arena, &object, &used, &error) ||
          object.kind != JSON_OBJECT || used != from_state.size))) {
        return false;
    }
    for (size_t i = 0; i < effect->count; i++) {
        const struct series_change *change = &effect->changes[i];

        if (change->entity.data != NULL &&
            !from_take(from_state.data == NULL ? NULL : &object, change->series,
                       &made[count++])) {
            return false;
        }
    }
    *from = made;
    return true;
}
