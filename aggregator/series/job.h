/*
 * job.h - what runs beside the flush, on connections of its own.
 *
 *   series_engine -> [rollup_job]  levels above 5s from the one below
 *                 -> [orphan_job]  tails of writers that are gone
 *
 * Both look by themselves now and then, may fail at any time, and find the
 * same work again at the next look.
 */

#ifndef SERIES_JOB_H
#define SERIES_JOB_H

#include "config/config.h"
#include "store/lane.h"
#include "store/partition.h"

/* For the connections of series: BRIN of the ledger, else look-ups by key,
   all of it planned once. */
#define SERIES_SETTINGS          \
    "enable_seqscan=off jit=off" \
    " plan_cache_mode=force_generic_plan"

struct series_job_options {
    const char *url; /* database; borrowed */
    struct lane *lane;
    struct partition *partition;
    struct config *const *config; /* the rules, as they are at the time */
    /* Rows of 5s were committed. */
    void (*on_flushed)(void *owner);
    void *owner;
};

enum series_job_state {
    SERIES_JOB_BUSY,    /* wait for it before the end */
    SERIES_JOB_WAITING, /* something is left to do; may end */
    SERIES_JOB_SETTLED  /* all is done that was there at the last wake */
};

struct series_job {
    /* Connects on its own, as meter_writer. */
    void *(*create)(uv_loop_t *loop, const struct series_job_options *options);
    /* At any time; before the lane and the partitions go. */
    void (*destroy)(void *job);
    /* There may be something to do, and the lane has been ready. */
    void (*wake)(void *job);
    /* Begins nothing any more; what runs may end. */
    void (*stop)(void *job);
    enum series_job_state (*state)(const void *job);
};

extern const struct series_job rollup_job;
extern const struct series_job orphan_job;

#endif
