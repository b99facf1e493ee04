#include "meter_cmocka.h"


static void
verdict_name__every_verdict__has_its_api_word(void **state)
{
    (void)state;
    assert_string_equal(meter_verdict_name(METER_VERDICT_ACCEPTED), "accepted");
    assert_string_equal(meter_verdict_name(METER_VERDICT_DUPLICATE),
                        "duplicate");
    assert_string_equal(meter_verdict_name(METER_VERDICT_CONFLICT), "conflict");
    assert_string_equal(meter_verdict_name(METER_VERDICT_REJECTED), "rejected");
}


static void
verdict_name__no_verdict__is_a_question_mark(void **state)
{
    (void)state;
    assert_string_equal(meter_verdict_name(METER_VERDICT_COUNT), "?");
    assert_string_equal(meter_verdict_name((enum meter_verdict) - 1), "?");
}


static void
str_compare__prefixes_and_high_bytes__is_bytewise(void **state)
{
    (void)state;
    assert_true(meter_str_compare(METER_STR("a"), METER_STR("b")) < 0);
    assert_true(meter_str_compare(METER_STR("b"), METER_STR("a")) > 0);
    assert_true(meter_str_compare(METER_STR("a"), METER_STR("aa")) < 0);
    assert_true(meter_str_compare(METER_STR("aa"), METER_STR("a")) > 0);
    assert_true(meter_str_compare(METER_STR("z"), METER_STR("\xc3\xa4")) < 0);
    assert_int_equal(meter_str_compare(METER_STR("ab"), METER_STR("ab")), 0);
    assert_int_equal(
        meter_str_compare((struct meter_str){NULL, 0}, METER_STR("")), 0);
    assert_true(meter_str_compare((struct meter_str){NULL, 0}, METER_STR("a")) <
                0);
}


static void
str_equal__null_and_empty__are_equal(void **state)
{
    (void)state;
    assert_true(meter_str_equal((struct meter_str){NULL, 0}, METER_STR("")));
    assert_false(meter_str_equal(METER_STR("a"), METER_STR("b")));
    assert_false(meter_str_equal(METER_STR("a"), METER_STR("ab")));
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(verdict_name__every_verdict__has_its_api_word),
    cmocka_unit_test(verdict_name__no_verdict__is_a_question_mark),
    cmocka_unit_test(str_compare__prefixes_and_high_bytes__is_bytewise),
    cmocka_unit_test(str_equal__null_and_empty__are_equal),
};

RUN_TAP(tests)
