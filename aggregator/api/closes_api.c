/*
 * closes_api.c - GET /v1/usage/closes: who closed which period, and what it
 * was billed with.
 *
 *   arguments -> question -> close_list -> JSON
 *                 [a period: close_list -> close_billed -> JSON]
 *
 * All closes of the tenant or of a metric; or one of them with its figures
 * as they were when it was made, whatever the rules say now. Both in pages.
 */

#include "api/adjustment.h"
#include "api/call.h"
#include "api/handlers.h"
#include "api/page.h"
#include "api/usage_query.h"
#include "meter_event.h"
#include "meter_time.h"
#include "project/period.h"

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

static void list_cb(void *asker, const struct pg_answer *answer);
static void one_cb(void *asker, const struct pg_answer *answer);
static void billed_cb(void *asker, const struct pg_answer *answer);


/* ---- asking ---------------------------------------------------------- */

/* A metric may be gone from the rules: the text says what kind it is. */
static bool
period_read(struct meter_str text, int64_t *out)
{
    return period_parse(BILLING_MONTH, text, out) ||
           period_parse(BILLING_DAY, text, out) ||
           period_parse(BILLING_HOUR, text, out);
}

static const char *
arguments_read(struct api_call *call, const struct url_arguments *arguments,
               struct closes_question *out)
{
    for (size_t i = 0; i < arguments->count; i++) {
        const struct url_argument *one = &arguments->items[i];

        if (meter_str_equal(one->name, METER_STR("metric"))) {
            out->metric = one->value;
        } else if (meter_str_equal(one->name, METER_STR("period"))) {
            out->is_one = true;
            if (!period_read(one->value, &out->period_us)) {
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
question_read(struct api_call *call, struct closes_question *out)
{
    struct url_arguments *arguments =
        arena_alloc(&call->arena, sizeof(*arguments));
    struct page *page = &out->page;
    const char *error = "the query is too long";

    if (arguments == NULL ||
        !url_arguments_read(call->request->args, &call->arena, arguments,
                            &error)) {
        return error;
    }
    error = arguments_read(call, arguments, out);
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
after_read(const struct closes_question *question, size_t head,
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
list_ask(struct api_call *call, const struct closes_question *question)
{
    int64_t after_us = METER_TIME_MIN;
    struct meter_str after = METER_STR("");
    struct pg_params params;

    if (!question->is_one && question->page.after.data != NULL) {
        struct meter_reader reader;

        meter_reader_init(&reader, question->page.after.data,
                          question->page.after.size);
        after_us = (int64_t)meter_get_u64(&reader);
        if (!after_read(question, 8, &after) || after_us < METER_TIME_MIN ||
            after_us > METER_TIME_MAX) {
            call_answer_error(call, 400, 0, PAGE_ERROR_CURSOR);
            return;
        }
    }
    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, question->metric);
    if (question->is_one) {
        pg_param_time(&params, question->period_us);
    } else {
        pg_param_null(&params);
    }
    pg_param_text(&params, after);
    pg_param_time(&params, after_us);
    pg_param_int8(&params, page_row_limit(&question->page));
    call_read(call, STATEMENT_CLOSE_LIST, &params,
              question->is_one ? one_cb : list_cb);
    pg_params_fini(&params);
}

void
closes_api_get(struct api_call *call)
{
    struct closes_question *question =
        arena_zalloc(&call->arena, sizeof(*question));
    const char *error;

    if (!call->api->healthy || question == NULL) {
        call_answer_unavailable(call);
        return;
    }
    error = question_read(call, question);
    if (error != NULL) {
        call_answer_error(call, 400, 0, error);
        return;
    }
    call->state = question;
    list_ask(call, question);
}


/* ---- answering ------------------------------------------------------- */

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
put_period(struct api_call *call, const void *rows, int row)
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
put_reopening(struct json_writer *json, const void *rows, int row)
{
    json_object_begin(json);
    json_key(json, "reopened_at");
    json_time(json, pg_get_time(rows, row, CLOSE_REOPENED_AT));
    json_key(json, "reopened_by");
    json_string(json, pg_get_bytes(rows, row, CLOSE_REOPENED_BY));
    json_key(json, "reason");
    json_string(json, pg_get_bytes(rows, row, CLOSE_REASON));
    json_key(json, "figures");
    json_int(json, pg_get_int8(rows, row, CLOSE_CHANGED));
    json_object_end(json);
}

/* The members of the close at a row; behind them its object is still open. */
static void
put_close(struct api_call *call, const void *rows, int row)
{
    struct json_writer *json = &call->json;
    bool has_figures = !pg_is_null(rows, row, CLOSE_FIGURES);

    json_object_begin(json);
    json_key(json, "metric");
    json_string(json, pg_get_bytes(rows, row, CLOSE_METRIC));
    put_period(call, rows, row);
    json_key(json, "closed_at");
    json_time(json, pg_get_time(rows, row, CLOSE_CLOSED_AT));
    json_key(json, "closed_by");
    json_string(json, pg_get_bytes(rows, row, CLOSE_ACTOR));
    json_key(json, "snapshot");
    json_bool(json, has_figures);
    json_key(json, "figure_count");
    if (has_figures) {
        json_int(json, pg_get_int8(rows, row, CLOSE_FIGURES));
    } else {
        json_null(json);
    }
    json_key(json, "reopenings");
    json_array_begin(json);
    for (int i = row; i < pg_row_count(rows) && is_same_close(rows, row, i) &&
                      !pg_is_null(rows, i, CLOSE_REOPENED_AT);
         i++) {
        put_reopening(json, rows, i);
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
list_cb(void *asker, const struct pg_answer *answer)
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
            put_close(call, rows, row);
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
one_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct closes_question *question = call->state;
    struct meter_str group_key = {question->page.after.data, METER_DIGEST_SIZE};
    struct meter_str customer;
    struct pg_params params;

    if (pg_row_count(answer->result) == 0) {
        call_answer_error(call, 404, 0, "no such close");
        return;
    }
    if (!after_read(question, METER_DIGEST_SIZE, &customer)) {
        call_answer_error(call, 400, 0, PAGE_ERROR_CURSOR);
        return;
    }
    put_close(call, answer->result, 0);
    json_key(&call->json, "figures");
    if (pg_is_null(answer->result, 0, CLOSE_FIGURES)) {
        json_null(&call->json);
        json_object_end(&call->json);
        call_answer(call, 200);
        return;
    }
    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, question->metric);
    pg_param_time(&params, question->period_us);
    pg_param_text(&params, customer);
    pg_param_bytes(&params, group_key.data == NULL ? METER_STR("") : group_key);
    pg_param_int8(&params, page_row_limit(&question->page));
    call_read(call, STATEMENT_CLOSE_BILLED, &params, billed_cb);
    pg_params_fini(&params);
}

static void
put_decimal(struct json_writer *json, const char *name, const void *rows,
            int row, int column)
{
    bool has_value = !pg_is_null(rows, row, column);
    struct meter_decimal value = {0};
    bool fits = !has_value || pg_get_numeric(rows, row, column, &value);

    CHECK(fits);
    adjustment_put_decimal(json, name, has_value, value);
}

static void
put_figure(struct json_writer *json, const void *rows, int row)
{
    struct meter_str groups = pg_get_bytes(rows, row, BILLED_GROUPS);

    json_object_begin(json);
    adjustment_put_customer(json, pg_get_bytes(rows, row, BILLED_CUSTOMER));
    if (!meter_str_equal(groups, METER_STR("{}"))) { /* it has dimensions */
        json_key(json, "group");
        json_raw(json, groups);
    }
    put_decimal(json, "value", rows, row, BILLED_VALUE);
    put_decimal(json, "total", rows, row, BILLED_TOTAL);
    json_object_end(json);
}

/* Goes on in the object that one_cb has begun. */
static void
billed_cb(void *asker, const struct pg_answer *answer)
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
        put_figure(&call->json, rows, row);
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
