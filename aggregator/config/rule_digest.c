/*
 * rule_digest.c - see rule_digest.h.
 *
 * Each part goes in behind its size, lists behind their number, so that no
 * two rules give the same bytes.
 */

#include "config/rule_digest.h"

#include "meter_bytes.h"

#include <stdio.h>
#include <stdlib.h>

struct digesting {
    const struct catalog *catalog;
    struct meter_sha256_state state;
    struct rule_digests *out;
};

static void
put(struct digesting *digesting, struct meter_str text)
{
    struct meter_writer writer;
    uint8_t size[4];

    meter_writer_init(&writer, size, sizeof(size));
    meter_put_u32(&writer, (uint32_t)text.size);
    meter_sha256_update(&digesting->state, size, sizeof(size));
    meter_sha256_update(&digesting->state, text.data, text.size);
}

static void
put_text(struct digesting *digesting, const char *text)
{
    put(digesting, (struct meter_str){text, strlen(text)});
}

static void
put_count(struct digesting *digesting, size_t count)
{
    char text[24];

    snprintf(text, sizeof(text), "%zu", count);
    put_text(digesting, text);
}

/* NULL: none, which no attribute is called. */
static void
put_path(struct digesting *digesting, const struct attribute_path *path)
{
    put(digesting, path == NULL ? METER_STR("") : path->name);
}

static void
put_paths(struct digesting *digesting, const struct attribute_path *items,
          size_t count)
{
    put_count(digesting, count);
    for (size_t i = 0; i < count; i++) {
        put(digesting, items[i].name);
    }
}

static int
name_compare(const void *left, const void *right)
{
    const struct meter_str *a = left;
    const struct meter_str *b = right;

    return meter_str_compare(*a, *b);
}

/* In any order in the file; each stands there once. False: no memory. */
static bool
put_names(struct digesting *digesting, const struct meter_str *names,
          size_t count)
{
    struct meter_str *sorted = calloc(count + 1, sizeof(*sorted));

    if (sorted == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        sorted[i] = names[i];
    }
    qsort(sorted, count, sizeof(*sorted), name_compare);
    put_count(digesting, count);
    for (size_t i = 0; i < count; i++) {
        put(digesting, sorted[i]);
    }
    free(sorted);
    return true;
}

static void
begin(struct digesting *digesting)
{
    meter_sha256_init(&digesting->state);
}

static void
end(struct digesting *digesting, enum rule_kind kind, struct meter_str name)
{
    struct rule_digest *one = &digesting->out->items[digesting->out->count++];

    one->kind = kind;
    one->name = name;
    meter_sha256_final(&digesting->state, one->digest);
}


/* ---- the kinds -------------------------------------------------------- */

/* By type; rules of one type in their order, which a clamp can tell. */
static int
rule_compare(const void *left, const void *right)
{
    const struct counter_rule *a = *(const struct counter_rule *const *)left;
    const struct counter_rule *b = *(const struct counter_rule *const *)right;
    int order = meter_str_compare(a->on, b->on);

    return order != 0 ? order : a < b ? -1 : a > b;
}

static bool
counter_digest(struct digesting *digesting, const struct counter *counter)
{
    const struct counter_rule **rules =
        calloc(counter->rule_count + 1, sizeof(struct counter_rule *));

    if (rules == NULL) {
        return false;
    }
    begin(digesting);
    put_paths(digesting, counter->dimensions, counter->dimension_count);
    put_count(digesting, counter->floor_at_zero);
    put_path(digesting, counter->entity);
    for (size_t i = 0; i < counter->rule_count; i++) {
        rules[i] = &counter->rules[i];
    }
    qsort(rules, counter->rule_count, sizeof(struct counter_rule *),
          rule_compare);
    for (size_t i = 0; i < counter->rule_count; i++) {
        put(digesting, rules[i]->on);
        put_text(digesting, rules[i]->delta > 0 ? "+" : "-");
        put_path(digesting, rules[i]->by);
    }
    free(rules);
    end(digesting, RULE_COUNTER, counter->name);
    return true;
}

static int
usage_compare(const void *left, const void *right)
{
    const struct usage_rule *a = *(const struct usage_rule *const *)left;
    const struct usage_rule *b = *(const struct usage_rule *const *)right;

    return meter_str_compare(a->on, b->on);
}

/* A type stands in a column once. */
static bool
usage_digest(struct digesting *digesting, enum usage_column column)
{
    const struct catalog *catalog = digesting->catalog;
    const char *name = usage_column_name(column);
    const struct usage_rule **rules =
        calloc(catalog->usage_rule_count + 1, sizeof(struct usage_rule *));
    size_t count = 0;

    if (rules == NULL) {
        return false;
    }
    for (size_t i = 0; i < catalog->usage_rule_count; i++) {
        if (catalog->usage_rules[i].column == column) {
            rules[count++] = &catalog->usage_rules[i];
        }
    }
    qsort(rules, count, sizeof(struct usage_rule *), usage_compare);
    begin(digesting);
    for (size_t i = 0; i < count; i++) {
        put(digesting, rules[i]->on);
        put_text(digesting, rules[i]->delta > 0 ? "+" : "-");
        put_path(digesting, rules[i]->by);
    }
    free(rules);
    end(digesting, RULE_USAGE, (struct meter_str){name, strlen(name)});
    return true;
}

static bool
usages_digest(struct digesting *digesting)
{
    const struct catalog *catalog = digesting->catalog;

    if (!catalog->usage) {
        return true;
    }
    for (int i = 0; i < USAGE_COLUMN_COUNT; i++) {
        if (!usage_digest(digesting, (enum usage_column)i)) {
            return false;
        }
    }
    begin(digesting);
    put(digesting, catalog->usage_provisioned);
    put(digesting, catalog->usage_decommissioned);
    end(digesting, RULE_USAGE, METER_STR(RULE_USAGE_STATUS));
    return true;
}

static bool
meter_digest(struct digesting *digesting, const struct billing_meter *meter)
{
    begin(digesting);
    put_text(digesting, billing_aggregation_name(meter->aggregation));
    put_text(digesting, billing_period_name(meter->period));
    put_path(digesting, meter->value);
    put_paths(digesting, meter->group_by, meter->group_by_count);
    if (!put_names(digesting, meter->on, meter->on_count)) {
        return false;
    }
    end(digesting, RULE_METER, meter->metric);
    return true;
}

/* The version stands for all that keys of its rows depend on. */
static bool
series_digest(struct digesting *digesting, const struct series *series)
{
    begin(digesting);
    put_count(digesting, (size_t)series->version);
    put_path(digesting, series->value);
    if (!put_names(digesting, series->on, series->on_count)) {
        return false;
    }
    end(digesting, RULE_SERIES, series->name);
    return true;
}

/*
 * Attributes are sorted by name. "*" is for all types that have no row of
 * their own, so it becomes another rule with each that has one.
 */
static bool
index_digest(struct digesting *digesting, const struct event_type *type)
{
    const struct catalog *catalog = digesting->catalog;
    struct meter_str *names = NULL;
    bool is_good = true;

    begin(digesting);
    put_paths(digesting, type->indexed.items, type->indexed.count);
    if (type == catalog->any_type) {
        names = calloc(catalog->event_type_count, sizeof(*names));
        for (size_t i = 0; names != NULL && i < catalog->event_type_count;
             i++) {
            names[i] = catalog->event_types[i].name;
        }
        is_good = names != NULL &&
                  put_names(digesting, names, catalog->event_type_count);
        free(names);
    }
    end(digesting, RULE_INDEX, type->name);
    return is_good;
}

static bool
all_digest(struct digesting *digesting)
{
    const struct catalog *catalog = digesting->catalog;
    bool is_good = true;

    for (size_t i = 0; is_good && i < catalog->counter_count; i++) {
        is_good = counter_digest(digesting, &catalog->counters[i]);
    }
    is_good = is_good && usages_digest(digesting);
    for (size_t i = 0; is_good && i < catalog->meter_count; i++) {
        is_good = meter_digest(digesting, &catalog->meters[i]);
    }
    for (size_t i = 0; is_good && i < catalog->series_count; i++) {
        is_good = series_digest(digesting, &catalog->series[i]);
    }
    for (size_t i = 0; is_good && i < catalog->event_type_count; i++) {
        is_good = index_digest(digesting, &catalog->event_types[i]);
    }
    return is_good;
}


/* ---- all of them ------------------------------------------------------ */

const char *
rule_kind_name(enum rule_kind kind)
{
    static const char *const names[] = {
        [RULE_COUNTER] = "counter", [RULE_USAGE] = "usage",
        [RULE_METER] = "meter",     [RULE_SERIES] = "series",
        [RULE_INDEX] = "index",
    };

    return names[kind];
}

static int
digest_compare(const void *left, const void *right)
{
    const struct rule_digest *a = left;
    const struct rule_digest *b = right;

    return a->kind != b->kind ? (int)a->kind - (int)b->kind
                              : meter_str_compare(a->name, b->name);
}

bool
rule_digests_make(const struct catalog *catalog, struct rule_digests *out)
{
    struct digesting digesting = {.catalog = catalog, .out = out};
    bool is_good;

    out->count = 0;
    out->items = calloc(catalog->counter_count + USAGE_COLUMN_COUNT + 1 +
                            catalog->meter_count + catalog->series_count +
                            catalog->event_type_count,
                        sizeof(*out->items));
    is_good = out->items != NULL && all_digest(&digesting);
    if (!is_good) {
        rule_digests_fini(out);
        return false;
    }
    qsort(out->items, out->count, sizeof(*out->items), digest_compare);
    return true;
}

void
rule_digests_fini(struct rule_digests *digests)
{
    free(digests->items);
    *digests = (struct rule_digests){NULL, 0};
}

const struct rule_digest *
rule_digests_find(const struct rule_digests *digests, enum rule_kind kind,
                  struct meter_str name)
{
    const struct rule_digest key = {.kind = kind, .name = name};

    return digests->count == 0 ? NULL
                               : bsearch(&key, digests->items, digests->count,
                                         sizeof(key), digest_compare);
}
