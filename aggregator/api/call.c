/*
 * call.c - answers and reads of one request. See call.h.
 */

#include "api/call.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

#include <stdlib.h>

#define RETRY_AFTER_S 1
#define SQL_RANGE     "22003" /* numeric value out of range */
#define SQL_CANCELLED "57014" /* statement_timeout */
#define SQL_DENIED    "EM401" /* our functions: the credential is not enough */

struct meter_str
call_tenant(const struct api_call *call)
{
    return (struct meter_str){call->ticket.tenant, call->ticket.tenant_size};
}

void
call_free(struct api_call *call)
{
    metrics.edgemeter_requests_in_flight--;
    config_unref(call->config);
    buf_fini(&call->out);
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
    json_key(&call->json, "error");
    json_text(&call->json, text);
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

void
call_read(struct api_call *call, enum statement statement,
          const struct pg_params *params, pg_answer_cb cb)
{
    CHECK(call->read_cb == NULL);
    call->read_cb = cb;
    reader_query(call->api->reader, call_tenant(call), statement, params,
                 call_read_cb, call);
}

void
call_write(struct api_call *call, enum statement statement,
           const struct pg_params *params, pg_answer_cb cb)
{
    CHECK(call->read_cb == NULL);
    call->read_cb = cb;
    reader_query(call->api->writes, (struct meter_str){NULL, 0}, statement,
                 params, call_write_cb, call);
}
