/*
 * billing.c - billing meters, see billing.h.
 *
 *   event, attributes -> [billing_project] -> readings, one per meter
 *   readings -> [sums] -> [value], [total] -> amount of an adjustment
 *
 * Nothing here knows rows or SQL: a change says which row and what the
 * event gives to it, sums say what many readings are together.
 */

#include "project/billing.h"

#include "base/reason.h"

int
billing_mark_compare(const struct billing_mark *a, const struct billing_mark *b)
{
    int order = (a->ts_us > b->ts_us) - (a->ts_us < b->ts_us);

    if (order == 0) {
        order = (a->recorded_us > b->recorded_us) -
                (a->recorded_us < b->recorded_us);
    }
    if (order == 0) {
        order = memcmp(a->writer, b->writer, sizeof(a->writer));
    }
    if (order == 0) {
        order =
            (a->writer_seq > b->writer_seq) - (a->writer_seq < b->writer_seq);
    }
    return order;
}

void
billing_sums_init(struct billing_sums *sums)
{
    *sums = (struct billing_sums){.has_value = false};
}

/* Values of one or many readings; min, max and last commute. */
static void
sums_take_values(struct billing_sums *sums, struct meter_decimal min,
                 struct meter_decimal max, struct meter_decimal last,
                 const struct billing_mark *mark)
{
    bool is_first = !sums->has_value;

    if (is_first || meter_decimal_compare(min, sums->min) < 0) {
        sums->min = min;
    }
    if (is_first || meter_decimal_compare(max, sums->max) > 0) {
        sums->max = max;
    }
    if (is_first || billing_mark_compare(mark, &sums->last_mark) > 0) {
        sums->last = last;
        sums->last_mark = *mark;
    }
    sums->has_value = true;
}

bool
billing_sums_add(struct billing_sums *sums,
                 const struct billing_reading *reading,
                 const struct billing_mark *mark)
{
    bool has_value = reading->unique.size == 0;
    struct meter_decimal sum = sums->sum;
    int64_t count;

    if (__builtin_add_overflow(sums->count, reading->count, &count) ||
        (has_value && !meter_decimal_add(sum, reading->sum, &sum))) {
        return false;
    }
    sums->count = count;
    sums->sum = sum;
    if (has_value) {
        sums_take_values(sums, reading->value, reading->value, reading->value,
                         mark);
    }
    return true;
}

bool
billing_sums_merge(struct billing_sums *into, const struct billing_sums *from)
{
    struct billing_sums both = *into;

    if (!meter_decimal_add(into->sum, from->sum, &both.sum) ||
        __builtin_add_overflow(into->count, from->count, &both.count) ||
        __builtin_add_overflow(into->uniques, from->uniques, &both.uniques)) {
        return false;
    }
    if (from->has_value) {
        sums_take_values(&both, from->min, from->max, from->last,
                         &from->last_mark);
    }
    *into = both;
    return true;
}

bool
billing_value(enum billing_aggregation aggregation,
              const struct billing_sums *sums, struct meter_decimal *out)
{
    out->units = 0;
    switch (aggregation) {
    case BILLING_SUM: *out = sums->sum; return true;
    case BILLING_COUNT: *out = meter_decimal_from_int(sums->count); return true;
    case BILLING_UNIQUE:
        *out = meter_decimal_from_int(sums->uniques);
        return true;
    case BILLING_AVG:
        if (sums->has_value) {
            *out = meter_decimal_divide(sums->sum, sums->count);
        }
        return sums->has_value;
    case BILLING_MIN: *out = sums->min; break;
    case BILLING_MAX: *out = sums->max; break;
    case BILLING_LAST: *out = sums->last; break;
    }
    return sums->has_value;
}

bool
billing_total(enum billing_aggregation aggregation,
              const struct billing_total *total, struct meter_decimal *out,
              bool *has_value)
{
    struct billing_sums both = *total->folded;
    struct meter_decimal value;

    if (total->late != NULL && !billing_sums_merge(&both, total->late)) {
        return false;
    }
    *has_value =
        billing_value(aggregation, &both, &value) || total->manual.units != 0;
    return meter_decimal_add(value, total->manual, out);
}

bool
billing_is_on_time(const struct billing_meter *meter, int64_t ts_us,
                   int64_t watermark_us)
{
    return watermark_us <= ts_us + meter->lateness_us;
}

/* What one event gives to one meter. */
struct reading_source {
    const struct billing_meter *meter;
    const struct meter_event *event;
    const struct json_value *attributes;
    struct arena *arena;
};

static const char *
reason_of(const struct reading_source *from, const char *what)
{
    return reason_format(from->arena, "attribute %s %s, as meter %s wants it",
                         reason_quote(from->meter->value->name).text, what,
                         reason_quote(from->meter->metric).text);
}

/* The value that is counted once: any scalar, or the quantity. */
static enum attribute_reading
unique_read(const struct reading_source *from, struct meter_str *out,
            const char **error)
{
    char text[METER_DECIMAL_TEXT_SIZE + 1];
    struct meter_str quantity = {text, 0};
    enum attribute_reading read;

    if (from->meter->value != NULL) {
        read = attribute_scalar(from->attributes, from->meter->value,
                                BILLING_UNIQUE_SIZE_MAX, from->arena, out);
        if (read == ATTRIBUTE_BAD) {
            *error = reason_of(from, "is not a scalar of at most 2000 bytes");
        }
        return read;
    }
    quantity.size = meter_decimal_format(from->event->quantity, text);
    if (!arena_copy(from->arena, quantity, out)) {
        *error = "no memory is left for the event's meters";
        return ATTRIBUTE_BAD;
    }
    return ATTRIBUTE_OK;
}

_Static_assert(BILLING_UNIQUE_SIZE_MAX == 2000, "the sentence says 2000");

/* ABSENT: the meter passes the event over. BAD: *error. */
static enum attribute_reading
reading_take(const struct reading_source *from, struct billing_reading *out,
             const char **error)
{
    const struct meter_event *event = from->event;
    enum attribute_reading read;

    *out = (struct billing_reading){.count = event->count};
    if (from->meter->aggregation == BILLING_UNIQUE) {
        return unique_read(from, &out->unique, error);
    }
    if (from->meter->value == NULL) {
        out->value = event->quantity;
        out->sum = event->quantity;
        return ATTRIBUTE_OK;
    }
    read = attribute_decimal(from->attributes, from->meter->value, event,
                             &out->value);
    if (read == ATTRIBUTE_BAD) {
        *error = reason_of(from, "is not a decimal");
    }
    if (read == ATTRIBUTE_OK &&
        !meter_decimal_multiply(out->value, event->count, &out->sum)) {
        *error = reason_format(from->arena,
                               "attribute %s times count is past 38 digits, "
                               "for meter %s",
                               reason_quote(from->meter->value->name).text,
                               reason_quote(from->meter->metric).text);
        read = ATTRIBUTE_BAD;
    }
    return read;
}

/* As reading_take, for the whole change. */
static enum attribute_reading
change_make(const struct reading_source *from, struct billing_change *change,
            const char **error)
{
    const struct billing_meter *meter = from->meter;
    const struct meter_event *event = from->event;
    enum attribute_reading read = reading_take(from, &change->reading, error);

    if (read != ATTRIBUTE_OK) {
        return read;
    }
    change->meter = meter;
    change->customer =
        event->customer.data == NULL ? METER_STR("") : event->customer;
    change->period_us = period_start(meter->period, event->ts_us);
    change->period_end_us = period_end(meter->period, event->ts_us);
    return attribute_dimensions(from->attributes, meter->group_by,
                                meter->group_by_count, "meter", meter->metric,
                                from->arena, &change->group, error)
               ? ATTRIBUTE_OK
               : ATTRIBUTE_BAD;
}

bool
billing_project(const struct event_type *type, const struct meter_event *event,
                const struct json_value *attributes, struct arena *arena,
                const void **effect, bool *is_careful, const char **error)
{
    struct reading_source from = {
        .event = event, .attributes = attributes, .arena = arena};
    struct billing_effect *made;
    struct billing_change *changes;

    (void)is_careful;
    *effect = NULL;
    if (type->meter_count == 0) {
        return true;
    }
    made = arena_alloc(arena, sizeof(*made));
    changes = arena_alloc(arena, type->meter_count * sizeof(*changes));
    if (made == NULL || changes == NULL) {
        *error = "no memory is left for the event's meters";
        return false;
    }
    *made = (struct billing_effect){.changes = changes};
    for (size_t i = 0; i < type->meter_count; i++) {
        enum attribute_reading read;

        from.meter = type->meters[i];
        read = change_make(&from, &changes[made->count], error);
        if (read == ATTRIBUTE_BAD) {
            return false;
        }
        made->count += read == ATTRIBUTE_OK;
    }
    *effect = made->count > 0 ? made : NULL;
    return true;
}
