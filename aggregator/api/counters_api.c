/*
 * counters_api.c - GET /v1/counters/{name}: one persistent counter.
 *
 * All dimensions are given as query arguments; see dimension_query.h for
 * how their values are read. A key that no event ever touched is 404: a
 * zero would be a claim.
 */

#include "api/call.h"
#include "api/dimension_query.h"
#include "api/handlers.h"

static void counters_read_cb(void *asker, const struct pg_answer *answer);

static void
counters_read(struct api_call *call, const struct dimension_query *query)
{
    struct pg_params params;

    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, call->match.parameter);
    pg_param_array_begin(&params, PG_BYTEA, query->count);
    for (size_t i = 0; i < query->count; i++) {
        pg_put_bytes(&params.bytes,
                     (struct meter_str){(const char *)query->keys[i],
                                        METER_DIGEST_SIZE});
    }
    pg_param_array_end(&params);
    call_read(call, STATEMENT_COUNTER_READ, &params, counters_read_cb);
    pg_params_fini(&params);
}

void
counters_api_get(struct api_call *call)
{
    const struct counter *counter =
        catalog_counter(call->config->catalog, call->match.parameter);
    struct dimension_query *query;
    struct url_arguments *arguments;
    const char *error = NULL;

    if (counter == NULL) {
        call_answer_error(call, 404, 0, "no such counter");
        return;
    }
    query = arena_alloc(&call->arena, sizeof(*query));
    arguments = arena_alloc(&call->arena, sizeof(*arguments));
    if (!call->api->healthy || query == NULL || arguments == NULL) {
        call_answer_unavailable(call);
        return;
    }
    if (!url_arguments_read(call->request->args, &call->arena, arguments,
                            &error) ||
        !dimension_query_build(counter, arguments, &call->arena, query,
                               &error)) {
        call_answer_error(call, 400, 0, error);
        return;
    }
    counters_read(call, query);
}

/* Columns of counter_read: dimensions, value, updated_at. */
static void
counters_read_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct json_writer *json = &call->json;
    int rows = pg_row_count(answer->result);

    if (rows == 0) {
        call_answer_error(call, 404, 0, "no such key");
        return;
    }
    if (rows > 1) {
        call_answer_error(call, 400, 0,
                          "a value exists both as text and as another type; "
                          "put it in quotes to mean the text");
        return;
    }
    json_object_begin(json);
    json_key(json, "counter");
    json_string(json, call->match.parameter);
    json_key(json, "dimensions");
    json_raw(json, pg_get_bytes(answer->result, 0, 0));
    json_key(json, "value");
    json_int_string(json, pg_get_int8(answer->result, 0, 1));
    json_key(json, "updated_at");
    json_time(json, pg_get_time(answer->result, 0, 2));
    json_object_end(json);
    call_answer(call, 200);
}
