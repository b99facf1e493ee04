/*
 * selftest.c - may meterd work with this server and this role?
 *
 *   pg_conn -> selftest_steps -> server -> [judge] -> ready or refused
 *
 * The last step pins synchronous_commit for the session after it was found
 * to be strong enough.
 */

#include "pg/selftest.h"

#include <stdarg.h>
#include <stdio.h>

#define SERVER_VERSION_MIN 150000

/* %.*s of a meter_str. */
#define STR_ARGS(str) (int)(str).size, (str).data == NULL ? "" : (str).data

#define POOLED                                                            \
    "a connection pooler gives each transaction another session; meterd " \
    "needs pool_mode = session, or no pooler"

/* What selftest_server asks, taken apart so that it can be tested. */
struct selftest_server {
    int32_t version;
    struct meter_str fsync;
    struct meter_str full_page_writes;
    struct meter_str synchronous_commit;
    bool in_recovery;
    struct meter_str session_role;
    bool session_superuser;
    struct meter_str current_role;
    bool current_superuser;
    bool current_bypassrls;
    struct meter_str encoding;
};


/* One sentence; the verdict for it. */
__attribute__((format(printf, 3, 4))) static enum selftest_verdict
selftest_refuse(char *why, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return SELFTEST_REFUSED;
}


static bool
selftest_is(struct meter_str value, const char *text)
{
    return value.size == strlen(text) &&
           memcmp(value.data, text, value.size) == 0;
}


static enum selftest_verdict
selftest_judge_session(const char *mark, const void *result, char *why,
                       size_t size)
{
    if (pg_row_count(result) == 1 &&
        selftest_is(pg_get_bytes(result, 0, 0), mark)) {
        return SELFTEST_OK;
    }
    return selftest_refuse(why, size, POOLED);
}


static enum selftest_verdict
selftest_judge_error(const struct pg_answer *answer, char *why, size_t size)
{
    const char *state = answer->sqlstate;

    if (strcmp(state, "42P01") == 0 || strcmp(state, "3F000") == 0 ||
        strcmp(state, "42883") == 0 || strcmp(state, "42703") == 0) {
        return selftest_refuse(
            why, size,
            "the database has no Edgemeter schema that fits (%s); run "
            "`meterd migrate`",
            answer->message);
    }
    if (strcmp(state, "42501") == 0) {
        return selftest_refuse(
            why, size,
            "the role lacks rights (%s); run sql/bootstrap.sql and "
            "`meterd migrate`",
            answer->message);
    }
    /* A statement that is there twice, or gone, in a new session. */
    if (strcmp(state, "42P05") == 0 || strcmp(state, "26000") == 0) {
        return selftest_refuse(why, size, POOLED " (%s)", answer->message);
    }
    snprintf(why, size, "the self-test failed: %s (%s)", answer->message,
             state);
    return SELFTEST_AWAY;
}


static enum selftest_verdict
selftest_judge_server(const struct selftest_server *server, char *why,
                      size_t size)
{
    if (server->version < SERVER_VERSION_MIN) {
        return selftest_refuse(
            why, size, "PostgreSQL %d is too old; 15 or newer is needed",
            (int)(server->version / 10000));
    }
    if (!selftest_is(server->encoding, "UTF8")) {
        return selftest_refuse(
            why, size, "the database's encoding is %.*s; UTF8 is needed",
            STR_ARGS(server->encoding));
    }
    if (!selftest_is(server->fsync, "on")) {
        return selftest_refuse(
            why, size,
            "fsync is off: a crash of the server would lose events that "
            "were answered as accepted");
    }
    if (!selftest_is(server->full_page_writes, "on")) {
        return selftest_refuse(
            why, size,
            "full_page_writes is off: a crash of the server could "
            "damage committed data");
    }
    if (!selftest_is(server->synchronous_commit, "on") &&
        !selftest_is(server->synchronous_commit, "remote_apply")) {
        return selftest_refuse(
            why, size,
            "synchronous_commit is %.*s: accepted would not mean "
            "durable; on and remote_apply are fine (ALTER ROLE %.*s SET "
            "synchronous_commit = on)",
            STR_ARGS(server->synchronous_commit),
            STR_ARGS(server->session_role));
    }
    if (server->session_superuser || server->current_superuser) {
        return selftest_refuse(
            why, size,
            "the role %.*s is a superuser or can become one; meterd "
            "never works as a superuser",
            STR_ARGS(server->session_role));
    }
    if (server->current_bypassrls &&
        !selftest_is(server->current_role, STORE_ROLE_WRITER)) {
        return selftest_refuse(
            why, size,
            "the role %.*s has BYPASSRLS and could read every tenant's "
            "rows; only " STORE_ROLE_WRITER " may have it",
            STR_ARGS(server->current_role));
    }
    if (server->in_recovery) {
        snprintf(why, size, "the server is a standby in recovery");
        return SELFTEST_AWAY;
    }
    return SELFTEST_OK;
}


static enum selftest_verdict
selftest_judge_version(int32_t version, char *why, size_t size)
{
    if (version < SCHEMA_VERSION_MIN) {
        return selftest_refuse(
            why, size,
            "the database's schema is version %d, this meterd needs %d; "
            "run `meterd migrate`",
            (int)version, SCHEMA_VERSION_MIN);
    }
    if (version > SCHEMA_VERSION_MAX) {
        return selftest_refuse(
            why, size,
            "the database's schema is version %d, this meterd knows up "
            "to %d; use the newer meterd",
            (int)version, SCHEMA_VERSION_MAX);
    }
    return SELFTEST_OK;
}


static enum selftest_verdict
judge_server(const void *result, char *why, size_t size)
{
    if (pg_row_count(result) != 1) {
        return selftest_refuse(why, size,
                               "the current role is not in pg_roles");
    }

    struct selftest_server server = {
        .version = pg_get_int4(result, 0, 0),
        .fsync = pg_get_bytes(result, 0, 1),
        .full_page_writes = pg_get_bytes(result, 0, 2),
        .synchronous_commit = pg_get_bytes(result, 0, 3),
        .in_recovery = pg_get_bool(result, 0, 4),
        .session_role = pg_get_bytes(result, 0, 5),
        .session_superuser = pg_get_bool(result, 0, 6),
        .current_role = pg_get_bytes(result, 0, 7),
        .current_superuser = pg_get_bool(result, 0, 8),
        .current_bypassrls = pg_get_bool(result, 0, 9),
        .encoding = pg_get_bytes(result, 0, 10),
    };

    return selftest_judge_server(&server, why, size);
}


static enum selftest_verdict
judge_reader(const void *result, char *why, size_t size)
{
    if (pg_row_count(result) == 0) {
        return SELFTEST_OK;
    }

    struct meter_str relation = pg_get_bytes(result, 0, 0);
    struct meter_str reason = pg_get_bytes(result, 0, 1);

    return selftest_refuse(why, size,
                           STORE_ROLE_READER
                           " could read past row-level security: %.*s "
                           "%.*s",
                           STR_ARGS(relation), STR_ARGS(reason));
}


static enum selftest_verdict
judge_schema(const void *result, char *why, size_t size)
{
    return selftest_judge_version(pg_get_int4(result, 0, 0), why, size);
}


const struct selftest_step selftest_steps[] = {
    {STATEMENT_SESSION_LOOK, NULL, NULL},
    {STATEMENT_SELFTEST_SERVER, NULL, judge_server},
    {STATEMENT_SCHEMA_VERSION, NULL, judge_schema},
    {STATEMENT_SELFTEST_READER, STORE_ROLE_READER, judge_reader},
    {STATEMENT_SELFTEST_PIN, NULL, NULL},
};
const size_t selftest_steps_count =
    sizeof(selftest_steps) / sizeof(selftest_steps[0]);


enum selftest_verdict
selftest_judge(const struct selftest_step *step, const char *mark,
               const struct pg_answer *answer, char *why, size_t size)
{
    if (answer->outcome != PG_OUTCOME_OK) {
        return selftest_judge_error(answer, why, size);
    }
    if (step != NULL && step->statement == STATEMENT_SESSION_LOOK) {
        return selftest_judge_session(mark, answer->result, why, size);
    }
    return step == NULL || step->judge == NULL
               ? SELFTEST_OK
               : step->judge(answer->result, why, size);
}
