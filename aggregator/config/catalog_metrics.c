/*
 * catalog_metrics.c - the sections `meters` and `series`.
 *
 *   catalog_build -> [catalog_metrics] -> catalog->meters, catalog->series
 *
 * A meter is for invoices (periods, lateness), a series for charts
 * (5-second windows and their rollups).
 */

#include "config/catalog_build.h"

#include "meter_bytes.h"
#include "meter_digest.h"

#include <endian.h>


/* Event types of a meter or series; see catalog_type for needs_each. */
static bool
metric_on(struct catalog_builder *builder, const struct yaml_node *entry,
          const char *needs_each, const struct meter_str **on, size_t *count)
{
    const struct yaml_node *list = yaml_node_find(entry, "on");
    struct meter_str *names;

    if (!rule_list(builder, list, "on", 1, CATALOG_ON_MAX)) {
        return false;
    }
    names = rule_alloc(builder, list, list->count * sizeof(*names));
    if (names == NULL) {
        return false;
    }
    *on = names;
    for (const struct yaml_node *node = list->first; node != NULL;
         node = node->next) {
        const struct event_type *type =
            catalog_type(builder, node, "on", needs_each);

        if (type == NULL) {
            return false;
        }
        for (size_t i = 0; i < *count; i++) {
            if (meter_str_equal(names[i], type->name)) {
                yaml_node_error(builder->errors, node,
                                "\"on\" names \"%s\" twice", node->text.data);
                return false;
            }
        }
        names[(*count)++] = type->name;
    }
    return true;
}


/* ---- meters ---------------------------------------------------------- */

static const struct rule_field meter_fields[] = {
    {"metric", RULE_NAME, true, offsetof(struct billing_meter, metric)},
    {"on", RULE_NODE, true},
    {"aggregation", RULE_WORD, true,
     offsetof(struct billing_meter, aggregation),
     .words = billing_aggregation_words},
    {"period", RULE_WORD, true, offsetof(struct billing_meter, period),
     .words = billing_period_words},
    {"value", RULE_VALUE, false, offsetof(struct billing_meter, value)},
    {"lateness", RULE_LATENESS, false,
     offsetof(struct billing_meter, lateness_us)},
    {"groupBy", RULE_ATTRIBUTES, false,
     offsetof(struct billing_meter, group_by),
     offsetof(struct billing_meter, group_by_count), METER_DIMENSION_COUNT_MAX},
};

/* Attributes are part of a delta's key: what is made of them is exact. */
static const char *
meter_needs_each(const struct billing_meter *meter)
{
    if (meter->value != NULL) {
        return NULL;
    }
    switch (meter->aggregation) {
    case BILLING_SUM:
    case BILLING_COUNT:
    case BILLING_AVG: return NULL;
    case BILLING_MIN: return "min of quantity";
    case BILLING_MAX: return "max of quantity";
    case BILLING_LAST: return "last of quantity";
    case BILLING_UNIQUE: break;
    }
    return "unique of quantity";
}

static bool
meter_build(struct catalog_builder *builder, const struct yaml_node *entry,
            void *object)
{
    struct billing_meter *meter = object;

    meter->lateness_us = builder->defaults->lateness_us;
    if (!rule_values(builder, entry, RULE_REST(meter_fields), meter)) {
        return false;
    }
    if (meter->aggregation == BILLING_UNIQUE &&
        yaml_node_find(entry, "value") == NULL) {
        yaml_node_error(builder->errors, yaml_node_find(entry, "aggregation"),
                        "\"unique\" needs the key \"value\"");
        return false;
    }
    return metric_on(builder, entry, meter_needs_each(meter), &meter->on,
                     &meter->on_count);
}

static bool
meters_build(struct catalog_builder *builder, const struct yaml_node *list)
{
    static const struct entry_kind kind = {
        .section = "meters",
        .name = "meter",
        .map = {"a meter", RULE_FIELDS(meter_fields)},
        .size = sizeof(struct billing_meter),
        .index_offset = offsetof(struct billing_meter, index),
        .build = meter_build,
    };
    struct catalog *catalog = builder->catalog;
    void *entries;
    bool ok = catalog_entries(builder, list, &kind, &catalog->meter_map,
                              &entries, &catalog->meter_count);

    catalog->meters = entries;
    return ok;
}

const struct catalog_section catalog_meters_section = {"meters", meters_build};


/* ---- series ---------------------------------------------------------- */

static const struct rule_field series_fields[] = {
    {"name", RULE_NAME, true, offsetof(struct series, name)},
    {"kind", RULE_WORD, true, offsetof(struct series, kind),
     .words = series_kind_words},
    {"on", RULE_NODE, true},
    {"value", RULE_VALUE, false, offsetof(struct series, value)},
    {"dimensions", RULE_ATTRIBUTES, false, offsetof(struct series, dimensions),
     offsetof(struct series, dimension_count), METER_DIMENSION_COUNT_MAX},
    {"policy", RULE_WORD, false, offsetof(struct series, policy),
     .words = series_policy_words},
    {"buckets", RULE_BOUNDS, false, offsetof(struct series, buckets),
     offsetof(struct series, bucket_count)},
    {"entity", RULE_ATTRIBUTE, false, offsetof(struct series, entity)},
    {"state", RULE_ATTRIBUTE, false, offsetof(struct series, state)},
};

#define KIND(name) (1u << SERIES_##name)

/* Which keys a kind needs, and which it may not have. */
static const struct {
    const char *key;
    unsigned needed; /* by these kinds */
    unsigned allowed;
} series_keys[] = {
    {"value", KIND(GAUGE) | KIND(HISTOGRAM),
     KIND(GAUGE) | KIND(HISTOGRAM) | KIND(COUNTER)},
    {"policy", KIND(GAUGE), KIND(GAUGE)},
    {"buckets", KIND(HISTOGRAM), KIND(HISTOGRAM)},
    {"entity", KIND(STATE), KIND(STATE)},
    {"state", KIND(STATE), KIND(STATE)},
};

static bool
series_keys_fit(struct catalog_builder *builder, const struct yaml_node *entry,
                enum series_kind kind)
{
    unsigned bit = 1u << kind;

    for (size_t i = 0; i < sizeof(series_keys) / sizeof(series_keys[0]); i++) {
        const char *key = series_keys[i].key;
        const struct yaml_node *node = yaml_node_find(entry, key);

        if (node == NULL && (series_keys[i].needed & bit)) {
            yaml_node_error(builder->errors, entry,
                            "a %s series needs the key \"%s\"",
                            series_kind_name(kind), key);
            return false;
        }
        if (node != NULL && !(series_keys[i].allowed & bit)) {
            yaml_node_error(builder->errors, node->key,
                            "a %s series has no key \"%s\"",
                            series_kind_name(kind), key);
            return false;
        }
    }
    return true;
}

static void
series_version_put(struct meter_sha256_state *state, struct meter_str text)
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
    const char *kind = series_kind_words[series->kind];
    const char *policy =
        series->kind == SERIES_GAUGE ? series_policy_words[series->policy] : "";
    uint8_t digest[METER_DIGEST_SIZE];
    struct meter_sha256_state state;
    uint64_t version;

    meter_sha256_init(&state);
    series_version_put(&state, series->name);
    series_version_put(&state, (struct meter_str){kind, strlen(kind)});
    series_version_put(&state, (struct meter_str){policy, strlen(policy)});
    for (size_t i = 0; i < series->dimension_count; i++) {
        series_version_put(&state, series->dimensions[i].name);
    }
    series_version_put(&state, METER_STR("")); /* no dimension has this name */
    for (size_t i = 0; i < series->bucket_count; i++) {
        char text[METER_DECIMAL_TEXT_SIZE + 1];
        size_t size = meter_decimal_format(series->buckets[i], text);

        series_version_put(&state, (struct meter_str){text, size});
    }
    if (series->kind == SERIES_STATE) {
        series_version_put(&state, series->entity->name);
        series_version_put(&state, series->state->name);
    }
    meter_sha256_final(&state, digest);
    memcpy(&version, digest, sizeof(version));
    version = be64toh(version) & INT64_MAX;
    return version == 0 ? 1 : (int64_t)version;
}

static const char *
series_needs_each(const struct series *series)
{
    if (series->kind == SERIES_STATE) {
        return "states";
    }
    if (series->value != NULL || series->kind == SERIES_COUNTER) {
        return NULL;
    }
    return series->kind == SERIES_GAUGE ? "a gauge over quantity"
                                        : "a histogram over quantity";
}

static bool
series_build(struct catalog_builder *builder, const struct yaml_node *entry,
             void *object)
{
    const struct rule_field *kind = &series_fields[1];
    struct series *series = object;

    series->policy = SERIES_LAST;
    if (!rule_values(builder, entry, kind, 1, series) ||
        !series_keys_fit(builder, entry, series->kind) ||
        !rule_values(builder, entry, RULE_REST(series_fields), series)) {
        return false;
    }
    series->version = series_version(series);
    return metric_on(builder, entry, series_needs_each(series), &series->on,
                     &series->on_count);
}

static bool
series_list_build(struct catalog_builder *builder, const struct yaml_node *list)
{
    static const struct entry_kind kind = {
        .section = "series",
        .name = "series",
        .map = {"a series", RULE_FIELDS(series_fields)},
        .size = sizeof(struct series),
        .index_offset = offsetof(struct series, index),
        .build = series_build,
    };
    struct catalog *catalog = builder->catalog;
    void *entries;
    bool ok = catalog_entries(builder, list, &kind, &catalog->series_map,
                              &entries, &catalog->series_count);

    catalog->series = entries;
    return ok;
}

const struct catalog_section catalog_series_section = {"series",
                                                       series_list_build};
