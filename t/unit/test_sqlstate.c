#include "meter_cmocka.h"

#include "pg/sqlstate.h"

struct row {
    const char *sqlstate;
    enum sqlstate_kind kind;
};


static void
expect(const struct row *rows, size_t count, bool has_constraint)
{
    for (size_t i = 0; i < count; i++) {
        enum sqlstate_kind kind =
            sqlstate_classify(rows[i].sqlstate, has_constraint);

        if (kind != rows[i].kind) {
            fail_msg("%s is %s", rows[i].sqlstate, sqlstate_kind_name(kind));
        }
    }
}

#define EXPECT(rows, has_constraint) \
    expect(rows, sizeof(rows) / sizeof(rows[0]), has_constraint)


static void
classify__codes_that_blame_the_data__are_data(void **state)
{
    static const struct row rows[] = {
        {"22003", SQL_DATA}, {"22021", SQL_DATA}, {"22P04", SQL_DATA},
        {"22001", SQL_DATA}, {"23502", SQL_DATA}, {"23503", SQL_DATA},
        {"23514", SQL_DATA}, {"54000", SQL_DATA},
    };

    (void)state;
    EXPECT(rows, true);
}


static void
classify__check_violation_without_constraint__is_no_partition(void **state)
{
    (void)state;
    assert_int_equal(sqlstate_classify("23514", false), SQL_NO_PARTITION);
    assert_int_equal(sqlstate_classify("23514", true), SQL_DATA);
}


static void
classify__unique__is_unique_whatever_the_constraint(void **state)
{
    (void)state;
    assert_int_equal(sqlstate_classify("23505", true), SQL_UNIQUE);
    assert_int_equal(sqlstate_classify("23505", false), SQL_UNIQUE);
}


static void
classify__lost_races__are_run_again(void **state)
{
    static const struct row rows[] = {
        {"40001", SQL_RETRY},
        {"40P01", SQL_RETRY},
        {"55P03", SQL_RETRY},
    };

    (void)state;
    EXPECT(rows, false);
}


/* A distributed database hides other causes behind these. */
static void
classify__internal_and_system_errors__never_blame_the_data(void **state)
{
    static const struct row rows[] = {
        {"XX000", SQL_REDO_CAREFUL}, {"XX001", SQL_REDO_CAREFUL},
        {"58030", SQL_REDO_CAREFUL}, {"58P01", SQL_REDO_CAREFUL},
        {"58000", SQL_REDO_CAREFUL},
    };

    (void)state;
    EXPECT(rows, false);
    EXPECT(rows, true);
}


static void
classify__the_server_s_own_trouble__keeps_the_batch(void **state)
{
    static const struct row rows[] = {
        {"08006", SQL_AWAY}, {"08007", SQL_AWAY}, {"08P01", SQL_AWAY},
        {"25006", SQL_AWAY}, {"25P02", SQL_AWAY}, {"25P03", SQL_AWAY},
        {"53100", SQL_AWAY}, {"53200", SQL_AWAY}, {"53300", SQL_AWAY},
        {"57014", SQL_AWAY}, {"57P01", SQL_AWAY}, {"57P03", SQL_AWAY},
        {"26000", SQL_AWAY}, {"0A000", SQL_AWAY}, {"40003", SQL_AWAY},
        {"55006", SQL_AWAY},
    };

    (void)state;
    EXPECT(rows, false);
}


static void
classify__wrong_statements_and_grants__are_bugs(void **state)
{
    static const struct row rows[] = {
        {"42501", SQL_BUG}, {"42601", SQL_BUG}, {"42P01", SQL_BUG},
        {"21000", SQL_BUG}, {"P0001", SQL_BUG},
    };

    (void)state;
    EXPECT(rows, false);
}


static void
classify__no_code__keeps_the_batch(void **state)
{
    static const struct row rows[] = {
        {NULL, SQL_AWAY},
        {"", SQL_AWAY},
        {"2300", SQL_AWAY},
        {"235050", SQL_AWAY},
    };

    (void)state;
    EXPECT(rows, false);
}


static void
kind_name__every_kind__has_one(void **state)
{
    (void)state;
    for (int kind = SQL_UNIQUE; kind <= SQL_BUG; kind++) {
        assert_non_null(sqlstate_kind_name(kind));
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(classify__codes_that_blame_the_data__are_data),
    cmocka_unit_test(
        classify__check_violation_without_constraint__is_no_partition),
    cmocka_unit_test(classify__unique__is_unique_whatever_the_constraint),
    cmocka_unit_test(classify__lost_races__are_run_again),
    cmocka_unit_test(
        classify__internal_and_system_errors__never_blame_the_data),
    cmocka_unit_test(classify__the_server_s_own_trouble__keeps_the_batch),
    cmocka_unit_test(classify__wrong_statements_and_grants__are_bugs),
    cmocka_unit_test(classify__no_code__keeps_the_batch),
    cmocka_unit_test(kind_name__every_kind__has_one),
};

RUN_TAP(tests)
