/*
 * meter_level.c - levels and buckets, see meter_level.h.
 */

#include "meter_level.h"

static const struct {
    struct meter_str name;
    int64_t size_us;
    int64_t origin_us;
} levels[METER_LEVEL_COUNT] = {
    [METER_LEVEL_5S] = {METER_STR("5s"), 5 * METER_TIME_SECOND, 0},
    [METER_LEVEL_1M] = {METER_STR("1m"), METER_TIME_MINUTE, 0},
    [METER_LEVEL_1H] = {METER_STR("1h"), METER_TIME_HOUR, 0},
    [METER_LEVEL_1D] = {METER_STR("1d"), METER_TIME_DAY, 0},
    [METER_LEVEL_7D] = {METER_STR("7d"), 7 * METER_TIME_DAY,
                        METER_LEVEL_MONDAY_US},
};

const char *
meter_level_name(enum meter_level level)
{
    return levels[level].name.data;
}

bool
meter_level_parse(struct meter_str name, enum meter_level *out)
{
    for (size_t i = 0; i < METER_LEVEL_COUNT; i++) {
        if (meter_str_equal(name, levels[i].name)) {
            *out = (enum meter_level)i;
            return true;
        }
    }
    return false;
}

int64_t
meter_level_size_us(enum meter_level level)
{
    return levels[level].size_us;
}

int64_t
meter_level_bucket(enum meter_level level, int64_t ts_us)
{
    int64_t origin_us = levels[level].origin_us;

    return meter_time_bucket(ts_us - origin_us, levels[level].size_us) +
           origin_us;
}
