/*
 * clock.h - the two clocks. Intervals by the monotonic one; wall time is
 * for log lines only, since decisions use the database's clock.
 */

#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_mono_ms(void);
uint64_t clock_mono_us(void);
/* Monotonic, and goes on while the machine sleeps. */
uint64_t clock_boot_us(void);
int64_t clock_wall_us(void);

#endif
