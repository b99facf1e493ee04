/*
 * envelope.h - JSON text to events, one by one. Pure.
 *
 *   body -> [split] -> element -> [envelope] -> [validate] -> event
 *
 * A body is one object, an array, or {"events": [...]}. Elements are
 * parsed one by one, so a broken one is rejected alone; only a body whose
 * outline is broken (no end, surplus bytes, not an object or array) is
 * refused as a whole. Everything that the database could object to is
 * checked here.
 */

#ifndef INGEST_ENVELOPE_H
#define INGEST_ENVELOPE_H

#include "base/arena.h"
#include "base/json_reader.h"
#include "config/config.h"
#include "meter_event.h"

/* One element of the body. */
struct envelope {
    struct meter_event event; /* valid when error is NULL */
    struct json_value attributes;
    const struct event_type *type;
    struct meter_str id_seen; /* event_id for the answer, also of bad ones;
                                 data NULL when there is none */
    const char *error;        /* reason; NULL: valid */
};

/* What the checks need to know. */
struct envelope_context {
    const struct config *config;
    const struct meter_salt *salt;
    struct meter_str tenant; /* of the credential */
    int64_t now_us;          /* the database's clock */
};

enum envelope_body {
    ENVELOPE_SINGLE, /* one object: 409 and 400 are possible answers */
    ENVELOPE_LIST,
    ENVELOPE_BAD /* *error is the reason for a 400 */
};

/*
 * All events of a body, in order. The body and the arena must outlive the
 * envelopes. At most METER_BATCH_EVENTS_MAX; none at all is valid for a
 * list. Reasons live in the arena or are literals.
 */
MUST_CHECK enum envelope_body
envelope_read(struct meter_str body, const struct envelope_context *context,
              struct arena *arena, struct envelope **out, size_t *count,
              const char **error);

#endif
