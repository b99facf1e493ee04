/*
 * meter_level.h - the five levels of series, and their buckets.
 *
 *   5s -> 1m -> 1h -> 1d -> 7d
 *
 * Buckets of 7d start on Monday 00:00 UTC, all others are aligned to the
 * epoch, which is the same as to any midnight. Instants before 1970 round
 * down as well. The twin of meter.series_bucket in SQL.
 */

#ifndef METER_LEVEL_H
#define METER_LEVEL_H

#include "meter_time.h"

enum meter_level {
    METER_LEVEL_5S,
    METER_LEVEL_1M,
    METER_LEVEL_1H,
    METER_LEVEL_1D,
    METER_LEVEL_7D,
    METER_LEVEL_COUNT
};

/* Monday 1970-01-05: where buckets of 7d count from. */
#define METER_LEVEL_MONDAY_US (4 * METER_TIME_DAY)

/* "5s", "1m", "1h", "1d", "7d". */
const char *meter_level_name(enum meter_level level);
/* False: no such level. */
METER_MUST_CHECK bool
meter_level_parse(struct meter_str name, enum meter_level *out);

int64_t meter_level_size_us(enum meter_level level);
/* Start of the bucket that holds the instant. */
int64_t meter_level_bucket(enum meter_level level, int64_t ts_us);

#endif
