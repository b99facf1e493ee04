/*
 * buckets.c - the counters API: writes and reads of buckets.
 *
 *   POST /api/counters/{tenant}/{name}/increment      | in batches
 *   POST /api/counters/{tenant}/{name}/decrement      |
 *   POST /api/counters/{tenant}/{name}/incrementSync  | one by one
 *   POST /api/counters/{tenant}/{name}/decrementSync  |
 *   PUT  /api/counters/{tenant}/{name}/set            |
 *   GET  /api/counters/{tenant}/{name}/get            one bucket
 *   GET  /api/counters/{tenant}/{name}/sumRange       the sum of buckets
 *
 *   path, key, body -> request -> [bucket_engine] -> COMMIT -> answer
 *
 * The answer has the bucket as it was right after this write. One that may or
 * may not have been applied is 504; with an Idempotency-Key the same request
 * again finds out. Both ends of a range may lie anywhere in their bucket: the
 * first and the last one count whole. A sum may be longer than 64 bits.
 */

#include "api/call.h"
#include "base/metrics.h"

#define ERROR_NONE "Counter doesn't exist for the specified bucket"
#define ERROR_NAME                                                        \
    "the name must be 1 to 255 letters, digits, \".\", \"_\", \"~\" and " \
    "\"-\", and not \".\" or \"..\""
#define ERROR_NEGATIVE                                     \
    "Operation failed due to constraint violation (e.g., " \
    "counter cannot be negative)"
#define ERROR_OVERFLOW \
    "Operation resulted in an overflow (exceeded BIGINT capacity)"
#define ERROR_FULL      "Service overloaded (Queue Full). Please retry later."
#define ERROR_KEY_TAKEN "The Idempotency-Key was used with another request"
#define ERROR_UNKNOWN   "It is not known whether the operation was applied"
#define ERROR_LATE      "The operation was not applied in time; it may be retried"
#define ERROR_FAILED    "The operation failed and was not applied"

struct bucket_verb {
    enum bucket_kind kind;
    bool is_sync;
};

static void bucket_write(struct api_call *call);
static void bucket_get(struct api_call *call);
static void bucket_sum_range(struct api_call *call);

static const struct route bucket_routes[] = {
    {METER_METHOD_POST, "/api/counters/{tenant}/{name}/increment",
     TOKEN_SCOPE_WRITE, bucket_write},
    {METER_METHOD_POST, "/api/counters/{tenant}/{name}/decrement",
     TOKEN_SCOPE_WRITE, bucket_write},
    {METER_METHOD_POST, "/api/counters/{tenant}/{name}/incrementSync",
     TOKEN_SCOPE_WRITE, bucket_write},
    {METER_METHOD_POST, "/api/counters/{tenant}/{name}/decrementSync",
     TOKEN_SCOPE_WRITE, bucket_write},
    {METER_METHOD_PUT, "/api/counters/{tenant}/{name}/set", TOKEN_SCOPE_WRITE,
     bucket_write},
    {METER_METHOD_GET, "/api/counters/{tenant}/{name}/get", TOKEN_SCOPE_READ,
     bucket_get},
    {METER_METHOD_GET, "/api/counters/{tenant}/{name}/sumRange",
     TOKEN_SCOPE_READ, bucket_sum_range},
};

/* Of the first of bucket_routes, in their order. */
static const struct bucket_verb bucket_verbs[] = {
    {BUCKET_INCREMENT, false}, {BUCKET_DECREMENT, false},
    {BUCKET_INCREMENT, true},  {BUCKET_DECREMENT, true},
    {BUCKET_SET, true},
};

static void bucket_done_cb(void *asker, const struct operation_result *result);


/* ---- whose, and which ------------------------------------------------ */

/* As long as the text asked for is, whatever it says. */
static bool
bucket_tenant_is_own(const struct api_call *call)
{
    struct meter_str own = call_tenant(call);
    struct meter_str asked = call->match.parameter;
    unsigned differ = own.size != asked.size;

    for (size_t i = 0; i < asked.size; i++) {
        differ |= (unsigned char)(asked.data[i] ^ own.data[i % own.size]);
    }
    return differ == 0;
}

static bool
bucket_is_own(struct api_call *call)
{
    if (!bucket_tenant_is_own(call)) {
        call_answer_error(call, 404, 0, ERROR_NONE);
        return false;
    }
    if (!bucket_is_name(call->match.second)) {
        call_answer_error(call, 400, 0, ERROR_NAME);
        return false;
    }
    return true;
}


/* ---- the request ----------------------------------------------------- */

/* The call's tenant and name live as long as it; the engine copies them. */
static void
bucket_request(const struct api_call *call, const struct bucket_verb *verb,
               struct operation_request *out)
{
    *out = (struct operation_request){
        .key = {.tenant = call_tenant(call), .name = call->match.second},
        .write = {.kind = verb->kind},
        .is_sync = verb->is_sync,
        .idempotency_key = call->request->idempotency_key,
    };
}

/* False: the call has its answer. */
static bool
bucket_request_read(struct api_call *call, struct operation_request *out)
{
    const char *const *words = out->write.kind == BUCKET_SET
                                   ? operation_set_words
                                   : operation_amount_words;
    const struct json_value *values[OPERATION_WORDS];
    const char *error = NULL;

    if (!body_read(call, words, OPERATION_WORDS, values)) {
        return false;
    }
    if (out->idempotency_key.data != NULL) {
        error = operation_key_check(out->idempotency_key);
    }
    if (error == NULL) {
        error = operation_read(values, &call->arena, out);
    }
    if (error != NULL) {
        call_answer_error(call, 400, 0, error);
        return false;
    }
    return true;
}

static void
bucket_full(struct api_call *call)
{
    metrics.edgemeter_bucket_queue_full_total++;
    call_answer_error(call, 429, RETRY_AFTER_S, ERROR_FULL);
}

static void
bucket_cancel(struct api_call *call)
{
    bucket_engine_cancel(call->api->buckets, call->work);
}

static void
bucket_submit(struct api_call *call, const struct operation_request *request)
{
    struct operation *operation;

    switch (bucket_engine_submit(call->api->buckets, request, bucket_done_cb,
                                 call, &operation)) {
    case BUCKET_SUBMITTED:
        call->work = operation;
        call->cancel = bucket_cancel;
        return;
    case BUCKET_FULL: bucket_full(call); return;
    }
}

static void
bucket_write(struct api_call *call)
{
    const struct bucket_verb *verb =
        &bucket_verbs[call->match.route - bucket_routes];
    struct operation_request request;

    if (!bucket_is_own(call)) {
        return;
    }
    bucket_request(call, verb, &request);
    if (!bucket_request_read(call, &request)) {
        return;
    }
    if (!call->api->healthy) {
        call_answer_unavailable(call);
        return;
    }
    bucket_submit(call, &request);
}


/* ---- the answer ------------------------------------------------------ */

static void
bucket_answer(struct api_call *call, int64_t added, int64_t subbed)
{
    struct json_writer *json = &call->json;

    json_object_begin(json);
    member_int_string(json, "net", added - subbed);
    member_int_string(json, "added", added);
    member_int_string(json, "subbed", subbed);
    json_object_end(json);
    call_answer(call, 200);
}

static void
bucket_answer_decided(struct api_call *call,
                      const struct operation_result *result)
{
    switch (result->outcome) {
    case BUCKET_APPLIED:
        bucket_answer(call, result->added, result->subbed);
        return;
    case BUCKET_NEGATIVE:
        call_answer_error(call, 409, 0, ERROR_NEGATIVE);
        return;
    case BUCKET_OVERFLOW:
        call_answer_error(call, 400, 0, ERROR_OVERFLOW);
        return;
    }
}

/* The same words as nginx says when meterd is gone. */
static void
bucket_answer_unknown(struct api_call *call)
{
    struct json_writer *json = &call->json;

    json_object_begin(json);
    member_text(json, "error", ERROR_UNKNOWN);
    member_text(json, "outcome", "unknown");
    json_object_end(json);
    call_answer(call, 504);
}

static void
bucket_done_cb(void *asker, const struct operation_result *result)
{
    struct api_call *call = asker;

    call->cancel = NULL;
    switch (result->end) {
    case OPERATION_DECIDED: bucket_answer_decided(call, result); return;
    case OPERATION_KEY_TAKEN:
        call_answer_error(call, 409, 0, ERROR_KEY_TAKEN);
        return;
    case OPERATION_UNAVAILABLE:
        call_answer_error(call, 503, RETRY_AFTER_S, ERROR_LATE);
        return;
    case OPERATION_UNKNOWN: bucket_answer_unknown(call); return;
    case OPERATION_FAILED:
        call_answer_error(call, 500, 0, ERROR_FAILED);
        return;
    }
}


/* Columns of bucket_read. */
enum read_column { READ_ADDED, READ_SUBBED };

/* Columns of bucket_sum. */
enum sum_column { SUM_NET, SUM_ADDED, SUM_SUBBED };

/* Arguments: the bucket size, and one or two instants. */
#define INSTANTS_MAX 2

struct bucket_question {
    const char *const *names; /* of the instants */
    size_t instant_count;
    int64_t duration_s;
    int64_t instants_us[INSTANTS_MAX];
};

static void bucket_get_cb(void *asker, const struct pg_answer *answer);
static void bucket_sum_cb(void *asker, const struct pg_answer *answer);


/* ---- reads -------------------------------------------------------------- */

/* data NULL: not given. */
static struct meter_str
bucket_argument(const struct url_arguments *arguments, const char *name)
{
    const struct url_argument *argument = url_argument_find(arguments, name);

    return argument == NULL ? (struct meter_str){NULL, 0} : argument->value;
}

static const char *
bucket_arguments_check(const struct bucket_question *question,
                       const struct url_arguments *arguments,
                       struct arena *arena)
{
    for (size_t i = 0; i < arguments->count; i++) {
        struct meter_str name = arguments->items[i].name;
        bool is_ours = meter_str_equal(name, METER_STR("durationSeconds"));

        for (size_t n = 0; n < question->instant_count; n++) {
            const char *own = question->names[n];

            is_ours |=
                meter_str_equal(name, (struct meter_str){own, strlen(own)});
        }
        if (!is_ours) {
            return reason_format(arena, "unknown argument %s",
                                 reason_quote(name).text);
        }
    }
    return NULL;
}

/* NULL, or the sentence of a 400. */
static const char *
bucket_question_read(struct bucket_question *question,
                     const struct url_arguments *arguments, struct arena *arena)
{
    const char *error = bucket_arguments_check(question, arguments, arena);

    if (error == NULL) {
        error = operation_duration_read(
            bucket_argument(arguments, "durationSeconds"),
            &question->duration_s);
    }
    for (size_t i = 0; i < question->instant_count && error == NULL; i++) {
        const char *name = question->names[i];

        error = operation_time_read(bucket_argument(arguments, name), name,
                                    arena, &question->instants_us[i]);
    }
    if (error == NULL && question->instant_count == 2 &&
        question->instants_us[0] > question->instants_us[1]) {
        error = "startTime lies behind endTime";
    }
    return error;
}

/* False: the call has its answer. */
static bool
bucket_question_ask(struct api_call *call, struct bucket_question *question)
{
    const struct url_arguments *arguments;
    const char *error;

    if (!bucket_is_own(call) || (arguments = call_arguments(call)) == NULL) {
        return false;
    }
    error = bucket_question_read(question, arguments, &call->arena);
    if (error != NULL) {
        call_answer_error(call, 400, 0, error);
        return false;
    }
    if (!call->api->healthy) {
        call_answer_unavailable(call);
        return false;
    }
    return true;
}

/* Tenant, name, duration, the start of the bucket of each instant. */
static void
bucket_question_read_rows(struct api_call *call,
                          const struct bucket_question *question,
                          enum statement statement, pg_answer_cb cb)
{
    struct pg_params *params = call_params(call);

    pg_param_text(params, call_tenant(call));
    pg_param_text(params, call->match.second);
    pg_param_int8(params, question->duration_s);
    for (size_t i = 0; i < question->instant_count; i++) {
        pg_param_time(params, bucket_start_us(question->instants_us[i],
                                              question->duration_s));
    }
    call_read(call, statement, cb);
}


/* ---- one bucket ------------------------------------------------------ */

static void
bucket_get(struct api_call *call)
{
    static const char *const names[] = {"timestamp"};
    struct bucket_question question = {.names = names, .instant_count = 1};

    if (bucket_question_ask(call, &question)) {
        bucket_question_read_rows(call, &question, STATEMENT_BUCKET_READ,
                                  bucket_get_cb);
    }
}

static void
bucket_get_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const void *rows = answer->result;

    if (pg_row_count(rows) == 0) {
        call_answer_error(call, 404, 0, ERROR_NONE);
        return;
    }
    bucket_answer(call, pg_get_int8(rows, 0, READ_ADDED),
                  pg_get_int8(rows, 0, READ_SUBBED));
}


/* ---- a range --------------------------------------------------------- */

static void
bucket_sum_range(struct api_call *call)
{
    static const char *const names[] = {"startTime", "endTime"};
    struct bucket_question question = {.names = names, .instant_count = 2};

    if (bucket_question_ask(call, &question)) {
        bucket_question_read_rows(call, &question, STATEMENT_BUCKET_SUM,
                                  bucket_sum_cb);
    }
}

static void
bucket_sum_cb(void *asker, const struct pg_answer *answer)
{
    static const struct member members[] = {
        {"net", MEMBER_STRING, SUM_NET},
        {"added", MEMBER_STRING, SUM_ADDED},
        {"subbed", MEMBER_STRING, SUM_SUBBED},
    };
    struct api_call *call = asker;

    CHECK(pg_row_count(answer->result) == 1);
    json_object_begin(&call->json);
    MEMBERS_OF_ROW(&call->json, members, answer->result, 0);
    json_object_end(&call->json);
    call_answer(call, 200);
}

const struct resource buckets_resource = {
    RESOURCE_ROUTES(bucket_routes),
    .full = bucket_full,
};
