/*
 * adjustments_list.c - GET /v1/adjustments: corrections of a metric.
 *
 *   arguments -> question -> adjustment_list -> JSON or CSV
 *
 * Those of events that came too late and manual ones, by period, customer
 * and the time they were booked, in pages.
 */

#include "api/adjustment.h"
#include "api/call.h"
#include "api/handlers.h"
#include "api/table.h"
#include "api/usage_query.h"
#include "meter_event.h"
#include "meter_time.h"
#include "project/period.h"

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

static void list_cb(void *asker, const struct pg_answer *answer);

/* Key of a cursor: period, recorded_at, is_manual, customer, id. */
static size_t
place_write(const struct adjustment *one, char *out)
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
time_is_sane(int64_t ts_us)
{
    return ts_us >= METER_TIME_MIN && ts_us <= METER_TIME_MAX;
}

static bool
place_read(struct meter_str key, struct adjustment *out)
{
    struct meter_reader reader;

    meter_reader_init(&reader, key.data, key.size);
    out->period_us = (int64_t)meter_get_u64(&reader);
    out->recorded_us = (int64_t)meter_get_u64(&reader);
    out->is_manual = meter_get_u8(&reader) != 0;
    out->customer = meter_get_bytes(&reader, meter_get_u8(&reader));
    out->id = meter_get_bytes(&reader, meter_reader_left(&reader));
    return !reader.failed && time_is_sane(out->period_us) &&
           time_is_sane(out->recorded_us) && meter_utf8_valid(out->customer) &&
           meter_utf8_valid(out->id);
}

static const char *
list_check_names(const struct url_arguments *arguments, struct arena *arena)
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
list_read_page(struct api_call *call, const struct url_arguments *arguments,
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
    if (page->after.data != NULL && (!place_read(page->after, &out->after) ||
                                     out->after.period_us < out->from_us ||
                                     out->after.period_us >= out->to_us)) {
        return PAGE_ERROR_CURSOR;
    }
    return NULL;
}

/* 0, or the status of the answer with *error. */
static unsigned
list_read(struct api_call *call, const struct url_arguments *arguments,
          struct list_question *out, const char **error)
{
    const struct url_argument *period = dimension_argument(arguments, "period");
    const struct url_argument *customer =
        dimension_argument(arguments, "customer");
    unsigned status = 400;

    *error = list_check_names(arguments, &call->arena);
    if (*error != NULL) {
        return 400;
    }
    out->meter =
        usage_query_meter(call->config->catalog, arguments, &status, error);
    if (out->meter == NULL) {
        return status;
    }
    out->has_customer = customer != NULL;
    out->customer = customer != NULL ? customer->value : METER_STR("");
    out->from_us = METER_TIME_MIN;
    out->to_us = METER_TIME_MAX;
    if (period != NULL) {
        *error = usage_period_read(out->meter, "period", period->value,
                                   &call->arena, &out->from_us);
    }
    if (period != NULL && *error == NULL) {
        out->to_us = period_end(out->meter->period, out->from_us);
    }
    if (*error == NULL) {
        *error = list_read_page(call, arguments, out);
    }
    return *error == NULL ? 0 : 400;
}

static void
list_ask(struct api_call *call, const struct list_question *question)
{
    const struct adjustment *after = &question->after;
    struct pg_params params;

    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, question->meter->metric);
    pg_param_time(&params, question->to_us);
    if (question->has_customer) {
        pg_param_text(&params, question->customer);
    } else {
        pg_param_null(&params);
    }
    pg_param_time(&params, after->period_us);
    pg_param_text(&params, after->customer);
    pg_param_time(&params, after->recorded_us);
    pg_param_text(&params, after->id);
    pg_param_int4(&params, after->is_manual);
    pg_param_int8(&params, page_row_limit(&question->page));
    call_read(call, STATEMENT_ADJUSTMENT_LIST, &params, list_cb);
    pg_params_fini(&params);
}

void
adjustments_api_get(struct api_call *call)
{
    struct list_question *question;
    struct url_arguments *arguments;
    enum accept_form form;
    const char *error = NULL;
    unsigned status;

    if (!table_form(call, &form)) {
        return;
    }
    question = arena_zalloc(&call->arena, sizeof(*question));
    arguments = arena_alloc(&call->arena, sizeof(*arguments));
    if (!call->api->healthy || question == NULL || arguments == NULL) {
        call_answer_unavailable(call);
        return;
    }
    if (!url_arguments_read(call->request->args, &call->arena, arguments,
                            &error)) {
        call_answer_error(call, 400, 0, error);
        return;
    }
    question->form = form;
    status = list_read(call, arguments, question, &error);
    if (status != 0) {
        call_answer_error(call, status, 0, error);
        return;
    }
    call->state = question;
    list_ask(call, question);
}

static void
list_row(const struct billing_meter *meter, const void *rows, int row,
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
list_put_table(struct api_call *call, const struct billing_meter *meter,
               const void *rows, int shown)
{
    struct csv_writer csv;
    struct adjustment one;

    csv_writer_init(&csv, &call->out);
    adjustment_csv_head(&csv);
    for (int row = 0; row < shown; row++) {
        list_row(meter, rows, row, &one);
        adjustment_csv(&csv, &one);
    }
}

static void
list_cb(void *asker, const struct pg_answer *answer)
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
        list_row(question->meter, rows, shown - 1, &one);
        last.size = place_write(&one, key);
    }
    has_more = page_cursor(&question->page, count, last, cursor);
    if (question->form == ACCEPT_CSV) {
        list_put_table(call, question->meter, rows, shown);
        table_answer(call, has_more ? cursor : NULL);
        return;
    }
    json_object_begin(&call->json);
    json_key(&call->json, "adjustments");
    json_array_begin(&call->json);
    for (int row = 0; row < shown; row++) {
        list_row(question->meter, rows, row, &one);
        adjustment_put(&call->json, &one);
    }
    json_array_end(&call->json);
    if (has_more) {
        json_key(&call->json, "cursor");
        json_text(&call->json, cursor);
    }
    json_object_end(&call->json);
    call_answer(call, 200);
}
