/*
 * catalog_dump.c - the compiled rules as YAML, everything spelled out.
 *
 * Loading the text gives the same rules again, so it shows exactly what
 * the files mean. One entry a line; names and attributes always quoted.
 */

#include "config/catalog.h"

#include "config/scalar.h"

/* One UTF-8 character; the text was checked when the file was read. */
static uint32_t
utf8_next(const unsigned char *bytes, size_t size, size_t *used)
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
needs_escape(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 ||
           code == 0x2029 || code == 0xfeff || code > 0xfffd;
}

static void
put_quoted(struct buf *out, struct meter_str text)
{
    const unsigned char *bytes = (const unsigned char *)text.data;
    size_t at = 0;

    buf_put_byte(out, '"');
    while (at < text.size) {
        size_t used;
        uint32_t code = utf8_next(bytes + at, text.size - at, &used);

        if (needs_escape(code)) {
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
put_path(struct buf *out, const char *key, const struct attribute_path *path)
{
    buf_printf(out, ", %s: ", key);
    put_quoted(out, path->name);
}

static void
put_paths(struct buf *out, const char *key, const struct attribute_path *items,
          size_t count)
{
    buf_printf(out, ", %s: [", key);
    for (size_t i = 0; i < count; i++) {
        buf_put_text(out, i == 0 ? "" : ", ");
        put_quoted(out, items[i].name);
    }
    buf_put_byte(out, ']');
}

static void
put_names(struct buf *out, const char *key, const struct meter_str *names,
          size_t count)
{
    buf_printf(out, ", %s: [", key);
    for (size_t i = 0; i < count; i++) {
        buf_put_text(out, i == 0 ? "" : ", ");
        put_quoted(out, names[i]);
    }
    buf_put_byte(out, ']');
}

static const char *
bool_name(bool value)
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
        put_quoted(out, type->name);
        buf_printf(out, ", delta: %s", bool_name(type->delta));
        put_paths(out, "required", type->required.items, type->required.count);
        put_paths(out, "indexed", type->indexed.items, type->indexed.count);
        buf_printf(out, ", idempotency: { requireEventId: %s } }\n",
                   bool_name(type->require_event_id));
    }
}

static void
dump_counter(const struct counter *counter, struct buf *out)
{
    buf_put_text(out, "  - { counterName: ");
    put_quoted(out, counter->name);
    buf_put_text(out, ", mode: persistent");
    put_paths(out, "dimensions", counter->dimensions, counter->dimension_count);
    buf_printf(out, ", floorAtZero: %s, audit: %s",
               bool_name(counter->floor_at_zero), bool_name(counter->audit));
    if (counter->entity != NULL) {
        buf_put_text(out, ", transitions: { entity: ");
        put_quoted(out, counter->entity->name);
        buf_put_text(out, " }");
    }
    buf_put_text(out, ", rules: [");
    for (size_t i = 0; i < counter->rule_count; i++) {
        const struct counter_rule *rule = &counter->rules[i];

        buf_put_text(out, i == 0 ? " { on: " : ", { on: ");
        put_quoted(out, rule->on);
        buf_printf(out, ", op: %s",
                   rule->delta > 0 ? "increment" : "decrement");
        if (rule->by != NULL) {
            put_path(out, "by", rule->by);
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
        put_quoted(out, rule->on);
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
        put_path(out, "by", by);
    }
    buf_put_text(out, " }\n");
}

static void
dump_usage_status(const char *key, struct meter_str name, struct buf *out)
{
    if (name.size > 0) {
        buf_printf(out, "  %s: ", key);
        put_quoted(out, name);
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
put_value(struct buf *out, const struct attribute_path *value)
{
    if (value == NULL) {
        buf_put_text(out, ", value: quantity");
    } else {
        put_path(out, "value", value);
    }
}

static void
dump_meter(const struct billing_meter *meter, struct buf *out)
{
    char lateness[SCALAR_DURATION_TEXT_SIZE + 1];

    scalar_duration_format(meter->lateness_us, lateness);
    buf_put_text(out, "  - { metric: ");
    put_quoted(out, meter->metric);
    put_names(out, "on", meter->on, meter->on_count);
    put_value(out, meter->value);
    buf_printf(out, ", aggregation: %s, period: %s, lateness: %s",
               billing_aggregation_name(meter->aggregation),
               billing_period_name(meter->period), lateness);
    put_paths(out, "groupBy", meter->group_by, meter->group_by_count);
    buf_put_text(out, " }\n");
}

static void
put_buckets(struct buf *out, const struct series *series)
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
    put_quoted(out, series->name);
    buf_printf(out, ", kind: %s", series_kind_name(series->kind));
    put_names(out, "on", series->on, series->on_count);
    if (series->kind == SERIES_STATE) {
        put_path(out, "entity", series->entity);
        put_path(out, "state", series->state);
    } else {
        put_value(out, series->value);
    }
    if (series->kind == SERIES_GAUGE) {
        buf_printf(out, ", policy: %s", series_policy_name(series->policy));
    }
    if (series->kind == SERIES_HISTOGRAM) {
        put_buckets(out, series);
    }
    put_paths(out, "dimensions", series->dimensions, series->dimension_count);
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
