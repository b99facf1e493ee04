/*
 * catalog.c - the compiled rules: words of the grammar, look-ups, the dump.
 *
 *   catalog_build -> struct catalog -> [catalog] -> validate, projector, api
 *
 * Look-ups are one hash each. The dump is YAML with everything spelled out:
 * loading it gives the same rules again, so it shows exactly what the files
 * mean, and its hash is the version of the rules. It has one entry a line;
 * names and attributes are always quoted.
 */

#include "config/catalog.h"

#include "config/scalar.h"

const char *const usage_column_words[] = {
    [USAGE_ENTRY_COUNT] = "entryCount",
    [USAGE_STORAGE_BYTES] = "storageBytes",
    [USAGE_API_CALL_COUNT] = "apiCallCount",
    NULL,
};
const char *const billing_aggregation_words[] = {
    [BILLING_SUM] = "sum",       [BILLING_COUNT] = "count",
    [BILLING_MIN] = "min",       [BILLING_MAX] = "max",
    [BILLING_AVG] = "avg",       [BILLING_LAST] = "last",
    [BILLING_UNIQUE] = "unique", NULL,
};
const char *const billing_period_words[] = {
    [BILLING_HOUR] = "hour",
    [BILLING_DAY] = "day",
    [BILLING_MONTH] = "month",
    NULL,
};
const char *const series_kind_words[] = {
    [SERIES_COUNTER] = "counter",
    [SERIES_GAUGE] = "gauge",
    [SERIES_HISTOGRAM] = "histogram",
    [SERIES_STATE] = "state",
    NULL,
};
const char *const series_policy_words[] = {
    [SERIES_AVG] = "avg",
    [SERIES_MIN] = "min",
    [SERIES_MAX] = "max",
    [SERIES_LAST] = "last",
    NULL,
};


/* ---- look-ups -------------------------------------------------------- */

const struct event_type *
catalog_event_type(const struct catalog *catalog, struct meter_str type)
{
    const struct event_type *found = map_find(&catalog->event_type_map, type);

    return found != NULL ? found : catalog->any_type;
}

const struct counter *
catalog_counter(const struct catalog *catalog, struct meter_str name)
{
    return map_find(&catalog->counter_map, name);
}

const struct billing_meter *
catalog_meter(const struct catalog *catalog, struct meter_str metric)
{
    return map_find(&catalog->meter_map, metric);
}

const struct series *
catalog_series(const struct catalog *catalog, struct meter_str name)
{
    return map_find(&catalog->series_map, name);
}


/* ---- the dump -------------------------------------------------------- */

/* One UTF-8 character; the text was checked when the file was read. */
static uint32_t
dump_utf8_next(const unsigned char *bytes, size_t size, size_t *used)
{
    uint32_t code = bytes[0];
    size_t more = code < 0xc0 ? 0 : code < 0xe0 ? 1 : code < 0xf0 ? 2 : 3;

    CHECK(more < size);
    if (more > 0) {
        code &= 0x3fu >> more;
    }
    for (size_t i = 1; i <= more; i++) {
        code = (code << 6) | (bytes[i] & 0x3f);
    }
    *used = more + 1;
    return code;
}

/* Line breaks, marks and what a YAML reader refuses in the raw. */
static bool
dump_needs_escape(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 ||
           code == 0x2029 || code == 0xfeff || code > 0xfffd;
}

static void
dump_quoted(struct buf *out, struct meter_str text)
{
    const unsigned char *bytes = (const unsigned char *)text.data;
    size_t at = 0;

    buf_put_byte(out, '"');
    while (at < text.size) {
        size_t used;
        uint32_t code = dump_utf8_next(bytes + at, text.size - at, &used);

        if (dump_needs_escape(code)) {
            buf_printf(out, "\\U%08x", (unsigned)code);
        } else {
            if (code == '"' || code == '\\') {
                buf_put_byte(out, '\\');
            }
            buf_put(out, bytes + at, used);
        }
        at += used;
    }
    buf_put_byte(out, '"');
}

static void
dump_path(struct buf *out, const char *key, const struct attribute_path *path)
{
    buf_printf(out, ", %s: ", key);
    dump_quoted(out, path->name);
}

/* Items that begin with their name: attribute paths, or names alone. */
static void
dump_names(struct buf *out, const char *key, const void *items, size_t size,
           size_t count)
{
    buf_printf(out, ", %s: [", key);
    for (size_t i = 0; i < count; i++) {
        const char *item = (const char *)items + i * size;

        buf_put_text(out, i == 0 ? "" : ", ");
        dump_quoted(out, *(const struct meter_str *)item);
    }
    buf_put_byte(out, ']');
}

static void
dump_paths(struct buf *out, const char *key, const struct attribute_path *items,
           size_t count)
{
    dump_names(out, key, items, sizeof(*items), count);
}

static const char *
dump_bool(bool value)
{
    return value ? "true" : "false";
}

static void
dump_events(const struct catalog *catalog, struct buf *out)
{
    buf_put_text(out, "events:\n");
    for (size_t i = 0; i < catalog->event_type_count; i++) {
        const struct event_type *type = &catalog->event_types[i];

        if (!type->declared) {
            continue;
        }
        buf_put_text(out, "  - { type: ");
        dump_quoted(out, type->name);
        buf_printf(out, ", delta: %s", dump_bool(type->delta));
        dump_paths(out, "required", type->required.items, type->required.count);
        dump_paths(out, "indexed", type->indexed.items, type->indexed.count);
        buf_printf(out, ", idempotency: { requireEventId: %s } }\n",
                   dump_bool(type->require_event_id));
    }
}

static void
dump_counter(const struct counter *counter, struct buf *out)
{
    buf_put_text(out, "  - { counterName: ");
    dump_quoted(out, counter->name);
    buf_put_text(out, ", mode: persistent");
    dump_paths(out, "dimensions", counter->dimensions,
               counter->dimension_count);
    buf_printf(out, ", floorAtZero: %s, audit: %s",
               dump_bool(counter->floor_at_zero), dump_bool(counter->audit));
    if (counter->entity != NULL) {
        buf_put_text(out, ", transitions: { entity: ");
        dump_quoted(out, counter->entity->name);
        buf_put_text(out, " }");
    }
    buf_put_text(out, ", rules: [");
    for (size_t i = 0; i < counter->rule_count; i++) {
        const struct counter_rule *rule = &counter->rules[i];

        buf_put_text(out, i == 0 ? " { on: " : ", { on: ");
        dump_quoted(out, rule->on);
        buf_printf(out, ", op: %s",
                   rule->delta > 0 ? "increment" : "decrement");
        if (rule->by != NULL) {
            dump_path(out, "by", rule->by);
        }
        buf_put_text(out, " }");
    }
    buf_put_text(out, " ] }\n");
}

/* One of the two lists of a column; nothing when it is empty. */
static bool
dump_usage_list(const struct catalog *catalog, enum usage_column column,
                int delta, bool first, struct buf *out)
{
    bool any = false;

    for (size_t i = 0; i < catalog->usage_rule_count; i++) {
        const struct usage_rule *rule = &catalog->usage_rules[i];

        if (rule->column != column || rule->delta != delta) {
            continue;
        }
        if (!any) {
            buf_printf(out, "%s%s: [", first ? "" : ", ",
                       delta > 0 ? "increment" : "decrement");
        }
        buf_put_text(out, any ? ", " : "");
        dump_quoted(out, rule->on);
        any = true;
    }
    buf_put_text(out, any ? "]" : "");
    return any;
}

static void
dump_usage_column(const struct catalog *catalog, enum usage_column column,
                  struct buf *out)
{
    const struct attribute_path *by = NULL;
    bool used = false;

    for (size_t i = 0; i < catalog->usage_rule_count; i++) {
        if (catalog->usage_rules[i].column == column) {
            by = catalog->usage_rules[i].by;
            used = true;
        }
    }
    if (!used) {
        return;
    }
    buf_printf(out, "  %s: { ", usage_column_name(column));
    used = dump_usage_list(catalog, column, 1, true, out);
    (void)dump_usage_list(catalog, column, -1, !used, out);
    if (by != NULL) {
        dump_path(out, "by", by);
    }
    buf_put_text(out, " }\n");
}

static void
dump_usage_status(const char *key, struct meter_str name, struct buf *out)
{
    if (name.size > 0) {
        buf_printf(out, "  %s: ", key);
        dump_quoted(out, name);
        buf_put_byte(out, '\n');
    }
}

static void
dump_usage(const struct catalog *catalog, struct buf *out)
{
    if (catalog->usage_rule_count == 0 &&
        catalog->usage_provisioned.size == 0 &&
        catalog->usage_decommissioned.size == 0) {
        buf_put_text(out, "usage: {}\n");
        return;
    }
    buf_put_text(out, "usage:\n");
    for (int column = 0; column < USAGE_COLUMN_COUNT; column++) {
        dump_usage_column(catalog, (enum usage_column)column, out);
    }
    dump_usage_status("provisioned", catalog->usage_provisioned, out);
    dump_usage_status("decommissioned", catalog->usage_decommissioned, out);
}

static void
dump_value(struct buf *out, const struct attribute_path *value)
{
    if (value == NULL) {
        buf_put_text(out, ", value: quantity");
    } else {
        dump_path(out, "value", value);
    }
}

static void
dump_meter(const struct billing_meter *meter, struct buf *out)
{
    char lateness[SCALAR_DURATION_TEXT_SIZE + 1];

    scalar_duration_format(meter->lateness_us, lateness);
    buf_put_text(out, "  - { metric: ");
    dump_quoted(out, meter->metric);
    dump_names(out, "on", meter->on, sizeof(*meter->on), meter->on_count);
    dump_value(out, meter->value);
    buf_printf(out, ", aggregation: %s, period: %s, lateness: %s",
               billing_aggregation_name(meter->aggregation),
               billing_period_name(meter->period), lateness);
    dump_paths(out, "groupBy", meter->group_by, meter->group_by_count);
    buf_put_text(out, " }\n");
}

static void
dump_buckets(struct buf *out, const struct series *series)
{
    buf_put_text(out, ", buckets: [");
    for (size_t i = 0; i < series->bucket_count; i++) {
        char text[METER_DECIMAL_TEXT_SIZE + 1];
        size_t size = meter_decimal_format(series->buckets[i], text);

        buf_put_text(out, i == 0 ? "" : ", ");
        buf_put(out, text, size);
    }
    buf_put_byte(out, ']');
}

static void
dump_series(const struct series *series, struct buf *out)
{
    buf_put_text(out, "  - { name: ");
    dump_quoted(out, series->name);
    buf_printf(out, ", kind: %s", series_kind_name(series->kind));
    dump_names(out, "on", series->on, sizeof(*series->on), series->on_count);
    if (series->kind == SERIES_STATE) {
        dump_path(out, "entity", series->entity);
        dump_path(out, "state", series->state);
    } else {
        dump_value(out, series->value);
    }
    if (series->kind == SERIES_GAUGE) {
        buf_printf(out, ", policy: %s", series_policy_name(series->policy));
    }
    if (series->kind == SERIES_HISTOGRAM) {
        dump_buckets(out, series);
    }
    dump_paths(out, "dimensions", series->dimensions, series->dimension_count);
    buf_put_text(out, " }\n");
}

void
catalog_dump(const struct catalog *catalog, struct buf *out)
{
    size_t declared = 0;

    for (size_t i = 0; i < catalog->event_type_count; i++) {
        declared += catalog->event_types[i].declared;
    }
    if (declared > 0) {
        dump_events(catalog, out);
    } else {
        buf_put_text(out, "events: []\n");
    }
    buf_put_text(out, catalog->counter_count > 0 ? "counters:\n" : "");
    for (size_t i = 0; i < catalog->counter_count; i++) {
        dump_counter(&catalog->counters[i], out);
    }
    if (catalog->usage) {
        dump_usage(catalog, out);
    }
    buf_put_text(out, catalog->meter_count > 0 ? "meters:\n" : "");
    for (size_t i = 0; i < catalog->meter_count; i++) {
        dump_meter(&catalog->meters[i], out);
    }
    buf_put_text(out, catalog->series_count > 0 ? "series:\n" : "");
    for (size_t i = 0; i < catalog->series_count; i++) {
        dump_series(&catalog->series[i], out);
    }
}
