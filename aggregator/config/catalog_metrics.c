/*
 * catalog_metrics.c - the sections `meters` and `series`.
 *
 * A meter is for invoices (periods, lateness), a series for charts
 * (5-second windows and their rollups).
 */

#include "config/catalog_build.h"

#include "config/scalar.h"
#include "meter_bytes.h"
#include "meter_digest.h"

#include <endian.h>

static const char *const aggregation_words[] = {
    [BILLING_SUM] = "sum",       [BILLING_COUNT] = "count",
    [BILLING_MIN] = "min",       [BILLING_MAX] = "max",
    [BILLING_AVG] = "avg",       [BILLING_LAST] = "last",
    [BILLING_UNIQUE] = "unique", NULL};
static const char *const period_words[] = {[BILLING_HOUR] = "hour",
                                           [BILLING_DAY] = "day",
                                           [BILLING_MONTH] = "month",
                                           NULL};
static const char *const kind_words[] = {[SERIES_COUNTER] = "counter",
                                         [SERIES_GAUGE] = "gauge",
                                         [SERIES_HISTOGRAM] = "histogram",
                                         [SERIES_STATE] = "state",
                                         NULL};
static const char *const policy_words[] = {[SERIES_AVG] = "avg",
                                           [SERIES_MIN] = "min",
                                           [SERIES_MAX] = "max",
                                           [SERIES_LAST] = "last",
                                           NULL};

/* The nodes of one series, before they are read. */
struct series_nodes {
    const struct yaml_node *name;
    const struct yaml_node *kind;
    const struct yaml_node *on;
    const struct yaml_node *value;
    const struct yaml_node *dimensions;
    const struct yaml_node *policy;
    const struct yaml_node *buckets;
    const struct yaml_node *entity;
    const struct yaml_node *state;
};

struct meter_nodes {
    const struct yaml_node *metric;
    const struct yaml_node *on;
    const struct yaml_node *value;
    const struct yaml_node *aggregation;
    const struct yaml_node *period;
    const struct yaml_node *lateness;
    const struct yaml_node *group_by;
};


const char *
billing_aggregation_name(enum billing_aggregation aggregation)
{
    return aggregation_words[aggregation];
}

const char *
billing_period_name(enum billing_period period)
{
    return period_words[period];
}

const char *
series_kind_name(enum series_kind kind)
{
    return kind_words[kind];
}

const char *
series_policy_name(enum series_policy policy)
{
    return policy_words[policy];
}

/* `quantity` and an absent value stand for the event's quantity: NULL. */
static bool
metric_value(struct catalog_builder *builder, const struct yaml_node *node,
             const struct attribute_path **value)
{
    *value = NULL;
    if (node == NULL || (node->kind == YAML_TEXT &&
                         meter_str_equal(node->text, METER_STR("quantity")))) {
        return true;
    }
    return rule_attribute(&builder->reader, node, "value", value);
}


/* Room for the names of an "on" list; NULL: reported. */
static struct meter_str *
on_names(struct catalog_builder *builder, const struct yaml_node *list)
{
    if (!rule_list(&builder->reader, list, "on", 1, CATALOG_ON_MAX)) {
        return NULL;
    }
    return rule_alloc(&builder->reader, list,
                      list->count * sizeof(struct meter_str));
}

static bool
meter_on(struct catalog_builder *builder, const struct yaml_node *list,
         struct billing_meter *meter)
{
    struct meter_str *names = on_names(builder, list);

    if (names == NULL) {
        return false;
    }
    meter->on = names;
    for (const struct yaml_node *on = list->first; on != NULL; on = on->next) {
        struct type_draft *type = catalog_type(builder, on, "on");

        if (type == NULL ||
            !check_on_repeated(builder, on, names, meter->on_count) ||
            !check_meter_on(builder, on, type, meter) ||
            !catalog_link(builder, on, &type->meters, meter)) {
            return false;
        }
        names[meter->on_count++] = type->row.name;
    }
    return true;
}

static bool
meter_settings(struct catalog_builder *builder, const struct meter_nodes *nodes,
               struct billing_meter *meter)
{
    struct rule_reader *reader = &builder->reader;
    struct attribute_list group_by = {NULL, 0};
    int aggregation;
    int period;

    if (!rule_word(reader, nodes->aggregation, "aggregation", aggregation_words,
                   &aggregation) ||
        !rule_word(reader, nodes->period, "period", period_words, &period) ||
        !metric_value(builder, nodes->value, &meter->value)) {
        return false;
    }
    meter->aggregation = (enum billing_aggregation)aggregation;
    meter->period = (enum billing_period)period;
    if (meter->aggregation == BILLING_UNIQUE && nodes->value == NULL) {
        yaml_node_error(reader->errors, nodes->aggregation,
                        "\"unique\" needs the key \"value\"");
        return false;
    }
    meter->lateness_us = builder->defaults->lateness_us;
    if (nodes->lateness != NULL &&
        !rule_duration(reader, nodes->lateness, "lateness",
                       CATALOG_LATENESS_MAX_US, &meter->lateness_us)) {
        return false;
    }
    if (nodes->group_by != NULL &&
        !rule_attributes(reader, nodes->group_by, "groupBy",
                         METER_DIMENSION_COUNT_MAX, true, &group_by)) {
        return false;
    }
    meter->group_by = group_by.items;
    meter->group_by_count = group_by.count;
    return true;
}

static bool
build_meter(struct catalog_builder *builder, const struct yaml_node *entry,
            struct billing_meter *meter)
{
    struct meter_nodes nodes = {NULL};
    const struct rule_field fields[] = {
        {"metric", true, &nodes.metric},
        {"on", true, &nodes.on},
        {"value", false, &nodes.value},
        {"aggregation", true, &nodes.aggregation},
        {"period", true, &nodes.period},
        {"lateness", false, &nodes.lateness},
        {"groupBy", false, &nodes.group_by},
    };

    return rule_fields(&builder->reader, entry, "a meter", fields, 7) &&
           rule_name(&builder->reader, nodes.metric, "metric",
                     &meter->metric) &&
           catalog_claim(builder, &builder->catalog->meter_map, nodes.metric,
                         "meter", meter->metric, meter) &&
           meter_settings(builder, &nodes, meter) &&
           meter_on(builder, nodes.on, meter);
}

bool
catalog_meters(struct catalog_builder *builder, const struct yaml_node *section)
{
    struct billing_meter *meters;
    size_t count = 0;
    bool ok = true;

    if (section == NULL) {
        return true;
    }
    if (!rule_list(&builder->reader, section, "meters", 0,
                   CATALOG_ENTRIES_MAX)) {
        return false;
    }
    meters =
        rule_alloc(&builder->reader, section, section->count * sizeof(*meters));
    if (meters == NULL) {
        return false;
    }
    for (const struct yaml_node *entry = section->first; entry != NULL;
         entry = entry->next) {
        meters[count].index = (uint32_t)count;
        ok = build_meter(builder, entry, &meters[count]) && ok;
        count++;
    }
    builder->catalog->meters = meters;
    builder->catalog->meter_count = count;
    return ok;
}


static bool
series_on(struct catalog_builder *builder, const struct yaml_node *list,
          struct series *series)
{
    struct meter_str *names = on_names(builder, list);

    if (names == NULL) {
        return false;
    }
    series->on = names;
    for (const struct yaml_node *on = list->first; on != NULL; on = on->next) {
        struct type_draft *type = catalog_type(builder, on, "on");

        if (type == NULL ||
            !check_on_repeated(builder, on, names, series->on_count) ||
            !check_series_on(builder, on, type, series) ||
            !catalog_link(builder, on, &type->series, series)) {
            return false;
        }
        names[series->on_count++] = type->row.name;
    }
    return true;
}

/* Which keys a kind needs (true) and which it may not have. */
static bool
series_key_fits(struct catalog_builder *builder, const struct yaml_node *entry,
                const struct yaml_node *node, const char *key,
                enum series_kind kind, bool needed, bool allowed)
{
    if (node == NULL && needed) {
        yaml_node_error(builder->reader.errors, entry,
                        "a %s series needs the key \"%s\"", kind_words[kind],
                        key);
        return false;
    }
    if (node != NULL && !allowed) {
        yaml_node_error(builder->reader.errors, node->key,
                        "a %s series has no key \"%s\"", kind_words[kind], key);
        return false;
    }
    return true;
}

static bool
series_keys_fit(struct catalog_builder *builder, const struct yaml_node *entry,
                const struct series_nodes *nodes, enum series_kind kind)
{
    bool gauge = kind == SERIES_GAUGE;
    bool histogram = kind == SERIES_HISTOGRAM;
    bool state = kind == SERIES_STATE;

    return series_key_fits(builder, entry, nodes->value, "value", kind,
                           gauge || histogram, !state) &&
           series_key_fits(builder, entry, nodes->policy, "policy", kind, gauge,
                           gauge) &&
           series_key_fits(builder, entry, nodes->buckets, "buckets", kind,
                           histogram, histogram) &&
           series_key_fits(builder, entry, nodes->entity, "entity", kind, state,
                           state) &&
           series_key_fits(builder, entry, nodes->state, "state", kind, state,
                           state);
}

static bool
series_settings(struct catalog_builder *builder,
                const struct series_nodes *nodes, struct series *series)
{
    struct rule_reader *reader = &builder->reader;
    struct attribute_list dimensions = {NULL, 0};
    int policy = SERIES_LAST;

    if (!metric_value(builder, nodes->value, &series->value) ||
        (nodes->dimensions != NULL &&
         !rule_attributes(reader, nodes->dimensions, "dimensions",
                          METER_DIMENSION_COUNT_MAX, true, &dimensions)) ||
        (nodes->policy != NULL &&
         !rule_word(reader, nodes->policy, "policy", policy_words, &policy)) ||
        (nodes->buckets != NULL &&
         !rule_buckets(reader, nodes->buckets, &series->buckets,
                       &series->bucket_count)) ||
        (nodes->entity != NULL &&
         !rule_attribute(reader, nodes->entity, "entity", &series->entity)) ||
        (nodes->state != NULL &&
         !rule_attribute(reader, nodes->state, "state", &series->state))) {
        return false;
    }
    series->policy = (enum series_policy)policy;
    series->dimensions = dimensions.items;
    series->dimension_count = dimensions.count;
    return true;
}

static void
version_put(struct meter_sha256_state *state, struct meter_str text)
{
    uint8_t size[4];
    struct meter_writer writer;

    meter_writer_init(&writer, size, sizeof(size));
    meter_put_u32(&writer, (uint32_t)text.size);
    meter_sha256_update(state, size, sizeof(size));
    meter_sha256_update(state, text.data, text.size);
}

/*
 * A digest of what rows of the series depend on: rows of another definition
 * are not mixed with these. Where it reads its value is not part of it.
 */
static int64_t
series_version(const struct series *series)
{
    const char *kind = kind_words[series->kind];
    const char *policy =
        series->kind == SERIES_GAUGE ? policy_words[series->policy] : "";
    uint8_t digest[METER_DIGEST_SIZE];
    struct meter_sha256_state state;
    uint64_t version;

    meter_sha256_init(&state);
    version_put(&state, series->name);
    version_put(&state, (struct meter_str){kind, strlen(kind)});
    version_put(&state, (struct meter_str){policy, strlen(policy)});
    for (size_t i = 0; i < series->dimension_count; i++) {
        version_put(&state, series->dimensions[i].name);
    }
    version_put(&state, METER_STR("")); /* no dimension has this name */
    for (size_t i = 0; i < series->bucket_count; i++) {
        char text[METER_DECIMAL_TEXT_SIZE + 1];
        size_t size = meter_decimal_format(series->buckets[i], text);

        version_put(&state, (struct meter_str){text, size});
    }
    if (series->kind == SERIES_STATE) {
        version_put(&state, series->entity->name);
        version_put(&state, series->state->name);
    }
    meter_sha256_final(&state, digest);
    memcpy(&version, digest, sizeof(version));
    version = be64toh(version) & INT64_MAX;
    return version == 0 ? 1 : (int64_t)version;
}

static bool
build_series(struct catalog_builder *builder, const struct yaml_node *entry,
             struct series *series)
{
    struct series_nodes nodes = {NULL};
    const struct rule_field fields[] = {
        {"name", true, &nodes.name},
        {"kind", true, &nodes.kind},
        {"on", true, &nodes.on},
        {"value", false, &nodes.value},
        {"dimensions", false, &nodes.dimensions},
        {"policy", false, &nodes.policy},
        {"buckets", false, &nodes.buckets},
        {"entity", false, &nodes.entity},
        {"state", false, &nodes.state},
    };
    int kind;

    if (!rule_fields(&builder->reader, entry, "a series", fields, 9) ||
        !rule_name(&builder->reader, nodes.name, "name", &series->name) ||
        !catalog_claim(builder, &builder->catalog->series_map, nodes.name,
                       "series", series->name, series) ||
        !rule_word(&builder->reader, nodes.kind, "kind", kind_words, &kind)) {
        return false;
    }
    series->kind = (enum series_kind)kind;
    if (!series_keys_fit(builder, entry, &nodes, series->kind) ||
        !series_settings(builder, &nodes, series)) {
        return false;
    }
    series->version = series_version(series);
    return series_on(builder, nodes.on, series);
}

bool
catalog_series_section(struct catalog_builder *builder,
                       const struct yaml_node *section)
{
    struct series *series;
    size_t count = 0;
    bool ok = true;

    if (section == NULL) {
        return true;
    }
    if (!rule_list(&builder->reader, section, "series", 0,
                   CATALOG_ENTRIES_MAX)) {
        return false;
    }
    series =
        rule_alloc(&builder->reader, section, section->count * sizeof(*series));
    if (series == NULL) {
        return false;
    }
    for (const struct yaml_node *entry = section->first; entry != NULL;
         entry = entry->next) {
        series[count].index = (uint32_t)count;
        ok = build_series(builder, entry, &series[count]) && ok;
        count++;
    }
    builder->catalog->series = series;
    builder->catalog->series_count = count;
    return ok;
}
