/*
 * cloud_event.h - a CloudEvent 1.0 as an event of ours. Pure.
 *
 *   object (structured)  ------ \
 *                                [cloud_event] -> validate -> event
 *   ce- headers, data (binary) - /
 *
 *   id -> event_id          time -> ts, absent: now     data -> attributes
 *   type -> type            subject -> customer         source -> source
 *   extensions quantity, resource and tenant: the members of these names;
 *   any other extension has no meaning here and is left out
 *
 * Both modes end in the same event, so one that comes in each of them is a
 * duplicate of itself.
 */

#ifndef INGEST_CLOUD_EVENT_H
#define INGEST_CLOUD_EVENT_H

#include "ingest/envelope.h"
#include "meter_msg.h"

/* Members beside those of data: eight of the standard, and extensions. */
#define CLOUD_EVENT_MEMBER_COUNT 64

/* As validate_event. object is of kind JSON_OBJECT. */
MUST_CHECK bool cloud_event_read(const struct json_value *object,
                                 const struct envelope_context *context,
                                 struct arena *arena, struct envelope *out);

/*
 * The same from headers, of which those without ce- are passed over. data:
 * NULL where there is none; error: what is wrong with the data, or NULL.
 */
MUST_CHECK bool
cloud_event_read_headers(const struct meter_header *headers, size_t count,
                         const struct json_value *data, const char *error,
                         const struct envelope_context *context,
                         struct arena *arena, struct envelope *out);

/* The headers are those of a CloudEvent in binary mode, whole or not. */
bool cloud_event_is_binary(const struct meter_header *headers, size_t count);

#endif
