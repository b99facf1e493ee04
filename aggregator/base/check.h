/*
 * check.h - assertions that stay on in production, and crash points.
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

/*
 * Named places where a test may let the process die.
 *
 *   METERD_CRASH_POINT=after_ledger:3 meterd ...
 *
 * kills the process with SIGKILL when it comes to that place for the third
 * time (without a number: the first). Always compiled in, so that what is
 * tested is what is shipped; without the variable a point costs one load
 * and a branch.
 */
extern bool crash_point_armed;

/* Dies here when `name` is the armed point and this is its hit. */
void crash_point_reached(const char *name);

#define CRASH_POINT(name)              \
    do {                               \
        if (crash_point_armed) {       \
            crash_point_reached(name); \
        }                              \
    } while (0)

#endif
