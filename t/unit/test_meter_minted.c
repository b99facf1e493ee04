/* The id an edge mints for an event that came without one. */

#include "meter_cmocka.h"

#include "meter_event.h"
#include "meter_time.h"

#define TS INT64_C(1788264000123456) /* 2026-09-01T12:00:00.123456Z */


static void
mint__extremes__come_back(void **state)
{
    static const uint64_t seqs[] = {0, 1, 9, 10, 123456789, UINT64_MAX};
    static const int64_t times[] = {
        0, 1, -1, TS, METER_TIME_MIN, METER_TIME_MAX, INT64_MIN, INT64_MAX};
    uint8_t session[16];

    (void)state;
    for (int i = 0; i < 16; i++) {
        session[i] = (uint8_t)(0xf0 + i);
    }
    for (size_t i = 0; i < sizeof(seqs) / sizeof(seqs[0]); i++) {
        for (size_t j = 0; j < sizeof(times) / sizeof(times[0]); j++) {
            char id[METER_MINTED_ID_SIZE_MAX + 1];
            uint8_t session_back[16];
            uint64_t seq;
            int64_t ts_us;
            size_t size = meter_event_mint_id(session, seqs[i], times[j], id);

            assert_int_equal(size, strlen(id));
            assert_true(size <= METER_MINTED_ID_SIZE_MAX);
            assert_true(meter_event_minted_parse((struct meter_str){id, size},
                                                 session_back, &seq, &ts_us));
            assert_memory_equal(session, session_back, 16);
            assert_true(seq == seqs[i]);
            assert_true(ts_us == times[j]);
        }
    }
}


static void
mint__known_parts__is_the_documented_form(void **state)
{
    uint8_t session[16] = {0xab, 0, 1};
    char id[METER_MINTED_ID_SIZE_MAX + 1];

    (void)state;
    meter_event_mint_id(session, 42, TS, id);
    assert_string_equal(
        id, "edge-ab000100000000000000000000000000-42-1788264000123456");
}


static void
minted_parse__other_text__is_refused(void **state)
{
#define S "edge-ab000100000000000000000000000000"
    static const char *const cases[] = {
        "",
        "edge-",
        "order-1",
        S,
        S "-",
        S "-1",
        S "-1-",
        S "--5",
        S "-1--",
        S "-1---5",
        S "-1-+5",
        S "-01-5",
        S "-1-05",
        S "-1--0",
        S "-1--05",
        S "-1-5 ",
        S "-1-5-5",
        S "-1-5x",
        S "-x-5",
        S "-18446744073709551616-5",
        S "-1-9223372036854775808",
        S "-1--9223372036854775809",
        S "-1-99999999999999999999999999",
        S "_1-5",
        "Edge-ab000100000000000000000000000000-1-5",
        "edge-AB000100000000000000000000000000-1-5",
        "edge-ab00010000000000000000000000000-1-5",
        "edge-ab0001000000000000000000000000000-1-5",
        "edge_ab000100000000000000000000000000-1-5",
        " " S "-1-5",
    };
#undef S
    uint8_t session[16];
    uint64_t seq;
    int64_t ts_us;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (meter_event_minted_parse(str_of(cases[i]), session, &seq, &ts_us)) {
            fail_msg("accepted: %s", cases[i]);
        }
    }
    assert_false(meter_event_minted_parse((struct meter_str){NULL, 0}, session,
                                          &seq, &ts_us));
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(mint__extremes__come_back),
    cmocka_unit_test(mint__known_parts__is_the_documented_form),
    cmocka_unit_test(minted_parse__other_text__is_refused),
};

RUN_TAP(tests)
