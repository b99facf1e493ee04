/*
 * billing.c - what the resources of billing have in common.
 *
 * usage.c, adjustments.c and closes.c call this: the metric and the period
 * that a client names, and an adjustment as each of them shows it.
 */

#include "api/billing.h"

#include "api/dimension_query.h"
#include "base/reason.h"
#include "project/period.h"

void
adjustment_put_decimal(struct json_writer *json, const char *name,
                       bool has_value, struct meter_decimal value)
{
    char text[METER_DECIMAL_TEXT_SIZE + 1];

    json_key(json, name);
    if (!has_value) {
        json_null(json);
        return;
    }
    meter_decimal_format(value, text);
    json_text(json, text);
}

void
adjustment_put_customer(struct json_writer *json, struct meter_str customer)
{
    json_key(json, "customer");
    if (customer.size == 0) {
        json_null(json);
    } else {
        json_string(json, customer);
    }
}

static void
put_members(struct json_writer *json, const struct adjustment *one)
{
    json_key(json, one->is_manual ? "id" : "event_id");
    json_string(json, one->id);
    json_key(json, "kind");
    json_text(json, one->is_manual ? "manual" : "event");
    adjustment_put_decimal(json, "amount", true, one->amount);
    json_key(json, "reason");
    json_string(json, one->reason);
    if (one->is_manual) {
        json_key(json, "actor");
        json_string(json, one->actor);
    }
    json_key(json, "ts");
    json_time(json, one->ts_us);
    json_key(json, "recorded_at");
    json_time(json, one->recorded_us);
}

void
adjustment_put_brief(struct json_writer *json, const struct adjustment *one)
{
    json_object_begin(json);
    put_members(json, one);
    json_object_end(json);
}

void
adjustment_put(struct json_writer *json, const struct adjustment *one)
{
    char period[PERIOD_TEXT_SIZE + 1];

    period_format(one->meter->period, one->period_us, period);
    json_object_begin(json);
    json_key(json, "metric");
    json_string(json, one->meter->metric);
    adjustment_put_customer(json, one->customer);
    json_key(json, "period");
    json_text(json, period);
    if (one->meter->group_by_count > 0) {
        json_key(json, "group");
        json_raw(json, one->groups);
    }
    put_members(json, one);
    json_object_end(json);
}


/* ---- what is asked for ----------------------------------------------- */

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
