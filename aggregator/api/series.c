/*
 * series.c - GET /v1/series: the declared series, and what is kept.
 */

#include "api/call.h"
#include "config/scalar.h"
#include "meter_level.h"

/* Columns of query_floors. */
enum { COLUMN_LEVEL, COLUMN_FLOOR };

static void
put_names(struct json_writer *json, const char *key,
          const struct attribute_path *paths, size_t count)
{
    json_key(json, key);
    json_array_begin(json);
    for (size_t i = 0; i < count; i++) {
        json_string(json, paths[i].name);
    }
    json_array_end(json);
}

static void
put_path(struct json_writer *json, const char *key,
         const struct attribute_path *path)
{
    json_key(json, key);
    json_string(json, path->name);
}

/* What only some kinds have. */
static void
put_kind(struct json_writer *json, const struct series *series)
{
    char text[METER_DECIMAL_TEXT_SIZE + 1];

    if (series->kind == SERIES_GAUGE) {
        member_text(json, "policy", series_policy_name(series->policy));
    }
    if (series->kind == SERIES_STATE) {
        put_path(json, "entity", series->entity);
        put_path(json, "state", series->state);
        return;
    }
    json_key(json, "value");
    if (series->value == NULL) {
        json_text(json, "quantity");
    } else {
        json_string(json, series->value->name);
    }
    if (series->kind == SERIES_HISTOGRAM) {
        json_key(json, "buckets");
        json_array_begin(json);
        for (size_t i = 0; i < series->bucket_count; i++) {
            meter_decimal_format(series->buckets[i], text);
            json_text(json, text);
        }
        json_array_end(json);
    }
}

static void
put_one(struct json_writer *json, const struct series *series)
{
    json_object_begin(json);
    member_string(json, "metric", series->name);
    member_text(json, "kind", series_kind_name(series->kind));
    put_kind(json, series);
    put_names(json, "dimensions", series->dimensions, series->dimension_count);
    json_key(json, "on");
    json_array_begin(json);
    for (size_t i = 0; i < series->on_count; i++) {
        json_string(json, series->on[i]);
    }
    json_array_end(json);
    member_int_string(json, "version", series->version);
    json_object_end(json);
}

/* kept_from: null where nothing was ever dropped. */
static void
put_level(struct json_writer *json, enum meter_level level, int64_t days,
          int64_t floor_us)
{
    char retention[SCALAR_DURATION_TEXT_SIZE + 1] = "forever";

    if (days != CONFIG_NONE) {
        scalar_duration_format(days * METER_TIME_DAY, retention);
    }
    json_object_begin(json);
    member_text(json, "level", meter_level_name(level));
    member_text(json, "retention", retention);
    json_key(json, "kept_from");
    if (floor_us <= METER_TIME_MIN) {
        json_null(json);
    } else {
        json_time(json, floor_us);
    }
    json_object_end(json);
}

static void
put_levels(struct api_call *call, const void *result)
{
    const struct config_retention *retention = &call->config->retention;
    const int64_t days[METER_LEVEL_COUNT] = {
        [METER_LEVEL_5S] = retention->series_5s_days,
        [METER_LEVEL_1M] = retention->series_1m_days,
        [METER_LEVEL_1H] = retention->series_1h_days,
        [METER_LEVEL_1D] = retention->series_1d_days,
        [METER_LEVEL_7D] = retention->series_7d_days,
    };
    int64_t floors_us[METER_LEVEL_COUNT];

    for (int level = 0; level < METER_LEVEL_COUNT; level++) {
        floors_us[level] = METER_TIME_MIN;
    }
    for (int row = 0; row < pg_row_count(result); row++) {
        int32_t level = pg_get_int4(result, row, COLUMN_LEVEL);

        CHECK(level >= 0 && level < METER_LEVEL_COUNT);
        floors_us[level] = pg_get_time(result, row, COLUMN_FLOOR);
    }
    json_key(&call->json, "levels");
    json_array_begin(&call->json);
    for (int level = 0; level < METER_LEVEL_COUNT; level++) {
        put_level(&call->json, (enum meter_level)level, days[level],
                  floors_us[level]);
    }
    json_array_end(&call->json);
}

static void
floors_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct catalog *catalog = call->config->catalog;
    struct json_writer *json = &call->json;

    json_object_begin(json);
    json_key(json, "series");
    json_array_begin(json);
    for (size_t i = 0; i < catalog->series_count; i++) {
        put_one(json, &catalog->series[i]);
    }
    json_array_end(json);
    put_levels(call, answer->result);
    json_object_end(json);
    call_answer(call, 200);
}

static void
series_list(struct api_call *call)
{
    if (!call_has_no_arguments(call, "list")) {
        return;
    }
    if (!call->api->healthy) {
        call_answer_unavailable(call);
        return;
    }
    call_read(call, STATEMENT_QUERY_FLOORS, floors_cb);
}


static const struct route series_routes[] = {
    {METER_METHOD_GET, "/v1/series", TOKEN_SCOPE_READ, series_list},
};

const struct resource series_resource = {
    RESOURCE_ROUTES(series_routes),
};
