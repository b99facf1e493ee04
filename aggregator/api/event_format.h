/*
 * event_format.h - what the body of POST /v1/events is, by its headers. Pure.
 *
 *   Content-Type, ce- headers -> [event_format_choose] -> form, or 415
 *   Content-Encoding          -> [event_coding_read]   -> as it is, or gzip
 */

#ifndef API_EVENT_FORMAT_H
#define API_EVENT_FORMAT_H

#include "ingest/envelope.h"
#include "meter_msg.h"

enum event_coding {
    EVENT_CODING_NONE,
    EVENT_CODING_GZIP, /* gzip, x-gzip */
    EVENT_CODING_OTHER /* 415 */
};

/* False: *error is the sentence of a 415. */
MUST_CHECK bool
event_format_choose(const struct meter_request *request,
                    enum envelope_form *form, const char **error);

enum event_coding event_coding_read(struct meter_str content_encoding);

#endif
