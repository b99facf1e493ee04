/*
 * catalog.h - the compiled rules: what each event type does.
 *
 *   YAML -> yaml_tree -> [catalog] -> validate, projector, api
 *
 * Immutable after the load; lives in the arena of its struct config, so a
 * request that holds the config (config_ref) may keep pointers into it.
 * Everything an engine needs per event is reached from struct event_type:
 * one hash look-up, then arrays in the order of the file.
 */

#ifndef CONFIG_CATALOG_H
#define CONFIG_CATALOG_H

#include "base/buf.h"
#include "base/map.h"
#include "meter_decimal.h"
#include "meter_limits.h"
#include "meter_types.h"

#define CATALOG_NAME_SIZE_MAX  128 /* ^[A-Za-z][A-Za-z0-9_.-]{0,127}$ */
#define CATALOG_BUCKETS_MAX    128 /* bounds of one histogram */
#define CATALOG_SEGMENT_MAX    METER_JSON_DEPTH_MAX
#define CATALOG_ON_MAX         256  /* event types or rules of one entry */
#define CATALOG_ATTRIBUTES_MAX 64   /* required or indexed, per event type */
#define CATALOG_ENTRIES_MAX    4096 /* event types, counters, meters, ... */

/*
 * An attribute as a rule names it. It matches the key that is exactly
 * `name` first; else the path of segments (name cut at its dots).
 */
struct attribute_path {
    struct meter_str name;
    const struct meter_str *segments;
    size_t segment_count; /* at least 1; 1: name has no dot */
};

struct attribute_list {
    const struct attribute_path *items;
    size_t count;
};

struct counter_rule;

/* A persistent dimension counter. */
struct counter {
    struct meter_str name;
    uint32_t index; /* dense, in the order of the file */
    const struct attribute_path *dimensions; /* sorted by name, bytewise */
    size_t dimension_count;
    bool floor_at_zero;
    bool audit;                          /* keep a log of updates */
    int64_t keys_max;                    /* keys per tenant; 0: no limit */
    const struct attribute_path *entity; /* transition mode; NULL: raw */
    const struct counter_rule *rules;    /* of all types, as in the file */
    size_t rule_count;
};

struct counter_rule {
    const struct counter *counter;
    struct meter_str on;             /* event type */
    int delta;                       /* +1 or -1 */
    const struct attribute_path *by; /* amount; NULL: 1 */
};

/* Columns of the usage row of a tenant. */
enum usage_column {
    USAGE_ENTRY_COUNT,
    USAGE_STORAGE_BYTES,
    USAGE_API_CALL_COUNT,
    USAGE_COLUMN_COUNT
};

struct usage_rule {
    enum usage_column column;
    struct meter_str on;             /* event type */
    int delta;                       /* +1 or -1 */
    const struct attribute_path *by; /* amount; NULL: 1 */
    bool is_ordered; /* some rule of the column decrements: order matters */
};

/* What an event type does to the status of the usage row. */
enum usage_status {
    USAGE_STATUS_KEEP,
    USAGE_STATUS_ACTIVE,        /* usage.provisioned */
    USAGE_STATUS_DECOMMISSIONED /* usage.decommissioned */
};

enum billing_aggregation {
    BILLING_SUM,
    BILLING_COUNT,
    BILLING_MIN,
    BILLING_MAX,
    BILLING_AVG,
    BILLING_LAST,
    BILLING_UNIQUE
};

enum billing_period { BILLING_HOUR, BILLING_DAY, BILLING_MONTH };

/* A billing meter. */
struct billing_meter {
    struct meter_str metric;
    uint32_t index;
    enum billing_aggregation aggregation;
    enum billing_period period;
    int64_t lateness_us;
    const struct attribute_path *value;    /* NULL: the event's quantity */
    const struct attribute_path *group_by; /* sorted by name, bytewise */
    size_t group_by_count;
    const struct meter_str *on; /* event types */
    size_t on_count;
};

enum series_kind {
    SERIES_COUNTER,
    SERIES_GAUGE,
    SERIES_HISTOGRAM,
    SERIES_STATE
};

enum series_policy { SERIES_AVG, SERIES_MIN, SERIES_MAX, SERIES_LAST };

struct series {
    struct meter_str name;
    uint32_t index;
    enum series_kind kind;
    int64_t version; /* positive; another one when what it counts changes */
    enum series_policy policy;               /* gauge */
    const struct attribute_path *value;      /* NULL: quantity; state: unused */
    const struct attribute_path *dimensions; /* sorted by name, bytewise */
    size_t dimension_count;
    const struct meter_decimal *buckets; /* histogram: ascending bounds */
    size_t bucket_count;
    const struct attribute_path *entity; /* state */
    const struct attribute_path *state;  /* state */
    const struct meter_str *on;          /* event types */
    size_t on_count;
};

struct event_type {
    struct meter_str name; /* "*": matches any type without a row */
    uint32_t index;
    bool declared;         /* false: only named by a rule */
    bool delta;            /* may arrive as deltas from the edge */
    bool require_event_id; /* false: an absent id is derived */
    struct attribute_list required;
    struct attribute_list indexed;

    const struct counter_rule *counters; /* in the order of the file */
    size_t counter_count;
    const struct usage_rule *usage;
    size_t usage_count;
    enum usage_status usage_status;
    const struct billing_meter *const *meters;
    size_t meter_count;
    const struct series *const *series;
    size_t series_count;
};

/* All rules, each array in the order of the file. */
struct catalog {
    const struct event_type *event_types;
    size_t event_type_count;
    const struct event_type *any_type; /* the "*" row; NULL: none */
    const struct counter *counters;
    size_t counter_count;
    const struct billing_meter *meters;
    size_t meter_count;
    const struct series *series;
    size_t series_count;
    bool usage;                           /* a usage section is present */
    const struct usage_rule *usage_rules; /* by column, then as in the file */
    size_t usage_rule_count;
    struct meter_str usage_provisioned;    /* event type; empty: none */
    struct meter_str usage_decommissioned; /* event type; empty: none */

    struct map event_type_map; /* by name; values point into the arrays */
    struct map counter_map;
    struct map meter_map;
    struct map series_map;
};

/* O(1). The type's row, else the "*" row, else NULL: an unknown type. */
const struct event_type *
catalog_event_type(const struct catalog *catalog, struct meter_str type);

/* O(1). NULL: no such counter, meter, series. */
const struct counter *
catalog_counter(const struct catalog *catalog, struct meter_str name);
const struct billing_meter *
catalog_meter(const struct catalog *catalog, struct meter_str metric);
const struct series *
catalog_series(const struct catalog *catalog, struct meter_str name);

/*
 * Words of the grammar, NULL-terminated, at the place of their value: "sum",
 * "month", "gauge", "last", "entryCount".
 */
extern const char *const billing_aggregation_words[];
extern const char *const billing_period_words[];
extern const char *const series_kind_words[];
extern const char *const series_policy_words[];
extern const char *const usage_column_words[];

static inline const char *
billing_aggregation_name(enum billing_aggregation aggregation)
{
    return billing_aggregation_words[aggregation];
}

static inline const char *
billing_period_name(enum billing_period period)
{
    return billing_period_words[period];
}

static inline const char *
series_kind_name(enum series_kind kind)
{
    return series_kind_words[kind];
}

static inline const char *
series_policy_name(enum series_policy policy)
{
    return series_policy_words[policy];
}

static inline const char *
usage_column_name(enum usage_column column)
{
    return usage_column_words[column];
}

/*
 * The compiled rules as YAML, everything spelled out: equal rules give
 * equal bytes whatever the layout of the files, and loading the text gives
 * the same rules again.
 */
void catalog_dump(const struct catalog *catalog, struct buf *out);

/* Frees the maps; the rest belongs to the arena. */
static inline void
catalog_fini(struct catalog *catalog)
{
    map_fini(&catalog->event_type_map);
    map_fini(&catalog->counter_map);
    map_fini(&catalog->meter_map);
    map_fini(&catalog->series_map);
}

#endif
