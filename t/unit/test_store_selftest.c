#include "meter_cmocka.h"

#include "pg/selftest.c"
#include "store/migrate.h"


static struct selftest_server
good(void)
{
    return (struct selftest_server){
        .version = 150004,
        .fsync = METER_STR("on"),
        .full_page_writes = METER_STR("on"),
        .synchronous_commit = METER_STR("on"),
        .session_role = METER_STR("meterd"),
        .current_role = METER_STR("meter_writer"),
        .current_bypassrls = true,
        .encoding = METER_STR("UTF8"),
    };
}


static void
expect(const struct selftest_server *server, enum selftest_verdict verdict,
       const char *part)
{
    char why[256] = "";

    assert_int_equal(selftest_judge_server(server, why, sizeof(why)), verdict);
    if (strstr(why, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", why, part);
    }
}


static void
server__safe__passes(void **state)
{
    struct selftest_server server = good();

    (void)state;
    expect(&server, SELFTEST_OK, "");
    server.synchronous_commit = METER_STR("remote_apply");
    expect(&server, SELFTEST_OK, "");
    server.current_role = METER_STR("meter_reader");
    server.current_bypassrls = false;
    expect(&server, SELFTEST_OK, "");
}


static void
server__not_durable__is_refused(void **state)
{
    static const char *const weak[] = {"off", "local", "remote_write", ""};
    struct selftest_server server = good();

    (void)state;
    server.fsync = METER_STR("off");
    expect(&server, SELFTEST_REFUSED, "fsync is off");
    server = good();
    server.full_page_writes = METER_STR("off");
    expect(&server, SELFTEST_REFUSED, "full_page_writes is off");
    server = good();
    for (size_t i = 0; i < sizeof(weak) / sizeof(weak[0]); i++) {
        server.synchronous_commit = str_of(weak[i]);
        expect(&server, SELFTEST_REFUSED, "on and remote_apply are fine");
    }
}


static void
server__role_with_too_much_power__is_refused(void **state)
{
    struct selftest_server server = good();

    (void)state;
    server.session_superuser = true;
    expect(&server, SELFTEST_REFUSED, "superuser");
    server = good();
    server.current_superuser = true;
    expect(&server, SELFTEST_REFUSED, "superuser");
    server = good();
    server.current_role = METER_STR("meter_reader");
    expect(&server, SELFTEST_REFUSED, "BYPASSRLS");
}


static void
server__old_or_other_encoding__is_refused(void **state)
{
    struct selftest_server server = good();

    (void)state;
    server.version = 140010;
    expect(&server, SELFTEST_REFUSED, "PostgreSQL 14 is too old");
    server = good();
    server.encoding = METER_STR("SQL_ASCII");
    expect(&server, SELFTEST_REFUSED, "UTF8 is needed");
}


/* A standby may be promoted: wait, do not stop. */
static void
server__in_recovery__is_away(void **state)
{
    struct selftest_server server = good();

    (void)state;
    server.in_recovery = true;
    expect(&server, SELFTEST_AWAY, "standby");
}


static void
version__outside_the_range__is_refused(void **state)
{
    char why[256];

    (void)state;
    assert_int_equal(
        selftest_judge_version(SCHEMA_VERSION_MIN - 1, why, sizeof(why)),
        SELFTEST_REFUSED);
    assert_non_null(strstr(why, "meterd migrate"));
    assert_int_equal(
        selftest_judge_version(SCHEMA_VERSION_MAX + 1, why, sizeof(why)),
        SELFTEST_REFUSED);
    assert_non_null(strstr(why, "newer meterd"));
    assert_int_equal(
        selftest_judge_version(SCHEMA_VERSION_MIN, why, sizeof(why)),
        SELFTEST_OK);
    assert_int_equal(
        selftest_judge_version(SCHEMA_VERSION_MAX, why, sizeof(why)),
        SELFTEST_OK);
}


/* The newest migration of this program is one that it can work with. */
static void
version__newest_migration__is_in_the_range(void **state)
{
    (void)state;
    assert_true(migrations_count > 0);
    assert_int_equal(migrations[migrations_count - 1].number,
                     SCHEMA_VERSION_MAX);
}


static void
error__missing_schema_or_right__is_refused_else_away(void **state)
{
    static const struct {
        const char *sqlstate;
        enum selftest_verdict verdict;
    } rows[] = {
        {"42P01", SELFTEST_REFUSED}, {"3F000", SELFTEST_REFUSED},
        {"42501", SELFTEST_REFUSED}, {"42P05", SELFTEST_REFUSED},
        {"26000", SELFTEST_REFUSED}, {"57P03", SELFTEST_AWAY},
        {"53300", SELFTEST_AWAY},    {"57014", SELFTEST_AWAY},
    };
    char why[256];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct pg_answer answer = {
            .outcome = PG_OUTCOME_ERROR,
            .message = "it said so",
        };

        memcpy(answer.sqlstate, rows[i].sqlstate, sizeof(answer.sqlstate));
        assert_int_equal(selftest_judge_error(&answer, why, sizeof(why)),
                         rows[i].verdict);
        assert_non_null(strstr(why, "it said so"));
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(server__safe__passes),
    cmocka_unit_test(server__not_durable__is_refused),
    cmocka_unit_test(server__role_with_too_much_power__is_refused),
    cmocka_unit_test(server__old_or_other_encoding__is_refused),
    cmocka_unit_test(server__in_recovery__is_away),
    cmocka_unit_test(version__outside_the_range__is_refused),
    cmocka_unit_test(version__newest_migration__is_in_the_range),
    cmocka_unit_test(error__missing_schema_or_right__is_refused_else_away),
};

RUN_TAP(tests)
