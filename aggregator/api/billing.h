/*
 * billing.h - what the resources of billing have in common.
 */

#ifndef API_BILLING_H
#define API_BILLING_H

#include "api/url.h"
#include "base/json_writer.h"
#include "config/catalog.h"
#include "meter_decimal.h"

struct adjustment {
    const struct billing_meter *meter; /* NULL: its object says which */
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

/* A member: the text, null when it is empty. */
void billing_put_customer(struct json_writer *json, struct meter_str customer);

/*
 * The whole object. meter NULL: inside the object of its period, with what
 * is new there: id, amount, why and when.
 */
void adjustment_put(struct json_writer *json, const struct adjustment *one);

/* The argument, or why there is none. */
MUST_CHECK const struct billing_meter *
billing_metric_read(const struct catalog *catalog,
                    const struct url_arguments *arguments, unsigned *status,
                    const char **error);
/* Starts of the period given as text; NULL, or a sentence for a 400. */
const char *billing_period_read(const struct billing_meter *meter,
                                const char *name, struct meter_str text,
                                struct arena *arena, int64_t *start_us);

#endif
