/*
 * event_format.c - see event_format.h.
 *
 * The Content-Type of a structured CloudEvent wins over ce- headers; with
 * any other one, ce- headers make it binary mode.
 */

#include "api/event_format.h"

#include "base/media_type.h"
#include "ingest/cloud_event.h"

#include <strings.h>

static const struct {
    const char *name;
    enum envelope_form form;
} types[] = {
    {"application/json", ENVELOPE_JSON},
    {"application/x-ndjson", ENVELOPE_LINES},
    {"application/ndjson", ENVELOPE_LINES},
    {"application/jsonl", ENVELOPE_LINES},
    {"application/cloudevents+json", ENVELOPE_CLOUD_EVENT},
    {"application/cloudevents-batch+json", ENVELOPE_CLOUD_BATCH},
};

#define TYPE_COUNT (sizeof(types) / sizeof(types[0]))

static const char error_type[] =
    "the Content-Type must be application/json, application/x-ndjson (or "
    "application/ndjson, application/jsonl), application/cloudevents+json or "
    "application/cloudevents-batch+json";
static const char error_charset[] = "the charset must be utf-8";
static const char error_data[] =
    "with ce- headers the body is the data of a CloudEvent, and its "
    "Content-Type must be application/json";

static bool
is_structured(enum envelope_form form)
{
    return form == ENVELOPE_CLOUD_EVENT || form == ENVELOPE_CLOUD_BATCH;
}

/* No data at all needs no type. */
static bool
choose_binary(const struct meter_request *request,
              const struct media_type *type, const char **error)
{
    if (request->content_type.size == 0 && request->body_size == 0) {
        return true;
    }
    if (type->name.size == 0 || !media_type_is_json(type)) {
        *error = error_data;
        return false;
    }
    return true;
}

bool
event_format_choose(const struct meter_request *request,
                    enum envelope_form *form, const char **error)
{
    bool is_binary =
        cloud_event_is_binary(request->headers, request->header_count);
    struct media_type type;
    size_t i = 0;

    if (!media_type_read(request->content_type, &type)) {
        type = (struct media_type){.name = {NULL, 0}};
    }
    while (i < TYPE_COUNT && !media_type_is(&type, types[i].name)) {
        i++;
    }
    if (is_binary && (i == TYPE_COUNT || !is_structured(types[i].form))) {
        *form = ENVELOPE_CLOUD_BINARY;
        if (!choose_binary(request, &type, error)) {
            return false;
        }
    } else if (i < TYPE_COUNT) {
        *form = types[i].form;
    } else {
        *error = error_type;
        return false;
    }
    *error = error_charset;
    return media_type_is_utf8(&type);
}

static bool
is_word(struct meter_str text, const char *word)
{
    return text.size == strlen(word) &&
           strncasecmp(text.data, word, text.size) == 0;
}

enum event_coding
event_coding_read(struct meter_str content_encoding)
{
    if (content_encoding.size == 0 || is_word(content_encoding, "identity")) {
        return EVENT_CODING_NONE;
    }
    return is_word(content_encoding, "gzip") ||
                   is_word(content_encoding, "x-gzip")
               ? EVENT_CODING_GZIP
               : EVENT_CODING_OTHER;
}
