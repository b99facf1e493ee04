/*
 * event.h - a stored event as answers show it.
 *
 *   row of event_read, event_read_minted, search_... -> [event_put] -> JSON
 */

#ifndef API_EVENT_H
#define API_EVENT_H

#include "api/call.h"

/* Columns of event_read and event_read_minted; searches have more. */
enum event_column {
    EVENT_TYPE,
    EVENT_TS,
    EVENT_CUSTOMER,
    EVENT_RESOURCE,
    EVENT_QUANTITY,
    EVENT_COUNT,
    EVENT_ATTRIBUTES,
    EVENT_SOURCE,
    EVENT_FLAGS,
    EVENT_RECORDED_AT,
    EVENT_COLUMNS
};

/* What the row does not hold. */
struct event_frame {
    struct meter_str event_id;
    struct meter_str tenant;
    const int64_t *first_seen_at; /* NULL: not shown */
};

/* An object that is left open, for what the caller adds. */
void event_put(struct json_writer *json, const void *result, int row,
               const struct event_frame *frame);

#endif
