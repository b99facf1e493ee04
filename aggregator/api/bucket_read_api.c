/*
 * bucket_read_api.c - reads of the counters API.
 *
 *   GET /api/counters/{tenant}/{name}/get       one bucket
 *   GET /api/counters/{tenant}/{name}/sumRange  the sum of buckets
 *
 * Both ends of a range may lie anywhere in their bucket: the first and the
 * last one count whole. A sum may be longer than 64 bits.
 */

#include "api/bucket_api.h"
#include "api/handlers.h"

/* Columns of bucket_read. */
enum read_column { READ_ADDED, READ_SUBBED };

/* Columns of bucket_sum. */
enum sum_column { SUM_NET, SUM_ADDED, SUM_SUBBED };

/* Arguments: the bucket size, and one or two instants. */
#define INSTANTS_MAX 2

struct question {
    const char *const *names; /* of the instants */
    size_t instant_count;
    int64_t duration_s;
    int64_t instants_us[INSTANTS_MAX];
};

static void get_read_cb(void *asker, const struct pg_answer *answer);
static void sum_read_cb(void *asker, const struct pg_answer *answer);


/* ---- the question ---------------------------------------------------- */

static struct meter_str
name_str(const char *name)
{
    return (struct meter_str){name, strlen(name)};
}

/* data NULL: not given. */
static struct meter_str
argument_value(const struct url_arguments *arguments, const char *name)
{
    for (size_t i = 0; i < arguments->count; i++) {
        if (meter_str_equal(arguments->items[i].name, name_str(name))) {
            return arguments->items[i].value;
        }
    }
    return (struct meter_str){NULL, 0};
}

static bool
is_argument(const struct question *question, struct meter_str name)
{
    for (size_t i = 0; i < question->instant_count; i++) {
        if (meter_str_equal(name, name_str(question->names[i]))) {
            return true;
        }
    }
    return meter_str_equal(name, METER_STR("durationSeconds"));
}

static const char *
arguments_check(const struct question *question,
                const struct url_arguments *arguments, struct arena *arena)
{
    for (size_t i = 0; i < arguments->count; i++) {
        struct meter_str name = arguments->items[i].name;

        if (!is_argument(question, name)) {
            return reason_format(arena, "unknown argument %s",
                                 reason_quote(name).text);
        }
    }
    return NULL;
}

/* NULL, or the sentence of a 400. */
static const char *
question_read(struct question *question, struct meter_str raw,
              struct url_arguments *arguments, struct arena *arena)
{
    const char *error = NULL;

    if (!url_arguments_read(raw, arena, arguments, &error)) {
        return error;
    }
    error = arguments_check(question, arguments, arena);
    if (error == NULL) {
        error = operation_duration_read(
            argument_value(arguments, "durationSeconds"),
            &question->duration_s);
    }
    for (size_t i = 0; i < question->instant_count && error == NULL; i++) {
        const char *name = question->names[i];

        error = operation_time_read(argument_value(arguments, name), name,
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
question_ask(struct api_call *call, struct question *question)
{
    struct url_arguments *arguments;
    const char *error;

    if (!bucket_api_is_own(call)) {
        return false;
    }
    arguments = arena_alloc(&call->arena, sizeof(*arguments));
    if (arguments == NULL) {
        call_answer_unavailable(call);
        return false;
    }
    error =
        question_read(question, call->request->args, arguments, &call->arena);
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
question_read_rows(struct api_call *call, const struct question *question,
                   enum statement statement, pg_answer_cb cb)
{
    struct pg_params params;

    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, call->match.second);
    pg_param_int8(&params, question->duration_s);
    for (size_t i = 0; i < question->instant_count; i++) {
        pg_param_time(&params, bucket_start_us(question->instants_us[i],
                                               question->duration_s));
    }
    call_read(call, statement, &params, cb);
    pg_params_fini(&params);
}


/* ---- one bucket ------------------------------------------------------ */

void
bucket_api_get(struct api_call *call)
{
    static const char *const names[] = {"timestamp"};
    struct question question = {.names = names, .instant_count = 1};

    if (question_ask(call, &question)) {
        question_read_rows(call, &question, STATEMENT_BUCKET_READ, get_read_cb);
    }
}

static void
get_read_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const void *rows = answer->result;

    if (pg_row_count(rows) == 0) {
        call_answer_error(call, 404, 0, BUCKET_API_ERROR_NONE);
        return;
    }
    bucket_api_answer(call, pg_get_int8(rows, 0, READ_ADDED),
                      pg_get_int8(rows, 0, READ_SUBBED));
}


/* ---- a range --------------------------------------------------------- */

void
bucket_api_sum_range(struct api_call *call)
{
    static const char *const names[] = {"startTime", "endTime"};
    struct question question = {.names = names, .instant_count = 2};

    if (question_ask(call, &question)) {
        question_read_rows(call, &question, STATEMENT_BUCKET_SUM, sum_read_cb);
    }
}

static void
sum_read_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct json_writer *json = &call->json;
    const void *rows = answer->result;

    CHECK(pg_row_count(rows) == 1);
    json_object_begin(json);
    json_key(json, "net");
    json_string(json, pg_get_bytes(rows, 0, SUM_NET));
    json_key(json, "added");
    json_string(json, pg_get_bytes(rows, 0, SUM_ADDED));
    json_key(json, "subbed");
    json_string(json, pg_get_bytes(rows, 0, SUM_SUBBED));
    json_object_end(json);
    call_answer(call, 200);
}
