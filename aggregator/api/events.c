/*
 * events.c - POST /v1/events: a body in, one verdict per event out.
 *
 *   headers -> form, coding -> [unpack, if it is gzip] -> ingest_submit
 *           -> verdicts -> answer
 *
 * A body that comes plain goes to ingest as it is, without a copy. The answer
 * goes out after the durable commit. Its results stand in the order of the
 * request.
 *
 * The Content-Type of a structured CloudEvent wins over ce- headers; with
 * any other one, ce- headers make it binary mode.
 */

#include "api/call.h"
#include "base/gunzip.h"
#include "base/media_type.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "ingest/cloud_event.h"
#include "ingest/envelope.h"
#include "meter_msg.h"

#include <stdlib.h>
#include <strings.h>
#include <sys/queue.h>

enum event_coding {
    EVENT_CODING_NONE,
    EVENT_CODING_GZIP, /* gzip, x-gzip */
    EVENT_CODING_OTHER /* 415 */
};

static const struct {
    const char *name;
    enum envelope_form form;
} event_types[] = {
    {"application/json", ENVELOPE_JSON},
    {"application/x-ndjson", ENVELOPE_LINES},
    {"application/ndjson", ENVELOPE_LINES},
    {"application/jsonl", ENVELOPE_LINES},
    {"application/cloudevents+json", ENVELOPE_CLOUD_EVENT},
    {"application/cloudevents-batch+json", ENVELOPE_CLOUD_BATCH},
};

#define TYPE_COUNT (sizeof(event_types) / sizeof(event_types[0]))

static const char error_type[] =
    "the Content-Type must be application/json, application/x-ndjson (or "
    "application/ndjson, application/jsonl), application/cloudevents+json or "
    "application/cloudevents-batch+json";
static const char error_charset[] = "the charset must be utf-8";
static const char error_data[] =
    "with ce- headers the body is the data of a CloudEvent, and its "
    "Content-Type must be application/json";

/* ---- form and coding ---------------------------------------------------- */

static bool
event_is_structured(enum envelope_form form)
{
    return form == ENVELOPE_CLOUD_EVENT || form == ENVELOPE_CLOUD_BATCH;
}

/* No data at all needs no type. */
static bool
event_choose_binary(const struct meter_request *request,
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

/* False: *error is the sentence of a 415. */
static bool
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
    while (i < TYPE_COUNT && !media_type_is(&type, event_types[i].name)) {
        i++;
    }
    if (is_binary &&
        (i == TYPE_COUNT || !event_is_structured(event_types[i].form))) {
        *form = ENVELOPE_CLOUD_BINARY;
        if (!event_choose_binary(request, &type, error)) {
            return false;
        }
    } else if (i < TYPE_COUNT) {
        *form = event_types[i].form;
    } else {
        *error = error_type;
        return false;
    }
    *error = error_charset;
    return media_type_is_utf8(&type);
}

static bool
event_is_word(struct meter_str text, const char *word)
{
    return text.size == strlen(word) &&
           strncasecmp(text.data, word, text.size) == 0;
}

static enum event_coding
event_coding_read(struct meter_str content_encoding)
{
    if (content_encoding.size == 0 ||
        event_is_word(content_encoding, "identity")) {
        return EVENT_CODING_NONE;
    }
    return event_is_word(content_encoding, "gzip") ||
                   event_is_word(content_encoding, "x-gzip")
               ? EVENT_CODING_GZIP
               : EVENT_CODING_OTHER;
}


/* ---- gzip ------------------------------------------------------------ */

/*
 * A body that one step inflates is ready at once. A longer one takes its
 * turns of the loop, one step each, so that nobody else waits longer than
 * a step. Only the oldest is being inflated: beside what is inflated, which
 * goes on to ingest and is counted there, one body of METER_BODY_SIZE_MAX
 * is all the memory this can take. Those that wait are as many as there are
 * requests, and their compressed bytes are counted by the listener.
 */

/* Called once. error: of BAD, a fixed sentence. */
typedef void (*unpack_cb)(void *asker, enum gunzip_result result,
                          const char *error);

struct unpack_job {
    struct unpack *unpack;
    TAILQ_ENTRY(unpack_job) queue;
    struct buf *body;
    struct gunzip *gunzip; /* NULL: has not begun */
    unpack_cb cb;
    void *asker;
};

struct unpack {
    uv_idle_t idle;                           /* runs while there are jobs */
    TAILQ_HEAD(unpack_jobs, unpack_job) jobs; /* oldest first */
};

static void unpack_idle_cb(uv_idle_t *idle);

static struct unpack *
unpack_create(uv_loop_t *loop)
{
    struct unpack *unpack = memory_alloc(sizeof(*unpack));

    TAILQ_INIT(&unpack->jobs);
    CHECK(uv_idle_init(loop, &unpack->idle) == 0);
    unpack->idle.data = unpack;
    return unpack;
}

static void
unpack_closed_cb(uv_handle_t *handle)
{
    free(handle->data);
}

/* Every job must be done or cancelled; the loop runs on for its handle. */
static void
unpack_destroy(struct unpack *unpack)
{
    CHECK(TAILQ_EMPTY(&unpack->jobs));
    uv_close((uv_handle_t *)&unpack->idle, unpack_closed_cb);
}

static void
unpack_job_free(struct unpack_job *job)
{
    gunzip_destroy(job->gunzip);
    free(job);
}

static enum gunzip_result
unpack_job_step(struct unpack_job *job)
{
    if (job->gunzip == NULL) {
        job->gunzip = gunzip_create(buf_str(job->body), METER_BODY_SIZE_MAX);
    }
    return job->gunzip == NULL ? GUNZIP_NO_MEMORY : gunzip_step(job->gunzip);
}

/* It is in no queue any more. */
static void
unpack_job_end(struct unpack_job *job, enum gunzip_result result)
{
    const char *error = NULL;
    unpack_cb cb = job->cb;
    void *asker = job->asker;

    switch (result) {
    case GUNZIP_DONE:
        gunzip_take(job->gunzip, job->body);
        metrics.edgemeter_unpacked_bytes_total += (int64_t)job->body->size;
        break;
    case GUNZIP_BAD:
        error = gunzip_error(job->gunzip);
        metrics.edgemeter_unpack_refused_total++;
        break;
    case GUNZIP_LARGE: metrics.edgemeter_unpack_refused_total++; break;
    case GUNZIP_MORE:
    case GUNZIP_NO_MEMORY: break;
    }
    unpack_job_free(job);
    cb(asker, result, error);
}

static void
unpack_add(struct unpack *unpack, struct unpack_job *job)
{
    TAILQ_INSERT_TAIL(&unpack->jobs, job, queue);
    metrics.edgemeter_unpack_queue++;
    CHECK(uv_idle_start(&unpack->idle, unpack_idle_cb) == 0);
}

static void
unpack_remove(struct unpack *unpack, struct unpack_job *job)
{
    TAILQ_REMOVE(&unpack->jobs, job, queue);
    metrics.edgemeter_unpack_queue--;
    if (TAILQ_EMPTY(&unpack->jobs)) {
        CHECK(uv_idle_stop(&unpack->idle) == 0);
    }
}

/* One step of the oldest; then everybody else's turn. */
static void
unpack_idle_cb(uv_idle_t *idle)
{
    struct unpack *unpack = idle->data;
    struct unpack_job *job = TAILQ_FIRST(&unpack->jobs);
    enum gunzip_result result = unpack_job_step(job);

    if (result == GUNZIP_MORE) {
        return;
    }
    unpack_remove(unpack, job);
    unpack_job_end(job, result);
}

/*
 * body holds gzip and must stay until the callback; after DONE it holds
 * what was inside, at most METER_BODY_SIZE_MAX bytes. The callback comes
 * during this call, which then returns NULL, or later.
 */
static struct unpack_job *
unpack_start(struct unpack *unpack, struct buf *body, unpack_cb cb, void *asker)
{
    struct unpack_job *job = memory_alloc(sizeof(*job));
    enum gunzip_result result = GUNZIP_MORE;

    *job = (struct unpack_job){
        .unpack = unpack, .body = body, .cb = cb, .asker = asker};
    if (TAILQ_EMPTY(&unpack->jobs)) {
        result = unpack_job_step(job);
    }
    if (result != GUNZIP_MORE) {
        unpack_job_end(job, result);
        return NULL;
    }
    unpack_add(unpack, job);
    return job;
}

/* No callback any more; the body may go. */
static void
unpack_cancel(struct unpack_job *job)
{
    unpack_remove(job->unpack, job);
    unpack_job_free(job);
}


/* ---- the answer ------------------------------------------------------ */

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
    member_text(json, "verdict", meter_verdict_name(result->verdict));
    if (result->error != NULL) {
        member_text(json, "error", events_reason(call, result));
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
        member_int(json, counts[i].name,
                   (int64_t)answer->counts[counts[i].verdict]);
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

    call->cancel = NULL;
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
events_cancel_ingest(struct api_call *call)
{
    ingest_cancel(call->work);
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
        call->work = waiting; /* NULL: answered, call is gone */
        call->cancel = events_cancel_ingest;
    }
}

static void
events_unpacked_cb(void *asker, enum gunzip_result result, const char *error)
{
    struct api_call *call = asker;

    call->cancel = NULL;
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
    if (!call_has_no_arguments(call, "path")) {
        return false;
    }
    if (!call->api->healthy) {
        call_answer_unavailable(call);
        return false;
    }
    return true;
}

static void
events_cancel_unpack(struct api_call *call)
{
    unpack_cancel(call->work);
}

static void
events_post(struct api_call *call)
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
        call->work = job; /* NULL: called back, and may be gone */
        call->cancel = events_cancel_unpack;
    }
}


static void
events_open(struct api *api, uv_loop_t *loop)
{
    api->unpack = unpack_create(loop);
}

static void
events_close(struct api *api)
{
    unpack_destroy(api->unpack);
}

static const struct route events_routes[] = {
    {METER_METHOD_POST, "/v1/events", TOKEN_SCOPE_INGEST, events_post},
};

const struct resource events_resource = {
    RESOURCE_ROUTES(events_routes),
    .open = events_open,
    .close = events_close,
};
