/*
 * record.h - a captured record to an event, or the reason against it. Pure.
 *
 *   ring record -> [record] -> event, attribute tree -> projection, batch
 *
 * The edge sends values as it evaluated them; what they mean is decided
 * here. Nobody waits for the answer and nobody can send again, so what can
 * be kept is kept: bytes that are no UTF-8 are replaced, long values cut,
 * and the event is flagged METER_EVENT_TRUNCATED. What money hangs on is
 * never guessed: no tenant, an unknown type, a quantity that is no decimal
 * make a dead letter.
 */

#ifndef INGEST_RECORD_H
#define INGEST_RECORD_H

#include "base/arena.h"
#include "base/json_reader.h"
#include "config/config.h"
#include "meter_ring.h"

/* Where the dead letters of nobody go. */
#define RECORD_NO_TENANT METER_STR("-")

struct record_context {
    const struct config *config;
    const uint8_t *session; /* 16 bytes */
    int64_t now_us;         /* the database's clock */
};

struct record_event {
    struct meter_event event;     /* valid when error is NULL */
    struct json_value attributes; /* all of them strings */
    const struct event_type *type;
    bool has_id;             /* of the client: the registry decides; else
                                the id is minted from session and seq */
    struct meter_str tenant; /* of a dead letter: RECORD_NO_TENANT when the
                                record names none that can be stored */
    const char *error;       /* reason; NULL: valid */
};

/*
 * EVENT, DELTA or DUPNOTE. Strings borrow from the record's body or lie in
 * the arena; both must outlive out. False: no memory, nothing is said about
 * the record.
 */
MUST_CHECK bool
record_read_event(const struct meter_record *record,
                  const struct record_context *context, struct arena *arena,
                  struct record_event *out);

/* LOSSNOTE. NULL, or the reason against it. */
const char *
record_read_loss(const struct meter_record *record, struct meter_loss *out);

/*
 * Well-formed UTF-8 without NUL: text itself, or a copy in which every byte
 * that does not fit is U+FFFD; then *changed. False: no memory.
 */
MUST_CHECK bool record_text(struct meter_str text, struct arena *arena,
                            struct meter_str *out, bool *changed);

#endif
