/*
 * meter_cmocka.h - what every unit test of shared/ includes.
 */

#ifndef METER_CMOCKA_H
#define METER_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "meter_digest.h"
#include "meter_types.h"

static inline struct meter_str
str_of(const char *text)
{
    return (struct meter_str){text, strlen(text)};
}

/* Fails with both sides in hexadecimal. */
#define assert_hex_equal(data, size, expected) \
    do {                                       \
        char *hex_ = malloc(2 * (size) + 1);   \
        meter_hex((data), (size), hex_);       \
        assert_string_equal(hex_, (expected)); \
        free(hex_);                            \
    } while (0)

#define RUN_TAP(tests)                                    \
    int main(void)                                        \
    {                                                     \
        cmocka_set_message_output(CM_OUTPUT_TAP);         \
        return cmocka_run_group_tests(tests, NULL, NULL); \
    }

#endif
