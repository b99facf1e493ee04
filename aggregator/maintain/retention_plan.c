/*
 * retention_plan.c - see retention_plan.h.
 */

#include "maintain/retention_plan.h"

#define DOUBT_US METER_TIME_DAY

const enum partition_parent retention_order[PARTITION_PARENTS] = {
    PARTITION_SERIES + METER_LEVEL_5S,
    PARTITION_SERIES + METER_LEVEL_1M,
    PARTITION_SERIES + METER_LEVEL_1H,
    PARTITION_SERIES + METER_LEVEL_1D,
    PARTITION_SERIES + METER_LEVEL_7D,
    PARTITION_INDEX,
    PARTITION_AUDIT,
    PARTITION_EVENT,
};

int
retention_plan_days(int configured, int kept, bool is_forced, bool *is_waiting)
{
    bool is_shorter = configured >= 0 && (kept < 0 || kept > configured);

    *is_waiting = kept != RETENTION_NO_DAYS && !is_forced && is_shorter;
    return *is_waiting ? kept : configured;
}

int32_t
retention_plan_floor(enum partition_parent parent,
                     const struct retention_plan *plan, int64_t now_us)
{
    int32_t floor;

    if (plan->days < 0) {
        return plan->stored;
    }
    floor = meter_time_day(now_us) - plan->days;
    if (floor > plan->ceiling) {
        floor = plan->ceiling;
    }
    floor = partition_first_day(parent, floor);
    return floor < plan->stored ? plan->stored : floor;
}

bool
retention_plan_is_jump(enum partition_parent parent, int32_t stored,
                       int32_t floor)
{
    int32_t span = partition_span(parent);
    int32_t step = span > RETENTION_STEP_DAYS ? span : RETENTION_STEP_DAYS;

    return stored != RETENTION_NO_FLOOR && floor - stored > step;
}

static int64_t
apart(int64_t left_us, int64_t right_us)
{
    return left_us < right_us ? right_us - left_us : left_us - right_us;
}

enum retention_doubt
retention_plan_doubt(const struct retention_clock *clock, int64_t wall_us)
{
    if (apart(clock->now_us, wall_us) > DOUBT_US) {
        return RETENTION_CLOCKS_DIFFER;
    }
    if (clock->heartbeat_us != INT64_MIN &&
        clock->now_us - clock->heartbeat_us > DOUBT_US) {
        return RETENTION_CLOCK_AHEAD;
    }
    return RETENTION_SURE;
}
