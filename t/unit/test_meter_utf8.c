/* meter_utf8_valid() against an encoder and a decoder of its own. */

#include "meter_cmocka.h"

#include "meter_event.h"
#include "meter_random.h"


static size_t
utf8_put(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}


static void
utf8__every_code_point__valid_but_nul_and_surrogates(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x120000; code++) {
        char text[4];
        size_t size = utf8_put(text, code);
        bool expected = code != 0 && !(code >= 0xd800 && code <= 0xdfff) &&
                        code <= 0x10ffff;

        if (meter_utf8_valid((struct meter_str){text, size}) != expected) {
            fail_msg("U+%04X", code);
        }
        /* Cut short it is never valid. */
        for (size_t cut = 1; cut < size; cut++) {
            assert_false(meter_utf8_valid((struct meter_str){text, cut}));
        }
    }
}


/* Decodes and encodes again: valid when the bytes are the same. */
static bool
utf8_reference(const uint8_t *at, size_t left)
{
    while (left > 0) {
        int size = at[0] < 0x80   ? 1
                   : at[0] < 0xc0 ? 0
                   : at[0] < 0xe0 ? 2
                   : at[0] < 0xf0 ? 3
                   : at[0] < 0xf8 ? 4
                                  : 0;
        uint32_t code;
        char again[4];

        if (size == 0 || (size_t)size > left) {
            return false;
        }
        code = size == 1 ? at[0] : at[0] & (0x7fu >> size);
        for (int i = 1; i < size; i++) {
            if (at[i] < 0x80 || at[i] > 0xbf) {
                return false;
            }
            code = code << 6 | (at[i] & 0x3f);
        }
        if (code == 0 || code > 0x10ffff ||
            (code >= 0xd800 && code <= 0xdfff) ||
            utf8_put(again, code) != (size_t)size) {
            return false;
        }
        at += size;
        left -= (size_t)size;
    }
    return true;
}


static void
utf8__three_byte_strings__match_the_reference(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 1u << 24; i += i < 0x800000 ? 257 : 1) {
        uint8_t bytes[3] = {(uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i};

        if (meter_utf8_valid((struct meter_str){(char *)bytes, 3}) !=
            utf8_reference(bytes, 3)) {
            fail_msg("%06x", i);
        }
    }
}


static void
utf8__random_long_text_with_one_bad_byte__is_found(void **state)
{
    struct meter_random random = {12};

    (void)state;
    for (int round = 0; round < 100000; round++) {
        uint8_t text[80];
        size_t size = 0, limit = 1 + random_below(&random, 70);

        while (size < limit) {
            uint32_t code = random_below(&random, 3) != 0
                                ? 1 + (uint32_t)random_below(&random, 127)
                                : 1 + (uint32_t)random_below(&random, 0xd7fe);

            size += utf8_put((char *)text + size, code);
        }
        assert_true(meter_utf8_valid((struct meter_str){(char *)text, size}));
        text[random_below(&random, size)] =
            (uint8_t)(random_below(&random, 2) * random_u64(&random));
        assert_int_equal(
            meter_utf8_valid((struct meter_str){(char *)text, size}),
            utf8_reference(text, size));
    }
    assert_true(meter_utf8_valid((struct meter_str){NULL, 0}));
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(utf8__every_code_point__valid_but_nul_and_surrogates),
    cmocka_unit_test(utf8__three_byte_strings__match_the_reference),
    cmocka_unit_test(utf8__random_long_text_with_one_bad_byte__is_found),
};

RUN_TAP(tests)
