/*
 * adjustment.c - see adjustment.h.
 */

#include "api/adjustment.h"

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


/* ---- tables ---------------------------------------------------------- */

void
adjustment_csv_head(struct csv_writer *csv)
{
    static const char *const names[] = {
        "metric", "customer", "period", "group", "kind",        "id",
        "amount", "reason",   "actor",  "ts",    "recorded_at",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        csv_cell(csv, (struct meter_str){names[i], strlen(names[i])});
    }
    csv_row_end(csv);
}

/* No value is an empty cell. */
static void
csv_text_or_empty(struct csv_writer *csv, struct meter_str text)
{
    if (text.size == 0) {
        csv_empty(csv);
    } else {
        csv_client_text(csv, text);
    }
}

void
adjustment_csv(struct csv_writer *csv, const struct adjustment *one)
{
    char period[PERIOD_TEXT_SIZE + 1];
    char amount[METER_DECIMAL_TEXT_SIZE + 1];
    size_t size;

    csv_cell(csv, one->meter->metric);
    csv_text_or_empty(csv, one->customer);
    size = period_format(one->meter->period, one->period_us, period);
    csv_cell(csv, (struct meter_str){period, size});
    if (one->meter->group_by_count == 0) {
        csv_empty(csv);
    } else {
        csv_cell(csv, one->groups); /* starts with a bracket */
    }
    csv_cell(csv, one->is_manual ? METER_STR("manual") : METER_STR("event"));
    csv_client_text(csv, one->id);
    size = meter_decimal_format(one->amount, amount);
    csv_cell(csv, (struct meter_str){amount, size});
    csv_client_text(csv, one->reason);
    csv_text_or_empty(csv, one->actor);
    csv_time(csv, one->ts_us);
    csv_time(csv, one->recorded_us);
    csv_row_end(csv);
}
