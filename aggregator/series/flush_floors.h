/*
 * flush_floors.h - from where on each level is kept, for a flush.
 */

#ifndef SERIES_FLUSH_FLOORS_H
#define SERIES_FLUSH_FLOORS_H

#include "base/check.h"
#include "meter_level.h"

/* From where on the levels are kept; none is less than the one above. */
struct flush_floors {
    int64_t from_us[METER_LEVEL_COUNT];
};

/* The lowest level that has the bucket; METER_LEVEL_COUNT: none. */
enum meter_level
flush_floors_level(const struct flush_floors *floors, int64_t bucket_us);

/* Of the rows (parent, floor). False: one is missing. */
MUST_CHECK bool flush_floors_read(const void *result, struct flush_floors *out);

#endif
