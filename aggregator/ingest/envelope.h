/*
 * envelope.h - the body of a request to events, one by one. Pure.
 *
 *   body -> [split] -> element -> [envelope] -> [validate] -> event
 *
 * A body is one object, an array, {"events": [...]}, lines with an object
 * each, or CloudEvents. Elements are parsed one by one, so a broken one is
 * rejected alone; only a body whose outline is broken (no end, surplus
 * bytes, not an object or array) is refused as a whole. Lines have no
 * outline that could be broken. Everything that the database could object
 * to is checked here.
 */

#ifndef INGEST_ENVELOPE_H
#define INGEST_ENVELOPE_H

#include "base/arena.h"
#include "base/json_reader.h"
#include "config/config.h"
#include "meter_event.h"
#include "meter_msg.h"

/* What a body is; its Content-Type and headers say so. */
enum envelope_form {
    ENVELOPE_JSON,         /* one object, an array, {"events": [...]} */
    ENVELOPE_LINES,        /* NDJSON */
    ENVELOPE_CLOUD_EVENT,  /* structured mode, one */
    ENVELOPE_CLOUD_BATCH,  /* structured mode, an array */
    ENVELOPE_CLOUD_BINARY, /* attributes in headers, the body is data */
};

struct envelope_input {
    enum envelope_form form;
    struct meter_str body;
    const struct meter_header *headers; /* CLOUD_BINARY; copied */
    size_t header_count;
};

/* One element of the body. */
struct envelope {
    struct meter_event event; /* valid when error is NULL */
    struct json_value attributes;
    const struct event_type *type;
    struct meter_str id_seen; /* event_id for the answer, also of bad ones;
                                 data NULL when there is none */
    const char *error;        /* reason; NULL: valid */
    size_t line;              /* of LINES, from 1; else 0 */
};

/* What the checks need to know. */
struct envelope_context {
    const struct config *config;
    const struct meter_salt *salt;
    struct meter_str tenant; /* of the credential */
    bool is_backfill;        /* of an operator's file instead: tenant is the
                                one of all events; empty: each names its own */
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
envelope_read(const struct envelope_input *input,
              const struct envelope_context *context, struct arena *arena,
              struct envelope **out, size_t *count, const char **error);

#endif
