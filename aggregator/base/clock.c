/*
 * clock.c - reads CLOCK_MONOTONIC, CLOCK_BOOTTIME and CLOCK_REALTIME.
 */

#include "base/clock.h"

#include <time.h>

static uint64_t
clock_read_us(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

uint64_t
clock_mono_us(void)
{
    return clock_read_us(CLOCK_MONOTONIC);
}

uint64_t
clock_boot_us(void)
{
    return clock_read_us(CLOCK_BOOTTIME);
}

uint64_t
clock_mono_ms(void)
{
    return clock_mono_us() / 1000;
}

int64_t
clock_wall_us(void)
{
    return (int64_t)clock_read_us(CLOCK_REALTIME);
}
