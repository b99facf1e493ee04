/*
 * query_mark.c - how far a series can be answered, and for which sets.
 *
 * See query_question.h.
 */

#include "api/query_question.h"

#define DIRT_MAX 50000
#define ERROR_MIXED                                     \
    "a value exists both as text and as another type; " \
    "put it in quotes to mean the text"

/* Rows of query_mark. */
enum mark_kind {
    MARK_NOW,
    MARK_FLUSHED,
    MARK_FLOOR,
    MARK_DIRT,
    MARK_MORE_DIRT,
    MARK_KEY
};
enum mark_column {
    COLUMN_KIND,
    COLUMN_LEVEL,
    COLUMN_AT,
    COLUMN_KEY,
    COLUMN_DIMENSIONS
};

/* How many rows are of a kind. */
static size_t
mark_count(const void *result, enum mark_kind kind)
{
    size_t count = 0;

    for (int row = 0; row < pg_row_count(result); row++) {
        count += pg_get_int4(result, row, COLUMN_KIND) == (int32_t)kind;
    }
    return count;
}

/* Everything but the keys. */
static void
mark_row(struct question *question, const void *result, int row)
{
    struct query *query = &question->query;
    int32_t level = 0;

    if (!pg_is_null(result, row, COLUMN_LEVEL)) {
        level = pg_get_int4(result, row, COLUMN_LEVEL);
        CHECK(level >= 0 && level < METER_LEVEL_COUNT);
    }
    switch ((enum mark_kind)pg_get_int4(result, row, COLUMN_KIND)) {
    case MARK_NOW:
        /* With a time zone, windows were made up to a now before. */
        if (!query->has_to && query->zone.data == NULL) {
            query->to_us = pg_get_time(result, row, COLUMN_AT);
        }
        break;
    case MARK_FLUSHED:
        question->mark_us = pg_get_time(result, row, COLUMN_AT);
        break;
    case MARK_FLOOR:
        question->floors_us[level] = pg_get_time(result, row, COLUMN_AT);
        break;
    case MARK_DIRT:
        question->dirt[question->dirt_count++] = (struct window_dirt){
            (enum meter_level)level,
            pg_get_time(result, row, COLUMN_AT),
        };
        break;
    case MARK_MORE_DIRT: question->is_dirt_cut = true; break;
    case MARK_KEY: break;
    }
}

/* 0, or the status of *error. */
static unsigned
groups_read(struct api_call *call, const void *result, const char **error)
{
    struct question *question = call->state;
    size_t count = mark_count(result, MARK_KEY);
    enum groups_result added = GROUPS_OK;

    if (count > GROUP_KEYS_MAX) {
        *error = "more than 10000 dimension sets fit; ask for fewer by "
                 "\"where\"";
        return 422;
    }
    if (!groups_init(&question->groups, &question->query, count,
                     &call->arena)) {
        *error = "the dimension sets need too much memory";
        return 422;
    }
    for (int row = 0; row < pg_row_count(result) && added == GROUPS_OK; row++) {
        if (pg_get_int4(result, row, COLUMN_KIND) == MARK_KEY) {
            added = groups_add(&question->groups,
                               pg_get_bytes(result, row, COLUMN_KEY),
                               pg_get_bytes(result, row, COLUMN_DIMENSIONS));
        }
    }
    if (added == GROUPS_MIXED) {
        *error = ERROR_MIXED;
        return 400;
    }
    if (added == GROUPS_MEMORY) {
        *error = "the dimension sets need too much memory";
        return 422;
    }
    groups_sort(&question->groups);
    return 0;
}

_Static_assert(GROUP_KEYS_MAX == 10000, "the sentence says 10000");

const char *
question_floor_check(struct api_call *call)
{
    const struct question *question = call->state;
    int64_t from_us = question->query.from_us;
    char since[METER_TIME_TEXT_SIZE + 1];
    enum meter_level finest;

    if (planner_is_kept(question->floors_us, from_us, question->level)) {
        return NULL;
    }
    if (planner_finest_kept(question->floors_us, from_us, &finest)) {
        meter_time_format(question->floors_us[question->level], since);
        return reason_format(&call->arena,
                             "level %s is kept from %s on; the finest level "
                             "that is kept for this range is %s",
                             meter_level_name(question->level), since,
                             meter_level_name(finest));
    }
    meter_time_format(question->floors_us[METER_LEVEL_COUNT - 1], since);
    return reason_format(&call->arena,
                         "no level is kept for this range; the longest kept "
                         "is %s, from %s on",
                         meter_level_name(METER_LEVEL_COUNT - 1), since);
}

/* Windows up to now. 0, or the status of *error. */
static unsigned
range_end(struct api_call *call, const char **error)
{
    struct question *question = call->state;
    struct query *query = &question->query;

    if (query->zone.data != NULL) {
        return 0;
    }
    if (query->from_us >= query->to_us) {
        *error = "\"from\" must be before \"to\"";
        return 400;
    }
    if (windows_count(query->interval_us, query->from_us, query->to_us) >
        WINDOWS_MAX) {
        *error = QUESTION_ERROR_WINDOWS;
        return 400;
    }
    if (!windows_make(query->interval_us, query->from_us, query->to_us,
                      &call->arena, &question->windows)) {
        *error = "the windows need too much memory";
        return 422;
    }
    return 0;
}

static void
windows_mark(struct question *question)
{
    const struct query *query = &question->query;
    struct windows *windows = &question->windows;

    windows_judge(windows, query->from_us, query->to_us, question->mark_us,
                  question->dirt, question->dirt_count);
    for (size_t i = 0; question->is_dirt_cut && i < windows->count; i++) {
        windows->is_partial[i] = true;
    }
}

static void
mark_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct question *question = call->state;
    const void *result = answer->result;
    const char *error = NULL;
    unsigned status;

    question->dirt =
        arena_alloc(&call->arena, (mark_count(result, MARK_DIRT) + 1) *
                                      sizeof(question->dirt[0]));
    if (question->dirt == NULL) {
        call_answer_unavailable(call);
        return;
    }
    for (int row = 0; row < pg_row_count(result); row++) {
        mark_row(question, result, row);
    }
    status = range_end(call, &error);
    if (status == 0) {
        error = question_floor_check(call);
        status = error == NULL ? groups_read(call, result, &error) : 422;
    }
    if (status != 0) {
        call_answer_error(call, status, 0, error);
        return;
    }
    windows_mark(question);
    question->next(call);
}

static void
param_keys(struct api_call *call, struct pg_params *params)
{
    const struct question *question = call->state;
    struct filter_keys keys;

    if (!filters_keys(&question->query.filters, question->query.series,
                      &call->arena, &keys)) {
        pg_param_null(params);
        return;
    }
    pg_param_array_begin(params, PG_BYTEA, keys.count);
    for (size_t i = 0; i < keys.count; i++) {
        pg_put_bytes(
            &params->bytes,
            (struct meter_str){(const char *)keys.items[i], METER_DIGEST_SIZE});
    }
    pg_param_array_end(params);
}

void
question_mark(struct api_call *call, void (*next)(struct api_call *call))
{
    struct question *question = call->state;
    const struct query *query = &question->query;
    struct pg_params params;
    struct buf where;

    question->next = next;
    buf_init(&where, QUESTION_MEMORY_MAX);
    if (!filters_json(&query->filters, &call->arena, &where)) {
        buf_fini(&where);
        call_answer_unavailable(call);
        return;
    }
    pg_params_init(&params);
    pg_param_text(&params, call_tenant(call));
    pg_param_text(&params, query->series->name);
    pg_param_int8(&params, query->series->version);
    pg_param_text(&params, buf_str(&where));
    param_keys(call, &params);
    pg_param_int8(&params, GROUP_KEYS_MAX + 1);
    pg_param_int4(&params, question->level);
    pg_param_time(&params, meter_level_bucket(question->level, query->from_us));
    if (query->has_to) {
        pg_param_time(&params, query->to_us);
    } else {
        pg_param_null(&params);
    }
    pg_param_int8(&params, DIRT_MAX);
    call_read(call, STATEMENT_QUERY_MARK, &params, mark_cb);
    pg_params_fini(&params);
    buf_fini(&where);
}
