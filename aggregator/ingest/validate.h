/*
 * validate.h - one event's object against the contract. Pure.
 *
 *   element -> tree -> [validate] -> event, or the reason against it
 *
 * Every member is known, of the right kind and within its limits; the type
 * is declared and has its required attributes; the time is believable; the
 * attributes have their canonical text. What passes, the database takes.
 */

#ifndef INGEST_VALIDATE_H
#define INGEST_VALIDATE_H

#include "ingest/envelope.h"

/* Members of an event, in bytewise order, as the reader sorts them. */
enum event_member {
    EVENT_ATTRIBUTES,
    EVENT_COUNT,
    EVENT_CUSTOMER,
    EVENT_ID,
    EVENT_QUANTITY,
    EVENT_RESOURCE,
    EVENT_SOURCE,
    EVENT_TENANT,
    EVENT_TS,
    EVENT_TYPE,
    EVENT_MEMBERS
};

/* An event that came in other words than ours. */
struct validate_parts {
    const struct json_value *values[EVENT_MEMBERS]; /* NULL: absent */
    const struct meter_str *names; /* what its sender calls the members */
    bool may_lack_time;            /* then it is now, by the server's word */
    const char *error;             /* found before; NULL: none */
};

/*
 * Fills out->event, attributes, type and id_seen; or out->error (and
 * id_seen where a usable event_id was given). object is of kind
 * JSON_OBJECT. False: no memory, nothing is said about the event.
 */
MUST_CHECK bool validate_event(const struct json_value *object,
                               const struct envelope_context *context,
                               struct arena *arena, struct envelope *out);
/* The same for members that were found elsewhere. */
MUST_CHECK bool validate_parts(const struct validate_parts *parts,
                               const struct envelope_context *context,
                               struct arena *arena, struct envelope *out);

/* The two rules that captured events share: NULL, or the reason against. */
const char *validate_skew(const struct config_idempotency *rules, int64_t ts_us,
                          int64_t now_us, struct arena *arena);
const char *
validate_required(const struct event_type *type, struct meter_str name,
                  const struct json_value *attributes, struct arena *arena);

#endif
