/*
 * event_answer.c - see event_answer.h.
 */

#include "api/event_answer.h"

#include "meter_types.h"

static const struct {
    enum meter_event_flag flag;
    const char *name;
} flag_names[] = {
    {METER_EVENT_CAPTURED, "captured"},
    {METER_EVENT_RECOVERED, "recovered"},
    {METER_EVENT_TRUNCATED, "truncated"},
    {METER_EVENT_SERVER_TIME, "server_time"},
    {METER_EVENT_DERIVED_ID, "derived_id"},
    {METER_EVENT_MINTED_ID, "minted_id"},
};

static void
put_text(struct json_writer *json, const char *name, const void *result,
         int row, int column)
{
    json_key(json, name);
    if (pg_is_null(result, row, column)) {
        json_null(json);
    } else {
        json_string(json, pg_get_bytes(result, row, column));
    }
}

static void
put_flags(struct json_writer *json, int32_t flags)
{
    json_key(json, "flags");
    json_object_begin(json);
    for (size_t i = 0; i < sizeof(flag_names) / sizeof(flag_names[0]); i++) {
        if ((flags & (int32_t)flag_names[i].flag) != 0) {
            json_key(json, flag_names[i].name);
            json_bool(json, true);
        }
    }
    json_object_end(json);
}

void
event_put(struct json_writer *json, const void *result, int row,
          const struct event_frame *frame)
{
    json_object_begin(json);
    json_key(json, "event_id");
    json_string(json, frame->event_id);
    put_text(json, "type", result, row, EVENT_TYPE);
    json_key(json, "ts");
    json_time(json, pg_get_time(result, row, EVENT_TS));
    json_key(json, "tenant");
    json_string(json, frame->tenant);
    put_text(json, "customer", result, row, EVENT_CUSTOMER);
    put_text(json, "resource", result, row, EVENT_RESOURCE);
    put_text(json, "quantity", result, row, EVENT_QUANTITY);
    json_key(json, "attributes");
    json_raw(json, pg_get_bytes(result, row, EVENT_ATTRIBUTES));
    put_text(json, "source", result, row, EVENT_SOURCE);
    json_key(json, "count");
    json_int_string(json, pg_get_int8(result, row, EVENT_COUNT));
    if (frame->first_seen_at != NULL) {
        json_key(json, "first_seen_at");
        json_time(json, *frame->first_seen_at);
    }
    json_key(json, "recorded_at");
    json_time(json, pg_get_time(result, row, EVENT_RECORDED_AT));
    put_flags(json, pg_get_int4(result, row, EVENT_FLAGS));
}
