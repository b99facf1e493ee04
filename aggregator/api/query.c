/*
 * query.c - GET and POST /v1/query: what series say.
 *
 *   arguments or body -> words -> query -> question -> statements, one
 *   after the other (question_ask, question_take) -> answer
 *
 *   metric=requests&where.route=/a&group_by=a,b
 *
 * Of arguments texts stay texts; group_by and quantiles are cut at their
 * commas; where is JSON. where.NAME is the dimension NAME, its value read in
 * all ways in which it may have been sent, as those of counters are.
 */

#include "api/call.h"
#include "api/dimension_query.h"
#include "api/page.h"
#include "query/question.h"

#define ERROR_MEMORY "the query is too long"
#define WHERE        "where."
#define WHERE_SIZE   (sizeof(WHERE) - 1)
#define LIST_MAX     64
#define MEMORY_MAX   (96u << 20)

/* The call's state. */
struct query_state {
    struct question question;
    enum accept_form form;
};

static void query_rows_cb(void *asker, const struct pg_answer *answer);


/* ---- words ----------------------------------------------------------- */

static bool
query_is_where(struct meter_str name)
{
    return name.size > WHERE_SIZE && memcmp(name.data, WHERE, WHERE_SIZE) == 0;
}

/* QUERY_WORDS: there is no such word. */
static size_t
query_word_find(struct meter_str name)
{
    size_t word = 0;

    while (word < QUERY_WORDS &&
           !meter_str_equal(
               name, (struct meter_str){query_word_names[word],
                                        strlen(query_word_names[word])})) {
        word++;
    }
    return word;
}

/* Pieces between commas; of nothing none. */
static const char *
query_list_read(struct meter_str text, struct arena *arena,
                struct json_value *out)
{
    struct json_value *items = arena_alloc(arena, LIST_MAX * sizeof(*items));

    if (items == NULL) {
        return ERROR_MEMORY;
    }
    *out = (struct json_value){.kind = JSON_ARRAY};
    out->items = items;
    while (text.size > 0) {
        const char *comma = memchr(text.data, ',', text.size);
        size_t size = comma == NULL ? text.size : (size_t)(comma - text.data);

        if (out->count == LIST_MAX) {
            return "a list has more than 64 parts";
        }
        items[out->count++] = (struct json_value){
            .kind = JSON_STRING,
            .text = {text.data, size},
        };
        size += comma != NULL;
        text.data += size;
        text.size -= size;
    }
    return NULL;
}

_Static_assert(LIST_MAX == 64, "the sentence says 64");

static const char *
query_where_read(struct meter_str text, struct arena *arena,
                 struct json_value *out)
{
    static const struct json_limits limits = {
        .depth_max = 2,
        .key_count_max = METER_DIMENSION_COUNT_MAX,
        .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,
        .string_size_max = METER_DIMENSION_SIZE_MAX,
    };
    struct json_error error;
    size_t used;

    if (!json_read(text, &limits, arena, out, &used, &error)) {
        return reason_format(arena, "\"where\" is not JSON: %s, byte %zu",
                             error.text, error.offset);
    }
    return used == text.size ? NULL : "\"where\" goes on behind its JSON";
}

/* No instant has a blank in it: each was a '+' that was not escaped. */
static const char *
query_instant_read(struct meter_str text, struct arena *arena,
                   struct json_value *out)
{
    char *plain = arena_alloc(arena, text.size + 1);

    if (plain == NULL) {
        return ERROR_MEMORY;
    }
    for (size_t i = 0; i < text.size; i++) {
        plain[i] = (char)(text.data[i] == ' ' ? '+' : text.data[i]);
    }
    *out = (struct json_value){
        .kind = JSON_STRING,
        .text = {plain, text.size},
    };
    return NULL;
}

/* A sentence for a 400, or NULL. All is in the arena. */
static const char *
query_words_read(const struct url_arguments *arguments, struct arena *arena,
                 const struct json_value *values[QUERY_WORDS])
{
    struct json_value *room = arena_zalloc(arena, QUERY_WORDS * sizeof(*room));
    const char *error = NULL;

    if (room == NULL) {
        return ERROR_MEMORY;
    }
    for (size_t word = 0; word < QUERY_WORDS; word++) {
        values[word] = NULL;
    }
    for (size_t i = 0; i < arguments->count && error == NULL; i++) {
        const struct url_argument *argument = &arguments->items[i];
        size_t word = query_word_find(argument->name);

        if (word == QUERY_WORDS) {
            if (!query_is_where(argument->name)) {
                return reason_format(arena, "unknown argument %s",
                                     reason_quote(argument->name).text);
            }
            continue;
        }
        values[word] = &room[word];
        if (word == QUERY_GROUP_BY || word == QUERY_QUANTILES) {
            error = query_list_read(argument->value, arena, &room[word]);
        } else if (word == QUERY_WHERE) {
            error = query_where_read(argument->value, arena, &room[word]);
        } else if (word == QUERY_FROM || word == QUERY_TO) {
            error = query_instant_read(argument->value, arena, &room[word]);
        } else {
            room[word].kind = JSON_STRING;
            room[word].text = argument->value;
        }
    }
    return error;
}


/* ---- where.NAME ------------------------------------------------------ */

static const char *
query_filter_make(const struct dimension_filter *from, struct arena *arena,
                  struct query_filter *out)
{
    struct json_value *values =
        arena_zalloc(arena, from->reading_count * sizeof(*values));

    if (values == NULL) {
        return ERROR_MEMORY;
    }
    for (size_t i = 0; i < from->reading_count; i++) {
        const struct meter_dim *reading = &from->readings[i];

        values[i].text = reading->value;
        switch (reading->kind) {
        case METER_DIM_STRING: values[i].kind = JSON_STRING; break;
        case METER_DIM_NUMBER: values[i].kind = JSON_NUMBER; break;
        case METER_DIM_BOOL:
            values[i].kind = meter_str_equal(reading->value, METER_STR("true"))
                                 ? JSON_TRUE
                                 : JSON_FALSE;
            break;
        case METER_DIM_NULL: values[i].kind = JSON_NULL; break;
        }
    }
    *out = (struct query_filter){
        .name = from->name,
        .values = values,
        .count = from->reading_count,
        .is_loose = true,
    };
    return NULL;
}

/* The filters of where.NAME; the rest is passed over. Likewise. */
static const char *
query_words_filters(const struct url_arguments *arguments, struct arena *arena,
                    struct query *query)
{
    const char *error = NULL;

    for (size_t i = 0; i < arguments->count && error == NULL; i++) {
        struct meter_str name = arguments->items[i].name;
        struct dimension_filter readings;
        struct query_filter filter;

        if (!query_is_where(name)) {
            continue;
        }
        name.data += WHERE_SIZE;
        name.size -= WHERE_SIZE;
        error = dimension_filter_read(name, arguments->items[i].value, arena,
                                      &readings);
        if (error == NULL) {
            error = query_filter_make(&readings, arena, &filter);
        }
        if (error == NULL) {
            error = query_filter_add(query, &filter, arena);
        }
    }
    return error;
}


/* ---- the question ---------------------------------------------------- */

/* NULL: the call has its answer. */
static struct query_state *
query_begin(struct api_call *call)
{
    struct query_state *state;
    enum accept_form form;

    if (!table_form(call, &form)) {
        return NULL;
    }
    call->arena.total_max = MEMORY_MAX;
    state = call_state(call, sizeof(*state));
    if (state != NULL) {
        state->form = form;
        state->question.arena = &call->arena;
        state->question.tenant = call_tenant(call);
    }
    return state;
}

/* Asks for what the question needs next, or answers it. */
static void
query_go_on(struct api_call *call)
{
    struct query_state *state = call->state;
    enum statement statement;
    struct pg_params *params = call_params(call);

    if (state->question.step == QUESTION_DONE) {
        if (!answer_write(&state->question, state->form == ACCEPT_CSV,
                          &call->out)) {
            call_answer_error(call, 422, 0, question_error_size);
        } else if (state->form == ACCEPT_CSV) {
            table_answer(call, NULL);
        } else {
            call_answer(call, 200);
        }
        return;
    }
    if (question_ask(&state->question, params, &statement)) {
        call_read(call, statement, query_rows_cb);
    } else {
        call_answer_unavailable(call);
    }
}

static void
query_rows_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct query_state *state = call->state;
    const char *error = NULL;
    unsigned status = question_take(&state->question, answer->result, &error);

    if (status == 0) {
        query_go_on(call);
    } else if (status == 503) {
        call_answer_unavailable(call);
    } else {
        call_answer_error(call, status, 0, error);
    }
}

/* status: of *error; 0: the query could be read. */
static void
query_start(struct api_call *call, unsigned status, const char *error)
{
    struct query_state *state = call->state;

    if (status == 0) {
        status = 400;
        error = state->form == ACCEPT_CSV && state->question.query.is_series
                    ? "a table has rows: \"format\" cannot be series"
                    : question_start(&state->question);
    }
    if (error != NULL) {
        call_answer_error(call, status, 0, error);
        return;
    }
    query_go_on(call);
}

static void
query_get(struct api_call *call)
{
    const struct json_value *values[QUERY_WORDS];
    struct query_state *state = query_begin(call);
    const struct url_arguments *arguments;
    const char *error;
    unsigned status = 400;

    if (state == NULL || (arguments = call_arguments(call)) == NULL) {
        return;
    }
    error = query_words_read(arguments, &call->arena, values);
    if (error == NULL) {
        status = query_read(call->config->catalog, values, &call->arena,
                            &state->question.query, &error);
    }
    if (error == NULL) {
        error = query_words_filters(arguments, &call->arena,
                                    &state->question.query);
        status = error == NULL ? 0 : 400;
    }
    query_start(call, status, error);
}

static void
query_post(struct api_call *call)
{
    const struct json_value *values[QUERY_WORDS];
    struct query_state *state = query_begin(call);
    const char *error = NULL;
    unsigned status;

    if (state == NULL ||
        !body_read(call, query_word_names, QUERY_WORDS, values)) {
        return;
    }
    status = query_read(call->config->catalog, values, &call->arena,
                        &state->question.query, &error);
    query_start(call, status, error);
}

static const struct route query_routes[] = {
    {METER_METHOD_GET, "/v1/query", TOKEN_SCOPE_READ, query_get},
    {METER_METHOD_POST, "/v1/query", TOKEN_SCOPE_READ, query_post},
};

const struct resource query_resource = {
    RESOURCE_ROUTES(query_routes),
};
