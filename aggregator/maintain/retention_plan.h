/*
 * retention_plan.h - what retention may do, by the figures. Pure.
 *
 *   days to keep, clock -> wanted floor -> not above finer levels -> floor
 *
 * What is dropped is gone for ever, so a clock that is not to be trusted and
 * a floor that jumps are refused unless someone insists; days that became
 * fewer wait for that.
 */

#ifndef MAINTAIN_RETENTION_PLAN_H
#define MAINTAIN_RETENTION_PLAN_H

#include "maintain/retention_store.h"

/* A floor may rise by so many days at once, or by one partition. */
#define RETENTION_STEP_DAYS 32

/* Tables in the order in which they are looked at: finest series first. */
extern const enum partition_parent retention_order[PARTITION_PARENTS];

/*
 * The days in force: those of the configuration, unless they are fewer than
 * what was kept until now and nobody insists. *is_waiting: that is so.
 */
int
retention_plan_days(int configured, int kept, bool is_forced, bool *is_waiting);

struct retention_plan {
    int days;        /* to keep; -1: for ever */
    int32_t stored;  /* floor */
    int32_t ceiling; /* series: floor of the next finer level; INT32_MAX */
};

/*
 * The floor to be: today and so many days before it are kept, whole
 * partitions; never below the stored one, never above the ceiling.
 */
int32_t retention_plan_floor(enum partition_parent parent,
                             const struct retention_plan *plan, int64_t now_us);

/* A floor that was set before jumps further than days go by. */
bool retention_plan_is_jump(enum partition_parent parent, int32_t stored,
                            int32_t floor);

enum retention_doubt {
    RETENTION_SURE,
    RETENTION_CLOCKS_DIFFER, /* the database's and this machine's */
    RETENTION_CLOCK_AHEAD    /* of what any writer has seen */
};

/* wall_us: the clock of this machine. */
enum retention_doubt
retention_plan_doubt(const struct retention_clock *clock, int64_t wall_us);

#endif
