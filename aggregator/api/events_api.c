/*
 * events_api.c - POST /v1/events: a body in, one verdict per event out.
 *
 *   headers -> event_format -> [unpack, if it is gzip] -> ingest_submit
 *           -> verdicts -> answer
 *
 * A body that comes plain goes to ingest as it is, without a copy. The answer
 * goes out after the durable commit. Its results stand in the order of the
 * request.
 */

#include "api/call.h"
#include "api/event_format.h"
#include "api/handlers.h"

/* What is known of the body while it is inflated. */
struct events_state {
    enum envelope_form form;
};

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

/* A sender of lines finds a rejected one by its number. */
static const char *
events_reason(struct api_call *call, const struct ingest_result *result)
{
    if (result->line == 0 || result->verdict != METER_VERDICT_REJECTED) {
        return result->error;
    }
    return reason_format(&call->arena, "line %zu: %s", result->line,
                         result->error);
}

static void
events_put_result(struct api_call *call, const struct ingest_result *result)
{
    struct json_writer *json = &call->json;

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
        json_text(json, events_reason(call, result));
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
        events_put_result(call, &answer->results[i]);
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

static void
events_submit(struct api_call *call)
{
    struct events_state *state = call->state;
    struct ingest_input input = {
        .tenant = call_tenant(call),
        .form = state->form,
        .headers = call->request->headers,
        .header_count = call->request->header_count,
    };
    struct ingest_request *waiting = ingest_submit(
        call->api->ingest, &input, call->body, events_answer_cb, call);

    if (waiting != NULL) {
        call->ingest = waiting; /* NULL: answered, call is gone */
    }
}

static void
events_unpacked_cb(void *asker, enum gunzip_result result, const char *error)
{
    struct api_call *call = asker;

    call->unpack = NULL;
    switch (result) {
    case GUNZIP_DONE: events_submit(call); return;
    case GUNZIP_BAD: call_answer_error(call, 400, 0, error); return;
    case GUNZIP_LARGE:
        call_answer_error(call, 413, 0,
                          "the body is larger than 16 MiB when inflated");
        return;
    case GUNZIP_MORE: /* never told */
    case GUNZIP_NO_MEMORY: call_answer_unavailable(call); return;
    }
}

_Static_assert(METER_BODY_SIZE_MAX == 16u << 20, "the sentence says 16 MiB");

static void
events_refuse_coding(struct api_call *call)
{
    struct meter_response head = {.status = 415, .header_count = 1};

    head.headers[0] = (struct meter_header){METER_STR("accept-encoding"),
                                            METER_STR("gzip, identity")};
    call_answer_error_full(call, &head,
                           "the Content-Encoding must be gzip or identity");
}

/* False: the call has its answer. */
static bool
events_check(struct api_call *call, enum event_coding *coding)
{
    const struct meter_request *request = call->request;
    struct events_state *state = arena_alloc(&call->arena, sizeof(*state));
    const char *error;

    call->state = state;
    if (state == NULL) {
        call_answer_unavailable(call);
        return false;
    }
    if (!event_format_choose(request, &state->form, &error)) {
        call_answer_error(call, 415, 0, error);
        return false;
    }
    *coding = event_coding_read(request->content_encoding);
    if (*coding == EVENT_CODING_OTHER) {
        events_refuse_coding(call);
        return false;
    }
    if (request->args.size > 0) {
        call_answer_error(call, 400, 0, "the path takes no query arguments");
        return false;
    }
    if (!call->api->healthy) {
        call_answer_unavailable(call);
        return false;
    }
    return true;
}

void
events_api_post(struct api_call *call)
{
    enum event_coding coding;
    struct unpack_job *job;

    if (!events_check(call, &coding)) {
        return;
    }
    if (coding == EVENT_CODING_NONE) {
        events_submit(call);
        return;
    }
    job = unpack_start(call->api->unpack, call->body, events_unpacked_cb, call);
    if (job != NULL) {
        call->unpack = job; /* NULL: called back, and may be gone */
    }
}
