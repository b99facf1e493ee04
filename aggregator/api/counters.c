/*
 * counters.c - persistent counters: which there are, and their values.
 *
 *   GET /v1/counters                     the declared counters
 *   GET /v1/counters/{name}?all=...      one key
 *   GET /v1/counters/{name}?some=...     a page of keys
 *   GET /v1/counters/{name}?sum=true&... the sum of keys
 *
 * Dimensions are query arguments; dimension_query.h tells how their values
 * are read. dimension.NAME is always the dimension NAME; the name alone is
 * so too, unless it is limit, cursor or sum. One key that no event ever touched
 * is 404: a zero would be a claim. A page goes by the bytes of the key, so keys
 * that stay are seen once, whatever comes in between.
 */

#include "api/call.h"
#include "api/dimension_query.h"
#include "api/page.h"
#include "meter_bytes.h"
#include "query/query.h"
#include "query/question.h"

/* What a scalar grows to as JSON, at most. */
#define JSON_SIZE(size) (METER_JSON_ESCAPED_SIZE(size) + 2)

/* What is asked of one counter; the call's state. */
struct counter_question {
    const struct counter *counter;
    struct url_arguments arguments;
    struct dimension_query query;
    bool is_sum;
    struct page page;
    struct meter_str picked; /* of the pages before; data NULL: none yet */
};

static const char *counter_question_ask(struct api_call *call);


/* ---- dimensions ------------------------------------------------------ */

/* The place of dimension.NAME or NAME; dimension_count: there is none. */
static size_t
counter_dimension(const struct counter *counter, struct meter_str name)
{
    static const struct meter_str prefix = {"dimension.", 10};
    size_t d = counter->dimension_count;

    if (name.size > prefix.size &&
        memcmp(name.data, prefix.data, prefix.size) == 0) {
        d = dimension_place(counter->dimensions, counter->dimension_count,
                            (struct meter_str){name.data + prefix.size,
                                               name.size - prefix.size});
    }
    return d < counter->dimension_count
               ? d
               : dimension_place(counter->dimensions, counter->dimension_count,
                                 name);
}

/*
 * Every argument must have its dimension, but for limit, cursor and sum.
 * False: *error is a sentence for a 400, in the arena or a literal.
 */
static bool
counter_dimensions_read(const struct counter *counter,
                        const struct url_arguments *arguments,
                        struct arena *arena, struct dimension_query *out,
                        const char **error)
{
    CHECK(counter->dimension_count <= METER_DIMENSION_COUNT_MAX);
    out->count = 0;
    out->is_key = counter->dimension_count == 0;
    *error = NULL;
    for (size_t i = 0; i < arguments->count && *error == NULL; i++) {
        const struct url_argument *argument = &arguments->items[i];
        size_t d;

        if (page_is_argument(argument->name) ||
            meter_str_equal(argument->name, METER_STR("sum"))) {
            continue;
        }
        d = counter_dimension(counter, argument->name);
        *error = d == counter->dimension_count
                     ? reason_format(arena, "the counter has no dimension %s",
                                     reason_quote(argument->name).text)
                     : dimension_query_add(out, counter->dimensions,
                                           counter->dimension_count, d,
                                           argument->value, arena);
    }
    return *error == NULL;
}

/* A reading's value as canonical JSON, in the arena. False: no memory. */
static bool
counter_reading_json(const struct meter_dim *reading, struct arena *arena,
                     struct meter_str *out)
{
    size_t room = JSON_SIZE(reading->value.size) + sizeof("null");
    char *data = arena_alloc(arena, room);
    struct meter_writer writer;

    if (data == NULL) {
        return false;
    }
    meter_writer_init(&writer, data, room);
    switch (reading->kind) {
    case METER_DIM_STRING:
        meter_put_u8(&writer, '"');
        meter_put_json_escaped(&writer, reading->value);
        meter_put_u8(&writer, '"');
        break;
    case METER_DIM_NUMBER:
    case METER_DIM_BOOL:
        meter_put_bytes(&writer, reading->value.data, reading->value.size);
        break;
    case METER_DIM_NULL: meter_put_bytes(&writer, "null", 4); break;
    }
    CHECK(!writer.failed);
    *out = (struct meter_str){data, writer.at};
    return true;
}


/* ---- the question ---------------------------------------------------- */

static const char *
counter_question_sum(struct counter_question *question)
{
    const struct url_argument *sum =
        url_argument_find(&question->arguments, "sum");

    question->is_sum = false;
    if (sum == NULL || meter_str_equal(sum->value, METER_STR("false"))) {
        return NULL;
    }
    question->is_sum = meter_str_equal(sum->value, METER_STR("true"));
    return question->is_sum ? NULL : "\"sum\" must be true or false";
}

/* limit and cursor would be without a meaning. */
static const char *
counter_question_no_page(const struct counter_question *question)
{
    const struct url_arguments *arguments = &question->arguments;

    if (url_argument_find(arguments, "limit") == NULL &&
        url_argument_find(arguments, "cursor") == NULL) {
        return NULL;
    }
    if (question->is_sum) {
        return "a sum has no pages: \"limit\" and \"cursor\" cannot be given";
    }
    return "all dimensions are given: there is one key, and no page of keys";
}

/* The key of a cursor: dimension_key, then what was picked. */
static const char *
counter_question_page(struct api_call *call, struct counter_question *question)
{
    struct page *page = &question->page;
    const char *error;

    page_init(page);
    page_ask(page, METER_STR("counters"));
    page_ask(page, call_tenant(call));
    page_ask(page, question->counter->name);
    for (size_t i = 0; i < question->query.count; i++) {
        const struct dimension_filter *filter = &question->query.filters[i];
        struct meter_str json;

        page_ask(page, filter->name);
        for (size_t r = 0; r < filter->reading_count; r++) {
            if (!counter_reading_json(&filter->readings[r], &call->arena,
                                      &json)) {
                return "the query is too long";
            }
            page_ask(page, json);
        }
    }
    question->picked = (struct meter_str){NULL, 0};
    if (!page_read(page, &question->arguments, &call->arena, &error)) {
        return error;
    }
    if (page->after.data == NULL) {
        return NULL;
    }
    if (page->after.size != METER_DIGEST_SIZE + question->query.count) {
        return PAGE_ERROR_CURSOR;
    }
    question->picked = (struct meter_str){page->after.data + METER_DIGEST_SIZE,
                                          question->query.count};
    page->after.size = METER_DIGEST_SIZE;
    return NULL;
}

static const char *
counter_question_read(struct api_call *call, struct counter_question *question)
{
    const char *error = NULL;

    if (!url_arguments_read(call->request->args, &call->arena,
                            &question->arguments, &error)) {
        return error;
    }
    error = counter_question_sum(question);
    if (error != NULL ||
        !counter_dimensions_read(question->counter, &question->arguments,
                                 &call->arena, &question->query, &error)) {
        return error;
    }
    if (question->is_sum || question->query.is_key) {
        return counter_question_no_page(question);
    }
    return counter_question_page(call, question);
}

static void
counters_get(struct api_call *call)
{
    const struct counter *counter =
        catalog_counter(call->config->catalog, call->match.parameter);
    struct counter_question *question;
    const char *error;

    if (counter == NULL) {
        call_answer_error(call, 404, 0, "no such counter");
        return;
    }
    question = call_state(call, sizeof(*question));
    if (question == NULL) {
        return;
    }
    question->counter = counter;
    error = counter_question_read(call, question);
    if (error == NULL) {
        error = counter_question_ask(call);
    }
    if (error != NULL) {
        call_answer_error(call, 400, 0, error);
    }
}


/* ---- the statements -------------------------------------------------- */

/* A row: dimensions, value and updated_at from this column on. */
static void
counter_put(struct json_writer *json, const struct counter *counter,
            const void *result, int row, int column)
{
    json_object_begin(json);
    member_string(json, "counter", counter->name);
    member_raw(json, "dimensions", pg_get_bytes(result, row, column));
    member_int_string(json, "value", pg_get_int8(result, row, column + 1));
    member_time(json, "updated_at", pg_get_time(result, row, column + 2));
    json_object_end(json);
}

static void
counter_put_sum(struct api_call *call, struct meter_str dimensions,
                struct meter_str sum, int64_t keys)
{
    const struct counter_question *question = call->state;
    struct json_writer *json = &call->json;

    json_object_begin(json);
    member_string(json, "counter", question->counter->name);
    member_raw(json, "dimensions", dimensions);
    member_string(json, "sum", sum);
    member_int_string(json, "keys", keys);
    json_object_end(json);
    call_answer(call, 200);
}

/* One key, or the sum of that one. Columns: dimensions, value, updated_at. */
static void
counters_key_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct counter_question *question = call->state;
    int rows = pg_row_count(answer->result);
    struct meter_str dimensions;
    struct meter_str none = {NULL, 0};
    char sum[24];

    if (rows > 1) {
        call_answer_error(call, 400, 0, question_error_mixed);
        return;
    }
    if (!question->is_sum) {
        if (rows == 0) {
            call_answer_error(call, 404, 0, "no such key");
            return;
        }
        counter_put(&call->json, question->counter, answer->result, 0, 0);
        call_answer(call, 200);
        return;
    }
    if (rows == 1) {
        dimensions = pg_get_bytes(answer->result, 0, 0);
    } else if (!dimension_query_json(&question->query, none, &call->arena,
                                     &dimensions)) {
        call_answer_unavailable(call);
        return;
    }
    snprintf(sum, sizeof(sum), "%lld",
             rows == 0 ? 0 : (long long)pg_get_int8(answer->result, 0, 1));
    counter_put_sum(call, dimensions, (struct meter_str){sum, strlen(sum)},
                    rows);
}

/* Columns of counter_sum: sum, keys, picked, is_mixed. */
static void
counters_sum_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct counter_question *question = call->state;
    const void *result = answer->result;
    struct meter_str dimensions;

    CHECK(pg_row_count(result) == 1);
    if (pg_get_bool(result, 0, 3)) {
        call_answer_error(call, 400, 0, question_error_mixed);
        return;
    }
    if (!dimension_query_json(&question->query, pg_get_bytes(result, 0, 2),
                              &call->arena, &dimensions)) {
        call_answer_unavailable(call);
        return;
    }
    counter_put_sum(call, dimensions, pg_get_bytes(result, 0, 0),
                    pg_get_int8(result, 0, 1));
}

/* True: this page or one before has met another reading of a value. */
static bool
counters_are_mixed(const struct counter_question *question, const void *result,
                   int rows)
{
    struct meter_str picked = question->picked;

    for (int row = 0; row < rows; row++) {
        struct meter_str next = pg_get_bytes(result, row, 4);

        if (picked.data != NULL && !meter_str_equal(picked, next)) {
            return true;
        }
        picked = next;
    }
    return false;
}

/* Columns of counter_list: dimension_key, then as counter_read, picked. */
static void
counters_page_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    const struct counter_question *question = call->state;
    const struct page *page = &question->page;
    const void *result = answer->result;
    struct json_writer *json = &call->json;
    char key[METER_DIGEST_SIZE + METER_DIMENSION_COUNT_MAX];
    int rows = pg_row_count(result);
    int shown = page_row_count(page, rows);

    if (counters_are_mixed(question, result, rows)) {
        call_answer_error(call, 400, 0, question_error_mixed);
        return;
    }
    json_object_begin(json);
    json_key(json, "counters");
    json_array_begin(json);
    for (int row = 0; row < shown; row++) {
        counter_put(json, question->counter, result, row, 1);
    }
    json_array_end(json);
    if (shown > 0) {
        struct meter_str last = pg_get_bytes(result, shown - 1, 0);
        struct meter_str picked = pg_get_bytes(result, shown - 1, 4);

        CHECK(last.size == METER_DIGEST_SIZE &&
              picked.size == question->query.count);
        memcpy(key, last.data, last.size);
        if (picked.size > 0) {
            memcpy(key + last.size, picked.data, picked.size);
        }
        page_end(page, rows, (struct meter_str){key, last.size + picked.size},
                 json);
    }
    json_object_end(json);
    call_answer(call, 200);
}

/* Which of its readings the filter wants; the last one for any more. */
static bool
counter_param_readings(struct api_call *call, struct pg_params *params,
                       size_t reading)
{
    const struct counter_question *question = call->state;

    pg_param_array_begin(params, PG_TEXT, question->query.count);
    for (size_t i = 0; i < question->query.count; i++) {
        const struct dimension_filter *filter = &question->query.filters[i];
        size_t last = filter->reading_count - 1;
        struct meter_str json;

        if (!counter_reading_json(
                &filter->readings[reading < last ? reading : last],
                &call->arena, &json)) {
            return false;
        }
        pg_put_text(&params->bytes, json);
    }
    pg_param_array_end(params);
    return true;
}

/* Names, values, other values; as counter_list and counter_sum want them. */
static bool
counter_param_filters(struct api_call *call, struct pg_params *params)
{
    const struct counter_question *question = call->state;

    pg_param_array_begin(params, PG_TEXT, question->query.count);
    for (size_t i = 0; i < question->query.count; i++) {
        pg_put_text(&params->bytes, question->query.filters[i].name);
    }
    pg_param_array_end(params);
    return counter_param_readings(call, params, 0) &&
           counter_param_readings(call, params, 1);
}

/* NULL, or the sentence of a 400. */
static const char *
counter_question_ask(struct api_call *call)
{
    struct pg_params *params = call_params(call);
    const struct counter_question *question = call->state;
    const struct page *page = &question->page;
    struct dimension_keys keys;
    const char *error;

    pg_param_text(params, call_tenant(call));
    pg_param_text(params, question->counter->name);
    if (question->query.is_key) {
        if (!dimension_query_keys(&question->query, &keys, &error)) {
            return error;
        }
        dimension_keys_param(params, &keys);
        call_read(call, STATEMENT_COUNTER_READ, counters_key_cb);
        return NULL;
    }
    if (!question->is_sum) {
        pg_param_bytes(params,
                       page->after.data == NULL ? METER_STR("") : page->after);
    }
    if (!counter_param_filters(call, params)) {
        return "the query is too long";
    }
    if (question->is_sum) {
        call_read(call, STATEMENT_COUNTER_SUM, counters_sum_cb);
        return NULL;
    }
    pg_param_int8(params, page_row_limit(page));
    call_read(call, STATEMENT_COUNTER_LIST, counters_page_cb);
    return NULL;
}

/* ---- which there are ------------------------------------------------- */

static void
counter_put_declared(struct json_writer *json, const struct counter *counter)
{
    json_object_begin(json);
    member_string(json, "counter", counter->name);
    json_key(json, "dimensions");
    json_array_begin(json);
    for (size_t i = 0; i < counter->dimension_count; i++) {
        json_string(json, counter->dimensions[i].name);
    }
    json_array_end(json);
    member_bool(json, "floor_at_zero", counter->floor_at_zero);
    member_bool(json, "transitions", counter->entity != NULL);
    member_bool(json, "audit", counter->audit);
    json_object_end(json);
}

static void
counters_list(struct api_call *call)
{
    const struct catalog *catalog = call->config->catalog;
    struct json_writer *json = &call->json;

    if (!call_has_no_arguments(call, "list")) {
        return;
    }
    json_object_begin(json);
    json_key(json, "counters");
    json_array_begin(json);
    for (size_t i = 0; i < catalog->counter_count; i++) {
        counter_put_declared(json, &catalog->counters[i]);
    }
    json_array_end(json);
    json_object_end(json);
    call_answer(call, 200);
}


static const struct route counters_routes[] = {
    {METER_METHOD_GET, "/v1/counters", TOKEN_SCOPE_READ, counters_list},
    {METER_METHOD_GET, "/v1/counters/{name}", TOKEN_SCOPE_READ, counters_get},
};

const struct resource counters_resource = {
    RESOURCE_ROUTES(counters_routes),
};
