/*
 * planner.c - see planner.h.
 */

#include "query/planner.h"

enum meter_level
planner_level(int64_t interval_us)
{
    int level = METER_LEVEL_COUNT - 1;

    CHECK(interval_us > 0 && interval_us % PLANNER_STEP_US == 0);
    /* Windows start on buckets of any level that divides the interval. */
    while (interval_us % meter_level_size_us((enum meter_level)level) != 0) {
        level--;
    }
    return (enum meter_level)level;
}

int64_t
planner_origin(int64_t interval_us)
{
    return interval_us % (7 * METER_TIME_DAY) == 0 ? METER_LEVEL_MONDAY_US : 0;
}

static bool
level_holds(enum meter_level level, const int64_t *bounds_us, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (meter_level_bucket(level, bounds_us[i]) != bounds_us[i]) {
            return false;
        }
    }
    return true;
}

bool
planner_level_of(const int64_t *bounds_us, size_t count, enum meter_level *out)
{
    for (int level = METER_LEVEL_COUNT - 1; level >= 0; level--) {
        if (level_holds((enum meter_level)level, bounds_us, count)) {
            *out = (enum meter_level)level;
            return true;
        }
    }
    return false;
}

bool
planner_is_kept(const int64_t floors_us[METER_LEVEL_COUNT], int64_t from_us,
                enum meter_level level)
{
    return meter_level_bucket(level, from_us) >= floors_us[level];
}

bool
planner_finest_kept(const int64_t floors_us[METER_LEVEL_COUNT], int64_t from_us,
                    enum meter_level *out)
{
    for (int level = 0; level < METER_LEVEL_COUNT; level++) {
        if (planner_is_kept(floors_us, from_us, (enum meter_level)level)) {
            *out = (enum meter_level)level;
            return true;
        }
    }
    return false;
}
