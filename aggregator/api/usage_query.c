/*
 * usage_query.c - see usage_query.h.
 */

#include "api/usage_query.h"

#include "base/reason.h"
#include "meter_bytes.h"
#include "meter_event.h"
#include "project/period.h"

#define ERROR_MEMORY "the query is too long"
#define PREFIX       "dimension."

static const char *const own_names[] = {
    "metric", "period", "from", "to", "customer", "groups", "limit", "cursor",
};

static bool
is_own(struct meter_str name)
{
    for (size_t i = 0; i < sizeof(own_names) / sizeof(own_names[0]); i++) {
        if (meter_str_equal(
                name, (struct meter_str){own_names[i], strlen(own_names[i])})) {
            return true;
        }
    }
    return false;
}

/* ---- metric and periods ---------------------------------------------- */

const struct billing_meter *
usage_query_meter(const struct catalog *catalog,
                  const struct url_arguments *arguments, unsigned *status,
                  const char **error)
{
    const struct url_argument *metric = dimension_argument(arguments, "metric");
    const struct billing_meter *meter;

    if (metric == NULL) {
        *status = 400;
        *error = "\"metric\" is missing";
        return NULL;
    }
    meter = catalog_meter(catalog, metric->value);
    if (meter == NULL) {
        *status = 404;
        *error = "no such metric";
    }
    return meter;
}

const char *
usage_period_read(const struct billing_meter *meter, const char *name,
                  struct meter_str text, struct arena *arena, int64_t *start_us)
{
    static const char *const forms[] = {
        [BILLING_HOUR] = "2026-09-01T12",
        [BILLING_DAY] = "2026-09-01",
        [BILLING_MONTH] = "2026-09",
    };

    if (period_parse(meter->period, text, start_us)) {
        return NULL;
    }
    return reason_format(arena, "\"%s\" must be %s %s of this metric, like %s",
                         name, meter->period == BILLING_HOUR ? "an" : "a",
                         billing_period_name(meter->period),
                         forms[meter->period]);
}

/* Both ends of from and to. */
static const char *
range_read(const struct billing_meter *meter, struct meter_str from,
           struct meter_str to, struct arena *arena, struct usage_query *out)
{
    const char *error =
        usage_period_read(meter, "from", from, arena, &out->from_us);
    int64_t at_us;

    if (error == NULL) {
        error = usage_period_read(meter, "to", to, arena, &out->to_us);
    }
    if (error != NULL) {
        return error;
    }
    if (out->from_us >= out->to_us) {
        return "\"from\" must be before \"to\"";
    }
    at_us = out->from_us;
    for (size_t i = 0; i < USAGE_PERIODS_MAX && at_us < out->to_us; i++) {
        at_us = period_end(meter->period, at_us);
    }
    return at_us < out->to_us ? "more than 1000 periods are asked for" : NULL;
}

_Static_assert(USAGE_PERIODS_MAX == 1000, "the sentence says 1000");

static const char *
periods_read(const struct url_arguments *arguments, struct arena *arena,
             struct usage_query *out)
{
    const struct url_argument *period = dimension_argument(arguments, "period");
    const struct url_argument *from = dimension_argument(arguments, "from");
    const struct url_argument *to = dimension_argument(arguments, "to");
    const char *error;

    if (period != NULL && from == NULL && to == NULL) {
        error = usage_period_read(out->meter, "period", period->value, arena,
                                  &out->from_us);
        if (error == NULL) {
            out->to_us = period_end(out->meter->period, out->from_us);
        }
        return error;
    }
    if (period != NULL || from == NULL || to == NULL) {
        return "either \"period\" or both \"from\" and \"to\" must be given";
    }
    return range_read(out->meter, from->value, to->value, arena, out);
}


/* ---- groups ---------------------------------------------------------- */

static const char *
groups_read(const struct url_arguments *arguments, struct usage_query *out)
{
    const struct url_argument *groups = dimension_argument(arguments, "groups");

    out->is_grouped =
        groups != NULL && meter_str_equal(groups->value, METER_STR("true"));
    if (groups != NULL && !out->is_grouped &&
        !meter_str_equal(groups->value, METER_STR("false"))) {
        return "\"groups\" must be true or false";
    }
    return NULL;
}

/* Which of the meter's dimensions an argument names; NULL: none. */
static const struct attribute_path *
dimension_named(const struct billing_meter *meter, struct meter_str name)
{
    struct meter_str bare = name;

    if (name.size > sizeof(PREFIX) - 1 &&
        memcmp(name.data, PREFIX, sizeof(PREFIX) - 1) == 0) {
        bare.data += sizeof(PREFIX) - 1;
        bare.size -= sizeof(PREFIX) - 1;
    }
    for (size_t i = 0; i < meter->group_by_count; i++) {
        if (meter_str_equal(meter->group_by[i].name, bare) ||
            meter_str_equal(meter->group_by[i].name, name)) {
            return &meter->group_by[i];
        }
    }
    return NULL;
}

/* "missing dimensions: a, b" */
static const char *
missing_dimensions(const struct usage_query *query, struct arena *arena)
{
    const char *list = NULL;
    size_t given = 0;

    for (size_t i = 0; i < query->meter->group_by_count; i++) {
        struct meter_str name = query->meter->group_by[i].name;

        if (given < query->dimensions.count &&
            meter_str_equal(query->dimensions.filters[given].name, name)) {
            given++;
            continue;
        }
        list = reason_format(arena, "%s%s%.*s", list == NULL ? "" : list,
                             list == NULL ? "missing dimensions: " : ", ",
                             (int)name.size, name.data);
    }
    return list;
}

/* What is left of the arguments, under names that can only be dimensions. */
static const char *
group_read(const struct url_arguments *arguments, struct arena *arena,
           struct usage_query *out)
{
    const struct counter dimensions_of = {
        .dimensions = out->meter->group_by,
        .dimension_count = out->meter->group_by_count,
    };
    struct url_arguments *rest = arena_alloc(arena, sizeof(*rest));
    const char *error = NULL;

    if (rest == NULL) {
        return ERROR_MEMORY;
    }
    rest->count = 0;
    for (size_t i = 0; i < arguments->count; i++) {
        const struct url_argument *argument = &arguments->items[i];
        const struct attribute_path *path;
        const char *name;

        if (is_own(argument->name)) {
            continue;
        }
        path = dimension_named(out->meter, argument->name);
        if (path == NULL) {
            return reason_format(arena, "the metric has no dimension %s",
                                 reason_quote(argument->name).text);
        }
        name = reason_format(arena, PREFIX "%.*s", (int)path->name.size,
                             path->name.data);
        rest->items[rest->count++] = (struct url_argument){
            {name, strlen(name)},
            argument->value,
        };
    }
    if (!dimension_query_read(&dimensions_of, rest, arena, &out->dimensions,
                              &error)) {
        return error;
    }
    out->has_group = out->dimensions.count > 0;
    if (!out->has_group) {
        return NULL;
    }
    if (!out->dimensions.is_key) {
        return missing_dimensions(out, arena);
    }
    return dimension_query_keys(&out->dimensions, &out->keys, &error) ? NULL
                                                                      : error;
}


/* ---- pages ----------------------------------------------------------- */

static void
page_ask_number(struct page *page, int64_t number)
{
    page_ask(page, (struct meter_str){(const char *)&number, sizeof(number)});
}

static const char *
page_read_after(const struct url_arguments *arguments, struct meter_str tenant,
                struct arena *arena, struct usage_query *out)
{
    struct page *page = &out->page;
    const char *error;

    page_init(page);
    page_ask(page, METER_STR("usage"));
    page_ask(page, tenant);
    page_ask(page, out->meter->metric);
    page_ask_number(page, out->from_us);
    page_ask_number(page, out->to_us);
    page_ask_number(page, out->has_customer);
    page_ask(page, out->customer);
    page_ask_number(page, out->is_grouped);
    page_ask(page, (struct meter_str){(const char *)out->keys.items,
                                      out->keys.count * METER_DIGEST_SIZE});
    if (!page_read(page, arguments, arena, &error)) {
        return error;
    }
    out->has_after = page->after.data != NULL;
    if (out->has_after && !usage_place_read(out, page->after, &out->after)) {
        return PAGE_ERROR_CURSOR;
    }
    return NULL;
}

size_t
usage_place_write(const struct usage_query *query,
                  const struct usage_place *place, char *out)
{
    struct meter_writer writer;

    meter_writer_init(&writer, out, PAGE_KEY_SIZE_MAX);
    meter_put_u64(&writer, (uint64_t)place->period_us);
    if (usage_query_shows_groups(query)) {
        meter_put_bytes(&writer, place->group_key, METER_DIGEST_SIZE);
    }
    meter_put_bytes(&writer, place->customer.data, place->customer.size);
    CHECK(!writer.failed);
    return writer.at;
}

bool
usage_place_read(const struct usage_query *query, struct meter_str key,
                 struct usage_place *out)
{
    struct meter_reader reader;
    size_t group_size = usage_query_shows_groups(query) ? METER_DIGEST_SIZE : 0;
    struct meter_str group;

    *out = (struct usage_place){.period_us = 0};
    if (key.size < 8 + group_size) {
        return false;
    }
    meter_reader_init(&reader, key.data, key.size);
    out->period_us = (int64_t)meter_get_u64(&reader);
    group = meter_get_bytes(&reader, group_size);
    if (group_size > 0) {
        memcpy(out->group_key, group.data, group_size);
    }
    out->customer = meter_get_bytes(&reader, key.size - 8 - group_size);
    return !reader.failed && meter_utf8_valid(out->customer) &&
           out->period_us >= query->from_us && out->period_us < query->to_us;
}


/* ---- the whole ------------------------------------------------------- */

unsigned
usage_query_read(const struct catalog *catalog, struct meter_str tenant,
                 const struct url_arguments *arguments, struct arena *arena,
                 struct usage_query *out, const char **error)
{
    const struct url_argument *customer;
    unsigned status = 400;

    *out = (struct usage_query){.customer = METER_STR("")};
    out->meter = usage_query_meter(catalog, arguments, &status, error);
    if (out->meter == NULL) {
        return status;
    }
    customer = dimension_argument(arguments, "customer");
    if (customer != NULL) {
        out->has_customer = true;
        out->customer = customer->value;
    }
    *error = periods_read(arguments, arena, out);
    if (*error == NULL) {
        *error = groups_read(arguments, out);
    }
    if (*error == NULL) {
        *error = group_read(arguments, arena, out);
    }
    if (*error == NULL) {
        *error = page_read_after(arguments, tenant, arena, out);
    }
    return *error == NULL ? 0 : 400;
}

bool
usage_query_is_single(const struct usage_query *query)
{
    return query->has_customer && !query->is_grouped &&
           period_end(query->meter->period, query->from_us) == query->to_us;
}

bool
usage_query_shows_groups(const struct usage_query *query)
{
    return query->is_grouped || query->has_group;
}

int
usage_query_adjustments_max(const struct usage_query *query)
{
    int64_t share = USAGE_ADJUSTMENTS_LIST_MAX / query->page.limit;

    if (usage_query_is_single(query) || share > USAGE_ADJUSTMENTS_MAX) {
        return USAGE_ADJUSTMENTS_MAX;
    }
    return (int)share;
}
