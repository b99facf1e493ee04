/*
 * meter_crash.h - named points where a test may kill the process.
 *
 * The hook is NULL outside of tests; then a point costs one load. Names are
 * listed in docs/guarantees.md; the torture tests sweep them.
 */

#ifndef METER_CRASH_H
#define METER_CRASH_H

#include <stddef.h>

extern void (*meter_crash_hook)(const char *name);
extern const char *const meter_crash_names[]; /* NULL behind the last */

#define METER_CRASH_POINT(name)                              \
    do {                                                     \
        if (__builtin_expect(meter_crash_hook != NULL, 0)) { \
            meter_crash_hook(name);                          \
        }                                                    \
    } while (0)

#endif
