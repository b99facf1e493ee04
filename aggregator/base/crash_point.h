/*
 * crash_point.h - named places where a test may let the process die.
 *
 *   METERD_CRASH_POINT=after_ledger:3 meterd ...
 *
 * kills the process with SIGKILL when it comes to that place for the third
 * time (without a number: the first). Always compiled in, so that what is
 * tested is what is shipped; without the variable a point costs one load
 * and a branch.
 */

#ifndef BASE_CRASH_POINT_H
#define BASE_CRASH_POINT_H

#include <stdbool.h>

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
