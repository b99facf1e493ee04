/*
 * adjustment.h - a correction of a billing period, as answers show it.
 */

#ifndef API_ADJUSTMENT_H
#define API_ADJUSTMENT_H

#include "base/csv.h"
#include "base/json_writer.h"
#include "config/catalog.h"
#include "meter_decimal.h"

struct adjustment {
    const struct billing_meter *meter;
    int64_t period_us;
    struct meter_str customer; /* "": none */
    struct meter_str groups;   /* canonical JSON */
    bool is_manual;
    struct meter_str id; /* the event's, or the client's */
    struct meter_decimal amount;
    struct meter_str reason;
    struct meter_str actor; /* manual only */
    int64_t ts_us;
    int64_t recorded_us;
};

/* A member: the decimal as a string, or null. */
void adjustment_put_decimal(struct json_writer *json, const char *name,
                            bool has_value, struct meter_decimal value);
/* A member: the text, null when it is empty. */
void
adjustment_put_customer(struct json_writer *json, struct meter_str customer);

/* The whole object. */
void adjustment_put(struct json_writer *json, const struct adjustment *one);
/* What is new inside the object of its period: id, amount, why and when. */
void
adjustment_put_brief(struct json_writer *json, const struct adjustment *one);

/* A line of a table and its head; groups as one cell of JSON. */
void adjustment_csv_head(struct csv_writer *csv);
void adjustment_csv(struct csv_writer *csv, const struct adjustment *one);

#endif
