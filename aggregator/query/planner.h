/*
 * planner.h - which level answers which windows. Pure.
 *
 *   interval -> [planner] -> level, origin of windows
 *   bounds of windows in a time zone -> [planner] -> level
 *
 * The level is the largest one whose buckets fill the windows exactly: 90s
 * is built from 5s, 9d from 1d, 14d from 7d. Windows that are multiples of
 * 7d count from Monday 1970-01-05, all others from 1970-01-01.
 */

#ifndef QUERY_PLANNER_H
#define QUERY_PLANNER_H

#include "base/check.h"
#include "meter_level.h"

/* Intervals are multiples of the finest level. */
#define PLANNER_STEP_US (5 * METER_TIME_SECOND)

/* interval_us: a positive multiple of PLANNER_STEP_US. */
enum meter_level planner_level(int64_t interval_us);
/* An instant at which a window starts. */
int64_t planner_origin(int64_t interval_us);

/*
 * The largest level on which all bounds lie. False: some bound lies on none,
 * as those of offsets with odd seconds do.
 */
MUST_CHECK bool
planner_level_of(const int64_t *bounds_us, size_t count, enum meter_level *out);

/*
 * The finest level that is still kept for all of [from, ...). False: none
 * is. floors_us: from where on each is.
 */
MUST_CHECK bool planner_finest_kept(const int64_t floors_us[METER_LEVEL_COUNT],
                                    int64_t from_us, enum meter_level *out);
/* Of one level: the bucket that holds from is. */
bool planner_is_kept(const int64_t floors_us[METER_LEVEL_COUNT],
                     int64_t from_us, enum meter_level level);

#endif
