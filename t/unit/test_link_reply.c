/*
 * test_link_reply.c - what meterd says to a ring.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "edge/link.c"

static void
reply__more_codes_than_a_frame_holds__several_results(void **state)
{
    struct link_ring to = {.tag = 5, .version = 1};
    struct meter_result result = {.durable_upto = 20000, .first_seq = 8000};
    size_t at = 0, seen = 0;
    struct buf out;

    (void)state;
    buf_init(&out, 1u << 20);
    result.codes = (struct meter_str){calloc(1, 12000), 12000};
    assert_non_null(result.codes.data);
    link_put_result(&out, &to, &result);
    assert_false(out.failed);
    while (at < out.size) {
        enum meter_frame_error error;
        struct meter_result part;
        struct meter_frame frame;
        size_t used, need;

        assert_int_equal(meter_frame_decode(out.data + at, out.size - at,
                                            &frame, &used, &need, &error),
                         METER_DECODE_OK);
        assert_int_equal(frame.type, METER_FRAME_RESULT);
        assert_int_equal(frame.session_tag, 5);
        assert_true(meter_result_decode(frame.payload, &part));
        assert_int_equal(part.durable_upto, 20000);
        assert_int_equal(part.first_seq, 8000 + seen);
        assert_int_equal(frame.seq, part.first_seq);
        assert_int_equal(frame.count, part.codes.size);
        seen += part.codes.size;
        at += used;
    }
    assert_int_equal(seen, 12000);
    free((void *)(uintptr_t)result.codes.data);
    buf_fini(&out);
}

static void
reply__tag__first_eight_bytes_little_endian(void **state)
{
    const uint8_t session[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

    (void)state;
    assert_true(link_tag(session) == 0x0807060504030201ull);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reply__more_codes_than_a_frame_holds__several_results),
        cmocka_unit_test(reply__tag__first_eight_bytes_little_endian),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
