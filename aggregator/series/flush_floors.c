/*
 * flush_floors.c - from where on each level is kept, for a flush.
 */

#include "series/flush_floors.h"

#include "store/partition.h"

enum meter_level
flush_floors_level(const struct flush_floors *floors, int64_t bucket_us)
{
    enum meter_level level = METER_LEVEL_1M;

    if (bucket_us >= floors->from_us[METER_LEVEL_5S]) {
        return METER_LEVEL_5S;
    }
    while (level < METER_LEVEL_COUNT &&
           meter_level_bucket(level, bucket_us) < floors->from_us[level]) {
        level++;
    }
    return level;
}

bool
flush_floors_read(const void *result, struct flush_floors *out)
{
    size_t found = 0;

    for (int row = 0; row < pg_row_count(result); row++) {
        struct meter_str name = pg_get_bytes(result, row, 0);

        for (int level = 0; level < METER_LEVEL_COUNT; level++) {
            const char *parent =
                partition_parent_name(PARTITION_SERIES + level);

            if (meter_str_equal(name,
                                (struct meter_str){parent, strlen(parent)})) {
                out->from_us[level] =
                    (int64_t)pg_get_date(result, row, 1) * METER_TIME_DAY;
                found++;
            }
        }
    }
    return found == METER_LEVEL_COUNT;
}
