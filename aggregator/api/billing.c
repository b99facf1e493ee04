/*
 * billing.c - what the resources of billing have in common.
 *
 * usage.c, adjustments.c and closes.c call this: the metric and the period
 * that a client names, and an adjustment as each of them shows it.
 */

#include "api/billing.h"

#include "api/call.h"
#include "base/reason.h"
#include "project/period.h"

void
billing_put_customer(struct json_writer *json, struct meter_str customer)
{
    if (customer.size == 0) {
        customer.data = NULL;
    }
    member_string(json, "customer", customer);
}

/* What the object of its period says already. */
static void
adjustment_put_period(struct json_writer *json, const struct adjustment *one)
{
    char period[PERIOD_TEXT_SIZE + 1];

    period_format(one->meter->period, one->period_us, period);
    member_string(json, "metric", one->meter->metric);
    billing_put_customer(json, one->customer);
    member_text(json, "period", period);
    if (one->meter->group_by_count > 0) {
        member_raw(json, "group", one->groups);
    }
}

void
adjustment_put(struct json_writer *json, const struct adjustment *one)
{
    json_object_begin(json);
    if (one->meter != NULL) {
        adjustment_put_period(json, one);
    }
    member_string(json, one->is_manual ? "id" : "event_id", one->id);
    member_text(json, "kind", one->is_manual ? "manual" : "event");
    member_decimal(json, "amount", true, one->amount);
    member_string(json, "reason", one->reason);
    if (one->is_manual) {
        member_string(json, "actor", one->actor);
    }
    member_time(json, "ts", one->ts_us);
    member_time(json, "recorded_at", one->recorded_us);
    json_object_end(json);
}


/* ---- what is asked for ----------------------------------------------- */

const struct billing_meter *
billing_metric_read(const struct catalog *catalog,
                    const struct url_arguments *arguments, unsigned *status,
                    const char **error)
{
    const struct url_argument *metric = url_argument_find(arguments, "metric");
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
billing_period_read(const struct billing_meter *meter, const char *name,
                    struct meter_str text, struct arena *arena,
                    int64_t *start_us)
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
