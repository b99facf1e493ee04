/*
 * query_api.c - GET and POST /v1/query: what series say.
 *
 *   words -> query -> [query_windows: with a time zone]
 *         -> query_mark: how far, which dimension sets
 *         -> query_plain, query_rows, query_lasts or query_tallies of a level
 *         -> cells -> answer
 *
 * The mark is read before the buckets: what comes in between is newer than
 * the mark, and its windows are partial. The floor is read again with the
 * buckets, so that a level which is dropped meanwhile is not taken for an
 * empty one.
 */

#include "api/body.h"
#include "api/query_question.h"
#include "api/query_words.h"
#include "api/page.h"

#define ERROR_SIZE                                                           \
    "the answer would have more than 100000 values; ask for fewer windows, " \
    "or for fewer groups by \"where\" or \"group_by\""

static void windows_ask(struct api_call *call);
static void windows_cb(void *asker, const struct pg_answer *answer);
static void cells_ask(struct api_call *call);
static void cells_cb(void *asker, const struct pg_answer *answer);
static void question_answer(struct api_call *call, struct cells *cells);


/* ---- the question ---------------------------------------------------- */

/* NULL: the call has its answer. */
static struct question *
question_begin(struct api_call *call)
{
    struct question *question;
    enum accept_form form;

    if (!table_form(call, &form)) {
        return NULL;
    }
    call->arena.total_max = QUESTION_MEMORY_MAX;
    question = arena_zalloc(&call->arena, sizeof(*question));
    if (!call->api->healthy || question == NULL) {
        call_answer_unavailable(call);
        return NULL;
    }
    question->form = form;
    call->state = question;
    return question;
}

static void
question_go(struct api_call *call)
{
    struct question *question = call->state;

    if (question->form == ACCEPT_CSV && question->query.is_series) {
        call_answer_error(call, 400, 0,
                          "a table has rows: \"format\" cannot be series");
    } else if (question->query.zone.data != NULL) {
        windows_ask(call);
    } else {
        question->level = planner_level(question->query.interval_us);
        question_mark(call, cells_ask);
    }
}

static void
query_get(struct api_call *call)
{
    const struct json_value *values[QUERY_WORDS];
    struct question *question = question_begin(call);
    struct url_arguments *arguments;
    const char *error = NULL;
    unsigned status = 400;

    if (question == NULL) {
        return;
    }
    arguments = arena_alloc(&call->arena, sizeof(*arguments));
    if (arguments == NULL) {
        call_answer_unavailable(call);
        return;
    }
    if (url_arguments_read(call->request->args, &call->arena, arguments,
                           &error)) {
        error = query_words_read(arguments, &call->arena, values);
    }
    if (error == NULL) {
        status = query_read(call->config->catalog, values, &call->arena,
                            &question->query, &error);
    }
    if (error == NULL) {
        status = 400;
        error = query_words_filters(arguments, question->query.series,
                                    &call->arena, &question->query.filters);
    }
    if (error != NULL) {
        call_answer_error(call, status, 0, error);
        return;
    }
    question_go(call);
}

static void
query_post(struct api_call *call)
{
    const struct json_value *values[QUERY_WORDS];
    struct question *question = question_begin(call);
    const char *error = NULL;
    unsigned status;

    if (question == NULL ||
        !body_read(call, query_word_names, QUERY_WORDS, values)) {
        return;
    }
    status = query_read(call->config->catalog, values, &call->arena,
                        &question->query, &error);
    if (status != 0) {
        call_answer_error(call, status, 0, error);
        return;
    }
    question_go(call);
}


/* ---- windows of a time zone ------------------------------------------ */

static void
windows_ask(struct api_call *call)
{
    const struct question *question = call->state;
    const struct query *query = &question->query;
    struct pg_params params;

    pg_params_init(&params);
    pg_param_text(&params, query->zone);
    pg_param_time(&params, query->from_us);
    if (query->has_to) {
        pg_param_time(&params, query->to_us);
    } else {
        pg_param_null(&params);
    }
    pg_param_int4(&params, (int32_t)(query->interval_us / METER_TIME_DAY));
    pg_param_date(&params, meter_time_day(planner_origin(query->interval_us)));
    pg_param_int8(&params, WINDOWS_MAX + 4);
    call_read(call, STATEMENT_QUERY_WINDOWS, &params, windows_cb);
    pg_params_fini(&params);
}

/* Columns: at, until. NULL, or the sentence of *status. */
static const char *
windows_read(struct api_call *call, const void *result, unsigned *status)
{
    struct question *question = call->state;
    struct query *query = &question->query;
    int count = pg_row_count(result);
    int64_t *bounds_us =
        arena_alloc(&call->arena, ((size_t)count + 1) * sizeof(*bounds_us));

    *status = 400;
    if (count == 0 || pg_is_null(result, 0, 0)) {
        return "\"tz\" is no time zone that the database knows";
    }
    query->to_us = pg_get_time(result, 0, 1);
    if (query->from_us >= query->to_us) {
        return "\"from\" must be before \"to\"";
    }
    for (int row = 0; bounds_us != NULL && row < count; row++) {
        bounds_us[row] = pg_get_time(result, row, 0);
    }
    if (bounds_us == NULL ||
        !windows_take(bounds_us, (size_t)count, query->from_us, query->to_us,
                      &call->arena, &question->windows) ||
        question->windows.count > WINDOWS_MAX) {
        return QUESTION_ERROR_WINDOWS;
    }
    *status = 422;
    return planner_level_of(question->windows.bounds_us,
                            question->windows.count + 1, &question->level)
               ? NULL
               : "midnights of this time zone do not lie on multiples of 5s "
                 "in this range";
}

static void
windows_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    unsigned status;
    const char *error = windows_read(call, answer->result, &status);

    if (error != NULL) {
        call_answer_error(call, status, 0, error);
        return;
    }
    question_mark(call, cells_ask);
}


/* ---- the buckets ----------------------------------------------------- */

static void
param_groups(struct pg_params *params, const struct groups *groups)
{
    pg_param_array_begin(params, PG_BYTEA, groups->key_count);
    for (size_t i = 0; i < groups->key_count; i++) {
        pg_put_bytes(&params->bytes,
                     (struct meter_str){(const char *)groups->keys[i].key,
                                        METER_DIGEST_SIZE});
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT4, groups->key_count);
    for (size_t i = 0; i < groups->key_count; i++) {
        pg_put_int4(&params->bytes, groups->keys[i].place);
    }
    pg_param_array_end(params);
}

/*
 * Nothing is to be summed up: every window is a bucket, every group a set, and
 * no answer that is too large can come of it.
 */
static bool
question_is_single(const struct question *question)
{
    return question->query.zone.data == NULL &&
           question->query.interval_us ==
               meter_level_size_us(question->level) &&
           question->groups.key_count == question->groups.count &&
           question->groups.count * question->windows.count <= CELLS_MAX;
}

static struct cells_asked
cells_asked_of(const struct question *question)
{
    const struct series *series = question->query.series;

    return (struct cells_asked){
        .series = series,
        .shape = cells_shape_of(series, question_is_single(question)),
        .group_count = question->groups.count,
        .windows = &question->windows,
    };
}

static void
param_windows(struct pg_params *params, const struct windows *windows)
{
    pg_param_array_begin(params, PG_TIMESTAMPTZ, windows->count);
    for (size_t i = 0; i < windows->count; i++) {
        pg_put_time(&params->bytes, windows->bounds_us[i]);
    }
    pg_param_array_end(params);
}

static void
cells_ask(struct api_call *call)
{
    static struct answer_cell none[1];
    const struct question *question = call->state;
    const struct query *query = &question->query;
    struct cells_asked asked = cells_asked_of(question);
    struct cells cells = {.items = none};
    struct pg_params params;

    if (question->groups.key_count == 0) {
        question_answer(call, &cells);
        return;
    }
    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, query->series->name);
    pg_param_int8(&params, query->series->version);
    param_groups(&params, &question->groups);
    if (asked.shape != CELLS_PLAIN) {
        param_windows(&params, &question->windows);
    }
    pg_param_time(&params, meter_level_bucket(question->level, query->from_us));
    pg_param_time(&params, query->to_us);
    if (asked.shape == CELLS_PLAIN) {
        pg_param_int4(&params, cells_figure(query->series));
    } else {
        pg_param_int8(&params, CELLS_MAX + 1);
    }
    if (asked.shape == CELLS_TALLIES) {
        pg_param_int8(&params, TALLIES_MAX + 1);
    }
    call_read(call, cells_statement(asked.shape, question->level), &params,
              cells_cb);
    pg_params_fini(&params);
}

static void
cells_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct question *question = call->state;
    struct cells_asked asked = cells_asked_of(question);
    struct cells cells;
    const char *error;

    switch (cells_read(&asked, answer->result, &call->arena, &cells)) {
    case CELLS_OK: break;
    case CELLS_RANGE: call_answer_error(call, 422, 0, CALL_ERROR_RANGE); return;
    case CELLS_MANY:
    case CELLS_MEMORY: call_answer_error(call, 422, 0, ERROR_SIZE); return;
    }
    question->floors_us[question->level] = cells.floor_us;
    error = question_floor_check(call);
    if (error != NULL) {
        call_answer_error(call, 422, 0, error);
        return;
    }
    question_answer(call, &cells);
}


/* ---- the answer ------------------------------------------------------ */

_Static_assert(CELLS_MAX == 100000, "the sentence says 100000");

static void
question_answer(struct api_call *call, struct cells *cells)
{
    struct question *question = call->state;
    struct answer answer = {
        .query = &question->query,
        .level = question->level,
        .windows = &question->windows,
        .groups = &question->groups,
        .cells = cells,
    };
    struct csv_writer csv;
    struct arena scratch;

    if (!answer_init(&answer, &call->arena) ||
        answer_size(&answer) > CELLS_MAX) {
        call_answer_error(call, 422, 0, ERROR_SIZE);
        return;
    }
    arena_init(&scratch, 4096, 1u << 20);
    if (question->form == ACCEPT_CSV) {
        csv_writer_init(&csv, &call->out);
        answer_csv(&answer, &csv, &scratch);
    } else {
        answer_put(&answer, &call->json, &scratch);
    }
    arena_fini(&scratch);
    if (call->out.failed) {
        call_answer_error(call, 422, 0, ERROR_SIZE);
    } else if (question->form == ACCEPT_CSV) {
        table_answer(call, NULL);
    } else {
        call_answer(call, 200);
    }
}


static const struct route query_routes[] = {
    {METER_METHOD_GET, "/v1/query", TOKEN_SCOPE_READ, query_get},
    {METER_METHOD_POST, "/v1/query", TOKEN_SCOPE_READ, query_post},
};

const struct resource query_resource = {
    RESOURCE_ROUTES(query_routes),
};
