/*
 * events_api.c - POST /v1/events: a body in, one verdict per event out.
 *
 * The answer goes out after the durable commit. Its results stand in the
 * order of the request.
 */

#include "api/body.h"
#include "api/call.h"
#include "api/handlers.h"

/* Verdict counts in the order of the answer. */
static const struct {
    enum meter_verdict verdict;
    const char *name;
} counts[] = {
    {METER_VERDICT_ACCEPTED, "accepted"},
    {METER_VERDICT_DUPLICATE, "duplicates"},
    {METER_VERDICT_CONFLICT, "conflicts"},
    {METER_VERDICT_REJECTED, "rejected"},
};

static void
events_put_result(struct json_writer *json, const struct ingest_result *result)
{
    json_object_begin(json);
    json_key(json, "event_id");
    if (result->event_id.data == NULL) {
        json_null(json);
    } else {
        json_string(json, result->event_id);
    }
    json_key(json, "verdict");
    json_text(json, meter_verdict_name(result->verdict));
    if (result->error != NULL) {
        json_key(json, "error");
        json_text(json, result->error);
    }
    json_object_end(json);
}

/* One object is answered like a single resource, a list is always 200. */
static unsigned
events_status(const struct ingest_answer *answer)
{
    if (!answer->single || answer->count != 1) {
        return 200;
    }
    switch (answer->results[0].verdict) {
    case METER_VERDICT_CONFLICT: return 409;
    case METER_VERDICT_REJECTED: return 400;
    default: return 200;
    }
}

static void
events_answer_done(struct api_call *call, const struct ingest_answer *answer)
{
    struct json_writer *json = &call->json;

    json_object_begin(json);
    for (size_t i = 0; i < METER_VERDICT_COUNT; i++) {
        json_key(json, counts[i].name);
        json_int(json, (int64_t)answer->counts[counts[i].verdict]);
    }
    json_key(json, "results");
    json_array_begin(json);
    for (size_t i = 0; i < answer->count; i++) {
        events_put_result(json, &answer->results[i]);
    }
    json_array_end(json);
    json_object_end(json);
    call_answer(call, events_status(answer));
}

static void
events_answer_cb(void *asker, const struct ingest_answer *answer)
{
    struct api_call *call = asker;

    call->ingest = NULL;
    switch (answer->outcome) {
    case INGEST_DONE: events_answer_done(call, answer); return;
    case INGEST_BAD: call_answer_error(call, 400, 0, answer->error); return;
    case INGEST_BUSY:
        call_answer_error(call, 429, 1,
                          "too many events are waiting; try again");
        return;
    case INGEST_GAP: /* of rings only */
    case INGEST_UNAVAILABLE:
        call_answer_error(call, 503, 1,
                          "not committed in time; a retry with the same event "
                          "ids is safe");
        return;
    }
}

void
events_api_post(struct api_call *call)
{
    struct ingest_request *waiting;

    if (!body_is_json(call)) {
        return;
    }
    if (!call->api->healthy) {
        call_answer_unavailable(call);
        return;
    }
    waiting = ingest_submit(call->api->ingest, call_tenant(call), call->body,
                            events_answer_cb, call);
    if (waiting != NULL) {
        call->ingest = waiting; /* NULL: answered, call is gone */
    }
}
