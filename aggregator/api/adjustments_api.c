/*
 * adjustments_api.c - POST /v1/adjustments: a manual correction of a period.
 *
 *   body -> request -> meter.adjust | COMMIT | answer
 *
 * Append-only: what was booked is corrected by another one. The client's id
 * makes a retry apply once. A period that is closed can be corrected: that
 * is what they are for.
 */

#include "api/adjustment.h"
#include "api/body.h"
#include "api/call.h"
#include "api/handlers.h"
#include "api/usage_query.h"
#include "project/attribute.h"

#define REASON_SIZE_LIMIT 1000
#define ACTOR_SIZE_LIMIT  255

static void made_cb(void *asker, const struct pg_answer *answer);

enum member {
    MEMBER_ID,
    MEMBER_METRIC,
    MEMBER_CUSTOMER,
    MEMBER_GROUP,
    MEMBER_PERIOD,
    MEMBER_AMOUNT,
    MEMBER_REASON,
    MEMBER_ACTOR,
    MEMBERS
};

static const char *const member_names[MEMBERS] = {
    "id", "metric", "customer", "group", "period", "amount", "reason", "actor",
};

/* Outcomes of meter.adjust. */
enum outcome { OUTCOME_MADE, OUTCOME_SAME, OUTCOME_CONFLICT, OUTCOME_EARLY };

/* Columns of adjustment_make. */
enum made_column {
    MADE_OUTCOME,
    MADE_METRIC,
    MADE_PERIOD_START,
    MADE_CUSTOMER,
    MADE_GROUPS,
    MADE_AMOUNT,
    MADE_REASON,
    MADE_ACTOR,
    MADE_RECORDED_AT
};

struct request {
    struct adjustment one;
    uint8_t group_key[METER_DIGEST_SIZE];
    struct meter_str token_id; /* the actor where one.actor is NULL */
};

static const char *
amount_read(const struct json_value *value, struct arena *arena,
            struct meter_decimal *out)
{
    enum meter_decimal_error error;

    if (value == NULL) {
        return "amount is missing";
    }
    if (value->kind != JSON_NUMBER && value->kind != JSON_STRING) {
        return "amount must be a number or a string";
    }
    error = meter_decimal_parse(value->text, out);
    if (error != METER_DECIMAL_OK) {
        return reason_format(arena, "amount %s",
                             meter_decimal_error_text(error));
    }
    return out->units == 0 ? "amount must not be 0" : NULL;
}

/* Members are names of the metric's dimensions; a missing one is null. */
static const char *
group_read(const struct json_value *value, struct arena *arena,
           struct request *out)
{
    static const struct json_value nothing = {.kind = JSON_OBJECT};
    const struct billing_meter *meter = out->one.meter;
    struct dimension_set set;
    const char *error = NULL;

    if (value == NULL) {
        value = &nothing;
    }
    if (value->kind != JSON_OBJECT) {
        return "group must be an object";
    }
    for (uint32_t m = 0; m < value->count; m++) {
        struct meter_str name = value->members[m].name;
        size_t i = 0;

        while (i < meter->group_by_count &&
               !meter_str_equal(meter->group_by[i].name, name)) {
            i++;
        }
        if (i == meter->group_by_count) {
            return reason_format(arena, "the metric has no dimension %s",
                                 reason_quote(name).text);
        }
    }
    if (!attribute_dimensions(value, meter->group_by, meter->group_by_count,
                              "meter", meter->metric, arena, &set, &error)) {
        return error;
    }
    out->one.groups = set.json;
    memcpy(out->group_key, set.key, sizeof(out->group_key));
    return NULL;
}

/* The members that are words: id, reason, customer, actor. */
static const char *
words_read(struct api_call *call, const struct json_value **values,
           struct request *out)
{
    struct arena *arena = &call->arena;
    struct adjustment *one = &out->one;
    const char *error = NULL;

    if (!body_text(values[MEMBER_ID], "id", METER_EVENT_ID_SIZE_MAX, arena,
                   &one->id, &error) ||
        !body_line(values[MEMBER_REASON], "reason", REASON_SIZE_LIMIT, arena,
                   &one->reason, &error)) {
        return error;
    }
    if (values[MEMBER_CUSTOMER] != NULL &&
        !body_text(values[MEMBER_CUSTOMER], "customer", METER_CUSTOMER_SIZE_MAX,
                   arena, &one->customer, &error)) {
        return error;
    }
    if (values[MEMBER_ACTOR] != NULL &&
        !body_line(values[MEMBER_ACTOR], "actor", ACTOR_SIZE_LIMIT, arena,
                   &one->actor, &error)) {
        return error;
    }
    return NULL;
}

/* 0, or the status of the answer with *error. */
static unsigned
request_read(struct api_call *call, const struct json_value **values,
             struct request *out, const char **error)
{
    struct adjustment *one = &out->one;
    struct meter_str metric;
    struct meter_str period;

    *error = words_read(call, values, out);
    if (*error != NULL ||
        !body_text(values[MEMBER_METRIC], "metric", METER_NAME_SIZE_MAX,
                   &call->arena, &metric, error) ||
        !body_text(values[MEMBER_PERIOD], "period", METER_NAME_SIZE_MAX,
                   &call->arena, &period, error)) {
        return 400;
    }
    one->meter = catalog_meter(call->config->catalog, metric);
    if (one->meter == NULL) {
        *error = "no such metric";
        return 404;
    }
    *error = usage_period_read(one->meter, "period", period, &call->arena,
                               &one->period_us);
    if (*error == NULL) {
        *error = amount_read(values[MEMBER_AMOUNT], &call->arena, &one->amount);
    }
    if (*error == NULL) {
        *error = group_read(values[MEMBER_GROUP], &call->arena, out);
    }
    return *error == NULL ? 0 : 400;
}

static void
request_write(struct api_call *call, const struct request *request)
{
    const struct adjustment *one = &request->one;
    char amount[METER_DECIMAL_TEXT_SIZE + 1];
    size_t amount_size = meter_decimal_format(one->amount, amount);
    struct pg_params params;

    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, one->meter->metric);
    pg_param_time(&params, one->period_us);
    pg_param_text(&params, one->customer);
    pg_param_bytes(&params, (struct meter_str){(const char *)request->group_key,
                                               METER_DIGEST_SIZE});
    pg_param_text(&params, one->groups);
    pg_param_text(&params, one->id);
    pg_param_text(&params, (struct meter_str){amount, amount_size});
    pg_param_text(&params, one->reason);
    pg_param_text(&params, one->actor);
    pg_param_text(&params, request->token_id);
    call_write(call, STATEMENT_ADJUSTMENT_MAKE, &params, made_cb);
    pg_params_fini(&params);
}

void
adjustments_api_post(struct api_call *call)
{
    const struct json_value *values[MEMBERS];
    struct request *request;
    const char *error = NULL;
    struct token token;
    unsigned status;

    if (!body_read(call, member_names, MEMBERS, values)) {
        return;
    }
    request = arena_zalloc(&call->arena, sizeof(*request));
    if (!call->api->healthy || request == NULL ||
        !token_parse_header(call->request->authorization, &token)) {
        call_answer_unavailable(call);
        return;
    }
    request->one.customer = METER_STR("");
    request->token_id = token.id;
    status = request_read(call, values, request, &error);
    if (status != 0) {
        call_answer_error(call, status, 0, error);
        return;
    }
    call->state = request;
    request_write(call, request);
}

static void
made_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct request *request = call->state;
    const void *row = answer->result;
    struct adjustment one = {.meter = request->one.meter, .is_manual = true};
    int32_t outcome = pg_get_int4(row, 0, MADE_OUTCOME);
    bool fits;

    if (outcome == OUTCOME_EARLY) {
        call_answer_error(call, 400, 0, "the period has not begun");
        return;
    }
    if (outcome == OUTCOME_CONFLICT) {
        call_answer_error(call, 409, 0, "the id is that of another adjustment");
        return;
    }
    one.period_us = pg_get_time(row, 0, MADE_PERIOD_START);
    one.customer = pg_get_bytes(row, 0, MADE_CUSTOMER);
    one.groups = pg_get_bytes(row, 0, MADE_GROUPS);
    one.id = request->one.id;
    fits = pg_get_numeric(row, 0, MADE_AMOUNT, &one.amount);
    CHECK(fits);
    one.reason = pg_get_bytes(row, 0, MADE_REASON);
    one.actor = pg_get_bytes(row, 0, MADE_ACTOR);
    one.recorded_us = pg_get_time(row, 0, MADE_RECORDED_AT);
    one.ts_us = one.recorded_us;
    adjustment_put(&call->json, &one);
    call_answer(call, outcome == OUTCOME_MADE ? 201 : 200);
}
