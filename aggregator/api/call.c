/*
 * call.c - what the handlers of all resources do with a request.
 *
 *   handler -> [body_read] -> [call_read, call_write] -> its callback
 *           -> [member_string, members_of_row, ...] -> [call_answer]
 *
 * Every call ends in exactly one answer, or in api_cancel; a read that is
 * under way then frees it. A failed read or write is answered here, and so is
 * everything that is wrong with a body as a whole. Our own reader keeps
 * numbers as they were written: amounts are exact.
 */

#include "api/call.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/media_type.h"
#include "base/metrics.h"
#include "meter_limits.h"
#include "pg/param.h"

#include <stdlib.h>
#include <strings.h>

#define SQL_RANGE     "22003" /* numeric value out of range */
#define SQL_CANCELLED "57014" /* statement_timeout */
#define SQL_DENIED    "EM401" /* our functions: the credential is not enough */

struct meter_str
call_tenant(const struct api_call *call)
{
    return (struct meter_str){call->ticket.tenant, call->ticket.tenant_size};
}

struct meter_str
call_token_id(const struct api_call *call)
{
    return (struct meter_str){call->ticket.token_id,
                              call->ticket.token_id_size};
}

void
call_free(struct api_call *call)
{
    metrics.edgemeter_requests_in_flight--;
    config_unref(call->config);
    buf_fini(&call->out);
    pg_params_fini(&call->params);
    arena_fini(&call->arena);
    free(call);
}


/* ---- answers --------------------------------------------------------- */

static void
call_count(const struct api_call *call, unsigned status)
{
    uint64_t took_us = clock_mono_us() - call->started_us;

    metrics.edgemeter_request_microseconds_total += (int64_t)took_us;
    if (status >= 500) {
        metrics.edgemeter_answers_5xx_total++;
    } else if (status >= 400) {
        metrics.edgemeter_answers_4xx_total++;
    } else {
        metrics.edgemeter_answers_2xx_total++;
    }
}

void
call_answer_full(struct api_call *call, const struct meter_response *head)
{
    struct meter_response response = *head;

    CHECK(call->cb != NULL && call->read_cb == NULL);
    if (call->out.failed) {
        log_error("api", "an answer does not fit in memory");
        response = (struct meter_response){.status = 500};
        buf_reset(&call->out);
    }
    if (response.content_type.data == NULL) {
        response.content_type = METER_STR("application/json");
    }
    call_count(call, response.status);
    if (call->answered != NULL) {
        *call->answered = true;
    }
    call->cb(call->asker, &response, &call->out);
    call_free(call);
}

void
call_answer(struct api_call *call, unsigned status)
{
    struct meter_response response = {.status = (uint16_t)status};

    call_answer_full(call, &response);
}

void
call_answer_error_full(struct api_call *call, const struct meter_response *head,
                       const char *text)
{
    buf_reset(&call->out); /* half an answer may stand there */
    json_writer_init(&call->json, &call->out);
    json_object_begin(&call->json);
    member_text(&call->json, "error", text);
    json_object_end(&call->json);
    call_answer_full(call, head);
}

void
call_answer_error(struct api_call *call, unsigned status,
                  uint32_t retry_after_s, const char *text)
{
    struct meter_response response = {
        .status = (uint16_t)status,
        .retry_after_s = retry_after_s,
    };

    call_answer_error_full(call, &response, text);
}

void
call_answer_unavailable(struct api_call *call)
{
    call_answer_error(call, 503, RETRY_AFTER_S, "the database is away");
}


/* ---- for handlers ---------------------------------------------------- */

void *
call_state(struct api_call *call, size_t size)
{
    call->state = call->api->healthy ? arena_zalloc(&call->arena, size) : NULL;
    if (call->state == NULL) {
        call_answer_unavailable(call);
        return NULL;
    }
    return call->state;
}

const struct url_arguments *
call_arguments(struct api_call *call)
{
    struct url_arguments *arguments =
        arena_alloc(&call->arena, sizeof(*arguments));
    const char *error;

    if (arguments == NULL) {
        call_answer_unavailable(call);
        return NULL;
    }
    if (!url_arguments_read(call->request->args, &call->arena, arguments,
                            &error)) {
        call_answer_error(call, 400, 0, error);
        return NULL;
    }
    return arguments;
}

bool
call_has_no_arguments(struct api_call *call, const char *what)
{
    if (call->request->args.size == 0) {
        return true;
    }
    call_answer_error(
        call, 400, 0,
        reason_format(&call->arena, "the %s takes no query arguments", what));
    return false;
}


/* ---- reads and writes ------------------------------------------------ */

/* Figures that are exact one by one and together pass what is kept. */
static bool
call_failed_range(struct api_call *call, const struct pg_answer *answer,
                  const char *error)
{
    if (answer->outcome != PG_OUTCOME_ERROR ||
        strcmp(answer->sqlstate, SQL_RANGE) != 0) {
        return false;
    }
    call_answer_error(call, 422, 0, error);
    return true;
}

static void
call_read_failed(struct api_call *call, const struct pg_answer *answer)
{
    if (call_failed_range(call, answer, CALL_ERROR_RANGE)) {
        return;
    }
    if (answer->outcome == PG_OUTCOME_ERROR &&
        strcmp(answer->sqlstate, SQL_DENIED) == 0) { /* revoked meanwhile */
        metrics.edgemeter_requests_unauthorized_total++;
        call_answer_error(call, 401, 0, CALL_ERROR_UNAUTHORIZED);
        return;
    }
    if (answer->outcome == PG_OUTCOME_ERROR) {
        log_error("api", "a read failed", log_str("sqlstate", answer->sqlstate),
                  log_str("reason", answer->message));
        if (strcmp(answer->sqlstate, SQL_CANCELLED) == 0 ||
            answer->kind == SQL_RETRY) { /* a timeout or a deadlock */
            call_answer_error(call, 503, RETRY_AFTER_S,
                              "the read took too long");
            return;
        }
        if (answer->kind != SQL_AWAY && answer->kind != SQL_REDO_CAREFUL) {
            call_answer_error(call, 500, 0, "the read failed");
            return;
        }
    }
    call_answer_unavailable(call);
}

/* Whatever the reason: what was sent may be sent again. */
static void
call_write_failed(struct api_call *call, const struct pg_answer *answer)
{
    if (call_failed_range(call, answer, CALL_ERROR_AMOUNTS)) {
        return;
    }
    if (answer->outcome == PG_OUTCOME_ERROR) {
        log_error("api", "a write failed",
                  log_str("sqlstate", answer->sqlstate),
                  log_str("reason", answer->message));
        if (answer->kind == SQL_DATA || answer->kind == SQL_BUG) {
            call_answer_error(call, 500, 0, "the write failed");
            return;
        }
    }
    call_answer_error(call, 503, RETRY_AFTER_S,
                      "not known to be committed; sending the same again is "
                      "safe");
}

static void
call_asked_cb(struct api_call *call, const struct pg_answer *answer,
              void (*failed)(struct api_call *, const struct pg_answer *))
{
    pg_answer_cb cb = call->read_cb;

    call->read_cb = NULL;
    if (call->cb == NULL) {
        call_free(call); /* cancelled meanwhile */
        return;
    }
    if (answer->outcome != PG_OUTCOME_OK) {
        failed(call, answer);
        return;
    }
    cb(call, answer);
}

static void
call_read_cb(void *asker, const struct pg_answer *answer)
{
    call_asked_cb(asker, answer, call_read_failed);
}

static void
call_write_cb(void *asker, const struct pg_answer *answer)
{
    call_asked_cb(asker, answer, call_write_failed);
}

struct pg_params *
call_params(struct api_call *call)
{
    pg_params_init(&call->params);
    return &call->params;
}

/* The answer may come at once, and then the call is gone. */
static void
call_ask(struct api_call *call, struct reader *reader, struct meter_str tenant,
         enum statement statement, pg_answer_cb asked_cb)
{
    struct pg_params params = call->params;

    pg_params_init(&call->params);
    reader_query(reader, tenant, statement, &params, asked_cb, call);
    pg_params_fini(&params);
}

void
call_read(struct api_call *call, enum statement statement, pg_answer_cb cb)
{
    CHECK(call->read_cb == NULL);
    call->read_cb = cb;
    call_ask(call, call->api->reader, call_tenant(call), statement,
             call_read_cb);
}

void
call_write(struct api_call *call, enum statement statement, pg_answer_cb cb)
{
    CHECK(call->read_cb == NULL);
    call->read_cb = cb;
    call_ask(call, call->api->writes, (struct meter_str){NULL, 0}, statement,
             call_write_cb);
}


/* ---- members of answers ----------------------------------------------- */

void
member_string(struct json_writer *json, const char *name,
              struct meter_str value)
{
    json_key(json, name);
    if (value.data == NULL) {
        json_null(json);
    } else {
        json_string(json, value);
    }
}

void
member_text(struct json_writer *json, const char *name, const char *value)
{
    json_key(json, name);
    json_text(json, value);
}

void
member_raw(struct json_writer *json, const char *name, struct meter_str value)
{
    json_key(json, name);
    json_raw(json, value);
}

void
member_int(struct json_writer *json, const char *name, int64_t value)
{
    json_key(json, name);
    json_int(json, value);
}

void
member_int_string(struct json_writer *json, const char *name, int64_t value)
{
    json_key(json, name);
    json_int_string(json, value);
}

void
member_bool(struct json_writer *json, const char *name, bool value)
{
    json_key(json, name);
    json_bool(json, value);
}

void
member_time(struct json_writer *json, const char *name, int64_t ts_us)
{
    json_key(json, name);
    json_time(json, ts_us);
}

void
member_decimal(struct json_writer *json, const char *name, bool has_value,
               struct meter_decimal value)
{
    char text[METER_DECIMAL_TEXT_SIZE + 1];

    json_key(json, name);
    if (!has_value) {
        json_null(json);
        return;
    }
    meter_decimal_format(value, text);
    json_text(json, text);
}

static void
member_of_row(struct json_writer *json, const struct member *member,
              const void *rows, int row)
{
    struct meter_decimal value;
    bool fits;

    switch (member->kind) {
    case MEMBER_STRING:
        member_string(json, member->name,
                      pg_get_bytes(rows, row, member->column));
        break;
    case MEMBER_RAW:
        member_raw(json, member->name, pg_get_bytes(rows, row, member->column));
        break;
    case MEMBER_INT:
        member_int(json, member->name, pg_get_int8(rows, row, member->column));
        break;
    case MEMBER_INT_STRING:
        member_int_string(json, member->name,
                          pg_get_int8(rows, row, member->column));
        break;
    case MEMBER_TIME:
        member_time(json, member->name, pg_get_time(rows, row, member->column));
        break;
    case MEMBER_NUMERIC:
        fits = pg_get_numeric(rows, row, member->column, &value);
        CHECK(fits);
        member_decimal(json, member->name, true, value);
        break;
    }
}

void
members_of_row(struct json_writer *json, const struct member *members,
               size_t count, const void *rows, int row)
{
    for (size_t i = 0; i < count; i++) {
        if (pg_is_null(rows, row, members[i].column)) {
            json_key(json, members[i].name);
            json_null(json);
        } else {
            member_of_row(json, &members[i], rows, row);
        }
    }
}


/* ---- bodies ----------------------------------------------------------- */

static bool
is_encoded(struct meter_str encoding)
{
    return encoding.size > 0 &&
           (encoding.size != 8 ||
            strncasecmp(encoding.data, "identity", 8) != 0);
}

static bool
body_is_json(struct api_call *call)
{
    const struct meter_request *request = call->request;
    struct media_type type;

    if (!media_type_read(request->content_type, &type) ||
        !media_type_is(&type, "application/json")) {
        call_answer_error(call, 415, 0,
                          "the Content-Type must be application/json");
        return false;
    }
    if (!media_type_is_utf8(&type)) {
        call_answer_error(call, 415, 0, "the charset must be utf-8");
        return false;
    }
    if (is_encoded(request->content_encoding)) {
        call_answer_error(call, 415, 0,
                          "the body must come without a Content-Encoding");
        return false;
    }
    return call_has_no_arguments(call, "path");
}


/* ---- one object ------------------------------------------------------ */

static bool
is_blank(struct meter_str text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (memchr(" \t\r\n", text.data[i], 4) == NULL) {
            return false;
        }
    }
    return true;
}

static const char *
object_read(struct api_call *call, struct json_value *out)
{
    static const struct json_limits limits = {
        .depth_max = METER_JSON_DEPTH_MAX,
        .key_count_max = METER_ATTRIBUTE_COUNT_MAX,
        .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,
        .string_size_max = METER_ATTRIBUTE_STRING_SIZE_MAX,
    };
    struct meter_str text = buf_str(call->body);
    struct json_error error;
    size_t used;

    if (!json_read(text, &limits, &call->arena, out, &used, &error)) {
        return reason_format(&call->arena, "the body is not JSON: %s, byte %zu",
                             error.text, error.offset);
    }
    if (!is_blank((struct meter_str){text.data + used, text.size - used})) {
        return "the body goes on behind its JSON";
    }
    return out->kind == JSON_OBJECT ? NULL : "the body must be a JSON object";
}

static const char *
members_sort(struct api_call *call, const struct json_value *object,
             const char *const *names, size_t count,
             const struct json_value **values)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = NULL;
    }
    for (uint32_t m = 0; m < object->count; m++) {
        const struct json_member *member = &object->members[m];
        size_t i = 0;

        while (i < count && !meter_str_equal(member->name,
                                             (struct meter_str){
                                                 names[i], strlen(names[i])})) {
            i++;
        }
        if (i == count) {
            return reason_format(&call->arena, "unknown member %s",
                                 reason_quote(member->name).text);
        }
        if (member->value.kind != JSON_NULL) {
            values[i] = &member->value;
        }
    }
    return NULL;
}

bool
body_read(struct api_call *call, const char *const *names, size_t count,
          const struct json_value **values)
{
    struct json_value *object;
    const char *error;

    if (!body_is_json(call)) {
        return false;
    }
    if (call->body->size > BODY_SIZE_MAX) {
        call_answer_error(call, 413, 0, "the body is larger than 65536 bytes");
        return false;
    }
    object = arena_alloc(&call->arena, sizeof(*object));
    if (object == NULL) {
        call_answer_unavailable(call);
        return false;
    }
    error = object_read(call, object);
    if (error == NULL) {
        error = members_sort(call, object, names, count, values);
    }
    if (error != NULL) {
        call_answer_error(call, 400, 0, error);
        return false;
    }
    return true;
}

_Static_assert(BODY_SIZE_MAX == 65536, "the sentence says 65536");


/* ---- texts ----------------------------------------------------------- */

bool
body_text(const struct json_value *value, const char *name, size_t size_max,
          struct arena *arena, struct meter_str *out, const char **error)
{
    if (value == NULL) {
        *error = reason_format(arena, "%s is missing", name);
    } else if (value->kind != JSON_STRING) {
        *error = reason_format(arena, "%s must be a string", name);
    } else if (value->text.size == 0) {
        *error = reason_format(arena, "%s is empty", name);
    } else if (value->text.size > size_max) {
        *error =
            reason_format(arena, "%s is longer than %zu bytes", name, size_max);
    } else {
        *out = value->text;
        return true;
    }
    return false;
}
