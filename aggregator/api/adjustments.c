/*
 * adjustments.c - corrections of billing periods: making one, listing them.
 *
 *   POST /v1/adjustments: body -> request -> meter.adjust | COMMIT | answer
 *
 * Append-only: what was booked is corrected by another one. The client's id
 * makes a retry apply once. A period that is closed can be corrected: that
 * is what they are for.
 *
 *   GET /v1/adjustments: arguments -> question -> adjustment_list -> JSON, CSV
 *
 * Those of events that came too late and manual ones, by period, customer
 * and the time they were booked, in pages.
 */

#include "api/billing.h"
#include "api/call.h"
#include "api/dimension_query.h"
#include "api/page.h"
#include "base/csv.h"
#include "meter_event.h"
#include "meter_time.h"
#include "project/attribute.h"
#include "project/period.h"
#include "query/query.h"

#define REASON_SIZE_LIMIT 1000
#define ACTOR_SIZE_LIMIT  255

static void adjustment_made_cb(void *asker, const struct pg_answer *answer);

enum adjustment_member {
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

static bool
adjustment_has_control(struct meter_str text)
{
    for (size_t i = 0; i < text.size; i++) {
        if ((unsigned char)text.data[i] < ' ' || text.data[i] == 0x7f) {
            return true;
        }
    }
    return false;
}

/* Words for people: a text without control characters, in one line. */
static bool
adjustment_line(const struct json_value *value, const char *name,
                size_t size_max, struct arena *arena, struct meter_str *out,
                const char **error)
{
    if (!body_text(value, name, size_max, arena, out, error)) {
        return false;
    }
    if (adjustment_has_control(*out)) {
        *error = reason_format(arena, "%s has control characters", name);
        return false;
    }
    return true;
}

static const char *
adjustment_amount_read(const struct json_value *value, struct arena *arena,
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
adjustment_group_read(const struct json_value *value, struct arena *arena,
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

        if (dimension_place(meter->group_by, meter->group_by_count, name) ==
            meter->group_by_count) {
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
adjustment_words_read(struct api_call *call, const struct json_value **values,
                      struct request *out)
{
    struct arena *arena = &call->arena;
    struct adjustment *one = &out->one;
    const char *error = NULL;

    if (!body_text(values[MEMBER_ID], "id", METER_EVENT_ID_SIZE_MAX, arena,
                   &one->id, &error) ||
        !adjustment_line(values[MEMBER_REASON], "reason", REASON_SIZE_LIMIT,
                         arena, &one->reason, &error)) {
        return error;
    }
    if (values[MEMBER_CUSTOMER] != NULL &&
        !body_text(values[MEMBER_CUSTOMER], "customer", METER_CUSTOMER_SIZE_MAX,
                   arena, &one->customer, &error)) {
        return error;
    }
    if (values[MEMBER_ACTOR] != NULL &&
        !adjustment_line(values[MEMBER_ACTOR], "actor", ACTOR_SIZE_LIMIT, arena,
                         &one->actor, &error)) {
        return error;
    }
    return NULL;
}

/* 0, or the status of the answer with *error. */
static unsigned
adjustment_request_read(struct api_call *call, const struct json_value **values,
                        struct request *out, const char **error)
{
    struct adjustment *one = &out->one;
    struct meter_str metric;
    struct meter_str period;

    *error = adjustment_words_read(call, values, out);
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
    *error = billing_period_read(one->meter, "period", period, &call->arena,
                                 &one->period_us);
    if (*error == NULL) {
        *error = adjustment_amount_read(values[MEMBER_AMOUNT], &call->arena,
                                        &one->amount);
    }
    if (*error == NULL) {
        *error = adjustment_group_read(values[MEMBER_GROUP], &call->arena, out);
    }
    return *error == NULL ? 0 : 400;
}

static void
adjustment_request_write(struct api_call *call, const struct request *request)
{
    const struct adjustment *one = &request->one;
    char amount[METER_DECIMAL_TEXT_SIZE + 1];
    size_t amount_size = meter_decimal_format(one->amount, amount);
    struct pg_params *params = call_params(call);

    pg_param_text(params, call_tenant(call));
    pg_param_text(params, one->meter->metric);
    pg_param_time(params, one->period_us);
    pg_param_text(params, one->customer);
    pg_param_bytes(params, (struct meter_str){(const char *)request->group_key,
                                              METER_DIGEST_SIZE});
    pg_param_text(params, one->groups);
    pg_param_text(params, one->id);
    pg_param_text(params, (struct meter_str){amount, amount_size});
    pg_param_text(params, one->reason);
    pg_param_text(params, one->actor);
    pg_param_text(params, request->token_id);
    call_write(call, STATEMENT_ADJUSTMENT_MAKE, adjustment_made_cb);
}

static void
adjustments_post(struct api_call *call)
{
    const struct json_value *values[MEMBERS];
    struct request *request;
    const char *error = NULL;
    unsigned status;

    if (!body_read(call, member_names, MEMBERS, values)) {
        return;
    }
    request = call_state(call, sizeof(*request));
    if (request == NULL) {
        return;
    }
    request->one.customer = METER_STR("");
    request->token_id = call_token_id(call);
    status = adjustment_request_read(call, values, request, &error);
    if (status != 0) {
        call_answer_error(call, status, 0, error);
        return;
    }
    adjustment_request_write(call, request);
}

static void
adjustment_made_cb(void *asker, const struct pg_answer *answer)
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


/* ---- the list ----------------------------------------------------------- */

static void
adjustment_csv_head(struct csv_writer *csv)
{
    static const char *const names[] = {
        "metric", "customer", "period", "group", "kind",        "id",
        "amount", "reason",   "actor",  "ts",    "recorded_at",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        csv_cell(csv, (struct meter_str){names[i], strlen(names[i])});
    }
    csv_row_end(csv);
}

/* No value is an empty cell. */
static void
csv_text_or_empty(struct csv_writer *csv, struct meter_str text)
{
    if (text.size == 0) {
        csv_empty(csv);
    } else {
        csv_client_text(csv, text);
    }
}

static void
adjustment_csv(struct csv_writer *csv, const struct adjustment *one)
{
    char period[PERIOD_TEXT_SIZE + 1];
    char amount[METER_DECIMAL_TEXT_SIZE + 1];
    size_t size;

    csv_cell(csv, one->meter->metric);
    csv_text_or_empty(csv, one->customer);
    size = period_format(one->meter->period, one->period_us, period);
    csv_cell(csv, (struct meter_str){period, size});
    if (one->meter->group_by_count == 0) {
        csv_empty(csv);
    } else {
        csv_cell(csv, one->groups); /* starts with a bracket */
    }
    csv_cell(csv, one->is_manual ? METER_STR("manual") : METER_STR("event"));
    csv_client_text(csv, one->id);
    size = meter_decimal_format(one->amount, amount);
    csv_cell(csv, (struct meter_str){amount, size});
    csv_client_text(csv, one->reason);
    csv_text_or_empty(csv, one->actor);
    csv_time(csv, one->ts_us);
    csv_time(csv, one->recorded_us);
    csv_row_end(csv);
}


/* Columns of adjustment_list. */
enum list_column {
    LIST_PERIOD_START,
    LIST_CUSTOMER,
    LIST_GROUPS,
    LIST_IS_MANUAL,
    LIST_ID,
    LIST_AMOUNT,
    LIST_REASON,
    LIST_ACTOR,
    LIST_TS,
    LIST_RECORDED_AT
};

/* The call's state. */
struct list_question {
    const struct billing_meter *meter;
    enum accept_form form;
    int64_t from_us; /* start of the first period */
    int64_t to_us;   /* end of the last one */
    bool has_customer;
    struct meter_str customer;
    struct page page;
    struct adjustment after; /* only what the order is made of */
};

static void adjustments_cb(void *asker, const struct pg_answer *answer);

/* Key of a cursor: period, recorded_at, is_manual, customer, id. */
static size_t
adjustment_place_write(const struct adjustment *one, char *out)
{
    struct meter_writer writer;

    meter_writer_init(&writer, out, PAGE_KEY_SIZE_MAX);
    meter_put_u64(&writer, (uint64_t)one->period_us);
    meter_put_u64(&writer, (uint64_t)one->recorded_us);
    meter_put_u8(&writer, one->is_manual);
    meter_put_u8(&writer, (uint8_t)one->customer.size);
    meter_put_bytes(&writer, one->customer.data, one->customer.size);
    meter_put_bytes(&writer, one->id.data, one->id.size);
    CHECK(!writer.failed && one->customer.size <= UINT8_MAX);
    return writer.at;
}

static bool
adjustment_time_is_sane(int64_t ts_us)
{
    return ts_us >= METER_TIME_MIN && ts_us <= METER_TIME_MAX;
}

static bool
adjustment_place_read(struct meter_str key, struct adjustment *out)
{
    struct meter_reader reader;

    meter_reader_init(&reader, key.data, key.size);
    out->period_us = (int64_t)meter_get_u64(&reader);
    out->recorded_us = (int64_t)meter_get_u64(&reader);
    out->is_manual = meter_get_u8(&reader) != 0;
    out->customer = meter_get_bytes(&reader, meter_get_u8(&reader));
    out->id = meter_get_bytes(&reader, meter_reader_left(&reader));
    return !reader.failed && adjustment_time_is_sane(out->period_us) &&
           adjustment_time_is_sane(out->recorded_us) &&
           meter_utf8_valid(out->customer) && meter_utf8_valid(out->id);
}

static const char *
adjustments_check_names(const struct url_arguments *arguments,
                        struct arena *arena)
{
    for (size_t i = 0; i < arguments->count; i++) {
        struct meter_str name = arguments->items[i].name;

        if (!page_is_argument(name) &&
            !meter_str_equal(name, METER_STR("metric")) &&
            !meter_str_equal(name, METER_STR("period")) &&
            !meter_str_equal(name, METER_STR("customer"))) {
            return reason_format(arena, "unknown argument %s",
                                 reason_quote(name).text);
        }
    }
    return NULL;
}

static const char *
adjustments_read_page(struct api_call *call,
                      const struct url_arguments *arguments,
                      struct list_question *out)
{
    struct page *page = &out->page;
    int64_t numbers[] = {out->from_us, out->to_us, out->has_customer};
    const char *error = NULL;

    page_init(page);
    page_ask(page, METER_STR("adjustments"));
    page_ask(page, call_tenant(call));
    page_ask(page, out->meter->metric);
    page_ask(page, (struct meter_str){(const char *)numbers, sizeof(numbers)});
    page_ask(page, out->customer);
    if (!page_read(page, arguments, &call->arena, &error)) {
        return error;
    }
    out->after = (struct adjustment){
        .period_us = out->from_us,
        .recorded_us = METER_TIME_MIN,
        .customer = out->customer,
        .id = METER_STR(""),
    };
    if (page->after.data != NULL &&
        (!adjustment_place_read(page->after, &out->after) ||
         out->after.period_us < out->from_us ||
         out->after.period_us >= out->to_us)) {
        return PAGE_ERROR_CURSOR;
    }
    return NULL;
}

/* 0, or the status of the answer with *error. */
static unsigned
adjustments_read(struct api_call *call, const struct url_arguments *arguments,
                 struct list_question *out, const char **error)
{
    const struct url_argument *period = url_argument_find(arguments, "period");
    const struct url_argument *customer =
        url_argument_find(arguments, "customer");
    unsigned status = 400;

    *error = adjustments_check_names(arguments, &call->arena);
    if (*error != NULL) {
        return 400;
    }
    out->meter =
        billing_metric_read(call->config->catalog, arguments, &status, error);
    if (out->meter == NULL) {
        return status;
    }
    out->has_customer = customer != NULL;
    out->customer = customer != NULL ? customer->value : METER_STR("");
    out->from_us = METER_TIME_MIN;
    out->to_us = METER_TIME_MAX;
    if (period != NULL) {
        *error = billing_period_read(out->meter, "period", period->value,
                                     &call->arena, &out->from_us);
    }
    if (period != NULL && *error == NULL) {
        out->to_us = period_end(out->meter->period, out->from_us);
    }
    if (*error == NULL) {
        *error = adjustments_read_page(call, arguments, out);
    }
    return *error == NULL ? 0 : 400;
}

static void
adjustments_ask(struct api_call *call, const struct list_question *question)
{
    const struct adjustment *after = &question->after;
    struct pg_params *params = call_params(call);

    pg_param_text(params, call_tenant(call));
    pg_param_text(params, question->meter->metric);
    pg_param_time(params, question->to_us);
    pg_param_text(params, question->has_customer ? question->customer
                                                 : (struct meter_str){NULL, 0});
    pg_param_time(params, after->period_us);
    pg_param_text(params, after->customer);
    pg_param_time(params, after->recorded_us);
    pg_param_text(params, after->id);
    pg_param_int4(params, after->is_manual);
    pg_param_int8(params, page_row_limit(&question->page));
    call_read(call, STATEMENT_ADJUSTMENT_LIST, adjustments_cb);
}

static void
adjustments_get(struct api_call *call)
{
    struct list_question *question;
    const struct url_arguments *arguments;
    enum accept_form form;
    const char *error = NULL;
    unsigned status;

    if (!table_form(call, &form) ||
        (question = call_state(call, sizeof(*question))) == NULL ||
        (arguments = call_arguments(call)) == NULL) {
        return;
    }
    question->form = form;
    status = adjustments_read(call, arguments, question, &error);
    if (status != 0) {
        call_answer_error(call, status, 0, error);
        return;
    }
    adjustments_ask(call, question);
}

static void
adjustments_row(const struct billing_meter *meter, const void *rows, int row,
                struct adjustment *out)
{
    bool fits;

    *out = (struct adjustment){
        .meter = meter,
        .period_us = pg_get_time(rows, row, LIST_PERIOD_START),
        .customer = pg_get_bytes(rows, row, LIST_CUSTOMER),
        .groups = pg_get_bytes(rows, row, LIST_GROUPS),
        .is_manual = pg_get_bool(rows, row, LIST_IS_MANUAL),
        .id = pg_get_bytes(rows, row, LIST_ID),
        .reason = pg_get_bytes(rows, row, LIST_REASON),
        .ts_us = pg_get_time(rows, row, LIST_TS),
        .recorded_us = pg_get_time(rows, row, LIST_RECORDED_AT),
    };
    if (!pg_is_null(rows, row, LIST_ACTOR)) {
        out->actor = pg_get_bytes(rows, row, LIST_ACTOR);
    }
    fits = pg_get_numeric(rows, row, LIST_AMOUNT, &out->amount);
    CHECK(fits);
}

static void
adjustments_put_table(struct api_call *call, const struct billing_meter *meter,
                      const void *rows, int shown)
{
    struct csv_writer csv;
    struct adjustment one;

    csv_writer_init(&csv, &call->out);
    adjustment_csv_head(&csv);
    for (int row = 0; row < shown; row++) {
        adjustments_row(meter, rows, row, &one);
        adjustment_csv(&csv, &one);
    }
}

static void
adjustments_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct list_question *question = call->state;
    const void *rows = answer->result;
    int count = pg_row_count(rows);
    int shown = page_row_count(&question->page, count);
    char key[PAGE_KEY_SIZE_MAX];
    char cursor[PAGE_CURSOR_SIZE_MAX + 1];
    struct meter_str last = {key, 0};
    struct adjustment one;
    bool has_more;

    if (shown > 0) {
        adjustments_row(question->meter, rows, shown - 1, &one);
        last.size = adjustment_place_write(&one, key);
    }
    has_more = page_cursor(&question->page, count, last, cursor);
    if (question->form == ACCEPT_CSV) {
        adjustments_put_table(call, question->meter, rows, shown);
        table_answer(call, has_more ? cursor : NULL);
        return;
    }
    json_object_begin(&call->json);
    json_key(&call->json, "adjustments");
    json_array_begin(&call->json);
    for (int row = 0; row < shown; row++) {
        adjustments_row(question->meter, rows, row, &one);
        adjustment_put(&call->json, &one);
    }
    json_array_end(&call->json);
    page_end(&question->page, count, last, &call->json);
    json_object_end(&call->json);
    call_answer(call, 200);
}


static const struct route adjustments_routes[] = {
    {METER_METHOD_GET, "/v1/adjustments", TOKEN_SCOPE_READ, adjustments_get},
    {METER_METHOD_POST, "/v1/adjustments", TOKEN_SCOPE_WRITE, adjustments_post},
};

const struct resource adjustments_resource = {
    RESOURCE_ROUTES(adjustments_routes),
};
