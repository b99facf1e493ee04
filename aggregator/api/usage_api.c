/*
 * usage_api.c - GET /v1/usage: what billing meters say.
 *
 *   arguments -> usage_query -> statement -> usage_answer -> JSON or CSV
 *
 * One customer, one period: one object, with zeros where nothing came. Else
 * a list of what there is, by period, customer and group, in pages. One
 * statement reads figures and their adjustments, so they agree.
 */

#include "api/call.h"
#include "api/handlers.h"
#include "api/table.h"
#include "api/usage_answer.h"

#include "project/period.h"

#define ERROR_MIXED                                     \
    "a value exists both as text and as another type; " \
    "put it in quotes to mean the text"

/* The call's state. */
struct usage_question {
    struct usage_query query;
    enum accept_form form;
};

static void usage_rows_cb(void *asker, const struct pg_answer *answer);
static void usage_closed_cb(void *asker, const struct pg_answer *answer);


/* ---- asking ---------------------------------------------------------- */

/* Probed one by one for a customer; a list of all goes along the key. */
static void
param_periods(struct pg_params *params, const struct usage_query *query)
{
    size_t count = 0;

    for (int64_t at_us = query->from_us;
         query->has_customer && at_us < query->to_us;
         at_us = period_end(query->meter->period, at_us)) {
        count++;
    }
    pg_param_array_begin(params, PG_TIMESTAMPTZ, count);
    for (int64_t at_us = query->from_us;
         query->has_customer && at_us < query->to_us;
         at_us = period_end(query->meter->period, at_us)) {
        pg_put_time(&params->bytes, at_us);
    }
    pg_param_array_end(params);
}

static void
param_keys(struct pg_params *params, const struct usage_query *query)
{
    if (!query->has_group) {
        pg_param_null(params);
        return;
    }
    pg_param_array_begin(params, PG_BYTEA, query->keys.count);
    for (size_t i = 0; i < query->keys.count; i++) {
        pg_put_bytes(&params->bytes,
                     (struct meter_str){(const char *)query->keys.items[i],
                                        METER_DIGEST_SIZE});
    }
    pg_param_array_end(params);
}

/* A second row for one figure would be an ambiguity: enough to know. */
static int64_t
row_limit(const struct usage_query *query)
{
    return usage_query_is_single(query) ? 2 : page_row_limit(&query->page);
}

static void
usage_ask(struct api_call *call, const struct usage_query *query)
{
    bool shows_groups = usage_query_shows_groups(query);
    struct pg_params params;

    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, query->meter->metric);
    if (query->has_customer) {
        pg_param_text(&params, query->customer);
    } else {
        pg_param_null(&params);
    }
    param_periods(&params, query);
    pg_param_time(&params, query->has_after ? query->after.period_us
                                            : query->from_us - 1);
    pg_param_text(&params,
                  query->has_after ? query->after.customer : METER_STR(""));
    if (shows_groups) {
        pg_param_bytes(
            &params,
            query->has_after
                ? (struct meter_str){(const char *)query->after.group_key,
                                     METER_DIGEST_SIZE}
                : METER_STR(""));
    }
    pg_param_time(&params, query->to_us);
    pg_param_int8(&params, row_limit(query));
    pg_param_int8(&params, usage_query_adjustments_max(query) + 1);
    if (shows_groups) {
        param_keys(&params, query);
    }
    call_read(call,
              shows_groups ? STATEMENT_USAGE_GROUPS : STATEMENT_USAGE_LIST,
              &params, usage_rows_cb);
    pg_params_fini(&params);
}

void
usage_api_get(struct api_call *call)
{
    struct usage_question *question;
    struct url_arguments *arguments;
    enum accept_form form;
    const char *error = NULL;
    unsigned status;

    if (!table_form(call, &form)) {
        return;
    }
    question = arena_alloc(&call->arena, sizeof(*question));
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
    status =
        usage_query_read(call->config->catalog, call_tenant(call), arguments,
                         &call->arena, &question->query, &error);
    if (status != 0) {
        call_answer_error(call, status, 0, error);
        return;
    }
    question->form = form;
    call->state = question;
    usage_ask(call, &question->query);
}


/* ---- answering ------------------------------------------------------- */

/* False: the call has its answer. */
static bool
table_put(struct api_call *call, const struct usage_query *query,
          const struct usage_figure *figures, int count)
{
    struct csv_writer csv;
    struct arena scratch;
    bool fits = true;

    csv_writer_init(&csv, &call->out);
    usage_csv_head(&csv, query);
    arena_init(&scratch, 4096, 1u << 20);
    for (int i = 0; i < count && fits; i++) {
        fits = usage_csv(&csv, query, &figures[i], &scratch);
        arena_reset(&scratch);
    }
    arena_fini(&scratch);
    if (!fits) {
        call_answer_error(call, 422, 0, CALL_ERROR_RANGE);
    }
    return fits;
}

static void
single_answer(struct api_call *call, const struct usage_figure *figure,
              const void *result)
{
    const struct usage_question *question = call->state;

    if (question->form == ACCEPT_CSV) {
        if (table_put(call, &question->query, figure, 1)) {
            table_answer(call, NULL);
        }
        return;
    }
    usage_put(&call->json, &question->query, figure, result);
    call_answer(call, 200);
}

/* Nothing came: a period that is closed says so all the same. */
static void
single_ask_closed(struct api_call *call, const struct usage_query *query)
{
    struct pg_params params;

    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, query->meter->metric);
    pg_param_time(&params, query->from_us);
    call_read(call, STATEMENT_CLOSE_READ, &params, usage_closed_cb);
    pg_params_fini(&params);
}

static void
usage_closed_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct usage_question *question = call->state;
    const struct usage_query *query = &question->query;
    struct usage_figure figure;

    usage_figure_zero(query->meter, &figure);
    figure.place.period_us = query->from_us;
    figure.place.customer = query->customer;
    figure.is_closed = pg_row_count(answer->result) > 0;
    if (query->has_group &&
        !dimension_query_json(&query->dimensions, (struct meter_str){NULL, 0},
                              &call->arena, &figure.groups)) {
        call_answer_unavailable(call);
        return;
    }
    single_answer(call, &figure, NULL);
}

static void
list_answer(struct api_call *call, const struct usage_figure *figures,
            int count, const void *result)
{
    const struct usage_question *question = call->state;
    const struct usage_query *query = &question->query;
    int shown = page_row_count(&query->page, count);
    char key[PAGE_KEY_SIZE_MAX];
    char cursor[PAGE_CURSOR_SIZE_MAX + 1];
    struct meter_str last = {key, 0};
    bool has_more;

    if (shown > 0) {
        last.size = usage_place_write(query, &figures[shown - 1].place, key);
    }
    has_more = page_cursor(&query->page, count, last, cursor);
    if (question->form == ACCEPT_CSV) {
        if (table_put(call, query, figures, shown)) {
            table_answer(call, has_more ? cursor : NULL);
        }
        return;
    }
    json_object_begin(&call->json);
    json_key(&call->json, "usage");
    json_array_begin(&call->json);
    for (int i = 0; i < shown; i++) {
        usage_put(&call->json, query, &figures[i], result);
    }
    json_array_end(&call->json);
    if (has_more) {
        json_key(&call->json, "cursor");
        json_text(&call->json, cursor);
    }
    json_object_end(&call->json);
    call_answer(call, 200);
}

static void
usage_rows_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct usage_question *question = call->state;
    const struct usage_query *query = &question->query;
    struct usage_figure *figures;
    int count;

    switch (usage_rows_read(query->meter, answer->result, &call->arena,
                            &figures, &count)) {
    case USAGE_ROWS_OK: break;
    case USAGE_ROWS_RANGE:
        call_answer_error(call, 422, 0, CALL_ERROR_RANGE);
        return;
    case USAGE_ROWS_MEMORY: call_answer_unavailable(call); return;
    }
    if (!usage_query_is_single(query)) {
        list_answer(call, figures, count, answer->result);
    } else if (count == 0) {
        single_ask_closed(call, query);
    } else if (count == 1) {
        single_answer(call, &figures[0], answer->result);
    } else {
        call_answer_error(call, 400, 0, ERROR_MIXED);
    }
}
