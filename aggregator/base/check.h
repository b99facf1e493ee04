/*
 * check.h - assertions that stay on in production.
 *
 * CHECK is for what can only be false through a bug: print, then abort, so
 * that no wrong number is ever committed. Bytes from outside are tested
 * with `if`.
 */

#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include "meter_types.h"

#define MUST_CHECK METER_MUST_CHECK

__attribute__((noreturn)) void
check_failed(const char *condition, const char *file, int line);

#define CHECK(condition) \
    ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))

#endif
