/*
 * close_api.c - POST /v1/usage/close: a billing period is over for good.
 *
 *   close_begin | COMMIT | close_pass | COMMIT | close_freeze | COMMIT | answer
 *
 * The first transaction says that the period is closed; from then on ingest
 * books its events as adjustments. The second one waits for every ingest
 * transaction that may not have seen it. Only then are the figures final;
 * the third one keeps them as they are billed, while ingest goes on, and
 * only then is the client told. Whatever happens in between: the same
 * request again completes it.
 */

#include "api/body.h"
#include "api/call.h"
#include "api/handlers.h"
#include "api/usage_query.h"
#include "base/crash_point.h"
#include "meter_time.h"
#include "project/period.h"

enum member { MEMBER_METRIC, MEMBER_PERIOD, MEMBERS };

static const char *const member_names[MEMBERS] = {"metric", "period"};

/* The call's state. */
struct close_question {
    const struct billing_meter *meter;
    int64_t period_us;
};

static void close_begun_cb(void *asker, const struct pg_answer *answer);
static void close_passed_cb(void *asker, const struct pg_answer *answer);
static void close_frozen_cb(void *asker, const struct pg_answer *answer);

/* 0, or the status of the answer with *error. */
static unsigned
question_read(struct api_call *call, const struct json_value **values,
              struct close_question *out, const char **error)
{
    struct meter_str metric;
    struct meter_str period;

    if (!body_text(values[MEMBER_METRIC], "metric", METER_NAME_SIZE_MAX,
                   &call->arena, &metric, error) ||
        !body_text(values[MEMBER_PERIOD], "period", METER_NAME_SIZE_MAX,
                   &call->arena, &period, error)) {
        return 400;
    }
    out->meter = catalog_meter(call->config->catalog, metric);
    if (out->meter == NULL) {
        *error = "no such metric";
        return 404;
    }
    *error = usage_period_read(out->meter, "period", period, &call->arena,
                               &out->period_us);
    return *error == NULL ? 0 : 400;
}

void
close_api_post(struct api_call *call)
{
    const struct json_value *values[MEMBERS];
    struct close_question *question;
    const char *error = NULL;
    struct pg_params params;
    struct token token;
    unsigned status;

    if (!body_read(call, member_names, MEMBERS, values)) {
        return;
    }
    question = arena_alloc(&call->arena, sizeof(*question));
    if (!call->api->healthy || question == NULL ||
        !token_parse_header(call->request->authorization, &token)) {
        call_answer_unavailable(call);
        return;
    }
    status = question_read(call, values, question, &error);
    if (status != 0) {
        call_answer_error(call, status, 0, error);
        return;
    }
    call->state = question;
    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, question->meter->metric);
    pg_param_time(&params, question->period_us);
    pg_param_time(&params,
                  period_end(question->meter->period, question->period_us));
    pg_param_text(&params, token.id);
    call_write(call, STATEMENT_CLOSE_BEGIN, &params, close_begun_cb);
    pg_params_fini(&params);
}

/* Row: the database's clock. */
static void
close_begun_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct close_question *question = call->state;
    int64_t end_us = period_end(question->meter->period, question->period_us);
    char end[METER_TIME_TEXT_SIZE + 1];
    struct pg_params params;

    if (pg_get_time(answer->result, 0, 0) < end_us) {
        meter_time_format(end_us, end);
        call_answer_error(call, 409, 0,
                          reason_format(&call->arena,
                                        "the period is not over; it ends at "
                                        "%s",
                                        end));
        return;
    }
    CRASH_POINT("after_close_begin");
    pg_params_init(&params);
    call_write(call, STATEMENT_CLOSE_PASS, &params, close_passed_cb);
    pg_params_fini(&params);
}

static void
close_passed_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct close_question *question = call->state;
    const struct billing_meter *meter = question->meter;
    const char *aggregation = billing_aggregation_name(meter->aggregation);
    char period[PERIOD_TEXT_SIZE + 1];
    struct pg_params params;
    size_t size;

    (void)answer;
    CRASH_POINT("after_close_pass");
    size = period_format(meter->period, question->period_us, period);
    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, meter->metric);
    pg_param_time(&params, question->period_us);
    pg_param_text(&params, (struct meter_str){period, size});
    pg_param_text(&params,
                  (struct meter_str){aggregation, strlen(aggregation)});
    call_write(call, STATEMENT_CLOSE_FREEZE, &params, close_frozen_cb);
    pg_params_fini(&params);
}

/* Row: closed_at. */
static void
close_frozen_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct close_question *question = call->state;
    struct json_writer *json = &call->json;
    char period[PERIOD_TEXT_SIZE + 1];

    CHECK(pg_row_count(answer->result) == 1);
    period_format(question->meter->period, question->period_us, period);
    json_object_begin(json);
    json_key(json, "metric");
    json_string(json, question->meter->metric);
    json_key(json, "period");
    json_text(json, period);
    json_key(json, "closed");
    json_bool(json, true);
    json_key(json, "closed_at");
    json_time(json, pg_get_time(answer->result, 0, 0));
    json_object_end(json);
    call_answer(call, 200);
}
