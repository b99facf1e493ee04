/*
 * closes.c - a billing period is over for good: closing it, and what was
 * billed.
 *
 *   POST /v1/usage/close
 *   close_begin | COMMIT | close_pass | COMMIT | close_freeze | COMMIT | answer
 *
 * The first transaction says that the period is closed; from then on ingest
 * books its events as adjustments. The second one waits for every ingest
 * transaction that may not have seen it. Only then are the figures final;
 * the third one keeps them as they are billed, while ingest goes on, and
 * only then is the client told. Whatever happens in between: the same
 * request again completes it.
 *
 *   GET /v1/usage/closes
 *   arguments -> question -> close_list -> JSON
 *                 [a period: close_list -> close_billed -> JSON]
 *
 * All closes of the tenant or of a metric; or one of them with its figures
 * as they were when it was made, whatever the rules say now. Both in pages.
 */

#include "api/billing.h"
#include "api/call.h"
#include "api/page.h"
#include "base/check.h"
#include "meter_event.h"
#include "meter_time.h"
#include "project/period.h"

enum close_member { MEMBER_METRIC, MEMBER_PERIOD, MEMBERS };

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
close_question_read(struct api_call *call, const struct json_value **values,
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
    *error = billing_period_read(out->meter, "period", period, &call->arena,
                                 &out->period_us);
    return *error == NULL ? 0 : 400;
}

static void
close_post(struct api_call *call)
{
    const struct json_value *values[MEMBERS];
    struct close_question *question;
    const char *error = NULL;
    struct pg_params *params = call_params(call);
    unsigned status;

    if (!body_read(call, member_names, MEMBERS, values)) {
        return;
    }
    question = call_state(call, sizeof(*question));
    if (question == NULL) {
        return;
    }
    status = close_question_read(call, values, question, &error);
    if (status != 0) {
        call_answer_error(call, status, 0, error);
        return;
    }
    pg_param_text(params, call_tenant(call));
    pg_param_text(params, question->meter->metric);
    pg_param_time(params, question->period_us);
    pg_param_time(params,
                  period_end(question->meter->period, question->period_us));
    pg_param_text(params, call_token_id(call));
    call_write(call, STATEMENT_CLOSE_BEGIN, close_begun_cb);
}

/* Row: the database's clock. */
static void
close_begun_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct close_question *question = call->state;
    int64_t end_us = period_end(question->meter->period, question->period_us);
    char end[METER_TIME_TEXT_SIZE + 1];

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
    call_write(call, STATEMENT_CLOSE_PASS, close_passed_cb);
}

static void
close_passed_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct close_question *question = call->state;
    const struct billing_meter *meter = question->meter;
    const char *aggregation = billing_aggregation_name(meter->aggregation);
    char period[PERIOD_TEXT_SIZE + 1];
    struct pg_params *params = call_params(call);
    size_t size;

    (void)answer;
    CRASH_POINT("after_close_pass");
    size = period_format(meter->period, question->period_us, period);
    pg_param_text(params, call_tenant(call));
    pg_param_text(params, meter->metric);
    pg_param_time(params, question->period_us);
    pg_param_text(params, (struct meter_str){period, size});
    pg_param_text(params, (struct meter_str){aggregation, strlen(aggregation)});
    call_write(call, STATEMENT_CLOSE_FREEZE, close_frozen_cb);
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
    member_string(json, "metric", question->meter->metric);
    member_text(json, "period", period);
    member_bool(json, "closed", true);
    member_time(json, "closed_at", pg_get_time(answer->result, 0, 0));
    json_object_end(json);
    call_answer(call, 200);
}


/* Columns of close_list; those of a reopening are NULL where there is none. */
enum close_column {
    CLOSE_METRIC,
    CLOSE_PERIOD_START,
    CLOSE_PERIOD,
    CLOSE_CLOSED_AT,
    CLOSE_ACTOR,
    CLOSE_FIGURES,
    CLOSE_REOPENED_AT,
    CLOSE_REOPENED_BY,
    CLOSE_REASON,
    CLOSE_CHANGED
};

/* Columns of close_billed. */
enum billed_column {
    BILLED_CUSTOMER,
    BILLED_GROUP_KEY,
    BILLED_GROUPS,
    BILLED_VALUE,
    BILLED_TOTAL
};

/* The call's state. */
struct closes_question {
    struct meter_str metric; /* data NULL: all */
    bool is_one;             /* the close of period_us, with its figures */
    int64_t period_us;
    struct page page;
};

static void closes_list_cb(void *asker, const struct pg_answer *answer);
static void closes_one_cb(void *asker, const struct pg_answer *answer);
static void closes_billed_cb(void *asker, const struct pg_answer *answer);


/* ---- the list: asking --------------------------------------------------- */

/* A metric may be gone from the rules: the text says what kind it is. */
static bool
closes_period_read(struct meter_str text, int64_t *out)
{
    return period_parse(BILLING_MONTH, text, out) ||
           period_parse(BILLING_DAY, text, out) ||
           period_parse(BILLING_HOUR, text, out);
}

static const char *
closes_arguments_read(struct api_call *call,
                      const struct url_arguments *arguments,
                      struct closes_question *out)
{
    for (size_t i = 0; i < arguments->count; i++) {
        const struct url_argument *one = &arguments->items[i];

        if (meter_str_equal(one->name, METER_STR("metric"))) {
            out->metric = one->value;
        } else if (meter_str_equal(one->name, METER_STR("period"))) {
            out->is_one = true;
            if (!closes_period_read(one->value, &out->period_us)) {
                return "\"period\" must be like 2026-09, 2026-09-01 or "
                       "2026-09-01T12";
            }
        } else if (!page_is_argument(one->name)) {
            return reason_format(&call->arena, "unknown argument %s",
                                 reason_quote(one->name).text);
        }
    }
    return out->is_one && out->metric.data == NULL
               ? "\"period\" needs a \"metric\""
               : NULL;
}

static const char *
closes_question_read(struct api_call *call,
                     const struct url_arguments *arguments,
                     struct closes_question *out)
{
    struct page *page = &out->page;
    const char *error = closes_arguments_read(call, arguments, out);

    if (error != NULL) {
        return error;
    }
    page_init(page);
    page_ask(page, METER_STR("closes"));
    page_ask(page, call_tenant(call));
    page_ask(page, out->metric.data == NULL ? METER_STR("") : out->metric);
    page_ask(page, (struct meter_str){(const char *)&out->period_us,
                                      sizeof(out->period_us)});
    return page_read(page, arguments, &call->arena, &error) ? NULL : error;
}

/* Both kinds of a cursor's key: 8 or 32 bytes, then a name. */
static bool
closes_after_read(const struct closes_question *question, size_t head,
                  struct meter_str *name)
{
    struct meter_str key = question->page.after;

    *name = METER_STR("");
    if (key.data == NULL) {
        return true;
    }
    if (key.size < head) {
        return false;
    }
    *name = (struct meter_str){key.data + head, key.size - head};
    return meter_utf8_valid(*name);
}

static void
closes_list_ask(struct api_call *call, const struct closes_question *question)
{
    int64_t after_us = METER_TIME_MIN;
    struct meter_str after = METER_STR("");
    struct pg_params *params = call_params(call);

    if (!question->is_one && question->page.after.data != NULL) {
        struct meter_reader reader;

        meter_reader_init(&reader, question->page.after.data,
                          question->page.after.size);
        after_us = (int64_t)meter_get_u64(&reader);
        if (!closes_after_read(question, 8, &after) ||
            after_us < METER_TIME_MIN || after_us > METER_TIME_MAX) {
            call_answer_error(call, 400, 0, PAGE_ERROR_CURSOR);
            return;
        }
    }
    pg_param_text(params, call_tenant(call));
    pg_param_text(params, question->metric);
    if (question->is_one) {
        pg_param_time(params, question->period_us);
    } else {
        pg_param_null(params);
    }
    pg_param_text(params, after);
    pg_param_time(params, after_us);
    pg_param_int8(params, page_row_limit(&question->page));
    call_read(call, STATEMENT_CLOSE_LIST,
              question->is_one ? closes_one_cb : closes_list_cb);
}

static void
closes_get(struct api_call *call)
{
    struct closes_question *question = call_state(call, sizeof(*question));
    const struct url_arguments *arguments;
    const char *error;

    if (question == NULL || (arguments = call_arguments(call)) == NULL) {
        return;
    }
    error = closes_question_read(call, arguments, question);
    if (error != NULL) {
        call_answer_error(call, 400, 0, error);
        return;
    }
    closes_list_ask(call, question);
}


/* ---- the list: answering ------------------------------------------------ */

static bool
is_same_close(const void *rows, int left, int right)
{
    return pg_get_time(rows, left, CLOSE_PERIOD_START) ==
               pg_get_time(rows, right, CLOSE_PERIOD_START) &&
           meter_str_equal(pg_get_bytes(rows, left, CLOSE_METRIC),
                           pg_get_bytes(rows, right, CLOSE_METRIC));
}

/* As it was called then; where that is not known, as it is called now. */
static void
close_put_period(struct api_call *call, const void *rows, int row)
{
    const struct billing_meter *meter = catalog_meter(
        call->config->catalog, pg_get_bytes(rows, row, CLOSE_METRIC));
    int64_t start_us = pg_get_time(rows, row, CLOSE_PERIOD_START);
    char text[PERIOD_TEXT_SIZE + 1];

    json_key(&call->json, "period");
    if (!pg_is_null(rows, row, CLOSE_PERIOD)) {
        json_string(&call->json, pg_get_bytes(rows, row, CLOSE_PERIOD));
    } else if (meter != NULL) {
        period_format(meter->period, start_us, text);
        json_text(&call->json, text);
    } else {
        json_time(&call->json, start_us);
    }
}

static void
close_put_reopening(struct json_writer *json, const void *rows, int row)
{
    static const struct member members[] = {
        {"reopened_at", MEMBER_TIME, CLOSE_REOPENED_AT},
        {"reopened_by", MEMBER_STRING, CLOSE_REOPENED_BY},
        {"reason", MEMBER_STRING, CLOSE_REASON},
        {"figures", MEMBER_INT, CLOSE_CHANGED},
    };

    json_object_begin(json);
    MEMBERS_OF_ROW(json, members, rows, row);
    json_object_end(json);
}

/* The members of the close at a row; after them its object is still open. */
static void
close_put(struct api_call *call, const void *rows, int row)
{
    static const struct member members[] = {
        {"closed_at", MEMBER_TIME, CLOSE_CLOSED_AT},
        {"closed_by", MEMBER_STRING, CLOSE_ACTOR},
    };
    static const struct member figures[] = {
        {"figure_count", MEMBER_INT, CLOSE_FIGURES},
    };
    struct json_writer *json = &call->json;

    json_object_begin(json);
    member_string(json, "metric", pg_get_bytes(rows, row, CLOSE_METRIC));
    close_put_period(call, rows, row);
    MEMBERS_OF_ROW(json, members, rows, row);
    member_bool(json, "snapshot", !pg_is_null(rows, row, CLOSE_FIGURES));
    MEMBERS_OF_ROW(json, figures, rows, row);
    json_key(json, "reopenings");
    json_array_begin(json);
    for (int i = row; i < pg_row_count(rows) && is_same_close(rows, row, i) &&
                      !pg_is_null(rows, i, CLOSE_REOPENED_AT);
         i++) {
        close_put_reopening(json, rows, i);
    }
    json_array_end(json);
}

static size_t
close_key(const void *rows, int row, char *out)
{
    struct meter_str metric = pg_get_bytes(rows, row, CLOSE_METRIC);
    struct meter_writer writer;

    meter_writer_init(&writer, out, PAGE_KEY_SIZE_MAX);
    meter_put_u64(&writer,
                  (uint64_t)pg_get_time(rows, row, CLOSE_PERIOD_START));
    meter_put_bytes(&writer, metric.data, metric.size);
    CHECK(!writer.failed);
    return writer.at;
}

static void
closes_list_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct closes_question *question = call->state;
    const void *rows = answer->result;
    char key[PAGE_KEY_SIZE_MAX];
    struct meter_str last = {key, 0};
    int count = 0;

    json_object_begin(&call->json);
    json_key(&call->json, "closes");
    json_array_begin(&call->json);
    for (int row = 0; row < pg_row_count(rows); row++) {
        if (row > 0 && is_same_close(rows, row - 1, row)) {
            continue; /* one more of its reopenings */
        }
        if (count++ < question->page.limit) {
            close_put(call, rows, row);
            json_object_end(&call->json);
            last.size = close_key(rows, row, key);
        }
    }
    json_array_end(&call->json);
    page_end(&question->page, count, last, &call->json);
    json_object_end(&call->json);
    call_answer(call, 200);
}

static void
closes_one_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct closes_question *question = call->state;
    struct meter_str group_key = {question->page.after.data, METER_DIGEST_SIZE};
    struct meter_str customer;
    struct pg_params *params = call_params(call);

    if (pg_row_count(answer->result) == 0) {
        call_answer_error(call, 404, 0, "no such close");
        return;
    }
    if (!closes_after_read(question, METER_DIGEST_SIZE, &customer)) {
        call_answer_error(call, 400, 0, PAGE_ERROR_CURSOR);
        return;
    }
    close_put(call, answer->result, 0);
    json_key(&call->json, "figures");
    if (pg_is_null(answer->result, 0, CLOSE_FIGURES)) {
        json_null(&call->json);
        json_object_end(&call->json);
        call_answer(call, 200);
        return;
    }
    pg_param_text(params, call_tenant(call));
    pg_param_text(params, question->metric);
    pg_param_time(params, question->period_us);
    pg_param_text(params, customer);
    pg_param_bytes(params, group_key.data == NULL ? METER_STR("") : group_key);
    pg_param_int8(params, page_row_limit(&question->page));
    call_read(call, STATEMENT_CLOSE_BILLED, closes_billed_cb);
}

static void
close_put_figure(struct json_writer *json, const void *rows, int row)
{
    static const struct member figures[] = {
        {"value", MEMBER_NUMERIC, BILLED_VALUE},
        {"total", MEMBER_NUMERIC, BILLED_TOTAL},
    };
    struct meter_str groups = pg_get_bytes(rows, row, BILLED_GROUPS);

    json_object_begin(json);
    billing_put_customer(json, pg_get_bytes(rows, row, BILLED_CUSTOMER));
    if (!meter_str_equal(groups, METER_STR("{}"))) { /* it has dimensions */
        member_raw(json, "group", groups);
    }
    MEMBERS_OF_ROW(json, figures, rows, row);
    json_object_end(json);
}

/* Goes on in the object that closes_one_cb has begun. */
static void
closes_billed_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct closes_question *question = call->state;
    const void *rows = answer->result;
    int count = pg_row_count(rows);
    int shown = page_row_count(&question->page, count);
    struct meter_writer writer;
    char key[PAGE_KEY_SIZE_MAX];

    meter_writer_init(&writer, key, sizeof(key));
    json_array_begin(&call->json);
    for (int row = 0; row < shown; row++) {
        close_put_figure(&call->json, rows, row);
    }
    json_array_end(&call->json);
    if (shown > 0) {
        struct meter_str customer =
            pg_get_bytes(rows, shown - 1, BILLED_CUSTOMER);

        meter_put_bytes(&writer,
                        pg_get_bytes(rows, shown - 1, BILLED_GROUP_KEY).data,
                        METER_DIGEST_SIZE);
        meter_put_bytes(&writer, customer.data, customer.size);
        CHECK(!writer.failed);
    }
    page_end(&question->page, count, (struct meter_str){key, writer.at},
             &call->json);
    json_object_end(&call->json);
    call_answer(call, 200);
}


static const struct route closes_routes[] = {
    {METER_METHOD_POST, "/v1/usage/close", TOKEN_SCOPE_WRITE, close_post},
    {METER_METHOD_GET, "/v1/usage/closes", TOKEN_SCOPE_READ, closes_get},
};

const struct resource closes_resource = {
    RESOURCE_ROUTES(closes_routes),
};
